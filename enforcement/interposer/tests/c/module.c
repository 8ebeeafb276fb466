/* An extension module that is linked to the driver and opened RTLD_LOCAL. */
#define _GNU_SOURCE
#include <dlfcn.h>
int cuMemAlloc_v2(unsigned long long *place, unsigned long size);
int module_alloc(void) { unsigned long long place; return cuMemAlloc_v2(&place, 4096); }
void *module_default(void) { return dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"); }
void *module_next(void) { return dlsym(RTLD_NEXT, "cuMemAlloc_v2"); }
