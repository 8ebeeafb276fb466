//! What NVML says: which devices the container has, and what each process takes of them.
//!
//! Every question is asked between an init and a shutdown of our own, so that the program's own count of them is not changed. They
//! take some 12 ms on an H200; where one hook asks more than once a [`Scope`] lets all its questions have one of each.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU32, Ordering};

use abi::nvml::*;
use budget::identity::{Candidate, Pci};
use budget::{Bytes, DeviceIndex};
use ledger::{Driver, KeptErrno};

use crate::boundary::arena::{Lock, existing, pid};
use crate::boundary::cross::Out;
use crate::boundary::drivers::Library;
use crate::boundary::entries::next_nvml as next;
use crate::boundary::loader;
use crate::process::Tenant;

/// NVML between init and shutdown.
pub struct Session {
    /// The end of the last scope shuts it down.
    of_scope: bool,
    /// Puts the host's back after the last call.
    _errno: KeptErrno,
}

/// What scopes of all threads share. All zeros is none.
#[repr(C)]
pub struct Scopes {
    count: AtomicU32,
    /// Not 0: NVML was begun in one of them.
    begun: AtomicU32,
    lock: Lock,
}

/// While it lives, NVML is begun once at most, and only if it is asked anything.
#[must_use]
pub struct Scope(&'static Scopes);

impl Scope {
    pub fn begin(tenant: Tenant) -> Scope {
        let scopes = &tenant.memory.nvml;
        scopes.count.fetch_add(1, Ordering::SeqCst);
        Scope(scopes)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let Scope(scopes) = self;
        if scopes.count.fetch_sub(1, Ordering::SeqCst) == 1
            && scopes.begun.load(Ordering::SeqCst) != 0
        {
            let _errno = KeptErrno::keep();
            let _held = scopes.lock.hold();
            if scopes.count.load(Ordering::SeqCst) == 0
                && scopes.begun.swap(0, Ordering::SeqCst) != 0
            {
                let _ = next::nvmlShutdown();
            }
        }
    }
}

impl Scopes {
    /// Begins NVML for all scopes there are; `None` where there is no scope.
    fn begin(&self) -> Option<bool> {
        (self.count.load(Ordering::SeqCst) != 0).then_some(())?;
        let _held = self.lock.hold();
        if self.begun.load(Ordering::SeqCst) == 0 {
            let begun = next::nvmlInit_v2() == nvmlReturn_t::SUCCESS;
            self.begun.store(begun.into(), Ordering::SeqCst);
        }
        Some(self.begun.load(Ordering::SeqCst) != 0)
    }
}

impl Session {
    /// `None` where there is no NVML, or it does not start.
    pub fn open() -> Option<Session> {
        let errno = KeptErrno::keep();
        if !Library::Nvml.bind_any() {
            loader::open(Library::Nvml.soname(), libc::RTLD_LAZY)?;
            if !Library::Nvml.bind_any() {
                return None;
            }
        }
        let shared = existing().and_then(|memory| memory.nvml.begin());
        let begun = shared.unwrap_or_else(|| next::nvmlInit_v2() == nvmlReturn_t::SUCCESS);
        begun.then_some(Session {
            of_scope: shared.is_some(),
            _errno: errno,
        })
    }

    fn device(&self, index: u32) -> Option<nvmlDevice_t> {
        let mut device = nvmlDevice_t(core::ptr::null_mut());
        let code = next::nvmlDeviceGetHandleByIndex_v2(index, Out::to(&mut device));
        // Not every entry point looks before it follows NULL.
        (code == nvmlReturn_t::SUCCESS && !device.0.is_null()).then_some(device)
    }

    /// The container's devices, in NVML's order. `None` where even their number is not told.
    pub fn candidates(&self) -> Option<Vec<Candidate>> {
        let mut count = 0;
        if next::nvmlDeviceGetCount_v2(Out::to(&mut count)) != nvmlReturn_t::SUCCESS {
            return None;
        }
        Some((0..count).map(|index| self.candidate(index)).collect())
    }

    fn candidate(&self, index: u32) -> Candidate {
        let device = self.device(index);
        Candidate {
            index: DeviceIndex(index),
            uuid: device.and_then(|device| self.uuid(device)),
            pci: device.and_then(|device| self.pci(device)),
        }
    }

    fn uuid(&self, device: nvmlDevice_t) -> Option<[u8; 16]> {
        let mut text = [0 as c_char; 96];
        let length = text.len() as u32;
        (next::nvmlDeviceGetUUID(device, Out::buffer(&mut text), length) == nvmlReturn_t::SUCCESS)
            .then_some(())?;
        parse_uuid(&text.map(|byte| byte as u8))
    }

    fn pci(&self, device: nvmlDevice_t) -> Option<Pci> {
        let mut info = nvmlPciInfo_t {
            busIdLegacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: [0; 32],
        };
        (next::nvmlDeviceGetPciInfo_v3(device, Out::to(&mut info)) == nvmlReturn_t::SUCCESS)
            .then_some(Pci {
                domain: info.domain,
                bus: info.bus,
                device: info.device,
                function: 0,
            })
    }

    /// All processes on a device with what each takes; `None` where NVML does not tell.
    fn processes(&self, device: DeviceIndex) -> Option<Vec<nvmlProcessInfo_t>> {
        let device = self.device(device.0)?;
        let mut rows = listed(|count, rows| {
            match next::nvmlDeviceGetComputeRunningProcesses_v3(device, count, rows) {
                nvmlReturn_t::ERROR_FUNCTION_NOT_FOUND => {
                    next::nvmlDeviceGetComputeRunningProcesses_v2(device, count, rows)
                }
                answer => answer,
            }
        })?;
        let graphics = listed(|count, rows| {
            match next::nvmlDeviceGetGraphicsRunningProcesses_v3(device, count, rows) {
                nvmlReturn_t::ERROR_FUNCTION_NOT_FOUND => {
                    next::nvmlDeviceGetGraphicsRunningProcesses_v2(device, count, rows)
                }
                answer => answer,
            }
        });
        rows.extend(graphics.unwrap_or_default());
        Some(rows)
    }

    /// What all processes together and the driver itself take of a device.
    pub fn device_usage(&self, device: DeviceIndex) -> Option<Bytes> {
        let mut memory = nvmlMemory_t::default();
        let answer = next::nvmlDeviceGetMemoryInfo(self.device(device.0)?, Out::to(&mut memory));
        (answer == nvmlReturn_t::SUCCESS).then_some(Bytes(memory.used))
    }

    /// What the process lists say of this process; `None` where NVML does not tell.
    pub fn rows(&self, device: DeviceIndex) -> Option<OwnRow> {
        const NOT_AVAILABLE: u64 = u64::MAX;
        let rows = self.processes(device)?;
        let own = || rows.iter().filter(|row| row.pid == pid());
        Some(OwnRow {
            // A process that computes and draws has a row in both lists, each with all that it takes.
            own: own()
                .filter(|row| row.usedGpuMemory != NOT_AVAILABLE)
                .map(|row| Bytes(row.usedGpuMemory))
                .max(),
            alone: own().count() == rows.len(),
        })
    }
}

/// NVML's process lists as one process reads them.
#[derive(Clone, Copy)]
pub struct OwnRow {
    /// What this process takes, by the driver's own figure; `None` where our row is not there or says nothing.
    pub own: Option<Bytes>,
    /// No other process has a row.
    pub alone: bool,
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.of_scope {
            let _ = next::nvmlShutdown();
        }
    }
}

/// NVML's answer to a process list of unknown length.
fn listed(
    ask: impl Fn(Out<'_, u32>, Out<'_, nvmlProcessInfo_t>) -> nvmlReturn_t,
) -> Option<Vec<nvmlProcessInfo_t>> {
    let mut rows = vec![nvmlProcessInfo_t::default(); 64];
    loop {
        let mut count = rows.len() as u32;
        match ask(Out::to(&mut count), Out::buffer(&mut rows)) {
            nvmlReturn_t::SUCCESS => {
                rows.truncate(count as usize);
                return Some(rows);
            }
            nvmlReturn_t::ERROR_INSUFFICIENT_SIZE if rows.len() < 1 << 16 => {
                let room = (count as usize + 16).max(rows.len() * 2);
                rows.resize(room, nvmlProcessInfo_t::default());
            }
            _ => return None,
        }
    }
}

/// The driver's process rows, for the ledger's question about the dead.
pub struct Rows;

impl Driver for Rows {
    fn still_holds(&self, device: DeviceIndex, dead: u32) -> Option<bool> {
        let rows = Session::open()?.processes(device)?;
        let listed = |pid| rows.iter().any(|row| row.pid == pid);
        // Rows that do not show us are perhaps not in terms of our pid namespace: they say nothing of others.
        if listed(dead) {
            Some(true)
        } else {
            listed(pid()).then_some(false)
        }
    }

    fn lists(&self, device: DeviceIndex, pid: u32) -> Option<bool> {
        let rows = Session::open()?.processes(device)?;
        Some(rows.iter().any(|row| row.pid == pid))
    }
}

/// `GPU-` or `MIG-` and 32 hexadecimal digits with dashes, as NVML and /proc write it.
pub fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    let text = CStr::from_bytes_until_nul(text).ok()?.to_str().ok()?;
    let (_, digits) = text.split_once('-')?;
    let mut uuid = [0; 16];
    let mut count = 0;
    for digit in digits.bytes().filter(|byte| *byte != b'-') {
        let value = (digit as char).to_digit(16)? as u8;
        *uuid.get_mut(count / 2)? |= if count % 2 == 0 { value << 4 } else { value };
        count += 1;
    }
    (count == 32).then_some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_read_from_its_text() {
        let uuid = parse_uuid(b"GPU-07ac64f7-ff7f-d9fb-9bcb-7afb7720386f\0rest").unwrap();
        assert_eq!(uuid[..4], [0x07, 0xac, 0x64, 0xf7]);
        assert_eq!(uuid[15], 0x6f);
        assert_eq!(parse_uuid(b"GPU-07ac\0"), None);
        assert_eq!(
            parse_uuid(b"GPU-07ac64f7-ff7f-d9fb-9bcb-7afb7720386f"),
            None
        );
        assert_eq!(
            parse_uuid(b"GPU-07ac64f7-ff7f-d9fb-9bcb-7afb7720386fff\0"),
            None
        );
    }
}
