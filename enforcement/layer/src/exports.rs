//! Memory that is shared by file descriptors: its charge follows the object, not one of its handles.
//!
//! What is exported gets a row in the ledger, and its descriptors a name by which every process, and CUDA in this one, finds it: whoever imports one
//! holds the row, and so does a descriptor until it is closed.
//!
//! Some descriptors cannot be named (dma-bufs). The charge of such an export is shared between the exporter, each descriptor and whoever imports one
//! here; the last to go gives it back. These are known by number, device and inode, which is all there is: when one is closed unseen, or sent to
//! another process and closed, it leaves at the next look, before a request is refused. Where the ledger has no room for another name, the charge stays
//! until the process ends: a copy of that descriptor would be a way past the budget. What arrives by a descriptor that nobody named and this process
//! did not export is charged as new memory (decision 11: an import that matches nothing is charged).

use std::sync::{Mutex, PoisonError};

use budget::{Bytes, DeviceSet};
use ledger::Named;

use crate::arena::Id;

/// A shared charge. Never 0 as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedId(u32);

impl SharedId {
    pub fn from_word(word: u32) -> Option<SharedId> {
        (word != 0).then_some(SharedId(word))
    }

    pub fn to_word(id: Option<SharedId>) -> u32 {
        id.map_or(0, |id| id.0)
    }
}

/// An open descriptor and the file behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    pub fd: i32,
    pub device: u64,
    pub inode: u64,
}

/// What the last holder gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// The attachment that was charged. A fork child inherits the list but not the charges.
    pub payer: Id,
    pub targets: DeviceSet,
    pub bytes: Bytes,
    pub row: Row,
}

/// What the ledger knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    None,
    /// It was exported here, by descriptors that have a name.
    Named(Named),
    /// It was imported, and its maker's row is held. Nothing is charged for it here.
    Held(Named),
}

struct Shared {
    id: SharedId,
    freed: Freed,
    holders: u32,
}

struct Inner {
    shared: Vec<Shared>,
    open: Vec<(Descriptor, SharedId)>,
    next: u32,
}

pub struct Exports {
    inner: Mutex<Inner>,
}

impl Exports {
    pub const fn new() -> Exports {
        Exports {
            inner: Mutex::new(Inner {
                shared: Vec::new(),
                open: Vec::new(),
                next: 1,
            }),
        }
    }

    /// A memory object's charge becomes shared, with the object itself as its first holder.
    pub fn share(&self, freed: Freed) -> SharedId {
        self.with(|inner| {
            let id = SharedId(inner.next);
            inner.next = inner.next.checked_add(1).unwrap_or(1);
            inner.shared.push(Shared {
                id,
                freed,
                holders: 1,
            });
            id
        })
    }

    /// The ledger knows it from now on.
    pub fn named(&self, id: SharedId, named: Named) {
        self.with(|inner| {
            if let Some(shared) = inner.shared.iter_mut().find(|shared| shared.id == id) {
                shared.freed.row = Row::Named(named);
            }
        });
    }

    /// What its last holder will give back.
    pub fn freed(&self, id: SharedId) -> Option<Freed> {
        self.with(|inner| {
            let found = inner.shared.iter().find(|shared| shared.id == id);
            found.map(|shared| shared.freed)
        })
    }

    /// `descriptor` now holds the object too. A number that was known before must have been closed since.
    pub fn opened(&self, descriptor: Descriptor, id: SharedId) -> Option<Freed> {
        self.with(|inner| {
            let before = inner
                .open
                .iter()
                .position(|(known, _)| known.fd == descriptor.fd);
            let stale = before.map(|position| inner.open.swap_remove(position).1);
            inner.join(id);
            inner.open.push((descriptor, id));
            stale.and_then(|stale| inner.leave(stale))
        })
    }

    /// Something holds the object whose end nobody will see.
    pub fn keep(&self, id: SharedId) {
        self.with(|inner| inner.join(id));
    }

    /// An import is about to take the descriptor over, if it was exported here: its hold is the new object's. Before the driver
    /// is asked, which closes the descriptor: nobody may take it for given up then.
    pub fn taken_over(&self, descriptor: Descriptor) -> Option<(SharedId, Freed)> {
        self.with(|inner| {
            let position = inner
                .open
                .iter()
                .position(|(known, _)| *known == descriptor)?;
            let (_, id) = inner.open.swap_remove(position);
            inner
                .shared
                .iter()
                .find(|shared| shared.id == id)
                .map(|shared| (id, shared.freed))
        })
    }

    /// The import failed: the descriptor is its owner's again, and holds as before.
    pub fn handed_back(&self, descriptor: Descriptor, id: SharedId) {
        self.with(|inner| inner.open.push((descriptor, id)));
    }

    /// One holder is gone; the last one's answer is what to give back.
    pub fn left(&self, id: SharedId) -> Option<Freed> {
        self.with(|inner| inner.leave(id))
    }

    /// Forgets descriptors that are no longer what they were.
    pub fn sweep(&self, look: impl Fn(i32) -> Option<Descriptor>) -> Vec<Freed> {
        self.with(|inner| {
            let (open, closed): (Vec<_>, Vec<_>) = inner
                .open
                .drain(..)
                .partition(|(known, _)| look(known.fd) == Some(*known));
            inner.open = open;
            closed
                .into_iter()
                .filter_map(|(_, id)| inner.leave(id))
                .collect()
        })
    }

    fn with<R>(&self, body: impl FnOnce(&mut Inner) -> R) -> R {
        body(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Inner {
    fn join(&mut self, id: SharedId) {
        if let Some(shared) = self.shared.iter_mut().find(|shared| shared.id == id) {
            shared.holders += 1;
        }
    }

    fn leave(&mut self, id: SharedId) -> Option<Freed> {
        let position = self.shared.iter().position(|shared| shared.id == id)?;
        self.shared[position].holders -= 1;
        (self.shared[position].holders == 0).then(|| self.shared.swap_remove(position).freed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use budget::DeviceIndex;

    const FREED: Freed = Freed {
        payer: Id(1),
        targets: DeviceSet::of(DeviceIndex(0)),
        bytes: Bytes(64),
        row: Row::None,
    };

    fn descriptor(fd: i32) -> Descriptor {
        Descriptor {
            fd,
            device: 1,
            inode: fd as u64,
        }
    }

    #[test]
    fn the_last_of_exporter_and_importer_gives_back() {
        let exports = Exports::new();
        let id = exports.share(FREED);
        assert_eq!(exports.opened(descriptor(5), id), None);
        assert_eq!(exports.taken_over(descriptor(5)), Some((id, FREED)));
        assert_eq!(exports.taken_over(descriptor(5)), None);
        exports.handed_back(descriptor(5), id);
        assert_eq!(exports.taken_over(descriptor(5)), Some((id, FREED)));
        assert_eq!(exports.left(id), None);
        assert_eq!(exports.left(id), Some(FREED));
        assert_eq!(exports.left(id), None);
    }

    #[test]
    fn an_open_descriptor_holds_until_it_is_closed() {
        let exports = Exports::new();
        let id = exports.share(FREED);
        exports.opened(descriptor(5), id);
        assert_eq!(exports.left(id), None);
        assert_eq!(exports.sweep(|fd| Some(descriptor(fd))), []);
        assert_eq!(exports.sweep(|_| None), [FREED]);
    }

    #[test]
    fn a_number_given_again_is_another_descriptor() {
        let exports = Exports::new();
        let (first, second) = (exports.share(FREED), exports.share(FREED));
        exports.opened(descriptor(5), first);
        assert_eq!(exports.left(first), None);
        assert_eq!(exports.opened(descriptor(5), second), Some(FREED));
        assert_eq!(
            exports.taken_over(Descriptor {
                inode: 99,
                ..descriptor(5)
            }),
            None
        );
    }
}
