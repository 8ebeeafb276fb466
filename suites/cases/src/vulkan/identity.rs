//! Which device's budget a Vulkan device draws on, however its driver lies about who it is.

use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq};

use crate::clients::{Gpu, device_heap, gpus, instance};
use crate::ffi::vulkan::{Client, Code, Instance, PhysicalDevice, Query};
use crate::greed::{VULKAN_ROOM, budget, fills};

/// Index of the device in NVML's order, which is that of the PCI addresses.
fn index_by_pci(instance: &Instance, device: PhysicalDevice) -> Result<u32, Failure> {
    let own = instance.pci(device)?;
    let mut all = Vec::new();
    for other in gpus(instance)? {
        all.push(instance.pci(other)?);
    }
    all.sort();
    let index = all.iter().position(|&other| other == own).unwrap_or(0);
    ensure!(
        own.is_some(),
        "the driver gives no PCI addresses to tell the devices by"
    );
    Ok(index as u32)
}

/// Every Vulkan device shows and keeps exactly the budget of the device at its PCI address.
fn each_keeps_its_own(session: &Session) -> Result<(), Failure> {
    let instance = instance(Client::V1_1)?;
    let devices = gpus(&instance)?;
    ensure_eq!(
        devices.len(),
        session.gpus() as usize,
        "NVIDIA physical devices"
    );
    for device in devices {
        let index = index_by_pci(&instance, device)?;
        let budget = budget(session, index)?;
        let heap = device_heap(&instance.heaps(device, Query::First))?;
        ensure_eq!(heap, budget, "the heap of device {index}");
        let taken = Gpu::on(&instance, device)?.fill();
        taken.refused_with(Code::OUT_OF_DEVICE_MEMORY)?;
        fills(taken.bytes, budget, VULKAN_ROOM)?;
    }
    Ok(())
}

/// Whichever device it is, no budget is exceeded: what an unidentified device takes counts for every candidate.
fn each_keeps_the_smallest(session: &Session) -> Result<(), Failure> {
    let instance = instance(Client::V1_1)?;
    let devices = gpus(&instance)?;
    ensure_eq!(
        devices.len(),
        session.gpus() as usize,
        "NVIDIA physical devices"
    );
    let budgets = (0..session.gpus()).filter_map(|index| session.budget(index));
    let smallest = budgets.min().unwrap_or(Bytes::ZERO);
    // All before any is filled: a device takes memory by itself, which a full budget refuses.
    let mut held = Vec::new();
    for device in devices {
        let heap = device_heap(&instance.heaps(device, Query::First))?;
        ensure_eq!(heap, smallest, "the heap of a device of unknown identity");
        held.push(Gpu::on(&instance, device)?);
    }
    let mut total = Bytes::ZERO;
    for gpu in &held {
        let taken = gpu.fill();
        taken.refused_with(Code::OUT_OF_DEVICE_MEMORY)?;
        total += taken.bytes;
    }
    fills(
        total,
        smallest,
        Bytes(VULKAN_ROOM.0 * u64::from(session.gpus())),
    )
}

macro_rules! identity_cases {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident($effect:literal, $machine:literal, $gpus:literal, $budget:literal);
    )*) => {
        cases! { $(
            $(#[doc = $doc])+
            $name {
                kind: Budget, defects: ["V1", "V2"],
                entry_points: ["vkAllocateMemory", "vkGetPhysicalDeviceMemoryProperties", "vkGetPhysicalDeviceProperties2"],
                machine: $machine, needs_gpus: $gpus, budget: $budget,
                faults: concat!("fault = [{ at = \"vulkan.identity\", then = \"", $effect, "\" }]"),
            } (session) { each_keeps_its_own(session) }
        )* }
    };
}

/// The faults of the UUID on one, two and four GPUs.
mod uuid_faults {
    use super::*;

    identity_cases! {
        /// The Vulkan driver reports 16 zero bytes; the only GPU is meant.
        zero_uuid_on_one_gpu("uuid:zero", "rtx6000-ada*1", 1, "0=4GiB");
        /// Two GPUs, both with a zero UUID: the PCI address tells them apart.
        zero_uuid_on_two_gpus("uuid:zero", "rtx6000-ada*2", 2, "0=4GiB,1=2GiB");
        /// Four GPUs, all with a zero UUID.
        zero_uuid_on_four_gpus("uuid:zero", "rtx6000-ada*4", 4, "0=4GiB,1=2GiB,2=5GiB,3=3GiB");
        /// One GPU that duplicates nobody: the fault changes nothing.
        duplicate_uuid_on_one_gpu("uuid:duplicate", "h200", 1, "0=4GiB");
        /// Two GPUs that both give the first one's UUID.
        duplicate_uuid_on_two_gpus("uuid:duplicate", "h200x2", 2, "0=4GiB,1=2GiB");
        /// Four GPUs that all give the first one's UUID.
        duplicate_uuid_on_four_gpus("uuid:duplicate", "h200*4", 4, "0=4GiB,1=2GiB,2=5GiB,3=3GiB");
        /// One GPU has nobody to swap with.
        swapped_uuid_on_one_gpu("uuid:swapped", "h200", 1, "0=4GiB");
        /// Two GPUs that give each other's UUID: the PCI address contradicts, and is right.
        swapped_uuid_on_two_gpus("uuid:swapped", "h200x2", 2, "0=4GiB,1=2GiB");
        /// Four GPUs, neighbours with each other's UUID.
        swapped_uuid_on_four_gpus("uuid:swapped", "h200*4", 4, "0=4GiB,1=2GiB,2=5GiB,3=3GiB");
        /// Two GPUs whose UUIDs come in the other byte order.
        byte_swapped_uuid_on_two_gpus("uuid:bytes-swapped", "h200x2", 2, "0=4GiB,1=2GiB");
    }
}

/// The rows of the table above.
pub const UUID_FAULTS: &[harness::Case] = uuid_faults::CASES;

cases! {
    /// True UUIDs on two GPUs: each keeps its own budget.
    true_uuids_on_two_gpus {
        kind: Budget, defects: ["V2"], entry_points: ["vkAllocateMemory"], machine: "h200x2", needs_gpus: 2,
        budget: "0=4GiB,1=2GiB",
    } (session) {
        each_keeps_its_own(session)
    }

    /// A zero UUID and no VK_EXT_pci_bus_info on the only GPU: it is that GPU.
    nothing_known_of_the_only_gpu {
        kind: Budget, defects: ["V1"], entry_points: ["vkAllocateMemory"], budget: "0=4GiB",
        faults: r#"
            fault = [
                { at = "vulkan.identity", then = "uuid:zero" },
                { at = "VK_EXT_pci_bus_info", then = "missing" },
            ]
        "#,
    } (session) {
        each_keeps_the_smallest(session)
    }

    /// The same on two GPUs: nobody can say which is which, so both budgets are charged, and the smaller is told.
    nothing_known_of_two_gpus_charges_both {
        kind: Budget, defects: ["V2"], entry_points: ["vkAllocateMemory"], machine: "rtx6000-ada*2", needs_gpus: 2,
        budget: "0=4GiB,1=2GiB", unaccounted: "each device's memory is charged to both",
        faults: r#"
            fault = [
                { at = "vulkan.identity", then = "uuid:zero" },
                { at = "VK_EXT_pci_bus_info", then = "missing" },
            ]
        "#,
    } (session) {
        each_keeps_the_smallest(session)
    }
}
