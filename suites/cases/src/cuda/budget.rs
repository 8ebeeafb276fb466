//! Allocating until refused.

use abi::cuda::CUresult;
use harness::{Bytes, cases, ensure, ensure_eq};

use crate::clients::{context, cuda, cuda_without_context, fill, fill_async};
use crate::ffi::cuda::Stream;
use crate::greed::{CONTEXT_ROOM, budget, fills};

const OUT_OF_MEMORY: CUresult = CUresult::ERROR_OUT_OF_MEMORY;

cases! {
    /// A tenant that allocates until refused holds no more than its budget, and no less than its budget without its
    /// context; what is over is refused with CUDA_ERROR_OUT_OF_MEMORY.
    cuda_allocates_to_the_budget {
        kind: Budget, defects: ["C10", "P1"], entry_points: ["cuMemAlloc_v2"], budget: "0=23552MiB",
    } (session) {
        let cuda = cuda()?;
        let taken = fill(&cuda);
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        taken.refused_with(OUT_OF_MEMORY)
    }

    /// Stream-ordered allocations draw on the same budget.
    cuda_allocates_async_to_the_budget {
        kind: Budget, defects: ["C10"], entry_points: ["cuMemAllocAsync"], budget: "0=23552MiB",
    } (session) {
        let cuda = cuda()?;
        let taken = fill_async(&cuda, Stream::Legacy);
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        taken.refused_with(OUT_OF_MEMORY)
    }

    /// So do those on the thread's own stream.
    cuda_allocates_async_on_the_threads_stream_to_the_budget {
        kind: Budget, defects: ["R4"], entry_points: ["cuMemAllocAsync_ptsz"], budget: "0=23552MiB",
    } (session) {
        let cuda = cuda()?;
        let taken = fill_async(&cuda, Stream::PerThread);
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        taken.refused_with(OUT_OF_MEMORY)
    }

    /// Plain and stream-ordered allocations together stay within one budget.
    plain_and_stream_ordered_allocations_share_the_budget {
        kind: Budget, defects: ["P1"], entry_points: ["cuMemAlloc_v2", "cuMemAllocAsync"], budget: "0=8GiB",
    } (session) {
        let cuda = cuda()?;
        let first = cuda.allocate_async(Stream::Legacy, Bytes::gib(3).0);
        ensure_eq!(first.code, CUresult::SUCCESS, "3 GiB, stream-ordered");
        let taken = fill(&cuda);
        fills(taken.bytes + Bytes::gib(3), budget(session, 0)?, CONTEXT_ROOM)?;
        taken.refused_with(OUT_OF_MEMORY)
    }

    /// A refused cuMemAlloc_v2 answers CUDA_ERROR_OUT_OF_MEMORY and leaves 0 behind, as a full card's driver does.
    a_refusal_looks_like_a_full_card {
        kind: Budget, defects: ["C3", "X1"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB",
    } (_session) {
        let cuda = cuda()?;
        let refused = cuda.allocate(Bytes::gib(5).0);
        ensure_eq!(refused.code, OUT_OF_MEMORY, "5 GiB of 4");
        ensure_eq!(refused.out, 0, "the pointer after a refusal");
        ensure_eq!(cuda.allocate(Bytes::gib(2).0).code, CUresult::SUCCESS, "2 GiB of 4 after a refusal");
        Ok(())
    }

    /// However many allocations live at a time, it is bytes that a budget limits.
    a_budget_limits_bytes_and_not_how_many_allocations_there_are {
        kind: Budget, defects: ["C11"], entry_points: ["cuMemAlloc_v2", "cuMemFree_v2"], budget: "0=2GiB",
    } (session) {
        let cuda = cuda()?;
        let mut held = Vec::new();
        for count in 0..360_000 {
            let one = cuda.allocate(512);
            ensure_eq!(one.code, CUresult::SUCCESS, "512 bytes beside {count} times as much");
            held.push(one.out);
        }
        for pointer in held {
            ensure_eq!(cuda.free(pointer), CUresult::SUCCESS, "cuMemFree_v2");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// What was freed can be had again, as often as one likes, and never more than that.
    freed_memory_can_be_had_again {
        kind: Budget, defects: ["C2"], entry_points: ["cuMemAlloc_v2", "cuMemFree_v2"], budget: "0=6GiB",
    } (session) {
        let cuda = cuda()?;
        let first = fill(&cuda);
        fills(first.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        let mut held = first.held;
        for round in 0..5 {
            for pointer in held.drain(..) {
                ensure_eq!(cuda.free(pointer), CUresult::SUCCESS, "cuMemFree_v2");
            }
            let again = fill(&cuda);
            ensure_eq!(again.bytes, first.bytes, "granted after round {round} of freeing everything");
            held = again.held;
        }
        Ok(())
    }

    /// The same by stream-ordered allocations: once freed and synchronised, they can be had again.
    freed_stream_ordered_memory_can_be_had_again {
        kind: Budget, defects: ["C2"], entry_points: ["cuMemAllocAsync", "cuMemFreeAsync"], budget: "0=6GiB",
    } (session) {
        let cuda = cuda()?;
        let first = fill_async(&cuda, Stream::Legacy);
        fills(first.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        for pointer in first.held {
            ensure_eq!(cuda.free_async(Stream::Legacy, pointer), CUresult::SUCCESS, "cuMemFreeAsync");
        }
        ensure_eq!(cuda.synchronize(), CUresult::SUCCESS, "cuCtxSynchronize");
        let again = fill_async(&cuda, Stream::Legacy);
        fills(again.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// The driver gives cuMemAlloc 2 MiB blocks: 1 MiB and a byte costs a whole one, so that half the budget is the most
    /// that such requests add up to.
    small_allocations_are_charged_by_the_block {
        kind: Budget, defects: ["C10"], entry_points: ["cuMemAlloc_v2"], budget: "0=2GiB",
    } (session) {
        let cuda = cuda()?;
        let budget = budget(session, 0)?;
        // One more than the budget has blocks: what nobody refuses must end too.
        let most = budget.0 / Bytes::mib(2).0 + 1;
        let answers: Vec<_> = (0..most).map(|_| cuda.allocate(Bytes::mib(1).0 + 1).code).collect();
        let granted = answers.iter().filter(|&&answer| answer == CUresult::SUCCESS).count() as u64;
        fills(Bytes::mib(2 * granted), budget, CONTEXT_ROOM)?;
        ensure_eq!(answers.last(), Some(&OUT_OF_MEMORY), "the last request of {most}");
        Ok(())
    }

    /// Where the first of two one-byte allocations took a block, the second lies in the same and costs nothing.
    allocations_in_one_block_cost_one_block {
        kind: Neutral, defects: ["C10"], entry_points: ["cuMemAlloc_v2", "cuMemGetInfo_v2"], budget: "0=4GiB",
    } (_session) {
        let cuda = cuda()?;
        let free = || cuda.memory_info().out.0;
        let empty = free();
        let first = cuda.allocate(1);
        let one = free();
        let second = cuda.allocate(1);
        ensure_eq!((first.code, second.code), (CUresult::SUCCESS, CUresult::SUCCESS), "two bytes");
        ensure_eq!(second.out - first.out, 512, "the distance of two one-byte allocations");
        ensure_eq!(empty - one, Bytes::mib(2).0, "what the first byte took of the free memory");
        ensure_eq!(free(), one, "the free memory after the second byte");
        ensure_eq!(cuda.free(first.out), CUresult::SUCCESS, "cuMemFree_v2");
        ensure_eq!(free(), one, "the free memory while one of the two is left");
        ensure_eq!(cuda.free(second.out), CUresult::SUCCESS, "cuMemFree_v2");
        ensure_eq!(free(), empty, "the free memory after both are gone");
        Ok(())
    }

    /// A budget that cannot hold one context grants no allocation.
    a_budget_below_one_context_grants_no_allocation {
        kind: Budget, defects: ["C10"], entry_points: ["cuMemAlloc_v2", "cuMemAllocAsync"], budget: "0=256MiB",
        unaccounted: "the context itself is beyond the budget where its creation is not refused",
    } (_session) {
        let cuda = cuda_without_context()?;
        let retained = cuda.retain_primary(0);
        if retained.code == OUT_OF_MEMORY {
            return Ok(());
        }
        ensure_eq!(retained.code, CUresult::SUCCESS, "cuDevicePrimaryCtxRetain");
        cuda.set_current(retained.out);
        ensure_eq!(cuda.allocate(1).code, OUT_OF_MEMORY, "one byte beside a context beyond the budget");
        let async_answer = cuda.allocate_async(Stream::Legacy, 1);
        ensure_eq!(async_answer.code, OUT_OF_MEMORY, "one byte in stream order");
        Ok(())
    }

    /// A context that does not fit the budget is refused, so that the device never holds more for the tenant.
    a_context_beyond_the_budget_is_refused {
        kind: Budget, defects: ["C10"], entry_points: ["cuDevicePrimaryCtxRetain"], budget: "0=256MiB",
    } (_session) {
        let cuda = cuda_without_context()?;
        ensure_eq!(cuda.retain_primary(0).code, OUT_OF_MEMORY, "a context of 524 MiB under 256 MiB");
        Ok(())
    }

    /// A second context is charged like the first: what is left to allocate shrinks by it.
    every_context_is_charged {
        kind: Budget, defects: ["C10"], entry_points: ["cuCtxCreate_v2", "cuMemAlloc_v2"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda_without_context()?;
        for number in 0..3 {
            ensure_eq!(cuda.create_context(0).code, CUresult::SUCCESS, "context {number}");
        }
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        let budget = budget(session, 0)?;
        // Three contexts of a real card's driver take over 1.2 GiB.
        ensure!(
            taken.bytes + Bytes::mib(1200) <= budget,
            "{} were granted beside three contexts under {budget}", taken.bytes
        );
        fills(taken.bytes, budget, Bytes(3 * CONTEXT_ROOM.0))
    }

    /// A destroyed context gives its memory back to the budget.
    a_destroyed_context_gives_its_charge_back {
        kind: Budget, defects: ["C10"], entry_points: ["cuCtxCreate_v2", "cuCtxDestroy_v2"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda_without_context()?;
        for round in 0..12 {
            let created = cuda.create_context(0);
            ensure_eq!(created.code, CUresult::SUCCESS, "context of round {round}");
            ensure_eq!(cuda.allocate(Bytes::gib(2).0).code, CUresult::SUCCESS, "2 GiB in round {round}");
            ensure_eq!(cuda.destroy_context(created.out), CUresult::SUCCESS, "cuCtxDestroy_v2");
        }
        context(&cuda, 0)?;
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }
}
