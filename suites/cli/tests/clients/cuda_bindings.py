"""PyPI's cuda-bindings, unmodified: what a tenant sees and gets through the driver API.

Prints one JSON object, for the test that runs it.
"""

import json

from cuda.bindings import driver as cuda

STEP = 256 << 20


def call(result):
    code, *values = result
    if code != cuda.CUresult.CUDA_SUCCESS:
        raise SystemExit(f"{code!r}")
    return values[0] if len(values) == 1 else values


call(cuda.cuInit(0))
device = call(cuda.cuDeviceGet(0))
context = call(cuda.cuDevicePrimaryCtxRetain(device))
call(cuda.cuCtxSetCurrent(context))
free_at_first, total = call(cuda.cuMemGetInfo())

pointers = []
while True:
    code, pointer = cuda.cuMemAlloc(STEP)
    if code != cuda.CUresult.CUDA_SUCCESS:
        break
    pointers.append(pointer)

data = bytes(range(256)) * 16
back = bytearray(len(data))
call(cuda.cuMemcpyHtoD(pointers[0], data, len(data)))
call(cuda.cuMemcpyDtoH(back, pointers[0], len(back)))
call(cuda.cuMemFree(pointers.pop()))
again = call(cuda.cuMemAlloc(STEP))

print(
    json.dumps(
        {
            "device_total": call(cuda.cuDeviceTotalMem(device)),
            "total": total,
            "free_at_first": free_at_first,
            "granted": (len(pointers) + 1) * STEP,
            "refusal": int(code),
            "refusal_name": code.name,
            "round_trip": bytes(back) == data,
            "granted_after_free": int(again) != 0,
        }
    )
)
