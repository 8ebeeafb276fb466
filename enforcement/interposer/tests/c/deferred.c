/* A driver with one device, one context and streams that never get on by themselves: what is freed in stream order is held until the context is waited for.
   What it gives for 3 MiB lies in three blocks of 2 MiB. */
#include <stddef.h>
typedef unsigned long long CUdeviceptr;
enum { CONTEXT = 0x5000 };
static unsigned long long held, pending, most, sizes[16];
static size_t told;
static int count;
/* What it calls in the middle of its own calls, as drivers do that load somebody's library. */
static void (*back)(void);
static void go_back(void) {
	void (*once)(void) = back;
	back = 0;
	if (once) once();
}
void call_back(void (*called)(void)) { back = called; }
int cuInit(unsigned flags) { (void)flags; go_back(); return 0; }
int cuDeviceGetCount(int *devices) { *devices = 1; return 0; }
int cuCtxCreate_v2(void **context, unsigned flags, int device) { (void)flags; (void)device; go_back(); *context = (void *)CONTEXT; return 0; }
int cuCtxCreate_v3(void **context, void *params, int count, unsigned flags, int device) {
	if (count < 0 || (count && !params)) return 1;
	return cuCtxCreate_v2(context, flags, device);
}
int cuCtxGetCurrent(void **context) { *context = (void *)CONTEXT; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuStreamGetCtx(void *stream, void **context) { (void)stream; *context = (void *)CONTEXT; return 0; }
int cuMemAlloc_v2(CUdeviceptr *place, size_t size) {
	if (size > 1ull << 40) { *place = 0; return 2; }
	held += sizes[count] = size;
	if (held > most) most = held;
	*place = 0x7000000000 + ((CUdeviceptr)count++ << 36) + (size == 3 << 20 ? 3 << 19 : 0);
	return 0;
}
int cuMemGetInfo_v2(size_t *left, size_t *total) { *left = *total = 1ull << 40; return 0; }
int cuMemFree_v2(CUdeviceptr address) {
	/* What a tenant is told while the memory is still held. */
	size_t total;
	cuMemGetInfo_v2(&told, &total);
	held -= sizes[(address - 0x7000000000) >> 36];
	return 0;
}
/* The pool's memory, below the others' addresses, is never used again either. */
static unsigned long long reserved, used;
int cuMemAllocAsync(CUdeviceptr *place, size_t size, void *stream) {
	(void)stream;
	if (size > 1ull << 40) return 2;
	*place = 0x1000000000 + used;
	used += size;
	while (reserved < used) reserved += 32 << 20;
	return 0;
}
int cuDeviceGetMemPool(void **pool, int device) { (void)device; *pool = (void *)0x6000; return 0; }
int cuDeviceGetDefaultMemPool(void **pool, int device) { return cuDeviceGetMemPool(pool, device); }
int cuMemPoolGetAttribute(void *pool, int attribute, unsigned long long *value) { (void)pool; (void)attribute; *value = reserved; return 0; }
int cuMemPoolTrimTo(void *pool, size_t keep) { (void)pool; (void)keep; return 0; }
unsigned long long pool_holds(void) { return reserved; }
int cuMemFreeAsync(CUdeviceptr address, void *stream) {
	(void)stream;
	if (address >= 0x7000000000) pending += sizes[(address - 0x7000000000) >> 36];
	return 0;
}
int cuStreamSynchronize(void *stream) { (void)stream; return 0; }
int cuEventSynchronize(void *event) { (void)event; return 0; }
int cuCtxSynchronize(void) { held -= pending; pending = 0; return 0; }
unsigned long long most_held(void) { return most; }
size_t told_at_free(void) { return told; }
