//! Events: moments on the device's clock.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use abi::cuda::*;

use crate::admission;
use crate::boundary::{Answer, Out};
use crate::capture::{self, CapturedEvent};
use crate::driver::{self, Driver};
use crate::handle;
use crate::ipc_event::Shared;
use crate::pool::Reached;
use crate::process::{ContextId, Process};
use crate::stream;
use crate::timeline::{self, LineId, Moment, Op};

pub struct Event {
    pub context: ContextId,
    flags: u32,
    recorded: Option<Moment>,
    /// What is known to be reached with it.
    reached: Option<Arc<Reached>>,
    shared: Option<Arc<Shared>>,
    /// Another process made it.
    opened: bool,
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
    /// Another process's event.
    pub fn opened(context: ContextId, shared: Arc<Shared>) -> Event {
        Event {
            context,
            flags: DISABLE_TIMING | INTERPROCESS,
            recorded: None,
            reached: None,
            shared: Some(shared),
            opened: true,
            captured: None,
        }
    }

    /// When the last record is done; `None` if there was none. A time that only another process will know stays unknown
    /// here: see [`wait_on`] and [`reached`].
    pub fn moment(&self) -> Option<Moment> {
        match (&self.recorded, &self.shared) {
            (Some(own), _) if own.known().is_none() => Some(own.clone()),
            (_, Some(shared)) => shared.moment(),
            (own, None) => own.clone(),
        }
    }

    pub fn shared(&self) -> Option<&Arc<Shared>> {
        self.shared.as_ref()
    }

    pub fn was_opened(&self) -> bool {
        self.opened
    }
}

/// Lets a line wait for an event's last record.
pub fn wait_on(process: &mut Process, driver: &Driver, id: u32, line: LineId) {
    let Some(event) = process.events.get(&id) else {
        return;
    };
    let own = event
        .recorded
        .as_ref()
        .is_some_and(|own| own.known().is_none());
    match (&event.shared, event.moment()) {
        (Some(shared), Some(moment)) if !own && moment.known().is_none() => {
            let shared = Arc::clone(shared);
            process.put(driver, line, Op::Foreign(shared));
        }
        (_, Some(moment)) => process.put(driver, line, Op::Wait(moment)),
        (_, None) => {}
    }
}

/// Waits until an event's last record is done.
fn reached<'a>(
    driver: &'a Driver,
    mut process: MutexGuard<'a, Process>,
    id: u32,
) -> MutexGuard<'a, Process> {
    const LOOK_EVERY: Duration = Duration::from_micros(50);
    loop {
        let Some(event) = process.events.get(&id) else {
            return process;
        };
        let moment = event.moment();
        let own = event
            .recorded
            .as_ref()
            .is_some_and(|own| own.known().is_none());
        let elsewhere = moment
            .as_ref()
            .is_some_and(|moment| moment.known().is_none())
            && !own;
        if !elsewhere {
            return timeline::wait(driver, process, moment.as_slice());
        }
        if admission::sticky().is_some() {
            return process;
        }
        drop(process);
        std::thread::sleep(LOOK_EVERY);
        process = driver.lock();
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

    /// Records an event at the end of a line.
    pub fn record(&mut self, driver: &Driver, id: u32, line: LineId) {
        let moment = stream::stamp(self, driver, line);
        let reached = Arc::new(self.reached_line(line));
        let mut shared = None;
        if let Some(event) = self.events.get_mut(&id) {
            event.recorded = Some(moment.clone());
            event.reached = Some(reached);
            event.captured = None;
            shared = event.shared.clone();
        }
        if let Some(shared) = shared {
            self.publish(driver, &shared, &moment, line);
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
    let driver = driver::get()?;
    let mut process = driver.lock();
    let context = process.current()?;
    let event = event.required()?;
    if flags & !KNOWN_FLAGS != 0 || (flags & INTERPROCESS != 0 && flags & DISABLE_TIMING == 0) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let shared = match flags & INTERPROCESS != 0 {
        true => Some(process.new_shared_event(driver, context)?),
        false => None,
    };
    let id = process.next_handle();
    process.events.insert(
        id,
        Event {
            context,
            flags,
            recorded: None,
            reached: None,
            shared,
            opened: false,
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
    // The record that is waited for: there may be another meanwhile.
    let waited_for = process.events[&id].reached.clone();
    let mut process = reached(driver, process, id);
    if let Some(waited_for) = waited_for {
        process.settle_pools(driver, &waited_for);
    }
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
    match event.moment() {
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
        process.put(driver, line, Op::Wait(moment));
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
    let id = process.event_id(event)?;
    capture::forbids_context(&mut process, context)?;
    for line in process.lines_of(context) {
        wait_on(&mut process, driver, id, line);
    }
    Ok(())
}
