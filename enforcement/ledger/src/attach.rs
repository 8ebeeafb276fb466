//! Getting a slot: create or open the file, check it, take a free byte, and make sure that the lock on it lives as long as we do.

use seeds::{Seed, planted};

use crate::account::Account;
use crate::displaced::{self, Place};
use crate::errors::{AttachError, Reason};
use crate::probe::Probe;
use crate::reap::{DRAIN_MOST_MS, DRAIN_MS, Reaper, heirs_byte};
use crate::region::{
    self, Arena, Attaching, Errno, HEIRS, Identity, Inheritance, KeptErrno, Layout, Map,
};
use crate::seen;
use crate::word::Budget;
use crate::{Authority, Bytes, Disagreement, MAX_DEVICES, SLOTS, Setup};
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// How often a file that is replaced under our hands is opened again.
const ATTEMPTS: usize = 8;
/// How often a full ledger is walked again: a reaper may have held a free slot's byte for a moment.
const WALKS: u32 = 6;

/// A slot, with all that keeps it.
pub struct Seat {
    pub arena: Arena,
    pub map: Map,
    pub probe: Probe,
    pub slot: usize,
    /// The descriptor that holds the slot's lock, where the file system drops a mapping's.
    pub kept: Option<AtomicI32>,
    /// What children that are forked keep. `None` where the file system drops a mapping's locks.
    heirs: Option<Inheritance>,
    pub namespace: u32,
}

/// An opened and checked file, closed again unless it is taken out.
pub struct Opened {
    pub fd: RawFd,
    pub identity: Identity,
}

impl Drop for Opened {
    fn drop(&mut self) {
        region::close(self.fd);
    }
}

impl Opened {
    pub fn into_fd(self) -> RawFd {
        let fd = self.fd;
        core::mem::forget(self);
        fd
    }
}

impl From<Errno> for Reason {
    fn from(errno: Errno) -> Reason {
        Reason::System {
            call: errno.call,
            errno: errno.code,
        }
    }
}

/// Takes a slot in the ledger at `path`, which is created where nothing is.
pub fn attach(path: &Path, setup: &Setup) -> Result<Seat, AttachError> {
    let _errno = KeptErrno::keep();
    let _attaching = Attaching::begin();
    let failed = |reason| AttachError {
        path: path.to_path_buf(),
        reason,
    };
    let name = c_path(path).map_err(failed)?;
    for _ in 0..ATTEMPTS {
        let opened = open_or_create(&name, setup).map_err(failed)?;
        match sit(&name, opened) {
            Err(Reason::Replaced) => {}
            seated => return seated.map_err(failed),
        }
    }
    Err(failed(Reason::Replaced))
}

/// Maps a ledger that exists, for a reader: no slot, and a mapping that fork children share. Where nothing is at the path, and it is wanted, the ledger
/// that was made there and is still used.
pub fn look(path: &Path, wanted: bool) -> Result<(Map, Probe), AttachError> {
    let failed = |reason| AttachError {
        path: path.to_path_buf(),
        reason,
    };
    let name = c_path(path).map_err(failed)?;
    let opened = match open(&name) {
        Err(reason) if wanted && is_nothing_there(&reason) => displaced::find(&name).ok_or(reason),
        opened => opened,
    };
    let opened = opened.map_err(failed)?;
    let map = Map::new(opened.fd, false).map_err(|errno| failed(errno.into()))?;
    let identity = opened.identity;
    Ok((map, Probe::new(name, identity, opened.into_fd())))
}

/// Waits until no other user of the ledger at `path` has its turn; `None` where it is not had in a while (300 ms).
#[must_use]
pub fn turn(path: &Path) -> Option<region::Turn> {
    region::Turn::wait(&c_path(path).ok()?, &|| false)
}

fn c_path(path: &Path) -> Result<CString, Reason> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() {
        Err(Reason::BadPath)
    } else {
        CString::new(bytes).map_err(|_| Reason::BadPath)
    }
}

fn open_or_create(path: &CString, setup: &Setup) -> Result<Opened, Reason> {
    let is_made = || region::identity_at(path).is_ok();
    let mut turn = None;
    for _ in 0..ATTEMPTS {
        match open(path) {
            Err(reason) if is_nothing_there(&reason) => {}
            opened => return opened,
        }
        // Of many that begin at once one looks for a ledger without a name, and makes one: each would look through all the others (attack 37).
        if turn.is_none() {
            turn = Some(folder_of(path).and_then(|folder| region::Turn::wait(&folder, &is_made)));
            continue;
        }
        match displaced::find(path).filter(|_| !planted(Seed::R21)) {
            None if region::is_link(path) && !is_made() && !planted(Seed::P16) => {
                return Err(Reason::DanglingLink);
            }
            None => create(path, setup)?,
            Some(found) if found.identity.links == 0 => {
                say_displaced(path, "deleted");
                return Ok(found);
            }
            Some(found) => match region::name_again(found.fd, path) {
                // Somebody was quicker, its maker perhaps, that had not named it when we looked at the path.
                Err(errno) if errno.code == libc::EEXIST && !region::is_link(path) => {}
                named => {
                    say_displaced(path, "moved away");
                    // Where it can be given no name here, its descriptor is the way to it.
                    if named.is_err() {
                        return Ok(found);
                    }
                }
            },
        }
    }
    Err(Reason::Replaced)
}

/// The folder that a path lies in, as the path names it.
fn folder_of(path: &CStr) -> Option<CString> {
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    let folder = match path.parent()? {
        folder if folder.as_os_str().is_empty() => Path::new("."),
        folder => folder,
    };
    CString::new(folder.as_os_str().as_bytes()).ok()
}

fn is_nothing_there(reason: &Reason) -> bool {
    let Reason::System { call, errno } = reason else {
        return false;
    };
    (*call, *errno) == ("open", libc::ENOENT)
}

fn say_displaced(path: &CStr, happened: &str) {
    let path = path.to_string_lossy();
    let line = format!(
        "ringfence: ledger {path}: it was {happened} while processes used it; this one goes on with them in the same\n"
    );
    region::complain(line.as_bytes());
}

fn create(path: &CString, setup: &Setup) -> Result<(), Reason> {
    static SERIAL: AtomicU64 = AtomicU64::new(0);
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    let mut temporary = path.as_bytes().to_vec();
    // The clock too: in two PID namespaces two processes have one pid.
    temporary.extend_from_slice(
        format!(
            ".{}-{serial}-{:x}",
            std::process::id(),
            region::clock::now()
        )
        .as_bytes(),
    );
    let temporary = CString::new(temporary).map_err(|_| Reason::BadPath)?;
    let budgets = setup.budgets.map(|budget| budget.map(|bytes| bytes.0));
    region::create(path, &temporary, &region::first_bytes(&budgets), |fd| {
        if let Some(place) = Place::of(path) {
            place.note(Map::new(fd, false)?.layout());
        }
        Ok(())
    })?;
    Ok(())
}

/// Opens the file and checks that it is a ledger of ours, before anything is mapped.
pub fn open(path: &CStr) -> Result<Opened, Reason> {
    let fd = region::open(path)?;
    let mut opened = Opened {
        fd,
        identity: Identity {
            device: 0,
            inode: 0,
            size: 0,
            regular: false,
            links: 0,
        },
    };
    opened.identity = region::identity_of(fd)?;
    let foreign = |field, found, expected| Reason::ForeignFile {
        field,
        found,
        expected,
    };
    if !opened.identity.regular {
        return Err(foreign("regular file", 0, 1));
    }
    if let Some((field, found, expected)) = region::read_header(fd)?.difference() {
        return Err(foreign(field, found, expected));
    }
    if opened.identity.size != region::SIZE as u64 {
        return Err(foreign(
            "file size",
            opened.identity.size,
            region::SIZE as u64,
        ));
    }
    Ok(opened)
}

fn sit(path: &CString, opened: Opened) -> Result<Seat, Reason> {
    let namespace = pid_namespace();
    let arena = Arena::new()?;
    let map = Map::new(opened.fd, true)?;
    let identity = opened.identity;
    let claim = |fd| {
        claim(&Reaper {
            layout: map.layout(),
            fd,
            me: None,
            namespace,
        })
    };
    let mut slot = claim(opened.fd)?;
    // By the path where /proc is not there.
    let again = |fd: RawFd| {
        let fd = region::reopen(fd).or_else(|_| region::open(path))?;
        let again = Opened { fd, identity };
        if region::identity_of(fd)?.is(&identity) {
            Ok(again)
        } else {
            Err(Reason::Replaced)
        }
    };
    // Before the first is closed: newcomers find a ledger that has no name by a descriptor.
    let probe = again(opened.fd)?;
    // From here on the mapping alone holds the lock, if this file system lets it.
    drop(opened);
    if region::identity_at(path).is_ok_and(|found| !found.is(&identity)) {
        return Err(Reason::Replaced);
    }
    let mut kept = None;
    if !region::is_locked(probe.fd, slot)? {
        let holder = again(probe.fd)?;
        slot = claim(holder.fd)?;
        if !region::is_locked(probe.fd, slot)? {
            return Err(Reason::NotLockable);
        }
        let fd = region::keep_high(holder.into_fd());
        if !region::forget_in_child(fd, &identity) {
            region::close(fd);
            return Err(Reason::NotLockable);
        }
        kept = Some(AtomicI32::new(fd));
    }
    let heirs = again(probe.fd).and_then(|opened| {
        let byte = heirs_byte(slot);
        // Others', that nobody could tell from this process's own.
        if region::is_locked(probe.fd, byte)? && !planted(Seed::P19a) {
            return Ok(None);
        }
        let heirs = Inheritance::begin(opened.into_fd(), byte)?;
        let lasts = region::is_locked(probe.fd, byte)?;
        Ok(Some(heirs).filter(|_| lasts))
    });
    let seat = Seat {
        arena,
        map,
        probe: Probe::new(path.clone(), identity, probe.into_fd()),
        slot,
        kept,
        heirs: heirs.unwrap_or(None),
        namespace,
    };
    seat.sign();
    Ok(seat)
}

/// Takes the byte of the first slot that is free: nobody holds it and nothing is charged there. Where the dead have them all it waits until they have
/// drained.
pub fn claim(reaper: &Reaper<'_>) -> Result<usize, Reason> {
    const DRAIN: core::time::Duration = core::time::Duration::from_millis(DRAIN_MS + 100);
    let begun = region::clock::Moment::now();
    let mut walk = 0;
    while walk < WALKS || reaper.any_draining() && begun.elapsed() < DRAIN {
        // Only a full ledger has a newcomer guess; else who needs the bytes asks the driver for them.
        let patience = if walk <= 1 { DRAIN_MOST_MS } else { DRAIN_MS };
        for slot in 0..SLOTS {
            if walk == 0 && !reaper.seems_free(slot) || !region::lock(reaper.fd, slot)? {
                continue;
            }
            // The children of one that had it before would pass for this one's.
            let is_inherited = walk < 2 && reaper.is_inherited(slot) && !planted(Seed::P19a);
            if !is_inherited && reaper.is_free_locked(slot, patience) {
                return Ok(slot);
            }
            region::unlock(reaper.fd, slot);
        }
        region::clock::pause(core::time::Duration::from_millis(u64::from(walk)));
        walk += 1;
    }
    if planted(Seed::P6) {
        return Ok(0);
    }
    Err(Reason::NoFreeSlot)
}

impl Seat {
    pub fn layout(&self) -> &Layout {
        self.map.layout()
    }

    /// Writes who sits here, and raises the high-water mark: from now on every sum sees the slot.
    fn sign(&self) {
        if let Some(record) = self.layout().slots.get(self.slot) {
            record.dying.store(0, Ordering::Release);
            self.layout().changes[self.slot].forget();
            // One that gave all back left no word to clear, and its row with it.
            for account in self.layout().accounts() {
                account.note_listed(self.slot, false);
            }
            let heirs = self.heirs.as_ref().map_or(0, |_| HEIRS);
            let start = region::start_of(std::process::id());
            record.start.store(start | heirs, Ordering::Release);
            record.owner.store(self.owner(), Ordering::Release);
        }
        Account::<crate::account::Sound>::join(self.layout().high(), self.slot);
        seen::take_over(self);
        if let Ok(fd) = self.probe.fd() {
            let reaper = Reaper {
                layout: self.layout(),
                fd,
                me: Some(self.slot),
                namespace: self.namespace,
            };
            // What cannot be looked at now is looked at before a refusal.
            let _ = self.arena.alone(|| {
                reaper.bury_predecessors(self.owner())?;
                reaper.shrink()
            });
        }
    }

    /// How the slot's record names this process.
    pub fn owner(&self) -> u64 {
        (u64::from(std::process::id()) << 32) | u64::from(self.namespace)
    }

    /// Whether the slot is still ours. A mapping's lock is; a kept descriptor may have been closed by a program that closes all, and
    /// is taken again unless the slot was given away meanwhile.
    pub fn is_held(&self) -> bool {
        let Some(kept) = &self.kept else { return true };
        let fd = kept.load(Ordering::Acquire);
        if self.probe.is_ledger(fd)
            && self
                .probe
                .fd()
                .is_ok_and(|probe| region::is_locked(probe, self.slot).unwrap_or(false))
        {
            return true;
        }
        let Ok(fresh) = self.probe.reopen() else {
            return false;
        };
        let record = self.layout().slots.get(self.slot);
        let mine = |record: &region::Slot| {
            record.owner.load(Ordering::Acquire) == self.owner()
                && record.dying.load(Ordering::Acquire) == 0
        };
        if region::lock(fresh, self.slot).unwrap_or(false) && record.is_some_and(mine) {
            // No other thread is here: one description has the lock. The number before is somebody else's by now.
            region::keep_in_child(kept.swap(fresh, Ordering::AcqRel));
            return region::forget_in_child(fresh, self.probe.identity());
        }
        region::close(fresh);
        // Another thread may have been quicker.
        record.is_some_and(mine)
            && self
                .probe
                .fd()
                .is_ok_and(|probe| region::is_locked(probe, self.slot).unwrap_or(false))
    }
}

impl Drop for Seat {
    /// Leaves the slot. What is still charged there drains as a dead process's.
    fn drop(&mut self) {
        let _errno = KeptErrno::keep();
        if !self.arena.is_mine() {
            // A fork child has no mapping, and its descriptors were closed by the fork handler.
            return self.map.abandon();
        }
        for account in self.layout().accounts() {
            account.bury(self.slot);
        }
        if let Some(record) = self
            .layout()
            .slots
            .get(self.slot)
            .filter(|_| self.layout().is_empty(self.slot))
        {
            record.owner.store(0, Ordering::Release);
        }
        self.heirs.take().into_iter().for_each(Inheritance::end);
        self.probe.close();
        if let Some(kept) = &self.kept {
            let fd = kept.load(Ordering::Acquire);
            region::keep_in_child(fd);
            if self.probe.is_ledger(fd) {
                region::close(fd);
            }
        }
    }
}

pub fn pid_namespace() -> u32 {
    std::fs::metadata("/proc/thread-self/ns/pid").map_or(0, |namespace| namespace.ino() as u32)
}

/// Compares the budgets with those asked for, and lowers them where the owner says so. The first that differed.
pub fn agree(layout: &Layout, setup: &Setup) -> Option<Disagreement> {
    let differing = (0..MAX_DEVICES).filter_map(|device| {
        let account = layout.account(device)?;
        let asked = Budget::first(setup.budgets.get(device)?.map(|bytes| bytes.0)).limit();
        let found = account.budget().limit();
        let allows_more = |asked: u64| found.is_none_or(|found| found > asked);
        let lowered = setup.authority == Authority::Owner && asked.is_some_and(allows_more);
        if lowered {
            account.set_budget(asked);
        }
        (found != asked).then_some(Disagreement {
            device: crate::DeviceIndex(device as u32),
            asked: asked.map(Bytes),
            found: found.map(Bytes),
            holds: if lowered { asked } else { found }.map(Bytes),
        })
    });
    // All of them are looked at, although one is told.
    differing.fold(None, |first, one| first.or(Some(one)))
}

/// Looks for the dead on every device, without waiting.
pub fn sweep_all(reaper: &Reaper<'_>, driver: &dyn crate::Driver) -> Result<(), Errno> {
    for device in crate::DeviceIndex::all() {
        reaper.sweep(device, driver)?;
    }
    reaper.shrink()
}
