//! cuCtxGetLimit and cuCtxSetLimit. The values are remembered; what a limit costs in device memory is not simulated.

use abi::cuda::*;

use crate::boundary::{Answer, Out};
use crate::driver;

/// Limit → the value that a fresh context has.
const DEFAULTS: &[(CUlimit, usize)] = &[
    (0, 1024),      // stack size per thread
    (1, 7_340_032), // printf buffer
    (2, 8_388_608), // device malloc heap
    (3, 2),         // device runtime synchronisation depth
    (4, 2048),      // pending device launches
    (5, 128),       // L2 fetch granularity
    (6, 0),         // persisting L2
];

fn default(limit: CUlimit) -> Result<usize, CUresult> {
    DEFAULTS
        .iter()
        .find(|(known, _)| *known == limit)
        .map(|(_, value)| *value)
        .ok_or(CUresult::ERROR_UNSUPPORTED_LIMIT)
}

pub fn get(value: Out<usize>, limit: CUlimit) -> Answer {
    let process = driver::get()?.lock();
    let value = value.required()?;
    let context = process.current()?;
    let unset = default(limit)?;
    value.set(process.context(context).limits.get(&limit).copied().unwrap_or(unset));
    Ok(())
}

pub fn set(limit: CUlimit, value: usize) -> Answer {
    let mut process = driver::get()?.lock();
    let context = process.current()?;
    default(limit)?;
    process.context_mut(context).limits.insert(limit, value);
    Ok(())
}
