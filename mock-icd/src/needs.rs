//! What memory a buffer or an image needs, as the card answers (oracle: vulkan-needs-580.txt).

use ash::vk;

use crate::boundary::{ChainOut, Out};
use crate::device::Device;
use crate::layout::TILE;

pub struct Needs {
    pub requirements: vk::MemoryRequirements,
    pub prefers_dedicated: bool,
}

impl Needs {
    pub fn put(&self, to: Out<vk::MemoryRequirements2<'_>>) {
        to.edit(|to| {
            to.memory_requirements = self.requirements;
            ChainOut::of(to.p_next).edit::<vk::MemoryDedicatedRequirements<'_>>(|dedicated| {
                dedicated.prefers_dedicated_allocation = self.prefers_dedicated.into();
                dedicated.requires_dedicated_allocation = vk::FALSE;
            });
        });
    }
}

/// The memory types whose property flags and heap satisfy the condition.
fn types(device: &Device, fits: impl Fn(vk::MemoryPropertyFlags, bool) -> bool) -> u32 {
    let profile = device.physical.profile();
    let kinds = profile.memory_types.iter().enumerate();
    kinds
        .filter(|(_, kind)| {
            let local = profile.heaps[kind.heap as usize].device_local();
            fits(vk::MemoryPropertyFlags::from_raw(kind.flags), local)
        })
        .fold(0, |bits, (index, _)| bits | 1 << index)
}

const VISIBLE: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::HOST_VISIBLE;

/// Images and buffers of this size are better off alone.
const LARGE: u64 = 33_177_600;

/// Attachments already of this.
const LARGE_ATTACHMENT: u64 = 2 << 20;

/// By usage; the largest of those asked for counts, and 4 where none is.
const BUFFER_ALIGNMENTS: [(vk::BufferUsageFlags, u64); 12] = [
    (vk::BufferUsageFlags::TRANSFER_SRC, 16),
    (vk::BufferUsageFlags::TRANSFER_DST, 16),
    (vk::BufferUsageFlags::UNIFORM_TEXEL_BUFFER, 16),
    (vk::BufferUsageFlags::STORAGE_TEXEL_BUFFER, 16),
    (vk::BufferUsageFlags::UNIFORM_BUFFER, 64),
    (vk::BufferUsageFlags::STORAGE_BUFFER, 16),
    (vk::BufferUsageFlags::VERTEX_BUFFER, 16),
    (vk::BufferUsageFlags::CONDITIONAL_RENDERING_EXT, 16),
    (vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS, 16),
    (vk::BufferUsageFlags::SHADER_BINDING_TABLE_KHR, 256),
    (
        vk::BufferUsageFlags::ACCELERATION_STRUCTURE_BUILD_INPUT_READ_ONLY_KHR,
        256,
    ),
    (
        vk::BufferUsageFlags::ACCELERATION_STRUCTURE_STORAGE_KHR,
        256,
    ),
];

pub fn of_buffer(
    device: &Device,
    size: u64,
    usage: vk::BufferUsageFlags,
    flags: vk::BufferCreateFlags,
    external: vk::ExternalMemoryHandleTypeFlags,
) -> Needs {
    let sparse = flags.contains(vk::BufferCreateFlags::SPARSE_BINDING);
    let alignment = if sparse {
        TILE
    } else {
        BUFFER_ALIGNMENTS
            .iter()
            .filter(|(bit, _)| usage.contains(*bit))
            .map(|(_, alignment)| *alignment)
            .max()
            .unwrap_or(4)
    };
    let memory_type_bits = types(device, |flags, local| {
        if sparse {
            local && !flags.contains(VISIBLE)
        } else {
            external.is_empty() || !local || !flags.contains(VISIBLE)
        }
    });
    let size = size.checked_next_multiple_of(alignment).unwrap_or(size);
    Needs {
        requirements: vk::MemoryRequirements {
            size,
            alignment,
            memory_type_bits,
        },
        prefers_dedicated: !sparse && size >= LARGE,
    }
}

/// An image, or a plane of a disjoint one, whose texels take so many bytes.
pub struct Image {
    pub bytes: u64,
    /// Of the whole image.
    pub planes: usize,
    /// Of a format of VK_KHR_sampler_ycbcr_conversion, of one plane or more.
    pub chroma: bool,
    pub linear: bool,
    pub flags: vk::ImageCreateFlags,
    pub usage: vk::ImageUsageFlags,
    pub external: vk::ExternalMemoryHandleTypeFlags,
}

pub fn of_image(device: &Device, image: &Image) -> Needs {
    let sparse = image.flags.contains(vk::ImageCreateFlags::SPARSE_BINDING);
    let alignment = if sparse || image.planes > 1 {
        TILE
    } else if image.linear {
        128
    } else {
        1024
    };
    let attached = image.usage.intersects(
        vk::ImageUsageFlags::COLOR_ATTACHMENT | vk::ImageUsageFlags::DEPTH_STENCIL_ATTACHMENT,
    );
    let large = if attached { LARGE_ATTACHMENT } else { LARGE };
    Needs {
        requirements: vk::MemoryRequirements {
            size: if image.linear && image.chroma {
                image
                    .bytes
                    .checked_next_multiple_of(TILE)
                    .unwrap_or(image.bytes)
            } else {
                image.bytes
            },
            alignment,
            memory_type_bits: types(device, |flags, local| {
                if image.linear {
                    image.external.is_empty() || !local || !flags.contains(VISIBLE)
                } else {
                    !flags.contains(VISIBLE)
                }
            }),
        },
        prefers_dedicated: !sparse && image.bytes / image.planes as u64 >= large,
    }
}
