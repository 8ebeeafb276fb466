//! Where regions lie in one block of device memory: first fit. Pure, but for the list, which is the application's memory.

use crate::boundary::{Host, List, pushed};
use crate::error::Result;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u64,
    end: u64,
}

/// The taken spans of a block, by where they begin. They never overlap.
pub struct Placement {
    size: u64,
    taken: List<Span>,
}

impl Placement {
    pub fn new(size: u64, host: Host) -> Self {
        Self {
            size,
            taken: List::new_in(host),
        }
    }

    /// The first place for so many bytes at a multiple of `alignment`, a power of two; `None` where there is none.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`](crate::Error::OutOfHostMemory).
    pub fn take(&mut self, bytes: u64, alignment: u64) -> Result<Option<u64>> {
        let mut from = 0_u64;
        let mut place = None;
        let gaps = self.taken.iter().map(|span| (span.start, span.end));
        for (index, (until, next)) in gaps.chain([(self.size, self.size)]).enumerate() {
            let start = from.checked_next_multiple_of(alignment);
            let end = start.and_then(|start| start.checked_add(bytes));
            if let (Some(start), Some(end)) = (start, end)
                && end <= until
            {
                place = Some((index, Span { start, end }));
                break;
            }
            from = next;
        }
        let Some((index, span)) = place else {
            return Ok(None);
        };
        pushed(&mut self.taken, span)?;
        self.taken[index..].rotate_right(1);
        Ok(Some(span.start))
    }

    /// Takes back what was taken there.
    pub fn give_back(&mut self, start: u64) {
        self.taken.retain(|span| span.start != start);
    }

    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    pub fn size(&self) -> u64 {
        self.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(placement: &mut Placement, bytes: u64, alignment: u64) -> Option<u64> {
        placement.take(bytes, alignment).expect("host memory")
    }

    #[test]
    fn the_first_gap_that_fits_is_taken_and_none_beyond_the_end() {
        let mut block = Placement::new(100, Host::systems());
        assert_eq!(take(&mut block, 10, 1), Some(0));
        assert_eq!(take(&mut block, 10, 16), Some(16));
        assert_eq!(take(&mut block, 6, 2), Some(10), "between the two");
        assert_eq!(take(&mut block, 75, 1), None);
        assert_eq!(take(&mut block, 74, 1), Some(26));
        assert_eq!(take(&mut block, 1, 1), None);
        block.give_back(10);
        assert_eq!(take(&mut block, 7, 1), None);
        assert_eq!(take(&mut block, u64::MAX, 1), None);
        assert_eq!(take(&mut block, 3, 4), Some(12));
    }

    /// A small linear congruence instead of a crate: every step is checked, whatever the sequence.
    #[test]
    fn nothing_overlaps_and_all_that_was_taken_can_be_given_back() {
        const SIZE: u64 = 1 << 16;
        let mut block = Placement::new(SIZE, Host::systems());
        let mut held: Vec<(u64, u64)> = Vec::new();
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..20_000 {
            if random(5) < 2 && !held.is_empty() {
                let (start, _) = held.swap_remove(random(held.len() as u64) as usize);
                block.give_back(start);
                continue;
            }
            let (bytes, alignment) = (1 + random(3000), 1 << random(10));
            if let Some(start) = take(&mut block, bytes, alignment) {
                let end = start + bytes;
                assert_eq!(start % alignment, 0);
                assert!(end <= SIZE);
                assert!(held.iter().all(|&(from, to)| end <= from || to <= start));
                held.push((start, end));
            }
        }
        held.iter().for_each(|&(start, _)| block.give_back(start));
        assert!(block.is_empty());
        assert_eq!(take(&mut block, SIZE, 1), Some(0));
    }
}
