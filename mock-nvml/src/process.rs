//! Process rows: who holds a device's memory. A process in both lists is there with all its bytes, each time.

use abi::nvml::*;
use mock_device::{DeviceIndex, Kind, ProcessUsage, World};

use crate::boundary::{Answer, Out, Slot};
use crate::library::{self, Subject};
use crate::mig;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum List {
    Compute,
    Graphics,
    /// No MPS server runs here.
    Mps,
}

/// The figure that stands for "no instance" without MIG.
const NO_INSTANCE: u32 = u32::MAX;

/// As an H200 lists them (`fixtures/oracle/nvml-rows-580.txt`): cuInit alone is nobody, a VkInstance draws, a VkDevice computes too.
fn belongs(process: &ProcessUsage, list: List) -> bool {
    let held = |kind: &Kind| process.lists(*kind) && process.of(*kind).0 > 0;
    let lists = |kind: &Kind| match kind {
        Kind::Unlisted => None,
        Kind::Vulkan | Kind::VulkanInstance => Some([List::Graphics; 2]),
        Kind::VulkanDevice => Some([List::Graphics, List::Compute]),
        _ => Some([List::Compute; 2]),
    };
    Kind::ALL
        .iter()
        .filter(|kind| held(kind))
        .filter_map(lists)
        .any(|lists| lists.contains(&list))
}

/// GPU and compute instance of the processes of a device. The world does not tell processes of a device apart by
/// instance: all of them run in the first, which is the only one that CUDA enumerates.
fn instance_ids(world: &'static World, index: DeviceIndex) -> (u32, u32) {
    let first = library::profile(world, index).mig.first();
    match first.and_then(|gpu| Some((gpu, gpu.compute.first()?))) {
        Some((gpu, compute)) => (gpu.id, compute.id),
        None => (NO_INSTANCE, NO_INSTANCE),
    }
}

/// The rows of one list, by PID. Of a MIG device: those of its instance.
pub fn rows(device: nvmlDevice_t, list: List) -> Result<Vec<nvmlProcessInfo_t>, nvmlReturn_t> {
    let world = library::ready()?;
    let subject = library::subject(device)?;
    let index = subject.device();
    let (gpu, compute) = instance_ids(world, index);
    if let Subject::Instance(instance) = subject {
        let (of_gpu, of_compute) = mig::parts(instance)?;
        if (of_gpu.id, of_compute.id) != (gpu, compute) {
            return Ok(Vec::new());
        }
    }
    let processes = world.seen(index);
    let wanted = processes
        .iter()
        .filter(|(_, process)| belongs(process, list));
    Ok(wanted
        .map(|(pid, process)| nvmlProcessInfo_t {
            pid: *pid,
            usedGpuMemory: process.listed().0,
            gpuInstanceId: gpu,
            computeInstanceId: compute,
        })
        .collect())
}

/// In: room in rows; out: how many there are. Too little room answers INSUFFICIENT_SIZE and writes no row.
pub fn give<T: Copy, R>(
    rows: &[R],
    count: &Slot<c_uint>,
    infos: Out<T>,
    shape: impl Fn(&R) -> T,
) -> Answer {
    let room = count.get() as usize;
    if room > 0 && infos.is_null() && !rows.is_empty() {
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

macro_rules! lists {
    ($($list:ident $new:ident $old:ident;)*) => { $(
        pub fn $new(device: nvmlDevice_t, count: Out<c_uint>, infos: Out<nvmlProcessInfo_t>) -> Answer {
            give(&rows(device, List::$list)?, &count.required()?, infos, |row| *row)
        }

        pub fn $old(device: nvmlDevice_t, count: Out<c_uint>, infos: Out<nvmlProcessInfo_v1_t>) -> Answer {
            give(&rows(device, List::$list)?, &count.required()?, infos, v1)
        }
    )* };
}
lists! {
    Compute compute compute_v1;
    Graphics graphics graphics_v1;
    Mps mps mps_v1;
}

/// Mode 0 compute, 1 graphics, 2 MPS.
pub fn detail_list(device: nvmlDevice_t, list: Out<nvmlProcessDetailList_v1_t>) -> Answer {
    const VERSION: c_uint = size_of::<nvmlProcessDetailList_v1_t>() as c_uint | 1 << 24;
    library::ready()?;
    library::subject(device)?;
    let slot = list.required()?;
    let mut asked = slot.get();
    if asked.version != VERSION {
        return Err(nvmlReturn_t::ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    let list = match asked.mode {
        0 => List::Compute,
        1 => List::Graphics,
        2 => List::Mps,
        _ => return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT),
    };
    let rows = rows(device, list)?;
    let room = asked.numProcArrayEntries as usize;
    asked.numProcArrayEntries = rows.len() as c_uint;
    slot.set(asked);
    if rows.len() > room {
        return Err(nvmlReturn_t::ERROR_INSUFFICIENT_SIZE);
    }
    let array = Out::at(asked.procArray);
    if let Ok(array) = array.required() {
        for (at, row) in rows.iter().enumerate() {
            array.nth(at).set(nvmlProcessDetail_v1_t {
                pid: row.pid,
                usedGpuMemory: row.usedGpuMemory,
                gpuInstanceId: row.gpuInstanceId,
                computeInstanceId: row.computeInstanceId,
                usedGpuCcProtectedMemory: 0,
            });
        }
    }
    Ok(())
}

/// A process's command line, its words ended by NUL; empty for a kernel thread.
fn command_line(pid: u32) -> Option<Vec<u8>> {
    std::fs::read(format!("/proc/{pid}/cmdline")).ok()
}

/// The first word of it.
pub fn command(pid: u32) -> Option<String> {
    let line = command_line(pid)?;
    let first = line.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(first).into_owned())
}

/// The whole command line, its words ended by NUL; what is longer than the room is cut, not refused.
pub fn name(pid: c_uint, name: Out<c_char>, length: c_uint) -> Answer {
    library::ready()?;
    let name = name.required()?;
    if length == 0 {
        return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT);
    }
    let line = command_line(pid).ok_or(nvmlReturn_t::ERROR_NOT_FOUND)?;
    if line.is_empty() {
        return Err(nvmlReturn_t::ERROR_NO_DATA);
    }
    let end = line.len().min(length as usize - 1);
    for (at, byte) in line[..end].iter().chain(&[0]).enumerate() {
        name.nth(at).set(*byte as c_char);
    }
    Ok(())
}
