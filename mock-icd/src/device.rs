//! Logical devices and their queues' handles.

use std::sync::Arc;

use ash::vk::{self, Handle};
use mock_device::Overhead;

use crate::boundary::{Chain, In, List, New, Out, Outcome};
use crate::command::Lane;
use crate::instance::{PhysicalDevice, enabled};
use crate::own::Own;
use crate::queue::Queue;
use crate::state::STATE;
use crate::work::Work;
use crate::{extension, memory, object, presentation};

pub struct Device {
    /// The first of `members`.
    pub physical: PhysicalDevice,
    /// The devices of its group that it was made of; one without a group.
    pub members: Vec<PhysicalDevice>,
    /// The handle it was made by, which tells its instance.
    made_by: u64,
    pub extensions: Vec<String>,
    queues: Vec<(QueuePlace, u64)>,
    /// What it took of the device by being created.
    overhead: Overhead,
    /// For its objects.
    pub own: Own,
    pub work: Arc<Work>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct QueuePlace {
    family: u32,
    index: u32,
    flags: vk::DeviceQueueCreateFlags,
}

/// # Errors
/// VK_ERROR_EXTENSION_NOT_PRESENT; VK_ERROR_OUT_OF_DEVICE_MEMORY where the device's own memory does not fit;
/// VK_ERROR_INITIALIZATION_FAILED for queues that do not exist.
pub fn create(
    physical: vk::PhysicalDevice,
    info: In<vk::DeviceCreateInfo<'_>>,
    device: New<vk::Device>,
) -> Outcome {
    let made_by = physical.as_raw();
    let physical = *STATE.physical_devices.find(physical)?;
    let info = info.demand()?;
    let extensions = enabled(
        info.pp_enabled_extension_names,
        info.enabled_extension_count,
        extension::is_of_device,
    )?;
    let chain = Chain::of(info.p_next);
    let members = members(physical, chain)?;
    let places = queue_places(physical, info)?;
    let overhead = physical.profile().vulkan_device();
    take_overhead(&members, overhead)?;

    let families = &physical.profile().queue_families;
    let lanes = places.iter().map(|place| {
        let flags = vk::QueueFlags::from_raw(families[place.family as usize].flags);
        Lane {
            devices: members.clone(),
            transfer_only: !flags.intersects(vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE),
        }
    });
    let work = Arc::new(Work::new(lanes));
    let queues = places
        .into_iter()
        .enumerate()
        .map(|(line, place)| {
            (
                place,
                STATE.queues.insert(Queue {
                    physical,
                    work: Arc::clone(&work),
                    line,
                }),
            )
        })
        .collect();
    device.put(STATE.devices.insert(Device {
        physical,
        members,
        made_by,
        extensions,
        queues,
        overhead,
        own: Own::default(),
        work,
    }));
    Ok(())
}

/// The physical devices that the create-info names, or the one that it was asked of.
fn members(physical: PhysicalDevice, chain: Chain) -> Result<Vec<PhysicalDevice>, vk::Result> {
    let named = chain
        .find::<vk::DeviceGroupDeviceCreateInfo<'_>>()
        .filter(|group| group.physical_device_count > 0);
    let Some(group) = named else {
        return Ok(vec![physical]);
    };
    List::field(group.p_physical_devices)
        .of(group.physical_device_count as usize)
        .iter()
        .map(|member| STATE.physical_devices.find(*member).map(|member| *member))
        .collect()
}

/// Takes the device's own memory on every member, or nowhere.
fn take_overhead(members: &[PhysicalDevice], overhead: Overhead) -> Outcome {
    for (index, member) in members.iter().enumerate() {
        if member.world.take_own(member.index, overhead).is_err() {
            give_back_overhead(&members[..index], overhead);
            return Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
        }
    }
    Ok(())
}

fn give_back_overhead(members: &[PhysicalDevice], overhead: Overhead) {
    for member in members {
        member.world.give_back_own(member.index, overhead);
    }
}

fn queue_places(
    physical: PhysicalDevice,
    info: &vk::DeviceCreateInfo<'_>,
) -> Result<Vec<QueuePlace>, vk::Result> {
    let families = &physical.profile().queue_families;
    let mut places = Vec::new();
    for asked in List::field(info.p_queue_create_infos).of(info.queue_create_info_count as usize) {
        let available = families
            .get(asked.queue_family_index as usize)
            .map_or(0, |family| family.count);
        if asked.queue_count > available {
            return Err(vk::Result::ERROR_INITIALIZATION_FAILED);
        }
        places.extend((0..asked.queue_count).map(|index| QueuePlace {
            family: asked.queue_family_index,
            index,
            flags: asked.flags,
        }));
    }
    Ok(places)
}

/// Everything that the device still has goes with it, but for its memory: what an application did not free stays with
/// the process until its instance goes, as on the card (H200, 580.159.04: the process's NVML row kept 1,087,070,208 bytes
/// after vkDestroyDevice and none after vkDestroyInstance).
pub fn destroy(device: vk::Device) -> Outcome {
    let removed = STATE.devices.remove(device)?;
    let handle = device.as_raw();
    for (_, queue) in &removed.queues {
        STATE.queues.remove(*queue)?;
    }
    STATE
        .command_buffers
        .remove_where(|buffer| buffer.device == handle);
    STATE.command_pools.remove_of(handle);
    STATE.buffers.remove_of(handle);
    STATE.images.remove_of(handle);
    STATE.fences.remove_of(handle);
    STATE.semaphores.remove_of(handle);
    STATE.events.remove_of(handle);
    STATE.query_pools.remove_of(handle);
    STATE.descriptor_sets.remove_of(handle);
    STATE.descriptor_pools.remove_of(handle);
    object::forget_of(handle);
    presentation::forget_of(handle);
    let left = STATE.memories.remove_of(handle).into_iter();
    memory::leave_behind(removed.made_by, left.map(|(_, memory)| memory));
    removed.own.end(&removed.members);
    give_back_overhead(&removed.members, removed.overhead);
    Ok(())
}

pub fn queue(device: vk::Device, family: u32, index: u32, queue: New<vk::Queue>) -> Outcome {
    put_queue(
        device,
        QueuePlace {
            family,
            index,
            flags: vk::DeviceQueueCreateFlags::empty(),
        },
        queue,
    )
}

pub fn queue2(
    device: vk::Device,
    info: In<vk::DeviceQueueInfo2<'_>>,
    queue: New<vk::Queue>,
) -> Outcome {
    let info = info.demand()?;
    put_queue(
        device,
        QueuePlace {
            family: info.queue_family_index,
            index: info.queue_index,
            flags: info.flags,
        },
        queue,
    )
}

/// NULL for a queue that was not created.
fn put_queue(device: vk::Device, place: QueuePlace, queue: New<vk::Queue>) -> Outcome {
    let device = STATE.devices.find(device)?;
    queue.put(
        device
            .queues
            .iter()
            .find(|(known, _)| *known == place)
            .map_or(0, |(_, handle)| *handle),
    );
    Ok(())
}

pub fn wait_idle(device: vk::Device) -> Outcome {
    STATE.devices.find(device)?.work.wait_idle(None)
}

/// What one member may do with another one's memory: over a link everything, without one copies only. The simulated
/// devices of a group are linked.
pub fn peer_memory_features(
    device: vk::Device,
    heap: u32,
    features: Out<vk::PeerMemoryFeatureFlags>,
) -> Outcome {
    let device = STATE.devices.find(device)?;
    let heaps = &device.physical.profile().heaps;
    let local = heaps
        .get(heap as usize)
        .is_some_and(|heap| heap.device_local());
    features.put(if local {
        vk::PeerMemoryFeatureFlags::COPY_SRC
            | vk::PeerMemoryFeatureFlags::COPY_DST
            | vk::PeerMemoryFeatureFlags::GENERIC_SRC
            | vk::PeerMemoryFeatureFlags::GENERIC_DST
    } else {
        vk::PeerMemoryFeatureFlags::empty()
    });
    Ok(())
}

/// A device that never faulted has nothing to tell.
pub fn fault_info(device: vk::Device, counts: Out<vk::DeviceFaultCountsEXT<'_>>) -> Outcome {
    STATE.devices.find(device)?;
    counts.edit(|counts| {
        counts.address_info_count = 0;
        counts.vendor_info_count = 0;
        counts.vendor_binary_size = 0;
    });
    Ok(())
}
