/* A library in front of the driver that has one of its functions, and finds the driver's by RTLD_NEXT. */
#define _GNU_SOURCE
#include <dlfcn.h>
typedef int (*alloc_fn)(unsigned long long *, unsigned long);
int wrapper_calls;
int cuMemAlloc_v2(unsigned long long *place, unsigned long size) {
    wrapper_calls++;
    alloc_fn next = (alloc_fn)dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    return next ? next(place, size) + 1000 : -1;
}
void *wrapper_next(void) { return dlsym(RTLD_NEXT, "cuMemAlloc_v2"); }
void *wrapper_next_versioned(void) { return dlvsym(RTLD_NEXT, "cuMemAlloc_v2", "GLIBC_2.2.5"); }
