"""PyPI's numba-cuda, unmodified: detect, copies both ways, out of memory, a launch.

Prints one JSON object, for the test that runs it. Nothing is computed by a mock: results are not looked at.
"""

import contextlib
import io
import json

import numpy
from numba import config, cuda

config.CUDA_LOW_OCCUPANCY_WARNINGS = False

STEP = 256 << 20

with contextlib.redirect_stdout(io.StringIO()) as told:
    cuda.detect()
free_at_first, total = cuda.current_context().get_memory_info()

numbers = numpy.arange(1000, dtype=numpy.float32)
there = cuda.to_device(numbers)
copy = cuda.device_array_like(numbers)
copy.copy_to_device(there)


@cuda.jit
def add(x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += x[i]


back = copy.copy_to_host()
add[8, 128](there, copy)
cuda.synchronize()

held = []
code = 0
while True:
    try:
        held.append(cuda.device_array(STEP, dtype=numpy.uint8))
    except cuda.cudadrv.driver.CudaAPIError as error:
        code = int(error.code)
        break

print(
    json.dumps(
        {
            "detected": "1/1 devices are supported" in told.getvalue(),
            "total": total,
            "copied": bool((back == numbers).all()),
            "launched": len(add.overloads),
            "granted": len(held) * STEP,
            "refusal": code,
        }
    )
)
