//! A thread that is cancelled while it asks for memory.

use core::ffi::{c_int, c_void};
use core::ptr::null;
use core::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use abi::cuda::CUresult;
use harness::{Failure, ensure};

use super::{Context, Cuda};

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
}
unsafe extern "C-unwind" {
    fn pthread_testcancel();
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

/// A petabyte.
const MORE_THAN_ANY: u64 = 1 << 50;
/// PTHREAD_CANCELED.
const CANCELLED: *mut c_void = usize::MAX as *mut c_void;
const PTHREAD_CANCEL_ASYNCHRONOUS: c_int = 1;

/// When a cancellation is acted upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// At the next point of the thread that is one for cancellations.
    AtAPoint,
    /// At once (PTHREAD_CANCEL_ASYNCHRONOUS), but by who takes that for a moment.
    AtOnce,
}

struct Work<'a> {
    cuda: &'a Cuda,
    context: Context,
    cancelled: Cancelled,
    asked: AtomicU32,
    granted: AtomicU32,
}

/// Asks for more than any device has until it is cancelled. Nothing here is dropped when the stack is unwound.
unsafe extern "C-unwind" fn work(object: *mut c_void) -> *mut c_void {
    // SAFETY: what `cancelled_at_work` gave, which outlives the thread.
    let work = unsafe { &*object.cast::<Work<'_>>() };
    work.cuda.set_current(work.context);
    if work.cancelled == Cancelled::AtOnce {
        let mut before = 0;
        // SAFETY: a place of ours; no frame of this thread holds anything.
        unsafe { pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &mut before) };
    }
    loop {
        if work.cuda.allocate(MORE_THAN_ANY).code == CUresult::SUCCESS {
            work.granted.fetch_add(1, Ordering::Relaxed);
        }
        work.asked.fetch_add(1, Ordering::Relaxed);
        // SAFETY: no frame of this thread holds anything.
        unsafe { pthread_testcancel() };
    }
}

impl Cuda {
    /// Lets a thread ask for more than any device has, for so long, then cancels it.
    pub fn cancelled_at_work(
        &self,
        context: Context,
        cancelled: Cancelled,
        time: Duration,
    ) -> Result<(), Failure> {
        type Start = extern "C" fn(*mut c_void) -> *mut c_void;
        let work = Work {
            cuda: self,
            context,
            cancelled,
            asked: AtomicU32::new(0),
            granted: AtomicU32::new(0),
        };
        // SAFETY: the two differ in what may leave them, and glibc's threads let themselves be unwound.
        let start = unsafe {
            core::mem::transmute::<unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void, Start>(
                self::work,
            )
        };
        let mut thread = 0;
        // SAFETY: `work` outlives the thread, which is joined below.
        let code = unsafe {
            libc::pthread_create(
                &mut thread,
                null(),
                start,
                (&raw const work).cast_mut().cast(),
            )
        };
        ensure!(code == 0, "pthread_create: {code}");
        let begun = Instant::now();
        while work.asked.load(Ordering::Relaxed) == 0 || begun.elapsed() < time {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut ended = core::ptr::null_mut();
        // SAFETY: a thread that was made above and is joined once.
        let codes = unsafe {
            [
                pthread_cancel(thread),
                libc::pthread_join(thread, &mut ended),
            ]
        };
        ensure!(
            codes == [0, 0],
            "pthread_cancel and pthread_join: {codes:?}"
        );
        ensure!(ended == CANCELLED, "the thread ended by {ended:?}");
        let granted = work.granted.load(Ordering::Relaxed);
        ensure!(granted == 0, "a petabyte was granted {granted} times");
        Ok(())
    }
}
