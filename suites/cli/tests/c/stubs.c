/* Functions of the driver's names that open the driver when the first of them is called, as TensorFlow's stubs and those that implib.so makes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

static void *find(const char *name)
{
    static void *driver;
    if (!driver)
        driver = dlopen("libcuda.so.1", RTLD_LAZY);
    return driver ? dlsym(driver, name) : NULL;
}

enum { NO_DEVICE = 100 };

#define STUB(name, parameters, arguments)                  \
    int name parameters                                    \
    {                                                      \
        int(*function) parameters = find(#name);           \
        return function ? function arguments : NO_DEVICE;  \
    }

STUB(cuInit, (unsigned flags), (flags))
STUB(cuDeviceGetCount, (int *count), (count))
STUB(cuDevicePrimaryCtxRetain, (void **context, int device), (context, device))
STUB(cuCtxSetCurrent, (void *context), (context))
STUB(cuMemAlloc_v2, (unsigned long long *pointer, size_t bytes), (pointer, bytes))
