"""Asks a libcuda for every answer of its entry points, argument by argument; each risky call in a child of its own.

    python3 arguments.py FOLDER [FUNCTION…]

FOLDER gets arguments.txt: function, call, answer, out-parameters. For each function in F a valid argument list is built with
handles that work, then one argument at a time is NULL, zero, huge, stale …; out-parameters are prefilled with a canary. So
was fixtures/oracle/cuda-arguments-h200.txt recorded (60 seconds, alone on the card; memory is given back, nothing on the card
changed), and so the mock is asked by mock-libcuda's tests. PROBE_SECONDS, PROBE_WORKERS and PROBE_ALARM (seconds for a call) bound it.
With PROBE_EXHAUST each call is made when all memory is taken: so cases ask an enforcer whose budget is used up.
"""
import ctypes, os, sys, time, signal, struct, json

OUT = sys.argv[1] if __name__ == "__main__" else None
DEADLINE = time.time() + float(os.environ.get("PROBE_SECONDS", "56"))
WORKERS = int(os.environ.get("PROBE_WORKERS", "4"))
ALARM = int(os.environ.get("PROBE_ALARM", "4"))
EXHAUST = "PROBE_EXHAUST" in os.environ
ONLY = sys.argv[2:] if __name__ == "__main__" else []
CANARY = 0xA5
MIB = 1 << 20
KEEP = []
L = None

PTX = b""".version 7.0
.target sm_50
.address_size 64
.visible .global .align 8 .b8 g[64];
.visible .entry e() { ret; }
.visible .entry k(.param .u64 a, .param .u32 b) { ret; }
\0"""

def load():
    global L
    L = ctypes.CDLL("libcuda.so.1")

def call(name, *words):
    f = getattr(L, name)
    f.restype = ctypes.c_uint32
    args = [w if isinstance(w, ctypes.Structure) else ctypes.c_uint64(w & (2**64 - 1)) for w in words]
    return f(*args)

def buf(data, pad=256):
    b = ctypes.create_string_buffer(bytes(data) + b"\0" * pad, len(data) + pad)
    KEEP.append(b)
    return ctypes.addressof(b)

def must(name, *words):
    rc = call(name, *words)
    if rc: raise RuntimeError(f"{name}: {rc}")

def made(name, *rest, at=0, pre=()):
    b = ctypes.c_uint64(0); KEEP.append(b)
    must(name, *pre, ctypes.addressof(b), *rest)
    return b.value

class B64(ctypes.Structure):
    _fields_ = [("b", ctypes.c_ubyte * 64)]

# ---- structures
def prop(kind=1, handles=0, loc=1, dev=0, usage=0):
    return struct.pack("<IIIiQ8s", kind, handles, loc, dev, 0, b"\0" * 8)
def pool_props(kind=1, handles=0, loc=1, dev=0, maxsize=0):
    return struct.pack("<IIIiQQ56s", kind, handles, loc, dev, 0, maxsize, b"")
def access(loc=1, dev=0, flags=3):
    return struct.pack("<IiI", loc, dev, flags)
def array2(w=64, h=64, f=0x20, n=1): return struct.pack("<QQII", w, h, f, n)
def array3(w=64, h=64, d=0, f=0x20, n=1, flags=0): return struct.pack("<QQQIIII", w, h, d, f, n, flags, 0)
def memalloc_node(size=65536, **k): return pool_props(**k) + struct.pack("<QQQQ", 0, 0, size, 0)
def node_params_alloc(size=65536, kind=10):
    return struct.pack("<i3i", kind, 0, 0, 0) + memalloc_node(size).ljust(232, b"\0") + struct.pack("<q", 0)
def kernel_node(f, params=0, block=1, grid=1): return struct.pack("<QIIIIIIIIQQQQ", f, grid, 1, 1, block, 1, 1, 0, 0, params, 0, 0, 0)
def memset_node(p, elem=1, w=16, h=1): return struct.pack("<QQIIQQ", p, 0, 1, elem, w, h)
def launch_config(g=1, b=1, shared=0, stream=0): return struct.pack("<IIIIIIIIQQI4x", g, 1, 1, b, 1, 1, shared, 0, stream, 0, 0)
def copy2(src, dst, st=2, dt=2, w=16, h=2): return struct.pack("<QQIIQQQQ", 0, 0, st, 0, 0, src, 0, 64) + struct.pack("<QQIIQQQQ", 0, 0, dt, 0, 0, dst, 0, 64) + struct.pack("<QQ", w, h)
def copy3(src, dst, st=2, dt=2, w=16, h=2, d=1): return struct.pack("<QQQQIIQQQQQQ", 0, 0, 0, 0, st, 0, 0, src, 0, 0, 64, 2) + struct.pack("<QQQQIIQQQQQQ", 0, 0, 0, 0, dt, 0, 0, dst, 0, 0, 64, 2) + struct.pack("<QQQ", w, h, d)
def res_array(a): return struct.pack("<IIQ", 0, 0, a).ljust(144, b"\0")
def res_linear(p): return struct.pack("<IIQIIQ", 2, 0, p, 0x20, 1, 4096).ljust(144, b"\0")
def tex_desc(): return b"\0" * 128

# ---- handles: maker, destroyer
CTX = [0]
def h_ctx():    return CTX[0]
def mk_stream(): return made("cuStreamCreate", 1)
def mk_event(): return made("cuEventCreate", 0)
def mk_dptr():  return made("cuMemAlloc_v2", 65536)
def mk_async():
    p = made("cuMemAllocAsync", 65536, 0); must("cuStreamSynchronize", 0); return p
def mk_managed(): return made("cuMemAllocManaged", 65536, 1)
def mk_pool():  return made("cuMemPoolCreate", buf(pool_props()))
def mk_pool_fd(): return made("cuMemPoolCreate", buf(pool_props(handles=1)))
def mk_poolptr():
    return made("cuMemAllocFromPoolAsync", 65536, mk_pool_fd(), 0)
def mk_mem():   return made("cuMemCreate", 2 * MIB, buf(prop()), 0)
def mk_mem_fd(): return made("cuMemCreate", 2 * MIB, buf(prop(handles=1)), 0)
def mk_va():    return made("cuMemAddressReserve", 2 * MIB, 0, 0, 0)
def mk_mapped():
    va = mk_va(); must("cuMemMap", va, 2 * MIB, 0, mk_mem(), 0)
    must("cuMemSetAccess", va, 2 * MIB, buf(access()), 1); return va
def mk_array(): return made("cuArrayCreate_v2", buf(array2()))
def mk_array3(): return made("cuArray3DCreate_v2", buf(array3()))
def mk_surf_array(): return made("cuArray3DCreate_v2", buf(array3(flags=2)))
def mk_mip():   return made("cuMipmappedArrayCreate", buf(array3()), 2)
def mk_tex():   return made("cuTexObjectCreate", buf(res_array(mk_array())), buf(tex_desc()), 0)
def mk_surf():  return made("cuSurfObjectCreate", buf(res_array(mk_surf_array())))
def mk_host():  return made("cuMemHostAlloc", 65536, 0)
def mk_pages():
    libc = ctypes.CDLL(None); libc.mmap.restype = ctypes.c_uint64
    return libc.mmap(None, ctypes.c_size_t(65536), 3, 0x22, -1, ctypes.c_long(0))
def mk_registered():
    p = mk_pages(); must("cuMemHostRegister_v2", p, 65536, 0); return p
def mk_module(): return made("cuModuleLoadData", buf(PTX))
def mk_func():
    b = ctypes.c_uint64(0); KEEP.append(b)
    must("cuModuleGetFunction", ctypes.addressof(b), mk_module(), buf(b"e\0")); return b.value
def mk_func2():
    b = ctypes.c_uint64(0); KEEP.append(b)
    must("cuModuleGetFunction", ctypes.addressof(b), mk_module(), buf(b"k\0")); return b.value
def mk_library(): return made("cuLibraryLoadData", buf(PTX), 0, 0, 0, 0, 0, 0)
def mk_kernel(): return made("cuLibraryGetKernel", mk_library(), buf(b"e\0"))
def mk_graph(): return made("cuGraphCreate", 0)
def mk_graph_alloc():
    g = mk_graph(); n = ctypes.c_uint64(0); KEEP.append(n)
    p = buf(memalloc_node())
    must("cuGraphAddMemAllocNode", ctypes.addressof(n), g, 0, 0, p)
    return g, n.value, struct.unpack("<Q", ctypes.string_at(p + 112, 8))[0]
def mk_alloc_node(): return mk_graph_alloc()[1]
def mk_graph_kernel():
    g = mk_graph(); n = ctypes.c_uint64(0); KEEP.append(n)
    must("cuGraphAddKernelNode_v2", ctypes.addressof(n), g, 0, 0, buf(kernel_node(mk_func()))); return g
def mk_kernel_node():
    g = mk_graph(); n = ctypes.c_uint64(0); KEEP.append(n)
    must("cuGraphAddKernelNode_v2", ctypes.addressof(n), g, 0, 0, buf(kernel_node(mk_func()))); return n.value
def mk_node():
    g = mk_graph(); n = ctypes.c_uint64(0); KEEP.append(n)
    must("cuGraphAddEmptyNode", ctypes.addressof(n), g, 0, 0); return n.value
def mk_exec(): return made("cuGraphInstantiateWithFlags", mk_graph_kernel(), 0)
def mk_ipc_mem():
    b = B64(); KEEP.append(b); must("cuIpcGetMemHandle", ctypes.addressof(b), mk_dptr()); return b
def mk_ipc_event():
    b = B64(); KEEP.append(b); must("cuIpcGetEventHandle", ctypes.addressof(b), made("cuEventCreate", 6)); return b
def mk_link(): return made("cuLinkCreate_v2", pre=(0, 0, 0))
def mk_extra():  # kernel parameters of k
    a = buf(struct.pack("<Q", 0)); b = buf(struct.pack("<I", 0)); return buf(struct.pack("<QQ", a, b))
def mk_capturing():
    s = mk_stream(); must("cuStreamBeginCapture_v2", s, 0); return s
def mk_recorded():
    e = mk_event(); must("cuEventRecord", e, 0); must("cuEventSynchronize", e); return e
def mk_ctx_current(): return CTX[0]
def mk_newctx(): return made("cuCtxCreate_v2", 0, 0)

KILL = {  # how a handle is made stale
    "stream": "cuStreamDestroy_v2", "event": "cuEventDestroy_v2", "dptr": "cuMemFree_v2", "async": "cuMemFree_v2", "managed": "cuMemFree_v2",
    "pool": "cuMemPoolDestroy", "mem": "cuMemRelease", "array": "cuArrayDestroy", "array3": "cuArrayDestroy", "mip": "cuMipmappedArrayDestroy",
    "tex": "cuTexObjectDestroy", "surf": "cuSurfObjectDestroy", "host": "cuMemFreeHost", "registered": "cuMemHostUnregister", "module": "cuModuleUnload",
    "library": "cuLibraryUnload", "graph": "cuGraphDestroy", "exec": "cuGraphExecDestroy", "ctx": "cuCtxDestroy_v2", "newctx": "cuCtxDestroy_v2", "link": "cuLinkDestroy",
}
MAKE = {k[3:]: v for k, v in globals().items() if k.startswith("mk_")}
MAKE["ctx"] = h_ctx
ZEROS = buf(b"\0" * 4096)
HUGE = [0, 1, 2**64 - 1, 1 << 50]

# ---- arguments: each is (valid(), [(label, value())…], outsize)
def o(n=8, fill=CANARY):  # out-pointer
    return ("out", n, fill)
def h(kind, *odd): return ("handle", kind, odd)
def v(value, *odd): return ("value", value, odd)          # a number
def sz(value=65536, *odd): return ("value", value, tuple(HUGE) + odd)
def st(make, *odd): return ("in", make, odd)              # a structure or text: bytes, or a function that gives them; odd: (label, bytes)
def io(make, *odd): return ("inout", make, odd)           # an out-pointer whose contents matter
def ptr(make): return ("ptr", make)                        # an address that is made; NULL too
dev = v(0, -1, 99)
flags0 = v(0, 1, 0xFFFF)
name = lambda s: st(s + b"\0", ("empty", b"\0"), ("unknown", b"nobody\0"))
deps = [v(0), v(0, 1)]

F = {}
def f(n, *args): F[n] = args
def both(n, suffix, *args): f(n, *args); f(n + suffix, *args)

f("cuDriverGetVersion", o(4)); f("cuDeviceGet", o(4), dev); f("cuDeviceGetCount", o(4)); f("cuDeviceGetName", o(64), v(64, 0, 1, -1), dev)
f("cuDeviceGetUuid", o(16), dev); f("cuDeviceGetUuid_v2", o(16), dev); f("cuDeviceTotalMem", o(), dev); f("cuDeviceTotalMem_v2", o(), dev)
f("cuDeviceGetAttribute", o(4), v(1, 0, -1, 999), dev); f("cuDeviceGetPCIBusId", o(32), v(32, 0, 1, 12, 13), dev); f("cuDeviceGetLuid", o(8), o(4), dev)
f("cuDeviceGetByPCIBusId", o(4), name(b"0000:00:06.0")); f("cuDeviceCanAccessPeer", o(4), dev, v(0, -1, 99)); f("cuDeviceGetP2PAttribute", o(4), v(1, 0, 99), v(0, 99), v(0, 99))
f("cuDeviceComputeCapability", o(4), o(4), dev); f("cuDeviceGetProperties", o(64), dev); f("cuDeviceGetNvSciSyncAttributes", ptr(lambda: ZEROS), dev, v(1, 0))
f("cuDeviceGetTexture1DLinearMaxWidth", o(), v(0x20, 0, 0xFFFF), v(1, 0, 3, 5), dev); f("cuDeviceGetExecAffinitySupport", o(4), v(0, 9), dev)
f("cuDeviceGetDefaultMemPool", o(), dev); f("cuDeviceGetMemPool", o(), dev); f("cuDeviceSetMemPool", dev, h("pool"))
f("cuDevicePrimaryCtxRetain", o(), dev); f("cuDevicePrimaryCtxRelease", dev); f("cuDevicePrimaryCtxRelease_v2", dev); f("cuDevicePrimaryCtxReset", dev)
f("cuDevicePrimaryCtxReset_v2", dev); f("cuDevicePrimaryCtxGetState", dev, o(4), o(4)); f("cuDevicePrimaryCtxSetFlags", dev, v(0, 4, 3, 0xFFFF)); f("cuDevicePrimaryCtxSetFlags_v2", dev, v(0, 4, 3, 0xFFFF))
f("cuCtxCreate_v2", o(), v(0, 3, 0xFFFF), dev); f("cuCtxCreate_v3", o(), v(0), v(0, 1), v(0, 3, 0xFFFF), dev)
f("cuCtxCreate_v4", o(), st(struct.pack("<QiQ", 0, 0, 0)), v(0, 3, 0xFFFF), dev); f("cuCtxDestroy", h("newctx")); f("cuCtxDestroy_v2", h("newctx")); f("cuCtxPushCurrent", h("ctx")); f("cuCtxPushCurrent_v2", h("ctx"))
f("cuCtxPopCurrent", o()); f("cuCtxPopCurrent_v2", o()); f("cuCtxSetCurrent", h("ctx")); f("cuCtxGetCurrent", o()); f("cuCtxGetDevice", o(4)); f("cuCtxGetDevice_v2", o(4), h("ctx")); f("cuCtxSynchronize"); f("cuCtxSynchronize_v2", h("ctx"))
f("cuCtxGetFlags", o(4)); f("cuCtxSetFlags", v(0, 8, 3, 0xFFFF)); f("cuCtxGetId", h("ctx"), o()); f("cuCtxGetApiVersion", h("ctx"), o(4)); f("cuCtxGetLimit", o(), v(0, 99)); f("cuCtxSetLimit", v(0, 99), v(2048, 0, 1, 2**64 - 1))
for limit in range(8): f("cuCtxSetLimit#%d" % limit, v(limit), v(2048, 0, 1, 3, 128, 70000, 1 << 40, 2**64 - 1))
f("cuCtxGetCacheConfig", o(4)); f("cuCtxSetCacheConfig", v(0, 9)); f("cuCtxGetSharedMemConfig", o(4)); f("cuCtxSetSharedMemConfig", v(0, 9)); f("cuCtxGetStreamPriorityRange", o(4), o(4)); f("cuCtxResetPersistingL2Cache")
f("cuCtxGetExecAffinity", o(16), v(0, 9)); f("cuCtxAttach", o(), v(0, 1)); f("cuCtxDetach", h("ctx")); f("cuCtxEnablePeerAccess", h("ctx"), v(0, 1)); f("cuCtxDisablePeerAccess", h("ctx"))
f("cuCtxRecordEvent", h("ctx"), h("event")); f("cuCtxWaitEvent", h("ctx"), h("event")); f("cuCtxGetDevResource", h("ctx"), o(144), v(1, 0, 9)); f("cuDeviceGetDevResource", dev, o(144), v(1, 0, 9))
f("cuFlushGPUDirectRDMAWrites", v(0, 9), v(100, 0))
f("cuMemGetInfo", o(4), o(4)); f("cuMemGetInfo_v2", o(), o()); f("cuMemAlloc", o(4), sz()); f("cuMemAlloc_v2", o(), sz()); f("cuMemAllocPitch", o(4), o(4), v(1000, 0), v(10, 0), v(4, 0, 3, 32)); f("cuMemAllocPitch_v2", o(), o(), v(1000, 0, 2**64 - 1, 1 << 32), v(10, 0, 2**64 - 1, 1 << 40), v(4, 0, 3, 32))
f("cuMemFree", h("dptr")); f("cuMemFree_v2", h("dptr", 0x1000)); f("cuMemFree_v2#async", h("async")); f("cuMemFree_v2#managed", h("managed")); f("cuMemFree_v2#host", h("host")); f("cuMemFree_v2#mapped", h("mapped")); f("cuMemGetAddressRange", o(4), o(4), h("dptr")); f("cuMemGetAddressRange_v2", o(), o(), h("dptr", 0x1000))
f("cuMemGetAddressRange_v2#mapped", o(), o(), h("mapped")); f("cuMemGetAddressRange_v2#async", o(), o(), h("async")); f("cuMemGetAddressRange_v2#host", o(), o(), h("host")); f("cuMemGetAddressRange_v2#va", o(), o(), h("va"))
f("cuMemAllocManaged", o(), sz(), v(1, 0, 2, 3, 4)); f("cuMemAllocHost", o(), v(4096, 0)); f("cuMemAllocHost_v2", o(), sz(4096)); f("cuMemHostAlloc", o(), sz(4096), v(0, 7, 8, 0xFFFF)); f("cuMemFreeHost", h("host", 0x1000)); f("cuMemHostRegister", ptr(mk_pages), v(65536, 0), v(0, 0xFFFF)); f("cuMemHostRegister_v2", ptr(mk_pages), v(65536, 0, 100, 2**64 - 1), v(0, 1, 2, 4, 8, 16, 0xFFFF))
f("cuMemHostUnregister", h("registered", 0x1000)); f("cuMemHostGetDevicePointer", o(4), h("host"), v(0, 1)); f("cuMemHostGetDevicePointer_v2", o(), h("host", 0x1000), v(0, 1)); f("cuMemHostGetFlags", o(4), h("host", 0x1000))
both("cuMemAllocAsync", "_ptsz", o(), sz(), h("stream", 1, 2, 3)); both("cuMemFreeAsync", "_ptsz", h("async", 0x1000), h("stream", 1, 2)); f("cuMemFreeAsync#dptr", h("dptr"), v(0)); f("cuMemFreeAsync#managed", h("managed"), v(0)); f("cuMemFreeAsync#mapped", h("mapped"), v(0)); both("cuMemAllocFromPoolAsync", "_ptsz", o(), sz(), h("pool"), h("stream", 1, 2))
f("cuMemPoolCreate", o(), st(pool_props(), ("kind 0", pool_props(kind=0)), ("handles 2", pool_props(handles=2)), ("handles 4", pool_props(handles=4)), ("handles 8", pool_props(handles=8)), ("location 0", pool_props(loc=0)), ("location 2", pool_props(loc=2)), ("location 3", pool_props(loc=3)), ("device 99", pool_props(dev=99)), ("device -1", pool_props(dev=-1)), ("maxSize 1", pool_props(maxsize=1)), ("maxSize 2^50", pool_props(maxsize=1 << 50))))
f("cuMemPoolDestroy", h("pool")); f("cuMemPoolTrimTo", h("pool"), v(0, 2**64 - 1)); f("cuMemPoolSetAttribute", h("pool"), v(4, 0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 99), st(struct.pack("<Q", 0), ("one", struct.pack("<Q", 1)))); f("cuMemPoolGetAttribute", h("pool"), v(4, 0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 99), o(8))
f("cuMemPoolSetAccess", h("pool"), st(access(), ("none", access(flags=0)), ("read", access(flags=1)), ("device 99", access(dev=99)), ("flags 9", access(flags=9)), ("location 0", access(loc=0))), v(1, 0)); f("cuMemPoolGetAccess", o(4), h("pool"), st(struct.pack("<Ii", 1, 0), ("device 99", struct.pack("<Ii", 1, 99)), ("location 0", struct.pack("<Ii", 0, 0))))
f("cuMemPoolExportToShareableHandle", o(8), h("pool_fd"), v(1, 0, 2, 8), v(0, 1)); f("cuMemPoolExportToShareableHandle#plain", o(8), h("pool"), v(1), v(0)); f("cuMemPoolImportFromShareableHandle", o(), v(-1, 0, 999), v(1, 0, 2, 8), v(0, 1)); f("cuMemPoolExportPointer", o(64), h("poolptr")); f("cuMemPoolExportPointer#dptr", o(64), h("dptr")); f("cuMemPoolImportPointer", o(), h("pool"), st(b"\0" * 64))
f("cuMemGetDefaultMemPool", o(), st(struct.pack("<Ii", 1, 0), ("device 99", struct.pack("<Ii", 1, 99))), v(1, 0, 9)); f("cuMemGetMemPool", o(), st(struct.pack("<Ii", 1, 0)), v(1, 0, 9)); f("cuMemSetMemPool", st(struct.pack("<Ii", 1, 0)), v(1, 0, 9), h("pool"))
odd_props = [("kind 0", prop(kind=0)), ("kind 2", prop(kind=2)), ("handles 1", prop(handles=1)), ("handles 2", prop(handles=2)), ("handles 8", prop(handles=8)), ("handles 16", prop(handles=16)), ("location 0", prop(loc=0)), ("location 2", prop(loc=2)), ("location 3", prop(loc=3)), ("location 4", prop(loc=4)), ("device 99", prop(dev=99)), ("device -1", prop(dev=-1)), ("zeros", b"\0" * 32)]
f("cuMemCreate", o(), v(2 * MIB, 0, 1, MIB, 2**64 - 2 * MIB, 1 << 50), st(prop(), *odd_props), v(0, 1)); f("cuMemRelease", h("mem")); f("cuMemAddressReserve", o(), v(2 * MIB, 0, 1, 4096, 1 << 50, 2**64 - 1), v(0, 1, 4096, 3 * MIB, 1 << 30), v(0, 1, 0x700000000000), v(0, 1)); f("cuMemAddressFree", h("va", 0x1000), v(2 * MIB, 0, 1, 4 * MIB))
f("cuMemMap", h("va", 0x1000), v(2 * MIB, 0, 1, 4 * MIB), v(0, 1, 2 * MIB), h("mem"), v(0, 1)); f("cuMemUnmap", h("mapped", 0x1000), v(2 * MIB, 0, 1, 4 * MIB)); f("cuMemUnmap#va", h("va"), v(2 * MIB)); f("cuMemSetAccess", h("mapped", 0x1000), v(2 * MIB, 0, 1), st(access(), ("flags 9", access(flags=9)), ("flags 0", access(flags=0)), ("flags 1", access(flags=1)), ("device 99", access(dev=99)), ("location 0", access(loc=0)), ("location 2", access(loc=2))), v(1, 0)); f("cuMemSetAccess#va", h("va"), v(2 * MIB), st(access()), v(1)); f("cuMemGetAccess", o(), st(struct.pack("<Ii", 1, 0), ("device 99", struct.pack("<Ii", 1, 99))), h("mapped", 0x1000))
f("cuMemAddressFree#mapped", h("mapped"), v(2 * MIB)); f("cuMemRetainAllocationHandle", o(), h("mapped", 0x1000)); f("cuMemRetainAllocationHandle#va", o(), h("va")); f("cuMemRetainAllocationHandle#dptr", o(), h("dptr")); f("cuMemExportToShareableHandle", o(8), h("mem_fd"), v(1, 0, 2, 8), v(0, 1)); f("cuMemExportToShareableHandle#plain", o(8), h("mem"), v(1), v(0)); f("cuMemImportFromShareableHandle", o(), v(-1, 0, 999), v(1, 0, 2, 8)); f("cuMemGetAllocationGranularity", o(), st(prop(), *odd_props), v(0, 1, 2)); f("cuMemGetAllocationPropertiesFromHandle", o(32), h("mem")); f("cuMemGetHandleForAddressRange", o(8), h("mapped"), v(2 * MIB, 0), v(1, 0, 9), v(0, 1))
f("cuIpcGetMemHandle", o(64), h("dptr", 0x1000)); f("cuIpcGetMemHandle#async", o(64), h("async")); f("cuIpcGetMemHandle#managed", o(64), h("managed")); f("cuIpcGetMemHandle#mapped", o(64), h("mapped")); f("cuIpcOpenMemHandle_v2", o(), ("struct64", mk_ipc_mem), v(1, 0, 2)); f("cuIpcOpenMemHandle", o(), ("struct64", mk_ipc_mem), v(1, 0, 2)); f("cuIpcCloseMemHandle", h("dptr", 0x1000)); f("cuIpcGetEventHandle", o(64), h("event")); f("cuIpcOpenEventHandle", o(), ("struct64", mk_ipc_event))
ext = lambda kind=1, fd=-1, size=65536, flags=0: struct.pack("<IIQQQI64s", kind, 0, fd & 0xFFFFFFFF, 0, size, flags, b"")
f("cuImportExternalMemory", o(), st(ext(), ("type 0", ext(kind=0)), ("type 2", ext(kind=2)), ("type 99", ext(kind=99)), ("size 0", ext(size=0)), ("fd 0", ext(fd=0)), ("flags 9", ext(flags=9)))); f("cuDestroyExternalMemory", v(0, 0xdead0000)); f("cuExternalMemoryGetMappedBuffer", o(), v(0, 0xdead0000), st(struct.pack("<QQI64s", 0, 65536, 0, b""))); f("cuExternalMemoryGetMappedMipmappedArray", o(), v(0), st(b"\0" * 128)); f("cuImportExternalSemaphore", o(), st(struct.pack("<IIQQI64s", 1, 0, 0xFFFFFFFF, 0, 0, b""), ("type 99", struct.pack("<IIQQI64s", 99, 0, 0, 0, 0, b"")))); f("cuDestroyExternalSemaphore", v(0))
f("cuArrayCreate", o(), st(struct.pack("<IIII", 64, 64, 0x20, 1))); odd2 = [("0x0", array2(0, 0)), ("height 0", array2(64, 0)), ("format 0", array2(f=0)), ("format 99", array2(f=99)), ("channels 0", array2(n=0)), ("channels 3", array2(n=3)), ("channels 5", array2(n=5)), ("too wide", array2(1 << 20, 1)), ("2^40", array2(1 << 40, 1)), ("131072x65536", array2(131072, 65536))]
f("cuArrayCreate_v2", o(), st(array2(), *odd2)); odd3 = [("zeros", array3(0, 0)), ("depth 64", array3(d=64)), ("depth, no height", array3(64, 0, 64)), ("layered", array3(d=4, flags=1)), ("layered 0", array3(d=0, flags=1)), ("surface", array3(flags=2)), ("cubemap", array3(d=6, flags=4)), ("cubemap 5", array3(d=5, flags=4)), ("cubemap not square", array3(64, 32, 6, flags=4)), ("gather", array3(flags=8)), ("depth texture", array3(flags=16)), ("sparse", array3(flags=64)), ("deferred", array3(flags=128)), ("flags ffff", array3(flags=0xFFFF)), ("flags 256", array3(flags=256)), ("format 99", array3(f=99)), ("channels 3", array3(n=3)), ("huge", array3(1 << 20, 1 << 20, 1 << 20)), ("16384^3", array3(16384, 16384, 16384)), ("too deep", array3(64, 64, 16385))]
f("cuArray3DCreate", o(), st(array3())); f("cuArray3DCreate_v2", o(), st(array3(), *odd3)); f("cuMipmappedArrayCreate", o(), st(array3(), *odd3), v(2, 0, 1, 7, 8, 99)); f("cuArrayDestroy", h("array")); f("cuMipmappedArrayDestroy", h("mip")); f("cuMipmappedArrayGetLevel", o(), h("mip"), v(0, 1, 2, 99)); f("cuArrayGetDescriptor", o(16), h("array")); f("cuArrayGetDescriptor_v2", o(24), h("array")); f("cuArray3DGetDescriptor_v2", o(40), h("array3")); f("cuArray3DGetDescriptor", o(32), h("array3"))
f("cuArrayGetMemoryRequirements", o(32), h("array"), dev); f("cuMipmappedArrayGetMemoryRequirements", o(32), h("mip"), dev); f("cuArrayGetSparseProperties", o(64), h("array")); f("cuArrayGetPlane", o(), h("array"), v(0, 9)); f("cuTexObjectCreate", o(), st(lambda: res_array(mk_array()), ("linear", lambda: res_linear(mk_dptr())), ("type 9", lambda: struct.pack("<II", 9, 0) + b"\0" * 136), ("array 0", res_array(0))), st(tex_desc(), ("address 9", struct.pack("<I", 9) + b"\0" * 124)), v(0)); f("cuTexObjectDestroy", h("tex")); f("cuSurfObjectCreate", o(), st(lambda: res_array(mk_surf_array()), ("no surface array", lambda: res_array(mk_array())), ("linear", lambda: res_linear(mk_dptr())))); f("cuSurfObjectDestroy", h("surf")); f("cuTexObjectGetResourceDesc", o(144), h("tex")); f("cuTexObjectGetTextureDesc", o(128), h("tex")); f("cuTexObjectGetResourceViewDesc", o(112), h("tex")); f("cuSurfObjectGetResourceDesc", o(144), h("surf"))
f("cuGraphCreate", o(), v(0, 1)); f("cuGraphDestroy", h("graph")); f("cuGraphAddMemAllocNode", o(), h("graph"), *deps, io(memalloc_node(), ("size 0", memalloc_node(0)), ("size 2^50", memalloc_node(1 << 50)), ("size max", memalloc_node(2**64 - 1)), ("device 99", memalloc_node(dev=99)), ("kind 0", memalloc_node(kind=0)), ("location 0", memalloc_node(loc=0)), ("handles 1", memalloc_node(handles=1)))); f("cuGraphAddNode", o(), h("graph"), *deps, io(node_params_alloc(), ("type 99", node_params_alloc(kind=99)), ("size 0", node_params_alloc(0)))); f("cuGraphAddNode_v2", o(), h("graph"), v(0), v(0), v(0, 1), io(node_params_alloc(), ("type 99", node_params_alloc(kind=99)), ("size 0", node_params_alloc(0))))
f("cuGraphAddMemFreeNode", o(), h("graph"), *deps, v(0, 0x1000)); f("cuGraphMemAllocNodeGetParams", h("alloc_node"), o(120)); f("cuGraphMemFreeNodeGetParams", h("alloc_node"), o(8)); f("cuGraphAddKernelNode", o(), h("graph"), *deps, st(lambda: kernel_node(mk_func()), ("function 0", kernel_node(0)), ("block 0", lambda: kernel_node(mk_func(), block=0)), ("block 1025", lambda: kernel_node(mk_func(), block=1025)), ("grid 0", lambda: kernel_node(mk_func(), grid=0)), ("parameters missing", lambda: kernel_node(mk_func2())))); f("cuGraphAddKernelNode_v2", *F["cuGraphAddKernelNode"]); f("cuGraphAddMemsetNode", o(), h("graph"), *deps, st(lambda: memset_node(mk_dptr()), ("address 0", memset_node(0)), ("element 3", lambda: memset_node(mk_dptr(), 3)), ("width 0", lambda: memset_node(mk_dptr(), 1, 0))), ptr(mk_ctx_current)); f("cuGraphAddEmptyNode", o(), h("graph"), *deps); f("cuGraphAddHostNode", o(), h("graph"), *deps, st(struct.pack("<QQ", 0, 0)))
f("cuGraphAddChildGraphNode", o(), h("graph"), *deps, h("graph")); f("cuGraphAddEventRecordNode", o(), h("graph"), *deps, h("event")); f("cuGraphAddEventWaitNode", o(), h("graph"), *deps, h("event")); f("cuGraphClone", o(), h("graph")); f("cuGraphInstantiateWithFlags", o(), h("graph_kernel"), v(0, 1, 2, 4, 8, 16, 0xFFFF)); f("cuGraphInstantiate", o(), h("graph_kernel"), v(0), v(0), v(0)); f("cuGraphInstantiate_v2", o(), h("graph_kernel"), v(0), v(0), v(0)); f("cuGraphInstantiateWithParams", o(), h("graph_kernel"), io(b"\0" * 32, ("flags ff", b"\xff" + b"\0" * 31), ("flags 2", b"\x02" + b"\0" * 31))); f("cuGraphInstantiateWithParams_ptsz", *F["cuGraphInstantiateWithParams"]); both("cuGraphLaunch", "_ptsz", h("exec"), h("stream", 1, 2)); both("cuGraphUpload", "_ptsz", h("exec"), h("stream", 1, 2)); f("cuGraphExecDestroy", h("exec")); f("cuGraphExecGetFlags", h("exec"), o(8)); f("cuGraphGetNodes", h("graph_kernel"), v(0), io(struct.pack("<Q", 0))); f("cuGraphGetRootNodes", h("graph_kernel"), v(0), io(struct.pack("<Q", 0))); f("cuGraphGetEdges", h("graph_kernel"), v(0), v(0), io(struct.pack("<Q", 0))); f("cuGraphNodeGetType", h("node"), o(4)); f("cuGraphDestroyNode", h("node")); f("cuGraphNodeGetDependencies", h("node"), v(0), io(struct.pack("<Q", 0))); f("cuGraphKernelNodeGetParams", h("kernel_node"), o(56)); f("cuGraphKernelNodeGetParams_v2", h("kernel_node"), o(72)); f("cuGraphExecUpdate", h("exec"), h("graph_kernel"), o(), o(4)); f("cuGraphExecUpdate_v2", h("exec"), h("graph_kernel"), o(24))
f("cuDeviceGetGraphMemAttribute", dev, v(0, 1, 2, 3, 4, 99), o(8)); f("cuDeviceSetGraphMemAttribute", dev, v(1, 0, 2, 3, 99), st(struct.pack("<Q", 0), ("one", struct.pack("<Q", 1)))); f("cuDeviceGraphMemTrim", dev); f("cuUserObjectCreate", o(), v(0x1000), v(0x1000, 0), v(1, 0), v(1, 0)); f("cuGraphDebugDotPrint", h("graph"), v(0), v(0))
both("cuStreamBeginCapture_v2", "_ptsz", h("stream", 1, 2), v(0, 1, 2, 3, 99)); both("cuStreamEndCapture", "_ptsz", h("capturing"), o()); both("cuStreamIsCapturing", "_ptsz", h("capturing", 1, 2), o(4)); f("cuStreamGetCaptureInfo", h("capturing"), o(4), o(8)); f("cuStreamGetCaptureInfo_v2", h("capturing", 1), o(4), o(8), o(8), o(8), o(8)); f("cuStreamGetCaptureInfo_v3", h("capturing"), o(4), o(8), o(8), o(8), o(8), o(8)); f("cuStreamBeginCaptureToGraph", h("stream"), h("graph"), v(0), v(0), v(0), v(0, 99)); f("cuThreadExchangeStreamCaptureMode", io(struct.pack("<I", 0), ("99", struct.pack("<I", 99)))); f("cuStreamUpdateCaptureDependencies", h("capturing"), v(0), v(0), v(0, 9))
f("cuStreamCreate", o(), v(0, 1, 2, 0xFFFF)); f("cuStreamCreateWithPriority", o(), v(0, 1, 2), v(0, -1, -5, -99, 99)); f("cuStreamDestroy", h("stream", 1, 2)); f("cuStreamDestroy_v2", h("stream", 1, 2)); both("cuStreamSynchronize", "_ptsz", h("stream", 1, 2)); both("cuStreamQuery", "_ptsz", h("stream", 1, 2)); both("cuStreamWaitEvent", "_ptsz", h("stream", 1, 2), h("event"), v(0, 1, 2)); both("cuStreamGetCtx", "_ptsz", h("stream", 1, 2), o()); f("cuStreamGetCtx_v2", h("stream", 1, 2), o(), o()); f("cuStreamGetPriority", h("stream", 1, 2), o(4)); f("cuStreamGetFlags", h("stream", 1, 2), o(4)); f("cuStreamGetId", h("stream", 1, 2), o(8)); f("cuStreamGetDevice", h("stream", 1, 2), o(4)); f("cuStreamAddCallback", h("stream"), v(0), v(0), v(0, 1)); both("cuLaunchHostFunc", "_ptsz", h("stream"), v(0), v(0)); f("cuStreamAttachMemAsync", h("stream"), h("managed"), v(0, 65536, 1), v(4, 0, 1, 2, 9)); f("cuStreamWriteValue32_v2", h("stream"), h("dptr", 1), v(1), v(0, 1, 9)); f("cuStreamWaitValue32_v2", h("stream"), h("dptr", 1), v(0), v(0, 99)); f("cuStreamBatchMemOp_v2", h("stream"), v(0, 1), v(0), v(0, 1)); f("cuStreamGetAttribute", h("stream"), v(1, 0, 2, 3, 99), o(64)); f("cuStreamSetAttribute", h("stream"), v(3, 0, 1, 2, 4, 99), st(b"\0" * 64)); f("cuStreamCopyAttributes", h("stream"), h("stream"))
f("cuEventCreate", o(), v(0, 1, 2, 3, 4, 6, 8, 0xFFFF)); f("cuEventDestroy", h("event")); f("cuEventDestroy_v2", h("event")); both("cuEventRecord", "_ptsz", h("event"), h("stream", 1, 2)); both("cuEventRecordWithFlags", "_ptsz", h("event"), h("stream"), v(0, 1, 2)); f("cuEventSynchronize", h("event")); f("cuEventQuery", h("event")); f("cuEventElapsedTime", o(4), h("recorded"), h("recorded")); f("cuEventElapsedTime_v2", o(4), h("recorded"), h("recorded")); f("cuEventElapsedTime#unrecorded", o(4), h("event"), h("event"))
f("cuModuleLoad", o(), name(b"/nowhere")); bad = [("empty", b"\0"), ("junk", b"junk\0"), ("zeros", b"\0" * 64), ("bad ptx", b".version 7.0\n.target sm_50\n.entry e() { nonsense; }\n\0"), ("newer ptx", b".version 99.0\n.target sm_50\n\0"), ("bad target", b".version 7.0\n.target sm_999\n\0"), ("elf head", b"\x7fELF\x02\x01\x01" + b"\0" * 57), ("fatbin head", struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 0)), ("wrapper", struct.pack("<IIQQ", 0x466243B1, 1, 0, 0)), ("only version", b".version 7.0\n.target sm_50\n\0")]
f("cuModuleLoadData", o(), st(PTX, *bad)); f("cuModuleLoadDataEx", o(), st(PTX, *bad), v(0, 1), v(0), v(0)); f("cuModuleLoadFatBinary", o(), st(PTX, *bad)); f("cuModuleUnload", h("module")); f("cuModuleGetFunction", o(), h("module"), name(b"e")); f("cuModuleGetGlobal", o(4), o(4), h("module"), name(b"g")); f("cuModuleGetGlobal_v2", o(), o(), h("module"), name(b"g")); f("cuModuleGetTexRef", o(), h("module"), name(b"t")); f("cuModuleGetSurfRef", o(), h("module"), name(b"t")); f("cuModuleGetLoadingMode", o(4)); f("cuModuleGetFunctionCount", o(4), h("module")); f("cuModuleEnumerateFunctions", o(16), v(2, 0, 1, 9), h("module"))
f("cuLibraryLoadData", o(), st(PTX, *bad), v(0), v(0), v(0, 1), v(0), v(0), v(0, 1)); f("cuLibraryLoadFromFile", o(), name(b"/nowhere"), v(0), v(0), v(0), v(0), v(0), v(0)); f("cuLibraryUnload", h("library")); f("cuLibraryGetKernel", o(), h("library"), name(b"e")); f("cuLibraryGetModule", o(), h("library")); f("cuLibraryGetGlobal", o(), o(), h("library"), name(b"g")); f("cuLibraryGetManaged", o(), o(), h("library"), name(b"g")); f("cuLibraryGetUnifiedFunction", o(), h("library"), name(b"e")); f("cuLibraryGetKernelCount", o(4), h("library")); f("cuLibraryEnumerateKernels", o(16), v(2, 0, 1, 9), h("library")); f("cuKernelGetFunction", o(), h("kernel")); f("cuKernelGetAttribute", o(4), v(0, 99), h("kernel"), dev); f("cuKernelSetAttribute", v(8, 0, 99), v(0, -1), h("kernel"), dev); f("cuKernelGetName", o(), h("kernel")); f("cuKernelSetCacheConfig", h("kernel"), v(0, 9), dev); f("cuKernelGetParamInfo", h("kernel"), v(0, 9), o(), o()); f("cuKernelGetLibrary", o(), h("kernel"))
f("cuFuncGetAttribute", o(4), v(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 99, -1), h("func")); f("cuFuncSetAttribute", h("func"), v(8, 0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 99), v(0, -1, 1, 1024, 300000)); f("cuFuncSetCacheConfig", h("func"), v(0, 9)); f("cuFuncSetSharedMemConfig", h("func"), v(0, 9)); f("cuFuncGetModule", o(), h("func")); f("cuFuncGetName", o(), h("func")); f("cuFuncGetParamInfo", h("func2"), v(0, 1, 2, 99), o(), o()); f("cuFuncIsLoaded", o(4), h("func")); f("cuFuncLoad", h("func"))
geo = [v(1, 0, 2**31 - 1, 2**31), v(1, 0, 65536), v(1, 0, 65536), v(1, 0, 1025), v(1, 0, 1025), v(1, 0, 65)]
both("cuLaunchKernel", "_ptsz", h("func"), *geo, v(0, 49152, 49153, 1 << 20), h("stream", 1, 2), v(0), v(0)); f("cuLaunchKernel#parameters", h("func2"), v(1), v(1), v(1), v(1), v(1), v(1), v(0), v(0), ptr(mk_extra), v(0)); both("cuLaunchCooperativeKernel", "_ptsz", h("func"), v(1, 0, 132, 1 << 20), *geo[1:], v(0, 49153, 1 << 20), h("stream"), v(0)); f("cuLaunchCooperativeKernelMultiDevice", v(0), v(0, 1), v(0)); both("cuLaunchKernelEx", "_ptsz", st(launch_config(), ("grid 0", launch_config(0)), ("block 0", launch_config(1, 0)), ("block 1025", launch_config(1, 1025)), ("shared", launch_config(1, 1, 1 << 20))), h("func"), v(0), v(0)); f("cuLaunch", h("func")); f("cuLaunchGrid", h("func"), v(1, 0, -1), v(1, 0)); f("cuLaunchGridAsync", h("func"), v(1, 0), v(1, 0), h("stream")); f("cuFuncSetBlockShape", h("func"), v(1, 0, 1025), v(1, 0), v(1, 0)); f("cuFuncSetSharedSize", h("func"), v(0, 1 << 20)); f("cuParamSetSize", h("func"), v(0, 8, 5000)); f("cuParamSeti", h("func"), v(0, -1), v(1)); f("cuParamSetv", h("func"), v(0), ptr(lambda: ZEROS), v(8, 0))
f("cuOccupancyMaxActiveBlocksPerMultiprocessor", o(4), h("func"), v(128, 0, 1, 1024, 1025, -1), v(0, 49152, 232448, 1 << 20)); f("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", o(4), h("func"), v(128, 0, 1025), v(0), v(0, 1, 2)); f("cuOccupancyMaxPotentialBlockSize", o(4), o(4), h("func"), v(0), v(0, 1 << 20), v(0, 1, 33, 1025, -1)); f("cuOccupancyMaxPotentialBlockSizeWithFlags", o(4), o(4), h("func"), v(0), v(0), v(0), v(0, 1, 2)); f("cuOccupancyAvailableDynamicSMemPerBlock", o(), h("func"), v(1, 0, -1, 32, 99), v(128, 0, 1025, -1)); f("cuOccupancyMaxPotentialClusterSize", o(4), h("func"), st(launch_config())); f("cuOccupancyMaxActiveClusters", o(4), h("func"), st(launch_config()))
f("cuLinkCreate_v2", v(0, 1), v(0), v(0), o()); f("cuLinkAddData_v2", h("link"), v(1, 0, 2, 9), st(PTX), v(len(PTX), 0), v(0), v(0), v(0), v(0)); f("cuLinkComplete", h("link"), o(), o()); f("cuLinkDestroy", h("link"))
f("cuMemPrefetchAsync", h("managed", 0x1000), v(65536, 0, 1 << 40), v(0, -1, 99, -2), h("stream")); f("cuMemPrefetchAsync_v2", h("managed"), v(65536, 0), v(1, 0, 2, (99 << 32) | 1), v(0, 1), h("stream")); f("cuMemAdvise", h("managed", 0x1000), v(65536, 0, 1 << 40), v(1, 0, 2, 3, 4, 5, 6, 9), v(0, -1, 99)); f("cuMemAdvise_v2", h("managed"), v(65536, 0), v(1, 0, 3, 9), v(1, 0, (99 << 32) | 1)); f("cuMemRangeGetAttribute", o(8), v(4, 0, 8), v(1, 2, 3, 4, 5, 9), h("managed"), v(65536, 0)); f("cuMemPrefetchAsync#dptr", h("dptr"), v(65536), v(0), v(0)); f("cuMemAdvise#dptr", h("dptr"), v(65536), v(1), v(0))
f("cuPointerGetAttribute", o(64), v(1, *range(2, 24), 0, 99, -1), h("dptr", 0x1000)); f("cuPointerGetAttribute#managed", o(64), v(1, *range(2, 24)), h("managed")); f("cuPointerGetAttribute#async", o(64), v(1, *range(2, 24)), h("async")); f("cuPointerGetAttribute#mapped", o(64), v(1, *range(2, 24)), h("mapped")); f("cuPointerGetAttribute#host", o(64), v(1, *range(2, 24)), h("host")); f("cuPointerGetAttribute#registered", o(64), v(1, *range(2, 24)), h("registered")); f("cuPointerGetAttribute#pages", o(64), v(1, *range(2, 24)), h("pages")); f("cuPointerGetAttribute#va", o(64), v(1, *range(2, 24)), h("va")); f("cuPointerGetAttributes", v(1, 0), st(struct.pack("<I", 2)), st(lambda: struct.pack("<Q", buf(b"\0" * 64))), h("dptr", 0x1000)); f("cuPointerSetAttribute", st(struct.pack("<I", 1)), v(6, 0, 7, 99), h("dptr", 0x1000))
both("cuMemcpy", "_ptds", h("dptr", 0x1000), h("dptr", 0x1000), v(16, 0, 65536, 65537, 1 << 40)); both("cuMemcpyAsync", "_ptsz", h("dptr"), h("dptr"), v(16, 0, 65537), h("stream", 1, 2)); f("cuMemcpyHtoD", h("dptr"), ptr(lambda: ZEROS), v(16, 0)); both("cuMemcpyHtoD_v2", "_ptds", h("dptr", 0x1000), ptr(lambda: ZEROS), v(16, 0, 1 << 40)); both("cuMemcpyDtoH_v2", "_ptds", o(16), h("dptr", 0x1000), v(16, 0)); both("cuMemcpyDtoD_v2", "_ptds", h("dptr", 0x1000), h("dptr", 0x1000), v(16, 0, 65537)); f("cuMemcpyHtoDAsync_v2", h("dptr", 0x1000), ptr(lambda: ZEROS), v(16, 0), h("stream", 1, 2)); f("cuMemcpyDtoHAsync_v2", o(16), h("dptr", 0x1000), v(16, 0), h("stream", 1, 2)); f("cuMemcpyDtoDAsync_v2", h("dptr", 0x1000), h("dptr", 0x1000), v(16, 0), h("stream"))
f("cuMemcpyPeer", h("dptr"), ptr(mk_ctx_current), h("dptr"), ptr(mk_ctx_current), v(16, 0)); f("cuMemcpyPeerAsync", h("dptr"), ptr(mk_ctx_current), h("dptr"), ptr(mk_ctx_current), v(16, 0), h("stream")); odd_copy = [("source 0", lambda: copy2(0, mk_dptr())), ("destination 0", lambda: copy2(mk_dptr(), 0)), ("type 9", lambda: copy2(mk_dptr(), mk_dptr(), 9)), ("type 0", lambda: copy2(mk_dptr(), mk_dptr(), 0)), ("width 0", lambda: copy2(mk_dptr(), mk_dptr(), w=0)), ("wider than pitch", lambda: copy2(mk_dptr(), mk_dptr(), w=65)), ("zeros", b"\0" * 128), ("array 0", lambda: copy2(0, mk_dptr(), 3)), ("host 0", lambda: copy2(0, mk_dptr(), 1))]
f("cuMemcpy2D_v2", st(lambda: copy2(mk_dptr(), mk_dptr()), *odd_copy)); f("cuMemcpy2DUnaligned_v2", st(lambda: copy2(mk_dptr(), mk_dptr()), *odd_copy)); f("cuMemcpy2DAsync_v2", st(lambda: copy2(mk_dptr(), mk_dptr()), *odd_copy), h("stream", 1, 2)); f("cuMemcpy3D_v2", st(lambda: copy3(mk_dptr(), mk_dptr()), ("zeros", b"\0" * 200), ("depth 0", lambda: copy3(mk_dptr(), mk_dptr(), d=0)), ("type 9", lambda: copy3(mk_dptr(), mk_dptr(), 9)))); f("cuMemcpy3DAsync_v2", *F["cuMemcpy3D_v2"], h("stream")); f("cuMemcpyAtoA_v2", h("array"), v(0, 1 << 20), h("array"), v(0, 1 << 20), v(16, 0)); f("cuMemcpyAtoD_v2", h("dptr"), h("array"), v(0, 1 << 20), v(16, 0)); f("cuMemcpyDtoA_v2", h("array"), v(0, 1 << 20), h("dptr"), v(16, 0)); f("cuMemcpyAtoH_v2", o(16), h("array"), v(0, 1 << 20), v(16, 0)); f("cuMemcpyHtoA_v2", h("array"), v(0, 1 << 20), ptr(lambda: ZEROS), v(16, 0))
for bits, unit in ((8, 1), (16, 2), (32, 4)):
    both("cuMemsetD%d_v2" % bits, "_ptds", h("dptr", 0x1000, 1), v(1), v(16, 0, 65537, 1 << 40, 2**64 - 1)); both("cuMemsetD%dAsync" % bits, "_ptsz", h("dptr", 0x1000, 1), v(1), v(16, 0, 65537), h("stream", 1, 2)); both("cuMemsetD2D%d_v2" % bits, "_ptds", h("dptr", 0x1000, 1), v(64, 0, 1), v(1), v(8, 0, 65, 1 << 40), v(2, 0, 1 << 40)); f("cuMemsetD2D%dAsync" % bits, h("dptr", 0x1000), v(64, 0), v(1), v(8, 0), v(2, 0), h("stream"))
f("cuInit", v(0, 1)); f("cuGetErrorString", v(2, 9999), o()); f("cuGetErrorName", v(2, 9999), o()); f("cuGetExportTable", o(), st(b"\x11" * 16)); f("cuGetProcAddress", st(b"cuMemAlloc\0", ("empty", b"\0"), ("unknown", b"nobody\0")), o(), v(12000, 0, -1, 13001), v(0, 1, 2, 3, 4, 5)); f("cuGetProcAddress_v2", st(b"cuMemAlloc\0", ("empty", b"\0"), ("unknown", b"nobody\0")), o(), v(12000, 0, -1, 13001, 13010), v(0, 1, 2, 3, 4, 5), o(4)); f("cuProfilerStart"); f("cuProfilerStop")
f("cuGreenCtxCreate", o(), v(0), dev, v(1, 0)); f("cuGreenCtxDestroy", v(0)); f("cuCtxFromGreenCtx", o(), v(0)); f("cuDevResourceGenerateDesc", o(), st(b"\0" * 144), v(1, 0)); f("cuMulticastCreate", o(), st(struct.pack("<IIQQQ", 1, 0, 2 * MIB, 0, 0))); f("cuMulticastGetGranularity", o(), st(struct.pack("<IIQQQ", 1, 0, 2 * MIB, 0, 0)), v(0, 1, 9)); f("cuTensorMapEncodeTiled", o(128), v(0)); f("cuMemMapArrayAsync", v(0), v(0, 1), h("stream")); f("cuCtxCreate", o(), v(0), dev)

def scenarios(args):
    """(label, {index: odd}) rows: the valid call, then one argument changed at a time; the same NULLs without a context."""
    rows = [("valid", None, None, True)]
    nulls, late = [], []
    for i, a in enumerate(args):
        kind = a[0]
        if kind in ("out", "in", "inout", "ptr"):
            rows.append((f"{i}=NULL", i, ("word", 0), True)); nulls.append((f"noctx {i}=NULL", i, ("word", 0), False))
        if kind in ("in", "inout"):
            rows += [(f"{i}={label}", i, ("bytes", data), True) for label, data in a[2]]
        if kind == "handle":
            rows.append((f"{i}=0", i, ("word", 0), True))
            rows += [(f"{i}={odd:#x}", i, ("word", odd), True) for odd in a[2]]
            rows += [(f"{i}=interior", i, ("interior",), True)] if a[1] in ("dptr", "async", "managed", "host", "mapped", "va", "registered") else []
            rows += [(f"{i}=stale", i, ("stale", a[1]), True)] if a[1] in KILL else []
            late.append((f"{i}=zeroed memory", i, ("word", ZEROS), True))
        if kind == "value":
            rows += [(f"{i}={odd & (2**64 - 1):#x}", i, ("word", odd), True) for odd in a[2]]
        if kind == "struct64":
            rows.append((f"{i}=zeros", i, ("zero64",), True))
    return rows + [("noctx", None, None, False)] + nulls, late

def build(arg):
    """The word, and for an out-pointer (address, size, fill)."""
    kind = arg[0]
    if kind == "out":
        b = ctypes.create_string_buffer(bytes([arg[2]]) * (arg[1] + 256), arg[1] + 256); KEEP.append(b)
        return ctypes.addressof(b), (ctypes.addressof(b), arg[1], bytes([arg[2]]) * arg[1])
    if kind == "handle": return MAKE[arg[1]](), None
    if kind == "value": return arg[1], None
    if kind in ("in", "inout"):
        data = arg[1]() if callable(arg[1]) else arg[1]
        at = buf(data)
        return at, ((at, len(data), bytes(data)) if kind == "inout" else None)
    if kind == "ptr": return arg[1](), None
    if kind == "struct64": return arg[1](), None

def exhaust():
    """All that is left for this process: what the call then answers is not about the memory."""
    taken, b, free = [], ctypes.c_uint64(0), ctypes.c_uint64(0)
    most = 1 << 63
    while not call("cuMemGetInfo_v2", ctypes.addressof(free), ctypes.addressof(b)):
        size = min(free.value & -2 * MIB, most)
        if size < 2 * MIB: break
        if call("cuMemAlloc_v2", ctypes.addressof(b), size): most = (size >> 1) & -2 * MIB
        else: taken.append(b.value)
    return taken

def one(fn, args, row, log):
    label, at, odd, context = row
    words, outs = [], []
    try:
        for i, a in enumerate(args):
            word, out = build(a)
            if i == at:
                if odd[0] == "word":
                    word, out = odd[1], None
                elif odd[0] == "interior": word += 512
                elif odd[0] == "stale":
                    if odd[1] == "ctx": word = made("cuCtxCreate_v2", 0, 0)
                    rc = call(KILL[odd[1]], word)
                    if rc: raise RuntimeError(f"{KILL[odd[1]]}: {rc}")
                elif odd[0] == "bytes":
                    data = odd[1]() if callable(odd[1]) else odd[1]
                    word = buf(data)
                    out = (word, len(data), bytes(data)) if a[0] == "inout" else None
                elif odd[0] == "zero64": word = B64()
            words.append(word); outs.append(out)
    except RuntimeError as error:
        return f"setup {error}"
    full = exhaust() if EXHAUST else []
    if not context: call("cuCtxSetCurrent", 0)
    elif "ctx" in [a[1] for a in args if a[0] == "handle"]: call("cuCtxSetCurrent", CTX[0])
    log("begin")
    rc = call(fn.split("#")[0], *words)
    shown = []
    for i, out in enumerate(outs):
        if out:
            now = ctypes.string_at(out[0], out[1])
            if now == out[2]: shown.append(f"{i}:=")
            else:
                last = max(k for k in range(len(now)) if now[k] != out[2][k]) + 1
                shown.append(f"{i}:" + now[:max(last, min(8, out[1]))].hex())
    call("cuCtxSetCurrent", CTX[0])
    for taken in full: call("cuMemFree_v2", taken)
    return f"{rc}\t" + " ".join(shown)

def child(rows, path):
    """Goes through rows (function, label, …) until one kills it."""
    os.dup2(os.open("/dev/null", os.O_RDWR), 2); os.dup2(2, 1)
    signal.alarm(ALARM * 4)
    load()
    call("cuInit", 0)
    c = ctypes.c_uint64(0)
    if call("cuDevicePrimaryCtxRetain", ctypes.addressof(c), 0): os._exit(3)
    CTX[0] = c.value; call("cuCtxSetCurrent", c.value)
    with open(path, "w", buffering=1) as log:
        for k, (fn, row) in rows:
            if time.time() > DEADLINE: os._exit(0)
            signal.alarm(ALARM)
            try: answer = one(fn, F[fn], row, lambda word: log.write(f"{k}\t{word}\n"))
            except AttributeError: answer = "absent"
            except ctypes.ArgumentError as error: answer = f"setup {error}"
            log.write(f"{k}\tend\t{answer}\n")
            # A context that the call spoiled would answer for those that follow.
            if call("cuCtxSetCurrent", CTX[0]) or call("cuStreamQuery", 0) not in (0, 600): os._exit(9)
    os._exit(0)

# What changes the process or the device for those after it, or takes long: each in a process of its own.
ALONE = ["cuCtxSetLimit", "cuDevicePrimaryCtx", "cuCtxCreate", "cuCtxDetach", "cuCtxAttach", "cuCtxPopCurrent", "cuCtxDestroy", "cuDeviceSetMemPool", "cuInit", "cuGreenCtx",
         "cuMemSetMemPool", "cuCtxSetFlags", "cuCtxSetCacheConfig", "cuCtxSetSharedMemConfig", "cuDeviceSetGraphMem", "cuProfiler", "cuThreadExchange", "cuLaunchGrid", "cuParam", "cuCtxGetDevResource"]

def main():
    os.makedirs(OUT, exist_ok=True)
    names = [n for n in F if not ONLY or n.split("#")[0] in ONLY]
    every, answers = [], {}
    for late in (0, 1):
        for fn in names:
            every += [(fn, row) for row in scenarios(F[fn])[late]]
    rows = list(enumerate(every))
    alone = {}
    common = []
    for k, (fn, row) in rows:
        if any(fn.startswith(a) for a in ALONE): alone.setdefault((fn, "zeroed" in row[0]), []).append((k, (fn, row)))
        else: common.append((k, (fn, row)))
    first = [r for r in common if "zeroed" not in r[1][1][0]]
    last = [r for r in common if "zeroed" in r[1][1][0]]
    size = max(1, len(first) // (WORKERS * 3) + 1)
    queue = [first[i:i + size] for i in range(0, len(first), size)]
    queue += [part for (fn, late), part in alone.items() if not late]
    queue += [last[i:i + 12] for i in range(0, len(last), 12)] + [part for (fn, late), part in alone.items() if late]
    running, serial = {}, 0
    while queue or running:
        while queue and len(running) < WORKERS and time.time() < DEADLINE - 3:
            part = queue.pop(0); serial += 1
            path = os.path.join(OUT, f".{serial}")
            pid = os.fork()
            if pid == 0:
                try: child(part, path)
                finally: os._exit(4)
            running[pid] = (part, path)
        if not running: break
        pid, status = os.waitpid(-1, 0)
        if pid not in running: continue
        part, path = running.pop(pid)
        open_row, done = None, set()
        for line in (open(path).read().splitlines() if os.path.exists(path) else []):
            bits = line.split("\t")
            k = int(bits[0])
            if bits[1] == "begin": open_row = k
            else: answers[k] = "\t".join(bits[2:]); done.add(k); open_row = None
        if os.path.exists(path): os.remove(path)
        if os.WIFSIGNALED(status) or os.WEXITSTATUS(status):
            how = f"died {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
            rest = [r for r in part if r[0] not in done]
            if rest and not (os.WIFEXITED(status) and os.WEXITSTATUS(status) == 9):
                answers[rest[0][0]] = how if open_row == rest[0][0] else "setup " + how
                rest = rest[1:]
            if rest: queue.insert(0, rest)
    with open(os.path.join(OUT, "arguments.txt"), "w") as log:
        for k, (fn, row) in sorted(rows, key=lambda r: (names.index(r[1][0]), r[0])):
            if k in answers: log.write(f"{fn}\t{row[0]}\t{answers[k]}\n")
    with open(os.path.join(OUT, "summary.txt"), "w") as log:
        left = sorted({fn for k, (fn, row) in rows if k not in answers})
        log.write(f"functions {len(names)} rows {len(answers)} of {len(rows)} processes {serial} seconds {time.time() - DEADLINE + float(os.environ.get('PROBE_SECONDS', '56')):.1f}\nleft {left}\n")

if __name__ == "__main__":
    main()
