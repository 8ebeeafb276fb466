//! What queues have to do. A batch is carried out as soon as everything it waits for is there: at its submission, or when
//! a later signal, from another queue or the host, lets it go. All of a device's work passes one lock.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ash::vk;

use crate::boundary::Outcome;
use crate::command::CommandBuffer;
use crate::sync::{Fence, Semaphore};

/// One element of a submission.
#[derive(Default)]
pub struct Batch {
    pub waits: Vec<Point>,
    pub commands: Vec<Arc<CommandBuffer>>,
    pub signals: Vec<Point>,
    pub fence: Option<Arc<Fence>>,
}

/// A semaphore and, if it is a timeline, the value meant.
pub struct Point {
    pub semaphore: Arc<Semaphore>,
    pub value: u64,
}

pub struct Work {
    /// By line: each queue of the device has one.
    lines: Mutex<Vec<VecDeque<Batch>>>,
    changed: Condvar,
}

type Lines<'a> = MutexGuard<'a, Vec<VecDeque<Batch>>>;

impl Work {
    pub const fn new() -> Self {
        Self {
            lines: Mutex::new(Vec::new()),
            changed: Condvar::new(),
        }
    }

    pub fn submit(&self, line: usize, batches: impl IntoIterator<Item = Batch>) {
        let mut lines = self.lock();
        if lines.len() <= line {
            lines.resize_with(line + 1, VecDeque::new);
        }
        lines[line].extend(batches);
        self.advance(&mut lines);
    }

    /// Changes a semaphore, fence or event from the host's side, and does what that lets go.
    pub fn change(&self, change: impl FnOnce()) {
        let mut lines = self.lock();
        change();
        self.advance(&mut lines);
    }

    /// # Errors
    /// VK_TIMEOUT.
    pub fn wait(&self, timeout: u64, done: impl Fn() -> bool) -> Outcome {
        // A deadline beyond the clock's range is none.
        let deadline = Instant::now()
            .checked_add(Duration::from_nanos(timeout))
            .filter(|_| timeout != u64::MAX);
        let mut lines = self.lock();
        while !done() {
            lines =
                match deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())) {
                    None => self
                        .changed
                        .wait(lines)
                        .unwrap_or_else(PoisonError::into_inner),
                    Some(Duration::ZERO) => return Err(vk::Result::TIMEOUT),
                    Some(left) => {
                        self.changed
                            .wait_timeout(lines, left)
                            .unwrap_or_else(PoisonError::into_inner)
                            .0
                    }
                };
        }
        Ok(())
    }

    /// Until a queue, or all of them, has nothing left to do.
    pub fn wait_idle(&self, line: Option<usize>) -> Outcome {
        let mut lines = self.lock();
        let idle = |lines: &Lines<'_>| match line {
            Some(line) => lines.get(line).is_none_or(VecDeque::is_empty),
            None => lines.iter().all(VecDeque::is_empty),
        };
        while !idle(&lines) {
            lines = self
                .changed
                .wait(lines)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    fn lock(&self) -> Lines<'_> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn advance(&self, lines: &mut Lines<'_>) {
        let mut moved = true;
        while moved {
            moved = false;
            for line in lines.iter_mut() {
                while line
                    .front()
                    .is_some_and(|batch| batch.waits.iter().all(Point::is_reached))
                {
                    line.pop_front().iter().for_each(Batch::carry_out);
                    moved = true;
                }
            }
        }
        self.changed.notify_all();
    }
}

impl Point {
    fn is_reached(&self) -> bool {
        self.semaphore.reached(self.value)
    }
}

impl Batch {
    fn carry_out(&self) {
        for wait in &self.waits {
            wait.semaphore.consume();
        }
        for commands in &self.commands {
            commands.execute();
        }
        for signal in &self.signals {
            signal.semaphore.signal(signal.value);
        }
        if let Some(fence) = &self.fence {
            fence.set(true);
        }
    }
}
