//! APIs that show different devices: other orders, other counts, other UUIDs, libraries that are not there. Whatever each
//! says, what a GPU holds for the tenant stays within that GPU's budget.

use abi::cuda::CUresult;
use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq};

use crate::clients::{Gpu, context, cuda_without_context, fill, gpus, instance, nvml, told};
use crate::faults::plan;
use crate::ffi::cuda::Cuda;
use crate::ffi::nvml::Nvml;
use crate::ffi::vulkan::{Client, Vulkan};
use crate::greed::{CONTEXT_ROOM, VULKAN_ROOM, budget, fills};

/// The machine's devices as they are numbered, however many there are.
fn all(session: &Session) -> Vec<u32> {
    (0..session.gpus()).collect()
}

/// Fills each CUDA device that has a budget; the n-th has that of the device that `order` names.
fn cuda_keeps(session: &Session, order: &[u32]) -> Result<(), Failure> {
    let cuda = cuda_without_context()?;
    ensure_eq!(
        cuda.device_count().out as usize,
        order.len(),
        "CUDA devices"
    );
    for (ordinal, device) in (0..).zip(order) {
        let Some(budget) = session.budget(*device) else {
            continue;
        };
        context(&cuda, ordinal)?;
        let taken = fill(&cuda);
        taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        fills(taken.bytes, budget, CONTEXT_ROOM)?;
    }
    Ok(())
}

/// Fills each of Vulkan's GPUs, which must be these; each has its own budget, whatever place it has in the list (the
/// loader puts its own order over the driver's).
fn vulkan_keeps(session: &Session, shown: &[u32]) -> Result<(), Failure> {
    let instance = instance(Client::V1_1)?;
    let devices = gpus(&instance)?;
    ensure_eq!(devices.len(), shown.len(), "physical devices");
    let mut addresses = Vec::new();
    for &physical in &devices {
        addresses.push((instance.pci(physical)?, physical));
    }
    addresses.sort_by_key(|(address, _)| *address);
    for ((_, physical), device) in addresses.into_iter().zip(shown) {
        let Some(budget) = session.budget(*device) else {
            continue;
        };
        let taken = Gpu::on(&instance, physical)?.fill();
        fills(taken.bytes, budget, VULKAN_ROOM)?;
    }
    Ok(())
}

/// The same where the loader leaves the driver's order as it is (VK_LOADER_DISABLE_SELECT): the n-th of the list is the device that `order` names.
fn vulkan_lists(session: &Session, order: &[u32]) -> Result<(), Failure> {
    let instance = instance(Client::V1_1)?;
    let mut addresses = Vec::new();
    for physical in gpus(&instance)? {
        addresses.push(instance.pci(physical)?);
    }
    let mut sorted = addresses.clone();
    sorted.sort();
    let place = |address| sorted.iter().position(|known| known == address);
    let listed: Vec<u32> = addresses
        .iter()
        .filter_map(place)
        .map(|at| at as u32)
        .collect();
    ensure_eq!(listed, order, "the devices in Vulkan's order");
    let ascending: Vec<u32> = (0..order.len() as u32).collect();
    vulkan_keeps(session, &ascending)
}

/// NVML's n-th device tells the budget of the device that `order` names.
fn nvml_tells(session: &Session, order: &[u32]) -> Result<(), Failure> {
    let nvml = nvml()?;
    let count = told("nvmlDeviceGetCount_v2", nvml.device_count())?;
    ensure_eq!(count as usize, order.len(), "NVML devices");
    for (index, device) in (0..).zip(order) {
        let Some(budget) = session.budget(*device) else {
            continue;
        };
        let handle = told("nvmlDeviceGetHandleByIndex_v2", nvml.device(index))?;
        let memory = told("nvmlDeviceGetMemoryInfo", nvml.memory(handle))?;
        ensure_eq!(
            Bytes(memory.total),
            budget,
            "the total of NVML's device {index}"
        );
    }
    Ok(())
}

cases! {
    /// CUDA that numbers from the last to the first: each device keeps its own budget, found by who it is.
    cuda_in_reverse_keeps_each_budget {
        kind: Budget, defects: ["R10"], entry_points: ["cuMemAlloc_v2"], machine: "h200*3", needs_gpus: 3,
        budget: "0=2GiB,1=3GiB,2=4GiB", faults: plan!("cuda-order-reversed"),
    } (session) {
        cuda_keeps(session, &[2, 1, 0])
    }

    /// Vulkan that lists from the last to the first.
    vulkan_in_reverse_keeps_each_budget {
        kind: Budget, defects: ["V2"], entry_points: ["vkAllocateMemory"], machine: "h200*3", needs_gpus: 3,
        budget: "0=2GiB,1=3GiB,2=4GiB", faults: plan!("vulkan-order-reversed"), env: [("VK_LOADER_DISABLE_SELECT", "1")],
    } (session) {
        vulkan_lists(session, &[2, 1, 0])
    }

    /// NVML that numbers from the last to the first: budgets are numbered as NVML numbers, whatever CUDA's order is.
    nvml_in_reverse_keeps_each_budget {
        kind: Budget, defects: ["R10"], entry_points: ["cuMemAlloc_v2", "nvmlDeviceGetMemoryInfo"], machine: "h200*3",
        needs_gpus: 3, budget: "0=2GiB,1=3GiB,2=4GiB", faults: plan!("nvml-order-reversed"),
        unaccounted: "the checkers number the budgets by PCI address",
    } (session) {
        nvml_tells(session, &[0, 1, 2])?;
        cuda_keeps(session, &[2, 1, 0])
    }

    /// Three APIs, three orders, one ledger.
    three_orders_keep_each_budget {
        kind: Budget, defects: ["R10", "V2"], entry_points: ["cuMemAlloc_v2", "vkAllocateMemory", "nvmlDeviceGetMemoryInfo"],
        machine: "h200*3", needs_gpus: 3, budget: "0=2GiB,1=3GiB,2=4GiB", faults: plan!("orders-differ"),
    } (session) {
        nvml_tells(session, &[0, 1, 2])?;
        cuda_keeps(session, &[2, 0, 1])
    }

    /// The same orders for a Vulkan program.
    three_orders_keep_each_budget_in_vulkan {
        kind: Budget, defects: ["V2"], entry_points: ["vkAllocateMemory"], machine: "h200*3", needs_gpus: 3,
        budget: "0=2GiB,1=3GiB,2=4GiB", faults: plan!("orders-differ"), env: [("VK_LOADER_DISABLE_SELECT", "1")],
    } (session) {
        vulkan_lists(session, &[1, 2, 0])
    }

    /// CUDA that shows only the second GPU keeps that one's budget.
    cuda_with_one_of_two_keeps_its_budget {
        kind: Budget, defects: ["R10"], entry_points: ["cuMemAlloc_v2"], machine: "rtx6000-ada*2", needs_gpus: 2,
        budget: "0=5GiB,1=3GiB", faults: plan!("cuda-sees-one"),
    } (session) {
        cuda_keeps(session, &[1])
    }

    /// NVML that shows only the first GPU: that one keeps its budget, and the other gives no more than its own.
    nvml_with_one_of_two_leaves_no_way_past {
        kind: Budget, defects: ["R10"], entry_points: ["cuMemAlloc_v2"], machine: "rtx6000-ada*2", needs_gpus: 2,
        budget: "0=5GiB,1=3GiB", faults: plan!("nvml-sees-one"),
        unaccounted: "what cuInit takes of a GPU that NVML does not show is known to nobody",
    } (session) {
        let cuda = cuda_without_context()?;
        context(&cuda, 0)?;
        fills(fill(&cuda).bytes, budget(session, 0)?, CONTEXT_ROOM)?;
        let other = cuda.retain_primary(1);
        if other.code == CUresult::SUCCESS {
            ensure_eq!(cuda.set_current(other.out), CUresult::SUCCESS, "cuCtxSetCurrent");
            let taken = fill(&cuda);
            ensure!(taken.bytes <= budget(session, 1)?, "{} of the second GPU were granted", taken.bytes);
        }
        Ok(())
    }

    /// Vulkan that shows only the second GPU keeps that one's budget.
    vulkan_with_one_of_two_keeps_its_budget {
        kind: Budget, defects: ["V2"], entry_points: ["vkAllocateMemory"], machine: "h200x2", needs_gpus: 2,
        budget: "0=5GiB,1=3GiB", faults: plan!("vulkan-sees-one"),
    } (session) {
        vulkan_keeps(session, &[1])
    }

    /// The same where nobody lists the machine's GPUs: it may be either of the two that budgets are told of, and keeps both.
    vulkan_with_one_of_two_and_no_list_keeps_both_budgets {
        kind: Budget, defects: ["V2"], entry_points: ["vkAllocateMemory"], machine: "h200x2", needs_gpus: 2,
        budget: "0=5GiB,1=3GiB", absent: [Nvml], faults: plan!("vulkan-sees-one"),
        unaccounted: "what the one holds is charged to both",
    } (session) {
        vulkan_keeps(session, &[1])
    }

    /// A GPU that is gone from the start in all three: the container has one GPU, and its budget is the first.
    a_gpu_gone_from_the_start_is_not_counted {
        kind: Budget, defects: ["R10"], entry_points: ["cuMemAlloc_v2", "nvmlDeviceGetMemoryInfo"], machine: "rtx6000-ada*2",
        needs_gpus: 2, budget: "0=3GiB", faults: plan!("device-gone-from-the-start"),
        unaccounted: "budgets count the devices that the container has, the checkers those of the host",
    } (session) {
        nvml_tells(session, &[0])?;
        cuda_keeps(session, &[0])
    }

    /// A GPU that leaves NVML's list while a program runs leaves the budgets as they were.
    a_gpu_that_leaves_nvml_keeps_its_budget {
        kind: Budget, defects: ["R10"], entry_points: ["cuMemAlloc_v2", "nvmlDeviceGetCount_v2"], machine: "rtx6000-ada*2",
        needs_gpus: 2, budget: "0=3GiB,1=4GiB", faults: plan!("nvml-device-gone-later"),
        unordered: "asks until the device is gone",
    } (session) {
        let (cuda, nvml) = (cuda_without_context()?, nvml()?);
        context(&cuda, 1)?;
        ensure_eq!(cuda.allocate(1 << 30).code, CUresult::SUCCESS, "1 GiB of the second GPU");
        session.eventually("NVML shows one GPU", || {
            nvml.device_count() == Ok(1)
        })?;
        let taken = fill(&cuda);
        taken.refused_with(CUresult::ERROR_OUT_OF_MEMORY)?;
        fills(taken.bytes + Bytes::gib(1), budget(session, 1)?, CONTEXT_ROOM)
    }

    /// However NVML's own reserve grows, the tenant's total is its budget, and so is what it gets.
    a_grown_reserve_is_not_the_tenants {
        kind: Budget, defects: ["T4"], entry_points: ["nvmlDeviceGetMemoryInfo", "cuMemAlloc_v2"], budget: "0=6GiB",
        faults: plan!("nvml-reserve-drift"),
    } (session) {
        nvml_tells(session, &all(session))?;
        cuda_keeps(session, &all(session))
    }

    /// CUDA and Vulkan that show a MIG instance where NVML shows the GPU: nothing is granted beyond the budget.
    a_mig_uuid_in_cuda_and_vulkan_exceeds_no_budget {
        kind: Budget, defects: ["V1", "R10"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", faults: plan!("mig-uuids"),
    } (session) {
        let cuda = cuda_without_context()?;
        context(&cuda, 0)?;
        let taken = fill(&cuda);
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// NVML that names a MIG instance: the only GPU's budget is kept.
    a_mig_uuid_in_nvml_exceeds_no_budget {
        kind: Budget, defects: ["V1", "R10"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", faults: plan!("nvml-uuid-mig"),
    } (session) {
        let cuda = cuda_without_context()?;
        context(&cuda, 0)?;
        let taken = fill(&cuda);
        fills(taken.bytes, budget(session, 0)?, CONTEXT_ROOM)
    }

    /// CUDA that exchanges the UUIDs of two GPUs: no GPU gives more than its own budget.
    swapped_uuids_in_cuda_exceed_no_budget {
        kind: Budget, defects: ["R10", "V2"], entry_points: ["cuMemAlloc_v2"], machine: "h200x2", needs_gpus: 2,
        budget: "0=4GiB,1=2GiB", faults: plan!("cuda-uuid-swapped"),
    } (session) {
        let cuda = cuda_without_context()?;
        for device in [0, 1] {
            context(&cuda, device)?;
            let taken = fill(&cuda);
            ensure!(taken.bytes <= budget(session, device as u32)?, "{} of device {device} were granted", taken.bytes);
            ensure!(taken.bytes >= Bytes::gib(1), "only {} of device {device} were granted", taken.bytes);
        }
        Ok(())
    }

    /// CUDA without UUIDs: two GPUs are told apart by their PCI addresses.
    zero_uuids_in_cuda_keep_each_budget {
        kind: Budget, defects: ["R10", "V1"], entry_points: ["cuMemAlloc_v2"], machine: "h200x2", needs_gpus: 2,
        budget: "0=4GiB,1=2GiB", faults: plan!("cuda-uuid-zero"),
    } (session) {
        cuda_keeps(session, &[0, 1])
    }

    /// Vulkan in which each GPU is the first: the PCI addresses tell them apart.
    duplicate_uuids_in_vulkan_keep_each_budget {
        kind: Budget, defects: ["V2"], entry_points: ["vkAllocateMemory"], machine: "h200*3", needs_gpus: 3,
        budget: "0=2GiB,1=3GiB,2=4GiB", faults: plan!("vulkan-uuid-duplicate"),
    } (session) {
        vulkan_keeps(session, &[0, 1, 2])
    }

    /// Vulkan with neighbours' UUIDs on three GPUs.
    swapped_uuids_in_vulkan_keep_each_budget {
        kind: Budget, defects: ["V2"], entry_points: ["vkAllocateMemory"], machine: "h200*3", needs_gpus: 3,
        budget: "0=2GiB,1=3GiB,2=4GiB", faults: plan!("vulkan-uuid-swapped"),
    } (session) {
        vulkan_keeps(session, &[0, 1, 2])
    }

    /// Vulkan with zero UUIDs on three GPUs.
    zero_uuids_in_vulkan_keep_each_budget {
        kind: Budget, defects: ["V1"], entry_points: ["vkAllocateMemory"], machine: "h200*3", needs_gpus: 3,
        budget: "0=2GiB,1=3GiB,2=4GiB", faults: plan!("vulkan-uuid-zero"),
    } (session) {
        vulkan_keeps(session, &[0, 1, 2])
    }

    /// Vulkan with UUIDs in the other byte order on three GPUs.
    byte_swapped_uuids_in_vulkan_keep_each_budget {
        kind: Budget, defects: ["V2"], entry_points: ["vkAllocateMemory"], machine: "h200*3", needs_gpus: 3,
        budget: "0=2GiB,1=3GiB,2=4GiB", faults: plan!("vulkan-uuid-bytes-swapped"),
    } (session) {
        vulkan_keeps(session, &[0, 1, 2])
    }

    /// A machine without NVML keeps CUDA's and Vulkan's budget; that there is none is told by the dynamic loader.
    a_plan_without_nvml_keeps_the_budget {
        kind: Budget, defects: ["S5", "R10"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", faults: plan!("nvml-absent"),
    } (session) {
        ensure!(Nvml::open().is_err(), "libnvidia-ml.so.1 was opened where there is none");
        cuda_keeps(session, &all(session))
    }

    /// A machine without libcuda keeps Vulkan's budget.
    a_plan_without_libcuda_keeps_the_budget {
        kind: Budget, defects: ["S5", "V8"], entry_points: ["vkAllocateMemory"], budget: "0=4GiB",
        faults: plan!("libcuda-absent"),
    } (session) {
        ensure!(Cuda::open().is_err(), "libcuda.so.1 was opened where there is none");
        vulkan_keeps(session, &all(session))
    }

    /// A machine without a Vulkan driver keeps CUDA's budget, and tells a Vulkan program that there is none.
    a_plan_without_a_vulkan_driver_keeps_the_budget {
        kind: Budget, defects: ["V8"], entry_points: ["cuMemAlloc_v2"], budget: "0=4GiB", faults: plan!("vulkan-absent"),
    } (session) {
        let instance = Vulkan::open()?.instance(Client::V1_1);
        ensure!(instance.is_err(), "an instance was made without a driver");
        cuda_keeps(session, &all(session))
    }
}
