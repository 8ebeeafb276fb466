/* Calls our exports where there is no driver. argv[1]: our library. */
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    void *ours = dlopen(argv[argc - 1], RTLD_NOW);
    int (*init)(unsigned) = dlsym(ours, "cuInit");
    int (*memory)(void *, void *) = dlsym(ours, "nvmlDeviceGetMemoryInfo");
    if (!init || !memory) { printf("failed=%s\n", dlerror()); return 1; }
    printf("init=%d\nmemory=%d\n", init(0), memory(0, 0));
    return 0;
}
