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
    // The kind is not looked at.
    let _ = kind;
    supported.set(0);
    Ok(())
}

/// A context has all of its device; the kind that was asked for is told again, known or not.
pub fn affinity(param: Out<CUexecAffinityParam>, kind: CUexecAffinityType) -> Answer {
    const SM_COUNT: CUexecAffinityType = 0;
    let driver = driver::get()?;
    let process = driver.lock();
    let context = process.current()?;
    let words = param.cast::<c_uint>().required()?;
    words.set(kind.cast_unsigned());
    if kind != SM_COUNT {
        return Err(CUresult::ERROR_UNSUPPORTED_EXEC_AFFINITY);
    }
    let device = process.context(context).device;
    words.nth(1).set(driver.profile(device).sm_count);
    Ok(())
}

/// Devices have such identifiers on Windows alone.
pub fn luid(luid: Out<c_char>, node: Out<c_uint>, dev: CUdevice) -> Answer {
    let driver = driver::get()?;
    let _ = (luid.required()?, node.required()?);
    driver.ordinal(dev)?;
    Err(CUresult::ERROR_NOT_SUPPORTED)
}

/// NvSci is there on Tegra and DRIVE alone.
pub fn sync_attributes(attributes: Out<c_void>, dev: CUdevice, flags: c_int) -> Answer {
    const SIGNAL_AND_WAIT: std::ops::RangeInclusive<c_int> = 1..=3;
    let driver = driver::get()?;
    if attributes.is_null() {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    driver.ordinal(dev)?;
    match SIGNAL_AND_WAIT.contains(&flags) {
        true => Err(CUresult::ERROR_NOT_SUPPORTED),
        false => Err(CUresult::ERROR_INVALID_VALUE),
    }
}

/// Nothing writes past the simulated device's back.
pub fn flush_writes(
    target: CUflushGPUDirectRDMAWritesTarget,
    scope: CUflushGPUDirectRDMAWritesScope,
) -> Answer {
    const CURRENT_CONTEXT: CUflushGPUDirectRDMAWritesTarget = 0;
    const SCOPES: [CUflushGPUDirectRDMAWritesScope; 2] = [100, 200];
    driver::get()?.lock().current()?;
    match target == CURRENT_CONTEXT && SCOPES.contains(&scope) {
        true => Ok(()),
        false => Err(CUresult::ERROR_INVALID_VALUE),
    }
}

/// Tensor maps are what kernels read, which compute nothing here.
#[expect(clippy::too_many_arguments, reason = "the C signature")]
pub fn encode_tiled(
    map: Out<CUtensorMap>,
    _kind: CUtensorMapDataType,
    _rank: c_uint,
    _address: Out<c_void>,
    _sizes: In<cuuint64_t>,
    _strides: In<cuuint64_t>,
    _box_sizes: In<c_uint>,
    _element_strides: In<c_uint>,
    _interleave: CUtensorMapInterleave,
    _swizzle: CUtensorMapSwizzle,
    _promotion: CUtensorMapL2promotion,
    _fill: CUtensorMapFloatOOBfill,
) -> Answer {
    driver::get()?.lock().current()?;
    map.required()?;
    Err(CUresult::ERROR_NOT_SUPPORTED)
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
