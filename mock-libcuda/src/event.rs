//! Events: moments on the real clock.

use std::time::Instant;

use abi::cuda::*;

use crate::boundary::{Answer, Out};
use crate::driver;
use crate::handle;
use crate::process::{ContextId, Process};

#[derive(Clone, Copy)]
pub struct Event {
    pub context: ContextId,
    flags: u32,
    recorded: Option<Instant>,
}

/// The only flag that cuStreamWaitEvent knows.
pub const WAIT_EXTERNAL: u32 = 1;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;
const KNOWN_FLAGS: u32 = 7;

impl Process {
    pub fn event_of(&self, event: CUevent) -> Result<Event, CUresult> {
        handle::decode(handle::Kind::Event, event.0 as u64)
            .and_then(|id| self.events.get(&id).copied())
            .ok_or(CUresult::ERROR_INVALID_HANDLE)
    }
}

/// NULL is refused even before cuInit.
fn of(event: CUevent) -> Result<Event, CUresult> {
    if event.is_null() {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    driver::get()?.lock().event_of(event)
}

pub fn create(event: Out<CUevent>, flags: c_uint) -> Answer {
    let mut process = driver::get()?.lock();
    let event = event.required()?;
    let context = process.current()?;
    if flags & !KNOWN_FLAGS != 0 || (flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let id = process.next_handle();
    process.events.insert(
        id,
        Event {
            context,
            flags,
            recorded: None,
        },
    );
    event.set(CUevent(
        handle::encode(handle::Kind::Event, id) as *mut c_void
    ));
    Ok(())
}

pub fn destroy(event: CUevent) -> Answer {
    of(event)?;
    let id = handle::decode(handle::Kind::Event, event.0 as u64)
        .ok_or(CUresult::ERROR_INVALID_HANDLE)?;
    driver::get()?
        .lock()
        .events
        .remove(&id)
        .map(|_| ())
        .ok_or(CUresult::ERROR_INVALID_HANDLE)
}

pub fn record(event: CUevent, stream: CUstream) -> Answer {
    let mut process = driver::get()?.lock();
    process.event_of(event)?;
    process.stream_context(stream)?;
    let id = handle::decode(handle::Kind::Event, event.0 as u64)
        .ok_or(CUresult::ERROR_INVALID_HANDLE)?;
    if let Some(event) = process.events.get_mut(&id) {
        event.recorded = Some(Instant::now());
    }
    Ok(())
}

pub fn synchronize(event: CUevent) -> Answer {
    of(event)?;
    let driver = driver::get()?;
    driver.lock().settle_pools(driver);
    Ok(())
}

pub fn query(event: CUevent) -> Answer {
    of(event).map(|_| ())
}

pub fn elapsed(milliseconds: Out<c_float>, start: CUevent, end: CUevent) -> Answer {
    let (start, end) = (of(start)?, of(end)?);
    let milliseconds = milliseconds.required()?;
    let (Some(from), Some(to)) = (start.recorded, end.recorded) else {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    };
    if (start.flags | end.flags) & DISABLE_TIMING != 0 {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    let signed = if to >= from {
        (to - from).as_secs_f32()
    } else {
        -(from - to).as_secs_f32()
    };
    milliseconds.set(signed * 1000.0);
    Ok(())
}

/// The only flag, EXTERNAL, matters to captures alone.
pub fn record_with_flags(event: CUevent, stream: CUstream, flags: c_uint) -> Answer {
    driver::get()?.lock().event_of(event)?;
    if flags > WAIT_EXTERNAL {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    record(event, stream)
}
