//! What a pointer is: address ranges and attributes.

use abi::cuda::*;

use crate::boundary::{Answer, FromC, Out};
use crate::context;
use crate::driver;
use crate::memory;
use crate::process::Owner;

/// With nothing to write it succeeds, even before cuInit.
pub fn address_range(base: Out<CUdeviceptr>, size: Out<usize>, dptr: CUdeviceptr) -> Answer {
    if base.is_null() && size.is_null() {
        return Ok(());
    }
    let process = driver::get()?.lock();
    process.current()?;
    let (start, allocation) = process.holding(dptr, 0).ok_or(CUresult::ERROR_NOT_FOUND)?;
    if let Some(base) = base.optional() {
        base.set(start);
    }
    if let Some(size) = size.optional() {
        size.set(allocation.size as usize);
    }
    Ok(())
}

const HOST: u32 = 1;
const DEVICE: u32 = 2;

pub fn attribute(
    data: Out<c_void>,
    attribute: CUpointer_attribute,
    pointer: CUdeviceptr,
) -> Answer {
    let process = driver::get()?.lock();
    if data.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    if let Some((base, allocation)) = process.holding(pointer, 0) {
        let managed = allocation.owner == Owner::Managed;
        return match attribute {
            1 => set(data, context::handle_of(allocation.context)),
            2 => set(data, DEVICE),
            3 => set(data, pointer),
            4 if managed => set(data, pointer),
            6 => set(data, 0u32),
            7 => set(data, allocation.id),
            8 => set(data, u32::from(managed)),
            9 => set(data, allocation.device.0 as c_int),
            10 => set(
                data,
                u32::from(matches!(allocation.owner, Owner::Shared | Owner::Blocks)),
            ),
            11 => set(data, base),
            12 => set(data, allocation.size as usize),
            13 => set(data, 1u32),
            14 => set(data, 0u32),
            _ => Err(CUresult::ERROR_INVALID_VALUE),
        };
    }
    match (process.host_at(pointer), attribute) {
        (Some(_), 2) => set(data, HOST),
        (Some(_), 3 | 4) => set(data, pointer),
        (Some(_), 8) => set(data, 0u32),
        (Some((base, _)), 11) => set(data, base),
        (Some((_, allocation)), 12) => set(data, allocation.size as usize),
        (Some(_), 13) => set(data, 1u32),
        _ => Err(CUresult::ERROR_INVALID_VALUE),
    }
}

fn set<T>(data: Out<c_void>, value: T) -> Answer {
    data.cast::<T>().required()?.set(value);
    Ok(())
}

/// Several attributes at once. What one pointer does not have is zero, not an error.
pub fn attributes(
    count: c_uint,
    attributes: Out<CUpointer_attribute>,
    data: Out<*mut c_void>,
    pointer: CUdeviceptr,
) -> Answer {
    driver::get()?;
    if count == 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let (attributes, data) = (attributes.required()?, data.required()?);
    for at in 0..count as usize {
        let (number, target) = (attributes.nth(at).get(), data.nth(at).get());
        if attribute(FromC::from_c(target), number, pointer).is_err() {
            set(FromC::from_c(target), 0u32)?;
        }
    }
    Ok(())
}

/// The 32-bit version succeeds only where there is nothing to write.
pub fn address_range_32(
    base: Out<CUdeviceptr_v1>,
    size: Out<c_uint>,
    _dptr: CUdeviceptr_v1,
) -> Answer {
    if base.is_null() && size.is_null() {
        return Ok(());
    }
    memory::only_legacy()
}
