//! What the device's own figure says of what was charged.
//!
//! Marks around short launches measure more than the device counts as busy: a mark is written, the next launch is fetched, and how much of that is work only the
//! device says (H200, 580.159.04: of 500 kernels of 2 us that come one by one, 55 % of the time by marks and 28 % by NVML). So now and then a process asks, at
//! a launch, how busy the device was, whoever's work that was: its tenant cannot have had more. Where the tenant was charged for more, leases of short launches are
//! charged for less from then on, until the figure is reached; where it was charged for less, for more at once. Where nobody else has the device, the tenant pays all that
//! the device says it did, whatever its marks tell: kernels of which beliefs were wrong, work that no hook sees, what it takes to turn between its processes.

use crate::shared::FULL;
use crate::word::Word;
use crate::{Nanos, Rules, Share, Shared};

use super::Throttle;

/// How busy the device was in all figures since those that were told last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The driver's time of the last of them, in nanoseconds.
    pub last: u64,
    pub figures: u64,
    /// The sum of them, in percent.
    pub percent: u64,
    /// No processes have the device but the tenant's, as far as the driver tells.
    pub alone: bool,
}

impl Told {
    /// Of NVML's samples, each with its time in microseconds and its percent, those after `since`, in nanoseconds.
    pub fn of(since: u64, samples: impl Iterator<Item = (u64, u32)>) -> Told {
        let none = Told {
            last: since,
            ..Told::default()
        };
        let timed = samples.map(|(time, percent)| (time.saturating_mul(MICROSECOND), percent));
        let fresh = timed.filter(|(time, _)| *time > since);
        fresh.fold(none, |told, (time, percent)| Told {
            last: told.last.max(time),
            figures: told.figures + 1,
            percent: told.percent + u64::from(percent).min(100),
            ..told
        })
    }

    /// For how much of such a time the device was busy.
    fn busy(&self, time: Nanos) -> Nanos {
        time.scaled(self.percent, self.figures.saturating_mul(100))
    }

    /// A time of [`Told::last`] as NVML tells it.
    pub const fn microseconds(nanoseconds: u64) -> u64 {
        nanoseconds / MICROSECOND
    }
}

/// Of NVML's clock, in nanoseconds.
const MICROSECOND: u64 = 1_000;
/// The device is asked so often; each of its figures covers 200 ms.
const ASKED: Nanos = Nanos::millis(1_000);
/// Where a question takes long (NVML may have to be begun for it), it is asked so many times less often.
const RARELY: u64 = 200;
/// Longer than this nothing was launched, or nobody was told: figures and charges are of different times.
const COMPARABLE: Nanos = Nanos::seconds(5);
/// What is charged at least, in 1024ths: of leases whose launches come to an idle device, and of others, in which only the rests between launches are in doubt.
const LEAST_ALONE: u64 = 256;
const LEAST_AHEAD: u64 = 896;
/// Charges and figures differ by this part of the time for no reason.
const ALIKE: u64 = 64;
/// Where the device did more for all than the tenant was charged by this part of the time, it did it for somebody else.
const BESIDE: u64 = 8;
/// So long they are taken to be there, and it is doubted until the device's next answer.
const TRUSTED: Nanos = Nanos::seconds(20);
const DOUBTED: Nanos = Nanos::millis(500);
/// Marks measure what takes longer well enough.
const SHORT: Nanos = Nanos::micros(25);
/// What came to an idle device may be a graph in which it rests: for a host node, or a copy (attack 47). Longer ones are judged by themselves (`doubt.rs`).
const LONG: Nanos = Nanos::millis(10);

/// Whether other tenants have the device, too. While they do, this one is charged for what its launches are believed to take, and what it would have been charged
/// says nothing of the others any more: now and then it is charged for all again, until the next answer. That the device did less than that says that they have gone.
///
/// ```text
///           the device did more        again
/// Nowhere ────────────────────▶ Perhaps ───▶ There ──▶ Nowhere, where it did less
///    ▲ ▲                           │          │ ▲
///    │ └───────────────────────────┘    after │ │ more
///    │          no more               a while ▼ │
///    └──────────────────────────────────── Doubted
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    Nowhere,
    Perhaps,
    There,
    Doubted,
}

impl Others {
    const ALL: [Others; 4] = [
        Others::Nowhere,
        Others::Perhaps,
        Others::There,
        Others::Doubted,
    ];

    fn word(self) -> Nanos {
        Nanos(self as u64)
    }

    fn of(word: Nanos) -> Others {
        let known = Others::ALL.into_iter().find(|others| others.word() == word);
        known.unwrap_or(Others::Nowhere)
    }
}

/// What the device did for the tenant, as it says, what the tenant was charged, and in which time; the longest of this process's leases, of which an answer keeps three quarters where the tenant has no other process at work, and one that changes something half.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Compared {
    did: Word,
    paid: Word,
    time: Word,
    pub longest: Word,
}

impl<R: Rules> Throttle<R> {
    /// Whether the device is to be asked now: the figures' time of the last question, if so. [`Throttle::hear`] is to be called with the answer.
    pub fn is_to_ask(&self, shared: &Shared<'_>, now: Nanos) -> Option<u64> {
        let state = &self.state;
        if !R::TOLD {
            return None;
        }
        if now >= state.asks.get() {
            state.asks.set(now.plus(ASKED));
        } else if self.doubts_due(shared, now).is_some_and(|due| now >= due) {
            self.note_doubts_asked(now);
        } else {
            return None;
        }
        Some(state.told.get().0)
    }

    /// The device's answer to a question that was asked at `asked`; `None` where it tells nothing: then all is charged.
    pub fn hear(
        &self,
        shared: &Shared<'_>,
        share: Share,
        (asked, now): (Nanos, Nanos),
        told: Option<Told>,
    ) {
        let state = &self.state;
        let since = state.compared.get();
        if since != Nanos::ZERO && asked < since.plus(ASKED) {
            self.hear_of_claims(shared, share, asked, told);
            return;
        }
        let pause = now.less(asked).scaled(RARELY, 1);
        state.asks.set(now.plus(pause.max(ASKED)));
        if !self.has_read() {
            if let Some(told) = told {
                state.told.set(Nanos(told.last));
                self.read(shared, share, asked, (Nanos::ZERO, false));
            }
            return;
        }
        let Some(told) = told else {
            state.spared.set(Nanos::ZERO);
            self.unread();
            return;
        };
        state.alone.note(told.alone);
        let before = state.charged.get();
        if told.figures == 0 && since != Nanos::ZERO {
            return;
        }
        let span = now.less(since);
        let busy = told.busy(span);
        let covered = Nanos(told.last).less(state.told.get());
        self.read(shared, share, asked, (told.busy(covered), false));
        let charged = shared.busy();
        state.told.set(Nanos(told.last));
        state.compared.set(now);
        state.charged.set(charged);
        let charged = charged.less(before);
        if state.name.get() == Nanos::ZERO {
            let place = core::ptr::from_ref(self).addr() as u64;
            state.name.set(Nanos(now.0.rotate_left(24) ^ place | 1));
        }
        let compares = shared.compares(state.name.get(), now);
        // Of little work neither says much.
        let counts = if told.alone {
            charged.max(busy)
        } else {
            charged
        };
        if span > COMPARABLE || counts < span.scaled(1, 50) {
            return;
        }
        if compares {
            self.compare_with_device(shared, now, told.alone, (busy, charged, span));
        }
        let doubt = span.scaled(1, BESIDE);
        // What the device does to turn from one of the tenant's processes to another is in none of their marks.
        let siblings = self.siblings(shared);
        if told.alone {
            state.others.set(Others::Nowhere.word());
        } else if state.siblings.get() == siblings {
            self.note_others(now, busy > charged.plus(doubt), charged > busy.plus(doubt));
        } else {
            state.siblings.set(siblings);
            state.others.set(Others::Nowhere.word());
        }
        if state.others.get() != Others::Nowhere.word() || shared.part(now) > FULL {
            return;
        }
        let part = FULL - state.spared.get().0.min(FULL - LEAST_ALONE);
        let wanted = Nanos(part).scaled(busy.0, charged.0.max(1)).0;
        let part = wanted.max(part * 3 / 4).clamp(LEAST_ALONE, FULL);
        state.spared.set(Nanos(FULL - part));
    }

    /// How many leases the tenant's other processes have taken.
    pub(super) fn siblings(&self, shared: &Shared<'_>) -> Nanos {
        Nanos(shared.leases().wrapping_sub(self.state.taken.get().0))
    }

    /// An answer between two that are a second apart: it says what of long leases is true, and nothing else.
    fn hear_of_claims(&self, shared: &Shared<'_>, share: Share, asked: Nanos, told: Option<Told>) {
        let Some(told) = told.filter(|told| told.figures != 0) else {
            return;
        };
        let covered = Nanos(told.last).less(self.state.told.get());
        self.read(shared, share, asked, (told.busy(covered), true));
    }

    /// Where the tenant has the device alone it is charged what the device did.
    fn compare_with_device(
        &self,
        shared: &Shared<'_>,
        now: Nanos,
        alone: bool,
        (busy, charged, span): (Nanos, Nanos, Nanos),
    ) {
        let Compared {
            did,
            paid,
            time,
            longest,
        } = &self.state.with_device;
        did.add(busy);
        paid.add(charged);
        time.add(span);
        let wanted = did.get().less(time.get().scaled(1, ALIKE));
        let charged = paid.get().max(time.get().scaled(1, 1000));
        // What is charged late is missing in one answer, and too much in the next.
        let late = longest.get().scaled(2, 1).max(self.uncharged(now));
        if alone && wanted > charged && wanted < charged.plus(late) {
            // Of its own leases a process knows which are late; what the tenant's others have under way may be as long as they ever were.
            if !self.state.crowded.is_set() {
                longest.set(longest.get().scaled(3, 4));
            }
            return;
        }
        longest.set(longest.get().scaled(1, 2));
        let part = shared.part(now);
        let next = Nanos(part).scaled(wanted.0, charged.0).0;
        shared.set_part(match alone {
            true => next.clamp(part / 4, part * 4),
            false => FULL,
        });
        for word in [did, paid, time] {
            word.set(Nanos::ZERO);
        }
    }

    /// Whether the device does work of other tenants, too.
    pub(super) fn has_others(&self) -> bool {
        let state = &self.state;
        state.others.get() == Others::There.word() && !state.crowded.is_set() && R::OTHERS_PAY
    }

    /// The device did `more` than this tenant can have had, or `less` than it had with what is taken for others' turns.
    fn note_others(&self, now: Nanos, more: bool, less: bool) {
        let state = &self.state;
        let others = Others::of(state.others.get());
        let next = match others {
            Others::There if less => Others::Nowhere,
            Others::There if now < state.others_since.get().plus(TRUSTED) => Others::There,
            Others::There => {
                state.asks.set(now.plus(DOUBTED));
                Others::Doubted
            }
            Others::Perhaps | Others::Doubted if more => {
                state.others_since.set(now);
                Others::There
            }
            Others::Nowhere if more => Others::Perhaps,
            _ => Others::Nowhere,
        };
        state.others.set(next.word());
    }

    /// What the device did of a lease's `span` for this process, which was believed to take so long. The rest were turns of other tenants, of which no mark tells; no more
    /// than half is taken for theirs.
    pub(super) fn own(&self, span: Nanos, believed: Nanos) -> Nanos {
        match self.has_others() && believed != Nanos::ZERO {
            true => span.min(believed.max(span.scaled(1, 2))),
            false => span,
        }
    }

    /// What of a lease's `busy` time is charged, whose last launch took `last`, on a device that was idle before it or not.
    pub(super) fn counted(&self, busy: Nanos, last: Option<Nanos>, found_idle: bool) -> Nanos {
        let (longest, least) = match found_idle {
            true => (LONG, LEAST_ALONE),
            false => (SHORT, LEAST_AHEAD),
        };
        if last.is_none_or(|last| last > longest) {
            return busy;
        }
        let part = (FULL - self.state.spared.get().0.min(FULL)).max(least);
        busy.scaled(part, FULL)
    }
}
