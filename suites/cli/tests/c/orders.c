/* For each CUDA device the number that NVML has for it, and CUDA's total of it in MiB. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define FIND(library, name) __typeof__(int (*)()) name = (int (*)())dlsym(library, #name)

int main(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    FIND(cuda, cuInit);
    FIND(cuda, cuDeviceGetCount);
    FIND(cuda, cuDeviceGetPCIBusId);
    FIND(cuda, cuDeviceTotalMem_v2);
    FIND(nvml, nvmlInit_v2);
    FIND(nvml, nvmlDeviceGetHandleByPciBusId_v2);
    FIND(nvml, nvmlDeviceGetIndex);
    int count = 0;
    if (cuInit(0) || cuDeviceGetCount(&count) || nvmlInit_v2())
        return 1;
    for (int ordinal = 0; ordinal < count; ordinal++) {
        char address[32];
        size_t total;
        void *device;
        unsigned number;
        if (cuDeviceGetPCIBusId(address, 32, ordinal) || cuDeviceTotalMem_v2(&total, ordinal) || nvmlDeviceGetHandleByPciBusId_v2(address, &device) ||
            nvmlDeviceGetIndex(device, &number))
            return 2;
        printf("%u=%zu ", number, total >> 20);
    }
    return 0;
}
