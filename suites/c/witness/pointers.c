/* A library that looks the driver up by itself, into pointers that are named like its functions: the shape of CUDA extension wranglers. With -DPROGRAM
   the program beside it, which is linked with the library, or with -DPLUGIN opens it; with -DOWN_LOOK_UP it has a dlsym of its own. No vendor header, whose declarations are functions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#ifndef PROGRAM
int (*cuInit)(unsigned);
int (*cuDevicePrimaryCtxRetain)(void **, int);
int (*cuCtxSetCurrent)(void *);
int (*cuMemAlloc_v2)(unsigned long long *, size_t);

/* By a table, as generated wranglers have it: its rows are relocations too. */
static const struct { const char *name; void **pointer; } table[] = {
    {"cuInit", (void **)&cuInit},
    {"cuDevicePrimaryCtxRetain", (void **)&cuDevicePrimaryCtxRetain},
    {"cuCtxSetCurrent", (void **)&cuCtxSetCurrent},
};

int fill(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 1;
    cuMemAlloc_v2 = dlsym(driver, "cuMemAlloc_v2");
    for (size_t at = 0; at < sizeof table / sizeof *table; at++)
        if (!(*table[at].pointer = dlsym(driver, table[at].name))) return 2;
    return cuMemAlloc_v2 == NULL;
}

int is_empty(void) { return cuInit == NULL && cuMemAlloc_v2 == NULL && *table[0].pointer == NULL; }

int take(size_t bytes) {
    void *context = NULL;
    unsigned long long address = 0;
    int code = cuInit(0);
    if (!code) code = cuDevicePrimaryCtxRetain(&context, 0);
    if (!code) code = cuCtxSetCurrent(context);
    return code ? code : cuMemAlloc_v2(&address, bytes);
}
#else
#ifdef OWN_LOOK_UP
/* As tracers have it: the one of libc that has this version, whatever else is called dlsym. */
void *dlsym(void *handle, const char *name) {
    static void *(*real)(void *, const char *);
    if (!real) real = (void *(*)(void *, const char *))dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.34");
    return real ? real(handle, name) : NULL;
}
#endif
#ifdef PLUGIN
int main(int count, char **arguments) {
    void *library = dlopen(arguments[count - 1], RTLD_NOW);
    if (!library) return puts(dlerror()), 1;
    /* What is looked up first is none of CUDA's names. */
    int (*is_empty)(void) = (int (*)(void))dlsym(library, "is_empty");
    int (*fill)(void) = (int (*)(void))dlsym(library, "fill");
    int (*take)(size_t) = (int (*)(size_t))dlsym(library, "take");
#else
extern int is_empty(void), fill(void), take(size_t);
int main(void) {
    printf("empty %d\n", is_empty());
#endif
    printf("filled %d\n", fill());
    printf("emptied %d\n", is_empty());
    printf("granted %d\n", take((size_t)1 << 30));
    printf("refused %d\n", take((size_t)8 << 30));
    return 0;
}
#endif
