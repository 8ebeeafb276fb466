//! Changes that are under way: driver and books may differ meanwhile.

use core::sync::atomic::{AtomicU64, Ordering};

/// Counts of one library's changes in one process. All zeros is the beginning.
#[repr(C)]
pub struct Changes {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// From before the driver's call until its charge is what it took.
#[must_use]
pub struct Change<'a>(&'a Changes);

impl Changes {
    pub const fn new() -> Changes {
        Changes {
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        }
    }

    pub fn begin(&self) -> Change<'_> {
        self.begun.fetch_add(1, Ordering::AcqRel);
        Change(self)
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

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::AcqRel);
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
