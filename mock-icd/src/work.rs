//! What queues have to do. A batch is put on the device's engines as soon as all that it waits for has a time: at its
//! submission, or when a later signal, from another queue or the host, gives it one. Its bytes move then; what it signals
//! holds from its end on. All of a device's work passes one lock.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ash::vk;
use mock_device::Nanos;

use crate::binding::Member;
use crate::boundary::{Outcome, now};
use crate::command::{CommandBuffer, Lane};
use crate::sync::{Fence, Semaphore};

/// One element of a submission.
#[derive(Default)]
pub struct Batch {
    pub waits: Vec<Point>,
    /// With the members that execute them.
    pub commands: Vec<(Arc<CommandBuffer>, u32)>,
    /// What sparse binding changes.
    pub binds: Vec<Box<dyn FnOnce() + Send>>,
    pub signals: Vec<Point>,
    /// What else is to be told when all of it is done.
    pub ended: Vec<Box<dyn FnOnce(Nanos) + Send>>,
    pub fence: Option<Arc<Fence>>,
}

/// A semaphore and, if it is a timeline, the value meant.
pub struct Point {
    pub semaphore: Arc<Semaphore>,
    pub value: u64,
}

pub struct Work {
    lines: Mutex<Vec<Line>>,
    changed: Condvar,
}

/// Each queue of the device has one.
struct Line {
    lane: Lane,
    waiting: VecDeque<Batch>,
    /// When the last batch that was put on an engine is done.
    done: Nanos,
}

type Lines<'a> = MutexGuard<'a, Vec<Line>>;

/// How long a wait for something that another process may signal sleeps at a time.
const LOOK_AGAIN: Duration = Duration::from_micros(200);

impl Work {
    pub fn new(lanes: impl Iterator<Item = Lane>) -> Self {
        let lines = lanes.map(|lane| Line {
            lane,
            waiting: VecDeque::new(),
            done: Nanos::ZERO,
        });
        Self {
            lines: Mutex::new(lines.collect()),
            changed: Condvar::new(),
        }
    }

    pub fn submit(&self, line: usize, batches: impl IntoIterator<Item = Batch>) {
        let mut lines = self.lock();
        if let Some(line) = lines.get_mut(line) {
            line.waiting.extend(batches);
        }
        self.advance(&mut lines);
        // Even where nothing moved: what was added may wait for another process, and then waiting threads have to look.
        self.changed.notify_all();
    }

    /// Changes a semaphore from the host's side, does what that lets go, and wakes every thread that waits: one that waits
    /// for the semaphore itself has no batch that moves.
    pub fn change(&self, change: impl FnOnce()) {
        let mut lines = self.lock();
        change();
        self.advance(&mut lines);
        self.changed.notify_all();
    }

    /// Waits until the time that `done` names, as soon as it names one. `shared`: another process may bring it about.
    ///
    /// # Errors
    /// VK_TIMEOUT.
    pub fn wait(&self, timeout: u64, shared: bool, done: impl Fn() -> Option<Nanos>) -> Outcome {
        let begun = now();
        let deadline = Nanos(begun.0.saturating_add(timeout));
        let mut lines = self.lock();
        loop {
            self.advance(&mut lines);
            let here = now();
            let at = done();
            if at.is_some_and(|at| at <= here) {
                return Ok(());
            }
            if here >= deadline {
                return Err(vk::Result::TIMEOUT);
            }
            let until = at.unwrap_or(deadline).min(deadline);
            let mut left = Duration::from_nanos(until.saturating_sub(here).0);
            if at.is_none() && (shared || lines.iter().any(Line::waits_for_others)) {
                left = left.min(LOOK_AGAIN);
            }
            lines = if left.as_secs() > 1 << 30 {
                self.changed
                    .wait(lines)
                    .unwrap_or_else(PoisonError::into_inner)
            } else {
                self.changed
                    .wait_timeout(lines, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            };
        }
    }

    /// Until a queue, or all of them, has nothing left to do.
    pub fn wait_idle(&self, line: Option<usize>) -> Outcome {
        let mut lines = self.lock();
        loop {
            self.advance(&mut lines);
            let asked = lines
                .iter()
                .enumerate()
                .filter(|(index, _)| line.is_none_or(|line| line == *index));
            let (mut until, mut unknown) = (Nanos::ZERO, false);
            for (_, line) in asked {
                until = until.max(line.done);
                unknown |= !line.waiting.is_empty();
            }
            let here = now();
            if !unknown && until <= here {
                return Ok(());
            }
            let left = if unknown {
                LOOK_AGAIN
            } else {
                Duration::from_nanos(until.saturating_sub(here).0)
            };
            lines = self
                .changed
                .wait_timeout(lines, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn lock(&self) -> Lines<'_> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn advance(&self, lines: &mut Lines<'_>) {
        let mut moved = true;
        let mut any = false;
        while moved {
            moved = false;
            for line in lines.iter_mut() {
                while let Some(ready) = line.waiting.front().and_then(Batch::ready_at) {
                    if let Some(batch) = line.waiting.pop_front() {
                        line.done = batch.carry_out(&line.lane, ready.max(line.done));
                    }
                    moved = true;
                }
            }
            any |= moved;
        }
        if any {
            self.changed.notify_all();
        }
    }
}

impl Line {
    /// Whether a batch waits for a semaphore that other processes know.
    fn waits_for_others(&self) -> bool {
        self.waiting
            .front()
            .is_some_and(|batch| batch.waits.iter().any(|point| point.semaphore.is_shared()))
    }
}

impl Batch {
    /// From when on nothing is left to wait for; `None` while nobody has said so.
    fn ready_at(&self) -> Option<Nanos> {
        self.waits
            .iter()
            .map(|point| point.semaphore.reached_at(point.value))
            .try_fold(Nanos::ZERO, |latest, at| at.map(|at| latest.max(at)))
    }

    /// Answers when all of it is done.
    fn carry_out(self, lane: &Lane, ready: Nanos) -> Nanos {
        for wait in &self.waits {
            wait.semaphore.consume();
        }
        for bind in self.binds {
            bind();
        }
        let start = ready.max(now());
        let mut end = start;
        let mut ends = Vec::new();
        // The members of a group work at the same time, each on its own command buffers in their order.
        let of = |member: Member| {
            let own = self.commands.iter();
            own.filter(move |(_, mask)| mask >> member.0 & 1 != 0)
        };
        for member in Member::of_mask(lane.members()) {
            let mut here = start;
            for (commands, _) in of(member) {
                here = commands.schedule(lane, member, here, &mut ends);
            }
            end = end.max(here);
        }
        let mut ends = ends.into_iter();
        for member in Member::of_mask(lane.members()) {
            for (commands, _) in of(member) {
                commands.act(member, &mut ends, None);
            }
        }
        for signal in &self.signals {
            signal.semaphore.signal(signal.value, end);
        }
        for ended in self.ended {
            ended(end);
        }
        if let Some(fence) = &self.fence {
            fence.signal(end);
        }
        end
    }
}
