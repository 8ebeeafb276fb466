//! Several instances and devices at once, and Vulkan without the rest of the driver.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use abi::cuda::CUresult;
use harness::{Bytes, cases, ensure, ensure_eq, fail, roles};
use mock_device::DeviceIndex;

use crate::clients::{Gpu, NVIDIA, cuda, device_heap, fill, first_gpu, gpus, grown_by, instance};
use crate::ffi::vulkan::validation::SWITCH;
use crate::ffi::vulkan::{Client, Code, Query, Vulkan};
use crate::greed::{CONTEXT_ROOM, VULKAN_ROOM, budget, fills};

roles! {
    /// Makes devices while another thread takes and gives back all the time, and takes until it is refused.
    device_maker(session, _parent) {
        const DEVICES: u64 = 32;
        /// Of an H200, by its process's row.
        const LEAST: Bytes = Bytes::mib(29);
        let gpu = Gpu::first()?;
        let other = Gpu::on(&gpu.instance, gpu.physical)?;
        let done = AtomicBool::new(false);
        let (devices, taken) = thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if let Ok(memory) = other.allocate(Bytes::mib(32)) {
                        other.device.free(memory);
                    }
                }
            });
            let devices: Result<Vec<_>, _> = (0..DEVICES).map(|_| gpu.instance.device(gpu.physical)).collect();
            let taken = gpu.fill();
            done.store(true, Ordering::Relaxed);
            (devices.map(|devices| devices.len() as u64), taken)
        });
        ensure_eq!(devices.ok(), Some(DEVICES), "VkDevices");
        let beside = Bytes((DEVICES + 2) * LEAST.0);
        // The other thread has its block, less than a 64th of the budget, now and then.
        fills(taken.bytes + beside, budget(session, 0)?, Bytes((DEVICES + 2) * VULKAN_ROOM.0) + Bytes::mib(32))
    }
}

cases! {
    /// Two live instances of different versions and a device of each draw on one budget, each through its own chain.
    two_instances_share_the_budget {
        kind: Budget, defects: ["V14"], entry_points: ["vkCreateInstance", "vkAllocateMemory"], budget: "0=6GiB",
    } (session) {
        let (old, new) = (instance(Client::V1_0)?, instance(Client::V1_3)?);
        let first = Gpu::on(&old, first_gpu(&old)?)?;
        let second = Gpu::on(&new, first_gpu(&new)?)?;
        ensure_eq!(first.allocate(Bytes::gib(2)).err(), None, "2 GiB by the 1.0 instance");
        ensure_eq!(second.allocate(Bytes::gib(2)).err(), None, "2 GiB by the 1.3 instance");
        let taken = second.fill();
        taken.refused_with(Code::OUT_OF_DEVICE_MEMORY)?;
        ensure_eq!(first.allocate(Bytes::mib(64)).err(), Some(Code::OUT_OF_DEVICE_MEMORY), "64 MiB by the 1.0 instance");
        fills(taken.bytes + Bytes::gib(4), budget(session, 0)?, Bytes(2 * VULKAN_ROOM.0))
    }

    /// What instances and devices take that are made beside another thread's contexts is charged, whatever is charged for those and not taken yet.
    devices_made_beside_contexts_are_charged {
        kind: Budget, defects: ["V30"], budget: "0=4GiB", unordered: "threads race",
        on_real: No("the vendor's driver makes thirty instances a process"),
        entry_points: ["vkCreateInstance", "vkCreateDevice", "cuCtxCreate_v2", "cuCtxDestroy_v2", "cuMemAlloc_v2"],
    } (session) {
        const ROUNDS: u64 = 40;
        let (cuda, budget) = (cuda()?, budget(session, 0)?);
        for round in 0..ROUNDS {
            let done = AtomicBool::new(false);
            let made = thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        while !done.load(Ordering::Relaxed) {
                            let context = cuda.create_context(0);
                            if context.code == CUresult::SUCCESS {
                                cuda.destroy_context(context.out);
                            }
                        }
                    });
                }
                thread::sleep(Duration::from_micros(500 + round % 7 * 300));
                let made = Gpu::first();
                done.store(true, Ordering::Relaxed);
                made
            });
            let _gpu = made?;
            // More than the budget is more than it at any time.
            let taken = fill(&cuda);
            ensure!(taken.bytes <= budget, "{} were granted in round {round}", taken.bytes);
            for block in taken.held {
                ensure_eq!(cuda.free(block), CUresult::SUCCESS, "cuMemFree_v2");
            }
        }
        Ok(())
    }

    /// Under a small budget, too, what an instance takes by itself leaves so much less for memory.
    an_instance_is_charged_whole_under_a_small_budget {
        kind: Budget, defects: ["V32"], budget: "0=100MiB", entry_points: ["vkCreateInstance", "vkCreateDevice", "vkAllocateMemory"],
    } (session) {
        let taken = Gpu::first()?.fill();
        taken.refused_with(Code::OUT_OF_DEVICE_MEMORY)?;
        ensure!(taken.bytes <= budget(session, 0)?, "{} were granted", taken.bytes);
        Ok(())
    }

    /// A device that does not fit is refused before it is made, once it is known what one takes: at no time there is more than the budget.
    a_device_that_does_not_fit_takes_nothing {
        kind: Budget, defects: ["V31"], budget: "0=400MiB", entry_points: ["vkCreateDevice", "vkAllocateMemory", "vkFreeMemory"],
        invalid_use: ["Failed to create device chain"],
    } (_session) {
        /// Less than a device takes (29 MiB on an H200), and more than it is tried with.
        const LEFT: Bytes = Bytes::mib(26);
        let gpu = Gpu::first()?;
        let Ok(left) = gpu.allocate(LEFT) else {
            fail!("{LEFT} of 400 MiB were refused");
        };
        gpu.fill().refused_with(Code::OUT_OF_DEVICE_MEMORY)?;
        gpu.device.free(left);
        for _ in 0..3 {
            ensure_eq!(gpu.instance.device(gpu.physical).err(), Some(Code::OUT_OF_DEVICE_MEMORY), "a VkDevice with {LEFT} left");
        }
        Ok(())
    }

    /// Devices and instances that come and go take nothing of the process's own memory that they do not give back.
    what_comes_and_goes_leaves_nothing_behind {
        kind: Own, defects: ["V29"], budget: "0=6GiB", on_real: No("a card's driver keeps memory of its own"),
        entry_points: ["vkCreateInstance", "vkDestroyInstance", "vkCreateDevice", "vkDestroyDevice"],
    } (_session) {
        const MOST: Bytes = Bytes::mib(1);
        let gpu = Gpu::first()?;
        let devices = grown_by(4000, || Ok(gpu.instance.device(gpu.physical).map(drop)?))?;
        ensure!(devices <= MOST, "{devices} for 4,000 devices");
        let instances = grown_by(4000, || instance(Client::V1_1).map(drop))?;
        ensure!(instances <= MOST, "{instances} for 4,000 instances");
        Ok(())
    }

    /// Nor do devices that are paced.
    paced_devices_that_come_and_go_leave_nothing_behind {
        kind: Own, defects: ["V29"], budget: "0=6GiB", on_real: No("a card's driver keeps memory of its own"),
        entry_points: ["vkCreateDevice", "vkDestroyDevice"], env: [("CUDA_DEVICE_SM_LIMIT", "30")],
    } (_session) {
        const MOST: Bytes = Bytes::mib(1);
        let gpu = Gpu::first()?;
        let devices = grown_by(4000, || Ok(gpu.instance.device(gpu.physical).map(drop)?))?;
        ensure!(devices <= MOST, "{devices} for 4,000 devices");
        Ok(())
    }

    /// When one of two instances goes, the other still sees its clamped heap and keeps its charges.
    an_instance_outlives_another {
        kind: Budget, defects: ["V14"], entry_points: ["vkDestroyInstance", "vkGetPhysicalDeviceMemoryProperties"], budget: "0=6GiB",
    } (session) {
        let kept = Gpu::first()?;
        ensure_eq!(kept.allocate(Bytes::gib(3)).err(), None, "3 GiB by the instance that stays");
        let gone = Gpu::first()?;
        ensure_eq!(gone.allocate(Bytes::gib(2)).err(), None, "2 GiB by the instance that goes");
        drop(gone);
        let heap = device_heap(&kept.instance.heaps(kept.physical, Query::First))?;
        ensure_eq!(heap, budget(session, 0)?, "the heap afterwards");
        let taken = kept.fill();
        fills(taken.bytes + Bytes::gib(3), budget(session, 0)?, Bytes(2 * VULKAN_ROOM.0))
    }

    /// A VkDevice is charged for itself, whatever another thread gives back while the driver makes it.
    devices_made_beside_a_thread_that_frees_are_charged_for_themselves {
        kind: Budget, defects: ["V25"], entry_points: ["vkCreateDevice", "vkAllocateMemory", "vkFreeMemory"], budget: "0=4GiB",
        faults: r#"fault = [{ at = "vkCreateDevice", then = "delay:5ms" }, { at = "nvmlDeviceGetComputeRunningProcesses_v3", then = "delay:2ms" }]"#, unordered: "a thread takes and gives back all the time",
    } (session) {
        // The validation layer reads its table of devices while it enters another.
        session.launch("device_maker").env(SWITCH, "").start()?.finish()
    }

    /// A process's first VkDevice is granted where it fits, however little more is left.
    a_first_device_is_granted_where_it_fits {
        kind: Own, defects: ["X1"], entry_points: ["vkCreateDevice", "vkAllocateMemory"], budget: "0=4GiB",
    } (session) {
        let left = Bytes::mib(128);
        let cuda = cuda()?;
        let room = cuda.allocate(left.0);
        ensure_eq!(room.code, CUresult::SUCCESS, "cuMemAlloc_v2 of {left}");
        let taken = fill(&cuda);
        taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        ensure!(taken.bytes + left + CONTEXT_ROOM >= budget(session, 0)?, "only {} were granted", taken.bytes);
        ensure_eq!(cuda.free(room.out), CUresult::SUCCESS, "cuMemFree_v2");
        let gpu = Gpu::first()?;
        let beside = gpu.fill();
        beside.refused_with(Code::OUT_OF_DEVICE_MEMORY)?;
        ensure!(beside.bytes < left, "{} and a VkDevice in {left}", beside.bytes);
        Ok(())
    }

    /// A VkInstance that takes more than the whole budget makes no VkDevice: refused or not, it ends no program by the loader's hand.
    an_instance_beyond_the_budget_makes_no_device {
        kind: Budget, defects: ["V22"], entry_points: ["vkCreateInstance", "vkCreateDevice", "vkDestroyInstance"], budget: "0=1MiB",
        unaccounted: "what a VkInstance takes is known when it has been made", invalid_use: ["Failed to create device chain"],
    } (_session) {
        for _ in 0..3 {
            let refusal = match Vulkan::open()?.instance(Client::V1_1) {
                Ok(instance) => instance.device(first_gpu(&instance)?).err(),
                Err(code) => Some(code),
            };
            ensure_eq!(refusal, Some(Code::OUT_OF_DEVICE_MEMORY), "a VkDevice under 1 MiB");
        }
        Ok(())
    }

    /// A VkInstance that did not fit makes no VkDevice before there is room, and is charged then.
    an_instance_that_did_not_fit_is_charged_before_its_first_device {
        kind: Own, defects: ["V22"], entry_points: ["vkCreateInstance", "vkCreateDevice", "vkAllocateMemory"], budget: "0=1MiB",
        unaccounted: "what a VkInstance takes is known when it has been made", invalid_use: ["Failed to create device chain"],
    } (session) {
        const RAISED: Bytes = Bytes::gib(4);
        let instance = instance(Client::V1_1)?;
        let physical = first_gpu(&instance)?;
        ensure_eq!(instance.device(physical).err(), Some(Code::OUT_OF_DEVICE_MEMORY), "a VkDevice under 1 MiB");
        session.ledger()?.set_budget(ledger::DeviceIndex(0), ledger::Bytes(RAISED.0));
        let gpu = Gpu::on(&instance, physical)?;
        let taken = gpu.fill();
        taken.refused_with(Code::OUT_OF_DEVICE_MEMORY)?;
        fills(taken.bytes, RAISED, VULKAN_ROOM)?;
        let held = session.world()?.peak(DeviceIndex(0));
        ensure!(held <= RAISED, "the device held {held} of {RAISED}");
        Ok(())
    }

    /// Two devices of one GPU draw on one budget; a destroyed one's share can be had by the other.
    two_devices_of_one_gpu_share_the_budget {
        kind: Budget, defects: ["V14", "V9"], budget: "0=6GiB",
        entry_points: ["vkCreateDevice", "vkGetDeviceProcAddr", "vkDestroyDevice", "vkAllocateMemory"],
    } (session) {
        let instance = instance(Client::V1_1)?;
        let physical = first_gpu(&instance)?;
        let (first, second) = (Gpu::on(&instance, physical)?, Gpu::on(&instance, physical)?);
        ensure_eq!(first.allocate(Bytes::gib(4)).err(), None, "4 GiB by the first");
        ensure_eq!(second.allocate(Bytes::gib(4)).err(), Some(Code::OUT_OF_DEVICE_MEMORY), "4 GiB more by the second");
        drop(first);
        fills(second.fill().bytes, budget(session, 0)?, VULKAN_ROOM)
    }

    /// A GPU of which only its group was ever asked, by the name that a 1.0 client knows, keeps the budget.
    found_by_its_group_alone_a_gpu_keeps_the_budget {
        kind: Budget, defects: ["V14", "V3"], entry_points: ["vkEnumeratePhysicalDeviceGroupsKHR", "vkCreateDevice", "vkAllocateMemory"],
        // The loader hands the alias on by the name of 1.1.
        budget: "0=6GiB", invalid_use: ["UNASSIGNED-API-Version-Violation"],
    } (session) {
        let instance = instance(Client::V1_0WithGroups)?;
        let mut members = instance.groups()?.concat();
        members.retain(|&member| instance.kind(member).1 == NVIDIA);
        let Some(&physical) = members.first() else {
            fail!("no group has an NVIDIA device");
        };
        ensure_eq!(device_heap(&instance.heaps(physical, Query::First))?, budget(session, 0)?, "the heap");
        let taken = Gpu::on(&instance, physical)?.fill();
        taken.refused_with(Code::OUT_OF_DEVICE_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, VULKAN_ROOM)
    }

    /// Devices of two GPUs keep to their own budgets though both live in one instance.
    two_gpus_of_one_instance_keep_apart {
        kind: Budget, defects: ["V14", "V2"], entry_points: ["vkEnumeratePhysicalDevices", "vkCreateDevice", "vkAllocateMemory"], machine: "rtx6000-ada*2",
        needs_gpus: 2, budget: "0=3GiB,1=3GiB",
    } (session) {
        let instance = instance(Client::V1_1)?;
        let mut held = Vec::new();
        for (index, &physical) in gpus(&instance)?.iter().take(2).enumerate() {
            let gpu = Gpu::on(&instance, physical)?;
            fills(gpu.fill().bytes, budget(session, index as u32)?, VULKAN_ROOM)?;
            held.push(gpu);
        }
        ensure_eq!(held.len(), 2, "devices");
        Ok(())
    }

    /// Of more than 32 GPUs each keeps to its own budget by Vulkan too.
    of_more_than_32_gpus_the_last_has_its_budget_by_vulkan {
        kind: Budget, defects: ["V23"], entry_points: ["vkCreateDevice", "vkAllocateMemory", "vkGetPhysicalDeviceMemoryProperties"],
        machine: "rtx6000-ada*33", needs_gpus: 33, budget: "0=2GiB,32=3GiB",
    } (session) {
        let instance = instance(Client::V1_1)?;
        let all = gpus(&instance)?;
        for index in [32, 0] {
            let Some(&physical) = all.get(index) else {
                fail!("Vulkan has {} GPUs", all.len())
            };
            let budget = budget(session, index as u32)?;
            ensure_eq!(device_heap(&instance.heaps(physical, Query::First))?, budget, "the heap of GPU {index}");
            let taken = Gpu::on(&instance, physical)?.fill();
            taken.refused_with(Code::OUT_OF_DEVICE_MEMORY)?;
            fills(taken.bytes, budget, VULKAN_ROOM)?;
        }
        Ok(())
    }

    /// Vulkan alone works and keeps the budget where there is neither libcuda nor NVML nor a preload.
    vulkan_alone_keeps_the_budget {
        kind: Budget, defects: ["V8", "V1"], entry_points: ["vkAllocateMemory"], budget: "0=6GiB", libraries: LayerOnly,
        absent: [Cuda, Nvml],
    } (session) {
        let gpu = Gpu::first()?;
        let heap = device_heap(&gpu.instance.heaps(gpu.physical, Query::First))?;
        ensure_eq!(heap, budget(session, 0)?, "the heap");
        let taken = gpu.fill();
        taken.refused_with(Code::OUT_OF_DEVICE_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, VULKAN_ROOM)
    }

    /// The same with the preload there too: it finds no driver and disturbs nothing.
    vulkan_with_an_idle_preload_keeps_the_budget {
        kind: Budget, defects: ["V8", "S5"], entry_points: ["vkAllocateMemory"], budget: "0=6GiB", absent: [Cuda, Nvml],
    } (session) {
        let taken = Gpu::first()?.fill();
        taken.refused_with(Code::OUT_OF_DEVICE_MEMORY)?;
        fills(taken.bytes, budget(session, 0)?, VULKAN_ROOM)
    }
}
