"""What the end of a device's last context leaves of memory that no context owns, and in whose row it is.

On a card or a mock: `python3 resets.py > resets.txt`. Each line is a scenario, a step of another process, MiB of the device in use beyond
those at the start, the row of this process and that of the other one (`-`: none).
"""
import ctypes as C
import socket
import sys

from between import Scenario, begin, cuda, does, watch

MIB, NONE = 1 << 20, C.c_ulonglong(0)


class Properties(C.Structure):
    _fields_ = [("kind", C.c_int), ("handles", C.c_int), ("location", C.c_int * 2), ("rest", C.c_ulonglong * 2)]


def waited():
    return cuda.cuCtxSynchronize()


def created(size):
    handle, properties = C.c_ulonglong(), Properties(1, 0, (C.c_int * 2)(1, 0))
    does(cuda.cuMemCreate(C.byref(handle), C.c_size_t(size * MIB), C.byref(properties), NONE), "cuMemCreate")
    return handle


def ordered(size):
    address = C.c_ulonglong()
    does(cuda.cuMemAllocAsync(C.byref(address), C.c_size_t(size * MIB), None), "cuMemAllocAsync")
    does(waited(), "cuCtxSynchronize")
    return address


def default_pool():
    pool = C.c_void_p()
    does(cuda.cuDeviceGetDefaultMemPool(C.byref(pool), 0), "cuDeviceGetDefaultMemPool")
    return pool


def reset(told):
    begin()
    told("its context")
    unmapped, handle, address = created(256), created(128), C.c_ulonglong()
    size = C.c_size_t(128 * MIB)
    does(cuda.cuMemAddressReserve(C.byref(address), size, C.c_size_t(0), NONE, NONE), "cuMemAddressReserve")
    does(cuda.cuMemMap(address, size, C.c_size_t(0), handle, NONE), "cuMemMap")
    told("256 of cuMemCreate, 128 mapped")
    plain, managed = C.c_ulonglong(), C.c_ulonglong()
    does(cuda.cuMemAlloc_v2(C.byref(plain), C.c_size_t(64 * MIB)), "cuMemAlloc")
    told("64 of cuMemAlloc")
    does(cuda.cuMemAllocManaged(C.byref(managed), C.c_size_t(32 * MIB), 1), "cuMemAllocManaged")
    does(cuda.cuMemsetD8_v2(managed, C.c_ubyte(1), C.c_size_t(32 * MIB)), "cuMemsetD8")
    does(waited(), "cuCtxSynchronize")
    told("32 managed, touched")
    pooled, pool, reserved = ordered(512), default_pool(), C.c_ulonglong()
    told("512 of the default pool")
    does(cuda.cuDevicePrimaryCtxReset_v2(0), "cuDevicePrimaryCtxReset")
    code = cuda.cuMemPoolGetAttribute(pool, 5, C.byref(reserved))
    same = "the same" if default_pool().value == pool.value else "another"
    told(f"its context reset: {code}, {reserved.value / MIB:g} reserved by {same} default pool")
    told(f"trimmed without a context: {cuda.cuMemPoolTrimTo(pool, C.c_size_t(0))}")
    told(f"256 released without a context: {cuda.cuMemRelease(unmapped)}")
    told(f"512 freed without a context: {cuda.cuMemFreeAsync(pooled, None)}")
    begin()
    told("another context")
    told(f"64 and 32 freed: {cuda.cuMemFree_v2(plain)}, {cuda.cuMemFree_v2(managed)}")
    told(f"512 freed: {cuda.cuMemFreeAsync(pooled, None)}, {waited()}")
    told(f"128 unmapped and released: {cuda.cuMemUnmap(address, size)}, {cuda.cuMemRelease(handle)}")


def destruction(told):
    context = C.c_void_p()
    does(cuda.cuInit(0), "cuInit")
    does(cuda.cuCtxCreate_v2(C.byref(context), 0, 0), "cuCtxCreate")
    told("its context")
    pooled = ordered(512)
    told("512 of the default pool")
    told(f"its context destroyed: {cuda.cuCtxDestroy_v2(context)}")
    does(cuda.cuCtxCreate_v2(C.byref(context), 0, 0), "cuCtxCreate")
    told("another context")
    told(f"512 freed: {cuda.cuMemFreeAsync(pooled, None)}, {waited()}")


def other(line):
    def told(step):
        line.send(step.encode())
        line.recv(1)

    {"reset": reset, "destruction": destruction}[sys.argv[1]](told)
    line.send(b" ")


if len(sys.argv) > 1:
    other(socket.socket(fileno=int(sys.argv[2])))
    sys.exit()
watch()
for name in ("reset", "destruction"):
    scenario = Scenario(name)
    scenario.begin_other(name)
    while step := scenario.line.recv(256).decode().strip():
        scenario.step(step)
        scenario.line.send(b"x")
    scenario.other.wait()
