//! Freeing, rightly and wrongly.

use abi::cuda::CUresult;
use harness::{Bytes, cases, ensure_eq};

use crate::clients::{cuda, fill};
use crate::ffi::cuda::Stream;
use crate::greed::{CONTEXT_ROOM, budget, fills};

const OK: CUresult = CUresult::SUCCESS;
const INVALID_VALUE: CUresult = CUresult::ERROR_INVALID_VALUE;

cases! {
    /// A second free, a free of an interior address and of one that nobody gave get the driver's answer.
    wrong_frees_get_the_drivers_answer {
        defects: ["C2"], entry_points: ["cuMemFree_v2"], budget: "0=4GiB",
    } (_session) {
        let cuda = cuda()?;
        let pointer = cuda.allocate(Bytes::mib(64).0).out;
        ensure_eq!(cuda.free(pointer + 512), INVALID_VALUE, "an interior address");
        ensure_eq!(cuda.free(pointer), OK, "the first free");
        ensure_eq!(cuda.free(pointer), INVALID_VALUE, "the second free");
        ensure_eq!(cuda.free(0x1000), INVALID_VALUE, "an address nobody gave");
        Ok(())
    }

    /// Wrong frees give nothing back: afterwards exactly what was really freed can be had.
    wrong_frees_give_nothing_back {
        kind: Budget, defects: ["C2", "V13"], entry_points: ["cuMemFree_v2", "cuMemFreeAsync"], budget: "0=10GiB",
    } (session) {
        let cuda = cuda()?;
        let kept = cuda.allocate(Bytes::gib(4).0).out;
        let freed = cuda.allocate(Bytes::gib(4).0).out;
        ensure_eq!(cuda.free(freed), OK, "the first free");
        for _ in 0..4 {
            ensure_eq!(cuda.free(freed), INVALID_VALUE, "a repeated free");
            ensure_eq!(cuda.free(kept + 4096), INVALID_VALUE, "an interior address");
        }
        let taken = fill(&cuda);
        fills(taken.bytes + Bytes::gib(4), budget(session, 0)?, CONTEXT_ROOM)
    }

    /// cuMemFree takes what cuMemAllocAsync gave and the other way round, and both give the charge back.
    either_free_takes_either_pointer {
        kind: Budget, defects: ["C2"], budget: "0=6GiB",
        entry_points: ["cuMemFree_v2", "cuMemFreeAsync", "cuMemFreeAsync_ptsz", "cuMemAlloc_v2", "cuMemAllocAsync"],
    } (session) {
        let cuda = cuda()?;
        for round in 0..4 {
            let plain = cuda.allocate(Bytes::gib(2).0);
            let ordered = cuda.allocate_async(Stream::Legacy, Bytes::gib(2).0);
            ensure_eq!((plain.code, ordered.code), (OK, OK), "2 + 2 GiB in round {round}");
            ensure_eq!(cuda.free_async(Stream::PerThread, plain.out), OK, "cuMemFreeAsync_ptsz of a plain pointer");
            ensure_eq!(cuda.free(ordered.out), OK, "cuMemFree_v2 of a stream-ordered pointer");
            ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Resetting the primary context returns all that was allocated in it.
    a_reset_context_gives_everything_back {
        kind: Budget, defects: ["C10"], entry_points: ["cuDevicePrimaryCtxReset_v2", "cuMemAlloc_v2"], budget: "0=6GiB",
    } (session) {
        let cuda = cuda()?;
        let first = fill(&cuda);
        fills(first.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        ensure_eq!(cuda.reset_primary(0), OK, "cuDevicePrimaryCtxReset_v2");
        crate::clients::context(&cuda, 0)?;
        let again = fill(&cuda);
        fills(again.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }
}
