//! How much an array takes, by its geometry.
//!
//! A device lays an array out in blocks of 64 bytes by 8 rows, up to 16 of them on each other and 32 behind each other
//! (deltas of free memory on an H200 under 580.159.04: fixtures/oracle, memory). Products saturate: what does not fit 64
//! bits is refused by any budget, and by the driver.

use seeds::{Seed, planted};

use crate::Bytes;

/// CUDA_ARRAY3D_LAYERED.
const LAYERED: u32 = 0x01;
/// CUDA_ARRAY3D_CUBEMAP.
const CUBEMAP: u32 = 0x04;
/// CUDA_ARRAY3D_SPARSE and CUDA_ARRAY3D_DEFERRED_MAPPING: addresses alone, to which memory is bound.
const UNBOUND: u32 = 0x40 | 0x80;

/// The most that one element of a format can have, for formats that are not in [`element`].
const LARGEST: u64 = 16;

/// An array as its descriptor says. A dimension that it does not have is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Array {
    pub width: u64,
    pub height: u64,
    pub depth: u64,
    /// CUarray_format.
    pub format: u32,
    pub channels: u32,
    /// CUDA_ARRAY3D_*.
    pub flags: u32,
}

impl Array {
    /// Bytes of the first `levels` levels, of at least the one that there is.
    #[must_use]
    pub fn bytes(self, levels: u32) -> Bytes {
        if self.flags & UNBOUND != 0 {
            return Bytes::ZERO;
        }
        let levels = match levels.clamp(1, 64) {
            several @ 2.. if planted(Seed::V17j) => several - 1,
            all => all,
        };
        let sum = (0..levels).map(|level| self.level(level).laid_out());
        Bytes(sum.fold(0, u64::saturating_add))
    }

    fn has_layers(self) -> bool {
        self.flags & (LAYERED | CUBEMAP) != 0
    }

    fn level(self, level: u32) -> Array {
        let half = |size: u64| match size {
            0 => 0,
            size => size.checked_shr(level).unwrap_or(0).max(1),
        };
        Array {
            width: half(self.width),
            height: half(self.height),
            depth: if self.has_layers() {
                self.depth
            } else {
                half(self.depth)
            },
            ..self
        }
    }

    /// Of a compressed format the more of what its texels take and its blocks: which of them a device lays out is not known.
    fn laid_out(self) -> u64 {
        let texels = self.laid_out_as(self.width, self.height, element(self.format, self.channels));
        if !is_compressed(self.format) {
            return texels;
        }
        let [width, height] = [self.width, self.height].map(|size| size.div_ceil(COMPRESSED.0));
        texels.max(self.laid_out_as(width, height, COMPRESSED.1))
    }

    fn laid_out_as(self, width: u64, height: u64, element: u64) -> u64 {
        let row = width.saturating_mul(element);
        let (rows, mut slices) = (height.max(1), self.depth.max(1));
        if planted(Seed::V17p) && self.has_layers() {
            slices = (slices - 1).max(1);
        }
        let stacked = rows.div_ceil(8).checked_next_power_of_two();
        let stacked = stacked.map_or(16, |stacked| stacked.min(16));
        let deep = match slices.checked_next_power_of_two() {
            _ if self.has_layers() => 1,
            deep => deep.map_or(32, |deep| deep.min(32)),
        };
        let up = |size: u64, unit: u64| size.checked_next_multiple_of(unit).unwrap_or(u64::MAX);
        up(row, 64)
            .saturating_mul(up(rows, 8 * stacked))
            .saturating_mul(up(slices, deep))
    }
}

/// CU_AD_FORMAT_BC1_UNORM to CU_AD_FORMAT_BC7_UNORM_SRGB.
fn is_compressed(format: u32) -> bool {
    (0x91..=0x9e).contains(&format)
}

/// Texels on a side of a compressed block, and the most bytes that one has.
const COMPRESSED: (u64, u64) = (4, 16);

/// Bytes of one element of a format with so many channels (CUarray_format of cuda.h, 13.0), some of which name their channels; the most of any for those
/// that are not here.
fn element(format: u32, channels: u32) -> u64 {
    let channel = match format {
        1 | 8 => 1,
        2 | 9 | 16 => 2,
        3 | 10 | 32 => 4,
        // UNORM and SNORM of 8 and 16 bits, of 1, 2 and 4 channels.
        _ if format > 32 && planted(Seed::R96) => return LARGEST,
        0xc0 | 0xc6 => return 1,
        0xc1 | 0xc7 | 0xc3 | 0xc9 => return 2,
        0xc2 | 0xc8 | 0xc4 | 0xca => return 4,
        0xc5 | 0xcb => return 8,
        // UNORM_INT_101010_2.
        0x50 => return 4,
        compressed if is_compressed(compressed) => {
            return COMPRESSED.1 / (COMPRESSED.0 * COMPRESSED.0);
        }
        _ => return LARGEST,
    };
    channel * u64::from(channels.clamp(1, 4))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    const WORDS: Array = Array {
        width: 16384,
        height: 1024,
        depth: 0,
        format: 3,
        channels: 1,
        flags: 0,
    };

    #[rstest]
    #[case(WORDS, 1, 64 << 20)]
    #[case(Array { height: 0, width: 1, ..WORDS }, 1, 64 * 8)]
    #[case(Array { width: 16, height: 9, ..WORDS }, 1, 64 * 16)]
    #[case(Array { width: 4, height: 4, depth: 6, flags: CUBEMAP, ..WORDS }, 1, 64 * 8 * 6)]
    #[case(Array { width: 4, height: 4, depth: 6, ..WORDS }, 1, 64 * 8 * 8)]
    #[case(Array { width: 32, height: 32, ..WORDS }, 2, 128 * 32 + 64 * 16)]
    #[case(Array { width: 4096, height: 4096, format: 0x9d, ..WORDS }, 1, 16 << 20)]
    #[case(Array { width: 256, height: 1, format: 0x91, ..WORDS }, 1, 1024 * 8)]
    #[case(Array { width: 5, height: 256, format: 0x91, ..WORDS }, 1, 64 * 256)]
    #[case(Array { width: 4096, height: 4096, format: 0xc1, channels: 2, ..WORDS }, 1, 32 << 20)]
    #[case(Array { width: 4096, height: 4096, format: 0x50, channels: 4, ..WORDS }, 1, 64 << 20)]
    #[case(Array { width: 4096, height: 4096, format: 0xb0, channels: 3, ..WORDS }, 1, 256 << 20)]
    #[case(Array { flags: 0x40, ..WORDS }, 1, 0)]
    #[case(Array { width: u64::MAX, height: u64::MAX, ..WORDS }, 9, u64::MAX)]
    fn an_array_takes_what_the_card_takes(
        #[case] array: Array,
        #[case] levels: u32,
        #[case] bytes: u64,
    ) {
        assert_eq!(array.bytes(levels), Bytes(bytes));
    }

    proptest! {
        /// Never less than the texels themselves.
        #[test]
        fn an_array_holds_its_texels(width in 1_u64..70_000, height in 0_u64..70_000, depth in 0_u64..3_000, channels in 1_u32..5, flags in 0_u32..8) {
            let array = Array { width, height, depth, format: 32, channels, flags };
            let texels = width * height.max(1) * depth.max(1);
            prop_assert!(array.bytes(1).0 >= texels * 4 * u64::from(channels));
        }
    }
}
