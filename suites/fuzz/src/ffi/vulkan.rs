//! The layer's commands. Handles are live ones, as Vulkan demands of its clients; sizes, counts, flags, chains and names are arbitrary.

mod chain;
mod client;
mod list;
mod memory;
mod object;
mod queue;
mod screen;

pub use self::client::Client;

use self::list::{device_extensions, groups, instance_extensions, physical_devices};
use self::memory::{allocate, descriptor, free, memory_properties, memory_properties2};
use self::object::{
    create_device, create_instance, destroy_device, destroy_instance, device_look_up,
    instance_look_up,
};
use self::queue::{bind_sparse, queue, queue2, submit, submit2};
use self::screen::{create_swapchain, destroy_swapchain};
use super::calls::Answer;
use super::frame;
use crate::maker::Maker;

/// A command, or several that are called in the same way.
pub struct Command {
    pub names: &'static [&'static str],
    run: fn(&mut Client, &mut Maker<'_>) -> Option<(Answer, u64)>,
}

macro_rules! commands {
    ($table:ident { $($($name:ident)+ => $body:path;)* }) => {
        pub const $table: &[Command] = &[$(Command { names: &[$(stringify!($name)),+], run: $body }),*];
    };
}

commands! { MEMORY {
    vkAllocateMemory => allocate;
    vkAllocateMemory => allocate;
    vkFreeMemory => free;
    vkGetMemoryFdKHR => descriptor;
    vkGetPhysicalDeviceMemoryProperties => memory_properties;
    vkGetPhysicalDeviceMemoryProperties2 vkGetPhysicalDeviceMemoryProperties2KHR => memory_properties2;
} }

commands! { OBJECTS {
    vkCreateInstance => create_instance;
    vkDestroyInstance => destroy_instance;
    vkCreateDevice => create_device;
    vkDestroyDevice => destroy_device;
    vkGetInstanceProcAddr => instance_look_up;
    vkGetDeviceProcAddr => device_look_up;
    vkEnumerateInstanceExtensionProperties => instance_extensions;
    vkEnumerateDeviceExtensionProperties => device_extensions;
    vkEnumeratePhysicalDevices => physical_devices;
    vkEnumeratePhysicalDeviceGroups vkEnumeratePhysicalDeviceGroupsKHR => groups;
    vkAllocateMemory => allocate;
} }

commands! { QUEUES {
    vkGetDeviceQueue => queue;
    vkGetDeviceQueue2 => queue2;
    vkQueueSubmit => submit;
    vkQueueSubmit2 vkQueueSubmit2KHR => submit2;
    vkQueueBindSparse => bind_sparse;
    vkAllocateMemory => allocate;
    vkFreeMemory => free;
} }

commands! { SCREENS {
    vkCreateSwapchainKHR => create_swapchain;
    vkCreateSwapchainKHR => create_swapchain;
    vkDestroySwapchainKHR => destroy_swapchain;
    vkDestroyDevice => destroy_device;
    vkCreateDevice => create_device;
    vkAllocateMemory => allocate;
    vkFreeMemory => free;
} }

impl Client {
    pub fn run(&mut self, command: &Command, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
        frame::clear();
        (command.run)(self, maker)
    }
}
