//! The driver's own figure of a process is the floor of what it is charged: whatever took it, whoever looks, and whether the process asks
//! for anything more (F1 and R17b of `fixtures/defects.txt`). What no hook sees is taken here by a Vulkan driver that is opened directly.

use std::time::{Duration, Instant};

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Library, Session, cases, ensure, ensure_eq};

use super::functions::plain;
use super::modules::{CALLS_MALLOC, program};
use super::routes::OUT_OF_MEMORY;
use crate::clients::{Gpu, cuda, fill, first_gpu, nvml};
use crate::faults::plan;
use crate::ffi::cuda::{Cuda, Image, Stream};
use crate::ffi::process::overhear;
use crate::ffi::vulkan::{Client, Instance, Vulkan};
use crate::greed::{CONTEXT_ROOM, VULKAN_ROOM, budget, fills, teardown_is_over};
use crate::tenant::Tenant;
use crate::vulkan::floor::row;

const OK: CUresult = CUresult::SUCCESS;
const UNSEEN: Bytes = Bytes::gib(3);

/// Takes device memory past every hook, and holds it.
pub struct Unseen {
    gpu: Gpu,
    _instance: Instance,
}

impl Unseen {
    pub fn take(driver: &str, bytes: Bytes) -> Result<Unseen, Failure> {
        let driver = Vulkan::open_driver(driver.as_ref())?;
        let instance = driver.instance(Client::V1_1)?;
        let unseen = Unseen {
            gpu: Gpu::on(&instance, first_gpu(&instance)?)?,
            _instance: instance,
        };
        unseen.take_more(bytes)?;
        Ok(unseen)
    }

    pub fn take_more(&self, bytes: Bytes) -> Result<(), Failure> {
        let refused = self.gpu.allocate(bytes).err();
        ensure_eq!(refused, None, "{bytes} by the driver itself");
        Ok(())
    }
}

fn driver(session: &Session) -> Result<String, Failure> {
    Ok(session.library(Library::MockIcd)?.display().to_string())
}

/// Takes by CUDA what is left of the budget beside what was taken past the hooks: no more, and not much less.
fn gets_the_rest(session: &Session, cuda: &Cuda, rooms: Bytes) -> Result<(), Failure> {
    let taken = fill(cuda);
    taken.refused_with(OUT_OF_MEMORY)?;
    fills(taken.bytes + UNSEEN, budget(session, 0)?, rooms)
}

/// Takes memory past the hooks, and by CUDA what is left of the budget beside it and `held`; then without it all of that again, and what was past the hooks.
fn comes_back(session: &Session, cuda: &Cuda, held: Bytes, rooms: Bytes) -> Result<(), Failure> {
    let unseen = Unseen::take(&driver(session)?, UNSEEN)?;
    let beside = fill(cuda);
    fills(beside.bytes + held + UNSEEN, budget(session, 0)?, rooms)?;
    for block in beside.held {
        ensure_eq!(cuda.free(block), OK, "cuMemFree_v2");
    }
    drop(unseen);
    fills(fill(cuda).bytes + held, budget(session, 0)?, rooms)
}

cases! {
    /// A process that took memory past the hooks and asks for nothing more is seen by the next process of the tenant that asks.
    what_an_idle_process_took_unseen_is_granted_to_nobody {
        kind: Budget, defects: ["F1", "V15"], entry_points: ["cuMemAlloc_v2"], budget: "0=6GiB",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        let mut idle = Tenant::start(session)?;
        idle.ask("ready-cuda")?;
        idle.ask(&format!("unseen {} {}", UNSEEN.0, driver(session)?))?;
        gets_the_rest(session, &cuda()?, CONTEXT_ROOM + CONTEXT_ROOM + VULKAN_ROOM)?;
        idle.peer.finish()
    }

    /// The same where that process used Vulkan alone, by the layer, before it went past it.
    what_a_vulkan_process_took_unseen_is_granted_to_nobody {
        kind: Budget, defects: ["F1", "V15"], entry_points: ["cuMemAlloc_v2", "vkAllocateMemory"], budget: "0=6GiB",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        let mut idle = Tenant::start(session)?;
        idle.ask("ready-vulkan")?;
        idle.ask(&format!("unseen {} {}", UNSEEN.0, driver(session)?))?;
        gets_the_rest(session, &cuda()?, CONTEXT_ROOM + VULKAN_ROOM + VULKAN_ROOM)?;
        idle.peer.finish()
    }

    /// A process that shares memory with others is looked at like any other.
    what_a_process_that_shares_took_unseen_is_charged {
        kind: Budget, defects: ["R17b", "F1"], entry_points: ["cuIpcGetMemHandle", "cuMemAlloc_v2"], budget: "0=6GiB",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        let cuda = cuda()?;
        let shared = cuda.allocate(Bytes::mib(64).0);
        ensure_eq!(shared.code, OK, "64 MiB");
        ensure_eq!(cuda.export_ipc(shared.out).code, OK, "cuIpcGetMemHandle");
        let _unseen = Unseen::take(&driver(session)?, UNSEEN)?;
        gets_the_rest(session, &cuda, CONTEXT_ROOM + VULKAN_ROOM + Bytes::mib(64))
    }

    /// What others saw of a process is its tenant's again when the driver holds nothing for it any more, and nobody else is there to look once more.
    what_others_saw_of_a_process_ends_with_its_context {
        kind: Budget, defects: ["R83", "F1"], entry_points: ["cuDevicePrimaryCtxReset_v2", "cuMemAlloc_v2", "cuMemCreate"], budget: "0=6GiB",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        let cuda = cuda()?;
        let unseen = Unseen::take(&driver(session)?, UNSEEN)?;
        let mut other = Tenant::start(session)?;
        let first = other.fill_cuda()?;
        fills(first + UNSEEN, budget(session, 0)?, CONTEXT_ROOM + CONTEXT_ROOM + VULKAN_ROOM)?;
        other.free()?;
        drop(unseen);
        ensure_eq!(cuda.reset_primary(0), OK, "cuDevicePrimaryCtxReset_v2");
        // Nobody else looks from now on, and what this process makes without a context gives it no row.
        other.peer.finish()?;
        teardown_is_over(session)?;
        let part = Bytes::mib(64);
        let made = std::iter::from_fn(|| cuda.create_memory(0, part.0).granted().ok()).count() as u64;
        fills(Bytes(made * part.0), budget(session, 0)?, CONTEXT_ROOM)
    }

    /// So is one of the tenant's that no library of ours was asked for anything in, whose first thread has ended.
    what_a_process_without_a_first_thread_took_unseen_is_granted_to_nobody {
        kind: Budget, defects: ["R78", "R8"], entry_points: ["cuMemAlloc_v2"], budget: "0=6GiB",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        let mut idle = Tenant::without_first_thread(session)?;
        idle.ask(&format!("unseen {} {}", UNSEEN.0, driver(session)?))?;
        gets_the_rest(session, &cuda()?, CONTEXT_ROOM + VULKAN_ROOM + Bytes::mib(64))?;
        idle.peer.finish()
    }

    /// A malloc heap that nothing has taken explains nothing that the driver says of the process; the launch that takes it takes what is charged, and it is
    /// charged once.
    what_is_taken_unseen_beside_a_malloc_heap_is_charged {
        kind: Budget, defects: ["F1", "R6"], entry_points: ["cuCtxSetLimit", "cuLaunchKernel", "cuMemAlloc_v2"], budget: "0=6GiB",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        const MALLOC_HEAP_SIZE: i32 = 2;
        const HEAP: Bytes = Bytes::gib(1);
        let rooms = CONTEXT_ROOM + VULKAN_ROOM + Bytes::mib(192);
        let cuda = cuda()?;
        let module = cuda.load_module(&Image::ptx(CALLS_MALLOC));
        ensure_eq!(module.code, OK, "a module that calls malloc");
        let (empty, takes) = (plain(&cuda)?, cuda.function(module.out, "k"));
        ensure_eq!(takes.code, OK, "cuModuleGetFunction");
        ensure_eq!(cuda.set_limit(MALLOC_HEAP_SIZE, HEAP.0), OK, "a heap of {HEAP}");
        ensure_eq!(cuda.launch_function(empty, 0), OK, "a kernel that does not call malloc");
        let _unseen = Unseen::take(&driver(session)?, UNSEEN)?;
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes + UNSEEN + HEAP, budget(session, 0)?, rooms)?;
        ensure_eq!(cuda.launch_function(takes.out, 0), OK, "a kernel that calls malloc");
        for block in taken.held {
            ensure_eq!(cuda.free(block), OK, "cuMemFree_v2");
        }
        let again = fill(&cuda);
        again.refused_with(OUT_OF_MEMORY)?;
        fills(again.bytes + UNSEEN + HEAP, budget(session, 0)?, rooms)
    }

    /// Local memory that the driver has taken hides nothing that is gone: what was taken past the hooks beside it is the tenant's again after its end.
    what_was_taken_unseen_beside_local_memory_is_granted_again {
        kind: Budget, defects: ["F1f"], entry_points: ["cuLaunchKernel", "cuCtxGetLimit", "cuMemAlloc_v2"], budget: "0=20GiB",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        let rooms = CONTEXT_ROOM + VULKAN_ROOM;
        let cuda = cuda()?;
        let memory = cuda.allocate(4096);
        ensure_eq!(memory.code, OK, "cuMemAlloc_v2");
        let module = cuda.load_module(&super::functions::image());
        ensure_eq!(module.code, OK, "cuModuleLoadData");
        let large = cuda.function(module.out, "large");
        ensure_eq!(large.code, OK, "a function of 64 KiB a thread");
        let free = || Bytes(cuda.memory_info_free().out);
        let before = free();
        ensure_eq!(cuda.launch_function(large.out, memory.out), OK, "its launch");
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        let local = before.saturating_sub(free());
        ensure!(local >= UNSEEN, "a launch of 64 KiB a thread was charged {local}");
        comes_back(session, &cuda, local, rooms)
    }

    /// Managed memory that nobody has touched explains nothing that the driver says of the process.
    what_is_taken_unseen_beside_managed_memory_is_charged {
        kind: Budget, defects: ["R17c", "F1"], entry_points: ["cuMemAllocManaged", "cuMemAlloc_v2"], budget: "0=6GiB",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        let cuda = cuda()?;
        let managed = Bytes::gib(1);
        ensure_eq!(cuda.allocate_managed(managed.0).code, OK, "{managed} managed");
        let _unseen = Unseen::take(&driver(session)?, UNSEEN)?;
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        let rooms = CONTEXT_ROOM + VULKAN_ROOM + Bytes::mib(128);
        fills(taken.bytes + UNSEEN + managed, budget(session, 0)?, rooms)
    }

    /// What was taken past the hooks and given back is charged no longer, whatever was freed of a pool and not waited for.
    what_was_taken_unseen_is_given_back_beside_a_pool {
        kind: Budget, defects: ["R135", "F1"], entry_points: ["cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemAlloc_v2"], budget: "0=6GiB",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        let pooled = Bytes::mib(64);
        let cuda = cuda()?;
        let pool = cuda.create_pool(0);
        ensure_eq!(pool.code, OK, "cuMemPoolCreate");
        let [kept, freed] = [(); 2].map(|()| cuda.allocate_from_pool(Stream::Legacy, pool.out, pooled.0));
        ensure_eq!((kept.code, freed.code), (OK, OK), "two of a pool");
        let rooms = CONTEXT_ROOM + VULKAN_ROOM + pooled + pooled;
        let unseen = Unseen::take(&driver(session)?, UNSEEN)?;
        let beside = fill(&cuda).bytes;
        fills(beside + UNSEEN, budget(session, 0)?, rooms)?;
        ensure_eq!(cuda.free_async(Stream::Legacy, freed.out), OK, "cuMemFreeAsync");
        drop(unseen);
        // No call in between that waits.
        let rest = UNSEEN.saturating_sub(VULKAN_ROOM);
        ensure_eq!(cuda.allocate(rest.0).code, OK, "{rest} that is free again");
        fills(beside + rest, budget(session, 0)?, rooms)
    }

    /// Small arrays that were destroyed, but for those of a few blocks, stay charged for a while; what is taken unseen meanwhile is found when others are made in
    /// their stead.
    small_arrays_that_are_made_again_hide_nothing_that_is_taken_unseen {
        kind: Budget, defects: ["R136", "F1"], entry_points: ["cuArrayCreate_v2", "cuArrayDestroy"], budget: "0=4GiB",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "what is taken past the hooks is charged afterwards, after a 64th of the budget at most",
    } (session) {
        /// 64 KiB each: 32 in a block.
        const SMALL: u64 = 128;
        const ALL: usize = 16384;
        const BLOCK: usize = 32;
        let (cuda, nvml, budget) = (cuda()?, nvml()?, budget(session, 0)?);
        let made = || {
            let array = cuda.create_array(SMALL, SMALL);
            (array.code == OK).then_some(array.out)
        };
        let mut first: Vec<_> = std::iter::from_fn(made).take(ALL).collect();
        ensure_eq!(first.len(), ALL, "arrays of 64 KiB");
        for array in first.split_off(ALL / BLOCK) {
            ensure_eq!(cuda.destroy_array(array), OK, "cuArrayDestroy");
        }
        let _unseen = Unseen::take(&driver(session)?, UNSEEN)?;
        let again = std::iter::from_fn(made).take(ALL).count();
        let (held, bound) = (row(&nvml)?, Bytes(budget.0 / 64));
        ensure!(held <= budget + bound, "{again} made again, and {held} in NVML's row under {budget}");
        ensure!(held + bound + bound >= budget, "{again} made again, and {held} in NVML's row under {budget}");
        Ok(())
    }

    /// Nor beside a library that is loaded.
    what_was_taken_unseen_is_given_back_beside_a_library {
        kind: Budget, defects: ["R139", "F1"], entry_points: ["cuLibraryLoadData", "cuMemAlloc_v2"], budget: "0=6GiB",
        needs: ["cuLibraryLoadData"],
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        let size = Bytes::gib(1);
        let cuda = cuda()?;
        let library = cuda.load_library(&Image::ptx(&program(size)));
        ensure_eq!(library.code, OK, "cuLibraryLoadData of {size}");
        comes_back(session, &cuda, size, CONTEXT_ROOM + VULKAN_ROOM)
    }

    /// Threads that allocate and free without end change the books all the time, and what was taken past the hooks is charged all the same.
    what_is_taken_unseen_is_charged_while_others_allocate {
        kind: Budget, defects: ["F1", "F1a"], entry_points: ["cuMemAlloc_v2", "cuMemFree_v2", "cuLaunchKernel", "cuMemGetInfo_v2"], budget: "0=6GiB",
        faults: plan!("nvml-rows-delayed"),
        unordered: "threads race, until it is looked at",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        // So little that no thread grows enough to have the driver looked at by itself: who waits for such a look changes nothing.
        const CHURNED: Bytes = Bytes::mib(2);
        const PARTS: u64 = 4;
        let cuda = cuda()?;
        let current = crate::clients::context(&cuda, 0)?;
        let budget = budget(session, 0)?;
        let done = std::sync::atomic::AtomicBool::new(false);
        let rounds = [const { std::sync::atomic::AtomicU32::new(0) }; 3];
        std::thread::scope(|scope| {
            for rounds in &rounds {
                let done = &done;
                let cuda = &cuda;
                scope.spawn(move || {
                    cuda.set_current(current);
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        let block = cuda.allocate(CHURNED.0);
                        if block.code == OK {
                            cuda.free(block.out);
                        }
                        rounds.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                });
            }
            // A thread's first call has the driver looked at while nothing else goes on: nothing is there to be seen yet.
            let patience = Instant::now() + Duration::from_secs(20);
            let begun = || rounds.iter().all(|rounds| rounds.load(std::sync::atomic::Ordering::Relaxed) >= 64);
            while !begun() && Instant::now() < patience {
                std::thread::sleep(Duration::from_millis(1));
            }
            // In parts, each of which has to be seen: now and then a look finds all threads at rest.
            let part = Bytes(UNSEEN.0 / PARTS);
            let mut held = Vec::new();
            let charged = (1..=PARTS).try_for_each(|parts| {
                let driver = driver(session)?;
                held.push(Unseen::take(&driver, part)?);
                let patience = Instant::now() + Duration::from_secs(10);
                loop {
                    // A wait, on whose way the driver is looked at now and then.
                    let waited = cuda.synchronize();
                    let info = cuda.memory_info();
                    ensure_eq!((waited, info.code), (OK, OK), "cuCtxSynchronize and cuMemGetInfo");
                    let unseen = Bytes(part.0 * parts);
                    if Bytes(info.out.0) + unseen <= budget {
                        return Ok(());
                    }
                    let free = info.out.0;
                    ensure!(Instant::now() < patience, "{free} bytes of {budget} are told free after 10 s, beside {unseen} that the device holds");
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            charged
        })
    }

    /// A context is charged what it takes, though another thread waits for what it freed of a pool while it is made: what the driver lets go of in the wait hides
    /// as much of the context, until that thread has read the pool.
    a_context_is_charged_whole_while_a_pool_lets_go {
        kind: Budget, defects: ["R137"], entry_points: ["cuCtxCreate_v2", "cuMemAllocAsync", "cuMemFreeAsync", "cuMemFree_v2"], budget: "0=4GiB",
        unordered: "threads race",
    } (session) {
        const POOLED: Bytes = Bytes::mib(384);
        const ROUNDS: u64 = 160;
        /// A card takes 100 ms for each.
        const LONG: Duration = Duration::from_secs(20);
        let (cuda, nvml, budget) = (cuda()?, nvml()?, budget(session, 0)?);
        let current = crate::clients::context(&cuda, 0)?;
        let lets_go = |at_once: bool| {
            let pooled = cuda.allocate_async(Stream::Legacy, POOLED.0);
            if pooled.code == OK && at_once {
                cuda.free(pooled.out);
            } else if pooled.code == OK {
                cuda.free_async(Stream::Legacy, pooled.out);
                cuda.synchronize();
            }
        };
        let began = Instant::now();
        for round in (0..ROUNDS).take_while(|_| began.elapsed() < LONG) {
            let done = std::sync::atomic::AtomicBool::new(false);
            let context = std::thread::scope(|scope| {
                scope.spawn(|| {
                    cuda.set_current(current);
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        lets_go(round % 2 == 0);
                    }
                });
                std::thread::sleep(Duration::from_micros(300));
                let context = cuda.create_context(0);
                done.store(true, std::sync::atomic::Ordering::Relaxed);
                context
            });
            ensure_eq!(context.code, OK, "cuCtxCreate_v2");
            cuda.set_current(current);
            let (told, held) = (budget.saturating_sub(Bytes(cuda.memory_info_free().out)), row(&nvml)?);
            ensure!(told >= held, "{told} told to be held, and {held} in NVML's row");
            ensure_eq!(cuda.destroy_context(context.out), OK, "cuCtxDestroy_v2");
        }
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        fills(taken.bytes, budget, CONTEXT_ROOM)
    }

    /// Contexts are charged what they take beside a destroyed pool, too, of which something lives: the room is others'.
    contexts_beside_a_destroyed_pool_leave_their_room {
        kind: Budget, defects: ["R138"], entry_points: ["cuMemPoolDestroy", "cuCtxCreate_v2", "cuMemAlloc_v2"], budget: "0=12GiB",
    } (session) {
        const CONTEXTS: u64 = 8;
        let (cuda, nvml, budget) = (cuda()?, nvml()?, budget(session, 0)?);
        let current = crate::clients::context(&cuda, 0)?;
        let pool = cuda.create_pool(0);
        ensure_eq!(pool.code, OK, "cuMemPoolCreate");
        let living = cuda.allocate_from_pool(Stream::Legacy, pool.out, Bytes::mib(4).0);
        ensure_eq!((living.code, cuda.synchronize()), (OK, OK), "4 MiB of a pool");
        ensure_eq!(cuda.destroy_pool(pool.out), OK, "cuMemPoolDestroy");
        for _ in 0..CONTEXTS {
            ensure_eq!(cuda.create_context(0).code, OK, "cuCtxCreate_v2");
        }
        cuda.set_current(current);
        let before = row(&nvml)?;
        let taken = fill(&cuda);
        taken.refused_with(OUT_OF_MEMORY)?;
        let unsaid = Bytes::mib(20 * (CONTEXTS + 1));
        ensure!(taken.bytes + before <= budget, "{} granted beside {before} under {budget}", taken.bytes);
        ensure!(taken.bytes + before + unsaid >= budget, "{} granted beside {before} under {budget}", taken.bytes);
        let freed = (cuda.free_async(Stream::Legacy, living.out), cuda.synchronize());
        ensure_eq!(freed, (OK, OK), "what lived of the pool");
        Ok(())
    }

    /// Who was told that more is held than was asked for is told all the same when that puts it over its budget, once each.
    an_overdrawn_budget_is_said_after_what_nobody_asked_for {
        kind: Budget, defects: ["F1", "F1b"], entry_points: ["cuMemAlloc_v2"], budget: "0=6GiB",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "what is taken past the hooks exceeds the budget",
    } (session) {
        let cuda = cuda()?;
        let driver = driver(session)?;
        let (looked, [_, stderr]) = overhear(|| -> Result<Vec<Unseen>, Failure> {
            let mut held = Vec::new();
            for _ in 0..3 {
                held.push(Unseen::take(&driver, UNSEEN)?);
                // Far more than is left, so that the driver is looked at.
                for _ in 0..2 {
                    cuda.allocate(Bytes::gib(4).0);
                }
            }
            Ok(held)
        })?;
        looked?;
        let lines = |text: &str| stderr.lines().filter(|line| line.contains(text)).count();
        ensure_eq!(lines("beyond what its calls were charged for"), 2, "lines of what nobody asked for: {stderr}");
        ensure_eq!(lines("is exceeded by"), 1, "lines of the overdrawn budget: {stderr}");
        Ok(())
    }

    /// What is charged for a pool and not taken exceeds no budget: who took as much past the hooks is not told that it did, and is when it has taken more.
    a_budget_that_only_a_spare_exceeds_is_not_said_to_be_exceeded {
        kind: Budget, defects: ["R147"], entry_points: ["cuMemAllocAsync", "cuMemFreeAsync", "cuMemAlloc_v2"], budget: "0=2GiB",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "what is taken past the hooks exceeds the budget",
    } (session) {
        const SMALL: u32 = 40;
        let cuda = cuda()?;
        let held = Unseen::take(&driver(session)?, Bytes::mib(1))?;
        // Small requests that came and went: the pool is charged a step that it does not reserve.
        for request in 0..2 * SMALL {
            let small = cuda.allocate_async(Stream::Legacy, Bytes::mib(1).0);
            ensure_eq!(small.code, OK, "1 MiB of the pool");
            if request >= SMALL {
                ensure_eq!(cuda.free_async(Stream::Legacy, small.out), OK, "cuMemFreeAsync");
            }
        }
        ensure_eq!(cuda.synchronize(), OK, "cuCtxSynchronize");
        fill(&cuda).refused_with(OUT_OF_MEMORY)?;
        let after = |bytes: u64| -> Result<usize, Failure> {
            let (looked, [_, stderr]) = overhear(|| -> Result<(), Failure> {
                held.take_more(Bytes::mib(bytes))?;
                // Far more than is left, so that the driver is looked at.
                ensure_eq!(cuda.allocate(Bytes::gib(1).0).code, OUT_OF_MEMORY, "1 GiB");
                Ok(())
            })?;
            looked?;
            Ok(stderr.lines().filter(|line| line.contains("is exceeded by")).count())
        };
        let lines = [after(16)?, after(32)?];
        ensure_eq!(lines, [0, 1], "lines of the overdrawn budget after 16 MiB, and after 32 more");
        Ok(())
    }

    /// What is taken past the hooks below the most that a process ever held is charged before as much is granted again.
    what_is_taken_unseen_below_an_old_peak_is_charged {
        kind: Budget, defects: ["R31", "F1"], entry_points: ["cuMemAlloc_v2", "cuMemFree_v2", "cuMemGetInfo_v2"], budget: "0=6GiB",
        unordered: "allocates until it is looked at",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        const STEP: Bytes = Bytes::mib(16);
        let cuda = cuda()?;
        let budget = budget(session, 0)?;
        let peak = fill(&cuda);
        peak.refused_with(OUT_OF_MEMORY)?;
        for block in peak.held {
            ensure_eq!(cuda.free(block), OK, "cuMemFree_v2");
        }
        let _unseen = Unseen::take(&driver(session)?, UNSEEN)?;
        let mut granted = Bytes::ZERO;
        loop {
            let block = cuda.allocate(STEP.0);
            ensure_eq!(block.code, OK, "{STEP} beside {granted} and {UNSEEN} unseen");
            granted += STEP;
            let info = cuda.memory_info();
            ensure_eq!(info.code, OK, "cuMemGetInfo_v2");
            if Bytes(info.out.0) + granted + UNSEEN <= budget {
                return Ok(());
            }
            ensure!(granted + UNSEEN <= budget, "{granted} were granted under {budget} beside {UNSEEN} that nobody looked at");
            // No look takes more than a hundredth of the time.
            std::thread::sleep(Duration::from_millis(40));
        }
    }

    /// While the budget is exceeded the driver takes nothing unasked either: no code of a function, no library.
    what_takes_memory_unasked_is_refused_over_the_budget {
        kind: Budget, defects: ["R31", "F1"], budget: "0=6GiB",
        entry_points: ["cuMemAlloc_v2", "cuModuleGetFunction", "cuLibraryLoadData", "cuLibraryGetKernel"], needs: ["cuLibraryLoadData"],
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "what is taken past the hooks exceeds the budget",
    } (session) {
        let cuda = cuda()?;
        let image = Image::ptx(".version 7.0
.target sm_70
.address_size 64
.visible .entry empty()
{
ret;
}
");
        let (module, library) = (cuda.load_module(&image), cuda.load_library(&image));
        ensure_eq!((module.code, library.code), (OK, OK), "a module and a library");
        let asked = || {
            let more = cuda.load_library(&image);
            if more.code == OK {
                cuda.unload_library(more.out);
            }
            [cuda.function(module.out, "empty").code, cuda.kernel(library.out, "empty").code, more.code]
        };
        let driver = driver(session)?;
        {
            let _unseen = [Unseen::take(&driver, UNSEEN)?, Unseen::take(&driver, UNSEEN)?];
            ensure_eq!(cuda.allocate(UNSEEN.0).code, OUT_OF_MEMORY, "{UNSEEN} over the budget");
            ensure_eq!(asked(), [OUT_OF_MEMORY; 3], "a function, a kernel and a library over the budget");
        }
        ensure_eq!(asked(), [OK; 3], "a function, a kernel and a library within the budget again");
        Ok(())
    }

    /// A process that took memory past the hooks and only launches kernels is charged for it while it launches.
    what_is_taken_unseen_is_charged_while_a_process_only_launches {
        kind: Budget, defects: ["F1"], entry_points: ["cuLaunchKernel", "cuMemGetInfo_v2"], budget: "0=6GiB",
        unordered: "launches until it is looked at",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        let cuda = cuda()?;
        let function = plain(&cuda)?;
        let _unseen = Unseen::take(&driver(session)?, UNSEEN)?;
        let budget = budget(session, 0)?;
        let patience = Instant::now() + Duration::from_secs(20);
        loop {
            ensure_eq!(cuda.launch_function(function, 0), OK, "cuLaunchKernel");
            let info = cuda.memory_info();
            ensure_eq!(info.code, OK, "cuMemGetInfo_v2");
            let (free, _) = info.out;
            if Bytes(free) + UNSEEN <= budget {
                return Ok(());
            }
            ensure!(Instant::now() < patience, "{free} bytes of {budget} are told free after 20 s, beside {UNSEEN} that the device holds");
            // Others have work to do on this machine, too.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
