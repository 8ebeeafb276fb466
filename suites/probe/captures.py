#!/usr/bin/env python3
"""What becomes of a graph that captures fill, of an upload to a stream that captures, and of a managed pool that cannot give.

On a card or a mock: `python3 captures.py > captures.txt`. Each question runs in a process of its own: its calls with their codes, and
below a call what it wrote. The device's memory is in bytes beyond those at the question's start.

A  Two captures into one graph, the first invalidated: is the second let in, and does the graph outlive the refused end of the first?
B  One capture into the client's own graph, invalidated: does its end destroy that graph?
C  A capture into the graph of a child node: what does cuGraphDestroy of the parent answer, and the capture's end?
D  cuGraphInstantiateWithParams with the upload flag, to a stream that captures: what became of the executable and of the capture?
E  A request of a managed pool's that cannot be met (2^50 bytes; then 4 KiB): what has the device lost?
"""
import ctypes as c
import os
import sys

cu = c.CDLL("libcuda.so.1")
ml = c.CDLL("libnvidia-ml.so.1")
P, U64, I = c.c_void_p, c.c_uint64, c.c_int


def call(name, *words):
    code = getattr(cu, name)(*words)
    print(f"  {name} -> {code}", flush=True)
    return code


def start():
    context = P()
    for name, words in (
        ("cuInit", (0,)),
        ("cuDevicePrimaryCtxRetain", (c.byref(context), 0)),
        ("cuCtxSetCurrent", (context,)),
    ):
        code = getattr(cu, name)(*words)
        if code:
            sys.exit(f"{name}: {code}")


def made(name, *rest):
    value = P()
    call(name, c.byref(value), *rest)
    return value


def begin(stream, graph):
    return call("cuStreamBeginCaptureToGraph", stream, graph, None, None, c.c_size_t(0), 2)


def end(stream):
    graph = P(7)
    call("cuStreamEndCapture", stream, c.byref(graph))
    print(f"    graph {'NULL' if not graph.value else 'given'}", flush=True)


def look(graph):
    count = c.c_size_t(77)
    call("cuGraphGetNodes", graph, None, c.byref(count))
    print(f"    {count.value} nodes", flush=True)


def a():
    graph = made("cuGraphCreate", 0)
    made("cuGraphAddEmptyNode", graph, None, c.c_size_t(0))
    one, two = made("cuStreamCreate", 0), made("cuStreamCreate", 0)
    begin(one, graph)
    call("cuCtxSynchronize")
    begin(two, graph)
    end(one)
    look(graph)
    call("cuGraphDestroy", graph)
    end(two)
    look(graph)
    call("cuGraphDestroy", graph)


def b():
    graph = made("cuGraphCreate", 0)
    made("cuGraphAddEmptyNode", graph, None, c.c_size_t(0))
    one = made("cuStreamCreate", 0)
    begin(one, graph)
    call("cuCtxSynchronize")
    end(one)
    look(graph)
    call("cuGraphDestroy", graph)


def child():
    parent, inner = made("cuGraphCreate", 0), made("cuGraphCreate", 0)
    node = made("cuGraphAddChildGraphNode", parent, None, c.c_size_t(0), inner)
    embedded = P()
    call("cuGraphChildGraphNodeGetGraph", node, c.byref(embedded))
    stream = made("cuStreamCreate", 0)
    begin(stream, embedded)
    call("cuGraphDestroy", parent)
    end(stream)


class Instantiate(c.Structure):
    _fields_ = [("flags", U64), ("stream", P), ("error_node", P), ("result", I)]


def upload(mode):
    graph = made("cuGraphCreate", 0)
    made("cuGraphAddEmptyNode", graph, None, c.c_size_t(0))
    stream = made("cuStreamCreate", 0)
    call("cuStreamBeginCapture_v2", stream, mode)
    params = Instantiate(2, stream, None, 77)
    executable = P(7)
    call("cuGraphInstantiateWithParams", c.byref(executable), graph, c.byref(params))
    print(f"    result_out {params.result}, executable {executable.value == 7 and 'untouched' or executable.value and 'given' or 'NULL'}")
    status = I(77)
    call("cuStreamIsCapturing", stream, c.byref(status))
    print(f"    status {status.value}", flush=True)
    end(stream)
    call("cuStreamSynchronize", stream)


class Memory(c.Structure):
    _fields_ = [("total", c.c_ulonglong), ("free", c.c_ulonglong), ("used", c.c_ulonglong)]


class Props(c.Structure):
    _fields_ = [("type", I), ("handles", I), ("where", I), ("device", I), ("security", P), ("most", U64), ("rest", c.c_ubyte * 56)]


def held():
    """What the device has lost: as NVML says, as cuMemGetInfo says."""
    device, told = P(), Memory()
    ml.nvmlDeviceGetHandleByIndex_v2(0, c.byref(device))
    ml.nvmlDeviceGetMemoryInfo(device, c.byref(told))
    free, total = c.c_size_t(), c.c_size_t()
    cu.cuMemGetInfo_v2(c.byref(free), c.byref(total))
    return told.used, total.value - free.value


def lost(before):
    nvml, cuda = (now - then for now, then in zip(held(), before))
    print(f"    lost: NVML {nvml}, cuMemGetInfo {cuda}", flush=True)


def managed(how):
    ml.nvmlInit_v2()
    before = held()
    if how == "create":
        props = Props(2, 0, 1, 0, None, 0)
        pool = made("cuMemPoolCreate", c.byref(props))
    else:
        where = (I * 2)(1, 0)
        pool = made(how, c.byref(where), 2)
    lost(before)
    for size in (1 << 50, 4096):
        address = U64()
        print(f"  {size} bytes:")
        call("cuMemAllocFromPoolAsync", c.byref(address), c.c_size_t(size), pool, None)
        call("cuStreamSynchronize", None)
        lost(before)


QUESTIONS = [
    ("A", a),
    ("B", b),
    ("C", child),
    ("D global", lambda: upload(0)),
    ("D relaxed", lambda: upload(2)),
    ("E cuMemPoolCreate", lambda: managed("create")),
    ("E cuMemGetDefaultMemPool", lambda: managed("cuMemGetDefaultMemPool")),
    ("E cuMemGetMemPool", lambda: managed("cuMemGetMemPool")),
]
for name, ask in QUESTIONS:
    print(f"[{name}]", flush=True)
    pid = os.fork()
    if pid == 0:
        start()
        ask()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    print(f"  ended with {os.waitstatus_to_exitcode(status)}", flush=True)
