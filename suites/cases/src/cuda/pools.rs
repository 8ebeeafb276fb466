//! Stream-ordered memory after it was freed: the pool keeps it until somebody waits, or trims.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use abi::cuda::CUresult;
use harness::{Bytes, Failure, cases, ensure, ensure_eq};

use crate::clients::{context, cuda, cuda_without_context, fill, fill_async, nvml};
use crate::ffi::cuda::{Answer, Cuda, MISSING, OwnStream, Pool, Stream, Wait};
use crate::greed::{CONTEXT_ROOM, STEPS, budget, fills, until_refused};
use crate::vulkan::floor::row;

const OK: CUresult = CUresult::SUCCESS;

/// The stream that a request is ordered by.
#[derive(Clone, Copy, Debug)]
enum Order {
    Default(Stream),
    Own(OwnStream),
}

/// By what a request comes when memory is short.
#[derive(Clone, Copy, Debug)]
enum Next {
    Legacy,
    PerThread,
    Own,
    Plain,
    Physical,
}

/// What such a request was given.
#[derive(Clone, Copy, Debug)]
enum Given {
    Ordered(Order, u64),
    Plain(u64),
    Physical(u64),
}

impl Given {
    fn give_back(self, cuda: &Cuda) -> CUresult {
        match self {
            Given::Ordered(order, pointer) => free(cuda, order, pointer),
            Given::Plain(pointer) => cuda.free(pointer),
            Given::Physical(handle) => cuda.release_memory(handle),
        }
    }
}

fn allocate(cuda: &Cuda, order: Order, bytes: Bytes) -> Answer<u64> {
    match order {
        Order::Default(stream) => cuda.allocate_async(stream, bytes.0),
        Order::Own(stream) => cuda.allocate_in(stream, bytes.0),
    }
}

fn free(cuda: &Cuda, order: Order, pointer: u64) -> CUresult {
    match order {
        Order::Default(stream) => cuda.free_async(stream, pointer),
        Order::Own(stream) => cuda.free_in(stream, pointer),
    }
}

fn request(cuda: &Cuda, next: Next, own: OwnStream, bytes: Bytes) -> Result<Given, CUresult> {
    let ordered = |order| {
        allocate(cuda, order, bytes)
            .granted()
            .map(|pointer| Given::Ordered(order, pointer))
    };
    match next {
        Next::Legacy => ordered(Order::Default(Stream::Legacy)),
        Next::PerThread => ordered(Order::Default(Stream::PerThread)),
        Next::Own => ordered(Order::Own(own)),
        Next::Plain => cuda.allocate(bytes.0).granted().map(Given::Plain),
        Next::Physical => cuda
            .create_memory(0, bytes.0)
            .granted()
            .map(Given::Physical),
    }
}

/// Lets the default pool keep what is freed, as PyTorch does.
fn kept_by_default_pool(cuda: &Cuda) -> Result<(), Failure> {
    let pool = cuda.default_pool(0);
    ensure_eq!(pool.code, OK, "cuDeviceGetDefaultMemPool");
    ensure_eq!(
        cuda.keep_in_pool(pool.out, u64::MAX),
        OK,
        "cuMemPoolSetAttribute"
    );
    Ok(())
}

cases! {
    /// What is taken of pools beside a thread that makes others current and destroys them is charged where it is, and comes back.
    pools_that_change_beside_requests_use_up_no_budget {
        kind: Budget, defects: ["R90"], machine: "rtx6000-ada*2", needs_gpus: 2, budget: "0=2GiB,1=2GiB", unordered: "threads race",
        entry_points: ["cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemPoolCreate", "cuMemPoolDestroy", "cuDeviceSetMemPool"],
    } (session) {
        const SIZE: u64 = 3 << 20;
        let cuda = cuda_without_context()?;
        let contexts = [context(&cuda, 0)?, context(&cuda, 1)?];
        let end = Instant::now() + Duration::from_secs(5);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    cuda.set_current(contexts[0]);
                    while Instant::now() < end {
                        let blocks = [(); 4].map(|()| cuda.allocate_async(Stream::PerThread, SIZE).granted());
                        blocks.into_iter().flatten().for_each(|block| _ = cuda.free_async(Stream::PerThread, block));
                        cuda.synchronize();
                    }
                });
            }
            scope.spawn(|| {
                cuda.set_current(contexts[1]);
                while Instant::now() < end {
                    if let Ok(pool) = cuda.create_pool(0).granted() {
                        cuda.set_pool(0, pool);
                        std::thread::yield_now();
                        cuda.destroy_pool(pool);
                    }
                    if let Ok(pool) = cuda.create_pool(1).granted() {
                        let block = cuda.allocate_from_pool(Stream::PerThread, pool, SIZE).granted();
                        block.into_iter().for_each(|block| _ = cuda.free_async(Stream::PerThread, block));
                        cuda.synchronize();
                        cuda.destroy_pool(pool);
                    }
                }
            });
        });
        for (device, current) in (0..).zip(contexts) {
            cuda.set_current(current);
            cuda.synchronize();
            cuda.trim_pool(cuda.default_pool(device).out, 0);
            ensure_eq!(cuda.reset_primary(device), OK, "cuDevicePrimaryCtxReset_v2");
        }
        for device in 0..2 {
            context(&cuda, device)?;
            fills(fill(&cuda).bytes, budget(session, device as u32)?, CONTEXT_ROOM)?;
        }
        Ok(())
    }

    /// A request of one pool does not wait for the end of another, and one of a pool that is ending gets nothing of it for nothing.
    no_request_waits_for_the_end_of_another_pool {
        kind: Own, defects: [], budget: "0=4GiB",
        entry_points: ["cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemPoolCreate", "cuMemPoolDestroy", "cuDeviceSetMemPool"],
        faults: r#"fault = [{ at = "cuMemPoolDestroy", when = "1", then = "delay:3s" }]"#, unordered: "two threads",
        on_real: No("a fault plan holds up the end"),
    } (session) {
        let cuda = cuda()?;
        let pool = cuda.create_pool(0);
        ensure_eq!(pool.code, OK, "cuMemPoolCreate");
        let (ends, ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let (plain, waited, of_it, current) = thread::scope(|scope| {
            scope.spawn(|| {
                ends.store(true, Ordering::SeqCst);
                cuda.destroy_pool(pool.out);
                ended.store(true, Ordering::SeqCst);
            });
            while !ends.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(100));
            let plain = cuda.allocate_async(Stream::Legacy, Bytes::mib(64).0).code;
            let waited = ended.load(Ordering::SeqCst);
            let of_it = cuda.allocate_from_pool(Stream::Legacy, pool.out, Bytes::gib(1).0).code;
            (plain, waited, of_it, cuda.set_pool(0, pool.out))
        });
        ensure_eq!((plain, waited), (OK, false), "cuMemAllocAsync beside cuMemPoolDestroy, and whether that had returned");
        let gone = CUresult::ERROR_INVALID_VALUE;
        ensure_eq!((of_it, current), (gone, gone), "cuMemAllocFromPoolAsync and cuDeviceSetMemPool of the pool that ends");
        fills(fill(&cuda).bytes + Bytes::mib(64), budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Threads that take and give back in their streams' order at once, and plain memory beside, are refused nothing where all of it fits many times over.
    threads_whose_pool_requests_overlap_are_refused_nothing {
        defects: ["R112"], budget: "0=4GiB", unordered: "threads race",
        entry_points: ["cuMemAllocAsync_ptsz", "cuMemFreeAsync_ptsz", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemGetInfo_v2"],
    } (_session) {
        const THREADS: usize = 4;
        let cuda = cuda()?;
        let current = context(&cuda, 0)?;
        let end = Instant::now() + Duration::from_secs(3);
        let takes = || {
            cuda.set_current(current);
            while Instant::now() < end {
                let plain = cuda.allocate(Bytes::mib(200).0);
                ensure_eq!(plain.code, OK, "cuMemAlloc_v2 of 200 MiB");
                ensure_eq!(cuda.free(plain.out), OK, "cuMemFree_v2");
                let ordered = cuda.allocate_async(Stream::PerThread, Bytes::mib(30).0);
                ensure_eq!(ordered.code, OK, "cuMemAllocAsync of 30 MiB");
                ensure_eq!(cuda.free_async(Stream::PerThread, ordered.out), OK, "cuMemFreeAsync");
            }
            Ok::<_, Failure>(())
        };
        // A context, each thread's 200 MiB, and a step and what it asks for of the pool's.
        let most = CONTEXT_ROOM + Bytes((THREADS as u64 + 1) * Bytes::mib(264).0);
        thread::scope(|scope| {
            let all = [(); THREADS].map(|()| scope.spawn(takes));
            while Instant::now() < end {
                let (free, total) = cuda.memory_info().out;
                let used = Bytes(total - free);
                ensure!(used <= most, "{used} are told as used, and {most} may be");
                thread::sleep(Duration::from_millis(1));
            }
            let ended = all.map(|one| one.join().expect("a thread that returns"));
            ended.into_iter().fold(Ok(()), Result::and)
        })
    }

    /// What was freed in a stream's order is told free once that stream was waited for, though another was waited for before it; what a
    /// free that waits gives back is told free at once.
    what_a_stream_freed_is_told_free_when_it_is_waited_for {
        defects: ["C2"],
        entry_points: ["cuStreamSynchronize_ptsz", "cuCtxSynchronize", "cuMemFreeAsync", "cuMemFree_v2", "cuMemGetInfo_v2"],
        budget: "0=6GiB",
    } (session) {
        let cuda = cuda_without_context()?;
        let current = context(&cuda, 0)?;
        let own = cuda.create_stream();
        ensure_eq!(own.code, OK, "cuStreamCreate");
        let (before, gibibyte) = (cuda.memory_info().out.0, Bytes::gib(1).0);
        let ordered = cuda.allocate_in(own.out, gibibyte);
        ensure_eq!(ordered.code, OK, "1 GiB in a stream's order");
        ensure_eq!(cuda.free_in(own.out, ordered.out), OK, "cuMemFreeAsync");
        if session.exports("cuStreamSynchronize_ptsz")? {
            ensure_eq!(cuda.synchronize_by(Wait::ThreadsStream, current), OK, "a wait for another stream");
        }
        ensure_eq!(cuda.synchronize(), OK, "a wait for all");
        // A stream that is used may take some for itself.
        let back = |free: u64| free + Bytes::mib(16).0 >= before;
        let free = cuda.memory_info().out.0;
        ensure!(back(free), "{free} are free when the stream was waited for, {before} before");
        let ordered = cuda.allocate_async(Stream::Legacy, gibibyte);
        ensure_eq!(ordered.code, OK, "1 GiB in the default stream's order");
        ensure_eq!(cuda.synchronize(), OK, "a wait for all");
        ensure_eq!(cuda.free(ordered.out), OK, "cuMemFree_v2");
        let free = cuda.memory_info().out.0;
        ensure!(back(free), "{free} are free after a free that waits, {before} before");
        Ok(())
    }

    /// What was freed in one context's default stream after another's makes way for a request that needs the room, though nobody waited.
    what_is_freed_in_any_contexts_default_stream_makes_way {
        defects: ["C2"], entry_points: ["cuMemAllocAsync", "cuMemFreeAsync", "cuCtxCreate_v2", "cuMemAlloc_v2"], budget: "0=6GiB",
    } (session) {
        let cuda = cuda()?;
        for mib in [64, 3 << 10] {
            let ordered = cuda.allocate_async(Stream::Legacy, Bytes::mib(mib).0);
            ensure_eq!(ordered.code, OK, "{mib} MiB in the order of a context's default stream");
            ensure_eq!(cuda.free_async(Stream::Legacy, ordered.out), OK, "cuMemFreeAsync");
            if mib == 64 {
                ensure_eq!(cuda.create_context(0).code, OK, "another context, which is current");
            }
        }
        ensure_eq!(cuda.allocate(Bytes::gib(4).0).code, OK, "4 of 6 GiB, of which 3 are freed and not waited for");
        ensure!(session.budget(0).is_some(), "a budget");
        Ok(())
    }

    /// Whichever call waits for the stream, afterwards freed stream-ordered memory can be had by a plain allocation.
    whoever_waits_gives_freed_memory_back {
        kind: Budget, defects: ["C2", "C10"], budget: "0=6GiB",
        entry_points: [
            "cuCtxSynchronize", "cuCtxSynchronize_v2", "cuStreamSynchronize", "cuStreamSynchronize_ptsz",
            "cuEventSynchronize", "cuMemAllocAsync", "cuMemFreeAsync",
        ],
    } (session) {
        let cuda = cuda_without_context()?;
        let current = context(&cuda, 0)?;
        for way in [Wait::Context, Wait::NamedContext, Wait::Stream, Wait::ThreadsStream, Wait::Event] {
            if way == Wait::NamedContext && !session.exports("cuCtxSynchronize_v2")? {
                continue;
            }
            let stream = if way == Wait::ThreadsStream { Stream::PerThread } else { Stream::Legacy };
            let ordered = cuda.allocate_async(stream, Bytes::gib(5).0);
            ensure_eq!(ordered.code, OK, "5 of 6 GiB in stream order before {way:?}");
            ensure_eq!(cuda.free_async(stream, ordered.out), OK, "cuMemFreeAsync");
            ensure_eq!(cuda.synchronize_by(way, current), OK, "{way:?}");
            let plain = cuda.allocate(Bytes::gib(5).0);
            ensure_eq!(plain.code, OK, "5 of 6 GiB by a plain allocation after {way:?}");
            ensure_eq!(cuda.free(plain.out), OK, "cuMemFree_v2");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// What is freed in stream order and not waited for makes way for the next request, whichever call it comes by and whichever stream it
    /// was freed in: the pool could serve it, or give the memory up once the stream has come to the free.
    what_is_freed_and_not_waited_for_makes_way {
        kind: Budget, defects: ["R1", "C10"], budget: "0=4GiB",
        entry_points: ["cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemFreeAsync", "cuMemFreeAsync_ptsz", "cuMemAlloc_v2", "cuMemCreate"],
    } (session) {
        let cuda = cuda()?;
        kept_by_default_pool(&cuda)?;
        let own = cuda.create_stream();
        ensure_eq!(own.code, OK, "cuStreamCreate");
        let most = budget(session, 0)? - CONTEXT_ROOM - Bytes::gib(1);
        for freed_in in [Order::Default(Stream::Legacy), Order::Default(Stream::PerThread), Order::Own(own.out)] {
            for route in [Next::Legacy, Next::PerThread, Next::Own, Next::Plain, Next::Physical] {
                let taken = until_refused(&[Bytes::mib(64)], |bytes| allocate(&cuda, freed_in, bytes).granted());
                taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
                fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
                for pointer in taken.held {
                    ensure_eq!(free(&cuda, freed_in, pointer), OK, "cuMemFreeAsync in {freed_in:?}");
                }
                let small = request(&cuda, route, own.out, Bytes::mib(40));
                let large = request(&cuda, route, own.out, most);
                for given in [small, large] {
                    let what = format!("a request by {route:?} beside memory that was freed in {freed_in:?}");
                    ensure_eq!(given.map(|given| given.give_back(&cuda)), Ok(OK), "{what}");
                }
            }
        }
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        ensure_eq!(cuda.trim_pool(cuda.default_pool(0).out, 0), OK, "cuMemPoolTrimTo");
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// While another stream is captured, a request that would be refused ends no capture, and has what was freed in its own stream.
    what_is_freed_makes_way_and_no_capture_is_ended_for_it {
        kind: Budget, defects: ["R3", "C10"], budget: "0=4GiB",
        entry_points: ["cuMemAllocAsync", "cuMemFreeAsync", "cuStreamBeginCapture_v2"],
    } (session) {
        let cuda = cuda()?;
        kept_by_default_pool(&cuda)?;
        let (own, capturing) = (cuda.create_stream(), cuda.create_stream());
        ensure_eq!((own.code, capturing.code), (OK, OK), "cuStreamCreate");
        let order = Order::Own(own.out);
        // What was freed in a stream that is captured now is nobody's to wait for.
        let early = cuda.allocate_in(capturing.out, Bytes::mib(64).0);
        ensure_eq!(early.code, OK, "64 MiB in stream order");
        ensure_eq!(cuda.free_in(capturing.out, early.out), OK, "cuMemFreeAsync");
        ensure_eq!(cuda.begin_relaxed_capture_on(capturing.out), OK, "cuStreamBeginCapture_v2");
        for _ in 0..2 {
            let taken = until_refused(&[Bytes::mib(64)], |bytes| allocate(&cuda, order, bytes).granted());
            taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
            ensure!(taken.bytes <= budget(session, 0)?, "{} of {} were granted", taken.bytes, budget(session, 0)?);
            for pointer in taken.held {
                ensure_eq!(free(&cuda, order, pointer), OK, "cuMemFreeAsync");
            }
            let next = allocate(&cuda, order, Bytes::mib(40));
            ensure_eq!(next.code, OK, "40 MiB beside what was freed in the same stream");
            ensure_eq!(free(&cuda, order, next.out), OK, "cuMemFreeAsync");
        }
        ensure_eq!(cuda.end_capture_on(capturing.out).code, OK, "cuStreamEndCapture");
        Ok(())
    }

    /// A pool that may keep what is freed stays charged for it until it is trimmed; then another process can have it.
    a_trimmed_pool_gives_its_memory_back {
        kind: Budget, defects: ["C10"], budget: "0=8GiB",
        entry_points: ["cuMemPoolSetAttribute", "cuMemPoolTrimTo", "cuMemAllocAsync", "cuMemFreeAsync"],
    } (session) {
        let cuda = cuda()?;
        let pool = cuda.default_pool(0);
        ensure_eq!(pool.code, OK, "cuDeviceGetDefaultMemPool");
        ensure_eq!(cuda.keep_in_pool(pool.out, u64::MAX), OK, "cuMemPoolSetAttribute");
        let ordered = cuda.allocate_async(Stream::Legacy, Bytes::gib(5).0);
        ensure_eq!(ordered.code, OK, "5 of 8 GiB in stream order");
        ensure_eq!(cuda.free_async(Stream::Legacy, ordered.out), OK, "cuMemFreeAsync");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        let mut other = crate::tenant::Tenant::start(session)?;
        let refused = other.cuda(Bytes::gib(4))?;
        ensure_eq!(refused, CUresult::ERROR_OUT_OF_MEMORY, "4 GiB of another process beside a pool that keeps 5 of 8");
        ensure_eq!(cuda.trim_pool(pool.out, 0), OK, "cuMemPoolTrimTo");
        ensure_eq!(other.cuda(Bytes::gib(4))?, OK, "4 GiB of another process beside a trimmed pool");
        other.peer.finish()
    }

    /// Or until a request that is beyond the budget has had the driver trim it.
    a_pool_that_the_driver_trims_for_what_is_refused_is_charged_no_longer {
        kind: Budget, defects: ["R123"], entry_points: ["cuMemAlloc_v2", "cuMemGetInfo_v2"], needs: ["cuMemAllocFromPoolAsync"],
        budget: "0=6GiB", on_real: No("whether a card trims a pool for a request that no device has room for is not recorded"),
    } (session) {
        let cuda = cuda()?;
        let pool = cuda.create_pool(0);
        ensure_eq!((pool.code, cuda.keep_in_pool(pool.out, u64::MAX)), (OK, OK), "a pool that keeps what is freed");
        let kept = Bytes::gib(4);
        let pooled = cuda.allocate_from_pool(Stream::Legacy, pool.out, kept.0);
        ensure_eq!((pooled.code, cuda.free_async(Stream::Legacy, pooled.out), cuda.synchronize()), (OK, OK, OK), "4 GiB of it");
        let before = cuda.memory_info().out.0;
        ensure_eq!(cuda.allocate((budget(session, 0)? + kept).0).code, CUresult::ERROR_OUT_OF_MEMORY, "more than the budget");
        let free = cuda.memory_info().out.0;
        ensure_eq!(free, before + kept.0, "free when the driver has trimmed the pool");
        Ok(())
    }

    /// Plain requests come from a pool that the program made current, by whichever call, and are charged as that pool's.
    a_pool_made_current_is_no_way_past_the_budget {
        kind: Budget, defects: ["R1"], entry_points: ["cuDeviceSetMemPool", "cuMemSetMemPool", "cuMemAllocAsync"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        let default = cuda.default_pool(0).out;
        for set in [Cuda::set_pool, Cuda::set_pool_at] {
            let pool = cuda.create_pool(0);
            ensure_eq!(pool.code, OK, "cuMemPoolCreate");
            ensure_eq!(cuda.keep_in_pool(pool.out, u64::MAX), OK, "cuMemPoolSetAttribute");
            match set(&cuda, 0, pool.out) {
                MISSING => break,
                code => ensure_eq!(code, OK, "the pool made current"),
            }
            let taken = fill_async(&cuda, Stream::Legacy);
            taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
            fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
            for pointer in taken.held {
                ensure_eq!(cuda.free_async(Stream::Legacy, pointer), OK, "cuMemFreeAsync");
            }
            ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
            ensure_eq!(set(&cuda, 0, default), OK, "the default pool made current again");
            ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Managed memory of a device's default or current pool, and of a pool of the program's own, is charged like any other of a
    /// pool's.
    managed_pools_are_no_way_past_the_budget {
        kind: Budget, defects: ["R1", "R15"], entry_points: ["cuMemGetDefaultMemPool", "cuMemGetMemPool", "cuMemAllocFromPoolAsync"],
        needs: ["cuMemGetDefaultMemPool", "cuMemGetMemPool"], budget: "0=4GiB", on_real: No("a bare card lets managed memory exceed it, and would page"),
    } (session) {
        /// A device keeps 128 MiB for managed memory, from the first byte on.
        const ROOM: Bytes = Bytes(CONTEXT_ROOM.0 + Bytes::mib(128).0);
        let cuda = cuda()?;
        for pool in [Cuda::managed_pool, Cuda::current_managed_pool, Cuda::create_managed_pool] {
            let pool = pool(&cuda, 0);
            ensure_eq!(pool.code, OK, "a pool of managed memory");
            let taken = until_refused(&STEPS, |bytes| {
                cuda.allocate_from_pool(Stream::Legacy, pool.out, bytes.0).granted()
            });
            taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
            fills(taken.bytes, budget(session, 0)?, ROOM)?;
            for pointer in taken.held {
                ensure_eq!(cuda.free(pointer), OK, "cuMemFree_v2");
            }
            ensure_eq!(cuda.trim_pool(pool.out, 0), OK, "cuMemPoolTrimTo");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, ROOM)
    }

    /// Memory of a destroyed pool lives on until it is freed, and is charged as long.
    a_destroyed_pool_is_charged_until_its_memory_is_freed {
        kind: Budget, defects: ["R1", "C10"], budget: "0=4GiB",
        entry_points: ["cuMemPoolDestroy", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuCtxSynchronize"],
    } (session) {
        let cuda = cuda()?;
        let most = Bytes::gib(3).0;
        for _ in 0..3 {
            let pool = cuda.create_pool(0);
            ensure_eq!(pool.code, OK, "cuMemPoolCreate");
            let held = cuda.allocate_from_pool(Stream::Legacy, pool.out, most);
            ensure_eq!(held.code, OK, "3 of 4 GiB from a pool");
            ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
            let refused = cuda.allocate(most).code;
            ensure_eq!(refused, CUresult::ERROR_OUT_OF_MEMORY, "3 GiB beside 3 of a destroyed pool");
            ensure_eq!(cuda.free_async(Stream::Legacy, held.out), OK, "cuMemFreeAsync");
            ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A pool with gaps grows by a request that fits in none of them, however much of it is free: also such a request is charged first. What
    /// is as large as what was freed can come and go all the while, though the device is full.
    a_pool_with_gaps_grows_within_the_budget {
        kind: Budget, defects: ["R1", "C10"], budget: "0=4GiB",
        entry_points: ["cuMemAllocAsync", "cuMemFreeAsync", "cuMemAlloc_v2", "cuCtxSynchronize"],
    } (session) {
        let (gap, more) = (Bytes::mib(1).0, Bytes::mib(1).0 + (Bytes::mib(1).0 >> 1));
        let cuda = cuda()?;
        kept_by_default_pool(&cuda)?;
        let mut held = Vec::new();
        for _ in 0..512 {
            let one = cuda.allocate_async(Stream::Legacy, gap);
            ensure_eq!(one.code, OK, "1 MiB in stream order");
            held.push(one.out);
        }
        for pointer in held.chunks_exact(2).map(|pair| pair[0]) {
            ensure_eq!(cuda.free_async(Stream::Legacy, pointer), OK, "cuMemFreeAsync");
        }
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        let plain = fill(&cuda);
        plain.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        // More than what may be free in whole steps of the pool.
        for round in 0..512 {
            let one = cuda.allocate_async(Stream::Legacy, gap);
            ensure_eq!(one.code, OK, "1 MiB, as much as a gap, the {round}. time on a full device");
            ensure_eq!(cuda.free_async(Stream::Legacy, one.out), OK, "cuMemFreeAsync");
            ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        }
        let grown = until_refused(&[Bytes(more)], |bytes| cuda.allocate_async(Stream::Legacy, bytes.0).granted());
        grown.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        let taken = plain.bytes + grown.bytes + Bytes::mib(512);
        fills(taken, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A pool that takes the place of a destroyed one is told of its frees as any other.
    a_pool_in_the_place_of_a_destroyed_one_gives_its_memory_back {
        kind: Budget, defects: ["C10"], budget: "0=4GiB",
        entry_points: ["cuMemPoolCreate", "cuMemPoolDestroy", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuCtxSynchronize", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda()?;
        let first = cuda.create_pool(0);
        ensure_eq!(first.code, OK, "cuMemPoolCreate");
        let small = cuda.allocate_from_pool(Stream::Legacy, first.out, 2_589);
        ensure_eq!(small.code, OK, "2,589 bytes from a pool");
        ensure_eq!(cuda.destroy_pool(first.out), OK, "cuMemPoolDestroy");
        ensure_eq!(cuda.free_async(Stream::Legacy, small.out), OK, "cuMemFreeAsync of the last in a destroyed pool");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        let second = cuda.create_pool(0);
        ensure_eq!(second.code, OK, "cuMemPoolCreate");
        let large = cuda.allocate_from_pool(Stream::Legacy, second.out, Bytes::gib(3).0);
        ensure_eq!(large.code, OK, "3 of 4 GiB from another pool");
        ensure_eq!(cuda.free(large.out), OK, "cuMemFree_v2");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        // By what asks no pool for anything: Vulkan, or another process.
        let mut other = crate::tenant::Tenant::start(session)?;
        ensure_eq!(other.cuda(Bytes::gib(2) + Bytes::mib(256))?, OK, "2.25 GiB of another process beside what was given back");
        other.peer.finish()?;
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Pools that are destroyed before the last of their memory is freed leave nothing charged, whether the stream was waited for or nobody waited,
    /// and however many there were.
    pools_destroyed_before_their_memory_is_freed_leave_nothing {
        kind: Budget, defects: ["R26", "C11"], budget: "0=4GiB",
        entry_points: ["cuMemPoolCreate", "cuMemPoolDestroy", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuStreamSynchronize", "cuStreamDestroy_v2"],
    } (session) {
        let cuda = cuda()?;
        let before = cuda.memory_info().out.0;
        // Those that nobody waits for are the last: a card does not outlive a request from a pool after a wait that gave back several
        // (H200, 580.159.04, bare), and holds 32 MiB for each until then.
        for (rounds, waits, ends) in [(160, true, false), (40, false, true), (100, false, false)] {
            let mut own = cuda.create_stream();
            ensure_eq!(own.code, OK, "cuStreamCreate");
            for round in 0..rounds {
                let pool = cuda.create_pool(0);
                ensure_eq!(pool.code, OK, "cuMemPoolCreate in round {round}");
                let [first, last] = [(); 2].map(|()| cuda.allocate_from_pool_in(own.out, pool.out, Bytes::mib(1).0));
                ensure_eq!((first.code, last.code), (OK, OK), "1 MiB twice in round {round}");
                ensure_eq!(cuda.free_in(own.out, first.out), OK, "cuMemFreeAsync");
                ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
                ensure_eq!(cuda.free_in(own.out, last.out), OK, "cuMemFreeAsync of the last of a destroyed pool");
                if waits {
                    ensure_eq!(cuda.synchronize_stream(own.out), OK, "cuStreamSynchronize");
                }
                if ends {
                    ensure_eq!(cuda.destroy_stream(own.out), OK, "cuStreamDestroy_v2");
                    own = cuda.create_stream();
                    ensure_eq!(own.code, OK, "cuStreamCreate");
                }
            }
            ensure_eq!(cuda.synchronize_stream(own.out), OK, "cuStreamSynchronize");
            let free = cuda.memory_info().out.0;
            // What streams take stays with their context.
            ensure!(free + Bytes::mib(64).0 >= before, "{free} are told free after {rounds} pools, {before} before");
            ensure_eq!(cuda.destroy_stream(own.out), OK, "cuStreamDestroy_v2");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM + Bytes::mib(64))
    }

    /// Nor do pools that are destroyed while other threads destroy streams in which something was freed.
    pools_destroyed_beside_streams_leave_nothing {
        kind: Budget, defects: ["R26"], budget: "0=2GiB", unordered: "three threads destroy streams beside",
        entry_points: ["cuMemPoolDestroy", "cuStreamDestroy_v2", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuStreamSynchronize"],
    } (session) {
        let cuda = cuda()?;
        let done = AtomicBool::new(false);
        let streams = || {
            context(&cuda, 0)?;
            while !done.load(Ordering::Relaxed) {
                let own = cuda.create_stream();
                ensure_eq!(own.code, OK, "cuStreamCreate");
                let block = cuda.allocate_in(own.out, Bytes::mib(1).0);
                ensure_eq!(block.code, OK, "1 MiB");
                ensure_eq!(cuda.free_in(own.out, block.out), OK, "cuMemFreeAsync");
                ensure_eq!(cuda.destroy_stream(own.out), OK, "cuStreamDestroy_v2");
            }
            Ok::<_, Failure>(())
        };
        let pools = || {
            let own = cuda.create_stream();
            ensure_eq!(own.code, OK, "cuStreamCreate");
            let before = cuda.memory_info().out.0;
            for round in 0..600 {
                let pool = cuda.create_pool(0);
                ensure_eq!(pool.code, OK, "cuMemPoolCreate in round {round}");
                let block = cuda.allocate_from_pool_in(own.out, pool.out, Bytes::mib(600).0);
                ensure_eq!(block.code, OK, "600 MiB of a pool under 2 GiB in round {round}");
                ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
                ensure_eq!(cuda.free_in(own.out, block.out), OK, "cuMemFreeAsync");
                ensure_eq!(cuda.synchronize_stream(own.out), OK, "cuStreamSynchronize");
                // What the streams' threads hold beside is far less.
                let end = Instant::now() + Duration::from_secs(10);
                let told = || Bytes(cuda.memory_info().out.0) + Bytes::mib(400);
                while told().0 < before {
                    ensure!(Instant::now() < end, "600 MiB of a pool stay charged in round {round}");
                    thread::yield_now();
                }
            }
            Ok::<_, Failure>(())
        };
        thread::scope(|scope| {
            let others = [(); 3].map(|()| scope.spawn(streams));
            let made = pools();
            done.store(true, Ordering::Relaxed);
            let ended = others.map(|other| other.join().expect("a thread that returns"));
            ended.into_iter().fold(made, Result::and)
        })?;
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM + Bytes::mib(64))
    }

    /// Nor do those that are destroyed after a context ended while another thread waited for what was freed, and was about to look at its streams.
    pools_destroyed_after_a_context_ended_beside_a_wait_leave_nothing {
        kind: Budget, defects: ["R100"], budget: "0=4GiB",
        entry_points: ["cuCtxDestroy_v2", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemPoolDestroy", "cuCtxSynchronize", "cuMemAlloc_v2"],
        faults: r#"fault = [
            { at = "cuCtxDestroy_v2", when = "1", then = "delay:300ms" },
            { at = "cuEventCreate", when = "1", then = "delay:600ms" },
        ]"#, unordered: "two threads race",
    } (session) {
        let (most, part) = (Bytes::gib(2), Bytes::mib(512));
        let cuda = cuda_without_context()?;
        let [lives, ends] = [(); 2].map(|()| cuda.create_context(0));
        ensure_eq!((lives.code, ends.code), (OK, OK), "cuCtxCreate_v2");
        ensure_eq!(cuda.set_current(lives.out), OK, "cuCtxSetCurrent");
        let block = cuda.allocate_async(Stream::Legacy, most.0);
        ensure_eq!(block.code, OK, "{most} in a stream's order");
        ensure_eq!(cuda.free_async(Stream::Legacy, block.out), OK, "cuMemFreeAsync");
        thread::scope(|scope| {
            let ended = scope.spawn(|| cuda.destroy_context(ends.out));
            // So that it is in the driver, which has not acted yet.
            thread::sleep(Duration::from_millis(100));
            let beside = cuda.allocate(most.0);
            ensure_eq!(beside.code, OK, "{most} where {most} were freed");
            ensure_eq!(cuda.free(beside.out), OK, "cuMemFree_v2");
            ensure_eq!(ended.join().expect("a thread that returns"), OK, "cuCtxDestroy_v2");
            Ok::<_, Failure>(())
        })?;
        let before = cuda.memory_info().out.0;
        for round in 0..4 {
            let pool = cuda.create_pool(0);
            ensure_eq!(pool.code, OK, "cuMemPoolCreate in round {round}");
            let block = cuda.allocate_from_pool(Stream::Legacy, pool.out, part.0);
            ensure_eq!(block.code, OK, "{part} of a pool in round {round}");
            ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
            ensure_eq!(cuda.free_async(Stream::Legacy, block.out), OK, "cuMemFreeAsync");
            ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
            let free = cuda.memory_info().out.0;
            ensure!(free + part.0 / 2 >= before, "{} are told free in round {round}, {} before", Bytes(free), Bytes(before));
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM + Bytes::mib(64))
    }

    /// What comes from a pool at an address whose context another thread has just ended is the pool's, and goes when it is freed.
    what_comes_at_an_address_of_a_context_that_ended_is_its_pools {
        kind: Budget, defects: ["R99"], budget: "0=4GiB",
        entry_points: ["cuDevicePrimaryCtxReset_v2", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemPoolDestroy", "cuCtxSynchronize"],
        faults: r#"fault = [{ at = "cuDevicePrimaryCtxGetState", then = "delay:500ms" }]"#, unordered: "four threads, and a race of two of them",
    } (session) {
        let (small, part) = (Bytes::mib(64), Bytes::mib(640));
        let cuda = cuda_without_context()?;
        let lives = cuda.create_context(0);
        ensure_eq!(lives.code, OK, "cuCtxCreate_v2");
        let (first, last) = (Barrier::new(3), Barrier::new(3));
        // Two threads that have asked pools for memory before.
        let other = || {
            let current = cuda.set_current(lives.out);
            let block = cuda.allocate_async(Stream::Legacy, 4096);
            let freed = cuda.free_async(Stream::Legacy, block.out);
            first.wait();
            last.wait();
            (current, block.code, freed)
        };
        let beside = || {
            ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
            let before = cuda.memory_info().out.0;
            context(&cuda, 0)?;
            ensure_eq!(cuda.allocate(small.0).code, OK, "{small} in the primary context");
            ensure_eq!(cuda.set_current(lives.out), OK, "cuCtxSetCurrent");
            thread::scope(|scope| {
                let reset = scope.spawn(|| cuda.reset_primary(0));
                // So that the driver has ended it, and says so late.
                thread::sleep(Duration::from_millis(150));
                let pool = cuda.create_pool(0);
                ensure_eq!(pool.code, OK, "cuMemPoolCreate");
                let block = cuda.allocate_from_pool(Stream::Legacy, pool.out, part.0);
                ensure_eq!(block.code, OK, "{part} of a pool");
                ensure_eq!(cuda.free_async(Stream::Legacy, block.out), OK, "cuMemFreeAsync");
                ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
                ensure_eq!(reset.join().expect("a thread that returns"), OK, "cuDevicePrimaryCtxReset_v2");
                Ok::<_, Failure>(())
            })?;
            ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
            let free = cuda.memory_info().out.0;
            ensure!(free + part.0 / 2 >= before, "{} are told free afterwards, {} before", Bytes(free), Bytes(before));
            Ok::<_, Failure>(())
        };
        thread::scope(|scope| {
            let others = [(); 2].map(|()| scope.spawn(other));
            first.wait();
            let done = beside();
            last.wait();
            for other in others {
                ensure_eq!(other.join().expect("a thread that returns"), (OK, OK, OK), "4 KiB in another thread");
            }
            done
        })?;
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM + Bytes::mib(64))
    }

    /// A request beside destroyed pools that nobody has waited for is refused only where the driver's own figure says that it holds them still.
    destroyed_pools_that_the_driver_gave_back_are_in_nobodys_way {
        kind: Budget, defects: ["R101"], budget: "0=4GiB",
        entry_points: ["cuMemPoolCreate", "cuMemPoolDestroy", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemAlloc_v2"],
    } (session) {
        // Less than what calls for a look at the driver's figure, by which each would be waited for before the next.
        let (part, room) = (Bytes::mib(24), Bytes::mib(64));
        let cuda = cuda()?;
        let budget = budget(session, 0)?;
        let nvml = nvml()?;
        let held = || row(&nvml);
        for round in 0..160 {
            let pool = cuda.create_pool(0);
            ensure_eq!(pool.code, OK, "cuMemPoolCreate in round {round}");
            let block = cuda.allocate_from_pool(Stream::Legacy, pool.out, part.0);
            if block.code != OK {
                let held = held()?;
                ensure_eq!(block.code, CUresult::ERROR_OUT_OF_MEMORY, "{part} of a pool in round {round}");
                ensure!(held + part + room >= budget, "{part} of a pool are refused in round {round} beside {held} under {budget}");
            }
            ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
            if block.code == OK {
                ensure_eq!(cuda.free_async(Stream::Legacy, block.out), OK, "cuMemFreeAsync");
            }
        }
        let pooled = held()?;
        let taken = fill(&cuda);
        taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        fills(taken.bytes, budget, CONTEXT_ROOM + room.max(pooled))
    }

    /// Of destroyed pools a little is in use for long, and all else was freed and waited for: that is the tenant's again.
    what_is_in_use_of_destroyed_pools_holds_nothing_else {
        kind: Budget, defects: ["R115"], budget: "0=4GiB",
        entry_points: ["cuMemPoolCreate", "cuMemPoolDestroy", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemAlloc_v2", "cuCtxSynchronize"],
    } (session) {
        const POOLS: usize = 3;
        let large = Bytes::mib(800);
        let cuda = cuda()?;
        let mut small = Vec::new();
        for nth in 0..POOLS {
            let pool = cuda.create_pool(0);
            ensure_eq!(pool.code, OK, "cuMemPoolCreate {nth}");
            let block = cuda.allocate_from_pool(Stream::Legacy, pool.out, large.0);
            let piece = cuda.allocate_from_pool(Stream::Legacy, pool.out, 4096);
            ensure_eq!((block.code, piece.code), (OK, OK), "{large} and 4 KiB of pool {nth}");
            ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
            ensure_eq!(cuda.free_async(Stream::Legacy, block.out), OK, "cuMemFreeAsync");
            small.push(piece.out);
        }
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        let taken = fill(&cuda);
        taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        // A step of each pool is in use.
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM + Bytes::mib(32 * POOLS as u64 + 32))?;
        for block in taken.held {
            ensure_eq!(cuda.free(block), OK, "cuMemFree_v2");
        }
        for piece in small {
            ensure_eq!(cuda.free_async(Stream::Legacy, piece), OK, "cuMemFreeAsync");
        }
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM + Bytes::mib(32))
    }

    /// What a destroyed pool gave back is free again though another pool may have let go of something, too: what was freed in a context's stream that has ended.
    what_a_destroyed_pool_gave_back_is_free_beside_other_pools {
        kind: Budget, defects: ["R141"], budget: "0=4GiB",
        entry_points: ["cuMemPoolCreate", "cuMemPoolDestroy", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemAlloc_v2", "cuCtxDestroy_v2"],
    } (session) {
        let cuda = cuda()?;
        let first = context(&cuda, 0)?;
        let budget = budget(session, 0)?;
        let nvml = nvml()?;
        let pool = cuda.create_pool(0);
        ensure_eq!(pool.code, OK, "cuMemPoolCreate");
        let sizes = [268, 196, 41, 177].map(Bytes::mib);
        let blocks = sizes.map(|size| cuda.allocate_from_pool(Stream::Legacy, pool.out, size.0));
        ensure!(blocks.iter().all(|block| block.code == OK), "cuMemAllocFromPoolAsync");
        ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
        ensure_eq!(cuda.free(blocks[0].out), OK, "cuMemFree_v2");
        ensure_eq!(cuda.free_async(Stream::Legacy, blocks[1].out), OK, "cuMemFreeAsync");
        let other = cuda.create_context(0);
        ensure_eq!(other.code, OK, "cuCtxCreate_v2");
        let ordered = cuda.allocate_async(Stream::Legacy, Bytes::mib(396).0);
        ensure_eq!(ordered.code, OK, "cuMemAllocAsync");
        ensure_eq!(cuda.free_async(Stream::Legacy, ordered.out), OK, "cuMemFreeAsync of the other context's");
        ensure_eq!(cuda.destroy_context(other.out), OK, "cuCtxDestroy_v2");
        ensure_eq!(cuda.set_current(first), OK, "cuCtxSetCurrent");
        let held = || row(&nvml);
        let before = held()?;
        let fits = Bytes((budget.0 - before.0 - Bytes::mib(150).0) / Bytes::mib(2).0 * Bytes::mib(2).0);
        let block = cuda.allocate(fits.0);
        ensure_eq!(block.code, OK, "{fits} beside {before} under {budget}");
        ensure_eq!(cuda.free(block.out), OK, "cuMemFree_v2");
        let taken = fill(&cuda);
        taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        fills(held()?, budget, CONTEXT_ROOM)
    }

    /// What destroyed pools hid is looked at once they are gone: what a context took beside them is free again with it, for every process of the tenant.
    what_destroyed_pools_hid_is_looked_at_when_they_are_gone {
        kind: Budget, defects: ["R142"], budget: "0=3GiB",
        entry_points: ["cuMemPoolCreate", "cuMemPoolDestroy", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuCtxDestroy_v2", "cuCtxSynchronize"],
    } (session) {
        const POOLS: usize = 24;
        let cuda = cuda()?;
        let first = context(&cuda, 0)?;
        let used = || {
            let (free, total) = cuda.memory_info().out;
            Bytes(total - free)
        };
        let before = used();
        let mut blocks = Vec::new();
        for nth in 0..POOLS {
            let pool = cuda.create_pool(0);
            ensure_eq!(pool.code, OK, "cuMemPoolCreate {nth}");
            let block = cuda.allocate_from_pool(Stream::Legacy, pool.out, 4096);
            ensure_eq!(block.code, OK, "4 KiB of pool {nth}");
            ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
            blocks.push(block.out);
        }
        let other = cuda.create_context(0);
        ensure_eq!(other.code, OK, "cuCtxCreate_v2");
        ensure_eq!(cuda.set_current(first), OK, "cuCtxSetCurrent");
        for block in blocks {
            ensure_eq!(cuda.free_async(Stream::Legacy, block), OK, "cuMemFreeAsync");
        }
        ensure_eq!(cuda.destroy_context(other.out), OK, "cuCtxDestroy_v2");
        ensure_eq!(cuda.set_current(first), OK, "cuCtxSetCurrent");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        let after = used();
        ensure!(after <= before + Bytes::mib(64), "{after} are charged when all but the context is gone, {before} before");
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM + Bytes::mib(32))
    }

    /// What a destroyed pool gave back and is charged for, since something of it lives, is no part of what a context beside it takes: when the pool is gone no less is charged
    /// than the device holds. A pool that could have been exported and was not is like any other.
    what_a_destroyed_pool_gave_back_is_no_part_of_a_context {
        kind: Budget, defects: ["R142", "R143"], budget: "0=4GiB",
        entry_points: ["cuMemPoolCreate", "cuMemPoolDestroy", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuCtxCreate_v2", "cuCtxSynchronize"],
        on_real: No("H200, 580.159.04: a SIGSEGV in one of three runs, beside five other cases, none of two bare; a wait with something of a destroyed pool alive is known to end the driver at its next pool"),
    } (session) {
        let cuda = cuda()?;
        let first = context(&cuda, 0)?;
        let budget = budget(session, 0)?;
        let nvml = nvml()?;
        let free = || Bytes(cuda.memory_info().out.0);
        for exportable in [false, true] {
            let pool = match exportable {
                false => cuda.create_pool(0),
                true => cuda.create_shared_pool(0),
            };
            ensure_eq!(pool.code, OK, "cuMemPoolCreate");
            let small = cuda.allocate_from_pool(Stream::Legacy, pool.out, 4096);
            let large = cuda.allocate_from_pool(Stream::Legacy, pool.out, Bytes::mib(700).0);
            ensure_eq!((small.code, large.code), (OK, OK), "cuMemAllocFromPoolAsync");
            ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
            ensure_eq!(cuda.free_async(Stream::Legacy, large.out), OK, "cuMemFreeAsync");
            ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
            let fits = Bytes(budget.0 - row(&nvml)?.0).saturating_sub(Bytes::mib(200)).0 >> 21 << 21;
            let block = cuda.allocate(fits);
            ensure_eq!(block.code, OK, "{fits} bytes beside {:?} under {budget}", row(&nvml));
            ensure_eq!(cuda.free(block.out), OK, "cuMemFree_v2");
            let other = cuda.create_context(0);
            ensure_eq!(other.code, OK, "cuCtxCreate_v2");
            ensure_eq!(cuda.set_current(first), OK, "cuCtxSetCurrent");
            ensure_eq!(cuda.free_async(Stream::Legacy, small.out), OK, "cuMemFreeAsync");
            ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
            let held = row(&nvml)?;
            ensure!(free() + held <= budget + Bytes::mib(16), "{} are told free beside {held} under {budget}", free());
            ensure_eq!(cuda.destroy_context(other.out), OK, "cuCtxDestroy_v2");
            ensure_eq!(cuda.set_current(first), OK, "cuCtxSetCurrent");
        }
        fills(fill(&cuda).bytes, budget, CONTEXT_ROOM + Bytes::mib(32))
    }

    /// As many pools as an H200's addresses allow can live at a time, and what was freed in any of many streams makes way for what needs the room.
    many_pools_and_streams_are_known {
        kind: Budget, defects: ["C11"], budget: "0=4GiB",
        entry_points: ["cuMemPoolCreate", "cuMemPoolDestroy", "cuMemAllocAsync", "cuMemFreeAsync", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda()?;
        let mut pools = Vec::new();
        for count in 0..455 {
            let pool = cuda.create_pool(0);
            ensure_eq!(pool.code, OK, "cuMemPoolCreate beside {count} others");
            pools.push(pool.out);
        }
        for pool in pools {
            ensure_eq!(cuda.destroy_pool(pool), OK, "cuMemPoolDestroy");
        }
        kept_by_default_pool(&cuda)?;
        for count in 0..160 {
            let own = cuda.create_stream();
            ensure_eq!(own.code, OK, "cuStreamCreate beside {count} others");
            let ordered = cuda.allocate_in(own.out, Bytes::mib(16).0);
            ensure_eq!(ordered.code, OK, "16 MiB in the order of stream {count}");
            ensure_eq!(cuda.free_in(own.out, ordered.out), OK, "cuMemFreeAsync");
        }
        ensure_eq!(cuda.allocate(Bytes::gib(3).0).code, OK, "3 of 4 GiB beside what was freed in 160 streams");
        ensure!(session.budget(0).is_some(), "a budget");
        fills(fill(&cuda).bytes + Bytes::gib(3), budget(session, 0)?, CONTEXT_ROOM + Bytes::mib(128))
    }

    /// No handle is no pool's, also where one was destroyed: the driver's refusal, and nothing is charged.
    no_handle_is_no_destroyed_pools {
        kind: Budget, defects: ["C1", "C10"], budget: "0=4GiB",
        entry_points: ["cuMemPoolCreate", "cuMemPoolDestroy", "cuMemAllocFromPoolAsync"],
    } (session) {
        let cuda = cuda()?;
        let pool = cuda.create_pool(0);
        ensure_eq!(pool.code, OK, "cuMemPoolCreate");
        ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
        let before = cuda.memory_info().out;
        for bytes in [512, Bytes::mib(64).0] {
            let answer = cuda.allocate_from_pool(Stream::Legacy, Pool::NONE, bytes);
            ensure_eq!(answer.code, CUresult::ERROR_INVALID_VALUE, "cuMemAllocFromPoolAsync of no pool");
        }
        ensure_eq!(cuda.memory_info().out, before, "cuMemGetInfo_v2");
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A destroyed pool's last memory may be freed while its device has no context: then a wait in any other is enough.
    a_pool_of_a_device_without_a_context_is_given_back {
        kind: Budget, defects: ["C9", "C10"], machine: "rtx6000-ada*2", needs_gpus: 2, budget: "0=4GiB,1=4GiB",
        entry_points: ["cuMemPoolCreate", "cuMemPoolDestroy", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuCtxSynchronize", "cuMemAlloc_v2"],
    } (session) {
        let cuda = cuda()?;
        let pool = cuda.create_pool(1);
        ensure_eq!(pool.code, OK, "cuMemPoolCreate on the second device");
        let large = cuda.allocate_from_pool(Stream::Legacy, pool.out, Bytes::gib(3).0);
        ensure_eq!(large.code, OK, "3 of 4 GiB there, in the first's stream");
        ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
        ensure_eq!(cuda.free_async(Stream::Legacy, large.out), OK, "cuMemFreeAsync");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        context(&cuda, 1)?;
        fills(fill(&cuda).bytes, budget(session, 1)?, CONTEXT_ROOM)
    }
}
