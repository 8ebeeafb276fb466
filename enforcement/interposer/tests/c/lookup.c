/* A preload that has a dlsym of its own in front of libc's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

#if defined(__aarch64__)
#define OLDEST "GLIBC_2.17"
#else
#define OLDEST "GLIBC_2.2.5"
#endif

typedef void *(*look_up)(void *, const char *);

/* Without dlsym's own name: that would be this one. */
static look_up behind(void) {
#ifdef VERSIONED
    look_up found = (look_up)dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.34");
    return found ? found : (look_up)dlvsym(RTLD_NEXT, "dlsym", OLDEST);
#else
    /* Bare this is libc's; with another such library before it, that one's. */
    static look_up first;
    if (!first) first = (look_up)dlvsym(RTLD_DEFAULT, "dlsym", OLDEST);
    return (look_up)first(RTLD_NEXT, "dlsym");
#endif
}

void *dlsym(void *handle, const char *name) {
    static look_up next;
    if (!next) next = behind();
    if (!next) abort();
    return next(handle, name);
}
