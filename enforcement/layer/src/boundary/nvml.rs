//! NVML, where it is there: the container's GPUs in their order, and what each process holds.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use budget::identity::{Candidate, Pci};
use budget::{Bytes, DeviceIndex};
use throttle::Told;

use crate::candidates::parse_uuid;

type Device = *mut c_void;

/// The beginning of nvmlPciInfo_t, alike in all its versions; room for the longest.
#[repr(C)]
#[derive(Default)]
struct PciInfo {
    legacy_bus_id: [u8; 16],
    domain: u32,
    bus: u32,
    device: u32,
    rest: [u32; 16],
}

/// nvmlProcessInfo_t of the `_v2` and `_v3` queries.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ProcessInfo {
    pid: u32,
    used: u64,
    instances: [u32; 2],
}

/// nvmlMemory_t.
#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// nvmlSample_t, of a figure that is an unsigned int.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Sample {
    time: u64,
    value: u32,
    rest: u32,
}

type SampleQuery =
    unsafe extern "C" fn(Device, c_int, u64, *mut c_int, *mut u32, *mut Sample) -> c_int;
type ProcessQuery = unsafe extern "C" fn(Device, *mut u32, *mut ProcessInfo) -> c_int;

const SUCCESS: c_int = 0;
const INSUFFICIENT_SIZE: c_int = 7;
const NOT_FOUND: c_int = 6;
/// NVML_GPU_UTILIZATION_SAMPLES.
const GPU_UTILIZATION: c_int = 1;
/// More samples than NVML keeps (an H200: 71).
const SAMPLES: usize = 128;
const NOT_AVAILABLE: u64 = u64::MAX;
const MAX_PROCESSES: u32 = 1 << 16;

struct Nvml {
    count: unsafe extern "C" fn(*mut u32) -> c_int,
    by_index: unsafe extern "C" fn(u32, *mut Device) -> c_int,
    uuid: unsafe extern "C" fn(Device, *mut c_char, u32) -> c_int,
    pci: unsafe extern "C" fn(Device, *mut PciInfo) -> c_int,
    mig_mode: Option<unsafe extern "C" fn(Device, *mut u32, *mut u32) -> c_int>,
    mig_device: Option<unsafe extern "C" fn(Device, u32, *mut Device) -> c_int>,
    memory: Option<unsafe extern "C" fn(Device, *mut Memory) -> c_int>,
    samples: Option<SampleQuery>,
    processes: [Option<ProcessQuery>; 2],
}

/// Opened and initialised once; never shut down, which only our own count of NVML's users would notice.
fn nvml() -> Option<&'static Nvml> {
    static NVML: OnceLock<Option<Nvml>> = OnceLock::new();
    NVML.get_or_init(open).as_ref()
}

macro_rules! symbol {
    ($library:expr, $($name:literal)|+ => $function:ty) => {{
        let found = std::ptr::null_mut::<c_void>();
        $(let found = if found.is_null() { libc::dlsym($library, $name.as_ptr()) } else { found };)+
        std::mem::transmute::<*mut c_void, Option<$function>>(found)
    }};
}

fn open() -> Option<Nvml> {
    // SAFETY: each symbol is called as nvml.h declares it, the versions of one symbol differing only past what is read.
    unsafe {
        let library = libc::dlopen(
            c"libnvidia-ml.so.1".as_ptr(),
            libc::RTLD_LAZY | libc::RTLD_LOCAL,
        );
        if library.is_null() {
            return None;
        }
        let init =
            symbol!(library, c"nvmlInit_v2" | c"nvmlInit" => unsafe extern "C" fn() -> c_int)?;
        let nvml = Nvml {
            count: symbol!(library, c"nvmlDeviceGetCount_v2" | c"nvmlDeviceGetCount" => unsafe extern "C" fn(*mut u32) -> c_int)?,
            by_index: symbol!(library, c"nvmlDeviceGetHandleByIndex_v2" | c"nvmlDeviceGetHandleByIndex" => unsafe extern "C" fn(u32, *mut Device) -> c_int)?,
            uuid: symbol!(library, c"nvmlDeviceGetUUID" => unsafe extern "C" fn(Device, *mut c_char, u32) -> c_int)?,
            pci: symbol!(library, c"nvmlDeviceGetPciInfo_v3" | c"nvmlDeviceGetPciInfo_v2" => unsafe extern "C" fn(Device, *mut PciInfo) -> c_int)?,
            mig_mode: symbol!(library, c"nvmlDeviceGetMigMode" => unsafe extern "C" fn(Device, *mut u32, *mut u32) -> c_int),
            mig_device: symbol!(library, c"nvmlDeviceGetMigDeviceHandleByIndex" => unsafe extern "C" fn(Device, u32, *mut Device) -> c_int),
            memory: symbol!(library, c"nvmlDeviceGetMemoryInfo" => unsafe extern "C" fn(Device, *mut Memory) -> c_int),
            samples: symbol!(library, c"nvmlDeviceGetSamples" => SampleQuery),
            processes: [
                symbol!(library, c"nvmlDeviceGetComputeRunningProcesses_v3" | c"nvmlDeviceGetComputeRunningProcesses_v2" => ProcessQuery),
                symbol!(library, c"nvmlDeviceGetGraphicsRunningProcesses_v3" | c"nvmlDeviceGetGraphicsRunningProcesses_v2" => ProcessQuery),
            ],
        };
        (init() == SUCCESS).then_some(nvml)
    }
}

/// The container's GPUs. `None` without NVML, or if it does not know one of them.
pub fn candidates() -> Option<Vec<Candidate>> {
    let nvml = nvml()?;
    let mut count = 0;
    // SAFETY: NVML is initialised.
    if unsafe { (nvml.count)(&mut count) } != SUCCESS {
        return None;
    }
    (0..count)
        .map(|index| nvml.candidate(DeviceIndex(index)))
        .collect()
}

/// NVML's process lists as one process reads them.
#[derive(Clone, Copy, Default)]
pub struct Own {
    /// They were read.
    pub told: bool,
    /// What this process holds, by its largest row. `None` where there is no row of ours, as across PID namespaces before 580.
    pub row: Option<Bytes>,
    /// No other process has a row.
    pub alone: bool,
}

pub fn own(device: DeviceIndex) -> Own {
    let Some(rows) = nvml().and_then(|nvml| nvml.rows(device)) else {
        return Own::default();
    };
    let own = std::process::id();
    Own {
        told: true,
        row: rows.of(own),
        alone: rows.all().all(|row| row.pid == own),
    }
}

/// NVML's rows of a device at one moment: of processes that compute, and of those that draw.
pub struct Listed([Vec<ProcessInfo>; 2]);

pub fn listed(device: DeviceIndex) -> Option<Listed> {
    nvml()?.rows(device)
}

impl Listed {
    /// Who has a row.
    pub fn pids(&self) -> Vec<u32> {
        self.all().map(|row| row.pid).collect()
    }

    fn all(&self) -> impl Iterator<Item = &ProcessInfo> {
        self.0.iter().flatten()
    }

    /// What a process holds; `None` where it has no row, or NVML does not say how much. Of two in one list one is the image's before execve, which a child keeps
    /// (R127 of `fixtures/defects.txt`); who computes and draws has a row in both lists, each with all that it holds.
    pub fn of(&self, pid: u32) -> Option<Bytes> {
        let sum = |rows: &Vec<ProcessInfo>| {
            let rows = rows.iter().filter(|row| row.pid == pid);
            let told = rows.filter(|row| row.used != NOT_AVAILABLE);
            told.map(|row| Bytes(row.used))
                .reduce(Bytes::saturating_add)
        };
        self.0.iter().filter_map(sum).max()
    }
}

/// How busy a device was, through whomever, by NVML's figures after the one of that time, in nanoseconds; `None` where it does not tell.
pub fn told(device: DeviceIndex, since: u64) -> Option<Told> {
    let nvml = nvml()?;
    let (handle, query) = (nvml.device(device)?, nvml.samples?);
    let mut samples = [Sample::default(); SAMPLES];
    let (mut kind, mut count) = (0, SAMPLES as u32);
    // SAFETY: the handle is NVML's, the array has as many samples as said.
    let code = unsafe {
        let since = Told::microseconds(since);
        query(
            handle,
            GPU_UTILIZATION,
            since,
            &mut kind,
            &mut count,
            samples.as_mut_ptr(),
        )
    };
    let fresh = match code {
        SUCCESS => samples.get(..count as usize)?,
        // None is new.
        NOT_FOUND => &[],
        _ => return None,
    };
    let fresh = fresh.iter().map(|sample| (sample.time, sample.value));
    Some(Told::of(since, fresh))
}

/// What all processes together and the driver itself take of a device. Where the interposer is loaded too it is the interposer who
/// answers, with the tenant's figures.
pub fn device_usage(device: DeviceIndex) -> Option<Bytes> {
    let nvml = nvml()?;
    let (handle, query) = (nvml.device(device)?, nvml.memory?);
    let mut memory = Memory::default();
    // SAFETY: the handle is NVML's, the structure is the query's.
    (unsafe { query(handle, &mut memory) } == SUCCESS).then_some(Bytes(memory.used))
}

/// Asks NVML whether a dead process's memory is back. It can tell only where it shows this namespace's processes at all: where we ourselves have a row.
pub struct Rows;

impl ledger::Driver for Rows {
    fn still_holds(&self, device: DeviceIndex, pid: u32) -> Option<bool> {
        let rows = nvml()?.rows(device)?;
        let has = |pid: u32| rows.all().any(|row| row.pid == pid);
        if has(pid) {
            return Some(true);
        }
        has(std::process::id()).then_some(false)
    }

    fn lists(&self, device: DeviceIndex, pid: u32) -> Option<bool> {
        Some(nvml()?.rows(device)?.all().any(|row| row.pid == pid))
    }
}

impl Nvml {
    fn device(&self, index: DeviceIndex) -> Option<Device> {
        let mut device = std::ptr::null_mut();
        // SAFETY: NVML is initialised; the handle is written on success.
        let code = unsafe { (self.by_index)(index.0, &mut device) };
        // Not every entry point looks before it follows NULL.
        (code == SUCCESS && !device.is_null()).then_some(device)
    }

    fn candidate(&self, index: DeviceIndex) -> Option<Candidate> {
        let device = self.device(index)?;
        if let Some(instances) = self.mig(device) {
            // Under MIG only the MIG UUID identifies (decision 25).
            let uuid = match instances[..] {
                [only] => self.uuid(only),
                _ => None,
            };
            return Some(Candidate {
                index,
                uuid,
                pci: None,
            });
        }
        let mut pci = PciInfo::default();
        // SAFETY: the handle is NVML's; the structure has room for every version of the query.
        let known = unsafe { (self.pci)(device, &mut pci) } == SUCCESS;
        let pci = known.then_some(Pci {
            domain: pci.domain,
            bus: pci.bus,
            device: pci.device,
            function: 0,
        });
        Some(Candidate {
            index,
            uuid: self.uuid(device),
            pci,
        })
    }

    fn uuid(&self, device: Device) -> Option<[u8; 16]> {
        let mut text: [c_char; 96] = [0; 96];
        // SAFETY: the handle is NVML's; the buffer is as long as said, and its last byte stays 0.
        unsafe {
            let found = (self.uuid)(device, text.as_mut_ptr(), text.len() as u32 - 1) == SUCCESS;
            found
                .then(|| CStr::from_ptr(text.as_ptr()))?
                .to_str()
                .ok()
                .and_then(parse_uuid)
        }
    }

    /// The instances of a card in MIG mode; `None` in the ordinary mode.
    fn mig(&self, device: Device) -> Option<Vec<Device>> {
        let (mut current, mut pending) = (0, 0);
        // SAFETY: the handles are NVML's.
        unsafe {
            if (self.mig_mode?)(device, &mut current, &mut pending) != SUCCESS || current != 1 {
                return None;
            }
            let get = self.mig_device?;
            let mut found = Vec::new();
            for index in 0..8 {
                let mut instance = std::ptr::null_mut();
                if get(device, index, &mut instance) == SUCCESS && !instance.is_null() {
                    found.push(instance);
                }
            }
            Some(found)
        }
    }

    /// The rows of both lists: a process that computes and draws is in both, with the same figure.
    fn rows(&self, index: DeviceIndex) -> Option<Listed> {
        let device = self.device(index)?;
        let [computing, drawing] = self.processes;
        Some(Listed([list(computing?, device)?, list(drawing?, device)?]))
    }
}

fn list(query: ProcessQuery, device: Device) -> Option<Vec<ProcessInfo>> {
    let mut room = 64_u32;
    for _ in 0..4 {
        let (mut rows, mut count) = (vec![ProcessInfo::default(); room as usize], room);
        // SAFETY: the handle is NVML's; the array has as many rows as said.
        match unsafe { query(device, &mut count, rows.as_mut_ptr()) } {
            SUCCESS => {
                rows.truncate(count as usize);
                return Some(rows);
            }
            INSUFFICIENT_SIZE => {
                room = count
                    .saturating_mul(2)
                    .clamp(room.saturating_mul(2), MAX_PROCESSES)
            }
            _ => return None,
        }
    }
    None
}
