//! Drivers that lie, fail, stall or lose their device: the answer under a fault is the fault's, budgets still hold, and
//! nothing crashes. Each plan is a file of `fixtures/faults`, which `ringfence exec --fault` takes as well.

use std::sync::Barrier;

use abi::cuda::CUresult;
use abi::nvml::nvmlReturn_t;
use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq, fail};

use crate::clients::{Gpu, context, cuda, cuda_without_context, fill, instance, nvml, told};
use crate::ffi::cuda::{Cuda, Stream, UNTOUCHED};
use crate::ffi::nvml::Nvml;
use crate::ffi::vulkan::{Client, Code, Vulkan};
use crate::greed::{CONTEXT_ROOM, VULKAN_ROOM, budget, fills};
use crate::symbols::proc_address::newest_look_up;
use crate::tenant::Tenant;

macro_rules! plan {
    ($name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fixtures/faults/",
            $name,
            ".toml"
        ))
    };
}
pub(crate) use plan;

const NO_MEMORY: CUresult = CUresult::ERROR_OUT_OF_MEMORY;
const UNKNOWN: CUresult = CUresult::ERROR_UNKNOWN;
const UNAVAILABLE: CUresult = CUresult::ERROR_DEVICE_UNAVAILABLE;

/// Takes until refused for want of memory, whatever else a request is answered in between.
fn take_stubbornly<C: PartialEq + std::fmt::Debug>(
    full: C,
    chance: C,
    mut take: impl FnMut(Bytes) -> Result<(), C>,
) -> Result<Bytes, Failure> {
    let mut taken = Bytes::ZERO;
    for step in crate::greed::STEPS {
        loop {
            match take(step) {
                Ok(()) => taken += step,
                Err(code) if code == chance => {}
                Err(code) if code == full => break,
                Err(code) => fail!("a request was answered {code:?}"),
            }
        }
    }
    Ok(taken)
}

/// cuInit answers the fault's code and initialises nothing.
fn initialisation_fails(code: u32) -> Result<(), Failure> {
    let cuda = Cuda::open()?;
    ensure_eq!(cuda.init(), CUresult(code), "cuInit");
    let answer = cuda.allocate(1).code;
    ensure_eq!(answer, CUresult::ERROR_NOT_INITIALIZED, "cuMemAlloc_v2");
    ensure_eq!(cuda.init(), CUresult(code), "cuInit again");
    Ok(())
}

/// CUDA keeps the budget though NVML cannot be initialised.
fn kept_without_nvml(session: &Session, code: u32) -> Result<(), Failure> {
    ensure_eq!(Nvml::open()?.init(), nvmlReturn_t(code), "nvmlInit_v2");
    let cuda = cuda()?;
    let taken = fill(&cuda);
    taken.refused_with(NO_MEMORY)?;
    fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)?;
    ensure_eq!(
        Nvml::open()?.init(),
        nvmlReturn_t(code),
        "nvmlInit_v2 again"
    );
    Ok(())
}

cases! {
    /// A GPU that falls off the bus answers CUDA_ERROR_DEVICE_UNAVAILABLE from then on, to requests within and beyond the
    /// budget and to frees; NVML says GPU_IS_LOST.
    a_lost_gpu_answers_as_the_driver_does {
        defects: ["C1"], entry_points: ["cuMemAlloc_v2", "cuMemFree_v2", "nvmlDeviceGetMemoryInfo"], budget: "0=4GiB",
        faults: plan!("cuda-lost"),
    } (_session) {
        let (cuda, nvml) = (cuda()?, nvml()?);
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        let first = cuda.allocate(Bytes::gib(1).0);
        ensure_eq!(first.code, CUresult::SUCCESS, "the first GiB");
        ensure_eq!(cuda.allocate(1).code, CUresult::SUCCESS, "a byte");
        ensure_eq!(cuda.allocate(1).code, UNAVAILABLE, "a byte of the lost device");
        ensure_eq!(cuda.allocate(Bytes::gib(1).0).code, UNAVAILABLE, "a GiB of it");
        ensure_eq!(cuda.free(first.out), UNAVAILABLE, "cuMemFree_v2");
        ensure_eq!(cuda.synchronize(), UNAVAILABLE, "cuCtxSynchronize");
        ensure_eq!(nvml.memory(device).err(), Some(nvmlReturn_t::ERROR_GPU_IS_LOST), "nvmlDeviceGetMemoryInfo");
        Ok(())
    }

    /// NVML's handle of a lost GPU answers GPU_IS_LOST; the other GPU's tells and keeps its budget.
    a_lost_gpu_leaves_the_other_its_budget {
        kind: Budget, defects: ["S8"], entry_points: ["nvmlDeviceGetMemoryInfo", "cuMemAlloc_v2"], machine: "rtx6000-ada*2",
        needs_gpus: 2, budget: "0=4GiB,1=3GiB", faults: plan!("nvml-lost"),
    } (session) {
        let (cuda, nvml) = (cuda_without_context()?, nvml()?);
        let lost = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        let other = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(1))?;
        while nvml.memory(lost).is_ok() {}
        ensure_eq!(nvml.memory(lost).err(), Some(nvmlReturn_t::ERROR_GPU_IS_LOST), "the lost device's memory");
        let memory = told("nvmlDeviceGetMemoryInfo", nvml.memory(other))?;
        ensure_eq!(Bytes(memory.total), budget(session, 1)?, "the other's total");
        context(&cuda, 1)?;
        fills(fill(&cuda).bytes, budget(session, 1)?, CONTEXT_ROOM)
    }

    /// Requests that the driver fails by chance, one in three, cost nothing: all of the budget can be had, and no more.
    requests_that_fail_by_chance_cost_nothing {
        kind: Budget, defects: ["C3"], entry_points: ["cuMemAlloc_v2"], budget: "0=8GiB", faults: plan!("alloc-one-in-three"),
    } (session) {
        let cuda = cuda()?;
        let taken = take_stubbornly(NO_MEMORY, UNKNOWN, |step| cuda.allocate(step.0).granted().map(drop))?;
        fills(taken, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// The same by Vulkan.
    vulkan_requests_that_fail_by_chance_cost_nothing {
        kind: Budget, defects: ["C3"], entry_points: ["vkAllocateMemory"], budget: "0=8GiB",
        faults: plan!("alloc-one-in-three"),
    } (session) {
        let gpu = Gpu::first()?;
        let taken = take_stubbornly(Code::OUT_OF_DEVICE_MEMORY, Code(-1), |step| gpu.allocate(step).map(drop))?;
        fills(taken, budget(session, 0)?, VULKAN_ROOM)
    }

    /// What the driver itself has no memory for is answered by the driver, and charged to nobody: its refusals go on
    /// beside a budget that has room.
    a_full_card_refuses_within_the_budget {
        defects: ["C3"], entry_points: ["cuMemAlloc_v2", "cuMemFree_v2"], budget: "0=16GiB",
        faults: plan!("cuda-full-after-4gib"),
    } (_session) {
        let cuda = cuda()?;
        let taken = fill(&cuda);
        taken.refused_with(NO_MEMORY)?;
        ensure_eq!(taken.bytes, Bytes::gib(4), "what was granted before the card was full");
        for pointer in taken.held {
            ensure_eq!(cuda.free(pointer), CUresult::SUCCESS, "cuMemFree_v2");
        }
        Ok(())
    }

    /// A driver that says success and gives nothing is not corrected: the out-parameter stays as it was, and what lies in
    /// it cannot be freed.
    a_success_that_gives_nothing_comes_through {
        defects: ["C2", "C7"], entry_points: ["cuMemAlloc_v2", "cuMemFree_v2"], budget: "0=4GiB",
        faults: plan!("cuda-alloc-untouched"),
    } (_session) {
        let cuda = cuda()?;
        let nothing = cuda.allocate(Bytes::gib(1).0);
        ensure_eq!((nothing.code, nothing.out), (CUresult::SUCCESS, UNTOUCHED), "the lying cuMemAlloc_v2");
        ensure_eq!(cuda.free(nothing.out), CUresult::ERROR_INVALID_VALUE, "cuMemFree_v2 of what it gave");
        let pointer = cuda.allocate(Bytes::gib(1).0);
        ensure_eq!(pointer.code, CUresult::SUCCESS, "the next one");
        ensure_eq!(cuda.free(pointer.out), CUresult::SUCCESS, "cuMemFree_v2 of that");
        Ok(())
    }

    /// However slow the driver is, two processes that take all they can get share one budget.
    a_slow_driver_grants_nothing_twice {
        kind: Budget, defects: ["P1"], entry_points: ["cuMemAlloc_v2"], budget: "0=6GiB",
        unordered: "two processes take at once", faults: plan!("cuda-alloc-delayed"),
    } (session) {
        // Both have their contexts before either takes what is left.
        let mut other = Tenant::start(session)?;
        other.ask("ready-cuda")?;
        let cuda = cuda()?;
        other.peer.say("fill-cuda")?;
        let own = fill(&cuda);
        let theirs: u64 = other.peer.line()?.parse().unwrap_or(0);
        let room = Bytes(2 * CONTEXT_ROOM.0);
        fills(own.bytes + Bytes(theirs), budget(session, 0)?, room)
    }

    /// Where cuGetProcAddress answers success and no function, none is made up.
    a_look_up_that_finds_nothing_finds_nothing {
        defects: ["S1", "S2"], entry_points: ["cuGetProcAddress_v2", "cuGetProcAddress"], budget: "0=4GiB",
        faults: plan!("cuda-look-up-null"),
    } (session) {
        let cuda = cuda_without_context()?;
        for name in ["cuMemAlloc", "cuMemFree", "cuInit", "cuDeviceGetCount"] {
            let newest = newest_look_up(session, &cuda, name, 12000, 0)?;
            for answer in [newest, cuda.proc_address_v1(name, 12000, 0)] {
                ensure_eq!(answer.code, CUresult::SUCCESS, "the look-up of {name}");
                ensure!(answer.address.is_none(), "{name} was found though the driver gives none");
            }
        }
        Ok(())
    }

    /// A driver that counts fewer devices than there are is believed: on the others nothing is granted, not even a context.
    a_short_count_changes_no_budget {
        kind: Budget, defects: ["C7", "R10", "D3"], entry_points: ["cuDeviceGetCount", "cuMemAlloc_v2"], machine: "rtx6000-ada*2",
        needs_gpus: 2, budget: "0=4GiB,1=3GiB", faults: plan!("cuda-count-short"),
        unaccounted: "cuInit takes 3.25 MiB of the device that the driver does not count",
    } (session) {
        let cuda = cuda_without_context()?;
        ensure_eq!(cuda.device_count().out, 1, "the devices counted");
        context(&cuda, 0)?;
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        ensure_eq!(cuda.retain_primary(1).code, CUresult::ERROR_OUT_OF_MEMORY, "cuDevicePrimaryCtxRetain of a device that is not counted");
        Ok(())
    }

    /// A cuInit that finds no device says so, each time.
    no_device_is_no_device {
        defects: ["S6"], entry_points: ["cuInit", "cuMemAlloc_v2"], budget: "0=4GiB", faults: plan!("cuda-init-no-device"),
    } (_session) {
        initialisation_fails(100)
    }

    /// A cuInit beside a broken kernel module says CUDA_ERROR_UNKNOWN, each time.
    a_broken_driver_is_a_broken_driver {
        defects: ["S6"], entry_points: ["cuInit", "cuMemAlloc_v2"], budget: "0=4GiB", faults: plan!("cuda-init-unknown"),
    } (_session) {
        initialisation_fails(999)
    }

    /// A cuInit beside another version's kernel module says CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, each time.
    a_mismatched_driver_is_a_mismatched_driver {
        defects: ["S6"], entry_points: ["cuInit", "cuMemAlloc_v2"], budget: "0=4GiB", faults: plan!("cuda-init-mismatch"),
    } (_session) {
        initialisation_fails(803)
    }

    /// Where CUDA finds no device Vulkan keeps the budget.
    without_a_cuda_device_vulkan_keeps_the_budget {
        kind: Budget, defects: ["V8"], entry_points: ["vkAllocateMemory"], budget: "0=4GiB",
        faults: plan!("cuda-init-no-device"),
    } (session) {
        initialisation_fails(100)?;
        fills(Gpu::first()?.fill().bytes, budget(session, 0)?, VULKAN_ROOM)
    }

    /// Without NVML's kernel module CUDA keeps the budget.
    nvml_not_loaded_and_the_budget_is_kept {
        kind: Budget, defects: ["R10", "S8"], entry_points: ["cuMemAlloc_v2"], budget: "0=6GiB",
        faults: plan!("nvml-init-not-loaded"),
    } (session) {
        kept_without_nvml(session, 9)
    }

    /// Without a part of NVML CUDA keeps the budget.
    nvml_incomplete_and_the_budget_is_kept {
        kind: Budget, defects: ["R10", "S8"], entry_points: ["cuMemAlloc_v2"], budget: "0=6GiB",
        faults: plan!("nvml-init-no-library"),
    } (session) {
        kept_without_nvml(session, 12)
    }

    /// With NVML of another version than the kernel module's CUDA keeps the budget.
    nvml_mismatched_and_the_budget_is_kept {
        kind: Budget, defects: ["R10", "S8"], entry_points: ["cuMemAlloc_v2"], budget: "0=6GiB",
        faults: plan!("nvml-init-mismatch"),
    } (session) {
        kept_without_nvml(session, 18)
    }

    /// NVML that cannot be initialised leaves Vulkan's budget kept as well.
    nvml_not_loaded_and_vulkan_keeps_the_budget {
        kind: Budget, defects: ["V8"], entry_points: ["vkAllocateMemory"], budget: "0=4GiB",
        faults: plan!("nvml-init-not-loaded"),
    } (session) {
        fills(Gpu::first()?.fill().bytes, budget(session, 0)?, VULKAN_ROOM)
    }

    /// NVML that answers in another version's structure: the version comes through as the driver wrote it.
    a_foreign_version_comes_through {
        defects: ["C7", "S8"], entry_points: ["nvmlDeviceGetMemoryInfo_v2"], needs: ["nvmlDeviceGetMemoryInfo_v2"],
        budget: "0=4GiB",
        faults: plan!("nvml-memory-wrong-version"),
    } (_session) {
        let nvml = nvml()?;
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        let memory = told("nvmlDeviceGetMemoryInfo_v2", nvml.memory_v2(device))?;
        ensure_eq!(memory.version >> 24, 3, "the version told");
        Ok(())
    }

    /// NVML that counts more used than there is: the tenant is told its own story, and free never wraps.
    more_used_than_there_is_wraps_nothing {
        kind: Budget, defects: ["C4", "T4"], entry_points: ["nvmlDeviceGetMemoryInfo", "cuMemAlloc_v2"], budget: "0=4GiB",
        faults: plan!("nvml-memory-more-used-than-there-is"),
    } (session) {
        let nvml = nvml()?;
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        let memory = told("nvmlDeviceGetMemoryInfo", nvml.memory(device))?;
        ensure_eq!(Bytes(memory.total), budget(session, 0)?, "total");
        ensure!(memory.free <= memory.total, "{} free of {}", memory.free, memory.total);
        fills(fill(&cuda()?).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A Vulkan driver that cannot work here is told as the loader tells it; CUDA keeps its budget beside it.
    an_incompatible_vulkan_driver_comes_through {
        kind: Budget, defects: ["V8"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB",
        faults: plan!("vulkan-init-incompatible"), invalid_use: ["terminator_CreateInstance"],
    } (session) {
        match Vulkan::open()?.instance(Client::V1_1) {
            Ok(instance) => ensure_eq!(instance.physical_devices()?.len(), 0, "devices of a driver that cannot work"),
            Err(code) => ensure_eq!(code, Code::INCOMPATIBLE_DRIVER, "vkCreateInstance"),
        }
        fills(fill(&cuda()?).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Of 32 threads that ask a pool for a few bytes each at the same time none is refused: each may make the pool grow by a step, more steps than fit,
    /// and one is all that the driver takes.
    threads_that_make_a_pool_grow_at_once_are_served {
        kind: Budget, defects: ["R1", "P1"], entry_points: ["cuMemAllocAsync", "cuMemFreeAsync"], budget: "0=1GiB",
        faults: plan!("cuda-stream-ordered-delayed"), unordered: "32 threads race",
    } (session) {
        const THREADS: usize = 32;
        let (cuda, all) = (cuda()?, Barrier::new(THREADS));
        let ask = || {
            let made = context(&cuda, 0);
            all.wait();
            made.map(|_| cuda.allocate_async(Stream::Legacy, 512))
        };
        let asked: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        for answer in asked {
            let Ok(answer) = answer else { harness::fail!("a thread panicked") };
            let answer = answer?;
            ensure_eq!(answer.code, CUresult::SUCCESS, "512 bytes of a pool");
            ensure_eq!(cuda.free_async(Stream::Legacy, answer.out), CUresult::SUCCESS, "cuMemFreeAsync");
        }
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// The third cuMemAlloc_v2 that the driver refuses by itself is its own answer; the fourth has the budget.
    the_drivers_own_refusal_is_forgotten {
        kind: Budget, defects: ["C3"], entry_points: ["cuMemAlloc_v2"], budget: "0=6GiB",
        faults: plan!("cuda-third-alloc-fails"),
    } (session) {
        let cuda = cuda()?;
        let codes = [1, 1, 4 << 30].map(|bytes| cuda.allocate(bytes).code);
        ensure_eq!(codes, [CUresult::SUCCESS, CUresult::SUCCESS, NO_MEMORY], "the first three");
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// A process killed before its second cuMemAlloc_v2 reached the driver, and one after it had acted, leave nothing.
    kills_around_an_allocation_leave_nothing {
        kind: Budget, defects: ["P2"], entry_points: ["cuMemAlloc_v2"], budget: "0=6GiB",
        unordered: "asks until the driver has let go", faults: plan!("cuda-kill-after-alloc"),
    } (session) {
        let mut doomed = Tenant::start(session)?;
        ensure_eq!(doomed.cuda(Bytes::gib(2))?, CUresult::SUCCESS, "its first 2 GiB");
        doomed.peer.say(&format!("cuda {}", Bytes::gib(2).0))?;
        doomed.peer.wait()?;
        let cuda = cuda()?;
        session.eventually("4 GiB of the dead are back", || {
            cuda.allocate(Bytes::gib(4).0).code == CUresult::SUCCESS
        })?;
        crate::greed::teardown_is_over(session)?;
        fills(fill(&cuda).bytes + Bytes::gib(4), budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Under a driver that does not say which device is current nothing is granted, for nobody could be charged.
    a_driver_that_does_not_say_which_device_is_current_grants_nothing {
        kind: Budget, defects: ["C8"], entry_points: ["cuMemAlloc_v2", "cuArrayCreate_v2", "cuModuleLoadData"], budget: "0=4GiB",
        faults: r#"fault = [{ at = "cuCtxGetDevice", then = "result:999" }]"#,
    } (_session) {
        let taken = fill(&cuda()?);
        taken.refused_with(NO_MEMORY)?;
        ensure_eq!(taken.bytes, Bytes::ZERO, "what was granted");
        Ok(())
    }

    /// An NVML that hands out NULL for a device is as good as none: the budget holds, and nobody dies of it.
    an_nvml_with_null_for_a_device_is_as_good_as_none {
        kind: Budget, defects: ["S8"], entry_points: ["cuMemAlloc_v2", "nvmlDeviceGetHandleByIndex_v2"], budget: "0=4GiB",
        faults: r#"fault = [{ at = "nvmlDeviceGetHandle*", then = "untouched" }]"#,
    } (session) {
        let taken = fill(&cuda()?);
        taken.refused_with(NO_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// Under a driver without nvmlDeviceGetMemoryInfo_v2 the first version tells the budget.
    without_memory_version_2_the_first_tells_the_budget {
        kind: Budget, defects: ["S2", "S8"], entry_points: ["nvmlDeviceGetMemoryInfo"], budget: "0=4GiB",
        faults: plan!("nvml-missing-memory-v2"),
    } (session) {
        let nvml = nvml()?;
        let device = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(0))?;
        ensure_eq!(nvml.memory_v2(device).err(), Some(crate::ffi::nvml::MISSING), "version 2");
        let memory = told("nvmlDeviceGetMemoryInfo", nvml.memory(device))?;
        ensure_eq!(Bytes(memory.total), budget(session, 0)?, "total");
        Ok(())
    }

    /// An instance under a Vulkan driver without identities is charged to the only GPU.
    no_identity_is_the_only_gpus {
        kind: Budget, defects: ["V1"], entry_points: ["vkAllocateMemory"], budget: "0=3GiB",
        faults: plan!("vulkan-no-identity"),
    } (session) {
        let instance = instance(Client::V1_3)?;
        let gpu = Gpu::on(&instance, crate::clients::first_gpu(&instance)?)?;
        fills(gpu.fill().bytes, budget(session, 0)?, VULKAN_ROOM)
    }
}
