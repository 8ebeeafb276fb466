/* Says for each step how many bytes of a thread's stack it reached. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 20, UNTOUCHED = 0xA7 };

static void *driver, *loader, *context;
static int answer;

static int init(void) { return ((int (*)(unsigned))dlsym(driver, "cuInit"))(0); }
static int make(void) { return ((int (*)(void **, unsigned, int))dlsym(driver, "cuCtxCreate_v2"))(&context, 0, 0); }
static int use(void) { return ((int (*)(void *))dlsym(driver, "cuCtxSetCurrent"))(context); }

static int allocate(void)
{
    unsigned long long pointer;
    return use() ? 1 : ((int (*)(unsigned long long *, size_t))dlsym(driver, "cuMemAlloc_v2"))(&pointer, 1 << 20);
}

static int ask_too_much(void)
{
    unsigned long long pointer;
    return use() ? 1 : ((int (*)(unsigned long long *, size_t))dlsym(driver, "cuMemAlloc_v2"))(&pointer, 1ull << 40) != 2;
}

static int instance(void)
{
    /* VkInstanceCreateInfo with nothing in it; its sType is 1. */
    struct { int type; const void *next; int flags; const void *application; unsigned layers; const void *names; unsigned extensions; const void *more; } info = {.type = 1};
    void *made = NULL;
    return ((int (*)(const void *, const void *, void **))dlsym(loader, "vkCreateInstance"))(&info, NULL, &made);
}

static void *step(void *function)
{
    answer = (*(int (**)(void))function)();
    return NULL;
}

static void measure(const char *name, int (*function)(void))
{
    unsigned char *stack = aligned_alloc(4096, BYTES);
    memset(stack, UNTOUCHED, BYTES);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, BYTES);
    pthread_t thread;
    pthread_create(&thread, &attributes, step, &function);
    pthread_join(thread, NULL);
    size_t least = 0;
    while (least < BYTES && stack[least] == UNTOUCHED)
        least++;
    printf("%s %d %zu\n", name, answer, BYTES - least);
}

int main(void)
{
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    loader = dlopen("libvulkan.so.1", RTLD_NOW);
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!driver || !loader || !nvml)
        return printf("%s\n", dlerror());
    /* NVML's own beginning is no call's of the others. */
    if (((int (*)(void))dlsym(nvml, "nvmlInit_v2"))())
        return printf("NVML does not begin\n");
    measure("cuInit", init);
    measure("cuCtxCreate", make);
    measure("cuMemAlloc", allocate);
    measure("refusal", ask_too_much);
    measure("vkCreateInstance", instance);
}
