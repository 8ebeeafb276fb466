//! A process's leases of one device's time, one after another.
//!
//! A lease is paid for in advance by what its launches are believed to take, and handed out in portions, so that most launches cost one
//! compare-and-swap; between two portions the clock is looked at, which shows whether the device can have been idle in between. Marks around a lease
//! say later what it took, and nobody waits for them: the next lease begins as soon as the tenant has paid. How far a lease is, and how it comes
//! there: [`lease`](crate::lease).
//!
//! [`Throttle::pass`] may be called by any thread at any time. The other calls come from one thread at a time; none of them waits,
//! and the caller holds no lock while it does.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::lease::{LEASES, Lease, Progress, Slot, Stage};
use crate::shared::Taken;
use crate::turns::Turns;
use crate::word::Word;
use crate::{Belief, Costs, Key, Nanos, Rules, Share, Shared, Sound};

/// Leases begin this small, and fall back to it when one took much longer than was believed.
const LEAST: Nanos = Nanos::micros(250);
/// Every lease is measured, so this is also how long work goes unmeasured: the time that a lease pays for, and the most that it is.
const PERIOD: Nanos = Nanos::micros(2_500);
/// The device's time that is handed out between two looks at the clock.
const PORTION: Nanos = Nanos::micros(250);
/// What is paid for a launch that was never measured. It is measured by itself, and no other is made meanwhile.
const UNKNOWN: Nanos = Nanos::millis(100);
/// What is paid for in advance is the budget's share of no longer time.
const MOST_PAID: Nanos = Nanos::millis(250);
/// What a lease is taken for, at least, that cannot be measured.
const UNMEASURED: Nanos = Nanos::millis(1);
/// Whoever had the last lease lets others go first by this, and by half as much for each lease of others that it has seen since.
const COURTESY: Nanos = Nanos::micros(150);
/// Leases after which other processes are forgotten.
const LATELY: Nanos = Nanos(32);
/// A lease between those of others is so many times what turning takes, so that not much is lost by it.
const WORTH: u64 = 16;
/// Beside others a lease ends after this, however little of it was launched.
const LONGEST: Nanos = Nanos::millis(20);
/// Whoever holds the device looks at the clock so often, and lets others go first by this.
const LOOKS: Nanos = Nanos::micros(500);
/// The looks of a lease beside others after which the pace of its launches is known.
const PROBED: Nanos = Nanos(2);
/// Who is idle before each launch for this part of a turn waits for it.
const WAITS: u64 = 8;
/// It lets go where it is idle before each launch for longer than so many turns.
const IDLER: u64 = 8;
const HOLDERS_COURTESY: Nanos = Nanos::micros(400);
/// Somebody who waits until another lets go of the device looks so often.
const GLANCE: Nanos = Nanos::micros(200);
/// What it takes to make a launch, where nothing comes in between.
const CALL: Nanos = Nanos::micros(4);
/// For how long a lease's first launch is watched.
pub(crate) const WATCHED: Nanos = Nanos::millis(10);
/// Work after which half of a comparison is forgotten.
const REMEMBERED: Nanos = Nanos::millis(200);
/// A time that one waits for may come earlier: what was paid comes back.
const NAP: Nanos = Nanos::millis(5);
/// Work is late that takes twice as long as is believed, and this at least: then there is no launch before it is done.
const LATE: Nanos = Nanos::millis(1);
/// Who waits for the device asks again no sooner.
const SOON: Nanos = Nanos::micros(30);
/// Work that has not begun so long after nothing of this process was before it waits for something else than the device; with others of its tenant about,
/// whose turn it may be, so long.
const HELD_UP: Nanos = Nanos::millis(5);
const HELD_UP_BESIDE: Nanos = Nanos::millis(20);
/// What a process may launch behind such work unpaid.
const MOST_HELD_UP: Nanos = Nanos::seconds(1);
/// A lease that is not done this long after it should be is charged so far, and the next one may be taken: work may wait for work
/// that is launched after it.
const PATIENCE: Nanos = Nanos::millis(250);

fn most_paid(share: Share) -> Nanos {
    MOST_PAID.scaled(share.hundredths(), Share::ALL.hundredths())
}

/// What is to be done with a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It goes to the driver as it is.
    Go,
    /// It goes, with marks in its stream: before it if it opens or closes the lease, after it if it closes it. A launch that closes
    /// is followed by [`Throttle::launched`].
    Mark {
        slot: Slot,
        opens: bool,
        closes: bool,
    },
    /// It is too long for what the lease has left. A mark ends the lease in its stream, [`Throttle::launched`] says so, and it asks again.
    End(Slot),
    /// Ask again at this time.
    Wait(Nanos),
}

/// What is about to be launched.
#[derive(Clone, Copy)]
pub struct Launch<'a> {
    pub key: Key,
    pub cost: Belief,
    /// Whether its stream has nothing left to do.
    pub is_idle: &'a dyn Fn() -> bool,
}

/// What became of the launch that closes a lease, or of the mark that ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launched {
    /// It was made, and the mark after it is set.
    Marked,
    /// It was made, and what it takes will not be known.
    Unmarked,
    /// The driver refused it.
    Failed,
}

/// What the marks say. `None` where one could not be set or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measured {
    /// From before the lease's first launch to after its last.
    pub lease: Option<Nanos>,
    /// From before its last launch to after it, if that closed it, without the time for which the mark before it was reached and the launch not made yet.
    pub last: Option<Nanos>,
    /// That time, as far as the host can tell: all of the call that made the launch. Zero where the stream had not run empty before the last launch, or
    /// before the mark that ended the lease.
    pub gap: Nanos,
}

impl Measured {
    fn found_idle(&self) -> bool {
        self.gap > Nanos::ZERO
    }

    /// Whether `last` is what the launch took: where a thread has lost its core within the call, the device was at work in what is called the gap.
    fn is_exact(&self) -> bool {
        let last = self.last.unwrap_or(Nanos::ZERO);
        self.gap <= CALL.max(last.scaled(1, 16))
    }
}

/// What the leases in flight were found to be at, the oldest first.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    /// The device is at work for this process.
    running: bool,
    /// It is not, and what it has of this process waits for something else.
    held_up: bool,
    /// No launch before this time.
    hold: Option<Nanos>,
}

/// One process's hold on one device. All zeros has no lease.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Throttle<R: Rules = Sound> {
    /// What is left of the portion that was handed out: all that a launch usually touches.
    left: AtomicU64,
    state: State,
    leases: [Lease; LEASES],
    rules: PhantomData<R>,
}

/// Written by one thread at a time.
#[derive(Debug, Default)]
#[repr(C)]
struct State {
    /// The place of the open lease, and one.
    current: Word,
    /// Leases so far; those that were paid for.
    count: Word,
    taken: Word,
    /// What is handed out of the open lease.
    portion: Word,
    /// When the device should be done with what was launched up to the last look at the clock.
    drained: Word,
    /// When the device was done with the last lease that is settled, and when that was found.
    ended: Word,
    settled: Word,
    /// What was found of the leases in flight: [`Flight`].
    running: Word,
    held_up: Word,
    hold: Word,
    /// The tenant's count of leases when this process had its last one.
    leases: Word,
    /// Above zero: others had leases lately.
    crowded: Word,
    turns: Turns,
    /// Leases without idle time, lately: what was believed and what was measured.
    believed: Word,
    measured: Word,
    size: Word,
    seed: Word,
}

impl State {
    /// Others had leases lately, of a device that serves one process at a time.
    fn is_beside_others(&self) -> bool {
        self.crowded.is_set() && self.turns.are_taken()
    }
}

impl<R: Rules> Throttle<R> {
    /// Whether the launch is covered by what is handed out. Where not: [`Throttle::submit`].
    #[inline]
    pub fn pass(&self, cost: Belief) -> bool {
        let Belief::Takes(cost) = self.priced(cost) else {
            return false;
        };
        let mut left = self.left.load(Ordering::Relaxed);
        // The launch that would empty it does not pass: somebody must look at the clock.
        while left > cost.0 {
            match self.left.compare_exchange_weak(
                left,
                left - cost.0,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(seen) => left = seen,
            }
        }
        false
    }

    /// What is to be done with a launch that did not pass. To be called when those in flight have been asked for: [`Throttle::in_flight`].
    pub fn submit(
        &self,
        shared: &Shared<'_>,
        share: Share,
        now: Nanos,
        launch: &Launch<'_>,
    ) -> Order {
        let state = &self.state;
        let hold = state.hold.get();
        if now < hold {
            return Order::Wait(hold);
        }
        let cost = match self.priced(launch.cost) {
            Belief::Unknown if self.is_unpaid() => Belief::Takes(UNMEASURED),
            cost => cost,
        };
        let launch = &Launch { cost, ..*launch };
        match self.current() {
            Some(slot) => self.go_on(shared, share, now, slot, launch),
            None => self.begin(shared, share, now, launch),
        }
    }

    /// Something that may wait for the host, another stream or another process comes into a stream before the next launch.
    pub fn note_wait(&self) {
        if let Some(slot) = self.current() {
            self.lease(slot).waits.note(true);
        }
    }

    /// The launch that closes the lease was made, with its marks, or was not.
    pub fn launched(
        &self,
        shared: &Shared<'_>,
        share: Share,
        now: Nanos,
        (slot, number): (Slot, Nanos),
        launched: Launched,
    ) {
        let lease = self.lease(slot);
        // Whoever comes back too late finds another in its place.
        if lease.stage() != Stage::Closing || lease.number.get() != number {
            return;
        }
        lease.closed.set(now);
        let used = lease.used.get();
        match launched {
            Launched::Marked => lease.set_stage(Stage::Closed),
            Launched::Unmarked => {
                self.settle_evenly(shared, share, now, slot, used.max(UNMEASURED))
            }
            Launched::Failed => self.settle_evenly(shared, share, now, slot, used),
        }
    }

    /// The leases whose end is to be asked for, the oldest first: of each [`Throttle::finished`] or [`Throttle::unfinished`] is to be said, and
    /// [`Throttle::submit`] to be called then.
    pub fn in_flight(&self) -> impl Iterator<Item = Slot> {
        self.note(Flight::default());
        let mut slots = [None; LEASES];
        let stages = [Stage::Closing, Stage::Closed];
        let flying = Slot::all().filter(|slot| stages.contains(&self.lease(*slot).stage()));
        for (place, slot) in slots.iter_mut().zip(flying) {
            *place = Some(slot);
        }
        slots.sort_unstable_by_key(|slot| slot.map(|slot| self.lease(slot).number.get()));
        slots.into_iter().flatten()
    }

    pub(crate) fn lease(&self, slot: Slot) -> &Lease {
        &self.leases[slot.index()]
    }

    fn current(&self) -> Option<Slot> {
        let place = self.state.current.get().0.checked_sub(1)?;
        Slot::all().nth(place as usize)
    }

    fn flight(&self) -> Flight {
        let state = &self.state;
        Flight {
            running: state.running.is_set(),
            held_up: state.held_up.is_set(),
            hold: Some(state.hold.get()),
        }
    }

    fn note(&self, flight: Flight) {
        let state = &self.state;
        state.running.note(flight.running);
        state.held_up.note(flight.held_up && !flight.running);
        state.hold.set(flight.hold.unwrap_or(Nanos::ZERO));
    }

    /// The device is done with the lease.
    pub fn finished(
        &self,
        shared: &Shared<'_>,
        share: Share,
        costs: &Costs,
        now: Nanos,
        (slot, measured): (Slot, Measured),
    ) {
        let (state, lease) = (&self.state, self.lease(slot));
        if lease.stage() != Stage::Closed {
            return;
        }
        let used = lease.used.get();
        let Some(span) = measured.lease.filter(|_| R::PAID_BY_TIME) else {
            self.settle_evenly(shared, share, now, slot, used);
            return;
        };
        let key = lease.key();
        let idle = if R::IDLE_IS_FREE {
            lease.idle.get()
        } else {
            Nanos::ZERO
        };
        let alone = lease.alone.is_set();
        let scattered = measured.found_idle() && state.crowded.is_set() && !alone;
        let busy = if alone {
            span
        } else if scattered {
            // Launches here and there between those of other processes: each was slowed by them, and that time is theirs to pay.
            span.min(costs.alone(key, used))
        } else if lease.waits.is_set() {
            span.min(self.corrected(used))
        } else if lease.dense.is_set() {
            span
        } else {
            span.min(self.corrected(used).max(span.less(idle)))
        };
        // Others may have had leases beside this one, and the device a turn of theirs in it.
        let disturbed = shared.leases().wrapping_sub(lease.leases.get().0)
            != state.taken.get().0.wrapping_sub(lease.taken.get().0);
        if lease.dense.is_set() && !disturbed && !lease.waits.is_set() {
            self.compare(used, span);
        }
        if let Some(last) = measured.last {
            // Beside other leases it may have been slowed: that it takes longer now is believed little by little.
            let last = match costs.of(key) {
                Belief::Takes(believed) if disturbed && !scattered => {
                    last.min(believed.scaled(9, 8))
                }
                _ => last,
            };
            costs.learn(key, last, measured.is_exact());
        }
        if !alone {
            let launches = match costs.of(key) {
                Belief::Takes(cost) => used.0 / cost.0.max(1),
                Belief::Unknown => 0,
            };
            let idle = lease.idle.get().plus(lease.inside.get());
            let turn = state.turns.take();
            let launches = if state.turns.are_given_away() {
                let waited = measured.found_idle() || lease.waited.is_set();
                if waited { launches } else { 0 }
            } else if idle > turn.scaled(launches, WAITS) && state.turns.are_taken() {
                // Who launches ahead is never idle for so long, whoever has the device meanwhile.
                launches.min(idle.0 / turn.0.max(1))
            } else {
                0
            };
            state.turns.waited(launches);
        }
        // One lease that took longer than it should says that beliefs are stale: the next ones risk less.
        let size = state.size.get();
        state
            .size
            .set(if used > Nanos::ZERO && busy > used.scaled(3, 2) {
                LEAST.max(size.scaled(1, 4))
            } else {
                size.scaled(2, 1)
            });
        let turning = self.turning(lease);
        let paid = if scattered {
            turning.min(state.turns.take())
        } else {
            turning
        };
        let span = span.plus(turning);
        let busy = busy.plus(paid).min(span);
        self.settle(shared, share, now, slot, (span, busy, scattered));
    }

    /// Whether somebody should watch for the mark before the lease's first launch: when it is reached the device has turned to this process. By the
    /// answer [`Throttle::turned`] knows the lease.
    pub fn awaits_turn(&self, slot: Slot) -> Option<Nanos> {
        let lease = self.lease(slot);
        let awaits = lease.turned_to.is_set() && !lease.turning.is_set();
        (awaits && lease.stage() != Stage::Free).then(|| lease.number.get())
    }

    /// The mark before the first launch of that lease, in an idle stream, was reached so long after the launch was made.
    pub fn turned(&self, slot: Slot, number: Nanos, took: Nanos) {
        if self.awaits_turn(slot) != Some(number) {
            return;
        }
        self.state.turns.saw(took);
        self.lease(slot).turning.set(took.plus(Nanos(1)));
        self.state.drained.add(took);
    }

    /// How long the lease was in flight before the device turned to it.
    fn turning(&self, lease: &Lease) -> Nanos {
        if !lease.turned_to.is_set() {
            Nanos::ZERO
        } else if !lease.turning.is_set() {
            lease.toll.get()
        } else {
            lease.turning.get().less(Nanos(1))
        }
    }

    /// When the device should be done with a lease that is closed.
    fn expected(&self, lease: &Lease) -> Nanos {
        let begun = lease.start.get().max(self.state.ended.get());
        begun.plus(self.corrected(lease.used.get()))
    }

    /// The device is not done with the lease. Whether it has begun is `begun`'s to say, if that matters.
    pub fn unfinished(
        &self,
        shared: &Shared<'_>,
        share: Share,
        now: Nanos,
        slot: Slot,
        begun: impl FnOnce() -> bool,
    ) {
        let (state, lease) = (&self.state, self.lease(slot));
        let mut flight = self.flight();
        let used = lease.used.get();
        let hold = |pause: Nanos| Some(now.plus(pause));
        let unmeasured = lease.unmeasured.is_set();
        if lease.stage() == Stage::Closing {
            if now > lease.closed.get().plus(PATIENCE) {
                // Whoever made the launch did not come back.
                self.settle_evenly(shared, share, now, slot, used);
            } else if unmeasured {
                flight.hold = hold(SOON);
                self.note(flight);
            }
            return;
        }
        if !R::IN_FLIGHT_BOUND {
            self.settle_evenly(shared, share, now, slot, used);
            return;
        }
        // The longer it takes, the less a late look matters.
        let pause = Nanos(now.less(lease.start.get()).0 / 64);
        let pause = pause.clamp(SOON, LATE);
        if lease.progress() != Progress::Begun && !flight.running {
            if begun() {
                lease.set_progress(Progress::Begun);
            } else {
                let patience = match state.crowded.is_set() {
                    true => HELD_UP_BESIDE,
                    false => HELD_UP,
                };
                let since = lease.start.get().max(state.settled.get());
                let is_new = lease.progress() == Progress::Unknown && R::HELD_UP_IS_FREE;
                if is_new && now > since.plus(patience) {
                    lease.set_progress(Progress::HeldUp);
                    shared.give_back(now, share, lease.paid.get());
                    lease.paid.set(Nanos::ZERO);
                }
            }
        }
        match lease.progress() {
            Progress::HeldUp => flight.held_up = true,
            Progress::Unknown if unmeasured => flight.hold = hold(pause),
            Progress::Unknown => {}
            Progress::Begun => {
                let expected = self.expected(lease);
                let late = now > expected.plus(LATE.max(used));
                if lease.waits.is_set() {
                    flight.running |= !late;
                } else {
                    if now > expected.max(lease.closed.get()).plus(PATIENCE) {
                        let so_far = now.less(lease.start.get().max(state.ended.get()));
                        let busy = so_far.less(lease.idle.get());
                        self.settle(shared, share, now, slot, (so_far, busy, false));
                        return;
                    }
                    lease.looked.set(now);
                    state.turns.hold_on(shared, now, expected);
                    flight.running = true;
                    if late || unmeasured {
                        flight.hold = hold(pause);
                    }
                }
            }
        }
        self.note(flight);
    }

    /// Whether what is launched now is paid for when it was done: it comes behind what is held up.
    fn is_unpaid(&self) -> bool {
        let unpaid = Slot::all()
            .map(|slot| self.lease(slot))
            .filter(|lease| lease.stage() != Stage::Free && !lease.paid.is_set())
            .fold(Nanos::ZERO, |sum, lease| sum.plus(lease.used.get()));
        self.state.held_up.is_set() && unpaid < MOST_HELD_UP
    }

    fn free_slots(&self) -> impl Iterator<Item = Slot> {
        Slot::all().filter(|slot| self.lease(*slot).stage() == Stage::Free)
    }

    /// A launch while the lease is open, and what is handed out does not cover it.
    fn go_on(
        &self,
        shared: &Shared<'_>,
        share: Share,
        now: Nanos,
        slot: Slot,
        launch: &Launch<'_>,
    ) -> Order {
        let (state, lease, Launch { key, cost, .. }) = (&self.state, self.lease(slot), *launch);
        self.look(lease, now, launch);
        let turns = &state.turns;
        let is_over = state.is_beside_others() && now > lease.start.get().plus(LONGEST);
        let mut rest = match is_over {
            true => Nanos::ZERO,
            false => lease.work.get().less(lease.used.get()),
        };
        let needed = match cost {
            Belief::Takes(cost) => cost,
            Belief::Unknown => Nanos::ZERO,
        };
        // There is no place for another: this one goes on.
        if rest <= needed && self.free_slots().next().is_none() {
            let more = needed.max(self.next_size(share));
            if !self.is_unpaid() {
                if let Err(next) = shared.pay::<R>(now, share, more) {
                    return Order::Wait(next.min(now.plus(NAP)));
                }
                lease.paid.add(more);
            }
            lease.work.add(more);
            rest = rest.plus(more);
        }
        let portion = match cost {
            Belief::Takes(cost) if state.is_beside_others() => {
                let portion = if turns.is_held() {
                    self.hold_on(shared, now, lease, cost)
                } else {
                    PORTION
                };
                if lease.looks.get() < PROBED {
                    cost
                } else {
                    portion
                }
            }
            _ => PORTION,
        };
        match cost {
            Belief::Takes(cost) if rest > cost => {
                self.hand_out(cost, portion.min(rest));
                Order::Go
            }
            Belief::Takes(cost) if cost <= rest.plus(PORTION) => {
                self.close(now, (slot, key), false, cost)
            }
            _ => {
                self.close_current(lease, now);
                Order::End(slot)
            }
        }
    }

    /// The device is held until the next look and half as long again, at the lease's pace so far. What is handed out until then.
    fn hold_on(&self, shared: &Shared<'_>, now: Nanos, lease: &Lease, cost: Nanos) -> Nanos {
        let state = &self.state;
        let (age, used) = (now.less(lease.start.get()), lease.used.get());
        let portion = LOOKS.scaled(used.0, age.0).clamp(cost, PORTION.max(cost));
        let looked = now.plus(portion.scaled(age.0.saturating_mul(3), used.0.saturating_mul(2)));
        let done = state.drained.get().plus(portion);
        // Whoever is idle for longer than others would take is better turned to again.
        let launches = used.0 / cost.0.max(1);
        if lease.idle.get() > state.turns.take().scaled(launches.saturating_mul(IDLER), 1) {
            state.turns.let_go(shared, now);
        } else {
            state.turns.hold_on(shared, now, looked.max(done));
        }
        portion
    }

    /// A launch without a lease.
    fn begin(&self, shared: &Shared<'_>, share: Share, now: Nanos, launch: &Launch<'_>) -> Order {
        let (state, Launch { key, cost, .. }) = (&self.state, *launch);
        let keeps_turns = state.is_beside_others() && state.turns.are_given_away();
        if state.running.is_set() && (keeps_turns || !R::AHEAD) {
            let drained = state.drained.get();
            return Order::Wait(drained.clamp(now.plus(SOON), now.plus(LATE)));
        }
        let is_unpaid = self.is_unpaid();
        let Some(slot) = self.free_slots().next() else {
            return match self.reopened(share, now).filter(|_| is_unpaid) {
                Some(slot) => self.go_on(shared, share, now, slot, launch),
                None => Order::Wait(now.plus(SOON)),
            };
        };
        let lease = self.lease(slot);
        let known = match cost {
            Belief::Takes(cost) => Some(cost),
            Belief::Unknown => None,
        };
        let others = shared.leases().wrapping_sub(state.leases.get().0);
        let turns = others > 0 && R::TURNS_ARE_PAID && !is_unpaid;
        let toll = if turns {
            state.turns.take()
        } else {
            Nanos::ZERO
        };
        let work = known.map_or(UNKNOWN, |cost| cost.max(self.next_size(share)));
        let paid = if is_unpaid {
            Nanos::ZERO
        } else {
            let first = known.map_or(UNKNOWN, |cost| cost.max(PORTION.scaled(2, 1)));
            let looked = now.plus(toll).plus(first);
            // Whoever is killed leaves no more behind.
            let paid = work.plus(toll).min(most_paid(share));
            if let Err(wait) = self.take(shared, share, now, (others, looked), paid) {
                return Order::Wait(wait);
            }
            paid
        };
        state.count.set(Nanos(state.count.get().0.wrapping_add(1)));
        lease.open(state.count.get(), now, key);
        lease.work.set(work);
        lease.paid.set(paid);
        lease.toll.set(toll);
        lease.turned_to.note(turns);
        lease.taken.set(state.taken.get());
        lease.leases.set(state.leases.get());
        lease.unmeasured.note(known.is_none());
        state.current.set(Nanos(u64::from(slot.0) + 1));
        state.crowded.set(if others > 0 {
            LATELY
        } else {
            state.crowded.get().less(Nanos(1))
        });
        if !state.crowded.is_set() {
            state.turns.forget();
        }
        state.drained.set(match state.running.is_set() {
            true => state.drained.get().max(now),
            false => now,
        });
        match known {
            Some(cost) if work > cost => {
                // Beside others the second launch looks, and the third, so that it is known at which pace they come.
                let portion = if state.is_beside_others() {
                    cost
                } else {
                    PORTION.min(work)
                };
                self.hand_out(cost, portion);
                Order::Mark {
                    slot,
                    opens: true,
                    closes: false,
                }
            }
            _ => {
                lease.alone.note(true);
                self.close(now, (slot, key), true, known.unwrap_or(Nanos::ZERO))
            }
        }
    }

    /// Pays for a lease that begins now, beside so many `others` since this process's last one. When to ask again where it is too early.
    fn take(
        &self,
        shared: &Shared<'_>,
        share: Share,
        now: Nanos,
        (others, looked): (u64, Nanos),
        paid: Nanos,
    ) -> Result<(), Nanos> {
        let state = &self.state;
        let holds = R::TURNS_ARE_KEPT && state.is_beside_others() && state.turns.are_given_away();
        let (free, courtesy) = if holds {
            (shared.held(now), HOLDERS_COURTESY)
        } else {
            (Nanos::ZERO, COURTESY)
        };
        let courtesy = match state.crowded.is_set() {
            true => Nanos(courtesy.0 >> others.min(63)),
            false => Nanos::ZERO,
        };
        let due = shared.next(now).max(free).plus(courtesy);
        if now < due {
            // Whoever holds the device may be done with it before.
            let nap = if now < free { GLANCE } else { NAP };
            return Err(due.min(now.plus(nap)));
        }
        if holds && !state.turns.hold(shared, now, looked) {
            return Err(now.plus(GLANCE));
        }
        if let Err(next) = shared.pay::<R>(now, share, paid) {
            state.turns.let_go(shared, now);
            return Err(next.min(now.plus(NAP)));
        }
        shared.note_lease();
        state.taken.set(Nanos(state.taken.get().0.wrapping_add(1)));
        state.leases.set(Nanos(shared.leases()));
        Ok(())
    }

    /// The youngest lease in flight goes on, where there is no place for another.
    fn reopened(&self, share: Share, now: Nanos) -> Option<Slot> {
        let closed = Slot::all().filter(|slot| self.lease(*slot).stage() == Stage::Closed);
        let slot = closed.max_by_key(|slot| self.lease(*slot).number.get())?;
        let lease = self.lease(slot);
        lease.work.set(lease.used.get().plus(self.next_size(share)));
        lease.alone.note(false);
        lease.unmeasured.note(false);
        lease.ended.note(false);
        lease.set_stage(Stage::Open);
        self.state.current.set(Nanos(u64::from(slot.0) + 1));
        self.state.drained.set(now);
        Some(slot)
    }

    fn close(&self, now: Nanos, (slot, key): (Slot, Key), opens: bool, cost: Nanos) -> Order {
        let lease = self.lease(slot);
        lease.used.add(cost);
        lease.set_key(key);
        let state = &self.state;
        state.drained.add(cost);
        self.close_current(lease, now);
        Order::Mark {
            slot,
            opens,
            closes: true,
        }
    }

    fn close_current(&self, lease: &Lease, now: Nanos) {
        lease.closed.set(now);
        lease.set_stage(Stage::Closing);
        // The device has the one before still to do: it does not come to an end in between.
        lease.dense.set(self.state.running.get());
        self.state.current.set(Nanos::ZERO);
    }

    /// A portion of what the lease has left, less the launch that asks.
    fn hand_out(&self, cost: Nanos, portion: Nanos) {
        let portion = portion.max(cost);
        self.state.portion.set(portion);
        self.left.store(portion.less(cost).0, Ordering::Relaxed);
    }

    /// Takes back what is handed out, and compares what was launched of it with the time gone by.
    fn look(&self, lease: &Lease, now: Nanos, launch: &Launch<'_>) {
        let state = &self.state;
        let launched = state
            .portion
            .get()
            .less(Nanos(self.left.swap(0, Ordering::Relaxed)));
        state.portion.set(Nanos::ZERO);
        lease.used.add(launched);
        let drained = state.drained.get().plus(self.corrected(launched));
        // It is seen to be at work.
        let gap = match state.running.is_set() {
            true => Nanos::ZERO,
            false => now.less(drained),
        };
        let turning = self.turning_inside(launched, launch, gap);
        let looks = lease.looks.get().plus(Nanos(1));
        lease.looks.set(looks);
        // What comes before the second launch is the first one's; the third one tells what became of the second.
        if looks == PROBED && turning != Nanos::ZERO {
            lease.waited.note(true);
        }
        lease.inside.add(turning);
        let gap = gap.less(turning);
        lease.idle.add(gap);
        if gap > lease.gap_to.get().less(lease.gap_from.get()) {
            lease.gap_from.set(drained);
            lease.gap_to.set(now);
        }
        state.drained.set(drained.max(now));
    }

    /// Of a time in which the device should have been idle, beside others, what it took to turn to this process.
    fn turning_inside(&self, launched: Nanos, launch: &Launch<'_>, gap: Nanos) -> Nanos {
        let state = &self.state;
        let turn = state.turns.take();
        if !state.is_beside_others() || gap == Nanos::ZERO {
            return Nanos::ZERO;
        }
        // It gives the device away with every wait: any of them may have been a turn.
        let gives_away = state.turns.are_given_away();
        if !gives_away && !(launch.is_idle)() {
            // What should be done and is not has waited for its turn, and been turned to; how much of it was which nobody saw.
            return gap.min(turn.max(gap.scaled(1, 2)));
        }
        let turns = match launch.cost {
            Belief::Takes(cost) if gives_away => launched.0 / cost.0.max(1),
            _ => 1,
        };
        match gap < turn {
            true => Nanos::ZERO,
            false => gap.min(turn.scaled(turns, 1)),
        }
    }

    /// The device was busy with the lease for `busy`, as far as anybody can tell.
    fn settle_evenly(
        &self,
        shared: &Shared<'_>,
        share: Share,
        now: Nanos,
        slot: Slot,
        busy: Nanos,
    ) {
        self.settle(shared, share, now, slot, (busy, busy, false));
    }

    /// The lease took `span`, of which the device was busy for `busy`; `exact`ly, if that is beside what other processes did then.
    fn settle(
        &self,
        shared: &Shared<'_>,
        share: Share,
        now: Nanos,
        slot: Slot,
        (span, busy, exact): (Nanos, Nanos, bool),
    ) {
        let (state, lease) = (&self.state, self.lease(slot));
        // It began when the one before it had ended, and has ended since the device was last found at it.
        let begun = lease.start.get().max(state.ended.get());
        let seen = match lease.turned_to.is_set() {
            true => Nanos::ZERO,
            false => lease.looked.get(),
        };
        let end = begun.plus(span).max(seen).min(now);
        let start = end.less(span);
        let to = lease.gap_to.get().clamp(start, end);
        // The gap is a belief: it leaves room for what was measured.
        let from = lease
            .gap_from
            .get()
            .max(to.less(span.less(busy)))
            .clamp(start, to);
        let taken = Taken {
            spans: [(start, from), (to, end)],
            busy,
            exact,
        };
        shared.settle::<R>(now, share, lease.paid.get(), &taken);
        state.turns.let_go(shared, now);
        state.ended.set(end.max(state.ended.get().min(now)));
        state.settled.set(now);
        if self.current() == Some(slot) {
            state.current.set(Nanos::ZERO);
        }
        lease.set_stage(Stage::Free);
    }

    /// A lease without idle time shows by how much beliefs fall short, rare long launches included.
    fn compare(&self, used: Nanos, span: Nanos) {
        let state = &self.state;
        let (believed, measured) = (
            state.believed.get().plus(used),
            state.measured.get().plus(span),
        );
        let halves = if believed > REMEMBERED { 2 } else { 1 };
        state.believed.set(believed.scaled(1, halves));
        state.measured.set(measured.scaled(1, halves));
    }

    fn corrected(&self, used: Nanos) -> Nanos {
        let (believed, measured) = (self.state.believed.get(), self.state.measured.get());
        if measured > believed {
            used.scaled(measured.0, believed.0)
        } else {
            used
        }
    }

    /// How large the next lease is. Random, so that a program's rhythm does not decide which of its launches are measured.
    fn next_size(&self, share: Share) -> Nanos {
        let state = &self.state;
        let worth_turning = if state.crowded.is_set() {
            state.turns.take().scaled(WORTH, 1)
        } else {
            Nanos::ZERO
        };
        let most = PERIOD
            .scaled(share.hundredths(), Share::ALL.hundredths())
            .max(worth_turning)
            .clamp(Nanos::millis(1), PERIOD);
        let size = state.size.get().clamp(LEAST, most);
        state.size.set(size);
        let seed = state
            .seed
            .get()
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        state.seed.set(Nanos(seed));
        size.scaled(512 + (seed >> 55), 1024)
    }

    fn priced(&self, cost: Belief) -> Belief {
        if R::PAID_BY_TIME {
            cost
        } else {
            Belief::Takes(Nanos::millis(1))
        }
    }
}
