/* What honest programs do while the enforcer finds its way in them: an argument says which. Prints "done" where nothing went wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef int (*iterate)(int (*)(struct dl_phdr_info *, size_t, void *), void *);

static volatile int stop;

static int one(struct dl_phdr_info *info, size_t size, void *count) {
    (void)info, (void)size;
    if (count)
        ++*(int *)count;
    return 0;
}

#ifdef OWN_ITERATE
/* As seastar and caches of program headers have it: the real one is looked up at the first use. */
int dl_iterate_phdr(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data) {
    static iterate real;
    if (!real)
        real = (iterate)dlsym(RTLD_NEXT, "dl_iterate_phdr");
    return real(callback, data);
}
#endif

#ifdef OWN_MALLOC
/* As a heap profiler has it: it looks through the objects with its own lock held, and may have nothing left. */
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
static pthread_mutex_t heap = PTHREAD_MUTEX_INITIALIZER;
static __thread int inside;
static volatile int empty;

void *malloc(size_t bytes) {
    static unsigned count;
    if (inside)
        return __libc_malloc(bytes);
    if (empty) {
        errno = ENOMEM;
        return NULL;
    }
    inside = 1;
    pthread_mutex_lock(&heap);
    if (++count % 4 == 0)
        dl_iterate_phdr(one, NULL);
    void *memory = __libc_malloc(bytes);
    pthread_mutex_unlock(&heap);
    inside = 0;
    return memory;
}

void *calloc(size_t count, size_t bytes) { return empty ? NULL : __libc_calloc(count, bytes); }
void *realloc(void *memory, size_t bytes) { return empty ? NULL : __libc_realloc(memory, bytes); }

static void *allocates(void *unused) {
    (void)unused;
    while (!stop)
        free(malloc(32));
    return NULL;
}
#endif

static void *looks_up(void *unused) {
    (void)unused;
    while (!stop)
        dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
    return NULL;
}

static void *unwinds(void *unused) {
    (void)unused;
    while (!stop)
        dl_iterate_phdr(one, NULL);
    return NULL;
}

static void *opens(void *path) {
    while (!stop) {
        void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        if (library)
            dlclose(library);
    }
    return NULL;
}

static void *found;

static void look_up(int signal) {
    (void)signal;
    found = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* Forks beside a thread until some time is over; each child looks a name up and is waited for as long as a busy machine may take. */
static int forks(void *(*thread)(void *)) {
    pthread_t beside;
    pthread_create(&beside, NULL, thread, NULL);
    double start = seconds();
    for (int children = 0; children < 20 || seconds() - start < 1; children++) {
        pid_t child = fork();
        if (!child) {
            alarm(30);
            _exit(dlsym(RTLD_DEFAULT, "cuMemFree_v2") == NULL);
        }
        int status = -1;
        waitpid(child, &status, 0);
        if (status != 0)
            return printf("a child ended with %#x\n", status);
    }
    stop = 1;
    pthread_join(beside, NULL);
    return 0;
}

int main(int count, char **arguments) {
    const char *what = arguments[1];
    alarm(60);
    if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL))
        return printf("%s\n", dlerror());
    pthread_t thread;
    if (!strcmp(what, "iterates")) {
        int objects = 0;
        dl_iterate_phdr(one, &objects);
        if (objects < 3 || !dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"))
            return printf("%d objects\n", objects);
    } else if (!strcmp(what, "forks beside look-ups")) {
        if (forks(looks_up))
            return 1;
    } else if (!strcmp(what, "forks beside unwinding")) {
        if (forks(unwinds))
            return 1;
    } else if (!strcmp(what, "looks up beside dlclose")) {
        pthread_create(&thread, NULL, opens, arguments[2]);
        for (int i = 0; i < 20000; i++)
            if (!dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"))
                return printf("%d: not found\n", i);
        stop = 1;
        pthread_join(thread, NULL);
    } else if (!strcmp(what, "looks up on a signal's stack")) {
        const size_t bytes = 8192, guard = 4096;
        char *stack = mmap(NULL, guard + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(stack, guard, PROT_NONE);
        stack_t alternate = {.ss_sp = stack + guard, .ss_size = bytes};
        struct sigaction action = {.sa_handler = look_up, .sa_flags = SA_ONSTACK};
        if (sigaltstack(&alternate, NULL) || sigaction(SIGUSR1, &action, NULL))
            return printf("no signal's stack\n");
        raise(SIGUSR1);
        if (!found)
            return printf("not found\n");
    } else if (!strcmp(what, "sees a stub")) {
        void *stub = dlopen(arguments[2], RTLD_NOW | RTLD_GLOBAL);
        void *own = stub ? dlsym(stub, "cuMemAllocHost_v2") : NULL;
        if (!own || dlsym(RTLD_DEFAULT, "cuMemAllocHost_v2") != own)
            return printf("%p is not seen\n", own);
    } else if (!strcmp(what, "asks another preload")) {
        int (*magic)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "magic");
        if (!magic || magic() != 42 || !dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"))
            return printf("no magic\n");
    } else if (!strcmp(what, "begins")) {
        int (*init)(unsigned) = (int (*)(unsigned))dlsym(RTLD_DEFAULT, "cuInit");
        int (*allocate)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
        unsigned long long address;
        init(0);
        allocate(&address, 4096);
#ifdef OWN_MALLOC
    } else if (!strcmp(what, "looks up beside an allocator")) {
        pthread_create(&thread, NULL, allocates, NULL);
        for (int i = 0; i < 3000; i++)
            if (!dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"))
                return printf("%d: not found\n", i);
        stop = 1;
        pthread_join(thread, NULL);
    } else if (!strcmp(what, "looks up without memory")) {
        empty = 1;
        found = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
        empty = 0;
        if (!found)
            return printf("not found\n");
    } else if (!strcmp(what, "begins without memory")) {
        int (*init)(unsigned) = (int (*)(unsigned))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit");
        empty = 1;
        init(0);
        empty = 0;
#endif
    } else {
        return printf("%s with %d arguments?\n", what, count);
    }
    printf("done\n");
    return 0;
}
