/* Threads that are cancelled in their first call on streams of their own, under a budget with room for fewer; then another's first call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef unsigned long long u64;
static int (*set_current)(void *), (*copy)(void *, u64, size_t);
static void *context;
static u64 memory;
static volatile int is_in;

static void *first_call(void *answer) {
    char byte;
    set_current(context);
    is_in = 1;
    *(int *)answer = copy(&byte, memory, 1);
    return NULL;
}

int main(void) {
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = dlsym(cuda, "cuInit");
    int (*retain)(void **, int) = dlsym(cuda, "cuDevicePrimaryCtxRetain");
    int (*allocate)(u64 *, size_t) = dlsym(cuda, "cuMemAlloc_v2");
    int (*load)(void **, const char *) = dlsym(cuda, "cuModuleLoadData");
    int (*function_of)(void **, void *, const char *) = dlsym(cuda, "cuModuleGetFunction");
    int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **) =
        dlsym(cuda, "cuLaunchKernel");
    int (*synchronize)(void) = dlsym(cuda, "cuCtxSynchronize");
    set_current = dlsym(cuda, "cuCtxSetCurrent");
    copy = dlsym(cuda, "cuMemcpyDtoH_v2_ptds");
    u64 more;
    if (init(0) || retain(&context, 0) || set_current(context) || allocate(&memory, 4096))
        return 1;
    while (!allocate(&more, 128 << 20))
        ;
    /* Work for some seconds. */
    void *module, *function;
    if (load(&module, ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() { ret; }\n") ||
        function_of(&function, module, "k") || launch(function, 1000000000, 1, 1, 1024, 1, 1, 0, NULL, NULL, NULL))
        return 2;
    int answer = -1, cancelled = 0;
    for (int i = 0; i < 100; i++) {
        pthread_t thread;
        void *ended;
        is_in = 0;
        pthread_create(&thread, NULL, first_call, &answer);
        while (!is_in)
            usleep(10);
        usleep(500);
        pthread_cancel(thread);
        pthread_join(thread, &ended);
        cancelled += ended == PTHREAD_CANCELED;
    }
    if (synchronize())
        return 3;
    pthread_t thread;
    pthread_create(&thread, NULL, first_call, &answer);
    pthread_join(thread, NULL);
    printf("%s cancelled, then %d\n", cancelled ? "some" : "none", answer);
    return 0;
}
