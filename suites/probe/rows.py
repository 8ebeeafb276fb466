"""What NVML says of a device and of a process around every step of a client: cuInit, contexts, VkInstances, VkDevices, their ends.

On a card or a mock: `python3 rows.py > rows.txt`. Each scenario is a child that says its steps; the parent asks NVML after each and
writes scenario, step, bytes of the device in use beyond those at the start, the process's row among the compute processes, among the
graphics processes (`-`: none), and heapBudget where the step asked for it.
"""
import ctypes as C
import json
import os
import struct
import subprocess
import sys
import time

MIB = 1 << 20


def nvml():
    library = C.CDLL("libnvidia-ml.so.1")
    assert library.nvmlInit_v2() == 0
    device = C.c_void_p()
    assert library.nvmlDeviceGetHandleByIndex_v2(0, C.byref(device)) == 0
    return library, device


def used(library, device):
    memory = C.create_string_buffer(24)
    assert library.nvmlDeviceGetMemoryInfo(device, memory) == 0
    return struct.unpack("<QQQ", memory.raw)[2]


def rows(library, device, kind):
    count, room = C.c_uint(64), C.create_string_buffer(64 * 24)
    assert getattr(library, f"nvmlDeviceGet{kind}RunningProcesses_v3")(device, C.byref(count), room) == 0
    return dict(struct.unpack_from("<IxxxxQII", room.raw, 24 * at)[:2] for at in range(count.value))


class Vulkan:
    def __init__(self):
        self.l = C.CDLL("libvulkan.so.1")

    def instance(self):
        application = C.create_string_buffer(struct.pack("<IxxxxQQIxxxxQII", 0, 0, 0, 0, 0, 0, 0x401000), 48)
        info = struct.pack("<IxxxxQIxxxxQIxxxxQIxxxxQ", 1, 0, 0, C.addressof(application), 0, 0, 0, 0)
        instance = C.c_void_p()
        assert self.l.vkCreateInstance(C.create_string_buffer(info, 64), None, C.byref(instance)) == 0
        return instance

    def enumerate(self, instance):
        count, devices = C.c_uint(8), (C.c_void_p * 8)()
        assert self.l.vkEnumeratePhysicalDevices(instance, C.byref(count), devices) == 0
        return devices[0]

    def device(self, physical):
        priority = C.c_float(1.0)
        queue = C.create_string_buffer(struct.pack("<IxxxxQIIIxxxxQ", 2, 0, 0, 0, 1, C.addressof(priority)), 40)
        info = struct.pack("<IxxxxQIIQIxxxxQIxxxxQQ", 3, 0, 0, 1, C.addressof(queue), 0, 0, 0, 0, 0)
        device = C.c_void_p()
        assert self.l.vkCreateDevice(C.c_void_p(physical), C.create_string_buffer(info, 72), None, C.byref(device)) == 0
        return device

    def local_type(self, physical):
        memory = C.create_string_buffer(520)
        self.l.vkGetPhysicalDeviceMemoryProperties(C.c_void_p(physical), memory)
        count, = struct.unpack_from("<I", memory.raw, 0)
        return next(at for at in range(count) if struct.unpack_from("<I", memory.raw, 4 + 8 * at)[0] == 1)

    def allocate(self, device, kind, size):
        info, memory = C.create_string_buffer(struct.pack("<IxxxxQQIxxxx", 5, 0, size, kind), 32), C.c_uint64()
        assert self.l.vkAllocateMemory(device, info, None, C.byref(memory)) == 0
        return memory

    def budget(self, physical):
        budget, memory = C.create_string_buffer(272), C.create_string_buffer(536)
        struct.pack_into("<IxxxxQ", budget, 0, 1000237000, 0)
        struct.pack_into("<IxxxxQ", memory, 0, 1000059006, C.addressof(budget))
        self.l.vkGetPhysicalDeviceMemoryProperties2(C.c_void_p(physical), memory)
        return struct.unpack_from("<Q", budget.raw, 16)[0]


class Cuda:
    def __init__(self):
        self.l = C.CDLL("libcuda.so.1")

    def primary(self):
        context = C.c_void_p()
        assert self.l.cuDevicePrimaryCtxRetain(C.byref(context), 0) == 0
        assert self.l.cuCtxSetCurrent(context) == 0

    def context(self):
        context = C.c_void_p()
        assert self.l.cuCtxCreate_v2(C.byref(context), 0, 0) == 0
        return context


def say(step, budget=None):
    print(json.dumps([step, budget]), flush=True)
    sys.stdin.readline()


def initialised():
    cuda = Cuda()
    say("libcuda opened")
    assert cuda.l.cuInit(0) == 0
    say("cuInit")
    return cuda


def cuda():
    cuda = initialised()
    cuda.primary()
    say("primary")
    memory = C.c_uint64()
    assert cuda.l.cuMemAlloc_v2(C.byref(memory), C.c_size_t(1)) == 0
    say("cuMemAlloc 1")
    cuda.l.cuMemFree_v2(memory)
    say("cuMemFree")
    cuda.l.cuDevicePrimaryCtxRelease_v2(0)
    say("primary released")
    first = cuda.context()
    say("cuCtxCreate")
    second = cuda.context()
    say("second cuCtxCreate")
    cuda.l.cuCtxDestroy_v2(second)
    say("second destroyed")
    cuda.l.cuCtxDestroy_v2(first)
    say("destroyed")


def vulkan(devices=True, two=True):
    vulkan = Vulkan()
    say("libvulkan opened")
    instance = vulkan.instance()
    say("instance")
    physical = vulkan.enumerate(instance)
    say("enumerated")
    say("budget asked", vulkan.budget(physical))
    if two:
        other = vulkan.instance()
        say("instance 2")
        elsewhere = vulkan.enumerate(other)
        say("enumerated 2", vulkan.budget(physical))
    if devices:
        device = vulkan.device(physical)
        say("device", vulkan.budget(physical))
        memory = vulkan.allocate(device, vulkan.local_type(physical), 64 * MIB)
        say("allocated 64 MiB", vulkan.budget(physical))
        vulkan.l.vkFreeMemory(device, memory, None)
        say("freed", vulkan.budget(physical))
        second = vulkan.device(physical)
        say("device 2", vulkan.budget(physical))
        if two:
            third = vulkan.device(elsewhere)
            say("device of instance 2", vulkan.budget(elsewhere))
            vulkan.l.vkDestroyDevice(third, None)
            say("device of instance 2 destroyed")
        vulkan.l.vkDestroyDevice(second, None)
        say("device 2 destroyed", vulkan.budget(physical))
        vulkan.l.vkDestroyDevice(device, None)
        say("device destroyed", vulkan.budget(physical))
        device = vulkan.device(physical)
        say("device again", vulkan.budget(physical))
        vulkan.l.vkDestroyDevice(device, None)
        say("device again destroyed")
    if two:
        vulkan.l.vkDestroyInstance(other, None)
        say("instance 2 destroyed")
    vulkan.l.vkDestroyInstance(instance, None)
    say("instance destroyed")


def mixed():
    cuda = initialised()
    cuda.primary()
    say("primary")
    vulkan = Vulkan()
    instance = vulkan.instance()
    say("instance")
    physical = vulkan.enumerate(instance)
    say("enumerated", vulkan.budget(physical))
    device = vulkan.device(physical)
    say("device", vulkan.budget(physical))
    vulkan.l.vkDestroyDevice(device, None)
    say("device destroyed")
    vulkan.l.vkDestroyInstance(instance, None)
    say("instance destroyed")
    cuda.l.cuDevicePrimaryCtxRelease_v2(0)
    say("primary released")


def reverse():
    vulkan = Vulkan()
    instance = vulkan.instance()
    say("instance")
    physical = vulkan.enumerate(instance)
    say("enumerated")
    cuda = initialised()
    cuda.primary()
    say("primary", vulkan.budget(physical))
    cuda.l.cuDevicePrimaryCtxRelease_v2(0)
    say("primary released")
    vulkan.l.vkDestroyInstance(instance, None)
    say("instance destroyed")


SCENARIOS = {
    "instance": lambda: vulkan(False, False),
    "one": lambda: vulkan(True, False),
    "cuda": cuda,
    "mixed": mixed,
    "vulkan": vulkan,
    "reverse": reverse,
}


def play(session, scenario, idle):
    child = subprocess.Popen([sys.executable, __file__, scenario], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for line in child.stdout:
        step, budget = json.loads(line)
        lists = [rows(*session, kind).get(child.pid, "-") for kind in ("Compute", "Graphics")]
        print(scenario, step, used(*session) - idle, *lists, budget or "-", sep="\t", flush=True)
        child.stdin.write("\n")
        child.stdin.flush()
    assert child.wait() == 0, scenario
    deadline = time.monotonic() + 10
    while used(*session) != idle and time.monotonic() < deadline:
        time.sleep(0.01)


if len(sys.argv) > 1:
    SCENARIOS[sys.argv[1]]()
else:
    SESSION = nvml()
    IDLE = used(*SESSION)
    for NAME in SCENARIOS:
        play(SESSION, NAME, IDLE)
