"""Real programs under a compute budget: each bare, then under every budget, then bare again, a line each (`compute.py --programs`).

  gpt32, gpt8, gpt2  PyTorch: a training step of a GPT-2 of 6 layers, 512 wide, batch N x 512 tokens, bf16, fused AdamW; its loss is read each step
  conv               PyTorch: a training step of a residual network on 64 images of 128 x 128
  infer              PyTorch: 12 encoder layers over one request of 64 tokens, then a synchronise
  small              PyTorch: 500 dependent tanh of 64 x 64, then a synchronise
  gemm               PyTorch: ten products of 4096 x 4096 in bf16, then a synchronise
  graph              PyTorch: forward and backward of gpt8 captured in a CUDA graph, replayed, its loss read
  compiled           PyTorch: gpt8's forward and backward by torch.compile
  streams            PyTorch: eight streams of small products, then a synchronise
  gate               kernels of 1 ms behind a word of host memory that the host sets 10 ms after it gave them, then a synchronise
  slow               kernels of 100 us, one given every millisecond, 100 of them, then a synchronise
  jax                JAX: a jitted training step of a perceptron, waited for
  cupy               CuPy: sorts and sums of a million numbers, the sum read
  triton             Triton: 200 kernels that add two vectors, then a synchronise
  vulkan             a Vulkan compute loop (`cargo build -p embedder --example vulkan_loop`, by --vulkan PATH)
  NAME+NAME          two tenants beside each other, each with a ledger of its own and the same budget
  NAMExN             N processes of one tenant
  NAME&NAME          two programs of one tenant

`of bare` compares with the same programs without the library, in the run before (and after, for the second bare line); steps are those of all processes.
"""
import collections, json, os, subprocess, sys, tempfile, time

AHEAD = 3  # cells whose programs load their frameworks while another is measured


# --- what is run: each answers a function that does one step -----------------------------------------------------------------


def gpt(batch, mode="eager"):
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.heads, self.before, self.between = heads, nn.LayerNorm(width), nn.LayerNorm(width)
            self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.think = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, tokens):
            rows, length, width = tokens.shape
            parts = self.attend(self.before(tokens)).view(rows, length, 3, self.heads, width // self.heads)
            query, key, value = parts.permute(2, 0, 3, 1, 4)
            seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            tokens = tokens + self.project(seen.transpose(1, 2).reshape(rows, length, width))
            return tokens + self.think(self.between(tokens))

    words, width, length = 32000, 512, 512
    model = nn.Sequential(nn.Embedding(words, width), *(Block(width, 8) for _ in range(6)), nn.LayerNorm(width), nn.Linear(width, words)).cuda()
    read = torch.randint(words, (batch, length), device="cuda")
    wanted = torch.randint(words, (batch * length,), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    forward = torch.compile(model) if mode == "compiled" else model

    def learn():
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=mode != "graph"):
            loss = functional.cross_entropy(forward(read).view(-1, words), wanted)
        loss.backward()
        return loss

    if mode == "graph":
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                model.zero_grad(set_to_none=True)
                learn()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        model.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            loss = learn()

        def step():
            graph.replay()
            return loss.item()

        return step

    def step():
        loss = learn()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def conv():
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.first, self.second = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)
            self.norm, self.other = nn.BatchNorm2d(width), nn.BatchNorm2d(width)

        def forward(self, image):
            return functional.relu(image + self.other(self.second(functional.relu(self.norm(self.first(image))))))

    stages = [nn.Conv2d(3, 64, 7, 2, 3), Block(64), Block(64), nn.Conv2d(64, 128, 3, 2, 1), Block(128), Block(128), nn.Conv2d(128, 256, 3, 2, 1),
              Block(256), Block(256), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 1000)]
    model = nn.Sequential(*stages).cuda().to(memory_format=torch.channels_last)
    images = torch.randn(64, 3, 128, 128, device="cuda").to(memory_format=torch.channels_last)
    wanted, optimizer = torch.randint(1000, (64,), device="cuda"), torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = functional.cross_entropy(model(images), wanted)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def infer():
    import torch

    layers = [torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(12)]
    model, request = torch.nn.Sequential(*layers).cuda().half().eval(), torch.randn(1, 64, 512, device="cuda").half()

    def step():
        with torch.inference_mode():
            model(request)
        torch.cuda.synchronize()

    return step


def small():
    import torch

    start = torch.randn(64, 64, device="cuda")

    def step():
        now = start
        for _ in range(500):
            now = torch.tanh(now)
        torch.cuda.synchronize()

    return step


def gemm(size=4096, count=10):
    import torch

    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))

    def step():
        for _ in range(count):
            torch.matmul(a, b)
        torch.cuda.synchronize()

    return step


def streams():
    import torch

    those = [(torch.cuda.Stream(), torch.randn(512, 512, device="cuda")) for _ in range(8)]

    def step():
        for _ in range(25):
            for stream, matrix in those:
                with torch.cuda.stream(stream):
                    torch.matmul(matrix, matrix)
        torch.cuda.synchronize()

    return step


def spin(cycles):
    import torch

    return lambda: torch.cuda._sleep(cycles)


def gate():
    import ctypes
    import torch

    cuda, word = ctypes.CDLL("libcuda.so.1"), torch.zeros(1, dtype=torch.int32).pin_memory()
    kernel, stream = spin(1_700_000), torch.cuda.Stream()
    # Code that is loaded at its first launch is waited for, behind the gate for ever.
    kernel()
    torch.cuda.synchronize()

    def step():
        word[0] = 0
        with torch.cuda.stream(stream):
            code = cuda.cuStreamWaitValue32_v2(ctypes.c_void_p(stream.cuda_stream), ctypes.c_uint64(word.data_ptr()), 1, 0)
            if code:
                sys.exit(f"cuStreamWaitValue32_v2 answered {code}")
            for _ in range(5):
                kernel()
        time.sleep(0.01)
        word[0] = 1
        stream.synchronize()

    return step


def slow():
    import torch

    kernel = spin(170_000)

    def step():
        begun = time.perf_counter()
        for place in range(100):
            kernel()
            while time.perf_counter() < begun + (place + 1) * 1e-3:
                pass
        torch.cuda.synchronize()

    return step


def jax_step():
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(0), 6)
    weights = [jax.random.normal(key, (2048, 2048), dtype=jnp.bfloat16) * 0.02 for key in keys[:4]]
    inputs, wanted = (jax.random.normal(key, (4096, 2048), dtype=jnp.bfloat16) for key in keys[4:])

    def loss(weights):
        now = inputs
        for weight in weights:
            now = jax.nn.relu(now @ weight)
        return jnp.mean((now - wanted).astype(jnp.float32) ** 2)

    @jax.jit
    def learn(weights):
        value, slopes = jax.value_and_grad(loss)(weights)
        return value, [weight - 0.01 * slope for weight, slope in zip(weights, slopes)]

    held = [weights]

    def step():
        value, held[0] = learn(held[0])
        value.block_until_ready()

    return step


def cupy_step():
    import cupy

    numbers = cupy.random.rand(1_000_000)

    def step():
        return float(cupy.sort(numbers)[::2].sum())

    return step


def triton_step():
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def add(x, y, out, count, block: tl.constexpr):
        places = tl.program_id(0) * block + tl.arange(0, block)
        inside = places < count
        tl.store(out + places, tl.load(x + places, mask=inside) + tl.load(y + places, mask=inside), mask=inside)

    count = 1 << 22
    x, y = torch.randn(count, device="cuda"), torch.randn(count, device="cuda")
    out = torch.empty_like(x)

    def step():
        for _ in range(200):
            add[(count // 1024,)](x, y, out, count, block=1024)
        torch.cuda.synchronize()

    return step


PROGRAMS = {
    "gpt32": lambda: gpt(32),
    "gpt8": lambda: gpt(8),
    "gpt2": lambda: gpt(2),
    "conv": conv,
    "infer": infer,
    "small": small,
    "gemm": gemm,
    "graph": lambda: gpt(8, "graph"),
    "compiled": lambda: gpt(8, "compiled"),
    "streams": streams,
    "gate": gate,
    "slow": slow,
    "jax": jax_step,
    "cupy": cupy_step,
    "triton": triton_step,
}
FRAMEWORK = {"jax": "jax", "cupy": "cupy"}  # else PyTorch


def worker(name, seconds):
    """Loads; on a line makes its step and warms up; on another runs, and tells when each step ended, in seconds from the line."""
    __import__(FRAMEWORK.get(name, "torch"))
    print("loaded", flush=True)
    sys.stdin.readline()
    step = PROGRAMS[name]()
    for _ in range(5):
        step()
    print("ready", flush=True)
    sys.stdin.readline()
    begun, ends = time.perf_counter(), []
    while not ends or ends[-1] < seconds:
        step()
        ends.append(time.perf_counter() - begun)
    print(json.dumps(ends), flush=True)
    # A framework's own farewell takes a second of the card's time.
    os._exit(0)


# --- how it is measured ------------------------------------------------------------------------------------------------------


class Run:
    """The processes of one line. `name` is as in the table above, `budget` in percent, 100 for bare."""

    def __init__(self, name, budget, library, options):
        self.name, self.budget, self.library, self.options = name, budget, library, options
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.workers = [self.begin(program, tenant) for tenant, programs in enumerate(members(name)) for program in programs]

    def begin(self, program, tenant):
        environment = dict(os.environ)
        if self.library:
            ledger = os.path.join(self.folder.name, f"tenant{tenant}")
            environment.update(LD_PRELOAD=self.library, CUDA_DEVICE_SM_LIMIT=str(self.budget), RINGFENCE_LEDGER=ledger,
                               CUDA_DEVICE_MEMORY_SHARED_CACHE=ledger, LIBCUDA_LOG_LEVEL="0")
        seconds = str(self.options.seconds + self.options.warm)
        if program == "vulkan":
            if self.library:
                environment.update(XDG_DATA_HOME=os.path.abspath(self.options.layer or "."), HAMI_VULKAN_ENABLE="1")
            command = [os.path.abspath(self.options.vulkan), seconds]
        else:
            command = [sys.executable, os.path.abspath(sys.argv[0]), "--program", program, seconds]
        return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def heard(self, wanted):
        """Whether every process said so; one that ended instead is told of."""
        for one in self.workers:
            if one.stdout.readline().strip() != wanted:
                one.wait()
                print(f"{self.name}: {one.stderr.read()[-300:].strip()}", flush=True)
                return False
        return True

    def say(self):
        for one in self.workers:
            one.stdin.write("\n")
            one.stdin.flush()

    def measure(self, nvml):
        """Per process its steps' ends, and NVML's samples by time, or nothing."""
        try:
            if not self.heard("loaded"):
                return None
            self.say()
            if not self.heard("ready"):
                return None
            self.say()
            time.sleep(self.options.warm + 0.2)
            nvml.timed()
            time.sleep(self.options.seconds - 0.2)
            samples = nvml.timed()
            lines = [one.stdout.readline() for one in self.workers]
            return [json.loads(line) for line in lines], samples
        except (ValueError, BrokenPipeError) as error:
            print(f"{self.name}: {error}", flush=True)
            return None
        finally:
            for one in self.workers:
                one.kill()
                one.communicate()
            self.folder.cleanup()


def members(name):
    """Tenants, each a list of programs."""
    def programs(tenant):
        for part in tenant.split("&"):
            program, _, count = part.partition("x") if part.rpartition("x")[2].isdigit() else (part, "", "1")
            yield from [program] * int(count)

    return [list(programs(tenant)) for tenant in name.split("+")]


def counted(ends, options):
    """Steps a second in the seconds that count, how long each took, in milliseconds, sorted, and steps a second before."""
    cold = sum(end <= options.warm for end in ends) / (options.warm or 1)
    took = [(end, end - before) for before, end in zip(ends, ends[1:]) if end > options.warm]
    if not took:
        return 0.0, [1000 * options.seconds], cold
    return (len(took) / sum(length for _, length in took)), sorted(1000 * length for _, length in took), cold


def percentile(those, part):
    return those[min(len(those) - 1, int(len(those) * part))]


def shown(run, told, bare):
    ends, samples = told
    steps = [counted(those, run.options) for those in ends]
    rates, lengths = [rate for rate, _, _ in steps], sorted(length for _, those, _ in steps for length in those)
    cold = sum(rate for _, _, rate in steps)
    values = [value for _, value in samples]
    seconds = [value for value in (mean([other for time, other in samples if start <= time < start + 1_000_000]) for start, _ in samples
                                   if start + 1_000_000 <= samples[-1][0] + 200_000) if value is not None]
    of_bare = f"{100 * sum(rates) / bare:6.1f}" if bare else "     -"
    part = f"{100 * sum(rates) / bare / min(1, run.budget / 100 / run.share):6.1f}" if bare and run.budget < 100 and run.share else "     -"
    each = " + ".join(f"{rate:.1f}" for rate in rates)
    median, late = percentile(lengths, 0.5), percentile(lengths, 0.99)
    nvml = f"{mean(values):6.1f} {max(seconds or [0]):6.1f}" if values else "     -      -"
    label = "bare" if run.budget == 100 else str(run.budget)
    print(f"{run.name:14} {run.which:10} {label:>6} | {sum(rates):8.1f} {of_bare} {part} | {median:8.2f} {late:8.2f} {late / median:5.2f} | {nvml} | {cold:8.1f} | {each}",
          flush=True)
    return sum(rates), mean(values)


def mean(those):
    those = list(those)
    return sum(those) / len(those) if those else None


def table(options, nvml):
    libraries = [(place.partition("=")[0], os.path.abspath(place.partition("=")[2])) if "=" in place else ("ours", os.path.abspath(place))
                 for place in options.preload.split(",")]
    print(f"{'program':14} {'library':10} budget |  steps/s  of bare  of part |  p50 ms   p99 ms  ratio |   nvml second |     cold | each", flush=True)
    for name in options.programs.split(","):
        cells = [("", 100, None)] + [(which, budget, path) for budget in options.budgets for which, path in libraries]
        cells += [("", 100, None)] * (options.bare - 1)
        waiting, bares = collections.deque(), []
        for place in range(len(cells)):
            while len(waiting) < AHEAD and place + len(waiting) < len(cells):
                which, budget, path = cells[place + len(waiting)]
                run = Run(name, budget, path, options)
                run.which = which
                waiting.append(run)
            run = waiting.popleft()
            told = run.measure(nvml)
            if told is None:
                break
            run.share = (mean(share for _, share in bares) or 0) / 100 if bares else 0
            # Two tenants of a budget each share the card as two of one would.
            run.share /= len(members(name))
            rate, share = shown(run, told, mean(rate for rate, _ in bares) if bares else None)
            if run.budget == 100:
                bares.append((rate, share or 0))
        for run in waiting:
            for one in run.workers:
                one.kill()
                one.communicate()
