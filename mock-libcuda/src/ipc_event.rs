//! Interprocess events: the time of the last record, where other processes read it. It lies in an object of the world, in
//! one word; nobody locks anything, so that nobody's death holds anybody up but who waits for what the dead left unfinished,
//! as on the card (H200, 580.159.04).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use abi::cuda::*;
use mock_device::{Bytes, Kind, Nanos, Object, ObjectId};

use crate::boundary::{Answer, Out};
use crate::driver::{self, Driver};
use crate::event::{self, Event};
use crate::process::{ContextId, Process};
use crate::timeline::{LineId, Load, Moment, Op};

const MARK: u64 = u64::from_le_bytes(*b"ringeven");
/// The word of an event that was never recorded.
const NEVER: u64 = 0;
/// The word of a record whose time nobody knows yet.
const UNKNOWN: u64 = u64::MAX;

/// Objects of the events that this process made or opened. The driver keeps them as long as the process: a destroyed event
/// can still be opened.
#[derive(Default)]
pub struct Kept(Vec<Object<'static>>);

/// One event as all its processes see it.
#[derive(Debug)]
pub struct Shared {
    id: ObjectId,
    file: File,
}

impl Shared {
    fn of(object: &Object<'_>) -> std::io::Result<Arc<Shared>> {
        Ok(Arc::new(Shared {
            id: object.id(),
            file: object.file().try_clone()?,
        }))
    }

    fn read(&self) -> u64 {
        let mut word = [0; 8];
        match self.file.read_exact_at(&mut word, 0) {
            Ok(()) => u64::from_ne_bytes(word),
            Err(_) => NEVER,
        }
    }

    fn write(&self, word: u64) {
        // A page of a file in memory: it can be full only when it is made.
        let _ = self.file.write_all_at(&word.to_ne_bytes(), 0);
    }

    /// Whether the last record is done or its time known.
    pub fn is_known(&self) -> bool {
        self.read() != UNKNOWN
    }

    /// When the last record is done, by whichever process; `None` if there was none.
    pub fn moment(&self) -> Option<Moment> {
        match self.read() {
            NEVER => None,
            UNKNOWN => Some(Moment::unknown()),
            time => Some(Moment::at(Nanos(time))),
        }
    }
}

fn no_room<E>(_: E) -> CUresult {
    CUresult::ERROR_OUT_OF_MEMORY
}

impl Process {
    fn keep_event(&mut self, object: Object<'static>) -> Result<Arc<Shared>, CUresult> {
        let shared = Shared::of(&object).map_err(no_room)?;
        self.event_objects.0.push(object);
        Ok(shared)
    }

    /// The object of a new interprocess event of a context.
    pub fn new_shared_event(
        &mut self,
        driver: &'static Driver,
        context: ContextId,
    ) -> Result<Arc<Shared>, CUresult> {
        let device = driver.index(self.context(context).device);
        let object = driver
            .world
            .new_object(device, Kind::Context, Bytes(0))
            .map_err(no_room)?;
        let shared = self.keep_event(object)?;
        shared.write(NEVER);
        Ok(shared)
    }

    /// Tells all processes of a record at the end of a line, which [`Process::record`] has just put there.
    pub fn publish(
        &mut self,
        driver: &Driver,
        shared: &Arc<Shared>,
        moment: &Moment,
        line: LineId,
    ) {
        if let Some(time) = moment.known() {
            shared.write(time.0.max(1));
            return;
        }
        shared.write(UNKNOWN);
        let (shared, moment) = (Arc::clone(shared), moment.clone());
        let tell = move |_: &mut Process, _: &Driver| {
            let time = moment.known().unwrap_or_default();
            shared.write(time.0.max(1));
        };
        let load = Load::nothing();
        let act = Some(Arc::new(tell) as crate::timeline::Act);
        self.put(driver, line, Op::Work { load, act });
    }
}

/// An event's name for other processes. Only its maker can give it, and only of an INTERPROCESS event.
pub fn get_handle(out: Out<CUipcEventHandle>, event: CUevent) -> Answer {
    let out = out.required()?;
    let process = driver::get()?.lock();
    if event.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    process.current()?;
    let known = process.event_of(event).ok();
    let own = known.filter(|event| !event.was_opened());
    let Some(shared) = own.and_then(|event| event.shared()) else {
        out.set(CUipcEventHandle::zeroed());
        return Err(CUresult::ERROR_INVALID_HANDLE);
    };
    let mut name = CUipcEventHandle::zeroed();
    let words = [MARK, shared.id.0, u64::from(std::process::id())];
    let bytes = words.map(u64::to_ne_bytes).concat();
    for (to, from) in name.reserved.iter_mut().zip(bytes) {
        *to = from as c_char;
    }
    out.set(name);
    Ok(())
}

/// A process cannot open what it made itself.
pub fn open(event: Out<CUevent>, handle: CUipcEventHandle) -> Answer {
    let event = event.required()?;
    let driver = driver::get()?;
    let mut process = driver.lock();
    let context = process.current()?;
    let word = |at: usize| {
        let bytes = &handle.reserved[at * 8..at * 8 + 8];
        let bytes: Vec<u8> = bytes.iter().map(|byte| *byte as u8).collect();
        u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
    };
    if word(0) != MARK {
        return Err(CUresult::ERROR_MAP_FAILED);
    }
    if word(2) == u64::from(std::process::id()) {
        return Err(CUresult::ERROR_INVALID_CONTEXT);
    }
    let object = driver
        .world
        .open_object(ObjectId(word(1)))
        .map_err(|_| CUresult::ERROR_MAP_FAILED)?;
    let shared = process.keep_event(object)?;
    let id = process.next_handle();
    process.events.insert(id, Event::opened(context, shared));
    event.set(event::handle_of(id));
    Ok(())
}
