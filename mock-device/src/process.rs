//! Who holds a row, and whether that process image still exists.
//!
//! A byte lock pinned by a mapping of the process says so exactly, exec and PID reuse included, and needs no common PID
//! namespace; children that it forked have it too, which keep its memory as on a card (`fixtures/oracle/held-580.txt`). Where
//! the file system keeps no such lock, PID and start time do: a number that no process of the own namespace has, or that the
//! asking process itself had before it called exec, is gone.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::os::{self, Mapping};
use crate::region::Row;

/// Where the rows' lock bytes lie: far behind the end of any file.
const LOCKS_AT: u64 = 1 << 40;

/// A process image as the kernel tells it apart from all others. A field that could not be read is 0 and proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) pid: u32,
    start: u64,
    pub(crate) namespace: u64,
    image: u64,
}

impl Image {
    pub(crate) fn own() -> Self {
        Self {
            pid: os::pid(),
            start: stat("self").map_or(0, |stat| stat.start),
            namespace: std::fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino()),
            image: os::image(),
        }
    }

    pub(crate) fn write(&self, row: &Row) {
        row.pid.store(self.pid, Relaxed);
        row.start.store(self.start, Relaxed);
        row.namespace.store(self.namespace, Relaxed);
        row.image.store(self.image, Relaxed);
        row.pinned.store(0, Relaxed);
    }

    pub(crate) fn read(row: &Row) -> Self {
        Self {
            pid: row.pid.load(Relaxed),
            start: row.start.load(Relaxed),
            namespace: row.namespace.load(Relaxed),
            image: row.image.load(Relaxed),
        }
    }

    /// This process before it called exec.
    pub(crate) fn replaced_by(&self, now: &Self) -> bool {
        self.same_process(now) && self.image != now.image
    }

    fn same_process(&self, other: &Self) -> bool {
        (self.pid, self.start, self.namespace) == (other.pid, other.start, other.namespace)
    }

    /// The number of this process for one that asks: its own where both are of one PID namespace, as a driver translates it. `None` where the asking
    /// one's namespace does not show it. Of a namespace below that is found in /proc, as far as the kernel lets it be read.
    pub(crate) fn seen_by(&self, asking: &Self) -> Option<u32> {
        if [self.namespace, asking.namespace].contains(&0) || self.namespace == asking.namespace {
            return Some(self.pid);
        }
        let numbers = proc_is_ours()
            .then(|| std::fs::read_dir("/proc").ok())
            .flatten()?;
        let mut numbers =
            numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        numbers.find(|number| {
            let namespace = std::fs::metadata(format!("/proc/{number}/ns/pid"));
            namespace.is_ok_and(|file| file.ino() == self.namespace)
                && innermost(*number) == Some(self.pid)
        })
    }

    /// For a process of the own PID namespace whose number exists: whether it is a zombie, or the number another's now.
    fn is_finished(&self) -> bool {
        // Where /proc shows another namespace's processes it can say nothing of ours.
        if !proc_is_ours() || self.start == 0 {
            return false;
        }
        // A leader that ended before its threads is a `Z` with company: the process lives.
        stat(&self.pid.to_string()).is_some_and(|stat| {
            stat.start != self.start || (matches!(stat.state, b'Z' | b'X') && stat.threads <= 1)
        })
    }
}

/// Whether /proc shows the processes of the own PID namespace.
fn proc_is_ours() -> bool {
    let link = std::fs::read_link("/proc/self").ok();
    link.and_then(|link| link.to_str()?.parse().ok()) == Some(os::pid())
}

/// The number that a process of /proc has in the PID namespace that it is of.
fn innermost(number: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{number}/status")).ok()?;
    let numbers = text.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().next_back()?.parse().ok()
}

/// What `/proc/<pid>/stat` says. The name in it is arbitrary bytes, blanks and parentheses included, so fields are counted
/// from the last `)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    state: u8,
    threads: u64,
    start: u64,
}

fn stat(process: &str) -> Option<Stat> {
    let mut text = Vec::with_capacity(512);
    File::open(format!("/proc/{process}/stat"))
        .ok()?
        .read_to_end(&mut text)
        .ok()?;
    parse_stat(&text)
}

fn parse_stat(text: &[u8]) -> Option<Stat> {
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    let fields: Vec<&[u8]> = text[name_end + 1..]
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty())
        .collect();
    let number = |index: usize| std::str::from_utf8(fields.get(index)?).ok()?.parse().ok();
    // Counted as in proc(5) less 3: state is the 3rd field, num_threads the 20th, starttime the 22nd.
    Some(Stat {
        state: *fields.first()?.first()?,
        threads: number(17)?,
        start: number(19)?,
    })
}

/// Asks about other processes' rows; one per sweep.
pub(crate) struct Prober<'a> {
    own: &'a Image,
    locks: Option<File>,
}

impl<'a> Prober<'a> {
    pub(crate) fn new(own: &'a Image, file: Option<&Place>) -> Self {
        Self {
            own,
            locks: file.and_then(Place::open),
        }
    }

    /// Whether the image that wrote `row` is gone. In doubt it is not.
    pub(crate) fn is_gone(&self, index: usize, row: &Row) -> bool {
        let owner = Image::read(row);
        if owner == *self.own {
            return false;
        }
        if let Some(held) = self.lock_is_held(index, row) {
            return !held;
        }
        let neighbour = owner.namespace == self.own.namespace;
        owner.replaced_by(self.own) || neighbour && (!os::exists(owner.pid) || owner.is_finished())
    }

    /// `None` where the row has no lock, or nothing can be asked about it.
    fn lock_is_held(&self, index: usize, row: &Row) -> Option<bool> {
        if row.pinned.load(Acquire) == 0 {
            return None;
        }
        os::byte_is_locked(self.locks.as_ref()?, lock_of(index))
    }
}

/// The world's file as it can be found again: a path that must still lead to the same inode.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    device: u64,
    inode: u64,
}

impl Place {
    pub(crate) fn new(path: PathBuf, file: &File) -> std::io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self {
            path,
            device: meta.dev(),
            inode: meta.ino(),
        })
    }

    fn open(&self) -> Option<File> {
        let file = os::open(&self.path).ok()?;
        let meta = file.metadata().ok()?;
        ((meta.dev(), meta.ino()) == (self.device, self.inode)).then_some(file)
    }

    /// Locks the row's byte for as long as this process image lives. `None` where the file system drops such a lock with
    /// its descriptor (overlayfs) or has none (gVisor): then PID and start time alone judge.
    pub(crate) fn pin(&self, index: usize, row: &Row) -> Option<Mapping> {
        let file = self.open()?;
        if !os::lock_byte(&file, lock_of(index)) {
            return None;
        }
        let mapping = Mapping::pin(&file).ok()?;
        drop(file);
        if os::byte_is_locked(&self.open()?, lock_of(index)) != Some(true) {
            return None;
        }
        row.pinned.store(1, Release);
        Some(mapping)
    }
}

fn lock_of(index: usize) -> u64 {
    LOCKS_AT + index as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_is_arbitrary_bytes() {
        let tail = " S 1 2 3 4 -1 5 6 7 8 9 10 11 12 13 20 0 7 0 277701 1 2";
        let expected = Some(Stat {
            state: b'S',
            threads: 7,
            start: 277_701,
        });
        for name in ["x Zed", ") Z 1 (", "a) b) Z", "", "(((", "\n\t)"] {
            assert_eq!(
                parse_stat(format!("42 ({name}){tail}").as_bytes()),
                expected,
                "{name:?}"
            );
        }
        let mut bytes = b"42 (\xff\xfe) \x80)".to_vec();
        bytes.extend_from_slice(tail.as_bytes());
        assert_eq!(parse_stat(&bytes), expected);
        assert_eq!(parse_stat(b"42 (cut) S 1 2"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn a_process_is_seen_by_its_own_namespace_alone() {
        let own = Image::own();
        assert_eq!(own.seen_by(&own), Some(own.pid));
        // A namespace that no process is of.
        let other = Image {
            namespace: 1,
            ..own
        };
        assert_eq!(other.seen_by(&own), None);
        // Of one that cannot be read nothing is said.
        let unknown = Image {
            namespace: 0,
            ..own
        };
        assert_eq!(unknown.seen_by(&own), Some(own.pid));
    }

    #[test]
    fn the_own_image_is_known_in_every_field() {
        let own = Image::own();
        assert_eq!(own.pid, std::process::id());
        assert!(
            own.start > 0 && own.namespace > 0 && own.image > 0,
            "{own:?}"
        );
    }
}
