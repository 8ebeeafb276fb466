//! Functions of the client in a stream's order. [`crate::timeline`] has the thread that calls them.

use abi::cuda::*;

use crate::boundary::{Answer, ClientCall, Kept, Out};
use crate::capture;
use crate::driver;
use crate::timeline::Op;

fn put(stream: CUstream, call: ClientCall) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let line = process.line_of(stream)?;
    if capture::takes(&mut process, stream, line)? {
        return match call {
            ClientCall::Function(_) => capture::add_call(&mut process, line, call),
            ClientCall::Callback(_) => capture::forbids_waiting(&mut process, stream, line),
        };
    }
    process.put(driver, line, Op::Call(call));
    Ok(())
}

pub fn launch(stream: CUstream, function: CUhostFn, data: Out<c_void>) -> Answer {
    if function.is_none() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    put(stream, ClientCall::Function(Kept((function, data.raw()))))
}

pub fn add_callback(
    stream: CUstream,
    callback: CUstreamCallback,
    data: Out<c_void>,
    flags: c_uint,
) -> Answer {
    if callback.is_none() || flags != 0 {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    put(
        stream,
        ClientCall::Callback(Kept((callback, stream, data.raw()))),
    )
}

/// As [`launch`], with how the stream waits for the function (CUDA 13.2: blocking or spinning), which nobody can tell apart here.
pub fn launch_v2(
    stream: CUstream,
    function: CUhostFn,
    data: Out<c_void>,
    sync_mode: c_uint,
) -> Answer {
    match sync_mode {
        0 | 1 => launch(stream, function, data),
        _ => Err(CUresult::ERROR_INVALID_VALUE),
    }
}
