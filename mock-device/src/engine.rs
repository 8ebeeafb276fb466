//! The devices' engines: work that takes time on the real clock, and how busy it kept them.
//!
//! # The model
//!
//! Within a process work takes a [`Share`] of its engine, and begins at the first time from which there is room for it: kernels
//! whose blocks fit beside each other run side by side, copies and full grids one behind the other, and work that must wait
//! (`ready`) leaves the engine to what need not. Between processes an engine is shared in equal time slices, as the vendor's driver
//! shares it: while *n* processes have work on it, each one's work takes *n* times its cost. *n* is what it is when the
//! work is submitted, because its end is promised then: a newcomer does not delay what was promised before, and what
//! others leave idle afterwards does not hasten it. So two processes that saturate an engine get about half of it each,
//! however far ahead either of them submits; what was promised to the first before the second came is the only error.
//!
//! Busy time is what NVML calls utilisation: the time in which work was on the engine, however little of it. Of an instant at which *n*
//! processes had work there, each is given 1/*n*: the processes' busy times add up to the engine's, and that is never more
//! than the time gone by. What is known of the past, and how exactly, is the [meter](crate::meter)s'.
//!
//! What moves meanwhile is metered beside it, by kind of traffic, so that bus and memory can be asked how busy they were.
//!
//! A meter is written by its process alone, whose threads take turns by a lock of their own; it needs no mutex. A process
//! killed while it wrote leaves a meter that is at most one piece of work wrong.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use serde::{Deserialize, Serialize};

use crate::accounts::Accounts;
use crate::busy;
use crate::cost::{Task, Traffic};
use crate::meter::{self, GRAIN};
use crate::os;
use crate::region::{GRAINS, Meter, Region, Row, Run, state};
use crate::schedule::{Schedule, Share};

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

impl Interval {
    fn from(start: u64, length: u64) -> Self {
        Self {
            start: Nanos(start),
            end: Nanos(start.saturating_add(length)),
        }
    }
}

/// What one process has on its engines.
pub(crate) type Schedules = HashMap<Spot, Schedule>;

/// How long a count of an engine's users is believed.
const USERS_FOR: u64 = 200_000;

/// A process between two pieces of work that it waits for is still a user of the engine.
const PAUSE: u64 = 100_000;

impl Accounts {
    /// Puts work on an engine; from when to when it is there. Without a row or a meter for this process it takes its time
    /// unseen.
    pub(crate) fn submit(
        &self,
        at: Spot,
        now: u64,
        ready: u64,
        cost: u64,
        share: Share,
    ) -> Interval {
        self.submit_of(at, now, ready, cost, share).0
    }

    /// As `submit`, for what moves something too.
    pub(crate) fn carry(&self, device: usize, now: u64, ready: u64, task: &Task) -> Interval {
        let at = Spot::engine(device, task.engine);
        let (interval, users) = self.submit_of(at, now, ready, task.time.0, task.share);
        if let Some((traffic, moving)) = task.moves
            && let Some((_, meter)) = self.meter(Spot::traffic(device, traffic))
        {
            let moving = moving.0.saturating_mul(users);
            let from = interval.end.0.saturating_sub(moving);
            let start = Nanos(from.max(interval.start.0));
            let _turn = self.turn();
            meter.write(|| meter.note_all_of(now, Interval { start, ..interval }));
        }
        interval
    }

    /// From when to when the work is there, and how many processes share the engine meanwhile.
    #[inline]
    fn submit_of(
        &self,
        at: Spot,
        now: u64,
        ready: u64,
        cost: u64,
        share: Share,
    ) -> (Interval, u64) {
        let Some((row, meter)) = self.meter(at) else {
            return (Interval::from(now.max(ready), cost), 1);
        };
        if at.is_compute() {
            self.sum_up_in_time(at.device, now);
        }
        let _turn = self.turn();
        let idle = meter.until() < now.saturating_sub(PAUSE);
        let users = self.users(at, row, now, idle);
        let length = cost.saturating_mul(users);
        // Only a fork child can find it locked, by a thread that it does not have.
        let start = match self.schedules.try_lock() {
            Ok(mut schedules) => {
                let schedule = schedules.entry(at).or_default();
                schedule.place(now, now.max(ready), length, share)
            }
            Err(_) => now.max(ready),
        };
        let interval = Interval::from(start, length);
        meter.write(|| meter.note(now, interval));
        (interval, users)
    }

    /// How many processes share the engine, this one included.
    #[inline]
    fn users(&self, at: Spot, row: &Row, now: u64, idle: bool) -> u64 {
        let word = &self.region.header().users[at.device][at.slot];
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

    /// This process's meter of an engine.
    #[inline]
    fn meter(&self, at: Spot) -> Option<(&Row, &Meter)> {
        let row = self.own_row()?;
        let index = row.meters[at.device][at.slot].load(Relaxed);
        match index {
            0 => self.claim_meter(row, at),
            index => Some((row, self.region.all_meters().get(index as usize - 1)?)),
        }
    }

    #[cold]
    fn claim_meter<'a>(&'a self, row: &'a Row, at: Spot) -> Option<(&'a Row, &'a Meter)> {
        let _guard = self.region.lock();
        let word = &row.meters[at.device][at.slot];
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

/// How many meters a process has of a device at most: its engines', then what moves.
pub(crate) const SLOTS: usize = Engine::COUNT + Traffic::COUNT;

/// One engine of one device, or one kind of what moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Spot {
    pub(crate) device: usize,
    pub(crate) slot: usize,
}

impl Spot {
    pub(crate) const fn engine(device: usize, engine: Engine) -> Self {
        let slot = engine as usize;
        Self { device, slot }
    }

    pub(crate) const fn traffic(device: usize, traffic: Traffic) -> Self {
        let slot = Engine::COUNT + traffic as usize;
        Self { device, slot }
    }

    pub(crate) const fn is_compute(self) -> bool {
        self.slot == Engine::Compute as usize
    }

    pub(crate) fn tag(self) -> u32 {
        ((self.device as u32) << 8) | (self.slot as u32 + 1)
    }
}

/// Ends a dead row's meters, with the mutex held: what it did until `died` stays the device's, what it had still to do is
/// dropped.
pub(crate) fn bury(region: &Region, row: &Row, died: u64) {
    for (device, slots) in row.meters.iter().enumerate() {
        if slots[Engine::Compute as usize].load(Relaxed) != 0 {
            busy::sum_up(region, device, os::now_ns());
        }
        for (slot, word) in slots.iter().enumerate() {
            let index = word.load(Relaxed) as usize;
            let meter = index
                .checked_sub(1)
                .and_then(|index| region.all_meters().get(index));
            let spot = Spot { device, slot };
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
            let departed = &region.header().departed[device][slot];
            let oldest = (died / GRAIN).saturating_sub(GRAINS as u64 - 1);
            for word in meter.grains.iter().map(|grain| grain.load(Relaxed)) {
                let grain = (died / GRAIN) & !0xffff_ffff | word >> 32;
                if word != 0 && grain >= oldest {
                    meter::add(departed, grain, word & 0xffff_ffff);
                }
            }
            for (start, end) in meter.runs.iter().map(Run::get) {
                if start < end.min(died) {
                    meter::remember(departed, start, end.min(died));
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
pub(crate) mod tests {
    use super::*;
    use crate::units::Bytes;

    const MS: u64 = 1_000_000;
    const AT: Spot = Spot::engine(0, Engine::Compute);

    /// Two libraries on one world: as two processes, but for the clock, which is the test's.
    pub(crate) fn pair() -> [Accounts; 2] {
        let file = os::memfd().unwrap();
        let first = Region::create(&file, b"{}", &[(1000, 0)]).unwrap();
        let second = Region::open(&file).unwrap().unwrap();
        [first, second].map(|region| Accounts::new(region, None).unwrap())
    }

    impl Accounts {
        pub(crate) fn put(&self, at: Spot, now: u64, ready: u64, cost: u64) -> Interval {
            self.submit(at, now, ready, cost, Share::WHOLE)
        }
    }

    fn span(interval: Interval) -> (u64, u64) {
        (interval.start.0, interval.end.0)
    }

    /// A time on the world's clock at which a grain begins.
    pub(crate) fn begin() -> u64 {
        (os::now_ns() / GRAIN + 1) * GRAIN
    }

    #[test]
    fn alone_work_takes_its_cost_one_after_the_other() {
        let [own, _] = pair();
        let t = begin();
        assert_eq!(span(own.put(AT, t, 0, 5 * MS)), (t, t + 5 * MS));
        assert_eq!(span(own.put(AT, t, 0, MS)), (t + 5 * MS, t + 6 * MS));
        assert_eq!(
            span(own.put(AT, t + 9 * MS, 0, MS)),
            (t + 9 * MS, t + 10 * MS)
        );
        assert_eq!(own.busy(AT, None, t, t + GRAIN), 7 * MS);
        let copies = Spot::engine(0, Engine::Copy);
        assert_eq!(own.busy(copies, None, t, t + 10 * MS), 0);
        assert_eq!(span(own.put(copies, t, 0, MS)), (t, t + MS));
    }

    #[test]
    fn work_that_must_wait_leaves_the_engine_to_what_need_not() {
        let [own, _] = pair();
        let t = begin();
        let late = own.put(AT, t, t + 10 * MS, MS);
        assert_eq!(span(late), (t + 10 * MS, t + 11 * MS));
        assert_eq!(span(own.put(AT, t, 0, 4 * MS)), (t, t + 4 * MS));
        assert_eq!(span(own.put(AT, t, 0, 6 * MS)), (t + 4 * MS, t + 10 * MS));
        assert_eq!(span(own.put(AT, t, 0, MS)), (t + 11 * MS, t + 12 * MS));
    }

    #[test]
    fn kernels_side_by_side_keep_the_engine_busy_once() {
        let [own, _] = pair();
        let t = begin();
        let put = |ready, cost, share| span(own.submit(AT, t, ready, cost, share));
        let small = Share::of(1, 8);
        for _ in 0..8 {
            assert_eq!(put(0, MS, small), (t, t + MS));
        }
        assert_eq!(put(0, MS, small), (t + MS, t + 2 * MS), "the ninth waits");
        assert_eq!(put(0, MS, Share::WHOLE), (t + 2 * MS, t + 3 * MS));
        assert_eq!(put(t + 5 * MS, MS, small), (t + 5 * MS, t + 6 * MS));
        assert_eq!(own.busy(AT, None, t, t + GRAIN), 4 * MS);
        assert_eq!(own.busy(AT, None, t + 3 * MS, t + 5 * MS), 0);
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
                ahead.push(deep.put(AT, now, 0, MS).end.0);
            }
            now = shallow.put(AT, now, 0, MS).end.0;
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
                first = one.put(AT, first + next(), 0, next()).end.0;
            } else {
                second = two.put(AT, second + next(), 0, next()).end.0;
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
        own.put(AT, t, 0, 100 * MS);
        let later = t + 2_000 * MS;
        own.put(AT, later, 0, MS);
        assert_eq!(own.busy(AT, None, t, later), 100 * MS);
        let much_later = t + 10_000 * MS;
        own.put(AT, much_later, 0, 2_200 * MS);
        own.put(AT, much_later + 3_000 * MS, 0, MS);
        assert_eq!(own.busy(AT, None, t, later), 0, "its place was taken");
    }

    #[test]
    fn what_ended_just_before_is_not_seen_in_what_is_measured() {
        let [own, _] = pair();
        let t = begin();
        own.put(AT, t, 0, 3 * MS);
        // In the same grain, after the first is over.
        let from = t + 4 * MS;
        own.put(AT, from, 0, MS);
        assert_eq!(own.busy(AT, None, from, from + 5 * MS), MS);
        assert_eq!(own.busy(AT, None, t, from), 3 * MS);
    }

    #[test]
    fn what_moves_is_metered_beside_its_engine_and_no_more_of_it_than_moved() {
        let [own, _] = pair();
        let t = begin();
        let copy = |time, moving| Task {
            engine: Engine::Copy,
            time: Nanos(time),
            share: Share::WHOLE,
            moves: Some((Traffic::In, Nanos(moving))),
        };
        let traffic = Spot::traffic(0, Traffic::In);
        let moved = |from, to| own.busy(traffic, None, from, to);
        let first = own.carry(0, t, 0, &copy(5 * MS, 4 * MS));
        assert_eq!(span(first), (t, t + 5 * MS));
        assert_eq!(moved(t, t + MS), 0, "its first byte comes later");
        assert_eq!(moved(t, t + 9 * MS), 4 * MS);
        own.carry(0, t, 0, &copy(5 * MS, 0));
        assert_eq!(moved(t, t + 20 * MS), 4 * MS);
        // Many small ones, each with time before its bytes: more gaps than a meter keeps.
        for _ in 0..500 {
            own.carry(0, t, 0, &copy(11_000, 1_000));
        }
        let end = t + 10 * MS + 500 * 11_000;
        assert_eq!(moved(t + 10 * MS, end), 500_000);
        assert_eq!(
            own.busy(Spot::engine(0, Engine::Copy), None, t, end),
            end - t
        );
        let other = Spot::traffic(0, Traffic::Out);
        assert_eq!(own.busy(other, None, t, end), 0);
    }

    #[test]
    fn unfinished_work_of_the_dead_is_dropped_and_what_they_did_stays() {
        let [own, other] = pair();
        let died = os::now_ns();
        let t = died - 500 * MS;
        let row = own.own_row().unwrap();
        own.put(AT, t - 100 * MS, 0, 50 * MS);
        own.put(AT, t, 0, 10_000 * MS);
        own.take(0, crate::Kind::Memory, Bytes(5)).unwrap();
        bury(&own.region, row, died);
        assert_eq!(row.meters[0][0].load(Relaxed), 0);
        let busy = own.busy(AT, None, t - 100 * MS, died + 1000 * MS);
        assert!(busy.abs_diff(550 * MS) < GRAIN, "{busy}");
        assert_eq!(
            span(other.put(AT, died, 0, MS)),
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
            let new = span(own.put(AT, t, ready, MS));
            assert!(new.0 >= ready && new.1 - new.0 == MS);
            assert!(
                taken.iter().all(|old| new.0 >= old.1 || old.0 >= new.1),
                "{new:?} in {taken:?}"
            );
            taken.push(new);
        }
    }
}
