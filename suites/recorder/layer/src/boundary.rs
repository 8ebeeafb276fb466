//! Where C comes in: one function per command, which finds the next layer by its first handle.

// The chain structures of the loader are the same for every layer.
#[path = "../../../../enforcement/layer/src/boundary/chain.rs"]
mod chain;
mod next;

use std::ffi::{CStr, c_char, c_int, c_void};

use ash::vk::*;
use trace::vulkan::{Answer, Many};

use crate::commands::commands;
use next::{Dispatch, Own, dispatch};

type Next = PFN_vkVoidFunction;

/// Writes one line.
fn write<R: Answer>(name: &'static str, answer: R, arguments: impl FnOnce(&mut trace::Arguments)) {
    let shown = (&answer.shown(), answer.wrote());
    recorder::boundary::write(
        trace::vulkan::API,
        name,
        shown,
        trace::vulkan::ends(name),
        arguments,
    );
}

macro_rules! table {
    (
        instance { $($instance:ident $instance_args:tt -> $instance_ret:ty;)* }
        device { $($device:ident $device_args:tt -> $device_ret:ty;)* }
    ) => {
        #[allow(non_camel_case_types, clippy::enum_variant_names, reason = "C names stay exact")]
        #[derive(Clone, Copy)]
        #[repr(usize)]
        enum Entry { $($instance,)* $($device,)* }

        const NAMES: &[&str] = &[$(stringify!($instance),)* $(stringify!($device),)*];

        #[allow(non_snake_case, clippy::too_many_arguments, reason = "C names and signatures stay exact")]
        mod hooks {
            use super::*;
            $( table!(@hook $instance $instance_args -> $instance_ret); )*
            $( table!(@hook $device $device_args -> $device_ret); )*
        }

        fn hook(name: &str) -> Option<*const ()> {
            Some(match name {
                $( stringify!($instance) => hooks::$instance as *const (), )*
                $( stringify!($device) => hooks::$device as *const (), )*
                _ => return None,
            })
        }
    };
    (@hook $name:ident ($first:ident: $first_type:ty $(, $arg:ident: $ty:ty)*) -> $ret:ty) => {
        pub unsafe extern "system" fn $name($first: $first_type $(, $arg: $ty)*) -> $ret {
            type Function = unsafe extern "system" fn($first_type $(, $ty)*) -> $ret;
            // SAFETY: a dispatchable handle; what is next under this name has the row's signature, and these are the
            // caller's arguments.
            let answer = unsafe {
                let next = dispatch($first.as_raw()).next(Entry::$name as usize);
                std::mem::transmute::<usize, Function>(next)($first $(, $arg)*)
            };
            write(stringify!($name), answer, |list| {
                trace::shape_vulkan!(list, $first);
                $( trace::shape_vulkan!(list, $arg); )*
            });
            answer
        }
    };
}
commands!(table);

unsafe extern "system" fn create_instance(
    create_info: *const InstanceCreateInfo<'_>,
    allocator: *const AllocationCallbacks<'_>,
    instance: *mut Instance,
) -> Result {
    // SAFETY: the loader's chain has our link; the rest are the caller's arguments.
    let answer = unsafe {
        let Some(get) = chain::take_instance_link(create_info) else {
            return Result::ERROR_INITIALIZATION_FAILED;
        };
        let Some(create) = get(Instance::null(), c"vkCreateInstance".as_ptr()) else {
            return Result::ERROR_INITIALIZATION_FAILED;
        };
        let create =
            std::mem::transmute::<unsafe extern "system" fn(), PFN_vkCreateInstance>(create);
        let answer = create(create_info, allocator, instance);
        if answer == Result::SUCCESS {
            next::add((*instance).as_raw(), Dispatch::instance(get, *instance));
        }
        answer
    };
    write("vkCreateInstance", answer, |list| {
        trace::shape_vulkan!(list, create_info);
        trace::shape_vulkan!(list, instance);
    });
    answer
}

unsafe extern "system" fn create_device(
    physical_device: PhysicalDevice,
    create_info: *const DeviceCreateInfo<'_>,
    allocator: *const AllocationCallbacks<'_>,
    device: *mut Device,
) -> Result {
    // SAFETY: as for an instance.
    let answer = unsafe {
        let Some((_, get)) = chain::take_device_link(create_info) else {
            return Result::ERROR_INITIALIZATION_FAILED;
        };
        let create = dispatch(physical_device.as_raw()).own(Own::CreateDevice);
        let create = std::mem::transmute::<usize, PFN_vkCreateDevice>(create);
        let answer = create(physical_device, create_info, allocator, device);
        if answer == Result::SUCCESS {
            next::add((*device).as_raw(), Dispatch::device(get, *device));
        }
        answer
    };
    write("vkCreateDevice", answer, |list| {
        trace::shape_vulkan!(list, physical_device);
        trace::shape_vulkan!(list, create_info);
        trace::shape_vulkan!(list, device);
    });
    answer
}

unsafe extern "system" fn destroy_instance(
    instance: Instance,
    allocator: *const AllocationCallbacks<'_>,
) {
    if instance != Instance::null() {
        // SAFETY: the caller's arguments; the key is read before the handle dies.
        unsafe {
            let next = dispatch(instance.as_raw()).own(Own::DestroyInstance);
            std::mem::transmute::<usize, PFN_vkDestroyInstance>(next)(instance, allocator);
        }
    }
    write("vkDestroyInstance", (), |list| {
        trace::shape_vulkan!(list, instance);
    });
}

unsafe extern "system" fn destroy_device(
    device: Device,
    allocator: *const AllocationCallbacks<'_>,
) {
    if device != Device::null() {
        // SAFETY: as for an instance.
        unsafe {
            let next = dispatch(device.as_raw()).own(Own::DestroyDevice);
            std::mem::transmute::<usize, PFN_vkDestroyDevice>(next)(device, allocator);
        }
    }
    write("vkDestroyDevice", (), |list| {
        trace::shape_vulkan!(list, device);
    });
}

/// Ours under that name, where the next has one too.
fn ours(name: &CStr) -> Option<*const ()> {
    Some(match name.to_str().ok()? {
        "vkGetInstanceProcAddr" => get_instance_proc_addr as *const (),
        "vkGetDeviceProcAddr" => get_device_proc_addr as *const (),
        "vkCreateInstance" => create_instance as *const (),
        "vkCreateDevice" => create_device as *const (),
        "vkDestroyInstance" => destroy_instance as *const (),
        "vkDestroyDevice" => destroy_device as *const (),
        name => return hook(name),
    })
}

/// # Safety
/// `ours` is a function.
unsafe fn as_function(ours: *const ()) -> Next {
    // SAFETY: the caller's obligation; every function pointer has one size.
    unsafe { std::mem::transmute(ours) }
}

unsafe extern "system" fn get_instance_proc_addr(instance: Instance, name: *const c_char) -> Next {
    // SAFETY: the loader's arguments: an instance or none, and a C string.
    unsafe {
        let text = CStr::from_ptr(name);
        // Loaders ask for these without an instance, or with one that is not made yet.
        if matches!(
            text.to_bytes(),
            b"vkCreateInstance" | b"vkGetInstanceProcAddr"
        ) {
            return ours(text).and_then(|ours| as_function(ours));
        }
        if instance == Instance::null() {
            return None;
        }
        let dispatch = dispatch(instance.as_raw());
        match dispatch.has(text) {
            Some(true) => ours(text).and_then(|ours| as_function(ours)),
            Some(false) => None,
            None => dispatch.ask_instance(instance, name),
        }
    }
}

unsafe extern "system" fn get_device_proc_addr(device: Device, name: *const c_char) -> Next {
    // SAFETY: as above.
    unsafe {
        let (dispatch, text) = (dispatch(device.as_raw()), CStr::from_ptr(name));
        match dispatch.has(text) {
            Some(true) => ours(text).and_then(|ours| as_function(ours)),
            Some(false) => None,
            None => dispatch.ask_device(device, name),
        }
    }
}

/// VkNegotiateLayerInterface of vk_layer.h.
#[repr(C)]
pub struct Negotiation {
    kind: u32,
    next: *mut c_void,
    version: u32,
    get_instance_proc_addr: Option<PFN_vkGetInstanceProcAddr>,
    get_device_proc_addr: Option<PFN_vkGetDeviceProcAddr>,
    get_physical_device_proc_addr: Option<PFN_vkGetInstanceProcAddr>,
}

/// The loader's first call.
///
/// # Safety
/// `negotiation` is NULL or the loader's structure.
#[unsafe(no_mangle)]
pub unsafe extern "system" fn vkNegotiateLoaderLayerInterfaceVersion(
    negotiation: *mut Negotiation,
) -> Result {
    // SAFETY: the caller's obligation.
    let Some(negotiation) = (unsafe { negotiation.as_mut() }) else {
        return Result::ERROR_INITIALIZATION_FAILED;
    };
    negotiation.version = negotiation.version.min(2);
    negotiation.get_instance_proc_addr = Some(get_instance_proc_addr);
    negotiation.get_device_proc_addr = Some(get_device_proc_addr);
    negotiation.get_physical_device_proc_addr = None;
    Result::SUCCESS
}
