//! Process rows: who holds a device's memory. A process that uses both APIs is in both lists, with all its bytes.

use abi::nvml::*;
use mock_device::{Kind, ProcessUsage};

use crate::boundary::{Answer, Out, crash};
use crate::library;

#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Compute,
    Graphics,
}

fn belongs(process: &ProcessUsage, list: List) -> bool {
    let graphics = |kind: Kind| matches!(kind, Kind::Vulkan | Kind::VulkanDevice);
    Kind::ALL
        .iter()
        .any(|kind| process.of(*kind).0 > 0 && graphics(*kind) == (list == List::Graphics))
}

/// The figure that stands for "no instance" without MIG.
const NO_INSTANCE: u32 = u32::MAX;

fn rows(device: nvmlDevice_t, list: Option<List>) -> Result<Vec<nvmlProcessInfo_t>, nvmlReturn_t> {
    let world = library::ready()?;
    if device.0.is_null() {
        crash();
    }
    let index = library::device(device)?;
    let processes = world.processes(index);
    let wanted = processes
        .iter()
        .filter(|process| list.is_some_and(|list| belongs(process, list)));
    Ok(wanted
        .map(|process| nvmlProcessInfo_t {
            pid: process.pid,
            usedGpuMemory: process.total().0,
            gpuInstanceId: NO_INSTANCE,
            computeInstanceId: NO_INSTANCE,
        })
        .collect())
}

/// In: room in rows; out: how many there are. Too little room answers INSUFFICIENT_SIZE and writes no row.
fn give<T: Copy>(
    rows: &[nvmlProcessInfo_t],
    count: Out<c_uint>,
    infos: Out<T>,
    shape: fn(&nvmlProcessInfo_t) -> T,
) -> Answer {
    let count = count.required()?;
    let room = count.get() as usize;
    if room > 0 && infos.is_null() {
        return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT);
    }
    count.set(rows.len() as c_uint);
    if rows.len() > room {
        return Err(nvmlReturn_t::ERROR_INSUFFICIENT_SIZE);
    }
    if let Ok(infos) = infos.required() {
        for (at, row) in rows.iter().enumerate() {
            infos.nth(at).set(shape(row));
        }
    }
    Ok(())
}

fn v1(row: &nvmlProcessInfo_t) -> nvmlProcessInfo_v1_t {
    nvmlProcessInfo_v1_t {
        pid: row.pid,
        usedGpuMemory: row.usedGpuMemory,
    }
}

pub fn compute(device: nvmlDevice_t, count: Out<c_uint>, infos: Out<nvmlProcessInfo_t>) -> Answer {
    give(&rows(device, Some(List::Compute))?, count, infos, |row| {
        *row
    })
}

pub fn compute_v1(
    device: nvmlDevice_t,
    count: Out<c_uint>,
    infos: Out<nvmlProcessInfo_v1_t>,
) -> Answer {
    give(&rows(device, Some(List::Compute))?, count, infos, v1)
}

pub fn graphics(device: nvmlDevice_t, count: Out<c_uint>, infos: Out<nvmlProcessInfo_t>) -> Answer {
    give(&rows(device, Some(List::Graphics))?, count, infos, |row| {
        *row
    })
}

pub fn graphics_v1(
    device: nvmlDevice_t,
    count: Out<c_uint>,
    infos: Out<nvmlProcessInfo_v1_t>,
) -> Answer {
    give(&rows(device, Some(List::Graphics))?, count, infos, v1)
}

/// No MPS server runs here.
pub fn mps(device: nvmlDevice_t, count: Out<c_uint>, infos: Out<nvmlProcessInfo_t>) -> Answer {
    give(&rows(device, None)?, count, infos, |row| *row)
}

pub fn mps_v1(
    device: nvmlDevice_t,
    count: Out<c_uint>,
    infos: Out<nvmlProcessInfo_v1_t>,
) -> Answer {
    give(&rows(device, None)?, count, infos, v1)
}
