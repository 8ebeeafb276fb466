//! A device that processes share, and processes that launch work on it through the controller.
//!
//! While *n* processes have work, each one makes progress at 1/*n* of the speed, shared by the first pieces of its streams, or they take
//! turns as on a card: in slices, with a pause at every change. Between two kernels the device rests, and the stream is not empty then. Launching
//! takes the processor's time, waking up is late, marks cost a little and the device idles between a mark and an idle stream's launch.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::VecDeque;

use throttle::{
    Budget, End, Key, LEASES, Lane, Launched, Mark, Marks, Nanos, Order, Rules, Share, Shared,
    Slot, Told, WORDS,
};

use crate::history::History;
use crate::program::{Dice, Program, Step};

/// Divisible by every number of processes that share the device.
const PARTS: u64 = 2520;
const LAUNCH: u64 = 2_300;
const WAKE: u64 = 8_000;
const ASK: u64 = 3_000;
/// What setting a mark takes the host, and from one to the next on a card (an H200: 1.3 us); by how much a launch between two takes longer there. Where processes
/// share the device evenly, as on the mock, marks take nothing of it.
const MARK: u64 = 2_000;
const PASSES: u64 = 1_300;
const SLOWED: u64 = 2_100;
/// From a launch's return to what its thread does next.
const RETURN: u64 = 100;
/// Asking whether a mark is reached.
const QUERY: u64 = 1_500;
/// For how long it is asked whether a lease's first mark is.
const WATCHED: u64 = 10_000_000;
/// From the end of the call to the work's start on an idle device: up to this long.
const START: u64 = 1_000;
/// From a mark to the work after it, in a stream that was empty: so much more than between two kernels (an H200: 3.5 us in all).
const FETCH: u64 = 1_000;
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

#[derive(Clone, Copy, Default)]
struct Work {
    left: u64,
    /// The leases whose first launch it is, and whose last.
    opens: Option<Slot>,
    closes: Option<Slot>,
    begun: bool,
    /// The device does not begin with it earlier.
    from: u64,
    /// Nothing to do for the device: its stream comes no further before the process opens it.
    shut: bool,
    /// When the mark behind it is set.
    marked: u64,
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

/// When the marks of each lease were reached.
#[derive(Clone, Copy, Debug, Default)]
struct Reached {
    marks: [[Option<u64>; 4]; LEASES],
    /// The stream of the launch that is held has nothing to do.
    idle: Option<bool>,
    /// Which one that is.
    stream: usize,
}

impl Reached {
    fn of(&mut self, slot: Slot, mark: Mark) -> &mut Option<u64> {
        &mut self.marks[slot.index()][mark as usize]
    }
}

impl Marks for Reached {
    fn reached(&self, _place: u64, slot: Slot, mark: Mark) -> Option<bool> {
        Some(self.marks[slot.index()][mark as usize].is_some())
    }

    fn between(&self, _place: u64, from: (Slot, Mark), to: (Slot, Mark)) -> Option<Nanos> {
        let at = |(slot, mark): (Slot, Mark)| self.marks[slot.index()][mark as usize];
        at(to)?.checked_sub(at(from)?).map(Nanos)
    }

    fn is_idle(&self) -> Option<bool> {
        self.idle
    }

    fn waits(&self) -> bool {
        false
    }

    fn stream(&self) -> u64 {
        self.stream as u64
    }
}

/// The only place where marks are.
const PLACE: u64 = 1;

struct Process<R: Rules> {
    /// None: a foreign tenant's.
    lane: Option<Box<Lane<R>>>,
    /// Whose budget it has.
    tenant: usize,
    program: Program,
    doing: Doing,
    /// The launch that waits for its turn: what, how long, and in which stream.
    held: Option<(Key, u64, usize)>,
    streams: Vec<VecDeque<Work>>,
    /// When each came to its end.
    emptied: Vec<u64>,
    reached: Reached,
    coming: Option<(Work, usize)>,
    /// Its thread watches for the mark before the lease's first launch, made then.
    watches: Option<(Slot, Nanos, u64)>,
    /// See [`World::lag`].
    lag: i64,
    /// Marks take something of the device.
    is_card: bool,
    /// What a launch takes the host, and what a mark does: see [`World::host`].
    launch: u64,
    mark: u64,
    launches: u64,
    /// When each of its program's rounds ended.
    rounds: Vec<u64>,
}

/// A budget, and what the processes that have it share.
struct Tenant {
    words: Box<[AtomicU64; WORDS]>,
    share: Option<Share>,
    /// What the device did for it, in slices.
    done: History,
}

impl Tenant {
    fn new(percent: u64) -> Tenant {
        Tenant {
            words: Box::new([const { AtomicU64::new(0) }; WORDS]),
            share: Share::percent(percent),
            done: History::default(),
        }
    }
}

/// The device, its processes, and their tenants.
pub struct World<R: Rules> {
    pub now: u64,
    tenants: Vec<Tenant>,
    processes: Vec<Process<R>>,
    dice: Dice,
    /// When any tenant had work, and when the device had, foreigners' included.
    pub history: History,
    device: History,
    pub sharing: Sharing,
    /// In slices: whose turn it is, since when (it may lie ahead) and until when.
    turn: Option<usize>,
    since: u64,
    until: u64,
    /// Late wake-ups: up to this many nanoseconds.
    pub late: u64,
    /// A mark behind work that came to an idle stream is reached so much later, or earlier, than the device counts as busy.
    pub lag: i64,
    /// Nobody can say whether a stream is empty: Vulkan's queues.
    pub blind: bool,
    /// From the call's end until the device is at work, where the stream was empty: a mark before it is reached by then.
    fetch: u64,
}

impl<R: Rules> World<R> {
    pub fn new(percent: u64, seed: u64) -> World<R> {
        World {
            now: BOOT,
            tenants: vec![Tenant::new(percent)],
            processes: Vec::new(),
            dice: Dice::new(seed),
            history: History::default(),
            device: History::default(),
            sharing: Sharing::Even,
            turn: None,
            since: 0,
            until: 0,
            late: 80_000,
            lag: 0,
            blind: false,
            fetch: FETCH,
        }
    }

    /// A process of the last tenant.
    pub fn tenant(&mut self, program: Program) -> usize {
        self.add(program, Some(Box::default()))
    }

    /// Another tenant, with a ledger of its own.
    pub fn another(&mut self, percent: u64) {
        self.tenants.push(Tenant::new(percent));
    }

    /// The first tenant's budget from now on.
    pub fn change_budget(&mut self, percent: u64) {
        self.tenants[0].share = Share::percent(percent);
    }

    /// What the device did for a tenant, where it serves one process at a time.
    pub fn done(&self, tenant: usize) -> &History {
        &self.tenants[tenant].done
    }

    /// When a process has come to the end of its program's rounds.
    pub fn rounds(&self, at: usize) -> &[u64] {
        &self.processes[at].rounds
    }

    pub fn foreigner(&mut self, program: Program) -> usize {
        self.add(program, None)
    }

    fn add(&mut self, program: Program, lane: Option<Box<Lane<R>>>) -> usize {
        // Nobody starts at the same nanosecond.
        let start = self.now + self.dice.below(50_000);
        self.processes.push(Process {
            lane,
            tenant: self.tenants.len() - 1,
            streams: vec![VecDeque::new(); program.streams],
            emptied: vec![start; program.streams],
            program,
            doing: Doing::Something(start),
            held: None,
            reached: Reached::default(),
            coming: None,
            watches: None,
            lag: self.lag,
            is_card: self.sharing != Sharing::Even,
            launch: LAUNCH,
            mark: MARK,
            launches: 0,
            rounds: Vec::new(),
        });
        self.processes.len() - 1
    }

    /// Killed where it stands; its work leaves the device. Another like it starts.
    pub fn kill(&mut self, at: usize) {
        let program = self.processes[at].program.clone();
        let tenant = self.processes[at].tenant;
        let fresh = self.add(program, Some(Box::default()));
        self.processes[fresh].tenant = tenant;
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

    /// From now on launches take the host so many times as long, and marks so many times.
    pub fn host(&mut self, launches: u64, marks: u64) {
        for process in &mut self.processes {
            (process.launch, process.mark) = (LAUNCH * launches, MARK * marks);
        }
    }

    pub fn scribble(&self, word: usize, value: u64) {
        self.tenants[0].words[word % WORDS].store(value, Ordering::Relaxed);
    }

    pub fn launches(&self, at: usize) -> u64 {
        self.processes[at].launches
    }

    pub fn all_launches(&self) -> u64 {
        self.processes.iter().map(|process| process.launches).sum()
    }

    /// What the first tenant's controllers believe to have been busy.
    pub fn counted(&self) -> Nanos {
        Shared::new(&self.tenants[0].words).busy()
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
            let fetched = self
                .processes
                .iter()
                .filter_map(|process| process.fetches(self.now));
            let next = awake
                .chain(fetched)
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
            let (least, heads) = self.processes[at].heads(self.now)?;
            Some(match self.sharing {
                Sharing::Even => (least * heads * self.active()).div_ceil(PARTS),
                Sharing::Slices { .. } => {
                    self.since.saturating_sub(self.now) + (least * heads).div_ceil(PARTS)
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
        let now = self.now;
        let waits = |at: usize| self.processes[at].heads(now).is_some();
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
            self.processes[next].begin_all(self.since);
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
            .filter(|process| process.heads(self.now).is_some())
            .count() as u64
    }

    fn advance(&mut self, span: u64) {
        let active = self.active();
        let tenants = self
            .processes
            .iter()
            .any(|process| process.lane.is_some() && process.heads(self.now).is_some());
        let then = self.now - BOOT;
        if tenants {
            self.history.add(then, then + span);
        }
        if active > 0 {
            self.device.add(then, then + span);
        }
        let turn = self
            .turn
            .filter(|at| self.processes[*at].heads(self.now).is_some());
        if let (Some(at), Sharing::Slices { .. }) = (turn, self.sharing) {
            let since = self.since.clamp(self.now, self.now + span) - BOOT;
            self.tenants[self.processes[at].tenant]
                .done
                .add(since, then + span);
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
            let Some((_, heads)) = process.heads(begun) else {
                continue;
            };
            // What is left of a nanosecond.
            let least = PARTS / active.max(1) / heads;
            for stream in 0..process.streams.len() {
                let head = process.streams[stream].front_mut();
                let Some(work) = head.filter(|work| work.runs(begun)) else {
                    continue;
                };
                work.left = work.left.saturating_sub(progress / heads);
                if work.left < least {
                    process.done(stream, self.now, &mut self.dice);
                }
            }
        }
    }

    fn act(&mut self, at: usize) {
        // Its stream is read now: what is put there is reached at once if it is empty.
        let is_read =
            self.sharing == Sharing::Even || self.turn == Some(at) && self.since <= self.now;
        let tenant = self.processes[at].tenant;
        let is_same = |process: &Process<R>| process.lane.is_some() && process.tenant == tenant;
        let alone = self.processes.iter().all(is_same);
        let process = &mut self.processes[at];
        if let Some((work, stream)) = process.coming.take() {
            let before = process.reach_empty(&work, stream, (is_read, self.now));
            let tenant = &self.tenants[process.tenant];
            if let (Some(slot), Some(share), Some(lane)) =
                (work.closes, tenant.share, process.lane.as_deref())
            {
                let budget = Budget {
                    shared: Shared::new(&tenant.words),
                    share,
                };
                let end = End {
                    place: PLACE,
                    ended: false,
                    gap: Nanos(if before { process.launch } else { 0 }),
                    tail: Nanos(RETURN + process.mark),
                    gauged: true,
                };
                let of = (slot, lane.number(slot));
                lane.closed(&budget, Nanos(self.now), of, end, Launched::Marked);
            }
            process.push(self.now, work, stream, (is_read, self.fetch));
            let own = work.opens.zip(process.lane.as_deref());
            process.watches =
                own.and_then(|(slot, lane)| Some((slot, lane.awaits_turn(slot)?, self.now)));
            return;
        }
        if let (Some((slot, lease, made)), Some(lane)) = (process.watches, process.lane.as_deref())
        {
            let took = self.now - made;
            match *process.reached.of(slot, Mark::Opened) {
                Some(opened) if opened <= self.now => lane.turned(slot, lease, Nanos(took)),
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
        let (key, cost, stream) = held;
        if process.streams[stream].len() >= QUEUE {
            process.doing = Doing::Blocked;
            return;
        }
        let tenant = &self.tenants[process.tenant];
        let (Some(share), Some(lane)) = (tenant.share, process.lane.as_deref()) else {
            process.launch(self.now, cost, None, is_read);
            return;
        };
        let budget = Budget {
            shared: Shared::new(&tenant.words),
            share,
        };
        let now = Nanos(self.now);
        if lane.pass(key) {
            process.launch(self.now, cost, None, is_read);
            return;
        }
        process.reached.stream = stream;
        process.reached.idle = (!self.blind).then_some(process.streams[stream].is_empty());
        if let Some(since) = lane.is_to_ask(&budget, now) {
            let told = self.device.told(since, self.now - BOOT);
            let told = Told { alone, ..told };
            lane.hear(&budget, (now, now), Some(told));
        }
        let order = lane.order(&process.reached, &budget, now, key);
        match order {
            Order::Go => process.launch(self.now, cost, None, is_read),
            Order::Mark {
                slot,
                opens,
                closes,
            } => {
                if opens {
                    lane.opened(slot, PLACE);
                }
                process.launch(self.now, cost, Some((slot, opens, closes)), is_read);
            }
            Order::End(slot) => {
                let idle = process.streams[stream].is_empty();
                let end = End {
                    place: PLACE,
                    ended: true,
                    gap: Nanos(u64::from(idle)),
                    tail: Nanos::ZERO,
                    gauged: false,
                };
                lane.closed(
                    &budget,
                    now,
                    (slot, lane.number(slot)),
                    end,
                    Launched::Marked,
                );
                process.unmark(slot);
                *process.reached.of(slot, Mark::Closed) = idle.then_some(self.now);
                if !idle {
                    process.streams[stream].push_back(Work {
                        closes: Some(slot),
                        ..Work::default()
                    });
                }
                process.doing = Doing::Something(self.now + ASK);
            }
            Order::Wait(until) => {
                process.doing = Doing::Something(late(
                    until.0.max(self.now + QUERY),
                    self.late,
                    &mut self.dice,
                ));
            }
        }
    }

    fn step(&mut self, at: usize) {
        let process = &mut self.processes[at];
        let rounds = process.program.rounds();
        let step = process.program.step(&mut self.dice);
        if process.program.rounds() > rounds {
            process.rounds.push(self.now);
        }
        match step {
            Step::Launch {
                function,
                cost,
                stream,
            } => {
                process.held = Some((Key::kernel(function << 8, 1, 1), cost, stream));
                process.doing = Doing::Something(self.now);
            }
            Step::Close { stream, told } => {
                let gate = Work {
                    shut: true,
                    ..Work::default()
                };
                process.streams[stream].push_back(gate);
                if let Some(lane) = process.lane.as_ref().filter(|_| told) {
                    lane.note_wait();
                }
                process.doing = Doing::Something(self.now + LAUNCH);
            }
            Step::Copy => {
                if let Some(lane) = &process.lane {
                    lane.note_wait();
                }
                process.doing = Doing::Something(self.now + LAUNCH);
            }
            Step::Open => {
                process.doing = Doing::Something(self.now + LAUNCH);
                for stream in 0..process.streams.len() {
                    let gates = process.streams[stream].iter_mut();
                    gates.for_each(|work| work.shut = false);
                    process.pass(stream, self.now);
                }
            }
            Step::Sync if process.is_done() => process.doing = Doing::Something(self.now + 1_000),
            Step::Sync => process.doing = Doing::Waiting,
            Step::Think(length) => process.doing = Doing::Something(self.now + length),
        }
    }
}

impl Work {
    fn runs(&self, now: u64) -> bool {
        !self.shut && self.from <= now
    }
}

impl<R: Rules> Process<R> {
    /// The least that is left of the pieces that the device may work at, and how many there are.
    fn heads(&self, now: u64) -> Option<(u64, u64)> {
        let heads = self.streams.iter().filter_map(VecDeque::front);
        let running = heads.filter(|work| work.runs(now));
        running.fold(None, |found: Option<(u64, u64)>, work| {
            let (least, count) = found.unwrap_or((u64::MAX, 0));
            Some((least.min(work.left), count + 1))
        })
    }

    /// When the device begins with something that it has not begun yet.
    fn fetches(&self, now: u64) -> Option<u64> {
        let heads = self.streams.iter().filter_map(VecDeque::front);
        let coming = heads.filter(|work| !work.shut && work.from > now);
        coming.map(|work| work.from).min()
    }

    fn is_done(&self) -> bool {
        self.streams.iter().all(VecDeque::is_empty)
    }

    /// Makes the launch that is held: one of a lease with marks about it, whether it opens and closes it, or one without.
    fn launch(&mut self, now: u64, cost: u64, marked: Option<(Slot, bool, bool)>, is_read: bool) {
        let Some((_, _, stream)) = self.held.take() else {
            return;
        };
        self.launches += 1;
        let mut work = Work {
            left: (cost + REST) * PARTS,
            ..Work::default()
        };
        let (set, slowed) = match marked {
            Some((_, _, true)) => (now + self.mark, SLOWED),
            Some((_, true, _)) => (now + self.mark, PASSES),
            _ => (now, 0),
        };
        if self.is_card {
            work.left += slowed * PARTS;
        }
        if let Some((slot, opens, closes)) = marked {
            // A mark in an idle stream is reached at once.
            let at_once = (self.streams[stream].is_empty() && is_read).then_some(set);
            if opens {
                *self.reached.of(slot, Mark::Opened) = at_once;
                work.opens = Some(slot);
            }
            if closes {
                self.unmark(slot);
                *self.reached.of(slot, Mark::Last) = at_once;
                work.closes = Some(slot);
            }
        }
        self.coming = Some((work, stream));
        self.doing = Doing::Something(set + self.launch);
    }

    /// A launch is made, of which the marks before it were set in its stream. Whether these were reached before it was.
    fn reach_empty(&mut self, work: &Work, stream: usize, (is_read, now): (bool, u64)) -> bool {
        let marks = [(work.opens, Mark::Opened), (work.closes, Mark::Last)];
        let empty = self.streams[stream].is_empty() && is_read;
        // No mark is reached before it is set.
        let emptied = self.emptied[stream].max(now - self.launch);
        let mut reached = false;
        for (slot, mark) in marks {
            let mark = slot.map(|slot| self.reached.of(slot, mark));
            if let Some(mark) = mark {
                if empty {
                    mark.get_or_insert(emptied);
                }
                reached |= mark.is_some();
            }
        }
        reached
    }

    /// A mark that is set again is no longer where it was.
    fn unmark(&mut self, slot: Slot) {
        *self.reached.of(slot, Mark::Closed) = None;
        for work in self.streams.iter_mut().flatten() {
            work.closes = work.closes.filter(|of| *of != slot);
        }
    }

    fn push(&mut self, now: u64, work: Work, stream: usize, (is_read, fetch): (bool, u64)) {
        let idle = self.streams[stream].is_empty();
        let marked = if work.closes.is_some() { self.mark } else { 0 };
        let marked = now + RETURN + marked;
        self.streams[stream].push_back(Work { marked, ..work });
        if idle {
            if is_read {
                self.begin(stream, now);
            }
            if let Some(work) = self.streams[stream].front_mut() {
                work.from = now + fetch;
                work.left += START / 2 * PARTS;
            }
        }
        self.doing = Doing::Something(marked);
    }

    fn begin_all(&mut self, now: u64) {
        (0..self.streams.len()).for_each(|stream| self.begin(stream, now));
    }

    /// A stream has come to its first piece of work.
    fn begin(&mut self, stream: usize, now: u64) {
        let Some(work) = self.streams[stream].front_mut() else {
            return;
        };
        if !core::mem::replace(&mut work.begun, true) {
            if let Some(slot) = work.opens {
                self.reached.of(slot, Mark::Opened).get_or_insert(now);
            }
            if let Some(slot) = work.closes {
                self.reached.of(slot, Mark::Last).get_or_insert(now);
            }
        }
    }

    fn done(&mut self, stream: usize, now: u64, dice: &mut Dice) {
        self.pop(stream, now);
        self.pass(stream, now);
        match self.doing {
            Doing::Waiting if self.is_done() => {
                self.doing = Doing::Something(now + WAKE + dice.below(WAKE))
            }
            Doing::Blocked => self.doing = Doing::Something(now),
            _ => {}
        }
    }

    fn pop(&mut self, stream: usize, now: u64) {
        let work = self.streams[stream].pop_front();
        self.emptied[stream] = now;
        if let Some((work, slot)) = work.and_then(|work| Some((work, work.closes?))) {
            let alone = self.streams[stream].is_empty();
            let lag = if alone { self.lag } else { 0 };
            let at = now.saturating_add_signed(lag).max(work.marked);
            *self.reached.of(slot, Mark::Closed) = Some(at);
            let passes = if self.is_card { PASSES } else { 0 };
            *self.reached.of(slot, Mark::Behind) = Some(at + passes);
        }
    }

    /// Goes past what was opened.
    fn pass(&mut self, stream: usize, now: u64) {
        let is_passed = |work: &Work| work.left == 0 && !work.shut;
        while self.streams[stream].front().is_some_and(is_passed) {
            self.pop(stream, now);
        }
        self.begin(stream, now);
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
