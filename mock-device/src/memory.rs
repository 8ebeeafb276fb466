//! What is counted: kinds of device memory, a process's holdings, and the refusal when a device is full.

use crate::units::{Bytes, DeviceIndex};

/// What device memory is held for. A row of the world's file counts each kind apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Kind {
    /// cuInit's own.
    Init,
    Context,
    /// cuMemAlloc and its kin.
    Memory,
    /// Stream-ordered pools, by what they reserve.
    Pool,
    /// cuMemCreate.
    Vmm,
    Array,
    Managed,
    Graph,
    /// Modules, libraries, their globals and local memory.
    Module,
    /// vkAllocateMemory.
    Vulkan,
    /// A VkDevice's own.
    VulkanDevice,
    Other,
}

impl Kind {
    pub const ALL: [Self; 12] = [
        Self::Init,
        Self::Context,
        Self::Memory,
        Self::Pool,
        Self::Vmm,
        Self::Array,
        Self::Managed,
        Self::Graph,
        Self::Module,
        Self::Vulkan,
        Self::VulkanDevice,
        Self::Other,
    ];
    pub const COUNT: usize = Self::ALL.len();
}

/// What one process holds on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessUsage {
    /// As the process itself sees it (its own PID namespace).
    pub pid: u32,
    pub by_kind: [Bytes; Kind::COUNT],
}

impl ProcessUsage {
    #[must_use]
    pub fn of(&self, kind: Kind) -> Bytes {
        self.by_kind[kind as usize]
    }

    #[must_use]
    pub fn total(&self) -> Bytes {
        self.by_kind.iter().copied().sum()
    }
}

/// The device cannot give that much. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{device} cannot give {asked}: {free} are free")]
pub struct OutOfDeviceMemory {
    pub device: DeviceIndex,
    pub asked: Bytes,
    pub free: Bytes,
}
