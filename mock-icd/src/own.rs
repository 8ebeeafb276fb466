//! What the driver itself takes of the device for what is recorded into command buffers: on an H200 2 MiB blocks, some 256 bytes a
//! dispatch, which the VkDevice keeps for later recordings (oracle: vulkan-takes-580.txt). Pools, small pipelines and other objects take nothing there.

use std::sync::{Mutex, PoisonError};

use ash::vk;
use mock_device::{Bytes, Kind};

use crate::device::Device;
use crate::instance::PhysicalDevice;
use crate::state::STATE;

/// Of a recorded command.
pub const COMMAND: u64 = 256;
const BLOCK: u64 = 2 << 20;

/// Of one VkDevice.
#[derive(Default)]
pub struct Own(Mutex<Held>);

#[derive(Clone, Copy, Default)]
struct Held {
    /// What command buffers hold now.
    recorded: u64,
    /// Taken of the device for it. The first block's worth lies in what a VkDevice has anyway.
    taken: u64,
}

impl Own {
    /// The device goes, and all that it has.
    pub fn end(&self, members: &[PhysicalDevice]) {
        let held = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        give_back(members, Bytes(held.taken));
    }

    fn take(&self, members: &[PhysicalDevice], bytes: u64) -> Result<(), vk::Result> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let recorded = held.recorded.saturating_add(bytes);
        let more = Bytes((recorded / BLOCK * BLOCK).saturating_sub(held.taken));
        for (index, member) in members.iter().enumerate() {
            let world = member.world;
            if more > Bytes::ZERO && world.take(member.index, Kind::VulkanDevice, more).is_err() {
                give_back(&members[..index], more);
                return Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
            }
        }
        *held = Held {
            recorded,
            taken: held.taken + more.0,
        };
        Ok(())
    }
}

fn give_back(members: &[PhysicalDevice], bytes: Bytes) {
    for member in members.iter().filter(|_| bytes > Bytes::ZERO) {
        member
            .world
            .give_back(member.index, Kind::VulkanDevice, bytes);
    }
}

/// So many bytes more are recorded into a device's command buffers.
///
/// # Errors
/// VK_ERROR_OUT_OF_DEVICE_MEMORY, with nothing taken, where the device has no room.
pub fn take(device: &Device, bytes: u64) -> Result<(), vk::Result> {
    device.own.take(&device.members, bytes)
}

/// So many are forgotten: the device keeps their memory for others. Nothing where the device is gone.
pub fn forget(device: u64, bytes: u64) {
    let device = <vk::Device as vk::Handle>::from_raw(device);
    if let Ok(device) = STATE.devices.find(device) {
        let mut held = device.own.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.recorded = held.recorded.saturating_sub(bytes);
    }
}
