//! Things that are added and never moved or dropped, found by number without a lock.
//!
//! What the layer knows of a chain must outlive the chain: a handle that its application already destroyed, or never got from
//! us, may still come in, and must not lead to freed memory. An entry is small (next's functions), so keeping it costs little.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A number in an [`Arena`]. Never 0, so that 0 can mean none in an atomic word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id(pub u32);

const FIRST_CHUNK: u32 = 64;
const CHUNKS: usize = 24;

/// One by itself, which is what most programs have, and then chunks of doubling size.
pub struct Arena<T> {
    used: AtomicU32,
    first: OnceLock<T>,
    chunks: [OnceLock<Box<[OnceLock<T>]>>; CHUNKS],
}

impl<T> Arena<T> {
    pub const fn new() -> Arena<T> {
        Arena {
            used: AtomicU32::new(0),
            first: OnceLock::new(),
            chunks: [const { OnceLock::new() }; CHUNKS],
        }
    }

    /// Adds what `make` gives for its number. `None` once hundreds of millions were added.
    pub fn push(&self, make: impl FnOnce(Id) -> T) -> Option<Id> {
        let position = self.used.fetch_add(1, Ordering::Relaxed);
        let Some(beyond) = position.checked_sub(1) else {
            let _first = self.first.set(make(Id(1)));
            return Some(Id(1));
        };
        let (chunk, offset) = place(beyond);
        let Some(chunk_cell) = self.chunks.get(chunk) else {
            self.used.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        let id = Id(position + 1);
        let cells =
            chunk_cell.get_or_init(|| (0..FIRST_CHUNK << chunk).map(|_| OnceLock::new()).collect());
        let _first = cells[offset].set(make(id));
        Some(id)
    }

    #[inline]
    pub fn get(&self, id: Id) -> Option<&T> {
        match id {
            Id(1) => self.first.get(),
            _ => self.get_beyond(id),
        }
    }

    #[inline(never)]
    fn get_beyond(&self, id: Id) -> Option<&T> {
        let (chunk, offset) = place(id.0.checked_sub(2)?);
        self.chunks.get(chunk)?.get()?.get(offset)?.get()
    }
}

/// Chunk `k` holds 64 << k entries.
fn place(position: u32) -> (usize, usize) {
    let chunk = (position / FIRST_CHUNK + 1).ilog2();
    let before = FIRST_CHUNK * ((1 << chunk) - 1);
    (chunk as usize, (position - before) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_number() {
        let arena = Arena::new();
        let ids: Vec<_> = (0..1000_u32)
            .map(|value| arena.push(|id| (id, value)).expect("room"))
            .collect();
        for (value, id) in ids.iter().enumerate() {
            assert_eq!(arena.get(*id), Some(&(*id, value as u32)));
        }
        assert_eq!(arena.get(Id(1001)), None);
        assert_eq!(arena.get(Id(0)), None);
    }

    #[test]
    fn places_are_dense() {
        let mut expected = (0, 0);
        for position in 0..100_000 {
            assert_eq!(place(position), expected);
            expected.1 += 1;
            if expected.1 == (FIRST_CHUNK as usize) << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
    }
}
