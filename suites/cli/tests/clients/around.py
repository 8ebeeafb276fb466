"""Holds device memory in processes of their own while a program runs; prints one JSON object of what it said.

around.py DEVICE:MIB[,DEVICE:MIB…] PROGRAM ARGUMENTS…"""

import ctypes
import json
import subprocess
import sys


def hold(device, mib):
    cuda = ctypes.CDLL("libcuda.so.1")
    context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
    for answer in (
        cuda.cuInit(0),
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
        cuda.cuCtxSetCurrent(context),
        cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(mib << 20)),
    ):
        assert answer == 0, answer
    print("held", flush=True)
    sys.stdin.read()


if sys.argv[1] == "hold":
    hold(int(sys.argv[2]), int(sys.argv[3]))
    sys.exit()

holders = []
for word in filter(None, sys.argv[1].split(",")):
    holders.append(
        subprocess.Popen(
            [sys.executable, __file__, "hold", *word.split(":")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    assert holders[-1].stdout.readline() == "held\n"
done = subprocess.run(sys.argv[2:], capture_output=True, text=True, timeout=60)
said = {
    "pids": [holder.pid for holder in holders],
    "stdout": done.stdout,
    "stderr": done.stderr,
    "status": done.returncode,
}
for holder in holders:
    holder.stdin.close()
    holder.wait()
print(json.dumps(said))
