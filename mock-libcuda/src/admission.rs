//! What keeps a call from its handler: a capture that forbids it, an error that the context has for good, or the place it
//! is made from (a host function).

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use abi::cuda::CUresult;

use crate::capture::Mode;
use crate::driver;
use crate::entry::Entry;
use crate::stream::this_thread;

/// Captures under way; none is the common case and costs one load.
static CAPTURES: AtomicUsize = AtomicUsize::new(0);
/// The error that every context of the process has for good; 0 without.
static STICKY: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Calls that might synchronise or allocate behind a capture's back.
const UNSAFE_IN_CAPTURE: &[&str] = &[
    "cuMemAlloc_v2",
    "cuMemAllocPitch_v2",
    "cuMemAllocHost_v2",
    "cuMemHostAlloc",
    "cuMemAllocManaged",
    "cuMemFree_v2",
    "cuMemFreeHost",
];

pub fn captures(count: usize) {
    CAPTURES.store(count, Ordering::Relaxed);
}

pub fn exchange_mode(mode: Mode) -> Mode {
    MODE.try_with(|own| own.replace(mode))
        .unwrap_or(Mode::Global)
}

/// Runs a function of the client; what it calls of the driver is refused.
pub fn in_host_function(act: impl FnOnce()) {
    let _ = IN_HOST_FUNCTION.try_with(|flag| flag.set(true));
    act();
    let _ = IN_HOST_FUNCTION.try_with(|flag| flag.set(false));
}

/// Gives every context of the process an error that it keeps.
pub fn poison(code: CUresult) {
    let _ = STICKY.compare_exchange(0, code.0, Ordering::Relaxed, Ordering::Relaxed);
}

/// Whether an entry point's handler may run.
#[inline]
pub fn check(entry: Entry) -> Result<(), CUresult> {
    if CAPTURES.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    forbidden_by_capture(entry)
}

#[cold]
fn forbidden_by_capture(entry: Entry) -> Result<(), CUresult> {
    if !UNSAFE_IN_CAPTURE.contains(&entry.name()) {
        return Ok(());
    }
    let mode = MODE.try_with(Cell::get).unwrap_or(Mode::Global);
    let mut process = driver::get()?.lock();
    match process.captures.forbid(this_thread(), mode) {
        true => Err(CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED),
        false => Ok(()),
    }
}
