//! What one API signals and another waits for: payloads of fences and semaphores, in this process or in a page whose
//! descriptor goes from API to API and from process to process. Work's end is known when it is submitted, so a signal says
//! from when on it holds.

use std::sync::atomic::{AtomicU64, Ordering};

pub use crate::region::words::{WORDS, Words};

use crate::engine::Nanos;

/// Why a payload cannot be made, had or given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    #[error("the descriptor is no payload's")]
    Foreign,
    #[error("no room for another page or descriptor")]
    Full,
    #[error("it was not made for export")]
    Own,
}

/// How a semaphore counts. A binary one is a timeline whose signals count up and whose waits do as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    Binary,
    Timeline,
}

/// The word of a fence's payload: from when on it is signaled.
pub const SIGNALED: usize = 1;

// The words of a semaphore's payload.
/// The largest value that is known to be reached: signals that were forgotten for later ones.
const BASE: usize = 1;
/// Of a binary semaphore: signals so far, and waits so far.
const SIGNALS: usize = 2;
const WAITS: usize = 3;
/// How many signals were recorded; each is two words, its value and from when on it holds.
const RECORDED: usize = 4;
const RING: usize = 8;
const ENTRIES: usize = (WORDS - RING) / 2;

/// A semaphore's operations.
impl Words {
    /// A timeline that begins at a value.
    pub fn start_at(&self, value: u64) {
        self.page()[BASE].store(value, Ordering::Release);
    }

    /// From when on a wait for the value is over (for a binary semaphore: for its next signal); `None` while no signal for
    /// it was submitted.
    #[must_use]
    pub fn reached_at(&self, counting: Counting, value: u64) -> Option<Nanos> {
        let page = self.page();
        let value = match counting {
            Counting::Timeline => value,
            Counting::Binary => page[WAITS].load(Ordering::Acquire) + 1,
        };
        if page[BASE].load(Ordering::Acquire) >= value {
            return Some(Nanos::ZERO);
        }
        entries(page)
            .filter(|(signaled, _)| *signaled >= value)
            .map(|(_, at)| Nanos(at))
            .min()
    }

    /// A wait has been satisfied: a binary semaphore is unsignaled by it.
    pub fn consume(&self, counting: Counting) {
        if counting == Counting::Binary {
            self.page()[WAITS].fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The value holds from then on.
    pub fn signal(&self, counting: Counting, value: u64, at: Nanos) {
        let page = self.page();
        let value = match counting {
            Counting::Timeline => value,
            Counting::Binary => page[SIGNALS].fetch_add(1, Ordering::AcqRel) + 1,
        };
        let slot = page[RECORDED].fetch_add(1, Ordering::AcqRel) as usize % ENTRIES;
        let (value_word, at_word) = (&page[RING + 2 * slot], &page[RING + 2 * slot + 1]);
        // What the slot held is reached by now, or so nearly that it counts as such.
        page[BASE].fetch_max(value_word.load(Ordering::Acquire), Ordering::AcqRel);
        value_word.store(0, Ordering::Release);
        at_word.store(at.0, Ordering::Release);
        value_word.store(value, Ordering::Release);
    }

    /// The counter of a timeline at a time.
    #[must_use]
    pub fn value(&self, now: Nanos) -> u64 {
        let page = self.page();
        let reached = entries(page)
            .filter(|(_, at)| *at <= now.0)
            .map(|(value, _)| value);
        reached
            .max()
            .unwrap_or(0)
            .max(page[BASE].load(Ordering::Acquire))
    }
}

fn entries(page: &[AtomicU64]) -> impl Iterator<Item = (u64, u64)> {
    let recorded = page[RECORDED].load(Ordering::Acquire) as usize;
    page[RING..RING + 2 * recorded.min(ENTRIES)]
        .chunks_exact(2)
        .map(|entry| {
            (
                entry[0].load(Ordering::Acquire),
                entry[1].load(Ordering::Acquire),
            )
        })
        .filter(|(value, _)| *value != 0)
}
