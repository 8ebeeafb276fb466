//! Address space: first-fit ranges, and blocks that small allocations share.

use std::collections::{BTreeMap, BTreeSet};

/// Free ranges of an address range, first fit.
#[derive(Debug)]
pub struct Holes(BTreeMap<u64, u64>);

impl Holes {
    pub fn new(start: u64, len: u64) -> Holes {
        Holes(BTreeMap::from([(start, len)]))
    }

    pub fn take(&mut self, len: u64) -> Option<u64> {
        let (&start, &room) = self.0.iter().find(|(_, room)| **room >= len)?;
        self.0.remove(&start);
        if room > len {
            self.0.insert(start + len, room - len);
        }
        Some(start)
    }

    /// Gives a taken range back and joins it with its neighbours.
    pub fn give(&mut self, start: u64, len: u64) {
        let (mut start, mut len) = (start, len);
        if let Some(after) = self.0.remove(&(start + len)) {
            len += after;
        }
        if let Some((&before, &room)) = self.0.range(..start).next_back()
            && before + room == start
        {
            self.0.remove(&before);
            start = before;
            len += room;
        }
        self.0.insert(start, len);
    }

    /// Bytes that nobody has taken.
    pub fn room(&self) -> u64 {
        self.0.values().sum()
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
}

impl Blocks {
    /// Adds a fresh, empty block.
    pub fn add(&mut self, base: u64, len: u64) {
        self.blocks.insert(
            base,
            Block {
                len,
                live: 0,
                holes: Holes::new(base, len),
            },
        );
        self.roomy.insert(base);
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

    /// Frees an allocation; answers its block (base, length) if nothing lives in it any more.
    pub fn free(&mut self, address: u64, len: u64) -> Option<(u64, u64)> {
        let (&base, block) = self
            .blocks
            .range_mut(..=address)
            .next_back()
            .expect("allocated here");
        block.holes.give(address, len);
        block.live -= 1;
        self.roomy.insert(base);
        (block.live == 0).then_some((base, block.len))
    }

    /// Forgets a block.
    pub fn remove(&mut self, base: u64) {
        self.blocks.remove(&base);
        self.roomy.remove(&base);
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
    fn a_block_is_empty_when_its_last_allocation_goes() {
        let mut blocks = Blocks::default();
        assert_eq!(blocks.allocate(512), None);
        blocks.add(4096, 1024);
        assert_eq!(
            (
                blocks.allocate(512),
                blocks.allocate(512),
                blocks.allocate(512)
            ),
            (Some(4096), Some(4608), None)
        );
        assert_eq!(blocks.free(4096, 512), None);
        assert_eq!(blocks.free(4608, 512), Some((4096, 1024)));
    }
}
