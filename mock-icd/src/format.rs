//! Formats: how their texels are stored, and what may be done with them. The table is the card's own
//! (fixtures/oracle/vulkan-formats-580.txt).

use std::collections::HashMap;
use std::sync::OnceLock;

use ash::vk;

use crate::boundary::{Chain, ChainOut, In, Out, Outcome};
use crate::physical_device::external_memory;

mod name;
mod texel;

pub use name::{DepthStencil, Numeric, Plane, Shape};
pub use texel::Texel;

const TABLE: &str = include_str!("../../fixtures/oracle/vulkan-formats-580.txt");

pub struct Format {
    pub shape: Shape,
    linear: u64,
    optimal: u64,
    buffer: u64,
}

/// The formats that have a use.
fn formats() -> &'static HashMap<i32, Format> {
    static FORMATS: OnceLock<HashMap<i32, Format>> = OnceLock::new();
    FORMATS.get_or_init(|| {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        lines.filter_map(parse).collect()
    })
}

/// A format that has a use; `None` for one that the card supports in nothing.
pub fn find(format: vk::Format) -> Option<&'static Format> {
    formats().get(&format.as_raw())
}

/// A row: name, value, then in hexadecimal the VkFormatFeatureFlags2 of linear images, optimal images and buffers.
fn parse(line: &str) -> Option<(i32, Format)> {
    let mut words = line.split_ascii_whitespace();
    let (name, value) = (words.next()?, words.next()?.parse().ok()?);
    let mut flags = || u64::from_str_radix(words.next()?, 16).ok();
    let (linear, optimal, buffer) = (flags()?, flags()?, flags()?);
    let format = Format {
        shape: name::shape(name)?,
        linear,
        optimal,
        buffer,
    };
    (linear | optimal | buffer != 0).then_some((value, format))
}

/// Whether VK_KHR_sampler_ycbcr_conversion brought it, or VK_EXT_ycbcr_2plane_444_formats: their values lie together.
pub fn is_of_chroma(format: vk::Format) -> bool {
    matches!(format.as_raw(), 1_000_156_000..=1_000_156_033 | 1_000_330_000..=1_000_330_003)
}

impl Format {
    pub fn is_compressed(&self) -> bool {
        self.shape.planes.iter().any(|plane| plane.block.height > 1)
    }

    /// Stencil without depth.
    fn is_stencil(&self) -> bool {
        let of = self.shape.depth_stencil;
        of.is_some_and(|of| of.depth.is_none())
    }

    const fn available(&self, tiling: vk::ImageTiling) -> u64 {
        match tiling {
            vk::ImageTiling::OPTIMAL => self.optimal,
            vk::ImageTiling::LINEAR => self.linear,
            _ => 0,
        }
    }

    /// What views of the image may do that have another format of its class: uncompressed colours of as many bytes. Nothing
    /// where shaders have no use at all for the format itself.
    fn views(&self, tiling: vk::ImageTiling) -> u64 {
        let class = |format: &Format| match &format.shape.planes[..] {
            [plane] if format.shape.depth_stencil.is_none() && plane.block.width == 1 => {
                Some(plane.block.bytes)
            }
            _ => None,
        };
        let storage = bits(vk::FormatFeatureFlags2::STORAGE_IMAGE);
        let Some(own) = class(self).filter(|_| self.available(tiling) & storage != 0) else {
            return 0;
        };
        let others = formats().values();
        let same = others.filter(|other| class(other) == Some(own));
        same.fold(0, |bits, other| bits | other.available(tiling))
    }
}

const fn bits(flags: vk::FormatFeatureFlags2) -> u64 {
    flags.as_raw()
}

/// The flags that already existed before VkFormatFeatureFlags2.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the lower half is what remains"
)]
fn first_half(flags: u64) -> vk::FormatFeatureFlags {
    let mut left_out = bits(vk::FormatFeatureFlags2::STORAGE_READ_WITHOUT_FORMAT);
    // Linear images are attachments by VkFormatFeatureFlags2 alone, and blended there alone.
    if flags & bits(vk::FormatFeatureFlags2::COLOR_ATTACHMENT) == 0 {
        left_out |= bits(vk::FormatFeatureFlags2::COLOR_ATTACHMENT_BLEND);
    }
    vk::FormatFeatureFlags::from_raw((flags & !left_out) as u32)
}

fn described(format: vk::Format) -> vk::FormatProperties {
    find(format).map_or_else(vk::FormatProperties::default, |format| {
        vk::FormatProperties {
            linear_tiling_features: first_half(format.linear),
            optimal_tiling_features: first_half(format.optimal),
            buffer_features: first_half(format.buffer),
        }
    })
}

pub fn properties(format: vk::Format, properties: Out<vk::FormatProperties>) {
    properties.put(described(format));
}

pub fn properties2(format: vk::Format, properties: Out<vk::FormatProperties2<'_>>) {
    properties.edit(|properties| {
        properties.format_properties = described(format);
        ChainOut::of(properties.p_next).edit::<vk::FormatProperties3<'_>>(|wide| {
            let format = find(format);
            let flags = |flags: fn(&Format) -> u64| {
                vk::FormatFeatureFlags2::from_raw(format.map_or(0, flags))
            };
            wide.linear_tiling_features = flags(|format| format.linear);
            wide.optimal_tiling_features = flags(|format| format.optimal);
            wide.buffer_features = flags(|format| format.buffer);
        });
    });
}

const SAMPLES: vk::SampleCountFlags = vk::SampleCountFlags::from_raw(0xf);

const SPARSE: vk::ImageCreateFlags = vk::ImageCreateFlags::from_raw(
    vk::ImageCreateFlags::SPARSE_BINDING.as_raw()
        | vk::ImageCreateFlags::SPARSE_RESIDENCY.as_raw()
        | vk::ImageCreateFlags::SPARSE_ALIASED.as_raw(),
);

/// An image that somebody thinks of creating.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub format: vk::Format,
    pub kind: vk::ImageType,
    pub tiling: vk::ImageTiling,
    pub usage: vk::ImageUsageFlags,
    pub flags: vk::ImageCreateFlags,
}

impl Wanted {
    pub fn is_supported(self) -> bool {
        let Some(format) = find(self.format) else {
            return false;
        };
        let mut available = format.available(self.tiling);
        if self.flags.contains(vk::ImageCreateFlags::EXTENDED_USAGE) {
            available |= format.views(self.tiling);
        }
        let attachable = bits(vk::FormatFeatureFlags2::COLOR_ATTACHMENT)
            | bits(vk::FormatFeatureFlags2::DEPTH_STENCIL_ATTACHMENT);
        let needs = [
            (
                vk::ImageUsageFlags::SAMPLED,
                bits(vk::FormatFeatureFlags2::SAMPLED_IMAGE),
            ),
            (
                vk::ImageUsageFlags::STORAGE,
                bits(vk::FormatFeatureFlags2::STORAGE_IMAGE),
            ),
            (
                vk::ImageUsageFlags::COLOR_ATTACHMENT,
                bits(vk::FormatFeatureFlags2::COLOR_ATTACHMENT)
                    | bits(vk::FormatFeatureFlags2::LINEAR_COLOR_ATTACHMENT_NV),
            ),
            (
                vk::ImageUsageFlags::DEPTH_STENCIL_ATTACHMENT,
                bits(vk::FormatFeatureFlags2::DEPTH_STENCIL_ATTACHMENT),
            ),
            (
                vk::ImageUsageFlags::TRANSFER_SRC,
                bits(vk::FormatFeatureFlags2::TRANSFER_SRC),
            ),
            (
                vk::ImageUsageFlags::TRANSFER_DST,
                bits(vk::FormatFeatureFlags2::TRANSFER_DST),
            ),
            (vk::ImageUsageFlags::INPUT_ATTACHMENT, attachable),
            (
                vk::ImageUsageFlags::HOST_TRANSFER_EXT,
                // Colours take it whatever their features say (R64_UINT).
                match format.shape.depth_stencil {
                    Some(_) => bits(vk::FormatFeatureFlags2::HOST_IMAGE_TRANSFER_EXT),
                    None => u64::MAX,
                },
            ),
        ];
        let usable = needs
            .iter()
            .all(|(usage, feature)| !self.usage.contains(*usage) || available & feature != 0);
        available != 0 && usable && self.has_flags() && self.has_dimensions(format)
    }

    /// Optimal images take every flag; the card says so even of those that have no meaning for the image.
    fn has_flags(self) -> bool {
        let linear = SPARSE
            | vk::ImageCreateFlags::CUBE_COMPATIBLE
            | vk::ImageCreateFlags::TYPE_2D_ARRAY_COMPATIBLE
            | vk::ImageCreateFlags::SPLIT_INSTANCE_BIND_REGIONS
            | vk::ImageCreateFlags::BLOCK_TEXEL_VIEW_COMPATIBLE;
        // Although the format's features say that it can: no linear depth is written by a copy.
        let depth = find(self.format).is_some_and(|format| format.shape.depth_stencil.is_some());
        let refused = if depth {
            vk::ImageUsageFlags::TRANSIENT_ATTACHMENT | vk::ImageUsageFlags::TRANSFER_DST
        } else {
            vk::ImageUsageFlags::TRANSIENT_ATTACHMENT
        };
        self.tiling == vk::ImageTiling::OPTIMAL
            || !(self.flags.intersects(linear) || self.usage.intersects(refused))
    }

    /// Linear images have two dimensions, and one is too few for compressed blocks.
    fn has_dimensions(self, format: &Format) -> bool {
        let flat = self.tiling == vk::ImageTiling::LINEAR;
        match self.kind {
            vk::ImageType::TYPE_2D => true,
            vk::ImageType::TYPE_1D => !flat && !format.is_compressed(),
            _ => !flat,
        }
    }

    fn limits(self) -> vk::ImageFormatProperties {
        let linear = self.tiling == vk::ImageTiling::LINEAR;
        let (width, height, depth) = match self.kind {
            vk::ImageType::TYPE_1D => (32768, 1, 1),
            vk::ImageType::TYPE_2D => (32768, 32768, 1),
            _ => (16384, 16384, 16384),
        };
        let cube = self.flags.contains(vk::ImageCreateFlags::CUBE_COMPATIBLE);
        let format = find(self.format);
        let attachable = format.is_some_and(|format| {
            format.optimal
                & (bits(vk::FormatFeatureFlags2::COLOR_ATTACHMENT)
                    | bits(vk::FormatFeatureFlags2::DEPTH_STENCIL_ATTACHMENT))
                != 0
        });
        let single = linear || cube || !attachable || self.kind != vk::ImageType::TYPE_2D;
        let longest: u32 = width.max(depth);
        vk::ImageFormatProperties {
            max_extent: vk::Extent3D {
                width,
                height,
                depth,
            },
            max_mip_levels: if linear { 1 } else { longest.ilog2() + 1 },
            max_array_layers: if linear || self.kind == vk::ImageType::TYPE_3D {
                1
            } else {
                2048
            },
            sample_counts: if single {
                vk::SampleCountFlags::TYPE_1
            } else if format.is_some_and(Format::is_stencil) {
                SAMPLES | vk::SampleCountFlags::TYPE_16
            } else {
                SAMPLES
            },
            max_resource_size: 1 << 40,
        }
    }
}

/// # Errors
/// VK_ERROR_FORMAT_NOT_SUPPORTED, with the properties all zero.
pub fn image_properties(wanted: Wanted, properties: Out<vk::ImageFormatProperties>) -> Outcome {
    if wanted.is_supported() {
        properties.put(wanted.limits());
        return Ok(());
    }
    properties.put(vk::ImageFormatProperties::default());
    Err(vk::Result::ERROR_FORMAT_NOT_SUPPORTED)
}

/// # Errors
/// As [`image_properties`]; an external handle type is not supported for any image.
pub fn image_properties2(
    info: In<vk::PhysicalDeviceImageFormatInfo2<'_>>,
    properties: Out<vk::ImageFormatProperties2<'_>>,
) -> Outcome {
    let info = info.demand()?;
    let wanted = Wanted {
        format: info.format,
        kind: info.ty,
        tiling: info.tiling,
        usage: info.usage,
        flags: info.flags,
    };
    let external = Chain::of(info.p_next)
        .find::<vk::PhysicalDeviceExternalImageFormatInfo<'_>>()
        .map(|external| external.handle_type)
        .filter(|handle| !handle.is_empty());
    let exchanged = external.map(external_memory);
    let supported = wanted.is_supported() && !matches!(exchanged, Some(None));
    properties.edit(|properties| {
        properties.image_format_properties = if supported {
            wanted.limits()
        } else {
            vk::ImageFormatProperties::default()
        };
        let chain = ChainOut::of(properties.p_next);
        chain.edit::<vk::ExternalImageFormatProperties<'_>>(|external| {
            external.external_memory_properties = exchanged.flatten().unwrap_or_default();
        });
        chain.edit::<vk::SamplerYcbcrConversionImageFormatProperties<'_>>(|ycbcr| {
            ycbcr.combined_image_sampler_descriptor_count = 1;
        });
    });
    if supported {
        Ok(())
    } else {
        Err(vk::Result::ERROR_FORMAT_NOT_SUPPORTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_specification_makes_mandatory_is_supported() {
        let flags = |format| described(format).optimal_tiling_features;
        let color = vk::FormatFeatureFlags::COLOR_ATTACHMENT_BLEND
            | vk::FormatFeatureFlags::SAMPLED_IMAGE_FILTER_LINEAR;
        for format in [
            vk::Format::R8G8B8A8_UNORM,
            vk::Format::B8G8R8A8_SRGB,
            vk::Format::R16_SFLOAT,
            vk::Format::A2B10G10R10_UNORM_PACK32,
        ] {
            assert!(flags(format).contains(color), "{format:?}");
        }
        assert!(
            flags(vk::Format::D32_SFLOAT)
                .contains(vk::FormatFeatureFlags::DEPTH_STENCIL_ATTACHMENT)
        );
        assert!(flags(vk::Format::R32_UINT).contains(vk::FormatFeatureFlags::STORAGE_IMAGE_ATOMIC));
        assert!(
            described(vk::Format::R32G32B32_SFLOAT)
                .buffer_features
                .contains(vk::FormatFeatureFlags::VERTEX_BUFFER)
        );
    }

    #[test]
    fn every_format_with_a_use_is_understood() {
        for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split(' ').collect();
            let used = words[2..5].iter().any(|flags| *flags != "0");
            assert_eq!(parse(line).is_some(), used, "{line}");
        }
    }
}
