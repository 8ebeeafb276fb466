//! Stream-ordered memory after it was freed: the pool keeps it until somebody waits, or trims.

use abi::cuda::CUresult;
use harness::{Bytes, cases, ensure_eq, skip};

use crate::clients::{context, cuda, cuda_without_context, fill, fill_async};
use crate::ffi::cuda::{Cuda, MISSING, Stream, Wait};
use crate::greed::{CONTEXT_ROOM, STEPS, budget, fills, until_refused};

const OK: CUresult = CUresult::SUCCESS;

cases! {
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
        budget: "0=4GiB", on_real: No("a bare card lets managed memory exceed it, and would page"),
    } (session) {
        /// A device keeps 128 MiB for managed memory, from the first byte on.
        const ROOM: Bytes = Bytes(CONTEXT_ROOM.0 + Bytes::mib(128).0);
        let cuda = cuda()?;
        for pool in [Cuda::managed_pool, Cuda::current_managed_pool, Cuda::create_managed_pool] {
            let pool = pool(&cuda, 0);
            if pool.code == MISSING {
                skip!("drivers before CUDA 13 have no pools of managed memory by location");
            }
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
}
