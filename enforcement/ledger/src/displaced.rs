//! A ledger's file that is deleted or moved away while processes use it (R21, R36 and R37 of `fixtures/defects.txt`): whoever comes next finds nothing at the
//! path, and goes on with that same file instead of making another. So there is one ledger all the time, and what is charged, held together or given
//! back in it needs no second book. A file that still has a name somewhere gets its old one beside it; one that has none cannot be named again, and
//! each newcomer looks it up anew until the last of those who use it has ended.
//!
//! It is found by its users' descriptors in /proc, and known by the place that its header says it was made at. Not found is a file whose users all
//! closed that descriptor, or are not shown by /proc: they are another user's, or in a PID namespace that is not below ours.

use seeds::{Seed, planted};

use crate::SLOTS;
use crate::attach::{Opened, open};
use crate::probe::Tree;
use crate::region::folders::entries;
use crate::region::processes;
use crate::region::{self, Identity, Layout, Map};
use core::cell::LazyCell;
use core::sync::atomic::Ordering;
use std::ffi::{CStr, CString, OsStr};
use std::io::{BufRead, BufReader};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How often a process's descriptors are walked again because one was closed meanwhile: a ledger's is moved once, as its owner begins.
const WALKS: usize = 3;

/// Where a ledger is made: its path, and the folder that this leads to.
pub struct Place {
    path: u64,
    folder: Identity,
}

impl Place {
    /// `None` where there is no such folder.
    pub fn of(path: &CStr) -> Option<Place> {
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        let folder = match path.parent()? {
            folder if folder.as_os_str().is_empty() => Path::new("."),
            folder => folder,
        };
        let folder = folder.canonicalize().ok()?;
        let path = folder.join(path.file_name()?);
        let name = CString::new(folder.as_os_str().as_bytes()).ok()?;
        Some(Place {
            path: fnv(path.as_os_str().as_bytes()),
            folder: region::identity_at(&name).ok()?,
        })
    }

    /// Writes it into the header of a ledger that has no name yet.
    pub fn note(&self, layout: &Layout) {
        let words = [self.path, self.folder.device, self.folder.inode];
        for (word, value) in layout.made_at().iter().zip(words) {
            word.store(value, Ordering::Release);
        }
    }

    /// Whether a ledger that a process has open was made here. The folder may have been renamed, and another have its name; but processes that see other
    /// trees of files have other folders of that name.
    fn made(&self, layout: &Layout, in_our_tree: impl Fn() -> bool) -> bool {
        let [path, device, inode] = layout
            .made_at()
            .each_ref()
            .map(|word| word.load(Ordering::Acquire));
        let same_folder = (device, inode) == (self.folder.device, self.folder.inode);
        path == self.path && (same_folder || in_our_tree())
    }
}

/// Fowler, Noll and Vo's hash (FNV-1a, 64 bits).
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The ledger that was made at `path`, where nothing is now, if processes use it still. Where newcomers once could not see each other's there are several:
/// then that in which most is charged.
pub fn find(path: &CStr) -> Option<Opened> {
    let place = Place::of(path)?;
    let here = Tree::now();
    let mut found: Vec<(u64, Opened)> = Vec::new();
    for process in all_processes() {
        // Somebody was quicker.
        if region::identity_at(path).is_ok() {
            return None;
        }
        for descriptor in ledgers_of(&process, place.folder.device) {
            let Some(ledger) = opened(&descriptor) else {
                continue;
            };
            let is_known = |known: &(u64, Opened)| known.1.identity.is(&ledger.identity);
            let is_gone = !planted(Seed::R36) || ledger.identity.links == 0;
            let Some(map) = Map::new(ledger.fd, false)
                .ok()
                .filter(|_| is_gone && !found.iter().any(is_known))
            else {
                continue;
            };
            let in_our_tree = || here.is_some() && Tree::of(&process) == here;
            // One in which nobody has a place is being made, and has no name yet.
            let is_used = map.layout().high().load(Ordering::Acquire) != 0;
            if is_used && place.made(map.layout(), in_our_tree) {
                found.push((charged(map.layout()), ledger));
            }
        }
    }
    let most = found.into_iter().max_by_key(|(charged, _)| *charged);
    most.map(|(_, ledger)| ledger)
}

/// Another open file description of a ledger that its path no longer leads to, by whoever has a descriptor of it.
pub fn reopen(identity: &Identity) -> Option<RawFd> {
    let mut descriptors = all_processes().flat_map(|process| ledgers_of(&process, identity.device));
    descriptors.find_map(|descriptor| {
        let metadata = std::fs::metadata(&descriptor).ok()?;
        if (metadata.dev(), metadata.ino()) != (identity.device, identity.inode) {
            return None;
        }
        let ledger = opened(&descriptor).filter(|ledger| ledger.identity.is(identity))?;
        Some(ledger.into_fd())
    })
}

fn opened(descriptor: &Path) -> Option<Opened> {
    let descriptor = CString::new(descriptor.as_os_str().as_bytes()).ok()?;
    open(&descriptor).ok()
}

fn charged(layout: &Layout) -> u64 {
    let words = layout
        .accounts()
        .flat_map(|account| (0..SLOTS).map(move |slot| account.word(slot).charged()));
    words.fold(0, u64::saturating_add)
}

/// Each process that /proc shows, this one first.
fn all_processes() -> impl Iterator<Item = PathBuf> {
    let is_process = |path: &PathBuf| {
        let name = path.file_name().map_or(&b""[..], OsStr::as_bytes);
        name.iter().all(u8::is_ascii_digit)
    };
    let others = entries(Path::new("/proc")).into_iter().filter(is_process);
    core::iter::once(processes::own("")).chain(others.map(processes::telling))
}

/// A process's descriptors of files that are as large as a ledger, on that device or on another of this machine's own.
fn ledgers_of(process: &Path, device: u64) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if !maps_a_ledger(process) {
        return found;
    }
    let elsewhere = LazyCell::new(|| mounts_elsewhere(process, device));
    let is_elsewhere = |descriptor: &Path| {
        let of = |mount| elsewhere.contains(&mount);
        !elsewhere.is_empty() && mount_of(process, descriptor).is_some_and(of)
    };
    for _ in 0..WALKS {
        let mut all_seen = true;
        for descriptor in entries(&process.join("fd")) {
            match std::fs::read_link(&descriptor) {
                // Pipes, sockets and the like have no path. Of devices' nodes nothing is asked.
                Ok(to) if !to.is_absolute() || is_device(&to) => {}
                Ok(_) if is_elsewhere(&descriptor) => {}
                Ok(_) => {
                    let metadata = std::fs::metadata(&descriptor);
                    let fits = metadata
                        .is_ok_and(|found| found.is_file() && found.len() == region::SIZE as u64);
                    if fits && !found.contains(&descriptor) {
                        found.push(descriptor);
                    }
                }
                Err(_) => all_seen = false,
            }
        }
        if all_seen {
            break;
        }
    }
    found
}

/// Whether a process has a file mapped as its users have a ledger. One question instead of one for each descriptor: a neighbour may have a million.
fn maps_a_ledger(process: &Path) -> bool {
    let Ok(maps) = std::fs::File::open(process.join("maps")) else {
        return false;
    };
    BufReader::new(maps)
        .split(b'\n')
        .map_while(Result::ok)
        .any(|line| is_a_ledgers(&line))
}

/// A line of maps: `begin-end rw-s …`.
fn is_a_ledgers(line: &[u8]) -> bool {
    let address = |word: &str| u64::from_str_radix(word, 16).ok();
    let read = || {
        let mut words = core::str::from_utf8(line.get(..64).unwrap_or(line))
            .ok()?
            .split(' ');
        let (begin, end) = words.next()?.split_once('-')?;
        let length = address(end)?.checked_sub(address(begin)?)?;
        (words.next()? == "rw-s").then_some(length)
    };
    read() == Some((region::SIZE as u64).next_multiple_of(4096))
}

fn is_device(path: &Path) -> bool {
    path.starts_with("/dev") && !path.starts_with("/dev/shm")
}

/// File systems that another machine or process serves: one that serves no longer would keep whoever asks for a file's size.
const SERVED: [&str; 10] = [
    "9p", "afs", "beegfs", "ceph", "cifs", "fuse", "gpfs", "lustre", "nfs", "smb3",
];

/// The mounts that a process sees of what others serve, but of that device: by mountinfo, which asks no file system.
fn mounts_elsewhere(process: &Path, device: u64) -> Vec<String> {
    let mounts = std::fs::read(process.join("mountinfo")).unwrap_or_default();
    let own = format!("{}:{}", libc::major(device), libc::minor(device));
    String::from_utf8_lossy(&mounts)
        .lines()
        .filter_map(|line| {
            let (mount, kind) = line.split_once(" - ")?;
            let mut words = mount.split(' ');
            let (id, at) = (words.next()?, words.nth(1)?);
            let served = SERVED.iter().any(|served| kind.starts_with(served));
            (served && at != own).then(|| id.to_owned())
        })
        .collect()
}

/// The mount that a descriptor's file was opened by.
fn mount_of(process: &Path, descriptor: &Path) -> Option<String> {
    let facts = std::fs::read_to_string(process.join("fdinfo").join(descriptor.file_name()?));
    let facts = facts.ok()?;
    let id = facts
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))?;
    Some(id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 27 0:21 / /proc rw,relatime - proc proc rw
25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw
31 27 0:40 / /home rw shared:1 master:2 - nfs4 server:/home rw,vers=4.2
32 27 0:41 / /work rw - fuse.sshfs somebody@host: rw
33 27 0:42 / /project rw - nfs server:/project rw
";

    #[test]
    fn what_other_machines_serve_is_not_asked_but_where_the_ledger_is() {
        let process = tempfile::tempdir().expect("a folder");
        std::fs::write(process.path().join("mountinfo"), MOUNTS).expect("a list");
        let ledgers = libc::makedev(0, 42);
        assert_eq!(mounts_elsewhere(process.path(), ledgers), ["31", "32"]);
        std::fs::create_dir(process.path().join("fdinfo")).expect("a folder");
        let facts = "pos:\t0\nflags:\t02\nmnt_id:\t31\nino:\t7\n";
        std::fs::write(process.path().join("fdinfo/5"), facts).expect("facts");
        let mount = mount_of(process.path(), &process.path().join("fd/5"));
        assert_eq!(mount.as_deref(), Some("31"));
    }
}
