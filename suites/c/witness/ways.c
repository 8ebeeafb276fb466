/* Which entry points a program finds, by each way there is: linked, by the library's handle, by cuGetProcAddress. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* Weak: the program starts without them, and then has NULL. No header, whose macros would rename them. */
#define WEAK(name) extern int name() __attribute__((weak));
#define EACH(row) \
    row(cuMemAlloc_v2) row(cuLibraryLoadData) row(cuGetProcAddress_v2) row(cuCtxCreate_v4) row(cuMemFree_v2)
#define EACH_OF_NVML(row) row(nvmlDeviceCcuGetStreamState) row(nvmlDeviceGetMemoryInfo_v2) row(nvmlDeviceGetName)
EACH(WEAK)
EACH_OF_NVML(WEAK)
extern int cuDriverGetVersion(int *), cuGetProcAddress(const char *, void **, int, unsigned long);
extern int nvmlInit_v2(void), nvmlSystemGetDriverVersion(char *, unsigned);

/* A base name, and whether the newest that it means is this very symbol. */
static int looked_up(const char *symbol, void *wanted) {
    char base[64];
    void *found = NULL;
    snprintf(base, sizeof base, "%s", symbol);
    char *suffix = strstr(base, "_v");
    if (suffix) *suffix = 0;
    int version = 0;
    cuDriverGetVersion(&version);
    return cuGetProcAddress(base, &found, version, 0) == 0 && found == wanted && found != NULL;
}

int main(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    int version = 0;
    char text[80] = "";
    cuDriverGetVersion(&version);
    nvmlInit_v2();
    nvmlSystemGetDriverVersion(text, sizeof text);
    printf("versions %d %s\n", version, text);
#define SAY(name) \
    printf("%s %d %d %d\n", #name, (void *)name != NULL, dlsym(cuda, #name) != NULL, looked_up(#name, dlsym(cuda, #name)));
    EACH(SAY)
#define SAY_NVML(name) printf("%s %d %d\n", #name, (void *)name != NULL, dlsym(nvml, #name) != NULL);
    EACH_OF_NVML(SAY_NVML)
    return 0;
}
