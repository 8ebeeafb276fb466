//! Commands that read and write texels as numbers: clears, blits, resolves.

use ash::vk;

use crate::binding::Member;
use crate::boundary::{In, List, Outcome};
use crate::command::{Takes, record};
use crate::format::{Format, Numeric, Plane, Texel};
use crate::image::Image;
use crate::layout::{Level, Spot};
use crate::state::STATE;
use crate::transfer::between;

fn plane(image: &Image) -> &'static Plane {
    &image.format.shape.planes[0]
}

fn level_of(image: &Image, level: u32) -> Option<Level> {
    image.layout.level(0, level)
}

fn levels(image: &Image, range: &vk::ImageSubresourceRange) -> impl Iterator<Item = u32> {
    let first = range.base_mip_level;
    let count = range.level_count;
    let present = (first..).take_while({
        let levels: Vec<u32> = (0..32)
            .take_while(|level| level_of(image, *level).is_some())
            .collect();
        move |level| levels.contains(level)
    });
    present.take(count as usize)
}

fn layers(image: &Image, range: &vk::ImageSubresourceRange) -> std::ops::Range<u32> {
    let end = range.base_array_layer.saturating_add(range.layer_count);
    range.base_array_layer..end.min(image.layers)
}

/// Goes over every row of the ranges.
fn each_row(image: &Image, ranges: &[vk::ImageSubresourceRange], mut act: impl FnMut(Spot, usize)) {
    for range in ranges {
        for level in levels(image, range) {
            let Some(size) = level_of(image, level) else {
                continue;
            };
            for layer in layers(image, range) {
                for (z, y) in (0..size.depth).flat_map(|z| (0..size.height).map(move |y| (z, y))) {
                    let spot = Spot {
                        plane: 0,
                        level,
                        layer,
                        x: 0,
                        y,
                        z,
                    };
                    act(spot, size.width as usize);
                }
            }
        }
    }
}

fn cleared(image: &Image, ranges: &[vk::ImageSubresourceRange]) -> Takes {
    let mut bytes = 0;
    for range in ranges {
        let layers = layers(image, range).len() as u64;
        let of_level = |level| level_of(image, level).map_or(0, |level| level.size);
        bytes += levels(image, range).map(of_level).sum::<u64>() * layers;
    }
    Takes::Fill { bytes }
}

/// A clear colour's four words as a plane's texel block.
pub fn color_block(plane: &Plane, words: [u32; 4]) -> Vec<u8> {
    let mut texel = vec![0; plane.block.bytes as usize];
    plane.encode(color(plane, words), &mut texel);
    texel
}

fn color(plane: &Plane, value: [u32; 4]) -> Texel {
    match plane.components.first().map(|component| component.numeric) {
        Some(Numeric::Uint) => Texel::Uint(value.map(u64::from)),
        Some(Numeric::Sint) => Texel::Sint(value.map(|word| word.cast_signed().into())),
        _ => Texel::Float(value.map(|word| f32::from_bits(word).into())),
    }
}

pub fn clear_color(
    commands: vk::CommandBuffer,
    image: vk::Image,
    value: In<vk::ClearColorValue>,
    count: u32,
    ranges: List<vk::ImageSubresourceRange>,
) -> Outcome {
    let image = STATE.images.find(image)?;
    let ranges = ranges.of(count as usize).to_vec();
    let plane = plane(&image);
    let texel = color_block(plane, crate::boundary::clear_words(*value.demand()?));
    let samples = image.samples as usize;
    record(commands, cleared(&image, &ranges), move |moment| {
        each_row(&image, &ranges, |spot, width| {
            image.write(moment.on, spot, &texel.repeat(width * samples));
        });
    })
}

pub fn clear_depth_stencil(
    commands: vk::CommandBuffer,
    image: vk::Image,
    value: In<vk::ClearDepthStencilValue>,
    count: u32,
    ranges: List<vk::ImageSubresourceRange>,
) -> Outcome {
    let image = STATE.images.find(image)?;
    let ranges = ranges.of(count as usize).to_vec();
    let value = *value.demand()?;
    record(commands, cleared(&image, &ranges), move |moment| {
        for range in &ranges {
            clear_aspects(moment.on, &image, range, value);
        }
    })
}

fn clear_aspects(
    on: Member,
    image: &Image,
    range: &vk::ImageSubresourceRange,
    value: vk::ClearDepthStencilValue,
) {
    let block = plane(image).block.bytes as usize;
    each_row(image, std::slice::from_ref(range), |spot, width| {
        let mut row = vec![0; width * block * image.samples as usize];
        image.read(on, spot, &mut row);
        put_depth_stencil(image.format, range.aspect_mask, value, &mut row);
        image.write(on, spot, &row);
    });
}

/// Puts depth, stencil or both into every texel of a row and leaves the rest of it.
pub fn put_depth_stencil(
    format: &Format,
    aspects: vk::ImageAspectFlags,
    value: vk::ClearDepthStencilValue,
    row: &mut [u8],
) {
    let plane = &format.shape.planes[0];
    let both = format.shape.depth_stencil;
    let stencil = both
        .and_then(|both| both.stencil)
        .filter(|_| aspects.contains(vk::ImageAspectFlags::STENCIL));
    let depth = aspects.contains(vk::ImageAspectFlags::DEPTH);
    let texel = Texel::Float([value.depth.into(), 0.0, 0.0, 1.0]);
    for block in row.chunks_exact_mut(plane.block.bytes as usize) {
        if depth {
            plane.encode(texel, block);
        }
        if let Some(at) = stencil {
            block[at as usize] = value.stencil.to_le_bytes()[0];
        }
    }
}

/// One subresource's texels in host memory.
struct Picture {
    bytes: Vec<u8>,
    block: usize,
    size: [u32; 3],
}

impl Picture {
    fn read(on: Member, image: &Image, level: u32, layer: u32) -> Option<Self> {
        let Level {
            width,
            height,
            depth,
            ..
        } = level_of(image, level)?;
        let block = image.layout.block(0) as usize;
        let mut bytes = Vec::new();
        for (z, y) in (0..depth).flat_map(|z| (0..height).map(move |y| (z, y))) {
            let mut row = vec![0; width as usize * block];
            let spot = Spot {
                plane: 0,
                level,
                layer,
                x: 0,
                y,
                z,
            };
            image.read(on, spot, &mut row);
            bytes.extend(row);
        }
        Some(Self {
            bytes,
            block,
            size: [width, height, depth],
        })
    }

    /// The texel at a place, that of the nearest edge outside.
    fn at(&self, place: [i64; 3]) -> &[u8] {
        let mut index = 0;
        for axis in [2, 1, 0] {
            let side = i64::from(self.size[axis]);
            let here = place[axis].clamp(0, side - 1);
            index = index * side + here;
        }
        let start = usize::try_from(index).unwrap_or(0) * self.block;
        &self.bytes[start..start + self.block]
    }
}

/// One axis of a blit: the target's range, ascending, and how a place in it maps to the source.
#[derive(Clone, Copy)]
struct Axis {
    start: u32,
    end: u32,
    scale: f64,
    shift: f64,
}

impl Axis {
    fn new((from, from_end): (i32, i32), (to, to_end): (i32, i32)) -> Self {
        let scale = f64::from(from_end - from) / f64::from((to_end - to).max(i32::MIN + 1));
        Self {
            start: u32::try_from(to.min(to_end)).unwrap_or(0),
            end: u32::try_from(to.max(to_end)).unwrap_or(0),
            scale: if scale.is_finite() { scale } else { 0.0 },
            shift: f64::from(from) - f64::from(to) * scale,
        }
    }

    fn source(&self, place: u32) -> f64 {
        (f64::from(place) + 0.5) * self.scale + self.shift
    }
}

fn sample(plane: &Plane, picture: &Picture, place: [f64; 3], linear: bool) -> Option<Texel> {
    if !linear {
        return plane.decode(picture.at(place.map(|axis| axis.floor() as i64)));
    }
    let mut texels = Vec::with_capacity(8);
    let base = place.map(|axis| (axis - 0.5).floor());
    for corner in 0..8_usize {
        let mut at = [0; 3];
        let mut weight = 1.0;
        for axis in 0..3 {
            let part = place[axis] - 0.5 - base[axis];
            let upper = corner >> axis & 1 == 1;
            weight *= if upper { part } else { 1.0 - part };
            at[axis] = base[axis] as i64 + i64::from(upper);
        }
        if weight > 0.0 {
            texels.push((plane.decode(picture.at(at))?, weight));
        }
    }
    Some(Texel::mixed(&texels))
}

fn blit_one(on: Member, from: &Image, to: &Image, blit: &vk::ImageBlit, filter: vk::Filter) {
    let axis = |pick: fn(&vk::Offset3D) -> i32| {
        let [from, from_end] = blit.src_offsets;
        let [to, to_end] = blit.dst_offsets;
        Axis::new((pick(&from), pick(&from_end)), (pick(&to), pick(&to_end)))
    };
    let axes = [
        axis(|offset| offset.x),
        axis(|offset| offset.y),
        axis(|offset| offset.z),
    ];
    let (source, target) = (plane(from), plane(to));
    let same = from.format.shape == to.format.shape;
    let linear = filter == vk::Filter::LINEAR;
    let block = to.layout.block(0) as usize;
    let count = blit.src_subresource.layer_count.min(from.layers);
    for layer in 0..count {
        let Some(picture) = Picture::read(
            on,
            from,
            blit.src_subresource.mip_level,
            blit.src_subresource.base_array_layer + layer,
        ) else {
            return;
        };
        let flat = picture.size[2] == 1;
        for (z, y) in (axes[2].start..axes[2].end)
            .flat_map(|z| (axes[1].start..axes[1].end).map(move |y| (z, y)))
        {
            let mut row = Vec::with_capacity((axes[0].end - axes[0].start) as usize * block);
            for x in axes[0].start..axes[0].end {
                let depth = if flat { 0.5 } else { axes[2].source(z) };
                let place = [axes[0].source(x), axes[1].source(y), depth];
                if same && !linear {
                    row.extend_from_slice(picture.at(place.map(|axis| axis.floor() as i64)));
                    continue;
                }
                let mut texel = vec![0; block];
                if let Some(value) = sample(source, &picture, place, linear) {
                    target.encode(value, &mut texel);
                }
                row.extend(texel);
            }
            let spot = Spot {
                plane: 0,
                level: blit.dst_subresource.mip_level,
                layer: blit.dst_subresource.base_array_layer + layer,
                x: axes[0].start,
                y,
                z,
            };
            to.write(on, spot, &row);
        }
    }
}

pub fn blit(
    commands: vk::CommandBuffer,
    from: vk::Image,
    to: vk::Image,
    (count, blits): (u32, List<vk::ImageBlit>),
    filter: vk::Filter,
) -> Outcome {
    blit_all(
        commands,
        from,
        to,
        blits.of(count as usize).to_vec(),
        filter,
    )
}

pub fn blit2(commands: vk::CommandBuffer, info: In<vk::BlitImageInfo2<'_>>) -> Outcome {
    let info = info.demand()?;
    let blits = List::field(info.p_regions);
    let blits = blits
        .of(info.region_count as usize)
        .iter()
        .map(|blit| vk::ImageBlit {
            src_subresource: blit.src_subresource,
            src_offsets: blit.src_offsets,
            dst_subresource: blit.dst_subresource,
            dst_offsets: blit.dst_offsets,
        })
        .collect();
    blit_all(commands, info.src_image, info.dst_image, blits, info.filter)
}

fn blit_all(
    commands: vk::CommandBuffer,
    from: vk::Image,
    to: vk::Image,
    blits: Vec<vk::ImageBlit>,
    filter: vk::Filter,
) -> Outcome {
    let (from, to) = (STATE.images.find(from)?, STATE.images.find(to)?);
    let area = |blit: &vk::ImageBlit| {
        let [start, end] = blit.dst_offsets;
        let side = |from: i32, to: i32| u64::from(from.abs_diff(to));
        side(start.x, end.x) * side(start.y, end.y) * side(start.z, end.z)
    };
    let bytes = blits.iter().map(area).sum::<u64>() * to.layout.block(0);
    record(commands, between(&from, &to, bytes), move |moment| {
        for blit in &blits {
            blit_one(moment.on, &from, &to, blit, filter);
        }
    })
}

pub fn resolve(
    commands: vk::CommandBuffer,
    from: vk::Image,
    to: vk::Image,
    count: u32,
    resolves: List<vk::ImageResolve>,
) -> Outcome {
    resolve_all(commands, from, to, resolves.of(count as usize).to_vec())
}

pub fn resolve2(commands: vk::CommandBuffer, info: In<vk::ResolveImageInfo2<'_>>) -> Outcome {
    let info = info.demand()?;
    let resolves = List::field(info.p_regions);
    let resolves = resolves
        .of(info.region_count as usize)
        .iter()
        .map(|resolve| vk::ImageResolve {
            src_subresource: resolve.src_subresource,
            src_offset: resolve.src_offset,
            dst_subresource: resolve.dst_subresource,
            dst_offset: resolve.dst_offset,
            extent: resolve.extent,
        })
        .collect();
    resolve_all(commands, info.src_image, info.dst_image, resolves)
}

fn resolve_all(
    commands: vk::CommandBuffer,
    from: vk::Image,
    to: vk::Image,
    resolves: Vec<vk::ImageResolve>,
) -> Outcome {
    let (from, to) = (STATE.images.find(from)?, STATE.images.find(to)?);
    let area = |resolve: &vk::ImageResolve| {
        u64::from(resolve.extent.width) * u64::from(resolve.extent.height)
    };
    let bytes = resolves.iter().map(area).sum::<u64>() * from.layout.block(0);
    record(commands, between(&from, &to, bytes), move |moment| {
        for resolve in &resolves {
            resolve_one(moment.on, &from, &to, resolve);
        }
    })
}

/// The mean of a texel's samples; of integers the first.
pub fn resolve_one(on: Member, from: &Image, to: &Image, resolve: &vk::ImageResolve) {
    let (source, target) = (plane(from), plane(to));
    let one = source.block.bytes as usize;
    let all = from.layout.block(0) as usize;
    let start = |offset: i32| u32::try_from(offset).unwrap_or(0);
    for layer in 0..resolve.src_subresource.layer_count.min(from.layers) {
        for y in 0..resolve.extent.height {
            let mut samples = vec![0; resolve.extent.width as usize * all];
            let from_spot = Spot {
                plane: 0,
                level: 0,
                layer: resolve.src_subresource.base_array_layer + layer,
                x: start(resolve.src_offset.x),
                y: start(resolve.src_offset.y) + y,
                z: 0,
            };
            from.read(on, from_spot, &mut samples);
            let weight = 1.0 / f64::from(from.samples);
            let mut row = Vec::with_capacity(resolve.extent.width as usize * one);
            for texel in samples.chunks_exact(all) {
                let values: Option<Vec<(Texel, f64)>> = texel
                    .chunks_exact(one)
                    .map(|sample| Some((source.decode(sample)?, weight)))
                    .collect();
                let mut mixed = vec![0; target.block.bytes as usize];
                target.encode(Texel::mixed(&values.unwrap_or_default()), &mut mixed);
                row.extend(mixed);
            }
            let to_spot = Spot {
                plane: 0,
                level: resolve.dst_subresource.mip_level,
                layer: resolve.dst_subresource.base_array_layer + layer,
                x: start(resolve.dst_offset.x),
                y: start(resolve.dst_offset.y) + y,
                z: 0,
            };
            to.write(on, to_spot, &row);
        }
    }
}
