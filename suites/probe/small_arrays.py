"""At which of the small arrays that are made and destroyed the device's used memory grows: `fixtures/oracle/small-arrays-580.txt`, whose first lines
say what the columns are.

    python3 small_arrays.py > FILE

Needs Python and the driver; the device should be idle.
"""
import ctypes, random

WIDTH = 1024  # elements of one byte
ROWS = (1, 40, 100, 200, 300, 500, 700, 1000)
UNSIGNED_INT8 = 1


class Descriptor(ctypes.Structure):
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("format", ctypes.c_int), ("channels", ctypes.c_uint)]


cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    assert code == 0, f"{name}: {code}"


def used():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return (total.value - free.value) >> 10


def make(rows):
    array, descriptor = ctypes.c_void_p(), Descriptor(WIDTH, rows, UNSIGNED_INT8, 1)
    call("cuArrayCreate_v2", ctypes.byref(array), ctypes.byref(descriptor))
    return array


def run(steps):
    """Each step is the rows of an array to make, or minus the place of one to destroy in what is kept, less one."""
    kept, line, before = [], [], used()
    for step in steps:
        if step > 0:
            kept.append((step, make(step)))
            what = f"+{step}"
        else:
            rows, array = kept.pop(-step - 1)
            call("cuArrayDestroy", array)
            what = f"-{rows}"
        now = used()
        line.append(f"{what}:{now - before}")
        before = now
    for _, array in kept:
        call("cuArrayDestroy", array)
    call("cuCtxSynchronize")
    print(" ".join(line), flush=True)


def by_chance(seed, count=160):
    chance, kept = random.Random(seed), 0
    for _ in range(count):
        if kept and chance.random() < (0 if seed < 2 else 0.35):
            yield -chance.randrange(kept) - 1
            kept -= 1
        else:
            yield chance.choice(ROWS)
            kept += 1


call("cuInit", 0)
context = ctypes.c_void_p()
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
first = make(64)
for rows in (100, 300, 513, 683, 1000, 1025, 1500):
    run([rows] * 48)
for seed in range(6):
    run(by_chance(seed))
