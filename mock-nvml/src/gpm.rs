//! GPU performance monitoring: two samples, and what happened between them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use abi::nvml::*;
use mock_device::{DeviceIndex, Engine, Nanos};

use crate::boundary::{Answer, Out};
use crate::library;
use crate::traffic::{self, Span, Way};

/// Above what a process can map.
const SAMPLES: u64 = 0x00d4_0000_0000_0000;

/// Of which device and when; nothing before the first nvmlGpmSampleGet.
type Sample = Option<(DeviceIndex, Nanos)>;

#[derive(Default)]
struct Samples {
    made: u64,
    open: BTreeMap<u64, Sample>,
}

fn samples() -> MutexGuard<'static, Samples> {
    static SAMPLES: Mutex<Samples> = Mutex::new(Samples {
        made: 0,
        open: BTreeMap::new(),
    });
    SAMPLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Works before nvmlInit too.
pub fn alloc(sample: Out<nvmlGpmSample_t>) -> Answer {
    library::ready()?;
    let sample = sample.required()?;
    let mut samples = samples();
    samples.made += 1;
    let handle = SAMPLES | samples.made << 4;
    samples.open.insert(handle, None);
    sample.set(nvmlGpmSample_t(handle as *mut c_void));
    Ok(())
}

/// NULL is as good as any.
pub fn free(sample: nvmlGpmSample_t) -> Answer {
    library::ready()?;
    samples().open.remove(&(sample.0 as u64));
    Ok(())
}

pub fn get(device: nvmlDevice_t, sample: nvmlGpmSample_t) -> Answer {
    let world = library::ready()?;
    let device = library::device(device)?;
    let mut samples = samples();
    let slot = samples
        .open
        .get_mut(&(sample.0 as u64))
        .ok_or(nvmlReturn_t::ERROR_INVALID_ARGUMENT)?;
    *slot = Some((device, world.now()));
    Ok(())
}

pub fn metrics(metrics: Out<nvmlGpmMetricsGet_t>) -> Answer {
    const VERSION: c_uint = 1;
    let world = library::ready()?;
    let slot = metrics.required()?;
    let mut asked = slot.get();
    if asked.version != VERSION {
        return Err(nvmlReturn_t::ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    let of = |sample: nvmlGpmSample_t| samples().open.get(&(sample.0 as u64)).copied().flatten();
    let wrong = nvmlReturn_t::ERROR_INVALID_ARGUMENT;
    let (device, from) = of(asked.sample1).ok_or(wrong)?;
    let (other, to) = of(asked.sample2).ok_or(wrong)?;
    let count = asked.numMetrics as usize;
    if device != other || count > asked.metrics.len() {
        return Err(wrong);
    }
    let percent = |engine| {
        let length = to.0.saturating_sub(from.0).max(1);
        world.busy(device, engine, from, to).0 as f64 * 100.0 / length as f64
    };
    for metric in &mut asked.metrics[..count] {
        let value = match metric.metricId {
            GRAPHICS_UTIL | SM_UTIL => percent(Engine::Compute),
            DRAM_BW_UTIL => traffic::dram_percent(world, device, Span { from, to }),
            PCIE_TX => traffic::bus(world, device, Way::Out, Span { from, to }) / MIB,
            PCIE_RX => traffic::bus(world, device, Way::In, Span { from, to }) / MIB,
            // Occupancy, tensor and floating-point pipes, video engines, links: nothing is simulated that would use them.
            1..=19 | 30..=98 => 0.0,
            _ => {
                metric.nvmlReturn = wrong;
                continue;
            }
        };
        metric.nvmlReturn = nvmlReturn_t::SUCCESS;
        metric.value = value;
    }
    slot.set(asked);
    Ok(())
}

const GRAPHICS_UTIL: c_uint = 1;
const SM_UTIL: c_uint = 2;
const DRAM_BW_UTIL: c_uint = 10;
const PCIE_TX: c_uint = 20;
const PCIE_RX: c_uint = 21;
const MIB: f64 = 1_048_576.0;
