"""What page-locked host memory takes of the device besides (R19), and which calls make a thread's default stream (R18).
One line a step; about 20 s alone on the card:  python3 floor.py > floor.txt 2>&1
"""
import ctypes, os, signal, struct, sys, threading, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import arguments as a, takes
MIB = 1 << 20
LIBC = ctypes.CDLL(None); LIBC.mmap.restype = ctypes.c_uint64; LIBC.memset.restype = ctypes.c_uint64
def mmap(size, flags=0x22): return LIBC.mmap(None, ctypes.c_size_t(size), 3, flags, -1, ctypes.c_long(0))
def device(row, n=0):
    h = ctypes.c_uint64(0); row.nvml.nvmlDeviceGetHandleByIndex_v2(n, ctypes.byref(h)); b = ctypes.create_string_buffer(24)
    row.nvml.nvmlDeviceGetMemoryInfo(h, b); return struct.unpack("<QQQ", b.raw)[2] >> 10
class Q:
    def __init__(s, name):
        s.name = name; a.load(); a.call("cuInit", 0); n = ctypes.c_int(0); a.call("cuDeviceGetCount", ctypes.addressof(n)); s.n = n.value
        c = ctypes.c_uint64(0); a.must("cuDevicePrimaryCtxRetain", ctypes.addressof(c), 0); a.CTX[0] = c.value; a.must("cuCtxSetCurrent", c.value)
        s.row = takes.Row(); s.mark()
    def mark(s): s.base = s.row.read(); s.dev = [device(s.row, i) for i in range(min(s.n, 2))]
    def say(s, what, rc=None):
        r = s.row.read(); d = [device(s.row, i) - b for i, b in enumerate(s.dev)]
        print(f"{s.name}: {what}: row {r - s.base} KiB, devices {d} KiB" + ("" if rc is None else f", rc {rc}"), flush=True)

def sparse():
    q = Q("registered 4 KiB in each 2 MiB"); N = 8192; p = mmap(N * 2 * MIB, 0x4022); ok = 0
    for i in range(N): ok += a.call("cuMemHostRegister_v2", p + i * 2 * MIB, 4096, 2) == 0
    q.say(f"{ok} ranges")
    for i in range(N): a.call("cuMemHostUnregister", p + i * 2 * MIB)
    q.say("unregistered")
def steps():
    q = Q("256 MiB at a time"); p = []
    for i in range(10): p.append(a.made("cuMemAllocHost_v2", 256 * MIB)); q.say(f"{(i + 1) * 256} MiB")
    for x in p: a.must("cuMemFreeHost", x)
    q.say("freed")
def beside():
    q = Q("2 GiB, then a second context"); p = a.made("cuMemAllocHost_v2", 2 << 30); q.say("taken"); c2 = a.mk_newctx(); q.mark()
    a.call("cuCtxSetCurrent", c2); x = a.made("cuMemAllocHost_v2", 2 << 30); q.say("2 GiB in the second"); a.must("cuCtxDestroy_v2", c2); q.say("second destroyed (row is of both)")
    q = Q("two contexts, then 2 GiB"); c2 = a.mk_newctx(); q.mark(); a.call("cuCtxSetCurrent", a.CTX[0]); p = a.made("cuMemAllocHost_v2", 2 << 30); q.say("taken"); a.must("cuMemFreeHost", p); q.say("freed")
    q = Q("2 GiB in a context that ends"); c2 = a.mk_newctx(); q.mark(); p = a.made("cuMemAllocHost_v2", 2 << 30); q.say("taken"); a.must("cuCtxDestroy_v2", c2); q.say("context destroyed")
    q = Q("2 GiB, then the context again"); p = a.made("cuMemAllocHost_v2", 2 << 30); q.say("taken"); a.call("cuDevicePrimaryCtxRelease_v2", 0); c = ctypes.c_uint64(0)
    a.must("cuDevicePrimaryCtxRetain", ctypes.addressof(c), 0); a.call("cuCtxSetCurrent", c.value); q.say("released and retained", a.call("cuMemFreeHost", p)); q.say("freed")
def vmm():
    q = Q("cuMemCreate on the host"); p = ctypes.create_string_buffer(32); struct.pack_into("<IIIiQ8s", p, 0, 1, 0, 3, 0, 0, b"\0" * 8); h = ctypes.c_uint64(0)
    rc = a.call("cuMemCreate", ctypes.addressof(h), 2 << 30, ctypes.addressof(p), 0); q.say("2 GiB, location 3 (HOST_NUMA 0)", rc)
    if rc: return
    r = a.made("cuMemAddressReserve", 2 << 30, 0, 0, 0); q.say("mapped", a.call("cuMemMap", r, 2 << 30, 0, h.value, 0))
    acc = struct.pack("<IiI", 1, 0, 3); q.say("access", a.call("cuMemSetAccess", r, 2 << 30, a.buf(acc), 1)); q.say("unmapped", a.call("cuMemUnmap", r, 2 << 30)); q.say("released", a.call("cuMemRelease", h.value))
def reserve():
    q = Q("2 GiB of a block mapped many times"); h = a.made("cuMemCreate", 2 * MIB, a.buf(a.prop()), 0); q.say("created"); r = a.made("cuMemAddressReserve", 8 << 30, 0, 0, 0); q.say("8 GiB reserved")
    acc = struct.pack("<IiI", 1, 0, 3); n = 0
    for i in range(2048): n += a.call("cuMemMap", r + i * 2 * MIB, 2 * MIB, 0, h, 0) == 0
    q.say(f"{n} maps"); q.say("access", a.call("cuMemSetAccess", r, n * 2 * MIB, a.buf(acc), 1))
    q = Q("16384 reservations 2 MiB, one map each"); h = a.made("cuMemCreate", 2 * MIB, a.buf(a.prop()), 0); q.mark(); n = 0
    for i in range(4096):
        b = ctypes.c_uint64(0); a.call("cuMemAddressReserve", ctypes.addressof(b), 2 * MIB, 0, 0x400000000000 + i * (1 << 30), 0); n += a.call("cuMemMap", b.value, 2 * MIB, 0, h, 0) == 0; a.call("cuMemSetAccess", b.value, 2 * MIB, a.buf(acc), 1)
    q.say(f"{n} maps 1 GiB apart")
def managed():
    q = Q("managed 1 GiB on the host"); m = a.made("cuMemAllocManaged", 1 << 30, 1); q.say("taken"); LIBC.memset(ctypes.c_void_p(m), 1, ctypes.c_size_t(1 << 30)); q.say("written by the host")
def twodevices():
    q = Q("two devices")
    if q.n < 2: print("two devices: only one here"); return
    c = ctypes.c_uint64(0); a.must("cuDevicePrimaryCtxRetain", ctypes.addressof(c), 1); q.mark(); p = a.made("cuMemAllocHost_v2", 4 << 30); q.say("4 GiB from device 0's context, contexts on both"); a.must("cuMemFreeHost", p); q.say("freed")

N = 64
def thread_call(name, call, stream):
    q = Q(f"{N} threads {name}"); d = a.mk_dptr(); ar = a.mk_array() if hasattr(a, "mk_array") else 0; hp = a.made("cuMemAllocHost_v2", 65536)
    e = a.made("cuEventCreate", 0); f = a.mk_func(); q.mark(); ready, go, codes = [], threading.Event(), set()
    def work(c):
        a.call("cuCtxSetCurrent", c)
        try: codes.add(call(name, d, hp, ar, e, f, stream))
        except Exception as x: codes.add(repr(x))
        ready.append(1); go.wait()
    ts = [threading.Thread(target=work, args=(a.CTX[0],)) for _ in range(N)]; [t.start() for t in ts]
    end = time.time() + 8
    while len(ready) < N and time.time() < end: time.sleep(.01)
    q.say(f"codes {sorted(map(str, codes))}"); go.set()
C = {}
def c(names, call):
    for n in names.split(): C[n] = call
k = a.call
c("cuCtxSynchronize", lambda n, d, h, ar, e, f, s: k(n))
c("cuMemcpy cuMemcpy_ptds", lambda n, d, h, ar, e, f, s: k(n, d, h, 16))
c("cuMemcpyHtoD_v2 cuMemcpyHtoD_v2_ptds", lambda n, d, h, ar, e, f, s: k(n, d, h, 16))
c("cuMemcpyDtoH_v2_ptds", lambda n, d, h, ar, e, f, s: k(n, h, d, 16))
c("cuMemcpyDtoD_v2_ptds", lambda n, d, h, ar, e, f, s: k(n, d, d + 64, 16))
c("cuMemcpy2D_v2_ptds cuMemcpy2DUnaligned_v2_ptds", lambda n, d, h, ar, e, f, s: k(n, a.buf(a.copy2(d, d + 4096))))
c("cuMemcpy3D_v2_ptds", lambda n, d, h, ar, e, f, s: k(n, a.buf(a.copy3(d, d + 4096))))
c("cuMemcpyPeer_ptds", lambda n, d, h, ar, e, f, s: k(n, d, a.CTX[0], d + 64, a.CTX[0], 16))
c("cuMemcpyHtoA_v2_ptds", lambda n, d, h, ar, e, f, s: k(n, ar, 0, h, 16))
c("cuMemcpyAsync_ptsz cuMemcpyAsync", lambda n, d, h, ar, e, f, s: k(n, d, h, 16, s))
c("cuMemcpyHtoDAsync_v2_ptsz cuMemcpyHtoDAsync_v2", lambda n, d, h, ar, e, f, s: k(n, d, h, 16, s))
c("cuMemcpy2DAsync_v2_ptsz", lambda n, d, h, ar, e, f, s: k(n, a.buf(a.copy2(d, d + 4096)), s))
c("cuMemcpy3DAsync_v2_ptsz", lambda n, d, h, ar, e, f, s: k(n, a.buf(a.copy3(d, d + 4096)), s))
c("cuMemsetD8_v2_ptds", lambda n, d, h, ar, e, f, s: k(n, d, 0, 16))
c("cuMemsetD8Async_ptsz cuMemsetD8Async", lambda n, d, h, ar, e, f, s: k(n, d, 0, 16, s))
c("cuLaunchKernel_ptsz cuLaunchKernel", lambda n, d, h, ar, e, f, s: k(n, f, 1, 1, 1, 1, 1, 1, 0, s, 0, 0))
c("cuEventRecord_ptsz cuEventRecord", lambda n, d, h, ar, e, f, s: k(n, e, s))
c("cuEventRecordWithFlags_ptsz", lambda n, d, h, ar, e, f, s: k(n, e, s, 0))
c("cuStreamSynchronize_ptsz cuStreamSynchronize cuStreamQuery_ptsz cuStreamQuery", lambda n, d, h, ar, e, f, s: k(n, s))
c("cuStreamWaitEvent_ptsz cuStreamWaitEvent", lambda n, d, h, ar, e, f, s: k(n, s, e, 0))
c("cuStreamGetPriority_ptsz cuStreamGetFlags_ptsz cuStreamGetId_ptsz cuStreamGetCtx_ptsz cuStreamIsCapturing_ptsz cuStreamGetDevice_ptsz", lambda n, d, h, ar, e, f, s: k(n, s, a.buf(b"\0" * 16)))
c("cuStreamWriteValue32_v2_ptsz cuStreamWriteValue32_v2", lambda n, d, h, ar, e, f, s: k(n, s, d, 1, 0))
c("cuStreamWaitValue32_v2_ptsz", lambda n, d, h, ar, e, f, s: k(n, s, d, 0, 0))
HOST = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
c("cuLaunchHostFunc_ptsz cuLaunchHostFunc", lambda n, d, h, ar, e, f, s: k(n, s, ctypes.cast(HOST, ctypes.c_void_p).value, 0))
c("cuMemAllocAsync_ptsz", lambda n, d, h, ar, e, f, s: k(n, a.buf(b"\0" * 16), 512, s))
c("cuMemPrefetchAsync_ptsz", lambda n, d, h, ar, e, f, s: k(n, a.made("cuMemAllocManaged", 65536, 1), 65536, 0, s))
c("cuStreamGetAttribute_ptsz", lambda n, d, h, ar, e, f, s: k(n, s, 1, a.buf(b"\0" * 64)))
c("cuStreamCopyAttributes_ptsz", lambda n, d, h, ar, e, f, s: k(n, s, s))
c("cuStreamBeginCapture_v2_ptsz", lambda n, d, h, ar, e, f, s: k(n, s, 2))

def apart(what):
    pid = os.fork()
    if pid == 0:
        signal.alarm(25)
        try: what()
        except BaseException as x: print("ended:", repr(x), flush=True)
        sys.stdout.flush(); os._exit(0)
    return pid
def wait(pid):
    _, st = os.waitpid(pid, 0)
    if st: print("pid", pid, "status", st, flush=True)
for what in (sparse, steps, beside, vmm, reserve, managed, twodevices): wait(apart(what))
pids = []
for name, call in C.items():
    stream = 0 if name.endswith(("_ptsz", "_ptds")) else 2
    pids.append(apart(lambda: thread_call(name, call, stream)))
    if len(pids) >= 8: wait(pids.pop(0))
for p in pids: wait(p)
