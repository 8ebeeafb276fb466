//! Streams that capture: what is asked of them becomes a node, and what others ask may end the capture.

use abi::cuda::enumerations::CUstreamCaptureMode;
use abi::cuda::{CUresult, CUstream};

use crate::boundary::cross::Out;
use crate::boundary::entries::next;
use crate::process::Tenant;

/// CU_STREAM_PER_THREAD.
const PER_THREAD: usize = 2;

/// A `_ptsz` entry point's stream as the plain ones call it: no stream is the thread's own.
#[inline]
pub fn named(stream: CUstream) -> CUstream {
    if stream.is_null() {
        CUstream(core::ptr::without_provenance_mut(PER_THREAD))
    } else {
        stream
    }
}

/// While it lives this thread's calls end nobody's capture: a plain wait or a trim would end every global one.
pub struct Relaxed(Option<CUstreamCaptureMode>);

impl Relaxed {
    const MODE: CUstreamCaptureMode = 2;

    pub fn begin(tenant: Tenant) -> Relaxed {
        if !tenant.memory.graphs.any_capture() {
            return Relaxed(None);
        }
        let mut mode = Relaxed::MODE;
        let code = next::cuThreadExchangeStreamCaptureMode(Out::to(&mut mode));
        Relaxed((code == CUresult::SUCCESS).then_some(mode))
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        if let Some(mut mode) = self.0 {
            let _ = next::cuThreadExchangeStreamCaptureMode(Out::to(&mut mode));
        }
    }
}

impl Tenant {
    /// The capture that a stream is in: what is asked of the stream then becomes a node of a graph.
    #[inline]
    pub fn capture_of(self, stream: CUstream) -> Option<Capture> {
        if !self.memory.graphs.any_capture() {
            return None;
        }
        state(stream).flatten()
    }

    /// Whether a stream is in that capture still, though another thread's call may have invalidated it.
    pub fn is_in(self, capture: Capture, stream: CUstream) -> bool {
        let now = self.capture_of(stream);
        now == Some(capture) || now == Some(Capture::INVALIDATED)
    }
}

/// One capture. None of a process has another's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture(u64);

impl Capture {
    /// One that was invalidated and has not ended: the driver tells no number of it.
    const INVALIDATED: Capture = Capture(0);
}

/// `None` where the driver does not say, as of the legacy stream beside a capture.
#[cold]
fn state(stream: CUstream) -> Option<Option<Capture>> {
    let (mut status, mut id) = (0, 0);
    let code = next::cuStreamGetCaptureInfo(stream, Out::to(&mut status), Out::to(&mut id));
    (code == CUresult::SUCCESS).then_some((status != 0).then_some(Capture(id)))
}

/// Whether a stream is known to be in no capture, nor in the way of one.
pub fn is_outside(stream: CUstream) -> bool {
    state(stream) == Some(None)
}

/// Whether a stream, which does not capture, has work before it. The caller is [`Relaxed`].
pub fn is_busy(stream: CUstream) -> bool {
    state(stream) == Some(None) && next::cuStreamQuery(stream) == CUresult::ERROR_NOT_READY
}
