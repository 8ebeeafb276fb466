/* Frees 4 GiB in one stream's order, waits for something else, and asks for 4 GiB again; at last for the context. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
typedef unsigned long long CUdeviceptr;
int main(void) {
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
	if (!driver) return 1;
	int (*init)(unsigned) = dlsym(driver, "cuInit");
	int (*create)(void **, unsigned, int) = dlsym(driver, "cuCtxCreate_v2");
	int (*alloc)(CUdeviceptr *, size_t) = dlsym(driver, "cuMemAlloc_v2");
	int (*freed)(CUdeviceptr, void *) = dlsym(driver, "cuMemFreeAsync");
	int (*stream)(void *) = dlsym(driver, "cuStreamSynchronize"), (*event)(void *) = dlsym(driver, "cuEventSynchronize");
	int (*all)(void) = dlsym(driver, "cuCtxSynchronize");
	unsigned long long (*most)(void) = dlsym(driver, "most_held");
	CUdeviceptr first, again;
	size_t size = 4ull << 30;
	printf("begun=%d\n", init(0) || create(&context, 0, 0) || alloc(&first, size));
	printf("freed=%d\n", freed(first, (void *)0x16));
	printf("at once=%d\n", alloc(&again, size));
	printf("stream=%d,", stream((void *)0x32));
	printf("%d\n", alloc(&again, size));
	printf("event=%d,", event((void *)0x48));
	printf("%d\n", alloc(&again, size));
	printf("context=%d,", all());
	printf("%d\n", alloc(&again, size));
	printf("most=%llu\n", most() >> 30);
	return 0;
}
