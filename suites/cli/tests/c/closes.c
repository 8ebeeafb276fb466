/* Closes NVML, of which it has looked something up, by the dlclose of its argument: its own ("own"), or libc's, looked up in what the argument names. Before
   cuInit and after. Says what all calls answered. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int (*of(void *library, const char *name))()
{
    return (int (*)())dlsym(library, name);
}

static int (*by)(void *) = dlclose;

static int close_nvml(int used)
{
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*query)() = of(nvml, "nvmlDeviceGetMemoryInfo"), answers = 0;
    if (used)
        answers = of(nvml, "nvmlInit_v2")() | of(nvml, "nvmlShutdown")();
    return answers | !query | by(nvml);
}

int main(int count, char **arguments)
{
    if (count > 1 && strcmp(arguments[1], "own")) {
        *(void **)&by = dlsym(dlopen(arguments[1], RTLD_NOW), "dlclose");
        printf("ours %d\n", by == dlclose);
    }
    for (int used = 0; used < 2; used++) {
        int closed = close_nvml(used);
        void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context = NULL;
        unsigned long long pointer = 0;
        int begun = of(cuda, "cuInit")(0);
        int made = of(cuda, "cuDevicePrimaryCtxRetain")(&context, 0) | of(cuda, "cuCtxSetCurrent")(context);
        int taken = of(cuda, "cuMemAlloc_v2")(&pointer, 700ul << 20);
        int after = close_nvml(1);
        printf("%d %d %d %d %d", closed, begun, made, taken, after);
        printf(" %d\n", of(cuda, "cuMemAlloc_v2")(&pointer, 700ul << 20));
    }
    return 0;
}
