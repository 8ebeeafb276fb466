/* A host program that uses Vulkan and has habits of its own, written in C against the public headers, which watches its guests.
 *
 *     guest_vulkan PROMISE
 *
 * As guest.c: each promise tells a line for everything it saw that should not be, and then `kept`.
 */
#include "host.h"

#include <vulkan/vulkan.h>

/* Everything that one user of a device has. */
struct user {
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue queue;
    uint32_t local, heap;
};

/* errno as every command leaves it, where that is watched. */
static int watching;
static void watched(const char *what) {
    if (watching && errno != 4242) tell("%s left errno %d", what, errno);
    errno = 4242;
}

static VkResult try_begin(struct user *user) {
    VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_3};
    VkInstanceCreateInfo instance = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
    watched("whoever was before");
    VkResult code = vkCreateInstance(&instance, NULL, &user->instance);
    watched("vkCreateInstance");
    if (code != VK_SUCCESS) return code;
    uint32_t count = 1;
    code = vkEnumeratePhysicalDevices(user->instance, &count, &user->physical);
    watched("vkEnumeratePhysicalDevices");
    if (code < 0) return code;
    VkPhysicalDeviceMemoryProperties memory;
    vkGetPhysicalDeviceMemoryProperties(user->physical, &memory);
    for (uint32_t type = memory.memoryTypeCount; type-- > 0;)
        if (memory.memoryTypes[type].propertyFlags == VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) user->local = type;
    user->heap = memory.memoryTypes[user->local].heapIndex;
    float priority = 1;
    VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
    const char *extensions[] = {"VK_KHR_external_memory_fd", "VK_EXT_memory_budget", "VK_KHR_synchronization2"};
    VkPhysicalDeviceSynchronization2Features second = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SYNCHRONIZATION_2_FEATURES, .synchronization2 = VK_TRUE};
    VkDeviceCreateInfo device = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .pNext = &second, .queueCreateInfoCount = 1, .pQueueCreateInfos = &queue,
        .enabledExtensionCount = 3, .ppEnabledExtensionNames = extensions,
    };
    watched("vkGetPhysicalDeviceMemoryProperties");
    code = vkCreateDevice(user->physical, &device, NULL, &user->device);
    watched("vkCreateDevice");
    if (code == VK_SUCCESS) vkGetDeviceQueue(user->device, 0, 0, &user->queue);
    return code;
}

static struct user begin(void) {
    struct user user = {0};
    must("an instance and a device", try_begin(&user));
    return user;
}

static void end(struct user user) {
    vkDestroyDevice(user.device, NULL);
    vkDestroyInstance(user.instance, NULL);
}

static VkDeviceSize heap_size(struct user user) {
    VkPhysicalDeviceMemoryProperties memory;
    vkGetPhysicalDeviceMemoryProperties(user.physical, &memory);
    return memory.memoryHeaps[user.heap].size;
}

/* What is left of the budget. */
static VkDeviceSize available(struct user user) {
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 memory = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, .pNext = &budget};
    vkGetPhysicalDeviceMemoryProperties2(user.physical, &memory);
    return budget.heapBudget[user.heap] - budget.heapUsage[user.heap];
}

static VkResult allocate(struct user user, VkDeviceSize size, VkDeviceMemory *memory) {
    VkExportMemoryAllocateInfo exportable = {
        .sType = VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO, .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
    };
    VkMemoryAllocateInfo info = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .pNext = &exportable, .allocationSize = size, .memoryTypeIndex = user.local,
    };
    return vkAllocateMemory(user.device, &info, NULL, memory);
}

static int exported(struct user user, VkDeviceMemory memory) {
    VkMemoryGetFdInfoKHR info = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR, .memory = memory, .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT,
    };
    PFN_vkGetMemoryFdKHR get = (PFN_vkGetMemoryFdKHR)vkGetDeviceProcAddr(user.device, "vkGetMemoryFdKHR");
    int fd = -1;
    return get(user.device, &info, &fd) == VK_SUCCESS ? fd : -1;
}

/* Memory that is granted, refused, exported, and given back; work for the queue. */
static void use(struct user user) {
    VkDeviceMemory memory, never;
    must("vkAllocateMemory", allocate(user, 3 * MIB, &memory));
    if (allocate(user, heap_size(user) * 2, &never) != VK_ERROR_OUT_OF_DEVICE_MEMORY) tell("twice the heap was not refused");
    int fd = exported(user, memory);
    if (fd < 0) tell("nothing was exported");
    else close(fd);
    VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO};
    must("vkQueueSubmit", vkQueueSubmit(user.queue, 1, &submit, VK_NULL_HANDLE));
    must("vkQueueWaitIdle", vkQueueWaitIdle(user.queue));
    vkFreeMemory(user.device, memory, NULL);
}

static void promise_manners(void) {
    have_habits();
    struct manners before = manners();
    struct user user = begin();
    use(user);
    compare(before, manners());
    end(user);
    compare(before, manners());
}

#define KEEPS(call) do { errno = 4242; call; if (errno != 4242) tell("%s left errno %d", #call, errno); } while (0)

/* At every command that a layer may hook, and with the budget used up. */
static void promise_errno(void) {
    struct user user = {0};
    uint32_t count = 0;
    VkResult code = 0;
    VkQueue queue;
    VkDeviceMemory memory, most;
    VkDeviceQueueInfo2 place = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_INFO_2};
    KEEPS(vkEnumerateInstanceExtensionProperties(NULL, &count, NULL));
    errno = 4242;
    watching = 1;
    code = try_begin(&user);
    must("an instance and a device", code);
    for (int state = 0; state < 2; state++) {
        KEEPS(vkEnumeratePhysicalDevices(user.instance, &count, NULL));
        KEEPS(vkEnumeratePhysicalDeviceGroups(user.instance, &count, NULL));
        KEEPS(vkEnumerateDeviceExtensionProperties(user.physical, NULL, &count, NULL));
        KEEPS(heap_size(user));
        KEEPS(available(user));
        KEEPS(vkGetDeviceQueue(user.device, 0, 0, &queue));
        KEEPS(vkGetDeviceQueue2(user.device, &place, &queue));
        KEEPS(vkGetInstanceProcAddr(user.instance, "vkAllocateMemory"));
        KEEPS(vkGetDeviceProcAddr(user.device, "vkAllocateMemory"));
        if (state == 0) {
            KEEPS(code = allocate(user, 3 * MIB, &memory));
            must("vkAllocateMemory", code);
            int fd = -1;
            KEEPS(fd = exported(user, memory));
            close(fd);
            KEEPS(vkFreeMemory(user.device, memory, NULL));
        }
        KEEPS(allocate(user, heap_size(user) * 2, &memory));
        KEEPS(allocate(user, 0, &memory));
        KEEPS(vkQueueSubmit(queue, 0, NULL, VK_NULL_HANDLE));
        KEEPS(vkQueueSubmit2(queue, 0, NULL, VK_NULL_HANDLE));
        KEEPS(vkQueueBindSparse(queue, 0, NULL, VK_NULL_HANDLE));
        if (state == 0)
            while (allocate(user, 64 * MIB, &most) == VK_SUCCESS);
    }
    struct user another = {0};
    errno = 4242;
    try_begin(&another);
    if (another.device) KEEPS(vkDestroyDevice(another.device, NULL));
    if (another.instance) KEEPS(vkDestroyInstance(another.instance, NULL));
    KEEPS(vkDestroyDevice(user.device, NULL));
    KEEPS(vkDestroyInstance(user.instance, NULL));
}

/* Began without stdin, stdout and stderr: they are still free for the host's own files. */
static void promise_closed(void) {
    struct user user = begin();
    use(user);
    for (int fd = 0; fd < 3; fd++) {
        char link[64], target[256] = "";
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        if (readlink(link, target, sizeof target - 1) > 0 && !strstr(target, "mock-device")) tell("descriptor %d is %s", fd, target);
    }
    end(user);
}

static void promise_inherited(void) {
    static char seen[1024];
    inheritable(seen, 0);
    struct user user = begin();
    use(user);
    inheritable(seen, 1);
    end(user);
}

static struct user at_exit;
static int ended[8], ends;
static void first_end(void) { ended[ends++] = 1; }
static void last_end(void) {
    ended[ends++] = 2;
    use(at_exit);
    end(at_exit);
}
static void tell_order(void) {
    if (ends != 2 || ended[0] != 2 || ended[1] != 1) tell("%d handlers ran, %d first", ends, ended[0]);
    tell("kept");
    _exit(STATUS);
}

static void promise_order(void) {
    atexit(tell_order);
    atexit(first_end);
    at_exit = begin();
    use(at_exit);
    atexit(last_end);
    exit(STATUS + 1);
}

/* The loader maps and unmaps its layers with every instance. */
static void promise_cycles(void) {
    VkDeviceSize before = 0;
    struct manners first = {0};
    for (int round = 0; round < 20; round++) {
        struct user user = begin();
        use(user);
        if (round == 0) before = available(user);
        else if (available(user) != before) tell("%llu bytes were available, then %llu", (unsigned long long)before, (unsigned long long)available(user));
        end(user);
        if (round == 1) first = manners();
    }
    compare(first, manners());
}

/* Every way to have a child, in the middle of use. A child of fork uses Vulkan by an exec alone, as the specification leaves it. */
static void promise_children(void) {
    struct user user = begin();
    use(user);
    VkDeviceMemory held;
    VkDeviceSize before = available(user);
    must("vkAllocateMemory", allocate(user, 64 * MIB, &held));
    pid_t child = fork();
    if (child == 0) exit(0);
    if (waited(child) != 0) tell("a fork child that runs its handlers at exit");
    child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    if (waited(child) != 0) tell("vfork and exec");
    char *const arguments[] = {"true", NULL};
    if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) != 0 || waited(child) != 0) tell("posix_spawn");
    child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) _exit(0);
    if (waited(child) != 0) tell("clone");
    if (system("exit 7") != 7 << 8) tell("system");
    child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "guest_vulkan", "again", (char *)NULL);
        _exit(1);
    }
    if (waited(child) != STATUS) tell("a program of fork and exec could not begin");
    use(user);
    vkFreeMemory(user.device, held, NULL);
    if (available(user) != before) tell("%llu bytes were available, then %llu", (unsigned long long)before, (unsigned long long)available(user));
    end(user);
}

/* What a child's program does. */
static void promise_again(void) {
    struct user user = begin();
    use(user);
    end(user);
    _exit(STATUS);
}

/* A daemon: forked twice, in a session of its own, every descriptor closed. */
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
        struct user user = {0};
        VkDeviceMemory memory;
        if (try_begin(&user)) answer = 'i';
        else if (allocate(user, MIB, &memory)) answer = 'a';
        else if (allocate(user, heap_size(user), &memory) != VK_ERROR_OUT_OF_DEVICE_MEMORY) answer = 'o';
        else if (umask(0) != 0) answer = 'u';
        write(answers[1], &answer, 1);
        _exit(0);
    }
    close(answers[1]);
    char answer = 0;
    if (read(answers[0], &answer, 1) != 1 || answer != 'k') tell("the daemon answered '%c'", answer ? answer : '?');
    if (waited(child) != 0) tell("the daemon's first parent");
}

/* Threads that each begin, use and end, all at once. */
static pthread_barrier_t together;
static void *own_instance(void *unused) {
    pthread_barrier_wait(&together);
    for (int round = 0; round < 4; round++) {
        struct user user = begin();
        use(user);
        end(user);
    }
    return unused;
}

static void promise_threads(void) {
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    pthread_barrier_init(&together, NULL, THREADS);
    for (int number = 0; number < THREADS; number++) must("pthread_create", pthread_create(&threads[number], NULL, own_instance, NULL));
    for (int number = 0; number < THREADS; number++) pthread_join(threads[number], NULL);
}

/* Nothing can be granted, and the host lives on. */
static void promise_alive(void) {
    struct user user = {0};
    VkDeviceMemory memory;
    for (int round = 0; round < 20; round++) {
        memset(&user, 0, sizeof user);
        if (try_begin(&user) == VK_SUCCESS && allocate(user, MIB, &memory) == VK_SUCCESS) tell("granted");
        if (user.device) vkDestroyDevice(user.device, NULL);
        if (user.instance) vkDestroyInstance(user.instance, NULL);
    }
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

#ifdef COUNTS
static void promise_work(void) {
    struct user user = begin();
    dl_iterate_phdr(find_guest, NULL);
    if (getenv("GUEST_EXPECTED") && !guest_count) tell("no guest is mapped");
    for (int round = 0; round < 1100; round++) {
        counting = round >= 100;
        VkDeviceMemory memory;
        VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO};
        must("vkAllocateMemory", allocate(user, 4096, &memory));
        must("vkQueueSubmit", vkQueueSubmit(user.queue, 1, &submit, VK_NULL_HANDLE));
        heap_size(user);
        available(user);
        vkFreeMemory(user.device, memory, NULL);
    }
    counting = 0;
    must("vkQueueWaitIdle", vkQueueWaitIdle(user.queue));
    tell_counts();
    end(user);
}
#endif

int main(int count, char **arguments) {
    const char *promise = count > 1 ? arguments[1] : "";
    if (!strcmp(promise, "manners")) promise_manners();
    else if (!strcmp(promise, "errno")) promise_errno();
    else if (!strcmp(promise, "closed")) promise_closed();
    else if (!strcmp(promise, "inherited")) promise_inherited();
    else if (!strcmp(promise, "order")) promise_order();
    else if (!strcmp(promise, "cycles")) promise_cycles();
    else if (!strcmp(promise, "children")) promise_children();
    else if (!strcmp(promise, "again")) promise_again();
    else if (!strcmp(promise, "daemon")) promise_daemon();
    else if (!strcmp(promise, "threads")) promise_threads();
    else if (!strcmp(promise, "alive")) promise_alive();
    else if (!strcmp(promise, "unread")) promise_unread();
#ifdef COUNTS
    else if (!strcmp(promise, "work")) promise_work();
#endif
    else tell("no promise is called %s", promise);
    tell("kept");
    return STATUS;
}
