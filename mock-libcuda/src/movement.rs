//! Bytes that work has still to move. A copy of memory that the driver knows is put on its engine and has its times at once;
//! its bytes move when somebody could look: before the next call that does more than submit, before a function of the
//! client's runs, or soon after the copy's end, by the attendant. So a client that submits is not held up by the mock's own
//! copying, and what its events say is the device's time. Order is the order of submission, for all streams together.
//!
//! Memory that is not page-locked moves during the call, as the driver promises, and so does everything in a process that
//! shares device memory with others, who look without a call.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use mock_device::{Nanos, Task, Traffic};

use crate::driver::Driver;
use crate::entry::Entry;
use crate::process::Process;
use crate::timeline::Act;

/// What waits to be moved, each with when its engine is done with it.
#[derive(Default)]
pub struct Movements {
    waiting: VecDeque<(Nanos, Act)>,
    /// Others may look at any time: nothing waits from here on.
    shared: bool,
}

/// Whether anything waits, for those who do not hold the process.
pub struct Waiting(AtomicBool);

impl Waiting {
    pub const fn new() -> Waiting {
        Waiting(AtomicBool::new(false))
    }
}

/// Copies that take an engine less than this are moved at once (56 KiB over an H200's bus).
const SMALL: Nanos = Nanos(1_000);
/// The attendant leaves the client so much time after a copy's end to ask for the bytes: only who polls memory waits for it.
const GRACE: Nanos = Nanos(20_000_000);

/// What an entry point has to do with bytes that wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    /// It only submits: they may wait on.
    Never,
    /// It tells whether work is done: what is due must have moved before the client hears so.
    IfDue,
    Always,
}

impl Entry {
    fn looks(self) -> Looks {
        let name = self.name();
        let name = name.strip_suffix("_ptsz").unwrap_or(name);
        match name {
            "cuMemcpyAsync"
            | "cuMemcpyHtoDAsync_v2"
            | "cuMemcpyDtoHAsync_v2"
            | "cuMemcpyDtoDAsync_v2"
            | "cuMemcpyPeerAsync"
            | "cuMemcpy2DAsync_v2"
            | "cuMemcpy3DAsync_v2"
            | "cuMemsetD8Async"
            | "cuMemsetD16Async"
            | "cuMemsetD32Async"
            | "cuLaunchKernel"
            | "cuLaunchKernelEx"
            | "cuGraphLaunch"
            | "cuEventCreate"
            | "cuEventRecord"
            | "cuEventRecordWithFlags"
            | "cuStreamWaitEvent"
            | "cuCtxGetCurrent"
            | "cuCtxSetCurrent"
            | "cuGetErrorName"
            | "cuGetErrorString" => Looks::Never,
            "cuStreamQuery" | "cuEventQuery" | "cuEventElapsedTime" | "cuEventElapsedTime_v2" => {
                Looks::IfDue
            }
            _ => Looks::Always,
        }
    }
}

impl Process {
    /// Moves the bytes of work that an engine has just been given, or lets them wait.
    pub fn move_bytes(&mut self, driver: &Driver, task: Option<&Task>, end: Nanos, act: Act) {
        let (pageable, long) = match task.and_then(|task| task.moves) {
            Some((Traffic::InPageable | Traffic::OutPageable, _)) => (true, true),
            Some((Traffic::Fill, _)) | None => (false, false),
            Some((_, moving)) => (false, moving >= SMALL),
        };
        let behind = !self.movements.waiting.is_empty();
        if self.movements.shared || pageable || !(long || behind) {
            self.move_waiting(driver);
            return act(self, driver);
        }
        self.movements.waiting.push_back((end, act));
        driver.waiting.0.store(true, Ordering::Release);
        if !behind {
            driver.attendant.wake();
        }
    }

    pub fn move_waiting(&mut self, driver: &Driver) {
        self.move_first(driver, self.movements.waiting.len());
    }

    /// Moves everything up to the last that is due.
    fn move_due(&mut self, driver: &Driver, now: Nanos) {
        let waiting = &self.movements.waiting;
        let due = waiting.iter().rposition(|(end, _)| *end <= now);
        self.move_first(driver, due.map_or(0, |last| last + 1));
    }

    fn move_first(&mut self, driver: &Driver, count: usize) {
        for _ in 0..count {
            if let Some((_, act)) = self.movements.waiting.pop_front() {
                act(self, driver);
            }
        }
        if self.movements.waiting.is_empty() {
            driver.waiting.0.store(false, Ordering::Release);
        }
    }

    /// From here on other processes or libraries may look at device memory without a call.
    pub fn others_look(&mut self, driver: &Driver) {
        self.move_waiting(driver);
        self.movements.shared = true;
    }
}

impl Movements {
    /// When the attendant moves what nobody asked for.
    pub fn attend_at(&self) -> Option<Nanos> {
        self.waiting.front().map(|(end, _)| *end + GRACE)
    }
}

/// What a call must see, before it is carried out.
pub fn before(entry: Entry) {
    if let Some(driver) = waiting()
        && entry.looks() == Looks::Always
    {
        driver.lock().move_waiting(driver);
    }
}

/// What the client may look at when a call has answered.
pub fn after(entry: Entry) {
    if let Some(driver) = waiting()
        && entry.looks() == Looks::IfDue
    {
        let mut process = driver.lock();
        process.move_due(driver, driver.world.now());
    }
}

fn waiting() -> Option<&'static Driver> {
    let driver = crate::driver::get().ok()?;
    driver.waiting.0.load(Ordering::Acquire).then_some(driver)
}
