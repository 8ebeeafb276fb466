#!/usr/bin/env python3
"""What frameworks hold of a card at most under a memory budget: a workload after the other, watched from outside, a line each.

    benches/torch_shapes.py [--preload target/release/libvgpu.so] [--budget-mib 8192] [--seconds 8] [--device 0] [--only NAME,NAME]

  default, expandable, async   PyTorch by its own allocator, by expandable segments, by cudaMallocAsync: tensors until memory is out, half of them freed
  sharing                      torch.multiprocessing: a parent's CUDA tensors in three children that work on them; one is killed and replaced
  graphs                       PyTorch: CUDA graphs of 5,000 nodes beside a card that is filled up to the budget
  jax, cupy                    arrays until memory is out, half of them freed
  driver                       the same by libcuda alone (only by --only; needs no framework)

A line says: the most that NVML's rows of the workload's processes came to, the most by which the device's used memory exceeded what it was before,
both in MiB; samples a second; out-of-memory exceptions that the workload caught and went on after; how many results were compared, and whether all
were right; what was left of the device's growth when all were dead, in MiB; how long it took. The sampler is a process of its own without the library,
which asks NVML as fast as it answers. If NVML lists no process of ours (another PID namespace), all its rows count: the card is ours alone then.
Without --preload it is the null test: nothing is kept. Exit status 1 if a figure was above the budget, a result was wrong, a workload ended otherwise
than well, or none recovered from an exception that it was made for. Needs Python and the driver; a framework that is missing is said and left out.
"""
import argparse, ctypes, importlib.util, json, mmap, os, random, signal, struct, subprocess, sys, tempfile, time

MIB = 1 << 20
GRACE = 60  # seconds beyond its own for a workload to start and to end
SETTLE = 10  # seconds for the device to be as before


# --- what is run -------------------------------------------------------------------------------------------------------------


class Tally:
    """What a workload found: exceptions that it went on after, comparisons, and those that were wrong."""

    def __init__(self):
        self.recovered, self.compared, self.wrong = 0, 0, 0

    def compare(self, right):
        self.compared += 1
        self.wrong += not right

    def tell(self):
        print(json.dumps(vars(self)), flush=True)


def churn(seconds, tally, make, holds, out_of_memory, free_cached=lambda: None):
    """Makes arrays of 16 to 512 MiB until `out_of_memory` is raised, frees half of them after a look at each, and so on."""
    chance, kept, end = random.Random(1), [], time.monotonic() + seconds
    pressed = False
    while time.monotonic() < end:
        value = chance.randrange(1, 100)
        try:
            kept.append((make(chance.choice([16, 48, 64, 200, 512]) * MIB, value), value))
            if pressed:
                tally.recovered, pressed = tally.recovered + 1, False
        except out_of_memory as error:
            if not is_out_of_memory(error) or not kept:
                raise
            pressed = True
            chance.shuffle(kept)
            error = None
            look_and_drop(kept, len(kept) - len(kept) // 2, tally, holds, out_of_memory, free_cached)
            free_cached()
    look_and_drop(kept, len(kept), tally, holds, out_of_memory, free_cached)


def look_and_drop(kept, count, tally, holds, out_of_memory, free_cached):
    """Looks at `count` of the arrays and drops them. A look may need memory itself: where there is none, one is dropped unseen."""
    while count and kept:
        count -= 1
        try:
            right = holds(*kept[-1])
        except out_of_memory as error:
            if not is_out_of_memory(error) or len(kept) == 1:
                raise
            right = None
        kept.pop()
        if right is None:
            free_cached()
        else:
            tally.compare(right)


def is_out_of_memory(error):
    """Whether an exception says that the device's memory is out, in the words of any framework."""
    text = f"{type(error).__name__} {error}".lower()
    return any(words in text for words in ("outofmemory", "out of memory", "resource_exhausted", "memory_allocation", "failed to allocate"))


def torch_churn(seconds, tally):
    import torch

    device = torch.device("cuda:0")

    def make(size, value):
        return torch.full((size // 4,), float(value), device=device)

    def holds(array, value):
        return array.min().item() == value and array.max().item() == value

    a = torch.arange(256 * 256, dtype=torch.float64).reshape(256, 256) % 7
    tally.compare(torch.equal((a.to(device) @ a.to(device)).cpu(), a @ a))
    churn(seconds, tally, make, holds, torch.cuda.OutOfMemoryError, torch.cuda.empty_cache)


def consumer(pipe, number):
    """A child of `sharing`: looks at each tensor that comes, adds its number, and answers; takes memory of its own besides."""
    import torch

    own = []
    while True:
        message = pipe.recv()
        if message is None:
            return
        tensor, value = message
        try:
            right = tensor.min().item() == value and tensor.max().item() == value
        except torch.cuda.OutOfMemoryError:
            # The parent has it all: it is to make room and to ask again.
            right = None
        if right is None:
            own.clear()
            del tensor, message
            torch.cuda.empty_cache()
            pipe.send((None, 1))
            continue
        tensor.add_(number)
        torch.cuda.synchronize()
        del tensor, message
        recovered, full = 0, len(own) == 8  # At most half a GiB: the rest is the parent's.
        try:
            if not full:
                own.append(torch.full((64 * MIB // 4,), float(number), device="cuda:0"))
            else:
                right = right and all(bool((kept == float(number)).all().item()) for kept in own)
        except torch.cuda.OutOfMemoryError:
            recovered, full = 1, True
        if full:
            own.clear()
            torch.cuda.empty_cache()
        pipe.send((right, recovered))


def torch_sharing(seconds, tally):
    import torch
    import torch.multiprocessing as mp

    context, kept = mp.get_context("spawn"), []

    def child(number):
        ours, theirs = context.Pipe()
        process = context.Process(target=consumer, args=(theirs, number), daemon=True)
        process.start()
        theirs.close()
        return ours, process, number

    def holds(tensor, value):
        return tensor.min().item() == value and tensor.max().item() == value

    def asked(pipe, tensor, value):
        """A child's word of the tensor. It may lack memory for that, which is the parent's: that makes room then."""
        for _ in range(3):
            pipe.send((tensor, value))
            right, recovered = pipe.recv()
            if right is not None:
                return right, recovered
            kept.clear()
            torch.cuda.ipc_collect()
            torch.cuda.empty_cache()
        return False, recovered

    children = [child(number) for number in (1, 2, 3)]
    # Their time begins when each has answered: what they need to import is not the workload's.
    for pipe, _, number in children:
        tensor = torch.full((MIB,), 5.0, device="cuda:0")
        right, _ = asked(pipe, tensor, 5)
        tally.compare(right and tensor.max().item() == 5 + number)
    begin, killed, rounds, pressed = time.monotonic(), False, 0, False
    while time.monotonic() < begin + seconds:
        rounds += 1
        try:
            tensor = torch.full((96 * MIB // 4,), float(rounds), device="cuda:0")
        except torch.cuda.OutOfMemoryError:
            pressed = True
            if not kept:
                break
            look_and_drop(kept, len(kept), tally, holds, torch.cuda.OutOfMemoryError, torch.cuda.empty_cache)
            kept.clear()
            torch.cuda.ipc_collect()
            torch.cuda.empty_cache()
            continue
        if pressed:
            tally.recovered, pressed = tally.recovered + 1, False
        value = rounds
        # One after another: each adds its number to the same memory.
        for pipe, _, number in children:
            right, recovered = asked(pipe, tensor, value)
            value += number
            tally.compare(right)
            tally.recovered += recovered
        kept.append((tensor, value))
        if not killed and time.monotonic() > begin + seconds / 2:
            pipe, process, number = children.pop()
            pipe.send((tensor, value))  # It dies with a tensor of ours open, or on its way to it.
            process.kill()
            process.join()
            pipe.close()
            # The next one needs room for its context.
            kept.clear()
            tensor = None
            torch.cuda.empty_cache()
            children.append(child(number))
            killed = True
    for pipe, process, _ in children:
        pipe.send(None)
        process.join(20)
        tally.compare(process.exitcode == 0)


def torch_graphs(seconds, tally, nodes=5000):
    import torch

    out_of_memory, filler, graphs = torch.cuda.OutOfMemoryError, [], []
    end = time.monotonic() + seconds
    torch.zeros(1, device="cuda:0").add_(1)
    while time.monotonic() < end:
        try:
            filler.append(torch.empty(256 * MIB, dtype=torch.uint8, device="cuda:0"))
        except out_of_memory:
            tally.recovered += 1
            break
    del filler[len(filler) - len(filler) // 4:]
    torch.cuda.empty_cache()
    rounds = 0
    while time.monotonic() < end:
        rounds += 1
        try:
            counter = torch.zeros(1024, dtype=torch.int64, device="cuda:0")
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for _ in range(nodes):
                    counter.add_(1)
            for _ in range(3):
                graph.replay()
            torch.cuda.synchronize()
        except (out_of_memory, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            graph = None
            graphs.clear()
            del filler[len(filler) // 2:]
            torch.cuda.empty_cache()
            tally.recovered += 1
            continue
        tally.compare(bool((counter == 3 * nodes).all().item()))
        graphs.append((graph, counter))
        if len(graphs) > 8:
            graphs.pop(0)


def jax_churn(seconds, tally):
    import jax
    import jax.numpy as jnp

    def make(size, value):
        array = jnp.full((size // 4,), value, dtype=jnp.float32)
        array.block_until_ready()
        return array

    def holds(array, value):
        return float(array.min()) == value and float(array.max()) == value

    churn(seconds, tally, make, holds, Exception)
    del jax


def cupy_churn(seconds, tally):
    import cupy

    def make(size, value):
        return cupy.full((size // 4,), value, dtype=cupy.float32)

    def holds(array, value):
        return float(array.min()) == value and float(array.max()) == value

    pool = cupy.get_default_memory_pool()
    churn(seconds, tally, make, holds, cupy.cuda.memory.OutOfMemoryError, pool.free_all_blocks)


def driver_churn(seconds, tally):
    cuda = ctypes.CDLL("libcuda.so.1")

    def check(name, *arguments):
        code = getattr(cuda, name)(*arguments)
        if code == 2:
            raise MemoryError(f"out of memory: {name}")
        if code:
            sys.exit(f"{name} answered {code}")

    context = ctypes.c_void_p()
    check("cuInit", 0)
    check("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    check("cuCtxSetCurrent", context)

    class Array:
        """Memory of the device, all of whose bytes are one."""

        def __init__(self, size, value):
            self.address, self.size = ctypes.c_uint64(), size
            check("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(size))
            check("cuMemsetD8_v2", self.address, ctypes.c_ubyte(value), ctypes.c_size_t(size))

        def __del__(self):
            if self.address:
                cuda.cuMemFree_v2(self.address)

    def holds(array, value):
        seen = ctypes.create_string_buffer(4096)
        check("cuMemcpyDtoH_v2", seen, ctypes.c_uint64(array.address.value + array.size - 4096), ctypes.c_size_t(4096))
        return seen.raw == bytes([value]) * 4096

    churn(seconds, tally, Array, holds, MemoryError)


# Name: what it needs, what it runs, its environment.
WORKLOADS = {
    "default": ("torch", torch_churn, {}),
    "expandable": ("torch", torch_churn, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    "async": ("torch", torch_churn, {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
    "sharing": ("torch", torch_sharing, {}),
    "graphs": ("torch", torch_graphs, {}),
    "jax": ("jax", jax_churn, {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "3"}),
    "cupy": ("cupy", cupy_churn, {}),
    "driver": (None, driver_churn, {}),
}


# --- what watches it ---------------------------------------------------------------------------------------------------------


class Nvml:
    """The device as NVML tells of it, in bytes."""

    def __init__(self, device):
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = ctypes.c_void_p()
        for name, arguments in (("nvmlInit_v2", ()), ("nvmlDeviceGetHandleByIndex_v2", (device, ctypes.byref(self.device)))):
            code = getattr(self.nvml, name)(*arguments)
            if code:
                sys.exit(f"{name} answered {code}")
        self.memory, self.count = (ctypes.c_uint64 * 3)(), ctypes.c_uint()
        self.rows = ctypes.create_string_buffer(24 * 1024)

    def used(self):
        code = self.nvml.nvmlDeviceGetMemoryInfo(self.device, self.memory)
        if code:
            sys.exit(f"nvmlDeviceGetMemoryInfo answered {code}")
        return self.memory[2]

    def processes(self):
        """What each process holds, by PID. A row without a figure (all ones) holds nothing."""
        self.count.value = 1024
        code = self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(self.device, ctypes.byref(self.count), self.rows)
        if code:
            sys.exit(f"nvmlDeviceGetComputeRunningProcesses_v3 answered {code}")
        rows = struct.iter_unpack("<I4xQ8x", self.rows.raw[:24 * self.count.value])
        return {pid: used for pid, used in rows if used < 1 << 63}


def session_of(pid):
    try:
        return os.getsid(pid)
    except OSError:
        return None


# What the sampler shares with its parent, each 8 bytes: samples, most of our rows, most of all rows, most of the device, whether a row was ever ours.
WORDS = struct.Struct("<5Q")


def sampler(device, session, shared):
    """Until it is killed: the most that the processes of `session`, and the device, came to."""
    file = os.open(shared, os.O_RDWR)
    memory = mmap.mmap(file, WORDS.size)
    nvml, known = Nvml(device), {}
    samples = ours_most = rows_most = device_most = any_ours = 0
    while True:
        rows = nvml.processes()
        device_most = max(device_most, nvml.used())
        for pid in rows:
            if not known.get(pid):
                known[pid] = session_of(pid) == session
        ours = [used for pid, used in rows.items() if known[pid]]
        any_ours = any_ours or bool(ours)
        ours_most, rows_most, samples = max(ours_most, sum(ours)), max(rows_most, sum(rows.values())), samples + 1
        WORDS.pack_into(memory, 0, samples, ours_most, rows_most, device_most, int(any_ours))


def settled(nvml, idle):
    """What the device still holds beyond `idle` when it is as before, or at the latest after a while."""
    end = time.monotonic() + SETTLE
    while nvml.used() > idle and time.monotonic() < end:
        time.sleep(0.02)
    return max(0, nvml.used() - idle)


def watched(name, arguments, nvml, folder):
    """Runs a workload and says its line; whether all was as it should be."""
    needs, _, variables = WORKLOADS[name]
    if needs and importlib.util.find_spec(needs) is None:
        print(f"{name:<11} left out: no module {needs}", flush=True)
        return True
    idle, begin = nvml.used(), time.monotonic()
    shared = os.path.join(folder, name + ".sampler")
    with open(shared, "wb") as file:
        file.write(bytes(WORDS.size))
    environment = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    tenant = dict(environment, **variables)
    if arguments.preload:
        tenant.update(LD_PRELOAD=os.path.abspath(arguments.preload), RINGFENCE_LEDGER=os.path.join(folder, name + ".ledger"),
                      **{f"CUDA_DEVICE_MEMORY_LIMIT_{arguments.device}": f"{arguments.budget_mib}m"})
    tenant["CUDA_VISIBLE_DEVICES"] = str(arguments.device)
    here = [sys.executable, os.path.abspath(__file__)]
    errors = open(os.path.join(folder, name + ".stderr"), "wb+")
    work = subprocess.Popen(here + ["--work", name, "--seconds", str(arguments.seconds)], env=tenant, stdout=subprocess.PIPE, stderr=errors,
                            stdin=subprocess.DEVNULL, start_new_session=True)
    watch = subprocess.Popen(here + ["--sample", str(work.pid), "--shared", shared, "--device", str(arguments.device)], env=environment)
    try:
        told, _ = work.communicate(timeout=arguments.seconds + GRACE)
        ended = "well" if work.returncode == 0 else f"with status {work.returncode}"
    except subprocess.TimeoutExpired:
        ended, told = "late: killed", b""
    died = watch.poll()
    watch.kill()
    watch.wait()
    try:
        os.killpg(work.pid, signal.SIGKILL)  # What it left behind, and itself if it is late.
    except ProcessLookupError:
        pass
    work.wait()
    left = settled(nvml, idle)
    with open(shared, "rb") as file:
        samples, ours, rows, device, any_ours = WORDS.unpack(file.read(WORDS.size))
    took = time.monotonic() - begin
    most_rows, grown, budget = (ours if any_ours else rows) / MIB, max(0, device - idle) / MIB, arguments.budget_mib
    faults = []
    try:
        tally = json.loads(told.decode().strip().splitlines()[-1])
    except (IndexError, ValueError):
        tally = {"recovered": 0, "compared": 0, "wrong": 0}
    if ended != "well":
        faults.append(f"ended {ended}")
    if died is not None or samples < 10:
        faults.append(f"the sampler took {samples} samples")
    if arguments.preload:
        faults += [f"{what} {figure:.0f} MiB ABOVE the budget of {budget}" for what, figure in (("rows", most_rows), ("device", grown)) if figure > budget]
        if tally["recovered"] == 0:
            faults.append("no exception was recovered from: the budget was not reached")
    if tally["wrong"] or not tally["compared"]:
        faults.append(f"{tally['wrong']} results wrong of {tally['compared']}")
    print(f"{name:<11} rows {most_rows:8.1f}{' ' if any_ours else '*'} device {grown:8.1f}  samples/s {samples / took:6.0f}  recovered {tally['recovered']:4}  "
          f"results {tally['compared']:5} {'right' if not tally['wrong'] and tally['compared'] else 'WRONG'}  left {left / MIB:6.1f}  {took:5.1f} s"
          + "".join(f"  {fault}" for fault in faults), flush=True)
    if faults:
        errors.seek(0)
        for line in errors.read().decode(errors="replace").splitlines()[-8:]:
            print(f"            | {line}", flush=True)
    return not faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preload", metavar="LIBRARY")
    parser.add_argument("--budget-mib", type=int, default=8192)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--only", metavar="NAME,NAME", default="default,expandable,async,sharing,graphs,jax,cupy")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--sample", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--shared", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        tally = Tally()
        WORKLOADS[arguments.work][1](arguments.seconds, tally)
        return tally.tell()
    if arguments.sample:
        return sampler(arguments.device, arguments.sample, arguments.shared)
    names = arguments.only.split(",")
    for name in names:
        if name not in WORKLOADS:
            parser.error(f"--only: {name} is none of {', '.join(WORKLOADS)}")
    if arguments.preload and not os.path.isfile(arguments.preload):
        parser.error(f"--preload: {arguments.preload} is no file")
    nvml = Nvml(arguments.device)
    print(f"budget {arguments.budget_mib if arguments.preload else 'none'} MiB, {arguments.seconds:g} s each, idle {nvml.used() / MIB:.1f} MiB; rows and device in MiB at most"
          "; *: no row was ours, all rows", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        good = [watched(name, arguments, nvml, folder) for name in names]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
