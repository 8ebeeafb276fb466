//! A process's leases of one device's time.
//!
//! none → paid for and open → closing, while its last launch is made → closed, until the device is done
//! with it → settled, none. An open lease is handed out in portions, so that most launches cost one compare-and-swap; between two
//! portions the clock is looked at, which shows whether the device can have been idle in between.
//!
//! [`Throttle::pass`] may be called by any thread at any time. The other calls come from one thread at a time; none of them waits,
//! and the caller holds no lock while it does.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::shared::Taken;
use crate::{Belief, Costs, Key, Nanos, Rules, Share, Shared, Sound};

/// Leases begin this small, and fall back to it when one took much longer than was believed.
const LEAST: Nanos = Nanos::micros(250);
/// Every lease is measured, so this is also how long work goes unmeasured.
const MOST: Nanos = Nanos::millis(5);
/// Between two leases there must be time to wake up and to refill the device.
const REFILL: Nanos = Nanos::micros(600);
/// The device's time that is handed out between two looks at the clock.
const PORTION: Nanos = Nanos::micros(250);
/// What is paid for a launch that was never measured. It is measured by itself, and most of this comes back then.
const UNKNOWN: Nanos = Nanos::millis(100);
/// What a lease is taken for, at least, that cannot be measured.
const UNMEASURED: Nanos = Nanos::millis(1);
/// Whoever had the last lease lets others go first by this, and by half as much for each lease of others that it has seen since.
const COURTESY: Nanos = Nanos::micros(150);
/// Leases after which other processes are forgotten.
const LATELY: Nanos = Nanos(32);
/// What the device takes to turn to a process is the least of so many measurements, and no more than this.
const TURNS_SEEN: Nanos = Nanos(16);
const LONGEST_TURN: Nanos = Nanos::micros(500);
/// A lease between those of others is so many times what turning takes, so that not much is lost by it.
const WORTH: u64 = 25;
/// Work after which half of a comparison is forgotten.
const REMEMBERED: Nanos = Nanos::millis(200);
/// A time that one waits for may come earlier: what was paid comes back.
const NAP: Nanos = Nanos::millis(5);
/// A lease that is not done this long after it should be is charged so far, and the next one may be taken: work may wait for work
/// that is launched after it.
const PATIENCE: Nanos = Nanos::millis(250);

/// What is to be done with a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// It goes to the driver as it is.
    Go,
    /// It goes, with marks in its stream: before it if it opens or closes the lease, after it if it closes it. A launch that closes
    /// is followed by [`Throttle::launched`].
    Mark { opens: bool, closes: bool },
    /// It is too long for what the lease has left. A mark ends the lease in its stream, [`Throttle::launched`] says so, and it asks again.
    End,
    /// Ask again at this time.
    Wait(Nanos),
    /// Has the device reached the mark after the lease's last launch? [`Throttle::finished`] or [`Throttle::unfinished`], then ask again.
    Look,
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
    /// Whether there was such a time: the stream had run empty before the last launch, or before the mark that ended the lease.
    pub found_idle: bool,
}

/// One process's hold on one device. All zeros has no lease.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Throttle<R: Rules = Sound> {
    /// What is left of the portion that was handed out: all that a launch usually touches.
    left: AtomicU64,
    state: State,
    rules: PhantomData<R>,
}

/// Written by one thread at a time.
#[derive(Debug, Default)]
#[repr(C)]
struct State {
    phase: Word,
    /// What was paid for.
    work: Word,
    /// When it started.
    start: Word,
    /// What of it was launched, as believed, without the portion that is out.
    used: Word,
    portion: Word,
    /// When the device should be done with what was launched up to the last look at the clock, and how long it should have been idle.
    drained: Word,
    idle: Word,
    /// The longest time without work.
    gap_from: Word,
    gap_to: Word,
    /// When the last launch was made, when the device was found not to be done with it, and when to look again.
    closed: Word,
    looked: Word,
    again: Word,
    /// It is one launch.
    alone: Word,
    key: Word,
    /// The tenant's count of leases when this process had its last one.
    leases: Word,
    /// Above zero: others had leases lately.
    crowded: Word,
    /// Others had leases since this process's last: the device has to turn to it.
    turns: Word,
    /// Turns that were seen, how long one took at least in this round and in the round before, and what the lease pays for it in advance.
    turned: Word,
    least: Word,
    before: Word,
    toll: Word,
    /// Leases without idle time, lately: what was believed and what was measured.
    believed: Word,
    measured: Word,
    size: Word,
    seed: Word,
}

#[derive(Debug, Default)]
#[repr(transparent)]
struct Word(AtomicU64);

impl Word {
    fn get(&self) -> Nanos {
        Nanos(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, value: Nanos) {
        self.0.store(value.0, Ordering::Relaxed);
    }
}

const NONE: Nanos = Nanos(0);
const OPEN: Nanos = Nanos(1);
const CLOSING: Nanos = Nanos(2);
const CLOSED: Nanos = Nanos(3);

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

    /// What is to be done with a launch that did not pass.
    pub fn submit(
        &self,
        shared: &Shared<'_>,
        share: Share,
        now: Nanos,
        key: Key,
        cost: Belief,
    ) -> Order {
        let cost = self.priced(cost);
        match self.state.phase.get() {
            OPEN => self.go_on(now, key, cost),
            CLOSING if now < self.state.closed.get().plus(PATIENCE) => {
                Order::Wait(now.plus(Nanos::micros(50)))
            }
            CLOSING => {
                // Whoever made the launch did not come back.
                self.settle(
                    shared,
                    share,
                    now,
                    self.state.used.get(),
                    self.state.used.get(),
                    false,
                );
                Order::Wait(now)
            }
            CLOSED => Order::Look,
            _ => self.begin(shared, share, now, key, cost),
        }
    }

    /// The launch that closes the lease was made, with its marks, or was not.
    pub fn launched(&self, shared: &Shared<'_>, share: Share, now: Nanos, launched: Launched) {
        if self.state.phase.get() != CLOSING {
            return;
        }
        self.state.closed.set(now);
        let used = self.state.used.get();
        match launched {
            Launched::Marked => self.state.phase.set(CLOSED),
            Launched::Unmarked => {
                let guess = used.max(UNMEASURED);
                self.settle(shared, share, now, guess, guess, false);
            }
            Launched::Failed => self.settle(shared, share, now, used, used, false),
        }
    }

    /// The device is done with the lease.
    pub fn finished(
        &self,
        shared: &Shared<'_>,
        share: Share,
        costs: &Costs,
        now: Nanos,
        measured: Measured,
    ) {
        let state = &self.state;
        if state.phase.get() != CLOSED {
            return;
        }
        let used = state.used.get();
        let Some(span) = measured.lease.filter(|_| R::PAID_BY_TIME) else {
            self.settle(shared, share, now, used, used, false);
            return;
        };
        let key = Key::from_word(state.key.get().0);
        let idle = if R::IDLE_IS_FREE {
            state.idle.get()
        } else {
            Nanos::ZERO
        };
        let alone = state.alone.get() != Nanos::ZERO;
        let scattered = measured.found_idle && state.crowded.get() != Nanos::ZERO && !alone;
        let busy = if alone {
            span
        } else if scattered {
            // Launches here and there between those of other processes: each was slowed by them, and that time is theirs to pay.
            span.min(costs.alone(key, used))
        } else {
            span.min(self.corrected(used).max(span.less(idle)))
        };
        if !alone && idle < span.scaled(1, 16) {
            self.compare(used, span.less(idle));
        }
        if let Some(last) = measured.last {
            // Beside other leases it may have been slowed: that it takes longer now is believed little by little.
            let disturbed = shared.leases() != state.leases.get().0;
            let last = match costs.of(key) {
                Belief::Takes(believed) if disturbed && !scattered => {
                    last.min(believed.scaled(9, 8))
                }
                _ => last,
            };
            costs.learn(key, last);
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
        let turning = self.turning(now, span);
        self.settle(
            shared,
            share,
            now,
            span.plus(turning),
            busy.plus(turning),
            scattered,
        );
    }

    /// How long the lease was in flight before the device turned to it. No mark tells: the first one is reached when it has. But the lease's
    /// start is known, and its end where it was looked for.
    fn turning(&self, now: Nanos, span: Nanos) -> Nanos {
        let state = &self.state;
        if state.turns.get() == Nanos::ZERO {
            return Nanos::ZERO;
        }
        if !self.is_seen(now) {
            return state.toll.get();
        }
        let soonest = state.start.get().plus(span);
        // Between the last look and when this one was meant to be: waking up is late.
        let least = state.looked.get().less(soonest);
        let most = state.again.get().min(now).less(soonest).max(least);
        let middle = least.plus(most.less(least).scaled(1, 2));
        let seen = state.turned.get();
        if seen.0.is_multiple_of(TURNS_SEEN.0) {
            let before = if seen == Nanos::ZERO {
                middle
            } else {
                state.least.get()
            };
            state.before.set(before);
            state.least.set(middle);
        } else {
            state.least.set(middle.min(state.least.get()));
        }
        state.turned.set(seen.plus(Nanos(1)));
        if self.toll() < least {
            middle
        } else {
            self.toll().min(most)
        }
    }

    /// The device was found busy with the lease just before.
    fn is_seen(&self, now: Nanos) -> bool {
        now.less(self.state.looked.get()) < Nanos::millis(3)
    }

    /// The device is not done with the lease. When to look again.
    pub fn unfinished(&self, shared: &Shared<'_>, share: Share, now: Nanos) -> Nanos {
        let state = &self.state;
        let (start, used) = (state.start.get(), state.used.get());
        let expected = start.plus(used);
        if !R::IN_FLIGHT_BOUND {
            self.settle(shared, share, now, used, used, false);
            return now;
        }
        if now > expected.max(state.closed.get()).plus(PATIENCE) {
            let so_far = now.less(start);
            self.settle(
                shared,
                share,
                now,
                so_far,
                so_far.less(state.idle.get()),
                false,
            );
            return now;
        }
        state.looked.set(now);
        // The longer it takes, the less a late look matters.
        let pause = Nanos(now.less(start).0 / 64).clamp(Nanos::micros(30), Nanos::millis(1));
        state.again.set(expected.max(now.plus(pause)));
        state.again.get()
    }

    /// A launch while the lease is open, and what is handed out does not cover it.
    fn go_on(&self, now: Nanos, key: Key, cost: Belief) -> Order {
        let state = &self.state;
        self.look(now);
        let rest = state.work.get().less(state.used.get());
        match cost {
            Belief::Takes(cost) if rest > cost => {
                self.hand_out(cost, rest);
                Order::Go
            }
            Belief::Takes(cost) if cost <= rest.plus(PORTION) => self.close(now, false, key, cost),
            _ => {
                state.closed.set(now);
                state.phase.set(CLOSING);
                Order::End
            }
        }
    }

    /// A launch without a lease.
    fn begin(
        &self,
        shared: &Shared<'_>,
        share: Share,
        now: Nanos,
        key: Key,
        cost: Belief,
    ) -> Order {
        let state = &self.state;
        let others = shared.leases().wrapping_sub(state.leases.get().0);
        let due = shared.next(now).plus(Nanos(COURTESY.0 >> others.min(63)));
        if now < due {
            return Order::Wait(due.min(now.plus(NAP)));
        }
        let work = match cost {
            Belief::Takes(cost) => cost.max(self.next_size(share)),
            Belief::Unknown => UNKNOWN,
        };
        let turns = others > 0 && R::TURNS_ARE_PAID;
        let toll = if turns { self.toll() } else { Nanos::ZERO };
        if let Err(next) = shared.take::<R>(now, share, work.plus(toll)) {
            return Order::Wait(next.min(now.plus(NAP)));
        }
        state.work.set(work);
        state.toll.set(toll);
        state.turns.set(Nanos(u64::from(turns)));
        state.crowded.set(if others > 0 {
            LATELY
        } else {
            state.crowded.get().less(Nanos(1))
        });
        state.leases.set(Nanos(shared.leases()));
        state.start.set(now);
        state.drained.set(now);
        state.idle.set(Nanos::ZERO);
        state.used.set(Nanos::ZERO);
        state.alone.set(Nanos::ZERO);
        match cost {
            Belief::Takes(cost) if work > cost => {
                state.phase.set(OPEN);
                self.hand_out(cost, work);
                Order::Mark {
                    opens: true,
                    closes: false,
                }
            }
            _ => {
                state.alone.set(Nanos(1));
                self.close(
                    now,
                    true,
                    key,
                    if let Belief::Takes(cost) = cost {
                        cost
                    } else {
                        Nanos::ZERO
                    },
                )
            }
        }
    }

    fn close(&self, now: Nanos, opens: bool, key: Key, cost: Nanos) -> Order {
        self.state.used.set(self.state.used.get().plus(cost));
        self.state.key.set(Nanos(key.word()));
        self.state.closed.set(now);
        self.state.phase.set(CLOSING);
        Order::Mark {
            opens,
            closes: true,
        }
    }

    /// A portion of what the lease has left, less the launch that asks.
    fn hand_out(&self, cost: Nanos, rest: Nanos) {
        let portion = PORTION.max(cost.plus(Nanos(1))).min(rest);
        self.state.portion.set(portion);
        self.left.store(portion.less(cost).0, Ordering::Relaxed);
    }

    /// Takes back what is handed out, and compares what was launched of it with the time gone by.
    fn look(&self, now: Nanos) {
        let state = &self.state;
        let launched = state
            .portion
            .get()
            .less(Nanos(self.left.swap(0, Ordering::Relaxed)));
        state.portion.set(Nanos::ZERO);
        state.used.set(state.used.get().plus(launched));
        let drained = state.drained.get().plus(launched);
        let gap = now.less(drained);
        state.idle.set(state.idle.get().plus(gap));
        if gap > state.gap_to.get().less(state.gap_from.get()) {
            state.gap_from.set(drained);
            state.gap_to.set(now);
        }
        state.drained.set(drained.max(now));
    }

    /// The lease took `span`, of which the device was busy for `busy`.
    fn settle(
        &self,
        shared: &Shared<'_>,
        share: Share,
        now: Nanos,
        span: Nanos,
        busy: Nanos,
        exact: bool,
    ) {
        let state = &self.state;
        // Where the device was looked at just before, the lease ended now; else it began when it was begun, and is over by now.
        let start = if self.is_seen(now) && state.turns.get() == Nanos::ZERO {
            now
        } else {
            state.start.get().plus(span).min(now)
        }
        .less(span);
        let end = start.plus(span);
        let to = state.gap_to.get().clamp(start, end);
        // The gap is a belief: it leaves room for what was measured.
        let from = state
            .gap_from
            .get()
            .max(to.less(span.less(busy)))
            .clamp(start, to);
        let taken = Taken {
            spans: [(start, from), (to, end)],
            busy,
            exact,
        };
        let paid = state.work.get().plus(state.toll.get());
        shared.settle::<R>(now, share, paid, &taken);
        state.gap_from.set(Nanos::ZERO);
        state.gap_to.set(Nanos::ZERO);
        state.looked.set(Nanos::ZERO);
        state.phase.set(NONE);
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
        let others = Share::ALL.hundredths() - share.hundredths();
        let crowded = state.crowded.get() != Nanos::ZERO;
        let worth_turning = if crowded {
            self.toll().scaled(WORTH, 1)
        } else {
            Nanos::ZERO
        };
        let most = REFILL
            .scaled(share.hundredths(), others)
            .max(worth_turning)
            .clamp(Nanos::millis(1), MOST);
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

    /// What the device takes to turn to this process, lately.
    fn toll(&self) -> Nanos {
        self.state
            .least
            .get()
            .min(self.state.before.get())
            .min(LONGEST_TURN)
    }

    fn priced(&self, cost: Belief) -> Belief {
        if R::PAID_BY_TIME {
            cost
        } else {
            Belief::Takes(Nanos::millis(1))
        }
    }
}
