//! Every other way to device memory. Each promises 0 bytes over the budget; those that the enforcer does not close yet are
//! expected failures of `ours`, so that the work is visible.

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Session, cases, ensure_eq};

use crate::clients::{cuda, cuda_without_context};
use crate::ffi::cuda::{Cuda, Stream};
use crate::greed::{STEPS, budget, until_refused};

const OUT_OF_MEMORY: CUresult = CUresult::ERROR_OUT_OF_MEMORY;
const NOT_SUPPORTED: CUresult = CUresult::ERROR_NOT_SUPPORTED;

/// Takes by one route until refused: at most the budget, refused as a full card refuses.
fn closed(
    session: &Session,
    steps: &[Bytes],
    mut take: impl FnMut(u64) -> CUresult,
) -> Result<(), Failure> {
    let taken = until_refused(steps, |bytes| match take(bytes.0) {
        CUresult::SUCCESS => Ok(()),
        refused => Err(refused),
    });
    let budget = budget(session, 0)?;
    harness::ensure!(
        taken.bytes <= budget,
        "{} were granted under {budget}",
        taken.bytes
    );
    // A driver that lacks the route cannot be judged by it; its refusal must not pass for the enforcer's.
    harness::ensure!(
        !taken.refusals.contains(&NOT_SUPPORTED),
        "the driver does not support this route"
    );
    taken.refused_with(OUT_OF_MEMORY)
}

fn default_pool(cuda: &Cuda) -> Result<crate::ffi::cuda::Pool, Failure> {
    let pool = cuda.default_pool(0);
    ensure_eq!(pool.code, CUresult::SUCCESS, "cuDeviceGetDefaultMemPool");
    Ok(pool.out)
}

cases! {
    /// The device's default pool by cuMemAllocFromPoolAsync is no way past the budget.
    the_default_pool_is_no_way_past_the_budget {
        kind: Budget, defects: ["R1"], entry_points: ["cuMemAllocFromPoolAsync"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        let pool = default_pool(&cuda)?;
        closed(session, &STEPS, |bytes| cuda.allocate_from_pool(Stream::Legacy, pool, bytes).code)
    }

    /// Nor is a pool of the program's own.
    an_own_pool_is_no_way_past_the_budget {
        kind: Budget, defects: ["R1"], entry_points: ["cuMemPoolCreate", "cuMemAllocFromPoolAsync"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        let pool = cuda.create_pool(0);
        ensure_eq!(pool.code, CUresult::SUCCESS, "cuMemPoolCreate");
        closed(session, &STEPS, |bytes| cuda.allocate_from_pool(Stream::Legacy, pool.out, bytes).code)
    }

    /// Nor is the pool call of the per-thread stream.
    a_pool_on_the_threads_stream_is_no_way_past_the_budget {
        kind: Budget, defects: ["R1", "R4"], entry_points: ["cuMemAllocFromPoolAsync_ptsz"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        let pool = default_pool(&cuda)?;
        closed(session, &STEPS, |bytes| cuda.allocate_from_pool(Stream::PerThread, pool, bytes).code)
    }

    /// Arrays are device memory: they are charged.
    arrays_are_no_way_past_the_budget {
        kind: Budget, defects: ["R2"], entry_points: ["cuArrayCreate_v2"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        // 32-bit texels, 16,384 a row: 64 MiB are 1,024 rows.
        closed(session, &[Bytes::mib(64)], |bytes| cuda.create_array(16384, bytes / 4 / 16384))
    }

    /// Physical memory without an address (cuMemCreate) is charged from its creation.
    created_memory_is_no_way_past_the_budget {
        kind: Budget, defects: ["R5"], entry_points: ["cuMemCreate"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        closed(session, &STEPS, |bytes| cuda.create_memory(0, bytes).code)
    }

    /// The device runtime's malloc heap is device memory.
    the_malloc_heap_is_no_way_past_the_budget {
        kind: Budget, defects: ["R6"], entry_points: ["cuCtxSetLimit"], budget: "0=4GiB",
    } (_session) {
        const MALLOC_HEAP_SIZE: i32 = 2;
        let cuda = cuda()?;
        ensure_eq!(cuda.set_limit(MALLOC_HEAP_SIZE, Bytes::gib(6).0), OUT_OF_MEMORY, "a heap of 6 GiB under 4");
        Ok(())
    }

    /// So is the stack of every thread that can be resident (FINDINGS 10: 128 KiB took 16,896 MiB on an H200).
    the_stack_limit_is_no_way_past_the_budget {
        kind: Budget, defects: ["R14"], entry_points: ["cuCtxSetLimit"], budget: "0=4GiB",
    } (_session) {
        const STACK_SIZE: i32 = 0;
        let cuda = cuda()?;
        ensure_eq!(cuda.set_limit(STACK_SIZE, Bytes::kib(128).0), OUT_OF_MEMORY, "128 KiB a thread under 4 GiB");
        Ok(())
    }

    /// The unsuffixed call of 32-bit days is charged too. Its addresses end at 4 GiB on any card, hence the smaller budget.
    the_unsuffixed_call_is_no_way_past_the_budget {
        kind: Budget, defects: ["R7"], entry_points: ["cuCtxCreate", "cuMemAlloc"], budget: "0=2GiB",
    } (session) {
        let cuda = cuda_without_context()?;
        ensure_eq!(cuda.create_context_v1(0).code, CUresult::SUCCESS, "cuCtxCreate");
        closed(session, &STEPS, |bytes| cuda.allocate_v1(bytes as u32).code)
    }

    /// Managed memory is charged in full when it is created: oversubscription is refused.
    managed_memory_is_no_way_past_the_budget {
        kind: Budget, defects: ["R15"], entry_points: ["cuMemAllocManaged"], budget: "0=4GiB",
        on_real: No("a bare card lets managed memory exceed it, and would page"),
    } (session) {
        let cuda = cuda()?;
        closed(session, &STEPS, |bytes| cuda.allocate_managed(bytes).code)
    }

    /// Pitched allocations are charged by what their rows take.
    pitched_memory_is_no_way_past_the_budget {
        kind: Budget, defects: ["R7", "C6"], entry_points: ["cuMemAllocPitch_v2"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        closed(session, &STEPS, |bytes| cuda.allocate_pitch(1 << 20, bytes >> 20).code)
    }

    /// The library opened a second time, by its path, is the same library.
    a_second_opening_by_path_is_no_way_past_the_budget {
        kind: Budget, defects: ["R8"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB",
        on_real: No("the path of the mock's library"),
    } (session) {
        let first = cuda_without_context()?;
        crate::clients::context(&first, 0)?;
        let path = session.directory().join("lib/libcuda.so.1");
        let second = Cuda::open_as(&path.canonicalize()?.display().to_string(), crate::ffi::library::Visibility::Local)?;
        closed(session, &STEPS, |bytes| second.allocate(bytes).code)
    }
}
