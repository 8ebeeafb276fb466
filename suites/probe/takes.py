"""Asks a libcuda what each of its exports takes of the device: every export called with arguments that it accepts, in a process of its own.

    python3 takes.py EXPORTS CUDA_H FILE [FUNCTION…]

EXPORTS names an export at the start of each line (fixtures/oracle/libcuda.txt), CUDA_H is the vendor's header. Arguments are those of
arguments.py (valid first, then one number at a time made odd); for the rest they follow from the header's types: handles that
work, buffers that can be written, small sizes, every enumerator up to 8, every flag. FILE gets a line each, tab-separated:

  export, calls that were answered, how many of them by 0, every answer with its count, KiB that the process's own row of NVML grew by the valid
  calls and by the odd ones, at once or when the context was waited for; `-` where it did not come to that, `none` where NVML has no row of us;
  where the arguments come from; the signal, where it died.

So was fixtures/oracle/takes-580.txt recorded. What the calls are given (streams, arrays, modules …) is made before the first figure is read.
Nothing on the card is changed; TAKES_WORKERS processes run at a time (8).
"""
import collections, ctypes, os, re, signal, struct, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import arguments as a

CALLS = 32
SECONDS = 40


class Row:
    """What NVML says that this process holds, in KiB."""

    def __init__(self):
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.nvml.nvmlInit_v2()
        self.device = ctypes.c_void_p()
        self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device))

    def read(self):
        count, rows = ctypes.c_uint(256), ctypes.create_string_buffer(24 * 256)
        if self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(self.device, ctypes.byref(count), rows):
            return None
        for at in range(count.value):
            pid, used = struct.unpack_from("<I4xQ", rows, 24 * at)
            if pid == os.getpid():
                return used >> 10
        return None


def prototypes(header):
    """Each symbol's parameters, as (type, name)."""
    text = re.sub(r"/\*.*?\*/", "", open(header).read(), flags=re.S)
    text = re.sub(r"//[^\n]*", "", text)
    split = [m.start() for m in re.finditer(r"#if defined\(__CUDA_API_VERSION_INTERNAL\)", text)]
    older = text[split[-1]:] if split else ""
    newer = text[:split[-1]] if split else text
    renamed = dict((to, name) for name, to in re.findall(r"#define (cu\w+)\s+(?:__CUDA_API_PT[SD]+Z?\()?(cu\w+)\)?", newer))

    def declared(part):
        found = {}
        for name, words in re.findall(r"CUresult\s+CUDAAPI\s+(cu\w+)\s*\(([^;]*?)\)\s*;", part):
            found[name] = [] if words.strip() in ("", "void") else [parameter(word) for word in words.split(",")]
        return found

    def parameter(word):
        word = re.sub(r"\[\d*\]", " *", word.strip())
        match = re.match(r"(.*?[\s*])(\w+)(\s*\*)?$", word)
        kind, name = (match.group(1) + (match.group(3) or ""), match.group(2)) if match else (word, "")
        return kind.replace(" ", "").replace("const", "const "), name

    new, old = declared(newer), declared(older)

    def of(symbol):
        plain = re.sub(r"_pt[sd][sz]$", "", symbol)
        if plain in old:
            return old[plain]
        for name in (renamed.get(symbol), renamed.get(plain), plain, re.sub(r"_v\d+$", "", plain)):
            if name in new:
                return new[name]
        return None

    return of


HANDLES = {
    "CUcontext": "ctx", "CUstream": "stream", "CUevent": "event", "CUdeviceptr": "dptr", "CUmodule": "module", "CUfunction": "func", "CUarray": "array",
    "CUmipmappedArray": "mip", "CUgraph": "graph", "CUgraphExec": "exec", "CUgraphNode": "node", "CUmemoryPool": "pool", "CUlibrary": "library",
    "CUkernel": "kernel", "CUtexObject": "tex", "CUsurfObject": "surf", "CUlinkState": "link", "CUmemGenericAllocationHandle": "mem",
    "CUgreenCtx": "green", "CUuserObject": "object", "CUtexref": "texref", "CUdeviceptr_v1": "dptr",
}


def green():
    resource = ctypes.create_string_buffer(256)
    a.must("cuDeviceGetDevResource", 0, ctypes.addressof(resource), 1)
    split, groups = ctypes.create_string_buffer(4096), ctypes.c_uint(1)
    a.must("cuDevSmResourceSplitByCount", ctypes.addressof(split), ctypes.addressof(groups), ctypes.addressof(resource), 0, 0, 8)
    description = a.made("cuDevResourceGenerateDesc", ctypes.addressof(split), 1)
    return a.made("cuGreenCtxCreate", description, 0, 1)


def user_object():
    keep = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
    a.KEEP.append(keep)
    return a.made("cuUserObjectCreate", 0, ctypes.cast(keep, ctypes.c_void_p).value, 1, 1)


a.MAKE.setdefault("green", green)
a.MAKE.setdefault("object", user_object)
a.MAKE.setdefault("texref", lambda: a.made("cuTexRefCreate"))


def by_type(parameters):
    """The arguments that follow from the types, in the words of arguments.py."""
    arguments = []
    for kind, name in parameters:
        if kind.startswith("const char*") or kind.startswith("const void*"):
            arguments.append(a.st(b"nothing\0".ljust(4096, b"\0")))
        elif kind.startswith("const "):
            arguments.append(a.st(b"\0" * 4096))
        elif kind.startswith("CUhostFn") or "Callback" in kind or "CB" in kind:
            arguments.append(a.v(0))
        elif kind.endswith("*"):
            arguments.append(a.o(4096, 0))
        elif kind in HANDLES:
            arguments.append(a.h(HANDLES[kind]))
        elif kind in ("CUdevice", "CUdevice_v1"):
            arguments.append(a.dev)
        elif name == "pid":
            arguments.append(("ptr", os.getpid))
        elif "lags" in name:
            arguments.append(a.v(0, 1, 2, 4, 8, 16))
        elif kind in ("size_t", "unsignedlonglong") and name not in ("value", "index"):
            arguments.append(a.v(4096, 0, 16))
        elif kind in ("int", "unsignedint", "size_t", "unsignedlonglong", "float", "unsignedchar", "unsignedshort", "cuuint32_t", "cuuint64_t"):
            arguments.append(a.v(1, 0, 16))
        else:
            arguments.append(a.v(*range(9)))
    return arguments


def ask(symbol, every, out):
    os.dup2(os.open("/dev/null", os.O_RDWR), 2)
    signal.alarm(SECONDS)
    a.load()
    if not hasattr(a.L, symbol):
        return out.write("absent")
    a.call("cuInit", 0)
    context = ctypes.c_uint64(0)
    a.must("cuDevicePrimaryCtxRetain", ctypes.addressof(context), 0)
    a.CTX[0] = context.value
    a.must("cuCtxSetCurrent", context.value)
    row = Row()
    # What the first of each kind makes the driver load is not what this export takes.
    for warm in (a.mk_stream, a.mk_event, a.mk_dptr, a.mk_module):
        warm()
    answers = collections.Counter()
    deltas = []

    def batch(sets):
        words = []
        for arguments, at, odd in sets:
            try:
                built = [a.build(argument)[0] for argument in arguments]
                if at is not None:
                    built[at] = odd
                words.append(built)
            except (RuntimeError, KeyError, ctypes.ArgumentError) as error:
                answers["set-up " + re.sub(r"[\t\n]", " ", str(error))] += 1
        a.call("cuCtxSetCurrent", context.value)
        before = row.read()
        for built in words:
            answers[str(a.call(symbol, *built))] += 1
            a.call("cuCtxSetCurrent", context.value)
        after = row.read()
        # What is done in the order of a stream may be taken when it runs.
        a.call("cuCtxSynchronize")
        settled = row.read()
        known = None not in (before, after, settled)
        deltas.append(str(max(after, settled) - before) if known else "none")
        tell(deltas + ["-"] * (2 - len(deltas)))

    def tell(shown):
        out.seek(0)
        out.truncate()
        out.write(line(symbol, answers, shown))
        out.flush()

    tell(["-"] * 2)
    for arguments in every:
        del deltas[:]
        batch([(arguments, None, None)] * CALLS)
        batch([(arguments, at, odd) for at, argument in enumerate(arguments) if argument[0] == "value" for odd in argument[2]])


def line(symbol, answers, deltas):
    answered = {code: count for code, count in answers.items() if code.isdigit()}
    shown = " ".join(f"{code}:{count}" for code, count in sorted(answers.items()))
    return "\t".join([symbol, str(sum(answered.values())), str(answered.get("0", 0)), shown, *deltas])


def main():
    exports, header, file = sys.argv[1:4]
    only = set(sys.argv[4:])
    of = prototypes(header)
    names = [line.split()[0] for line in open(exports) if re.match(r"cu[A-Z]", line)]
    names = [name for name in names if not only or name in only]
    running, told, queue = {}, {}, list(names)
    while queue or running:
        while queue and len(running) < int(os.environ.get("TAKES_WORKERS", "8")):
            name = queue.pop(0)
            path = f"{file}.{name}"
            pid = os.fork()
            if pid == 0:
                try:
                    known = [arguments for key, arguments in a.F.items() if key.split("#")[0] == name][:1]
                    parameters = of(name)
                    every = known or ([by_type(parameters)] if parameters is not None else [[a.v(0)] * 10])
                    with open(path, "w") as out:
                        ask(name, every, out)
                except BaseException as error:
                    with open(path, "a") as out:
                        out.write(f"\t{error!r}")
                finally:
                    os._exit(0)
            running[pid] = (name, path, "by arguments.py" if any(k.split("#")[0] == name for k in a.F) else "by type" if of(name) is not None else "zeros")
        pid, status = os.wait()
        name, path, how = running.pop(pid)
        text = open(path).read() if os.path.exists(path) else name
        if os.path.exists(path):
            os.remove(path)
        told[name] = f"{text or name}\t{how}" + (f"\tdied {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "")
    with open(file, "w") as out:
        for name in names:
            out.write(told[name] + "\n")


if __name__ == "__main__":
    main()
