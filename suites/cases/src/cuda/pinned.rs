//! Page-locked host memory: what maps it lies on the device, in no row of NVML's, and is charged (R19 of `fixtures/defects.txt`).

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq};

use super::routes::OUT_OF_MEMORY;
use crate::clients::{context, cuda, cuda_without_context, fill};
use crate::ffi::cuda::{Cuda, HostWay, Purpose};
use crate::ffi::vulkan::Pages;
use crate::greed::{CONTEXT_ROOM, budget, fills, until_refused};

const OK: CUresult = CUresult::SUCCESS;
const GIB: u64 = 1 << 30;
/// What maps a GiB.
const TABLES: u64 = 2 << 20;

/// What is told free of the budget.
fn free(cuda: &Cuda) -> Result<u64, Failure> {
    let info = cuda.memory_info();
    ensure_eq!(info.code, OK, "cuMemGetInfo_v2");
    Ok(info.out.0)
}

/// Maps memory at an address, for the first device to use.
fn map(cuda: &Cuda, memory: u64, address: u64, bytes: u64) -> CUresult {
    match cuda.map_memory(address, bytes, memory) {
        OK => cuda.open_memory(address, bytes, 0),
        refused => refused,
    }
}

/// So many GiB are charged their page tables, within a block.
fn is_charged(cuda: &Cuda, before: u64, gib: u64, what: &str) -> Result<(), Failure> {
    let charged = before.saturating_sub(free(cuda)?);
    ensure!(
        charged >= gib * TABLES && charged <= (gib + 1) * TABLES,
        "{} are charged for {gib} GiB by {what}",
        Bytes(charged)
    );
    Ok(())
}

/// The rest of the budget can be had, and no more: beside the page tables of so many GiB.
fn gives_the_rest(session: &Session, cuda: &Cuda, gib: u64) -> Result<(), Failure> {
    let taken = fill(cuda);
    taken.refused_with(OUT_OF_MEMORY)?;
    fills(
        taken.bytes + Bytes(gib * TABLES),
        budget(session, 0)?,
        CONTEXT_ROOM,
    )
}

/// 1 GiB of the host's memory, and addresses for so many: the handle of one and the first of the others.
fn memory_and_addresses(cuda: &Cuda, gibs: u64) -> Result<(u64, u64), Failure> {
    let memory = cuda.create_memory_at(Purpose::Mapping, (3, 0), GIB);
    ensure_eq!(memory.code, OK, "1 GiB of the host's memory");
    let place = cuda.reserve_addresses(gibs * GIB);
    ensure_eq!(place.code, OK, "{gibs} GiB of addresses");
    Ok((memory.out, place.out))
}

cases! {
    /// What is refused for want of page tables is nobody's: neither the device holds any of them for it, nor the host its memory.
    refused_page_locked_memory_of_32_bit_days_leaves_nothing_behind {
        kind: Budget, defects: ["R19d"], budget: "0=1GiB", entry_points: ["cuCtxCreate", "cuMemAllocHost", "cuMemAlloc"],
        on_real: No("looks into the simulated device: no row shows page tables"),
    } (session) {
        let cuda = super::routes::narrow()?;
        let used = || session.world().map(|world| world.used(mock_device::DeviceIndex(0)));
        let taken = until_refused(&[Bytes::mib(64), Bytes::mib(2)], |bytes| cuda.allocate_v1(bytes.0 as u32).granted());
        taken.refused_with(OUT_OF_MEMORY)?;
        let before = used()?;
        let refused = [(); 3].map(|()| cuda.allocate_host_by(HostWay::Unsuffixed, Bytes::mib(3000).0).code);
        ensure_eq!(refused, [OUT_OF_MEMORY; 3], "2.9 GiB of host memory with no room for their page tables");
        ensure_eq!(used()?, before, "what the device holds");
        Ok(())
    }

    /// Each GiB of page-locked host memory takes 2 MiB of the device, by whichever call: they are charged while it lives.
    page_tables_of_page_locked_memory_are_charged {
        kind: Budget, defects: ["R19"], budget: "0=1GiB",
        entry_points: ["cuMemAllocHost_v2", "cuMemHostAlloc", "cuMemFreeHost", "cuMemHostRegister", "cuMemHostRegister_v2", "cuMemHostUnregister"],
    } (session) {
        let cuda = cuda()?;
        let before = free(&cuda)?;
        for way in [HostWay::Plain, HostWay::WithFlags] {
            let host = cuda.allocate_host_by(way, 4 * GIB);
            ensure_eq!(host.code, OK, "4 GiB by {way:?}");
            is_charged(&cuda, before, 4, &format!("{way:?}"))?;
            ensure_eq!(cuda.free_host(host.out), OK, "cuMemFreeHost");
            ensure_eq!(free(&cuda)?, before, "told free after {way:?}");
        }
        let own = vec![0_u8; 4 * GIB as usize];
        for unsuffixed in [false, true] {
            let address = own.as_ptr() as u64;
            ensure_eq!(cuda.register_host(unsuffixed, address, 4 * GIB), OK, "4 GiB registered");
            is_charged(&cuda, before, 4, "registration")?;
            ensure_eq!(cuda.unregister_host(address), OK, "cuMemHostUnregister");
            ensure_eq!(free(&cuda)?, before, "told free after cuMemHostUnregister");
        }
        let host = cuda.allocate_host_by(HostWay::Plain, 16 * GIB);
        ensure_eq!(host.code, OK, "16 GiB");
        gives_the_rest(session, &cuda, 16)
    }

    /// So does each GiB of the host's memory that is mapped by cuMemMap, as often as it is: mappings are charged until they are gone, and refused where the
    /// budget has no room for what maps them.
    page_tables_of_mapped_host_memory_are_charged {
        kind: Budget, defects: ["R64"], entry_points: ["cuMemMap", "cuMemUnmap", "cuMemSetAccess"], budget: "0=1GiB",
    } (session) {
        let cuda = cuda()?;
        let before = free(&cuda)?;
        let (memory, place) = memory_and_addresses(&cuda, 400)?;
        let map = |at: u64| map(&cuda, memory, place + at * GIB, GIB);
        for at in 0..16 {
            ensure_eq!(map(at), OK, "mapping {at}");
        }
        is_charged(&cuda, before, 16, "cuMemMap")?;
        ensure_eq!(cuda.unmap_memory(place, 16 * GIB), OK, "cuMemUnmap of 16");
        ensure_eq!(free(&cuda)?, before, "told free after cuMemUnmap");
        let mapped = (0..400).take_while(|at| map(*at) == OK).count() as u64;
        ensure!(mapped * TABLES <= before, "1 GiB was mapped {mapped} times with {} told free", Bytes(before));
        ensure_eq!(cuda.open_memory(place + mapped * GIB, GIB, 0), OUT_OF_MEMORY, "one mapping more");
        // What the driver objects to it says with the budget used up too.
        ensure_eq!(cuda.map_memory(place, GIB, memory), CUresult::ERROR_INVALID_VALUE, "a mapping over another");
        gives_the_rest(session, &cuda, mapped)
    }

    /// A right that one call takes and gives again ends no page tables.
    page_tables_of_a_range_that_is_closed_and_opened_stay_charged {
        kind: Budget, defects: ["R94"], entry_points: ["cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuMemGetAccess"], budget: "0=1GiB",
    } (session) {
        let cuda = cuda()?;
        let before = free(&cuda)?;
        let (memory, place) = memory_and_addresses(&cuda, 16)?;
        for at in 0..16 {
            ensure_eq!(map(&cuda, memory, place + at * GIB, GIB), OK, "mapping {at}");
        }
        // Two rights of one device a driver may refuse.
        cuda.reopen_memory(place, 16 * GIB, 0);
        is_charged(&cuda, before, 16, "cuMemSetAccess of one device twice")?;
        ensure_eq!(cuda.unmap_memory(place, 16 * GIB), OK, "cuMemUnmap of 16");
        ensure_eq!(free(&cuda)?, before, "told free after cuMemUnmap");
        gives_the_rest(session, &cuda, 0)
    }

    /// One that a call gives and takes again takes none.
    page_tables_of_a_range_that_is_opened_and_closed_are_not_charged {
        kind: Budget, defects: ["R110"], entry_points: ["cuMemMap", "cuMemUnmap", "cuMemSetAccess"], budget: "0=1GiB",
    } (session) {
        let cuda = cuda()?;
        let before = free(&cuda)?;
        let (memory, place) = memory_and_addresses(&cuda, 16)?;
        for at in 0..16 {
            ensure_eq!(cuda.map_memory(place + at * GIB, GIB, memory), OK, "mapping {at}");
        }
        // Two rights of one device a driver may refuse.
        cuda.open_and_close_memory(place, 16 * GIB, 0);
        ensure_eq!(free(&cuda)?, before, "told free after cuMemSetAccess");
        ensure_eq!(cuda.unmap_memory(place, 16 * GIB), OK, "cuMemUnmap of 16");
        ensure_eq!(free(&cuda)?, before, "told free after cuMemUnmap");
        gives_the_rest(session, &cuda, 0)
    }

    /// What maps page-locked memory is charged though another call, which asked for it at the same time, was refused.
    page_tables_that_another_call_was_refused_are_charged {
        kind: Budget, defects: ["P22"], entry_points: ["cuMemHostAlloc", "cuMemFreeHost", "cuMemAlloc_v2", "cuMemFree_v2"], budget: "0=4GiB",
        unordered: "threads race",
    } (session) {
        /// As the C library's example.
        fn next(state: &mut u32) -> u32 {
            *state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            *state >> 16
        }
        let cuda = cuda()?;
        let current = crate::clients::context(&cuda, 0)?;
        let large = std::iter::repeat_with(|| cuda.allocate(64 << 20)).take(50);
        ensure!(large.into_iter().all(|block| block.code == OK), "50 blocks of 64 MiB");
        let end = Instant::now() + Duration::from_secs(3);
        let pin = |state: u32| {
            let mut state = state;
            cuda.set_current(current);
            let mut pages = Vec::new();
            while Instant::now() < end {
                match next(&mut state).is_multiple_of(2) && pages.len() < 32 {
                    true => pages.extend(cuda.allocate_host_by(HostWay::WithFlags, 64 << 20).granted().ok()),
                    false => pages.pop().into_iter().for_each(|pages| _ = cuda.free_host(pages)),
                }
            }
            pages.into_iter().for_each(|pages| _ = cuda.free_host(pages));
        };
        std::thread::scope(|scope| {
            for state in [5, 82] {
                let pin = &pin;
                scope.spawn(move || pin(state));
            }
            // All that is left, and one of them back now and then.
            let (mut blocks, mut state) = (Vec::new(), 9);
            while Instant::now() < end {
                match !next(&mut state).is_multiple_of(8) {
                    true => blocks.extend(cuda.allocate(2 << 20).granted().ok()),
                    false => blocks.pop().into_iter().for_each(|block| _ = cuda.free(block)),
                }
            }
        });
        super::truth::within(session, &cuda)
    }

    /// Of two threads that set a device's right to a range the driver has the last, and so have the books.
    page_tables_of_a_range_that_threads_close_and_open_are_charged {
        kind: Budget, defects: ["R94a"], entry_points: ["cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuMemGetAccess"], budget: "0=1GiB",
        unordered: "threads race",
    } (session) {
        let cuda = cuda()?;
        let current = crate::clients::context(&cuda, 0)?;
        let before = free(&cuda)?;
        let (memory, place) = memory_and_addresses(&cuda, 64)?;
        for at in 0..64 {
            ensure_eq!(map(&cuda, memory, place + at * GIB, GIB), OK, "mapping {at}");
        }
        let (turns, over) = (Barrier::new(2), AtomicBool::new(false));
        let rights = |open: bool| {
            for at in (0..64).map(|at| place + at * GIB) {
                turns.wait();
                match open {
                    true => cuda.open_memory(at, GIB, 0),
                    false => cuda.close_memory(at, GIB, 0),
                };
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                cuda.set_current(current);
                while !over.load(Ordering::SeqCst) {
                    rights(false);
                    turns.wait();
                    turns.wait();
                }
            });
            // A card sets some fifty of them in a second.
            let end = Instant::now() + Duration::from_secs(4);
            for round in 1.. {
                rights(true);
                // The other is done as well, and waits for what is found.
                turns.wait();
                let open = (0..64).filter(|at| cuda.is_memory_open(place + at * GIB, 0)).count() as u64;
                let charged = is_charged(&cuda, before, open, "the rights that the driver has");
                over.store(charged.is_err() || round == 100 || Instant::now() > end, Ordering::SeqCst);
                turns.wait();
                if over.load(Ordering::SeqCst) {
                    return charged;
                }
            }
            Ok(())
        })?;
        ensure_eq!(cuda.unmap_memory(place, 64 * GIB), OK, "cuMemUnmap of 64");
        gives_the_rest(session, &cuda, 0)
    }

    /// Each mapping of device memory that lies far from others takes a page directory, however little it maps: they are charged until it is gone.
    page_directories_of_far_mappings_are_charged {
        kind: Budget, defects: ["R67"], entry_points: ["cuMemMap", "cuMemUnmap", "cuMemSetAccess"], budget: "0=1GiB",
    } (session) {
        const FAR: u64 = GIB / 2;
        const BLOCK: u64 = 2 << 20;
        let cuda = cuda()?;
        let memory = cuda.create_memory(0, BLOCK);
        ensure_eq!(memory.code, OK, "2 MiB of device memory");
        let before = free(&cuda)?;
        let place = cuda.reserve_addresses(4096 * FAR);
        ensure_eq!(place.code, OK, "2 TiB of addresses");
        let map = |at: u64| map(&cuda, memory.out, place.out + at * FAR, BLOCK);
        // A context has the first 512 already.
        for at in 0..2048 {
            ensure_eq!(map(at), OK, "mapping {at}");
        }
        let charged = before.saturating_sub(free(&cuda)?);
        ensure!((3 * BLOCK..=4 * BLOCK).contains(&charged), "{} are charged for 2,048 mappings", Bytes(charged));
        ensure_eq!(cuda.unmap_memory(place.out, 2048 * FAR), OK, "cuMemUnmap of 2,048");
        ensure_eq!(free(&cuda)?, before, "told free after cuMemUnmap");
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        let mapped = (0..4096).take_while(|at| map(*at) == OK).count();
        ensure!(mapped < 1536, "{mapped} mappings with the budget used up");
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// What is page-locked is mapped on each device with a context, by whichever it was asked for, and on one whose first context is made later.
    page_locked_memory_is_charged_to_each_device_with_a_context {
        kind: Budget, defects: ["R19"], machine: "rtx6000-ada*2", needs_gpus: 2, budget: "0=1GiB,1=1GiB",
        entry_points: ["cuMemHostAlloc", "cuMemFreeHost", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"],
    } (session) {
        let cuda = cuda_without_context()?;
        let all = |cuda: &Cuda| -> Result<[u64; 2], Failure> {
            context(cuda, 1)?;
            let told = free(cuda)?;
            ensure_eq!(cuda.release_primary(1), OK, "cuDevicePrimaryCtxRelease_v2");
            context(cuda, 0)?;
            ensure_eq!(cuda.release_primary(0), OK, "cuDevicePrimaryCtxRelease_v2");
            Ok([free(cuda)?, told])
        };
        let charged = |before: [u64; 2], now: [u64; 2], devices: [bool; 2], what: &str| -> Result<(), Failure> {
            for (at, is_charged) in devices.into_iter().enumerate() {
                let taken = before[at].saturating_sub(now[at]);
                let range = if is_charged { 8 * TABLES..=9 * TABLES } else { 0..=0 };
                ensure!(range.contains(&taken), "{} are charged to device {at} {what}", Bytes(taken));
            }
            Ok(())
        };
        context(&cuda, 0)?;
        let before = all(&cuda)?;
        let host = cuda.allocate_host_by(HostWay::WithFlags, 8 * GIB);
        ensure_eq!(host.code, OK, "8 GiB");
        charged(before, all(&cuda)?, [true, true], "for what was locked before its context")?;
        let second = context(&cuda, 1)?;
        ensure_eq!(cuda.free_host(host.out), OK, "cuMemFreeHost");
        charged(before, all(&cuda)?, [false, false], "after it was freed")?;
        ensure_eq!(cuda.set_current(second), OK, "cuCtxSetCurrent");
        let host = cuda.allocate_host_by(HostWay::WithFlags, 8 * GIB);
        ensure_eq!(host.code, OK, "8 GiB by the second device");
        charged(before, all(&cuda)?, [true, true], "for what was locked by the second")?;
        ensure_eq!(cuda.release_primary(1), OK, "cuDevicePrimaryCtxRelease_v2");
        context(&cuda, 0)?;
        charged(before, [free(&cuda)?, before[1]], [false, false], "when the context that locked it has ended")?;
        gives_the_rest(session, &cuda, 0)
    }

    /// A device that may access a mapping has page tables for it, whosever memory it is and whichever device is current.
    what_maps_memory_for_a_device_is_charged_to_it {
        kind: Budget, defects: ["R64", "R67"], machine: "rtx6000-ada*2", needs_gpus: 2, budget: "0=1GiB,1=1GiB",
        entry_points: ["cuMemMap", "cuMemSetAccess", "cuMemUnmap"],
    } (session) {
        let cuda = cuda_without_context()?;
        let contexts = [context(&cuda, 0)?, context(&cuda, 1)?];
        let told = || -> Result<[u64; 2], Failure> {
            let mut told = [0; 2];
            for (told, context) in told.iter_mut().zip(contexts) {
                ensure_eq!(cuda.set_current(context), OK, "cuCtxSetCurrent");
                *told = free(&cuda)?;
            }
            ensure_eq!(cuda.set_current(contexts[0]), OK, "cuCtxSetCurrent");
            Ok(told)
        };
        let before = told()?;
        let memory = cuda.create_memory_at(Purpose::Mapping, (3, 0), GIB);
        let place = cuda.reserve_addresses(32 * GIB);
        ensure_eq!((memory.code, place.code), (OK, OK), "1 GiB of the host's memory, and addresses");
        for at in 0..32 {
            ensure_eq!(cuda.map_memory(place.out + at * GIB, GIB, memory.out), OK, "mapping {at}");
        }
        ensure_eq!(told()?, before, "told free of mappings that nobody may access");
        ensure_eq!(cuda.open_memory(place.out, 32 * GIB, 1), OK, "cuMemSetAccess for the second device");
        let now = told()?;
        ensure_eq!(now[0], before[0], "told free of the first device");
        let taken = before[1].saturating_sub(now[1]);
        ensure!((32 * TABLES..=33 * TABLES).contains(&taken), "{} are charged to the second device", Bytes(taken));
        ensure_eq!(cuda.close_memory(place.out, 16 * GIB, 1), OK, "cuMemSetAccess that takes half of it back");
        let half = before[1].saturating_sub(told()?[1]);
        ensure!((16 * TABLES..=17 * TABLES).contains(&half), "{} are charged for half of it", Bytes(half));
        ensure_eq!(cuda.unmap_memory(place.out, 32 * GIB), OK, "cuMemUnmap");
        ensure_eq!(told()?, before, "told free after cuMemUnmap");
        gives_the_rest(session, &cuda, 0)
    }

    /// Page-locked host memory stays charged when a 32-bit context gives memory of its own the same number, and each is given back by its own call.
    page_locked_memory_keeps_its_charge_beside_a_narrow_contexts {
        kind: Budget, defects: ["R19e"], budget: "0=3GiB", needs: ["cuCtxCreate", "cuMemAlloc"],
        entry_points: ["cuMemAlloc", "cuMemFree", "cuMemHostRegister_v2", "cuMemHostUnregister"],
        on_real: No("no driver since 470 makes contexts of 32-bit addresses, and 256 GiB would be locked"),
    } (session) {
        const LOCKED: u64 = 256;
        const LITTLE: u32 = 4 << 20;
        let cuda = cuda_without_context()?;
        let wide = crate::clients::context(&cuda, 0)?;
        let narrow = cuda.create_context_v1(0);
        ensure_eq!(narrow.code, OK, "cuCtxCreate");
        let first = cuda.allocate_v1(LITTLE);
        ensure_eq!((first.code, cuda.free_v1(first.out)), (OK, OK), "4 MiB of a 32-bit context");
        let pages = Pages::at(u64::from(first.out), LOCKED * GIB)?;
        cuda.set_current(wide);
        let before = free(&cuda)?;
        ensure_eq!(cuda.register_host(false, u64::from(first.out), LOCKED * GIB), OK, "cuMemHostRegister of {LOCKED} GiB");
        is_charged(&cuda, before, LOCKED, "cuMemHostRegister")?;
        cuda.set_current(narrow.out);
        let second = cuda.allocate_v1(LITTLE);
        ensure_eq!((second.code, second.out), (OK, first.out), "4 MiB more, where the first were");
        cuda.set_current(wide);
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes + Bytes(LOCKED * TABLES), budget(session, 0)?, CONTEXT_ROOM + CONTEXT_ROOM)?;
        for block in taken.held {
            ensure_eq!(cuda.free(block), OK, "cuMemFree_v2");
        }
        ensure_eq!(cuda.unregister_host(u64::from(first.out)), OK, "cuMemHostUnregister");
        drop(pages);
        cuda.set_current(narrow.out);
        ensure_eq!(cuda.free_v1(second.out), OK, "cuMemFree");
        cuda.set_current(wide);
        ensure_eq!(free(&cuda)?, before, "told free when both are gone");
        Ok(())
    }

    /// Host memory at the numbers that a 32-bit context's memory has is another's: both are given back.
    page_locked_memory_is_told_from_a_narrow_contexts {
        kind: Budget, defects: ["R19"], budget: "0=2GiB", needs: ["cuCtxCreate", "cuMemAlloc"],
        entry_points: ["cuMemAlloc", "cuMemFree", "cuMemHostRegister_v2", "cuMemHostUnregister"],
        on_real: No("no driver since 470 makes contexts of 32-bit addresses"),
    } (session) {
        const PIECE: u64 = 2 << 20;
        let cuda = cuda_without_context()?;
        ensure_eq!(cuda.create_context_v1(0).code, OK, "cuCtxCreate");
        let mut blocks = Vec::new();
        for at in 0..600 {
            let block = cuda.allocate_v1(3 << 19);
            ensure_eq!(block.code, OK, "1.5 MiB, the {at}th");
            blocks.push(block.out);
        }
        let first = blocks.iter().min().map_or(0, |first| u64::from(*first)) / PIECE * PIECE;
        let last = blocks.iter().max().map_or(0, |last| u64::from(*last)) / PIECE * PIECE;
        let pages = Pages::at(first, last + PIECE - first)?;
        let locked: Vec<u64> = (first..=last).step_by(PIECE as usize).collect();
        for piece in &locked {
            ensure_eq!(cuda.register_host(false, *piece, 4096), OK, "cuMemHostRegister of a page at {piece:#x}");
        }
        for block in blocks {
            ensure_eq!(cuda.free_v1(block), OK, "cuMemFree");
        }
        for piece in locked {
            ensure_eq!(cuda.unregister_host(piece), OK, "cuMemHostUnregister");
        }
        drop(pages);
        let taken = until_refused(&[Bytes::mib(64)], |bytes| cuda.allocate_v1(bytes.0 as u32).granted());
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// MiB by MiB it is charged as at once; and with the budget used up what needs another block is refused, what needs none is granted.
    small_pieces_of_page_locked_memory_add_up {
        kind: Budget, defects: ["R19", "C3"], budget: "0=1GiB",
        entry_points: ["cuMemAllocHost_v2", "cuMemHostAlloc", "cuMemFreeHost", "cuMemHostRegister_v2"],
    } (session) {
        let cuda = cuda()?;
        let before = free(&cuda)?;
        let mut held = Vec::new();
        for at in 0..2048 {
            let host = cuda.allocate_host(1 << 20);
            ensure_eq!(host.code, OK, "MiB {at}");
            held.push(host.out);
        }
        // Pieces that lie apart need a page table each.
        let charged = before.saturating_sub(free(&cuda)?);
        ensure!((2 * TABLES..=5 * TABLES).contains(&charged), "{} are charged for 2 GiB in pieces of a MiB", Bytes(charged));
        gives_the_rest(session, &cuda, 2)?;
        for way in [HostWay::Plain, HostWay::WithFlags] {
            let code = cuda.allocate_host_by(way, 2 * GIB).code;
            ensure_eq!(code, OUT_OF_MEMORY, "2 GiB by {way:?} with the budget used up");
        }
        let own = vec![0_u8; 2 * GIB as usize];
        ensure_eq!(cuda.register_host(false, own.as_ptr() as u64, 2 * GIB), OUT_OF_MEMORY, "2 GiB registered with the budget used up");
        for host in held {
            ensure_eq!(cuda.free_host(host), OK, "cuMemFreeHost");
        }
        let host = cuda.allocate_host(1 << 20);
        ensure_eq!(host.code, OK, "a MiB after all was given back");
        Ok(())
    }

    /// The call of 32-bit days gives host memory too.
    the_unsuffixed_call_is_charged {
        kind: Budget, defects: ["R19", "R7"], budget: "0=2GiB", needs: ["cuCtxCreate", "cuMemAllocHost"],
        entry_points: ["cuMemAllocHost", "cuMemFreeHost"],
        on_real: No("no driver since 470 makes contexts of 32-bit addresses"),
    } (session) {
        let cuda = cuda_without_context()?;
        let primary = crate::clients::context(&cuda, 0)?;
        let narrow = cuda.create_context_v1(0);
        ensure_eq!(narrow.code, OK, "cuCtxCreate");
        ensure_eq!(cuda.set_current(primary), OK, "cuCtxSetCurrent of the primary context");
        let before = free(&cuda)?;
        ensure_eq!(cuda.set_current(narrow.out), OK, "cuCtxSetCurrent of the narrow context");
        let host = cuda.allocate_host_by(HostWay::Unsuffixed, 3 * GIB);
        ensure_eq!(host.code, OK, "3 GiB by cuMemAllocHost");
        ensure_eq!(cuda.set_current(primary), OK, "cuCtxSetCurrent of the primary context");
        is_charged(&cuda, before, 3, "cuMemAllocHost")?;
        ensure_eq!(cuda.free_host(host.out), OK, "cuMemFreeHost");
        ensure_eq!(free(&cuda)?, before, "told free after cuMemFreeHost");
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM + CONTEXT_ROOM)
    }
}
