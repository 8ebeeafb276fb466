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

use crate::lease::{LEASES, Lease, Slot, Stage};
use crate::turns::Turns;
use crate::word::Word;
use crate::{Belief, Key, Nanos, Rules, Share, Shared, Sound};

pub use flight::Measured;
pub use told::Told;

mod doubt;
mod flight;
mod look;
mod told;

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
/// The looks of a lease beside others after which the pace of its launches is known.
const PROBED: Nanos = Nanos(2);
/// Whoever holds the device lets others go first by this.
const HOLDERS_COURTESY: Nanos = Nanos::micros(400);
/// Somebody who waits until another lets go of the device looks so often.
const GLANCE: Nanos = Nanos::micros(200);
/// For how long a lease's first launch is watched.
pub(crate) const WATCHED: Nanos = Nanos::millis(10);
/// A time that one waits for may come earlier: what was paid comes back.
const NAP: Nanos = Nanos::millis(5);
/// Work is late that takes twice as long as is believed, and this at least: then there is no launch before it is done.
const LATE: Nanos = Nanos::millis(1);
/// Who waits for the device asks again no sooner.
const SOON: Nanos = Nanos::micros(30);
/// Of so many leases one is gauged; of so many of these the least counts.
const GAUGED: u64 = 8;
const ROUND: u64 = 16;
/// Where other tenants may have the device, after a lease that is charged by belief and took much longer, up to so many leases are one launch each: whether it waited, or launches differ,
/// they tell. So many places of leases stay for others.
const PROBES: u64 = 8;
const PLACES_KEPT: usize = LEASES / 2;
/// What a process may launch unpaid behind work that is held up.
const MOST_HELD_UP: Nanos = Nanos::millis(250);

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
    /// What it may take, and what of so much is believed.
    pub cost: Belief,
    pub mean: &'a dyn Fn(Nanos) -> Nanos,
    /// Whether its stream has nothing left to do, where anybody can say.
    pub is_idle: &'a dyn Fn() -> Option<bool>,
    /// It may wait for something else than the device.
    pub waits: bool,
    /// Which stream or queue it is for.
    pub stream: u64,
}

/// What became of the launch that closes a lease, or of the mark that ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launched {
    /// It was made, and the mark after it is set.
    Marked,
    /// It was made, and what it takes will not be known.
    Unmarked,
    /// The driver refused it, and no mark tells what it took.
    Failed,
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
    /// What was last found of the leases in flight: the device is at work for this process; something else than the device holds one up; one was
    /// not done long after it should have been; no launch before this time.
    running: Word,
    held_up: Word,
    overdue: Word,
    hold: Word,
    /// The tenant's count of leases when this process had its last one.
    leases: Word,
    /// Above zero: others had leases lately.
    crowded: Word,
    turns: Turns,
    /// Leases without idle time, lately: what was believed and what was measured.
    believed: Word,
    measured: Word,
    /// What leases of launches that differ took less than was believed.
    owed: Word,
    /// So many leases that come are to be one launch each.
    probes: Word,
    /// The least time from a mark to the next one in this round of leases and in the round before, and a nanosecond.
    gauged: Word,
    gauged_before: Word,
    size: Word,
    seed: Word,
    /// When the device is to be asked how busy it was; the time of its last figure; when it was told, and for how much the tenant had been charged by then;
    /// how many 1024ths of short launches' time are not charged since.
    asks: Word,
    told: Word,
    compared: Word,
    charged: Word,
    spared: Word,
    /// By that, whether others than the tenant's processes have the device, too, and since when.
    others: Word,
    others_since: Word,
    /// By the driver's lists nobody else has it.
    alone: Word,
    /// Like no other process's of the tenant. Zero: it has never compared.
    name: Word,
    with_device: told::Compared,
    doubts: doubt::Doubts,
    /// The leases of the tenant's other processes by the last answer.
    siblings: Word,
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
            // Nobody waits for its measurement.
            Belief::Unknown if launch.waits || self.is_unpaid(shared, now) => {
                Belief::Takes(UNMEASURED)
            }
            cost => cost,
        };
        let waits = launch.waits || self.may_wait(now);
        let launch = &Launch {
            cost,
            waits,
            ..*launch
        };
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

    /// Whether a mark belongs behind the lease's last one.
    pub(crate) fn is_to_gauge(&self, slot: Slot) -> bool {
        self.lease(slot).number.get().0.is_multiple_of(GAUGED) || !self.state.gauged.is_set()
    }

    /// From a mark to the next one, with nothing between them, it took so long.
    pub(crate) fn gauge(&self, slot: Slot, took: Nanos) {
        let (state, took) = (&self.state, took.plus(Nanos(1)));
        let least = state.gauged.get();
        let number = self.lease(slot).number.get().0;
        if number.is_multiple_of(GAUGED * ROUND) {
            state.gauged_before.set(least);
            state.gauged.set(took);
        } else if !state.gauged.is_set() || took < least {
            state.gauged.set(took);
        }
    }

    /// What a mark takes of the device's time.
    pub(crate) fn gauged(&self) -> Nanos {
        let state = &self.state;
        let least = match state.gauged_before.is_set() {
            true => state.gauged.get().min(state.gauged_before.get()),
            false => state.gauged.get(),
        };
        if R::MARKS_ARE_GAUGED {
            least.less(Nanos(1))
        } else {
            Nanos::ZERO
        }
    }

    pub(crate) fn lease(&self, slot: Slot) -> &Lease {
        &self.leases[slot.index()]
    }

    fn current(&self) -> Option<Slot> {
        let place = self.state.current.get().0.checked_sub(1)?;
        Slot::all().nth(place as usize)
    }

    /// Whether what is launched now is paid for when it was done: it comes behind what is held up.
    fn is_unpaid(&self, shared: &Shared<'_>, now: Nanos) -> bool {
        let state = &self.state;
        if !state.held_up.is_set() || state.running.is_set() {
            return false;
        }
        let unpaid = Slot::all()
            .map(|slot| self.lease(slot))
            .filter(|lease| lease.stage() != Stage::Free)
            .fold(Nanos::ZERO, |sum, lease| {
                sum.plus(lease.used.get().less(lease.paid.get()))
            });
        // Else all other streams' work would be, as long as one is held up.
        let owes = shared.next(now) > now.plus(MOST_HELD_UP);
        unpaid < MOST_HELD_UP && !owes
    }

    fn free_slots(&self) -> impl Iterator<Item = Slot> {
        Slot::all().filter(|slot| self.lease(*slot).stage() == Stage::Free)
    }

    /// A place for another lease. Where what is held up has them all, and the launch is not behind it, or no more may come behind it unpaid, the oldest is paid for as is
    /// believed: else nothing else would be measured for as long as it waits.
    fn room(
        &self,
        shared: &Shared<'_>,
        share: Share,
        now: Nanos,
        launch: &Launch<'_>,
        is_unpaid: bool,
    ) -> Option<Slot> {
        self.free_slots().next().or_else(|| {
            let held_up = Slot::all().filter(|slot| self.is_held_up(self.lease(*slot), now));
            let oldest = held_up.min_by_key(|slot| self.lease(*slot).number.get())?;
            let may_be_behind = is_unpaid && (launch.is_idle)() != Some(true);
            if may_be_behind || !R::PLACES_ARE_KEPT_FREE {
                return None;
            }
            let used = self.lease(oldest).used.get();
            self.settle_evenly(shared, share, now, oldest, used.max(UNMEASURED));
            Some(oldest)
        })
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
        if launch.waits {
            lease.waits.note(true);
        }
        if launch.stream != lease.stream.get().0 {
            lease.streams.note(true);
        }
        let turns = &state.turns;
        let is_over = state.is_beside_others() && now > lease.start.get().plus(LONGEST);
        let mut rest = match is_over {
            true => Nanos::ZERO,
            false => lease.work.get().less(lease.used.get()),
        };
        let needed = cost.time();
        let is_unpaid = self.is_unpaid(shared, now);
        // There is no place for another: this one goes on.
        if rest <= needed && self.room(shared, share, now, launch, is_unpaid).is_none() {
            let more = needed.max(self.next_size(share));
            if !is_unpaid {
                let mean = (launch.mean)(more);
                if let Err(next) = shared.pay::<R>(now, share, mean) {
                    return Order::Wait(next.min(now.plus(NAP)));
                }
                lease.paid.add(mean);
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

    /// A launch without a lease.
    fn begin(&self, shared: &Shared<'_>, share: Share, now: Nanos, launch: &Launch<'_>) -> Order {
        let (state, Launch { key, cost, .. }) = (&self.state, *launch);
        let keeps_turns = state.is_beside_others() && state.turns.are_given_away();
        if state.running.is_set() && (keeps_turns || !R::AHEAD) {
            let drained = state.drained.get();
            return Order::Wait(drained.clamp(now.plus(SOON), now.plus(LATE)));
        }
        let is_unpaid = self.is_unpaid(shared, now);
        let Some(slot) = self.room(shared, share, now, launch, is_unpaid) else {
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
            let mean = (launch.mean)(work);
            let mean = mean.less(self.spared(now, mean));
            // Whoever is killed leaves no more behind.
            let paid = mean.plus(toll).min(most_paid(share));
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
        lease.waits.note(launch.waits);
        lease.stream.set(Nanos(launch.stream));
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
            Some(cost) if work > cost && !self.is_probe() => {
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
        lease.last.set(cost);
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

    /// Whether the next lease is to be one launch, so that it is measured. Where nobody else has the device its own figure tells; beside the tenant's other
    /// processes each end of a lease gives a turn away.
    fn is_probe(&self) -> bool {
        let state = &self.state;
        let tells = !state.alone.is_set() && !state.crowded.is_set();
        let is_one = tells && state.probes.is_set() && self.free_slots().count() >= PLACES_KEPT;
        if is_one {
            state.probes.set(state.probes.get().less(Nanos(1)));
        }
        is_one
    }

    /// A lease that was charged by belief took much longer.
    fn probe(&self) {
        self.state.probes.set(Nanos(self.dice() % (PROBES + 1)));
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
        size.scaled(512 + (self.dice() >> 15), 1024)
    }

    fn dice(&self) -> u64 {
        let seed = &self.state.seed;
        let next = seed
            .get()
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        seed.set(Nanos(next));
        next >> 40
    }

    fn priced(&self, cost: Belief) -> Belief {
        if R::PAID_BY_TIME {
            cost
        } else {
            Belief::Takes(Nanos::millis(1))
        }
    }
}
