//! Leases that are on the device, or before it: what they are at, and what they took.

use crate::cost::Seen;
use crate::lease::{LEASES, Lease, Progress, Slot, Stage};
use crate::shared::{FULL, Taken};
use crate::{Belief, Costs, Nanos, Rules, Share, Shared};

use super::{LATE, LEAST, PORTION, SOON, Throttle};

/// Who is idle before each launch for this part of a turn waits for it.
const WAITS: u64 = 8;
/// What it takes to make a launch, where nothing comes in between.
const CALL: Nanos = Nanos::micros(4);
/// Of launches that differ some leases take less than is believed of them, for which others take more: so much is remembered.
const MOST_OWED: Nanos = Nanos::millis(50);
/// Work after which half of a comparison is forgotten.
const REMEMBERED: Nanos = Nanos::millis(200);
/// Work that has not begun so long after nothing of this process was before it waits for something else than the device; with others of its tenant about,
/// whose turn it may be, so long.
const HELD_UP: Nanos = Nanos::millis(5);
const HELD_UP_BESIDE: Nanos = Nanos::millis(20);
/// What the device may do for other tenants before it comes back (an H200: 2.4 ms for each).
const OTHERS_TURNS: Nanos = Nanos::millis(8);
/// A lease that is not done this long after it should be is charged so far, and the next one may be taken: work may wait for work
/// that is launched after it.
const PATIENCE: Nanos = Nanos::millis(250);
/// So long after it was set a mark is asked how far another is from it: a driver tells it in 32 bits, half a microsecond of 8 s.
const STANDS: Nanos = Nanos::seconds(5);

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
    /// As far as that is known.
    pub end: Option<End>,
}

/// The end of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub at: Nanos,
    /// For how long no lease before it was under way, as far as that is known.
    pub own: Nanos,
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

/// What a lease took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Took {
    span: Nanos,
    /// Of that the device was at work for it, and in turns of other tenants.
    busy: Nanos,
    theirs: Nanos,
    /// That is known to be beside what other processes of this tenant did then.
    exact: bool,
    /// When it was over, if that is known.
    end: Option<Nanos>,
}

impl Took {
    fn evenly(busy: Nanos) -> Took {
        Took {
            span: busy,
            busy,
            theirs: Nanos::ZERO,
            exact: false,
            end: None,
        }
    }
}

impl<R: Rules> Throttle<R> {
    /// The leases whose end is to be asked for, the oldest first: of each [`Throttle::finished`] or [`Throttle::unfinished`] is to be said, and
    /// [`Throttle::submit`] to be called then.
    pub fn in_flight(&self) -> impl Iterator<Item = Slot> {
        let state = &self.state;
        for found in [&state.running, &state.held_up, &state.overdue, &state.hold] {
            found.set(Nanos::ZERO);
        }
        let mut slots = [None; LEASES];
        let stages = [Stage::Closing, Stage::Closed];
        let flying = Slot::all().filter(|slot| stages.contains(&self.lease(*slot).stage()));
        for (place, slot) in slots.iter_mut().zip(flying) {
            *place = Some(slot);
        }
        slots.sort_unstable_by_key(|slot| slot.map(|slot| self.lease(slot).number.get()));
        slots.into_iter().flatten()
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
            // Its context has ended, say. Of what was never measured either the device may have been at it all the time.
            let busy = match (lease.unmeasured.is_set(), measured.last) {
                // It was opened behind something that still waits, and closed elsewhere.
                (_, Some(last)) if R::PAID_BY_TIME => {
                    costs.learn(lease.key(), last, measured.is_exact(), None);
                    used.max(last)
                }
                (true, _) => now.less(self.not_before(lease)),
                (false, _) => used,
            };
            self.settle_evenly(shared, share, now, slot, busy);
            return;
        };
        let key = lease.key();
        // As believed.
        let mean = costs.mean(key, used);
        let idle = if R::IDLE_IS_FREE {
            lease.idle.get()
        } else {
            Nanos::ZERO
        };
        let alone = lease.alone.is_set();
        let whole = span.less(lease.charged.get());
        let span = self.own(whole, mean);
        let scattered = measured.found_idle() && state.crowded.is_set() && !alone;
        let uneven = costs.is_uneven(key);
        let owed = match uneven {
            true => mean.plus(state.owed.get()),
            false => mean,
        };
        let busy = if alone {
            span
        } else if scattered {
            // Launches here and there between those of other processes: each was slowed by them, and that time is theirs to pay.
            span.min(costs.alone(key, mean))
        } else if lease.waits.is_set() {
            span.min(self.corrected(owed))
        } else if lease.dense.is_set() {
            span
        } else {
            span.min(self.corrected(owed).max(span.less(idle)))
        };
        if lease.waits.is_set()
            && !alone
            && span > busy.scaled(2, 1).plus(PORTION)
            && R::OWN_IS_LEARNED
        {
            self.probe();
        }
        if uneven && !alone {
            state.owed.set(owed.less(busy).min(MOST_OWED));
        }
        // Others may have had leases beside this one, and the device a turn of theirs in it.
        let beside = shared.leases().wrapping_sub(lease.leases.get().0)
            != state.taken.get().0.wrapping_sub(lease.taken.get().0);
        let disturbed = beside || self.has_others();
        // What another lease was over in is not all its own.
        let own = |span: Nanos| match measured.end.filter(|_| R::ENDS_ARE_SEEN) {
            Some(end) => span.min(end.own.max(span.scaled(1, LEASES as u64))),
            None => span,
        };
        // Nothing was believed of what was never measured.
        let is_known = !lease.unmeasured.is_set() && !lease.charged.is_set();
        let is_compared = !lease.waits.is_set() && is_known;
        if lease.dense.is_set() && !disturbed && is_compared {
            self.compare(mean, own(span));
        }
        let believed = costs.of(key).time();
        let is_long = |last: &Nanos| *last >= believed.scaled(3, 2) && believed != Nanos::ZERO;
        let is_learned = |last: &Nanos| R::OWN_IS_LEARNED || !self.has_others() || !is_long(last);
        // Behind the mark before it the device may have had its other streams' launches to do: it has its part of the lease, of which a pause is no part.
        let part = |last: Nanos| {
            if !lease.streams.is_set() || alone || !R::STREAMS_ARE_KNOWN {
                return last;
            }
            let part = own(whole).scaled(lease.last.get().0, used.0.max(1));
            match lease.idle.is_set() {
                true => last.min(part).min(believed),
                false => last.min(part),
            }
        };
        if let Some(last) = measured.last.map(own).map(part).filter(is_learned) {
            let last = if self.has_others() && is_long(&last) {
                // Turns of others are in it, or it is what the launch takes: half is, as of a lease.
                last.scaled(1, 2).max(believed)
            } else if disturbed && !scattered && believed != Nanos::ZERO {
                // Beside other leases it may have been slowed: that it takes longer now is believed little by little. And where the thread lost its core within the
                // call, that it took less is not believed at all: it would be forgotten too slowly.
                let least = match measured.is_exact() {
                    true => Nanos::ZERO,
                    false => believed,
                };
                last.clamp(least, believed.scaled(9, 8))
            } else {
                last
            };
            let is_seen = !beside && R::UNEVEN_ARE_KNOWN;
            let seen = is_seen.then(|| Seen {
                guessed: busy < span,
                alone: state.alone.is_set(),
            });
            costs.learn(key, last, measured.is_exact(), seen);
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
        let theirs = whole.less(span);
        let span = whole.plus(turning);
        let busy = self.counted(busy, measured.last, measured.found_idle());
        let busy = busy.plus(paid).min(span);
        let took = Took {
            span,
            busy,
            theirs,
            exact: scattered,
            end: measured.end.filter(|_| R::ENDS_ARE_SEEN).map(|end| end.at),
        };
        let end = self.settle(shared, share, now, slot, took);
        lease.over.set(end);
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
        let used = lease.used.get();
        let hold = |pause: Nanos| state.hold.set(now.plus(pause));
        let unmeasured = lease.unmeasured.is_set();
        if lease.stage() == Stage::Closing {
            if now > lease.closed.get().plus(PATIENCE) {
                // Whoever made the launch did not come back.
                self.settle_evenly(shared, share, now, slot, used);
            } else if unmeasured {
                hold(SOON);
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
        let may_begin = matches!(lease.progress(), Progress::Unknown | Progress::HeldUp);
        if may_begin && !state.running.is_set() {
            if begun() {
                lease.set_progress(Progress::Begun);
            } else {
                let beside = state.crowded.is_set() || self.has_others();
                let patience = match beside {
                    true => HELD_UP_BESIDE,
                    false => HELD_UP,
                };
                let since = lease.start.get().max(state.settled.get());
                let is_new = lease.progress() == Progress::Unknown && R::HELD_UP_IS_FREE;
                // Else it is behind that, as far as anybody can tell.
                let is_first = !state.overdue.is_set();
                if is_new && is_first && now > since.plus(patience) {
                    lease.set_progress(Progress::HeldUp);
                    shared.give_back(now, share, lease.paid.get());
                    lease.paid.set(Nanos::ZERO);
                }
            }
        }
        match lease.progress() {
            Progress::HeldUp => state.held_up.note(true),
            Progress::Unknown if unmeasured && !state.overdue.is_set() => hold(pause),
            Progress::Unknown => {}
            // What it takes from now on is paid for when it is done, unless there is no place for another.
            Progress::Overdue if R::OVERDUE_IS_PAID && self.free_slots().next().is_some() => {
                state.overdue.note(true);
            }
            Progress::Overdue => self.free(slot),
            Progress::Begun => {
                let expected = self.expected(lease);
                let late = self.is_late(lease, now);
                if lease.waits.is_set() {
                    state.running.note(state.running.is_set() || !late);
                } else {
                    if now > expected.max(lease.closed.get()).plus(PATIENCE) {
                        let so_far = now.less(self.not_before(lease));
                        let took = Took {
                            busy: so_far.less(lease.idle.get()),
                            ..Took::evenly(so_far)
                        };
                        self.pay(shared, share, now, slot, took);
                        lease.paid_off(now, so_far);
                        return;
                    }
                    lease.looked.set(now);
                    state.turns.hold_on(shared, now, expected);
                    state.running.note(true);
                    if late || unmeasured {
                        hold(pause);
                    }
                }
            }
        }
    }

    /// The device should long be done with a lease that is closed.
    fn is_late(&self, lease: &Lease, now: Nanos) -> bool {
        let theirs = match self.has_others() {
            true => OTHERS_TURNS,
            false => Nanos::ZERO,
        };
        let patience = LATE.max(lease.used.get()).plus(theirs);
        now > self.expected(lease).plus(patience)
    }

    /// Something else than the device holds it up, as far as anybody can tell.
    pub(super) fn is_held_up(&self, lease: &Lease, now: Nanos) -> bool {
        let waits = lease.waits.is_set() && self.is_late(lease, now);
        lease.is_closed()
            && match lease.progress() {
                Progress::HeldUp => true,
                Progress::Begun => waits,
                Progress::Unknown | Progress::Overdue => false,
            }
    }

    /// The device has begun with a lease no earlier: it had the last one that is settled to do.
    fn not_before(&self, lease: &Lease) -> Nanos {
        lease.start.get().max(self.state.ended.get())
    }

    /// For how long the device has been at a lease that nobody was charged for yet.
    pub(super) fn uncharged(&self, now: Nanos) -> Nanos {
        let all = Slot::all().map(|slot| self.lease(slot));
        let begun = all.filter(|lease| lease.is_closed() && lease.progress() == Progress::Begun);
        let so_far = begun.map(|lease| now.less(self.not_before(lease)).less(lease.charged.get()));
        so_far.max().unwrap_or(Nanos::ZERO)
    }

    /// When the device should be done with a lease that is closed.
    pub(super) fn expected(&self, lease: &Lease) -> Nanos {
        self.not_before(lease)
            .plus(self.corrected(lease.used.get()))
    }

    /// When a lease was over that took `span`, by its distance from one that is settled, as long as the marks of that one stand: leases of several streams overlap, and
    /// what waits begins long after it was launched.
    pub(crate) fn end_by_marks(
        &self,
        now: Nanos,
        (slot, span): (Slot, Nanos),
        apart: impl Fn(Slot, Slot) -> Option<Nanos>,
    ) -> Option<End> {
        let lease = self.lease(slot);
        let stands = |other: &Slot| {
            let other = self.lease(*other);
            let over = other.over.get();
            other.stage() == Stage::Free
                && over != Nanos::ZERO
                && now.less(over) < STANDS
                && other.closed_in.get() == lease.closed_in.get()
        };
        let last = Slot::all()
            .filter(stands)
            .max_by_key(|other| self.lease(*other).over.get())?;
        let over = self.lease(last).over.get();
        match apart(last, slot) {
            Some(own) => (own < span).then(|| End {
                at: over.plus(own),
                own,
            }),
            None => Some(End {
                at: over.less(apart(slot, last)?),
                own: span,
            }),
        }
    }

    /// The device was busy with the lease for `busy`, as far as anybody can tell.
    pub(super) fn settle_evenly(
        &self,
        shared: &Shared<'_>,
        share: Share,
        now: Nanos,
        slot: Slot,
        busy: Nanos,
    ) {
        let _ = self.settle(shared, share, now, slot, Took::evenly(busy));
    }

    pub(super) fn settle(
        &self,
        shared: &Shared<'_>,
        share: Share,
        now: Nanos,
        slot: Slot,
        took: Took,
    ) -> Nanos {
        let end = self.pay(shared, share, now, slot, took);
        let state = &self.state;
        state.turns.let_go(shared, now);
        state.ended.set(end.max(state.ended.get().min(now)));
        state.settled.set(now);
        self.lease(slot).over.set(Nanos::ZERO);
        self.free(slot);
        end
    }

    fn free(&self, slot: Slot) {
        if self.current() == Some(slot) {
            self.state.current.set(Nanos::ZERO);
        }
        self.lease(slot).set_stage(Stage::Free);
    }

    /// The tenant pays for what a lease took, as far as nobody has. Answers when the device was done with it.
    fn pay(&self, shared: &Shared<'_>, share: Share, now: Nanos, slot: Slot, took: Took) -> Nanos {
        let Took { span, busy, .. } = took;
        let (state, lease) = (&self.state, self.lease(slot));
        let longest = &state.with_device.longest;
        longest.set(longest.get().max(span));
        // It began when the one before it had ended, and has ended since the device was last found at it.
        let begun = self.not_before(lease);
        let seen = match lease.turned_to.is_set() {
            true => Nanos::ZERO,
            false => lease.looked.get(),
        };
        let end = took.end.unwrap_or_else(|| begun.plus(span));
        let end = end.max(seen).min(now);
        let start = end.less(span);
        let spared = self.spared(now, busy);
        let busy = busy.less(spared);
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
            theirs: took.theirs,
            exact: took.exact,
        };
        let charged = shared.settle::<R>(now, share, lease.paid.get(), &taken);
        self.claim((start, end), charged, spared);
        let more = busy.scaled(shared.part(now) - FULL, FULL);
        if more != Nanos::ZERO {
            shared.charge(now, share, more);
        }
        end
    }

    /// A lease without idle time shows by how much beliefs fall short, rare long launches included.
    pub(super) fn compare(&self, used: Nanos, span: Nanos) {
        let state = &self.state;
        let (believed, measured) = (
            state.believed.get().plus(used),
            state.measured.get().plus(span),
        );
        let halves = if believed > REMEMBERED { 2 } else { 1 };
        state.believed.set(believed.scaled(1, halves));
        state.measured.set(measured.scaled(1, halves));
    }

    /// What was measured was no work.
    pub(super) fn forget_comparisons(&self) {
        let state = &self.state;
        for word in [&state.believed, &state.measured, &state.owed] {
            word.set(Nanos::ZERO);
        }
    }

    pub(super) fn corrected(&self, used: Nanos) -> Nanos {
        let (believed, measured) = (self.state.believed.get(), self.state.measured.get());
        // Beside other tenants what exceeds belief is theirs.
        if measured > believed && !self.has_others() {
            used.scaled(measured.0, believed.0)
        } else {
            used
        }
    }
}
