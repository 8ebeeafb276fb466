//! The table: every command that is hooked, what it belongs to, and when. A command that is not changed has no row.

use ash::vk;

use super::{commands, negotiate, submissions};

/// What a command is called on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Nothing: answered without asking next, who has no handle to be asked by.
    Global,
    /// An instance or a physical device.
    Instance,
    Device,
}

/// Why a command is hooked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To know the chain. Always.
    Chain,
    /// To keep a budget. Only where there is one.
    Budget,
    /// To keep a compute budget. Only where there is one.
    Pace,
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub struct Hook {
    pub name: &'static str,
    pub scope: Scope,
    pub purpose: Purpose,
    address: unsafe extern "system" fn(),
}

impl Hook {
    pub fn named(name: &[u8]) -> Option<&'static Hook> {
        name.starts_with(b"vk")
            .then(|| HOOKS.iter().find(|hook| hook.name.as_bytes() == name))?
    }

    pub const fn address(&self) -> vk::PFN_vkVoidFunction {
        Some(self.address)
    }
}

macro_rules! hooks {
    ($($name:ident: $signature:path => $body:path, $scope:ident, $purpose:ident;)*) => {
        pub static HOOKS: &[Hook] = &[$(Hook {
            name: stringify!($name),
            scope: Scope::$scope,
            purpose: Purpose::$purpose,
            // SAFETY: a command's address is handed out as PFN_vkVoidFunction and called as what its name says.
            address: unsafe { std::mem::transmute::<$signature, unsafe extern "system" fn()>($body) },
        },)*];
    };
}

hooks! {
    vkGetInstanceProcAddr: vk::PFN_vkGetInstanceProcAddr => negotiate::vkGetInstanceProcAddr, Global, Chain;
    vkCreateInstance: vk::PFN_vkCreateInstance => commands::create_instance, Global, Chain;
    vkEnumerateInstanceExtensionProperties: vk::PFN_vkEnumerateInstanceExtensionProperties => commands::instance_extensions, Global, Chain;
    vkDestroyInstance: vk::PFN_vkDestroyInstance => commands::destroy_instance, Instance, Chain;
    vkCreateDevice: vk::PFN_vkCreateDevice => commands::create_device, Instance, Chain;
    vkEnumerateDeviceExtensionProperties: vk::PFN_vkEnumerateDeviceExtensionProperties => commands::device_extensions, Instance, Chain;
    vkEnumeratePhysicalDevices: vk::PFN_vkEnumeratePhysicalDevices => commands::physical_devices, Instance, Budget;
    vkEnumeratePhysicalDeviceGroups: vk::PFN_vkEnumeratePhysicalDeviceGroups => commands::groups, Instance, Budget;
    vkEnumeratePhysicalDeviceGroupsKHR: vk::PFN_vkEnumeratePhysicalDeviceGroups => commands::groups_khr, Instance, Budget;
    vkGetPhysicalDeviceMemoryProperties: vk::PFN_vkGetPhysicalDeviceMemoryProperties => commands::memory_properties, Instance, Budget;
    vkGetPhysicalDeviceMemoryProperties2: vk::PFN_vkGetPhysicalDeviceMemoryProperties2 => commands::memory_properties2, Instance, Budget;
    vkGetPhysicalDeviceMemoryProperties2KHR: vk::PFN_vkGetPhysicalDeviceMemoryProperties2 => commands::memory_properties2_khr, Instance, Budget;
    vkGetDeviceProcAddr: vk::PFN_vkGetDeviceProcAddr => negotiate::vkGetDeviceProcAddr, Device, Chain;
    vkDestroyDevice: vk::PFN_vkDestroyDevice => commands::destroy_device, Device, Chain;
    vkAllocateMemory: vk::PFN_vkAllocateMemory => commands::allocate_memory, Device, Budget;
    vkFreeMemory: vk::PFN_vkFreeMemory => commands::free_memory, Device, Budget;
    vkGetMemoryFdKHR: vk::PFN_vkGetMemoryFdKHR => commands::memory_fd, Device, Budget;
    vkGetDeviceQueue: vk::PFN_vkGetDeviceQueue => submissions::queue, Device, Pace;
    vkGetDeviceQueue2: vk::PFN_vkGetDeviceQueue2 => submissions::queue2, Device, Pace;
    vkQueueSubmit: vk::PFN_vkQueueSubmit => submissions::submit, Device, Pace;
    vkQueueSubmit2: vk::PFN_vkQueueSubmit2 => submissions::submit2, Device, Pace;
    vkQueueSubmit2KHR: vk::PFN_vkQueueSubmit2 => submissions::submit2_khr, Device, Pace;
    vkQueueBindSparse: vk::PFN_vkQueueBindSparse => submissions::bind_sparse, Device, Pace;
}

#[cfg(test)]
#[path = "hooks_tests.rs"]
mod tests;
