//! Streams. Work is done when the call that asks for it returns, so that a stream is always idle.

use abi::cuda::*;

use crate::boundary::{Answer, Host, Out};
use crate::context;
use crate::driver::{self, Driver};
use crate::event;
use crate::handle;
use crate::launch::KernelCost;
use crate::process::{ContextId, Process};

#[derive(Clone, Copy)]
pub struct Stream {
    pub context: ContextId,
    pub flags: u32,
    pub priority: i32,
}

/// NULL, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD: the current context's own.
const OWN: std::ops::RangeInclusive<u64> = 0..=2;
/// Greatest priority; the least is 0.
const GREATEST: i32 = -5;
const NON_BLOCKING: u32 = 1;

impl Process {
    /// The context that a stream belongs to; INVALID_HANDLE for a number that is none.
    pub fn stream_context(&self, stream: CUstream) -> Result<ContextId, CUresult> {
        if OWN.contains(&(stream.0 as u64)) {
            return self.current();
        }
        self.current()?;
        self.stream_of(stream).map(|stream| stream.context)
    }

    fn stream_of(&self, stream: CUstream) -> Result<Stream, CUresult> {
        handle::decode(handle::Kind::Stream, stream.0 as u64)
            .and_then(|id| self.streams.get(&id).copied())
            .ok_or(CUresult::ERROR_INVALID_HANDLE)
    }
}

pub fn create(stream: Out<CUstream>, flags: c_uint) -> Answer {
    create_with_priority(stream, flags, 0)
}

pub fn create_with_priority(stream: Out<CUstream>, flags: c_uint, priority: c_int) -> Answer {
    let stream = stream.required()?;
    if flags & !NON_BLOCKING != 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let mut process = driver::get()?.lock();
    let context = process.current()?;
    let id = process.next_handle();
    process.streams.insert(
        id,
        Stream {
            context,
            flags,
            priority: priority.clamp(GREATEST, 0),
        },
    );
    stream.set(CUstream(
        handle::encode(handle::Kind::Stream, id) as *mut c_void
    ));
    Ok(())
}

pub fn destroy(stream: CUstream) -> Answer {
    let Some(id) = handle::decode(handle::Kind::Stream, stream.0 as u64) else {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    };
    let mut process = driver::get()?.lock();
    process
        .streams
        .remove(&id)
        .map(|_| ())
        .ok_or(CUresult::ERROR_INVALID_HANDLE)
}

pub fn synchronize(stream: CUstream) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.stream_context(stream)?;
    process.settle_pools(driver);
    Ok(())
}

pub fn synchronize_context() -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.current()?;
    process.settle_pools(driver);
    Ok(())
}

pub fn query(stream: CUstream) -> Answer {
    driver::get()?.lock().stream_context(stream).map(|_| ())
}

pub fn wait_event(stream: CUstream, event: CUevent, flags: c_uint) -> Answer {
    let process = driver::get()?.lock();
    process.event_of(event)?;
    process.stream_context(stream)?;
    if flags > event::WAIT_EXTERNAL {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    Ok(())
}

pub fn context(stream: CUstream, pctx: Out<CUcontext>) -> Answer {
    let pctx = pctx.required()?;
    pctx.set(context::handle_of(
        driver::get()?.lock().stream_context(stream)?,
    ));
    Ok(())
}

pub fn priority(stream: CUstream, priority: Out<c_int>) -> Answer {
    let priority = priority.required()?;
    let process = driver::get()?.lock();
    process.stream_context(stream)?;
    priority.set(
        process
            .stream_of(stream)
            .map_or(0, |stream| stream.priority),
    );
    Ok(())
}

pub fn flags(stream: CUstream, flags: Out<c_uint>) -> Answer {
    let flags = flags.required()?;
    let process = driver::get()?.lock();
    process.stream_context(stream)?;
    flags.set(process.stream_of(stream).map_or(0, |stream| stream.flags));
    Ok(())
}

pub fn is_capturing(stream: CUstream, status: Out<CUstreamCaptureStatus>) -> Answer {
    const NOT_CAPTURING: CUstreamCaptureStatus = 0;
    let status = status.required()?;
    driver::get()?.lock().stream_context(stream)?;
    status.set(NOT_CAPTURING);
    Ok(())
}

pub fn priority_range(least: Out<c_int>, greatest: Out<c_int>) -> Answer {
    driver::get()?.lock().current()?;
    if let Some(least) = least.optional() {
        least.set(0);
    }
    if let Some(greatest) = greatest.optional() {
        greatest.set(GREATEST);
    }
    Ok(())
}

pub fn synchronize_of_context(context: CUcontext) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.context_or_current(context)?;
    process.settle_pools(driver);
    Ok(())
}

/// An empty batch is done; waiting and writing are not simulated.
pub fn batch_mem_op(stream: CUstream, count: c_uint, _ops: Host, flags: c_uint) -> Answer {
    driver::get()?.lock().stream_context(stream)?;
    match (count, flags) {
        (0, 0) => Ok(()),
        (_, 0) => Err(CUresult::ERROR_NOT_SUPPORTED),
        _ => Err(CUresult::ERROR_INVALID_VALUE),
    }
}

/// No attribute of a stream can be set yet, so that all streams agree in them.
pub fn copy_attributes(to: CUstream, from: CUstream) -> Answer {
    let process = driver::get()?.lock();
    process.stream_context(to)?;
    process.stream_context(from).map(|_| ())
}

/// Puts a kernel that passed every check on a stream. Kernels take no time yet.
pub fn enqueue_kernel(
    process: &mut Process,
    _driver: &Driver,
    stream: CUstream,
    _kernel: &KernelCost,
) -> Answer {
    process.stream_context(stream).map(|_| ())
}
