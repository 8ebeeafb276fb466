/* Frees 5 GiB of a pool in one stream's order, which does not get on, and asks for MiB after MiB in another's. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
typedef unsigned long long CUdeviceptr;
int main(void) {
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
	if (!driver) return 1;
	int (*init)(unsigned) = dlsym(driver, "cuInit");
	int (*create)(void **, unsigned, int) = dlsym(driver, "cuCtxCreate_v2");
	int (*alloc)(CUdeviceptr *, size_t, void *) = dlsym(driver, "cuMemAllocAsync");
	int (*freed)(CUdeviceptr, void *) = dlsym(driver, "cuMemFreeAsync");
	unsigned long long (*holds)(void) = dlsym(driver, "pool_holds");
	CUdeviceptr place;
	printf("begun=%d\n", init(0) || create(&context, 0, 0) || alloc(&place, 5ull << 30, (void *)0x16));
	printf("freed=%d\n", freed(place, (void *)0x16));
	for (int count = 0; count < 2048; count++) alloc(&place, 1 << 20, (void *)0x32);
	printf("pool=%llu\n", holds() >> 20);
	return 0;
}
