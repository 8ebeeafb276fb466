//! Marks in a stream: four events per context and lease in flight, by which that is measured (decision 30).

use core::sync::atomic::{AtomicU64, Ordering};

use abi::cuda::{CUcontext, CUevent, CUresult, CUstream};
use throttle::{LEASES, Mark, Nanos, Slot};

use crate::boundary::cross::Out;
use crate::boundary::entries::next;
use crate::capture::named;
use crate::devices::current_context;

/// Contexts of one device whose events are kept.
const CONTEXTS: usize = 64;

/// Which default stream a launch means by none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStream {
    Legacy,
    PerThread,
}

/// A stream as a launch names it.
#[derive(Clone, Copy)]
pub struct Line {
    pub stream: CUstream,
    pub default: NoStream,
}

/// One context's events. Zeros are none.
#[repr(C)]
pub struct Marks {
    context: AtomicU64,
    events: [[Event; MARKS]; LEASES],
}

/// [`Mark::Opened`], [`Mark::Last`], [`Mark::Closed`] and [`Mark::Behind`].
const MARKS: usize = 4;

#[repr(transparent)]
pub struct Event(AtomicU64);

/// All zeros is an empty table.
#[repr(C)]
pub struct MarksByContext {
    entries: [Marks; CONTEXTS],
}

impl MarksByContext {
    pub fn of(&self, context: u64) -> Option<&Marks> {
        self.entries
            .iter()
            .find(|marks| marks.context.load(Ordering::Acquire) == context)
            .filter(|_| context != 0)
    }

    /// A living context's, whose events are made as they are needed. `None` where there is no room.
    pub fn of_living(&self, context: u64) -> Option<&Marks> {
        if context == 0 {
            return None;
        }
        self.of(context).or_else(|| {
            self.entries.iter().find(|marks| {
                let free =
                    marks
                        .context
                        .compare_exchange(0, context, Ordering::AcqRel, Ordering::Relaxed);
                free.is_ok()
            })
        })
    }

    /// A context is about to be destroyed: its events are no handles any more.
    pub fn forget(&self, context: u64) {
        if let Some(marks) = self.of(context) {
            for mark in marks.events.as_flattened() {
                let event = mark.0.swap(0, Ordering::AcqRel);
                if event != 0 {
                    // The driver may say no, and then they go with the context.
                    let _ = next::cuEventDestroy_v2(CUevent(event as *mut core::ffi::c_void));
                }
            }
            marks.context.store(0, Ordering::Release);
        }
    }
}

impl Marks {
    pub fn of(&self, slot: Slot, mark: Mark) -> &Event {
        &self.events[slot.index()][mark as usize]
    }

    /// Sets a mark at the end of a stream of the context. False where that is not possible. Each mark by one thread at a time.
    #[must_use]
    pub fn set(&self, slot: Slot, mark: Mark, line: Line) -> bool {
        let event = self.of(slot, mark);
        if event.event().is_none() {
            let _entered = Entered::into(self.context.load(Ordering::Acquire));
            event.make();
        }
        event.set(line)
    }
}

impl Event {
    fn make(&self) {
        let mut event = CUevent::NULL;
        let _relaxed = Relaxed::begin();
        if next::cuEventCreate(Out::to(&mut event), 0) == CUresult::SUCCESS {
            self.0.store(event.0 as u64, Ordering::Release);
        }
    }

    fn event(&self) -> Option<CUevent> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            event => Some(CUevent(event as *mut core::ffi::c_void)),
        }
    }

    fn set(&self, line: Line) -> bool {
        let Some(event) = self.event() else {
            return false;
        };
        let _relaxed = Relaxed::begin();
        let code = match line.default {
            NoStream::Legacy => next::cuEventRecord(event, line.stream),
            NoStream::PerThread => next::cuEventRecord_ptsz(event, line.stream),
        };
        code == CUresult::SUCCESS
    }

    /// Whether the device has reached it; `None` where nobody can say.
    pub fn reached(&self) -> Option<bool> {
        let event = self.event()?;
        let _relaxed = Relaxed::begin();
        match next::cuEventQuery(event) {
            CUresult::SUCCESS => Some(true),
            CUresult::ERROR_NOT_READY => Some(false),
            _ => None,
        }
    }

    /// From another mark to this one, both reached.
    pub fn since(&self, earlier: &Event) -> Option<Nanos> {
        let (earlier, event) = (earlier.event()?, self.event()?);
        let mut milliseconds = 0.0;
        let _relaxed = Relaxed::begin();
        let code = next::cuEventElapsedTime(Out::to(&mut milliseconds), earlier, event);
        (code == CUresult::SUCCESS && milliseconds >= 0.0)
            .then(|| Nanos((f64::from(milliseconds) * 1e6) as u64))
    }
}

impl Line {
    /// The context that the stream belongs to, 0 where the driver does not say.
    pub fn context(self) -> u64 {
        let mut context = CUcontext::NULL;
        match next::cuStreamGetCtx(self.stream, Out::to(&mut context)) {
            CUresult::SUCCESS => context.0 as u64,
            _ => 0,
        }
    }

    /// Whether the stream has nothing left to do, as far as the driver says.
    pub fn is_idle(self) -> bool {
        let stream = match self.default {
            NoStream::Legacy => self.stream,
            NoStream::PerThread => named(self.stream),
        };
        let _relaxed = Relaxed::begin();
        next::cuStreamQuery(stream) == CUresult::SUCCESS
    }

    /// Whether what is launched is written down rather than done. Where the driver does not answer plainly it is to judge the launch too.
    pub fn is_captured(self) -> bool {
        let mut status = 0;
        let code = match self.default {
            NoStream::Legacy => next::cuStreamIsCapturing(self.stream, Out::to(&mut status)),
            NoStream::PerThread => {
                next::cuStreamIsCapturing_ptsz(self.stream, Out::to(&mut status))
            }
        };
        match code {
            CUresult::SUCCESS => status != 0,
            // A driver that is older than captures.
            CUresult::ERROR_NOT_FOUND => false,
            _ => true,
        }
    }
}

/// While it lives, a context is the current one.
pub struct Entered(bool);

impl Entered {
    pub fn into(context: u64) -> Entered {
        let pushed = current_context() != context
            && next::cuCtxPushCurrent_v2(CUcontext(context as *mut core::ffi::c_void))
                == CUresult::SUCCESS;
        Entered(pushed)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.0 {
            let mut popped = CUcontext::NULL;
            let _ = next::cuCtxPopCurrent_v2(Out::to(&mut popped));
        }
    }
}

/// While it lives, captures of other threads do not forbid this one to look at events of ours, as PyTorch's allocator does it.
struct Relaxed(i32);

impl Relaxed {
    fn begin() -> Relaxed {
        const RELAXED: i32 = 2;
        let mut mode = RELAXED;
        let _ = next::cuThreadExchangeStreamCaptureMode(Out::to(&mut mode));
        Relaxed(mode)
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        let _ = next::cuThreadExchangeStreamCaptureMode(Out::to(&mut self.0));
    }
}
