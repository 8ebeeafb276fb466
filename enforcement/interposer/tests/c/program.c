/* Looks names up in every way and says what it found, one `key=value` a line. argv: a library to open or "-", a module or "-", a wrapper or "-". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *owner(void *address) {
    Dl_info info;
    if (!address) return "null";
    if (!dladdr(address, &info)) return "unknown";
    const char *slash = strrchr(info.dli_fname, '/');
    return slash ? slash + 1 : info.dli_fname;
}

static void *opened;
static pthread_barrier_t barrier;

static void *first_call(void *unused) {
    (void)unused;
    pthread_barrier_wait(&barrier);
    int (*alloc)(unsigned long long *, unsigned long) = dlsym(opened, "cuMemAlloc_v2");
    unsigned long long place;
    return (void *)(long)(alloc ? alloc(&place, 4096) : -1);
}

int main(int argc, char **argv) {
    const char *library = argc > 1 ? argv[1] : "-", *module = argc > 2 ? argv[2] : "-", *wrapper = argc > 3 ? argv[3] : "-";
    printf("default_before=%s\n", owner(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")));
    printf("error_before=%d\n", dlerror() != NULL);
    printf("self_before=%s\n", owner(dlsym(dlopen(NULL, RTLD_NOW), "cuMemAlloc_v2")));
    dlerror();
    if (strcmp(library, "-")) {
        opened = dlopen(library, RTLD_NOW | RTLD_LOCAL);
        if (!opened) { printf("failed=%s\n", dlerror()); return 1; }
        pthread_t threads[8];
        pthread_barrier_init(&barrier, NULL, 8);
        for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, first_call, NULL);
        for (int i = 0; i < 8; i++) {
            void *answer;
            pthread_join(threads[i], &answer);
            printf("thread%d=%ld\n", i, (long)answer);
        }
        printf("handle=%s\n", owner(dlsym(opened, "cuMemAlloc_v2")));
        printf("handle_again=%s\n", owner(dlsym(opened, "cuMemAlloc_v2")));
        printf("versioned=%s\n", owner(dlvsym(opened, "cuMemAlloc_v2", "GLIBC_2.2.5")));
        printf("unhooked=%s\n", owner(dlsym(opened, "cuDriverGetVersion")));
        printf("absent=%s\n", owner(dlsym(opened, "cuMemFreeAsync")));
        dlerror();
        printf("local_default=%s\n", owner(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")));
        printf("local_next=%s\n", owner(dlsym(RTLD_NEXT, "cuMemAlloc_v2")));
        dlopen(library, RTLD_NOW | RTLD_GLOBAL);
        dlerror();
        printf("global_default=%s\n", owner(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2")));
        printf("global_next=%s\n", owner(dlsym(RTLD_NEXT, "cuMemAlloc_v2")));
        printf("global_error=%d\n", dlerror() != NULL);
        dlclose(opened);
    }
    if (strcmp(module, "-")) {
        void *handle = dlopen(module, RTLD_NOW | RTLD_LOCAL);
        if (!handle) { printf("failed=%s\n", dlerror()); return 1; }
        printf("module_alloc=%d\n", ((int (*)(void))dlsym(handle, "module_alloc"))());
        printf("module_default=%s\n", owner(((void *(*)(void))dlsym(handle, "module_default"))()));
        printf("module_next=%s\n", owner(((void *(*)(void))dlsym(handle, "module_next"))()));
    }
    if (strcmp(wrapper, "-")) {
        void *handle = dlopen(wrapper, RTLD_NOW | RTLD_LOCAL);
        if (!handle) { printf("failed=%s\n", dlerror()); return 1; }
        int (*alloc)(unsigned long long *, unsigned long) = dlsym(handle, "cuMemAlloc_v2");
        unsigned long long place;
        printf("wrapper=%s\n", owner((void *)alloc));
        printf("wrapper_alloc=%d\n", alloc(&place, 4096));
        printf("wrapper_next=%s\n", owner(((void *(*)(void))dlsym(handle, "wrapper_next"))()));
        printf("wrapper_next_versioned=%s\n", owner(((void *(*)(void))dlsym(handle, "wrapper_next_versioned"))()));
        printf("wrapper_calls=%d\n", *(int *)dlsym(handle, "wrapper_calls"));
    }
    /* Names that merely look like ours, and a name that everybody has. */
    printf("similar=%s\n", owner(dlsym(RTLD_DEFAULT, "cuMemAlloc_v23")));
    dlerror();
    printf("puts=%s\n", owner(dlsym(RTLD_NEXT, "puts")));
    printf("dlsym=%s\n", owner(dlsym(RTLD_DEFAULT, "dlsym")));
    printf("missing=%s\n", owner(dlsym(RTLD_NEXT, "no_such_function")));
    const char *error = dlerror();
    printf("missing_error=%d\n", error && strstr(error, "no_such_function") != NULL);
    fflush(stdout);
    return 0;
}
