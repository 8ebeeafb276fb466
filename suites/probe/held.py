"""Asks a libcuda what it keeps on the device, and until when: graphs' branches, page-locked memory, threads' streams, local memory, green contexts,
frees in a stream's order, limits; and how long NVML takes to answer.

    python3 held.py

A line a step: what was done, KiB that the process's own row of NVML and the device's figure have grown by, and the answer. Each question is
asked in a process of its own. So was fixtures/oracle/held-580.txt recorded; nothing on the card is changed.
"""
import ctypes, functools, os, signal, struct, sys, threading, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import arguments as a, takes
MIB = 1 << 20
def used(row):
    b = ctypes.create_string_buffer(24); row.nvml.nvmlDeviceGetMemoryInfo(row.device, b)
    return struct.unpack("<QQQ", b.raw)[2] >> 10
class Q:
    def __init__(s, name):
        s.name = name; a.load(); a.call("cuInit", 0)
        c = ctypes.c_uint64(0); a.must("cuDevicePrimaryCtxRetain", ctypes.addressof(c), 0); a.CTX[0] = c.value; a.must("cuCtxSetCurrent", c.value)
        s.row = takes.Row(); a.mk_stream(); a.mk_event(); a.mk_dptr(); a.mk_module(); s.base = s.row.read(); s.dev = used(s.row)
    def say(s, what, rc=None):
        r = s.row.read(); d = used(s.row)
        print(f"{s.name}: {what}: row {None if r is None else r - s.base} KiB, device {d - s.dev} KiB" + ("" if rc is None else f", rc {rc}"), flush=True)
    def mark(s): s.base = s.row.read(); s.dev = used(s.row)
def kernel_node(g, dep, f, params=0):
    n = ctypes.c_uint64(0); d = ctypes.c_uint64(dep)
    a.must("cuGraphAddKernelNode_v2", ctypes.addressof(n), g, ctypes.addressof(d) if dep else 0, 1 if dep else 0, a.buf(a.kernel_node(f))); return n.value
def graphs(what):
    if True:
        q = Q("graphs " + what); f = a.mk_func(); g = a.mk_graph(); q.mark()
        if what.startswith("1 root"):
            r = kernel_node(g, 0, f); [kernel_node(g, r, f) for _ in range(1000)]
        elif what.startswith("1000"): [kernel_node(g, 0, f) for _ in range(1000)]
        elif what.startswith("chain"):
            p = 0
            for _ in range(1000): p = kernel_node(g, p, f)
        elif what.startswith("100 "):
            for _ in range(100):
                p = 0
                for _ in range(10): p = kernel_node(g, p, f)
        else:
            p = 0
            for _ in range(4):
                level = [kernel_node(g, p, f) for _ in range(250)]; p = level[0]
        q.say("nodes added")
        x = a.made("cuGraphInstantiateWithFlags", g, 0); q.say("instantiated")
        q.say("uploaded", a.call("cuGraphUpload", x, 0)); a.call("cuCtxSynchronize")
        q.say("launched", a.call("cuGraphLaunch", x, 0)); a.call("cuCtxSynchronize"); q.say("done")
        x2 = a.made("cuGraphInstantiateWithFlags", g, 0); q.say("a second of it")
        a.must("cuGraphExecDestroy", x); q.say("exec destroyed"); a.must("cuGraphExecDestroy", x2); q.say("both destroyed")
        a.must("cuGraphDestroy", g); a.call("cuCtxSynchronize"); q.say("graph destroyed"); yield
def child():
    q = Q("child graph of 1000 roots"); f = a.mk_func(); c = a.mk_graph(); [kernel_node(c, 0, f) for _ in range(1000)]; g = a.mk_graph(); q.mark()
    n = ctypes.c_uint64(0); a.must("cuGraphAddChildGraphNode", ctypes.addressof(n), g, 0, 0, c); q.say("added")
    x = a.made("cuGraphInstantiateWithFlags", g, 0); q.say("instantiated"); a.must("cuGraphLaunch", x, 0); a.call("cuCtxSynchronize"); q.say("launched")
    a.must("cuGraphExecDestroy", x); q.say("destroyed"); yield
def pinned():
    q = Q("pinned 1024 x 1 MiB"); p = [a.made("cuMemAllocHost_v2", MIB) for _ in range(1024)]; q.say("taken"); [a.must("cuMemFreeHost", x) for x in p]; q.say("freed")
    for g in (1, 2, 8):
        q = Q(f"pinned 1 x {g} GiB"); p = a.made("cuMemAllocHost_v2", g << 30); q.say("taken"); a.must("cuMemFreeHost", p); q.say("freed")
        q = Q(f"cuMemHostAlloc {g} GiB"); p = a.made("cuMemHostAlloc", g << 30, 2); q.say("taken"); a.must("cuMemFreeHost", p); q.say("freed")
    libc = ctypes.CDLL(None); libc.mmap.restype = ctypes.c_uint64
    q = Q("register 8 GiB"); p = libc.mmap(None, ctypes.c_size_t(8 << 30), 3, 0x22, -1, ctypes.c_long(0)); q.say("registered", a.call("cuMemHostRegister_v2", p, 8 << 30, 2)); a.call("cuMemHostUnregister", p); q.say("unregistered")
    q = Q("managed 64 GiB untouched"); p = a.call("cuMemAllocManaged", ctypes.addressof(ctypes.c_uint64(0)), 64 << 30, 1); q.say("taken", p); yield
def threads():
    q = Q("per-thread streams"); d = a.mk_dptr(); q.mark()
    ready, go = [], threading.Event()
    def work(c):
        a.call("cuCtxSetCurrent", c); a.must("cuMemsetD8Async_ptsz", d, 0, 16, 0); a.call("cuStreamSynchronize_ptsz", 0); ready.append(1); go.wait()
    ts = [threading.Thread(target=work, args=(a.CTX[0],)) for _ in range(200)]; [t.start() for t in ts]
    while len(ready) < 200: time.sleep(.01)
    q.say("200 threads"); go.set(); [t.join() for t in ts]; q.say("threads ended"); a.call("cuCtxSynchronize"); q.say("waited for")
    go.clear(); ready.clear(); ts = [threading.Thread(target=work, args=(a.CTX[0],)) for _ in range(200)]; [t.start() for t in ts]
    while len(ready) < 200: time.sleep(.01)
    q.say("200 more"); go.set(); [t.join() for t in ts]
    q = Q("per-thread in a second context"); d1 = a.mk_dptr(); c2 = a.mk_newctx(); d2 = a.mk_dptr(); q.mark()
    a.must("cuMemsetD8Async_ptsz", d2, 0, 16, 0); a.call("cuStreamSynchronize_ptsz", 0); q.say("in the second context")
    a.call("cuCtxSetCurrent", a.CTX[0]); a.must("cuMemsetD8Async_ptsz", d1, 0, 16, 0); a.call("cuStreamSynchronize_ptsz", 0); q.say("and in the first"); yield
LOCAL = b""".version 7.0
.target sm_50
.address_size 64
.visible .entry big(.param .u64 p) { .reg .b64 %%rd<6>; .reg .b32 %%r<4>; .local .align 8 .b8 l[%d]; ld.param.u64 %%rd1,[p]; mov.u64 %%rd2,l; add.s64 %%rd3,%%rd2,%%rd1; cvt.u32.u64 %%r1,%%rd1; st.local.u32 [%%rd3],%%r1; ld.local.u32 %%r2,[%%rd2]; cvta.to.global.u64 %%rd4,%%rd1; .reg .pred %%pp; setp.ne.u64 %%pp,%%rd1,0; @!%%pp bra END; st.global.u32 [%%rd4],%%r2; END: ret; }
.visible .entry small() { ret; }
\0"""
def local():
    for size in (4096, 65536):
        q = Q(f"local memory {size}")
        b = ctypes.c_uint64(0)
        rc = a.call("cuModuleLoadData", ctypes.addressof(b), a.buf(LOCAL % size)); q.say("loaded", rc)
        if rc: continue
        f = ctypes.c_uint64(0); s = ctypes.c_uint64(0)
        q.say("small obtained", a.call("cuModuleGetFunction", ctypes.addressof(s), b.value, a.buf(b"small\0")))
        q.say("big obtained", a.call("cuModuleGetFunction", ctypes.addressof(f), b.value, a.buf(b"big\0")))
        n = ctypes.c_int(0); a.call("cuFuncGetAttribute", ctypes.addressof(n), 3, f.value); print("local size", n.value)
        q.say("small launched", a.call("cuLaunchKernel", s.value, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)); a.call("cuCtxSynchronize")
        q.say("cuFuncLoad big", a.call("cuFuncLoad", f.value))
        p = ctypes.c_uint64(0); ps = ctypes.c_uint64(ctypes.addressof(p))
        q.say("big launched", a.call("cuLaunchKernel", f.value, 1, 1, 1, 1, 1, 1, 0, 0, ctypes.addressof(ps), 0)); a.call("cuCtxSynchronize"); q.say("done")
        v = ctypes.c_uint64(0); a.call("cuCtxGetLimit", ctypes.addressof(v), 0); print("stack limit", v.value)
        a.must("cuModuleUnload", b.value); q.say("unloaded")
    yield
def greens():
    q = Q("green holder"); q.mark(); g = takes.green(); q.say("green made")
    c = a.made("cuCtxFromGreenCtx", g); a.must("cuCtxSetCurrent", c); m = a.made("cuMemAlloc_v2", 512 * MIB); q.say("512 MiB in it")
    a.must("cuCtxSetCurrent", 0); q.say("primary released", a.call("cuDevicePrimaryCtxRelease_v2", 0)); q.say("green destroyed", a.call("cuGreenCtxDestroy", g)); yield
    q = Q("green flags 0"); r = ctypes.create_string_buffer(256); a.must("cuDeviceGetDevResource", 0, ctypes.addressof(r), 1); sp = ctypes.create_string_buffer(4096); n = ctypes.c_uint(1)
    a.must("cuDevSmResourceSplitByCount", ctypes.addressof(sp), ctypes.addressof(n), ctypes.addressof(r), 0, 0, 8); d = a.made("cuDevResourceGenerateDesc", ctypes.addressof(sp), 1)
    for flags in (0, 1, 2, 3): q.say(f"flags {flags}", a.call("cuGreenCtxCreate", ctypes.addressof(ctypes.c_uint64(0)), d, 0, flags))
def deferred():
    q = Q("cuMemFreeAsync of cuMemAlloc"); s = a.mk_stream(); p = a.made("cuMemAlloc_v2", 512 * MIB); q.say("512 MiB")
    q.say("freed async", a.call("cuMemFreeAsync", p, s)); a.must("cuStreamSynchronize", s); q.say("stream waited for"); e = a.mk_event(); a.must("cuEventRecord", e, s); a.must("cuEventSynchronize", e); q.say("event waited for"); a.call("cuCtxSynchronize"); q.say("context waited for")
    q = Q("pool destroyed before its memory"); s = a.mk_stream(); pool = a.mk_pool(); p = a.made("cuMemAllocFromPoolAsync", 64 * MIB, pool, s); a.must("cuStreamSynchronize", s); q.say("64 MiB"); q.say("pool destroyed", a.call("cuMemPoolDestroy", pool)); q.say("freed", a.call("cuMemFreeAsync", p, s)); a.must("cuStreamSynchronize", s); q.say("stream waited for"); a.call("cuCtxSynchronize"); q.say("context waited for")
    q = Q("event after its stream"); s = a.mk_stream(); e = a.mk_event(); a.must("cuEventRecord", e, s); a.must("cuStreamDestroy_v2", s); q.say("query", a.call("cuEventQuery", e)); q.say("synchronize", a.call("cuEventSynchronize", e)); yield
def nvml():
    q = Q("nvml"); n = ctypes.CDLL("libnvidia-ml.so.1"); t = []
    for _ in range(60):
        b = time.perf_counter(); q.row.read(); t.append(time.perf_counter() - b)
    print("list, session open: median", sorted(t)[30] * 1e6, "us"); t = []
    for _ in range(60):
        b = time.perf_counter(); used(q.row); t.append(time.perf_counter() - b)
    print("memory info, session open: median", sorted(t)[30] * 1e6, "us")
    n.nvmlShutdown(); t = []
    for _ in range(40):
        b = time.perf_counter(); n.nvmlInit_v2(); n.nvmlShutdown(); t.append(time.perf_counter() - b)
    print("init+shutdown: median", sorted(t)[20] * 1e6, "us"); yield
def limits():
    q = Q("limits")
    for limit, values in ((0, (1024, 8192, 65536)), (1, (1 << 20, 64 << 20)), (2, (64 << 20, 512 << 20)), (3, (3, 10, 24)), (4, (4096, 65536, 1 << 20)), (5, (32, 128)), (6, (1 << 20,)), (7, (1 << 20,)), (8, (1,)), (9, (1,))):
        for v in values:
            rc = a.call("cuCtxSetLimit", limit, v); got = ctypes.c_uint64(0); a.call("cuCtxGetLimit", ctypes.addressof(got), limit); q.say(f"limit {limit} = {v}, got {got.value}", rc)
    yield
for what in (*(functools.partial(graphs, w) for w in ("1 root 1000 successors", "1000 roots", "chain of 1000", "100 roots of chains of 10", "4 levels x 250")), child, pinned, threads, local, greens, deferred, nvml, limits):
    # each part of a question in a process of its own
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            for _ in what(): pass
        except BaseException as e: print(str(what), "ended:", repr(e), flush=True)
        sys.stdout.flush(); os._exit(0)
    _, st = os.waitpid(pid, 0)
    if st: print(str(what), "status", st, flush=True)
