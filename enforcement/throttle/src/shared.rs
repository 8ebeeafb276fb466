//! What a tenant's processes share of one device: a few words, written by whoever comes by.
//!
//! The first word is when the next lease may start. Whoever finds that time come takes a lease and moves it on by the time in
//! which the lease is the budget's share. A process killed anywhere leaves at most one lease paid for and not used, or used
//! and not corrected. The words are untrusted: a time that nobody can have meant is as good as none.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::coverage::{self, GRAINS};
use crate::{Nanos, Rules, Share};

/// Words per device.
pub const WORDS: usize = FIRST_GRAIN + GRAINS;
const NEXT: usize = 0;
const BUSY: usize = 1;
const LEASES: usize = 2;
const HELD: usize = 3;
const PART: usize = 4;
const ACCOUNTANT: usize = 5;
const ACCOUNTED: usize = 6;
const FIRST_GRAIN: usize = 8;

/// How far the next start may lie behind: what an idle tenant may make up for, and what a late wake-up does not lose.
pub const CREDIT: Nanos = Nanos::millis(40);
/// Nobody holds the device for longer without saying so again.
const MOST_HELD: Nanos = Nanos::millis(20);
/// What is charged of measured time, in 1024ths: all of it, and the most that it is scaled to.
pub const FULL: u64 = 1024;
const MOST_PART: u64 = 64 * FULL;
/// A process that has said nothing for so long compares no more.
const ABANDONED: Nanos = Nanos::seconds(3);
/// The longest that anything ever waits.
pub const MOST_DEBT: Nanos = Nanos::seconds(10);

/// What became of a lease.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// When the process had work on the device: from and to, twice.
    pub spans: [(Nanos, Nanos); 2],
    /// For how much of that, evenly.
    pub busy: Nanos,
    /// What is believed to have been done for other tenants in between.
    pub theirs: Nanos,
    /// It is known to be beside what other processes did then.
    pub exact: bool,
}

/// The shared words of one device. All zeros is a device that was never used.
#[derive(Clone, Copy)]
pub struct Shared<'a> {
    words: &'a [AtomicU64; WORDS],
}

impl<'a> Shared<'a> {
    pub const fn new(words: &'a [AtomicU64; WORDS]) -> Shared<'a> {
        Shared { words }
    }

    /// How long the tenant has had work on the device since the words were zeros, turns of other tenants in between included.
    pub fn busy(&self) -> Nanos {
        Nanos(self.words[BUSY].load(Ordering::Relaxed))
    }

    /// How many leases were taken. The count may wrap.
    pub fn leases(&self) -> u64 {
        self.words[LEASES].load(Ordering::Relaxed)
    }

    /// How many 1024ths of what is measured is charged: more than all where the device did more for the tenant than its marks tell, as long as somebody compares.
    pub fn part(&self, now: Nanos) -> u64 {
        match self.is_abandoned(now) {
            true => FULL,
            false => self.words[PART]
                .load(Ordering::Relaxed)
                .clamp(FULL, MOST_PART),
        }
    }

    /// Whether nobody compares any more.
    fn is_abandoned(&self, now: Nanos) -> bool {
        let last = Nanos(self.words[ACCOUNTED].load(Ordering::Relaxed));
        last > now || now.less(last) > ABANDONED
    }

    pub fn set_part(&self, part: u64) {
        self.words[PART].store(part, Ordering::Relaxed);
    }

    /// Whether it is this process (`me` is like no other's) that compares what the tenant is charged with what the device did: one of them does, as long as it goes
    /// on. Whoever takes its place begins with the next comparison.
    pub fn compares(&self, me: Nanos, now: Nanos) -> bool {
        let (who, when) = (&self.words[ACCOUNTANT], &self.words[ACCOUNTED]);
        let old = who.load(Ordering::Relaxed);
        let is_me = old == me.0;
        let takes = self.is_abandoned(now)
            && who
                .compare_exchange(old, me.0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if takes {
            self.set_part(FULL);
        }
        if is_me || takes {
            when.store(now.0, Ordering::Relaxed);
        }
        is_me
    }

    /// The device did so much more for the tenant than was measured.
    pub fn charge(&self, now: Nanos, share: Share, work: Nanos) {
        self.words[BUSY].fetch_add(work.0, Ordering::Relaxed);
        // Never refused.
        let _ = self.change(now, |next| Ok(next.plus(share.period(work))));
    }

    /// The device did not do so much of what was measured: as far as it is owed.
    pub fn forgive(&self, now: Nanos, share: Share, work: Nanos) {
        let less = |busy: u64| Some(busy.saturating_sub(work.0));
        let _ = self.words[BUSY].fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        // Never refused. What nobody owes any more was waited for.
        let owed = |next: Nanos| next.min(now).max(next.less(share.period(work)));
        let _ = self.change(now, |next| Ok(owed(next)));
    }

    /// When the next lease may start.
    pub fn next(&self, now: Nanos) -> Nanos {
        sane(self.words[NEXT].load(Ordering::Relaxed), now)
    }

    /// Until when a process of the tenant has the device to itself, unless it says so again.
    pub fn held(&self, now: Nanos) -> Nanos {
        let held = Nanos(self.words[HELD].load(Ordering::Relaxed));
        if held > now.plus(MOST_HELD) {
            Nanos::ZERO
        } else {
            held
        }
    }

    /// Has the device for one process until then, unless another has it.
    pub fn hold(&self, now: Nanos, until: Nanos) -> bool {
        let word = &self.words[HELD];
        let old = word.load(Ordering::Relaxed);
        let free = self.held(now) <= now;
        free && word
            .compare_exchange(old, until.0, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Whoever holds the device says so again.
    pub fn hold_on(&self, until: Nanos) {
        self.words[HELD].store(until.0, Ordering::Relaxed);
    }

    /// Whoever held the device until then is done before.
    pub fn let_go(&self, until: Nanos, now: Nanos) {
        let _ =
            self.words[HELD].compare_exchange(until.0, now.0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Pays for `work`, which starts now. Where it is too early: when it is not.
    pub fn pay<R: Rules>(&self, now: Nanos, share: Share, work: Nanos) -> Result<(), Nanos> {
        self.change(now, |next| {
            if next > now {
                return Err(next);
            }
            let start = if R::BOUNDED_CREDIT {
                next.max(now.less(CREDIT))
            } else {
                next
            };
            Ok(start.plus(share.period(work)))
        })?;
        Ok(())
    }

    /// A lease was taken.
    pub fn note_lease(&self) {
        self.words[LEASES].fetch_add(1, Ordering::Relaxed);
    }

    /// `work` was paid for that has not begun.
    pub fn give_back(&self, now: Nanos, share: Share, work: Nanos) {
        // Never refused.
        let _ = self.change(now, |next| Ok(next.less(share.period(work))));
    }

    /// `work` was paid for; in truth it was as `taken` says. Answers for how much the tenant was charged.
    pub fn settle<R: Rules>(&self, now: Nanos, share: Share, work: Nanos, taken: &Taken) -> Nanos {
        let grains = &self.words[FIRST_GRAIN..];
        let length = |(start, end): (Nanos, Nanos)| end.less(start).0;
        let first = taken.busy.scaled(
            length(taken.spans[0]),
            length(taken.spans[0]) + length(taken.spans[1]),
        );
        let parts = [first, taken.busy.less(first)];
        let fresh = taken
            .spans
            .iter()
            .zip(parts)
            .map(|((start, end), part)| coverage::enter(grains, *start, *end, part).0)
            .sum();
        let busy = if R::UNION && !taken.exact {
            Nanos(fresh)
        } else {
            taken.busy
        };
        self.words[BUSY].fetch_add(busy.plus(taken.theirs).0, Ordering::Relaxed);
        if R::SETTLED {
            let corrected =
                |next: Nanos| Ok(next.plus(share.period(busy)).less(share.period(work)));
            // Never refused.
            let _ = self.change(now, corrected);
        }
        busy
    }

    fn change(
        &self,
        now: Nanos,
        to: impl Fn(Nanos) -> Result<Nanos, Nanos>,
    ) -> Result<Nanos, Nanos> {
        let word = &self.words[NEXT];
        let mut old = word.load(Ordering::Relaxed);
        loop {
            let next = to(sane(old, now))?.min(now.plus(MOST_DEBT));
            match word.compare_exchange_weak(old, next.0, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(next),
                Err(seen) => old = seen,
            }
        }
    }
}

/// A start that lies further ahead than anybody waits was written by nobody: after a reboot, say.
fn sane(word: u64, now: Nanos) -> Nanos {
    // A little more than is ever written: clocks of two processors may differ.
    if Nanos(word) > now.plus(MOST_DEBT).plus(Nanos::millis(100)) {
        Nanos::ZERO
    } else {
        Nanos(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_for_a_process_is_nobodys_when_it_has_gone() {
        let words = [const { AtomicU64::new(0) }; WORDS];
        let shared = Shared::new(&words);
        let (me, found) = (Nanos(7), Nanos::seconds(100));
        shared.compares(me, found);
        assert!(shared.compares(me, found));
        shared.set_part(4 * FULL);
        assert_eq!(shared.part(found.plus(ABANDONED)), 4 * FULL);
        assert_eq!(shared.part(found.plus(ABANDONED).plus(Nanos(1))), FULL);
        assert!(!shared.compares(Nanos(8), found.plus(ABANDONED)));
        let later = found.plus(ABANDONED).plus(Nanos(1));
        shared.compares(Nanos(8), later);
        assert_eq!(shared.part(later), FULL);
    }
}
