/* A libcuda whose waits never end by themselves and are points of cancellation, as poll(2) is in a vendor's driver. No header: a few functions suffice. */
#include <stddef.h>
#include <time.h>
#include <unistd.h>

#define FUNCTION(name, ...) int name(__VA_ARGS__); int name(__VA_ARGS__)
FUNCTION(cuInit, unsigned flags) { return 0; }
FUNCTION(cuDriverGetVersion, int *version) { *version = 12080; return 0; }
FUNCTION(cuDeviceGet, int *device, int ordinal) { *device = 0; return 0; }
FUNCTION(cuDeviceGetCount, int *count) { *count = 1; return 0; }
FUNCTION(cuDeviceGetUuid, unsigned char *uuid, int device) { for (int i = 0; i < 16; i++) uuid[i] = i + 1; return 0; }
FUNCTION(cuDeviceGetAttribute, int *value, int attribute, int device) { *value = 1; return 0; }
FUNCTION(cuDeviceTotalMem_v2, size_t *total, int device) { *total = (size_t)1 << 36; return 0; }
FUNCTION(cuDevicePrimaryCtxRetain, void **context, int device) { *context = (void *)8; return 0; }
FUNCTION(cuCtxGetCurrent, void **context) { *context = (void *)8; return 0; }
FUNCTION(cuCtxSetCurrent, void *context) { return 0; }
FUNCTION(cuCtxGetDevice, int *device) { *device = 0; return 0; }
FUNCTION(cuCtxSynchronize, void) { pause(); return 0; }
FUNCTION(cuStreamSynchronize, void *stream) { pause(); return 0; }
FUNCTION(cuEventSynchronize, void *event) { pause(); return 0; }
FUNCTION(cuMemGetInfo_v2, size_t *room, size_t *total) { *room = *total = (size_t)1 << 36; return 0; }
FUNCTION(cuMemAlloc_v2, unsigned long long *pointer, size_t bytes) {
    static unsigned long long next = 1ull << 30;
    *pointer = __sync_add_and_fetch(&next, bytes + 65536);
    return 0;
}
FUNCTION(cuMemFree_v2, unsigned long long pointer) { return 0; }
