//! External memory: descriptors of other APIs, mapped as buffers and mipmapped arrays.

use std::collections::HashMap;

use abi::cuda::*;

use crate::array::level_bytes;
use crate::boundary::{Answer, In, Out, close, descriptor};
use crate::driver::{self, Driver};
use crate::handle;
use crate::process::{Owner, Process};
use crate::shape::Shape;

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
const OPAQUE_DESCRIPTOR: u64 = 1;

pub struct External {
    base: u64,
    size: u64,
    /// Buffers and mipmapped arrays that are mapped; they keep the memory after the import is destroyed (H200, 580.159.04: *arrays of external memory* in
    /// `fixtures/oracle/held-580.txt`, whose row an array alone is in no more, other than here).
    mapped: u32,
    open: bool,
}

pub type Imports = HashMap<u32, External>;

/// CUDA_EXTERNAL_MEMORY_HANDLE_DESC: kind, descriptor, (its second word), size, flags.
type Words = [u64; 5];

/// On success the descriptor is the driver's, and closed.
pub fn import(out: Out<CUexternalMemory>, desc: In<CUDA_EXTERNAL_MEMORY_HANDLE_DESC>) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.current()?;
    let out = out.required()?;
    let words = desc.cast::<Words>().required()?;
    let (kind, size, flags) = (words[0] & 0xffff_ffff, words[3], words[4] as u32);
    match kind {
        OPAQUE_DESCRIPTOR => {}
        2..=9 => return Err(CUresult::ERROR_NOT_SUPPORTED),
        _ => return Err(INVALID),
    }
    if size == 0 || flags & !1 != 0 {
        return Err(INVALID);
    }
    let number = words[1] as u32;
    let fd = descriptor(number.into()).ok_or(CUresult::ERROR_UNKNOWN)?;
    let unknown = |_| CUresult::ERROR_UNKNOWN;
    let object = driver.world.import_object(fd).map_err(unknown)?;
    if size > object.size().0 {
        return Err(INVALID);
    }
    let (base, _) = process.adopt(driver, object)?;
    close(number as c_int);
    let id = process.next_handle();
    let external = External {
        base,
        size,
        mapped: 0,
        open: true,
    };
    process.imports.insert(id, external);
    let value = handle::encode(handle::Kind::External, id);
    out.set(CUexternalMemory(value as *mut c_void));
    Ok(())
}

fn import_of(process: &Process, memory: CUexternalMemory) -> Result<u32, CUresult> {
    let id = handle::followed(handle::Kind::External, memory.0 as u64, INVALID)?;
    match process.imports.get(&id) {
        Some(external) if external.open => Ok(id),
        _ => Err(INVALID),
    }
}

/// Overlapping buffers have addresses of their own: each maps the object once more.
pub fn buffer(
    out: Out<CUdeviceptr>,
    memory: CUexternalMemory,
    desc: In<CUDA_EXTERNAL_MEMORY_BUFFER_DESC>,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let (out, desc) = (out.required()?, desc.required()?);
    let id = import_of(&process, memory)?;
    let context = process.current()?;
    let external = &process.imports[&id];
    let end = desc.offset.checked_add(desc.size);
    if desc.size == 0 || desc.flags != 0 || end.is_none_or(|end| end > external.size) {
        return Err(INVALID);
    }
    let object = process
        .sharing
        .object(external.base)
        .and_then(|object| object.again().ok())
        .ok_or(CUresult::ERROR_OPERATING_SYSTEM)?;
    let (base, _) = process.adopt(driver, object)?;
    let address = base + desc.offset;
    process.enter(address, desc.size, desc.size, context, Owner::External(id));
    if let Some(external) = process.imports.get_mut(&id) {
        external.mapped += 1;
    }
    out.set(address);
    Ok(())
}

pub fn mipmap(
    out: Out<CUmipmappedArray>,
    memory: CUexternalMemory,
    desc: In<CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC>,
) -> Answer {
    let mut process = driver::get()?.lock();
    let (out, desc) = (out.required()?, desc.required()?);
    let id = import_of(&process, memory)?;
    let context = process.current()?;
    let shape = Shape::of_3d(&desc.arrayDesc).check()?;
    let count = desc.numLevels.clamp(1, shape.levels());
    let (linear, laid_out) = level_bytes(&shape, count);
    let external = &process.imports[&id];
    let end = desc.offset.checked_add(linear.max(laid_out));
    if end.is_none_or(|end| end > external.size) {
        return Err(INVALID);
    }
    let base = external.base + desc.offset;
    if let Some(external) = process.imports.get_mut(&id) {
        external.mapped += 1;
    }
    out.set(process.map_mipmap(context, shape, count, (id, base)));
    Ok(())
}

pub fn destroy(memory: CUexternalMemory) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = import_of(&process, memory)?;
    if let Some(external) = process.imports.get_mut(&id) {
        external.open = false;
    }
    process.settle_import(driver, id);
    Ok(())
}

impl Process {
    /// A mapped buffer is freed.
    pub fn free_external(&mut self, driver: &Driver, id: u32, address: u64) {
        if let Some((base, _)) = self.sharing.around(address) {
            self.abandon(driver, base);
        }
        self.unmap_external(driver, id);
    }

    /// A mapping of it is gone.
    pub fn unmap_external(&mut self, driver: &Driver, id: u32) {
        if let Some(external) = self.imports.get_mut(&id) {
            external.mapped -= 1;
        }
        self.settle_import(driver, id);
    }

    fn settle_import(&mut self, driver: &Driver, id: u32) {
        let ended = |external: &&External| !external.open && external.mapped == 0;
        if let Some(base) = self.imports.get(&id).filter(ended).map(|it| it.base) {
            self.imports.remove(&id);
            self.abandon(driver, base);
        }
    }
}
