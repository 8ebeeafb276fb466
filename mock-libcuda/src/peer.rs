//! Access between devices' contexts. The simulated devices of a profile have no link to each other.

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::boundary::{Answer, In, Out};
use crate::driver;

fn peer_device(peer: CUcontext) -> Result<crate::driver::Ordinal, CUresult> {
    let process = driver::get()?.lock();
    process.current()?;
    if peer.is_null() {
        return Err(CUresult::ERROR_INVALID_CONTEXT);
    }
    let id = process.context_followed(peer)?;
    Ok(process.context(id).device)
}

pub fn enable(peer: CUcontext, flags: c_uint) -> Answer {
    peer_device(peer)?;
    if flags != 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    Err(CUresult::ERROR_PEER_ACCESS_UNSUPPORTED)
}

pub fn disable(peer: CUcontext) -> Answer {
    peer_device(peer)?;
    Err(CUresult::ERROR_PEER_ACCESS_NOT_ENABLED)
}

/// What atomics between host and device can do natively: nothing, over PCIe.
pub fn host_atomics(
    out: Out<c_uint>,
    operations: In<CUatomicOperation>,
    count: c_uint,
    dev: CUdevice,
) -> Answer {
    let out = out.required()?;
    if operations.is_null() || count == 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    driver::get()?.ordinal(dev)?;
    for at in 0..count as usize {
        out.nth(at).set(0);
    }
    Ok(())
}

/// Between devices, of which a pair must be two.
pub fn peer_atomics(
    out: Out<c_uint>,
    operations: In<CUatomicOperation>,
    count: c_uint,
    source: CUdevice,
    target: CUdevice,
) -> Answer {
    let driver = driver::get()?;
    let out = out.required()?;
    if operations.is_null() || count == 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    if driver.ordinal(source)? == driver.ordinal(target)? {
        return Err(CUresult::ERROR_INVALID_DEVICE);
    }
    for at in 0..count as usize {
        out.nth(at).set(0);
    }
    Ok(())
}

/// How many elements a texture of linear memory may have.
pub fn linear_texture_width(
    width: Out<usize>,
    format: CUarray_format,
    channels: c_uint,
    dev: CUdevice,
) -> Answer {
    const MOST: usize = 1 << 30;
    let driver = driver::get()?;
    let width = width.required()?;
    driver.ordinal(dev)?;
    let known = crate::shape::channel_bytes(format).is_some() && matches!(channels, 1 | 2 | 4);
    if !known {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    width.set(MOST);
    Ok(())
}
