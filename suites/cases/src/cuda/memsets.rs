//! Memsets under a compute budget: a card does them by kernels, and so they are held to it as launches are.

use abi::cuda::CUresult;
use harness::{Failure, cases, ensure, ensure_eq, fail};

use super::launches::{BUDGET, LEAST, SHORT, SIMULATED, busy, margin, unbudgeted};
use crate::clients::cuda_without_context;
use crate::ffi::cuda::Cuda;
use crate::ffi::cuda::memset::{Area, MEMSETS, Memset};
use crate::tenant::Tenant;

cases! {
    /// By every way to set device memory, a tenant has work on the device for no more of the time than its budget says.
    every_memset_is_held_to_the_compute_budget {
        kind: Budget, defects: ["T1", "T2"],
        entry_points: [
            "cuMemsetD8_v2", "cuMemsetD8_v2_ptds", "cuMemsetD8", "cuMemsetD8Async", "cuMemsetD8Async_ptsz",
            "cuMemsetD16_v2", "cuMemsetD16_v2_ptds", "cuMemsetD16", "cuMemsetD16Async", "cuMemsetD16Async_ptsz",
            "cuMemsetD32_v2", "cuMemsetD32_v2_ptds", "cuMemsetD32", "cuMemsetD32Async", "cuMemsetD32Async_ptsz",
            "cuMemsetD2D8_v2", "cuMemsetD2D8_v2_ptds", "cuMemsetD2D8", "cuMemsetD2D8Async", "cuMemsetD2D8Async_ptsz",
            "cuMemsetD2D16_v2", "cuMemsetD2D16_v2_ptds", "cuMemsetD2D16", "cuMemsetD2D16Async", "cuMemsetD2D16Async_ptsz",
            "cuMemsetD2D32_v2", "cuMemsetD2D32_v2_ptds", "cuMemsetD2D32", "cuMemsetD2D32Async", "cuMemsetD2D32Async_ptsz",
        ],
        env: [("CUDA_DEVICE_SM_LIMIT", "30")],
        unordered: "how much is done depends on the time", seconds: 180, on_real: SIMULATED,
    } (session) {
        let mut free = unbudgeted(session)?;
        let mut held = Tenant::start(session)?;
        let mut left = MEMSETS.len();
        for memset in MEMSETS {
            let name = memset.name;
            let unit = free.ask(&format!("time-memset {name}"))?;
            if unit < 0 {
                left -= 1;
                continue;
            }
            ensure!(unit > 10_000, "{name} takes {unit} ns");
            let share = held.ask(&format!("work-memset {name} {SHORT} 16 {unit}"))? as f64 / 100.0;
            ensure!(share <= BUDGET + margin(SHORT), "{name}: {share} % of the time, of {BUDGET}");
            ensure!(share >= LEAST, "{name}: {share} % of the time, of {BUDGET}");
        }
        ensure!(left > 0, "the driver sets no memory");
        Ok(())
    }

    /// What is captured becomes a graph of just what the program set.
    a_captured_memset_is_written_down_as_it_is {
        kind: Neutral, defects: ["T1"], entry_points: ["cuMemsetD8Async"], env: [("CUDA_DEVICE_SM_LIMIT", "30")],
        unordered: "how much is done depends on the time", on_real: SIMULATED,
    } (session) {
        let nodes = Tenant::start(session)?.ask("captured-memsets 64")?;
        ensure_eq!(nodes, 64, "nodes of a graph of captured memsets");
        Ok(())
    }
}

/// `NAME`: nanoseconds that one call takes; negative where the driver lacks it.
pub fn time(name: &str) -> Result<i64, Failure> {
    let cuda = &cuda_without_context()?;
    let Some(memset) = Memset::named(name) else {
        fail!("no memset is called {name}")
    };
    if cuda.library.address(name).is_none() {
        return Ok(-1);
    }
    let area = area(cuda, memset)?;
    let time = cuda.time_memset(&area, memset);
    ensure_eq!(time.code, CUresult::SUCCESS, "{name}");
    ensure_eq!(cuda.leave(area), CUresult::SUCCESS, "giving back");
    Ok(time.out as i64)
}

/// `NAME MILLISECONDS DEPTH UNIT`: as [`launches::work`](super::launches::work).
pub fn work(object: &str) -> Result<i64, Failure> {
    let cuda = &cuda_without_context()?;
    let (name, numbers) = object.split_once(' ').unwrap_or((object, ""));
    let numbers: Vec<u64> = numbers
        .split(' ')
        .filter_map(|number| number.parse().ok())
        .collect();
    let (Some(memset), [milliseconds, depth, unit]) = (Memset::named(name), numbers.as_slice())
    else {
        fail!("\"work-memset {object}\" is not NAME MILLISECONDS DEPTH UNIT")
    };
    let area = area(cuda, memset)?;
    let share = busy(cuda, [*milliseconds, *depth, *unit], || {
        ensure_eq!(cuda.set_memory(&area, memset), CUresult::SUCCESS, "{name}");
        Ok(())
    })?;
    ensure_eq!(cuda.leave(area), CUresult::SUCCESS, "giving back");
    Ok(share)
}

/// `CALLS`: nodes of the graph that so many captured calls became.
pub fn captured(calls: &str) -> Result<i64, Failure> {
    let cuda = &cuda_without_context()?;
    let (Some(memset), Ok(calls)) = (Memset::named("cuMemsetD8Async"), calls.parse()) else {
        fail!("\"captured-memsets {calls}\" is not CALLS")
    };
    let area = area(cuda, memset)?;
    let nodes = cuda.captured_memsets(&area, calls);
    ensure_eq!(nodes.code, CUresult::SUCCESS, "captured memsets");
    ensure_eq!(cuda.leave(area), CUresult::SUCCESS, "giving back");
    Ok(nodes.out as i64)
}

fn area(cuda: &Cuda, memset: &Memset) -> Result<Area, Failure> {
    cuda.area(memset)
        .map_err(|code| Failure::Broken(format!("memory for {}: {code:?}", memset.name)))
}
