/* A driver's cuInit and cuCtxCreate that call the program back, which initialises, makes contexts and allocates within. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>
typedef unsigned long long CUdeviceptr;
static int (*init)(unsigned), (*create)(void **, unsigned, int), (*alloc)(CUdeviceptr *, size_t), (*release)(CUdeviceptr);
static int (*info)(size_t *, size_t *);
static int within;
static void initialise(void) { within = init(0); }
static void make(void) {
	void *context;
	CUdeviceptr memory;
	within = init(0) || create(&context, 0, 0) || alloc(&memory, 2 << 20) || release(memory);
}
int main(void) {
	alarm(60);
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
	if (!driver) return 1;
	init = dlsym(driver, "cuInit");
	create = dlsym(driver, "cuCtxCreate_v2");
	alloc = dlsym(driver, "cuMemAlloc_v2");
	release = dlsym(driver, "cuMemFree_v2");
	info = dlsym(driver, "cuMemGetInfo_v2");
	void (*call_back)(void (*)(void)) = dlsym(driver, "call_back");
	call_back(initialise);
	within = -1;
	printf("init=%d,", init(0));
	printf("%d\n", within);
	size_t left, total;
	printf("left=%d,", info(&left, &total));
	printf("%zu KiB taken\n", (total - left) >> 10);
	call_back(make);
	within = -1;
	printf("create=%d,", create(&context, 0, 0));
	printf("%d\n", within);
	return 0;
}
