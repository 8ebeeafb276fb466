//! A ledger's file that is deleted while processes use it (R21 of `fixtures/defects.txt`): the next process makes another, and those who have the old one
//! are granted nothing more from it, but hold on to what they have. So a new ledger begins with their charges.
//!
//! They are found by their descriptors of the deleted file in /proc, by which its words can be read. What cannot be known: of processes that closed
//! that descriptor, if none who has the same file kept it; of those that /proc does not show, because they are another user's, or in a PID namespace
//! that is not below ours; of one whose pid is in terms of another namespace, when it ends: it stays charged as long as the new ledger is used.

use crate::SLOTS;
use crate::account::{Account, Sound};
use crate::attach::pid_namespace;
use crate::region::{self, ELSEWHERE, Errno, Fixed, Identity, Layout, Map, Slot};
use core::sync::atomic::Ordering;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a new ledger begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Processes that hold something by a deleted ledger.
    pub processes: usize,
    pub bytes: u64,
}

/// Enters in the new ledger's file, which has no name yet, what is charged in deleted ones that were called `path`.
pub fn carry_over(path: &CStr, fd: RawFd) -> Result<Carried, Errno> {
    let mut carried = Carried::default();
    let deleted = deleted_files(path);
    if deleted.is_empty() {
        return Ok(carried);
    }
    let new = Map::new(fd, false)?;
    let namespace = pid_namespace();
    // What a deleted ledger knows of one before it comes last: mostly that one is found too.
    for second_hand in [false, true] {
        for file in &deleted {
            let old = Map::new(file.fd, false)?;
            let source = Source {
                layout: old.layout(),
                fd: file.fd,
                namespace,
            };
            source.copy(new.layout(), second_hand, &mut carried)?;
        }
    }
    Ok(carried)
}

/// A deleted ledger, closed again when it is dropped.
struct Deleted {
    fd: RawFd,
    identity: Identity,
}

impl Drop for Deleted {
    fn drop(&mut self) {
        region::close(self.fd);
    }
}

/// Each deleted ledger of that name that a process has open.
fn deleted_files(path: &CStr) -> Vec<Deleted> {
    let mut found: Vec<Deleted> = Vec::new();
    let Some(name) = name_once_deleted(Path::new(OsStr::from_bytes(path.to_bytes()))) else {
        return found;
    };
    let is_number = |path: &PathBuf| {
        let name = path.file_name().map_or(&b""[..], OsStr::as_bytes);
        name.iter().all(u8::is_ascii_digit)
    };
    let below = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let processes = below(PathBuf::from("/proc")).map(|entry| entry.path());
    let descriptors = processes
        .filter(is_number)
        .flat_map(|process| below(process.join("fd")))
        .map(|entry| entry.path());
    for descriptor in descriptors {
        if std::fs::read_link(&descriptor).is_ok_and(|to| to == name)
            && let Ok(descriptor) = CString::new(descriptor.as_os_str().as_bytes())
            && let Some(file) = open(&descriptor)
            && !found.iter().any(|known| known.identity.is(&file.identity))
        {
            found.push(file);
        }
    }
    found
}

/// How /proc tells of a file of that name once it is deleted.
fn name_once_deleted(path: &Path) -> Option<PathBuf> {
    let folder = match path.parent()? {
        folder if folder.as_os_str().is_empty() => Path::new("."),
        folder => folder,
    };
    let mut name = folder.canonicalize().ok()?.join(path.file_name()?);
    name.as_mut_os_string().push(" (deleted)");
    Some(name)
}

/// The file behind a descriptor of another process, if it is a deleted ledger of this version.
fn open(descriptor: &CStr) -> Option<Deleted> {
    let fd = region::open(descriptor).ok()?;
    let identity = region::identity_of(fd).ok();
    let file = identity.map(|identity| Deleted { fd, identity });
    if file.is_none() {
        region::close(fd);
    }
    file.filter(|file| {
        file.identity.regular
            && file.identity.links == 0
            && file.identity.size == region::SIZE as u64
            && region::read_header(fd).is_ok_and(|header: Fixed| header.difference().is_none())
    })
}

/// A deleted ledger's words, and the way to its locks.
struct Source<'a> {
    layout: &'a Layout,
    fd: RawFd,
    namespace: u32,
}

impl Source<'_> {
    /// Enters the slots that hold anything, of its own processes or of those that it has from a ledger before.
    fn copy(&self, new: &Layout, second_hand: bool, carried: &mut Carried) -> Result<(), Errno> {
        let old = self.layout;
        let high = |layout: &Layout| {
            usize::try_from(layout.high().load(Ordering::Acquire)).unwrap_or(SLOTS)
        };
        let mut first = None;
        for (slot, record) in old.slots.iter().enumerate().take(high(old)) {
            let owner = record.owner.load(Ordering::Acquire);
            let elsewhere = record.lives_elsewhere(self.namespace);
            let is_known = || {
                let mut entered = new.slots.iter().take(high(new));
                entered.any(|entered| entered.owner.load(Ordering::Acquire) == owner)
            };
            let is_empty = old.accounts().all(|account| account.is_empty(slot));
            if owner == 0 || is_empty || elsewhere != second_hand || elsewhere && is_known() {
                continue;
            }
            let next = high(new);
            let Some(entered) = new.slots.get(next) else {
                return Err(Errno {
                    call: "charges of a deleted ledger",
                    code: libc::ENOSPC,
                });
            };
            let is_buried = record.dying.load(Ordering::Acquire) != 0;
            let alive = !is_buried && (elsewhere || region::is_locked(self.fd, slot)?);
            enter(entered, record, alive);
            Account::<Sound>::join(new.high(), next);
            first = first.or(Some(next));
            carried.processes += usize::from(alive);
            for (from, to) in old.accounts().zip(new.accounts()) {
                // A lease may be used without asking.
                let charged = from.word(slot).charged();
                to.overdraw(next, charged);
                to.set_beyond(next, from.beyond(slot));
                to.set_unlisted(next, from.unlisted(slot));
                carried.add(charged.saturating_add(from.beyond(slot)));
            }
        }
        // What several hold and nobody's word is charged for: names are not carried over, bytes are.
        let first = first.filter(|_| !second_hand);
        for (from, to) in old.accounts().zip(new.accounts()) {
            let words = (0..high(old))
                .map(|slot| from.word(slot).charged().saturating_add(from.beyond(slot)))
                .fold(0, u64::saturating_add);
            let seen = from.survey();
            let rest = seen.used.saturating_add(seen.leased).saturating_sub(words);
            if let Some(first) = first.filter(|_| rest > 0) {
                to.overdraw(first, rest);
                carried.add(rest);
            }
        }
        Ok(())
    }
}

impl Carried {
    fn add(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// Whose charges they are, in the new ledger.
fn enter(entered: &Slot, record: &Slot, alive: bool) {
    let start = record.start.load(Ordering::Acquire);
    let (start, dying) = match alive {
        true => (start | ELSEWHERE, 0),
        false => (start, region::now_ms()),
    };
    entered.start.store(start, Ordering::Release);
    entered.dying.store(dying, Ordering::Release);
    let owner = record.owner.load(Ordering::Acquire);
    entered.owner.store(owner, Ordering::Release);
}
