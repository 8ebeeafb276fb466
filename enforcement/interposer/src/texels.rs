//! What arrays are charged. A large one has whole blocks of its own; small ones share blocks with others of their context and
//! kind of element, and the driver does not say which.
//!
//! An array begins a block only where none of those that are there has room for it (an H200: `fixtures/oracle/small-arrays-580.txt`), and as long as
//! none of a kind was destroyed that follows from their bytes (R35 of `fixtures/defects.txt`). Once there are holes, twice the bytes of a kind, in
//! whole blocks, are what was never exceeded. Which of its blocks are empty again nobody knows, so a kind stays charged for the
//! most that it held, but for no more blocks than it has arrays: the driver gives back one that is empty (R134 of `fixtures/defects.txt`).

use ledger::KeptErrno;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use budget::array::Array;
use budget::charge::{BLOCK, SUBALLOCATION};
use budget::{Bytes, charge};

use crate::devices::{Device, Owner};
use crate::memory::devices_of;
use crate::process::Tenant;
use seeds::{Seed, planted};

/// The arrays that were charged.
#[derive(Default)]
pub struct Arrays(Mutex<Book>);

#[derive(Default)]
struct Book {
    /// By handle.
    arrays: HashMap<u64, Place>,
    kinds: HashMap<Kind, Held>,
    /// By ordinal, since the last look that was due for it: arrays that no more was charged for than before, of kinds with holes.
    refilled: HashMap<u32, Bytes>,
}

/// What shares blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind {
    context: u64,
    format: u32,
    channels: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    ordinal: u32,
    arrays: u64,
    bytes: Bytes,
    charged: Bytes,
    /// Of the first of them.
    size: Bytes,
    /// They are not all of that size.
    mixed: bool,
    /// Some array was destroyed: there are holes between the others.
    has_holes: bool,
}

impl Held {
    /// What the kind is charged with so many bytes more in one array.
    fn with(self, bytes: Bytes) -> Bytes {
        let twice = packed(self.bytes.saturating_add(bytes));
        let room = BLOCK.saturating_sub(bytes);
        let alike = !self.mixed && (self.bytes == Bytes::ZERO || self.size == bytes);
        if alike && !planted(Seed::R35) {
            // Any hole is room for one more: a block lacks it when it is full.
            let full = (BLOCK.0 / bytes.0.max(1)).max(1).saturating_mul(bytes.0);
            let blocks = self.bytes.0.saturating_add(bytes.0).div_ceil(full.max(1));
            return Bytes(blocks.saturating_mul(BLOCK.0)).max(self.charged);
        }
        if self.has_holes || room == Bytes::ZERO || planted(Seed::R35) {
            // It begins one block at most.
            return twice.clamp(self.charged, self.charged.saturating_add(BLOCK));
        }
        // Each block that is there holds more than what would leave room for it, if it begins one.
        let blocks = self.bytes.0.div_ceil(room.0).max(1);
        let wanted = Bytes(blocks.saturating_mul(BLOCK.0)).min(twice);
        wanted.clamp(self.charged, self.charged.saturating_add(BLOCK))
    }
}

/// Where an array lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    ordinal: u32,
    kind: Kind,
    bytes: Bytes,
    shares: bool,
}

impl Place {
    /// And the most that it can be charged. `None` where no address space holds it.
    pub fn of(array: Array, levels: u32, ordinal: u32, context: u64) -> Option<(Place, Bytes)> {
        let bytes = array.bytes(levels);
        // One that has none of its own (sparse, or deferred) shares none (R102 of `fixtures/defects.txt`).
        let has_any = bytes != Bytes::ZERO || planted(Seed::R102);
        let shares = has_any && (bytes < BLOCK || planted(Seed::V17i) && bytes == BLOCK);
        let bytes = bytes.round_up(if shares { SUBALLOCATION } else { BLOCK })?;
        let place = Place {
            ordinal,
            kind: Kind {
                context,
                format: array.format,
                channels: array.channels,
            },
            bytes,
            shares,
        };
        let bound = if shares { packed(bytes) } else { bytes };
        Some((place, bound))
    }
}

/// What arrays of so many bytes together can need.
fn packed(bytes: Bytes) -> Bytes {
    charge::blocks(bytes.saturating_add(bytes)).unwrap_or(Bytes::MAX)
}

impl Book {
    /// Answers what is to be charged for it: at most its bound.
    fn enter(&mut self, handle: u64, place: Place) -> Bytes {
        self.arrays.insert(handle, place);
        if !place.shares {
            return place.bytes;
        }
        let held = self.kinds.entry(place.kind).or_default();
        held.ordinal = place.ordinal;
        let wanted = held.with(place.bytes);
        if held.bytes == Bytes::ZERO {
            held.size = place.bytes;
        }
        held.mixed |= held.size != place.bytes;
        held.bytes = held.bytes.saturating_add(place.bytes);
        held.arrays += 1;
        let more = wanted.saturating_sub(held.charged);
        held.charged = wanted;
        if held.has_holes && more == Bytes::ZERO {
            let refilled = self.refilled.entry(place.ordinal).or_default();
            *refilled = refilled.saturating_add(place.bytes);
        }
        more
    }

    /// Answers what is charged no longer.
    fn end(&mut self, place: Place) -> Bytes {
        if !place.shares {
            return place.bytes;
        }
        let Some(held) = self.kinds.get_mut(&place.kind) else {
            return Bytes::ZERO;
        };
        held.bytes = held.bytes.saturating_sub(place.bytes);
        held.arrays = held.arrays.saturating_sub(1);
        held.has_holes = true;
        let most = match planted(Seed::R134) {
            true if held.arrays != 0 => held.charged,
            _ => Bytes(held.arrays.saturating_mul(BLOCK.0)),
        };
        let freed = held.charged.saturating_sub(most);
        held.charged = held.charged.saturating_sub(freed);
        if held.arrays == 0 {
            self.kinds.remove(&place.kind);
        }
        freed
    }

    /// Answers what all of a context's arrays were charged, by ordinal.
    fn end_context(&mut self, context: u64) -> Vec<(u32, Bytes)> {
        let alone = self
            .arrays
            .extract_if(|_, place| place.kind.context == context)
            .filter(|(_, place)| !place.shares)
            .map(|(_, place)| (place.ordinal, place.bytes));
        let mut ended: Vec<(u32, Bytes)> = alone.collect();
        let kinds = self
            .kinds
            .extract_if(|kind, _| kind.context == context)
            .map(|(_, held)| (held.ordinal, held.charged));
        ended.extend(kinds);
        ended
    }
}

impl Tenant {
    /// The driver made an array: what is to be charged for it.
    pub fn enter_array(self, handle: u64, place: Place) -> Bytes {
        let (more, stale) = self.arrays(|book| {
            // Another thread is destroying its context: the driver has, and the books do not know it yet.
            let stale = book.arrays.remove(&handle);
            let stale = stale.map(|stale| (stale.ordinal, book.end(stale)));
            (book.enter(handle, place), stale)
        });
        if let Some((ordinal, bytes)) = stale {
            self.release(devices_of(self, ordinal), bytes);
        }
        more
    }

    /// Holes may be in blocks that are charged and gone: what fills them again begins others, which a look at the driver's figure tells, after as much of it as
    /// after anything else that is held (R136 of `fixtures/defects.txt`).
    pub fn look_for_refilled(self, device: &Device) {
        let refilled = self.arrays(|book| book.refilled.get(&device.ordinal).copied());
        let due = refilled.is_some_and(|bytes| self.has_grown(device.indices, bytes));
        if due && !planted(Seed::R136) {
            self.arrays(|book| book.refilled.remove(&device.ordinal));
            self.look_all(device.indices);
        }
    }

    /// Takes the record of an array out while the driver is asked to destroy it.
    pub fn take_array(self, handle: u64) -> Option<Place> {
        self.arrays(|book| book.arrays.remove(&handle))
    }

    /// The context that an array was made in.
    pub fn owner_of_array(self, handle: u64) -> Option<Owner> {
        let place = self.arrays(|book| book.arrays.get(&handle).copied());
        place.map(|place| self.owner_of(place.kind.context))
    }

    /// What has come on record after its context had ended is gone with that.
    pub fn end_late_array(self, owner: Owner, handle: u64) {
        if self.has_ended(owner)
            && let Some(place) = self.take_array(handle)
        {
            self.end_array(place);
        }
    }

    /// It was not destroyed after all.
    pub fn return_array(self, handle: u64, place: Place) {
        self.arrays(|book| book.arrays.insert(handle, place));
    }

    /// It is gone.
    pub fn end_array(self, place: Place) {
        let bytes = self.arrays(|book| book.end(place));
        self.release(devices_of(self, place.ordinal), bytes);
    }

    /// A context is gone, and its arrays with it.
    pub fn end_arrays(self, context: u64) {
        for (ordinal, bytes) in self.arrays(|book| book.end_context(context)) {
            self.release(devices_of(self, ordinal), bytes);
        }
    }

    fn arrays<R>(self, act: impl FnOnce(&mut Book) -> R) -> R {
        let _errno = KeptErrno::keep();
        let arrays = self.memory.arrays.get_or_default();
        act(&mut arrays.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(bytes: u64, context: u64) -> (Place, Bytes) {
        let array = Array {
            width: bytes / 4,
            height: 0,
            depth: 0,
            format: 3,
            channels: 1,
            flags: 0,
        };
        Place::of(array, 1, 2, context).unwrap()
    }

    #[test]
    fn a_large_array_is_charged_alone_and_small_ones_together() {
        let mut book = Book::default();
        let (large, bound) = place(512 << 10, 7);
        assert_eq!((large.bytes, bound), (Bytes::mib(4), Bytes::mib(4)));
        assert_eq!(book.enter(1, large), Bytes::mib(4));
        let (small, bound) = place(32 << 10, 7);
        assert_eq!((small.bytes, bound), (Bytes(256 << 10), Bytes::mib(2)));
        let charged: Vec<Bytes> = (2..7).map(|handle| book.enter(handle, small)).collect();
        let mib = Bytes::mib;
        assert_eq!(charged, [mib(2), mib(0), mib(0), mib(0), mib(0)]);
        let freed: Vec<Bytes> = (0..5).map(|_| book.end(small)).collect();
        assert_eq!(freed, [mib(0), mib(0), mib(0), mib(0), mib(2)]);
        assert_eq!(book.end(large), mib(4));
    }

    /// What an H200 took of each array that it made or destroyed is never more than what was charged.
    #[test]
    fn a_cards_small_arrays_are_charged_at_least_what_they_take() {
        let recorded = include_str!("../../../fixtures/oracle/small-arrays-580.txt");
        let place = |rows: u64| {
            let array = Array {
                width: 1024,
                height: rows,
                depth: 0,
                format: 1,
                channels: 1,
                flags: 0,
            };
            Place::of(array, 1, 0, 3).unwrap().0
        };
        let mut steps = 0;
        for run in recorded.lines().filter(|line| !line.starts_with('#')) {
            let mut book = Book::default();
            let mut charged = book.enter(0, place(64));
            let mut taken = BLOCK.0.cast_signed();
            for step in run.split(' ') {
                let (array, grown) = step.split_once(':').unwrap();
                let (act, rows) = array.split_at(1);
                let array = place(rows.parse().unwrap());
                steps += 1;
                match act {
                    "+" => charged = charged.saturating_add(book.enter(steps, array)),
                    _ => charged = charged.saturating_sub(book.end(array)),
                }
                taken += grown.parse::<i64>().unwrap() << 10;
                assert!(
                    charged.0.cast_signed() >= taken,
                    "{step}: {charged}, {taken}"
                );
            }
        }
        assert!(steps > 1_000);
    }

    /// What is charged is never less than the blocks that first fit begins.
    #[test]
    fn small_arrays_are_charged_the_blocks_that_they_begin() {
        let (mut book, mut blocks, mut charged) = (Book::default(), Vec::<u64>::new(), Bytes::ZERO);
        for handle in 0..4_000 {
            let (small, _) = place(4 * (1 + handle * 7919 % 500_000), 3);
            if !small.shares {
                continue;
            }
            charged = charged.saturating_add(book.enter(handle, small));
            match blocks
                .iter_mut()
                .find(|used| **used + small.bytes.0 <= BLOCK.0)
            {
                Some(used) => *used += small.bytes.0,
                None => blocks.push(small.bytes.0),
            }
            assert!(charged.0 >= blocks.len() as u64 * BLOCK.0);
        }
        let mut book = Book::default();
        let (small, _) = place(32 << 10, 7);
        let each = (0..64).map(|handle| book.enter(handle, small));
        assert_eq!(
            each.fold(Bytes::ZERO, Bytes::saturating_add),
            Bytes::mib(16)
        );
    }

    #[test]
    fn a_context_takes_its_arrays_along_and_no_others() {
        let mut book = Book::default();
        for handle in 0..8 {
            book.enter(handle, place(32 << 10, handle % 2).0);
        }
        book.enter(8, place(512 << 10, 1).0);
        let mut ended = book.end_context(1);
        ended.sort();
        assert_eq!(ended, [(2, Bytes::mib(2)), (2, Bytes::mib(4))]);
        assert_eq!((book.arrays.len(), book.kinds.len()), (4, 1));
    }

    #[test]
    fn what_is_charged_is_never_more_than_the_bound() {
        let mut book = Book::default();
        for handle in 0..4_000 {
            let (place, bound) = place(4 * (1 + handle * 37 % 60_000), 3);
            assert!(book.enter(handle, place) <= bound);
        }
    }
}
