//! What needs hardware, tools or daemons that a simulated device does not have: profiler, core dumps, execution affinity,
//! messages. Each answers as the card did.

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::boundary::{Answer, In, Out};
use crate::driver;

/// Profilers begin and end; nobody is told.
pub fn profiler_switch() -> Answer {
    driver::get().map(|_| ())
}

pub fn profiler_initialize(_: In<c_char>, _: In<c_char>, _: c_int) -> Answer {
    Err(CUresult::ERROR_NOT_SUPPORTED)
}

/// Only under MPS does a device give a context a part of itself.
pub fn affinity_support(supported: Out<c_int>, kind: CUexecAffinityType, dev: CUdevice) -> Answer {
    let driver = driver::get()?;
    let supported = supported.required()?;
    driver.ordinal(dev)?;
    if kind != 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    supported.set(0);
    Ok(())
}

/// No message was ever logged.
pub fn logs_current(at: Out<CUlogIterator>, flags: c_uint) -> Answer {
    let at = at.required()?;
    driver::get()?;
    if flags != 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    at.set(0);
    Ok(())
}

pub fn logs_dump(
    _at: Out<CUlogIterator>,
    buffer: Out<c_char>,
    size: Out<usize>,
    flags: c_uint,
) -> Answer {
    let (buffer, size) = (buffer.required()?, size.required()?);
    driver::get()?;
    if flags != 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    if size.get() > 0 {
        buffer.set(0);
    }
    size.set(0);
    Ok(())
}
