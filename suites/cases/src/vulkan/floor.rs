//! What a Vulkan driver takes of the device beside vkAllocateMemory is charged by its own figure of the process, in processes that use nothing but
//! Vulkan (F1 of `fixtures/defects.txt`).

use std::ffi::CStr;
use std::time::{Duration, Instant};

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Library, Session, cases, ensure, ensure_eq, fail};

use crate::clients::{Gpu, first_gpu, instance, nvml, told};
use crate::cuda::floor::Unseen;
use crate::ffi::nvml::Nvml;
use crate::ffi::vulkan::{Client, Code, Query, Route, Vulkan};
use crate::greed::{CONTEXT_ROOM, VULKAN_ROOM, budget, fills};
use crate::tenant::Tenant;

const REFUSED: Code = Code::OUT_OF_DEVICE_MEMORY;
const UNSEEN: Bytes = Bytes::gib(3);
/// 256 bytes each: a MiB in a command buffer.
const DISPATCHES: u32 = 4096;
/// Most that is recorded between two looks: 32 command buffers, and blocks.
const BOUND: Bytes = Bytes::mib(40);
const MAKERS: [&CStr; 13] = [
    c"vkCreateGraphicsPipelines",
    c"vkCreateComputePipelines",
    c"vkCreateRayTracingPipelinesKHR",
    c"vkCreateRayTracingPipelinesNV",
    c"vkCreateShadersEXT",
    c"vkCreateSwapchainKHR",
    c"vkCreateSharedSwapchainsKHR",
    c"vkCreateVideoSessionKHR",
    c"vkCreateOpticalFlowSessionNV",
    c"vkCreateCuModuleNVX",
    c"vkCreateCudaModuleNV",
    c"vkBeginCommandBuffer",
    c"vkEndCommandBuffer",
];
/// A device is given memory for what is recorded in blocks, and requests end at one.
const STEP: Bytes = Bytes::mib(8);

fn unseen(session: &Session) -> Result<Unseen, Failure> {
    Unseen::take(&driver(session)?, UNSEEN)
}

/// What NVML says that this process holds of the first GPU.
pub fn row(nvml: &Nvml) -> Result<Bytes, Failure> {
    let rows = rows(nvml)?;
    match rows.iter().find(|(pid, _)| *pid == std::process::id()) {
        Some((_, used)) => Ok(Bytes(*used)),
        None => fail!("this process is in none of NVML's rows: {rows:?}"),
    }
}

/// All that NVML shows on the first GPU: pids and bytes.
pub fn rows(nvml: &Nvml) -> Result<Vec<(u32, u64)>, Failure> {
    let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
    told("the processes that compute", nvml.processes(device))
}

fn driver(session: &Session) -> Result<String, Failure> {
    Ok(session.library(Library::MockIcd)?.display().to_string())
}

/// Takes to the budget and frees it again; what that was.
fn filled(gpu: &Gpu) -> Result<Bytes, Failure> {
    let taken = gpu.fill();
    taken.refused_with(REFUSED)?;
    for memory in taken.held {
        gpu.device.free(memory);
    }
    Ok(taken.bytes)
}

cases! {
    /// What the driver takes for recorded commands is not granted to vkAllocateMemory, and can be had again when their device is gone.
    what_recorded_commands_take_is_charged_while_they_live {
        kind: Budget, defects: ["F1"], entry_points: ["vkBeginCommandBuffer", "vkEndCommandBuffer", "vkAllocateMemory"], budget: "0=2GiB",
    } (session) {
        let (gpu, budget, nvml) = (Gpu::first()?, budget(session, 0)?, nvml()?);
        let all = filled(&gpu)?;
        fills(all, budget, VULKAN_ROOM)?;
        let worker = gpu.instance.worker(gpu.physical, Route::Submit)?;
        let (before, beside) = (row(&nvml)?, filled(&gpu)?);
        for _ in 0..256 {
            worker.record_dispatches(DISPATCHES)?;
        }
        let taken = row(&nvml)?.saturating_sub(before);
        ensure!(taken >= Bytes::mib(128), "a million recorded dispatches took {taken}");
        fills(filled(&gpu)? + taken, beside, STEP)?;
        drop(worker);
        fills(filled(&gpu)?, all, STEP)
    }

    /// What it took is the tenant's at once when they are gone with their device, though the process lives and asks for nothing.
    what_recorded_commands_took_is_anybodys_after_their_device {
        kind: Budget, defects: ["R83", "F1"], entry_points: ["vkDestroyDevice", "vkDestroyInstance", "vkEndCommandBuffer", "cuMemAlloc_v2"], budget: "0=2GiB",
    } (session) {
        let nvml = nvml()?;
        let mut other = Tenant::start(session)?;
        let all = other.fill_cuda()?;
        fills(all, budget(session, 0)?, CONTEXT_ROOM)?;
        other.free()?;
        let instance = instance(Client::V1_1)?;
        let worker = instance.worker(first_gpu(&instance)?, Route::Submit)?;
        let before = row(&nvml)?;
        for _ in 0..512 {
            worker.record_dispatches(DISPATCHES)?;
        }
        let taken = row(&nvml)?.saturating_sub(before);
        ensure!(taken >= Bytes::mib(256), "2 million recorded dispatches took {taken}");
        fills(other.fill_cuda()? + taken, all, VULKAN_ROOM)?;
        other.free()?;
        drop((worker, instance));
        fills(other.fill_cuda()?, all, STEP)?;
        other.peer.finish()
    }

    /// So beside managed memory, which is in no row, and explains nothing of what the driver takes for recorded commands.
    what_recorded_commands_take_is_charged_beside_managed_memory {
        kind: Budget, defects: ["F1", "R17"], entry_points: ["vkEndCommandBuffer", "vkAllocateMemory", "cuMemAllocManaged"], budget: "0=4GiB",
    } (session) {
        let managed = Bytes::gib(1);
        let cuda = crate::clients::cuda()?;
        ensure_eq!(cuda.allocate_managed(managed.0).code, CUresult::SUCCESS, "{managed} managed");
        let (gpu, nvml) = (Gpu::first()?, nvml()?);
        let worker = gpu.instance.worker(gpu.physical, Route::Submit)?;
        let before = row(&nvml)?;
        for _ in 0..512 {
            worker.record_dispatches(DISPATCHES)?;
        }
        let taken = row(&nvml)?.saturating_sub(before);
        ensure!(taken >= Bytes::mib(256), "2 million recorded dispatches took {taken}");
        let beside = filled(&gpu)?;
        fills(beside + taken + managed, budget(session, 0)?, CONTEXT_ROOM + VULKAN_ROOM + Bytes::mib(128))?;
        let all = Bytes(beside.0 + managed.0) + row(&nvml)?;
        ensure!(all <= budget(session, 0)?, "{all} in NVML's row, managed and granted");
        Ok(())
    }

    /// So beside a heap that is set and that no launch has made the driver take: when one does, there is room for it.
    what_recorded_commands_take_is_charged_beside_a_heap_that_nobody_took {
        kind: Budget, defects: ["R133"], entry_points: ["vkEndCommandBuffer", "cuCtxSetLimit"], budget: "0=4GiB",
        unaccounted: "what a driver takes by itself is charged afterwards: what is recorded until the next look passes the budget",
        unordered: "how often is looked depends on the time",
    } (session) {
        const HEAP: i32 = 2;
        let heap = Bytes::gib(2);
        let (budget, nvml) = (budget(session, 0)?, nvml()?);
        let cuda = crate::clients::cuda()?;
        ensure_eq!(cuda.set_limit(HEAP, heap.0), CUresult::SUCCESS, "a heap of {heap}");
        let gpu = Gpu::first()?;
        let worker = gpu.instance.worker(gpu.physical, Route::Submit)?;
        let refusal = (0..8192).find_map(|_| worker.record_dispatches(DISPATCHES).err());
        ensure_eq!(refusal, Some(REFUSED), "8 GiB of recorded commands under {budget}");
        let before = row(&nvml)?;
        ensure!(before + heap + CONTEXT_ROOM >= budget, "refused with {before} in NVML's row beside a heap of {heap} under {budget}");
        ensure!(before + heap <= budget + BOUND, "{before} in NVML's row beside a heap of {heap} under {budget}");
        Ok(())
    }

    /// A process that does nothing but record commands records to the budget, and little beyond it.
    who_only_records_is_refused_at_the_budget {
        kind: Budget, defects: ["F1"], entry_points: ["vkBeginCommandBuffer", "vkEndCommandBuffer"], budget: "0=256MiB",
        unordered: "how often is looked depends on the time",
        unaccounted: "what a driver takes by itself is charged afterwards: what is recorded until the next look passes the budget",
    } (session) {
        let (budget, nvml) = (budget(session, 0)?, nvml()?);
        let instance = instance(Client::V1_1)?;
        let worker = instance.worker(first_gpu(&instance)?, Route::Submit)?;
        let refusal = (0..1024).find_map(|_| worker.record_dispatches(DISPATCHES).err());
        ensure_eq!(refusal, Some(REFUSED), "a GiB of recorded commands under {budget}");
        let held = row(&nvml)?;
        ensure!(held <= budget + BOUND, "{held} in NVML's row under {budget}");
        ensure!(held + VULKAN_ROOM >= budget, "refused with {held} in NVML's row under {budget}");
        Ok(())
    }

    /// What makes pipelines, swapchains and the like is there with the layer exactly where the driver has it.
    what_is_looked_at_is_there_where_the_driver_has_it {
        defects: ["F1", "V12"], budget: "0=4GiB",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        entry_points: [
            "vkCreateGraphicsPipelines", "vkCreateComputePipelines", "vkCreateRayTracingPipelinesKHR", "vkCreateRayTracingPipelinesNV", "vkCreateShadersEXT",
            "vkCreateSwapchainKHR", "vkCreateSharedSwapchainsKHR", "vkCreateVideoSessionKHR", "vkCreateOpticalFlowSessionNV", "vkCreateCuModuleNVX",
            "vkCreateCudaModuleNV", "vkBeginCommandBuffer", "vkEndCommandBuffer",
        ],
    } (session) {
        let bare = Vulkan::open_driver(driver(session)?.as_ref())?.instance(Client::V1_1)?;
        let bare = Gpu::on(&bare, first_gpu(&bare)?)?;
        let ours = Gpu::first()?;
        let mut there = 0;
        for name in MAKERS {
            let known = bare.device.address_of(&bare.instance, name).is_some();
            ensure_eq!(ours.device.address_of(&ours.instance, name).is_some(), known, "whether {name:?} is there");
            there += usize::from(known);
        }
        ensure!(there >= 4, "the driver has {there} of {MAKERS:?}");
        Ok(())
    }

    /// What a process took by the driver itself, past the layer, is not granted to its vkAllocateMemory, whatever it asks for first.
    what_is_taken_past_the_layer_is_not_granted_by_it {
        kind: Budget, defects: ["F1", "V15"], entry_points: ["vkAllocateMemory"], budget: "0=6GiB",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        let gpu = Gpu::first()?;
        let _unseen = unseen(session)?;
        fills(filled(&gpu)? + UNSEEN, budget(session, 0)?, VULKAN_ROOM + VULKAN_ROOM)
    }

    /// The same where the process asks for nothing and only submits: it is seen while it does.
    what_is_taken_past_the_layer_is_charged_while_a_process_only_submits {
        kind: Budget, defects: ["F1"], entry_points: ["vkQueueSubmit", "vkGetPhysicalDeviceMemoryProperties2"], budget: "0=6GiB",
        unordered: "submits until it is looked at",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        let (gpu, budget) = (Gpu::first()?, budget(session, 0)?);
        let _unseen = unseen(session)?;
        let patience = Instant::now() + Duration::from_secs(60);
        loop {
            gpu.device.submit_nothing()?;
            let told = gpu.instance.heap_budgets(gpu.physical, Query::Second);
            let local = told.heaps.iter().position(|heap| heap.device_local).unwrap_or(0);
            let left = Bytes(told.budget[local].saturating_sub(told.usage[local]));
            if left + UNSEEN <= budget {
                ensure!(left + UNSEEN + VULKAN_ROOM + VULKAN_ROOM >= budget, "only {left} are told to be left of {budget}");
                return Ok(());
            }
            ensure!(Instant::now() < patience, "{left} of {budget} are told to be left after a minute, beside {UNSEEN} that the device holds");
            // Others have work to do on this machine, too.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Another process of the tenant that uses nothing but Vulkan sees it too.
    what_a_process_took_past_the_layer_is_granted_to_no_other {
        kind: Budget, defects: ["F1", "V15"], entry_points: ["vkAllocateMemory"], budget: "0=6GiB",
        on_real: No("opens the mock's library; the vendor's has another name on each machine"),
        unaccounted: "NVML's row lacks 27 MiB of what a VkInstance and a VkDevice take, and nobody charged them",
    } (session) {
        let mut idle = Tenant::start(session)?;
        idle.ask("ready-vulkan")?;
        idle.ask(&format!("unseen {} {}", UNSEEN.0, driver(session)?))?;
        let gpu = Gpu::first()?;
        fills(filled(&gpu)? + UNSEEN, budget(session, 0)?, VULKAN_ROOM + VULKAN_ROOM + VULKAN_ROOM)?;
        idle.peer.finish()
    }
}
