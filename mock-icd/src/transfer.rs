//! Copies between buffers and images, row by row of texel blocks.

use std::sync::Arc;

use ash::vk;

use crate::binding::Member;
use crate::boundary::{In, List, Outcome};
use crate::buffer::Buffer;
use crate::command::{Takes, record};
use crate::format::DepthStencil;
use crate::image::Image;
use crate::layout::Spot;
use crate::state::STATE;

/// Part of a texel block: a depth-stencil format's aspects are copied apart.
#[derive(Clone, Copy)]
struct Slice {
    at: usize,
    /// Bytes in the image, and in a buffer.
    stored: usize,
    packed: usize,
}

impl Slice {
    /// `None` for whole blocks.
    fn of(depth_stencil: Option<DepthStencil>, aspect: vk::ImageAspectFlags) -> Option<Self> {
        let both = depth_stencil?;
        match (both.depth, both.stencil) {
            (_, Some(at)) if aspect == vk::ImageAspectFlags::STENCIL => Some(Self {
                at: at as usize,
                stored: 1,
                packed: 1,
            }),
            (Some((at, stored)), _) if aspect == vk::ImageAspectFlags::DEPTH => Some(Self {
                at: at as usize,
                stored: stored as usize,
                // 24 bits travel in 32.
                packed: (stored as usize).next_power_of_two(),
            }),
            _ => None,
        }
    }

    fn take(self, blocks: &[u8], block: usize) -> Vec<u8> {
        let mut packed = vec![0; blocks.len() / block * self.packed];
        for (to, from) in packed
            .chunks_exact_mut(self.packed)
            .zip(blocks.chunks_exact(block))
        {
            to[..self.stored].copy_from_slice(&from[self.at..self.at + self.stored]);
        }
        packed
    }

    fn put(self, packed: &[u8], blocks: &mut [u8], block: usize) {
        for (from, to) in packed
            .chunks_exact(self.packed)
            .zip(blocks.chunks_exact_mut(block))
        {
            to[self.at..self.at + self.stored].copy_from_slice(&from[..self.stored]);
        }
    }
}

/// A box of texel blocks in one subresource, some layers deep.
#[derive(Clone, Copy)]
struct Area {
    plane: usize,
    level: u32,
    layer: u32,
    layers: u32,
    /// In blocks.
    start: [u32; 3],
    size: [u32; 3],
}

impl Area {
    /// `extent` is in texels of the aspect's plane.
    fn new(
        image: &Image,
        subresource: &vk::ImageSubresourceLayers,
        offset: vk::Offset3D,
        extent: vk::Extent3D,
    ) -> Self {
        let plane = image.plane(subresource.aspect_mask);
        let block = image.format.shape.planes[plane].block;
        let start = [offset.x, offset.y, offset.z].map(|side| u32::try_from(side).unwrap_or(0));
        let layers = if subresource.layer_count == vk::REMAINING_ARRAY_LAYERS {
            image.layers.saturating_sub(subresource.base_array_layer)
        } else {
            subresource.layer_count
        };
        Self {
            plane,
            level: subresource.mip_level,
            layer: subresource.base_array_layer,
            layers: layers.min(image.layers),
            start: [start[0] / block.width, start[1] / block.height, start[2]],
            size: [
                extent.width.div_ceil(block.width),
                extent.height.div_ceil(block.height),
                extent.depth,
            ],
        }
    }

    /// Its slices, layers and depth alike, as (layer, z): an array's layers can be copied to a volume's depth.
    fn slices(&self, image: &Image) -> Vec<(u32, u32)> {
        if image.kind == vk::ImageType::TYPE_3D {
            let end = self.start[2].saturating_add(self.size[2]);
            (self.start[2]..end).map(|z| (0, z)).collect()
        } else {
            let end = self.layer.saturating_add(self.layers);
            (self.layer..end).map(|layer| (layer, 0)).collect()
        }
    }

    const fn spot(&self, (layer, z): (u32, u32), y: u32) -> Spot {
        Spot {
            plane: self.plane,
            level: self.level,
            layer,
            x: self.start[0],
            y: self.start[1] + y,
            z,
        }
    }

    /// Blocks along a row that are inside the level.
    fn width(&self, image: &Image) -> u32 {
        let level = image.layout.level(self.plane, self.level);
        level.map_or(0, |level| {
            self.size[0].min(level.width.saturating_sub(self.start[0]))
        })
    }

    fn height(&self, image: &Image) -> u32 {
        let level = image.layout.level(self.plane, self.level);
        level.map_or(0, |level| {
            self.size[1].min(level.height.saturating_sub(self.start[1]))
        })
    }

    fn bytes(&self, image: &Image) -> u64 {
        let blocks = self
            .size
            .iter()
            .map(|side| u64::from(*side))
            .product::<u64>();
        blocks * image.layout.block(self.plane) * u64::from(self.layers.max(1))
    }
}

/// A copy between linear memory and an image.
pub struct Region {
    area: Area,
    slice: Option<Slice>,
    pub offset: u64,
    /// Bytes from row to row, and from slice to slice.
    row: u64,
    pitch: u64,
    packed: usize,
}

impl Region {
    /// `row_length` and `height` are in texels; 0 means those of the extent.
    pub fn new(
        image: &Image,
        offset: u64,
        (row_length, height): (u32, u32),
        subresource: &vk::ImageSubresourceLayers,
        image_offset: vk::Offset3D,
        extent: vk::Extent3D,
    ) -> Self {
        let area = Area::new(image, subresource, image_offset, extent);
        let block = image.format.shape.planes[area.plane].block;
        let slice = Slice::of(image.format.shape.depth_stencil, subresource.aspect_mask);
        let packed = slice.map_or(block.bytes as usize, |slice| slice.packed);
        let blocks = if row_length == 0 {
            area.size[0]
        } else {
            row_length.div_ceil(block.width)
        };
        let rows = if height == 0 {
            area.size[1]
        } else {
            height.div_ceil(block.height)
        };
        let row = u64::from(blocks) * packed as u64;
        Self {
            area,
            slice,
            offset,
            row,
            pitch: row * u64::from(rows),
            packed,
        }
    }

    pub fn bytes(&self, image: &Image) -> u64 {
        self.area.bytes(image)
    }

    /// Each row with where it lies in linear memory, and how many bytes it has there.
    fn rows(&self, image: &Image) -> Vec<(Spot, u64, usize)> {
        let (width, height) = (self.area.width(image), self.area.height(image));
        let mut rows = Vec::new();
        for (slice, number) in self.area.slices(image).into_iter().zip(0_u64..) {
            for y in 0..height {
                let offset = self.offset + number * self.pitch + u64::from(y) * self.row;
                rows.push((
                    self.area.spot(slice, y),
                    offset,
                    width as usize * self.packed,
                ));
            }
        }
        rows
    }

    pub fn fill_image(&self, on: Member, image: &Image, mut read: impl FnMut(u64, &mut [u8])) {
        let block = image.layout.block(self.area.plane) as usize;
        for (spot, offset, length) in self.rows(image) {
            let mut packed = vec![0; length];
            read(offset, &mut packed);
            match self.slice {
                None => image.write(on, spot, &packed),
                Some(slice) => {
                    let mut blocks = vec![0; length / self.packed * block];
                    image.read(on, spot, &mut blocks);
                    slice.put(&packed, &mut blocks, block);
                    image.write(on, spot, &blocks);
                }
            }
        }
    }

    pub fn take_image(&self, on: Member, image: &Image, mut write: impl FnMut(u64, &[u8])) {
        let block = image.layout.block(self.area.plane) as usize;
        for (spot, offset, length) in self.rows(image) {
            let mut blocks = vec![0; length / self.packed * block];
            image.read(on, spot, &mut blocks);
            match self.slice {
                None => write(offset, &blocks),
                Some(slice) => write(offset, &slice.take(&blocks, block)),
            }
        }
    }
}

type Copies = Vec<vk::BufferImageCopy>;

fn regions(image: &Image, copies: &Copies) -> Vec<Region> {
    copies
        .iter()
        .map(|copy| {
            Region::new(
                image,
                copy.buffer_offset,
                (copy.buffer_row_length, copy.buffer_image_height),
                &copy.image_subresource,
                copy.image_offset,
                copy.image_extent,
            )
        })
        .collect()
}

fn older(copy: &vk::BufferImageCopy2<'_>) -> vk::BufferImageCopy {
    vk::BufferImageCopy {
        buffer_offset: copy.buffer_offset,
        buffer_row_length: copy.buffer_row_length,
        buffer_image_height: copy.buffer_image_height,
        image_subresource: copy.image_subresource,
        image_offset: copy.image_offset,
        image_extent: copy.image_extent,
    }
}

pub fn buffer_to_image(
    commands: vk::CommandBuffer,
    from: vk::Buffer,
    to: vk::Image,
    count: u32,
    copies: List<vk::BufferImageCopy>,
) -> Outcome {
    into_image(commands, from, to, &copies.of(count as usize).to_vec())
}

pub fn buffer_to_image2(
    commands: vk::CommandBuffer,
    info: In<vk::CopyBufferToImageInfo2<'_>>,
) -> Outcome {
    let info = info.demand()?;
    let copies = List::field(info.p_regions);
    let copies = copies.of(info.region_count as usize).iter().map(older);
    into_image(commands, info.src_buffer, info.dst_image, &copies.collect())
}

fn into_image(
    commands: vk::CommandBuffer,
    from: vk::Buffer,
    to: vk::Image,
    copies: &Copies,
) -> Outcome {
    let (from, to) = (STATE.buffers.find(from)?, STATE.images.find(to)?);
    let regions = regions(&to, copies);
    let takes = cost(&from, &to, &regions, true);
    record(commands, takes, move |moment| {
        for region in &regions {
            region.fill_image(moment.on, &to, |offset, bytes| {
                from.binding.read(moment.on, offset, bytes);
            });
        }
    })
}

pub fn image_to_buffer(
    commands: vk::CommandBuffer,
    from: vk::Image,
    to: vk::Buffer,
    count: u32,
    copies: List<vk::BufferImageCopy>,
) -> Outcome {
    out_of_image(commands, from, to, &copies.of(count as usize).to_vec())
}

pub fn image_to_buffer2(
    commands: vk::CommandBuffer,
    info: In<vk::CopyImageToBufferInfo2<'_>>,
) -> Outcome {
    let info = info.demand()?;
    let copies = List::field(info.p_regions);
    let copies = copies.of(info.region_count as usize).iter().map(older);
    out_of_image(commands, info.src_image, info.dst_buffer, &copies.collect())
}

fn out_of_image(
    commands: vk::CommandBuffer,
    from: vk::Image,
    to: vk::Buffer,
    copies: &Copies,
) -> Outcome {
    let (from, to) = (STATE.images.find(from)?, STATE.buffers.find(to)?);
    let regions = regions(&from, copies);
    let takes = cost(&to, &from, &regions, false);
    record(commands, takes, move |moment| {
        for region in &regions {
            region.take_image(moment.on, &from, |offset, bytes| {
                to.binding.write(moment.on, offset, bytes);
            });
        }
    })
}

fn cost(buffer: &Buffer, image: &Image, regions: &[Region], into_image: bool) -> Takes {
    let (buffer, on_device) = (buffer.on_device(), image.on_device());
    Takes::Copy {
        from: if into_image { buffer } else { on_device },
        to: if into_image { on_device } else { buffer },
        bytes: regions.iter().map(|region| region.bytes(image)).sum(),
    }
}

/// Two areas of as many blocks, which have as many bytes.
pub struct Pair {
    from: Area,
    to: Area,
    aspect: vk::ImageAspectFlags,
}

impl Pair {
    /// The extent is in texels of the source; a compressed block is copied to a texel of its size, and the other way round.
    pub fn new(from: &Image, to: &Image, copy: &vk::ImageCopy) -> Self {
        let source = Area::new(from, &copy.src_subresource, copy.src_offset, copy.extent);
        let mut target = Area::new(to, &copy.dst_subresource, copy.dst_offset, copy.extent);
        target.size = source.size;
        Self {
            from: source,
            to: target,
            aspect: copy.src_subresource.aspect_mask,
        }
    }

    pub fn bytes(&self, from: &Image) -> u64 {
        self.from.bytes(from)
    }

    pub fn copy(&self, on: Member, from: &Image, to: &Image) {
        let block = from.layout.block(self.from.plane) as usize;
        let target = to.layout.block(self.to.plane) as usize;
        let width = self.from.width(from).min(self.to.width(to)) as usize;
        let height = self.from.height(from).min(self.to.height(to));
        let slice = Slice::of(from.format.shape.depth_stencil, self.aspect);
        let slices = self.from.slices(from).into_iter();
        for (source, destination) in slices.zip(self.to.slices(to)) {
            for y in 0..height {
                let mut blocks = vec![0; width * block];
                from.read(on, self.from.spot(source, y), &mut blocks);
                let spot = self.to.spot(destination, y);
                if let Some(slice) = slice
                    && block == target
                {
                    let packed = slice.take(&blocks, block);
                    let mut merged = vec![0; width * target];
                    to.read(on, spot, &mut merged);
                    slice.put(&packed, &mut merged, target);
                    blocks = merged;
                }
                to.write(on, spot, &blocks);
            }
        }
    }
}

pub fn image_to_image(
    commands: vk::CommandBuffer,
    from: vk::Image,
    to: vk::Image,
    count: u32,
    copies: List<vk::ImageCopy>,
) -> Outcome {
    between_images(commands, from, to, copies.of(count as usize))
}

pub fn image_to_image2(commands: vk::CommandBuffer, info: In<vk::CopyImageInfo2<'_>>) -> Outcome {
    let info = info.demand()?;
    let copies = List::field(info.p_regions);
    let copies: Vec<_> = copies
        .of(info.region_count as usize)
        .iter()
        .map(|copy| vk::ImageCopy {
            src_subresource: copy.src_subresource,
            src_offset: copy.src_offset,
            dst_subresource: copy.dst_subresource,
            dst_offset: copy.dst_offset,
            extent: copy.extent,
        })
        .collect();
    between_images(commands, info.src_image, info.dst_image, &copies)
}

fn between_images(
    commands: vk::CommandBuffer,
    from: vk::Image,
    to: vk::Image,
    copies: &[vk::ImageCopy],
) -> Outcome {
    let (from, to) = (STATE.images.find(from)?, STATE.images.find(to)?);
    let pairs: Vec<Pair> = copies
        .iter()
        .map(|copy| Pair::new(&from, &to, copy))
        .collect();
    let takes = between(&from, &to, pairs.iter().map(|pair| pair.bytes(&from)).sum());
    record(commands, takes, move |moment| {
        for pair in &pairs {
            pair.copy(moment.on, &from, &to);
        }
    })
}

pub fn between(from: &Arc<Image>, to: &Arc<Image>, bytes: u64) -> Takes {
    Takes::Copy {
        from: from.on_device(),
        to: to.on_device(),
        bytes,
    }
}
