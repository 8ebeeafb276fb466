"""A host program in Python, which watches its guests. It tells what it saw that should not be by descriptor 9, then `kept`, and ends with 37."""
import atexit
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

from host import check, compare, have_habits, manners, tell
import host

MIB = 1 << 20


cuda = ctypes.CDLL("libcuda.so.1", use_errno=True)
nvml = ctypes.CDLL("libnvidia-ml.so.1", use_errno=True)
size = ctypes.c_size_t


def begin():
    context, device = ctypes.c_void_p(), ctypes.c_int()
    check("cuInit", cuda.cuInit(0))
    check("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), 0))
    check("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context))


def use():
    pointer, free, total = ctypes.c_uint64(), size(), size()
    check("cuMemAlloc_v2", cuda.cuMemAlloc_v2(ctypes.byref(pointer), size(3 * MIB)))
    check("cuMemFree_v2", cuda.cuMemFree_v2(pointer))
    check("cuMemGetInfo_v2", cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    if cuda.cuMemAlloc_v2(ctypes.byref(pointer), size(2 * total.value)) != 2:
        tell("twice the total was not refused")
    check("nvmlInit_v2", nvml.nvmlInit_v2())
    handle = ctypes.c_void_p()
    check("nvmlDeviceGetHandleByIndex_v2", nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)))
    memory = (ctypes.c_uint64 * 3)()
    check("nvmlDeviceGetMemoryInfo", nvml.nvmlDeviceGetMemoryInfo(handle, memory))
    check("nvmlShutdown", nvml.nvmlShutdown())
    return free.value


def keeps_errno():
    pointer, free, total = ctypes.c_uint64(), size(), size()
    calls = {
        "cuMemAlloc_v2": lambda: cuda.cuMemAlloc_v2(ctypes.byref(pointer), size(MIB)),
        "cuMemFree_v2": lambda: cuda.cuMemFree_v2(pointer),
        "cuMemAlloc_v2 of too much": lambda: cuda.cuMemAlloc_v2(ctypes.byref(pointer), size(1 << 50)),
        "cuMemAlloc_v2 of nothing": lambda: cuda.cuMemAlloc_v2(None, size(0)),
        "cuMemGetInfo_v2": lambda: cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)),
        "cuInit": lambda: cuda.cuInit(0),
        "nvmlInit_v2": lambda: nvml.nvmlInit_v2(),
        "nvmlShutdown": lambda: nvml.nvmlShutdown(),
    }
    host.keeps_errno(calls)


def in_child(_=None):
    """A process of its own, begun anew."""
    begin()
    return use() > 0


def children():
    child = os.fork()
    if child == 0:
        os._exit(0 if cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), size(MIB)) == 3 else 1)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        tell("a fork child was not told that it is uninitialised")
    said = subprocess.run(["/bin/echo", "hello"], capture_output=True)
    if (said.stdout, said.stderr) != (b"hello\n", b""):
        tell(f"a child program said {said.stdout} and {said.stderr}")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        if pool.map(in_child, range(2)) != [True, True]:
            tell("spawned processes could not begin")


def main():
    have_habits()
    before = manners()
    begin()
    first = use()
    compare(before, manners())
    keeps_errno()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    children()
    workers = [threading.Thread(target=lambda: (begin(), use())) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    # What the spawned processes held is back when the driver has let go of it.
    for _ in range(6000):
        if use() == first:
            break
        time.sleep(0.01)
    else:
        tell(f"{use()} bytes are free, {first} were")

    @atexit.register
    def at_the_end():
        use()
        tell("kept")

    sys.exit(37)


if __name__ == "__main__":
    main()
