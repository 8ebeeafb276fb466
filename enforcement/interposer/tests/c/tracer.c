/* A preload with a dlsym of its own, as tracers have it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

static int magic(void) { return 42; }

void *dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
#ifdef __x86_64__
    const char *first = "GLIBC_2.2.5";
#else
    const char *first = "GLIBC_2.17";
#endif
    if (!strcmp(name, "magic"))
        return (void *)magic;
    if (!real)
        real = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", first);
    return real(handle, name);
}
