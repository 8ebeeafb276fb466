//! When the work on streams is done: one line of work per stream, on the engines of the simulated device.
//!
//! Nothing runs in the background. Work whose predecessors are known acts at once (its bytes move at submission, or
//! [before anybody can look](crate::movement)) and only its end lies in the future; waiting is sleeping until then. What stands behind something whose end nobody knows yet (a
//! host function, a value that memory does not have, an event recorded behind one of these) is *deferred*: it waits in its
//! line, in order, and acts when [`Process::settle`] finds its predecessors done.

mod attendant;

pub use self::attendant::*;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use abi::cuda::CUresult;
use mock_device::{Engine, Nanos, Task};

use crate::boundary::ClientCall;
use crate::driver::{Driver, Ordinal};
use crate::external_semaphore::Point;
use crate::ipc_event::Shared;
use crate::memop::Condition;
use crate::process::{ContextId, Process};

/// A line of work; a created stream's handle holds the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LineId(pub u32);

/// What moves bytes when its turn comes, as often as a graph is launched.
pub type Act = Arc<dyn Fn(&mut Process, &Driver) + Send + Sync>;

/// A time that may not be known yet.
#[derive(Clone, Debug)]
pub struct Moment(Arc<AtomicU64>);

impl Moment {
    pub fn unknown() -> Moment {
        Moment(Arc::new(AtomicU64::new(u64::MAX)))
    }

    pub fn at(time: Nanos) -> Moment {
        Moment(Arc::new(AtomicU64::new(time.0)))
    }

    pub fn known(&self) -> Option<Nanos> {
        match self.0.load(Ordering::Acquire) {
            u64::MAX => None,
            time => Some(Nanos(time)),
        }
    }

    fn resolve(&self, time: Nanos) {
        self.0.store(time.0, Ordering::Release);
    }
}

/// What work is to the device.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// `None` takes no time.
    pub task: Option<Task>,
    /// How it ends, where that is known to be an error.
    pub fault: Option<CUresult>,
}

impl Load {
    pub fn of(task: Task) -> Load {
        Load {
            task: Some(task),
            fault: None,
        }
    }

    pub fn nothing() -> Load {
        Load {
            task: None,
            fault: None,
        }
    }

    fn is_of(&self, engine: Engine) -> bool {
        self.task.is_some_and(|task| task.engine == engine)
    }
}

/// From when a kernel faulted until the driver knows, and every call does (H200, 580.159.04: more than 60 ms, less than 300).
const FAULT_KNOWN_AFTER: Nanos = Nanos(150_000_000);

pub enum Op {
    /// Takes time on an engine, and acts.
    Work {
        load: Load,
        act: Option<Act>,
    },
    /// Tells when everything before it was done.
    Record(Moment),
    /// As Record, but as the device's clock would stamp it: not before now.
    Stamp(Moment),
    Wait(Moment),
    /// Waits until a record that another process made is done.
    Foreign(Arc<Shared>),
    /// Waits until memory satisfies it.
    Until(Condition),
    /// Signals another API's semaphore when everything before it is done.
    Signal(Point),
    /// Waits for another API's semaphore.
    Await(Point),
    /// The client's own function, called by the attendant thread.
    Call(ClientCall),
}

pub struct Line {
    pub context: ContextId,
    device: Ordinal,
    /// Synchronises with its context's legacy stream.
    blocking: bool,
    /// When all of it that is not deferred is done.
    tail: Nanos,
    deferred: VecDeque<Op>,
    /// When each of the kernels that are not done yet will be: a stream holds so many and no more.
    kernels: VecDeque<Nanos>,
    /// The attendant is in a function of this line.
    calling: bool,
    /// Its stream is destroyed (or never was): it goes when nothing is left to do.
    closed: bool,
}

/// Launches that a stream holds before the next one waits (H200, 580.159.04: 1,100 behind a busy one waited).
const QUEUE: usize = 1024;

impl Line {
    fn launched(&mut self, now: Nanos, end: Nanos) {
        while self.kernels.front().is_some_and(|done| *done <= now) {
            self.kernels.pop_front();
        }
        self.kernels.push_back(end);
        if self.kernels.len() > QUEUE {
            let free = self.kernels[self.kernels.len() - QUEUE];
            crate::admission::queue_full_until(free);
        }
    }

    fn is_deferred(&self) -> bool {
        self.calling || !self.deferred.is_empty()
    }

    /// Whether what stands first may have come due: most of a large graph's lines wait for others.
    fn may_go(&self) -> bool {
        !self.calling
            && match self.deferred.front() {
                None | Some(Op::Call(_)) => false,
                Some(Op::Wait(moment)) => moment.known().is_some(),
                Some(_) => true,
            }
    }
}

#[derive(Default)]
pub struct Timeline {
    lines: BTreeMap<LineId, Line>,
    legacy: BTreeMap<ContextId, LineId>,
    /// When the last work is done of lines that were closed before that.
    left: BTreeMap<ContextId, Nanos>,
    /// By context and thread.
    per_thread: BTreeMap<(ContextId, u64), LineId>,
}

/// What the attendant has to do next.
pub enum Duty {
    Call(LineId),
    /// Nothing before this time.
    At(Nanos),
    /// Values in memory are waited for, and clients write to it without a call.
    Look,
    None,
}

impl Timeline {
    fn mark(&mut self, id: LineId) -> Moment {
        let Some(line) = self.lines.get_mut(&id) else {
            return Moment::at(Nanos::ZERO);
        };
        if line.is_deferred() {
            let moment = Moment::unknown();
            line.deferred.push_back(Op::Record(moment.clone()));
            moment
        } else {
            Moment::at(line.tail)
        }
    }

    /// The lines that `id` must not overtake: the legacy stream for a blocking one, all blocking ones for the legacy one.
    fn neighbours(&self, id: LineId) -> Vec<LineId> {
        let line = &self.lines[&id];
        let Some(&legacy) = self.legacy.get(&line.context) else {
            return Vec::new();
        };
        if legacy == id {
            self.of_context(line.context)
                .filter(|(other, line)| *other != id && line.blocking)
                .map(|(other, _)| other)
                .collect()
        } else if line.blocking {
            vec![legacy]
        } else {
            Vec::new()
        }
    }

    fn of_context(&self, context: ContextId) -> impl Iterator<Item = (LineId, &Line)> {
        self.lines
            .iter()
            .filter(move |(_, line)| line.context == context)
            .map(|(id, line)| (*id, line))
    }

    /// Whether all work of a context is done; the clock is asked only where there was some.
    pub fn is_done(&self, context: ContextId, now: impl FnOnce() -> Nanos) -> bool {
        let mut last = self.left.get(&context).copied().unwrap_or(Nanos::ZERO);
        for (_, line) in self.of_context(context) {
            if line.is_deferred() {
                return false;
            }
            last = last.max(line.tail);
        }
        last == Nanos::ZERO || last <= now()
    }

    pub fn per_thread(&self, context: ContextId, thread: u64) -> Option<LineId> {
        self.per_thread.get(&(context, thread)).copied()
    }

    pub fn set_per_thread(&mut self, context: ContextId, thread: u64, line: LineId) {
        self.per_thread.insert((context, thread), line);
    }

    /// The default stream of a thread that is gone; it stands in its order for the next thread.
    pub fn take_per_thread(
        &mut self,
        context: ContextId,
        is_gone: impl Fn(u64) -> bool,
    ) -> Option<LineId> {
        let own = (context, 0)..=(context, u64::MAX);
        let mut threads = self.per_thread.range(own).map(|(key, _)| *key);
        let left = threads.find(|(_, thread)| is_gone(*thread))?;
        self.per_thread.remove(&left)
    }

    /// How many threads have a default stream of their own in a context.
    pub fn threads_of(&self, context: ContextId) -> u64 {
        self.per_thread
            .keys()
            .filter(|(of, _)| *of == context)
            .count() as u64
    }

    /// The lines that the legacy stream waits for.
    pub fn blocking_with(&self, legacy: LineId) -> Vec<LineId> {
        match self.lines.get(&legacy) {
            Some(line) => self
                .of_context(line.context)
                .filter(|(id, line)| *id != legacy && line.blocking)
                .map(|(id, _)| id)
                .collect(),
            None => Vec::new(),
        }
    }

    /// The lines that are waited for with a line: all blocking ones with the legacy one.
    pub fn waited_for_with(&self, id: LineId) -> Vec<LineId> {
        let is_legacy = self
            .lines
            .get(&id)
            .is_some_and(|line| self.legacy.get(&line.context) == Some(&id));
        if is_legacy {
            self.blocking_with(id)
        } else {
            Vec::new()
        }
    }

    pub fn close(&mut self, id: LineId) {
        if let Some(line) = self.lines.get_mut(&id) {
            line.closed = true;
            if !line.is_deferred() {
                let left = self.left.entry(line.context).or_default();
                *left = line.tail.max(*left);
                self.lines.remove(&id);
            }
        }
    }

    /// What the attendant must do for the work that waits, the earliest first.
    pub fn duty(&self, now: Nanos) -> Duty {
        let mut look = false;
        let mut first: Option<(Nanos, LineId)> = None;
        for (id, line) in &self.lines {
            match line.deferred.front() {
                Some(Op::Call(_))
                    if !line.calling && first.is_none_or(|(at, _)| line.tail < at) =>
                {
                    first = Some((line.tail, *id));
                }
                Some(Op::Until(_) | Op::Foreign(_) | Op::Await(_)) => look = true,
                _ => {}
            }
        }
        match first {
            Some((at, line)) if at <= now => Duty::Call(line),
            _ if look => Duty::Look,
            Some((at, _)) => Duty::At(at),
            None => Duty::None,
        }
    }
}

impl Process {
    pub fn open_line(&mut self, context: ContextId, blocking: bool) -> LineId {
        let id = LineId(self.next_handle());
        let line = Line {
            context,
            device: self.context(context).device,
            blocking,
            tail: Nanos::ZERO,
            deferred: VecDeque::new(),
            kernels: VecDeque::new(),
            calling: false,
            closed: false,
        };
        self.timeline.lines.insert(id, line);
        id
    }

    pub fn legacy_line(&mut self, context: ContextId) -> LineId {
        if let Some(&line) = self.timeline.legacy.get(&context) {
            return line;
        }
        let line = self.open_line(context, true);
        self.timeline.legacy.insert(context, line);
        line
    }

    /// Puts an operation at the end of a line. It acts now, unless something before it is deferred.
    pub fn put(&mut self, driver: &Driver, id: LineId, op: Op) {
        let mut floor = Nanos::ZERO;
        let mut before = VecDeque::new();
        for neighbour in self.timeline.neighbours(id) {
            let moment = self.timeline.mark(neighbour);
            match moment.known() {
                Some(time) => floor = floor.max(time),
                None => before.push_back(Op::Wait(moment)),
            }
        }
        let Some(line) = self.timeline.lines.get_mut(&id) else {
            return;
        };
        if !line.is_deferred() && before.is_empty() {
            line.tail = line.tail.max(floor);
            if let Err(op) = self.perform(driver, id, op)
                && let Some(line) = self.timeline.lines.get_mut(&id)
            {
                if matches!(op, Op::Call(_)) {
                    line.tail = line.tail.max(driver.world.now());
                }
                line.deferred.push_back(op);
                crate::admission::work_until(Nanos(u64::MAX));
                driver.attendant.wake();
            }
            return;
        }
        line.deferred.append(&mut before);
        if floor > line.tail {
            line.deferred.push_back(Op::Wait(Moment::at(floor)));
        }
        line.deferred.push_back(op);
        crate::admission::work_until(Nanos(u64::MAX));
        driver.attendant.wake();
    }

    /// Does what stands first in a line, or gives it back where its time has not come.
    fn perform(&mut self, driver: &Driver, id: LineId, op: Op) -> Result<(), Op> {
        let now = driver.world.now();
        let Some(line) = self.timeline.lines.get(&id) else {
            return Ok(());
        };
        let (mut tail, device) = (line.tail, line.device);
        let kernel = matches!(&op, Op::Work { load, .. } if load.is_of(Engine::Compute));
        match op {
            Op::Work { load, act } => {
                // Its time begins before its bytes move: how long the mock takes for them is no time of the device.
                tail = match &load.task {
                    Some(task) => driver.world.carry(driver.index(device), tail, task).end,
                    None => tail.max(now),
                };
                if let Some(act) = act {
                    self.move_bytes(driver, load.task.as_ref(), tail, act);
                }
                if let Some(code) = load.fault {
                    // What stands behind it is never reached.
                    tail = tail + FAULT_KNOWN_AFTER;
                    crate::admission::poison_at(code, tail);
                    driver.attendant.wake();
                }
            }
            Op::Record(moment) => moment.resolve(tail),
            Op::Stamp(moment) => {
                tail = tail.max(now);
                moment.resolve(tail);
            }
            Op::Wait(moment) => match moment.known() {
                Some(time) => tail = tail.max(time),
                None => return Err(Op::Wait(moment)),
            },
            Op::Foreign(event) => {
                if !event.is_known() {
                    return Err(Op::Foreign(event));
                }
                let time = event.moment().and_then(|moment| moment.known());
                tail = tail.max(time.unwrap_or_default());
            }
            Op::Until(condition) => {
                self.move_waiting(driver);
                if tail > now || !self.satisfied(driver, &condition) {
                    return Err(Op::Until(condition));
                }
                tail = now;
            }
            Op::Signal(point) => {
                tail = tail.max(now);
                point.signal(tail);
            }
            Op::Await(point) => match point.take() {
                Some(time) => tail = tail.max(time),
                None => return Err(Op::Await(point)),
            },
            Op::Call(call) => return Err(Op::Call(call)),
        }
        if let Some(line) = self.timeline.lines.get_mut(&id) {
            line.tail = tail;
            if kernel {
                line.launched(now, tail);
            }
        }
        if tail > now {
            crate::admission::work_until(tail);
        }
        Ok(())
    }

    /// Lets deferred work act as far as its predecessors are done.
    pub fn settle(&mut self, driver: &Driver) {
        loop {
            let waiting: Vec<LineId> = self
                .timeline
                .lines
                .iter()
                .filter(|(_, line)| line.may_go())
                .map(|(id, _)| *id)
                .collect();
            let mut progress = false;
            for id in waiting {
                progress |= self.settle_line(driver, id);
            }
            if !progress {
                break;
            }
        }
        driver.attendant.tell();
    }

    fn settle_line(&mut self, driver: &Driver, id: LineId) -> bool {
        let mut progress = false;
        while let Some(line) = self.timeline.lines.get_mut(&id) {
            let Some(op) = line.deferred.pop_front() else {
                break;
            };
            if let Err(op) = self.perform(driver, id, op) {
                if let Some(line) = self.timeline.lines.get_mut(&id) {
                    line.deferred.push_front(op);
                }
                return progress;
            }
            progress = true;
        }
        if self.timeline.lines.get(&id).is_some_and(|line| line.closed) {
            self.timeline.close(id);
        }
        progress
    }

    /// Takes the call that stands first in a line; until [`Process::called`] the line stands still.
    pub fn call_of(&mut self, id: LineId) -> Option<ClientCall> {
        let line = self.timeline.lines.get_mut(&id)?;
        match line.deferred.pop_front() {
            Some(Op::Call(call)) => {
                line.calling = true;
                Some(call)
            }
            other => {
                line.deferred.extend(other);
                None
            }
        }
    }

    pub fn called(&mut self, driver: &Driver, id: LineId) {
        if let Some(line) = self.timeline.lines.get_mut(&id) {
            line.calling = false;
            line.tail = driver.world.now();
            if line.closed {
                self.timeline.close(id);
            }
        }
        self.settle(driver);
    }

    /// When what the line holds now is done; for the legacy stream, what it would wait for too.
    pub fn end_of(&mut self, id: LineId) -> Vec<Moment> {
        if !self.timeline.lines.contains_key(&id) {
            return Vec::new();
        }
        let mut lines = vec![id];
        let context = self.timeline.lines[&id].context;
        if self.timeline.legacy.get(&context) == Some(&id) {
            lines.extend(self.timeline.neighbours(id));
        }
        lines
            .into_iter()
            .map(|line| self.timeline.mark(line))
            .collect()
    }

    pub fn lines_of(&self, context: ContextId) -> Vec<LineId> {
        self.timeline
            .of_context(context)
            .map(|(id, _)| id)
            .collect()
    }

    /// Has the attendant call a function of the client that no stream orders.
    pub fn call_soon(&mut self, driver: &Driver, call: ClientCall) {
        let id = LineId(self.next_handle());
        let line = Line {
            context: ContextId(u32::MAX),
            device: Ordinal(0),
            blocking: false,
            tail: Nanos::ZERO,
            deferred: VecDeque::from([Op::Call(call)]),
            kernels: VecDeque::new(),
            calling: false,
            closed: true,
        };
        self.timeline.lines.insert(id, line);
        driver.attendant.wake();
    }

    /// When all work of a context is done.
    pub fn end_of_context(&mut self, context: ContextId) -> Vec<Moment> {
        let lines: Vec<LineId> = self
            .timeline
            .of_context(context)
            .map(|(id, _)| id)
            .collect();
        let left = self.timeline.left.get(&context).copied();
        lines
            .into_iter()
            .map(|line| self.timeline.mark(line))
            .chain(left.map(Moment::at))
            .collect()
    }

    /// Whether a line has nothing left to do.
    pub fn is_idle(&self, id: LineId, now: Nanos) -> bool {
        let idle = |line: &Line| !line.is_deferred() && line.tail <= now;
        let Some(line) = self.timeline.lines.get(&id) else {
            return true;
        };
        idle(line)
            && (self.timeline.legacy.get(&line.context) != Some(&id)
                || self
                    .timeline
                    .of_context(line.context)
                    .all(|(_, line)| !line.blocking || idle(line)))
    }

    /// All lines of a context that ends.
    pub fn drop_lines(&mut self, context: ContextId) {
        self.timeline
            .lines
            .retain(|_, line| line.context != context);
        self.timeline.left.remove(&context);
        self.timeline.legacy.remove(&context);
        self.timeline.per_thread.retain(|(of, _), _| *of != context);
    }
}

/// Sleeps until all moments have passed; other threads have the process meanwhile.
pub fn wait<'a>(
    driver: &'a Driver,
    mut process: MutexGuard<'a, Process>,
    moments: &[Moment],
) -> MutexGuard<'a, Process> {
    process.move_waiting(driver);
    let mut last = Nanos::ZERO;
    for moment in moments {
        last = last.max(loop {
            match moment.known() {
                Some(time) => break time,
                None => match crate::admission::sticky_from() {
                    None => process = driver.attendant.wait(process),
                    // What is behind a fault never comes.
                    Some(from) if from <= driver.world.now() => return process,
                    Some(from) => {
                        let time = from.saturating_sub(driver.world.now());
                        process = driver.attendant.wait_for(process, time);
                    }
                },
            }
        });
    }
    let now = driver.world.now();
    if last > now {
        drop(process);
        std::thread::sleep(Duration::from_nanos(last.saturating_sub(now).0));
        process = driver.lock();
    }
    // Work that was deferred until now has bytes to move too.
    process.move_waiting(driver);
    process
}
