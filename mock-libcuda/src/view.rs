//! Texture and surface objects: small numbers that stand for a checked description. Nothing reads through them, since no
//! kernel computes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use abi::cuda::*;
use mock_device::Kind;

use crate::boundary::{Answer, In, Out};
use crate::driver::{self, Driver};
use crate::process::{ContextId, Process};
use crate::shape::{CUBEMAP, Shape, channel_bytes};

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
/// Addresses of linear memory, and pitches, that a texture unit takes on an H200.
const ALIGNMENT: u64 = 512;
const PITCH_ALIGNMENT: u64 = 32;
const WIDEST: u64 = 131_072;
const READ_FLAGS: u32 = 0x33;
const SEAMLESS: u32 = 0x40;

/// CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC and CUDA_RESOURCE_VIEW_DESC as words.
type ResourceWords = [u64; 18];
type TextureWords = [u32; 26];
type ViewWords = [u64; 14];

/// A context has room for a few textures and surfaces, and takes a block of device memory for so many more, 64 bytes each. It keeps its blocks (H200,
/// 580.159.04: none for the first, one for the thousandth; `fixtures/oracle/memory-580.txt`, `fixtures/oracle/held-580.txt`).
const FEW: u64 = 512;
const OF_A_BLOCK: u64 = 32_768;
const BLOCK: u64 = 2 << 20;

pub struct Texture {
    resource: ResourceWords,
    texture: TextureWords,
    view: Option<ViewWords>,
}

#[derive(Default)]
pub struct Views {
    textures: BTreeMap<u64, Texture>,
    surfaces: BTreeMap<u64, ResourceWords>,
    /// Whose each is.
    owners: HashMap<u64, ContextId>,
    held: HashMap<ContextId, Held>,
    /// Numbers that were used last and are free.
    free: BTreeSet<u64>,
    numbered: u64,
}

/// What a context has.
#[derive(Clone, Copy, Default)]
struct Held {
    objects: u64,
    blocks: u64,
}

impl Views {
    /// Textures and surfaces are numbered together.
    fn free_number(&mut self) -> u64 {
        self.free.pop_first().unwrap_or_else(|| {
            self.numbered += 1;
            self.numbered
        })
    }

    fn forget(&mut self, number: u64) {
        self.free.insert(number);
        let owner = self.owners.remove(&number);
        if let Some(held) = owner.and_then(|owner| self.held.get_mut(&owner)) {
            held.objects -= 1;
        }
    }

    /// A context ends: bytes that it held for its objects.
    pub fn end(&mut self, context: ContextId) -> u64 {
        // A primary context that is made anew has none of them.
        self.owners.retain(|_, owner| *owner != context);
        self.held
            .remove(&context)
            .map_or(0, |held| held.blocks * BLOCK)
    }
}

/// A number for an object of the current context, and its memory.
fn take(process: &mut Process, driver: &Driver) -> Result<u64, CUresult> {
    let context = process.current()?;
    let held = process.views.held.get(&context).copied();
    let Held {
        objects,
        mut blocks,
    } = held.unwrap_or_default();
    if objects == FEW + blocks * OF_A_BLOCK {
        let device = process.context(context).device;
        process.charge(driver, device, Kind::Context, BLOCK)?;
        blocks += 1;
    }
    let held = Held {
        objects: objects + 1,
        blocks,
    };
    process.views.held.insert(context, held);
    let number = process.views.free_number();
    process.views.owners.insert(number, context);
    Ok(number)
}

fn low(word: u64) -> u32 {
    word as u32
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// What a resource is to a texture: the shape of its array, if it is one, and how many levels it has.
fn checked(process: &Process, words: &ResourceWords) -> Result<Option<(Shape, u32)>, CUresult> {
    if low(words[17]) != 0 {
        return Err(INVALID);
    }
    let linear = || {
        let (format, channels) = (low(words[2]) as c_int, high(words[2]));
        let known = channel_bytes(format).is_some() && matches!(channels, 1 | 2 | 4);
        known && words[1] != 0 && words[1].is_multiple_of(ALIGNMENT)
    };
    match low(words[0]) {
        0 => {
            let array = process.array_of(CUarray(words[1] as *mut c_void), INVALID)?;
            Ok(Some((array.shape, 1)))
        }
        1 => {
            let mipmap = CUmipmappedArray(words[1] as *mut c_void);
            Ok(Some(process.mipmap_of(mipmap, INVALID)?))
        }
        2 if linear() => Ok(None),
        3 if linear() && words[3] <= WIDEST && words[5].is_multiple_of(PITCH_ALIGNMENT) => Ok(None),
        _ => Err(INVALID),
    }
}

fn sampling_fits(texture: &TextureWords, shape: Option<&Shape>) -> bool {
    let seamless = shape.is_some_and(|shape| shape.has(CUBEMAP));
    let flags = READ_FLAGS | if seamless { SEAMLESS } else { 0 };
    texture[..3].iter().all(|mode| *mode <= 3)
        && texture[3] <= 1
        && texture[4] & !flags == 0
        && texture[6] <= 1
}

/// Bytes of an element in a view's format; `None` for one that is none, or compressed.
fn view_bytes(format: u32) -> Option<u64> {
    let unit = match format {
        0x01..=0x06 => 1,
        0x07..=0x0c | 0x13..=0x15 => 2,
        0x0d..=0x12 | 0x16..=0x18 => 4,
        _ => return None,
    };
    Some(unit * [1, 2, 4][(format as usize - 1) % 3])
}

fn view_fits(view: &ViewWords, shape: &Shape, mipmapped: bool) -> bool {
    let levels = (low(view[4]), high(view[4]));
    let layers = (low(view[5]), high(view[5]));
    let same_size = [view[1], view[2], view[3]] == [shape.width, shape.height, shape.depth];
    let bytes = view_bytes(low(view[0]));
    let levels_fit = levels.0 <= levels.1 && (mipmapped || levels == (0, 0));
    bytes == Some(shape.element()) && same_size && levels_fit && {
        layers.0 <= layers.1 && u64::from(layers.1) < shape.depth.max(1)
    }
}

pub fn create_texture(
    object: Out<CUtexObject>,
    resource: In<CUDA_RESOURCE_DESC>,
    texture: In<CUDA_TEXTURE_DESC>,
    view: In<CUDA_RESOURCE_VIEW_DESC>,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.current()?;
    let object = object.required()?;
    let resource = resource.cast::<ResourceWords>().required()?;
    let texture = texture.cast::<TextureWords>().required()?;
    let view = view.cast::<ViewWords>().required().ok();
    let found = checked(&process, &resource)?;
    let shape = found.as_ref().map(|(shape, _)| shape);
    if !sampling_fits(&texture, shape) {
        return Err(INVALID);
    }
    if let (Some(view), Some(shape)) = (&view, shape) {
        let mipmapped = low(resource[0]) == 1;
        if low(view[0]) == 0 {
            // The one refusal after which the driver writes.
            object.set(0);
            return Err(INVALID);
        }
        if !view_fits(view, shape, mipmapped) {
            return Err(INVALID);
        }
    }
    let number = take(&mut process, driver)?;
    let kept = Texture {
        resource,
        texture,
        view,
    };
    process.views.textures.insert(number, kept);
    object.set(number);
    Ok(())
}

/// A number that stands for nothing is no error.
pub fn destroy_texture(object: c_ulonglong) -> Answer {
    let mut process = driver::get()?.lock();
    process.current()?;
    if process.views.textures.remove(&object).is_some() {
        process.views.forget(object);
    }
    Ok(())
}

pub fn destroy_surface(object: c_ulonglong) -> Answer {
    let mut process = driver::get()?.lock();
    process.current()?;
    if process.views.surfaces.remove(&object).is_some() {
        process.views.forget(object);
    }
    Ok(())
}

/// The parts that the kind of resource has; padding and the rest of the union stay as they were.
fn write_resource(out: Out<CUDA_RESOURCE_DESC>, words: &ResourceWords) -> Answer {
    let out = out.cast::<u64>().required()?;
    out.cast::<u32>().set(low(words[0]));
    let parts = match low(words[0]) {
        0 | 1 => 1..2,
        2 => 1..4,
        _ => 1..6,
    };
    for at in parts {
        out.nth(at).set(words[at]);
    }
    out.nth(17).cast::<u32>().set(low(words[17]));
    Ok(())
}

pub fn texture_resource(out: Out<CUDA_RESOURCE_DESC>, object: CUtexObject) -> Answer {
    let process = driver::get()?.lock();
    process.current()?;
    let texture = process.views.textures.get(&object).ok_or(INVALID)?;
    write_resource(out, &texture.resource)
}

/// All but the border's colour and what is reserved.
pub fn texture_description(out: Out<CUDA_TEXTURE_DESC>, object: CUtexObject) -> Answer {
    const WRITTEN: usize = 10;
    let process = driver::get()?.lock();
    process.current()?;
    let texture = process.views.textures.get(&object).ok_or(INVALID)?;
    let out = out.cast::<u32>().required()?;
    for (at, word) in texture.texture.iter().take(WRITTEN).enumerate() {
        out.nth(at).set(*word);
    }
    Ok(())
}

/// Of an object without a view nothing is written.
pub fn texture_view(out: Out<CUDA_RESOURCE_VIEW_DESC>, object: CUtexObject) -> Answer {
    let process = driver::get()?.lock();
    process.current()?;
    let texture = process.views.textures.get(&object).ok_or(INVALID)?;
    let out = out.cast::<ViewWords>().required()?;
    if let Some(mut view) = texture.view {
        view[0] = u64::from(low(view[0]));
        out.set(view);
    }
    Ok(())
}

/// Surfaces are of arrays alone.
pub fn create_surface(object: Out<CUsurfObject>, resource: In<CUDA_RESOURCE_DESC>) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.current()?;
    let resource = resource.cast::<ResourceWords>().required()?;
    if low(resource[0]) != 0 {
        return Err(INVALID);
    }
    checked(&process, &resource)?;
    let object = object.or_crash();
    let number = take(&mut process, driver)?;
    process.views.surfaces.insert(number, resource);
    object.set(number);
    Ok(())
}

pub fn surface_resource(out: Out<CUDA_RESOURCE_DESC>, object: CUsurfObject) -> Answer {
    let process = driver::get()?.lock();
    process.current()?;
    let surface = process.views.surfaces.get(&object).ok_or(INVALID)?;
    write_resource(out, surface)
}
