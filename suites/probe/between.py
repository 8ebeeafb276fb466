"""What the scenarios between two processes share: a partner with a line to it, and after each step what the device and NVML say."""
import array
import ctypes as C
import os
import socket
import subprocess
import sys
import time

DESCRIPTOR = 1
cuda, nvml = C.CDLL("libcuda.so.1"), C.CDLL("libnvidia-ml.so.1")
device = C.c_void_p()


class Row(C.Structure):
    _fields_ = [("pid", C.c_uint), ("used", C.c_ulonglong), ("gpu", C.c_uint), ("compute", C.c_uint)]


def does(code, what):
    assert code == 0, f"{what}: {code}"


def begin():
    context = C.c_void_p()
    does(cuda.cuInit(0), "cuInit")
    does(cuda.cuDevicePrimaryCtxRetain(C.byref(context), 0), "cuDevicePrimaryCtxRetain")
    does(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")


def watch():
    does(nvml.nvmlInit_v2(), "nvmlInit_v2")
    does(nvml.nvmlDeviceGetHandleByIndex_v2(0, C.byref(device)), "nvmlDeviceGetHandleByIndex_v2")
    begin()


def free():
    free, total = C.c_size_t(), C.c_size_t()
    does(cuda.cuMemGetInfo_v2(C.byref(free), C.byref(total)), "cuMemGetInfo")
    return free.value


def rows():
    count, found = C.c_uint(64), (Row * 64)()
    does(nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, C.byref(count), found), "rows")
    return {found[at].pid: found[at].used / 2**20 for at in range(count.value)}


def settled():
    """Free bytes once they stay the same: what ended before may not be gone yet."""
    told, since = free(), 0
    while since < 5:
        time.sleep(0.1)
        told, since = free(), since + 1 if free() == told else 0
    return told


class Scenario:
    def __init__(self, name):
        self.name, self.other, self.before = name, None, settled()

    def step(self, step):
        time.sleep(0.1)
        found = rows()
        told = [found.get(pid, "-") for pid in (os.getpid(), self.other and self.other.pid)]
        print(self.name, step, round((self.before - free()) / 2**20, 2), *told, sep="\t", flush=True)

    def begin_other(self, role):
        line, its = socket.socketpair()
        command = [sys.executable, sys.argv[0], role, str(its.fileno())]
        self.other = subprocess.Popen(command, pass_fds=[its.fileno()])
        self.line = line

    def has(self, word):
        self.line.send(word)
        return self.line.recv(1)

    def kill(self):
        self.other.kill()
        self.other.wait()

    def wait(self):
        self.other.wait()
        self.step("the other ended")


def send(line, descriptor, data=b"d"):
    line.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))])


def receive(line, size=1):
    data, parts, _, _ = line.recvmsg(size, socket.CMSG_LEN(4))
    descriptor = array.array("i", parts[0][2])[0]
    return descriptor if size == 1 else (descriptor, data)
