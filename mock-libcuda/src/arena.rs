//! Address space: first-fit ranges, and blocks that small allocations share.

use std::collections::{BTreeMap, BTreeSet};

/// Free ranges of an address range (start, length), in order; taken first fit.
#[derive(Debug, Default)]
pub struct Holes(Vec<(u64, u64)>);

impl Holes {
    pub fn new(start: u64, len: u64) -> Holes {
        Holes(vec![(start, len)])
    }

    pub fn take(&mut self, len: u64) -> Option<u64> {
        let at = self.0.iter().position(|(_, room)| *room >= len)?;
        let (start, room) = self.0[at];
        if room > len {
            self.0[at] = (start + len, room - len);
        } else {
            self.0.remove(at);
        }
        Some(start)
    }

    /// As [`Holes::take`], at a multiple of `align`.
    pub fn take_aligned(&mut self, len: u64, align: u64) -> Option<u64> {
        let fits = |(start, room): &(u64, u64)| {
            let padding = start.next_multiple_of(align) - start;
            padding
                .checked_add(len)
                .is_some_and(|needed| needed <= *room)
        };
        let at = self.0.iter().position(fits)?;
        let (start, room) = self.0[at];
        let taken = start.next_multiple_of(align);
        let rests = [
            (start, taken - start),
            (taken + len, start + room - taken - len),
        ];
        let rests = rests.into_iter().filter(|(_, len)| *len > 0);
        self.0.splice(at..=at, rests);
        Some(taken)
    }

    /// Gives a taken range back and joins it with its neighbours.
    pub fn give(&mut self, start: u64, len: u64) {
        let at = self.0.partition_point(|(hole, _)| *hole < start);
        let after = self.0.get(at).is_some_and(|(hole, _)| *hole == start + len);
        let before = at > 0 && self.0[at - 1].0 + self.0[at - 1].1 == start;
        match (before, after) {
            (true, true) => {
                let (_, more) = self.0.remove(at);
                self.0[at - 1].1 += len + more;
            }
            (true, false) => self.0[at - 1].1 += len,
            (false, true) => self.0[at] = (start, len + self.0[at].1),
            (false, false) => self.0.insert(at, (start, len)),
        }
    }

    /// Bytes that nobody has taken.
    pub fn room(&self) -> u64 {
        self.0.iter().map(|(_, len)| len).sum()
    }

    fn is_full(&self) -> bool {
        self.0.is_empty()
    }
}

/// A range of device memory that several allocations share.
#[derive(Debug)]
struct Block {
    len: u64,
    live: u32,
    holes: Holes,
}

/// The blocks of one owner: a context's 2 MiB blocks, or a pool's segments.
#[derive(Debug, Default)]
pub struct Blocks {
    blocks: BTreeMap<u64, Block>,
    /// Blocks with any hole, so that a thousand full ones are not searched.
    roomy: BTreeSet<u64>,
    /// What the last block that went left for the next one.
    spare: Holes,
}

impl Blocks {
    /// Adds a fresh block and takes its first `taken` bytes.
    pub fn begin(&mut self, base: u64, len: u64, taken: u64) -> u64 {
        let mut holes = std::mem::take(&mut self.spare);
        holes.0.clear();
        if taken < len {
            holes.0.push((base + taken, len - taken));
            self.roomy.insert(base);
        }
        let live = 1;
        self.blocks.insert(base, Block { len, live, holes });
        base
    }

    pub fn allocate(&mut self, len: u64) -> Option<u64> {
        for base in &self.roomy {
            let block = self.blocks.get_mut(base).expect("roomy names blocks only");
            if let Some(address) = block.holes.take(len) {
                block.live += 1;
                if block.holes.is_full() {
                    let base = *base;
                    self.roomy.remove(&base);
                }
                return Some(address);
            }
        }
        None
    }

    /// Frees an allocation; answers its block (base, length), which is forgotten, if nothing lives in it any more.
    pub fn free(&mut self, address: u64, len: u64) -> Option<(u64, u64)> {
        let (&base, block) = self
            .blocks
            .range_mut(..=address)
            .next_back()
            .expect("allocated here");
        block.live -= 1;
        if block.live > 0 {
            if block.holes.is_full() {
                self.roomy.insert(base);
            }
            block.holes.give(address, len);
            return None;
        }
        let block = self.blocks.remove(&base)?;
        self.roomy.remove(&base);
        self.spare = block.holes;
        Some((base, block.len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_neighbours_join() {
        let mut holes = Holes::new(0, 100);
        let parts: Vec<u64> = (0..10).map(|_| holes.take(10).unwrap()).collect();
        assert_eq!(holes.take(1), None);
        for at in [4, 2, 3] {
            holes.give(parts[at], 10);
        }
        assert_eq!(holes.take(30), Some(20));
        assert!(holes.is_full());
    }

    #[test]
    fn an_aligned_range_leaves_what_is_around_it() {
        let mut holes = Holes::new(3, 20);
        assert_eq!(holes.take_aligned(18, 8), None);
        assert_eq!(holes.take_aligned(8, 8), Some(8));
        assert_eq!(holes.0, [(3, 5), (16, 7)]);
        assert_eq!(holes.take_aligned(7, 8), Some(16));
        holes.give(8, 8);
        holes.give(16, 7);
        assert_eq!(holes.0, [(3, 20)]);
    }

    #[test]
    fn a_block_is_empty_when_its_last_allocation_goes() {
        let mut blocks = Blocks::default();
        assert_eq!(blocks.allocate(512), None);
        assert_eq!(blocks.begin(4096, 1024, 512), 4096);
        assert_eq!(
            (blocks.allocate(512), blocks.allocate(512)),
            (Some(4608), None)
        );
        assert_eq!(blocks.free(4096, 512), None);
        assert_eq!(blocks.free(4608, 512), Some((4096, 1024)));
        assert_eq!(blocks.allocate(512), None, "it is forgotten");
    }
}
