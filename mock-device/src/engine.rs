//! The devices' engines: work that takes time on the real clock, and how busy it kept them.
//!
//! # The model
//!
//! Within a process an engine does one thing at a time, in the first gap that is long enough: work that must wait (`ready`)
//! leaves the engine to what need not. Between processes an engine is shared in equal time slices, as the vendor's driver
//! shares it: while *n* processes have work on it, each one's work takes *n* times its cost. *n* is what it is when the
//! work is submitted, because its end is promised then: a newcomer does not delay what was promised before, and what
//! others leave idle afterwards does not hasten it. So two processes that saturate an engine get about half of it each,
//! however far ahead either of them submits; what was promised to the first before the second came is the only error.
//!
//! Busy time is what NVML calls utilisation: the time in which work was on the engine. Of an instant at which *n*
//! processes had work there, each is given 1/*n*: the processes' busy times add up to the engine's, and that is never more
//! than the time gone by. It is known to the nanosecond for what is not yet finished, and in [`GRAIN`]s of 17 ms for the
//! 2.1 s before that.
//!
//! A meter is written by its process alone, whose threads take turns by a lock of their own; it needs no mutex. A process
//! killed while it wrote leaves a meter that is at most one piece of work wrong.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use serde::{Deserialize, Serialize};

use crate::accounts::Accounts;
use crate::region::{GRAINS, Meter, RUNS, Region, Row, Run, state};

/// A time, or a time span, in nanoseconds of CLOCK_MONOTONIC.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(pub u64);

impl Nanos {
    pub const ZERO: Self = Self(0);

    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl std::ops::Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// What a device does work with. Those of one device work at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Engine {
    /// Kernels, memsets, graphics.
    Compute,
    /// Copies to the device, and within it.
    Copy,
    /// Copies from the device.
    CopyOut,
}

impl Engine {
    pub const ALL: [Self; 3] = [Self::Compute, Self::Copy, Self::CopyOut];
    pub const COUNT: usize = Self::ALL.len();
}

/// When a piece of work is on its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub start: Nanos,
    pub end: Nanos,
}

/// Finished work is remembered in spans of this many nanoseconds.
pub(crate) const GRAIN: u64 = 1 << 24;

/// How long a count of an engine's users is believed.
const USERS_FOR: u64 = 200_000;

/// A process between two pieces of work that it waits for is still a user of the engine.
const PAUSE: u64 = 100_000;

impl Accounts {
    /// Puts work on an engine; from when to when it is there. Without a row or a meter for this process it takes its time
    /// unseen.
    pub(crate) fn submit(&self, at: Spot, now: u64, ready: u64, cost: u64) -> Interval {
        let Some((row, meter)) = self.meter(at) else {
            let start = now.max(ready);
            return Interval {
                start: Nanos(start),
                end: Nanos(start.saturating_add(cost)),
            };
        };
        let _turn = self.turn();
        let idle = meter.until() < now.saturating_sub(PAUSE);
        let users = self.users(at, row, now, idle);
        meter.write(|| {
            meter.retire(now);
            meter.place(now.max(ready), cost.saturating_mul(users))
        })
    }

    /// How many processes share the engine, this one included.
    #[inline]
    fn users(&self, at: Spot, row: &Row, now: u64, idle: bool) -> u64 {
        let word = &self.region.header().users[at.device][at.engine as usize];
        let known = word.load(Relaxed);
        let (counted, users) = (known >> 12, known & 0xfff);
        if !idle && (now >> 12).wrapping_sub(counted) << 12 < USERS_FOR {
            return users.max(1);
        }
        self.count_users(at, row, now, word)
    }

    #[cold]
    fn count_users(&self, at: Spot, own: &Row, now: u64, word: &AtomicU64) -> u64 {
        let others = || {
            self.region
                .meters()
                .iter()
                .filter(|meter| meter.is_of(at) && meter.until() + PAUSE >= now)
                .filter(|meter| match self.region.owner(meter) {
                    Some(row) => !std::ptr::eq(row, own) && row.state.load(Relaxed) == state::LIVE,
                    None => false,
                })
                .count() as u64
        };
        let mut users = 1 + others();
        if users > 1 {
            // One of them may be dead.
            self.sweep(false);
            users = 1 + others();
        }
        word.store((now >> 12) << 12 | users.min(0xfff), Relaxed);
        users
    }

    /// How busy processes kept an engine between two times, the dead included: the engine's sum, and of that the part of
    /// `pid`.
    pub(crate) fn busy(&self, at: Spot, pid: Option<u32>, from: u64, to: u64) -> u64 {
        let meters: Vec<(u32, Activity)> = self
            .region
            .meters()
            .iter()
            .filter(|meter| meter.is_of(at))
            .filter_map(|meter| {
                let row = self.region.owner(meter)?;
                let until = match row.state.load(Acquire) {
                    state::LIVE => to,
                    state::DYING => to.min(row.died_ns.load(Relaxed)),
                    _ => return None,
                };
                Some((row.pid.load(Relaxed), meter.read(until)))
            })
            .collect();
        let departed = &self.region.header().departed[at.device][at.engine as usize];
        let mut sum = 0;
        let mut start = from;
        while start < to {
            let end = ((start / GRAIN + 1) * GRAIN).min(to);
            let active = |activity: &Activity| activity.within(start, end).min(end - start);
            let gone = grain_within(departed, start, end).min(end - start);
            let all: u64 = gone + meters.iter().map(|(_, of)| active(of)).sum::<u64>();
            let wanted = match pid {
                None => all,
                Some(pid) => meters
                    .iter()
                    .filter(|(owner, _)| *owner == pid)
                    .map(|(_, of)| active(of))
                    .sum(),
            };
            sum += if all > end - start {
                (u128::from(wanted) * u128::from(end - start) / u128::from(all)) as u64
            } else {
                wanted
            };
            start = end;
        }
        sum
    }

    /// This process's meter of an engine.
    #[inline]
    fn meter(&self, at: Spot) -> Option<(&Row, &Meter)> {
        let row = self.own_row()?;
        let index = row.meters[at.device][at.engine as usize].load(Relaxed);
        match index {
            0 => self.claim_meter(row, at),
            index => Some((row, self.region.all_meters().get(index as usize - 1)?)),
        }
    }

    #[cold]
    fn claim_meter<'a>(&'a self, row: &'a Row, at: Spot) -> Option<(&'a Row, &'a Meter)> {
        let _guard = self.region.lock();
        let word = &row.meters[at.device][at.engine as usize];
        if let index @ 1.. = word.load(Relaxed) {
            // Another thread of this process was first.
            return Some((row, self.region.all_meters().get(index as usize - 1)?));
        }
        let (index, meter) = self.region.free_meter()?;
        meter.clear();
        word.store(index + 1, Relaxed);
        meter.claim(self.region.index_of(row), at);
        Some((row, meter))
    }
}

/// One engine of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) device: usize,
    pub(crate) engine: Engine,
}

impl Spot {
    fn tag(self) -> u32 {
        ((self.device as u32) << 8) | (self.engine as u32 + 1)
    }
}

/// A meter's content at one instant.
struct Activity {
    grains: Vec<u64>,
    runs: Vec<(u64, u64)>,
}

impl Activity {
    /// Time with work between two times inside one grain.
    fn within(&self, start: u64, end: u64) -> u64 {
        let runs = self
            .runs
            .iter()
            .map(|(from, to)| end.min(*to).saturating_sub(start.max(*from)));
        let remembered = self.grains[(start / GRAIN) as usize % GRAINS];
        runs.sum::<u64>() + part(remembered, start, end)
    }
}

/// What a grain's word says of a part of it.
fn part(word: u64, start: u64, end: u64) -> u64 {
    if word >> 32 != (start / GRAIN) & 0xffff_ffff {
        return 0;
    }
    (word & 0xffff_ffff) * (end - start) / GRAIN
}

fn grain_within(grains: &[AtomicU64; GRAINS], start: u64, end: u64) -> u64 {
    part(
        grains[(start / GRAIN) as usize % GRAINS].load(Relaxed),
        start,
        end,
    )
}

/// Adds work between two times, of which only the last [`GRAINS`] grains are kept.
fn remember(grains: &[AtomicU64; GRAINS], from: u64, to: u64) {
    let mut start = from.max(to.saturating_sub(GRAIN * GRAINS as u64));
    while start < to {
        let grain = start / GRAIN;
        let end = ((grain + 1) * GRAIN).min(to);
        add(grains, grain, end - start);
        start = end;
    }
}

fn add(grains: &[AtomicU64; GRAINS], grain: u64, more: u64) {
    let word = &grains[grain as usize % GRAINS];
    let (tag, known) = (grain & 0xffff_ffff, word.load(Relaxed));
    let busy = if known >> 32 == tag {
        (known & 0xffff_ffff) + more
    } else {
        more
    };
    word.store(tag << 32 | busy.min(0xffff_ffff), Relaxed);
}

impl Meter {
    fn is_of(&self, at: Spot) -> bool {
        self.tag.load(Acquire) == at.tag()
    }

    fn claim(&self, row: usize, at: Spot) {
        self.row.store(row as u32, Relaxed);
        self.tag.store(at.tag(), Release);
    }

    fn clear(&self) {
        self.until.store(0, Relaxed);
        for run in &self.runs {
            run.start.store(0, Relaxed);
            run.end.store(0, Relaxed);
        }
        self.grains.iter().for_each(|grain| grain.store(0, Relaxed));
    }

    /// When the last work that was ever submitted ends.
    #[inline]
    fn until(&self) -> u64 {
        self.until.load(Relaxed)
    }

    /// Changes the meter so that readers notice.
    #[inline]
    fn write<T>(&self, change: impl FnOnce() -> T) -> T {
        // Odd while it is written. A predecessor of this row killed in the middle left it odd.
        let sequence = self.sequence.load(Relaxed) | 1;
        self.sequence.store(sequence, Relaxed);
        std::sync::atomic::fence(Release);
        let answer = change();
        self.sequence.store(sequence.wrapping_add(1), Release);
        answer
    }

    /// What the meter holds of the time before `until`. A dead writer may have left it half-written: then as it is.
    fn read(&self, until: u64) -> Activity {
        for _ in 0..100 {
            let before = self.sequence.load(Acquire);
            let activity = self.snapshot(until);
            std::sync::atomic::fence(Acquire);
            if before & 1 == 0 && self.sequence.load(Relaxed) == before {
                return activity;
            }
            std::hint::spin_loop();
        }
        self.snapshot(until)
    }

    fn snapshot(&self, until: u64) -> Activity {
        Activity {
            grains: self
                .grains
                .iter()
                .map(|grain| grain.load(Relaxed))
                .collect(),
            runs: self
                .runs
                .iter()
                .map(|run| {
                    let (start, end) = run.get();
                    (start.min(until), end.min(until))
                })
                .filter(|(start, end)| start < end)
                .collect(),
        }
    }

    /// Moves what is over into the grains. The runs in use stand first, ascending.
    #[inline]
    fn retire(&self, now: u64) {
        let over = self
            .runs
            .iter()
            .take_while(|run| run.end.load(Relaxed) != 0 && run.end.load(Relaxed) <= now)
            .count();
        if over == 0 {
            return;
        }
        for run in &self.runs[..over] {
            let (start, end) = run.get();
            remember(&self.grains, start, end);
        }
        for to in 0..RUNS {
            match self.runs.get(to + over) {
                Some(run) => self.runs[to].set(run.get()),
                None => self.runs[to].set((0, 0)),
            }
        }
    }

    /// Finds `length` of time from `earliest` on that no run takes, and takes it.
    #[inline]
    fn place(&self, earliest: u64, length: u64) -> Interval {
        let used = self
            .runs
            .iter()
            .take_while(|run| run.end.load(Relaxed) != 0)
            .count();
        let mut start = earliest;
        let mut at = 0;
        while at < used {
            let (from, to) = self.runs[at].get();
            if start.saturating_add(length) <= from {
                break;
            }
            start = start.max(to);
            at += 1;
        }
        let end = start.saturating_add(length);
        if length > 0 {
            self.insert(at, used, (start, end));
            self.until.store(self.until().max(end), Relaxed);
        }
        Interval {
            start: Nanos(start),
            end: Nanos(end),
        }
    }

    /// Puts a run before the `at`-th of `used`, as a part of a neighbour that it touches.
    fn insert(&self, at: usize, used: usize, new: (u64, u64)) {
        if at > 0 && self.runs[at - 1].end.load(Relaxed) == new.0 {
            self.runs[at - 1].end.store(new.1, Relaxed);
            if at < used && self.runs[at].start.load(Relaxed) == new.1 {
                self.join(at - 1, used);
            }
        } else if at < used && self.runs[at].start.load(Relaxed) == new.1 {
            self.runs[at].start.store(new.0, Relaxed);
        } else if used < RUNS {
            for to in (at..used).rev() {
                self.runs[to + 1].set(self.runs[to].get());
            }
            self.runs[at].set(new);
        } else {
            // No room for another gap: the last run takes it in. The gap counts as work then.
            let last = &self.runs[RUNS - 1];
            let (start, end) = last.get();
            last.set((start.min(new.0), end.max(new.1)));
        }
    }

    /// Makes the `at`-th run and its successor one.
    fn join(&self, at: usize, used: usize) {
        self.runs[at]
            .end
            .store(self.runs[at + 1].end.load(Relaxed), Relaxed);
        for to in at + 1..used {
            match self.runs.get(to + 1) {
                Some(run) if to + 1 < used => self.runs[to].set(run.get()),
                _ => self.runs[to].set((0, 0)),
            }
        }
    }
}

impl Run {
    #[inline]
    fn get(&self) -> (u64, u64) {
        (self.start.load(Relaxed), self.end.load(Relaxed))
    }

    #[inline]
    fn set(&self, (start, end): (u64, u64)) {
        self.start.store(start, Relaxed);
        self.end.store(end, Relaxed);
    }
}

/// Ends a dead row's meters, with the mutex held: what it did until `died` stays the device's, what it had still to do is
/// dropped.
pub(crate) fn bury(region: &Region, row: &Row, died: u64) {
    for (device, engines) in row.meters.iter().enumerate() {
        for (engine, word) in engines.iter().enumerate() {
            let index = word.load(Relaxed) as usize;
            let meter = index
                .checked_sub(1)
                .and_then(|index| region.all_meters().get(index));
            let spot = Spot {
                device,
                engine: Engine::ALL[engine],
            };
            let is_own = |meter: &&Meter| {
                meter.is_of(spot) && meter.row.load(Relaxed) as usize == region.index_of(row)
            };
            let Some(meter) = meter.filter(is_own) else {
                word.store(0, Relaxed);
                continue;
            };
            // An undertaker killed in here loses a dead process's past; its successor does not count it twice.
            meter.tag.store(0, Relaxed);
            word.store(0, Relaxed);
            let departed = &region.header().departed[device][engine];
            let oldest = (died / GRAIN).saturating_sub(GRAINS as u64 - 1);
            for word in meter.grains.iter().map(|grain| grain.load(Relaxed)) {
                let grain = (died / GRAIN) & !0xffff_ffff | word >> 32;
                if word != 0 && grain >= oldest {
                    add(departed, grain, word & 0xffff_ffff);
                }
            }
            for (start, end) in meter.runs.iter().map(Run::get) {
                if start < end.min(died) {
                    remember(departed, start, end.min(died));
                }
            }
        }
    }
    // Whoever shares an engine counts again.
    region
        .header()
        .users
        .iter()
        .flatten()
        .for_each(|users| users.store(0, Relaxed));
}

/// Threads of one process take turns at its meters: held while this lives.
pub(crate) struct Turn<'a>(pub(crate) &'a AtomicU64);

impl<'a> Turn<'a> {
    #[inline]
    pub(crate) fn take(word: &'a AtomicU64, pid: u64) -> Self {
        let mut tries = 0u32;
        loop {
            // A fork child may find the number of its parent, whose thread it is not.
            let holder = word.load(Relaxed);
            if holder != pid
                && word
                    .compare_exchange_weak(holder, pid, Acquire, Relaxed)
                    .is_ok()
            {
                return Self(word);
            }
            tries += 1;
            if tries.is_multiple_of(64) {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os;
    use crate::units::Bytes;

    const MS: u64 = 1_000_000;
    const AT: Spot = Spot {
        device: 0,
        engine: Engine::Compute,
    };

    /// Two libraries on one world: as two processes, but for the clock, which is the test's.
    fn pair() -> [Accounts; 2] {
        let file = os::memfd().unwrap();
        let first = Region::create(&file, b"{}", &[(1000, 0)]).unwrap();
        let second = Region::open(&file).unwrap().unwrap();
        [first, second].map(|region| Accounts::new(region, None).unwrap())
    }

    fn span(interval: Interval) -> (u64, u64) {
        (interval.start.0, interval.end.0)
    }

    /// A time on the world's clock at which a grain begins.
    fn begin() -> u64 {
        (os::now_ns() / GRAIN + 1) * GRAIN
    }

    #[test]
    fn alone_work_takes_its_cost_one_after_the_other() {
        let [own, _] = pair();
        let t = begin();
        assert_eq!(span(own.submit(AT, t, 0, 5 * MS)), (t, t + 5 * MS));
        assert_eq!(span(own.submit(AT, t, 0, MS)), (t + 5 * MS, t + 6 * MS));
        assert_eq!(
            span(own.submit(AT, t + 9 * MS, 0, MS)),
            (t + 9 * MS, t + 10 * MS)
        );
        assert_eq!(own.busy(AT, None, t, t + GRAIN), 7 * MS);
        let copies = Spot {
            engine: Engine::Copy,
            ..AT
        };
        assert_eq!(own.busy(copies, None, t, t + 10 * MS), 0);
        assert_eq!(span(own.submit(copies, t, 0, MS)), (t, t + MS));
    }

    #[test]
    fn work_that_must_wait_leaves_the_engine_to_what_need_not() {
        let [own, _] = pair();
        let t = begin();
        let late = own.submit(AT, t, t + 10 * MS, MS);
        assert_eq!(span(late), (t + 10 * MS, t + 11 * MS));
        assert_eq!(span(own.submit(AT, t, 0, 4 * MS)), (t, t + 4 * MS));
        assert_eq!(
            span(own.submit(AT, t, 0, 6 * MS)),
            (t + 4 * MS, t + 10 * MS)
        );
        assert_eq!(span(own.submit(AT, t, 0, MS)), (t + 11 * MS, t + 12 * MS));
    }

    #[test]
    fn two_that_saturate_an_engine_get_half_of_it_each_however_far_ahead_they_ask() {
        let [deep, shallow] = pair();
        let t = begin();
        let mut now = t;
        // One keeps 50 kernels ahead, the other waits for each of its own.
        let (mut ahead, mut done) = (Vec::new(), 0u64);
        while now < t + 1000 * MS {
            while ahead.iter().filter(|end| **end > now).count() < 50 {
                ahead.push(deep.submit(AT, now, 0, MS).end.0);
            }
            now = shallow.submit(AT, now, 0, MS).end.0;
            done += 1;
        }
        let others = ahead.iter().filter(|end| **end <= now).count() as u64;
        assert!((490..=510).contains(&done), "{done} of 1000");
        assert!(
            (500..=550).contains(&others),
            "{others} of 1000, 50 from before"
        );
        let wall = now - t;
        assert_eq!(deep.busy(AT, None, t, now), wall, "never idle");
    }

    #[test]
    fn busy_times_of_processes_add_up_to_the_engines_and_never_pass_the_wall() {
        let [one, two] = pair();
        let t = begin();
        let mut random = 1u64;
        let mut next = || {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % (3 * MS)
        };
        let (mut first, mut second) = (t, t);
        while first.min(second) < t + 1500 * MS {
            if first < second {
                first = one.submit(AT, first + next(), 0, next()).end.0;
            } else {
                second = two.submit(AT, second + next(), 0, next()).end.0;
            }
        }
        // The test's rows have one pid; the second is given another.
        let other = two.own_row().unwrap();
        other.pid.store(1, Relaxed);
        let of = |pid, from, to| one.busy(AT, pid, from, to);
        for (from, to) in [(0, 1500), (100, 1100), (700, 703), (999, 1300)] {
            let (from, to) = (t + from * MS, t + to * MS);
            let parts = of(Some(1), from, to) + of(Some(os::pid()), from, to);
            let sum = of(None, from, to);
            assert!(parts.abs_diff(sum) < 1000, "{parts} {sum}: rounding alone");
            assert!(
                sum <= to - from && sum > (to - from) / 3,
                "{sum} of {}",
                to - from
            );
        }
    }

    #[test]
    fn what_is_older_than_two_seconds_is_forgotten_and_the_rest_is_not() {
        let [own, _] = pair();
        let t = begin();
        own.submit(AT, t, 0, 100 * MS);
        let later = t + 2_000 * MS;
        own.submit(AT, later, 0, MS);
        assert_eq!(own.busy(AT, None, t, later), 100 * MS);
        let much_later = t + 10_000 * MS;
        own.submit(AT, much_later, 0, 2_200 * MS);
        own.submit(AT, much_later + 3_000 * MS, 0, MS);
        assert_eq!(own.busy(AT, None, t, later), 0, "its place was taken");
    }

    #[test]
    fn unfinished_work_of_the_dead_is_dropped_and_what_they_did_stays() {
        let [own, _] = pair();
        let died = os::now_ns();
        let t = died - 500 * MS;
        let row = own.own_row().unwrap();
        own.submit(AT, t - 100 * MS, 0, 50 * MS);
        own.submit(AT, t, 0, 10_000 * MS);
        own.take(0, crate::Kind::Memory, Bytes(5)).unwrap();
        bury(&own.region, row, died);
        assert_eq!(row.meters[0][0].load(Relaxed), 0);
        let busy = own.busy(AT, None, t - 100 * MS, died + 1000 * MS);
        assert!(busy.abs_diff(550 * MS) < GRAIN, "{busy}");
        assert_eq!(
            span(own.submit(AT, died, 0, MS)),
            (died, died + MS),
            "the engine is free"
        );
    }

    #[test]
    fn more_gaps_than_a_meter_keeps_apart_are_counted_as_work_and_nothing_overlaps() {
        let [own, _] = pair();
        let t = begin();
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for at in 0..40u64 {
            let ready = t + (at * 7 % 40) * 2 * MS;
            let new = span(own.submit(AT, t, ready, MS));
            assert!(new.0 >= ready && new.1 - new.0 == MS);
            assert!(
                taken.iter().all(|old| new.0 >= old.1 || old.0 >= new.1),
                "{new:?} in {taken:?}"
            );
            taken.push(new);
        }
    }
}
