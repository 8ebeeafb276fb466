//! Physical memory (cuMemCreate): charged from its creation until nothing holds it.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use abi::cuda::CUresult;
use harness::{Bytes, Failure, cases, ensure, ensure_eq, fail};

use super::routes::{OUT_OF_MEMORY, closed};
use crate::clients::{context, cuda, cuda_without_context, fill};
use crate::ffi::cuda::{Cuda, Purpose, Stream};
use crate::greed::{CONTEXT_ROOM, STEPS, budget, fills};

const OK: CUresult = CUresult::SUCCESS;

const HALF: Bytes = Bytes::gib(3);
const LITTLE: Bytes = Bytes::mib(128);

/// 3 GiB beside 3 GiB that are charged, under a budget of 4 or 5.
fn is_charged(cuda: &Cuda, what: &str) -> Result<(), Failure> {
    ensure_eq!(
        cuda.allocate(HALF.0).code,
        OUT_OF_MEMORY,
        "3 GiB beside memory that {what}"
    );
    Ok(())
}

/// Beside it are room for a context and a little: refusing looks at NVML's row, and finds nothing that is not charged.
fn is_charged_once(cuda: &Cuda, what: &str) -> Result<(), Failure> {
    is_charged(cuda, what)?;
    let little = cuda.allocate(LITTLE.0);
    ensure_eq!(little.code, OK, "{LITTLE} beside memory that {what}");
    ensure_eq!(cuda.free(little.out), OK, "cuMemFree_v2");
    Ok(())
}

/// Device memory, and what becomes of it: freed, and nothing but dma-bufs of all of it left.
type Leave = fn(&Cuda, u64) -> Result<Vec<OwnedFd>, CUresult>;

fn leave_plain(cuda: &Cuda, bytes: u64) -> Result<Vec<OwnedFd>, CUresult> {
    let address = cuda.allocate(bytes).granted()?;
    let descriptor = cuda.export_range(address, bytes);
    cuda.free(address);
    descriptor.map(|descriptor| vec![descriptor])
}

fn leave_pooled(cuda: &Cuda, bytes: u64) -> Result<Vec<OwnedFd>, CUresult> {
    leave_of_pool(cuda, bytes, bytes)
}

/// A dma-buf of a block of each of its pool's steps in the first `part`.
fn leave_of_pool(cuda: &Cuda, bytes: u64, part: u64) -> Result<Vec<OwnedFd>, CUresult> {
    let address = cuda.allocate_async(Stream::Legacy, bytes).granted()?;
    let steps = (0..part).step_by(STEP.0 as usize);
    let descriptors = steps.map(|at| cuda.export_range(address + at, BLOCK.0));
    let descriptors: Result<Vec<OwnedFd>, CUresult> = descriptors.collect();
    cuda.free_async(Stream::Legacy, address);
    cuda.synchronize();
    descriptors
}

fn leave_physical(cuda: &Cuda, bytes: u64) -> Result<Vec<OwnedFd>, CUresult> {
    let memory = cuda.create_memory(0, bytes).granted()?;
    let descriptor = cuda.reserve_addresses(bytes).granted().and_then(|address| {
        cuda.map_memory(address, bytes, memory);
        let descriptor = cuda.export_range(address, bytes);
        cuda.unmap_memory(address, bytes);
        cuda.give_addresses_back(address, bytes);
        descriptor
    });
    cuda.release_memory(memory);
    descriptor.map(|descriptor| vec![descriptor])
}

/// Half a GiB after another until one is refused.
fn left_behind(cuda: &Cuda, leave: Leave) -> Result<Vec<Vec<OwnedFd>>, Failure> {
    let mut left = Vec::new();
    loop {
        match leave(cuda, RANGE.0) {
            Ok(descriptors) => left.push(descriptors),
            Err(code) => {
                ensure_eq!(
                    code,
                    OUT_OF_MEMORY,
                    "after {} dma-bufs of {RANGE}",
                    left.len()
                );
                return Ok(left);
            }
        }
        ensure!(left.len() < 64, "64 dma-bufs of {RANGE} were left behind");
    }
}

const RANGE: Bytes = Bytes::mib(512);
const BLOCK: Bytes = Bytes::mib(2);
/// Of a pool.
const STEP: Bytes = Bytes::mib(32);

cases! {
    /// One thread maps memory, another gets a handle of whatever is mapped there and lets go of it at once: the first handle holds it on.
    memory_that_is_retained_while_it_is_mapped_stays_charged {
        kind: Budget, defects: ["R132"], budget: "0=4GiB", entry_points: ["cuMemMap", "cuMemUnmap", "cuMemRetainAllocationHandle", "cuMemRelease"],
        unordered: "two threads race",
        on_real: No("H200, 580.159.04: bare, too, the driver dies of a SIGSEGV where one thread maps what another retains, 3 of 3"),
    } (session) {
        let cuda = cuda()?;
        let address = cuda.reserve_addresses(RANGE.0);
        ensure_eq!(address.code, OK, "cuMemAddressReserve");
        let made = cuda.create_memory(0, RANGE.0);
        ensure_eq!(made.code, OK, "cuMemCreate");
        let before = cuda.memory_info().out.0;
        let end = Instant::now() + Duration::from_secs(3);
        let retained = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut retained = 0_u32;
                while Instant::now() < end {
                    let handle = cuda.retain_memory(address.out);
                    if handle.code == OK {
                        ensure_eq!(cuda.release_memory(handle.out), OK, "cuMemRelease");
                        retained += 1;
                    }
                }
                Ok(retained)
            });
            while Instant::now() < end {
                ensure_eq!(cuda.map_memory(address.out, RANGE.0, made.out), OK, "cuMemMap");
                std::thread::yield_now();
                ensure_eq!(cuda.unmap_memory(address.out, RANGE.0), OK, "cuMemUnmap");
            }
            other.join().unwrap_or_else(|_| fail!("a thread panicked"))
        })?;
        ensure!(retained > 0, "nothing was retained");
        let after = cuda.memory_info().out.0;
        ensure!(after <= before + RANGE.0 / 2, "{} are told free with {RANGE} held, {} before", Bytes(after), Bytes(before));
        let rest = fill(&cuda).bytes;
        fills(rest + RANGE, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A dma-buf of device memory holds it as a handle does, however it was made: what was freed beside it stays charged.
    what_a_range_descriptor_keeps_is_charged {
        kind: Budget, defects: ["R43"], budget: "0=4GiB",
        entry_points: ["cuMemGetHandleForAddressRange", "cuMemFree_v2", "cuMemFreeAsync", "cuMemUnmap", "cuMemRelease"],
        needs: ["cuMemGetHandleForAddressRange"],
    } (session) {
        let cuda = cuda()?;
        // One of each, then as many as there are.
        let first = [leave_pooled, leave_physical, leave_plain].map(|leave: Leave| leave(&cuda, RANGE.0));
        ensure!(first.iter().all(Result::is_ok), "one dma-buf of each: {first:?}");
        let left = left_behind(&cuda, leave_plain)?;
        let kept = Bytes(RANGE.0 * (3 + left.len() as u64));
        let budget = budget(session, 0)?;
        ensure!(kept <= budget, "dma-bufs keep {kept} under {budget}");
        ensure!(kept >= budget - Bytes::gib(2), "dma-bufs keep only {kept} under {budget}");
        Ok(())
    }

    /// And is given back with the last of its dma-bufs.
    what_a_range_descriptor_kept_is_given_back_with_it {
        kind: Budget, defects: ["R43"], budget: "0=4GiB",
        entry_points: ["cuMemGetHandleForAddressRange", "cuMemFree_v2", "cuMemFreeAsync", "cuMemUnmap", "cuMemRelease"],
        needs: ["cuMemGetHandleForAddressRange"],
    } (session) {
        let cuda = cuda()?;
        for leave in [leave_plain, leave_physical, leave_pooled] {
            for _ in 0..2 {
                let left = left_behind(&cuda, leave)?;
                ensure!(left.len() >= 3, "only {} dma-bufs of {RANGE}", left.len());
            }
        }
        let taken = fill(&cuda);
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Of a pool's memory it holds what its range touches: the rest can be had again.
    what_a_range_descriptor_does_not_keep_of_a_pool_is_given_back {
        kind: Budget, defects: ["R43b"], budget: "0=4GiB",
        entry_points: ["cuMemGetHandleForAddressRange", "cuMemAllocAsync", "cuMemFreeAsync", "cuMemAlloc_v2"],
        needs: ["cuMemGetHandleForAddressRange"],
    } (session) {
        let cuda = cuda()?;
        let left = [(); 4].map(|()| leave_of_pool(&cuda, RANGE.0, STEP.0));
        ensure!(left.iter().all(Result::is_ok), "a dma-buf of {BLOCK} of {RANGE}, four times: {left:?}");
        let granted = fill(&cuda).bytes;
        fills(granted + Bytes(4 * STEP.0), budget(session, 0)?, CONTEXT_ROOM)
    }

    /// So does one that is made in a context of 32 bits, in which the driver tells nobody what lies around an address.
    what_a_range_descriptor_keeps_of_a_context_of_32_bits_is_charged {
        kind: Budget, defects: ["R43a"], budget: "0=4GiB",
        entry_points: ["cuCtxCreate", "cuMemGetHandleForAddressRange", "cuMemAllocAsync", "cuMemFreeAsync"],
        needs: ["cuMemGetHandleForAddressRange"],
        on_real: No("what a card's contexts of 32 bits export was not asked"),
    } (session) {
        let cuda = super::routes::narrow()?;
        let left = left_behind(&cuda, leave_pooled)?;
        let (kept, budget) = (Bytes(RANGE.0 * left.len() as u64), budget(session, 0)?);
        ensure!(kept <= budget, "dma-bufs keep {kept} under {budget}");
        ensure!(kept >= budget - Bytes::gib(2), "dma-bufs keep only {kept} under {budget}");
        Ok(())
    }

    /// An allocation that one thread frees while another makes a descriptor of it is not left with that, charged to nobody.
    a_range_descriptor_of_what_is_being_freed_is_no_way_past_the_budget {
        kind: Budget, defects: ["R43c"], budget: "0=2GiB", entry_points: ["cuMemGetHandleForAddressRange", "cuMemFree_v2", "cuMemAlloc_v2"],
        needs: ["cuMemGetHandleForAddressRange"], unordered: "threads race",
        faults: r#"fault = [{ at = "cuMemFree_v2", when = "1", then = "delay:300ms" }]"#,
    } (session) {
        let cuda = cuda()?;
        let current = context(&cuda, 0)?;
        let made = cuda.allocate(RANGE.0);
        ensure_eq!(made.code, OK, "{RANGE} of device memory");
        let (freed, descriptor) = std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                cuda.set_current(current);
                cuda.free(made.out)
            });
            std::thread::sleep(std::time::Duration::from_millis(100));
            let descriptor = cuda.export_range(made.out, RANGE.0);
            (other.join().unwrap_or(CUresult::ERROR_UNKNOWN), descriptor)
        });
        ensure_eq!(freed, OK, "cuMemFree_v2");
        let code = descriptor.as_ref().err().copied().unwrap_or(OK);
        ensure!(code == OK || code == CUresult::ERROR_INVALID_VALUE, "cuMemGetHandleForAddressRange: {code:?}");
        let kept = descriptor.as_ref().map_or(Bytes::ZERO, |_open| RANGE);
        fills(fill(&cuda).bytes + kept, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Of two threads that release a handle at once one is refused, and nothing stays charged.
    a_handle_that_two_threads_release_is_charged_no_longer {
        kind: Budget, defects: ["R95"], budget: "0=2GiB", entry_points: ["cuMemCreate", "cuMemRelease", "cuMemAlloc_v2"],
        faults: r#"fault = [{ at = "cuMemRelease", when = "1", then = "delay:300ms" }]"#, unordered: "threads race",
    } (session) {
        const MADE: Bytes = Bytes::gib(1);
        let cuda = cuda()?;
        let made = cuda.create_memory(0, MADE.0);
        ensure_eq!(made.code, OK, "{MADE} by cuMemCreate");
        let mut released = std::thread::scope(|scope| {
            let other = scope.spawn(|| cuda.release_memory(made.out));
            std::thread::sleep(std::time::Duration::from_millis(100));
            let own = cuda.release_memory(made.out);
            [own, other.join().unwrap_or(CUresult::ERROR_UNKNOWN)]
        });
        released.sort_by_key(|code| code.0);
        ensure_eq!(released, [OK, CUresult::ERROR_INVALID_VALUE], "cuMemRelease by two threads");
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// What was imported and is exported again is held by that descriptor, when everything else of it is gone.
    what_is_exported_again_stays_charged {
        kind: Budget, defects: ["R44"], budget: "0=4GiB",
        entry_points: ["cuMemExportToShareableHandle", "cuMemImportFromShareableHandle", "cuMemRelease"],
    } (session) {
        let cuda = cuda()?;
        let mut left = Vec::new();
        let refused = loop {
            ensure!(left.len() < 64, "64 descriptors of {RANGE} were left behind");
            let memory = match cuda.create_memory_for(Purpose::Sharing, 0, RANGE.0).granted() {
                Ok(memory) => memory,
                Err(refused) => break refused,
            };
            let first = cuda.export_memory(memory).or_else(|code| fail!("cuMemExportToShareableHandle: {code:?}"))?;
            let imported = cuda.import_memory(&first);
            ensure_eq!(imported.code, OK, "cuMemImportFromShareableHandle");
            // A driver may refuse it.
            left.push(cuda.export_memory(imported.out).unwrap_or(first));
            for handle in [memory, imported.out] {
                ensure_eq!(cuda.release_memory(handle), OK, "cuMemRelease");
            }
        };
        ensure_eq!(refused, OUT_OF_MEMORY, "after {} descriptors of {RANGE}", left.len());
        ensure!(left.len() >= 5, "only {} descriptors of {RANGE} under 4 GiB", left.len());
        ensure!(left.len() <= 8, "{} descriptors of {RANGE} under 4 GiB", left.len());
        left.clear();
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Physical memory without an address (cuMemCreate) is charged from its creation.
    created_memory_is_no_way_past_the_budget {
        kind: Budget, defects: ["R5"], entry_points: ["cuMemCreate"], budget: "0=4GiB",
    } (session) {
        let cuda = cuda()?;
        closed(session, &STEPS, |bytes| cuda.create_memory(0, bytes).code)
    }

    /// Released, mapped memory is still there, and a handle taken of the mapping holds it when that is gone.
    mapped_memory_is_charged_until_the_last_hold_is_gone {
        kind: Budget, defects: ["R5"], budget: "0=4GiB",
        entry_points: ["cuMemCreate", "cuMemMap", "cuMemRelease", "cuMemRetainAllocationHandle", "cuMemUnmap"],
    } (session) {
        let cuda = cuda()?;
        let addresses = cuda.reserve_addresses(2 * HALF.0);
        ensure_eq!(addresses.code, OK, "cuMemAddressReserve");
        let (first, second) = (addresses.out, addresses.out + HALF.0);
        for _ in 0..3 {
            let created = cuda.create_memory(0, HALF.0);
            ensure_eq!(created.code, OK, "cuMemCreate");
            for address in [first, second] {
                ensure_eq!(cuda.map_memory(address, HALF.0, created.out), OK, "cuMemMap");
            }
            ensure_eq!(cuda.release_memory(created.out), OK, "cuMemRelease");
            is_charged(&cuda, "is mapped twice")?;
            ensure_eq!(cuda.unmap_memory(first, HALF.0), OK, "cuMemUnmap of one mapping");
            is_charged(&cuda, "is mapped")?;
            let retained = cuda.retain_memory(second);
            ensure_eq!(retained.code, OK, "cuMemRetainAllocationHandle");
            ensure_eq!(cuda.unmap_memory(second, HALF.0), OK, "cuMemUnmap");
            is_charged(&cuda, "has a handle")?;
            ensure_eq!(cuda.release_memory(retained.out), OK, "cuMemRelease of the second handle");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Memory is charged to the device that the call names, not to the current context's.
    created_memory_is_charged_to_the_device_that_it_is_on {
        kind: Budget, defects: ["C9", "R5"], entry_points: ["cuMemCreate"], machine: "rtx6000-ada*2", needs_gpus: 2,
        budget: "0=1GiB,1=4GiB",
    } (_session) {
        let cuda = cuda()?;
        let other = cuda.create_memory(1, HALF.0);
        ensure_eq!(other.code, OK, "3 GiB of the second GPU's 4, beside a context on the first with 1");
        ensure_eq!(cuda.create_memory(1, HALF.0).code, OUT_OF_MEMORY, "3 GiB more of it");
        ensure_eq!(cuda.release_memory(other.out), OK, "cuMemRelease");
        Ok(())
    }

    /// An exported descriptor holds the memory as a handle does.
    exported_memory_stays_charged {
        kind: Budget, defects: ["R5", "R9"], entry_points: ["cuMemExportToShareableHandle", "cuMemRelease"], budget: "0=4GiB",
    } (_session) {
        let cuda = cuda()?;
        let created = cuda.create_memory_for(Purpose::Sharing, 0, HALF.0);
        ensure_eq!(created.code, OK, "cuMemCreate");
        let exported = cuda.export_memory(created.out);
        ensure_eq!(exported.as_ref().err(), None, "cuMemExportToShareableHandle");
        ensure_eq!(cuda.release_memory(created.out), OK, "cuMemRelease");
        is_charged(&cuda, "has a descriptor")
    }

    /// What was exported is in its maker's row as long as that holds it, and a device's next context is not charged for it too.
    exported_memory_is_not_charged_to_the_next_context {
        kind: Budget, defects: ["R9", "C10"], budget: "0=4GiB",
        entry_points: ["cuMemExportToShareableHandle", "cuDevicePrimaryCtxRetain", "cuMemRelease"],
    } (session) {
        let cuda = cuda_without_context()?;
        context(&cuda, 0)?;
        let created = cuda.create_memory_for(Purpose::Sharing, 0, RANGE.0);
        ensure_eq!(created.code, OK, "cuMemCreate");
        let exported = cuda.export_memory(created.out);
        ensure_eq!(exported.as_ref().err(), None, "cuMemExportToShareableHandle");
        ensure_eq!(cuda.reset_primary(0), OK, "cuDevicePrimaryCtxReset_v2");
        context(&cuda, 0)?;
        let kept = fill(&cuda);
        fills(kept.bytes + RANGE, budget(session, 0)?, CONTEXT_ROOM)?;
        for address in kept.held {
            ensure_eq!(cuda.free(address), OK, "cuMemFree_v2");
        }
        drop(exported);
        ensure_eq!(cuda.release_memory(created.out), OK, "cuMemRelease");
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Whoever imports it from its own descriptor again is charged for it once, also after NVML was asked.
    memory_that_its_maker_imports_again_is_charged_once {
        kind: Budget, defects: ["R9", "C10"], budget: "0=4GiB",
        entry_points: ["cuMemExportToShareableHandle", "cuMemImportFromShareableHandle", "cuMemRelease"],
    } (session) {
        let cuda = cuda()?;
        for released_first in [true, false] {
            let created = cuda.create_memory_for(Purpose::Sharing, 0, HALF.0);
            ensure_eq!(created.code, OK, "cuMemCreate");
            let exported = cuda.export_memory(created.out);
            ensure_eq!(exported.as_ref().err(), None, "cuMemExportToShareableHandle");
            let release = || cuda.release_memory(created.out);
            if released_first {
                ensure_eq!(release(), OK, "cuMemRelease before the import");
            }
            let imported = exported.map(|descriptor| cuda.import_memory(&descriptor));
            let imported = imported.map_or(0, |imported| imported.out);
            is_charged_once(&cuda, "was imported again")?;
            if !released_first {
                ensure_eq!(release(), OK, "cuMemRelease after the import");
                is_charged_once(&cuda, "was imported and released")?;
            }
            ensure_eq!(cuda.release_memory(imported), OK, "cuMemRelease of what was imported");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// What is mapped in another reservation than the one that a range to be unmapped begins in is charged as long as it is.
    memory_mapped_beyond_the_reservation_stays_charged {
        kind: Budget, defects: ["R76"], budget: "0=4GiB", entry_points: ["cuMemUnmap", "cuMemMap", "cuMemRelease", "cuMemAddressReserve"],
    } (session) {
        let (few, much) = (Bytes::mib(2).0, Bytes::mib(1536).0);
        let cuda = cuda()?;
        let mut held = Bytes::ZERO;
        for round in 0..2 {
            let [one, other] = [(); 2].map(|()| cuda.reserve_addresses(much));
            ensure_eq!((one.code, other.code), (OK, OK), "cuMemAddressReserve");
            let (low, high) = (one.out.min(other.out), one.out.max(other.out));
            for (place, bytes) in [(low, few), (high, much)] {
                let created = cuda.create_memory(0, bytes);
                ensure_eq!(created.code, OK, "cuMemCreate in round {round}");
                ensure_eq!(cuda.map_memory(place, bytes, created.out), OK, "cuMemMap");
                ensure_eq!(cuda.release_memory(created.out), OK, "cuMemRelease");
            }
            // Some drivers refuse such a range.
            let _ = cuda.unmap_memory(low, high + much - low);
            let kept = cuda.retain_memory(high);
            if kept.code == OK {
                ensure_eq!(cuda.release_memory(kept.out), OK, "cuMemRelease");
                held += Bytes(much);
            }
        }
        fills(fill(&cuda).bytes + held, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// The same where the range begins in a reservation that has no mapping.
    memory_mapped_beyond_an_empty_reservation_stays_charged {
        kind: Budget, defects: ["R76a"], budget: "0=4GiB", entry_points: ["cuMemUnmap", "cuMemMap", "cuMemRelease", "cuMemAddressReserve"],
    } (session) {
        let much = Bytes::gib(3).0;
        let cuda = cuda()?;
        let [one, other] = [(); 2].map(|()| cuda.reserve_addresses(much));
        ensure_eq!((one.code, other.code), (OK, OK), "cuMemAddressReserve");
        let (low, high) = (one.out.min(other.out), one.out.max(other.out));
        let created = cuda.create_memory(0, much);
        ensure_eq!(created.code, OK, "cuMemCreate");
        ensure_eq!(cuda.map_memory(high, much, created.out), OK, "cuMemMap");
        // Some drivers refuse such a range.
        let _ = cuda.unmap_memory(low, high + much - low);
        ensure_eq!(cuda.release_memory(created.out), OK, "cuMemRelease");
        let kept = cuda.retain_memory(high);
        let held = if kept.code == OK { Bytes(much) } else { Bytes::ZERO };
        if kept.code == OK {
            ensure_eq!(cuda.release_memory(kept.out), OK, "cuMemRelease");
        }
        fills(fill(&cuda).bytes + held, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Tiles that a driver bound before it refused the rest of a call hold their memory.
    memory_of_tiles_bound_by_a_refused_call_stays_charged {
        kind: Budget, defects: ["R77"], budget: "0=4GiB", entry_points: ["cuMemMapArrayAsync", "cuMemRelease"],
        on_real: No("whether a driver binds any is its own affair"),
    } (session) {
        let cuda = cuda()?;
        let array = cuda.create_sparse_array(1024, 1024);
        ensure_eq!(array.code, OK, "cuArray3DCreate_v2");
        let most = Bytes::gib(3);
        let created = cuda.create_memory_for(Purpose::Tiles, 0, most.0);
        ensure_eq!(created.code, OK, "cuMemCreate");
        ensure_eq!(cuda.bind_tile_and_more(array.out, created.out), CUresult::ERROR_INVALID_VALUE, "cuMemMapArrayAsync");
        ensure_eq!(cuda.release_memory(created.out), OK, "cuMemRelease");
        fills(fill(&cuda).bytes + most, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// So do the tiles of a sparse array.
    memory_of_an_arrays_tiles_stays_charged {
        kind: Budget, defects: ["R2", "R5"], budget: "0=4GiB",
        entry_points: ["cuMemMapArrayAsync", "cuMemMapArrayAsync_ptsz", "cuMemRelease"],
    } (session) {
        let cuda = cuda()?;
        let array = cuda.create_sparse_array(1024, 1024);
        ensure_eq!(array.code, OK, "cuArray3DCreate_v2");
        for stream in [Stream::Legacy, Stream::PerThread] {
            let half = Bytes::mib(1536).0;
            let created = cuda.create_memory_for(Purpose::Tiles, 0, half);
            ensure_eq!(created.code, OK, "cuMemCreate");
            ensure_eq!(cuda.bind_tile(array.out, created.out, stream), OK, "cuMemMapArrayAsync on {stream:?}");
            ensure_eq!(cuda.release_memory(created.out), OK, "cuMemRelease");
        }
        let left = fill(&cuda).bytes + Bytes::gib(3);
        fills(left, budget(session, 0)?, CONTEXT_ROOM)
    }
}
