/* Vulkan commands while malloc has nothing for the layer: each may be refused, and none ends the process. Says how many allocations were refused in all: "some" or "none". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vulkan/vulkan.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t), *__libc_memalign(size_t, size_t);

static uintptr_t from, to;
static volatile int is_dry, refused;

static int is_refused(void *caller)
{
    uintptr_t place = (uintptr_t)caller;
    if (!is_dry || place < from || place >= to)
        return 0;
    refused++;
    errno = ENOMEM;
    return 1;
}

#define REFUSED is_refused(__builtin_return_address(0))

void *malloc(size_t size) { return REFUSED ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return REFUSED ? NULL : __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return REFUSED ? NULL : __libc_realloc(old, size); }
void *memalign(size_t align, size_t size) { return REFUSED ? NULL : __libc_memalign(align, size); }
void *aligned_alloc(size_t align, size_t size) { return REFUSED ? NULL : __libc_memalign(align, size); }

int posix_memalign(void **out, size_t align, size_t size)
{
    if (REFUSED)
        return ENOMEM;
    *out = __libc_memalign(align, size);
    return *out ? 0 : ENOMEM;
}

static void find_the_layer(void)
{
    char line[4096];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        if (!strstr(line, "libvgpu_vk") || sscanf(line, "%lx-%lx", &begin, &end) != 2)
            continue;
        if (!from)
            from = begin;
        to = end;
    }
    if (maps)
        fclose(maps);
}

static VkDevice device_of(VkPhysicalDevice physical)
{
    float one = 1;
    VkDeviceQueueCreateInfo queue = {VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueCount = 1, .pQueuePriorities = &one};
    const char *names[] = {"VK_KHR_external_memory_fd"};
    VkDeviceCreateInfo info = {VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, .queueCreateInfoCount = 1, .pQueueCreateInfos = &queue,
                               .enabledExtensionCount = 1, .ppEnabledExtensionNames = names};
    VkDevice device = VK_NULL_HANDLE;
    return vkCreateDevice(physical, &info, NULL, &device) == VK_SUCCESS ? device : VK_NULL_HANDLE;
}

static VkDeviceMemory memory_of(VkDevice device, uint32_t type, VkDeviceSize size)
{
    VkExportMemoryAllocateInfo exported = {VK_STRUCTURE_TYPE_EXPORT_MEMORY_ALLOCATE_INFO, .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    VkMemoryAllocateInfo info = {VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &exported, size, type};
    VkDeviceMemory memory = VK_NULL_HANDLE;
    return vkAllocateMemory(device, &info, NULL, &memory) == VK_SUCCESS ? memory : VK_NULL_HANDLE;
}

int main(void)
{
    VkApplicationInfo app = {VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_2};
    VkInstanceCreateInfo info = {VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &app};
    VkInstance instance;
    VkPhysicalDevice physicals[8], physical = VK_NULL_HANDLE;
    uint32_t count = 8, type = 0;
    if (vkCreateInstance(&info, NULL, &instance) || vkEnumeratePhysicalDevices(instance, &count, physicals) < 0)
        return 2;
    for (uint32_t at = 0; at < count; at++) {
        VkPhysicalDeviceProperties told;
        vkGetPhysicalDeviceProperties(physicals[at], &told);
        if (told.vendorID == 0x10de)
            physical = physicals[at];
    }
    VkDevice device = physical ? device_of(physical) : VK_NULL_HANDLE;
    if (!device)
        return 3;
    VkPhysicalDeviceMemoryProperties types;
    vkGetPhysicalDeviceMemoryProperties(physical, &types);
    while (!(types.memoryTypes[type].propertyFlags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT))
        type++;
    VkQueue queue;
    vkGetDeviceQueue(device, 0, 0, &queue);
    VkDeviceMemory memory = memory_of(device, type, 1 << 20);
    PFN_vkGetMemoryFdKHR export = (PFN_vkGetMemoryFdKHR)vkGetDeviceProcAddr(device, "vkGetMemoryFdKHR");
    find_the_layer();

    is_dry = 1;
    int descriptor = -1;
    VkMemoryGetFdInfoKHR which = {VK_STRUCTURE_TYPE_MEMORY_GET_FD_INFO_KHR, .memory = memory, .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT};
    export(device, &which, &descriptor);
    VkSubmitInfo nothing = {VK_STRUCTURE_TYPE_SUBMIT_INFO};
    vkQueueSubmit(queue, 1, &nothing, VK_NULL_HANDLE);
    vkFreeMemory(device, memory_of(device, type, 400 << 20), NULL);
    vkFreeMemory(device, memory_of(device, type, (VkDeviceSize)64 << 30), NULL);
    VkDevice other = device_of(physical);
    if (other)
        vkDestroyDevice(other, NULL);
    vkFreeMemory(device, memory, NULL);
    vkDestroyDevice(device, NULL);
    is_dry = 0;

    if (descriptor >= 0)
        close(descriptor);
    vkDestroyInstance(instance, NULL);
    puts(refused ? "some" : "none");
    return 0;
}
