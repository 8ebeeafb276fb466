//! What Vulkan tells of the heaps.

use std::time::{Duration, Instant};

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq, skip};

use crate::clients::{Gpu, cuda, device_heap, first_gpu, instance, memory_type};
use crate::ffi::vulkan::{Client, Instance, PhysicalDevice, Place, Query, Vulkan};
use crate::greed::{CONTEXT_ROOM, VULKAN_ROOM, budget};
use crate::tenant::Tenant;

/// The device-local heap is told as large as the budget.
fn clamped(session: &Session, client: Client, query: Query) -> Result<(), Failure> {
    let instance = instance(client)?;
    let heaps = instance.heaps(first_gpu(&instance)?, query);
    ensure_eq!(
        device_heap(&heaps)?,
        budget(session, 0)?,
        "the heap by {query:?} of a {client:?} client"
    );
    Ok(())
}

/// What VK_EXT_memory_budget tells of the device-local heap.
#[derive(Clone, Copy, Debug)]
struct Told {
    budget: Bytes,
    usage: Bytes,
}

fn told_of(instance: &Instance, physical: PhysicalDevice) -> Told {
    let told = instance.heap_budgets(physical, Query::Second);
    let index = told.heaps.iter().position(|heap| heap.device_local);
    let index = index.unwrap_or(0);
    Told {
        budget: Bytes(told.budget[index]),
        usage: Bytes(told.usage[index]),
    }
}

cases! {
    /// A Vulkan 1.0 client is told the budget as the size of the device-local heap.
    a_1_0_client_sees_the_budget_as_its_heap {
        kind: Budget, defects: ["V3", "V6", "T4"], entry_points: ["vkGetPhysicalDeviceMemoryProperties"], budget: "0=23552MiB",
    } (session) {
        clamped(session, Client::V1_0, Query::First)
    }

    /// So is one that asks by the KHR alias.
    a_1_0_client_sees_it_by_the_alias_too {
        kind: Budget, defects: ["V3", "V6"], entry_points: ["vkGetPhysicalDeviceMemoryProperties2KHR"], budget: "0=23552MiB",
    } (session) {
        clamped(session, Client::V1_0WithProperties2, Query::SecondKhr)
    }

    /// A Vulkan 1.1 client is told it by both commands.
    a_1_1_client_sees_the_budget_as_its_heap {
        kind: Budget, defects: ["V3", "V6"], budget: "0=23552MiB",
        entry_points: ["vkGetPhysicalDeviceMemoryProperties", "vkGetPhysicalDeviceMemoryProperties2"],
    } (session) {
        clamped(session, Client::V1_1, Query::First)?;
        clamped(session, Client::V1_1, Query::Second)
    }

    /// A Vulkan 1.3 client is told it by both commands.
    a_1_3_client_sees_the_budget_as_its_heap {
        kind: Budget, defects: ["V3", "V6"], budget: "0=23552MiB",
        entry_points: ["vkGetPhysicalDeviceMemoryProperties", "vkGetPhysicalDeviceMemoryProperties2"],
    } (session) {
        clamped(session, Client::V1_3, Query::First)?;
        clamped(session, Client::V1_3, Query::Second)
    }

    /// Only the device-local heap is clamped: the system's keeps its size, and no heap appears or vanishes.
    the_systems_heap_keeps_its_size {
        kind: Budget, defects: ["V10"], entry_points: ["vkGetPhysicalDeviceMemoryProperties"], budget: "0=4GiB",
        on_real: No("the size of the system's heap is the mock profile's"),
    } (session) {
        let instance = instance(Client::V1_1)?;
        let heaps = instance.heaps(first_gpu(&instance)?, Query::First);
        let profile = &session.world()?.devices()[0];
        let told: Vec<_> = heaps.iter().map(|heap| (heap.device_local, heap.size)).collect();
        let promised: Vec<_> = profile.heaps.iter().map(|heap| match heap.device_local() {
            true => (true, Bytes::gib(4).0),
            false => (false, heap.size.0),
        }).collect();
        ensure_eq!(told, promised, "the heaps");
        Ok(())
    }

    /// VK_EXT_memory_budget stays within the specification: 0 < heapBudget ≤ heap.size for the device-local heap,
    /// heapUsage is the process's own, and entries past the last heap are 0.
    the_memory_budget_extension_is_within_the_specification {
        kind: Budget, defects: ["V4"], entry_points: ["vkGetPhysicalDeviceMemoryProperties2", "vkAllocateMemory"], budget: "0=8GiB",
    } (session) {
        let gpu = Gpu::first()?;
        if !gpu.instance.extensions(gpu.physical)?.iter().any(|name| name == "VK_EXT_memory_budget") {
            skip!("the driver lacks VK_EXT_memory_budget");
        }
        let limit = budget(session, 0)?.0;
        let mut last_usage = 0;
        for step in 0..=7 {
            let told = gpu.instance.heap_budgets(gpu.physical, Query::Second);
            let index = told.heaps.iter().position(|heap| heap.device_local).unwrap_or(0);
            let (size, budget, usage) = (told.heaps[index].size, told.budget[index], told.usage[index]);
            ensure_eq!(size, limit, "heap.size after {step} GiB");
            ensure!(0 < budget && budget <= size, "heapBudget {budget} of a heap of {size} after {step} GiB");
            if step > 0 {
                ensure_eq!(usage - last_usage, Bytes::gib(1).0, "what 1 GiB added to heapUsage");
            }
            last_usage = usage;
            ensure!(usage <= limit, "heapUsage {usage} under a budget of {limit}");
            let rest = told.heaps.len()..16;
            ensure!(told.budget[rest.clone()].iter().chain(&told.usage[rest]).all(|&entry| entry == 0),
                "entries past the last heap: {:?} {:?}", told.budget, told.usage);
            if step < 7 {
                gpu.allocate(Bytes::gib(1))?;
            }
        }
        Ok(())
    }

    /// The budgets are found behind a structure that nobody knows, too.
    the_memory_budget_is_told_behind_another_structure {
        kind: Budget, defects: ["V4", "V17"], entry_points: ["vkGetPhysicalDeviceMemoryProperties2"], budget: "0=8GiB",
        invalid_use: ["pNext", "VUID"],
    } (session) {
        let gpu = Gpu::first()?;
        if !gpu.instance.extensions(gpu.physical)?.iter().any(|name| name == "VK_EXT_memory_budget") {
            skip!("the driver lacks VK_EXT_memory_budget");
        }
        gpu.allocate(Bytes::gib(3))?;
        let limit = budget(session, 0)?.0;
        let told = gpu.instance.heap_budgets_behind_another(gpu.physical);
        let index = told.heaps.iter().position(|heap| heap.device_local).unwrap_or(0);
        let (budget, usage) = (told.budget[index], told.usage[index]);
        ensure!(0 < budget && budget <= limit, "heapBudget {budget} of a budget of {limit}");
        let alone = gpu.instance.heap_budgets(gpu.physical, Query::Second);
        ensure_eq!((budget, usage), (alone.budget[index], alone.usage[index]), "heapBudget and heapUsage behind another, and alone");
        Ok(())
    }

    /// heapBudget counts what other processes of the tenant hold: own usage and what is left, not the whole budget.
    heap_budget_leaves_out_what_others_hold {
        kind: Budget, defects: ["V4"], entry_points: ["vkGetPhysicalDeviceMemoryProperties2"], budget: "0=8GiB",
    } (session) {
        let mut other = Tenant::start(session)?;
        ensure_eq!(other.vulkan(Bytes::gib(5))?, crate::ffi::vulkan::Code::SUCCESS, "5 GiB of another process");
        let gpu = Gpu::first()?;
        gpu.allocate(Bytes::gib(1))?;
        let told = gpu.instance.heap_budgets(gpu.physical, Query::Second);
        let index = told.heaps.iter().position(|heap| heap.device_local).unwrap_or(0);
        let limit = Bytes::gib(3).0;
        ensure!(told.budget[index] <= limit, "heapBudget {} though another process holds 5 of 8 GiB", told.budget[index]);
        ensure!(told.usage[index] < Bytes::gib(2).0, "heapUsage {} though this process holds 1 GiB", told.usage[index]);
        other.peer.finish()
    }

    /// What they held is left again when they were killed, for a process too that only asks what is left.
    what_the_dead_held_is_told_as_left {
        kind: Budget, defects: ["V24"], entry_points: ["vkGetPhysicalDeviceMemoryProperties2"], budget: "0=8GiB",
    } (session) {
        const PATIENCE: Duration = Duration::from_secs(10);
        let gpu = Gpu::first()?;
        let told = || {
            let told = gpu.instance.heap_budgets(gpu.physical, Query::Second);
            let index = told.heaps.iter().position(|heap| heap.device_local).unwrap_or(0);
            Bytes(told.budget[index])
        };
        let before = told();
        let mut other = Tenant::start(session)?;
        ensure_eq!(other.vulkan(Bytes::gib(5))?, crate::ffi::vulkan::Code::SUCCESS, "5 GiB of another process");
        ensure!(told() <= Bytes::gib(3), "heapBudget {} beside 5 of {}", told(), budget(session, 0)?);
        other.peer.kill()?;
        let end = Instant::now() + PATIENCE;
        while told() < before && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        ensure!(told() >= before, "heapBudget is {} and was {before} before another process came and ended", told());
        Ok(())
    }

    /// RINGFENCE_VK_BUDGET=inflate: heapBudget stays the driver's, and heapUsage is as much more as leaves what the tenant may still take.
    the_quirk_keeps_the_drivers_heap_budget {
        kind: Budget, defects: ["V4"], entry_points: ["vkGetPhysicalDeviceMemoryProperties2"], budget: "0=8GiB",
        env: [("RINGFENCE_VK_BUDGET", "inflate")], on_real: No("what the driver would say is the mock profile's"),
    } (session) {
        let gpu = Gpu::first()?;
        gpu.allocate(Bytes::gib(3))?;
        let told = told_of(&gpu.instance, gpu.physical);
        ensure!(told.budget > Bytes::gib(30), "heapBudget {} of a card of 45 GiB", told.budget);
        let left = told.budget.saturating_sub(told.usage);
        let most = budget(session, 0)?.saturating_sub(Bytes::gib(3));
        ensure!(left <= most && left > most.saturating_sub(VULKAN_ROOM), "{left} are left of 8 GiB less 3");
        Ok(())
    }

    /// What is left by it is no more than the tenant has, whoever holds the rest: CUDA of this process, or another's.
    the_quirk_leaves_what_the_tenant_has_left {
        kind: Budget, defects: ["V19", "V4"], entry_points: ["vkGetPhysicalDeviceMemoryProperties2", "cuMemAlloc_v2"], budget: "0=8GiB",
        env: [("RINGFENCE_VK_BUDGET", "inflate")], on_real: No("what the driver would say is the mock profile's"),
    } (session) {
        let mut other = Tenant::start(session)?;
        ensure_eq!(other.cuda(Bytes::gib(3))?, CUresult::SUCCESS, "3 of 8 GiB by another process's CUDA");
        let cuda = cuda()?;
        ensure_eq!(cuda.allocate(Bytes::gib(2).0).code, CUresult::SUCCESS, "2 GiB more by this process's");
        let gpu = Gpu::first()?;
        let told = told_of(&gpu.instance, gpu.physical);
        let left = told.budget.saturating_sub(told.usage);
        ensure!(told.budget > Bytes::gib(30), "heapBudget {} of a card of 45 GiB", told.budget);
        ensure!(left <= Bytes::gib(3), "{left} are left of 8 GiB less 3 and 2");
        let rooms = CONTEXT_ROOM + CONTEXT_ROOM + VULKAN_ROOM;
        ensure!(left + rooms >= Bytes::gib(3), "only {left} are left of 8 GiB less 3 and 2");
        ensure_eq!(gpu.allocate(left).err(), None, "all that is told to be left");
        other.peer.finish()
    }

    /// RINGFENCE_VK_BUDGET=inflate:NAME,…: so for these engines only, told by what each application says of itself.
    the_quirk_is_for_the_engines_that_are_named {
        kind: Budget, defects: ["V4", "V14"], entry_points: ["vkGetPhysicalDeviceMemoryProperties2", "vkCreateInstance"], budget: "0=8GiB",
        env: [("RINGFENCE_VK_BUDGET", "inflate:Physics Engine,other")], on_real: No("what the driver would say is the mock profile's"),
    } (session) {
        let limit = budget(session, 0)?;
        for (engine, inflated) in [(c"Physics Engine", true), (c"Physics", false), (c"", false), (c"other", true)] {
            let instance = Vulkan::open()?.instance_of(Client::V1_1, engine)?;
            let told = told_of(&instance, first_gpu(&instance)?);
            ensure_eq!(told.budget > limit, inflated, "whether heapBudget, {}, is beyond the budget for {engine:?}", told.budget);
            ensure!(told.budget.saturating_sub(told.usage) <= limit, "{told:?} leave more than {limit} to {engine:?}");
        }
        Ok(())
    }

    /// Whatever heapBudget tells as left can be allocated.
    what_the_heap_budget_leaves_can_be_had {
        kind: Budget, defects: ["V4"], entry_points: ["vkGetPhysicalDeviceMemoryProperties2", "vkAllocateMemory"], budget: "0=8GiB",
    } (session) {
        let gpu = Gpu::first()?;
        gpu.allocate(Bytes::gib(3))?;
        let told = gpu.instance.heap_budgets(gpu.physical, Query::Second);
        let index = told.heaps.iter().position(|heap| heap.device_local).unwrap_or(0);
        let left = told.budget[index].saturating_sub(told.usage[index]);
        ensure!(left <= budget(session, 0)?.0 - Bytes::gib(3).0, "{left} bytes are told left of 8 GiB less 3");
        // Whole MiB: an allocation is rounded up to the driver's granularity.
        gpu.allocate(Bytes(left >> 20 << 20))?;
        Ok(())
    }

    /// A budget above the card's size leaves the heaps as they are.
    a_budget_above_the_card_leaves_the_heap {
        defects: ["V3"], entry_points: ["vkGetPhysicalDeviceMemoryProperties"], budget: "0=1048576GiB",
        on_real: No("the size of the heap is the mock profile's"),
    } (session) {
        let instance = instance(Client::V1_1)?;
        let device = first_gpu(&instance)?;
        let heap = device_heap(&instance.heaps(device, Query::First))?;
        let profile = &session.world()?.devices()[0];
        let promised = profile.heaps.iter().find(|heap| heap.device_local()).map(|heap| heap.size);
        ensure_eq!(Some(heap), promised, "the device-local heap");
        memory_type(&instance, device, Place::Host)?;
        Ok(())
    }
}
