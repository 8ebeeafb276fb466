//! A device that serves one process at a time: what it takes to turn to this one, and how a process that would give its turn
//! away with every wait keeps it for a lease.
//!
//! Four processes that wait for each of their kernels of 10 µs keep a card busy for all of the time, of which the kernels take 7 %: with each wait
//! the card turns to another process, for 0.14 ms. So such a process holds the device for a lease of its own: others of its tenant that would do
//! the same begin theirs when it is done. A hold is a time, said again from look to look, and ends by itself soon after its process stops;
//! nothing that is promised rests on it, for turns are paid for whether they are taken or not.

use crate::word::Word;
use crate::{Nanos, Shared};

/// What turning takes is the third least of so many measurements, and no more than [`LONGEST`]: what others have left on the device is in some, and
/// nothing is in those before which nobody else had work. Of fewer than three nothing is believed.
const SEEN: usize = 8;
const THIRD: usize = 2;
const LONGEST: Nanos = Nanos::micros(500);
/// A device that turns faster than this serves processes at the same time.
const LEAST: Nanos = Nanos::micros(20);
/// A wait in each lease, as `waits` counts.
const ONCE: Nanos = Nanos(1024);
/// How far a mean of leases follows one of them: an eighth.
const FOLLOWS: u64 = 8;
/// By how much a hold is longer than what it is for.
const MARGIN: Nanos = Nanos::micros(200);
/// The longest hold, without a look in between.
const LONGEST_HOLD: Nanos = Nanos::millis(5);

/// What a process has seen of the device's turns.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Turns {
    count: Word,
    took: [Word; SEEN],
    usual: Word,
    /// In how many launches of a lease the device had been given away before them, lately, in 1024ths.
    waits: Word,
    /// Until when this process holds the device. Zero: it does not.
    held: Word,
}

impl Turns {
    /// The device turned to this process, which took so long.
    pub fn saw(&self, took: Nanos) {
        let count = self.count.get().0 as usize;
        self.took[count % SEEN].set(took);
        self.count.set(Nanos(count as u64 + 1));
        if count < THIRD {
            return;
        }
        let mut sorted = [Nanos(u64::MAX); SEEN];
        for (place, took) in sorted.iter_mut().zip(&self.took).take(count + 1) {
            *place = took.get();
        }
        sorted.sort_unstable();
        self.usual.set(sorted[THIRD].min(LONGEST));
    }

    /// Others have had no leases for a long time.
    pub fn forget(&self) {
        self.count.set(Nanos::ZERO);
        self.usual.set(Nanos::ZERO);
    }

    /// What turning to this process takes.
    pub fn take(&self) -> Nanos {
        self.usual.get()
    }

    /// The device serves one process at a time.
    pub fn are_taken(&self) -> bool {
        self.take() > LEAST
    }

    /// Before so many launches of a lease the device had nothing of this process.
    pub fn waited(&self, launches: u64) {
        let waits = self.waits.get();
        let more = Nanos(launches.min(1 << 20) * ONCE.0 / FOLLOWS);
        self.waits
            .set(waits.less(waits.scaled(1, FOLLOWS)).plus(more));
    }

    /// Beside others this process would give the device away within a lease.
    pub fn are_given_away(&self) -> bool {
        self.are_taken() && self.waits.get() > ONCE
    }

    /// Has the device for this process until then, and a little longer. Not where another holds it.
    pub fn hold(&self, shared: &Shared<'_>, now: Nanos, until: Nanos) -> bool {
        let until = until.min(now.plus(LONGEST_HOLD)).plus(MARGIN);
        let holds = shared.hold(now, until);
        if holds {
            self.held.set(until);
        }
        holds
    }

    pub fn is_held(&self) -> bool {
        self.held.get() != Nanos::ZERO
    }

    /// A process that holds the device says so again.
    pub fn hold_on(&self, shared: &Shared<'_>, now: Nanos, until: Nanos) {
        if self.is_held() {
            let until = until.min(now.plus(LONGEST_HOLD)).plus(MARGIN);
            shared.hold_on(until);
            self.held.set(until);
        }
    }

    pub fn let_go(&self, shared: &Shared<'_>, now: Nanos) {
        if self.is_held() {
            shared.let_go(self.held.get(), now);
            self.held.set(Nanos::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turning_takes_what_is_seen_beside_chance() {
        let turns = Turns::default();
        assert!(!turns.are_taken());
        turns.saw(Nanos::micros(700));
        turns.saw(Nanos::micros(800));
        assert!(!turns.are_taken());
        turns.saw(Nanos::micros(900));
        assert_eq!(turns.take(), LONGEST);
        for took in [140, 0, 4_000, 139, 141, 0, 900, 700] {
            turns.saw(Nanos::micros(took));
        }
        assert_eq!(turns.take(), Nanos::micros(139));
        turns.forget();
        assert!(!turns.are_taken());
        // A device that serves processes at the same time, and a thread without a core now and then.
        for took in [0, 0, 300, 0, 0, 2_000, 0, 0] {
            turns.saw(Nanos::micros(took));
        }
        assert!(!turns.are_taken());
    }

    #[test]
    fn whoever_waits_once_in_a_while_keeps_nothing() {
        let turns = Turns::default();
        (0..3).for_each(|_| turns.saw(Nanos::micros(140)));
        for _ in 0..20 {
            turns.waited(300);
        }
        assert!(turns.are_given_away());
        for lease in 0..200 {
            turns.waited(u64::from(lease % 2 == 0));
        }
        assert!(!turns.are_given_away());
    }
}
