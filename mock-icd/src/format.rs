//! Formats: how large a texel block is, and what may be done with it.

use ash::vk;

use crate::boundary::{ChainOut, In, Out, Outcome};

/// A texel block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    pub bytes: u64,
    /// Texels along each side: 1, or 4 where compressed.
    pub side: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Colour that can be blended and filtered.
    Color,
    Srgb,
    Integer,
    /// Vertex data only: scaled integers, three components, 64 bits.
    Vertex,
    Depth,
    Compressed,
}

/// The formats of Vulkan 1.0 up to BC7, as (first, last, bytes of a block). What follows (ETC2, ASTC, several planes) is
/// not supported, as on desktop GPUs or because nothing here needs it.
const SIZES: &[(i32, i32, u64)] = &[
    (1, 1, 1),
    (2, 8, 2),
    (9, 15, 1),
    (16, 22, 2),
    (23, 36, 3),
    (37, 69, 4),
    (70, 76, 2),
    (77, 83, 4),
    (84, 90, 6),
    (91, 97, 8),
    (98, 100, 4),
    (101, 103, 8),
    (104, 106, 12),
    (107, 109, 16),
    (110, 112, 8),
    (113, 115, 16),
    (116, 118, 24),
    (119, 121, 32),
    (122, 123, 4),
    (124, 124, 2),
    (125, 126, 4),
    (127, 127, 1),
    (128, 129, 4),
    (130, 130, 8),
    (131, 134, 8),
    (135, 138, 16),
    (139, 140, 8),
    (141, 146, 16),
];

/// `None` for a format that is not supported.
pub fn block(format: vk::Format) -> Option<Block> {
    let raw = format.as_raw();
    let (_, _, bytes) = SIZES
        .iter()
        .find(|(first, last, _)| (*first..=*last).contains(&raw))?;
    Some(Block {
        bytes: *bytes,
        side: if raw >= 131 { 4 } else { 1 },
    })
}

fn class(format: vk::Format) -> Option<Class> {
    let raw = format.as_raw();
    // The groups of seven run UNORM, SNORM, USCALED, SSCALED, UINT, SINT, then SRGB or SFLOAT.
    let of_group = |first: i32, last: Class| match (raw - first) % 7 {
        0 | 1 => Class::Color,
        2 | 3 => Class::Vertex,
        4 | 5 => Class::Integer,
        _ => last,
    };
    Some(match raw {
        1..=8 => Class::Color,
        9..=22 | 37..=57 => of_group(if raw < 37 { 9 } else { 37 }, Class::Srgb),
        23..=36 | 84..=90 | 104..=106 | 110..=121 => Class::Vertex,
        58..=63 => of_group(58, Class::Color),
        64..=69 => of_group(64, Class::Color),
        70..=83 => of_group(70, Class::Color),
        91..=97 => of_group(91, Class::Color),
        98..=103 | 107..=109 => match raw {
            100 | 103 | 109 => Class::Color,
            _ => Class::Integer,
        },
        122 | 123 => Class::Color,
        124..=130 => Class::Depth,
        131..=146 => Class::Compressed,
        _ => return None,
    })
}

const TRANSFER: u64 =
    bits(vk::FormatFeatureFlags2::TRANSFER_SRC) | bits(vk::FormatFeatureFlags2::TRANSFER_DST);
const BLIT: u64 = bits(vk::FormatFeatureFlags2::BLIT_SRC) | bits(vk::FormatFeatureFlags2::BLIT_DST);
const SAMPLED: u64 = bits(vk::FormatFeatureFlags2::SAMPLED_IMAGE);
const FILTERED: u64 = bits(vk::FormatFeatureFlags2::SAMPLED_IMAGE_FILTER_LINEAR);
const ATTACHED: u64 = bits(vk::FormatFeatureFlags2::COLOR_ATTACHMENT);
const BLENDED: u64 = bits(vk::FormatFeatureFlags2::COLOR_ATTACHMENT_BLEND);
const STORED: u64 = bits(vk::FormatFeatureFlags2::STORAGE_IMAGE)
    | bits(vk::FormatFeatureFlags2::STORAGE_READ_WITHOUT_FORMAT)
    | bits(vk::FormatFeatureFlags2::STORAGE_WRITE_WITHOUT_FORMAT);
const TEXELS: u64 = bits(vk::FormatFeatureFlags2::UNIFORM_TEXEL_BUFFER)
    | bits(vk::FormatFeatureFlags2::STORAGE_TEXEL_BUFFER)
    | bits(vk::FormatFeatureFlags2::VERTEX_BUFFER);

const fn bits(flags: vk::FormatFeatureFlags2) -> u64 {
    flags.as_raw()
}

/// What a format is good for, by tiling.
struct Features {
    linear: u64,
    optimal: u64,
    buffer: u64,
}

fn features(format: vk::Format) -> Features {
    let atomic = matches!(format, vk::Format::R32_UINT | vk::Format::R32_SINT);
    let color = |optimal: u64, buffer: u64| Features {
        linear: optimal & !BLENDED,
        optimal,
        buffer,
    };
    match class(format) {
        None => Features {
            linear: 0,
            optimal: 0,
            buffer: 0,
        },
        Some(Class::Color) => color(
            TRANSFER | BLIT | SAMPLED | FILTERED | ATTACHED | BLENDED | STORED,
            TEXELS,
        ),
        Some(Class::Srgb) => color(TRANSFER | BLIT | SAMPLED | FILTERED | ATTACHED | BLENDED, 0),
        Some(Class::Integer) => {
            let (image, texel) = (
                bits(vk::FormatFeatureFlags2::STORAGE_IMAGE_ATOMIC),
                bits(vk::FormatFeatureFlags2::STORAGE_TEXEL_BUFFER_ATOMIC),
            );
            let atomic = |bit: u64| if atomic { bit } else { 0 };
            color(
                TRANSFER | BLIT | SAMPLED | ATTACHED | STORED | atomic(image),
                TEXELS | atomic(texel),
            )
        }
        Some(Class::Vertex) => Features {
            linear: 0,
            optimal: 0,
            buffer: bits(vk::FormatFeatureFlags2::VERTEX_BUFFER),
        },
        Some(Class::Depth) => {
            let attached = bits(vk::FormatFeatureFlags2::DEPTH_STENCIL_ATTACHMENT);
            let compared = if format == vk::Format::S8_UINT {
                0
            } else {
                bits(vk::FormatFeatureFlags2::SAMPLED_IMAGE_DEPTH_COMPARISON)
            };
            Features {
                linear: 0,
                optimal: TRANSFER | BLIT | SAMPLED | attached | compared,
                buffer: 0,
            }
        }
        Some(Class::Compressed) => {
            let optimal = TRANSFER | SAMPLED | FILTERED | bits(vk::FormatFeatureFlags2::BLIT_SRC);
            Features {
                linear: 0,
                optimal,
                buffer: 0,
            }
        }
    }
}

/// The flags that already existed before VkFormatFeatureFlags2.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the lower half is what remains"
)]
fn first_half(flags: u64) -> vk::FormatFeatureFlags {
    let newer = bits(vk::FormatFeatureFlags2::STORAGE_READ_WITHOUT_FORMAT)
        | bits(vk::FormatFeatureFlags2::STORAGE_WRITE_WITHOUT_FORMAT)
        | bits(vk::FormatFeatureFlags2::SAMPLED_IMAGE_DEPTH_COMPARISON);
    vk::FormatFeatureFlags::from_raw((flags & !newer) as u32)
}

fn described(format: vk::Format) -> vk::FormatProperties {
    let Features {
        linear,
        optimal,
        buffer,
    } = features(format);
    vk::FormatProperties {
        linear_tiling_features: first_half(linear),
        optimal_tiling_features: first_half(optimal),
        buffer_features: first_half(buffer),
    }
}

pub fn properties(format: vk::Format, properties: Out<vk::FormatProperties>) {
    properties.put(described(format));
}

pub fn properties2(format: vk::Format, properties: Out<vk::FormatProperties2<'_>>) {
    properties.edit(|properties| {
        properties.format_properties = described(format);
        ChainOut::of(properties.p_next).edit::<vk::FormatProperties3<'_>>(|wide| {
            let Features {
                linear,
                optimal,
                buffer,
            } = features(format);
            wide.linear_tiling_features = vk::FormatFeatureFlags2::from_raw(linear);
            wide.optimal_tiling_features = vk::FormatFeatureFlags2::from_raw(optimal);
            wide.buffer_features = vk::FormatFeatureFlags2::from_raw(buffer);
        });
    });
}

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
    fn is_supported(self) -> bool {
        let features = features(self.format);
        let available = match self.tiling {
            vk::ImageTiling::OPTIMAL => features.optimal,
            vk::ImageTiling::LINEAR => features.linear,
            _ => 0,
        };
        let needs = [
            (vk::ImageUsageFlags::SAMPLED, SAMPLED),
            (
                vk::ImageUsageFlags::STORAGE,
                bits(vk::FormatFeatureFlags2::STORAGE_IMAGE),
            ),
            (vk::ImageUsageFlags::COLOR_ATTACHMENT, ATTACHED),
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
        ];
        let usable = needs
            .iter()
            .all(|(usage, feature)| !self.usage.contains(*usage) || available & feature != 0);
        let attachable = ATTACHED | bits(vk::FormatFeatureFlags2::DEPTH_STENCIL_ATTACHMENT);
        let input = !self.usage.contains(vk::ImageUsageFlags::INPUT_ATTACHMENT)
            || available & attachable != 0;
        // Binding a whole image sparsely is supported, in parts is not.
        let in_parts =
            vk::ImageCreateFlags::SPARSE_RESIDENCY | vk::ImageCreateFlags::SPARSE_ALIASED;
        let flags = !self
            .flags
            .intersects(in_parts | vk::ImageCreateFlags::PROTECTED);
        // A depth format has neither one nor three dimensions, and a linear image one.
        let shape = match self.kind {
            vk::ImageType::TYPE_2D => true,
            _ => {
                class(self.format) != Some(Class::Depth)
                    && block(self.format).is_some_and(|block| block.side == 1)
            }
        };
        available != 0 && usable && input && flags && shape
    }

    fn limits(self) -> vk::ImageFormatProperties {
        let linear = self.tiling == vk::ImageTiling::LINEAR;
        let (width, height, depth) = match self.kind {
            vk::ImageType::TYPE_1D => (32768, 1, 1),
            vk::ImageType::TYPE_2D => (32768, 32768, 1),
            _ => (16384, 16384, 16384),
        };
        let cube = self.flags.contains(vk::ImageCreateFlags::CUBE_COMPATIBLE);
        let compressed = block(self.format).is_some_and(|block| block.side > 1);
        let single = linear || cube || compressed || self.kind != vk::ImageType::TYPE_2D;
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
            } else {
                crate::limits::SAMPLES
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
    let external = crate::boundary::Chain::of(info.p_next)
        .find::<vk::PhysicalDeviceExternalImageFormatInfo<'_>>()
        .is_some_and(|external| !external.handle_type.is_empty());
    let supported = wanted.is_supported() && !external;
    properties.edit(|properties| {
        properties.image_format_properties = if supported {
            wanted.limits()
        } else {
            vk::ImageFormatProperties::default()
        };
        let chain = ChainOut::of(properties.p_next);
        chain.edit::<vk::ExternalImageFormatProperties<'_>>(|external| {
            external.external_memory_properties = vk::ExternalMemoryProperties::default();
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
    fn every_format_with_a_use_has_a_size() {
        for raw in 0..=200 {
            let format = vk::Format::from_raw(raw);
            assert_eq!(
                class(format).is_some(),
                block(format).is_some(),
                "{format:?}"
            );
        }
        assert_eq!(
            block(vk::Format::R16G16B16A16_SFLOAT),
            Some(Block { bytes: 8, side: 1 })
        );
        assert_eq!(
            block(vk::Format::BC1_RGB_UNORM_BLOCK),
            Some(Block { bytes: 8, side: 4 })
        );
    }
}
