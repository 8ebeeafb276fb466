//! Images: as many bytes as their texels need, laid out one subresource after the other, layer by layer.

use ash::vk::{self, Handle};

use crate::boundary::{In, List, New, Out, OutList, Outcome};
use crate::buffer::put_requirements;
use crate::enumerate::enumerate;
use crate::format::{self, Block};
use crate::limits;
use crate::state::{Child, STATE};

pub struct Image {
    device: u64,
    shape: Shape,
}

impl Child for Image {
    fn device(&self) -> u64 {
        self.device
    }
}

#[derive(Clone, Copy)]
struct Shape {
    block: Block,
    extent: vk::Extent3D,
    levels: u32,
    layers: u32,
    samples: u32,
}

/// One mip level of one layer.
struct Level {
    row: u64,
    slice: u64,
    size: u64,
}

impl Shape {
    /// # Errors
    /// VK_ERROR_FORMAT_NOT_SUPPORTED; VK_ERROR_OUT_OF_DEVICE_MEMORY beyond 2^64 bytes.
    fn new(info: &vk::ImageCreateInfo<'_>) -> Result<Self, vk::Result> {
        let block = format::block(info.format).ok_or(vk::Result::ERROR_FORMAT_NOT_SUPPORTED)?;
        let (levels, layers, samples) = (
            info.mip_levels.max(1),
            info.array_layers.max(1),
            info.samples.as_raw().max(1),
        );
        let shape = Self {
            block,
            extent: info.extent,
            levels,
            layers,
            samples,
        };
        shape
            .size()
            .map(|_| shape)
            .ok_or(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY)
    }

    fn level(&self, level: u32) -> Option<Level> {
        let blocks = |side: u32| {
            u64::from(
                side.checked_shr(level)
                    .unwrap_or(0)
                    .max(1)
                    .div_ceil(self.block.side),
            )
        };
        let depth = u64::from(self.extent.depth.checked_shr(level).unwrap_or(0).max(1));
        let row = blocks(self.extent.width)
            .checked_mul(self.block.bytes)?
            .checked_mul(self.samples.into())?;
        let slice = row.checked_mul(blocks(self.extent.height))?;
        Some(Level {
            row,
            slice,
            size: slice.checked_mul(depth)?,
        })
    }

    fn layer_size(&self) -> Option<u64> {
        (0..self.levels).try_fold(0_u64, |sum, level| sum.checked_add(self.level(level)?.size))
    }

    fn size(&self) -> Option<u64> {
        self.layer_size()?
            .checked_mul(self.layers.into())?
            .checked_next_multiple_of(limits::IMAGE_ALIGNMENT)
    }

    fn subresource(&self, level: u32, layer: u32) -> Option<vk::SubresourceLayout> {
        let before =
            (0..level).try_fold(0_u64, |sum, level| sum.checked_add(self.level(level)?.size))?;
        let array_pitch = self.layer_size()?;
        let Level { row, slice, size } = self.level(level)?;
        Some(vk::SubresourceLayout {
            offset: array_pitch.checked_mul(layer.into())?.checked_add(before)?,
            size,
            row_pitch: row,
            array_pitch,
            depth_pitch: slice,
        })
    }
}

pub fn create(
    device: vk::Device,
    info: In<vk::ImageCreateInfo<'_>>,
    image: New<vk::Image>,
) -> Outcome {
    STATE.devices.find(device)?;
    let shape = Shape::new(info.demand()?)?;
    image.put(STATE.images.insert(Image {
        device: device.as_raw(),
        shape,
    }));
    Ok(())
}

pub fn destroy(image: vk::Image) -> Outcome {
    if image.is_null() {
        return Ok(());
    }
    STATE.images.remove(image).map(drop)
}

fn needed(device: vk::Device, shape: &Shape) -> Result<vk::MemoryRequirements, vk::Result> {
    let types = STATE
        .devices
        .find(device)?
        .physical
        .profile()
        .memory_types
        .len();
    let size = shape.size().ok_or(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY)?;
    Ok(vk::MemoryRequirements {
        size,
        alignment: limits::IMAGE_ALIGNMENT,
        memory_type_bits: (1 << types) - 1,
    })
}

pub fn requirements(
    device: vk::Device,
    image: vk::Image,
    requirements: Out<vk::MemoryRequirements>,
) -> Outcome {
    requirements.put(needed(device, &STATE.images.find(image)?.shape)?);
    Ok(())
}

pub fn requirements2(
    device: vk::Device,
    info: In<vk::ImageMemoryRequirementsInfo2<'_>>,
    requirements: Out<vk::MemoryRequirements2<'_>>,
) -> Outcome {
    put_requirements(
        requirements,
        needed(device, &STATE.images.find(info.demand()?.image)?.shape)?,
    );
    Ok(())
}

/// For an image that does not exist yet.
pub fn requirements_of_info(
    device: vk::Device,
    info: In<vk::DeviceImageMemoryRequirements<'_>>,
    requirements: Out<vk::MemoryRequirements2<'_>>,
) -> Outcome {
    let create = In::field(info.demand()?.p_create_info);
    put_requirements(
        requirements,
        needed(device, &Shape::new(create.demand()?)?)?,
    );
    Ok(())
}

/// No image is bound in parts.
pub fn none_sparse<T>(count: Out<u32>, list: OutList<T>) -> Outcome {
    enumerate(count, list, std::iter::empty())
}

pub fn subresource(
    image: vk::Image,
    which: In<vk::ImageSubresource>,
    layout: Out<vk::SubresourceLayout>,
) -> Outcome {
    let which = which.demand()?;
    let image = STATE.images.find(image)?;
    layout.put(
        image
            .shape
            .subresource(which.mip_level, which.array_layer)
            .unwrap_or_default(),
    );
    Ok(())
}

/// Commands move no texels, so where an image lies makes no difference.
pub fn bind(image: vk::Image, memory: vk::DeviceMemory) -> Outcome {
    STATE.memories.find(memory)?;
    STATE.images.find(image).map(drop)
}

pub fn bind2(count: u32, infos: List<vk::BindImageMemoryInfo<'_>>) -> Outcome {
    infos
        .of(count as usize)
        .iter()
        .try_for_each(|info| bind(info.image, info.memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subresources_lie_one_after_the_other() {
        let info = vk::ImageCreateInfo {
            format: vk::Format::R8G8B8A8_UNORM,
            extent: vk::Extent3D {
                width: 64,
                height: 32,
                depth: 1,
            },
            mip_levels: 2,
            array_layers: 3,
            samples: vk::SampleCountFlags::TYPE_1,
            ..Default::default()
        };
        let shape = Shape::new(&info).unwrap();
        let second = shape.subresource(1, 2).unwrap();
        let layer = 64 * 32 * 4 + 32 * 16 * 4;
        assert_eq!(
            (second.offset, second.size, second.row_pitch),
            (2 * layer + 64 * 32 * 4, 32 * 16 * 4, 32 * 4)
        );
        assert_eq!(shape.size(), Some(3 * layer));
    }

    #[test]
    fn an_image_beyond_the_number_range_is_refused() {
        let info = vk::ImageCreateInfo {
            format: vk::Format::R32G32B32A32_SFLOAT,
            extent: vk::Extent3D {
                width: u32::MAX,
                height: u32::MAX,
                depth: 1,
            },
            array_layers: 2,
            ..Default::default()
        };
        assert_eq!(
            Shape::new(&info).err(),
            Some(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY)
        );
    }
}
