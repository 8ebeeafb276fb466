//! Texture references, the old way to name a texture: a set of fields that remembers what it was told.

use std::collections::HashMap;

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::boundary::{Answer, In, Out};
use crate::driver;
use crate::handle;
use crate::process::Process;
use crate::shape::channel_bytes;

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
const ALIGNMENT: u64 = 512;
const PITCH_ALIGNMENT: usize = 32;

/// What a reference is bound to; handles as numbers.
#[derive(Clone, Copy)]
enum Bound {
    Nothing,
    Array(u64),
    Mipmap(u64),
    Memory(CUdeviceptr),
}

#[derive(Clone, Copy)]
pub struct Reference {
    bound: Bound,
    format: CUarray_format,
    channels: c_int,
    address_modes: [CUaddress_mode; 3],
    filter: CUfilter_mode,
    mipmap_filter: CUfilter_mode,
    bias: f32,
    clamp: [f32; 2],
    anisotropy: c_uint,
    border: [f32; 4],
    flags: c_uint,
}

pub type References = HashMap<u32, Reference>;

const FRESH: Reference = Reference {
    bound: Bound::Nothing,
    format: 32,
    channels: 1,
    address_modes: [1; 3],
    filter: 0,
    mipmap_filter: 0,
    bias: 0.0,
    clamp: [0.0; 2],
    anisotropy: 0,
    border: [0.0; 4],
    flags: 0,
};

fn with<R>(
    reference: CUtexref,
    act: impl FnOnce(&mut Reference, &Process) -> Result<R, CUresult>,
) -> Result<R, CUresult> {
    let mut process = driver::get()?.lock();
    let null = CUresult::ERROR_INVALID_HANDLE;
    let id = handle::followed(handle::Kind::TextureReference, reference.0 as u64, null)?;
    let gone = CUresult::ERROR_CONTEXT_IS_DESTROYED;
    let mut reference = process.references.get(&id).copied().ok_or(gone)?;
    let answer = act(&mut reference, &process)?;
    process.references.insert(id, reference);
    Ok(answer)
}

pub fn create(out: Out<CUtexref>) -> Answer {
    let mut process = driver::get()?.lock();
    process.current()?;
    let out = out.required()?;
    let id = process.next_handle();
    process.references.insert(id, FRESH);
    let value = handle::encode(handle::Kind::TextureReference, id);
    out.set(CUtexref(value as *mut c_void));
    Ok(())
}

pub fn destroy(reference: CUtexref) -> Answer {
    with(reference, |_, _| Ok(()))?;
    let id = handle::decode(handle::Kind::TextureReference, reference.0 as u64);
    driver::get()?
        .lock()
        .references
        .remove(&id.expect("it was found"));
    Ok(())
}

pub fn set_array(reference: CUtexref, array: CUarray, _flags: c_uint) -> Answer {
    with(reference, |reference, process| {
        let shape = process
            .array_of(array, CUresult::ERROR_INVALID_HANDLE)?
            .shape;
        reference.bound = Bound::Array(array.0 as u64);
        reference.format = shape.format;
        reference.channels = shape.channels as c_int;
        Ok(())
    })
}

pub fn set_mipmap(reference: CUtexref, mipmap: CUmipmappedArray, _flags: c_uint) -> Answer {
    with(reference, |reference, process| {
        process.mipmap_of(mipmap, CUresult::ERROR_INVALID_HANDLE)?;
        reference.bound = Bound::Mipmap(mipmap.0 as u64);
        Ok(())
    })
}

/// An address off the texture unit's alignment is bound below it, if the caller takes the difference.
pub fn set_address(
    offset: Out<usize>,
    reference: CUtexref,
    address: CUdeviceptr,
    _bytes: usize,
) -> Answer {
    with(reference, |reference, _| {
        let beyond = address % ALIGNMENT;
        match offset.optional() {
            Some(offset) => offset.set(beyond as usize),
            None if beyond != 0 => return Err(INVALID),
            None => {}
        }
        reference.bound = Bound::Memory(address);
        Ok(())
    })
}

pub fn set_address_2d(
    reference: CUtexref,
    descriptor: In<CUDA_ARRAY_DESCRIPTOR>,
    address: CUdeviceptr,
    pitch: usize,
) -> Answer {
    with(reference, |reference, _| {
        let descriptor = descriptor.required()?;
        let channel = channel_bytes(descriptor.Format).ok_or(INVALID)?;
        let row = descriptor.Width as u64 * channel * u64::from(descriptor.NumChannels);
        if !pitch.is_multiple_of(PITCH_ALIGNMENT) || (pitch as u64) < row {
            return Err(INVALID);
        }
        reference.bound = Bound::Memory(address);
        Ok(())
    })
}

pub fn set_format(reference: CUtexref, format: CUarray_format, channels: c_int) -> Answer {
    with(reference, |reference, _| {
        if !matches!(channels, 1 | 2 | 4) {
            return Err(INVALID);
        }
        (reference.format, reference.channels) = (format, channels);
        Ok(())
    })
}

fn dimension(dim: c_int) -> Result<usize, CUresult> {
    usize::try_from(dim)
        .ok()
        .filter(|dim| *dim < 3)
        .ok_or(INVALID)
}

pub fn set_address_mode(reference: CUtexref, dim: c_int, mode: CUaddress_mode) -> Answer {
    with(reference, |reference, _| {
        reference.address_modes[dimension(dim)?] = mode;
        Ok(())
    })
}

pub fn get_address_mode(mode: Out<CUaddress_mode>, reference: CUtexref, dim: c_int) -> Answer {
    with(reference, |reference, _| {
        mode.required()?
            .set(reference.address_modes[dimension(dim)?]);
        Ok(())
    })
}

macro_rules! fields {
    ($($set:ident $get:ident $field:ident: $kind:ty;)*) => { $(
        pub fn $set(reference: CUtexref, value: $kind) -> Answer {
            with(reference, |reference, _| {
                reference.$field = value;
                Ok(())
            })
        }

        pub fn $get(out: Out<$kind>, reference: CUtexref) -> Answer {
            with(reference, |reference, _| {
                out.required()?.set(reference.$field);
                Ok(())
            })
        }
    )* };
}
fields! {
    set_filter get_filter filter: CUfilter_mode;
    set_mipmap_filter get_mipmap_filter mipmap_filter: CUfilter_mode;
    set_bias get_bias bias: f32;
}

pub fn set_clamp(reference: CUtexref, least: f32, most: f32) -> Answer {
    with(reference, |reference, _| {
        reference.clamp = [least, most];
        Ok(())
    })
}

pub fn get_clamp(least: Out<f32>, most: Out<f32>, reference: CUtexref) -> Answer {
    with(reference, |reference, _| {
        let (least, most) = (least.required()?, most.required()?);
        least.set(reference.clamp[0]);
        most.set(reference.clamp[1]);
        Ok(())
    })
}

pub fn set_anisotropy(reference: CUtexref, value: c_uint) -> Answer {
    with(reference, |reference, _| {
        reference.anisotropy = value;
        Ok(())
    })
}

pub fn get_anisotropy(out: Out<c_int>, reference: CUtexref) -> Answer {
    with(reference, |reference, _| {
        out.required()?.set(reference.anisotropy as c_int);
        Ok(())
    })
}

pub fn set_border(reference: CUtexref, colour: Out<f32>) -> Answer {
    with(reference, |reference, _| {
        let colour = colour.required()?;
        reference.border = std::array::from_fn(|at| colour.nth(at).get());
        Ok(())
    })
}

pub fn get_border(colour: Out<f32>, reference: CUtexref) -> Answer {
    with(reference, |reference, _| {
        let colour = colour.required()?;
        for (at, value) in reference.border.iter().enumerate() {
            colour.nth(at).set(*value);
        }
        Ok(())
    })
}

pub fn set_flags(reference: CUtexref, flags: c_uint) -> Answer {
    const KNOWN: c_uint = 0x33;
    with(reference, |reference, _| {
        if flags & !KNOWN != 0 {
            return Err(INVALID);
        }
        reference.flags = flags;
        Ok(())
    })
}

pub fn get_flags(out: Out<c_uint>, reference: CUtexref) -> Answer {
    with(reference, |reference, _| {
        out.required()?.set(reference.flags);
        Ok(())
    })
}

pub fn get_format(
    format: Out<CUarray_format>,
    channels: Out<c_int>,
    reference: CUtexref,
) -> Answer {
    with(reference, |reference, _| {
        format.required()?.set(reference.format);
        channels.required()?.set(reference.channels);
        Ok(())
    })
}

/// Of a reference bound to something else 0, and an error.
pub fn get_address(out: Out<CUdeviceptr>, reference: CUtexref) -> Answer {
    with(reference, |reference, _| {
        let out = out.required()?;
        let Bound::Memory(address) = reference.bound else {
            out.set(0);
            return Err(INVALID);
        };
        out.set(address);
        Ok(())
    })
}

pub fn get_array(out: Out<CUarray>, reference: CUtexref) -> Answer {
    with(reference, |reference, _| {
        let Bound::Array(array) = reference.bound else {
            return Err(INVALID);
        };
        out.required()?.set(CUarray(array as *mut c_void));
        Ok(())
    })
}

pub fn get_mipmap(out: Out<CUmipmappedArray>, reference: CUtexref) -> Answer {
    with(reference, |reference, _| {
        let Bound::Mipmap(mipmap) = reference.bound else {
            return Err(INVALID);
        };
        out.required()?.set(CUmipmappedArray(mipmap as *mut c_void));
        Ok(())
    })
}
