//! What is counted: kinds of device memory, a process's holdings, and the refusal when a device is full.

use crate::units::{Bytes, DeviceIndex};

/// What device memory is held for. A row of the world's file counts each kind apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Kind {
    /// What no NVML row names: cuInit's own, and a part of each context, VkInstance and VkDevice.
    Unlisted,
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
    /// What a process's VkInstances have together.
    VulkanInstance,
    Other,
}

impl Kind {
    pub const ALL: [Self; 13] = [
        Self::Unlisted,
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
        Self::VulkanInstance,
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

    /// What NVML's row says.
    #[must_use]
    pub fn listed(&self) -> Bytes {
        let kinds = Kind::ALL.into_iter();
        kinds
            .filter(|kind| self.lists(*kind))
            .map(|kind| self.of(kind))
            .sum()
    }

    /// Whether a row names what the process holds for this. Pools and cuMemCreate's memory outlive the contexts of their device, and are in
    /// no row until there is one again, or a VkInstance beside them; managed memory never is in any (H200, 580.159.04: `fixtures/oracle/resets-580.txt`,
    /// and *without a context* in `held-580.txt`).
    #[must_use]
    pub fn lists(&self, kind: Kind) -> bool {
        match kind {
            Kind::Unlisted | Kind::Managed => false,
            Kind::Pool | Kind::Vmm => {
                let holders = [Kind::Context, Kind::VulkanInstance, Kind::VulkanDevice];
                holders.into_iter().any(|kind| self.of(kind) > Bytes::ZERO)
            }
            _ => true,
        }
    }
}

/// What a context, a VkInstance or a VkDevice takes before anything is allocated in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    pub kind: Kind,
    /// As NVML's row of the process says it.
    pub listed: Bytes,
    /// What the device loses besides.
    pub unlisted: Bytes,
}

impl Overhead {
    pub(crate) fn new(kind: Kind, all: Bytes, unlisted: Bytes) -> Self {
        Self {
            kind,
            listed: all.saturating_sub(unlisted),
            unlisted,
        }
    }

    #[must_use]
    pub fn total(&self) -> Bytes {
        self.listed + self.unlisted
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

/// The world's books, checked: what counters say against what rows say, at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    pub devices: Vec<DeviceAudit>,
    pub live: usize,
    /// Dead, their memory not yet torn down.
    pub dying: usize,
    /// Rows that were ever in use.
    pub row_bound: usize,
    /// Deaths noticed so far.
    pub deaths: u64,
    /// Times that a holder of the world's mutex died and the totals were recomputed.
    pub recoveries: u64,
    /// Times that more was given back than was held: a mistake in a mock.
    pub overreturns: u64,
    /// Times that a process found no free row and was refused for that.
    pub rows_exhausted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAudit {
    pub counted: Bytes,
    pub in_rows: Bytes,
    pub in_free_rows: Bytes,
    pub peak: Bytes,
    pub capacity: Bytes,
}

impl Audit {
    /// Counters equal rows, free rows are empty, nothing ever passed a capacity, no mock gave back what it did not hold.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.overreturns == 0 && self.devices.iter().all(DeviceAudit::is_consistent)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live == 0
            && self.dying == 0
            && self
                .devices
                .iter()
                .all(|device| device.counted == Bytes::ZERO)
    }
}

impl DeviceAudit {
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.counted == self.in_rows
            && self.in_free_rows == Bytes::ZERO
            && self.counted <= self.peak
            && self.peak <= self.capacity
    }
}
