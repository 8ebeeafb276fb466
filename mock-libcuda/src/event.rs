//! Events: moments on the device's clock.

use abi::cuda::*;

use crate::boundary::{Answer, Out};
use crate::capture::{self, CapturedEvent};
use crate::driver::{self, Driver};
use crate::handle;
use crate::process::{ContextId, Process};
use crate::stream;
use crate::timeline::{self, LineId, Moment};

pub struct Event {
    pub context: ContextId,
    flags: u32,
    recorded: Option<Moment>,
    /// The last record was captured instead.
    pub captured: Option<CapturedEvent>,
}

/// The only flag of records and waits: it matters to captures alone.
pub const EXTERNAL: u32 = 1;
const DISABLE_TIMING: u32 = 2;
const INTERPROCESS: u32 = 4;
const KNOWN_FLAGS: u32 = 7;

pub fn handle_of(id: u32) -> CUevent {
    CUevent(handle::encode(handle::Kind::Event, id) as *mut c_void)
}

impl Event {
    pub fn moment(&self) -> Option<Moment> {
        self.recorded.clone()
    }
}

impl Process {
    pub fn event_id(&self, event: CUevent) -> Result<u32, CUresult> {
        if event.is_null() {
            return Err(CUresult::ERROR_INVALID_HANDLE);
        }
        // The driver follows what it is given; a number that never was an event ends the process.
        let id = handle::decode(handle::Kind::Event, event.0 as u64)
            .unwrap_or_else(|| crate::boundary::crash());
        match self.events.get(&id) {
            Some(_) => Ok(id),
            None => Err(CUresult::ERROR_CONTEXT_IS_DESTROYED),
        }
    }

    pub fn event_of(&self, event: CUevent) -> Result<&Event, CUresult> {
        self.event_id(event).map(|id| &self.events[&id])
    }

    /// When the event's last record is done; `None` if it was never recorded.
    pub fn event_moment(&self, event: CUevent) -> Result<Option<Moment>, CUresult> {
        self.event_of(event).map(|event| event.recorded.clone())
    }

    /// Records an event at the end of a line.
    pub fn record(&mut self, driver: &Driver, id: u32, line: LineId) {
        let moment = stream::stamp(self, driver, line);
        if let Some(event) = self.events.get_mut(&id) {
            event.recorded = Some(moment);
            event.captured = None;
        }
    }
}

/// NULL is refused even before cuInit.
fn not_null(event: CUevent) -> Answer {
    if event.is_null() {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    Ok(())
}

pub fn create(event: Out<CUevent>, flags: c_uint) -> Answer {
    let mut process = driver::get()?.lock();
    let context = process.current()?;
    let event = event.required()?;
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
            captured: None,
        },
    );
    event.set(handle_of(id));
    Ok(())
}

/// What waits for it goes on waiting.
pub fn destroy(event: CUevent) -> Answer {
    not_null(event)?;
    let mut process = driver::get()?.lock();
    let id = process.event_id(event)?;
    process.events.remove(&id);
    Ok(())
}

pub fn record(event: CUevent, stream: CUstream) -> Answer {
    record_with_flags(event, stream, 0)
}

pub fn record_with_flags(event: CUevent, stream: CUstream, flags: c_uint) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.event_id(event)?;
    if flags > EXTERNAL {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let context = process.stream_context(stream)?;
    let line = process.line_of(stream)?;
    if process.events[&id].context != context {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    if capture::event_recorded(&mut process, stream, line, id, flags == EXTERNAL)? {
        return Ok(());
    }
    process.record(driver, id, line);
    Ok(())
}

pub fn synchronize(event: CUevent) -> Answer {
    not_null(event)?;
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.event_id(event)?;
    capture::forbids_asking(&mut process, id, true)?;
    let moment = process.events[&id].recorded.clone();
    timeline::wait(driver, process, moment.as_slice()).settle_pools(driver);
    Ok(())
}

pub fn query(event: CUevent) -> Answer {
    not_null(event)?;
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.event_id(event)?;
    capture::forbids_asking(&mut process, id, true)?;
    done(driver, &process.events[&id])
}

fn done(driver: &Driver, event: &Event) -> Answer {
    let now = driver.world.now();
    match &event.recorded {
        Some(moment) if moment.known().is_none_or(|time| time > now) => {
            Err(CUresult::ERROR_NOT_READY)
        }
        _ => Ok(()),
    }
}

pub fn elapsed(milliseconds: Out<c_float>, start: CUevent, end: CUevent) -> Answer {
    not_null(start)?;
    not_null(end)?;
    let driver = driver::get()?;
    let mut process = driver.lock();
    let (start, end) = (process.event_id(start)?, process.event_id(end)?);
    let milliseconds = milliseconds
        .optional()
        .ok_or(CUresult::ERROR_INVALID_HANDLE)?;
    capture::forbids_asking(&mut process, start, false)?;
    capture::forbids_asking(&mut process, end, false)?;
    let (start, end) = (&process.events[&start], &process.events[&end]);
    if (start.flags | end.flags) & DISABLE_TIMING != 0 || start.context != end.context {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    let (Some(from), Some(to)) = (&start.recorded, &end.recorded) else {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    };
    done(driver, start)?;
    done(driver, end)?;
    let (from, to) = (
        from.known().unwrap_or_default().0,
        to.known().unwrap_or_default().0,
    );
    milliseconds.set((to as i64 - from as i64) as f32 / 1e6);
    Ok(())
}

/// Records an event behind all work of a context.
pub fn record_of_context(context: CUcontext, event: CUevent) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let context = process.context_of(context)?;
    let id = process.event_id(event)?;
    capture::forbids_context(&mut process, context)?;
    let line = process.open_line(context, false);
    for moment in process.end_of_context(context) {
        process.put(driver, line, timeline::Op::Wait(moment));
    }
    process.record(driver, id, line);
    process.timeline.close(line);
    Ok(())
}

/// Lets all work that comes to a context's streams wait for an event.
pub fn wait_in_context(context: CUcontext, event: CUevent) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let context = process.context_of(context)?;
    process.event_id(event)?;
    capture::forbids_context(&mut process, context)?;
    if let Some(moment) = process.event_moment(event)? {
        for line in process.lines_of(context) {
            process.put(driver, line, timeline::Op::Wait(moment.clone()));
        }
    }
    Ok(())
}

/// An event's name for other processes; only an INTERPROCESS one has one. Other processes' events cannot be opened here,
/// nor can a process open its own.
pub fn ipc_handle(handle: Out<CUipcEventHandle>, event: CUevent) -> Answer {
    let handle = handle.required()?;
    let process = driver::get()?.lock();
    if event.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    process.current()?;
    let known = process.event_id(event);
    let id = known
        .ok()
        .filter(|id| process.events[id].flags & INTERPROCESS != 0);
    let Some(id) = id else {
        handle.set(CUipcEventHandle::zeroed());
        return Err(CUresult::ERROR_INVALID_HANDLE);
    };
    let mut name = CUipcEventHandle::zeroed();
    let words = [std::process::id(), id].map(u32::to_ne_bytes).concat();
    for (to, from) in name.reserved.iter_mut().zip(words) {
        *to = from as c_char;
    }
    handle.set(name);
    Ok(())
}

pub fn ipc_open(event: Out<CUevent>, handle: CUipcEventHandle) -> Answer {
    event.required()?;
    let process = driver::get()?.lock();
    process.current()?;
    let byte = |at: usize| handle.reserved[at] as u8;
    let owner = u32::from_ne_bytes([byte(0), byte(1), byte(2), byte(3)]);
    match owner == std::process::id() {
        true => Err(CUresult::ERROR_INVALID_CONTEXT),
        false => Err(CUresult::ERROR_MAP_FAILED),
    }
}
