/* Libraries with something of their own that is named like a driver's: pointers that they fill (POINTERS, in one of three ways), functions that are a double
   of the driver for tests (DOUBLE), indirect (INDIRECT) or go on to the next of their name (NEXT), or weak references to the driver, which is not there (WEAK). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#ifdef POINTERS
int (*cuInit)(unsigned flags);
int (*cuDeviceGetCount)(int *count);

static int none(unsigned flags) { return 100 + (int)flags; }

static void *driver(const char *name) { return dlsym(dlopen("libcuda.so.1", RTLD_LAZY), name); }

int use(void)
{
    switch (POINTERS) {
    case 1: /* where there is nothing yet */
        if (!cuInit)
            cuInit = (int (*)(unsigned))driver("cuInit");
        break;
    case 2: /* whatever there is */
        cuInit = none;
        break;
    case 3: { /* where they are is known before the driver is there */
        void **volatile places[] = {(void **)&cuInit, (void **)&cuDeviceGetCount};
        *places[0] = driver("cuInit");
        *places[1] = driver("cuDeviceGetCount");
    }
    }
    int count = -1, answer = cuInit(0);
    if (cuDeviceGetCount)
        cuDeviceGetCount(&count);
    return printf("pointers %d: %d %d\n", POINTERS, answer, count) < 0;
}
#endif

#ifdef DOUBLE
static int calls;

int cuInit(unsigned flags) { return calls++, (int)flags; }
int cuMemGetInfo_v2(size_t *unused, size_t *total) { return calls++, *unused = 5, *total = 7, 0; }
int nvmlInit_v2(void) { return calls++, 0; }

int use(void)
{
    size_t unused = 1, total = 1;
    int answer = cuInit(0) | cuMemGetInfo_v2(&unused, &total) | nvmlInit_v2();
    return printf("double: %d, %d of its own, %zu of %zu\n", answer, calls, unused, total) < 0;
}
#endif

#ifdef INDIRECT
/* The loader calls what chooses it. */
static int none(unsigned flags) { return 70 + (int)flags; }
static int (*chosen)(unsigned) = none;
static void *choose(void) { return (void *)chosen; }
int cuInit(unsigned flags) __attribute__((ifunc("choose")));

int use(void) { return printf("indirect: %d\n", cuInit(1)) < 0; }
#endif

#ifdef NEXT
int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes)
{
    int (*next)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    printf(" wrapped");
    return next(pointer, bytes);
}
#endif

#ifdef WEAK
#pragma weak cuInit
#pragma weak nvmlInit_v2
int cuInit(unsigned flags);
int nvmlInit_v2(void);

int use(void) { return printf("weak: %d %d\n", cuInit ? cuInit(0) : -1, nvmlInit_v2 ? nvmlInit_v2() : -1) < 0; }
#endif
