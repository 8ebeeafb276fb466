//! Reference counts of 2 MiB pages: how many blocks a set of allocations really holds (decision 15).
//!
//! Only the first and the last page of an allocation can be shared with others; the pages between are its own and need no count. The table is fixed, in
//! memory that the caller provides, and changed by compare-and-swap alone: a process that forks or is killed leaves no lock behind.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::Bytes;
use crate::charge::BLOCK;

const COUNT_BITS: u32 = 20;
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// The pages that an allocation touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    first: u64,
    last: u64,
}

/// The table has no room for one more page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Page counts over borrowed words, all zero at first. A word is (page + 1, count); a count of 0 leaves the page's name in place for its next use.
#[derive(Clone, Copy)]
pub struct Blocks<'a> {
    words: &'a [AtomicU64],
}

impl Span {
    /// `None` for nothing, and for an allocation that would wrap around the address space.
    #[must_use]
    pub fn of(address: u64, size: Bytes) -> Option<Span> {
        let end = address.checked_add(size.0.checked_sub(1)?)?;
        Some(Span {
            first: address / BLOCK.0,
            last: end / BLOCK.0,
        })
    }

    /// The same of the host's memory: a 32-bit context gives its memory addresses that the host's may have too.
    #[must_use]
    pub fn of_host(address: u64, size: Bytes) -> Option<Span> {
        /// Beyond all pages of a device's addresses.
        const HOST: u64 = 1 << 42;
        Span::of(address, size).map(|span| span.apart(HOST))
    }

    /// The same of managed memory, which never shares a page with any other: its address may come again for another kind before it is counted out.
    #[must_use]
    pub fn of_managed(address: u64, size: Bytes) -> Option<Span> {
        /// Beyond all pages of a device's addresses, and none of the host's.
        const MANAGED: u64 = 1 << 41;
        Span::of(address, size).map(|span| span.apart(MANAGED))
    }

    fn apart(self, place: u64) -> Span {
        Span {
            first: self.first | place,
            last: self.last | place,
        }
    }

    /// The whole span as blocks.
    #[must_use]
    pub fn bytes(self) -> Bytes {
        Bytes((self.last - self.first + 1) * BLOCK.0)
    }

    /// Pages that no other allocation can touch.
    fn own(self) -> Bytes {
        Bytes((self.last - self.first).saturating_sub(1) * BLOCK.0)
    }

    fn edges(self) -> impl Iterator<Item = u64> {
        core::iter::once(self.first).chain((self.last != self.first).then_some(self.last))
    }
}

impl<'a> Blocks<'a> {
    #[must_use]
    pub fn new(words: &'a [AtomicU64]) -> Blocks<'a> {
        Blocks { words }
    }

    /// Counts an allocation in; answers the blocks that it is the first to hold.
    pub fn take(self, span: Span) -> Result<Bytes, Full> {
        let mut fresh = span.own();
        for page in span.edges() {
            match self.count_in(page) {
                Ok(true) => fresh = fresh.saturating_add(BLOCK),
                Ok(false) => {}
                Err(full) => {
                    if page != span.first {
                        self.count_out(span.first);
                    }
                    return Err(full);
                }
            }
        }
        Ok(fresh)
    }

    /// Counts an allocation out; answers the blocks that nobody holds any longer.
    pub fn give(self, span: Span) -> Bytes {
        span.edges()
            .filter(|page| self.count_out(*page))
            .fold(span.own(), |freed, _| freed.saturating_add(BLOCK))
    }

    /// Whether this was the page's first holder. Two threads may name one new page at once in two words: each then pays for a block until it leaves, which
    /// charges too much for that time and never too little.
    fn count_in(self, page: u64) -> Result<bool, Full> {
        'again: loop {
            let mut free = None;
            for word in self.probe(page) {
                let seen = word.load(Ordering::Acquire);
                if seen >> COUNT_BITS == page + 1 && seen & COUNT != 0 {
                    if seen & COUNT == COUNT {
                        return Err(Full);
                    }
                    match word.compare_exchange(seen, seen + 1, Ordering::AcqRel, Ordering::Acquire)
                    {
                        Ok(_) => return Ok(false),
                        Err(_) => continue 'again,
                    }
                }
                if free.is_none() && seen & COUNT == 0 {
                    free = Some((word, seen));
                }
                if seen == 0 {
                    break;
                }
            }
            let (word, seen) = free.ok_or(Full)?;
            if word
                .compare_exchange(
                    seen,
                    ((page + 1) << COUNT_BITS) | 1,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                )
                .is_ok()
            {
                return Ok(true);
            }
        }
    }

    /// Whether this was the page's last holder.
    fn count_out(self, page: u64) -> bool {
        'again: loop {
            for word in self.probe(page) {
                let seen = word.load(Ordering::Acquire);
                if seen >> COUNT_BITS == page + 1 && seen & COUNT != 0 {
                    match word.compare_exchange(seen, seen - 1, Ordering::AcqRel, Ordering::Acquire)
                    {
                        Ok(_) => return seen & COUNT == 1,
                        Err(_) => continue 'again,
                    }
                }
                if seen == 0 {
                    break;
                }
            }
            return false;
        }
    }

    fn probe(self, page: u64) -> impl Iterator<Item = &'a AtomicU64> {
        let start =
            (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) as usize % self.words.len().max(1);
        self.words[start.min(self.words.len())..]
            .iter()
            .chain(&self.words[..start.min(self.words.len())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn neighbours_in_a_block_pay_for_it_once() {
        let table = table(16);
        let blocks = Blocks::new(&table);
        let (a, b) = (
            Span::of(64 * MIB, Bytes(1)).unwrap(),
            Span::of(64 * MIB + 512, Bytes(1)).unwrap(),
        );
        assert_eq!(blocks.take(a), Ok(Bytes::mib(2)));
        assert_eq!(blocks.take(b), Ok(Bytes::ZERO));
        assert_eq!(blocks.give(a), Bytes::ZERO);
        assert_eq!(blocks.give(b), Bytes::mib(2));
    }

    #[test]
    fn a_full_table_counts_nothing_in() {
        let table = table(1);
        let blocks = Blocks::new(&table);
        let two = Span::of(2 * MIB, Bytes::mib(4)).unwrap();
        assert_eq!(blocks.take(two), Err(Full));
        let one = Span::of(2 * MIB, Bytes(1)).unwrap();
        assert_eq!(blocks.take(one), Ok(Bytes::mib(2)));
        assert_eq!(blocks.give(one), Bytes::mib(2));
    }

    #[test]
    fn nothing_and_a_wrapping_span_are_no_span() {
        assert_eq!(Span::of(4096, Bytes::ZERO), None);
        assert_eq!(Span::of(u64::MAX, Bytes(2)), None);
        assert!(
            Blocks::new(&[])
                .take(Span::of(0, Bytes(1)).unwrap())
                .is_err()
        );
    }

    #[test]
    fn many_threads_leave_nothing_behind() {
        let table = table(256);
        let held = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let (table, held) = (&table, &held);
                scope.spawn(move || {
                    for turn in 0..20_000_u64 {
                        let span =
                            Span::of((turn % 7) * 2 * MIB + thread * 512, Bytes(512)).unwrap();
                        held.fetch_add(Blocks::new(table).take(span).unwrap().0, Ordering::Relaxed);
                        held.fetch_sub(Blocks::new(table).give(span).0, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(held.load(Ordering::Relaxed), 0);
    }

    proptest! {
        /// Against a plain set of pages: what is charged is 2 MiB for every page that some allocation touches.
        #[test]
        fn blocks_are_the_pages_touched(allocations in proptest::collection::vec((0_u64..40 * MIB, 1_u64..9 * MIB), 1..20)) {
            let table = table(64);
            let blocks = Blocks::new(&table);
            let touched = |live: &[(u64, u64)]| {
                let pages: std::collections::BTreeSet<u64> =
                    live.iter().flat_map(|(address, size)| address / BLOCK.0..=(address + size - 1) / BLOCK.0).collect();
                pages.len() as u64 * BLOCK.0
            };
            // Real allocations do not overlap: keep those that do not share an inner page.
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (address, size) in allocations {
                if live.iter().all(|(other, length)| address + size <= *other || other + length <= address) {
                    live.push((address, size));
                }
            }
            let mut charged = 0;
            for (at, (address, size)) in live.iter().enumerate() {
                charged += blocks.take(Span::of(*address, Bytes(*size)).unwrap()).unwrap().0;
                prop_assert_eq!(charged, touched(&live[..=at]));
            }
            while let Some((address, size)) = live.pop() {
                charged -= blocks.give(Span::of(address, Bytes(size)).unwrap()).0;
                prop_assert_eq!(charged, touched(&live));
            }
        }
    }
}
