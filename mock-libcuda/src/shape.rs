//! The geometry of arrays: what a descriptor describes, which ones a device refuses, how much memory one takes.

use abi::cuda::enumerations::*;
use abi::cuda::*;

pub const LAYERED: u32 = 0x01;
pub const CUBEMAP: u32 = 0x04;
pub const GATHER: u32 = 0x08;
pub const SPARSE: u32 = 0x40;
pub const DEFERRED: u32 = 0x80;
/// Surfaces and video beside those above; depth textures and colour attachments are graphics' alone.
const KNOWN_FLAGS: u32 = 0x1cf;

/// An array's size and format. A dimension that an array does not have is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub width: u64,
    pub height: u64,
    pub depth: u64,
    pub format: CUarray_format,
    pub channels: u32,
    pub flags: u32,
}

/// Bytes of one channel; `None` for a format that no array has.
pub fn channel_bytes(format: CUarray_format) -> Option<u64> {
    match format {
        1 | 8 => Some(1),
        2 | 9 | 16 => Some(2),
        3 | 10 | 32 => Some(4),
        _ => None,
    }
}

/// Bytes of one element, as [`channel_bytes`]; the packed formats have their channels in their name.
fn element_bytes(format: CUarray_format, channels: u32) -> Option<u64> {
    let packed = match format {
        0xc0 | 0xc6 => Some((1, 1)),
        0xc1 | 0xc7 => Some((2, 2)),
        0xc2 | 0xc8 => Some((4, 4)),
        0xc3 | 0xc9 => Some((1, 2)),
        0xc4 | 0xca => Some((2, 4)),
        0xc5 | 0xcb => Some((4, 8)),
        0x50 => Some((4, 4)),
        // Compressed: a byte for an element, or half of one.
        0x91..=0x96 | 0x9d | 0x9e => Some((4, 1)),
        0x97 | 0x98 => Some((1, 1)),
        0x99 | 0x9a => Some((2, 1)),
        0x9b | 0x9c => Some((3, 1)),
        _ => None,
    };
    match packed {
        Some((wanted, bytes)) => (channels == wanted).then_some(bytes),
        None if matches!(channels, 1 | 2 | 4) => Some(channel_bytes(format)? * u64::from(channels)),
        None => None,
    }
}

impl Shape {
    pub fn of_2d(descriptor: &CUDA_ARRAY_DESCRIPTOR) -> Shape {
        Shape {
            width: descriptor.Width as u64,
            height: descriptor.Height as u64,
            depth: 0,
            format: descriptor.Format,
            channels: descriptor.NumChannels,
            flags: 0,
        }
    }

    pub fn of_3d(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> Shape {
        Shape {
            width: descriptor.Width as u64,
            height: descriptor.Height as u64,
            depth: descriptor.Depth as u64,
            format: descriptor.Format,
            channels: descriptor.NumChannels,
            flags: descriptor.Flags,
        }
    }

    pub fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// INVALID_VALUE for what an H200 refuses.
    pub fn check(self) -> Result<Shape, CUresult> {
        let fits = element_bytes(self.format, self.channels).is_some()
            && self.flags & !KNOWN_FLAGS == 0
            && self.width != 0
            && self.dimensions_fit();
        if fits {
            Ok(self)
        } else {
            Err(CUresult::ERROR_INVALID_VALUE)
        }
    }

    fn dimensions_fit(&self) -> bool {
        let (w, h, d) = (self.width, self.height, self.depth);
        if self.has(CUBEMAP) {
            let faces = if self.has(LAYERED) {
                d.is_multiple_of(6) && d <= 2046
            } else {
                d == 6
            };
            return w == h && w <= 32768 && d != 0 && faces && !self.has(GATHER);
        }
        if self.has(LAYERED) {
            let bound = w <= 32768 && h <= 32768;
            return bound && (1..=2048).contains(&d) && !self.has(GATHER);
        }
        match (h, d) {
            (0, 0) => w <= 131_072 && !self.has(GATHER),
            (_, 0) if self.has(GATHER) => w <= 32768 && h <= 32768,
            (_, 0) => w <= 131_072 && h <= 65536,
            (0, _) => false,
            _ => {
                let cube = w <= 16384 && h <= 16384 && d <= 16384;
                let deep = w <= 8192 && h <= 8192 && d <= 32768;
                (cube || deep) && !self.has(GATHER)
            }
        }
    }

    pub fn element(&self) -> u64 {
        element_bytes(self.format, self.channels).unwrap_or(1)
    }

    /// Bytes of a row, rows, slices or layers.
    pub fn extent(&self) -> [u64; 3] {
        [
            self.width * self.element(),
            self.height.max(1),
            self.depth.max(1),
        ]
    }

    /// Bytes as this library stores them: row by row.
    pub fn linear(&self) -> u64 {
        self.extent().iter().product()
    }

    /// Bytes as the device lays them out: in blocks of 64 bytes by 8 rows, up to 16 of them on each other and 32 behind
    /// each other. From deltas of free memory on the H200.
    pub fn laid_out(&self) -> u64 {
        let [row, rows, slices] = self.extent();
        let blocks = rows.div_ceil(8).next_power_of_two().min(16);
        let deep = if self.has(LAYERED | CUBEMAP) {
            1
        } else {
            slices.next_power_of_two().min(32)
        };
        row.next_multiple_of(64) * rows.next_multiple_of(8 * blocks) * slices.next_multiple_of(deep)
    }

    /// Level `level` of a mipmap that begins with this.
    pub fn level(&self, level: u32) -> Shape {
        let half = |size: u64| if size == 0 { 0 } else { (size >> level).max(1) };
        let layers = self.has(LAYERED | CUBEMAP);
        Shape {
            width: half(self.width),
            height: half(self.height),
            depth: if layers { self.depth } else { half(self.depth) },
            ..*self
        }
    }

    /// How many levels a mipmap of this may have.
    pub fn levels(&self) -> u32 {
        let depth = if self.has(LAYERED | CUBEMAP) {
            0
        } else {
            self.depth
        };
        let longest = self.width.max(self.height).max(depth);
        64 - longest.leading_zeros()
    }

    /// What one 64 KiB tile of a sparse array covers: elements in x, rows, slices.
    pub fn tile(&self) -> [u32; 3] {
        let volume = self.depth != 0 && !self.has(LAYERED | CUBEMAP);
        match (volume, self.element()) {
            (false, 1) => [256, 256, 1],
            (false, 2) => [256, 128, 1],
            (false, 4) => [128, 128, 1],
            (false, 8) => [128, 64, 1],
            (false, _) => [64, 64, 1],
            (true, 1) => [64, 32, 32],
            (true, 2) => [32, 32, 32],
            (true, 4) => [32, 32, 16],
            (true, 8) => [32, 16, 16],
            (true, _) => [16, 16, 16],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(width: u64, height: u64, depth: u64) -> Shape {
        Shape {
            width,
            height,
            depth,
            format: 32,
            channels: 1,
            flags: 0,
        }
    }

    #[test]
    fn sizes_round_as_the_card_rounds_them() {
        const MIB: u64 = 1 << 20;
        let blocks = |shape: Shape| shape.laid_out().div_ceil(2 * MIB) * 2;
        let recorded = [
            ((131_072, 0, 0), 4),
            ((1000, 1000, 0), 4),
            ((1025, 1025, 0), 6),
            ((5000, 3000, 0), 60),
            ((131_072, 16, 0), 8),
            ((1, 65536, 0), 4),
            ((16, 16, 16385), 18),
        ];
        for ((w, h, d), mib) in recorded {
            assert_eq!(blocks(float(w, h, d)), mib, "{w} x {h} x {d}");
        }
    }

    #[test]
    fn a_mipmap_ends_with_one_element() {
        let shape = float(1000, 600, 0);
        assert_eq!(shape.levels(), 10);
        assert_eq!((shape.level(9).width, shape.level(9).height), (1, 1));
    }
}
