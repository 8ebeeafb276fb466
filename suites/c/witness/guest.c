/* A host program with habits of its own, written in C against the public headers, which watches its guests.
 *
 *     guest PROMISE [ARGUMENT…]
 *
 * Each promise prints a line for everything it saw that should not be, and then `kept`. It ends with status 37, so that nobody else's exit can
 * be taken for its own. What it sees it tells by descriptor 9, where that is open: stdout and stderr belong to the test that watches them.
 */
#include "host.h"

#include <cuda.h>
#include <nvml.h>

/* A context on the first device, with memory taken by several ways, given back, and refused. */
static void begin(void) {
    CUdevice device;
    CUcontext context;
    must("cuInit", cuInit(0));
    must("cuDeviceGet", cuDeviceGet(&device, 0));
    must("cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain(&context, device));
    must("cuCtxSetCurrent", cuCtxSetCurrent(context));
}

static void use(void) {
    CUdeviceptr pointer, ordered;
    size_t free_bytes, total;
    must("cuMemAlloc", cuMemAlloc(&pointer, 3 * MIB));
    must("cuMemAllocAsync", cuMemAllocAsync(&ordered, MIB, NULL));
    must("cuMemGetInfo", cuMemGetInfo(&free_bytes, &total));
    CUdeviceptr never;
    if (cuMemAlloc(&never, total * 2) != CUDA_ERROR_OUT_OF_MEMORY) tell("twice the total was not refused");
    must("cuMemFreeAsync", cuMemFreeAsync(ordered, NULL));
    must("cuCtxSynchronize", cuCtxSynchronize());
    must("cuMemFree", cuMemFree(pointer));
    nvmlDevice_t handle;
    nvmlMemory_t memory;
    must("nvmlInit", nvmlInit());
    must("nvmlDeviceGetHandleByIndex", nvmlDeviceGetHandleByIndex(0, &handle));
    must("nvmlDeviceGetMemoryInfo", nvmlDeviceGetMemoryInfo(handle, &memory));
    must("nvmlShutdown", nvmlShutdown());
}

static void promise_manners(void) {
    have_habits();
    struct manners before = manners();
    begin();
    use();
    compare(before, manners());
}

/* Calls each of the named entry points with zeros, in three states; errno is the host's. */
static void promise_errno(int count, char **names) {
    typedef int function(long, long, long, long, long, long, long, long, long, long, long, long);
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *management = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    const char *states[] = {"before cuInit", "with a context", "with nothing left"};
    for (int state = 0; state < 3; state++) {
        CUdeviceptr pointer;
        if (state == 1) begin();
        if (state == 2) while (cuMemAlloc(&pointer, MIB * 64) == CUDA_SUCCESS);
        for (int at = 0; at < count; at++) {
            errno = 4242;
            function *called = (function *)dlsym(strncmp(names[at], "nvml", 4) ? cuda : management, names[at]);
            if (errno != 4242) tell("%s: looking for %s left errno %d", states[state], names[at], errno);
            if (!called) continue;
            errno = 4242;
            called(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
            if (errno != 4242) tell("%s: %s left errno %d", states[state], names[at], errno);
            CUcontext context;
            if (state > 0 && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS) {
                cuCtxSetCurrent(context);
                cuDevicePrimaryCtxRelease(0);
            }
        }
        if (state == 0) continue;
        CUdeviceptr own = 0;
        size_t free_bytes, total;
#define KEEPS(call) do { errno = 4242; (void)(call); if (errno != 4242) tell("%s: %s left errno %d", states[state], #call, errno); } while (0)
        KEEPS(cuMemAlloc(&own, 5 * MIB));
        KEEPS(cuMemFree(own));
        own = 0;
        KEEPS(cuMemAllocAsync(&own, 5 * MIB, NULL));
        KEEPS(cuMemFreeAsync(own, NULL));
        KEEPS(cuMemGetInfo(&free_bytes, &total));
        KEEPS(cuMemAlloc(&own, total * 2));
        KEEPS(cuInit(0));
        KEEPS(nvmlInit());
        nvmlDevice_t handle;
        nvmlMemory_t memory;
        KEEPS(nvmlDeviceGetHandleByIndex(0, &handle));
        KEEPS(nvmlDeviceGetMemoryInfo(handle, &memory));
        KEEPS(nvmlShutdown());
    }
}

/* Began without stdin, stdout and stderr: they are still free for the host's own files. */
static void promise_closed(void) {
    begin();
    use();
    for (int fd = 0; fd < 3; fd++) {
        char link[64], target[256] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, target, sizeof target - 1) > 0 && !strstr(target, "mock-device")) tell("descriptor %d is %s", fd, target);
    }
}

static void promise_inherited(void) {
    static char seen[1024];
    inheritable(seen, 0);
    begin();
    use();
    inheritable(seen, 1);
}

static int ended[8], ends;
static void first_end(void) { ended[ends++] = 1; }
static void last_end(void) {
    ended[ends++] = 2;
    /* Whatever the driver says by then. */
    CUdeviceptr pointer;
    tell("at exit %d %d", cuMemAlloc(&pointer, MIB), cuMemFree(0));
}
static void tell_order(void) {
    if (ends != 2 || ended[0] != 2 || ended[1] != 1) tell("%d handlers ran, %d first", ends, ended[0]);
    tell("kept");
    _exit(STATUS);
}

static void promise_order(void) {
    atexit(tell_order);
    atexit(first_end);
    begin();
    use();
    atexit(last_end);
    exit(STATUS + 1);
}

/* The driver's library opened, used, closed, and opened again. */
static void promise_dlclose(void) {
    size_t free_before = 0, free_after = 0, total;
    for (int round = 0; round < 20; round++) {
        void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        CUresult (*init)(unsigned) = dlsym(cuda, "cuInit");
        CUresult (*allocate)(CUdeviceptr *, size_t) = dlsym(cuda, "cuMemAlloc_v2");
        CUresult (*release)(CUdeviceptr) = dlsym(cuda, "cuMemFree_v2");
        must("cuInit", init(0));
        if (round == 0) {
            begin();
            must("cuMemGetInfo", cuMemGetInfo(&free_before, &total));
        }
        CUdeviceptr pointer;
        must("cuMemAlloc_v2", allocate(&pointer, 8 * MIB));
        must("cuMemFree_v2", release(pointer));
        dlclose(cuda);
    }
    must("cuMemGetInfo", cuMemGetInfo(&free_after, &total));
    if (free_before != free_after) tell("%zu bytes were free, then %zu", free_before, free_after);
}

/* Every way to have a child, in the middle of use. */
static int uninitialised(void) {
    CUdeviceptr pointer;
    return cuMemAlloc(&pointer, MIB) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1;
}

static void promise_children(void) {
    size_t before, after, total;
    begin();
    use();
    must("cuMemGetInfo", cuMemGetInfo(&before, &total));
    CUdeviceptr held;
    must("cuMemAlloc", cuMemAlloc(&held, 64 * MIB));
    pid_t child = fork();
    if (child == 0) _exit(uninitialised());
    if (waited(child) != 0) tell("a fork child was not told that it is uninitialised");
    child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    if (waited(child) != 0) tell("vfork and exec");
    char *const arguments[] = {"true", NULL};
    if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) != 0 || waited(child) != 0) tell("posix_spawn");
    /* No handler of pthread_atfork runs here. */
    child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) _exit(uninitialised());
    if (waited(child) != 0) tell("a clone was not told that it is uninitialised");
    if (system("exit 7") != 7 << 8) tell("system");
    FILE *piped = popen("echo hello", "r");
    char line[16] = "";
    if (!fgets(line, sizeof line, piped) || strcmp(line, "hello\n") || pclose(piped) != 0) tell("popen: %s", line);
    must("cuMemFree", cuMemFree(held));
    must("cuMemGetInfo", cuMemGetInfo(&after, &total));
    if (before != after) tell("%zu bytes were free, then %zu", before, after);
}

/* A daemon: forked twice, in a session of its own, every descriptor closed. What it sees goes by a descriptor that it keeps. */
static void promise_daemon(void) {
    int answers[2];
    must("pipe", pipe(answers));
    pid_t child = fork();
    if (child == 0) {
        setsid();
        if (fork() != 0) _exit(0);
        must("chdir", chdir("/"));
        umask(0);
        for (int fd = 0; fd < 4096; fd++)
            if (fd != answers[1]) close(fd);
        open("/dev/null", O_RDWR);
        dup(0);
        dup(0);
        char answer = 'k';
        CUdevice device;
        CUcontext context;
        CUdeviceptr pointer;
        size_t free_bytes, total;
        if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context)) answer = 'i';
        else if (cuMemAlloc(&pointer, MIB) || cuMemGetInfo(&free_bytes, &total)) answer = 'a';
        else if (cuMemAlloc(&pointer, free_bytes + MIB) != CUDA_ERROR_OUT_OF_MEMORY) answer = 'o';
        else if (getppid() == 0 || umask(0) != 0) answer = 'u';
        write(answers[1], &answer, 1);
        _exit(0);
    }
    close(answers[1]);
    char answer = 0;
    if (read(answers[0], &answer, 1) != 1 || answer != 'k') tell("the daemon answered '%c'", answer ? answer : '?');
    if (waited(child) != 0) tell("the daemon's first parent");
}

/* Every entry point may be a thread's, and the process's, first. */
static pthread_barrier_t together;
static void *first_call(void *number) {
    CUdevice device;
    CUcontext context;
    CUuuid uuid;
    int version;
    void *found;
    nvmlDevice_t handle;
    size_t total;
    CUdeviceptr pointer = 0;
    CUdriverProcAddressQueryResult status;
    pthread_barrier_wait(&together);
    switch ((long)number % 12) {
    case 0: cuInit(0); break;
    case 1: cuDriverGetVersion(&version); break;
    case 2: cuGetProcAddress("cuMemAlloc", &found, 12000, 0, &status); break;
    case 3: cuMemAlloc(&pointer, MIB); break;
    case 4: nvmlInit(); break;
    case 5: nvmlDeviceGetHandleByIndex(0, &handle); break;
    case 6: cuDeviceTotalMem(&total, 0); break;
    case 7: cuMemFree(0); break;
    case 8: dlsym(RTLD_DEFAULT, "cuMemAllocAsync"); break;
    case 9: cuDevicePrimaryCtxRetain(&context, 0); break;
    case 10: cuMemGetInfo(&total, &total); break;
    case 11: cuDeviceGetUuid(&uuid, 0); break;
    }
    int code = cuInit(0);
    if (code == 0) code = cuDeviceGet(&device, 0);
    if (code == 0) code = cuDevicePrimaryCtxRetain(&context, 0);
    if (code == 0) code = cuCtxSetCurrent(context);
    if (code == 0) code = cuMemAlloc(&pointer, MIB);
    if (code == 0) code = cuMemFree(pointer);
    return (void *)(long)code;
}

static void promise_threads(void) {
    pthread_t threads[24];
    pthread_barrier_init(&together, NULL, 24);
    for (long number = 0; number < 24; number++) must("pthread_create", pthread_create(&threads[number], NULL, first_call, (void *)number));
    for (long number = 0; number < 24; number++) {
        void *code;
        pthread_join(threads[number], &code);
        if (code) tell("thread %ld came to %ld", number, (long)code);
    }
}

/* Nothing can be granted, and the host lives on. */
static void promise_alive(void) {
    CUdevice device;
    CUcontext context;
    CUdeviceptr pointer;
    must("cuInit", cuInit(0));
    must("cuDeviceGet", cuDeviceGet(&device, 0));
    if (cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS) cuCtxSetCurrent(context);
    for (int time = 0; time < 200; time++)
        if (cuMemAlloc(&pointer, MIB) == CUDA_SUCCESS) tell("granted");
}

/* The same with a stderr whose reader is gone. */
static void promise_unread(void) {
    int ends_of_pipe[2];
    must("pipe", pipe(ends_of_pipe));
    close(ends_of_pipe[0]);
    dup2(ends_of_pipe[1], 2);
    signal(SIGPIPE, SIG_DFL);
    promise_alive();
    sigset_t waiting;
    sigpending(&waiting);
    if (sigismember(&waiting, SIGPIPE)) tell("SIGPIPE is left pending");
}

/* The same with a stderr that nobody has read for long: it takes nothing more. */
static void promise_full(void) {
    int ends_of_pipe[2];
    char some[4096] = {0};
    must("pipe", pipe(ends_of_pipe));
    fcntl(ends_of_pipe[1], F_SETFL, O_NONBLOCK);
    while (write(ends_of_pipe[1], some, sizeof some) > 0)
        ;
    fcntl(ends_of_pipe[1], F_SETFL, 0);
    dup2(ends_of_pipe[1], 2);
    promise_alive();
}

/* Allocators of programs often find libc's by dlsym, in their first call, before any constructor has run. */
#ifdef OWN_MALLOC
static void *(*next_malloc)(size_t);
static void (*next_free)(void *);
static int searching, recursions;
static char early[1 << 16];
static size_t used;

void *malloc(size_t size) {
    if (!next_malloc) {
        if (searching) {
            recursions++;
            void *room = early + used;
            used += (size + 31) & ~(size_t)15;
            return used <= sizeof early ? room : NULL;
        }
        searching = 1;
        next_malloc = dlsym(RTLD_NEXT, "malloc");
        next_free = dlsym(RTLD_NEXT, "free");
        searching = 0;
    }
    return next_malloc(size);
}

void free(void *memory) {
    if ((char *)memory >= early && (char *)memory < early + sizeof early) return;
    if (next_free) next_free(memory);
}

static void *volatile kept;
__attribute__((constructor(101))) static void allocate_early(void) { kept = malloc(100); }

static void promise_malloc(void) {
    if (recursions) tell("dlsym allocated %d times", recursions);
    if (!next_malloc || next_malloc == malloc) tell("RTLD_NEXT found the wrong malloc");
    free(kept);
    begin();
    use();
}
#endif

#ifdef COUNTS
static void promise_work(void) {
    CUdeviceptr pointer;
    size_t free_bytes, total;
    begin();
    dl_iterate_phdr(find_guest, NULL);
    for (int round = 0; round < 1100; round++) {
        counting = round >= 100;
        must("cuMemAllocAsync", cuMemAllocAsync(&pointer, 4096, NULL));
        must("cuMemFreeAsync", cuMemFreeAsync(pointer, NULL));
        must("cuMemAlloc", cuMemAlloc(&pointer, 4096));
        must("cuMemFree", cuMemFree(pointer));
        must("cuMemGetInfo", cuMemGetInfo(&free_bytes, &total));
    }
    counting = 0;
    tell_counts();
}
#endif

/* A library's constructor may be the first to use the driver, before main. */
static int constructed;
__attribute__((constructor)) static void construct(void) {
    if (getenv("GUEST_CONSTRUCTS")) {
        begin();
        use();
        constructed = 1;
    }
}

static void promise_constructor(void) {
    if (!constructed) tell("nothing was constructed");
    use();
}

int main(int count, char **arguments) {
    const char *promise = count > 1 ? arguments[1] : "";
    if (!strcmp(promise, "manners")) promise_manners();
    else if (!strcmp(promise, "errno")) promise_errno(count - 2, arguments + 2);
    else if (!strcmp(promise, "closed")) promise_closed();
    else if (!strcmp(promise, "inherited")) promise_inherited();
    else if (!strcmp(promise, "order")) promise_order();
    else if (!strcmp(promise, "dlclose")) promise_dlclose();
    else if (!strcmp(promise, "children")) promise_children();
    else if (!strcmp(promise, "daemon")) promise_daemon();
    else if (!strcmp(promise, "threads")) promise_threads();
    else if (!strcmp(promise, "alive")) promise_alive();
    else if (!strcmp(promise, "unread")) promise_unread();
    else if (!strcmp(promise, "full")) promise_full();
    else if (!strcmp(promise, "constructor")) promise_constructor();
#ifdef COUNTS
    else if (!strcmp(promise, "work")) promise_work();
#endif
#ifdef OWN_MALLOC
    else if (!strcmp(promise, "malloc")) promise_malloc();
#endif
    else tell("no promise is called %s", promise);
    tell("kept");
    return STATUS;
}
