//! Pools that several processes hold, and pools that their device's contexts leave behind: what an H200 keeps of them is charged
//! (`fixtures/oracle/shared-pools-580.txt`).

use std::os::fd::OwnedFd;

use harness::{Bytes, Failure, Library, cases, ensure, ensure_eq, fail};

use super::objects::{Holder, OK, OUT_OF_MEMORY, SHARED, available, is_charged, is_given_back};
use crate::clients::{context, cuda, cuda_without_context, fill};
use crate::cuda::floor::Unseen;
use crate::ffi::cuda::{Cuda, Pool, Stream, UNTOUCHED};
use crate::greed::{CONTEXT_ROOM, VULKAN_ROOM, budget, fills};

fn exported(cuda: &Cuda, pool: Pool) -> Result<OwnedFd, Failure> {
    match cuda.export_pool(pool) {
        Ok(descriptor) => Ok(descriptor),
        Err(code) => fail!("cuMemPoolExportToShareableHandle answered {code:?}"),
    }
}

/// Frees in stream order and waits, then trims.
fn leaves(cuda: &Cuda, pool: Pool, address: u64) -> Result<(), Failure> {
    let freed = (cuda.free_async(Stream::Legacy, address), cuda.synchronize());
    ensure_eq!(freed, (OK, OK), "cuMemFreeAsync and a wait");
    ensure_eq!(cuda.trim_pool(pool, 0), OK, "cuMemPoolTrimTo");
    Ok(())
}

/// Half of what is shared, in a pool, its pointer exported.
fn lends_half(cuda: &Cuda, pool: Pool) -> Result<u64, Failure> {
    let half = cuda.allocate_from_pool(Stream::Legacy, pool, SHARED.0 / 2);
    let answers = (half.code, cuda.synchronize());
    ensure_eq!(answers, (OK, OK), "2 GiB of a pool");
    let data = cuda.export_pool_pointer(half.out);
    ensure_eq!(data.code, OK, "cuMemPoolExportPointer");
    Ok(half.out)
}

/// A pool's steps, in each of which little is in use.
pub(super) fn steps_in_pieces(cuda: &Cuda, pool: Pool, steps: u64) -> Result<(), Failure> {
    let mut large = Vec::new();
    for _ in 0..steps {
        for (bytes, goes) in [(Bytes::mib(30), true), (Bytes::mib(2), false)] {
            let block = cuda.allocate_from_pool(Stream::Legacy, pool, bytes.0);
            ensure_eq!(block.code, OK, "{bytes} of a pool");
            large.extend(Some(block.out).filter(|_| goes));
        }
    }
    for block in large {
        ensure_eq!(cuda.free_async(Stream::Legacy, block), OK, "cuMemFreeAsync");
    }
    Ok(())
}

fn fits_again(cuda: &Cuda, when: &str) -> Result<(), Failure> {
    let plain = cuda.allocate(SHARED.0);
    ensure_eq!(plain.code, OK, "4 GiB {when}");
    ensure_eq!(cuda.free(plain.out), OK, "cuMemFree_v2");
    Ok(())
}

cases! {
    /// What is kept of a destroyed pool of another process is in nobody's row: it hides nothing of a context that whoever imported it makes then.
    a_borrowed_pool_hides_nothing_of_a_context {
        kind: Budget, defects: ["R117"], budget: "0=4GiB",
        entry_points: ["cuMemPoolImportFromShareableHandle", "cuDevicePrimaryCtxRetain", "cuMemAlloc_v2"],
        needs: ["cuMemPoolImportFromShareableHandle"],
    } (session) {
        // Less than a context is charged at most.
        let bytes = Bytes::mib(480);
        let cuda = cuda_without_context()?;
        let mut maker = Holder::start(session)?;
        let (descriptor, _) = maker.lends_of(session, bytes)?;
        ensure_eq!(cuda.import_pool(&descriptor).code, OK, "cuMemPoolImportFromShareableHandle");
        drop(descriptor);
        maker.does("free-pool", OK)?;
        context(&cuda, 0)?;
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        let rest = budget(session, 0)?.saturating_sub(taken.bytes);
        ensure!(rest >= bytes, "{} of {} were granted beside a pool of {bytes}", taken.bytes, budget(session, 0)?);
        maker.0.finish()
    }

    /// An allocation of a pool that another process shares is neither charged nor refused where it is imported; freed there, as often as one
    /// likes, it stays its maker's, and it is given back when its maker frees it.
    an_imported_pool_pointer_is_its_makers {
        kind: Budget, defects: ["R9"], budget: "0=8GiB",
        entry_points: ["cuMemPoolImportFromShareableHandle", "cuMemPoolImportPointer", "cuMemFree_v2", "cuMemFreeAsync"],
    } (session) {
        let cuda = cuda()?;
        let (mut maker, mut other) = (Holder::start(session)?, Holder::start(session)?);
        other.allocates(Bytes::mib(2), OK)?;
        let (descriptor, data) = maker.lends(session)?;
        let before = available(&cuda)?;
        let pool = cuda.import_pool(&descriptor);
        ensure_eq!(pool.code, OK, "cuMemPoolImportFromShareableHandle");
        for ordered in [false, true] {
            let imported = cuda.import_pool_pointer(pool.out, data);
            ensure_eq!(imported.code, OK, "cuMemPoolImportPointer");
            ensure_eq!(available(&cuda)?, before, "free when it is imported");
            is_charged(&cuda, &mut other, "a pool holds and this process imported")?;
            let freed = match ordered {
                true => cuda.free_async(Stream::Legacy, imported.out),
                false => cuda.free(imported.out),
            };
            ensure_eq!((freed, cuda.synchronize()), (OK, OK), "a free where it was imported");
            ensure_eq!(available(&cuda)?, before, "free when it was freed where it was imported");
            is_charged(&cuda, &mut other, "a pool of another process holds")?;
        }
        ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy of an imported pool");
        drop(descriptor);
        maker.does("free-pool", OK)?;
        let plain = cuda.allocate(SHARED.0);
        ensure_eq!(plain.code, OK, "4 GiB when its maker freed it");
        ensure_eq!(cuda.free(plain.out), OK, "cuMemFree_v2");
        maker.0.finish()?;
        is_given_back(session, &cuda, &mut other)
    }

    /// What a dead process exported of its pool is charged as long as anybody holds the pool, by an import of it, by an import and a pointer, or
    /// by nothing but its descriptor, and no longer.
    a_dead_makers_pool_is_charged_as_long_as_it_is_held {
        kind: Budget, defects: ["R9", "P3"], budget: "0=8GiB",
        entry_points: ["cuMemPoolExportToShareableHandle", "cuMemPoolExportPointer", "cuMemPoolImportFromShareableHandle", "cuMemPoolImportPointer", "cuMemPoolDestroy"],
    } (session) {
        let cuda = cuda()?;
        let mut other = Holder::start(session)?;
        other.allocates(Bytes::mib(2), OK)?;
        for holds in ["an import", "a pointer's import", "a descriptor"] {
            let mut maker = Holder::start(session)?;
            let (descriptor, data) = maker.lends(session)?;
            if holds == "a descriptor" {
                maker.0.kill()?;
                is_charged(&cuda, &mut other, "the descriptor of a dead process's pool holds")?;
                drop(descriptor);
                fits_again(&cuda, "when the descriptor is closed")?;
                continue;
            }
            let pool = cuda.import_pool(&descriptor);
            ensure_eq!(pool.code, OK, "cuMemPoolImportFromShareableHandle");
            drop(descriptor);
            maker.0.kill()?;
            is_charged(&cuda, &mut other, "an import of a dead process's pool holds")?;
            if holds == "a pointer's import" {
                let pointer = cuda.import_pool_pointer(pool.out, data);
                ensure_eq!(pointer.code, OK, "cuMemPoolImportPointer after its maker's death");
                ensure_eq!(cuda.free(pointer.out), OK, "cuMemFree_v2 of an imported pointer");
                is_charged(&cuda, &mut other, "an import holds, its pointer freed")?;
            }
            ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy of an imported pool");
            fits_again(&cuda, "when the import is destroyed")?;
        }
        is_given_back(session, &cuda, &mut other)
    }

    /// What its maker exported of a pool, freed, trimmed and destroyed stays charged as long as a descriptor of the pool is open; allocated
    /// again it is charged once. (A request that could lie there reserves its room all the same: nobody tells that the driver will put it there.)
    what_a_pool_lends_stays_charged_when_it_is_freed_and_trimmed {
        kind: Budget, defects: ["R9", "R3"], budget: "0=8GiB",
        entry_points: ["cuMemPoolExportToShareableHandle", "cuMemPoolExportPointer", "cuMemPoolTrimTo", "cuMemPoolDestroy"],
    } (session) {
        let cuda = cuda()?;
        let mut other = Holder::start(session)?;
        other.allocates(Bytes::mib(2), OK)?;
        let pool = cuda.create_shared_pool(0);
        ensure_eq!(pool.code, OK, "cuMemPoolCreate");
        let descriptor = exported(&cuda, pool.out)?;
        let before = available(&cuda)?;
        for round in ["at first", "again"] {
            let mut taken = Vec::new();
            for _ in 0..2 {
                taken.push(lends_half(&cuda, pool.out)?);
            }
            ensure_eq!(available(&cuda)? + SHARED, before, "free when it is allocated, {round}");
            for address in taken {
                leaves(&cuda, pool.out, address)?;
            }
            ensure_eq!(available(&cuda)? + SHARED, before, "free when it is freed and trimmed, {round}");
            is_charged(&cuda, &mut other, "a pool lends")?;
        }
        ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
        is_charged(&cuda, &mut other, "the descriptor of a destroyed pool holds")?;
        drop(descriptor);
        fits_again(&cuda, "when the descriptor is closed")?;
        is_given_back(session, &cuda, &mut other)
    }

    /// It is in nobody's row, and explains nothing that the driver's row shows of its maker.
    what_a_pool_lends_hides_nothing_that_is_taken_unseen {
        kind: Budget, defects: ["R9", "F1"], budget: "0=8GiB", entry_points: ["cuMemPoolExportPointer", "cuMemPoolTrimTo", "cuMemAlloc_v2"],
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        let unseen = Bytes::gib(2);
        let cuda = cuda()?;
        let pool = cuda.create_shared_pool(0);
        ensure_eq!(pool.code, OK, "cuMemPoolCreate");
        let _descriptor = exported(&cuda, pool.out)?;
        let lent = cuda.allocate_from_pool(Stream::Legacy, pool.out, SHARED.0);
        ensure_eq!((lent.code, cuda.synchronize()), (OK, OK), "4 GiB of a pool");
        ensure_eq!(cuda.export_pool_pointer(lent.out).code, OK, "cuMemPoolExportPointer");
        leaves(&cuda, pool.out, lent.out)?;
        let driver = session.library(Library::MockIcd)?.display().to_string();
        let _unseen = Unseen::take(&driver, unseen)?;
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes + SHARED + unseen, budget(session, 0)?, CONTEXT_ROOM + VULKAN_ROOM)
    }

    /// Nor once that pool is destroyed, be it freed before or since, while something else of the pool lives on.
    what_a_destroyed_pool_lends_hides_nothing_that_is_taken_unseen {
        kind: Budget, defects: ["R128"], budget: "0=8GiB", entry_points: ["cuMemPoolExportPointer", "cuMemPoolDestroy", "cuMemFreeAsync", "cuMemAlloc_v2"],
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        let unseen = Bytes::gib(2);
        let cuda = cuda()?;
        let pool = cuda.create_shared_pool(0);
        ensure_eq!(pool.code, OK, "cuMemPoolCreate");
        let _descriptor = exported(&cuda, pool.out)?;
        let (before, since) = (lends_half(&cuda, pool.out)?, lends_half(&cuda, pool.out)?);
        ensure_eq!(cuda.allocate_from_pool(Stream::Legacy, pool.out, 4096).code, OK, "4 KiB of the pool");
        leaves(&cuda, pool.out, before)?;
        ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
        let freed = (cuda.free_async(Stream::Legacy, since), cuda.synchronize());
        ensure_eq!(freed, (OK, OK), "cuMemFreeAsync and a wait");
        let driver = session.library(Library::MockIcd)?.display().to_string();
        let _unseen = Unseen::take(&driver, unseen)?;
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes + SHARED + unseen, budget(session, 0)?, CONTEXT_ROOM + VULKAN_ROOM)
    }

    /// What another destroyed pool holds in pieces stays charged beside it.
    what_a_destroyed_pool_lends_hides_nothing_of_another {
        kind: Budget, defects: ["R128"], budget: "0=8GiB", entry_points: ["cuMemPoolExportPointer", "cuMemPoolDestroy", "cuMemAlloc_v2"],
    } (session) {
        const STEPS: u64 = 40;
        let cuda = cuda()?;
        let lender = cuda.create_shared_pool(0);
        ensure_eq!(lender.code, OK, "cuMemPoolCreate");
        let _descriptor = exported(&cuda, lender.out)?;
        let idle = lends_half(&cuda, lender.out)?;
        ensure_eq!(cuda.allocate_from_pool(Stream::Legacy, lender.out, 4096).code, OK, "4 KiB of the pool");
        leaves(&cuda, lender.out, idle)?;
        ensure_eq!(cuda.destroy_pool(lender.out), OK, "cuMemPoolDestroy");
        let pool = cuda.create_pool(0);
        ensure_eq!((pool.code, cuda.keep_in_pool(pool.out, u64::MAX)), (OK, OK), "a pool that keeps what is freed");
        steps_in_pieces(&cuda, pool.out, STEPS)?;
        ensure_eq!((cuda.destroy_pool(pool.out), cuda.synchronize()), (OK, OK), "cuMemPoolDestroy and a wait");
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        let pooled = SHARED.0 / 2 + Bytes::mib(32 * STEPS).0;
        fills(taken.bytes + Bytes(pooled), budget(session, 0)?, CONTEXT_ROOM + Bytes::mib(64))
    }

    /// A pool whose pointers nobody exported gives back what it frees, descriptors of it or not.
    a_pool_without_exported_pointers_lends_nothing {
        kind: Budget, defects: ["R9", "R3"], budget: "0=8GiB",
        entry_points: ["cuMemPoolExportToShareableHandle", "cuMemPoolTrimTo", "cuMemPoolDestroy"],
    } (session) {
        let cuda = cuda()?;
        let mut other = Holder::start(session)?;
        other.allocates(Bytes::mib(2), OK)?;
        let pool = cuda.create_shared_pool(0);
        ensure_eq!(pool.code, OK, "cuMemPoolCreate");
        let descriptor = exported(&cuda, pool.out)?;
        let taken = cuda.allocate_from_pool(Stream::Legacy, pool.out, SHARED.0);
        ensure_eq!(taken.code, OK, "4 GiB of a pool");
        leaves(&cuda, pool.out, taken.out)?;
        fits_again(&cuda, "when it is freed")?;
        ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
        drop(descriptor);
        is_given_back(session, &cuda, &mut other)
    }

    /// A pool whose maker is nobody in the ledger is charged to who imports its pointers, until the import is destroyed, and refused where it
    /// does not fit.
    a_strangers_pool_is_charged_to_who_imports_its_pointers {
        kind: Budget, defects: ["R9"], budget: "0=8GiB",
        entry_points: ["cuMemPoolImportFromShareableHandle", "cuMemPoolImportPointer", "cuMemPoolDestroy"],
    } (session) {
        let cuda = cuda()?;
        let before = available(&cuda)?;
        let mut stranger = Holder::stranger(session)?;
        let mut other = Holder::start(session)?;
        other.allocates(Bytes::mib(2), OK)?;
        let (descriptor, data) = stranger.lends(session)?;
        let pool = cuda.import_pool(&descriptor);
        ensure_eq!(pool.code, OK, "cuMemPoolImportFromShareableHandle");
        other.borrows(session, &descriptor, data)?;
        let refused = cuda.import_pool_pointer(pool.out, data);
        ensure_eq!((refused.code, refused.out), (OUT_OF_MEMORY, UNTOUCHED), "4 GiB of 8 beside 4");
        other.0.finish()?;
        // A driver that is lost says so with the next question, not by never saying anything else. An H200 has 19 MiB of the other's context for
        // half a second after its end.
        session.eventually("what the other held is back", || {
            available(&cuda).map_or(true, |free| free + Bytes::mib(8) >= before)
        })?;
        let left = available(&cuda)?;
        for round in ["a first", "a second"] {
            let imported = cuda.import_pool_pointer(pool.out, data);
            ensure_eq!(imported.code, OK, "{round} cuMemPoolImportPointer");
            ensure_eq!(available(&cuda)? + SHARED, left, "free after {round} import");
            ensure_eq!((cuda.free(imported.out), cuda.synchronize()), (OK, OK), "cuMemFree_v2");
            ensure_eq!(available(&cuda)? + SHARED, left, "free when the pointer is freed, its pool imported");
        }
        ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy of an imported pool");
        ensure_eq!(available(&cuda)?, left, "free when the import is destroyed");
        stranger.0.finish()
    }

    /// No context's end takes anything of a pool or of cuMemCreate's memory (H200): it stays charged, once, and what lived in the pool can be
    /// freed in the next context.
    pools_and_physical_memory_outlive_their_devices_contexts {
        kind: Budget, defects: ["C10", "R3", "R5"], budget: "0=8GiB",
        entry_points: ["cuDevicePrimaryCtxReset_v2", "cuMemAllocAsync", "cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemCreate"],
    } (session) {
        const PLAIN: Bytes = Bytes::mib(512);
        let cuda = cuda_without_context()?;
        context(&cuda, 0)?;
        let pool = cuda.create_pool(0);
        ensure_eq!(pool.code, OK, "cuMemPoolCreate");
        let own = cuda.allocate_from_pool(Stream::Legacy, pool.out, SHARED.0);
        let plain = cuda.allocate_async(Stream::Legacy, PLAIN.0);
        let physical = cuda.create_memory(0, PLAIN.0);
        let codes = (own.code, plain.code, physical.code, cuda.synchronize());
        ensure_eq!(codes, (OK, OK, OK, OK), "4.5 GiB of two pools, and 512 MiB of cuMemCreate");
        let before = available(&cuda)?;
        for _ in 0..2 {
            ensure_eq!(cuda.reset_primary(0), OK, "cuDevicePrimaryCtxReset_v2");
            context(&cuda, 0)?;
            let after = available(&cuda)?;
            ensure!(
                after <= before + Bytes::mib(8) && before <= after + Bytes::mib(8),
                "{after} are free in the next context, {before} before"
            );
            ensure_eq!(cuda.allocate(SHARED.0).code, OUT_OF_MEMORY, "4 GiB beside 5 that no context holds");
        }
        for address in [own.out, plain.out] {
            ensure_eq!(cuda.free_async(Stream::Legacy, address), OK, "cuMemFreeAsync in the next context");
        }
        ensure_eq!((cuda.synchronize(), cuda.destroy_pool(pool.out)), (OK, OK), "a wait, and cuMemPoolDestroy");
        ensure_eq!(cuda.release_memory(physical.out), OK, "cuMemRelease");
        let most = cuda.allocate((SHARED + PLAIN + PLAIN).0);
        ensure_eq!(most.code, OK, "5 GiB when it is freed");
        ensure_eq!(cuda.free(most.out), OK, "cuMemFree_v2");
        Ok(())
    }
}
