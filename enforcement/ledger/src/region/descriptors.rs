//! Descriptors by which memory is shared. They carry no name, so each open file description gets one: a shared lock on a byte of
//! the file, far behind any end. It goes wherever the description goes, shows in /proc/self/fdinfo of whoever has it, and is dropped by the
//! kernel with the last copy, in whatever process or message that was. A second such lock says how large the memory is: another tenant's ledger does not know the
//! name.

use super::files::identity_of;
use crate::named::Unnamed;
use crate::objects::{Described, PATH_WORDS};
use budget::Bytes;
use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;

/// Where names begin: 48 bits lie behind. Below are other people's locks.
const NAMES: u64 = 1 << 61;
const NAME_MASK: u64 = (1 << 48) - 1;
/// Where sizes begin, in steps of [`STEP`].
const SIZES: u64 = 1 << 62;
const STEP: u64 = budget::charge::BLOCK.0;
/// Beside the name in an object's row: a plain file, wherever it lies (a tmpfs may be below /dev).
const REGULAR: u64 = 1 << 63;
/// Longer paths are not kept.
const PATH: usize = 8 * PATH_WORDS;
/// NVIDIA's character devices.
const NVIDIA: u32 = 195;

/// Where it can be asked whether a description is still open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    pub name: u64,
    pub device: u64,
    pub inode: u64,
    /// A file that is gone has no descriptions that matter; a device whose name is missing here may have.
    pub regular: bool,
    pub path: CString,
}

impl Descriptor {
    /// As it stands in an object's row.
    pub fn to_row(&self) -> Described {
        let bytes = self.path.as_bytes();
        let word = |at: usize| {
            let part = bytes.iter().skip(8 * at).take(8).enumerate();
            part.fold(0, |word, (place, byte)| {
                word | u64::from(*byte) << (8 * place)
            })
        };
        Described {
            words: [
                self.name | if self.regular { REGULAR } else { 0 },
                self.device,
                self.inode,
            ],
            path: core::array::from_fn(word),
        }
    }

    pub fn from_row(row: &Described) -> Option<Descriptor> {
        let bytes: Vec<u8> = row
            .path
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let end = bytes.iter().position(|byte| *byte == 0)?;
        let [name, device, inode] = row.words;
        Some(Descriptor {
            name: name & NAME_MASK,
            device,
            inode,
            regular: name & REGULAR != 0,
            path: CString::new(bytes.get(..end)?).ok()?,
        })
    }
}

/// Names a descriptor's open file description, and says how large what it stands for is; nothing of that where `bytes` is nothing.
pub fn mark(fd: RawFd, name: u64, bytes: Bytes) -> Result<Descriptor, Unnamed> {
    let name = name & NAME_MASK;
    let identity = identity_of(fd).map_err(|_| Unnamed::Impossible)?;
    let path = std::fs::read_link(format!("/proc/thread-self/fd/{fd}")).map_err(unnamed)?;
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Unnamed::Impossible)?;
    let found = Descriptor {
        name,
        device: identity.device,
        inode: identity.inode,
        regular: identity.regular,
        path,
    };
    // Asked now, since later the answer decides about memory.
    let is_seen = lock(fd, NAMES | name)
        && (bytes == Bytes::ZERO || lock(fd, SIZES | bytes.0.div_ceil(STEP)))
        && found.path.as_bytes().len() < PATH
        && told_of(fd).map_err(unnamed)? == Some(name)
        && asked(&found).map_err(unnamed)? == Some(true);
    is_seen.then_some(found).ok_or(Unnamed::Impossible)
}

/// Puts a shared lock on a byte.
fn lock(fd: RawFd, place: u64) -> bool {
    let lock = byte(libc::F_RDLCK, place);
    // SAFETY: reads the lock description; a descriptor that is none is refused.
    unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const lock) == 0 }
}

/// Why a description could not be looked at.
fn unnamed(error: io::Error) -> Unnamed {
    match error.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE) => Unnamed::NoDescriptor,
        _ => Unnamed::Impossible,
    }
}

/// The name of a descriptor's open file description, if it has one.
pub fn mark_of(fd: RawFd) -> Option<u64> {
    told_of(fd).ok().flatten()
}

fn told_of(fd: RawFd) -> io::Result<Option<u64>> {
    told_from(fd, NAMES)
}

/// How large what a descriptor stands for is, in whole blocks, if whoever made it said so.
pub fn size_of(fd: RawFd) -> Option<Bytes> {
    let steps = told_from(fd, SIZES).ok().flatten()?;
    steps.checked_mul(STEP).map(Bytes)
}

/// The place of a lock of this description, from where such places begin.
fn told_from(fd: RawFd, begin: u64) -> io::Result<Option<u64>> {
    let told = std::fs::read_to_string(format!("/proc/thread-self/fdinfo/{fd}"))?;
    Ok(told.lines().find_map(|line| {
        let fields = line.strip_prefix("lock:")?;
        let first = fields.split_whitespace().rev().nth(1)?;
        let place = first.parse::<u64>().ok()?.checked_sub(begin)?;
        (fields.contains("OFDLCK") && place <= NAME_MASK).then_some(place)
    }))
}

/// Whether what stands in a row is closed for certain.
pub fn is_closed(described: &Described) -> bool {
    Descriptor::from_row(described).is_some_and(|found| is_open(&found) == Some(false))
}

/// Whether a description of that name is still open anywhere; `None` where it cannot be told. The path comes from other processes: only
/// files and NVIDIA's devices are opened.
pub fn is_open(descriptor: &Descriptor) -> Option<bool> {
    asked(descriptor).ok().flatten()
}

/// An error where the path cannot be opened.
fn asked(descriptor: &Descriptor) -> io::Result<Option<bool>> {
    let mut status = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: a NUL-terminated path and a buffer to fill.
    if unsafe { libc::stat(descriptor.path.as_ptr(), status.as_mut_ptr()) } != 0 {
        // A device's name may be missing in this container alone. A file may too, but no card shares memory by a file with a name (a memfd's
        // and a dma-buf's cannot be found, and `mark` refuses them): it is a mock's, whose world every process sees.
        let gone = std::io::Error::last_os_error().kind() == std::io::ErrorKind::NotFound;
        return Ok((gone && descriptor.regular).then_some(false));
    }
    // SAFETY: plain integers, zeroed before and filled by the call.
    let status = unsafe { status.assume_init() };
    let known = match status.st_mode & libc::S_IFMT {
        libc::S_IFREG => true,
        libc::S_IFCHR => libc::major(status.st_rdev) == NVIDIA,
        _ => false,
    };
    let same = |device, inode| (device, inode) == (descriptor.device, descriptor.inode);
    if !known || !same(status.st_dev, status.st_ino) {
        return Ok(None);
    }
    let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { libc::open(descriptor.path.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let told = identity_of(fd)
        .ok()
        .filter(|found| same(found.device, found.inode))
        .and_then(|_| {
            let mut lock = byte(libc::F_WRLCK, NAMES | descriptor.name);
            // SAFETY: reads and overwrites the lock description.
            let answer = unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &raw mut lock) };
            (answer == 0).then(|| i32::from(lock.l_type) != libc::F_UNLCK)
        });
    // SAFETY: opened above.
    unsafe { libc::close(fd) };
    Ok(told)
}

fn byte(kind: i32, place: u64) -> libc::flock {
    // SAFETY: plain integers.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = place as libc::off_t;
    lock.l_len = 1;
    lock
}
