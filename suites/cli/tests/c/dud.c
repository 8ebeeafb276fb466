/* A driver that cannot be initialised, as the toolkit's stub of libcuda, or one of another version than the kernel's module. */
#ifdef NVML
enum { DUD = 12 };
int nvmlInit_v2(void) { return DUD; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { (void)index, (void)device; return DUD; }
int nvmlDeviceGetMemoryInfo(void *device, void *memory) { (void)device, (void)memory; return DUD; }
#else
enum { DUD = 34 };
int cuInit(unsigned flags) { (void)flags; return DUD; }
int cuDevicePrimaryCtxRetain(void **context, int device) { (void)context, (void)device; return DUD; }
int cuCtxSetCurrent(void *context) { (void)context; return DUD; }
int cuMemAlloc_v2(unsigned long long *pointer, unsigned long bytes) { (void)pointer, (void)bytes; return DUD; }
#endif
