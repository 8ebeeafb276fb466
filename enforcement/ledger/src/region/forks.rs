//! What fork must not duplicate: a descriptor that holds a lock would keep a dead parent's slot alive in its child.
//!
//! A handler closes the ledger's descriptors in each child, and a fork waits for an attach in progress, so that no child gets the
//! descriptor or the mapping of a half-made slot. Raw clone(2) runs no handlers: such a child keeps the descriptors until it execs
//! or attaches.

use super::files::{Identity, close, identity_of};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// Descriptors to close in a child. A full table is told to the caller.
static INHERITED: [Inherited; 64] = [const { Inherited::new() }; 64];
static REGISTERED: AtomicBool = AtomicBool::new(false);
/// The process that is attaching, or 0. A pid, so that a child does not mistake its parent's for its own.
static ATTACHING: AtomicI32 = AtomicI32::new(0);

struct Inherited {
    /// The descriptor plus one; 0 where the row is free.
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

impl Inherited {
    const fn new() -> Inherited {
        Inherited {
            fd: AtomicI32::new(0),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
        }
    }
}

/// Has fork children close `fd`, which is a descriptor of `identity`. `false` where there is no row left.
pub fn forget_in_child(fd: i32, identity: &Identity) -> bool {
    for row in &INHERITED {
        if row
            .fd
            .compare_exchange(0, -1, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
        {
            row.device.store(identity.device, Ordering::Relaxed);
            row.inode.store(identity.inode, Ordering::Relaxed);
            row.fd.store(fd + 1, Ordering::Release);
            return true;
        }
    }
    false
}

/// Takes the row of a descriptor back, before it is closed.
pub fn keep_in_child(fd: i32) {
    for row in &INHERITED {
        if row
            .fd
            .compare_exchange(fd + 1, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
        {
            return;
        }
    }
}

/// While it lives, no thread of this process forks and no other attaches.
pub struct Attaching(());

impl Attaching {
    pub fn begin() -> Attaching {
        if !REGISTERED.swap(true, Ordering::AcqRel) {
            // SAFETY: three handlers that touch atomics and make async-signal-safe calls; the library is never unloaded (nodelete),
            // and where it were, libc drops its handlers with it.
            unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
        }
        acquire();
        Attaching(())
    }
}

impl Drop for Attaching {
    fn drop(&mut self) {
        ATTACHING.store(0, Ordering::Release);
    }
}

/// Waits for an attach in progress, at most about a second: a thread cancelled in the middle of one must not hang every fork.
fn acquire() {
    // SAFETY: getpid has no preconditions.
    let pid = unsafe { libc::getpid() };
    for _ in 0..10_000 {
        let holder = ATTACHING.load(Ordering::Relaxed);
        let free = holder == 0 || holder != pid;
        if free
            && ATTACHING
                .compare_exchange(holder, pid, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        {
            return;
        }
        let pause = libc::timespec {
            tv_sec: 0,
            tv_nsec: 100_000,
        };
        // SAFETY: sleeps; an early end by a signal is one more look.
        unsafe { libc::nanosleep(&raw const pause, core::ptr::null_mut()) };
    }
}

extern "C" fn before_fork() {
    let _errno = super::KeptErrno::keep();
    acquire();
}

extern "C" fn in_parent() {
    ATTACHING.store(0, Ordering::Release);
}

extern "C" fn in_child() {
    let _errno = super::KeptErrno::keep();
    ATTACHING.store(0, Ordering::Release);
    for row in &INHERITED {
        let fd = row.fd.swap(0, Ordering::AcqRel) - 1;
        let same = |found: &Identity| {
            found.device == row.device.load(Ordering::Relaxed)
                && found.inode == row.inode.load(Ordering::Relaxed)
        };
        // Programs close descriptors that are not theirs and get the numbers again: only what is still the ledger is closed.
        if fd >= 0 && identity_of(fd).is_ok_and(|found| same(&found)) {
            close(fd);
        }
    }
}
