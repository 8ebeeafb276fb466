//! Device memory that several processes, and several APIs of one process, may hold: what an IPC handle, an exported
//! descriptor or an imported one stands for.
//!
//! An object is counted on its device from [`World::new_object`] (or [`World::share`], for memory that the process had
//! taken before) until the last [`Object`] of any process is dropped or its process dead, and the last descriptor that
//! [`Object::export`] gave is closed, in whatever process (decision 11). Its contents are a sparse file, to be mapped
//! from [`Object::file`]; a hole in it reads as zero and costs nothing.
//!
//! What it is not: it knows no handle type of any API, and does not say who may open what.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use crate::holds::{self, Claim, Facts};
use crate::memory::{Kind, OutOfDeviceMemory};
use crate::os;
use crate::units::{Bytes, DeviceIndex};
use crate::world::World;

/// What an object is called in all processes of its world. Never used twice there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(pub u64);

/// An object that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error(transparent)]
    OutOfMemory(#[from] OutOfDeviceMemory),
    /// Nobody holds it any more, or nobody ever did.
    #[error("there is no object {}", .0.0)]
    Gone(ObjectId),
    /// A descriptor of something else.
    #[error("descriptor {0} is not an object of this world")]
    Foreign(i32),
    #[error("the world has no room for another object or holder")]
    Full,
    #[error("the contents of an object: {0}")]
    Io(#[from] io::Error),
}

/// Where an object's first bytes are from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The device's free memory.
    Fresh,
    /// The maker's row.
    Taken,
    /// It has none yet: `store.rs`.
    Store,
}

/// One hold of this process on an object.
#[derive(Debug)]
pub struct Object<'w> {
    pub(crate) world: &'w World,
    pub(crate) facts: Facts,
    /// Row and generation: a fork child finds its parent's object here, and holds nothing.
    pub(crate) claim: Claim,
    file: File,
}

impl World {
    /// New memory on a device, counted until nobody holds it.
    ///
    /// # Errors
    /// The device is full, the books are, or the contents cannot be made.
    pub fn new_object(
        &self,
        dev: DeviceIndex,
        kind: Kind,
        size: Bytes,
    ) -> Result<Object<'_>, ObjectError> {
        match self.make(dev, kind, size, Origin::Fresh) {
            Err(ObjectError::OutOfMemory(_)) => {
                self.accounts.sweep(true);
                self.make(dev, kind, size, Origin::Fresh)
            }
            other => other,
        }
    }

    /// Memory that this process took of a device, and gives back from here on by dropping what it gets.
    ///
    /// # Errors
    /// As [`World::new_object`]; the memory is as it was then.
    pub fn share(
        &self,
        dev: DeviceIndex,
        kind: Kind,
        size: Bytes,
    ) -> Result<Object<'_>, ObjectError> {
        self.make(dev, kind, size, Origin::Taken)
    }

    /// The object of that name.
    ///
    /// # Errors
    /// Nobody holds it any more.
    pub fn open_object(&self, id: ObjectId) -> Result<Object<'_>, ObjectError> {
        let gone = ObjectError::Gone(id);
        // A private world's contents have no name: another library of the process reaches them by descriptor alone.
        let path = match &self.accounts.place {
            Some(place) => holds::path_of(place, id.0),
            None => self.own_descriptor(id).ok_or(gone)?,
        };
        let held = self.hold_by(|region| holds::find(region, id.0).map(Facts::read));
        let (facts, claim) = held?.ok_or(ObjectError::Gone(id))?;
        let release = |error| {
            self.end_hold(claim, facts.id);
            ObjectError::Io(error)
        };
        let file = os::open(&path).map_err(release)?;
        Ok(Object {
            world: self,
            facts,
            claim,
            file,
        })
    }

    /// The object that a descriptor from [`Object::export`] stands for. The descriptor stays the caller's.
    ///
    /// # Errors
    /// It stands for none.
    pub fn import_object(&self, descriptor: BorrowedFd<'_>) -> Result<Object<'_>, ObjectError> {
        let number = descriptor.as_raw_fd();
        let path = format!("/proc/self/fd/{number}");
        let meta = std::fs::metadata(&path).map_err(|_| ObjectError::Foreign(number))?;
        let (device, inode) = (meta.dev(), meta.ino());
        let held =
            self.hold_by(|region| holds::find_by_file(region, device, inode).map(Facts::read))?;
        let (facts, claim) = held.ok_or(ObjectError::Foreign(number))?;
        let release = |error| {
            self.end_hold(claim, facts.id);
            ObjectError::Io(error)
        };
        // A description of its own, without the export's lock.
        let file = os::open(Path::new(&path)).map_err(release)?;
        Ok(Object {
            world: self,
            facts,
            claim,
            file,
        })
    }

    pub(crate) fn make(
        &self,
        dev: DeviceIndex,
        kind: Kind,
        size: Bytes,
        origin: Origin,
    ) -> Result<Object<'_>, ObjectError> {
        let region = &self.accounts.region;
        let place = self.accounts.place.as_ref();
        let id = region.header().objects_made.fetch_add(1, Relaxed) + 1;
        let file = holds::contents_file(place, id, size.0)?;
        let meta = file.metadata()?;
        let facts = Facts {
            id,
            device: dev.as_usize(),
            kind,
            size: size.0,
            is_store: origin == Origin::Store,
            file: (meta.dev(), meta.ino()),
        };
        let entered = self.enter_object(dev, &facts, origin);
        match entered {
            Ok(claim) => Ok(Object {
                world: self,
                facts,
                claim,
                file,
            }),
            Err(error) => {
                if let Some(place) = place {
                    let _ = std::fs::remove_file(holds::path_of(place, id));
                }
                Err(error)
            }
        }
    }

    fn enter_object(
        &self,
        dev: DeviceIndex,
        facts: &Facts,
        origin: Origin,
    ) -> Result<Claim, ObjectError> {
        let row = self.accounts.own_row().ok_or(ObjectError::Full)?;
        let holder = self.accounts.own_place().ok_or(ObjectError::Full)?;
        let region = &self.accounts.region;
        let _guard = region.lock();
        let total = &region.totals()[facts.device];
        let (used, capacity) = (total.used.load(Relaxed), total.capacity.load(Relaxed));
        if origin == Origin::Taken {
            // Out of the row first: a kill in between forgets bytes of a dead process, and never counts them twice.
            let cell = &row.bytes[facts.device][facts.kind as usize];
            let held = cell.load(Relaxed);
            if held < facts.size {
                return Err(ObjectError::OutOfMemory(OutOfDeviceMemory {
                    device: dev,
                    asked: Bytes(facts.size),
                    free: Bytes(held),
                }));
            }
            cell.store(held - facts.size, Relaxed);
            return holds::enter(region, holder, facts).ok_or_else(|| {
                cell.store(held, Relaxed);
                ObjectError::Full
            });
        }
        let sum = used.checked_add(facts.size).filter(|sum| *sum <= capacity);
        let Some(sum) = sum else {
            return Err(ObjectError::OutOfMemory(OutOfDeviceMemory {
                device: dev,
                asked: Bytes(facts.size),
                free: Bytes(capacity.saturating_sub(used)),
            }));
        };
        let claim = holds::enter(region, holder, facts).ok_or(ObjectError::Full)?;
        total.used.store(sum, Relaxed);
        total.peak.fetch_max(sum, Relaxed);
        Ok(claim)
    }

    /// A hold of this process on what `find` finds in the books.
    fn hold_by(
        &self,
        find: impl FnOnce(&crate::region::Region) -> Option<Facts>,
    ) -> Result<Option<(Facts, Claim)>, ObjectError> {
        let holder = self.accounts.own_place().ok_or(ObjectError::Full)?;
        let region = &self.accounts.region;
        let _guard = region.lock();
        let Some(facts) = find(region) else {
            return Ok(None);
        };
        let claim = holds::hold(region, holder, facts.id).ok_or(ObjectError::Full)?;
        Ok(Some((facts, claim)))
    }

    fn end_hold(&self, claim: Claim, id: u64) {
        let region = &self.accounts.region;
        let _guard = region.lock();
        holds::release(region, claim, id);
        holds::bury_unheld(region, self.accounts.place.as_ref());
    }

    /// Among this process's descriptors, one of the object's contents.
    fn own_descriptor(&self, id: ObjectId) -> Option<std::path::PathBuf> {
        let facts = holds::find(&self.accounts.region, id.0).map(Facts::read)?;
        let mut descriptors = std::fs::read_dir("/proc/self/fd").ok()?.flatten();
        let same = |path: &Path| {
            std::fs::metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == facts.file)
        };
        let found = descriptors.find(|entry| same(&entry.path()))?;
        Some(found.path())
    }
}

impl<'w> Object<'w> {
    #[must_use]
    pub fn id(&self) -> ObjectId {
        ObjectId(self.facts.id)
    }

    #[must_use]
    pub fn device(&self) -> DeviceIndex {
        DeviceIndex(self.facts.device as u32)
    }

    #[must_use]
    pub fn kind(&self) -> Kind {
        self.facts.kind
    }

    /// Of a store: when this hold on it began.
    #[must_use]
    pub fn size(&self) -> Bytes {
        Bytes(self.facts.size)
    }

    /// The contents, from offset 0, as long as the object. Closed with the hold; a mapping of it may outlive it.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// A descriptor for other processes and APIs: the object lives as long as it, or any copy of it, is open.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn export(&self) -> io::Result<OwnedFd> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let file = os::open(Path::new(&own))?;
        holds::mark_exported(&file);
        Ok(file.into())
    }

    /// A second hold of this process.
    ///
    /// # Errors
    /// The books are full, or the process has no descriptor left.
    pub fn again(&self) -> Result<Object<'w>, ObjectError> {
        let held = self
            .world
            .hold_by(|region| holds::find(region, self.facts.id).map(Facts::read))?;
        let (facts, claim) = held.ok_or(ObjectError::Gone(self.id()))?;
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        match os::open(Path::new(&own)) {
            Ok(file) => Ok(Object {
                world: self.world,
                facts,
                claim,
                file,
            }),
            Err(error) => {
                self.world.end_hold(claim, facts.id);
                Err(error.into())
            }
        }
    }
}

impl Drop for Object<'_> {
    fn drop(&mut self) {
        // What a fork child has of its parent's objects is not its own to end.
        if self.world.accounts.known_place() == Some(self.claim.holder) {
            self.world.end_hold(self.claim, self.facts.id);
        }
    }
}
