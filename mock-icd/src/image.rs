//! Images: how they were asked for, where their texels lie, and the memory behind them.

use std::sync::Arc;

use ash::vk::{self, Handle};

use crate::binding::{Binding, Member, Piece};
use crate::boundary::{Chain, In, List, New, Out, OutList, Outcome};
use crate::enumerate::{enumerate, enumerate_begun};
use crate::format::{self, Format};
use crate::layout::{Layout, Spot, TILE, Wanted};
use crate::memory::{self, Memory};
use crate::needs::{self, Needs};
use crate::state::{Child, STATE};

pub struct Image {
    device: u64,
    pub format: &'static Format,
    pub layout: Layout,
    pub kind: vk::ImageType,
    pub layers: u32,
    pub samples: u32,
    linear: bool,
    chroma: bool,
    flags: vk::ImageCreateFlags,
    usage: vk::ImageUsageFlags,
    handle_types: vk::ExternalMemoryHandleTypeFlags,
    /// One for each plane of a disjoint image, else one.
    bindings: Vec<Binding>,
}

impl Child for Image {
    fn device(&self) -> u64 {
        self.device
    }
}

impl Image {
    /// # Errors
    /// VK_ERROR_FORMAT_NOT_SUPPORTED; VK_ERROR_OUT_OF_DEVICE_MEMORY beyond 2^64 bytes.
    fn new(device: u64, info: &vk::ImageCreateInfo<'_>) -> Result<Self, vk::Result> {
        let format = format::find(info.format).ok_or(vk::Result::ERROR_FORMAT_NOT_SUPPORTED)?;
        let wanted = Wanted {
            extent: info.extent,
            levels: info.mip_levels.max(1),
            layers: info.array_layers.max(1),
            samples: info.samples.as_raw().max(1),
            volume: info.image_type == vk::ImageType::TYPE_3D,
            linear: info.tiling == vk::ImageTiling::LINEAR,
        };
        let layout = Layout::new(format, &wanted);
        let layout = if info.flags.contains(vk::ImageCreateFlags::SPARSE_BINDING) {
            let tile = sparse_tile(info.format, info.image_type, wanted.samples)
                .ok_or(vk::Result::ERROR_FORMAT_NOT_SUPPORTED)?;
            let block = format.shape.planes[0].block;
            let tile = [
                tile.width / block.width,
                tile.height / block.height,
                tile.depth,
            ];
            layout.and_then(|layout| layout.tiled(tile, &wanted))
        } else {
            layout
        };
        let disjoint = info.flags.contains(vk::ImageCreateFlags::DISJOINT);
        let bindings = if disjoint {
            format.shape.planes.len()
        } else {
            1
        };
        Ok(Self {
            device,
            format,
            layout: layout.ok_or(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY)?,
            chroma: format::is_of_chroma(info.format),
            kind: info.image_type,
            layers: wanted.layers,
            samples: wanted.samples,
            linear: wanted.linear,
            flags: info.flags,
            usage: info.usage,
            handle_types: Chain::of(info.p_next)
                .find::<vk::ExternalMemoryImageCreateInfo<'_>>()
                .map(|external| external.handle_types)
                .unwrap_or_default(),
            bindings: (0..bindings).map(|_| Binding::default()).collect(),
        })
    }

    /// The plane that an aspect names; the one plane for every other aspect.
    pub fn plane(&self, aspect: vk::ImageAspectFlags) -> usize {
        let plane = if aspect.intersects(vk::ImageAspectFlags::PLANE_1) {
            1
        } else if aspect.intersects(vk::ImageAspectFlags::PLANE_2) {
            2
        } else {
            0
        };
        plane.min(self.format.shape.planes.len() - 1)
    }

    fn place(&self, plane: usize, offset: u64) -> Option<(&Binding, u64)> {
        if self.bindings.len() > 1 {
            Some((
                self.bindings.get(plane)?,
                offset - self.layout.plane_offset(plane),
            ))
        } else {
            Some((self.bindings.first()?, offset))
        }
    }

    /// Reads texel blocks along a row; those outside the image are left as they are.
    pub fn read(&self, on: Member, spot: Spot, bytes: &mut [u8]) {
        let block = self.layout.block(spot.plane) as usize;
        let count = u32::try_from(bytes.len() / block.max(1)).unwrap_or(u32::MAX);
        let mut done = 0;
        for (offset, blocks) in self.layout.row(spot, count) {
            let length = blocks as usize * block;
            if let Some((binding, at)) = self.place(spot.plane, offset) {
                binding.read(on, at, &mut bytes[done..done + length]);
            }
            done += length;
        }
    }

    pub fn write(&self, on: Member, spot: Spot, bytes: &[u8]) {
        let block = self.layout.block(spot.plane) as usize;
        let count = u32::try_from(bytes.len() / block.max(1)).unwrap_or(u32::MAX);
        let mut done = 0;
        for (offset, blocks) in self.layout.row(spot, count) {
            let length = blocks as usize * block;
            if let Some((binding, at)) = self.place(spot.plane, offset) {
                binding.write(on, at, &bytes[done..done + length]);
            }
            done += length;
        }
    }

    /// Whether its memory is the device's; so it is taken to be where it is bound page by page.
    pub fn on_device(&self) -> bool {
        let first = self.bindings.first().and_then(Binding::first);
        first.is_none_or(|(memory, _)| memory.is_on_device())
    }

    /// Binds a range of a sparse image's bytes, as vkQueueBindSparse counts them.
    pub fn bind_pages(&self, at: u64, length: u64, piece: Option<Piece>) {
        if let Some(binding) = self.bindings.first() {
            binding.bind_pages(at, length, piece);
        }
    }

    /// Binds the tiles that a box of texels covers, one after the other from the piece on.
    pub fn bind_tiles(&self, bind: &vk::SparseImageMemoryBind, piece: Option<Piece>) {
        let (Some(tiles), Some(binding)) = (self.layout.tiles(), self.bindings.first()) else {
            return;
        };
        let block = self.format.shape.planes[0].block;
        let texels = [
            tiles.extent[0] * block.width,
            tiles.extent[1] * block.height,
            tiles.extent[2],
        ];
        let starts = [bind.offset.x, bind.offset.y, bind.offset.z]
            .map(|start| u32::try_from(start).unwrap_or(0));
        let sides = [bind.extent.width, bind.extent.height, bind.extent.depth];
        let mut range = [(0, 0); 3];
        for (axis, range) in range.iter_mut().enumerate() {
            let end = starts[axis].saturating_add(sides[axis]);
            *range = (starts[axis] / texels[axis], end.div_ceil(texels[axis]));
        }
        let mut bound = 0;
        for z in range[2].0..range[2].1 {
            for y in range[1].0..range[1].1 {
                for x in range[0].0..range[0].1 {
                    let number = tiles.number(
                        bind.subresource.mip_level,
                        bind.subresource.array_layer,
                        [x, y, z],
                    );
                    let here = piece.clone().map(|mut piece| {
                        piece.offset += bound * TILE;
                        piece
                    });
                    if let Some(number) = number {
                        binding.bind_pages(number * TILE, TILE, here);
                    }
                    bound += 1;
                }
            }
        }
    }
}

pub fn create(
    device: vk::Device,
    info: In<vk::ImageCreateInfo<'_>>,
    image: New<vk::Image>,
) -> Outcome {
    STATE.devices.find(device)?;
    let made = Image::new(device.as_raw(), info.demand()?)?;
    image.put(STATE.images.insert(made));
    Ok(())
}

/// An image of the driver's own, on memory that the driver takes for it.
///
/// # Errors
/// As [`create`] and [`memory::of_driver`].
pub fn create_bound(
    device: vk::Device,
    info: &vk::ImageCreateInfo<'_>,
) -> Result<(u64, Arc<Memory>), vk::Result> {
    let image = Image::new(device.as_raw(), info)?;
    let size = needed(device, &image, None)?.requirements.size;
    let memory = memory::of_driver(device, size)?;
    if let Some(binding) = image.bindings.first() {
        binding.bind(Piece::new(&memory, 0));
    }
    Ok((STATE.images.insert(image), memory))
}

pub fn destroy(image: vk::Image) -> Outcome {
    if image.is_null() {
        return Ok(());
    }
    STATE.images.remove(image).map(drop)
}

/// Of the whole image, or of one plane of a disjoint one.
fn needed(device: vk::Device, image: &Image, plane: Option<usize>) -> Result<Needs, vk::Result> {
    let device = STATE.devices.find(device)?;
    let bytes = plane
        .filter(|_| image.bindings.len() > 1)
        .and_then(|plane| image.layout.plane_size(plane))
        .unwrap_or(image.layout.size);
    let wanted = needs::Image {
        bytes,
        planes: image.format.shape.planes.len(),
        chroma: image.chroma,
        linear: image.linear,
        flags: image.flags,
        usage: image.usage,
        external: image.handle_types,
    };
    Ok(needs::of_image(&device, &wanted))
}

pub fn requirements(
    device: vk::Device,
    image: vk::Image,
    requirements: Out<vk::MemoryRequirements>,
) -> Outcome {
    requirements.put(needed(device, &*STATE.images.find(image)?, None)?.requirements);
    Ok(())
}

pub fn requirements2(
    device: vk::Device,
    info: In<vk::ImageMemoryRequirementsInfo2<'_>>,
    requirements: Out<vk::MemoryRequirements2<'_>>,
) -> Outcome {
    let info = info.demand()?;
    let image = STATE.images.find(info.image)?;
    let plane = Chain::of(info.p_next)
        .find::<vk::ImagePlaneMemoryRequirementsInfo<'_>>()
        .map(|plane| image.plane(plane.plane_aspect));
    needed(device, &image, plane)?.put(requirements);
    Ok(())
}

/// For an image that does not exist yet.
pub fn requirements_of_info(
    device: vk::Device,
    info: In<vk::DeviceImageMemoryRequirements<'_>>,
    requirements: Out<vk::MemoryRequirements2<'_>>,
) -> Outcome {
    let info = info.demand()?;
    let create = In::field(info.p_create_info);
    let image = Image::new(device.as_raw(), create.demand()?)?;
    let plane = (!info.plane_aspect.is_empty()).then(|| image.plane(info.plane_aspect));
    needed(device, &image, plane)?.put(requirements);
    Ok(())
}

/// The block that one sparse binding covers, in texels: 64 KiB in the standard shapes of the specification.
fn sparse_tile(format: vk::Format, kind: vk::ImageType, samples: u32) -> Option<vk::Extent3D> {
    let format = format::find(format)?;
    let [plane] = &format.shape.planes[..] else {
        return None;
    };
    let size = plane.block.bytes.trailing_zeros();
    if !plane.block.bytes.is_power_of_two() || size > 4 {
        return None;
    }
    let extent = |width: u32, height: u32, depth: u32| vk::Extent3D {
        width: width * plane.block.width,
        height: height * plane.block.height,
        depth,
    };
    match kind {
        vk::ImageType::TYPE_2D => {
            // 256×256 bytes; each doubling of the texel halves the height and the width by turns, and so do samples.
            let (mut width, mut height) = (256 >> (size / 2), 256 >> size.div_ceil(2));
            let steps = samples.trailing_zeros();
            width >>= steps.div_ceil(2);
            height >>= steps / 2;
            Some(extent(width, height, 1))
        }
        vk::ImageType::TYPE_3D if samples == 1 => {
            let [width, height, depth] = [
                [64, 32, 32],
                [32, 32, 32],
                [32, 32, 16],
                [32, 16, 16],
                [16, 16, 16],
            ][size as usize];
            Some(extent(width, height, depth))
        }
        _ => None,
    }
}

fn sparse_properties(
    format: vk::Format,
    kind: vk::ImageType,
    samples: vk::SampleCountFlags,
) -> Option<vk::SparseImageFormatProperties> {
    let granularity = sparse_tile(format, kind, samples.as_raw().max(1))?;
    Some(vk::SparseImageFormatProperties {
        aspect_mask: aspects(format::find(format)?),
        image_granularity: granularity,
        flags: vk::SparseImageFormatFlags::empty(),
    })
}

fn aspects(format: &Format) -> vk::ImageAspectFlags {
    let Some(depth_stencil) = format.shape.depth_stencil else {
        return vk::ImageAspectFlags::COLOR;
    };
    let mut aspects = vk::ImageAspectFlags::empty();
    if depth_stencil.depth.is_some() {
        aspects |= vk::ImageAspectFlags::DEPTH;
    }
    if depth_stencil.stencil.is_some() {
        aspects |= vk::ImageAspectFlags::STENCIL;
    }
    aspects
}

pub fn sparse_formats(
    wanted: format::Wanted,
    samples: vk::SampleCountFlags,
    count: Out<u32>,
    list: OutList<vk::SparseImageFormatProperties>,
) -> Outcome {
    enumerate(count, list, sparse_of(wanted, samples).into_iter())
}

pub fn sparse_formats2(
    info: In<vk::PhysicalDeviceSparseImageFormatInfo2<'_>>,
    count: Out<u32>,
    list: OutList<vk::SparseImageFormatProperties2<'_>>,
) -> Outcome {
    let info = info.demand()?;
    let wanted = format::Wanted {
        format: info.format,
        kind: info.ty,
        tiling: info.tiling,
        usage: info.usage,
        flags: vk::ImageCreateFlags::empty(),
    };
    let found = sparse_of(wanted, info.samples);
    enumerate_begun(count, list, found.len(), |index, to| {
        to.properties = found[index]
    })
}

fn sparse_of(
    mut wanted: format::Wanted,
    samples: vk::SampleCountFlags,
) -> Vec<vk::SparseImageFormatProperties> {
    wanted.flags = vk::ImageCreateFlags::SPARSE_BINDING | vk::ImageCreateFlags::SPARSE_RESIDENCY;
    let supported = wanted.is_supported() && wanted.tiling == vk::ImageTiling::OPTIMAL;
    sparse_properties(wanted.format, wanted.kind, samples)
        .filter(|_| supported)
        .into_iter()
        .collect()
}

fn sparse_needs(
    image: &Image,
    aspect_mask: vk::ImageAspectFlags,
) -> Vec<vk::SparseImageMemoryRequirements> {
    let resident = image.flags.contains(vk::ImageCreateFlags::SPARSE_RESIDENCY);
    let Some(tiles) = image.layout.tiles().filter(|_| resident) else {
        return Vec::new();
    };
    let block = image.format.shape.planes[0].block;
    let single = tiles.tail.single;
    vec![vk::SparseImageMemoryRequirements {
        format_properties: vk::SparseImageFormatProperties {
            aspect_mask,
            image_granularity: vk::Extent3D {
                width: tiles.extent[0] * block.width,
                height: tiles.extent[1] * block.height,
                depth: tiles.extent[2],
            },
            flags: if single {
                vk::SparseImageFormatFlags::SINGLE_MIPTAIL
            } else {
                vk::SparseImageFormatFlags::empty()
            },
        },
        image_mip_tail_first_lod: tiles.tail.first_level,
        image_mip_tail_size: tiles.tail.size,
        image_mip_tail_offset: tiles.tail.offset,
        image_mip_tail_stride: if single { 0 } else { tiles.tail.stride },
    }]
}

pub fn sparse_requirements(
    image: vk::Image,
    count: Out<u32>,
    list: OutList<vk::SparseImageMemoryRequirements>,
) -> Outcome {
    let image = STATE.images.find(image)?;
    enumerate(
        count,
        list,
        sparse_needs(&image, aspects(image.format)).into_iter(),
    )
}

pub fn sparse_requirements2(
    info: In<vk::ImageSparseMemoryRequirementsInfo2<'_>>,
    count: Out<u32>,
    list: OutList<vk::SparseImageMemoryRequirements2<'_>>,
) -> Outcome {
    put_sparse(&*STATE.images.find(info.demand()?.image)?, count, list)
}

pub fn sparse_requirements_of_info(
    device: vk::Device,
    info: In<vk::DeviceImageMemoryRequirements<'_>>,
    count: Out<u32>,
    list: OutList<vk::SparseImageMemoryRequirements2<'_>>,
) -> Outcome {
    let create = In::field(info.demand()?.p_create_info);
    put_sparse(&Image::new(device.as_raw(), create.demand()?)?, count, list)
}

fn put_sparse(
    image: &Image,
    count: Out<u32>,
    list: OutList<vk::SparseImageMemoryRequirements2<'_>>,
) -> Outcome {
    let needs = sparse_needs(image, aspects(image.format));
    enumerate_begun(count, list, needs.len(), |index, to| {
        to.memory_requirements = needs[index]
    })
}

pub fn subresource(
    image: vk::Image,
    which: In<vk::ImageSubresource>,
    layout: Out<vk::SubresourceLayout>,
) -> Outcome {
    layout.put(layout_of(&*STATE.images.find(image)?, *which.demand()?));
    Ok(())
}

fn layout_of(image: &Image, which: vk::ImageSubresource) -> vk::SubresourceLayout {
    let plane = image.plane(which.aspect_mask);
    let found = image
        .layout
        .subresource(plane, which.mip_level, which.array_layer);
    let mut found = found.unwrap_or_default();
    if image.bindings.len() > 1 {
        found.offset -= image.layout.plane_offset(plane);
    }
    found
}

pub fn subresource2(
    image: vk::Image,
    which: In<vk::ImageSubresource2KHR<'_>>,
    layout: Out<vk::SubresourceLayout2KHR<'_>>,
) -> Outcome {
    let image = STATE.images.find(image)?;
    put_layout(&image, which.demand()?.image_subresource, layout);
    Ok(())
}

pub fn subresource_of_info(
    device: vk::Device,
    info: In<vk::DeviceImageSubresourceInfoKHR<'_>>,
    layout: Out<vk::SubresourceLayout2KHR<'_>>,
) -> Outcome {
    let info = info.demand()?;
    let create = In::field(info.p_create_info);
    let image = Image::new(device.as_raw(), create.demand()?)?;
    let which = In::field(info.p_subresource);
    put_layout(&image, which.demand()?.image_subresource, layout);
    Ok(())
}

fn put_layout(
    image: &Image,
    which: vk::ImageSubresource,
    layout: Out<vk::SubresourceLayout2KHR<'_>>,
) {
    let found = layout_of(image, which);
    layout.edit(|layout| {
        layout.subresource_layout = found;
        crate::boundary::ChainOut::of(layout.p_next)
            .edit::<vk::SubresourceHostMemcpySizeEXT<'_>>(|size| size.size = found.size);
    });
}

pub fn bind(image: vk::Image, memory: vk::DeviceMemory, offset: u64) -> Outcome {
    let memory = STATE.memories.find(memory)?;
    let image = STATE.images.find(image)?;
    if let Some(binding) = image.bindings.first() {
        binding.bind(Piece::new(&memory, offset));
    }
    Ok(())
}

/// Planes of a disjoint image are bound one by one; in a device group each device may use another one's instance.
pub fn bind2(count: u32, infos: List<vk::BindImageMemoryInfo<'_>>) -> Outcome {
    for info in infos.of(count as usize) {
        let chain = Chain::of(info.p_next);
        let image = STATE.images.find(info.image)?;
        // An image that the application made like a swapchain's, and that is to be one of them.
        let of_swapchain = chain
            .find::<vk::BindImageMemorySwapchainInfoKHR<'_>>()
            .filter(|swapchain| !swapchain.swapchain.is_null());
        let mut piece = match of_swapchain {
            Some(which) => {
                let swapchain = STATE.swapchains.find(which.swapchain)?;
                let image = swapchain.images.get(which.image_index as usize);
                Piece::new(&image.ok_or(vk::Result::ERROR_UNKNOWN)?.memory, 0)
            }
            None => Piece::new(&STATE.memories.find(info.memory)?, info.memory_offset),
        };
        if let Some(group) = chain.find::<vk::BindImageMemoryDeviceGroupInfo<'_>>() {
            let indices = List::field(group.p_device_indices);
            piece.instances = indices.of(group.device_index_count as usize).to_vec();
        }
        let plane = chain
            .find::<vk::BindImagePlaneMemoryInfo<'_>>()
            .map_or(0, |plane| image.plane(plane.plane_aspect));
        if let Some(binding) = image.bindings.get(plane).or(image.bindings.first()) {
            binding.bind(piece);
        }
    }
    Ok(())
}
