//! Objects that are known by descriptors, and how often one process holds an object.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::RawFd;

use budget::{Bytes, DeviceSet};

use crate::ledger::Ledger;
use crate::objects::{Key, Object, Recent};
use crate::region::KeptErrno;
use crate::region::descriptors::{mark, mark_of, size_of};

/// What is exported by descriptors: its row, and the name that they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    pub object: Object,
    name: u64,
    /// How large it is, where that is told.
    bytes: Bytes,
}

/// Why a descriptor has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unnamed {
    /// The kernel or the file allows none.
    Impossible,
    /// The ledger has no room for another object.
    NoRoom,
    /// This process has no descriptor left to look at it with, so that its end would be nobody's to see (R48a of `fixtures/defects.txt`).
    NoDescriptor,
}

impl Key {
    fn of_name(name: u64) -> Key {
        Key([name, u64::from_le_bytes(*b"ringdesc")])
    }
}

impl Ledger {
    /// Names a descriptor of something that this slot is charged for, as its others are if it has `named` ones: whoever imports it knows it, and
    /// its end is seen.
    pub fn name_by_descriptor(
        &self,
        fd: RawFd,
        named: Option<Named>,
        devices: DeviceSet,
        bytes: Bytes,
    ) -> Result<Named, Unnamed> {
        let _errno = KeptErrno::keep();
        // A number that nobody else draws.
        let drawn = || RandomState::new().hash_one(std::process::id());
        let (name, size) =
            named.map_or_else(|| (drawn(), bytes), |named| (named.name, named.bytes));
        let size = match seeds::planted(seeds::Seed::R34e) {
            true => Bytes::ZERO,
            false => size,
        };
        let descriptor = mark(fd, name, size);
        let descriptor = descriptor.map_err(|unnamed| match seeds::planted(seeds::Seed::R48a) {
            true => Unnamed::Impossible,
            false => unnamed,
        })?;
        if let Some(named) = named {
            return Ok(named);
        }
        let name = descriptor.name;
        let object = self.name_object(Key::of_name(name), devices, bytes, Some(&descriptor));
        let object = object.ok_or(Unnamed::NoRoom)?;
        Ok(Named {
            object,
            name,
            bytes,
        })
    }
}

/// How large what another tenant made and exported by a descriptor is, of which this ledger knows nothing: in whole blocks. `None` where no ledger knows it.
pub fn size_by_descriptor(fd: RawFd) -> Option<Bytes> {
    let _errno = KeptErrno::keep();
    size_of(fd)
}

/// What this process has open of each object: the ledger knows a slot once. Under one lock, so that a last and a first opening of two threads do not cross.
#[derive(Default)]
pub struct Holds {
    held: Vec<Held>,
    openings: u32,
}

struct Held {
    key: Key,
    object: Object,
    /// The oldest first.
    openings: Vec<Opening>,
}

struct Opening {
    number: u32,
    /// Of a handle who has it open is given the same address again.
    count: u32,
    /// Those whom it went before.
    before: Option<Recent>,
}

impl Holds {
    pub const fn new() -> Holds {
        Holds {
            held: Vec::new(),
            openings: 0,
        }
    }

    /// Holds what a handle stands for once more. Who has it open stays as far from the last that opened it (R122 of `fixtures/defects.txt`).
    pub fn hold(&mut self, ledger: &Ledger, key: Key) -> Option<Object> {
        let known = self.held.iter_mut().find(|held| held.key == key);
        if let Some(held) = known.filter(|_| !seeds::planted(seeds::Seed::R122)) {
            let opening = held.openings.last_mut()?;
            opening.count += 1;
            return Some(held.object.as_opening(opening.number));
        }
        self.hold_anew(ledger, key)
    }

    fn hold_anew(&mut self, ledger: &Ledger, key: Key) -> Option<Object> {
        let (object, before) = ledger.open_object(key)?;
        self.openings = self.openings.wrapping_add(1).max(1);
        let opening = Opening {
            number: self.openings,
            count: 1,
            before,
        };
        match self
            .held
            .iter_mut()
            .find(|held| held.object.is_same(object))
        {
            Some(held) => held.openings.push(opening),
            None => self.held.push(Held {
                key,
                object,
                openings: vec![opening],
            }),
        }
        Some(object.as_opening(self.openings))
    }

    /// Holds what a descriptor stands for once more, if whoever made it has named it. Each import is a new one.
    pub fn hold_by_descriptor(&mut self, ledger: &Ledger, fd: RawFd) -> Option<Named> {
        let _errno = KeptErrno::keep();
        let name = mark_of(fd)?;
        let object = self.hold_anew(ledger, Key::of_name(name))?;
        let bytes = size_of(fd).unwrap_or_default();
        Some(Named {
            object,
            name,
            bytes,
        })
    }

    /// The end of what one of these began. Where it was the process's last opening of the object, and not its only one, those that came before it are last again,
    /// whoever's they are (R125).
    pub fn let_go(&mut self, ledger: &Ledger, object: Object) {
        let Some(at) = self
            .held
            .iter()
            .position(|held| held.object.is_same(object))
        else {
            return;
        };
        let openings = &mut self.held[at].openings;
        let number = object.opening();
        let Some(place) = openings.iter().position(|opening| opening.number == number) else {
            return;
        };
        openings[place].count -= 1;
        if openings[place].count > 0 {
            return;
        }
        let ended = openings.remove(place);
        if openings.is_empty() {
            self.held.remove(at);
            ledger.let_go_of_object(object);
            return;
        }
        match (openings.get_mut(place), ended.before) {
            // Whom that one went before has the next one before it.
            (Some(next), Some(before)) => next.before = Some(before),
            (None, Some(before)) if !seeds::planted(seeds::Seed::R125) => {
                ledger.step_back_from(object, before);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(opened: &[usize]) -> Recent {
        opened
            .iter()
            .fold(Recent::default(), |recent, slot| recent.opened_by(*slot))
    }

    fn order(recent: Recent) -> Vec<usize> {
        recent.slots().collect()
    }

    #[test]
    fn who_steps_back_is_where_it_would_be_without_its_last_opening() {
        for (opened, later, since) in [
            (&[1, 2][..], 1, &[][..]),
            (&[1, 2], 1, &[3]),
            (&[3, 1, 2], 1, &[]),
            (&[3, 1, 2], 1, &[3]),
            (&[1, 2, 3, 4], 1, &[]),
            (&[1, 2, 3, 4], 2, &[1]),
            (&[5], 5, &[6]),
        ] {
            let before = after(opened);
            let with = since.iter().fold(before.opened_by(later), |recent, slot| {
                recent.opened_by(*slot)
            });
            let without = since
                .iter()
                .fold(before, |recent, slot| recent.opened_by(*slot));
            assert_eq!(
                order(with.stepped_back(later, before)),
                order(without),
                "{opened:?} {later} {since:?}"
            );
        }
        // Who was put out by four others is behind them.
        let before = after(&[1, 2, 3, 4, 5]);
        let now = before.opened_by(1).stepped_back(1, before);
        assert_eq!(order(now), [5, 4, 3, 1]);
    }
}
