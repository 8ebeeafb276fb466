/* A driver of a few functions, each with an answer of its own. */
typedef unsigned long long CUdeviceptr;
int cuInit(unsigned flags) { (void)flags; return 0; }
int cuMemAlloc_v2(CUdeviceptr *place, unsigned long size) { (void)size; if (place) *place = 0x7000000000; return 77; }
int cuMemFree_v2(CUdeviceptr address) { (void)address; return 78; }
#ifdef WHOLE
int cuMemFreeAsync(CUdeviceptr address, void *stream) { (void)address; (void)stream; return 79; }
#endif
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
