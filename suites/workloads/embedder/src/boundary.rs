//! Everything unsafe: handles, functions and callbacks that an application hands in, and the calls of Vulkan.
//!
//! What comes in is promised once, where it comes in ([`Loader`], [`Host`], [`External`], [`ForeignBuffer`]). What the crate
//! makes is destroyed by its own `Drop`, by the tables it was made with. So the rest of the crate is safe code.
//!
//! * [`host`]: the application's VkAllocationCallbacks, also as the memory of the runtime's own lists.
//! * [`tables`]: dispatch tables, and what is made through them. * [`frame`]: one recording, its submission and its end.
//! * [`own`]: instance and device of a context that the runtime made.

use ash::vk;

use crate::buffer::View;

mod frame;
mod host;
mod own;
mod tables;

pub(crate) use frame::{Binding, Frame, Ticket};
pub use host::{Host, List};
pub(crate) use host::{pushed, room};
pub(crate) use own::Standing;
pub use own::{OwnContext, PICK_FIRST};
pub(crate) use tables::{Mapping, Object, Tables};

/// Where all of Vulkan is looked up.
#[derive(Clone, Copy)]
pub struct Loader(vk::PFN_vkGetInstanceProcAddr);

impl Loader {
    /// # Safety
    /// What it answers stays callable for as long as the runtime and all that is made by it live.
    #[must_use]
    pub unsafe fn new(get: vk::PFN_vkGetInstanceProcAddr) -> Self {
        Self(get)
    }

    fn functions(self) -> ash::StaticFn {
        ash::StaticFn {
            get_instance_proc_addr: self.0,
        }
    }
}

/// A context's Vulkan handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handles {
    pub instance: vk::Instance,
    pub physical_device: vk::PhysicalDevice,
    pub device: vk::Device,
    pub queue: vk::Queue,
    /// The queue's; it can compute.
    pub queue_family: u32,
}

/// Handles that the application owns.
#[derive(Clone, Copy, Debug)]
pub struct External(Handles);

impl External {
    /// # Safety
    /// Handles that are not NULL are of one Vulkan 1.1 instance or later, and stay valid until the context's allocator is
    /// released, or until the runtime was told of the device's end. The queue is used only by who holds the context.
    #[must_use]
    pub unsafe fn new(handles: Handles) -> Self {
        Self(handles)
    }

    pub(crate) fn handles(self) -> Handles {
        self.0
    }
}

/// A VkBuffer that the application owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignBuffer {
    raw: vk::Buffer,
    bytes: u64,
}

impl ForeignBuffer {
    /// # Safety
    /// If it is not NULL, it is of the device of the context that it will be wrapped for, made for at least so many bytes,
    /// bound to memory, usable as storage buffer, source and target of transfers; it stays so until it is detached or freed.
    #[must_use]
    pub unsafe fn new(raw: vk::Buffer, bytes: u64) -> Self {
        Self { raw, bytes }
    }

    pub(crate) fn view(self) -> View {
        View {
            buffer: self.raw,
            offset: 0,
            bytes: self.bytes,
        }
    }
}
