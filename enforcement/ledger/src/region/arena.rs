//! The process's own state: a page that a fork child finds zeroed, so that a child knows at once that the handle is not its own and
//! no lock of its parent's is left held in it.

use seeds::{Seed, planted};

use super::Errno;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

const CANARY: u64 = 0x7269_6e67_6665_6e63;
const PAGE: usize = 4096;

#[repr(C)]
struct Page {
    canary: AtomicU64,
    /// Held by the thread that looks for the dead: a byte lock does not tell threads of one process apart.
    reaping: AtomicU64,
    /// When the dead were last looked for only because somebody asked for figures.
    looked: AtomicU64,
}

/// Lets go of the flag, whatever becomes of the work: it asks a driver, which is not ours.
struct Held<'a>(&'a AtomicU64);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// One page of process state.
pub struct Arena {
    page: NonNull<Page>,
    /// The owner, where the kernel cannot wipe; else 0.
    pid: i32,
}

// SAFETY: the page belongs to no thread and holds atomics only.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    pub fn new() -> Result<Arena, Errno> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new private mapping at a place the kernel chooses.
        let base = unsafe { libc::mmap(core::ptr::null_mut(), PAGE, protection, flags, -1, 0) };
        let Some(page) = NonNull::new(base).filter(|base| base.as_ptr() != libc::MAP_FAILED) else {
            return Err(Errno::last("mmap"));
        };
        // SAFETY: advice about exactly the page mapped above.
        let wiped = unsafe { libc::madvise(base, PAGE, libc::MADV_WIPEONFORK) } == 0;
        // SAFETY: getpid has no preconditions.
        let pid = if wiped { 0 } else { unsafe { libc::getpid() } };
        let arena = Arena {
            page: page.cast(),
            pid,
        };
        arena.page().canary.store(CANARY, Ordering::Relaxed);
        Ok(arena)
    }

    /// False in a fork child.
    #[inline]
    pub fn is_mine(&self) -> bool {
        // SAFETY: getpid has no preconditions.
        planted(Seed::P7)
            || self.page().canary.load(Ordering::Relaxed) == CANARY
                && (self.pid == 0 || self.pid == unsafe { libc::getpid() })
    }

    /// Runs `work` unless another thread is at it.
    pub fn alone<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        let reaping = &self.page().reaping;
        reaping
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        let _held = Held(reaping);
        Some(work())
    }

    /// Whether `every` milliseconds have gone by at `now` since this was last true. Of threads that ask at once it is true for one.
    pub fn is_time(&self, now: u64, every: u64) -> bool {
        let looked = &self.page().looked;
        let before = looked.load(Ordering::Relaxed);
        // Both ways: the clock may be another one's after a process was frozen and thawed elsewhere.
        (before == 0 || now.abs_diff(before) >= every)
            && looked
                .compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    #[inline]
    fn page(&self) -> &Page {
        // SAFETY: a page-aligned mapping that lives as long as self, in fork children too; zeros are valid atomics.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped.
        unsafe { libc::munmap(self.page.as_ptr().cast(), PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_time_once_in_each_while_whichever_way_the_clock_goes() {
        let arena = Arena::new().unwrap();
        let told = [5, 6, 14, 15, 16, 4, 13, 14].map(|now| arena.is_time(now, 10));
        assert_eq!(told, [true, false, false, true, false, true, false, true]);
    }
}
