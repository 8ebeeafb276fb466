//! How busy a device is, and through whom: the world's busy time, in the samples that the driver keeps. It samples five times
//! a second and remembers 72 samples; the world remembers two seconds, so that older ones are idle here.

use std::time::{SystemTime, UNIX_EPOCH};

use abi::nvml::*;
use mock_device::nvml::Answer as Data;
use mock_device::{DeviceIndex, Engine, Nanos, World};

use crate::boundary::{Answer, Out};
use crate::library;
use crate::traffic::{self, Span};

/// Between two samples.
const PERIOD: u64 = 200_000_000;
/// Samples that the driver remembers, and that it gives at once.
const BUFFER: u32 = 72;
const GIVEN: usize = 71;
/// Power is sampled every 20 ms.
const POWER_PERIOD: u64 = 20_000_000;
const POWER_BUFFER: u32 = 120;
/// As far as the world's memory reaches, in samples.
const REMEMBERED: u64 = 10;
/// `NVML_VALUE_TYPE_UNSIGNED_INT`.
const UNSIGNED: c_int = 1;

fn percent(busy: Nanos, of: u64) -> u32 {
    ((busy.0 * 100 + of / 2) / of).min(100) as u32
}

/// The compute engine, and memory being read or written, in percent of one sample that ended `back` samples ago.
fn sample(world: &World, device: DeviceIndex, pid: Option<u32>, back: u64) -> (u32, u32) {
    if back >= REMEMBERED {
        return (0, 0);
    }
    let end = (world.now().0 / PERIOD).saturating_sub(back) * PERIOD;
    span(world, device, pid, end.saturating_sub(PERIOD), end)
}

fn span(world: &World, device: DeviceIndex, pid: Option<u32>, from: u64, to: u64) -> (u32, u32) {
    let length = (to - from).max(1);
    let (from, to) = (Nanos(from), Nanos(to));
    let compute = match pid {
        Some(pid) => world.busy_by(device, pid, Engine::Compute, from, to),
        None => world.busy(device, Engine::Compute, from, to),
    };
    let memory = traffic::memory_busy(world, device, pid, Span { from, to });
    (percent(compute, length), percent(memory, length))
}

/// Of the last sample that is over.
pub fn now(world: &World, device: DeviceIndex) -> (u32, u32) {
    sample(world, device, None, 0)
}

/// Microseconds since 1970, of a time on the world's clock.
fn stamp(world: &World, at: u64) -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as u64);
    since - (world.now().0.saturating_sub(at)) / 1000
}

pub fn rates(device: nvmlDevice_t, utilization: Out<nvmlUtilization_t>) -> Answer {
    let world = library::ready()?;
    let device = library::device(device)?;
    let utilization = utilization.required()?;
    if !library::profile(world, device).mig.is_empty() {
        return Err(nvmlReturn_t::ERROR_NOT_SUPPORTED);
    }
    let (gpu, memory) = now(world, device);
    utilization.set(nvmlUtilization_t { gpu, memory });
    Ok(())
}

/// One row per process that used the device since then, over the time that the world remembers.
fn users(world: &World, device: DeviceIndex, since: u64) -> Vec<nvmlProcessUtilizationInfo_v1_t> {
    let end = world.now().0 / PERIOD * PERIOD;
    let from = end.saturating_sub(PERIOD * (REMEMBERED - 1));
    let at = stamp(world, end);
    if at <= since {
        return Vec::new();
    }
    let rows = world.seen(device).into_iter().filter_map(|(pid, process)| {
        let (sm, memory) = span(world, device, Some(process.pid), from, end);
        (sm > 0 || memory > 0).then_some(nvmlProcessUtilizationInfo_v1_t {
            timeStamp: at,
            pid,
            smUtil: sm,
            memUtil: memory,
            encUtil: 0,
            decUtil: 0,
            jpgUtil: 0,
            ofaUtil: 0,
        })
    });
    rows.collect()
}

/// Room for fewer samples than the driver remembers is refused with their number; nobody at work answers NOT_FOUND.
pub fn processes(
    device: nvmlDevice_t,
    rows: Out<nvmlProcessUtilizationSample_t>,
    count: Out<c_uint>,
    since: c_ulonglong,
) -> Answer {
    let world = library::ready()?;
    let device = library::device(device)?;
    let count = count.required()?;
    if count.get() < BUFFER {
        count.set(BUFFER);
        return Err(nvmlReturn_t::ERROR_INSUFFICIENT_SIZE);
    }
    let rows = rows.required()?;
    let users = users(world, device, since);
    if users.is_empty() {
        return Err(nvmlReturn_t::ERROR_NOT_FOUND);
    }
    count.set(users.len() as c_uint);
    for (at, user) in users.iter().enumerate() {
        rows.nth(at).set(nvmlProcessUtilizationSample_t {
            pid: user.pid,
            timeStamp: user.timeStamp,
            smUtil: user.smUtil,
            memUtil: user.memUtil,
            encUtil: 0,
            decUtil: 0,
        });
    }
    Ok(())
}

pub fn processes_info(
    device: nvmlDevice_t,
    info: Out<nvmlProcessesUtilizationInfo_v1_t>,
) -> Answer {
    const VERSION: c_uint = size_of::<nvmlProcessesUtilizationInfo_v1_t>() as c_uint | 1 << 24;
    let world = library::ready()?;
    let device = library::device(device)?;
    let slot = info.required()?;
    let mut info = slot.get();
    if info.version != VERSION {
        return Err(nvmlReturn_t::ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    let room = info.processSamplesCount;
    let array = Out::at(info.procUtilArray);
    if room < BUFFER || array.is_null() {
        info.processSamplesCount = BUFFER;
        slot.set(info);
        return Err(nvmlReturn_t::ERROR_INSUFFICIENT_SIZE);
    }
    let users = users(world, device, info.lastSeenTimeStamp);
    if users.is_empty() {
        return Err(nvmlReturn_t::ERROR_NOT_FOUND);
    }
    info.processSamplesCount = users.len() as c_uint;
    slot.set(info);
    let array = array.required()?;
    for (at, user) in users.iter().enumerate() {
        array.nth(at).set(*user);
    }
    Ok(())
}

/// Power (0), GPU (1), memory (2) and the engines that nothing here uses; clocks (5, 6) have no samples.
pub fn samples(
    device: nvmlDevice_t,
    kind: c_int,
    since: c_ulonglong,
    value_type: Out<c_int>,
    count: Out<c_uint>,
    samples: Out<nvmlSample_t>,
) -> Answer {
    let world = library::ready()?;
    let device = library::device(device)?;
    let (value_type, count) = (value_type.required()?, count.required()?);
    let (buffer, period) = match kind {
        0 => (POWER_BUFFER, POWER_PERIOD),
        5 | 6 => (100, PERIOD),
        1..=4 | 8 | 9 => (BUFFER, PERIOD),
        _ => return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT),
    };
    value_type.set(UNSIGNED);
    let Ok(samples) = samples.required() else {
        count.set(buffer);
        return Ok(());
    };
    if matches!(kind, 5 | 6) {
        return Err(nvmlReturn_t::ERROR_NOT_FOUND);
    }
    let power = usage(world, device);
    let last = world.now().0 / period;
    let room = (count.get() as usize).min(buffer as usize - 1);
    let mut given = 0;
    for back in (0..GIVEN.min(room) as u64).rev() {
        let at = stamp(world, last.saturating_sub(back) * period);
        if at <= since {
            continue;
        }
        let value = match kind {
            0 => power,
            1 => sample(world, device, None, back).0,
            2 => sample(world, device, None, back).1,
            _ => 0,
        };
        samples.nth(given).set(nvmlSample_t {
            timeStamp: at,
            sampleValue: nvmlValue_t {
                ullVal: value.into(),
            },
        });
        given += 1;
    }
    count.set(given as c_uint);
    if given == 0 {
        return Err(nvmlReturn_t::ERROR_NOT_FOUND);
    }
    Ok(())
}

/// The figure of a table's entry, 0 without one.
fn figure(world: &'static World, device: DeviceIndex, entry: &str) -> i64 {
    match library::answers(world, device).get(entry) {
        Some(Data::Number(figure)) => *figure,
        _ => 0,
    }
}

/// Milliwatts of the table: what an idle device takes, and what full load adds, two thirds of the rest up to the limit.
fn wattage(world: &'static World, device: DeviceIndex) -> (u64, u64) {
    let idle = figure(world, device, "nvmlDeviceGetPowerUsage").max(0) as u64;
    let limit = figure(world, device, "nvmlDeviceGetEnforcedPowerLimit").max(0) as u64;
    (idle, limit.saturating_sub(idle) * 2 / 3)
}

/// Milliwatts, as busy as the device was in the last sample.
pub fn usage(world: &'static World, device: DeviceIndex) -> u32 {
    let (idle, load) = wattage(world, device);
    let (busy, _) = now(world, device);
    (idle + load * u64::from(busy) / 100) as u32
}

pub fn power(device: nvmlDevice_t, power: Out<c_uint>) -> Answer {
    let world = library::ready()?;
    let device = library::device(device)?;
    let power = power.required()?;
    match usage(world, device) {
        0 => Err(crate::recorded::refusal(
            world,
            device,
            "nvmlDeviceGetPowerUsage",
        )),
        milliwatts => {
            power.set(milliwatts);
            Ok(())
        }
    }
}

/// Millijoules: the power integrated, idle since the machine started, and its load since the world did.
pub fn joules(world: &'static World, device: DeviceIndex) -> u64 {
    let (idle, load) = wattage(world, device);
    let of = |milliwatts: u64, time: Nanos| {
        (u128::from(milliwatts) * u128::from(time.0) / 1_000_000_000) as u64
    };
    of(idle, world.now()) + of(load, world.worked(device))
}

pub fn energy(device: nvmlDevice_t, energy: Out<c_ulonglong>) -> Answer {
    let world = library::ready()?;
    let device = library::device(device)?;
    energy.required()?.set(joules(world, device));
    Ok(())
}

/// Since when, and for how long, in microseconds and nanoseconds: nothing here ever throttles.
pub fn violation(device: nvmlDevice_t, policy: c_int, time: Out<nvmlViolationTime_t>) -> Answer {
    let world = library::ready()?;
    let device = library::device(device)?;
    let time = time.required()?;
    if library::answers(world, device)
        .get("nvmlDeviceGetViolationStatus")
        .is_none()
    {
        return Err(nvmlReturn_t::ERROR_NOT_SUPPORTED);
    }
    if !matches!(policy, 0..=5 | 10 | 11) {
        return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT);
    }
    time.set(nvmlViolationTime_t {
        referenceTime: stamp(world, world.now().0),
        violationTime: 0,
    });
    Ok(())
}

pub fn dynamic_pstates(device: nvmlDevice_t, info: Out<nvmlGpuDynamicPstatesInfo_t>) -> Answer {
    let world = library::ready()?;
    let device = library::device(device)?;
    let slot = info.required()?;
    let (gpu, memory) = now(world, device);
    let mut info = nvmlGpuDynamicPstatesInfo_t::zeroed();
    for (domain, percentage) in [gpu, memory, 0, 0].into_iter().enumerate() {
        info.utilization[domain].bIsPresent = 1;
        info.utilization[domain].percentage = percentage;
    }
    slot.set(info);
    Ok(())
}
