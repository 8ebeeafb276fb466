//! What a physical device says of its memory, its queues and what it shares with others.

use ash::vk;

use crate::accounts;
use crate::boundary::{ChainOut, In, Out, OutList, Outcome};
use crate::enumerate::{enumerate, enumerate_begun};
use crate::instance::PhysicalDevice;
use crate::lists;
use crate::state::STATE;

pub fn memory_properties(
    physical: vk::PhysicalDevice,
    properties: Out<vk::PhysicalDeviceMemoryProperties>,
) -> Outcome {
    properties.put(memory(*STATE.physical_devices.find(physical)?));
    Ok(())
}

pub fn memory_properties2(
    physical: vk::PhysicalDevice,
    properties: Out<vk::PhysicalDeviceMemoryProperties2<'_>>,
) -> Outcome {
    let physical = *STATE.physical_devices.find(physical)?;
    properties.edit(|properties| {
        properties.memory_properties = memory(physical);
        ChainOut::of(properties.p_next).edit::<vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'_>>(
            |budget| {
                fill_budget(physical, budget);
            },
        );
    });
    Ok(())
}

fn memory(physical: PhysicalDevice) -> vk::PhysicalDeviceMemoryProperties {
    let profile = physical.profile();
    let mut properties = vk::PhysicalDeviceMemoryProperties::default();
    for (to, kind) in properties
        .memory_types
        .iter_mut()
        .zip(&profile.memory_types)
    {
        to.property_flags = vk::MemoryPropertyFlags::from_raw(kind.flags);
        to.heap_index = kind.heap;
        properties.memory_type_count += 1;
    }
    let grouped = physical.is_grouped();
    for (to, heap) in properties.memory_heaps.iter_mut().zip(&profile.heaps) {
        to.size = heap.size.0;
        to.flags = vk::MemoryHeapFlags::from_raw(heap.flags);
        if grouped && heap.device_local() {
            to.flags |= vk::MemoryHeapFlags::MULTI_INSTANCE;
        }
        properties.memory_heap_count += 1;
    }
    properties
}

/// A device-local heap's budget is what this process holds of it and what is left on the device for anybody, as an H200
/// answered to the byte at 40 moments. Entries beyond the heaps are 0.
fn fill_budget(
    physical: PhysicalDevice,
    budget: &mut vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'_>,
) {
    let profile = physical.profile();
    budget.heap_budget = [0; vk::MAX_MEMORY_HEAPS];
    budget.heap_usage = [0; vk::MAX_MEMORY_HEAPS];
    let slots = budget.heap_budget.iter_mut().zip(&mut budget.heap_usage);
    for (index, ((to_budget, to_usage), heap)) in (0_u32..).zip(slots.zip(&profile.heaps)) {
        let usage = accounts::usage((physical.index, index));
        *to_usage = usage.0;
        *to_budget = if heap.device_local() {
            let free = physical.world.free(physical.index);
            free.0.saturating_add(usage.0).min(heap.size.0)
        } else {
            heap.size.0
        };
    }
}

/// Kinds of work whose extensions are not advertised (video, optical flow) are left out of a family's flags.
const QUEUE_FLAGS: u32 = vk::QueueFlags::GRAPHICS.as_raw()
    | vk::QueueFlags::COMPUTE.as_raw()
    | vk::QueueFlags::TRANSFER.as_raw()
    | vk::QueueFlags::SPARSE_BINDING.as_raw();

/// Of the profile's family flags: the family's timestamps are half as wide (oracle: info of the same card).
const VIDEO_DECODE: u32 = vk::QueueFlags::VIDEO_DECODE_KHR.as_raw();

fn families(physical: PhysicalDevice) -> Vec<vk::QueueFamilyProperties> {
    let families = physical.profile().queue_families.iter();
    families
        .map(|family| vk::QueueFamilyProperties {
            queue_flags: vk::QueueFlags::from_raw(family.flags & QUEUE_FLAGS),
            queue_count: family.count,
            timestamp_valid_bits: if family.flags & VIDEO_DECODE == 0 {
                64
            } else {
                32
            },
            min_image_transfer_granularity: vk::Extent3D {
                width: 1,
                height: 1,
                depth: 1,
            },
        })
        .collect()
}

pub fn queue_families(
    physical: vk::PhysicalDevice,
    count: Out<u32>,
    list: OutList<vk::QueueFamilyProperties>,
) -> Outcome {
    enumerate(
        count,
        list,
        families(*STATE.physical_devices.find(physical)?).into_iter(),
    )
}

pub fn queue_families2(
    physical: vk::PhysicalDevice,
    count: Out<u32>,
    list: OutList<vk::QueueFamilyProperties2<'_>>,
) -> Outcome {
    let families = families(*STATE.physical_devices.find(physical)?);
    enumerate_begun(count, list, families.len(), |index, family| {
        family.queue_family_properties = families[index];
        ChainOut::of(family.p_next).edit::<vk::QueueFamilyGlobalPriorityPropertiesKHR<'_>>(
            |known| {
                let priorities = lists::queue_priorities(index);
                known.priority_count = u32::try_from(priorities.len()).unwrap_or(0);
                for (to, priority) in known.priorities.iter_mut().zip(priorities) {
                    *to = priority;
                }
            },
        );
    })
}

/// No tool watches this device. (Layers add themselves.)
pub fn tools(count: Out<u32>, list: OutList<vk::PhysicalDeviceToolProperties<'_>>) -> Outcome {
    enumerate(count, list, std::iter::empty())
}

/// Opaque descriptors and the application's own pages, for every buffer and image; nothing else (oracle).
pub fn external_memory(
    handle: vk::ExternalMemoryHandleTypeFlags,
) -> Option<vk::ExternalMemoryProperties> {
    let known = handle == vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD
        || handle == vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT;
    known.then_some(vk::ExternalMemoryProperties {
        external_memory_features: vk::ExternalMemoryFeatureFlags::EXPORTABLE
            | vk::ExternalMemoryFeatureFlags::IMPORTABLE,
        export_from_imported_handle_types: handle,
        compatible_handle_types: handle,
    })
}

pub fn external_buffer(
    info: In<vk::PhysicalDeviceExternalBufferInfo<'_>>,
    properties: Out<vk::ExternalBufferProperties<'_>>,
) -> Outcome {
    let found = external_memory(info.demand()?.handle_type);
    properties.edit(|properties| properties.external_memory_properties = found.unwrap_or_default());
    Ok(())
}

pub fn external_fence(
    info: In<vk::PhysicalDeviceExternalFenceInfo<'_>>,
    properties: Out<vk::ExternalFenceProperties<'_>>,
) -> Outcome {
    let handle = info.demand()?.handle_type;
    let known = if handle == vk::ExternalFenceHandleTypeFlags::OPAQUE_FD {
        handle
    } else {
        vk::ExternalFenceHandleTypeFlags::empty()
    };
    properties.edit(|properties| {
        properties.export_from_imported_handle_types = known;
        properties.compatible_handle_types = known;
        properties.external_fence_features = if known.is_empty() {
            vk::ExternalFenceFeatureFlags::empty()
        } else {
            vk::ExternalFenceFeatureFlags::EXPORTABLE | vk::ExternalFenceFeatureFlags::IMPORTABLE
        };
    });
    Ok(())
}

pub fn external_semaphore(
    info: In<vk::PhysicalDeviceExternalSemaphoreInfo<'_>>,
    properties: Out<vk::ExternalSemaphoreProperties<'_>>,
) -> Outcome {
    let handle = info.demand()?.handle_type;
    let known = if handle == vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD {
        handle
    } else {
        vk::ExternalSemaphoreHandleTypeFlags::empty()
    };
    properties.edit(|properties| {
        properties.export_from_imported_handle_types = known;
        properties.compatible_handle_types = known;
        properties.external_semaphore_features = if known.is_empty() {
            vk::ExternalSemaphoreFeatureFlags::empty()
        } else {
            vk::ExternalSemaphoreFeatureFlags::EXPORTABLE
                | vk::ExternalSemaphoreFeatureFlags::IMPORTABLE
        };
    });
    Ok(())
}
