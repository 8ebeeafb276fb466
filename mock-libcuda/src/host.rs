//! Page-locked host memory. It takes nothing of the device.

use abi::cuda::*;

use crate::boundary::{Answer, Host, HostPages, Out};
use crate::driver;
use crate::process::Process;

pub struct HostAllocation {
    pages: HostPages,
    pub size: u64,
    pub flags: u32,
}

/// PORTABLE, DEVICEMAP, WRITECOMBINED.
const KNOWN_FLAGS: u32 = 7;

impl Process {
    /// Whether one page-locked allocation holds all of a range.
    pub fn host_holding(&self, address: u64, len: u64) -> bool {
        self.host_at(address).is_some_and(|(base, allocation)| {
            address
                .checked_add(len)
                .is_some_and(|end| end <= base + allocation.size)
        })
    }

    pub fn host_at(&self, address: u64) -> Option<(u64, &HostAllocation)> {
        let (&base, allocation) = self.host.range(..=address).next_back()?;
        (address < base + allocation.size).then_some((base, allocation))
    }
}

pub fn alloc(pp: Out<*mut c_void>, size: usize) -> Answer {
    alloc_with_flags(pp, size, 0)
}

pub fn alloc_with_flags(pp: Out<*mut c_void>, size: usize, flags: c_uint) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.current()?;
    let pp = pp.required()?;
    if size == 0 || flags & !KNOWN_FLAGS != 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let pages = HostPages::map(size).ok_or(CUresult::ERROR_OUT_OF_MEMORY)?;
    let base = pages.base();
    process.host.insert(
        base,
        HostAllocation {
            pages,
            size: size as u64,
            flags,
        },
    );
    pp.set(base as *mut c_void);
    Ok(())
}

pub fn free(pointer: Host) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    if pointer.0 == 0 {
        return Ok(());
    }
    let allocation = process
        .host
        .remove(&pointer.0)
        .ok_or(CUresult::ERROR_INVALID_VALUE)?;
    drop(allocation.pages);
    Ok(())
}

/// Unified addressing: the device sees page-locked memory at its host address.
pub fn device_pointer(pdptr: Out<CUdeviceptr>, pointer: Host, flags: c_uint) -> Answer {
    let process = driver::get()?.lock();
    process.current()?;
    let pdptr = pdptr.required()?;
    if flags != 0 || process.host_at(pointer.0).is_none() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    pdptr.set(pointer.0);
    Ok(())
}

pub fn flags(flags: Out<c_uint>, pointer: Host) -> Answer {
    let flags = flags.required()?;
    let process = driver::get()?.lock();
    let (_, allocation) = process
        .host_at(pointer.0)
        .ok_or(CUresult::ERROR_INVALID_VALUE)?;
    flags.set(allocation.flags);
    Ok(())
}
