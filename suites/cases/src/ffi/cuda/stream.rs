//! Streams of a program's own.

use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use abi::cuda::{CUdeviceptr, CUevent, CUresult, CUstream};

use super::{Answer, Cuda, MISSING};

/// A stream that was created.
#[derive(Clone, Copy, Debug)]
pub struct OwnStream(pub(super) CUstream);

// SAFETY: a handle, which a driver takes from any thread.
unsafe impl Send for OwnStream {}
// SAFETY: as above.
unsafe impl Sync for OwnStream {}

/// CU_STREAM_NON_BLOCKING.
const NON_BLOCKING: u32 = 1;

impl Cuda {
    /// A stream that does not wait for the default one.
    pub fn create_stream(&self) -> Answer<OwnStream> {
        let mut out = CUstream::NULL;
        let code = call!(self.cuStreamCreate(&mut out, NON_BLOCKING));
        Answer {
            code,
            out: OwnStream(out),
        }
    }

    pub fn create_stream_with_priority(&self, priority: i32) -> Answer<OwnStream> {
        let mut out = CUstream::NULL;
        let code = call!(self.cuStreamCreateWithPriority(&mut out, NON_BLOCKING, priority));
        Answer {
            code,
            out: OwnStream(out),
        }
    }

    pub fn destroy_stream(&self, stream: OwnStream) -> CUresult {
        call!(self.cuStreamDestroy_v2(stream.0))
    }

    /// All that comes into a stream from now on waits until the word at an address is `value`, or more.
    pub fn wait_for_value(&self, stream: OwnStream, word: CUdeviceptr, value: u32) -> CUresult {
        const AT_LEAST: u32 = 0;
        call!(self.cuStreamWaitValue32_v2(stream.0, word, value, AT_LEAST))
    }

    pub fn write_value(&self, stream: OwnStream, word: CUdeviceptr, value: u32) -> CUresult {
        call!(self.cuStreamWriteValue32_v2(stream.0, word, value, 0))
    }

    pub fn synchronize_stream(&self, stream: OwnStream) -> CUresult {
        call!(self.cuStreamSynchronize(stream.0))
    }

    /// Runs `act` in a host function, on a thread of the driver's, and waits for it. `act` begins once the launch has
    /// answered, so that a trace has the two in one order.
    pub fn in_host_function(&self, stream: OwnStream, act: &mut (dyn FnMut() + Send)) -> CUresult {
        struct Given<'a> {
            launched: AtomicBool,
            act: Mutex<&'a mut (dyn FnMut() + Send)>,
        }
        unsafe extern "C" fn run(given: *mut c_void) {
            // SAFETY: what is given beside this function below, which outlives the wait for the stream.
            let given = unsafe { &*given.cast::<Given<'_>>() };
            while !given.launched.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            (given.act.lock().unwrap_or_else(PoisonError::into_inner))();
        }
        let given = Given {
            launched: AtomicBool::new(false),
            act: Mutex::new(act),
        };
        let launched =
            call!(self.cuLaunchHostFunc(stream.0, Some(run), (&raw const given).cast_mut().cast()));
        given.launched.store(true, Ordering::Release);
        let answers = [launched, call!(self.cuStreamSynchronize(stream.0))];
        let failed = answers
            .into_iter()
            .find(|answer| *answer != CUresult::SUCCESS);
        failed.unwrap_or(CUresult::SUCCESS)
    }

    /// Waits for an event behind all that a stream has to do now.
    pub fn synchronize_event_in(&self, stream: OwnStream) -> CUresult {
        let mut event = CUevent::NULL;
        let answers = [
            call!(self.cuEventCreate(&mut event, 0)),
            call!(self.cuEventRecord(event, stream.0)),
            call!(self.cuEventSynchronize(event)),
        ];
        let failed = answers
            .into_iter()
            .find(|answer| *answer != CUresult::SUCCESS);
        failed.unwrap_or(CUresult::SUCCESS)
    }

    /// The unsuffixed call.
    pub fn destroy_stream_v1(&self, stream: OwnStream) -> CUresult {
        call!(self.cuStreamDestroy(stream.0))
    }
}
