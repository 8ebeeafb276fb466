//! Tells a fork child that it is one.
//!
//! A page that the kernel wipes in children costs one load to ask, and catches a raw clone() too. Where MADV_WIPEONFORK
//! is refused (gVisor), the process id is compared instead.

use std::sync::atomic::{AtomicU32, Ordering};

pub struct Canary {
    page: Option<&'static AtomicU32>,
    owner: u32,
}

impl Canary {
    pub fn new() -> Canary {
        Canary {
            page: wiped_page(),
            owner: std::process::id(),
        }
    }

    /// Whether this is still the process that made the canary.
    pub fn alive(&self) -> bool {
        match self.page {
            Some(word) => word.load(Ordering::Relaxed) == 1,
            None => std::process::id() == self.owner,
        }
    }
}

fn wiped_page() -> Option<&'static AtomicU32> {
    const SIZE: usize = 4096;
    // SAFETY: a fresh private mapping that nothing else knows; it is never unmapped, hence 'static.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if page == libc::MAP_FAILED {
            return None;
        }
        if libc::madvise(page, SIZE, libc::MADV_WIPEONFORK) != 0 {
            libc::munmap(page, SIZE);
            return None;
        }
        let word = &*page.cast::<AtomicU32>();
        word.store(1, Ordering::Relaxed);
        Some(word)
    }
}
