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
    value.set(
        process
            .context(context)
            .limits
            .get(&limit)
            .copied()
            .unwrap_or(unset),
    );
    Ok(())
}

pub fn set(limit: CUlimit, value: usize) -> Answer {
    let mut process = driver::get()?.lock();
    let context = process.current()?;
    default(limit)?;
    process.context_mut(context).limits.insert(limit, value);
    Ok(())
}

/// CU_FUNC_CACHE_PREFER_*: a preference that no simulated device acts on.
const CACHE_CONFIGS: std::ops::RangeInclusive<c_int> = 0..=3;
/// CU_SHARED_MEM_CONFIG_*: bank sizes; devices since Maxwell have one.
const SHARED_CONFIGS: std::ops::RangeInclusive<c_int> = 0..=2;

fn answer_zero(out: Out<c_int>) -> Answer {
    let process = driver::get()?.lock();
    let out = out.required()?;
    process.current()?;
    out.set(0);
    Ok(())
}

fn accept(value: c_int, known: std::ops::RangeInclusive<c_int>) -> Answer {
    driver::get()?.lock().current()?;
    if known.contains(&value) {
        Ok(())
    } else {
        Err(CUresult::ERROR_INVALID_VALUE)
    }
}

pub fn get_cache_config(config: Out<c_int>) -> Answer {
    answer_zero(config)
}

pub fn set_cache_config(config: c_int) -> Answer {
    accept(config, CACHE_CONFIGS)
}

pub fn get_shared_config(config: Out<c_int>) -> Answer {
    answer_zero(config)
}

pub fn set_shared_config(config: c_int) -> Answer {
    accept(config, SHARED_CONFIGS)
}

/// No line of a simulated L2 persists.
pub fn reset_persisting_l2() -> Answer {
    driver::get()?.lock().current().map(|_| ())
}
