/* Fills all but less than 5 MiB, then asks for 3 MiB that lie in three blocks of 2 MiB, and for contexts: one, and two whose parameters are wrong. */
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
	int (*left)(size_t *, size_t *) = dlsym(driver, "cuMemGetInfo_v2");
	size_t (*told)(void) = dlsym(driver, "told_at_free");
	CUdeviceptr first, odd;
	size_t size = 0, total;
	printf("begun=%d\n", init(0) || create(&context, 0, 0) || left(&size, &total) || alloc(&first, size - (5 << 20)));
	printf("straddling=%d\n", alloc(&odd, 3 << 20));
	printf("while it was held=%zu\n", told() >> 20);
	left(&size, &total);
	printf("after=%zu\n", size >> 20);
	int (*third)(void **, void *, int, unsigned, int) = dlsym(driver, "cuCtxCreate_v3");
	printf("contexts=%d,", third(&context, NULL, 0, 0, 0));
	printf("%d,", third(&context, NULL, 1, 0, 0));
	printf("%d\n", third(&context, &total, -1, 0, 0));
	return 0;
}
