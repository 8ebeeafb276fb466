//! Long leases beside the device's own figure.
//!
//! From a lease's first mark to its last the device may have rested for what no hook knows: a wait in a graph, a semaphore of another API, a host function. Marks do
//! not tell that from work, and a tenant that is charged for it waits for seconds. The device tells it: it cannot have done more for the tenant than it did for all.
//! What long leases are charged is a *claim*. When the figures cover it, it is judged: what the tenant was charged beyond what the device did meanwhile is forgiven,
//! as far as it is still owed, and what is launched for a while after it is taken for work that may wait: it is charged for no more than is believed of it, and claims
//! for the part of them that proved true. Where the device did more after all, what was spared is charged.
//!
//! ```text
//!         a long lease is settled         an answer, or a debt that somebody waits for       figures cover it
//! (none) ───────────────────────▶ fresh ────────────────────────────────────────────▶ doubted ──────────────▶ judged
//! ```

use crate::shared::FULL;
use crate::word::Word;
use crate::{Nanos, Rules, Share, Shared};

use super::Throttle;

/// Leases that took longer are claims: shorter ones add up to no wait that anybody sees, and marks tell them well.
const CLAIMED: Nanos = Nanos::millis(10);
/// Whoever is to wait longer than this has the device asked as soon as its figures tell.
const DEBT: Nanos = Nanos::millis(60);
/// By then the figures cover what was charged: each is of 200 ms.
const COVERED: Nanos = Nanos::millis(260);
/// Where they tell nothing new yet, it is asked again after this.
const AGAIN: Nanos = Nanos::millis(50);
/// Charges and figures differ by this for no reason, and by this part of the time.
const SLACK: Nanos = Nanos::millis(4);
const ALIKE: u64 = 64;
/// A claim of which more than so many thirds are wrong was one of work that waited for what no hook knows: for so long what comes after it does, too, for all that is
/// known. Less may be leases beside one another, or beliefs that others make up for.
const WRONG: u64 = 2;
const REMEMBERED: Nanos = Nanos::seconds(20);
/// Of a claim at least so many 1024ths are charged.
const LEAST: u64 = 64;
/// Answers that are remembered: a claim that began before the oldest of them is not judged.
const READINGS: usize = 12;

/// An answer of the device's: when, what the tenant had been charged by then, what the device had done since this process began to ask, and how many leases the
/// tenant's other processes had taken.
#[derive(Debug, Default)]
#[repr(C)]
struct Reading {
    time: Word,
    charged: Word,
    did: Word,
    siblings: Word,
}

/// What long leases were charged, what of them was spared, and since when the device may have been at them.
#[derive(Debug, Default)]
#[repr(C)]
struct Claim {
    charged: Word,
    spared: Word,
    since: Word,
}

impl Claim {
    fn is_any(&self) -> bool {
        self.since.is_set()
    }

    fn all(&self) -> Nanos {
        self.charged.get().plus(self.spared.get())
    }

    fn clear(&self) {
        for word in [&self.charged, &self.spared, &self.since] {
            word.set(Nanos::ZERO);
        }
    }
}

/// All zeros has never asked.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Doubts {
    readings: [Reading; READINGS],
    count: Word,
    /// What the device had done by the last answer that was not for the sake of claims.
    did: Word,
    fresh: Claim,
    doubted: Claim,
    /// When, and at which charge of the tenant's, fresh claims became doubted ones.
    at: Word,
    charged: Word,
    /// When the device was asked for their sake.
    asked: Word,
    /// Until then the process is taken for one whose work waits for what no hook knows.
    waits_until: Word,
    /// How many 1024ths of its claims are not charged.
    spared: Word,
}

impl Doubts {
    /// The last answer before a time.
    fn before(&self, time: Nanos) -> Option<&Reading> {
        let known = self.readings.iter().filter(|reading| {
            let at = reading.time.get();
            at != Nanos::ZERO && at <= time
        });
        known.max_by_key(|reading| reading.time.get())
    }

    fn doubt(&self, shared: &Shared<'_>, now: Nanos) {
        let pairs = [
            (&self.doubted.charged, &self.fresh.charged),
            (&self.doubted.spared, &self.fresh.spared),
            (&self.doubted.since, &self.fresh.since),
        ];
        for (to, from) in pairs {
            to.set(from.get());
        }
        self.fresh.clear();
        self.at.set(now);
        self.charged.set(shared.busy());
    }
}

impl<R: Rules> Throttle<R> {
    /// Of what a lease took, what is not charged.
    pub(super) fn spared(&self, now: Nanos, busy: Nanos) -> Nanos {
        let spared = self.state.doubts.spared.get().0.min(FULL - LEAST);
        match busy >= CLAIMED && self.may_wait(now) {
            true => busy.scaled(spared, FULL),
            false => Nanos::ZERO,
        }
    }

    /// What a lease took from then to then was charged for so much, and so much of it spared.
    pub(super) fn claim(&self, (start, end): (Nanos, Nanos), charged: Nanos, spared: Nanos) {
        let fresh = &self.state.doubts.fresh;
        if charged.plus(spared) < CLAIMED || !R::DOUBTED {
            return;
        }
        fresh.spared.add(spared);
        fresh.charged.add(charged);
        let since = if fresh.is_any() {
            fresh.since.get().min(start)
        } else {
            start
        };
        fresh.since.set(since.max(Nanos(1)));
        // By the answers since then it was charged already what it had done.
        let Doubts { readings, at, .. } = &self.state.doubts;
        let answers = readings.iter().map(|known| (&known.time, &known.charged));
        let moments = answers.chain([(at, &self.state.doubts.charged)]);
        for (time, sum) in moments {
            let (time, whole) = (time.get(), end.less(start));
            if time > start {
                sum.add(charged.scaled(time.min(end).less(start).0, whole.0));
            }
        }
    }

    /// Whether what is launched now may wait for something else than the device, though no hook knows of it.
    pub(super) fn may_wait(&self, now: Nanos) -> bool {
        now < self.state.doubts.waits_until.get()
    }

    /// When the device is to be asked for the sake of claims: the tenant owes so much that somebody is about to wait.
    pub(super) fn doubts_due(&self, shared: &Shared<'_>, now: Nanos) -> Option<Nanos> {
        let doubts = &self.state.doubts;
        let owes = shared.next(now) > now.plus(DEBT) && R::DOUBTED;
        if owes && !doubts.doubted.is_any() && doubts.fresh.is_any() {
            doubts.doubt(shared, now);
        }
        let covered = doubts.at.get().plus(COVERED);
        let again = doubts.asked.get().plus(AGAIN);
        (owes && doubts.doubted.is_any()).then(|| covered.max(again))
    }

    /// The device is asked for their sake.
    pub(super) fn note_doubts_asked(&self, now: Nanos) {
        self.state.doubts.asked.set(now);
    }

    /// The device did so much since the last answer that was not for the sake of claims; whether this one is.
    pub(super) fn read(
        &self,
        shared: &Shared<'_>,
        share: Share,
        now: Nanos,
        (did, for_claims): (Nanos, bool),
    ) {
        let doubts = &self.state.doubts;
        let did = doubts.did.get().plus(did);
        if !for_claims {
            doubts.did.set(did);
        }
        if doubts.doubted.is_any() && now >= doubts.at.get().plus(COVERED) {
            self.judge(shared, share, now, did);
            doubts.doubted.clear();
        }
        if !doubts.doubted.is_any() && doubts.fresh.is_any() {
            doubts.doubt(shared, now);
        }
        let reading = &doubts.readings[doubts.count.get().0 as usize % READINGS];
        reading.time.set(now);
        reading.charged.set(shared.busy());
        reading.did.set(did);
        reading.siblings.set(self.siblings(shared));
        doubts.count.add(Nanos(1));
    }

    /// Whether the device has answered yet.
    pub(super) fn has_read(&self) -> bool {
        self.state.doubts.count.is_set()
    }

    /// The device tells nothing: neither of what was.
    pub(super) fn unread(&self) {
        let doubts = &self.state.doubts;
        for reading in &doubts.readings {
            reading.time.set(Nanos::ZERO);
        }
        doubts.doubted.clear();
    }

    fn judge(&self, shared: &Shared<'_>, share: Share, now: Nanos, did: Nanos) {
        let doubts = &self.state.doubts;
        let claim = &doubts.doubted;
        let Some(before) = doubts.before(claim.since.get()) else {
            return;
        };
        let did = did.less(before.did.get());
        // What long leases beside one another are charged twice is another matter.
        let elapsed = doubts.at.get().less(before.time.get());
        // When others of the tenant were charged, and for which time, nobody knows here.
        let is_only = before.siblings.get() == self.siblings(shared);
        let all = doubts.charged.get().less(before.charged.get());
        let charged = match is_only && !self.state.crowded.is_set() {
            true => all,
            false => claim.charged.get(),
        };
        let charged = charged.min(elapsed);
        let slack = SLACK.plus(now.less(before.time.get()).scaled(1, ALIKE));
        let beyond = charged.less(did.plus(slack)).min(claim.charged.get());
        if charged.less(did) > claim.charged.get().scaled(WRONG, 3) && beyond != Nanos::ZERO {
            shared.forgive(now, share, beyond);
            doubts.waits_until.set(now.plus(REMEMBERED));
            self.forget_comparisons();
            self.spare(claim.charged.get().less(beyond), claim.all());
        } else if claim.spared.is_set() {
            // What the device did for others of the tenant, and they were charged for, is no debt of this one's.
            let short = did
                .less(charged.max(all).plus(slack))
                .min(claim.spared.get());
            if short != Nanos::ZERO {
                shared.charge(now, share, short);
            }
            self.spare(claim.charged.get().plus(short), claim.all());
        }
    }

    /// So much of claims proved true.
    fn spare(&self, kept: Nanos, all: Nanos) {
        let kept = Nanos(FULL).scaled(kept.0, all.0).0.min(FULL);
        self.state.doubts.spared.set(Nanos(FULL - kept));
    }
}
