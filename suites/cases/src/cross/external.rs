//! Memory that one API made and another imports by a descriptor: charged once, to the tenant, until the last of them has let go.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq, fail};
use ledger::{Key, Ledger, OBJECTS, Setup};

use super::lent::steps_in_pieces;
use super::objects::{
    Holder, Maker, OK, OUT_OF_MEMORY, SHARED, available, is_charged, is_given_back,
};
use crate::clients::{Gpu, context, cuda, cuda_without_context, fill};
use crate::ffi::cuda::{Cuda, External, Purpose};
use crate::ffi::process::Exhausted;
use crate::ffi::vulkan::{Code, Memory, Wish};
use crate::greed::{CONTEXT_ROOM, VULKAN_ROOM, budget, fills, teardown_is_over};
use crate::vulkan::asked::Asker;

/// Device memory of Vulkan's, and a descriptor of it.
pub(super) fn exported(asker: &Asker, bytes: Bytes) -> Result<(Memory, OwnedFd), Failure> {
    let wish = Wish {
        exportable: true,
        ..Wish::default()
    };
    match asker.ask(bytes, wish) {
        Ok(memory) => Ok((memory, asker.device.export(&asker.instance, memory)?)),
        Err(code) => fail!("{bytes} of exportable memory were answered {code:?}"),
    }
}

/// Physical memory of CUDA's, and a descriptor of it.
fn created(cuda: &Cuda) -> Result<(u64, OwnedFd), Failure> {
    let created = cuda.create_memory_for(Purpose::Sharing, 0, SHARED.0);
    ensure_eq!(created.code, OK, "cuMemCreate");
    match cuda.export_memory(created.out) {
        Ok(descriptor) => Ok((created.out, descriptor)),
        Err(code) => fail!("cuMemExportToShareableHandle answered {code:?}"),
    }
}

fn imported(cuda: &Cuda, descriptor: OwnedFd, of: &str) -> Result<External, Failure> {
    match cuda.import_external(descriptor, SHARED.0) {
        Ok(memory) => Ok(memory),
        Err((code, _)) => fail!("cuImportExternalMemory of {of} was answered {code:?}"),
    }
}

/// An import is charged until it is destroyed and what was mapped of it is freed, in either order.
fn ends(cuda: &Cuda, other: &mut Holder, memory: External, view_last: bool) -> Result<(), Failure> {
    let view = cuda.map_external(memory, SHARED.0);
    ensure_eq!(view.code, OK, "cuExternalMemoryGetMappedBuffer");
    is_charged(cuda, other, "are imported and mapped")?;
    let destroy = || cuda.destroy_external(memory);
    let free = || cuda.free(view.out);
    let (first, last): (&dyn Fn() -> CUresult, &dyn Fn() -> CUresult) = match view_last {
        true => (&destroy, &free),
        false => (&free, &destroy),
    };
    ensure_eq!(first(), OK, "the first end, view_last: {view_last}");
    is_charged(
        cuda,
        other,
        if view_last {
            "are mapped"
        } else {
            "are imported"
        },
    )?;
    ensure_eq!(last(), OK, "the last end, view_last: {view_last}");
    let plain = cuda.allocate(SHARED.0);
    ensure_eq!(plain.code, OK, "4 GiB when all is given back");
    ensure_eq!(cuda.free(plain.out), OK, "cuMemFree_v2");
    Ok(())
}

/// Of Vulkan's memory, what gives a process a row and little else.
const SHARED_LITTLE: Bytes = Bytes::mib(2);
/// Of this process's own, which no context owns.
const OWN: Bytes = Bytes::gib(2);

/// CUDA without a context, with memory of its own and what it imported of a process that is dead: a row that shows the import alone.
fn with_an_import_of_the_dead(session: &Session) -> Result<Cuda, Failure> {
    let cuda = cuda()?;
    ensure_eq!(cuda.create_memory(0, OWN.0).code, OK, "cuMemCreate");
    let mut maker = Holder::start(session)?;
    let descriptor = maker.sends(session, Maker::Vulkan)?;
    imported(&cuda, descriptor, "another process's Vulkan memory")?;
    ensure_eq!(cuda.reset_primary(0), OK, "cuDevicePrimaryCtxReset_v2");
    maker.0.kill()?;
    teardown_is_over(session)?;
    Ok(cuda)
}

cases! {
    /// What this process made by Vulkan and imports to CUDA is charged once, and outlives vkFreeMemory.
    vulkan_memory_that_cuda_imports_is_charged_once {
        kind: Budget, defects: ["R9", "V10"], budget: "0=8GiB",
        entry_points: ["cuImportExternalMemory", "cuDestroyExternalMemory", "cuExternalMemoryGetMappedBuffer", "vkGetMemoryFdKHR", "vkFreeMemory", "cuMemFree_v2"],
    } (session) {
        let cuda = cuda()?;
        let mut other = Holder::start(session)?;
        other.allocates(Bytes::mib(2), OK)?;
        let asker = Asker::new()?;
        for view_last in [true, false] {
            let (memory, descriptor) = exported(&asker, SHARED)?;
            let before = available(&cuda)?;
            let import = imported(&cuda, descriptor, "Vulkan's memory")?;
            ensure_eq!(available(&cuda)?, before, "free when it is imported");
            is_charged(&cuda, &mut other, "both hold")?;
            asker.device.free(memory);
            is_charged(&cuda, &mut other, "CUDA alone holds")?;
            ends(&cuda, &mut other, import, view_last)?;
        }
        is_given_back(session, &cuda, &mut other)
    }

    /// What a process holds without a context is charged once with the next one, though what it imported of a dead process has given it a row already.
    what_no_context_owns_is_charged_once_beside_an_import {
        kind: Budget, defects: ["R120"], budget: "0=8GiB",
        entry_points: ["cuImportExternalMemory", "cuMemCreate", "cuDevicePrimaryCtxReset_v2", "cuDevicePrimaryCtxRetain"],
    } (session) {
        let cuda = with_an_import_of_the_dead(session)?;
        context(&cuda, 0)?;
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes + OWN + SHARED, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// And once with a VkInstance.
    what_no_context_owns_is_charged_once_beside_an_import_and_a_vkinstance {
        kind: Budget, defects: ["R120a"], budget: "0=8GiB",
        entry_points: ["cuImportExternalMemory", "cuMemCreate", "cuDevicePrimaryCtxReset_v2", "vkCreateInstance"],
    } (session) {
        let _cuda = with_an_import_of_the_dead(session)?;
        let gpu = Gpu::first()?;
        let taken = gpu.fill();
        taken.refused_with(Code::OUT_OF_DEVICE_MEMORY)?;
        fills(taken.bytes + OWN + SHARED, budget(session, 0)?, VULKAN_ROOM)
    }

    /// What is mapped where another thread's context had something until now is freed as what it is, and nothing of it stays charged.
    external_memory_ends_beside_contexts_that_come_and_go {
        kind: Budget, defects: ["R131"], budget: "0=8GiB", unordered: "threads race for an address",
        entry_points: ["cuImportExternalMemory", "cuExternalMemoryGetMappedBuffer", "cuMemFree_v2", "cuDestroyExternalMemory", "cuCtxDestroy_v2"],
    } (session) {
        let part = Bytes::mib(64);
        let cuda = cuda()?;
        let asker = Asker::new()?;
        let own = context(&cuda, 0)?;
        let before = available(&cuda)?;
        let end = Instant::now() + Duration::from_secs(2);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                while Instant::now() < end {
                    let mortal = cuda.create_context(0);
                    for _ in 0..4 {
                        ensure_eq!(cuda.allocate(part.0).code, OK, "{part} in another context");
                    }
                    let codes = (mortal.code, cuda.destroy_context(mortal.out));
                    ensure_eq!(codes, (OK, OK), "a context and its end");
                }
                Ok(())
            });
            ensure_eq!(cuda.set_current(own), OK, "cuCtxSetCurrent");
            while Instant::now() < end {
                let (memory, descriptor) = exported(&asker, part)?;
                let import = match cuda.import_external(descriptor, part.0) {
                    Ok(import) => import,
                    Err((code, _)) => fail!("cuImportExternalMemory was answered {code:?}"),
                };
                let view = cuda.map_external(import, part.0);
                let ended = (view.code, cuda.free(view.out), cuda.destroy_external(import));
                ensure_eq!(ended, (OK, OK, OK), "a mapping, and its end");
                asker.device.free(memory);
            }
            other.join().unwrap_or_else(|_| fail!("a thread panicked"))
        })?;
        let after = available(&cuda)?;
        ensure!(after + Bytes(part.0 / 2) >= before, "{after} are told free afterwards, {before} before");
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM + VULKAN_ROOM)
    }

    /// Without a context a row shows what was imported and no pool: it is no reason to take a destroyed one for given back.
    a_row_without_a_context_relieves_no_destroyed_pool {
        kind: Budget, defects: ["R129"], budget: "0=4GiB",
        entry_points: ["cuImportExternalMemory", "cuMemPoolDestroy", "cuDevicePrimaryCtxReset_v2", "cuMemCreate"],
    } (session) {
        const STEPS: u64 = 64;
        let cuda = cuda()?;
        let asker = Asker::new()?;
        let (memory, descriptor) = exported(&asker, SHARED_LITTLE)?;
        let import = cuda.import_external(descriptor, SHARED_LITTLE.0);
        ensure!(import.is_ok(), "cuImportExternalMemory was answered {:?}", import.err().map(|(code, _)| code));
        asker.device.free(memory);
        drop(asker);
        let pool = cuda.create_pool(0);
        ensure_eq!((pool.code, cuda.keep_in_pool(pool.out, u64::MAX)), (OK, OK), "a pool that keeps what is freed");
        steps_in_pieces(&cuda, pool.out, STEPS)?;
        ensure_eq!((cuda.destroy_pool(pool.out), cuda.synchronize()), (OK, OK), "cuMemPoolDestroy and a wait");
        ensure_eq!(cuda.reset_primary(0), OK, "cuDevicePrimaryCtxReset_v2");
        let made = std::iter::from_fn(|| cuda.create_memory(0, Bytes::mib(64).0).granted().ok()).count() as u64;
        let pooled = Bytes::mib(32 * STEPS);
        fills(Bytes::mib(64 * made) + pooled, budget(session, 0)?, Bytes::mib(128) + SHARED_LITTLE)
    }

    /// More objects than a ledger has room for are no way past the budget: what is exported then stays charged, whoever has a copy of its descriptor.
    exports_without_a_row_are_no_way_past_the_budget {
        kind: Own, defects: ["R48"], budget: "0=16GiB", entry_points: ["vkGetMemoryFdKHR", "vkFreeMemory"],
        unaccounted: "what the case names it has of no device",
    } (session) {
        const PART: Bytes = Bytes::gib(1);
        let asker = Asker::new()?;
        let mut setup = Setup::default();
        setup.budgets[0] = Some(ledger::Bytes(budget(session, 0)?.0));
        let ledger = Ledger::attach(session.ledger_path(), &setup)?;
        let device = || std::iter::once(ledger::DeviceIndex(0)).collect();
        let named = (0..OBJECTS as u64).map_while(|nth| ledger.name_object(Key([nth, 1]), device(), ledger::Bytes(0), None));
        ensure_eq!(named.count(), OBJECTS, "objects that the ledger has room for");
        let mut left = Vec::new();
        while let Ok(memory) = asker.ask(PART, Wish { exportable: true, ..Wish::default() }) {
            let descriptor = asker.device.export(&asker.instance, memory)?;
            left.push(descriptor.try_clone()?);
            drop(descriptor);
            asker.device.free(memory);
            ensure!(left.len() < 32, "32 descriptors of {PART} were left behind");
        }
        let (kept, budget) = (Bytes(PART.0 * left.len() as u64), budget(session, 0)?);
        ensure!(kept <= budget && kept + PART + PART >= budget, "descriptors keep {kept} of {budget}");
        Ok(())
    }

    /// What is exported while the process has no descriptor left to look at it with is not exported: nobody would see its end. With one it is, and charged
    /// to whoever has it.
    exports_without_a_descriptor_to_name_them_by_are_refused {
        kind: Budget, defects: ["R48a"], budget: "0=16GiB",
        entry_points: ["vkGetMemoryFdKHR", "vkFreeMemory", "cuMemExportToShareableHandle"],
        on_real: No("how many descriptors a driver opens for an export is its own affair"),
        unaccounted: "memory that descriptors hold is of no process",
    } (session) {
        /// That the drivers of the mock need for an export.
        const OF_VULKAN: usize = 1;
        const OF_CUDA: usize = 2;
        const PART: Bytes = Bytes::gib(1);
        let (asker, cuda) = (Asker::new()?, cuda()?);
        let memory = match asker.ask(PART, Wish { exportable: true, ..Wish::default() }) {
            Ok(memory) => memory,
            Err(code) => fail!("{PART} of exportable memory were answered {code:?}"),
        };
        let exhausted = Exhausted::but(OF_VULKAN)?;
        let descriptor = asker.device.export(&asker.instance, memory);
        drop(exhausted);
        ensure!(descriptor.is_err(), "a descriptor of {PART} that nobody has named was handed out");
        ensure!(asker.device.export(&asker.instance, memory).is_ok(), "vkGetMemoryFdKHR with descriptors left");
        let created = cuda.create_memory_for(Purpose::Sharing, 0, PART.0);
        ensure_eq!(created.code, OK, "cuMemCreate");
        let exhausted = Exhausted::but(OF_CUDA)?;
        let code = cuda.export_memory(created.out).err();
        drop(exhausted);
        ensure_eq!(code, Some(OUT_OF_MEMORY), "cuMemExportToShareableHandle while no descriptor is left");
        ensure!(cuda.export_memory(created.out).is_ok(), "cuMemExportToShareableHandle with descriptors left");
        Ok(())
    }

    /// So is what CUDA created itself, released and closed.
    created_memory_that_is_imported_as_external_is_charged_once {
        kind: Budget, defects: ["R9", "R5"], budget: "0=8GiB",
        entry_points: ["cuImportExternalMemory", "cuDestroyExternalMemory", "cuExternalMemoryGetMappedBuffer", "cuMemRelease"],
    } (session) {
        let cuda = cuda()?;
        let mut other = Holder::start(session)?;
        other.allocates(Bytes::mib(2), OK)?;
        let (handle, descriptor) = created(&cuda)?;
        let before = available(&cuda)?;
        let import = match cuda.import_external(descriptor, SHARED.0) {
            Err((code, _)) if session.is_real() && code != OUT_OF_MEMORY => {
                harness::skip!("the driver does not import what cuMemCreate made: {code:?}");
            }
            Err((code, _)) => fail!("cuImportExternalMemory was answered {code:?}"),
            Ok(import) => import,
        };
        ensure_eq!(available(&cuda)?, before, "free when it is imported");
        ensure_eq!(cuda.release_memory(handle), OK, "cuMemRelease");
        is_charged(&cuda, &mut other, "the import alone holds")?;
        ends(&cuda, &mut other, import, true)?;
        is_given_back(session, &cuda, &mut other)
    }

    /// What another process made, by either API, outlives that process's death where either API imported it, and is charged once.
    external_memory_outlives_its_makers_death {
        kind: Budget, defects: ["R9", "V10"], budget: "0=8GiB",
        entry_points: ["cuImportExternalMemory", "cuDestroyExternalMemory", "vkAllocateMemory", "vkGetMemoryFdKHR"],
    } (session) {
        let cuda = cuda()?;
        let mut other = Holder::start(session)?;
        other.allocates(Bytes::mib(2), OK)?;
        let asker = Asker::new()?;
        for (maker, importer) in [(Maker::Vulkan, Maker::Cuda), (Maker::Vulkan, Maker::Vulkan), (Maker::Cuda, Maker::Vulkan)] {
            let mut process = Holder::start(session)?;
            let descriptor = process.sends(session, maker)?;
            let before = available(&cuda)?;
            let mut imports = (None, None);
            match importer {
                Maker::Cuda => imports.0 = Some(imported(&cuda, descriptor, "another process's memory")?),
                Maker::Vulkan => {
                    let wish = Wish { import: Some(descriptor), ..Wish::default() };
                    match asker.ask(SHARED, wish) {
                        Ok(memory) => imports.1 = Some(memory),
                        Err(code) => fail!("an import of 4 GiB that {maker:?} made was answered {code:?}"),
                    }
                }
            }
            ensure_eq!(available(&cuda)?, before, "free when {importer:?} has imported what {maker:?} made");
            is_charged(&cuda, &mut other, "two hold")?;
            process.0.kill()?;
            is_charged(&cuda, &mut other, "their maker's death left to this process")?;
            if let Some(import) = imports.0 {
                ensure_eq!(cuda.destroy_external(import), OK, "cuDestroyExternalMemory");
            }
            imports.1.into_iter().for_each(|memory| asker.device.free(memory));
            let plain = cuda.allocate(SHARED.0);
            ensure_eq!(plain.code, OK, "4 GiB when {importer:?} has let go of what {maker:?} made");
            ensure_eq!(cuda.free(plain.out), OK, "cuMemFree_v2");
        }
        is_given_back(session, &cuda, &mut other)
    }

    /// Memory that nobody in the ledger made is charged to who imports it; where that does not fit, the descriptor stays the caller's.
    external_memory_of_nobody_known_is_charged_to_who_imports_it {
        kind: Budget, defects: ["R9"], budget: "0=8GiB",
        entry_points: ["cuImportExternalMemory", "cuDestroyExternalMemory"],
    } (session) {
        let cuda = cuda()?;
        let mut stranger = Holder::stranger(session)?;
        let first = stranger.sends(session, Maker::Cuda)?;
        let second = first.try_clone()?;
        let import = match cuda.import_external(first, SHARED.0) {
            Err((code, _)) if session.is_real() && code != OUT_OF_MEMORY => {
                harness::skip!("the driver does not import what cuMemCreate made: {code:?}");
            }
            Err((code, _)) => fail!("cuImportExternalMemory was answered {code:?}"),
            Ok(import) => import,
        };
        let second = match cuda.import_external(second, SHARED.0) {
            Err((OUT_OF_MEMORY, second)) => second,
            answered => fail!("4 GiB of 8 beside 4 were answered {answered:?}"),
        };
        let left = available(&cuda)?;
        ensure_eq!(cuda.destroy_external(import), OK, "cuDestroyExternalMemory");
        ensure_eq!(available(&cuda)?, left + SHARED, "free when it is destroyed");
        let import = imported(&cuda, second, "a stranger's memory that was refused before")?;
        ensure_eq!(available(&cuda)?, left, "free when it is imported");
        ensure_eq!(cuda.destroy_external(import), OK, "cuDestroyExternalMemory");
        stranger.0.finish()
    }

    /// What strangers made, exported and let go of is charged to who imported it, though it is never mapped: once that exceeds the budget nothing
    /// more is imported, and what is released is the tenant's again.
    memory_of_strangers_that_is_never_mapped_is_charged_to_who_imports_it {
        kind: Budget, defects: ["R34"], budget: "0=8GiB", entry_points: ["cuMemImportFromShareableHandle", "cuMemRelease", "cuMemAlloc_v2"],
        unaccounted: "nobody tells an import's size before its maker has let go of it: one of them exceeds the budget",
    } (session) {
        let cuda = cuda()?;
        let (world, own) = (session.world()?, std::process::id());
        let device = mock_device::DeviceIndex(0);
        let mut imports = Vec::new();
        for at in 0..3 {
            let mut stranger = Holder::stranger(session)?;
            let descriptor = stranger.sends(session, Maker::Cuda)?;
            let import = cuda.import_memory(&descriptor);
            drop(descriptor);
            stranger.0.finish()?;
            session.eventually("the stranger has let go", || {
                world.processes(device).iter().all(|process| process.pid == own)
            })?;
            if at < 2 {
                ensure_eq!(import.code, OK, "cuMemImportFromShareableHandle");
                imports.push(import.out);
            } else {
                ensure_eq!(import.code, OUT_OF_MEMORY, "cuMemImportFromShareableHandle beside 8 GiB of 8");
            }
        }
        ensure_eq!(cuda.allocate(Bytes::mib(64).0).code, OUT_OF_MEMORY, "64 MiB beside 8 GiB of 8");
        for import in imports {
            ensure_eq!(cuda.release_memory(import), OK, "cuMemRelease");
        }
        ensure_eq!(cuda.allocate(SHARED.0).code, OK, "{SHARED} when all is released");
        Ok(())
    }

    /// It is where that one has a VkDevice and no context.
    memory_of_strangers_is_charged_to_an_importer_without_a_context {
        kind: Budget, defects: ["R34d"], budget: "0=8GiB", entry_points: ["cuMemImportFromShareableHandle", "cuMemRelease", "cuCtxCreate_v2"],
        unaccounted: "nobody tells an import's size before its maker has let go of it: one of them exceeds the budget",
    } (session) {
        let (cuda, _gpu) = (cuda_without_context()?, Gpu::first()?);
        let import = || -> Result<_, Failure> {
            let mut stranger = Holder::stranger(session)?;
            let descriptor = stranger.sends(session, Maker::Cuda)?;
            let import = cuda.import_memory(&descriptor);
            drop(descriptor);
            stranger.0.finish()?;
            Ok(import)
        };
        let mut imports = Vec::new();
        for _ in 0..2 {
            let import = import()?;
            ensure_eq!(import.code, OK, "cuMemImportFromShareableHandle");
            imports.push(import.out);
        }
        ensure_eq!(import()?.code, OUT_OF_MEMORY, "cuMemImportFromShareableHandle beside 8 GiB of 8");
        for import in imports {
            ensure_eq!(cuda.release_memory(import), OK, "cuMemRelease");
        }
        ensure_eq!(import()?.code, OK, "cuMemImportFromShareableHandle when all is released");
        let created = cuda.create_context(0);
        ensure_eq!(created.code, OK, "cuCtxCreate_v2 beside 4 GiB of 8");
        ensure_eq!(cuda.allocate(Bytes::gib(3).0).code, OK, "3 GiB beside 4 GiB and a context of 8");
        ensure_eq!(cuda.allocate(Bytes::gib(1).0).code, OUT_OF_MEMORY, "1 GiB beside 7 GiB and a context of 8");
        Ok(())
    }

    /// What another tenant made and exported is charged to who imports it, which need have nothing on the device, and is its maker's too as long as that one holds it.
    memory_of_another_tenant_is_charged_to_who_imports_it {
        kind: Budget, defects: ["R34e"], budget: "0=9GiB", entry_points: ["cuMemImportFromShareableHandle", "cuMemRelease", "cuMemAlloc_v2"],
        unaccounted: "two tenants share a device that has one budget here",
    } (session) {
        let cuda = cuda_without_context()?;
        let import = |tenant: &str| -> Result<_, Failure> {
            let theirs = session.directory().join(tenant).display().to_string();
            let mut neighbour = Holder::launch(session.launch("holder").env("RINGFENCE_LEDGER", &theirs))?;
            let descriptor = neighbour.sends(session, Maker::Cuda)?;
            Ok((cuda.import_memory(&descriptor), neighbour))
        };
        let (first, maker) = import("first.ledger")?;
        ensure_eq!(first.code, OK, "cuMemImportFromShareableHandle");
        let second = import("second.ledger")?;
        ensure_eq!(second.0.code, OK, "cuMemImportFromShareableHandle beside 4 GiB of 9");
        second.1.0.finish()?;
        let third = import("third.ledger")?;
        ensure_eq!(third.0.code, OUT_OF_MEMORY, "cuMemImportFromShareableHandle beside 8 GiB of 9");
        third.1.0.finish()?;
        ensure_eq!(cuda.release_memory(second.0.out), OK, "cuMemRelease");
        context(&cuda, 0)?;
        let left = available(&cuda)?;
        ensure_eq!(cuda.allocate(Bytes::gib(5).0).code, OUT_OF_MEMORY, "5 GiB of 9 beside {SHARED} and a context");
        ensure_eq!(cuda.release_memory(first.out), OK, "cuMemRelease");
        ensure_eq!(available(&cuda)?, left + SHARED, "free when it is released");
        maker.0.finish()
    }
}
