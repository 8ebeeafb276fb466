//! Objects that are known by descriptors, and how often one process holds an object.

use std::hash::{BuildHasher, RandomState};
use std::os::fd::RawFd;

use budget::{Bytes, DeviceSet};

use crate::ledger::Ledger;
use crate::objects::{Key, Object};
use crate::region::KeptErrno;
use crate::region::descriptors::{mark, mark_of};

/// What is exported by descriptors: its row, and the name that they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    pub object: Object,
    name: u64,
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
        let descriptor = mark(fd, named.map_or_else(drawn, |named| named.name));
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
        Ok(Named { object, name })
    }
}

/// How often each object is held: the ledger knows a slot once. Under one lock, so that a last and a first hold of two threads do not cross.
#[derive(Default)]
pub struct Holds(Vec<(Key, Object, u32)>);

impl Holds {
    pub const fn new() -> Holds {
        Holds(Vec::new())
    }

    /// Holds what a handle stands for once more. Who has it open is given the same address again, and stays as far from the last that opened it (R122 of
    /// `fixtures/defects.txt`).
    pub fn hold(&mut self, ledger: &Ledger, key: Key) -> Option<Object> {
        let known = self.0.iter_mut().find(|(of, ..)| *of == key);
        if let Some((_, object, count)) = known.filter(|_| !seeds::planted(seeds::Seed::R122)) {
            *count += 1;
            return Some(*object);
        }
        self.hold_anew(ledger, key)
    }

    fn hold_anew(&mut self, ledger: &Ledger, key: Key) -> Option<Object> {
        let object = ledger.hold_object(key)?;
        match self.0.iter_mut().find(|(_, of, _)| *of == object) {
            Some((.., count)) => *count += 1,
            None => self.0.push((key, object, 1)),
        }
        Some(object)
    }

    /// Holds what a descriptor stands for once more, if whoever made it has named it. Each import is a new one.
    pub fn hold_by_descriptor(&mut self, ledger: &Ledger, fd: RawFd) -> Option<Named> {
        let _errno = KeptErrno::keep();
        let name = mark_of(fd)?;
        let object = self.hold_anew(ledger, Key::of_name(name))?;
        Some(Named { object, name })
    }

    pub fn let_go(&mut self, ledger: &Ledger, object: Object) {
        let Some((.., count)) = self.0.iter_mut().find(|(_, of, _)| *of == object) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.0.retain(|(_, of, _)| *of != object);
            ledger.let_go_of_object(object);
        }
    }
}
