//! Where C comes in: one function per command, which finds what is below by its first handle and hands every handle down as below
//! knows it.

// The chain structures of the loader are the same for every layer.
mod chain;
mod holders;
#[path = "../../../enforcement/layer/src/boundary/chain.rs"]
mod link;
mod object;
mod own;

use std::ffi::{CStr, c_char, c_int, c_void};

use ash::vk::*;
use trace::vulkan::Many;

use crate::commands::commands;
use chain::SUFFIXES;
use holders::{Holds, Keep};
use object::{Wrapped, object};

type Next = PFN_vkVoidFunction;

/// An argument on its way down.
struct Argument<T>(T);

/// What holds handles: picked before [`Plain`], because it needs one reference less.
trait Lower {
    type Lowered;
    unsafe fn lower(&self, keep: &mut Keep) -> Self::Lowered;
}

impl<H: Wrapped> Lower for Argument<H> {
    type Lowered = H;
    unsafe fn lower(&self, _keep: &mut Keep) -> H {
        self.0.below()
    }
}

impl<S: Pointed> Lower for Argument<*const S> {
    type Lowered = *const S;
    unsafe fn lower(&self, keep: &mut Keep) -> *const S {
        // SAFETY: the caller's argument; before every array stands its length.
        unsafe { S::lower(self.0, keep) }
    }
}

/// What a pointer to something that holds handles may point to.
trait Pointed: Sized {
    unsafe fn lower(at: *const Self, keep: &mut Keep) -> *const Self;
}

macro_rules! pointed {
    (handles $($handle:ident)*) => { $(
        impl Pointed for $handle {
            unsafe fn lower(at: *const Self, keep: &mut Keep) -> *const Self {
                let count = keep.count;
                // SAFETY: the caller's obligation.
                unsafe { keep.handles(at, count) }
            }
        }
    )* };
}
pointed!(handles PhysicalDevice CommandBuffer DeviceMemory Buffer Image Fence);

impl<S: Holds> Pointed for S {
    unsafe fn lower(at: *const Self, keep: &mut Keep) -> *const Self {
        let count = keep.count;
        // SAFETY: the caller's obligation.
        unsafe { keep.structures(at, count) }
    }
}

trait Plain {
    type Lowered;
    unsafe fn lower(&self, keep: &mut Keep) -> Self::Lowered;
}

impl<T: Copy> Plain for &Argument<T> {
    type Lowered = T;
    unsafe fn lower(&self, _keep: &mut Keep) -> T {
        self.0
    }
}

impl Keep {
    /// Remembers an argument if it is a length.
    fn note<T: Copy>(&mut self, name: &str, argument: &T) {
        if name.ends_with("_count") && size_of::<T>() == size_of::<u32>() {
            // SAFETY: every length is a u32, and nothing else of four bytes is called a count.
            self.count = unsafe { std::mem::transmute_copy::<T, u32>(argument) } as usize;
        }
    }
}

macro_rules! table {
    (
        instance { $($instance:ident $instance_args:tt -> $instance_ret:ty;)* }
        device { $($device:ident $device_args:tt -> $device_ret:ty;)* }
    ) => {
        /// Each once per [`SUFFIXES`], because an older name is another command to the layer below.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "C names and signatures stay exact")]
        mod hooks {
            use super::*;
            $( table!(@hook $instance $instance_args -> $instance_ret); )*
            $( table!(@hook $device $device_args -> $device_ret); )*
            // What has no row there: messages of the loader's own.
            table!(@hook vkCreateDebugUtilsMessengerEXT(instance: Instance, create_info: *const DebugUtilsMessengerCreateInfoEXT<'_>, allocator: *const AllocationCallbacks<'_>, messenger: *mut DebugUtilsMessengerEXT) -> Result);
            table!(@hook vkDestroyDebugUtilsMessengerEXT(instance: Instance, messenger: DebugUtilsMessengerEXT, allocator: *const AllocationCallbacks<'_>) -> ());
            table!(@hook vkSubmitDebugUtilsMessageEXT(instance: Instance, severity: DebugUtilsMessageSeverityFlagsEXT, types: DebugUtilsMessageTypeFlagsEXT, data: *const DebugUtilsMessengerCallbackDataEXT<'_>) -> ());
        }

        /// What is asked of an instance or physical device, without what has a function of its own.
        const BY_INSTANCE: &[&str] = &[$(stringify!($instance),)*];

        fn hook(name: &str) -> Option<*const ()> {
            let exact = || Some(match name {
                $( stringify!($instance) => hooks::$instance::<0> as *const (), )*
                $( stringify!($device) => hooks::$device::<0> as *const (), )*
                "vkCreateDebugUtilsMessengerEXT" => hooks::vkCreateDebugUtilsMessengerEXT::<0> as *const (),
                "vkDestroyDebugUtilsMessengerEXT" => hooks::vkDestroyDebugUtilsMessengerEXT::<0> as *const (),
                "vkSubmitDebugUtilsMessageEXT" => hooks::vkSubmitDebugUtilsMessageEXT::<0> as *const (),
                _ => return None,
            });
            let khr = |stem: &str| Some(match stem {
                $( stringify!($instance) => hooks::$instance::<1> as *const (), )*
                $( stringify!($device) => hooks::$device::<1> as *const (), )*
                _ => return None,
            });
            let ext = |stem: &str| Some(match stem {
                $( stringify!($instance) => hooks::$instance::<2> as *const (), )*
                $( stringify!($device) => hooks::$device::<2> as *const (), )*
                _ => return None,
            });
            exact()
                .or_else(|| khr(name.strip_suffix(SUFFIXES[1])?))
                .or_else(|| ext(name.strip_suffix(SUFFIXES[2])?))
        }
    };
    (@hook $name:ident ($first:ident: $first_type:ty $(, $arg:ident: $ty:ty)*) -> $ret:ty) => {
        pub unsafe extern "system" fn $name<const ALIAS: usize>($first: $first_type $(, $arg: $ty)*) -> $ret {
            type Function = unsafe extern "system" fn($first_type $(, $ty)*) -> $ret;
            let mut keep = Keep::default();
            // One, where no length is said.
            keep.count = 1;
            // SAFETY: a dispatchable handle; what is below under this name has the row's signature, and these are the caller's arguments as it knows them.
            unsafe {
                let next = object($first).chain.next(stringify!($name), ALIAS);
                let next = std::mem::transmute::<unsafe extern "system" fn(), Function>(next);
                $(
                    keep.note(stringify!($arg), &$arg);
                    let $arg = (&Argument($arg)).lower(&mut keep);
                )*
                next($first.below() $(, $arg)*)
            }
        }
    };
}
commands!(table);

/// Ours under that name, where below has one too.
fn ours(name: &CStr) -> Option<*const ()> {
    let name = name.to_str().ok()?;
    own::hook(name).or_else(|| hook(name))
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
        // What has no hook is hidden: its handles could not be translated.
        object(instance).chain.look_up(text)?;
        ours(text).and_then(|ours| as_function(ours))
    }
}

unsafe extern "system" fn get_device_proc_addr(device: Device, name: *const c_char) -> Next {
    // SAFETY: as above.
    unsafe {
        let text = CStr::from_ptr(name);
        object(device).chain.look_up(text)?;
        ours(text).and_then(|ours| as_function(ours))
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
