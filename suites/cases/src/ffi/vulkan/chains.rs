//! vkAllocateMemory with any chain: structures in any order, some of which nobody knows.

use std::mem::size_of;
use std::ptr;

use super::{Allocation, Buffer, Device, Image, Pages, vk};

/// A structure of the chain.
#[derive(Clone, Copy)]
pub enum Link<'a> {
    /// Of a type that no registry has; so many bytes behind its head.
    Unknown { number: u8, bytes: usize },
    /// VkMemoryPriorityAllocateInfoEXT.
    Priority,
    /// VkMemoryOpaqueCaptureAddressAllocateInfo with any address.
    Address,
    /// VkExportMemoryAllocateInfo.
    Export { handle_types: u32 },
    /// VkImportMemoryFdInfoKHR. A driver that grants an import owns the descriptor.
    ImportFd { handle_type: u32, fd: i32 },
    /// VkImportMemoryHostPointerInfoEXT.
    ImportHost {
        handle_type: u32,
        pages: Option<&'a Pages>,
    },
    /// VkMemoryDedicatedAllocateInfo.
    Dedicated {
        buffer: Option<&'a Buffer<'a>>,
        image: Option<&'a Image<'a>>,
    },
    /// VkMemoryAllocateFlagsInfo.
    Flags { flags: u32, mask: u32 },
}

/// Types of structures from here on are nobody's.
const UNKNOWN: i32 = 2_000_000_000;

impl Link<'_> {
    fn words(self) -> Vec<u64> {
        match self {
            Self::Unknown { number, bytes } => {
                let mut words = vec![0xa5a5_a5a5_a5a5_a5a5; 2 + bytes.div_ceil(8)];
                words[0] = (UNKNOWN + i32::from(number)) as u64;
                words
            }
            Self::Priority => words(vk::MemoryPriorityAllocateInfoEXT::default().priority(0.75)),
            Self::Address => words(vk::MemoryOpaqueCaptureAddressAllocateInfo::default()),
            Self::Export { handle_types } => {
                let types = vk::ExternalMemoryHandleTypeFlags::from_raw(handle_types);
                words(vk::ExportMemoryAllocateInfo::default().handle_types(types))
            }
            Self::ImportFd { handle_type, fd } => {
                let kind = vk::ExternalMemoryHandleTypeFlags::from_raw(handle_type);
                words(
                    vk::ImportMemoryFdInfoKHR::default()
                        .handle_type(kind)
                        .fd(fd),
                )
            }
            Self::ImportHost { handle_type, pages } => words(vk::ImportMemoryHostPointerInfoEXT {
                handle_type: vk::ExternalMemoryHandleTypeFlags::from_raw(handle_type),
                p_host_pointer: pages.map_or(ptr::null_mut(), |pages| pages.start),
                ..Default::default()
            }),
            Self::Dedicated { buffer, image } => words(vk::MemoryDedicatedAllocateInfo {
                buffer: buffer.map_or_else(vk::Buffer::null, |buffer| buffer.raw),
                image: image.map_or_else(vk::Image::null, |image| image.raw),
                ..Default::default()
            }),
            Self::Flags { flags, mask } => words(vk::MemoryAllocateFlagsInfo {
                flags: vk::MemoryAllocateFlags::from_raw(flags),
                device_mask: mask,
                ..Default::default()
            }),
        }
    }
}

fn words<T>(structure: T) -> Vec<u64> {
    let mut words = vec![0; size_of::<T>().div_ceil(8)];
    // SAFETY: the words have room for all of the structure, which is plain numbers and pointers.
    unsafe {
        ptr::copy_nonoverlapping(
            ptr::from_ref(&structure).cast::<u8>(),
            words.as_mut_ptr().cast::<u8>(),
            size_of::<T>(),
        );
    }
    words
}

impl Device {
    /// vkAllocateMemory with this chain.
    pub fn ask_in_chain(&self, memory_type: u32, bytes: u64, links: &[Link<'_>]) -> Allocation {
        let mut structures: Vec<Vec<u64>> = links.iter().map(|link| link.words()).collect();
        let mut next = ptr::null::<u64>();
        for structure in structures.iter_mut().rev() {
            structure[1] = next.expose_provenance() as u64;
            next = structure.as_ptr();
        }
        let mut info = vk::MemoryAllocateInfo::default()
            .memory_type_index(memory_type)
            .allocation_size(bytes);
        info.p_next = next.cast();
        self.ask_with(&info)
    }

    /// vkQueueSubmit of nothing to the device's queue.
    pub fn submit_nothing(&self) -> Result<(), super::Code> {
        // SAFETY: the device has this queue; nobody else uses it.
        unsafe {
            let queue = self.raw.get_device_queue(0, 0);
            Ok(self.raw.queue_submit(queue, &[], vk::Fence::null())?)
        }
    }
}

/// Opaque descriptors, DMA buffers, a host's allocation, and what only other systems have.
pub const OPAQUE_FD: u32 = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD.as_raw();
pub const DMA_BUF: u32 = vk::ExternalMemoryHandleTypeFlags::DMA_BUF_EXT.as_raw();
pub const HOST: u32 = vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT.as_raw();
pub const DEVICE_MASK: u32 = vk::MemoryAllocateFlags::DEVICE_MASK.as_raw();
pub const DEVICE_ADDRESS: u32 = vk::MemoryAllocateFlags::DEVICE_ADDRESS.as_raw();
