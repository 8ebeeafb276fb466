/* A program whose malloc looks names up whenever the loader calls it: within a dlopen, with objects on the list that are not relocated yet. Opens, uses and
   closes the libraries of its arguments, four times. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static char pool[1 << 24] __attribute__((aligned(16)));
static size_t used;
static volatile int opens, asks; /* dlsym is said to call nobody back */

static void ask(void)
{
    if (!opens || asks)
        return;
    asks = 1;
    dlsym(RTLD_NEXT, "malloc");
    dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    asks = 0;
}

static void *take(size_t bytes)
{
    ask();
    bytes = (bytes + 31) & ~(size_t)15;
    if (used + bytes > sizeof pool)
        return NULL;
    char *place = pool + used;
    used += bytes;
    *(size_t *)place = bytes - 16;
    return place + 16;
}

void *malloc(size_t bytes) { return take(bytes); }

void free(void *place)
{
    (void)place;
    ask();
}

void *calloc(size_t count, size_t bytes)
{
    void *place = take(count * bytes);
    return place ? memset(place, 0, count * bytes) : NULL;
}

void *realloc(void *old, size_t bytes)
{
    void *place = take(bytes);
    if (place && old) {
        size_t kept = ((size_t *)old)[-2];
        memcpy(place, old, kept < bytes ? kept : bytes);
    }
    return place;
}

int main(int count, char **arguments)
{
    for (int round = 0; round < 4; round++)
        for (int at = 1; at < count; at++) {
            opens = 1;
            void *library = dlopen(arguments[at], RTLD_NOW | (round & 1 ? RTLD_GLOBAL : 0));
            opens = 0;
            if (!library)
                return printf("%s\n", dlerror());
            ((int (*)(void))dlsym(library, "use"))();
            opens = 1;
            dlclose(library);
            opens = 0;
        }
    return 0;
}
