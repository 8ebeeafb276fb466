/* Uses the driver by a library's stubs: 1 GiB is granted, 8 are told of. */
#include <stddef.h>
#include <stdio.h>

int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuCtxSetCurrent(void *context);
int cuMemAlloc_v2(unsigned long long *pointer, size_t bytes);

int use(void)
{
    int count = 0;
    void *context = NULL;
    unsigned long long pointer = 0;
    printf("%d", cuInit(0));
    printf(" %d", cuDeviceGetCount(&count));
    printf(" %d", cuDevicePrimaryCtxRetain(&context, 0));
    printf(" %d", cuCtxSetCurrent(context));
    printf(" %d", cuMemAlloc_v2(&pointer, 1ull << 30));
    printf(" %d\n", cuMemAlloc_v2(&pointer, 8ull << 30));
    return 0;
}

#ifndef LIBRARY
int main(void) { return use(); }
#endif
