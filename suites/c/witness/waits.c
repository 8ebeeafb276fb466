/* Threads that are cancelled in the driver's functions: `waits wait FUNCTION` where it waits, `waits at-once` wherever they are. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int (*waits)(void *), (*take)(unsigned long long *, size_t), (*give)(unsigned long long);
static volatile int cleaned, begun;

static void clean(void *nothing) { __sync_add_and_fetch(&cleaned, 1); }

static void *wait_for_ever(void *nothing) {
    pthread_cleanup_push(clean, NULL);
    begun = 1;
    waits(NULL);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *take_for_ever(void *nothing) {
    int before;
    pthread_cleanup_push(clean, NULL);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &before);
    for (;;) {
        unsigned long long pointer;
        if (take(&pointer, 1 << 20) == 0) give(pointer);
    }
    pthread_cleanup_pop(0);
    return NULL;
}

static int cancelled(void *(*body)(void *), int patience) {
    pthread_t thread;
    void *ended = NULL;
    pthread_create(&thread, NULL, body, NULL);
    usleep(patience);
    pthread_cancel(thread);
    pthread_join(thread, &ended);
    return ended == PTHREAD_CANCELED;
}

int main(int count, char **arguments) {
    /* The kernel's end for a thread that is never cancelled. */
    alarm(60);
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *context;
    int (*start)(unsigned) = dlsym(cuda, "cuInit"), (*retain)(void **, int) = dlsym(cuda, "cuDevicePrimaryCtxRetain");
    take = dlsym(cuda, "cuMemAlloc_v2");
    give = dlsym(cuda, "cuMemFree_v2");
    unsigned long long pointer;
    if (start(0) || retain(&context, 0) || take(&pointer, 1 << 20)) return 2;
    int threads = 1, ended = 0;
    if (count == 3 && !strcmp(arguments[1], "wait")) {
        waits = dlsym(cuda, arguments[2]);
        ended = cancelled(wait_for_ever, 100000);
    } else {
        threads = 100;
        for (int i = 0; i < threads; i++) ended += cancelled(take_for_ever, 500 + 7 * i);
    }
    printf("%d of %d cancelled, %d cleaned up, then %d\n", ended, threads, cleaned, take(&pointer, 1 << 20));
    fflush(stdout);
    _exit(0);
}
