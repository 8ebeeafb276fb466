//! How much of the memory objects' contents commands have written, so that a fill of 40 GiB does not eat the host. Up to
//! [`KEPT`] per process is kept; a piece beyond that is counted as written and its bytes are dropped, so tests that
//! compare bytes stay below. What the host writes through a mapping is its own affair.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

const PIECE: u64 = 2 << 20;

/// In pieces: 1 GiB.
const KEPT: usize = 512;

static PIECES: AtomicUsize = AtomicUsize::new(0);

/// The pieces of one memory object that are kept.
#[derive(Default)]
pub struct Touched(Mutex<BTreeSet<u64>>);

impl Touched {
    /// The parts of a range that may be written, as (offset from the range's start, length).
    pub fn admit(&self, offset: u64, length: u64) -> Vec<(u64, u64)> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parts = Vec::new();
        let end = offset.saturating_add(length);
        let mut start = offset;
        while start < end {
            let piece = start / PIECE;
            let stop = end.min((piece + 1) * PIECE);
            if kept.contains(&piece)
                || (PIECES
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| {
                        (count < KEPT).then_some(count + 1)
                    })
                    .is_ok()
                    && kept.insert(piece))
            {
                parts.push((start - offset, stop - start));
            } else if PIECES.load(Ordering::Relaxed) >= KEPT && kept.range(piece..).next().is_none()
            {
                break;
            }
            start = stop;
        }
        parts
    }
}

impl Drop for Touched {
    fn drop(&mut self) {
        let kept = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        PIECES.fetch_sub(kept.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_keeps_one_gibibyte_and_gets_it_back() {
        let whole = Touched::default();
        let kept: u64 = whole
            .admit(5, 40 << 30)
            .iter()
            .map(|(_, length)| length)
            .sum();
        assert_eq!(kept, KEPT as u64 * PIECE - 5);
        assert_eq!(Touched::default().admit(0, 1), []);
        assert_eq!(whole.admit(PIECE, 10), [(0, 10)]);
        drop(whole);
        assert_eq!(Touched::default().admit(PIECE - 1, 2), [(0, 1), (1, 1)]);
    }
}
