//! What keeps a call from its handler, in one place: a capture that forbids it, an error that the process keeps, the place
//! it is made from (a host function), or work that it waits for.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use abi::cuda::CUresult;
use mock_device::Nanos;

use crate::capture::Mode;
use crate::driver;
use crate::entry::Entry;
use crate::process::Process;
use crate::stream::{this_thread, wait_for_context};

/// Captures under way, and host functions being called; zero is the common case.
static WATCHED: AtomicUsize = AtomicUsize::new(0);
/// The error that every context of the process has for good; 0 without.
static STICKY: AtomicU32 = AtomicU32::new(0);
/// From when on the process knows of it.
static STICKY_FROM: AtomicU64 = AtomicU64::new(0);
/// Until when some stream holds all the launches that it can hold.
static FULL_UNTIL: AtomicU64 = AtomicU64::new(0);
/// When the last work that was ever put on a stream is done; all ones while something is deferred.
static LAST_END: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static MODE: Cell<i32> = const { Cell::new(0) };
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
    static PLANNED_FAULT: Cell<u32> = const { Cell::new(0) };
}

/// Calls that might synchronise or allocate behind a capture's back (H200, 580.159.04).
const UNSAFE_IN_CAPTURE: &[&str] = &[
    "cuArray3DCreate_v2",
    "cuArrayCreate_v2",
    "cuArrayDestroy",
    "cuCtxSetLimit",
    "cuEventQuery",
    "cuEventSynchronize",
    "cuGraphInstantiate",
    "cuGraphInstantiateWithFlags",
    "cuGraphInstantiate_v2",
    "cuMemAllocHost_v2",
    "cuMemAllocManaged",
    "cuMemAllocPitch_v2",
    "cuMemAlloc_v2",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemHostRegister_v2",
    "cuMemHostUnregister",
    "cuMemPoolTrimTo",
    "cuMipmappedArrayCreate",
    "cuModuleUnload",
    "cuStreamQuery",
    "cuStreamQuery_ptsz",
    "cuStreamSynchronize",
    "cuStreamSynchronize_ptsz",
];

/// Calls that answer although the context has an error for good (H200, 580.159.04).
const ANSWERS_IN_ERROR: &[&str] = &[
    "cuCtxDestroy",
    "cuCtxDestroy_v2",
    "cuCtxGetApiVersion",
    "cuCtxGetCurrent",
    "cuCtxGetDevice",
    "cuCtxGetFlags",
    "cuCtxGetId",
    "cuCtxPopCurrent",
    "cuCtxPopCurrent_v2",
    "cuCtxPushCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxSetCurrent",
    "cuCtxSetFlags",
    "cuDriverGetVersion",
    "cuInit",
    "cuPointerGetAttribute",
    "cuPointerGetAttributes",
];

/// Calls that wait until the context is idle (H200, 580.159.04).
const WAITS_FOR_CONTEXT: &[&str] = &[
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuModuleLoad",
    "cuModuleLoadData",
    "cuModuleLoadDataEx",
    "cuModuleLoadFatBinary",
    "cuModuleUnload",
];

pub fn captures(count: usize) {
    WATCHED.store(count, Ordering::Relaxed);
}

/// Work was put on a stream.
pub fn work_until(end: Nanos) {
    LAST_END.fetch_max(end.0, Ordering::Relaxed);
}

/// A stream takes no further launch before this time.
pub fn queue_full_until(time: Nanos) {
    FULL_UNTIL.fetch_max(time.0, Ordering::Relaxed);
}

pub fn exchange_mode(mode: i32) -> i32 {
    MODE.try_with(|own| own.replace(mode)).unwrap_or(0)
}

/// Runs a function of the client; what it calls of the driver is refused.
pub fn in_host_function(act: impl FnOnce()) {
    let _ = IN_HOST_FUNCTION.try_with(|flag| flag.set(true));
    act();
    let _ = IN_HOST_FUNCTION.try_with(|flag| flag.set(false));
}

/// Whether a result is one that a context keeps.
fn is_sticky(code: CUresult) -> bool {
    matches!(code.0, 214 | 219 | 220 | 226 | 700 | 702 | 710 | 714..=719)
}

/// Gives every context of the process an error that it keeps.
fn poison(code: CUresult) {
    STICKY_FROM.store(0, Ordering::Relaxed);
    let _ = STICKY.compare_exchange(0, code.0, Ordering::Release, Ordering::Relaxed);
}

/// A kernel faults: from a time on every context has an error for good. The first one counts.
pub fn poison_at(code: CUresult, from: Nanos) {
    if STICKY.load(Ordering::Relaxed) == 0 {
        STICKY_FROM.store(from.0, Ordering::Relaxed);
        STICKY.store(code.0, Ordering::Release);
    }
}

/// The fault that the plan wants of kernels which the calling thread launches now.
pub fn planned_fault() -> Option<CUresult> {
    match PLANNED_FAULT.try_with(Cell::get).unwrap_or(0) {
        0 => None,
        code => Some(CUresult(code)),
    }
}

/// Lets kernels fault that are launched meanwhile.
pub fn with_fault<R>(code: CUresult, act: impl FnOnce() -> R) -> R {
    let _ = PLANNED_FAULT.try_with(|fault| fault.set(code.0));
    let answer = act();
    let _ = PLANNED_FAULT.try_with(|fault| fault.set(0));
    answer
}

/// A result that the fault plan gives instead of the driver's: one that contexts keep is kept.
pub fn injected(code: CUresult) -> CUresult {
    if is_sticky(code) {
        poison(code);
    }
    code
}

/// The error that all contexts have for good.
pub fn sticky() -> Option<CUresult> {
    let code = STICKY.load(Ordering::Acquire);
    (code != 0 && sticky_from()? <= driver::get().ok()?.world.now()).then_some(CUresult(code))
}

/// From when on all contexts have an error for good.
pub fn sticky_from() -> Option<Nanos> {
    match STICKY.load(Ordering::Acquire) {
        0 => None,
        _ => Some(Nanos(STICKY_FROM.load(Ordering::Relaxed))),
    }
}

/// What a call answers that was carried out: it may have waited for what faulted meanwhile.
#[inline]
pub fn afterwards(entry: Entry, answer: Result<(), CUresult>) -> Result<(), CUresult> {
    if answer.is_ok() && STICKY.load(Ordering::Relaxed) != 0 {
        by_error(entry)?;
    }
    answer
}

/// Whether an entry point's handler may run.
#[inline]
pub fn check(entry: Entry) -> Result<(), CUresult> {
    if IN_HOST_FUNCTION.try_with(Cell::get).unwrap_or(false) {
        in_function(entry)?;
    }
    if WATCHED.load(Ordering::Relaxed) != 0 {
        by_capture(entry)?;
    }
    if STICKY.load(Ordering::Relaxed) != 0 {
        by_error(entry)?;
    }
    if LAST_END.load(Ordering::Relaxed) != 0 {
        by_work(entry);
        by_queue(entry);
    }
    Ok(())
}

#[cold]
fn in_function(entry: Entry) -> Result<(), CUresult> {
    let name = entry.name();
    let harmless = ["cuGetError", "cuGetProcAddress", "cuDriverGetVersion"];
    match harmless.iter().any(|start| name.starts_with(start)) {
        true => Ok(()),
        false => Err(CUresult::ERROR_NOT_PERMITTED),
    }
}

#[cold]
fn by_capture(entry: Entry) -> Result<(), CUresult> {
    if UNSAFE_IN_CAPTURE.binary_search(&entry.name()).is_err() {
        return Ok(());
    }
    let mut process = driver::get()?.lock();
    if entry.name().starts_with("cuGraphInstantiate") {
        process.current()?;
    }
    forbid(&mut process)
}

/// Breaks the captures that forbid this thread an unsafe call.
pub fn forbid(process: &mut Process) -> Result<(), CUresult> {
    let Ok(mode) = Mode::of(MODE.try_with(Cell::get).unwrap_or(0)) else {
        return Ok(());
    };
    match process.captures.forbid(this_thread(), mode) {
        true => Err(CUresult::ERROR_STREAM_CAPTURE_UNSUPPORTED),
        false => Ok(()),
    }
}

#[cold]
fn by_error(entry: Entry) -> Result<(), CUresult> {
    let name = entry.name();
    let answers = ANSWERS_IN_ERROR.binary_search(&name).is_ok()
        || name.starts_with("cuDevice")
        || name.starts_with("cuGraph") && !name.contains("Launch") && !name.contains("Upload")
        || name.starts_with("cuGet")
        || name.starts_with("cuUserObject");
    if answers {
        return Ok(());
    }
    let Some(code) = sticky() else {
        return Ok(());
    };
    // Without a live context its own refusal comes first.
    driver::get()?.lock().current()?;
    Err(code)
}

fn by_work(entry: Entry) {
    if WAITS_FOR_CONTEXT.binary_search(&entry.name()).is_ok() {
        wait_until_idle();
    }
}

/// Waits until the calling thread's context has done all that it had to do.
pub fn wait_until_idle() {
    let Ok(driver) = driver::get() else {
        return;
    };
    let last = LAST_END.load(Ordering::Relaxed);
    if driver.world.now().0 >= last {
        let _ = LAST_END.compare_exchange(last, 0, Ordering::Relaxed, Ordering::Relaxed);
        return;
    }
    let process = driver.lock();
    if let Ok(context) = process.current() {
        drop(wait_for_context(driver, process, context));
        if last == u64::MAX {
            let _ = LAST_END.compare_exchange(last, 1, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// A launch waits for room.
fn by_queue(entry: Entry) {
    let until = FULL_UNTIL.load(Ordering::Relaxed);
    if until == 0 || !entry.name().starts_with("cuLaunch") {
        return;
    }
    let Ok(driver) = driver::get() else {
        return;
    };
    let now = driver.world.now();
    if now.0 < until {
        std::thread::sleep(Duration::from_nanos(until - now.0));
    }
    let _ = FULL_UNTIL.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_sorted() {
        for list in [UNSAFE_IN_CAPTURE, ANSWERS_IN_ERROR, WAITS_FOR_CONTEXT] {
            assert!(list.is_sorted());
        }
    }
}
