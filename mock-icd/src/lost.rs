//! A device that fell off the bus: the commands that may answer VK_ERROR_DEVICE_LOST (by the registry) do, as the
//! specification's "Lost Device" asks; all others go on as if nothing had happened.

use ash::vk::{self, Handle};
use mock_device::fault::fits;
use mock_device::{Parameters, World};

use crate::state::STATE;

/// `errorcodes` of the registry, as far as the mock has the commands.
const TELLING: &[&str] = &[
    "vkCreateDevice",
    "vkQueueSubmit*",
    "vkQueueWaitIdle",
    "vkQueueBindSparse",
    "vkDeviceWaitIdle",
    "vkGetFenceStatus",
    "vkWaitForFences",
    "vkGetEventStatus",
    "vkGetQueryPoolResults",
    "vkGetSemaphoreCounterValue*",
    "vkWaitSemaphores*",
    "vkCreateSwapchainKHR",
    "vkAcquireNextImage*",
    "vkQueuePresentKHR",
    "vkWaitForPresentKHR",
];

pub fn answer(world: &World, entry: &str, parameters: &Parameters) -> Option<vk::Result> {
    let telling = TELLING.iter().any(|known| fits(known, entry));
    let handle = parameters.0.first().filter(|_| telling)?.value;
    let physical = if entry == "vkCreateDevice" {
        *STATE
            .physical_devices
            .find(vk::PhysicalDevice::from_raw(handle))
            .ok()?
    } else if entry.starts_with("vkQueue") {
        STATE
            .queues
            .find(vk::Queue::from_raw(handle))
            .ok()?
            .physical
    } else {
        STATE
            .devices
            .find(vk::Device::from_raw(handle))
            .ok()?
            .physical
    };
    world
        .lost(physical.index)
        .then_some(vk::Result::ERROR_DEVICE_LOST)
}
