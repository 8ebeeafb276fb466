//! An object that grows: its maker puts memory into it that it had taken, and takes none out again. What is in it is counted
//! until nobody holds the object, like any other's; only its maker's row ever names it, and only as much as that one says.
//!
//! It is what a stream-ordered pool shares. What it is not: it does not know which of its bytes are in it.

use std::sync::atomic::Ordering::Relaxed;

use crate::holds;
use crate::memory::{Kind, OutOfDeviceMemory};
use crate::object::{Object, ObjectError, Origin};
use crate::region::ObjectEntry;
use crate::units::{Bytes, DeviceIndex};
use crate::world::World;

impl World {
    /// A store with nothing in it. Its contents have no length either: its maker gives them one.
    ///
    /// # Errors
    /// The books are full, or the contents cannot be made.
    pub fn new_store(&self, dev: DeviceIndex, kind: Kind) -> Result<Object<'_>, ObjectError> {
        self.make(dev, kind, Bytes::ZERO, Origin::Store)
    }
}

impl Object<'_> {
    #[must_use]
    pub fn is_store(&self) -> bool {
        self.facts.is_store
    }

    /// Puts memory into the store that this process, its maker, had taken. Its row shows it as before.
    ///
    /// # Errors
    /// The process holds less than that; nothing has changed then.
    pub fn put(&self, bytes: Bytes) -> Result<(), ObjectError> {
        let accounts = &self.world.accounts;
        let row = accounts.own_row().ok_or(ObjectError::Full)?;
        let _guard = accounts.region.lock();
        let entry = self.entry().ok_or(ObjectError::Gone(self.id()))?;
        let cell = &row.bytes[self.facts.device][self.facts.kind as usize];
        let held = cell.load(Relaxed);
        let Some(left) = held.checked_sub(bytes.0) else {
            return Err(ObjectError::OutOfMemory(OutOfDeviceMemory {
                device: self.device(),
                asked: bytes,
                free: Bytes(held),
            }));
        };
        // Out of the row first, as where memory becomes an object.
        cell.store(left, Relaxed);
        entry.size.fetch_add(bytes.0, Relaxed);
        entry.shown.fetch_add(bytes.0, Relaxed);
        Ok(())
    }

    /// So much of the store is in its maker's row from here on.
    pub fn show(&self, bytes: Bytes) {
        // A fork child's copy is not the maker's.
        if self.world.accounts.known_place() != Some(self.claim.holder) {
            return;
        }
        let _guard = self.world.accounts.region.lock();
        if let Some(entry) = self.entry() {
            let size = entry.size.load(Relaxed);
            entry.shown.store(bytes.0.min(size), Relaxed);
        }
    }

    /// With the world's mutex held.
    fn entry(&self) -> Option<&ObjectEntry> {
        holds::find(&self.world.accounts.region, self.facts.id)
    }
}
