//! CUDA arrays and mipmapped arrays: device memory without an address, with real contents.

use std::collections::HashMap;
use std::ops::Range;

use abi::cuda::*;
use mock_device::Kind;

use crate::boundary::{Answer, In, Out};
use crate::driver::{self, Driver, Ordinal};
use crate::handle;
use crate::memory;
use crate::narrow;
use crate::process::{ContextId, Process};
use crate::shape::{DEFERRED, SPARSE, Shape};

/// What a deferred array asks to be bound to: blocks of 64 KiB.
const BIND_ALIGNMENT: u64 = 64 << 10;

/// Whose memory an array is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// A part of a block that arrays of its element size share, so long.
    Part(u64),
    /// Whole blocks.
    Blocks(u64),
    /// Sparse or deferred: addresses alone.
    Unbound(u64),
    /// A level of a mipmap: another's.
    Another,
    /// A mapping of imported external memory.
    External(u32),
}

#[derive(Clone, Copy, Debug)]
pub struct Array {
    pub context: ContextId,
    pub device: Ordinal,
    pub shape: Shape,
    /// Where its bytes lie, row by row.
    pub base: u64,
    memory: Memory,
}

pub struct Mipmap {
    array: Array,
    count: u32,
    levels: HashMap<u32, u32>,
}

#[derive(Default)]
pub struct Arrays {
    arrays: HashMap<u32, Array>,
    mipmaps: HashMap<u32, Mipmap>,
    /// Memory that sparse arrays' tiles are bound to, by where the array's bytes lie.
    tiles: HashMap<u64, Vec<u32>>,
}

fn handle_of(id: u32) -> CUarray {
    CUarray(handle::encode(handle::Kind::Array, id) as *mut c_void)
}

fn mipmap_handle(id: u32) -> CUmipmappedArray {
    CUmipmappedArray(handle::encode(handle::Kind::Mipmap, id) as *mut c_void)
}

impl Process {
    /// The live array of a handle; `null` for NULL, CONTEXT_IS_DESTROYED for one that is gone.
    pub fn array_of(&self, array: CUarray, null: CUresult) -> Result<Array, CUresult> {
        let id = handle::followed(handle::Kind::Array, array.0 as u64, null)?;
        let array = self.arrays.arrays.get(&id).copied();
        array.ok_or(CUresult::ERROR_CONTEXT_IS_DESTROYED)
    }

    pub fn mipmap_of(
        &self,
        mipmap: CUmipmappedArray,
        null: CUresult,
    ) -> Result<(Shape, u32), CUresult> {
        let id = handle::followed(handle::Kind::Mipmap, mipmap.0 as u64, null)?;
        let mipmap = self.arrays.mipmaps.get(&id);
        mipmap
            .map(|mipmap| (mipmap.array.shape, mipmap.count))
            .ok_or(CUresult::ERROR_CONTEXT_IS_DESTROYED)
    }

    /// Memory for an array of a shape: `laid_out` bytes of the device, room for `linear` bytes of contents.
    fn make_array(
        &mut self,
        driver: &Driver,
        shape: Shape,
        laid_out: u64,
        linear: u64,
    ) -> Result<Array, CUresult> {
        let context = self.current()?;
        let device = self.context(context).device;
        let profile = driver.profile(device);
        let block = profile.block.0;
        let (base, memory) = if shape.has(SPARSE | DEFERRED) {
            let len = linear.next_multiple_of(block);
            let taken = self.arena(driver, device)?.holes.take(len);
            let base = taken.ok_or(CUresult::ERROR_OUT_OF_MEMORY)?;
            (base, Memory::Unbound(len))
        } else if laid_out < block {
            let len = laid_out
                .max(linear)
                .next_multiple_of(profile.suballocation.0);
            (
                self.array_part(driver, context, shape.element(), len)?,
                Memory::Part(len),
            )
        } else {
            let len = laid_out.max(linear).next_multiple_of(block);
            let base = self.take(driver, device, Kind::Array, len)?;
            (base, Memory::Blocks(len))
        };
        Ok(Array {
            context,
            device,
            shape,
            base,
            memory,
        })
    }

    /// A part of a 2 MiB block that the context's arrays of one element size share.
    fn array_part(
        &mut self,
        driver: &Driver,
        context: ContextId,
        element: u64,
        len: u64,
    ) -> Result<u64, CUresult> {
        let device = self.context(context).device;
        let block = driver.profile(device).block.0;
        let of_size = |process: &mut Process| {
            let blocks = &mut process.context_mut(context).array_blocks;
            blocks.entry(element).or_default().allocate(len)
        };
        if let Some(address) = of_size(self) {
            return Ok(address);
        }
        let base = self.take(driver, device, Kind::Array, block)?;
        let blocks = &mut self.context_mut(context).array_blocks;
        let blocks = blocks.entry(element).or_default();
        Ok(blocks.begin(base, block, len))
    }

    fn end_array(&mut self, driver: &Driver, array: &Array) {
        let (device, base) = (array.device, array.base);
        match array.memory {
            Memory::Another => {}
            Memory::External(id) => self.unmap_external(driver, id),
            Memory::Blocks(len) => self.give_back(driver, device, Kind::Array, base, len),
            Memory::Unbound(len) => {
                if let Ok(arena) = self.arena(driver, device) {
                    arena.contents.forget(base, base + len);
                    arena.holes.give(base, len);
                }
            }
            Memory::Part(len) => {
                let blocks = &mut self.context_mut(array.context).array_blocks;
                let blocks = blocks.entry(array.shape.element()).or_default();
                if let Some((block, len)) = blocks.free(base, len) {
                    self.give_back(driver, device, Kind::Array, block, len);
                } else if let Ok(arena) = self.arena(driver, device) {
                    arena.contents.forget(base, base + len);
                }
            }
        }
        // A level's tiles are its mipmap's. One in imported memory may be sparse as well.
        let sparse = match array.memory {
            Memory::Unbound(len) => len,
            Memory::External(_) => level_bytes(&array.shape, array.shape.levels()).0,
            Memory::Part(_) | Memory::Blocks(_) | Memory::Another => return,
        };
        self.unbind_tiles(driver, base..base + sparse);
    }

    /// Memory that a sparse array's tiles are bound to; it counts one mapping more already.
    pub fn bind_tiles(&mut self, array: CUarray, physical: u32) {
        if let Ok(found) = self.array_of(array, CUresult::ERROR_INVALID_HANDLE) {
            let bound = self.arrays.tiles.entry(found.base).or_default();
            bound.push(physical);
        }
    }

    fn unbind_tiles(&mut self, driver: &Driver, bases: Range<u64>) {
        let of_array = self.arrays.tiles.extract_if(|base, _| bases.contains(base));
        let bound: Vec<u32> = of_array.flat_map(|(_, bound)| bound).collect();
        for id in bound {
            if let Some(physical) = self.physical.get_mut(&id) {
                physical.mappings -= 1;
            }
            self.settle_physical(driver, id);
        }
    }

    /// All of a context's arrays, at its end.
    pub fn end_arrays(&mut self, driver: &Driver, context: ContextId) {
        let arrays: Vec<Array> = self
            .arrays
            .arrays
            .extract_if(|_, array| array.context == context)
            .map(|(_, array)| array)
            .collect();
        let mipmaps: Vec<Array> = self
            .arrays
            .mipmaps
            .extract_if(|_, mipmap| mipmap.array.context == context)
            .map(|(_, mipmap)| mipmap.array)
            .collect();
        for array in arrays.iter().chain(&mipmaps) {
            self.end_array(driver, array);
        }
    }

    /// A mipmapped array over external memory, which begins at `base`.
    pub fn map_mipmap(
        &mut self,
        context: ContextId,
        shape: Shape,
        count: u32,
        (external, base): (u32, u64),
    ) -> CUmipmappedArray {
        let array = Array {
            context,
            device: self.context(context).device,
            shape,
            base,
            memory: Memory::External(external),
        };
        self.enter_mipmap(array, count)
    }

    fn enter_mipmap(&mut self, array: Array, count: u32) -> CUmipmappedArray {
        let id = self.next_handle();
        let mipmap = Mipmap {
            array,
            count,
            levels: HashMap::new(),
        };
        self.arrays.mipmaps.insert(id, mipmap);
        mipmap_handle(id)
    }
}

/// Bytes of the first `count` levels, as stored and as laid out.
pub fn level_bytes(shape: &Shape, count: u32) -> (u64, u64) {
    let levels = (0..count).map(|level| shape.level(level));
    levels.fold((0, 0), |(linear, laid_out), level| {
        (linear + level.linear(), laid_out + level.laid_out())
    })
}

fn make(array: Out<CUarray>, shape: Result<Shape, CUresult>) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.current()?;
    let array = array.required()?;
    let shape = shape?.check()?;
    let made = process.make_array(driver, shape, shape.laid_out(), shape.linear())?;
    let id = process.next_handle();
    process.arrays.arrays.insert(id, made);
    array.set(handle_of(id));
    Ok(())
}

pub fn create(array: Out<CUarray>, descriptor: In<CUDA_ARRAY_DESCRIPTOR>) -> Answer {
    make(array, descriptor.required().map(|it| Shape::of_2d(&it)))
}

pub fn create_3d(array: Out<CUarray>, descriptor: In<CUDA_ARRAY3D_DESCRIPTOR>) -> Answer {
    make(array, descriptor.required().map(|it| Shape::of_3d(&it)))
}

/// The 32-bit versions work in 32-bit contexts alone. Nobody asked a card for more than that they refuse others.
pub fn create_32(array: Out<CUarray>, descriptor: In<CUDA_ARRAY_DESCRIPTOR_v1>) -> Answer {
    narrow::current()?;
    let shape = descriptor.required().map(|it| Shape {
        width: it.Width.into(),
        height: it.Height.into(),
        depth: 0,
        format: it.Format,
        channels: it.NumChannels,
        flags: 0,
    });
    make(array, shape)
}

pub fn create_3d_32(array: Out<CUarray>, descriptor: In<CUDA_ARRAY3D_DESCRIPTOR_v1>) -> Answer {
    narrow::current()?;
    let shape = descriptor.required().map(|it| Shape {
        width: it.Width.into(),
        height: it.Height.into(),
        depth: it.Depth.into(),
        format: it.Format,
        channels: it.NumChannels,
        flags: it.Flags,
    });
    make(array, shape)
}

pub fn destroy(array: CUarray) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let found = process.array_of(array, CUresult::ERROR_INVALID_HANDLE)?;
    if found.memory == Memory::Another {
        return Ok(());
    }
    let id = handle::decode(handle::Kind::Array, array.0 as u64);
    process.arrays.arrays.remove(&id.expect("it was found"));
    process.end_array(driver, &found);
    Ok(())
}

/// Before cuInit an array's descriptor is asked of a NULL handle at most.
fn described(array: CUarray) -> Result<Shape, CUresult> {
    if array.is_null() {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    let process = driver::get()?.lock();
    Ok(process
        .array_of(array, CUresult::ERROR_INVALID_HANDLE)?
        .shape)
}

pub fn descriptor(out: Out<CUDA_ARRAY_DESCRIPTOR>, array: CUarray) -> Answer {
    let shape = described(array)?;
    out.required()?.set(CUDA_ARRAY_DESCRIPTOR {
        Width: shape.width as usize,
        Height: shape.height as usize,
        Format: shape.format,
        NumChannels: shape.channels,
    });
    Ok(())
}

/// Seven words of 32 bits after the three sizes, of which the driver leaves the padding.
pub fn descriptor_3d(out: Out<CUDA_ARRAY3D_DESCRIPTOR>, array: CUarray) -> Answer {
    let shape = described(array)?;
    if out.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let sizes = out.cast::<u64>().required()?;
    sizes.set(shape.width);
    sizes.nth(1).set(shape.height);
    sizes.nth(2).set(shape.depth);
    let rest = sizes.nth(3).cast::<u32>();
    rest.set(shape.format as u32);
    rest.nth(1).set(shape.channels);
    rest.nth(2).set(shape.flags);
    Ok(())
}

/// The 32-bit versions look at the handle before they refuse the context.
pub fn descriptor_32(_out: Out<CUDA_ARRAY_DESCRIPTOR_v1>, array: CUarray) -> Answer {
    described(array)?;
    memory::only_legacy()
}

pub fn descriptor_3d_32(_out: Out<CUDA_ARRAY3D_DESCRIPTOR_v1>, array: CUarray) -> Answer {
    described(array)?;
    memory::only_legacy()
}

fn sparse(out: Out<CUDA_ARRAY_SPARSE_PROPERTIES>, shape: Shape, tail: (u32, u64)) -> Answer {
    let out = out.required()?;
    if !shape.has(SPARSE) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let words = out.cast::<u32>();
    for (at, size) in shape.tile().into_iter().enumerate() {
        words.nth(at).set(size);
    }
    words.nth(3).set(tail.0);
    words.nth(4).cast::<u64>().set(tail.1);
    words.nth(6).set(0);
    Ok(())
}

pub fn sparse_properties(out: Out<CUDA_ARRAY_SPARSE_PROPERTIES>, array: CUarray) -> Answer {
    if array.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let shape = driver::get()?
        .lock()
        .array_of(array, CUresult::ERROR_INVALID_VALUE)
        .map_err(|_| CUresult::ERROR_INVALID_VALUE)?
        .shape;
    sparse(out, shape, (0, 0))
}

/// Levels smaller than a tile share the tail.
fn tail(shape: &Shape, count: u32) -> (u32, u64) {
    let [x, y, z] = shape.tile().map(u64::from);
    let small = |level: &u32| {
        let level = shape.level(*level);
        level.width < x || level.height.max(1) < y.min(shape.height.max(1)) || {
            level.depth != 0 && !shape.has(crate::shape::LAYERED) && level.depth < z
        }
    };
    let first = (0..count).find(small).unwrap_or(count);
    (first, if first < count { BIND_ALIGNMENT } else { 0 })
}

pub fn mipmap_sparse_properties(
    out: Out<CUDA_ARRAY_SPARSE_PROPERTIES>,
    mipmap: CUmipmappedArray,
) -> Answer {
    let invalid = CUresult::ERROR_INVALID_VALUE;
    if mipmap.is_null() {
        return Err(invalid);
    }
    let (shape, count) = driver::get()?.lock().mipmap_of(mipmap, invalid)?;
    sparse(out, shape, tail(&shape, count))
}

fn requirements(out: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>, shape: Shape, laid_out: u64) -> Answer {
    let out = out.required()?;
    if !shape.has(DEFERRED) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let words = out.cast::<u64>();
    words.set(laid_out.next_multiple_of(BIND_ALIGNMENT));
    words.nth(1).set(BIND_ALIGNMENT);
    words.nth(2).set(0);
    words.nth(3).set(0);
    Ok(())
}

/// The device is not looked at.
pub fn memory_requirements(
    out: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>,
    array: CUarray,
    _dev: CUdevice,
) -> Answer {
    let invalid = CUresult::ERROR_INVALID_VALUE;
    if array.is_null() {
        return Err(invalid);
    }
    let found = driver::get()?.lock().array_of(array, invalid);
    let shape = found.map_err(|_| invalid)?.shape;
    requirements(out, shape, shape.laid_out())
}

pub fn mipmap_memory_requirements(
    out: Out<CUDA_ARRAY_MEMORY_REQUIREMENTS>,
    mipmap: CUmipmappedArray,
    _dev: CUdevice,
) -> Answer {
    let invalid = CUresult::ERROR_INVALID_VALUE;
    if mipmap.is_null() {
        return Err(invalid);
    }
    let found = driver::get()?.lock().mipmap_of(mipmap, invalid);
    let (shape, count) = found.map_err(|_| invalid)?;
    requirements(out, shape, level_bytes(&shape, count).1)
}

/// Planes are of multi-planar formats, which this device's arrays do not have.
pub fn plane(_plane: Out<CUarray>, array: CUarray, _index: c_uint) -> Answer {
    described(array)?;
    Err(CUresult::ERROR_INVALID_VALUE)
}

/// More levels than the shape has are cut, none becomes one.
pub fn create_mipmap(
    mipmap: Out<CUmipmappedArray>,
    descriptor: In<CUDA_ARRAY3D_DESCRIPTOR>,
    levels: c_uint,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.current()?;
    let mipmap = mipmap.required()?;
    let shape = Shape::of_3d(&descriptor.required()?).check()?;
    let count = levels.clamp(1, shape.levels());
    let (linear, laid_out) = level_bytes(&shape, count);
    let array = process.make_array(driver, shape, laid_out, linear)?;
    mipmap.set(process.enter_mipmap(array, count));
    Ok(())
}

pub fn mipmap_level(out: Out<CUarray>, mipmap: CUmipmappedArray, level: c_uint) -> Answer {
    let null = CUresult::ERROR_INVALID_HANDLE;
    if mipmap.is_null() {
        return Err(null);
    }
    let driver = driver::get()?;
    let mut process = driver.lock();
    let (shape, count) = process.mipmap_of(mipmap, null)?;
    let out = out.required()?;
    if level >= count {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let id = handle::decode(handle::Kind::Mipmap, mipmap.0 as u64).expect("it was found");
    let found = &process.arrays.mipmaps[&id];
    if let Some(known) = found.levels.get(&level) {
        out.set(handle_of(*known));
        return Ok(());
    }
    let array = Array {
        shape: shape.level(level),
        base: found.array.base + level_bytes(&shape, level).0,
        memory: Memory::Another,
        ..found.array
    };
    let known = process.next_handle();
    process.arrays.arrays.insert(known, array);
    let found = process.arrays.mipmaps.get_mut(&id).expect("as before");
    found.levels.insert(level, known);
    out.set(handle_of(known));
    Ok(())
}

pub fn destroy_mipmap(mipmap: CUmipmappedArray) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.mipmap_of(mipmap, CUresult::ERROR_INVALID_HANDLE)?;
    let id = handle::decode(handle::Kind::Mipmap, mipmap.0 as u64).expect("it was found");
    if let Some(mipmap) = process.arrays.mipmaps.remove(&id) {
        for level in mipmap.levels.values() {
            process.arrays.arrays.remove(level);
        }
        process.end_array(driver, &mipmap.array);
    }
    Ok(())
}
