//! The file all processes of a tenant map: its layout, and every system call the ledger makes. The ledger's only unsafe code.
//!
//! What lies in the file is written by other processes and is untrusted: it is all atomics, valid with any content; the compiled
//! layout decides every offset, and the header is only compared with it. What remains is that somebody who may write the file may
//! truncate it, and then the next access is a SIGBUS: such a process could as well kill us.

mod arena;
pub mod clock;
pub mod descriptors;
mod environment;
mod files;
pub mod folders;
mod forks;
mod heirs;
pub mod processes;
mod speech;

pub use arena::Arena;
pub use files::{
    Cancelability, Errno, Identity, KeptErrno, Turn, close, create, identity_at, identity_of,
    is_link, is_locked, keep_high, lock, lock_all, name_again, open, read_header, reopen, unlock,
    unlock_all,
};
pub use forks::{Attaching, forget_in_child, keep_in_child};
pub use heirs::Inheritance;
pub use processes::{start_of, start_of_living};
pub use speech::{complain, write_quietly};

use crate::account::{Account, Line};
use crate::changes::Changes;
use crate::objects::Objects;
use crate::word::Budget;
use crate::{MAX_DEVICES, SLOTS};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::os::fd::RawFd;

const MAGIC: u64 = u64::from_le_bytes(*b"RINGFNCE");
const VERSION: u64 = 9;

/// Words per device that the ledger keeps for whoever paces the tenant's work, and never looks at.
pub const PACE_WORDS: usize = 264;

/// The whole file.
#[repr(C)]
pub struct Layout {
    header: Header,
    /// One per slot, whatever the device.
    pub slots: [Slot; SLOTS],
    /// Of each slot: what its owner's library is about to take or to give back.
    pub changes: [Changes; SLOTS],
    lines: [[Line; SLOTS]; MAX_DEVICES],
    paces: [Pace; MAX_DEVICES],
    /// Memory that several processes hold.
    pub objects: Objects,
}

/// A device's budget of time, and the words by which it is kept.
#[repr(C, align(64))]
pub struct Pace {
    /// Hundredths of a percent plus one; 0 where nobody has said, 1 where there is none.
    pub share: AtomicU64,
    pub words: [AtomicU64; PACE_WORDS],
}

/// Says what the file is, and holds what belongs to no slot. One page.
#[repr(C, align(4096))]
struct Header {
    fixed: Fixed,
    budgets: [AtomicU64; MAX_DEVICES],
    high: AtomicU64,
    reaps: AtomicU64,
    /// What processes were told of each device's size; 0 where nobody has looked.
    totals: [AtomicU64; MAX_DEVICES],
    /// Not 0: the owner has set a budget of some device's time. Processes that were told of none look at it.
    timed: AtomicU64,
    /// The place that the file was made at: see [`crate::displaced`].
    made_at: [AtomicU64; 3],
    /// Not 0: a process of the tenant counts what its contexts take.
    counting: AtomicU64,
}

/// What must be equal for two processes to understand each other.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Fixed([u64; 6]);

const FIXED_NAMES: [&str; 6] = ["magic", "version", "size", "slots", "devices", "line size"];

impl Fixed {
    pub const BYTES: usize = size_of::<Fixed>();

    fn ours() -> Fixed {
        Fixed([
            MAGIC,
            VERSION,
            SIZE as u64,
            SLOTS as u64,
            MAX_DEVICES as u64,
            size_of::<Line>() as u64,
        ])
    }

    pub fn from_bytes(bytes: &[u8; Fixed::BYTES]) -> Fixed {
        let mut words = [0; 6];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = chunk
                .iter()
                .rev()
                .fold(0, |value, byte| (value << 8) | u64::from(*byte));
        }
        Fixed(words)
    }

    /// The first field that is not ours: name, found, expected.
    pub fn difference(&self) -> Option<(&'static str, u64, u64)> {
        let fields = FIXED_NAMES
            .into_iter()
            .zip(self.0.into_iter().zip(Fixed::ours().0));
        fields
            .map(|(name, (found, ours))| (name, found, ours))
            .find(|(_, found, ours)| found != ours)
    }
}

/// Who holds a slot, since when its owner is known to be dead, and what its owners met. One cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Slot {
    /// The pid in its high half, its PID namespace in the low one; 0 where nobody holds the slot.
    pub owner: AtomicU64,
    /// In clock ticks since boot, with [`LISTED`], [`SEEN`] and [`HEIRS`].
    pub start: AtomicU64,
    /// Milliseconds of the monotonic clock when the owner was found dead; 0 while it lives.
    pub dying: AtomicU64,
    pub retries: AtomicU64,
    pub most_retries: AtomicU64,
    pub refusals: AtomicU64,
    pub longest_stall: AtomicU64,
    pub longest_drain: AtomicU64,
}

/// The owner has seen a row of its own among the driver's: in its PID namespace they are in terms of that.
pub const LISTED: u64 = 1 << 63;

/// The owner never took the slot: others of the tenant saw its memory among the driver's rows. See [`crate::seen`].
pub const SEEN: u64 = 1 << 62;

/// The owner shares a lock on the slot's byte of heirs with the children that it forks, as long as any of them lives. Of a dead one: some outlived it, and
/// nobody has seen yet that they ended.
pub const HEIRS: u64 = 1 << 61;

impl Slot {
    /// When the owner started, in clock ticks since boot; 0 where that was not known.
    pub fn began(&self) -> u64 {
        self.start.load(Ordering::Acquire) & !(LISTED | SEEN | HEIRS)
    }

    /// Whether the slot is for a process that never took one.
    pub fn is_seen(&self) -> bool {
        self.start.load(Ordering::Acquire) & SEEN != 0
    }
}

/// The file's size: 2 MiB of lines, and a little.
pub const SIZE: usize = size_of::<Layout>();

const _: () =
    assert!(size_of::<Line>() == 64 && size_of::<Slot>() == 64 && size_of::<Header>() == 4096);

impl Layout {
    pub fn account(&self, device: usize) -> Option<Account<'_>> {
        let lines = self.lines.get(device)?;
        Some(
            Account::new(lines, &self.header.high, self.header.budgets.get(device)?)
                .beside(&self.objects, device),
        )
    }

    pub fn pace(&self, device: usize) -> Option<&Pace> {
        self.paces.get(device)
    }

    pub fn accounts(&self) -> impl Iterator<Item = Account<'_>> {
        (0..MAX_DEVICES).filter_map(|device| self.account(device))
    }

    /// Whether the slot has nothing charged on any device, and no object.
    pub fn is_empty(&self, slot: usize) -> bool {
        self.accounts().all(|account| account.is_empty(slot)) && !self.objects.concern(slot)
    }

    /// The mark below which every slot in use lies.
    pub fn high(&self) -> &AtomicU64 {
        &self.header.high
    }

    /// A device's size as processes have seen it.
    pub fn total(&self, device: usize) -> Option<&AtomicU64> {
        self.header.totals.get(device)
    }

    /// Not 0 once the owner has set a budget of time.
    pub fn timed(&self) -> &AtomicU64 {
        &self.header.timed
    }

    /// Not 0 once a process counts what its contexts take.
    pub fn counting(&self) -> &AtomicU64 {
        &self.header.counting
    }

    /// The place that the file was made at.
    pub fn made_at(&self) -> &[AtomicU64; 3] {
        &self.header.made_at
    }

    /// How many dead owners were found since the file was created.
    pub fn reaps(&self) -> &AtomicU64 {
        &self.header.reaps
    }
}

/// Initial contents up to the end of the budgets; the rest of a new file is zeros.
pub fn first_bytes(budgets: &[Option<u64>; MAX_DEVICES]) -> Vec<u8> {
    let budgets = budgets.iter().map(|limit| Budget::first(*limit).0);
    Fixed::ours()
        .0
        .into_iter()
        .chain(budgets)
        .flat_map(u64::to_le_bytes)
        .collect()
}

const _: () = assert!(
    core::mem::offset_of!(Header, budgets) == Fixed::BYTES && cfg!(target_endian = "little")
);

/// A mapping of the whole file.
pub struct Map {
    base: NonNull<Layout>,
    abandoned: AtomicBool,
}

// SAFETY: the mapping belongs to no thread, and all that is reached through it are atomics.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the file, kept out of fork children where `private` is set: there it would pin the parent's lock.
    pub fn new(fd: RawFd, private: bool) -> Result<Map, Errno> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new shared mapping at a place the kernel chooses; no existing memory is touched.
        let base = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                SIZE,
                protection,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        let Some(base) = NonNull::new(base).filter(|base| base.as_ptr() != libc::MAP_FAILED) else {
            return Err(Errno::last("mmap"));
        };
        let map = Map {
            base: base.cast(),
            abandoned: AtomicBool::new(false),
        };
        // SAFETY: advice about exactly the mapping made above.
        if private && unsafe { libc::madvise(base.as_ptr(), SIZE, libc::MADV_DONTFORK) } != 0 {
            return Err(Errno::last("madvise"));
        }
        Ok(map)
    }

    /// The file's contents. Not in a fork child of a private mapping: there is nothing at this address, or something else.
    pub fn layout(&self) -> &Layout {
        // SAFETY: `base` is the page-aligned start of a mapping of SIZE bytes, which lives as long as self; every field is an
        // atomic, or is never read through this reference, so that any content and any concurrent writer are allowed. Handles
        // check that they are not in a fork child before they come here.
        unsafe { self.base.as_ref() }
    }

    /// Has the address left alone from now on: in a fork child it is somebody else's.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if !self.abandoned.load(Ordering::Relaxed) {
            // SAFETY: unmaps exactly what `new` mapped; no reference outlives self.
            unsafe { libc::munmap(self.base.as_ptr().cast(), SIZE) };
        }
    }
}

/// Whether there is a process of that pid in this PID namespace, as far as the kernel says.
pub fn exists(pid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    let asked = unsafe { libc::kill(pid as libc::pid_t, 0) };
    asked == 0 || Errno::last("kill").code != libc::ESRCH
}

/// Adds to a counter of the region.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
