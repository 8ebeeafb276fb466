//! Every other way to device memory. Each promises 0 bytes over the budget.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq};

use mock_device::DeviceIndex;

use crate::clients::{cuda, cuda_without_context};
use crate::ffi::cuda::{Answer, Cuda, Stream};
use crate::ffi::library::Visibility;
use crate::ffi::process::{Ending, in_fork};
use crate::greed::{CONTEXT_ROOM, STEPS, budget, fills, until_refused};

pub const OUT_OF_MEMORY: CUresult = CUresult::ERROR_OUT_OF_MEMORY;
const NOT_SUPPORTED: CUresult = CUresult::ERROR_NOT_SUPPORTED;

/// Takes by one route until refused: at most the budget and at least half of it (X1), refused as a full card refuses.
pub fn closed(
    session: &Session,
    steps: &[Bytes],
    mut take: impl FnMut(u64) -> CUresult,
) -> Result<(), Failure> {
    let taken = until_refused(steps, |bytes| match take(bytes.0) {
        CUresult::SUCCESS => Ok(()),
        refused => Err(refused),
    });
    let budget = budget(session, 0)?;
    ensure!(
        taken.bytes <= budget,
        "{} were granted under {budget}",
        taken.bytes
    );
    ensure!(
        taken.bytes + taken.bytes >= budget,
        "only {} were granted under {budget}",
        taken.bytes
    );
    // A driver that lacks the route cannot be judged by it; its refusal must not pass for the enforcer's.
    ensure!(
        !taken.refusals.contains(&NOT_SUPPORTED),
        "the driver does not support this route"
    );
    taken.refused_with(OUT_OF_MEMORY)
}

/// A 32-bit context, in which alone the unsuffixed calls work.
pub fn narrow() -> Result<Cuda, Failure> {
    let cuda = cuda_without_context()?;
    ensure_eq!(
        cuda.create_context_v1(0).code,
        CUresult::SUCCESS,
        "cuCtxCreate"
    );
    Ok(cuda)
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

    /// The device runtime's malloc heap is device memory.
    the_malloc_heap_is_no_way_past_the_budget {
        kind: Budget, defects: ["R6"], entry_points: ["cuCtxSetLimit"], budget: "0=4GiB",
    } (_session) {
        const MALLOC_HEAP_SIZE: i32 = 2;
        let cuda = cuda()?;
        ensure_eq!(cuda.set_limit(MALLOC_HEAP_SIZE, Bytes::gib(1).0), CUresult::SUCCESS, "a heap of 1 GiB under 4");
        ensure_eq!(cuda.set_limit(MALLOC_HEAP_SIZE, Bytes::gib(6).0), OUT_OF_MEMORY, "a heap of 6 GiB under 4");
        Ok(())
    }

    /// So is the stack of every thread that can be resident (decision 10: 128 KiB took 16,896 MiB on an H200).
    the_stack_limit_is_no_way_past_the_budget {
        kind: Budget, defects: ["R14"], entry_points: ["cuCtxSetLimit"], budget: "0=4GiB",
    } (_session) {
        const STACK_SIZE: i32 = 0;
        let cuda = cuda()?;
        ensure_eq!(cuda.set_limit(STACK_SIZE, Bytes::kib(2).0), CUresult::SUCCESS, "2 KiB a thread under 4 GiB");
        ensure_eq!(cuda.set_limit(STACK_SIZE, Bytes::kib(128).0), OUT_OF_MEMORY, "128 KiB a thread under 4 GiB");
        Ok(())
    }

    /// Rows of 32-bit days too.
    the_unsuffixed_pitch_call_is_no_way_past_the_budget {
        kind: Budget, defects: ["R7"], entry_points: ["cuCtxCreate", "cuMemAllocPitch"], budget: "0=2GiB",
    } (session) {
        let cuda = narrow()?;
        closed(session, &STEPS, |bytes| cuda.allocate_pitch_v1(1 << 20, (bytes >> 20) as u32).code)
    }

    /// What an unsuffixed free gives back can be had again, and no more.
    an_unsuffixed_free_gives_back_what_was_taken {
        kind: Budget, defects: ["R7"], entry_points: ["cuMemAlloc", "cuMemFree"], budget: "0=2GiB",
    } (session) {
        let cuda = narrow()?;
        let take = |bytes: Bytes| cuda.allocate_v1(bytes.0 as u32).granted();
        let first = until_refused(&STEPS, take);
        first.refused_with(OUT_OF_MEMORY)?;
        for pointer in &first.held {
            ensure_eq!(cuda.free_v1(*pointer), CUresult::SUCCESS, "cuMemFree");
        }
        let second = until_refused(&STEPS, take);
        second.refused_with(OUT_OF_MEMORY)?;
        ensure_eq!(second.bytes, first.bytes, "what was granted the second time");
        fills(second.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// The unsuffixed answers tell the budget too.
    the_unsuffixed_answers_tell_the_budget {
        kind: Budget, defects: ["R7", "T4"], entry_points: ["cuDeviceTotalMem", "cuMemGetInfo"], budget: "0=2GiB",
    } (session) {
        let cuda = narrow()?;
        let budget = budget(session, 0)?;
        let total = cuda.total_memory_v1(0);
        ensure_eq!((total.code, u64::from(total.out)), (CUresult::SUCCESS, budget.0), "cuDeviceTotalMem");
        let info = cuda.memory_info_v1();
        let (free, told) = info.out;
        ensure_eq!((info.code, u64::from(told)), (CUresult::SUCCESS, budget.0), "cuMemGetInfo's total");
        let mib = |bytes: u32| Bytes(u64::from(bytes));
        ensure!(mib(free) + CONTEXT_ROOM >= budget && free < told, "{free} bytes free of {told}");
        let block = cuda.allocate_v1(Bytes::mib(64).0 as u32);
        ensure_eq!(block.code, CUresult::SUCCESS, "64 MiB");
        ensure_eq!(mib(free - cuda.memory_info_v1().out.0), Bytes::mib(64), "what 64 MiB took of the free memory");
        Ok(())
    }

    /// What a limit was raised to is charged until it is lowered, and the driver's own bounds are kept.
    a_lowered_limit_is_charged_no_longer {
        kind: Budget, defects: ["R6", "R14"], entry_points: ["cuCtxSetLimit", "cuMemAlloc_v2"], budget: "0=4GiB",
    } (session) {
        const MALLOC_HEAP_SIZE: i32 = 2;
        let cuda = cuda()?;
        for _ in 0..3 {
            ensure_eq!(cuda.set_limit(MALLOC_HEAP_SIZE, Bytes::gib(2).0), CUresult::SUCCESS, "a heap of 2 GiB under 4");
            ensure_eq!(cuda.allocate(Bytes::gib(2).0).code, OUT_OF_MEMORY, "2 GiB beside it");
            ensure_eq!(cuda.set_limit(MALLOC_HEAP_SIZE, Bytes::gib(6).0), OUT_OF_MEMORY, "a heap of 6 GiB");
            ensure_eq!(cuda.set_limit(MALLOC_HEAP_SIZE, Bytes::mib(8).0), CUresult::SUCCESS, "a heap of 8 MiB");
            let plain = cuda.allocate(Bytes::gib(2).0);
            ensure_eq!(plain.code, CUresult::SUCCESS, "2 GiB beside a small heap");
            ensure_eq!(cuda.free(plain.out), CUresult::SUCCESS, "cuMemFree_v2");
        }
        fills(crate::clients::fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// The unsuffixed call of 32-bit days is charged too. Its addresses end at 4 GiB on any card, hence the smaller budget.
    the_unsuffixed_call_is_no_way_past_the_budget {
        kind: Budget, defects: ["R7"], entry_points: ["cuCtxCreate", "cuMemAlloc"], budget: "0=2GiB",
    } (session) {
        let cuda = narrow()?;
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

    /// A device keeps 128 MiB for managed memory, which it takes when the first of it is touched and has no context's end give back (H200): they
    /// are charged when the first of it is created, once, and what is granted can be touched to the last byte.
    what_a_device_keeps_for_managed_memory_is_charged {
        kind: Budget, defects: ["R15", "C10"], entry_points: ["cuMemAllocManaged", "cuMemFree_v2", "cuDevicePrimaryCtxReset_v2"], budget: "0=2GiB",
        on_real: No("a bare card lets managed memory exceed it, and would page"),
    } (session) {
        const KEPT: Bytes = Bytes::mib(128);
        let cuda = cuda_without_context()?;
        for (round, comes) in [("at first", KEPT), ("after a reset", Bytes::ZERO)] {
            crate::clients::context(&cuda, 0)?;
            let free = || Bytes(cuda.memory_info_free().out);
            let before = free();
            ensure!(before <= budget(session, 0)?, "{before} are free under a budget of {}", budget(session, 0)?);
            let first = cuda.allocate_managed(Bytes::mib(2).0);
            ensure_eq!(first.code, CUresult::SUCCESS, "2 MiB of managed memory");
            ensure_eq!(free() + comes + Bytes::mib(2), before, "free beside the first managed memory, {round}");
            let taken = until_refused(&STEPS, |bytes| {
                cuda.allocate_managed(bytes.0).granted().map(|pointer| (pointer, bytes))
            });
            taken.refused_with(OUT_OF_MEMORY)?;
            fills(taken.bytes + Bytes::mib(2) + KEPT, budget(session, 0)?, CONTEXT_ROOM)?;
            // A byte brings its block of 2 MiB.
            for (pointer, bytes) in taken.held {
                for block in (0..bytes.0).step_by(2 << 20) {
                    ensure_eq!(cuda.set_bytes(pointer + block, 7, 1), CUresult::SUCCESS, "cuMemsetD8_v2");
                }
            }
            ensure_eq!(cuda.synchronize(), CUresult::SUCCESS, "cuCtxSynchronize");
            let held = session.world()?.used(DeviceIndex(0));
            ensure!(held <= budget(session, 0)?, "{held} are held under a budget of {}", budget(session, 0)?);
            ensure_eq!(cuda.reset_primary(0), CUresult::SUCCESS, "cuDevicePrimaryCtxReset_v2");
        }
        crate::clients::context(&cuda, 0)?;
        fills(crate::clients::fill(&cuda).bytes + KEPT, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Managed memory of one thread and device memory of others have each other's addresses in turn, and are charged as what they are.
    managed_memory_beside_other_threads_uses_up_no_budget {
        kind: Budget, defects: ["R93"], entry_points: ["cuMemAllocManaged", "cuMemAlloc_v2", "cuMemFree_v2"], budget: "0=2GiB",
        on_real: No("a bare card lets managed memory exceed it, and would page"), unordered: "threads race",
    } (session) {
        let cuda = cuda()?;
        let current = crate::clients::context(&cuda, 0)?;
        // What a device keeps for managed memory comes with the first.
        let first = cuda.allocate_managed(Bytes::mib(2).0);
        ensure_eq!((first.code, cuda.free(first.out)), (CUresult::SUCCESS, CUresult::SUCCESS), "2 MiB of managed memory");
        let before = cuda.memory_info_free().out;
        let end = Instant::now() + Duration::from_secs(3);
        let again = |take: &dyn Fn() -> Answer<u64>| {
            cuda.set_current(current);
            while Instant::now() < end {
                take().granted().into_iter().for_each(|address| _ = cuda.free(address));
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| again(&|| cuda.allocate_managed(Bytes::mib(2).0)));
            for _ in 0..3 {
                scope.spawn(|| again(&|| cuda.allocate(Bytes::mib(2).0)));
            }
        });
        fills(crate::clients::fill(&cuda).bytes + (budget(session, 0)? - Bytes(before)), budget(session, 0)?, Bytes::mib(6))
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
        let second = Cuda::open_as(&path.canonicalize()?.display().to_string(), Visibility::Local)?;
        closed(session, &STEPS, |bytes| second.allocate(bytes).code)
    }

    /// Once a driver is in use a copy of its file, opened by its own path, is the same to the budget, or is not to be had.
    a_copy_of_the_driver_beside_it_is_no_way_past_the_budget {
        kind: Budget, defects: ["R40"], entry_points: ["dlsym", "cuInit", "cuMemAlloc_v2"], budget: "0=4GiB",
        on_real: No("the path of the mock's library"),
    } (session) {
        let (driver, copy) = driver_and_copy(session)?;
        held_together(session, &driver, &copy)
    }

    /// In a child of that process too, which the first driver refuses and the copy would not.
    a_copy_of_the_driver_is_no_way_past_the_budget_for_a_child {
        kind: Budget, defects: ["R45", "R40"], entry_points: ["dlsym", "cuInit", "cuMemAlloc_v2"], budget: "0=4GiB",
        on_real: No("the path of the mock's library"),
    } (session) {
        let (driver, copy) = driver_and_copy(session)?;
        let budget = budget(session, 0)?;
        let parents = Cuda::open_as(&driver.display().to_string(), Visibility::Local)?;
        ensure_eq!(parents.init(), CUresult::SUCCESS, "cuInit of the first");
        let past = || {
            let Ok(cuda) = Cuda::open_as(&copy.display().to_string(), Visibility::Local) else {
                return 101;
            };
            if cuda.init() == CUresult::SUCCESS {
                cuda.set_current(cuda.retain_primary(0).out);
            }
            u8::from(until_refused(&STEPS, |bytes| cuda.allocate(bytes.0).granted()).bytes > budget)
        };
        ensure_eq!(in_fork(60, past)?, Ending::Exit(0), "a child with a copy: 1 where more than {budget} is granted");
        crate::clients::context(&parents, 0)?;
        closed(session, &STEPS, |bytes| parents.allocate(bytes).code)
    }

    /// And so is the driver's own file where another library of its name came first.
    the_driver_behind_another_of_its_name_is_no_way_past_the_budget {
        kind: Budget, defects: ["R40"], entry_points: ["dlsym", "cuInit", "cuMemAlloc_v2"], budget: "0=4GiB",
        on_real: No("the path of the mock's library"),
    } (session) {
        let (driver, copy) = driver_and_copy(session)?;
        held_together(session, &copy, &driver)
    }
}

/// The path of the driver's file, and that of a copy.
fn driver_and_copy(session: &Session) -> Result<(PathBuf, PathBuf), Failure> {
    let driver = session
        .directory()
        .join("lib/libcuda.so.1")
        .canonicalize()?;
    let copy = session.directory().join("another-driver.so");
    std::fs::copy(&driver, &copy)?;
    Ok((driver, copy))
}

/// Two drivers of one name in a process, used one after the other: what the second grants is within the budget, and the first still grants it.
fn held_together(session: &Session, first: &Path, second: &Path) -> Result<(), Failure> {
    let open = |path: &Path| Cuda::open_as(&path.display().to_string(), Visibility::Local);
    let (first, budget) = (open(first)?, budget(session, 0)?);
    ensure_eq!(first.init(), CUresult::SUCCESS, "cuInit of the first");
    let second = open(second)?;
    if second.init() == CUresult::SUCCESS {
        let context = second.retain_primary(0);
        second.set_current(context.out);
    }
    let taken = until_refused(&STEPS, |bytes| second.allocate(bytes.0).granted());
    ensure!(
        taken.bytes <= budget,
        "the second granted {} under {budget}",
        taken.bytes
    );
    for memory in taken.held {
        second.free(memory);
    }
    crate::clients::context(&first, 0)?;
    closed(session, &STEPS, |bytes| first.allocate(bytes).code)
}
