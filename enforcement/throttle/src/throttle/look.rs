//! What a look at the clock tells of the open lease, beside other processes of the tenant most of all: idle time, and turns.

use core::sync::atomic::Ordering;

use crate::lease::{Lease, Slot, Stage};
use crate::{Belief, Nanos, Rules, Shared};

use super::{Launch, PORTION, PROBED, Throttle};

/// Whoever holds the device looks at the clock so often.
const LOOKS: Nanos = Nanos::micros(500);
/// It lets go where it is idle before each launch for longer than so many turns.
const IDLER: u64 = 8;

impl<R: Rules> Throttle<R> {
    /// Takes back what is handed out, and compares what was launched of it with the time gone by.
    pub(super) fn look(&self, lease: &Lease, now: Nanos, launch: &Launch<'_>) {
        let state = &self.state;
        let launched = state
            .portion
            .get()
            .less(Nanos(self.left.swap(0, Ordering::Relaxed)));
        state.portion.set(Nanos::ZERO);
        lease.used.add(launched);
        let drained = state
            .drained
            .get()
            .plus(self.corrected((launch.mean)(launched)));
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
    pub(super) fn turning_inside(&self, launched: Nanos, launch: &Launch<'_>, gap: Nanos) -> Nanos {
        let state = &self.state;
        let turn = state.turns.take();
        if !state.is_beside_others() || gap == Nanos::ZERO {
            return Nanos::ZERO;
        }
        // It gives the device away with every wait: any of them may have been a turn.
        let gives_away = state.turns.are_given_away();
        if !gives_away && (launch.is_idle)() == Some(false) {
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

    /// The device is held until the next look and half as long again, at the lease's pace so far. What is handed out until then.
    pub(super) fn hold_on(
        &self,
        shared: &Shared<'_>,
        now: Nanos,
        lease: &Lease,
        cost: Nanos,
    ) -> Nanos {
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
    pub(super) fn turning(&self, lease: &Lease) -> Nanos {
        if !lease.turned_to.is_set() {
            Nanos::ZERO
        } else if !lease.turning.is_set() {
            lease.toll.get()
        } else {
            lease.turning.get().less(Nanos(1))
        }
    }
}
