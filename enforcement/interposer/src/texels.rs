//! What arrays are charged. A large one has whole blocks of its own; small ones share blocks with others of their context and
//! kind of element, and the driver does not say which.
//!
//! It packs them first fit, so of a kind's blocks at most one is no more than half full: twice the bytes of a kind, in whole
//! blocks, are enough. Which of its blocks are empty again nobody knows, so a kind stays charged for the most that it held
//! until the last of its arrays is gone.

use ledger::KeptErrno;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use budget::array::Array;
use budget::charge::{BLOCK, SUBALLOCATION};
use budget::{Bytes, charge};

use crate::memory::devices_of;
use crate::process::Tenant;

/// The arrays that were charged.
#[derive(Default)]
pub struct Arrays(Mutex<Book>);

#[derive(Default)]
struct Book {
    /// By handle.
    arrays: HashMap<u64, Place>,
    kinds: HashMap<Kind, Held>,
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
    bytes: Bytes,
    charged: Bytes,
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
        let shares = bytes < BLOCK;
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
        held.bytes = held.bytes.saturating_add(place.bytes);
        let wanted = packed(held.bytes).max(held.charged);
        let more = wanted.saturating_sub(held.charged);
        held.charged = wanted;
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
        if held.bytes != Bytes::ZERO {
            return Bytes::ZERO;
        }
        self.kinds
            .remove(&place.kind)
            .map_or(Bytes::ZERO, |held| held.charged)
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

    /// Takes the record of an array out while the driver is asked to destroy it.
    pub fn take_array(self, handle: u64) -> Option<Place> {
        self.arrays(|book| book.arrays.remove(&handle))
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
        let arrays = &self.memory.arrays;
        let arrays = arrays
            .get()
            .unwrap_or_else(|| arrays.set(Arrays::default()));
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
        assert_eq!(charged, [mib(2), mib(0), mib(0), mib(0), mib(2)]);
        let freed: Vec<Bytes> = (0..5).map(|_| book.end(small)).collect();
        assert_eq!(freed, [mib(0), mib(0), mib(0), mib(0), mib(4)]);
        assert_eq!(book.end(large), mib(4));
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
