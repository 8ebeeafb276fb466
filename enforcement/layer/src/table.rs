//! From a dispatch key to what the layer knows of that instance or device, without a lock.
//!
//! A key is the loader's dispatch pointer, the first word of every dispatchable handle. Keys recur (17 of 20 cycles, decision 28):
//! a slot once given to a key stays with it, its entry is replaced at creation and taken out at destruction. What then comes under the key again is, as a
//! rule, just like what was there lately: it gets that entry, so that programs which make and destroy devices for years do not grow.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use seeds::{Seed, planted};

use crate::arena::{Arena, Id};

/// The first word of a dispatchable handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub usize);

struct Slot {
    /// 0 until a key takes the slot, for good.
    key: AtomicUsize,
    /// An [`Id`], or 0 while no such object lives.
    entry: AtomicU32,
    /// Those of the last that lived, the latest first, or 0.
    gone: [AtomicU32; KINDS],
}

/// Of so many kinds of object under one key, made in turn, each gets its entry again.
const KINDS: usize = 4;

const FIRST_SEGMENT: usize = 256;
const SEGMENTS: usize = 20;
const WINDOW: usize = 8;

pub struct Table<T: 'static> {
    entries: Arena<T>,
    segments: [OnceLock<Box<[Slot]>>; SEGMENTS],
}

impl<T> Table<T> {
    pub const fn new() -> Table<T> {
        Table {
            entries: Arena::new(),
            segments: [const { OnceLock::new() }; SEGMENTS],
        }
    }

    /// Registers what `make` makes of `new` under `key`, in place of whatever was there; or one of the last that were there, if it is gone and `revive` says that
    /// it is `new` again.
    pub fn insert<N>(
        &self,
        key: Key,
        new: N,
        revive: impl Fn(&T, &N) -> bool,
        make: impl FnOnce(Id, N) -> T,
    ) -> Option<&T> {
        let slot = self.take_slot(key)?;
        let revived = slot.gone.iter().find_map(|gone| {
            // Two that register under one key at once do not both get it.
            let last = Id(gone.swap(0, Ordering::AcqRel));
            let entry = self.entries.get(last)?;
            if revive(entry, &new) && !planted(Seed::V29) {
                return Some(last);
            }
            gone.store(last.0, Ordering::Release);
            None
        });
        let id = match revived {
            Some(last) => last,
            None => self.entries.push(|id| make(id, new))?,
        };
        slot.entry.store(id.0, Ordering::Release);
        self.entries.get(id)
    }

    #[inline]
    pub fn get(&self, key: Key) -> Option<&T> {
        let slot = match self.first_slot(key) {
            Some(slot) => slot,
            None => self.slot(key)?,
        };
        self.entries.get(Id(slot.entry.load(Ordering::Acquire)))
    }

    /// The key's slot if it is the first that it could be.
    #[inline]
    fn first_slot(&self, key: Key) -> Option<&Slot> {
        let slots = self.segments[0].get()?;
        let slot = &slots[hash(key.0 as u64) as usize & (slots.len() - 1)];
        (slot.key.load(Ordering::Acquire) == key.0 && key.0 != 0).then_some(slot)
    }

    /// What was registered under a number, gone or not.
    pub fn of_id(&self, id: Id) -> Option<&T> {
        self.entries.get(id)
    }

    /// The object is gone; its key may come again for another.
    pub fn remove(&self, key: Key) -> Option<&T> {
        let slot = self.slot(key)?;
        let id = slot.entry.swap(0, Ordering::AcqRel);
        let entry = self.entries.get(Id(id));
        if entry.is_some() {
            // The place of one that came again, or that of the oldest.
            let mut latest = id;
            for gone in &slot.gone {
                latest = gone.swap(latest, Ordering::AcqRel);
                if latest == 0 {
                    break;
                }
            }
        }
        entry
    }

    /// Some living entry, for a handle that was never registered.
    #[cold]
    pub fn any(&self) -> Option<&T> {
        self.living().next()
    }

    pub fn living(&self) -> impl Iterator<Item = &T> {
        self.segments
            .iter()
            .map_while(OnceLock::get)
            .flat_map(|slots| slots.iter())
            .filter_map(|slot| self.entries.get(Id(slot.entry.load(Ordering::Acquire))))
    }

    #[inline(never)]
    fn slot(&self, key: Key) -> Option<&Slot> {
        for segment in &self.segments {
            let slots = segment.get()?;
            for slot in window(slots, key) {
                match slot.key.load(Ordering::Acquire) {
                    found if found == key.0 && key.0 != 0 => return Some(slot),
                    // Slots of a window fill in order and are never vacated.
                    0 => return None,
                    _ => {}
                }
            }
        }
        None
    }

    fn take_slot(&self, key: Key) -> Option<&Slot> {
        if key.0 == 0 {
            return None;
        }
        for (number, segment) in self.segments.iter().enumerate() {
            let slots = segment.get_or_init(|| {
                (0..FIRST_SEGMENT << number)
                    .map(|_| Slot::empty())
                    .collect()
            });
            for slot in window(slots, key) {
                match slot
                    .key
                    .compare_exchange(0, key.0, Ordering::AcqRel, Ordering::Acquire)
                {
                    Ok(_) => return Some(slot),
                    Err(found) if found == key.0 => return Some(slot),
                    Err(_) => {}
                }
            }
        }
        None
    }
}

impl Slot {
    fn empty() -> Slot {
        Slot {
            key: AtomicUsize::new(0),
            entry: AtomicU32::new(0),
            gone: [const { AtomicU32::new(0) }; KINDS],
        }
    }
}

fn window(slots: &[Slot], key: Key) -> impl Iterator<Item = &Slot> {
    let start = hash(key.0 as u64) as usize;
    (0..WINDOW).map(move |step| &slots[(start + step) & (slots.len() - 1)])
}

/// Spreads addresses, whose low bits are all alike, over all bits.
#[inline]
pub fn hash(word: u64) -> u64 {
    let product = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ (product >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert<T>(table: &Table<T>, key: Key, value: T) {
        let made = table.insert(key, value, |_, _| false, |_, value| value);
        assert!(made.is_some());
    }

    #[test]
    fn a_recurring_key_finds_the_newest_entry() {
        let table = Table::new();
        for round in 0..100 {
            insert(&table, Key(0x1000), round);
            assert_eq!(table.get(Key(0x1000)), Some(&round));
            assert_eq!(table.remove(Key(0x1000)), Some(&round));
            assert_eq!(table.get(Key(0x1000)), None);
            assert_eq!(table.remove(Key(0x1000)), None);
        }
    }

    #[test]
    fn the_same_again_gets_its_entry_again() {
        let table = Table::new();
        let insert = |value| {
            let found = table.insert(
                Key(8),
                value,
                |last: &(Id, char), new| last.1 == *new,
                |id, new| (id, new),
            );
            *found.expect("room")
        };
        assert_eq!(
            (insert('a'), insert('a')),
            ((Id(1), 'a'), (Id(2), 'a')),
            "the first still lives"
        );
        table.remove(Key(8));
        assert_eq!(insert('a'), (Id(2), 'a'));
        table.remove(Key(8));
        assert_eq!(insert('b'), (Id(3), 'b'));
        for round in 0..20 {
            table.remove(Key(8));
            let next = ['a', 'b', 'c', 'd'][round % 4];
            let id = [2, 3, 4, 5][round % 4];
            assert_eq!(insert(next), (Id(id), next), "{round}");
        }
    }

    #[test]
    fn many_keys_stay_apart() {
        let table = Table::new();
        for key in 1..5000_usize {
            insert(&table, Key(key * 16), key);
        }
        for key in 1..5000_usize {
            assert_eq!(table.get(Key(key * 16)), Some(&key));
        }
        assert_eq!(table.get(Key(16 * 5000)), None);
        assert_eq!(table.get(Key(0)), None);
    }

    #[test]
    fn any_is_a_living_entry() {
        let table = Table::new();
        assert_eq!(table.any(), None);
        insert(&table, Key(8), 'a');
        insert(&table, Key(16), 'b');
        table.remove(Key(8));
        assert_eq!(table.any(), Some(&'b'));
    }

    #[test]
    fn threads_register_their_own_keys() {
        let table = Table::new();
        std::thread::scope(|scope| {
            for thread in 1..=4_usize {
                let table = &table;
                scope.spawn(move || {
                    for round in 0..2000_usize {
                        let key = Key((thread << 20) + (round % 37) * 64);
                        insert(table, key, (thread, round));
                        assert_eq!(table.get(key), Some(&(thread, round)));
                        table.remove(key);
                    }
                });
            }
        });
        assert_eq!(table.any(), None);
    }
}
