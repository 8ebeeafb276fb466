/* Refers weakly to functions of the driver: one that it has, if the program is linked to it (LINKED), and one that it has not. */
#include <stdio.h>

#pragma weak cuMemAlloc_v2
#pragma weak cuCtxCreate_v4
int cuMemAlloc_v2(unsigned long long *place, unsigned long size);
int cuCtxCreate_v4(void **context, void *parameters, unsigned flags, int device);

static int (*volatile has)(unsigned long long *, unsigned long) = cuMemAlloc_v2;

int main(void)
{
#ifdef LINKED
    const int linked = 1;
#else
    const int linked = 0;
#endif
    if (!cuMemAlloc_v2 != !linked || !has != !linked)
        return printf("cuMemAlloc_v2: %p, %p\n", (void *)cuMemAlloc_v2, (void *)has);
    if (cuCtxCreate_v4)
        return printf("cuCtxCreate_v4: %p\n", (void *)cuCtxCreate_v4);
    return puts("done") < 0;
}
