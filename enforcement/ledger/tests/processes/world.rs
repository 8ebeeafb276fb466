//! What processes really hold, kept apart from the ledger: one row each, in a mapped file. A row's word carries a version, so that
//! two equal readings of all rows are one instant's picture.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

pub const ROWS: usize = 16;
const HELD: u64 = (1 << 40) - 1;

/// The mapped rows.
pub struct World {
    base: *const Shared,
}

#[repr(C)]
#[derive(Default)]
struct Shared {
    rows: [AtomicU64; ROWS],
    pids: [AtomicU64; ROWS],
    checks: AtomicU64,
    grants: AtomicU64,
    largest: AtomicU64,
}

impl World {
    pub fn create(path: &Path) -> World {
        File::create(path).unwrap().set_len(4096).unwrap();
        World::open(path)
    }

    pub fn open(path: &Path) -> World {
        let file = File::options().read(true).write(true).open(path).unwrap();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file of 4096 bytes.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                4096,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        World { base: base.cast() }
    }

    fn shared(&self) -> &Shared {
        // SAFETY: a mapping that is never unmapped; all atomics.
        unsafe { &*self.base }
    }

    pub fn enter(&self, row: usize) {
        self.shared().pids[row].store(u64::from(std::process::id()), Ordering::SeqCst);
    }

    /// The row's owner takes memory, after it was granted.
    pub fn take(&self, row: usize, bytes: u64) {
        self.change(row, |held| held + bytes);
        self.shared().grants.fetch_add(1, Ordering::Relaxed);
    }

    /// The row's owner gives memory back, before it is released.
    pub fn give_back(&self, row: usize, bytes: u64) {
        self.change(row, |held| held - bytes);
    }

    /// The driver has torn the row's dead owner down.
    pub fn tear_down(&self, row: usize) {
        self.change(row, |_| 0);
        self.shared().pids[row].store(0, Ordering::SeqCst);
    }

    /// One writer per row.
    fn change(&self, row: usize, held: impl FnOnce(u64) -> u64) {
        let row = &self.shared().rows[row];
        let old = row.load(Ordering::SeqCst);
        let version = (old >> 40).wrapping_add(1);
        row.store((version << 40) | held(old & HELD), Ordering::SeqCst);
    }

    /// Whether a process of this pid holds anything, or is still here.
    pub fn holds(&self, pid: u32) -> bool {
        self.shared()
            .pids
            .iter()
            .any(|row| row.load(Ordering::SeqCst) == u64::from(pid))
    }

    /// What all rows held at one instant, if one could be caught.
    pub fn instant(&self) -> Option<u64> {
        let read = || -> [u64; ROWS] {
            std::array::from_fn(|row| self.shared().rows[row].load(Ordering::SeqCst))
        };
        let first = read();
        if first != read() {
            return None;
        }
        let held = first.iter().map(|row| row & HELD).sum();
        self.shared().checks.fetch_add(1, Ordering::Relaxed);
        self.shared().largest.fetch_max(held, Ordering::Relaxed);
        Some(held)
    }

    /// Instants caught so far, the largest sum among them, and grants.
    pub fn tally(&self) -> (u64, u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (
            read(&self.shared().checks),
            read(&self.shared().largest),
            read(&self.shared().grants),
        )
    }
}
