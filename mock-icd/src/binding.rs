//! The memory behind a buffer or an image: one piece for all of it, or pages that a queue binds one by one. What is bound
//! to nothing reads as zeros and forgets what is written, as residencyNonResidentStrict promises.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::memory::Memory;

/// A device of the logical device's group, by its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member(pub u32);

impl Member {
    pub const FIRST: Self = Self(0);

    /// The members of a device mask.
    pub fn of_mask(mask: u32) -> impl Iterator<Item = Self> {
        (0..32).filter(move |bit| mask >> bit & 1 != 0).map(Self)
    }
}

/// Memory that may be freed before what is bound to it, and where in it the resource begins.
#[derive(Clone)]
pub struct Piece {
    pub memory: Weak<Memory>,
    pub offset: u64,
    /// Which member's instance of the memory each member uses; its own, where the list is empty.
    pub instances: Vec<u32>,
}

impl Piece {
    pub fn new(memory: &Arc<Memory>, offset: u64) -> Self {
        Self {
            memory: Arc::downgrade(memory),
            offset,
            instances: Vec::new(),
        }
    }

    fn instance(&self, on: Member) -> Member {
        self.instances
            .get(on.0 as usize)
            .map_or(on, |instance| Member(*instance))
    }
}

#[derive(Default)]
enum Bound {
    #[default]
    Nothing,
    Whole(Piece),
    /// By where they begin in the resource, with their length. They never overlap.
    Pages(BTreeMap<u64, (u64, Piece)>),
}

#[derive(Default)]
pub struct Binding(Mutex<Bound>);

/// A part of a range that lies in one memory object.
struct Part {
    /// From the range's start.
    at: u64,
    length: u64,
    memory: Arc<Memory>,
    offset: u64,
    instance: Member,
}

impl Binding {
    fn lock(&self) -> MutexGuard<'_, Bound> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn bind(&self, piece: Piece) {
        *self.lock() = Bound::Whole(piece);
    }

    /// Binds a range of the resource, or unbinds it.
    pub fn bind_pages(&self, at: u64, length: u64, piece: Option<Piece>) {
        let mut bound = self.lock();
        if !matches!(*bound, Bound::Pages(_)) {
            *bound = Bound::Pages(BTreeMap::new());
        }
        let Bound::Pages(pages) = &mut *bound else {
            return;
        };
        let end = at.saturating_add(length);
        let overlapping: Vec<u64> = pages
            .range(..end)
            .rev()
            .take_while(|(start, (length, _))| **start + length > at)
            .map(|(start, _)| *start)
            .collect();
        for start in overlapping {
            let Some((old, piece)) = pages.remove(&start) else {
                continue;
            };
            if start < at {
                pages.insert(start, (at - start, piece.clone()));
            }
            if start + old > end {
                let mut rest = piece;
                rest.offset += end - start;
                pages.insert(end, (start + old - end, rest));
            }
        }
        if let Some(piece) = piece {
            pages.insert(at, (length, piece));
        }
    }

    /// The memory at the resource's start, and where in it.
    pub fn first(&self) -> Option<(Arc<Memory>, u64)> {
        match &*self.lock() {
            Bound::Whole(piece) => Some((piece.memory.upgrade()?, piece.offset)),
            Bound::Nothing | Bound::Pages(_) => None,
        }
    }

    fn parts(&self, on: Member, at: u64, length: u64) -> Vec<Part> {
        let part = |piece: &Piece, begins: u64, from: u64, to: u64| {
            Some(Part {
                at: from - at,
                length: to - from,
                memory: piece.memory.upgrade()?,
                offset: piece.offset.checked_add(from - begins)?,
                instance: piece.instance(on),
            })
        };
        let end = at.saturating_add(length);
        match &*self.lock() {
            Bound::Nothing => Vec::new(),
            Bound::Whole(piece) => part(piece, 0, at, end).into_iter().collect(),
            Bound::Pages(pages) => {
                let mut parts: Vec<Part> = pages
                    .range(..end)
                    .rev()
                    .take_while(|(start, (length, _))| **start + length > at)
                    .filter_map(|(start, (length, piece))| {
                        part(piece, *start, at.max(*start), end.min(start + length))
                    })
                    .collect();
                parts.reverse();
                parts
            }
        }
    }

    pub fn read(&self, on: Member, at: u64, bytes: &mut [u8]) {
        bytes.fill(0);
        for part in self.parts(on, at, bytes.len() as u64) {
            let (start, length) = (index(part.at), index(part.length));
            if let Some(contents) = part.memory.contents(part.instance) {
                contents.read(part.offset, &mut bytes[start..start + length]);
            }
        }
    }

    pub fn write(&self, on: Member, at: u64, bytes: &[u8]) {
        for part in self.parts(on, at, bytes.len() as u64) {
            let Some(contents) = part.memory.contents(part.instance) else {
                continue;
            };
            for (from, length) in part.memory.touched.admit(part.offset, part.length) {
                let start = index(part.at + from);
                contents.write(part.offset + from, &bytes[start..start + index(length)]);
            }
        }
    }

    /// Repeats the four bytes of a word.
    pub fn fill(&self, on: Member, at: u64, length: u64, word: u32) {
        for part in self.parts(on, at, length) {
            let Some(contents) = part.memory.contents(part.instance) else {
                continue;
            };
            for (from, length) in part.memory.touched.admit(part.offset, part.length) {
                contents.fill(part.offset + from, length, word);
            }
        }
    }

    pub fn copy_from(&self, on: Member, at: u64, source: &Self, source_at: u64, length: u64) {
        let (to, from) = (
            self.parts(on, at, length),
            source.parts(on, source_at, length),
        );
        if let ([to], [from]) = (&to[..], &from[..])
            && to.length == length
            && from.length == length
        {
            let (Some(contents), Some(source)) = (
                to.memory.contents(to.instance),
                from.memory.contents(from.instance),
            ) else {
                return;
            };
            for (part, length) in to.memory.touched.admit(to.offset, length) {
                contents.copy_from(to.offset + part, source, from.offset + part, length);
            }
            return;
        }
        // Through the host, piece by piece: what is bound nowhere reads as zeros.
        const STEP: u64 = 1 << 20;
        let mut done = 0;
        while done < length {
            let step = STEP.min(length - done);
            let mut bytes = vec![0; index(step)];
            source.read(on, source_at + done, &mut bytes);
            self.write(on, at + done, &bytes);
            done += step;
        }
    }
}

/// Ranges here were cut from slices, or to at most [`Binding::copy_from`]'s step.
fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(binding: &Binding) -> Vec<(u64, u64, u64)> {
        match &*binding.lock() {
            Bound::Pages(pages) => pages
                .iter()
                .map(|(at, (length, piece))| (*at, *length, piece.offset))
                .collect(),
            _ => Vec::new(),
        }
    }

    fn piece(offset: u64) -> Option<Piece> {
        Some(Piece {
            memory: Weak::new(),
            offset,
            instances: Vec::new(),
        })
    }

    #[test]
    fn a_later_page_takes_the_place_of_earlier_ones() {
        let binding = Binding::default();
        binding.bind_pages(0, 100, piece(1000));
        binding.bind_pages(40, 20, piece(5000));
        assert_eq!(
            starts(&binding),
            [(0, 40, 1000), (40, 20, 5000), (60, 40, 1060)]
        );
        binding.bind_pages(30, 40, None);
        assert_eq!(starts(&binding), [(0, 30, 1000), (70, 30, 1070)]);
        binding.bind_pages(0, 200, piece(0));
        assert_eq!(starts(&binding), [(0, 200, 0)]);
    }

    #[test]
    fn what_is_bound_nowhere_reads_as_zeros() {
        let mut bytes = [7; 16];
        Binding::default().read(Member::FIRST, 3, &mut bytes);
        assert_eq!(bytes, [0; 16]);
    }
}
