//! Copies. All are done when the call returns.

use abi::cuda::*;

use crate::boundary::{Answer, Host, copy_host};
use crate::driver::{self, Driver, Ordinal};
use crate::process::Process;

/// Where an address points.
pub enum Place {
    Device(Ordinal),
    Host,
}

impl Process {
    /// INVALID_VALUE for NULL and for device addresses that no live allocation holds.
    pub fn place(&self, address: u64, len: u64) -> Result<Place, CUresult> {
        match self.device_at(address) {
            Some(device)
                if self.holding(address, len).is_some()
                    || crate::graph_memory::holding(self, address, len).is_some() =>
            {
                Ok(Place::Device(device))
            }
            None if address != 0 => Ok(Place::Host),
            _ => Err(CUresult::ERROR_INVALID_VALUE),
        }
    }

    pub fn copy(&mut self, driver: &Driver, to: u64, from: u64, len: u64) -> Answer {
        match (self.place(to, len)?, self.place(from, len)?) {
            (Place::Host, Place::Host) => copy_host(to, from, len),
            (Place::Device(device), Place::Host) => {
                self.arena(driver, device)?.contents.write(to, from, len)
            }
            (Place::Host, Place::Device(device)) => {
                self.arena(driver, device)?.contents.read(from, to, len)
            }
            (Place::Device(target), Place::Device(source)) => {
                // In pieces through the host: two devices' contents are two maps.
                const PIECE: u64 = 1 << 20;
                let backwards = from < to && to < from + len;
                let mut piece = vec![0u8; PIECE.min(len) as usize];
                let between = piece.as_mut_ptr() as u64;
                let pieces = len.div_ceil(PIECE);
                for at in 0..pieces {
                    let at = if backwards { pieces - 1 - at } else { at } * PIECE;
                    let part = PIECE.min(len - at);
                    self.arena(driver, source)?
                        .contents
                        .read(from + at, between, part);
                    self.arena(driver, target)?
                        .contents
                        .write(to + at, between, part);
                }
            }
        }
        Ok(())
    }
}

fn copied(to: u64, from: u64, len: usize, stream: Option<CUstream>) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    match stream {
        Some(stream) => process.stream_context(stream)?,
        None => process.current()?,
    };
    if len == 0 {
        Ok(())
    } else {
        process.copy(driver, to, from, len as u64)
    }
}

pub fn any(to: CUdeviceptr, from: CUdeviceptr, len: usize) -> Answer {
    copied(to, from, len, None)
}

pub fn any_async(to: CUdeviceptr, from: CUdeviceptr, len: usize, stream: CUstream) -> Answer {
    copied(to, from, len, Some(stream))
}

pub fn host_to_device(to: CUdeviceptr, from: Host, len: usize) -> Answer {
    copied(to, from.0, len, None)
}

pub fn device_to_host(to: Host, from: CUdeviceptr, len: usize) -> Answer {
    copied(to.0, from, len, None)
}

pub fn device_to_device(to: CUdeviceptr, from: CUdeviceptr, len: usize) -> Answer {
    copied(to, from, len, None)
}

pub fn host_to_device_async(to: CUdeviceptr, from: Host, len: usize, stream: CUstream) -> Answer {
    copied(to, from.0, len, Some(stream))
}

pub fn device_to_host_async(to: Host, from: CUdeviceptr, len: usize, stream: CUstream) -> Answer {
    copied(to.0, from, len, Some(stream))
}

pub fn device_to_device_async(
    to: CUdeviceptr,
    from: CUdeviceptr,
    len: usize,
    stream: CUstream,
) -> Answer {
    copied(to, from, len, Some(stream))
}

/// Peer copies name their contexts; both must live. The addresses alone say where the memory is.
fn copied_between(
    to: u64,
    to_context: CUcontext,
    from: u64,
    from_context: CUcontext,
    len: usize,
) -> Answer {
    if len == 0 {
        return Ok(());
    }
    let process = driver::get()?.lock();
    process.context_of(to_context)?;
    process.context_of(from_context)?;
    drop(process);
    copied(to, from, len, None)
}

pub fn peer(
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    len: usize,
) -> Answer {
    driver::get()?.lock().current()?;
    copied_between(to, to_context, from, from_context, len)
}

pub fn peer_async(
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    len: usize,
    stream: CUstream,
) -> Answer {
    driver::get()?.lock().stream_context(stream)?;
    copied_between(to, to_context, from, from_context, len)
}
