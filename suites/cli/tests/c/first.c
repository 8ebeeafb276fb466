/* Linked to the driver. Opens the plug-in of the first argument, whose constructor calls back here: it waits for a thread that makes one call, named by the
   second argument: the process's first of CUDA or NVML, or one of a VkDevice that was made before. Says "done". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <vulkan/vulkan.h>

int cuInit(unsigned flags);
int nvmlInit_v2(void);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetMemoryInfo(void *device, void *memory);

static const char *call;
static int answer = -1;
static void *first;
static VkDevice device;
static VkQueue queue;
static int (*looked_up)(unsigned);

static int is(const char *name) { return !strcmp(call, name); }

static void *makes_the_call(void *unused)
{
    (void)unused;
    if (is("cuInit"))
        answer = cuInit(0);
    if (is("cuInit that was looked up"))
        answer = looked_up(0);
    if (is("nvmlDeviceGetMemoryInfo")) {
        unsigned long long memory[3];
        answer = nvmlDeviceGetMemoryInfo(first, memory);
    }
    VkMemoryAllocateInfo wanted = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, .allocationSize = 1u << 30};
    VkDeviceMemory memory;
    if (is("vkAllocateMemory"))
        answer = vkAllocateMemory(device, &wanted, NULL, &memory);
    wanted.allocationSize = 1ull << 40;
    if (is("a refusal"))
        answer = vkAllocateMemory(device, &wanted, NULL, &memory) == VK_SUCCESS;
    VkSubmitInfo nothing = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO};
    if (is("vkQueueSubmit"))
        answer = vkQueueSubmit(queue, 1, &nothing, VK_NULL_HANDLE);
    if (is("vkDestroyDevice")) {
        vkDestroyDevice(device, NULL);
        answer = 0;
    }
    return NULL;
}

void constructed(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, makes_the_call, NULL);
    pthread_join(thread, NULL);
}

static int make_device(void)
{
    VkInstanceCreateInfo described = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    VkInstance instance;
    VkPhysicalDevice physical;
    uint32_t count = 1;
    float priority = 1;
    if (vkCreateInstance(&described, NULL, &instance) || vkEnumeratePhysicalDevices(instance, &count, &physical) < 0)
        return 1;
    VkDeviceQueueCreateInfo queues = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &priority};
    VkDeviceCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .queueCreateInfoCount = 1, .pQueueCreateInfos = &queues};
    if (vkCreateDevice(physical, &info, NULL, &device))
        return 1;
    vkGetDeviceQueue(device, 0, 0, &queue);
    return 0;
}

int main(int count, char **arguments)
{
    if (count != 3)
        return printf("usage: first PLUGIN CALL\n");
    call = arguments[2];
    if (is("cuInit that was looked up"))
        looked_up = (int (*)(unsigned))dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuInit");
    if (is("nvmlDeviceGetMemoryInfo") && (nvmlInit_v2() || nvmlDeviceGetHandleByIndex_v2(0, &first)))
        return printf("NVML does not begin\n");
    if (strncmp(call, "cu", 2) && strncmp(call, "nvml", 4) && make_device())
        return printf("no VkDevice\n");
    if (!dlopen(arguments[1], RTLD_NOW))
        return printf("%s\n", dlerror());
    if (answer)
        return printf("%s answered %d\n", call, answer);
    return puts("done") < 0;
}
