"""In whose row NVML puts memory of a pool that another process imports, and when the device has it back.

On a card or a mock: `python3 pools.py [SCENARIO] > pools.txt`. Each line is a scenario, a step, MiB of the device in use beyond those at the
start, the row of this process and that of the other one (`-`: none). The other's pool holds pieces of 256, 128 and 1 MiB; the first two
are exported by pointer. A step that a code is told of ends in it.
"""
import ctypes as C
import os
import socket
import subprocess
import sys

from between import DESCRIPTOR, Scenario, begin, cuda, does, receive, send, watch

MIB, POINTER, FLAGS = 1 << 20, 64, C.c_ulonglong(0)


class Properties(C.Structure):
    _fields_ = [("kind", C.c_int), ("handles", C.c_int), ("location", C.c_int * 2), ("rest", C.c_ubyte * 72)]


def synchronize():
    does(cuda.cuCtxSynchronize(), "cuCtxSynchronize")


def allocated(pool, size):
    address = C.c_ulonglong()
    does(cuda.cuMemAllocFromPoolAsync(C.byref(address), C.c_size_t(size * MIB), pool, None), "cuMemAllocFromPoolAsync")
    return address


def pointer(address):
    room = C.create_string_buffer(POINTER)
    does(cuda.cuMemPoolExportPointer(room, address), "cuMemPoolExportPointer")
    return room.raw


def made(*sizes, keep=2**64 - 1):
    pool, keep = C.c_void_p(), C.c_ulonglong(keep)
    properties = Properties(1, DESCRIPTOR, (C.c_int * 2)(1, 0))
    does(cuda.cuMemPoolCreate(C.byref(pool), C.byref(properties)), "cuMemPoolCreate")
    does(cuda.cuMemPoolSetAttribute(pool, 4, C.byref(keep)), "the release threshold")
    pieces = [allocated(pool, size) for size in sizes]
    synchronize()
    return pool, pieces


def exported(pool, pieces):
    descriptor = C.c_int(-1)
    does(cuda.cuMemPoolExportToShareableHandle(C.byref(descriptor), pool, DESCRIPTOR, FLAGS), "export")
    return descriptor.value, b"".join(pointer(piece) for piece in pieces)


def reserved_of(pool):
    reserved = C.c_ulonglong()
    code = cuda.cuMemPoolGetAttribute(pool, 5, C.byref(reserved))
    return f"reserved: {code}" if code else f"{reserved.value / MIB:g} reserved"


class Imported:
    def __init__(self, it):
        self.it = it
        self.descriptor, self.data = receive(it.line, 2 * POINTER)
        it.step("made by the other")

    def pool(self):
        self.handle = C.c_void_p()
        fd = C.c_void_p(self.descriptor)
        code = cuda.cuMemPoolImportFromShareableHandle(C.byref(self.handle), fd, DESCRIPTOR, FLAGS)
        self.it.step(f"its pool imported: {code}, {reserved_of(self.handle)}")
        return self

    def pointer(self, index):
        address, room = C.c_ulonglong(), C.create_string_buffer(self.data[POINTER * index:POINTER * (index + 1)], POINTER)
        code = cuda.cuMemPoolImportPointer(C.byref(address), self.handle, room)
        self.it.step(f"pointer {index} imported: {code}, {reserved_of(self.handle)}")
        return address

    def close(self):
        os.close(self.descriptor)
        self.it.step("its descriptor closed")

    def freed(self, address, what):
        if not address.value:
            return
        code = cuda.cuMemFreeAsync(address, None)
        synchronize()
        self.it.step(f"{what} freed here: {code}")

    def destroyed(self):
        self.it.step(f"the imported pool destroyed: {cuda.cuMemPoolDestroy(self.handle)}")


def scenario(name):
    it = Scenario(name)
    it.begin_other("maker")
    return it, Imported(it).pool()


def killed(it):
    it.kill()
    it.step("its maker killed")


def the_makers():
    it, pool = scenario("its maker lets go")
    pool.close()
    first = pool.pointer(0)
    again = pool.pointer(0)
    second = pool.pointer(1)
    for word, what in ((b"f", "freed by its maker"), (b"t", "trimmed by its maker"), (b"d", "destroyed by its maker")):
        it.has(word)
        it.step(what)
    pool.freed(first, "pointer 0")
    if again.value != first.value:
        pool.freed(again, "pointer 0 again")
    pool.freed(second, "pointer 1")
    pool.destroyed()
    it.has(b"x")
    it.wait()


def of_the_dead():
    it, pool = scenario("its maker dies")
    pool.close()
    first = pool.pointer(0)
    killed(it)
    second = pool.pointer(1)
    pool.freed(first, "pointer 0")
    pool.freed(second, "pointer 1")
    pool.destroyed()


def held_by_a_descriptor():
    it, pool = scenario("a descriptor is open")
    first = pool.pointer(0)
    killed(it)
    pool.freed(first, "pointer 0")
    pool.destroyed()
    pool.close()


def held_by_nothing():
    it, pool = scenario("only the pool is imported")
    pool.close()
    killed(it)
    first = pool.pointer(0)
    pool.freed(first, "pointer 0")
    pool.destroyed()


def pool_first():
    it, pool = scenario("the pool is destroyed first")
    pool.close()
    first = pool.pointer(0)
    pool.destroyed()
    killed(it)
    pool.freed(first, "pointer 0")


def not_imported():
    it = Scenario("nothing is imported")
    it.begin_other("maker")
    pool = Imported(it)
    killed(it)
    pool.close()


class Own:
    """A pool of this process's own, exported as a descriptor where `sent` says so. Steps tell what it says that it has reserved."""

    def __init__(self, name, sent=True, keep=2**64 - 1):
        self.it = Scenario(name)
        self.pool, _ = made(keep=keep)
        self.places = []
        self.descriptor = exported(self.pool, [])[0] if sent else None

    def step(self, step):
        self.it.step(f"{step}, {reserved_of(self.pool)}" if self.pool else step)

    def allocated(self, size, share=True):
        address = allocated(self.pool, size)
        data = pointer(address) if share else None
        synchronize()
        known = address.value in self.places
        self.places.append(address.value)
        place = "where one was before" if known else f"{address.value / MIB % 32:g} MiB into a step"
        self.step(f"{size} allocated" + " and exported" * share + " " + place)
        return address, data

    def freed(self, piece, what="freed"):
        code = cuda.cuMemFreeAsync(piece[0], None)
        synchronize()
        self.step(f"{what}: {code}")

    def trimmed(self):
        does(cuda.cuMemPoolTrimTo(self.pool, C.c_size_t(0)), "cuMemPoolTrimTo")
        self.step("trimmed")

    def destroyed(self):
        does(cuda.cuMemPoolDestroy(self.pool), "cuMemPoolDestroy")
        self.pool = None
        self.step("destroyed")

    def closed(self):
        os.close(self.descriptor)
        self.step("its descriptor closed")


def alone():
    own = Own("alone")
    address, data = own.allocated(256)
    here, fd = C.c_void_p(), C.c_void_p(own.descriptor)
    code = cuda.cuMemPoolImportFromShareableHandle(C.byref(here), fd, DESCRIPTOR, FLAGS)
    same = "the same" if here.value == own.pool.value else "another"
    own.step(f"its pool imported: {code}, {same} handle")
    copy = C.c_ulonglong()
    code = cuda.cuMemPoolImportPointer(C.byref(copy), here, C.create_string_buffer(data, POINTER))
    same = "the same" if copy.value == address.value else "another"
    own.step(f"its pointer imported: {code}, {same} address")
    own.freed((address, data))
    own.trimmed()
    own.closed()
    own.freed((copy, data), "its import freed")
    own.it.step(f"the imported pool destroyed: {cuda.cuMemPoolDestroy(here)}")
    own.destroyed()


def imported_and_destroyed():
    own = Own("imported and destroyed")
    here, fd = C.c_void_p(), C.c_void_p(own.descriptor)
    code = cuda.cuMemPoolImportFromShareableHandle(C.byref(here), fd, DESCRIPTOR, FLAGS)
    own.step(f"its pool imported: {code}")
    own.step(f"destroyed: {cuda.cuMemPoolDestroy(own.pool)}")
    address = C.c_ulonglong()
    code = cuda.cuMemAllocFromPoolAsync(C.byref(address), C.c_size_t(256 * MIB), own.pool, None)
    synchronize()
    own.step(f"256 of it: {code}")
    own.step(f"destroyed again: {cuda.cuMemPoolDestroy(own.pool)}")
    if address.value:
        own.freed((address, None))


def without_a_descriptor():
    own = Own("without a descriptor", sent=False)
    piece = own.allocated(256, share=False)
    code = cuda.cuMemPoolExportPointer(C.create_string_buffer(POINTER), piece[0])
    own.step(f"its pointer exported: {code}")
    own.destroyed()


def again_and_again():
    own = Own("again and again")
    for _ in range(3):
        own.freed(own.allocated(256))
        own.trimmed()
    own.closed()
    own.freed(own.allocated(256))
    own.trimmed()
    own.destroyed()


def kept_by_the_pool():
    own = Own("kept by the pool")
    own.freed(own.allocated(256))
    own.freed(own.allocated(256))
    own.freed(own.allocated(128, share=False))
    own.destroyed()
    own.closed()


def given_back_at_once():
    own = Own("given back at once", keep=0)
    own.freed(own.allocated(256))
    own.freed(own.allocated(256))
    own.destroyed()
    own.closed()


def small():
    own = Own("small")
    pieces = [own.allocated(1, share) for share in (False, True, True)]
    for piece in pieces:
        own.freed(piece)
    own.trimmed()
    own.closed()
    own.destroyed()


def without_a_pointer():
    own = Own("without a pointer")
    piece = own.allocated(256, share=False)
    own.freed(piece)
    own.trimmed()
    own.allocated(256, share=False)
    own.destroyed()
    own.closed()


def the_descriptor_is_closed_first():
    own = Own("the descriptor is closed first")
    own.closed()
    piece = own.allocated(256)
    own.allocated(128, share=False)
    own.freed(piece)
    own.trimmed()
    own.destroyed()


def other_sizes():
    own = Own("other sizes")
    for size in (256, 128, 512, 48):
        own.freed(own.allocated(size))
        own.trimmed()
    own.destroyed()
    own.closed()


def a_part_of_a_step():
    own = Own("a part of a step")
    pieces = [own.allocated(20, share) for share in (False, True, False)]
    for piece in pieces:
        own.freed(piece)
    own.trimmed()
    own.destroyed()
    own.closed()


def in_a_large_gap():
    own = Own("in a large gap")
    own.freed(own.allocated(256, share=False))
    own.freed(own.allocated(1))
    own.trimmed()
    own.destroyed()
    own.closed()


def requests_of_an_imported_pool():
    it, pool = scenario("requests of an imported pool")
    address = C.c_ulonglong()
    code = cuda.cuMemAllocFromPoolAsync(C.byref(address), C.c_size_t(MIB), pool.handle, None)
    it.step(f"a request: {code}")
    out = C.c_int(-1)
    code = cuda.cuMemPoolExportToShareableHandle(C.byref(out), pool.handle, DESCRIPTOR, FLAGS)
    it.step(f"exported on: {code}")
    first = pool.pointer(0)
    code = cuda.cuMemPoolExportPointer(C.create_string_buffer(POINTER), first)
    it.step(f"its pointer exported on: {code}")
    pool.freed(first, "pointer 0")
    pool.close()
    pool.destroyed()
    killed(it)


def imported_twice():
    it, pool = scenario("imported twice")
    again, fd = C.c_void_p(), C.c_void_p(pool.descriptor)
    code = cuda.cuMemPoolImportFromShareableHandle(C.byref(again), fd, DESCRIPTOR, FLAGS)
    same = "the same" if again.value == pool.handle.value else "another"
    it.step(f"imported again: {code}, {same} handle")
    pool.close()
    killed(it)
    first = pool.pointer(0)
    pool.destroyed()
    pool.freed(first, "pointer 0")
    pool.destroyed()
    it.step(f"and once more: {cuda.cuMemPoolDestroy(again)}")


def the_importer_resets():
    ends_of_the_importer("the importer resets", b"r")


def the_importer_dies():
    ends_of_the_importer("the importer dies", b"k")


def the_maker_resets():
    it, pool = scenario("the maker resets")
    pool.close()
    it.has(b"r")
    it.step("its maker's context reset")
    first = pool.pointer(0)
    pool.freed(first, "pointer 0")
    pool.destroyed()
    it.has(b"x")
    it.wait()


def a_reset():
    """A context ends under pools that nobody shares."""
    it = Scenario("a reset")
    it.begin_other("resetter")
    while step := it.line.recv(256).decode().strip():
        it.step(step)
        it.line.send(b"x")
    it.wait()


def resetter(line):
    def told(step):
        line.send(step.encode())
        line.recv(1)

    def freed(address):
        code = cuda.cuMemFreeAsync(address, None)
        return f"{code}, {cuda.cuCtxSynchronize()}"

    begin()
    told("its context")
    pool, (address, kept) = made(256, 32)
    does(cuda.cuMemFreeAsync(kept, None), "cuMemFreeAsync")
    synchronize()
    told("256 of its own pool, 32 kept by it")
    plain, default = C.c_ulonglong(), C.c_void_p()
    does(cuda.cuMemAllocAsync(C.byref(plain), C.c_size_t(128 * MIB), None), "cuMemAllocAsync")
    does(cuda.cuDeviceGetDefaultMemPool(C.byref(default), 0), "cuDeviceGetDefaultMemPool")
    synchronize()
    told("128 of the default pool")
    does(cuda.cuDevicePrimaryCtxReset_v2(0), "cuDevicePrimaryCtxReset")
    told("its context reset")
    begin()
    told(f"another context: {reserved_of(pool)} and {reserved_of(default)}")
    more = C.c_ulonglong()
    code = cuda.cuMemAllocFromPoolAsync(C.byref(more), C.c_size_t(64 * MIB), pool, None)
    told(f"64 more of its own pool: {code}, {cuda.cuCtxSynchronize()}, {reserved_of(pool)}")
    told(f"256 freed: {freed(address)}, {reserved_of(pool)}")
    told(f"128 freed: {freed(plain)}, {reserved_of(default)}")
    told(f"trimmed: {cuda.cuMemPoolTrimTo(pool, C.c_size_t(0))}, {reserved_of(pool)}")
    told(f"its own pool destroyed: {cuda.cuMemPoolDestroy(pool)}")
    line.send(b" ")


def ends_of_the_importer(name, word):
    own = Own(name)
    it, address = own.it, allocated(own.pool, 256)
    synchronize()
    data = pointer(address)
    it.begin_other("importer")
    send(it.line, own.descriptor, data)
    it.line.recv(1)
    own.step("imported by the other")
    own.freed((address, data))
    own.destroyed()
    own.closed()
    it.has(word)
    own.step("its context reset" if word == b"r" else "its import forgotten")
    it.kill()
    own.step("the other killed")


def destroyed_in_use():
    own = Own("destroyed in use")
    piece = own.allocated(256)
    own.destroyed()
    own.freed(piece)
    own.closed()


def importer(line):
    begin()
    descriptor, data = receive(line, POINTER)
    pool, address = C.c_void_p(), C.c_ulonglong()
    does(cuda.cuMemPoolImportFromShareableHandle(C.byref(pool), C.c_void_p(descriptor), DESCRIPTOR, FLAGS), "import")
    does(cuda.cuMemPoolImportPointer(C.byref(address), pool, C.create_string_buffer(data, POINTER)), "pointer")
    os.close(descriptor)
    line.send(b"i")
    while word := line.recv(1):
        if word == b"r":
            does(cuda.cuDevicePrimaryCtxReset_v2(0), "cuDevicePrimaryCtxReset")
        line.send(word)


def maker(line):
    begin()
    pool, pieces = made(256, 128, 1)
    descriptor, data = exported(pool, pieces[:2])
    send(line, descriptor, data)
    os.close(descriptor)
    while (word := line.recv(1)) and word != b"x":
        if word == b"f":
            for piece in pieces:
                does(cuda.cuMemFreeAsync(piece, None), "cuMemFreeAsync")
            synchronize()
        elif word == b"t":
            does(cuda.cuMemPoolTrimTo(pool, C.c_size_t(0)), "cuMemPoolTrimTo")
        elif word == b"r":
            does(cuda.cuDevicePrimaryCtxReset_v2(0), "cuDevicePrimaryCtxReset")
        else:
            does(cuda.cuMemPoolDestroy(pool), "cuMemPoolDestroy")
        line.send(word)
    line.send(b"x")


SCENARIOS = (
    the_makers, of_the_dead, held_by_a_descriptor, held_by_nothing, pool_first, not_imported, requests_of_an_imported_pool,
    imported_twice, alone, without_a_descriptor, again_and_again, other_sizes, kept_by_the_pool, given_back_at_once, small,
    a_part_of_a_step, in_a_large_gap, without_a_pointer, the_descriptor_is_closed_first, destroyed_in_use, the_importer_resets,
    the_importer_dies, the_maker_resets, imported_and_destroyed, a_reset,
)
if len(sys.argv) == 1:
    # Each in a process of its own: what one leaves behind is not in the next one's figures.
    for scenario in SCENARIOS:
        code = subprocess.call([sys.executable, sys.argv[0], scenario.__name__])
        if code:
            print(scenario.__name__.replace("_", " "), f"ended with {code}", 0, "-", "-", sep="\t", flush=True)
elif len(sys.argv) == 2:
    watch()
    globals()[sys.argv[1]]()
else:
    {"maker": maker, "importer": importer, "resetter": resetter}[sys.argv[1]](socket.socket(fileno=int(sys.argv[2])))
