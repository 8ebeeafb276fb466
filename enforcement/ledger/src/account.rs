//! One device's account: who may take more. Announce, fence, sum.
//!
//! A request is announced in its slot's line, then fenced, then the lines up to the high-water mark are summed and the budget is
//! read. Of any set of requests granted at the same time, the last to announce saw all others, so their sum never passes the
//! budget: no global counter, no lock, and a process killed at any instruction leaves nothing but its own line. A grant moves from
//! `pending` to `word` in this order, and readers look in that order, so that it is seen at least once.
//!
//! A slot may hold granted bytes that it does not use, its lease; others take them away when they need them. A budget is lowered by
//! storing it, fencing and summing: either the owner sees the announcement, or the announcer the new budget. What is charged unasked beyond the budget begins
//! an epoch as a lowered budget does: until a request was verified again nobody takes from a lease, and what is given back is nobody's lease.
//!
//! This file is compiled twice: over the processor's atomics, and over loom's (tests/loom.rs), where [`Protocol`] seeds the bugs.

use seeds::{Seed, planted};

use crate::objects::Objects;
use crate::sync::{AtomicU64, Ordering, fence};
use crate::word::{Budget, LEASE_MOST, LEASE_UNIT, Word};
use core::marker::PhantomData;

/// Requests up to this size refill the lease; larger ones are rare enough to be summed each time.
const LEASE_ASK: u64 = LEASE_MOST / 4;

/// A slot's line on one device. One cache line, so that neighbours do not slow each other.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Line {
    /// A [`Word`]: what was granted.
    pub word: AtomicU64,
    /// What is announced and not decided yet.
    pub pending: AtomicU64,
    /// How often something was given back: a word that is what it was says nothing of what was taken and given back meanwhile.
    pub releases: AtomicU64,
    /// Bytes by which the driver's figure for the slot's process was seen beyond all that the process is charged. Written by whichever
    /// process of the tenant looked last: the process itself may never ask for anything again.
    pub beyond: AtomicU64,
    /// Bytes of what the slot is charged that no row of the driver's ever shows: a part of each VkInstance and VkDevice.
    pub unlisted: AtomicU64,
    /// Not 0: at the last look the driver's rows of this device had one of the slot's process.
    pub listed: AtomicU64,
}

/// The order of the steps. Only models change it, to show that they would notice.
pub trait Protocol {
    const FENCE: bool = true;
    const HIGH_WATER_AFTER_FENCE: bool = true;
    const BUDGET_AFTER_FENCE: bool = true;
}

/// The order as it is.
pub struct Sound;

impl Protocol for Sound {}

/// The lines of one device, its budget, and the mark below which every slot in use lies.
pub struct Account<'a, P: Protocol = Sound> {
    lines: &'a [Line],
    high: &'a AtomicU64,
    budget: &'a AtomicU64,
    /// Charged beside the lines, on a device.
    beside: Option<(&'a Objects, usize)>,
    protocol: PhantomData<P>,
}

/// What a walk over the lines found. Not one instant's picture: see [`Survey::mark`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    pub used: u64,
    pub leased: u64,
    pub pending: u64,
    /// Differs when any slot's use does: two equal marks in a row make `used` a figure that held at an instant in between.
    pub mark: u64,
}

impl Survey {
    /// All that a request must fit beside.
    pub fn total(&self) -> u64 {
        self.used
            .saturating_add(self.leased)
            .saturating_add(self.pending)
    }
}

/// What became of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    Granted,
    /// What is in use leaves no room: nothing was announced.
    Hopeless {
        seen: Survey,
        limit: u64,
    },
    /// It fits what is in use, but not beside the requests in flight.
    Crowded {
        seen: Survey,
        limit: u64,
    },
}

impl<'a, P: Protocol> Account<'a, P> {
    pub fn new(lines: &'a [Line], high: &'a AtomicU64, budget: &'a AtomicU64) -> Self {
        Account {
            lines,
            high,
            budget,
            beside: None,
            protocol: PhantomData,
        }
    }

    /// With what is charged to no slot.
    pub fn beside(self, objects: &'a Objects, device: usize) -> Self {
        Account {
            beside: Some((objects, device)),
            ..self
        }
    }

    /// Read after the lines: an object is charged before the word that it comes from is relieved.
    fn charged_beside(&self) -> u64 {
        self.beside
            .map_or(0, |(objects, device)| objects.charged(device))
    }

    pub fn budget(&self) -> Budget {
        // Of a new epoch what began it is seen too.
        let now = Budget(self.budget.load(Ordering::Acquire));
        if planted(Seed::P8) {
            return self.first_seen(now);
        }
        now
    }

    /// What this process read the first time.
    #[cold]
    fn first_seen(&self, now: Budget) -> Budget {
        static SEEN: std::sync::Mutex<Vec<(usize, u64)>> = std::sync::Mutex::new(Vec::new());
        let place = core::ptr::from_ref(self.budget) as usize;
        let mut seen = SEEN
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, first)) = seen.iter().find(|(at, _)| *at == place) {
            return Budget(*first);
        }
        seen.push((place, now.0));
        now
    }

    /// The common case: one compare-and-swap on the own word, nothing else.
    #[inline]
    pub fn take(&self, me: usize, bytes: u64) -> bool {
        let budget = self.budget();
        self.update(me, |word| word.take(bytes, budget))
    }

    /// Revokes the own lease; none is kept before the next request was verified.
    pub fn unverify(&self, me: usize) {
        let budget = self.budget();
        self.update(me, |word| Some(word.unverified(budget)));
    }

    /// Gives back bytes in use, to the lease or to everyone.
    #[inline]
    pub fn release(&self, me: usize, bytes: u64) {
        let budget = self.budget();
        self.update(me, |word| Some(word.give_back(bytes, budget)));
    }

    /// Charges without asking whether it fits. False where the word cannot name the sum.
    pub fn overdraw(&self, me: usize, bytes: u64) -> bool {
        let charged = self.update(me, |word| word.overdrawn(bytes));
        self.void_leases_beyond_budget();
        charged
    }

    /// After a charge that nobody was asked for. Beyond the budget what others have leased would be taken all the same, and what is given back be kept as a
    /// lease and taken again: as much each time as is charged unasked, without an end (attack 28).
    fn void_leases_beyond_budget(&self) {
        fence(Ordering::SeqCst);
        let high = self.high();
        let fits = |limit| self.total_below(high) <= limit;
        if self.budget().limit().is_none_or(fits) {
            return;
        }
        update_raw(self.budget, |old| Some(Budget(old).exceeded().0));
        for slot in 0..high {
            self.unverify(slot);
        }
    }

    /// One attempt at what the lease does not cover.
    pub fn attempt(&self, me: usize, bytes: u64) -> Attempt {
        let seen = self.survey();
        if planted(Seed::P1) {
            return self.add_if_it_fit(me, bytes, seen);
        }
        let mut lease = 0;
        if let Some(limit) = self.budget().limit() {
            if seen.used.saturating_add(bytes) > limit {
                return Attempt::Hopeless { seen, limit };
            }
            lease = refill(
                bytes,
                limit.saturating_sub(seen.total().saturating_add(bytes)),
            );
        }
        self.contend(me, bytes, lease)
    }

    /// A look, and then a charge: what others take in between is not seen.
    #[cold]
    fn add_if_it_fit(&self, me: usize, bytes: u64, seen: Survey) -> Attempt {
        std::thread::yield_now();
        match self.budget().limit() {
            Some(limit) if seen.used.saturating_add(bytes) > limit => {
                Attempt::Hopeless { seen, limit }
            }
            _ if self.overdraw(me, bytes) => Attempt::Granted,
            _ => Attempt::Hopeless { seen, limit: 0 },
        }
    }

    /// Announces, fences, sums, and takes or retreats.
    pub fn contend(&self, me: usize, bytes: u64, lease: u64) -> Attempt {
        let Some(line) = self.lines.get(me) else {
            return Attempt::Hopeless {
                seen: Survey::default(),
                limit: 0,
            };
        };
        let want = bytes.saturating_add(lease);
        let (early_budget, early_high) = (self.early_budget(), self.early_high());
        line.pending.fetch_add(want, Ordering::Relaxed);
        if P::FENCE {
            fence(Ordering::SeqCst);
        }
        let high = early_high.unwrap_or_else(|| self.high());
        let budget = early_budget.unwrap_or_else(|| self.budget());
        let Some(limit) = budget.limit() else {
            return self.settle(line, want, bytes, 0, budget);
        };
        let mut total = self.total_below(high);
        let others = total.saturating_sub(lease);
        if others > limit && others.saturating_sub(self.survey_below(high).leased) <= limit {
            // Whoever announces meanwhile sees this request: what is stolen is not granted twice.
            self.revoke(me, high, others - limit);
            total = self.total_below(high);
        }
        if total <= limit {
            self.settle(line, want, bytes, lease, budget)
        } else if total.saturating_sub(lease) <= limit {
            self.settle(line, want, bytes, 0, budget)
        } else {
            line.pending.fetch_sub(want, Ordering::Release);
            Attempt::Crowded {
                seen: self.survey_below(high),
                limit,
            }
        }
    }

    /// All that a request must fit beside, its own announcement included.
    fn total_below(&self, high: usize) -> u64 {
        let lines = self.lines.iter().take(high).fold(0_u64, |total, line| {
            let pending = line.pending.load(Ordering::Acquire);
            let charged = Word(line.word.load(Ordering::Acquire)).charged();
            let beyond = line.beyond.load(Ordering::Acquire);
            total
                .saturating_add(pending)
                .saturating_add(charged)
                .saturating_add(beyond)
        });
        lines.saturating_add(self.charged_beside())
    }

    /// The grant enters the word before the announcement leaves.
    fn settle(&self, line: &Line, want: u64, bytes: u64, lease: u64, budget: Budget) -> Attempt {
        let charged = update(&line.word, |word| word.charge(bytes, lease, budget));
        line.pending.fetch_sub(want, Ordering::Release);
        if charged {
            Attempt::Granted
        } else {
            Attempt::Hopeless {
                seen: self.survey(),
                limit: crate::word::MOST,
            }
        }
    }

    /// Walks the lines of every slot in use.
    pub fn survey(&self) -> Survey {
        self.survey_below(self.high())
    }

    fn survey_below(&self, high: usize) -> Survey {
        let mut seen = Survey::default();
        for (slot, line) in self.lines.iter().take(high).enumerate() {
            let pending = line.pending.load(Ordering::Acquire);
            let word = Word(line.word.load(Ordering::Acquire));
            let used = word
                .used()
                .saturating_add(line.beyond.load(Ordering::Acquire));
            seen.pending = seen.pending.saturating_add(pending);
            seen.leased = seen.leased.saturating_add(word.leased());
            seen.used = seen.used.saturating_add(used);
            // Each slot's part is mixed by itself, so that a walk over a thousand does not wait for a chain of products.
            let mixed = (used ^ (slot as u64).rotate_right(11)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            seen.mark = seen.mark.wrapping_add(mixed ^ (mixed >> 29));
        }
        let beside = self.charged_beside();
        seen.used = seen.used.saturating_add(beside);
        seen.mark = seen.mark.wrapping_add(beside);
        seen
    }

    /// Revokes leases, the own one first, until `enough` bytes are free.
    fn revoke(&self, me: usize, high: usize, enough: u64) {
        let mut freed = 0_u64;
        for slot in core::iter::once(me).chain((0..high).filter(|slot| *slot != me)) {
            if freed >= enough {
                return;
            }
            let mut lease = 0;
            self.update(slot, |word| {
                lease = word.leased();
                (lease > 0).then(|| word.without_lease())
            });
            freed = freed.saturating_add(lease);
        }
    }

    /// Changes the budget for everyone, at once. Answers what was in use or in flight under the new one.
    pub fn set_budget(&self, limit: Option<u64>) -> u64 {
        update_raw(self.budget, |old| Some(Budget(old).changed_to(limit).0));
        fence(Ordering::SeqCst);
        let high = self.high();
        let seen = self.survey_below(high);
        if limit.is_some_and(|limit| seen.total() > limit) {
            self.revoke(0, high, u64::MAX);
        }
        seen.used.saturating_add(seen.pending)
    }

    /// Makes the slot visible to every sum that comes after. Before its first announcement.
    pub fn join(high: &AtomicU64, slot: usize) {
        high.fetch_max(slot as u64 + 1, Ordering::SeqCst);
    }

    /// The line's bytes in use, its lease, and whether anything is in it at all.
    pub fn word(&self, slot: usize) -> Word {
        self.lines.get(slot).map_or(Word::default(), |line| {
            Word(line.word.load(Ordering::Acquire))
        })
    }

    /// Bytes that the driver was seen to hold for the slot's process beyond all that it is charged.
    pub fn beyond(&self, slot: usize) -> u64 {
        self.lines
            .get(slot)
            .map_or(0, |line| line.beyond.load(Ordering::Acquire))
    }

    /// By any process of the tenant, after a look at the driver's figures.
    pub fn set_beyond(&self, slot: usize, bytes: u64) {
        if let Some(line) = self.lines.get(slot)
            && line.beyond.load(Ordering::Relaxed) != bytes
        {
            let before = line.beyond.swap(bytes, Ordering::AcqRel);
            if before < bytes {
                self.void_leases_beyond_budget();
            }
        }
    }

    /// Bytes of what the slot is charged that the driver shows in no row.
    pub fn unlisted(&self, slot: usize) -> u64 {
        self.lines
            .get(slot)
            .map_or(0, |line| line.unlisted.load(Ordering::Acquire))
    }

    /// So much more of it, and so much less. By the slot's owner alone.
    pub fn unlist(&self, slot: usize, more: u64, less: u64) {
        if let Some(line) = self.lines.get(slot) {
            let changed = |held: u64| Some(held.saturating_add(more).saturating_sub(less));
            let (order, failed) = (Ordering::AcqRel, Ordering::Acquire);
            let _ = line.unlisted.fetch_update(order, failed, changed);
        }
    }

    /// All that the slot's owner holds: what it is charged, its lease not included, and what was seen beyond that.
    pub fn held(&self, slot: usize) -> u64 {
        self.word(slot).used().saturating_add(self.beyond(slot))
    }

    pub fn releases(&self, slot: usize) -> u64 {
        self.lines
            .get(slot)
            .map_or(0, |line| line.releases.load(Ordering::Acquire))
    }

    /// Before the word is relieved, so that whoever reads it sees this too.
    pub fn count_release(&self, slot: usize) {
        if let Some(line) = self.lines.get(slot) {
            line.releases.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the slot has nothing charged and nothing announced.
    pub fn is_empty(&self, slot: usize) -> bool {
        self.lines.get(slot).is_none_or(|line| {
            line.pending.load(Ordering::Acquire) == 0
                && Word(line.word.load(Ordering::Acquire)).charged() == 0
                && line.beyond.load(Ordering::Acquire) == 0
        })
    }

    /// Drops what a dead owner announced or leased: the driver never heard of it. Only by who may write there: see `reap`.
    pub fn bury(&self, slot: usize) {
        if let Some(line) = self.lines.get(slot) {
            line.pending.store(0, Ordering::Release);
            update(&line.word, |word| Some(word.without_lease()));
        }
    }

    /// Whether the slot's process had a row of this device when it looked last.
    pub fn is_listed(&self, slot: usize) -> bool {
        let line = self.lines.get(slot);
        line.is_some_and(|line| line.listed.load(Ordering::Acquire) != 0)
    }

    pub fn note_listed(&self, slot: usize, is_listed: bool) {
        if let Some(line) = self.lines.get(slot)
            && (line.listed.load(Ordering::Relaxed) != 0) != is_listed
        {
            line.listed.store(u64::from(is_listed), Ordering::Release);
        }
    }

    /// Leaves a dead owner what no row showed. Only by who may write there, again and again: see `reap`.
    pub fn clear_listed(&self, slot: usize) {
        if let Some(line) = self.lines.get(slot) {
            let unlisted = line.unlisted.load(Ordering::Acquire);
            line.beyond.store(0, Ordering::Release);
            update(&line.word, |word| Some(word.at_most(unlisted)));
            line.listed.store(0, Ordering::Release);
        }
    }

    /// Empties a dead owner's line. Only by who may write there: see `reap`.
    pub fn clear(&self, slot: usize) {
        if let Some(line) = self.lines.get(slot) {
            line.pending.store(0, Ordering::Release);
            line.beyond.store(0, Ordering::Release);
            line.unlisted.store(0, Ordering::Release);
            line.listed.store(0, Ordering::Release);
            line.word.store(0, Ordering::Release);
        }
    }

    fn high(&self) -> usize {
        usize::try_from(self.high.load(Ordering::Acquire))
            .unwrap_or(usize::MAX)
            .min(self.lines.len())
    }

    fn early_high(&self) -> Option<usize> {
        (!P::HIGH_WATER_AFTER_FENCE).then(|| self.high())
    }

    fn early_budget(&self) -> Option<Budget> {
        (!P::BUDGET_AFTER_FENCE).then(|| self.budget())
    }

    #[inline]
    fn update(&self, slot: usize, change: impl FnMut(Word) -> Option<Word>) -> bool {
        self.lines
            .get(slot)
            .is_some_and(|line| update(&line.word, change))
    }
}

/// How much to put by beside a request: enough for some more of them, never more than an eighth of what is free.
fn refill(bytes: u64, free: u64) -> u64 {
    if bytes > LEASE_ASK {
        return 0;
    }
    let lease = bytes.saturating_mul(16).min(LEASE_MOST).min(free / 8);
    lease - lease % LEASE_UNIT
}

#[inline]
fn update(word: &AtomicU64, mut change: impl FnMut(Word) -> Option<Word>) -> bool {
    update_raw(word, |old| change(Word(old)).map(|next| next.0))
}

#[inline]
fn update_raw(word: &AtomicU64, mut change: impl FnMut(u64) -> Option<u64>) -> bool {
    let mut old = word.load(Ordering::Relaxed);
    loop {
        let Some(next) = change(old) else {
            return false;
        };
        match word.compare_exchange_weak(old, next, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(seen) => old = seen,
        }
    }
}
