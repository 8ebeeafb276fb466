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
use crate::turns::Turns;
use crate::word::Word;
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
/// A lease between those of others is so many times what turning takes, so that not much is lost by it.
const WORTH: u64 = 16;
/// Beside others a lease ends after this, however little of it was launched.
const LONGEST: Nanos = Nanos::millis(20);
/// Whoever holds the device looks at the clock so often, and lets others go first by this.
const LOOKS: Nanos = Nanos::micros(500);
/// The looks of a lease beside others after which the pace of its launches is known.
const PROBED: Nanos = Nanos(2);
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
    /// Others had leases since this process's last: the device has to turn to it. How long it was seen to take, and a nanosecond; what is paid for it
    /// in advance.
    turned_to: Word,
    turning: Word,
    toll: Word,
    /// Looks at the clock since it was begun, turns in the middle of it, and whether its second launch was one.
    looks: Word,
    inside: Word,
    waited: Word,
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
        self.crowded.get() != Nanos::ZERO && self.turns.are_taken()
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
            OPEN => self.go_on(shared, now, key, cost),
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
        let scattered = measured.found_idle() && state.crowded.get() != Nanos::ZERO && !alone;
        let busy = if alone {
            span
        } else if scattered {
            // Launches here and there between those of other processes: each was slowed by them, and that time is theirs to pay.
            span.min(costs.alone(key, used))
        } else {
            span.min(self.corrected(used).max(span.less(idle)))
        };
        let inside = state.inside.get();
        // Others may have had leases beside this one, and the device a turn of theirs in it.
        let disturbed = shared.leases() != state.leases.get().0;
        let is_shared = disturbed && state.turns.are_taken();
        if !alone && !is_shared && inside == Nanos::ZERO && idle < span.scaled(1, 16) {
            self.compare(used, span.less(idle));
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
            // Two launches of the lease were looked at by themselves, its second and its last.
            let waited = measured.found_idle() || state.waited.get() != Nanos::ZERO;
            let launches = match costs.of(key) {
                Belief::Takes(cost) if waited => used.0 / cost.0.max(1),
                _ => 0,
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
        let turning = self.turning();
        let paid = if scattered {
            turning.min(state.turns.take())
        } else {
            turning
        };
        let span = span.plus(turning);
        self.settle(
            shared,
            share,
            now,
            span,
            busy.plus(paid).min(span),
            scattered,
        );
    }

    /// Whether somebody should watch for the mark before the first launch: when it is reached the device has turned to this process. By the
    /// answer [`Throttle::turned`] knows the lease.
    pub fn awaits_turn(&self) -> Option<Nanos> {
        let state = &self.state;
        let awaits = state.turned_to.get() != Nanos::ZERO && state.turning.get() == Nanos::ZERO;
        (awaits && state.phase.get() != NONE).then(|| state.start.get())
    }

    /// The mark before the first launch of that lease, in an idle stream, was reached so long after the launch was made.
    pub fn turned(&self, lease: Nanos, took: Nanos) {
        let state = &self.state;
        if self.awaits_turn() != Some(lease) {
            return;
        }
        state.turns.saw(took);
        state.turning.set(took.plus(Nanos(1)));
        state.drained.set(state.drained.get().plus(took));
    }

    /// How long the lease was in flight before the device turned to it.
    fn turning(&self) -> Nanos {
        let state = &self.state;
        if state.turned_to.get() == Nanos::ZERO {
            Nanos::ZERO
        } else if state.turning.get() == Nanos::ZERO {
            state.toll.get()
        } else {
            state.turning.get().less(Nanos(1))
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
        state.turns.hold_on(shared, now, expected);
        // The longer it takes, the less a late look matters.
        let pause = Nanos(now.less(start).0 / 64).clamp(Nanos::micros(30), Nanos::millis(1));
        state.again.set(expected.max(now.plus(pause)));
        state.again.get()
    }

    /// A launch while the lease is open, and what is handed out does not cover it.
    fn go_on(&self, shared: &Shared<'_>, now: Nanos, key: Key, cost: Belief) -> Order {
        let state = &self.state;
        self.look(now, cost);
        let turns = &state.turns;
        let rest = if state.is_beside_others() && now > state.start.get().plus(LONGEST) {
            Nanos::ZERO
        } else {
            state.work.get().less(state.used.get())
        };
        let portion = match cost {
            Belief::Takes(cost) if state.is_beside_others() => {
                let portion = if turns.is_held() {
                    self.hold_on(shared, now, cost)
                } else {
                    PORTION
                };
                if state.looks.get() < PROBED {
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
            Belief::Takes(cost) if cost <= rest.plus(PORTION) => self.close(now, false, key, cost),
            _ => {
                state.closed.set(now);
                state.phase.set(CLOSING);
                Order::End
            }
        }
    }

    /// The device is held until the next look and half as long again, at the lease's pace so far. What is handed out until then.
    fn hold_on(&self, shared: &Shared<'_>, now: Nanos, cost: Nanos) -> Nanos {
        let state = &self.state;
        let (age, used) = (now.less(state.start.get()), state.used.get());
        let portion = LOOKS.scaled(used.0, age.0).clamp(cost, PORTION.max(cost));
        let looked = now.plus(portion.scaled(age.0.saturating_mul(3), used.0.saturating_mul(2)));
        let done = state.drained.get().plus(portion);
        // Whoever is idle for longer than others would take is better turned to again.
        let launches = used.0 / cost.0.max(1);
        if state.idle.get() > state.turns.take().scaled(launches.saturating_mul(IDLER), 1) {
            state.turns.let_go(shared, now);
        } else {
            state.turns.hold_on(shared, now, looked.max(done));
        }
        portion
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
        let holds = R::TURNS_ARE_KEPT && state.is_beside_others() && state.turns.are_given_away();
        let (free, courtesy) = if holds {
            (shared.held(now), HOLDERS_COURTESY)
        } else {
            (Nanos::ZERO, COURTESY)
        };
        let courtesy = Nanos(courtesy.0 >> others.min(63));
        let due = shared.next(now).max(free).plus(courtesy);
        if now < due {
            // Whoever holds the device may be done with it before.
            let nap = if now < free { GLANCE } else { NAP };
            return Order::Wait(due.min(now.plus(nap)));
        }
        let work = match cost {
            Belief::Takes(cost) => cost.max(self.next_size(share)),
            Belief::Unknown => UNKNOWN,
        };
        let turns = others > 0 && R::TURNS_ARE_PAID;
        let toll = if turns {
            state.turns.take()
        } else {
            Nanos::ZERO
        };
        let first = match cost {
            Belief::Takes(cost) => cost.max(PORTION.scaled(2, 1)),
            Belief::Unknown => UNKNOWN,
        };
        let looked = now.plus(toll).plus(first);
        if holds && !state.turns.hold(shared, now, looked) {
            return Order::Wait(now.plus(GLANCE));
        }
        if let Err(next) = shared.take::<R>(now, share, work.plus(toll)) {
            state.turns.let_go(shared, now);
            return Order::Wait(next.min(now.plus(NAP)));
        }
        state.work.set(work);
        state.toll.set(toll);
        state.turned_to.set(Nanos(u64::from(turns)));
        state.turning.set(Nanos::ZERO);
        state.crowded.set(if others > 0 {
            LATELY
        } else {
            state.crowded.get().less(Nanos(1))
        });
        if state.crowded.get() == Nanos::ZERO {
            state.turns.forget();
        }
        state.leases.set(Nanos(shared.leases()));
        state.key.set(Nanos(key.word()));
        state.start.set(now);
        state.drained.set(now);
        state.idle.set(Nanos::ZERO);
        state.inside.set(Nanos::ZERO);
        state.waited.set(Nanos::ZERO);
        state.looks.set(Nanos::ZERO);
        state.used.set(Nanos::ZERO);
        state.alone.set(Nanos::ZERO);
        match cost {
            Belief::Takes(cost) if work > cost => {
                state.phase.set(OPEN);
                // Beside others the second launch looks, and the third, so that it is known at which pace they come.
                let portion = if state.is_beside_others() {
                    cost
                } else {
                    PORTION.min(work)
                };
                self.hand_out(cost, portion);
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
    fn hand_out(&self, cost: Nanos, portion: Nanos) {
        let portion = portion.max(cost);
        self.state.portion.set(portion);
        self.left.store(portion.less(cost).0, Ordering::Relaxed);
    }

    /// Takes back what is handed out, and compares what was launched of it with the time gone by.
    fn look(&self, now: Nanos, cost: Belief) {
        let state = &self.state;
        let launched = state
            .portion
            .get()
            .less(Nanos(self.left.swap(0, Ordering::Relaxed)));
        state.portion.set(Nanos::ZERO);
        state.used.set(state.used.get().plus(launched));
        let drained = state.drained.get().plus(launched);
        let gap = now.less(drained);
        let turning = self.turning_inside(launched, cost, gap);
        let looks = state.looks.get().plus(Nanos(1));
        state.looks.set(looks);
        // What comes before the second launch is the first one's; the third one tells what became of the second.
        if looks == PROBED && turning != Nanos::ZERO {
            state.waited.set(Nanos(1));
        }
        state.inside.set(state.inside.get().plus(turning));
        let gap = gap.less(turning);
        state.idle.set(state.idle.get().plus(gap));
        if gap > state.gap_to.get().less(state.gap_from.get()) {
            state.gap_from.set(drained);
            state.gap_to.set(now);
        }
        state.drained.set(drained.max(now));
    }

    /// Beside others a launch that came after the device had been idle for longer than turning takes was turned to. What that took.
    fn turning_inside(&self, launched: Nanos, cost: Belief, gap: Nanos) -> Nanos {
        let state = &self.state;
        // It gives the device away with every wait: any of them may have been a turn. Else one was.
        let launches = match cost {
            Belief::Takes(cost) if state.turns.are_given_away() => launched.0 / cost.0.max(1),
            _ => 1,
        };
        let turn = state.turns.take();
        if state.is_beside_others() && gap >= turn {
            gap.min(turn.scaled(launches, 1))
        } else {
            Nanos::ZERO
        }
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
        let start = if self.is_seen(now) && state.turned_to.get() == Nanos::ZERO {
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
        state.turns.let_go(shared, now);
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
            state.turns.take().scaled(WORTH, 1)
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

    fn priced(&self, cost: Belief) -> Belief {
        if R::PAID_BY_TIME {
            cost
        } else {
            Belief::Takes(Nanos::millis(1))
        }
    }
}
