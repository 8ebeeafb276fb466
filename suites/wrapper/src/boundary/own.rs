//! Commands that give out or take back handles.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use ash::vk::*;

use super::chain::{Chain, Get};
use super::holders::Keep;
use super::object::{Wrapped, give_up, number, object, pass_word_on, word, wrap, wrap_known};
use super::{BY_INSTANCE, get_device_proc_addr, get_instance_proc_addr, link};

macro_rules! next {
    ($of:expr, $name:literal: $function:ty, $alias:expr) => {
        // SAFETY: what is below under a name has that name's signature.
        unsafe { std::mem::transmute::<unsafe extern "system" fn(), $function>(object($of).chain.next($name, $alias)) }
    };
    ($of:expr, $name:literal: $function:ty) => {
        next!($of, $name: $function, 0)
    };
}

/// What is asked of an instance or physical device and has no row.
const OWN_BY_INSTANCE: [&str; 6] = [
    "vkDestroyInstance",
    "vkCreateDevice",
    "vkGetDeviceProcAddr",
    "vkCreateDebugUtilsMessenger",
    "vkDestroyDebugUtilsMessenger",
    "vkSubmitDebugUtilsMessage",
];

/// Ours under that name.
pub fn hook(name: &str) -> Option<*const ()> {
    Some(match name {
        "vkGetInstanceProcAddr" => get_instance_proc_addr as *const (),
        "vkGetDeviceProcAddr" => get_device_proc_addr as *const (),
        "vkCreateInstance" => create_instance as *const (),
        "vkDestroyInstance" => destroy_instance as *const (),
        "vkEnumeratePhysicalDevices" => physical_devices as *const (),
        "vkEnumeratePhysicalDeviceGroups" => groups::<0> as *const (),
        "vkEnumeratePhysicalDeviceGroupsKHR" => groups::<1> as *const (),
        "vkCreateDevice" => create_device as *const (),
        "vkDestroyDevice" => destroy_device as *const (),
        "vkGetDeviceQueue" => queue as *const (),
        "vkGetDeviceQueue2" => queue2 as *const (),
        "vkAllocateCommandBuffers" => command_buffers as *const (),
        "vkFreeCommandBuffers" => free_command_buffers as *const (),
        "vkAllocateMemory" => allocate_memory as *const (),
        "vkFreeMemory" => free_memory as *const (),
        "vkCreateBuffer" => create_buffer as *const (),
        "vkDestroyBuffer" => destroy_buffer as *const (),
        "vkCreateImage" => create_image as *const (),
        "vkDestroyImage" => destroy_image as *const (),
        "vkCreateFence" => create_fence as *const (),
        "vkDestroyFence" => destroy_fence as *const (),
        _ => return None,
    })
}

unsafe extern "system" fn create_instance(
    create_info: *const InstanceCreateInfo<'_>,
    allocator: *const AllocationCallbacks<'_>,
    instance: *mut Instance,
) -> Result {
    // SAFETY: the loader's chain has our link; the rest are the caller's arguments. What is below gets the out-parameter itself,
    // because the loader's end of the chain reads it.
    unsafe {
        let Some(get) = link::take_instance_link(create_info) else {
            return Result::ERROR_INITIALIZATION_FAILED;
        };
        let Some(create) = get(Instance::null(), c"vkCreateInstance".as_ptr()) else {
            return Result::ERROR_INITIALIZATION_FAILED;
        };
        let create =
            std::mem::transmute::<unsafe extern "system" fn(), PFN_vkCreateInstance>(create);
        let answer = create(create_info, allocator, instance);
        if answer == Result::SUCCESS {
            let below = *instance;
            let names = BY_INSTANCE.iter().chain(&OWN_BY_INSTANCE).copied();
            let chain = Chain::new(Get::Instance(get, below), names);
            *instance = wrap(below, word(below).load(Ordering::Relaxed), chain);
        }
        answer
    }
}

unsafe extern "system" fn destroy_instance(
    instance: Instance,
    allocator: *const AllocationCallbacks<'_>,
) {
    if instance == Instance::null() {
        return;
    }
    let next = next!(instance, "vkDestroyInstance": PFN_vkDestroyInstance);
    // SAFETY: the caller's arguments.
    unsafe {
        next(instance.below(), allocator);
        end_known::<PhysicalDevice>(object(instance).chain);
        object(instance).end();
    }
}

/// The handles that were given out of a chain are gone with it.
///
/// # Safety
/// All of them are of that kind.
unsafe fn end_known<H: Handle>(chain: &Chain) {
    let mut known = chain.known.lock().unwrap_or_else(PoisonError::into_inner);
    for (_, handle) in known.drain() {
        // SAFETY: the caller's obligation.
        unsafe { object(H::from_raw(handle)) }.end();
    }
}

unsafe extern "system" fn physical_devices(
    instance: Instance,
    count: *mut u32,
    devices: *mut PhysicalDevice,
) -> Result {
    let next = next!(instance, "vkEnumeratePhysicalDevices": PFN_vkEnumeratePhysicalDevices);
    // SAFETY: the caller's arguments.
    unsafe {
        let answer = next(instance.below(), count, devices);
        if answer.as_raw() >= 0 && !devices.is_null() {
            for index in 0..*count as usize {
                let device = &mut *devices.add(index);
                *device = physical_device(instance, *device);
            }
        }
        answer
    }
}

unsafe extern "system" fn groups<const ALIAS: usize>(
    instance: Instance,
    count: *mut u32,
    groups: *mut PhysicalDeviceGroupProperties<'_>,
) -> Result {
    let next = next!(instance, "vkEnumeratePhysicalDeviceGroups": PFN_vkEnumeratePhysicalDeviceGroups, ALIAS);
    // SAFETY: the caller's arguments.
    unsafe {
        let answer = next(instance.below(), count, groups.cast());
        if answer.as_raw() >= 0 && !groups.is_null() {
            for index in 0..*count as usize {
                let group = &mut *groups.add(index);
                let members = group.physical_device_count as usize;
                for device in &mut group.physical_devices[..members] {
                    *device = physical_device(instance, *device);
                }
            }
        }
        answer
    }
}

/// # Safety
/// A physical device of below's, of that instance.
unsafe fn physical_device(instance: Instance, below: PhysicalDevice) -> PhysicalDevice {
    // SAFETY: the caller's obligation.
    let (loader, chain) = unsafe { (word(below).load(Ordering::Relaxed), object(instance).chain) };
    wrap_known(below, loader, chain)
}

unsafe extern "system" fn create_device(
    physical_device: PhysicalDevice,
    create_info: *const DeviceCreateInfo<'_>,
    allocator: *const AllocationCallbacks<'_>,
    device: *mut Device,
) -> Result {
    let create = next!(physical_device, "vkCreateDevice": PFN_vkCreateDevice);
    // SAFETY: as for an instance.
    unsafe {
        let Some((_, get)) = link::take_device_link(create_info) else {
            return Result::ERROR_INITIALIZATION_FAILED;
        };
        let mut keep = Keep::default();
        let lowered = keep.structures(create_info, 1);
        let answer = create(physical_device.below(), lowered, allocator, device);
        if answer == Result::SUCCESS {
            let below = *device;
            let chain = Chain::new(Get::Device(get, below), std::iter::empty());
            *device = wrap(below, word(below).load(Ordering::Relaxed), chain);
        }
        answer
    }
}

unsafe extern "system" fn destroy_device(
    device: Device,
    allocator: *const AllocationCallbacks<'_>,
) {
    if device == Device::null() {
        return;
    }
    let next = next!(device, "vkDestroyDevice": PFN_vkDestroyDevice);
    // SAFETY: the caller's arguments.
    unsafe {
        next(device.below(), allocator);
        end_known::<Queue>(object(device).chain);
        object(device).end();
    }
}

unsafe extern "system" fn queue(device: Device, family: u32, index: u32, queue: *mut Queue) {
    let next = next!(device, "vkGetDeviceQueue": PFN_vkGetDeviceQueue);
    // SAFETY: the caller's arguments.
    unsafe {
        next(device.below(), family, index, queue);
        give_out(device, queue);
    }
}

unsafe extern "system" fn queue2(
    device: Device,
    info: *const DeviceQueueInfo2<'_>,
    queue: *mut Queue,
) {
    let next = next!(device, "vkGetDeviceQueue2": PFN_vkGetDeviceQueue2);
    // SAFETY: the caller's arguments.
    unsafe {
        next(device.below(), info.cast(), queue);
        give_out(device, queue);
    }
}

/// # Safety
/// A queue of below's, of that device, or null.
unsafe fn give_out(device: Device, queue: *mut Queue) {
    // SAFETY: the caller's obligation.
    unsafe {
        if *queue != Queue::null() {
            let loader = object(device).loader();
            pass_word_on(*queue, loader);
            *queue = wrap_known(*queue, loader, object(device).chain);
        }
    }
}

unsafe extern "system" fn command_buffers(
    device: Device,
    info: *const CommandBufferAllocateInfo<'_>,
    buffers: *mut CommandBuffer,
) -> Result {
    let next = next!(device, "vkAllocateCommandBuffers": PFN_vkAllocateCommandBuffers);
    // SAFETY: the caller's arguments.
    unsafe {
        let answer = next(device.below(), info, buffers);
        if answer == Result::SUCCESS {
            for index in 0..(*info).command_buffer_count as usize {
                let (buffer, loader) = (&mut *buffers.add(index), object(device).loader());
                pass_word_on(*buffer, loader);
                *buffer = wrap(*buffer, loader, object(device).chain);
            }
        }
        answer
    }
}

unsafe extern "system" fn free_command_buffers(
    device: Device,
    pool: CommandPool,
    count: u32,
    buffers: *const CommandBuffer,
) {
    let next = next!(device, "vkFreeCommandBuffers": PFN_vkFreeCommandBuffers);
    let mut keep = Keep::default();
    // SAFETY: the caller's arguments.
    unsafe {
        let lowered = keep.handles(buffers, count as usize);
        next(device.below(), pool, count, lowered);
        for index in 0..count as usize {
            let buffer = *buffers.add(index);
            if buffer != CommandBuffer::null() {
                object(buffer).end();
            }
        }
    }
}

macro_rules! numbered {
    ($($make:ident $made_by:literal: $make_type:ty, $free:ident $freed_by:literal: $free_type:ty, $info:ident $handle:ident;)*) => { $(
        unsafe extern "system" fn $make(
            device: Device,
            info: *const $info<'_>,
            allocator: *const AllocationCallbacks<'_>,
            made: *mut $handle,
        ) -> Result {
            let next = next!(device, $made_by: $make_type);
            let mut keep = Keep::default();
            // SAFETY: the caller's arguments.
            unsafe {
                let lowered = keep.structures(info, 1);
                let answer = next(device.below(), lowered, allocator, made);
                if answer == Result::SUCCESS {
                    *made = number(*made);
                }
                answer
            }
        }

        unsafe extern "system" fn $free(
            device: Device,
            handle: $handle,
            allocator: *const AllocationCallbacks<'_>,
        ) {
            let next = next!(device, $freed_by: $free_type);
            // SAFETY: the caller's arguments.
            unsafe { next(device.below(), give_up(handle), allocator) };
        }
    )* };
}

numbered! {
    allocate_memory "vkAllocateMemory": PFN_vkAllocateMemory, free_memory "vkFreeMemory": PFN_vkFreeMemory, MemoryAllocateInfo DeviceMemory;
    create_buffer "vkCreateBuffer": PFN_vkCreateBuffer, destroy_buffer "vkDestroyBuffer": PFN_vkDestroyBuffer, BufferCreateInfo Buffer;
    create_image "vkCreateImage": PFN_vkCreateImage, destroy_image "vkDestroyImage": PFN_vkDestroyImage, ImageCreateInfo Image;
    create_fence "vkCreateFence": PFN_vkCreateFence, destroy_fence "vkDestroyFence": PFN_vkDestroyFence, FenceCreateInfo Fence;
}
