//! What moves over a device's bus and through its memory, by the work on the world's engines: copies and memsets. Kernels
//! compute nothing here, so they read and write nothing.

use mock_device::{DeviceIndex, Nanos, Traffic, World};

use crate::boundary::{Word, WordValue};
use crate::entry::Entry;

/// NVML's counter of PCIe traffic is measured over 20 ms.
const PCIE_PERIOD: u64 = 20_000_000;
/// `NVML_PCIE_UTIL_TX_BYTES`, `NVML_PCIE_UTIL_RX_BYTES`: as the device sees it.
const FROM_DEVICE: u64 = 0;
const TO_DEVICE: u64 = 1;

/// A time span on the world's clock.
#[derive(Clone, Copy)]
pub struct Span {
    pub from: Nanos,
    pub to: Nanos,
}

impl Span {
    fn seconds(self) -> f64 {
        self.to.saturating_sub(self.from).0.max(1) as f64 / 1e9
    }
}

/// Which way over the bus.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    In,
    Out,
}

fn moved(world: &World, device: DeviceIndex, pid: Option<u32>, kind: Traffic, span: Span) -> Nanos {
    match pid {
        Some(pid) => world.moved_by(device, pid, kind, span.from, span.to),
        None => world.moved(device, kind, span.from, span.to),
    }
}

/// For how long the device's memory was read or written at least: what one engine moves it moves piece by piece, what
/// several move may be at the same time.
pub fn memory_busy(world: &World, device: DeviceIndex, pid: Option<u32>, span: Span) -> Nanos {
    const BY_ENGINE: [&[Traffic]; 3] = [
        &[
            Traffic::In,
            Traffic::InPageable,
            Traffic::Within,
            Traffic::Peer,
            Traffic::Staged,
        ],
        &[Traffic::Out, Traffic::OutPageable],
        &[Traffic::Fill],
    ];
    let sums = BY_ENGINE.map(|kinds| {
        let kinds = kinds.iter();
        kinds
            .map(|kind| moved(world, device, pid, *kind, span))
            .fold(Nanos::ZERO, |sum, part| sum + part)
    });
    sums.into_iter().max().unwrap_or_default()
}

fn bytes(world: &World, device: DeviceIndex, kind: Traffic, span: Span) -> f64 {
    let bandwidth = world.devices()[device.as_usize()].cost.bandwidth(kind);
    moved(world, device, None, kind, span).0 as f64 / 1e9 * bandwidth as f64
}

/// Bytes in a second over the bus.
pub fn bus(world: &World, device: DeviceIndex, way: Way, span: Span) -> f64 {
    let kinds = match way {
        Way::In => [Traffic::In, Traffic::InPageable],
        Way::Out => [Traffic::Out, Traffic::OutPageable],
    };
    let sum: f64 = kinds
        .map(|kind| bytes(world, device, kind, span))
        .iter()
        .sum();
    sum / span.seconds()
}

/// Of what the memory's clock and width allow, in percent; 0 for a profile that does not say.
pub fn dram_percent(world: &World, device: DeviceIndex, span: Span) -> f64 {
    let Some(most) = world.devices()[device.as_usize()].dram_bandwidth() else {
        return 0.0;
    };
    let sum: f64 = Traffic::ALL
        .map(|kind| {
            // A copy within the device reads and writes.
            let times = if kind == Traffic::Within { 2.0 } else { 1.0 };
            times * bytes(world, device, kind, span)
        })
        .iter()
        .sum();
    (sum / span.seconds() * 100.0 / most as f64).min(100.0)
}

/// What nvmlDeviceGetPcieThroughput answers beyond the idle card's figure, in KB/s; `None` for every other entry point.
pub fn more_than_idle(
    world: &World,
    device: DeviceIndex,
    entry: Entry,
    words: &[Word],
) -> Option<i64> {
    if entry.name() != "nvmlDeviceGetPcieThroughput" {
        return None;
    }
    let way = words.iter().find_map(|word| match word.value {
        WordValue::Number(number) => match number as u64 {
            FROM_DEVICE => Some(Way::Out),
            TO_DEVICE => Some(Way::In),
            _ => None,
        },
        _ => None,
    })?;
    let to = world.now();
    let from = to.saturating_sub(Nanos(PCIE_PERIOD));
    Some((bus(world, device, way, Span { from, to }) / 1000.0) as i64)
}
