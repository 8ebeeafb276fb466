//! What fork children keep of their parent: the driver's descriptors, and with them its memory (H200, 580.159.04: `fixtures/oracle/held-580.txt`). A mapping that
//! they inherit keeps a lock for as long as one of them lives, and goes with exec, as those descriptors do.

use super::files::{Errno, close, share};
use core::ptr::NonNull;
use std::os::fd::RawFd;

/// A page of the ledger, mapped by a description of its own that holds a shared lock on one byte: for as long as this process or one that it forked
/// since has the mapping.
pub struct Inheritance(NonNull<libc::c_void>);

// SAFETY: the mapping belongs to no thread, and nobody reads or writes it.
unsafe impl Send for Inheritance {}
// SAFETY: as above.
unsafe impl Sync for Inheritance {}

/// Nobody reads it.
const PAGE: usize = 4096;

impl Inheritance {
    /// Locks the byte by `fd`, which nothing else may have a copy of, and closes it.
    pub fn begin(fd: RawFd, byte: usize) -> Result<Inheritance, Errno> {
        let mapped = share(fd, byte).and_then(|()| {
            // SAFETY: a new mapping at a place that the kernel chooses, which cannot be accessed.
            let base = unsafe {
                libc::mmap(
                    core::ptr::null_mut(),
                    PAGE,
                    libc::PROT_NONE,
                    libc::MAP_SHARED,
                    fd,
                    0,
                )
            };
            NonNull::new(base)
                .filter(|base| base.as_ptr() != libc::MAP_FAILED)
                .ok_or_else(|| Errno::last("mmap"))
        });
        close(fd);
        mapped.map(Inheritance)
    }

    /// In this process it is over. Not for its children.
    pub fn end(self) {
        // SAFETY: exactly what `begin` mapped, which nobody accesses.
        unsafe { libc::munmap(self.0.as_ptr(), PAGE) };
    }
}
