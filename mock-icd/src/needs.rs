//! What memory a buffer or an image needs, as the card answers (oracle: vulkan-needs-580.txt).

use ash::vk;

use crate::boundary::{ChainOut, Out};
use crate::device::Device;

/// Of every buffer, whatever its usage.
const BUFFER_ALIGNMENT: u64 = 16;

/// Of images as memory sees them.
const IMAGE_ALIGNMENT: u64 = 1024;

/// Rows of linear images begin at multiples of this.
pub const ROW_ALIGNMENT: u64 = 64;

pub struct Needs {
    pub requirements: vk::MemoryRequirements,
    pub prefers_dedicated: bool,
    pub requires_dedicated: bool,
}

impl Needs {
    pub fn put(&self, to: Out<vk::MemoryRequirements2<'_>>) {
        to.edit(|to| {
            to.memory_requirements = self.requirements;
            ChainOut::of(to.p_next).edit::<vk::MemoryDedicatedRequirements<'_>>(|dedicated| {
                dedicated.prefers_dedicated_allocation = self.prefers_dedicated.into();
                dedicated.requires_dedicated_allocation = self.requires_dedicated.into();
            });
        });
    }
}

fn all_types(device: &Device) -> u32 {
    (1 << device.physical.profile().memory_types.len()) - 1
}

pub fn of_buffer(
    device: &Device,
    size: u64,
    _usage: vk::BufferUsageFlags,
    flags: vk::BufferCreateFlags,
    _external: vk::ExternalMemoryHandleTypeFlags,
) -> Needs {
    let alignment = if flags.contains(vk::BufferCreateFlags::SPARSE_BINDING) {
        crate::layout::TILE
    } else {
        BUFFER_ALIGNMENT
    };
    Needs {
        requirements: vk::MemoryRequirements {
            size: size.checked_next_multiple_of(alignment).unwrap_or(size),
            alignment,
            memory_type_bits: all_types(device),
        },
        prefers_dedicated: false,
        requires_dedicated: false,
    }
}

/// An image whose texels take so many bytes.
pub fn of_image(device: &Device, bytes: u64, flags: vk::ImageCreateFlags) -> Needs {
    let alignment = if flags.contains(vk::ImageCreateFlags::SPARSE_BINDING) {
        crate::layout::TILE
    } else {
        IMAGE_ALIGNMENT
    };
    Needs {
        requirements: vk::MemoryRequirements {
            size: bytes.checked_next_multiple_of(alignment).unwrap_or(bytes),
            alignment,
            memory_type_bits: all_types(device),
        },
        prefers_dedicated: false,
        requires_dedicated: false,
    }
}
