//! CUDA arrays: device memory without an address, in whole blocks.

use abi::cuda::*;
use mock_device::{Bytes, Kind};

use crate::boundary::{Answer, Host, In, Out};
use crate::driver::{self, Driver};
use crate::handle;
use crate::process::{ContextId, Process};

pub struct Array {
    pub context: ContextId,
    taken: u64,
}

/// Bytes of one channel; `None` for a format that is none.
fn channel_bytes(format: c_int) -> Option<u64> {
    match format {
        1 | 8 => Some(1),
        2 | 9 | 16 => Some(2),
        3 | 10 | 32 => Some(4),
        _ => None,
    }
}

fn bytes(descriptor: &CUDA_ARRAY_DESCRIPTOR) -> Option<u64> {
    if descriptor.Width == 0 || !matches!(descriptor.NumChannels, 1 | 2 | 4) {
        return None;
    }
    let element = channel_bytes(descriptor.Format)? * u64::from(descriptor.NumChannels);
    (descriptor.Width as u64)
        .checked_mul(element)?
        .checked_mul(descriptor.Height.max(1) as u64)
}

pub fn create(array: Out<CUarray>, descriptor: In<CUDA_ARRAY_DESCRIPTOR>) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let context = process.current()?;
    let (array, descriptor) = (array.required()?, descriptor.required()?);
    let size = bytes(&descriptor).ok_or(CUresult::ERROR_INVALID_VALUE)?;
    let device = process.context(context).device;
    let taken = size
        .checked_next_multiple_of(driver.profile(device).block.0)
        .ok_or(CUresult::ERROR_OUT_OF_MEMORY)?;
    process.charge(driver, device, Kind::Array, taken)?;
    let id = process.next_handle();
    process.arrays.insert(id, Array { context, taken });
    array.set(CUarray(
        handle::encode(handle::Kind::Array, id) as *mut c_void
    ));
    Ok(())
}

pub fn destroy(array: CUarray) -> Answer {
    let driver = driver::get()?;
    let id = handle::decode(handle::Kind::Array, array.0 as u64)
        .ok_or(CUresult::ERROR_INVALID_HANDLE)?;
    let mut process = driver.lock();
    if process.destroy_array(driver, id) {
        Ok(())
    } else {
        Err(CUresult::ERROR_INVALID_HANDLE)
    }
}

impl Process {
    /// False where there is no such array.
    pub fn destroy_array(&mut self, driver: &Driver, id: u32) -> bool {
        let Some(array) = self.arrays.remove(&id) else {
            return false;
        };
        let device = self.context(array.context).device;
        driver
            .world
            .give_back(driver.index(device), Kind::Array, Bytes(array.taken));
        true
    }
}

/// Arrays count as memory but hold no data: a copy of nothing succeeds, any other is not supported.
fn copied(bytes: usize, stream: Option<CUstream>) -> Answer {
    let process = driver::get()?.lock();
    match stream {
        Some(stream) => process.stream_context(stream)?,
        None => process.current()?,
    };
    if bytes == 0 {
        Ok(())
    } else {
        Err(CUresult::ERROR_NOT_SUPPORTED)
    }
}

pub fn array_to_array(_: CUarray, _: usize, _: CUarray, _: usize, bytes: usize) -> Answer {
    copied(bytes, None)
}

pub fn array_to_device(_: CUdeviceptr, _: CUarray, _: usize, bytes: usize) -> Answer {
    copied(bytes, None)
}

pub fn device_to_array(_: CUarray, _: usize, _: CUdeviceptr, bytes: usize) -> Answer {
    copied(bytes, None)
}

pub fn array_to_host(_: Host, _: CUarray, _: usize, bytes: usize) -> Answer {
    copied(bytes, None)
}

pub fn array_to_host_async(
    _: Host,
    _: CUarray,
    _: usize,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    copied(bytes, Some(stream))
}

pub fn host_to_array(_: CUarray, _: usize, _: Host, bytes: usize) -> Answer {
    copied(bytes, None)
}

pub fn host_to_array_async(
    _: CUarray,
    _: usize,
    _: Host,
    bytes: usize,
    stream: CUstream,
) -> Answer {
    copied(bytes, Some(stream))
}

/// Texture and surface objects: none can be made yet, so that only 0 may be destroyed.
pub fn destroy_view(object: c_ulonglong) -> Answer {
    driver::get()?.lock().current()?;
    if object == 0 {
        Ok(())
    } else {
        Err(CUresult::ERROR_INVALID_VALUE)
    }
}
