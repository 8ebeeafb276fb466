//! What NVML says: which devices the container has, and what each process takes of them.
//!
//! NVML is begun once and stays so as long as nobody in the process but us knows of it: init and shutdown take some 12 ms on an H200,
//! a question 16 µs. NVML counts inits for the whole process, so from the first sign that the program uses it (it is loaded before us, or one of
//! its names is looked up) every question is asked between an init and a shutdown of our own: what the program is answered before its
//! own init and after its last shutdown is not changed, but where another thread's call asks at that moment. Where one hook asks more than once a [`Scope`] lets all its questions have one of each.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use abi::nvml::enumerations::NVML_GPU_UTILIZATION_SAMPLES;
use abi::nvml::*;
use budget::identity::{Candidate, Pci};
use budget::{Bytes, DeviceIndex};
use ledger::{Driver, KeptErrno};
use seeds::{Seed, planted};
use throttle::Told;

use crate::boundary::arena::{Lock, existing, pid};
use crate::boundary::cross::{Out, unsigned};
use crate::boundary::drivers::Library;
use crate::boundary::entries::next_nvml as next;
use crate::process::Tenant;

/// NVML between init and shutdown.
pub struct Session {
    end: End,
    /// Puts the host's back after the last call.
    _errno: KeptErrno,
}

/// Who shuts NVML down again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The session itself.
    Own,
    /// The end of the last scope.
    OfScope,
    /// Nobody, until the program is known to use NVML.
    Kept,
}

/// The session that stays open. Not in the arena: a fork child has the library's count of inits too.
struct Kept {
    state: AtomicU32,
    /// Sessions that use it at this moment.
    users: AtomicU32,
}

static KEPT: Kept = Kept {
    state: AtomicU32::new(UNDECIDED),
    users: AtomicU32::new(0),
};

/// It is bound, and nobody has to ask the loader for it any more.
static FOUND: AtomicBool = AtomicBool::new(false);

/// Binds NVML, at the latest now. Answers whether there is one.
///
/// cuInit does so before it holds anything: who opens a library holds the loader's lock while that library's constructors run, and they may wait for a lock
/// of ours, or for a thread that waits for the loader's (attack 24).
pub fn find() -> bool {
    if FOUND.load(Ordering::Acquire) {
        return true;
    }
    let was_there = Library::Nvml.is_there();
    if !Library::open_nvml() {
        return false;
    }
    if was_there && KEPT.state.load(Ordering::Relaxed) == UNDECIDED {
        // It was there before anybody here asked for it. (Or another thread of ours is just beginning it: then none stays open.)
        KEPT.give_up();
    }
    Library::Nvml.keep();
    FOUND.store(true, Ordering::Release);
    true
}

/// NVML was not asked anything yet.
const UNDECIDED: u32 = 0;
/// Ours, for whoever asks.
const OPEN: u32 = 1;
/// The program uses NVML: the last user shuts ours down.
const CLOSING: u32 = 2;
/// The program uses NVML: none stays open any more.
const NEVER: u32 = 3;

impl Kept {
    /// Whether it is open; it stays so until [`Kept::leave`].
    fn join(&self) -> bool {
        if self.state.load(Ordering::SeqCst) != OPEN {
            return false;
        }
        self.users.fetch_add(1, Ordering::SeqCst);
        let open = self.state.load(Ordering::SeqCst) == OPEN;
        if !open {
            self.leave();
        }
        open
    }

    fn leave(&self) {
        if self.users.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.close_if_unused();
        }
    }

    /// NVML was begun by us. Whether it stays so, and the caller uses it.
    fn keep(&self) -> bool {
        self.users.fetch_add(1, Ordering::SeqCst);
        let kept = self
            .state
            .compare_exchange(UNDECIDED, OPEN, Ordering::SeqCst, Ordering::SeqCst);
        if kept.is_err() {
            self.leave();
        }
        kept.is_ok()
    }

    /// The program uses NVML.
    fn give_up(&self) {
        let next = |state| match state {
            UNDECIDED => Some(NEVER),
            OPEN => Some(CLOSING),
            _ => None,
        };
        let _ = self
            .state
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        if self.users.load(Ordering::SeqCst) == 0 {
            self.close_if_unused();
        }
    }

    fn close_if_unused(&self) {
        let closed =
            self.state
                .compare_exchange(CLOSING, NEVER, Ordering::SeqCst, Ordering::SeqCst);
        if closed.is_ok() {
            let _ = next::nvmlShutdown();
        }
    }
}

/// A name of NVML's was looked up, by somebody who is not us.
#[inline]
pub fn is_asked_for() {
    if KEPT.state.load(Ordering::Relaxed) != NEVER {
        let _errno = KeptErrno::keep();
        KEPT.give_up();
    }
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
        let _errno = KeptErrno::keep();
        let session = |end| Session { end, _errno };
        if KEPT.join() {
            return Some(session(End::Kept));
        }
        if !find() {
            return None;
        }
        let stays = Library::hears_look_ups() && !planted(Seed::D2);
        if KEPT.state.load(Ordering::Relaxed) == UNDECIDED && stays {
            return (next::nvmlInit_v2() == nvmlReturn_t::SUCCESS)
                .then(|| session(if KEPT.keep() { End::Kept } else { End::Own }));
        }
        let shared = existing().and_then(|memory| memory.nvml.begin());
        let begun = shared.unwrap_or_else(|| next::nvmlInit_v2() == nvmlReturn_t::SUCCESS);
        begun.then(|| {
            session(if shared.is_some() {
                End::OfScope
            } else {
                End::Own
            })
        })
    }

    fn device(&self, index: u32) -> Option<nvmlDevice_t> {
        let mut device = nvmlDevice_t(core::ptr::null_mut());
        let code = next::nvmlDeviceGetHandleByIndex_v2(index, Out::to(&mut device));
        // Not every entry point looks before it follows NULL.
        (code == nvmlReturn_t::SUCCESS && !device.0.is_null()).then_some(device)
    }

    /// The container's devices, in NVML's order. `None` where even their number is not told, or by another NVML than the one that came with libcuda: one of
    /// the program's own may list GPUs that there are not, and shift every budget (R62 of `fixtures/defects.txt`).
    pub fn candidates(&self) -> Option<Vec<Candidate>> {
        if Library::is_nvml_foreign() {
            return None;
        }
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
    fn processes(&self, device: DeviceIndex) -> Option<Processes> {
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
        let computing = rows.len();
        rows.extend(graphics.unwrap_or_default());
        Some(Processes { rows, computing })
    }

    /// What all processes together and the driver itself take of a device.
    pub fn device_usage(&self, device: DeviceIndex) -> Option<Bytes> {
        let mut memory = nvmlMemory_t::default();
        let answer = next::nvmlDeviceGetMemoryInfo(self.device(device.0)?, Out::to(&mut memory));
        (answer == nvmlReturn_t::SUCCESS).then_some(Bytes(memory.used))
    }

    /// How busy a device was, through whomever, by NVML's figures after the one of that time, in nanoseconds; `None` where it does not tell.
    pub fn told(&self, device: DeviceIndex, since: u64) -> Option<Told> {
        let device = self.device(device.0)?;
        let mut samples = [nvmlSample_t {
            timeStamp: 0,
            sampleValue: nvmlValue_t { ullVal: 0 },
        }; SAMPLES];
        let (mut kind, mut count) = (0, SAMPLES as u32);
        let code = next::nvmlDeviceGetSamples(
            device,
            NVML_GPU_UTILIZATION_SAMPLES,
            Told::microseconds(since),
            Out::to(&mut kind),
            Out::to(&mut count),
            Out::buffer(&mut samples),
        );
        let told = match code {
            nvmlReturn_t::SUCCESS => samples.get(..count as usize)?,
            // None is new.
            nvmlReturn_t::ERROR_NOT_FOUND => &[],
            _ => return None,
        };
        let told = told.iter();
        let fresh = told.map(|sample| (sample.timeStamp, unsigned(sample.sampleValue)));
        Some(Told::of(since, fresh))
    }

    /// What the process lists say of a device; `None` where NVML does not tell.
    pub fn rows(&self, device: DeviceIndex) -> Option<Processes> {
        let rows = self.processes(device)?;
        // A look would charge what the others leave out, too.
        let blind = [Seed::Floor, Seed::V17j, Seed::V17p];
        if !rows.rows.is_empty() && blind.into_iter().any(planted) {
            return None;
        }
        Some(rows)
    }
}

/// More than NVML keeps (an H200: 71).
const SAMPLES: usize = 128;

/// NVML's process lists of a device.
pub struct Processes {
    rows: Vec<nvmlProcessInfo_t>,
    /// So many are of processes that compute, the others of those that draw.
    computing: usize,
}

impl Processes {
    /// What a process takes, by the driver's own figure; `None` where it has no row, or the row says nothing.
    pub fn of(&self, pid: u32) -> Option<Bytes> {
        const NOT_AVAILABLE: u64 = u64::MAX;
        let sum = |rows: &[nvmlProcessInfo_t]| {
            let rows = rows.iter().filter(|row| row.pid == pid);
            let told = rows.filter(|row| row.usedGpuMemory != NOT_AVAILABLE);
            let bytes = told.map(|row| Bytes(row.usedGpuMemory));
            // Of two in one list one is the image's before execve, which a child keeps (R127 of `fixtures/defects.txt`).
            match planted(Seed::R127) {
                true => bytes.max(),
                false => bytes.reduce(Bytes::saturating_add),
            }
        };
        // A process that computes and draws has a row in both lists, each with all that it takes.
        let (computing, drawing) = self.lists();
        sum(computing).max(sum(drawing))
    }

    /// The same of this process.
    pub fn own(&self) -> Option<Bytes> {
        self.of(pid())
    }

    /// How many rows this process has in the list that has more of them.
    pub fn count_of_own(&self) -> usize {
        let count = |rows: &[nvmlProcessInfo_t]| rows.iter().filter(|row| row.pid == pid()).count();
        let (computing, drawing) = self.lists();
        count(computing).max(count(drawing))
    }

    fn lists(&self) -> (&[nvmlProcessInfo_t], &[nvmlProcessInfo_t]) {
        self.rows.split_at(self.computing.min(self.rows.len()))
    }

    /// Who has one.
    pub fn pids(&self) -> Vec<u32> {
        self.rows.iter().map(|row| row.pid).collect()
    }

    /// Whether no other process has a row.
    pub fn are_ours(&self) -> bool {
        self.rows.iter().all(|row| row.pid == pid())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        match self.end {
            End::Own => drop(next::nvmlShutdown()),
            End::OfScope => {}
            End::Kept => KEPT.leave(),
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
        // Our own image before execve: before this one took anything there was seen to be no row (P12c of `fixtures/defects.txt`).
        if dead == pid() && existing().is_some_and(|memory| memory.truth.is_alone(device)) {
            return Some(false);
        }
        let rows = Session::open()?.processes(device)?;
        let listed = |pid| rows.rows.iter().any(|row| row.pid == pid);
        // Rows that do not show us are perhaps not in terms of our pid namespace: they say nothing of others.
        if listed(dead) {
            Some(true)
        } else {
            listed(pid()).then_some(false)
        }
    }

    fn lists(&self, device: DeviceIndex, pid: u32) -> Option<bool> {
        let rows = Session::open()?.processes(device)?;
        Some(rows.rows.iter().any(|row| row.pid == pid))
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
