//! A device that processes share, and processes that launch work on it through the controller.
//!
//! Each process has one stream. While *n* processes have work, each one's first piece makes progress at 1/*n* of the speed, or they take
//! turns as on a card: in slices, with a pause at every change. Between two kernels the device rests, and the stream is not empty then. Launching
//! takes the processor's time, waking up is late, marks cost a little and the device idles between a mark and an idle stream's launch.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;

use throttle::{
    Costs, Key, Launched, Measured, Nanos, Order, Rules, Share, Shared, Throttle, WORDS,
};

use crate::history::History;
use crate::program::{Dice, Program, Step};

/// Divisible by every number of processes that share the device.
const PARTS: u64 = 2520;
const LAUNCH: u64 = 2_300;
const WAKE: u64 = 8_000;
const ASK: u64 = 3_000;
/// Asking whether a mark is reached.
const QUERY: u64 = 1_500;
/// For how long it is asked whether a lease's first mark is.
const WATCHED: u64 = 10_000_000;
/// From the end of the call to the work's start on an idle device: up to this long.
const START: u64 = 1_000;
/// Between two kernels of a stream (an H200: 2 µs).
const REST: u64 = 2_000;
/// Launches that a stream takes before the next one waits.
const QUEUE: usize = 1024;

/// How processes share the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Each at its part of the speed.
    Even,
    /// One after another, for so long, with a pause at every change.
    Slices { length: u64, change: u64 },
}

/// What an H200 was seen to do.
pub const SLICES: Sharing = Sharing::Slices {
    length: 2_000_000,
    change: 200_000,
};

/// The clock of a machine that has been up for a while.
pub const BOOT: u64 = 3_600_000_000_000;

struct Work {
    left: u64,
    opens: bool,
    closes: bool,
    begun: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Until this time.
    Something(u64),
    /// Until its stream is empty.
    Waiting,
    /// Until its stream has room.
    Blocked,
}

struct Process<R: Rules> {
    /// None: a foreign tenant's.
    throttle: Option<Box<(Throttle<R>, Costs)>>,
    program: Program,
    doing: Doing,
    /// The launch that waits for its turn.
    held: Option<(Key, u64)>,
    queue: VecDeque<Work>,
    opened: Option<u64>,
    last: Option<u64>,
    closed: Option<u64>,
    /// An idle stream reached the mark before the last launch while the launch was still being made.
    gap: u64,
    /// The lease was closed by a mark alone.
    ended: bool,
    coming: Option<Work>,
    /// Its thread watches for the mark before the lease's first launch, made then.
    watches: Option<(Nanos, u64)>,
    launches: u64,
}

/// The device, its processes, and what one tenant's processes share.
pub struct World<R: Rules> {
    pub now: u64,
    words: Box<[AtomicU64; WORDS]>,
    pub share: Option<Share>,
    processes: Vec<Process<R>>,
    dice: Dice,
    pub history: History,
    pub sharing: Sharing,
    /// In slices: whose turn it is, since when (it may lie ahead) and until when.
    turn: Option<usize>,
    since: u64,
    until: u64,
    /// Late wake-ups: up to this many nanoseconds.
    pub late: u64,
}

impl<R: Rules> World<R> {
    pub fn new(percent: u64, seed: u64) -> World<R> {
        World {
            now: BOOT,
            words: Box::new([const { AtomicU64::new(0) }; WORDS]),
            share: Share::percent(percent),
            processes: Vec::new(),
            dice: Dice::new(seed),
            history: History::default(),
            sharing: Sharing::Even,
            turn: None,
            since: 0,
            until: 0,
            late: 80_000,
        }
    }

    pub fn tenant(&mut self, program: Program) -> usize {
        self.add(program, Some(Box::default()))
    }

    pub fn foreigner(&mut self, program: Program) -> usize {
        self.add(program, None)
    }

    fn add(&mut self, program: Program, throttle: Option<Box<(Throttle<R>, Costs)>>) -> usize {
        // Nobody starts at the same nanosecond.
        let start = self.now + self.dice.below(50_000);
        self.processes.push(Process {
            throttle,
            program,
            doing: Doing::Something(start),
            held: None,
            queue: VecDeque::new(),
            opened: None,
            last: None,
            closed: None,
            gap: 0,
            ended: false,
            coming: None,
            watches: None,
            launches: 0,
        });
        self.processes.len() - 1
    }

    /// Killed where it stands; its work leaves the device. Another like it starts.
    pub fn kill(&mut self, at: usize) {
        let program = self.processes[at].program.clone();
        let fresh = self.add(program, Some(Box::default()));
        self.processes.swap_remove(at);
        self.turn = self.turn.filter(|turn| *turn != at);
        debug_assert!(fresh == self.processes.len());
    }

    pub fn program(&mut self, at: usize) -> &mut Program {
        &mut self.processes[at].program
    }

    /// Since the beginning.
    pub fn age(&self) -> Nanos {
        Nanos(self.now - BOOT)
    }

    pub fn scribble(&self, word: usize, value: u64) {
        self.words[word % WORDS].store(value, Ordering::Relaxed);
    }

    pub fn launches(&self, at: usize) -> u64 {
        self.processes[at].launches
    }

    pub fn all_launches(&self) -> u64 {
        self.processes.iter().map(|process| process.launches).sum()
    }

    /// What the controllers believe to have been busy.
    pub fn counted(&self) -> Nanos {
        Shared::new(&self.words).busy()
    }

    pub fn run(&mut self, length: Nanos) {
        let end = self.now + length.0;
        loop {
            self.take_turns();
            let done = self.soonest_end();
            let awake = self
                .processes
                .iter()
                .filter_map(|process| match process.doing {
                    Doing::Something(until) => Some(until.max(self.now)),
                    _ => None,
                });
            let next = awake
                .min()
                .unwrap_or(u64::MAX)
                .min(done.map_or(u64::MAX, |span| self.now + span))
                .min(self.next_turn());
            if next > end {
                self.advance(end - self.now);
                return;
            }
            self.advance(next - self.now);
            for at in 0..self.processes.len() {
                if matches!(self.processes[at].doing, Doing::Something(until) if until <= self.now)
                {
                    self.act(at);
                }
            }
        }
    }

    /// How long until some piece of work is done.
    fn soonest_end(&self) -> Option<u64> {
        let span = |at: usize| {
            let work = self.processes[at].queue.front()?;
            Some(match self.sharing {
                Sharing::Even => (work.left * self.active()).div_ceil(PARTS),
                Sharing::Slices { .. } => {
                    self.since.saturating_sub(self.now) + work.left.div_ceil(PARTS)
                }
            })
        };
        match self.sharing {
            Sharing::Even => (0..self.processes.len()).filter_map(span).min(),
            Sharing::Slices { .. } => self.turn.and_then(span),
        }
    }

    /// In slices: whose turn it is now.
    fn take_turns(&mut self) {
        let Sharing::Slices { length, change } = self.sharing else {
            return;
        };
        let waits = |at: usize| !self.processes[at].queue.is_empty();
        let is_over = self.turn.is_none_or(|turn| !waits(turn)) || self.until <= self.now;
        if !is_over {
            return;
        }
        let (last, count) = (self.turn.unwrap_or(0), self.processes.len());
        let next = (1..=count).map(|ahead| (last + ahead) % count);
        let Some(next) = next.into_iter().find(|at| waits(*at)) else {
            return;
        };
        if self.turn != Some(next) {
            self.turn = Some(next);
            self.since = self.now + change;
            self.processes[next].begin(self.since);
        }
        self.until = self.since.max(self.now) + length;
    }

    /// In slices: when the turn is over, if anybody waits for it.
    fn next_turn(&self) -> u64 {
        match self.sharing {
            Sharing::Slices { .. } if self.active() > 1 => self.until,
            _ => u64::MAX,
        }
    }

    fn active(&self) -> u64 {
        self.processes
            .iter()
            .filter(|process| !process.queue.is_empty())
            .count() as u64
    }

    fn advance(&mut self, span: u64) {
        let active = self.active();
        let tenants = self
            .processes
            .iter()
            .any(|process| process.throttle.is_some() && !process.queue.is_empty());
        if tenants {
            self.history.add(self.now - BOOT, self.now - BOOT + span);
        }
        self.now += span;
        if active == 0 {
            return;
        }
        let begun = self.now - span;
        let (progress, active) = match self.sharing {
            Sharing::Even => (span * PARTS / active, active),
            Sharing::Slices { .. } => ((self.now - self.since.clamp(begun, self.now)) * PARTS, 1),
        };
        for (at, process) in self.processes.iter_mut().enumerate() {
            if self.sharing != Sharing::Even && self.turn != Some(at) {
                continue;
            }
            let Some(work) = process.queue.front_mut() else {
                continue;
            };
            work.left = work.left.saturating_sub(progress);
            // What is left of a nanosecond.
            if work.left < PARTS / active.max(1) {
                let work = process.queue.pop_front();
                process.done(work, self.now, &mut self.dice);
            }
        }
    }

    fn act(&mut self, at: usize) {
        // Its stream is read now: what is put there is reached at once if it is empty.
        let is_read =
            self.sharing == Sharing::Even || self.turn == Some(at) && self.since <= self.now;
        let process = &mut self.processes[at];
        if let Some(work) = process.coming.take() {
            let opens = work.opens;
            process.push(self.now, work, is_read);
            let own = process.throttle.as_deref().filter(|_| opens);
            process.watches = own
                .and_then(|(throttle, _)| throttle.awaits_turn())
                .map(|lease| (lease, self.now));
            return;
        }
        if let (Some((lease, made)), Some((throttle, _))) =
            (process.watches, process.throttle.as_deref())
        {
            let took = self.now - made;
            match process.opened {
                Some(opened) if opened <= self.now => throttle.turned(lease, Nanos(took)),
                _ if took < WATCHED => {
                    process.doing = Doing::Something(self.now + QUERY);
                    return;
                }
                _ => {}
            }
            process.watches = None;
        }
        let Some(held) = process.held else {
            return self.step(at);
        };
        if process.queue.len() >= QUEUE {
            process.doing = Doing::Blocked;
            return;
        }
        let (key, cost) = held;
        let (Some(share), Some(own)) = (self.share, process.throttle.as_deref()) else {
            process.launch(self.now, cost, (false, false), is_read);
            return;
        };
        let (throttle, costs) = own;
        let shared = Shared::new(&self.words);
        let now = Nanos(self.now);
        let belief = costs.of(key);
        if throttle.pass(belief) {
            process.launch(self.now, cost, (false, false), is_read);
            return;
        }
        match throttle.submit(&shared, share, now, key, belief) {
            Order::Go => process.launch(self.now, cost, (false, false), is_read),
            Order::Mark { opens, closes } => {
                if closes {
                    throttle.launched(&shared, share, now, Launched::Marked);
                }
                process.launch(self.now, cost, (opens, closes), is_read);
            }
            Order::End => {
                throttle.launched(&shared, share, now, Launched::Marked);
                (process.ended, process.closed, process.gap) = (true, None, 0);
                match process.queue.back_mut() {
                    Some(work) => work.closes = true,
                    None => (process.closed, process.gap) = (Some(self.now), 1),
                }
                process.doing = Doing::Something(self.now + ASK);
            }
            Order::Wait(until) => {
                process.doing =
                    Doing::Something(late(until.0.max(self.now), self.late, &mut self.dice))
            }
            Order::Look => match process.closed.take() {
                Some(closed) => {
                    let since =
                        |mark: Option<u64>| mark.map(|mark| Nanos(closed.saturating_sub(mark)));
                    let last = since(process.last.filter(|_| !process.ended))
                        .map(|last| last.less(Nanos(process.gap)));
                    let alone = process.opened == process.last && last.is_some();
                    let measured = Measured {
                        lease: if alone { last } else { since(process.opened) },
                        last,
                        gap: Nanos(process.gap),
                    };
                    throttle.finished(&shared, share, costs, now, measured);
                    process.doing = Doing::Something(self.now + ASK);
                }
                None => {
                    let again = throttle.unfinished(&shared, share, now);
                    process.doing = Doing::Something(late(
                        again.0.max(self.now + ASK),
                        self.late,
                        &mut self.dice,
                    ));
                }
            },
        }
    }

    fn step(&mut self, at: usize) {
        let process = &mut self.processes[at];
        match process.program.step(&mut self.dice) {
            Step::Launch { function, cost } => {
                process.held = Some((Key::kernel(function << 8, 1), cost));
                process.doing = Doing::Something(self.now);
            }
            Step::Sync if process.queue.is_empty() => {
                process.doing = Doing::Something(self.now + 1_000)
            }
            Step::Sync => process.doing = Doing::Waiting,
            Step::Think(length) => process.doing = Doing::Something(self.now + length),
        }
    }
}

impl<R: Rules> Process<R> {
    fn launch(&mut self, now: u64, cost: u64, (opens, closes): (bool, bool), is_read: bool) {
        self.held = None;
        self.launches += 1;
        let idle = self.queue.is_empty() && is_read;
        if closes {
            self.closed = None;
            self.ended = false;
            self.last = idle.then_some(now);
            self.gap = if idle { LAUNCH } else { 0 };
        }
        if opens {
            self.opened = idle.then_some(now);
        }
        self.coming = Some(Work {
            left: (cost + REST) * PARTS,
            opens,
            closes,
            begun: false,
        });
        self.doing = Doing::Something(now + LAUNCH);
    }

    fn push(&mut self, now: u64, work: Work, is_read: bool) {
        let idle = self.queue.is_empty();
        self.queue.push_back(work);
        if idle {
            if is_read {
                self.begin(now);
            }
            if let Some(work) = self.queue.front_mut() {
                work.left += START / 2 * PARTS;
            }
        }
        self.doing = Doing::Something(now + 100);
    }

    /// The stream has come to its first piece of work.
    fn begin(&mut self, now: u64) {
        let Some(work) = self.queue.front_mut() else {
            return;
        };
        if !core::mem::replace(&mut work.begun, true) {
            if work.opens {
                self.opened.get_or_insert(now);
            }
            if work.closes {
                self.last.get_or_insert(now);
            }
        }
    }

    fn done(&mut self, work: Option<Work>, now: u64, dice: &mut Dice) {
        if work.is_some_and(|work| work.closes) {
            self.closed = Some(now);
        }
        self.begin(now);
        match self.doing {
            Doing::Waiting if self.queue.is_empty() => {
                self.doing = Doing::Something(now + WAKE + dice.below(WAKE))
            }
            Doing::Blocked => self.doing = Doing::Something(now),
            _ => {}
        }
    }
}

fn late(until: u64, most: u64, dice: &mut Dice) -> u64 {
    // Now and then the scheduler has better things to do.
    let rare = if dice.below(500) == 0 {
        dice.below(2_000_000)
    } else {
        0
    };
    until + most / 2 + dice.below(most / 2 + 1) + rare
}
