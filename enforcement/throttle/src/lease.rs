//! A lease: a piece of a device's time that a process has taken for some launches, from the first of them until it is known what they took.
//!
//! ```text
//!        begin             last launch             its marks are set
//! Free ────────▶ Open ─────────────▶ Closing ──────────────────▶ Closed
//!   ▲              │ cut                │ not made, or unmarked      │ reached, or given up
//!   └──────────────┴────────────────────┴────────────────────────────┘ settled
//! ```
//!
//! One lease of a process is open at a time. As many others as there are places may be on the device, or before it.

use crate::word::Word;
use crate::{Key, Nanos};

/// Leases of a process at once.
pub const LEASES: usize = 8;

/// Where a lease stands in [`Throttle`](crate::Throttle), and its marks with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(pub(crate) u8);

impl Slot {
    pub(crate) fn all() -> impl Iterator<Item = Slot> {
        (0..LEASES as u8).map(Slot)
    }

    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How far a lease is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is none.
    Free,
    /// Launches are covered by it.
    Open,
    /// Its last launch, or the mark that ends it, is being made.
    Closing,
    /// All of it is launched.
    Closed,
}

/// What the device has done of a lease, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Nobody has asked yet, or it had not begun, and other work may have been before it.
    Unknown,
    /// It had not begun long after nothing of this process was before it: something that is no work holds it up. What was paid for it came back.
    HeldUp,
    /// The mark before its first launch was reached.
    Begun,
    /// It was not done long after it should have been: it is charged so far, and nothing waits for it any more.
    Overdue,
}

/// Written by one thread at a time. All zeros is free.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Lease {
    stage: Word,
    progress: Word,
    /// Which one of this process's it is.
    pub number: Word,
    /// The work that it may launch, and for how much was paid.
    pub work: Word,
    pub paid: Word,
    pub start: Word,
    /// What of it was launched, as believed, without the portion that is out.
    pub used: Word,
    /// What its last launch takes, as believed when it was made.
    pub last: Word,
    /// How long the device should have been idle in it, and the longest time without work.
    pub idle: Word,
    pub gap_from: Word,
    pub gap_to: Word,
    /// When the last launch was made, and when the device was found not to be done with it.
    pub closed: Word,
    pub looked: Word,
    /// It is one launch; of which function, or of which its last one is. Not 0: that was never measured.
    pub alone: Word,
    key: Word,
    pub unmeasured: Word,
    /// The device had not begun with it when it was closed: from its first mark to its last there was work.
    pub dense: Word,
    /// What it launched may wait for something else than the device.
    pub waits: Word,
    /// Which stream its first launch is for; another was seen in it.
    pub stream: Word,
    pub streams: Word,
    /// How much of it was charged before it was done.
    pub charged: Word,
    /// The tenant's count of leases when it was begun, and this process's of those that were paid for.
    pub leases: Word,
    pub taken: Word,
    /// Others had leases since this process's last: the device has to turn to it. How long it was seen to take, and a nanosecond; what is paid for it
    /// in advance.
    pub turned_to: Word,
    pub turning: Word,
    pub toll: Word,
    /// Looks at the clock since it was begun, turns in the middle of it, and whether its second launch was one.
    pub looks: Word,
    pub inside: Word,
    pub waited: Word,
    /// Where it was opened and closed, as [`Site::set`](crate::Site::set) says. A mark alone ended it.
    pub opened_in: Word,
    pub closed_in: Word,
    pub ended: Word,
    /// How long the mark before the last launch had been reached when the launch was made.
    pub gap: Word,
    /// From that launch's return until the mark behind it was set.
    pub tail: Word,
    /// There is a mark behind its last one.
    pub gauged: Word,
    /// When the lease before it here was over, as long as its marks stand.
    pub over: Word,
}

impl Lease {
    pub fn stage(&self) -> Stage {
        match self.stage.get().0 {
            1 => Stage::Open,
            2 => Stage::Closing,
            3 => Stage::Closed,
            _ => Stage::Free,
        }
    }

    pub fn set_stage(&self, stage: Stage) {
        self.stage.set(Nanos(match stage {
            Stage::Free => 0,
            Stage::Open => 1,
            Stage::Closing => 2,
            Stage::Closed => 3,
        }));
    }

    pub fn is_closed(&self) -> bool {
        self.stage() == Stage::Closed
    }

    pub fn progress(&self) -> Progress {
        match self.progress.get().0 {
            1 => Progress::HeldUp,
            2 => Progress::Begun,
            3 => Progress::Overdue,
            _ => Progress::Unknown,
        }
    }

    pub fn set_progress(&self, progress: Progress) {
        self.progress.set(Nanos(match progress {
            Progress::Unknown => 0,
            Progress::HeldUp => 1,
            Progress::Begun => 2,
            Progress::Overdue => 3,
        }));
    }

    /// All that it took until now is charged.
    pub fn paid_off(&self, now: Nanos, so_far: Nanos) {
        self.charged.set(so_far);
        self.paid.set(Nanos::ZERO);
        self.idle.set(Nanos::ZERO);
        self.start.set(now);
        self.set_progress(Progress::Overdue);
    }

    pub fn key(&self) -> Key {
        Key::from_word(self.key.get().0)
    }

    pub fn set_key(&self, key: Key) {
        self.key.set(Nanos(key.word()));
    }

    /// A new one, open, with nothing launched.
    pub fn open(&self, number: Nanos, now: Nanos, key: Key) {
        for word in [
            &self.progress,
            &self.work,
            &self.paid,
            &self.used,
            &self.idle,
            &self.gap_from,
            &self.gap_to,
            &self.closed,
            &self.looked,
            &self.alone,
            &self.unmeasured,
            &self.waits,
            &self.dense,
            &self.streams,
            &self.charged,
            &self.turned_to,
            &self.turning,
            &self.toll,
            &self.looks,
            &self.inside,
            &self.waited,
            &self.opened_in,
            &self.closed_in,
            &self.ended,
            &self.gap,
            &self.tail,
            &self.gauged,
            &self.over,
        ] {
            word.set(Nanos::ZERO);
        }
        self.number.set(number);
        self.start.set(now);
        self.set_key(key);
        self.set_stage(Stage::Open);
    }
}
