#!/usr/bin/env python3
"""How well a compute budget is kept on a card: budgets x kernel lengths x processes, a line each.

    benches/compute.py --preload target/release/libvgpu.so [--budgets 10,30,50,70,90] [--kernels 10,100,1000,10000,100000]
                       [--processes 1,4] [--depths 64] [--seconds 5] [--device 0]

Each process launches a kernel of one block that watches the card's own clock for so long, `depth` of them between two waits, as fast
as it may. Every launch writes down when it ran, by that clock, which all processes of a card share. "mean" and the worst second
are of the union of those times over all processes: the share of the time in which the tenant had work on the card. "nvml" is the
mean of NVML's own samples of the card (exclusive use assumed; bare: with no budget). The first second is not counted. Needs Python
and the driver, nothing else. Budget 100 is none: the line then says what the processes get by themselves.
"""
import argparse, array, ctypes, os, subprocess, sys, tempfile, time

PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry spin(.param .u64 log, .param .u64 length)
{
    .reg .pred %p<2>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [log];
    ld.param.u64 %rd2, [length];
    cvta.to.global.u64 %rd3, %rd1;
    mov.u64 %rd4, %globaltimer;
AGAIN:
    mov.u64 %rd5, %globaltimer;
    sub.u64 %rd6, %rd5, %rd4;
    setp.lt.u64 %p1, %rd6, %rd2;
    @%p1 bra AGAIN;
    st.global.u64 [%rd3], %rd4;
    st.global.u64 [%rd3+8], %rd5;
    ret;
}
"""
BUCKET = 10_000_000  # ns


def check(name, code):
    if code:
        sys.exit(f"{name} answered {code}")


def worker(device, kernel_us, depth, seconds, path):
    cuda = ctypes.CDLL("libcuda.so.1")
    context, module, function, log, stream = (ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(),
                                              ctypes.c_void_p())
    check("cuInit", cuda.cuInit(0))
    check("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context))
    check("cuModuleLoadData", cuda.cuModuleLoadData(ctypes.byref(module), PTX))
    check("cuModuleGetFunction", cuda.cuModuleGetFunction(ctypes.byref(function), module, b"spin"))
    check("cuStreamCreate", cuda.cuStreamCreate(ctypes.byref(stream), 1))
    room = int(min(4_000_000, (seconds + 3) * 1e6 / kernel_us + 2 * depth + 1000))
    check("cuMemAlloc_v2", cuda.cuMemAlloc_v2(ctypes.byref(log), ctypes.c_size_t(room * 16)))
    check("cuMemsetD8_v2", cuda.cuMemsetD8_v2(log, 0, ctypes.c_size_t(room * 16)))
    check("cuCtxSynchronize", cuda.cuCtxSynchronize())
    at, length = ctypes.c_uint64(log.value), ctypes.c_uint64(int(kernel_us * 1000))
    params = (ctypes.c_void_p * 2)(ctypes.addressof(at), ctypes.addressof(length))
    launch = cuda.cuLaunchKernel
    launch.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3
    wait = cuda.cuStreamSynchronize
    print("ready", flush=True)
    sys.stdin.readline()
    done, end = 0, time.monotonic() + seconds + 1
    while time.monotonic() < end and done + depth <= room:
        for _ in range(depth):
            check("cuLaunchKernel", launch(function, 1, 1, 1, 1, 1, 1, 0, stream, params, None))
            at.value += 16
        done += depth
        check("cuStreamSynchronize", wait(stream))
    out = (ctypes.c_char * (done * 16))()
    check("cuMemcpyDtoH_v2", cuda.cuMemcpyDtoH_v2(out, log, ctypes.c_size_t(done * 16)))
    with open(path, "wb") as file:
        file.write(out)
    print(done, flush=True)


class Sample(ctypes.Structure):
    _fields_ = [("time", ctypes.c_ulonglong), ("value", ctypes.c_ulonglong)]


class Nvml:
    def __init__(self, device):
        self.nvml, self.handle, self.seen = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), 0
        check("nvmlInit_v2", self.nvml.nvmlInit_v2())
        check("nvmlDeviceGetHandleByIndex_v2", self.nvml.nvmlDeviceGetHandleByIndex_v2(device, ctypes.byref(self.handle)))

    def samples(self):
        """The utilisation samples since the last call, in percent."""
        count, kind, samples = ctypes.c_uint(4096), ctypes.c_int(), (Sample * 4096)()
        if self.nvml.nvmlDeviceGetSamples(self.handle, 1, ctypes.c_ulonglong(self.seen), ctypes.byref(kind), ctypes.byref(count), samples):
            return []
        fresh = [sample for sample in samples[: count.value] if sample.time > self.seen]
        self.seen = max([self.seen] + [sample.time for sample in fresh])
        return [sample.value & 0xFFFFFFFF for sample in fresh]


def union(paths):
    """Busy nanoseconds per 10 ms of the card's clock, from the earliest entry on."""
    spans = []
    for path in paths:
        entries = array.array("Q", open(path, "rb").read())
        spans += [(start, end) for start, end in zip(entries[::2], entries[1::2]) if 0 < start < end]
    spans.sort()
    if not spans:
        return []
    first, buckets, reach = spans[0][0], [], 0
    buckets = [0] * ((max(end for _, end in spans) - first) // BUCKET + 1)
    for start, end in spans:
        start = max(start, reach)
        while start < end:
            bucket = (start - first) // BUCKET
            part = min(end, first + (bucket + 1) * BUCKET)
            buckets[bucket] += part - start
            start = part
        reach = max(reach, end)
    return buckets


def cell(options, budget, kernel_us, depth, processes):
    environment = dict(os.environ)
    if budget < 100:
        environment.update(LD_PRELOAD=os.path.abspath(options.preload), CUDA_DEVICE_SM_LIMIT=str(budget))
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        environment["RINGFENCE_LEDGER"] = os.path.join(folder, "ledger")
        paths = [os.path.join(folder, str(place)) for place in range(processes)]
        command = [sys.executable, os.path.abspath(__file__), "--worker", str(options.device), str(kernel_us), str(depth),
                   str(options.seconds)]
        workers = [subprocess.Popen(command + [path], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                   for path in paths]
        for one in workers:
            if one.stdout.readline().strip() != "ready":
                sys.exit("a process could not begin")
        nvml = Nvml(options.device)
        for one in workers:
            one.stdin.write("go\n")
            one.stdin.flush()
        time.sleep(1.2)
        nvml.samples()
        time.sleep(options.seconds - 0.4)
        told = nvml.samples()
        launches = sum(int(one.stdout.readline() or 0) for one in workers)
        if any(one.wait() for one in workers):
            sys.exit("a process failed")
        buckets = union(paths)
    per_second = 1_000_000_000 // BUCKET
    counted = buckets[per_second : per_second * (options.seconds + 1)]
    nvml_mean = f"{sum(told) / len(told):6.1f}" if told else "     -"
    if len(counted) < per_second:
        return f"{budget:6} {kernel_us:8} {depth:5} {processes:5} {launches:9}      -      -      -      - {nvml_mean}"
    seconds = [100 * sum(counted[at : at + per_second]) / (per_second * BUCKET) for at in range(len(counted) - per_second + 1)]
    mean = 100 * sum(counted) / (len(counted) * BUCKET)
    off = max(abs(second - budget) for second in seconds)
    return (f"{budget:6} {kernel_us:8} {depth:5} {processes:5} {launches:9} {mean:6.1f} {min(seconds):6.1f} {max(seconds):6.1f} "
            f"{off:6.1f} {nvml_mean}")


def main():
    if "--worker" in sys.argv:
        device, kernel_us, depth, seconds, path = sys.argv[sys.argv.index("--worker") + 1 :]
        return worker(int(device), float(kernel_us), int(depth), int(seconds), path)
    numbers = lambda text: [int(number) for number in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preload", required=True)
    parser.add_argument("--budgets", type=numbers, default=[10, 30, 50, 70, 90])
    parser.add_argument("--kernels", type=numbers, default=[10, 100, 1000, 10_000, 100_000], help="microseconds")
    parser.add_argument("--processes", type=numbers, default=[1, 4])
    parser.add_argument("--depths", type=numbers, default=[64])
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--device", type=int, default=0)
    options = parser.parse_args()
    print("budget kernel_us depth procs  launches   mean  least   most    off   nvml", flush=True)
    for processes in options.processes:
        for kernel_us in options.kernels:
            # No more than a second's work between two waits.
            for depth in sorted({max(1, min(depth, 1_000_000 // kernel_us)) for depth in options.depths}):
                for budget in options.budgets:
                    print(cell(options, budget, kernel_us, depth, processes), flush=True)


main()
