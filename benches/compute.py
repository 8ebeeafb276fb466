#!/usr/bin/env python3
"""How well a compute budget is kept on a card: kernel lengths x processes, for each the bare programs and then every budget, a line each.

    benches/compute.py --preload target/release/libvgpu.so [--budgets 10,30,50,70,90] [--kernels 10,100,1000,10000,100000]
                       [--processes 1,4] [--depths 64] [--seconds 5] [--device 0] [--keep FOLDER]

Each process launches a kernel of one block that watches the card's own clock for so long, `depth` of them between two waits, as fast
as it may. Every launch writes down when it ran, by that clock, which all processes of a card share, and when its call returned, by the
machine's. Four measures, of all processes together, each with its mean, its least and most second, and `off`, how far a second was from the
budget at most:

  flight   what is promised: the share of the time in which a launch was in flight, from its call's return to its kernel's end. One clock is
           told by the other, before and after, from the launch of many that began soonest after its call on the idle card.
           A launch that opens a lease after those of other processes returns when the card has turned: what turning takes is in `nvml` only.
  kernels  the union of the kernels' own times: what the card rests between kernels and between processes is not in it
  of bare  kernels done, of those that the same processes do in the same time without a budget
  nvml     the mean of NVML's own samples of the card (exclusive use assumed)

The bare line is without the library. The first second is not counted. Needs Python and the driver, nothing else.

    benches/compute.py --preload [NAME=]LIB[,NAME=LIB] --programs gpt32,gpt8,infer,gemm+gemm,... [--budgets 95,80,50,30,20] [--seconds 4] [--warm 8]

measures real programs instead, which `programs.py` lists with what they need: steps a second, in percent of bare and of the part that the budget is of
what bare needs (`of part`), the 50th and 99th percentile of a step, NVML's mean and most second, behind the first `--warm` seconds, and steps a second in these (`cold`);
several libraries in one run.
"""
import argparse, array, ctypes, os, subprocess, sys, tempfile, time

import programs

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
.visible .entry tick(.param .u64 log)
{
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [log];
    cvta.to.global.u64 %rd1, %rd1;
    mov.u64 %rd2, %globaltimer;
    st.global.u64 [%rd1], %rd2;
    ret;
}
"""
TICKS = 64
BUCKET = 10_000_000  # ns
PER_SECOND = 1_000_000_000 // BUCKET


def check(name, code):
    if code:
        sys.exit(f"{name} answered {code}")


def worker(device, kernel_us, depth, seconds, path):
    cuda = ctypes.CDLL("libcuda.so.1")
    context, module, function, tick, log, stream = (ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(),
                                                    ctypes.c_uint64(), ctypes.c_void_p())
    check("cuInit", cuda.cuInit(0))
    check("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check("cuCtxSetCurrent", cuda.cuCtxSetCurrent(context))
    check("cuModuleLoadData", cuda.cuModuleLoadData(ctypes.byref(module), PTX))
    check("cuModuleGetFunction", cuda.cuModuleGetFunction(ctypes.byref(function), module, b"spin"))
    check("cuModuleGetFunction", cuda.cuModuleGetFunction(ctypes.byref(tick), module, b"tick"))
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
    returned, clock = array.array("Q", bytes(8 * room)), time.monotonic_ns

    def soonest():
        """The card's clock and the machine's, of the launch of many that began soonest after its call."""
        told, begun = ctypes.c_uint64(), []
        for _ in range(TICKS):
            check("cuLaunchKernel", launch(tick, 1, 1, 1, 1, 1, 1, 0, stream, params, None))
            now = clock()
            check("cuStreamSynchronize", wait(stream))
            check("cuMemcpyDtoH_v2", cuda.cuMemcpyDtoH_v2(ctypes.byref(told), at, ctypes.c_size_t(8)))
            begun.append((told.value, now))
        return min(begun, key=lambda pair: pair[0] - pair[1])

    print("ready", flush=True)
    for line in sys.stdin:
        if line == "clock\n":
            print(*soonest(), flush=True)
        if line == "go\n":
            break
    done, end = 0, time.monotonic() + seconds + 1
    while time.monotonic() < end and done + depth <= room:
        for place in range(done, done + depth):
            check("cuLaunchKernel", launch(function, 1, 1, 1, 1, 1, 1, 0, stream, params, None))
            returned[place] = clock()
            at.value += 16
        done += depth
        check("cuStreamSynchronize", wait(stream))
    print(done, flush=True)
    at.value = log.value + 16 * (room - 1)
    if sys.stdin.readline() == "clock\n":
        print(*soonest(), flush=True)
    out = (ctypes.c_char * (done * 16))()
    check("cuMemcpyDtoH_v2", cuda.cuMemcpyDtoH_v2(out, log, ctypes.c_size_t(done * 16)))
    with open(path, "wb") as file:
        file.write(out)
        file.write(returned[:done])


class Sample(ctypes.Structure):
    _fields_ = [("time", ctypes.c_ulonglong), ("value", ctypes.c_ulonglong)]


class Nvml:
    def __init__(self, device):
        self.nvml, self.handle, self.seen = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), 0
        check("nvmlInit_v2", self.nvml.nvmlInit_v2())
        check("nvmlDeviceGetHandleByIndex_v2", self.nvml.nvmlDeviceGetHandleByIndex_v2(device, ctypes.byref(self.handle)))

    def samples(self):
        """The utilisation samples since the last call, in percent."""
        return [value for _, value in self.timed()]

    def timed(self):
        """The same, each with its time in microseconds."""
        count, kind, samples = ctypes.c_uint(4096), ctypes.c_int(), (Sample * 4096)()
        if self.nvml.nvmlDeviceGetSamples(self.handle, 1, ctypes.c_ulonglong(self.seen), ctypes.byref(kind), ctypes.byref(count), samples):
            return []
        fresh = [sample for sample in samples[: count.value] if sample.time > self.seen]
        self.seen = max([self.seen] + [sample.time for sample in fresh])
        return [(sample.time, sample.value & 0xFFFFFFFF) for sample in fresh]


def launches_of(paths):
    """(begun, ended, returned) of every launch: the first two by the card's clock, the last by the machine's."""
    launches = []
    for path in paths:
        words = array.array("Q", open(path, "rb").read())
        done = len(words) // 3
        times = zip(words[0 : 2 * done : 2], words[1 : 2 * done : 2], words[2 * done :])
        launches += [launch for launch in times if 0 < launch[0] < launch[1]]
    return launches


def flights(launches, clocks):
    """From a launch's return, by the card's clock, to its end."""
    (card, machine), (later_card, later_machine) = clocks
    slope = (later_card - card - (later_machine - machine)) / max(1, later_machine - machine)
    told = lambda returned: returned + card - machine + int(slope * (returned - machine))
    return [(min(begun, told(returned)), ended) for begun, ended, returned in launches]


def union(spans, first, length):
    """Nanoseconds of each bucket in which there is a span."""
    buckets, reach = [0] * length, first
    for start, end in sorted(spans):
        start = max(start, reach)
        while start < end:
            bucket = (start - first) // BUCKET
            part = min(end, first + (bucket + 1) * BUCKET)
            buckets[bucket] += part - start
            start = part
        reach = max(reach, end)
    return buckets


def work(spans, first, length):
    """Kernels done in each bucket; of one that lies in several its part."""
    buckets = [0.0] * length
    for start, end in spans:
        whole = end - start
        while start < end:
            bucket = (start - first) // BUCKET
            part = min(end, first + (bucket + 1) * BUCKET)
            buckets[bucket] += (part - start) / whole
            start = part
    return buckets


def measured(buckets, full, budget):
    """Mean, least and most second in percent of `full` per bucket, and how far a second was from the budget."""
    if len(buckets) < PER_SECOND or not full:
        return "     -      -      -      -"
    sums = [sum(buckets[at : at + PER_SECOND]) for at in range(len(buckets) - PER_SECOND + 1)]
    seconds = [100 * one / (PER_SECOND * full) for one in sums]
    off = f"{max(abs(second - budget) for second in seconds):6.1f}" if budget < 100 else "     -"
    return f"{100 * sum(buckets) / (len(buckets) * full):6.1f} {min(seconds):6.1f} {max(seconds):6.1f} {off}"


def say(worker, word):
    worker.stdin.write(word + "\n")
    worker.stdin.flush()


def asked(worker, word):
    say(worker, word)
    return [int(number) for number in worker.stdout.readline().split()]


def cell(options, budget, kernel_us, depth, processes, bare):
    """One line, and kernels done per bucket."""
    environment = dict(os.environ)
    if budget < 100:
        environment.update(LD_PRELOAD=os.path.abspath(options.preload), CUDA_DEVICE_SM_LIMIT=str(budget))
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        environment["RINGFENCE_LEDGER"] = os.path.join(folder, "ledger")
        kept = options.keep and os.path.join(options.keep, f"{budget}-{kernel_us}-{depth}-{processes}")
        if kept:
            os.makedirs(kept, exist_ok=True)
        paths = [os.path.join(kept or folder, str(place)) for place in range(processes)]
        command = [sys.executable, os.path.abspath(__file__), "--worker", str(options.device), str(kernel_us), str(depth),
                   str(options.seconds)]
        workers = [subprocess.Popen(command + [path], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                   for path in paths]
        for one in workers:
            if one.stdout.readline().strip() != "ready":
                sys.exit("a process could not begin")
        nvml, clocks = Nvml(options.device), [asked(workers[0], "clock")]
        for one in workers:
            say(one, "go")
        time.sleep(1.2)
        nvml.samples()
        time.sleep(options.seconds - 0.4)
        told = nvml.samples()
        done = sum(int(one.stdout.readline() or 0) for one in workers)
        clocks.append(asked(workers[0], "clock"))
        for one in workers[1:]:
            say(one, "end")
        if any(one.wait() for one in workers):
            sys.exit("a process failed")
        launches = launches_of(paths)
        if kept:
            with open(os.path.join(kept, "clocks"), "w") as file:
                print(*clocks[0], *clocks[1], file=file)
    line = f"{budget if budget < 100 else 'bare':>6} {kernel_us:8} {depth:5} {processes:5} {done:9}"
    counted = []
    if launches:
        in_flight = flights(launches, clocks)
        times = [(begun, ended) for begun, ended, _ in launches]
        first = min(start for start, _ in in_flight)
        length = (max(ended for _, ended in times) - first) // BUCKET + 1
        those = slice(PER_SECOND, PER_SECOND * (options.seconds + 1))
        counted = work(times, first, length)[those]
        rate = sum(bare or counted) / max(1, len(bare or counted))
        line += f" | {measured(union(in_flight, first, length)[those], BUCKET, budget)} | "
        line += f"{measured(union(times, first, length)[those], BUCKET, budget)} | "
        line += f"{measured(counted, rate if bare or budget == 100 else 0, budget)} {rate_of(counted):9.0f}"
    nvml_mean = f"{sum(told) / len(told):6.1f}" if told else "     -"
    print(f"{line} | {nvml_mean}", flush=True)
    return counted


def rate_of(counted):
    return PER_SECOND * sum(counted) / max(1, len(counted))


def main():
    if "--worker" in sys.argv:
        device, kernel_us, depth, seconds, path = sys.argv[sys.argv.index("--worker") + 1 :]
        return worker(int(device), float(kernel_us), int(depth), int(seconds), path)
    if "--program" in sys.argv:
        name, seconds = sys.argv[sys.argv.index("--program") + 1 :]
        return programs.worker(name, float(seconds))
    numbers = lambda text: [int(number) for number in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preload", required=True)
    parser.add_argument("--budgets", type=numbers, default=[10, 30, 50, 70, 90])
    parser.add_argument("--kernels", type=numbers, default=[10, 100, 1000, 10_000, 100_000], help="microseconds")
    parser.add_argument("--processes", type=numbers, default=[1, 4])
    parser.add_argument("--depths", type=numbers, default=[64])
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--keep", help="where to leave what every launch wrote down")
    parser.add_argument("--warm", type=int, default=8, help="seconds of a program that do not count: by then the card's figures are known")
    parser.add_argument("--programs", help="real programs instead of kernels: see programs.py")
    parser.add_argument("--bare", type=int, default=2, choices=[1, 2], help="runs of a program without a library: before, and behind")
    parser.add_argument("--vulkan", help="the program behind the name `vulkan`")
    parser.add_argument("--layer", help="for `vulkan`: the folder in which the layer's manifest is vulkan/implicit_layer.d/*.json")
    options = parser.parse_args()
    if options.programs:
        return programs.table(options, Nvml(options.device))
    figures = "  mean  least   most    off"
    print(f"{'':37} |{' in flight':28}|{' kernels':28}|{' of bare':38}|")
    print(f"budget kernel_us depth procs  launches | {figures} | {figures} | {figures}  kernels/s |   nvml", flush=True)
    for processes in options.processes:
        for kernel_us in options.kernels:
            # No more than a second's work between two waits.
            for depth in sorted({max(1, min(depth, 1_000_000 // kernel_us)) for depth in options.depths}):
                bare = cell(options, 100, kernel_us, depth, processes, None)
                for budget in options.budgets:
                    cell(options, budget, kernel_us, depth, processes, bare)


main()
