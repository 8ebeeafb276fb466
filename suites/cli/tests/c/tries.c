/* Tries the drivers of its arguments in turn: opens one, looks its functions up, initialises it, and closes it where that fails. Says what each answered:
   initialisation, then 1 GiB and 8, or NVML's total memory in GiB. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int cuda(void *driver)
{
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
    int (*use)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
    int (*allocate)(unsigned long long *, unsigned long) = (int (*)(unsigned long long *, unsigned long))dlsym(driver, "cuMemAlloc_v2");
    if (!init || !retain || !use || !allocate)
        return puts("NULL") < 0;
    int answer = init(0);
    if (answer)
        return printf("%d\n", answer) < 0;
    void *context = NULL;
    unsigned long long pointer = 0;
    int made = retain(&context, 0) | use(context);
    int small = allocate(&pointer, 1ul << 30);
    printf("0 %d %d %d\n", made, small, allocate(&pointer, 8ul << 30));
    return 1;
}

static int nvml(void *driver)
{
    int (*init)(void) = (int (*)(void))dlsym(driver, "nvmlInit_v2");
    int (*handle)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(driver, "nvmlDeviceGetHandleByIndex_v2");
    int (*query)(void *, void *) = (int (*)(void *, void *))dlsym(driver, "nvmlDeviceGetMemoryInfo");
    if (!init || !handle || !query)
        return puts("NULL") < 0;
    int answer = init();
    if (answer)
        return printf("%d\n", answer) < 0;
    void *device = NULL;
    unsigned long long memory[3] = {0};
    int found = handle(0, &device);
    int told = query(device, memory);
    printf("0 %d %d %llu\n", found, told, memory[0] >> 30);
    return 1;
}

int main(int count, char **arguments)
{
    for (int at = 1; at < count; at++) {
        void *driver = dlopen(arguments[at], RTLD_NOW | RTLD_LOCAL);
        if (!driver)
            return printf("%s\n", dlerror());
        if ((strstr(arguments[at], "nvidia-ml") ? nvml : cuda)(driver))
            return 0;
        dlclose(driver);
    }
    return 0;
}
