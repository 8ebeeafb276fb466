//! Why the runtime refused. Nothing was changed by a call that did, and nothing is left of what it had begun.

use std::fmt;

use ash::vk;

use crate::buffer::{Ownership, Usage};
use crate::handle::{AllocatorId, ContextId, DispatchId, RegionId};
use crate::turn::Refused;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{which} is NULL")]
    Null { which: &'static str },
    #[error("{context} is not known here")]
    UnknownContext { context: ContextId },
    #[error("{context} has no allocator: acquire_memory_allocator comes first")]
    NoAllocator { context: ContextId },
    #[error("{allocator} belongs to {}, not to {given}", allocator.context())]
    ForeignAllocator {
        allocator: AllocatorId,
        given: ContextId,
    },
    #[error("{allocator} was released before")]
    AlreadyReleased { allocator: AllocatorId },
    #[error(
        "{allocator} is in use: {} not freed, {} not waited for",
        listed(regions),
        listed(dispatches)
    )]
    StillInUse {
        allocator: AllocatorId,
        regions: Vec<RegionId>,
        dispatches: Vec<DispatchId>,
    },
    #[error("{context} is the runtime's own: device_release ends it")]
    OwnedByRuntime { context: ContextId },
    #[error("{context} is the application's, which alone ends it")]
    OwnedByApplication { context: ContextId },
    #[error("the device of {context} was destroyed")]
    DeviceDestroyed { context: ContextId },
    #[error("{context} could not be acquired: {source}")]
    NotAcquired { context: ContextId, source: Refused },

    #[error("the buffer has no memory on the device")]
    NoRegion,
    #[error("the buffer stands for {region} already")]
    HasRegion { region: RegionId },
    /// No call leads there: a buffer that stands for a region keeps its allocator. It is the answer all the same, should one.
    #[error("{region} is not known here")]
    UnknownRegion { region: RegionId },
    #[error("buffer {index} is of {}, the launch of {given}", region.allocator().context())]
    ForeignRegion {
        index: usize,
        region: RegionId,
        given: ContextId,
    },
    /// It was wrapped, or is a part of what was: the memory is the application's to map.
    #[error("{region} is {ownership:?}: where its memory lies is not known")]
    NotMappable {
        region: RegionId,
        ownership: Ownership,
    },
    #[error("{region} is device-local: the host does not see it")]
    NotVisible { region: RegionId },
    #[error("{region} is {ownership:?}: only what was wrapped is detached")]
    NotWrapped {
        region: RegionId,
        ownership: Ownership,
    },
    #[error("{region} has {crops} crops")]
    HasCrops { region: RegionId, crops: u32 },
    #[error("{region} is used by {dispatches} dispatches")]
    Busy { region: RegionId, dispatches: u32 },
    #[error("{bytes} bytes from {start} on are not within {within}")]
    OutOfRange { start: u64, bytes: u64, within: u64 },
    #[error("a buffer of no bytes")]
    Empty,
    #[error("the copy's halves overlap in one VkBuffer")]
    Overlap,
    #[error(
        "buffer {index} begins at byte {offset} of its VkBuffer, which is no whole word from where {alignment} lets a descriptor begin"
    )]
    Misaligned {
        index: usize,
        offset: u64,
        alignment: u64,
    },
    #[error("buffer {index} has {bytes} bytes, a descriptor {most} at most")]
    TooLong { index: usize, bytes: u64, most: u64 },

    #[error("the kernel takes {wanted} {what}, {given} were given")]
    Count {
        what: &'static str,
        wanted: u32,
        given: usize,
    },
    #[error("{asked} {what}, {most} are possible")]
    TooMany {
        what: &'static str,
        asked: u64,
        most: u64,
    },
    #[error("{words} words that do not begin as SPIR-V does")]
    NotSpirv { words: usize },
    #[error("{dispatch} is not under way, or another thread waits for it")]
    UnknownDispatch { dispatch: DispatchId },
    #[error("{dispatch} is not done yet: it can be waited for again")]
    NotDone { dispatch: DispatchId },

    #[error("no memory type for {usage:?} among {allowed:#x}")]
    NoMemoryType { usage: Usage, allowed: u32 },
    #[error("no physical device that was wanted, of {found}")]
    NoDevice { found: usize },
    #[error("out of host memory in {during}")]
    OutOfHostMemory { during: &'static str },
    #[error("out of device memory in {during}")]
    OutOfDeviceMemory { during: &'static str },
    #[error("the device was lost, says {during}")]
    DeviceLost { during: &'static str },
    #[error("{during} answered {code:?}")]
    Driver {
        during: &'static str,
        code: vk::Result,
    },
}

/// By name, or that there is none.
fn listed(names: &[impl fmt::Display]) -> String {
    match names {
        [] => "nothing".to_owned(),
        names => names
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    }
}

impl Error {
    /// What a command of Vulkan answered.
    pub(crate) fn of(during: &'static str) -> impl Fn(vk::Result) -> Self {
        move |code| match code {
            vk::Result::ERROR_OUT_OF_HOST_MEMORY => Self::OutOfHostMemory { during },
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => Self::OutOfDeviceMemory { during },
            vk::Result::ERROR_DEVICE_LOST => Self::DeviceLost { during },
            code => Self::Driver { during, code },
        }
    }
}
