//! Stream-ordered memory after it was freed: the pool keeps it until somebody waits, or trims.

use abi::cuda::CUresult;
use harness::{Bytes, cases, ensure_eq};

use crate::clients::{context, cuda, cuda_without_context, fill};
use crate::ffi::cuda::{Stream, Wait};
use crate::greed::{CONTEXT_ROOM, budget, fills};

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
}
