"""PyPI's cuda-bindings and nvidia-ml-py, unmodified: events, waiting and NVML's utilisation tell of the same work.

Prints one JSON object, for the test that runs it.
"""

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
QUEUED_MS = 2500


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


begin = record()
launch()
end = record()
call(cuda.cuEventSynchronize(end))
one = call(cuda.cuEventElapsedTime(begin, end))

idle = pynvml.nvmlDeviceGetUtilizationRates(card).gpu
launches = int(QUEUED_MS / one) + 1
began = time.monotonic()
begin = record()
for _ in range(launches):
    launch()
end = record()
queued_ms = (time.monotonic() - began) * 1000
still_busy = cuda.cuStreamQuery(stream)[0] == cuda.CUresult.CUDA_ERROR_NOT_READY
time.sleep(max(0, QUEUED_MS / 1000 - 0.4 - queued_ms / 1000))
busy = pynvml.nvmlDeviceGetUtilizationRates(card).gpu
mine = [
    sample.smUtil
    for sample in pynvml.nvmlDeviceGetProcessUtilization(card, 0)
    if sample.pid == os.getpid()
]
call(cuda.cuStreamSynchronize(stream))
waited_ms = (time.monotonic() - began) * 1000
elapsed_ms = call(cuda.cuEventElapsedTime(begin, end))
print(
    json.dumps(
        {
            "one_ms": one,
            "launches": launches,
            "idle": idle,
            "still_busy": still_busy,
            "busy": busy,
            "mine": max(mine, default=None),
            "elapsed_ms": elapsed_ms,
            "waited_ms": waited_ms,
        }
    )
)
