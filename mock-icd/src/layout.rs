//! Where an image's texels lie: planes one after the other, in each the layers, in each the mip levels, in each rows of
//! texel blocks. A sparse image lies in 64 KiB tiles instead, so that each can be bound by itself, with its smallest
//! levels together in a tail.
//!
//! Levels take as many bytes as on the card, whose optimal images are made of blocks of 64 bytes by 8 rows, some of them
//! stacked (oracle: vulkan-needs-580.txt, and its test for how often this rule gives the card's size). Within a level the
//! mock orders texels by rows, which nobody can see.

use ash::vk;

use crate::format::{Format, Plane};

/// What one sparse binding covers (oracle: sparse images are bound in blocks of 64 KiB).
pub const TILE: u64 = 65_536;

/// A texel block of an image, in units of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    pub plane: usize,
    pub level: u32,
    pub layer: u32,
    pub x: u32,
    pub y: u32,
    pub z: u32,
}

#[derive(Clone, Debug)]
pub struct Layout {
    planes: Vec<PlaneLayout>,
    /// Of all planes.
    pub size: u64,
    tiles: Option<Tiles>,
}

#[derive(Clone, Debug)]
struct PlaneLayout {
    offset: u64,
    /// Bytes of a block, all samples.
    block: u64,
    levels: Vec<Level>,
    array_pitch: u64,
    size: u64,
}

/// One mip level of one layer, in blocks and bytes.
#[derive(Clone, Copy, Debug)]
pub struct Level {
    pub offset: u64,
    pub row: u64,
    pub slice: u64,
    pub size: u64,
    pub width: u32,
    pub height: u32,
    pub depth: u32,
    /// What the card stacks of its blocks here, in bytes.
    unit: u64,
}

/// A partly resident image: how its tiles are counted.
#[derive(Clone, Debug)]
pub struct Tiles {
    /// In blocks.
    pub extent: [u32; 3],
    /// By level before the tail: tiles along each side, and the number of the level's first tile in a layer.
    levels: Vec<([u32; 3], u64)>,
    /// Tiles of one layer, its tail among them.
    per_layer: u64,
    pub tail: Tail,
}

/// The levels too small for tiles of their own, of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// One for all layers; else each layer's lies `stride` behind the one before.
    pub single: bool,
    pub first_level: u32,
    pub size: u64,
    pub offset: u64,
    pub stride: u64,
}

/// What a layout is made for.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub extent: vk::Extent3D,
    pub levels: u32,
    pub layers: u32,
    pub samples: u32,
    pub volume: bool,
    pub linear: bool,
}

/// Bytes along a row of the card's smallest block, and its rows.
const BLOCK_ROW: u64 = 64;
const BLOCK_ROWS: u64 = 8;

/// How many of those lie one above the other, and one behind the other, at most.
const STACKED: u64 = 16;

/// Rows of linear images, and planes of every image, begin at multiples of these; rows of 96-bit texels at every third.
const LINEAR_ROW: u64 = 128;
const PLANE: u64 = TILE;

fn at_level(side: u32, level: u32) -> u32 {
    side.checked_shr(level).unwrap_or(0).max(1)
}

impl Layout {
    /// `None` beyond 2^64 bytes.
    pub fn new(format: &Format, wanted: &Wanted) -> Option<Self> {
        let mut offset = 0_u64;
        let mut planes = Vec::new();
        for plane in &format.shape.planes {
            // A row of chroma is as many times a row of luma as it takes bytes for as many texels.
            let luma: Option<&PlaneLayout> = planes.first();
            let least_row = luma.map_or(0, |luma| {
                luma.levels[0].row / luma.block * u64::from(plane.block.bytes)
                    / u64::from(plane.divide.0)
            });
            let plane = PlaneLayout::new(plane, wanted, least_row, offset)?;
            offset = offset.checked_add(plane.size)?;
            if format.shape.planes.len() > 1 {
                offset = offset.checked_next_multiple_of(PLANE)?;
            }
            planes.push(plane);
        }
        Some(Self {
            planes,
            size: offset,
            tiles: None,
        })
    }

    /// The same image in tiles of `extent` blocks; only formats of one plane are partly resident.
    pub fn tiled(mut self, extent: [u32; 3], wanted: &Wanted) -> Option<Self> {
        let plane = self.planes.first()?;
        let mut first = 0_u64;
        let mut levels = Vec::new();
        for level in &plane.levels {
            let sides = [level.width, level.height, level.depth];
            if sides.iter().zip(extent).any(|(side, tile)| *side < tile) {
                break;
            }
            let mut count = [0; 3];
            for (count, (side, tile)) in count.iter_mut().zip(sides.iter().zip(extent)) {
                *count = side.div_ceil(tile);
            }
            levels.push((count, first));
            first += count.iter().map(|count| u64::from(*count)).product::<u64>();
        }
        let tail_levels = &plane.levels[levels.len()..];
        let in_tail: u64 = tail_levels.iter().map(|level| level.size).sum();
        let layers = u64::from(wanted.layers);
        let before = first.checked_mul(TILE)?;
        let single = levels.is_empty();
        // Where no level fills a tile, all layers share one tail.
        let tail = if single {
            let stride = match tail_levels.first() {
                Some(level) if layers > 1 => in_tail.next_multiple_of(level.unit),
                _ => in_tail,
            };
            Tail {
                single,
                first_level: 0,
                size: stride.checked_mul(layers)?.checked_next_multiple_of(TILE)?,
                offset: 0,
                stride,
            }
        } else {
            let size = in_tail.next_multiple_of(TILE);
            Tail {
                single,
                first_level: u32::try_from(levels.len()).ok()?,
                size,
                offset: before,
                stride: if layers > 1 {
                    before + size
                } else {
                    before + in_tail
                },
            }
        };
        self.size = if single {
            tail.size
        } else {
            (before + tail.size).checked_mul(layers)?
        };
        self.tiles = Some(Tiles {
            extent,
            levels,
            per_layer: first + if single { 0 } else { tail.size / TILE },
            tail,
        });
        Some(self)
    }

    pub fn tiles(&self) -> Option<&Tiles> {
        self.tiles.as_ref()
    }

    pub fn block(&self, plane: usize) -> u64 {
        self.planes.get(plane).map_or(0, |plane| plane.block)
    }

    pub fn level(&self, plane: usize, level: u32) -> Option<Level> {
        self.planes.get(plane)?.levels.get(level as usize).copied()
    }

    pub fn plane_size(&self, plane: usize) -> Option<u64> {
        self.planes.get(plane).map(|plane| plane.size)
    }

    pub fn plane_offset(&self, plane: usize) -> u64 {
        self.planes.get(plane).map_or(0, |plane| plane.offset)
    }

    pub fn subresource(
        &self,
        plane: usize,
        level: u32,
        layer: u32,
    ) -> Option<vk::SubresourceLayout> {
        let of_plane = self.planes.get(plane)?;
        let Level {
            offset,
            row,
            slice,
            size,
            ..
        } = *of_plane.levels.get(level as usize)?;
        Some(vk::SubresourceLayout {
            offset: of_plane.offset + of_plane.array_pitch * u64::from(layer) + offset,
            size,
            row_pitch: row,
            array_pitch: of_plane.array_pitch,
            depth_pitch: slice,
        })
    }

    /// Where `count` blocks from `spot` on along its row lie, as (offset, blocks); nothing outside the image.
    pub fn row(&self, spot: Spot, count: u32) -> Vec<(u64, u32)> {
        let Some(plane) = self.planes.get(spot.plane) else {
            return Vec::new();
        };
        let Some(level) = plane.levels.get(spot.level as usize) else {
            return Vec::new();
        };
        if spot.x >= level.width || spot.y >= level.height || spot.z >= level.depth {
            return Vec::new();
        }
        let count = count.min(level.width - spot.x);
        let within = u64::from(spot.z) * level.slice
            + u64::from(spot.y) * level.row
            + u64::from(spot.x) * plane.block;
        match &self.tiles {
            None => {
                let layer = plane.array_pitch * u64::from(spot.layer);
                vec![(plane.offset + layer + level.offset + within, count)]
            }
            Some(tiles) if spot.level >= tiles.tail.first_level => {
                let first = tiles.tail.first_level as usize;
                let in_tail = level.offset - plane.levels[first].offset;
                let layer = tiles.tail.offset + tiles.tail.stride * u64::from(spot.layer);
                vec![(layer + in_tail + within, count)]
            }
            Some(tiles) => tiles.row(plane.block, spot, count),
        }
    }
}

impl PlaneLayout {
    fn new(plane: &Plane, wanted: &Wanted, least_row: u64, offset: u64) -> Option<Self> {
        let block = u64::from(plane.block.bytes).checked_mul(wanted.samples.into())?;
        let mut levels = Vec::new();
        let mut end = 0_u64;
        for level in 0..wanted.levels {
            let level = Level::new(plane, wanted, level, least_row, end)?;
            end = end.checked_add(level.size)?;
            levels.push(level);
        }
        let array_pitch = if wanted.layers > 1 && !wanted.linear {
            Self::pitch(plane, wanted, levels.first()?.unit)?
        } else {
            end
        };
        Some(Self {
            offset,
            block,
            levels,
            array_pitch,
            size: array_pitch.checked_mul(wanted.layers.into())?,
        })
    }

    /// From layer to layer the card leaves room for all levels that there could be, if there is more than one.
    fn pitch(plane: &Plane, wanted: &Wanted, unit: u64) -> Option<u64> {
        let depth = if wanted.volume {
            wanted.extent.depth
        } else {
            1
        };
        let longest = wanted.extent.width.max(wanted.extent.height).max(depth);
        let levels = if wanted.levels > 1 {
            longest.max(1).ilog2() + 1
        } else {
            1
        };
        let end = (0..levels.max(wanted.levels)).try_fold(0_u64, |end, level| {
            end.checked_add(Level::new(plane, wanted, level, 0, 0)?.size)
        })?;
        end.checked_next_multiple_of(unit)
    }
}

impl Level {
    fn new(
        plane: &Plane,
        wanted: &Wanted,
        level: u32,
        least_row: u64,
        offset: u64,
    ) -> Option<Self> {
        let width = at_level(wanted.extent.width, level)
            .div_ceil(plane.divide.0)
            .div_ceil(plane.block.width);
        let height = at_level(wanted.extent.height, level)
            .div_ceil(plane.divide.1)
            .div_ceil(plane.block.height);
        let depth = at_level(wanted.extent.depth, level);
        let bytes = u64::from(plane.block.bytes);
        let samples = u64::from(wanted.samples);
        let wide = u64::from(width).checked_mul(bytes)?;
        let (row, size, unit) = if wanted.linear {
            let odd = bytes.checked_shr(bytes.trailing_zeros())?;
            let row = wide.checked_next_multiple_of(LINEAR_ROW.checked_mul(odd)?)?;
            let row = row.max(least_row);
            (
                row,
                row.checked_mul(height.into())?.checked_mul(depth.into())?,
                1,
            )
        } else {
            // A texel's samples are texels side by side: 2×1, 2×2, 4×2.
            let (across, down) = match wanted.samples {
                1 => (1, 1),
                2 => (2, 1),
                4 => (2, 2),
                _ => (samples / 2, 2),
            };
            let row = wide
                .checked_mul(across)?
                .checked_next_multiple_of(BLOCK_ROW)?;
            let (high, deep) = stacked(height.into(), depth.into(), down, wanted.volume);
            let rows = u64::from(height)
                .checked_mul(down)?
                .checked_next_multiple_of(BLOCK_ROWS * high)?;
            let slices = u64::from(depth).checked_next_multiple_of(deep)?;
            let size = row.checked_mul(rows)?.checked_mul(slices)?;
            let own_row = if wanted.samples == 1 {
                row
            } else {
                wide.checked_mul(samples)?
            };
            (own_row, size, BLOCK_ROW * BLOCK_ROWS * high * deep)
        };
        Some(Self {
            offset,
            row,
            slice: row.checked_mul(height.into())?,
            size,
            width,
            height,
            depth,
            unit,
        })
    }
}

/// How many of its blocks the card stacks, upwards and backwards.
fn stacked(height: u64, depth: u64, down: u64, volume: bool) -> (u64, u64) {
    let whole = height.div_ceil(BLOCK_ROWS).next_power_of_two();
    let mut high = if down > 1 && whole <= STACKED {
        (whole / 2).max(1)
    } else {
        whole.min(STACKED)
    };
    let mut deep = if volume {
        depth.next_power_of_two().min(STACKED)
    } else {
        1
    };
    while high * deep > STACKED {
        if deep >= high {
            deep /= 2;
        } else {
            high /= 2;
        }
    }
    (high, deep)
}

impl Tiles {
    /// The number of a tile, by its place in its level.
    pub fn number(&self, level: u32, layer: u32, tile: [u32; 3]) -> Option<u64> {
        let (count, first) = self.levels.get(level as usize)?;
        if tile.iter().zip(count).any(|(tile, count)| tile >= count) {
            return None;
        }
        let [across, down, _] = count.map(u64::from);
        let [x, y, z] = tile.map(u64::from);
        Some(self.per_layer * u64::from(layer) + first + (z * down + y) * across + x)
    }

    fn row(&self, block: u64, spot: Spot, count: u32) -> Vec<(u64, u32)> {
        let [width, height, depth] = self.extent;
        let (row, slice) = (
            u64::from(width) * block,
            u64::from(width) * u64::from(height) * block,
        );
        let mut runs = Vec::new();
        let (mut x, end) = (spot.x, spot.x + count);
        while x < end {
            let stop = end.min((x / width + 1) * width);
            let tile = [x / width, spot.y / height, spot.z / depth];
            if let Some(number) = self.number(spot.level, spot.layer, tile) {
                let within = u64::from(spot.z % depth) * slice
                    + u64::from(spot.y % height) * row
                    + u64::from(x % width) * block;
                runs.push((number * TILE + within, stop - x));
            }
            x = stop;
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format;

    fn wanted(width: u32, height: u32, levels: u32, layers: u32) -> Wanted {
        Wanted {
            extent: vk::Extent3D {
                width,
                height,
                depth: 1,
            },
            levels,
            layers,
            samples: 1,
            volume: false,
            linear: true,
        }
    }

    fn rgba() -> &'static Format {
        format::find(vk::Format::R8G8B8A8_UNORM).expect("a format")
    }

    #[test]
    fn subresources_lie_one_after_the_other() {
        let layout = Layout::new(rgba(), &wanted(64, 32, 2, 3)).unwrap();
        let second = layout.subresource(0, 1, 2).unwrap();
        let layer = 64 * 32 * 4 + 32 * 16 * 4;
        assert_eq!(
            (second.offset, second.size, second.row_pitch),
            (2 * layer + 64 * 32 * 4, 32 * 16 * 4, 32 * 4)
        );
        assert_eq!(layout.size, 3 * layer);
    }

    #[test]
    fn an_image_beyond_the_number_range_has_no_layout() {
        let format = format::find(vk::Format::R32G32B32A32_SFLOAT).unwrap();
        assert!(Layout::new(format, &wanted(u32::MAX, u32::MAX, 1, 2)).is_none());
    }

    #[test]
    fn no_two_texels_of_a_tiled_image_share_a_byte() {
        let mut shape = wanted(300, 200, 9, 2);
        shape.linear = false;
        let layout = Layout::new(rgba(), &shape)
            .and_then(|layout| layout.tiled([128, 128, 1], &shape))
            .unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for (layer, level) in (0..2).flat_map(|layer| (0..9).map(move |level| (layer, level))) {
            let size = layout.level(0, level).unwrap();
            for y in 0..size.height {
                let spot = Spot {
                    plane: 0,
                    level,
                    layer,
                    x: 0,
                    y,
                    z: 0,
                };
                for (offset, count) in layout.row(spot, u32::MAX) {
                    assert!(offset + u64::from(count) * 4 <= layout.size);
                    for block in 0..u64::from(count) {
                        assert!(seen.insert(offset + block * 4));
                    }
                }
            }
        }
        let texels: u32 = (0..9)
            .map(|level| at_level(300, level) * at_level(200, level))
            .sum();
        assert_eq!(seen.len(), texels as usize * 2);
    }

    #[test]
    fn two_planes_lie_one_after_the_other() {
        let format = format::find(vk::Format::G8_B8R8_2PLANE_420_UNORM).unwrap();
        let layout = Layout::new(format, &wanted(640, 480, 1, 1)).unwrap();
        let chroma = layout.subresource(1, 0, 0).unwrap();
        let luma = (640_u64 * 480).next_multiple_of(PLANE);
        assert_eq!(
            (chroma.offset, chroma.row_pitch, chroma.size),
            (luma, 640, 640 * 240)
        );
    }
}
