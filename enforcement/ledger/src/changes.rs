//! Changes that are under way: driver and books may differ meanwhile.

use crate::Ledger;
use core::sync::atomic::{AtomicU64, Ordering};

/// Counts of one library's changes in one process. All zeros is the beginning.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Changes {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// From before the driver's call until its charge is what it took.
#[must_use]
pub struct Change<'a> {
    counts: &'a Changes,
    told: Option<&'a Ledger>,
}

impl Changes {
    pub const fn new() -> Changes {
        Changes {
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }

    pub fn begin(&self) -> Change<'_> {
        self.begin_told(None)
    }

    /// The same, told to the process's other libraries of ours, which look at the same row of the driver's: see [`Ledger::changes_beside`].
    pub fn begin_told<'a>(&'a self, told: Option<&'a Ledger>) -> Change<'a> {
        self.one_began();
        let change = Change { counts: self, told };
        change.told().into_iter().for_each(Changes::one_began);
        change
    }

    fn one_began(&self) {
        self.begun.fetch_add(1, Ordering::AcqRel);
    }

    fn one_ended(&self) {
        self.ended.fetch_add(1, Ordering::AcqRel);
    }

    /// Of a slot that another process had.
    pub(crate) fn forget(&self) {
        self.begun.store(0, Ordering::Release);
        self.ended.store(0, Ordering::Release);
    }

    /// How many have begun, if none but so many of the caller's own are under way. Between two such moments of the same count nothing changed but by
    /// the caller.
    pub fn quiet(&self, own: u64) -> Option<u64> {
        let ended = self.ended.load(Ordering::Acquire);
        let begun = self.begun.load(Ordering::Acquire);
        (begun.wrapping_sub(ended) == own).then_some(begun)
    }
}

impl Default for Changes {
    fn default() -> Self {
        Self::new()
    }
}

impl Change<'_> {
    fn told(&self) -> Option<&Changes> {
        self.told.and_then(Ledger::changes)
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.counts.one_ended();
        self.told().into_iter().for_each(Changes::one_ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_quiet_while_a_change_is_under_way() {
        let changes = Changes::new();
        assert_eq!(changes.quiet(0), Some(0));
        let change = changes.begin();
        assert_eq!((changes.quiet(0), changes.quiet(1)), (None, Some(1)));
        drop(change);
        assert_eq!(changes.quiet(0), Some(1));
    }
}
