/* Linked to the driver directly; any entry point may be the first call. */
#include <stdio.h>
int cuMemAlloc_v2(unsigned long long *place, unsigned long size);
int cuMemFreeAsync(unsigned long long address, void *stream);
int main(void) {
    unsigned long long place;
    printf("absent=%d\n", cuMemFreeAsync(4096, 0));
    printf("alloc=%d\n", cuMemAlloc_v2(&place, 4096));
    return 0;
}
