/* A library that has nothing but a name of the driver's. */
int cuMemAllocHost_v2(void **memory, unsigned long bytes) { return memory && bytes ? 77 : 78; }
