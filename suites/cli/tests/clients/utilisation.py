"""PyPI's cuda-bindings and nvidia-ml-py, unmodified: events, waiting and NVML's utilisation tell of the same work.

Prints one JSON object, for the test that runs it.
"""

import ctypes
import json
import os
import time

import pynvml
from cuda.bindings import driver as cuda

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry nothing() { ret; }
"""
GRID = 1 << 24
# Work of that many milliseconds is measured, and that many are kept queued while NVML is asked.
MEASURED_MS = 300
QUEUED_MS = 5000
PATIENCE_S = 60


def call(result):
    code, *values = result
    if code != cuda.CUresult.CUDA_SUCCESS:
        raise SystemExit(f"{code!r}")
    return values[0] if len(values) == 1 else values


call(cuda.cuInit(0))
device = call(cuda.cuDeviceGet(0))
call(cuda.cuCtxSetCurrent(call(cuda.cuDevicePrimaryCtxRetain(device))))
kernel = call(cuda.cuModuleGetFunction(call(cuda.cuModuleLoadData(PTX)), b"nothing"))
stream = call(cuda.cuStreamCreate(0))
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)


def launch():
    call(cuda.cuLaunchKernel(kernel, GRID, 1, 1, 32, 1, 1, 0, stream, 0, 0))


def record():
    event = call(cuda.cuEventCreate(0))
    call(cuda.cuEventRecord(event, stream))
    return event


def measured(launches):
    """Launches between two events, all queued behind a closed gate, so that no pause of this process comes between them.

    Their time by the events, the caller's own, and whether the stream said that it was busy.
    """
    gate.value = 0
    began = time.monotonic()
    call(
        cuda.cuStreamWaitValue32(
            stream,
            cuda.CUdeviceptr(gate_at),
            1,
            cuda.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ,
        )
    )
    begin = record()
    for _ in range(launches):
        launch()
    end = record()
    busy = query() == cuda.CUresult.CUDA_ERROR_NOT_READY
    gate.value = 1
    call(cuda.cuStreamSynchronize(stream))
    waited_ms = (time.monotonic() - began) * 1000
    return call(cuda.cuEventElapsedTime(begin, end)), waited_ms, busy


def query():
    return cuda.cuStreamQuery(stream)[0]


def utilisation():
    """The most that NVML says of the card and of this process while work is queued: this one keeps it queued."""
    busy, mine = 0, 0
    ends = time.monotonic() + PATIENCE_S
    queued_until = 0
    while (busy < 95 or mine < 95) and time.monotonic() < ends:
        while queued_until < time.monotonic() + QUEUED_MS / 1000:
            launch()
            queued_until = max(queued_until, time.monotonic()) + one / 1000
        if query() != cuda.CUresult.CUDA_ERROR_NOT_READY:
            queued_until = 0
            continue
        busy = max(busy, pynvml.nvmlDeviceGetUtilizationRates(card).gpu)
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(card, 0)
        except pynvml.NVMLError_NotFound:  # nobody at work yet
            samples = []
        mine = max([mine, *(s.smUtil for s in samples if s.pid == os.getpid())])
        time.sleep(0.02)
    return busy, mine


gate_at = int(call(cuda.cuMemHostAlloc(4, cuda.CU_MEMHOSTALLOC_DEVICEMAP)))
gate = ctypes.c_uint32.from_address(gate_at)
idle = pynvml.nvmlDeviceGetUtilizationRates(card).gpu
# The driver's own submission can be kept waiting, too: the least of a few is what the work takes.
one = min(measured(1)[0] for _ in range(10))
launches = int(MEASURED_MS / one) + 1
elapsed_ms, waited_ms, still_busy = min(measured(launches) for _ in range(3))
busy, mine = utilisation()
print(
    json.dumps(
        {
            "one_ms": one,
            "launches": launches,
            "idle": idle,
            "still_busy": still_busy,
            "busy": busy,
            "mine": mine,
            "elapsed_ms": elapsed_ms,
            "waited_ms": waited_ms,
        }
    ),
    flush=True,
)
os._exit(0)  # the queued work is of no more use
