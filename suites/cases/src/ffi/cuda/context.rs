//! Contexts: made, current, waited for, ended.

use std::ptr::null_mut;

use abi::cuda::{CUcontext, CUdevice, CUevent, CUresult, CUstream};

use super::{Answer, Context, Cuda, MISSING, Wait};

impl Cuda {
    pub fn retain_primary(&self, device: CUdevice) -> Answer<Context> {
        let mut out = CUcontext::NULL;
        let code = call!(self.cuDevicePrimaryCtxRetain(&mut out, device));
        Answer {
            code,
            out: Context(out),
        }
    }

    pub fn release_primary(&self, device: CUdevice) -> CUresult {
        call!(self.cuDevicePrimaryCtxRelease_v2(device))
    }

    pub fn reset_primary(&self, device: CUdevice) -> CUresult {
        call!(self.cuDevicePrimaryCtxReset_v2(device))
    }

    pub fn create_context(&self, device: CUdevice) -> Answer<Context> {
        let mut out = CUcontext::NULL;
        let code = call!(self.cuCtxCreate_v2(&mut out, 0, device));
        Answer {
            code,
            out: Context(out),
        }
    }

    /// The unsuffixed call: the one whose contexts the unsuffixed allocation takes.
    pub fn create_context_v1(&self, device: CUdevice) -> Answer<Context> {
        let mut out = CUcontext::NULL;
        let code = call!(self.cuCtxCreate(&mut out, 0, device));
        Answer {
            code,
            out: Context(out),
        }
    }

    pub fn create_context_v3(&self, device: CUdevice) -> Answer<Context> {
        let mut out = CUcontext::NULL;
        let code = call!(self.cuCtxCreate_v3(&mut out, null_mut(), 0, 0, device));
        Answer {
            code,
            out: Context(out),
        }
    }

    pub fn create_context_v4(&self, device: CUdevice) -> Answer<Context> {
        let mut out = CUcontext::NULL;
        let code = call!(self.cuCtxCreate_v4(&mut out, null_mut(), 0, device));
        Answer {
            code,
            out: Context(out),
        }
    }

    /// The unsuffixed call.
    pub fn destroy_context_v1(&self, context: Context) -> CUresult {
        call!(self.cuCtxDestroy(context.0))
    }

    /// Synchronises by each call that waits for the default streams, one after the other.
    pub fn synchronize_by(&self, way: Wait, context: Context) -> CUresult {
        match way {
            Wait::Context => call!(self.cuCtxSynchronize()),
            Wait::NamedContext => call!(self.cuCtxSynchronize_v2(context.0)),
            Wait::Stream => call!(self.cuStreamSynchronize(CUstream::NULL)),
            Wait::ThreadsStream => call!(self.cuStreamSynchronize_ptsz(CUstream::NULL)),
            Wait::Event => {
                let mut event = CUevent::NULL;
                let created = call!(self.cuEventCreate(&mut event, 0));
                let recorded = call!(self.cuEventRecord(event, CUstream::NULL));
                let waited = call!(self.cuEventSynchronize(event));
                let answers = [created, recorded, waited];
                let failed = answers
                    .into_iter()
                    .find(|&answer| answer != CUresult::SUCCESS);
                failed.unwrap_or(CUresult::SUCCESS)
            }
        }
    }

    pub fn release_primary_v1(&self, device: CUdevice) -> CUresult {
        call!(self.cuDevicePrimaryCtxRelease(device))
    }

    pub fn reset_primary_v1(&self, device: CUdevice) -> CUresult {
        call!(self.cuDevicePrimaryCtxReset(device))
    }

    pub fn destroy_context(&self, context: Context) -> CUresult {
        call!(self.cuCtxDestroy_v2(context.0))
    }

    pub fn set_current(&self, context: Context) -> CUresult {
        call!(self.cuCtxSetCurrent(context.0))
    }

    pub fn synchronize(&self) -> CUresult {
        call!(self.cuCtxSynchronize())
    }

    pub fn set_limit(&self, limit: i32, value: u64) -> CUresult {
        call!(self.cuCtxSetLimit(limit, value as usize))
    }
}
