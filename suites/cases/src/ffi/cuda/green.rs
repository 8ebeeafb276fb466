//! Green contexts, and created ones that are attached to and detached from.

use std::ptr::null_mut;

use abi::cuda::{CUcontext, CUdevResourceDesc, CUdevice, CUgreenCtx, CUresult, CUstream};

use super::{Answer, Context, Cuda, MISSING};

/// A green context.
#[derive(Clone, Copy)]
pub struct Green(CUgreenCtx);

impl Cuda {
    /// One of a whole device.
    pub fn create_green(&self, device: CUdevice) -> Answer<Green> {
        const DEFAULT_STREAM: u32 = 1;
        let mut out = CUgreenCtx::NULL;
        let whole = CUdevResourceDesc(null_mut());
        let code = call!(self.cuGreenCtxCreate(&mut out, whole, device, DEFAULT_STREAM));
        Answer {
            code,
            out: Green(out),
        }
    }

    pub fn destroy_green(&self, green: Green) -> CUresult {
        call!(self.cuGreenCtxDestroy(green.0))
    }

    /// Its handle as a context that can be current.
    pub fn context_of_green(&self, green: Green) -> Answer<Context> {
        let mut out = CUcontext::NULL;
        let code = call!(self.cuCtxFromGreenCtx(&mut out, green.0));
        Answer {
            code,
            out: Context(out),
        }
    }

    pub fn create_green_stream(&self, green: Green) -> CUresult {
        const NON_BLOCKING: u32 = 1;
        let mut out = CUstream::NULL;
        call!(self.cuGreenCtxStreamCreate(&mut out, green.0, NON_BLOCKING, 0))
    }

    /// The current context once more.
    pub fn attach(&self) -> Answer<Context> {
        let mut out = CUcontext::NULL;
        let code = call!(self.cuCtxAttach(&mut out, 0));
        Answer {
            code,
            out: Context(out),
        }
    }

    pub fn detach(&self, context: Context) -> CUresult {
        call!(self.cuCtxDetach(context.0))
    }
}
