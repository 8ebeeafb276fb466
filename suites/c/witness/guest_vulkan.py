"""A host program in Python that uses Vulkan by ctypes, and watches its guests. As guest.py."""
import atexit
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from ctypes import POINTER, byref, c_char_p, c_float, c_int32, c_uint32, c_uint64, c_void_p

from host import check, compare, have_habits, manners, tell
import host

MIB = 1 << 20
OUT_OF_DEVICE_MEMORY = -2

vulkan = ctypes.CDLL("libvulkan.so.1", use_errno=True)


def structure(name, *fields):
    """A structure of Vulkan's, which begins with its type and the next one."""
    return type(name, (ctypes.Structure,), {"_fields_": [("sType", c_int32), ("pNext", c_void_p), *fields]})


Application = structure(
    "VkApplicationInfo", ("name", c_char_p), ("version", c_uint32), ("engine", c_char_p), ("engineVersion", c_uint32), ("api", c_uint32)
)
InstanceInfo = structure(
    "VkInstanceCreateInfo", ("flags", c_uint32), ("application", POINTER(Application)), ("layers", c_uint32), ("layerNames", c_void_p),
    ("extensions", c_uint32), ("extensionNames", c_void_p),
)
QueueInfo = structure(
    "VkDeviceQueueCreateInfo", ("flags", c_uint32), ("family", c_uint32), ("count", c_uint32), ("priorities", POINTER(c_float))
)
DeviceInfo = structure(
    "VkDeviceCreateInfo", ("flags", c_uint32), ("queues", c_uint32), ("queueInfos", POINTER(QueueInfo)), ("layers", c_uint32),
    ("layerNames", c_void_p), ("extensions", c_uint32), ("extensionNames", c_void_p), ("features", c_void_p),
)
MemoryInfo = structure("VkMemoryAllocateInfo", ("size", c_uint64), ("type", c_uint32))
SubmitInfo = structure(
    "VkSubmitInfo", ("waits", c_uint32), ("waitSemaphores", c_void_p), ("stages", c_void_p), ("buffers", c_uint32), ("commandBuffers", c_void_p),
    ("signals", c_uint32), ("signalSemaphores", c_void_p),
)


class MemoryType(ctypes.Structure):
    _fields_ = [("flags", c_uint32), ("heap", c_uint32)]


class Heap(ctypes.Structure):
    _fields_ = [("size", c_uint64), ("flags", c_uint32)]


class MemoryProperties(ctypes.Structure):
    _fields_ = [("types", c_uint32), ("type", MemoryType * 32), ("heaps", c_uint32), ("heap", Heap * 16)]


class User:
    """Everything that one user of a device has."""

    def __init__(self):
        self.instance, self.physical, self.device, self.queue = (c_void_p() for _ in range(4))
        application = Application(0, None, None, 0, None, 0, 1 << 22 | 1 << 12)
        info = InstanceInfo(1, None, 0, ctypes.pointer(application))
        check("vkCreateInstance", vulkan.vkCreateInstance(byref(info), None, byref(self.instance)))
        count = c_uint32(1)
        if vulkan.vkEnumeratePhysicalDevices(self.instance, byref(count), byref(self.physical)) < 0:
            tell("vkEnumeratePhysicalDevices failed")
        priority = c_float(1)
        queue = QueueInfo(2, None, 0, 0, 1, ctypes.pointer(priority))
        info = DeviceInfo(3, None, 0, 1, ctypes.pointer(queue))
        check("vkCreateDevice", vulkan.vkCreateDevice(self.physical, byref(info), None, byref(self.device)))
        vulkan.vkGetDeviceQueue(self.device, c_uint32(0), c_uint32(0), byref(self.queue))
        properties = self.properties()
        kinds = [(kind.flags, number) for number, kind in enumerate(properties.type[: properties.types])]
        self.type = next(number for flags, number in kinds if flags == 1)
        self.heap = properties.type[self.type].heap

    def properties(self):
        properties = MemoryProperties()
        vulkan.vkGetPhysicalDeviceMemoryProperties(self.physical, byref(properties))
        return properties

    def total(self):
        return self.properties().heap[self.heap].size

    def allocate(self, size):
        memory = c_uint64()
        return vulkan.vkAllocateMemory(self.device, byref(MemoryInfo(5, None, size, self.type)), None, byref(memory)), memory

    def free(self, memory):
        vulkan.vkFreeMemory(self.device, memory, None)

    def submit(self):
        return vulkan.vkQueueSubmit(self.queue, c_uint32(1), byref(SubmitInfo(4)), c_uint64(0))

    def use(self):
        code, memory = self.allocate(3 * MIB)
        check("vkAllocateMemory", code)
        if self.allocate(2 * self.total())[0] != OUT_OF_DEVICE_MEMORY:
            tell("twice the heap was not refused")
        check("vkQueueSubmit", self.submit())
        check("vkQueueWaitIdle", vulkan.vkQueueWaitIdle(self.queue))
        self.free(memory)

    def end(self):
        vulkan.vkDestroyDevice(self.device, None)
        vulkan.vkDestroyInstance(self.instance, None)


def keeps_errno(user):
    code, memory = user.allocate(MIB)
    check("vkAllocateMemory", code)
    host.keeps_errno({
        "vkAllocateMemory": lambda: user.allocate(MIB),
        "vkAllocateMemory of too much": lambda: user.allocate(1 << 50),
        "vkFreeMemory": lambda: user.free(memory),
        "vkGetPhysicalDeviceMemoryProperties": user.properties,
        "vkQueueSubmit": user.submit,
    })


def in_child(_=None):
    """A process of its own, begun anew."""
    user = User()
    user.use()
    user.end()
    return True


def children():
    child = os.fork()
    if child == 0:
        os._exit(5)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 5:
        tell("a fork child ended otherwise than it wished")
    said = subprocess.run(["/bin/echo", "hello"], capture_output=True)
    if (said.stdout, said.stderr) != (b"hello\n", b""):
        tell(f"a child program said {said.stdout} and {said.stderr}")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        if pool.map(in_child, range(2)) != [True, True]:
            tell("spawned processes could not begin")


def main():
    have_habits()
    before = manners()
    user = User()
    user.use()
    compare(before, manners())
    keeps_errno(user)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    children()
    workers = [threading.Thread(target=in_child) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    @atexit.register
    def at_the_end():
        user.use()
        user.end()
        tell("kept")

    sys.exit(37)


if __name__ == "__main__":
    main()
