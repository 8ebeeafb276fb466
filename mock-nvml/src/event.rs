//! Event sets. The one event of a simulated machine is the loss of a device (XID 79); a wait for any other ends by its timeout.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use abi::nvml::*;
use mock_device::DeviceIndex;

use crate::boundary::{Answer, Out};
use crate::library;

/// Above what a process can map.
const SETS: u64 = 0x00d3_0000_0000_0000;
/// nvmlEventTypeXidCriticalError, and the XID of a device that fell off the bus.
const XID_CRITICAL_ERROR: u64 = 8;
const FELL_OFF_THE_BUS: u64 = 79;
/// How often a waiter looks again.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Sets {
    made: u64,
    /// Per set: the devices whose events it waits for.
    open: BTreeMap<u64, Vec<DeviceIndex>>,
}

fn sets() -> MutexGuard<'static, Sets> {
    static SETS: Mutex<Sets> = Mutex::new(Sets {
        made: 0,
        open: BTreeMap::new(),
    });
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn make() -> u64 {
    let mut sets = sets();
    sets.made += 1;
    let set = SETS | sets.made << 4;
    sets.open.insert(set, Vec::new());
    set
}

pub fn create(set: Out<nvmlEventSet_t>) -> Answer {
    library::ready()?;
    set.required()?.set(nvmlEventSet_t(make() as *mut c_void));
    Ok(())
}

pub fn free(set: nvmlEventSet_t) -> Answer {
    library::ready()?;
    let gone = sets().open.remove(&(set.0 as u64));
    gone.map(|_| ()).ok_or(nvmlReturn_t::ERROR_INVALID_ARGUMENT)
}

/// The types that driver 580 has names for: each may be registered, whether the card ever tells of it or not.
const KNOWN: u64 = 0xffff;

pub fn register(device: nvmlDevice_t, types: c_ulonglong, set: nvmlEventSet_t) -> Answer {
    library::ready()?;
    let device = library::device(device)?;
    let mut sets = sets();
    let waits_for = sets
        .open
        .get_mut(&(set.0 as u64))
        .ok_or(nvmlReturn_t::ERROR_INVALID_ARGUMENT)?;
    if types & !KNOWN != 0 {
        return Err(nvmlReturn_t::ERROR_NOT_SUPPORTED);
    }
    waits_for.push(device);
    Ok(())
}

/// A device of the set that is lost and was not told of.
fn lost(set: u64) -> Result<Option<DeviceIndex>, nvmlReturn_t> {
    let world = library::ready()?;
    let mut sets = sets();
    let waits_for = sets
        .open
        .get_mut(&set)
        .ok_or(nvmlReturn_t::ERROR_INVALID_ARGUMENT)?;
    let at = waits_for.iter().position(|device| world.lost(*device));
    Ok(at.map(|at| waits_for.swap_remove(at)))
}

/// Until a device is lost, or that many milliseconds.
pub fn wait(set: nvmlEventSet_t, data: Out<nvmlEventData_t>, timeout_ms: c_uint) -> Answer {
    library::ready()?;
    let slot = data.required()?;
    let began = Instant::now();
    let timeout = Duration::from_millis(timeout_ms.into());
    loop {
        if let Some(device) = lost(set.0 as u64)? {
            slot.set(nvmlEventData_t {
                device: library::handle(device),
                eventType: XID_CRITICAL_ERROR,
                eventData: FELL_OFF_THE_BUS,
                gpuInstanceId: u32::MAX,
                computeInstanceId: u32::MAX,
            });
            return Ok(());
        }
        let left = timeout.saturating_sub(began.elapsed());
        if left.is_zero() {
            // The one thing that a wait without an event writes.
            slot.set(nvmlEventData_t {
                eventData: 0,
                ..slot.get()
            });
            return Err(nvmlReturn_t::ERROR_TIMEOUT);
        }
        std::thread::sleep(left.min(LOOK));
    }
}

/// Events of the machine: a driver bound to a device or taken off it. Nothing here ever does either.
pub fn create_system(request: Out<nvmlSystemEventSetCreateRequest_v1_t>) -> Answer {
    library::ready()?;
    let slot = request.required()?;
    let mut request = slot.get();
    versioned::<nvmlSystemEventSetCreateRequest_v1_t>(request.version)?;
    request.set = nvmlSystemEventSet_t(make() as *mut c_void);
    slot.set(request);
    Ok(())
}

pub fn free_system(request: Out<nvmlSystemEventSetFreeRequest_v1_t>) -> Answer {
    library::ready()?;
    let request = request.required()?.get();
    versioned::<nvmlSystemEventSetFreeRequest_v1_t>(request.version)?;
    free(nvmlEventSet_t(request.set.0))
}

/// Any type but none at all.
pub fn register_system(request: Out<nvmlSystemRegisterEventRequest_v1_t>) -> Answer {
    library::ready()?;
    let request = request.required()?.get();
    versioned::<nvmlSystemRegisterEventRequest_v1_t>(request.version)?;
    if request.eventTypes == 0 || !sets().open.contains_key(&(request.set.0 as u64)) {
        return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT);
    }
    Ok(())
}

pub fn wait_system(request: Out<nvmlSystemEventSetWaitRequest_v1_t>) -> Answer {
    library::ready()?;
    let request = request.required()?.get();
    versioned::<nvmlSystemEventSetWaitRequest_v1_t>(request.version)?;
    if !sets().open.contains_key(&(request.set.0 as u64)) {
        return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT);
    }
    std::thread::sleep(Duration::from_millis(request.timeoutms.into()));
    Err(nvmlReturn_t::ERROR_TIMEOUT)
}

/// Version 1 of a structure.
fn versioned<T>(version: c_uint) -> Answer {
    if version == size_of::<T>() as c_uint | 1 << 24 {
        Ok(())
    } else {
        Err(nvmlReturn_t::ERROR_ARGUMENT_VERSION_MISMATCH)
    }
}
