"""In whose row NVML puts memory of cuMemCreate that is exported as a descriptor and imported, and when the device has it back.

On a card or a mock: `python3 shared.py > shared.txt`. Each line is a scenario, a step, MiB of the device in use beyond those at the
start, the row of this process and that of the other one (`-`: none). Each piece of memory is 1 GiB.
"""
import ctypes as C
import os
import socket
import sys

from between import DESCRIPTOR, Scenario, begin, cuda, does, receive, send, watch

SIZE, NONE = C.c_size_t(1 << 30), C.c_ulonglong(0)


class Properties(C.Structure):
    _fields_ = [("kind", C.c_int), ("handles", C.c_int), ("location", C.c_int * 2), ("rest", C.c_ulonglong * 2)]


def export():
    handle, descriptor = C.c_ulonglong(), C.c_int(-1)
    properties = Properties(1, DESCRIPTOR, (C.c_int * 2)(1, 0))
    does(cuda.cuMemCreate(C.byref(handle), SIZE, C.byref(properties), NONE), "cuMemCreate")
    does(cuda.cuMemExportToShareableHandle(C.byref(descriptor), handle, DESCRIPTOR, NONE), "export")
    return handle, descriptor.value


def imported(descriptor):
    handle = C.c_ulonglong()
    does(cuda.cuMemImportFromShareableHandle(C.byref(handle), C.c_void_p(descriptor), DESCRIPTOR), "import")
    return handle


def mapped(handle):
    address = C.c_ulonglong()
    does(cuda.cuMemAddressReserve(C.byref(address), SIZE, C.c_size_t(0), NONE, NONE), "cuMemAddressReserve")
    does(cuda.cuMemMap(address, SIZE, C.c_size_t(0), handle, NONE), "cuMemMap")
    access = (C.c_int * 3)(1, 0, 3)
    does(cuda.cuMemSetAccess(address, SIZE, access, C.c_size_t(1)), "cuMemSetAccess")
    return address


def released(handle):
    does(cuda.cuMemRelease(handle), "cuMemRelease")


def unmapped(address):
    does(cuda.cuMemUnmap(address, SIZE), "cuMemUnmap")


def alone():
    it = Scenario("alone")
    handle, descriptor = export()
    it.step("created and exported")
    released(handle)
    it.step("released")
    first, second = imported(descriptor), imported(descriptor)
    it.step("imported twice")
    address = mapped(first)
    it.step("mapped")
    unmapped(address)
    released(first)
    released(second)
    it.step("unmapped and released")
    os.close(descriptor)
    it.step("its descriptor closed")


def of_another(name, end):
    it = Scenario(name)
    it.begin_other("maker")
    descriptor = receive(it.line)
    it.step("sent by the other")
    handle = imported(descriptor)
    it.step("imported")
    address = mapped(handle)
    it.step("mapped")
    if end == "killed":
        it.kill()
    else:
        it.has(b"x")
    it.step("its maker " + end)
    os.close(descriptor)
    it.step("its descriptor closed")
    unmapped(address)
    it.step("unmapped")
    released(handle)
    it.step("released")
    if end == "released it":
        it.has(b"x")
        it.wait()


def by_another():
    it = Scenario("by another")
    it.begin_other("importer")
    handle, descriptor = export()
    send(it.line, descriptor)
    it.line.recv(1)
    it.step("created and sent")
    os.close(descriptor)
    it.has(b"x")
    it.step("imported by the other")
    released(handle)
    it.step("released here")
    it.has(b"x")
    it.step("released there, its descriptor open there")
    it.has(b"x")
    it.wait()


def other(role, line):
    begin()
    if role == "maker":
        handle, descriptor = export()
        send(line, descriptor)
        os.close(descriptor)
        line.recv(1)
        released(handle)
        line.send(b"x")
    else:
        descriptor = receive(line)
        line.send(b"x")
        line.recv(1)
        handle = imported(descriptor)
        line.send(b"x")
        line.recv(1)
        released(handle)
        line.send(b"x")
    line.recv(1)
    line.send(b"x")


if len(sys.argv) > 1:
    other(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
    sys.exit()
watch()
alone()
of_another("of another", "released it")
of_another("of the dead", "killed")
by_another()
