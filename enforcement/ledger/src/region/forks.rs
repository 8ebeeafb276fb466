//! What fork must not duplicate: a descriptor that holds a lock would keep a dead parent's slot alive in its child.
//!
//! A handler closes the ledger's descriptors in each child, and a fork waits for an attach in progress, so that no child gets the
//! descriptor or the mapping of a half-made slot. Raw clone(2) runs no handlers: such a child keeps the descriptors until it execs
//! or attaches, and so does the child of a thread that forks in a signal's handler while it attaches.

use super::files::{Identity, close, identity_of};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// Descriptors to close in a child. A full table is told to the caller.
static INHERITED: [Inherited; 64] = [const { Inherited::new() }; 64];
static REGISTERED: AtomicBool = AtomicBool::new(false);
/// The thread that is attaching or forking, as [`this_thread`] says it, or 0.
static HOLDER: AtomicU64 = AtomicU64::new(0);
/// Set in [`HOLDER`] where it is a fork. No thread has so large a number.
const FORKING: u64 = 1 << 31;

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
        acquire(0);
        Attaching(())
    }
}

impl Drop for Attaching {
    fn drop(&mut self) {
        let own = this_thread();
        let _ = HOLDER.compare_exchange(own, 0, Ordering::Release, Ordering::Relaxed);
    }
}

/// The process's pid, so that a child does not mistake its parent's threads for its own, and the thread's.
fn this_thread() -> u64 {
    // SAFETY: neither takes anything.
    let (pid, thread) = unsafe { (libc::getpid(), libc::syscall(libc::SYS_gettid)) };
    (u64::from(pid as u32) << 32) | u64::from(thread as u32)
}

/// Waits for an attach in progress, at most about a second: a thread that is stopped in the middle of one must not hang every fork. Not for one of the
/// thread's own, which it is in the middle of: it forks in a signal's handler.
fn acquire(kind: u64) {
    let own = this_thread();
    for _ in 0..10_000 {
        let holder = HOLDER.load(Ordering::Relaxed);
        if holder & !FORKING == own {
            return;
        }
        let free = holder == 0 || holder >> 32 != own >> 32;
        if free
            && HOLDER
                .compare_exchange(holder, own | kind, Ordering::Acquire, Ordering::Relaxed)
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
    acquire(FORKING);
}

extern "C" fn in_parent() {
    // What another thread holds, or this one since before its signal, goes on.
    let own = this_thread() | FORKING;
    let _ = HOLDER.compare_exchange(own, 0, Ordering::Release, Ordering::Relaxed);
}

extern "C" fn in_child() {
    let _errno = super::KeptErrno::keep();
    HOLDER.store(0, Ordering::Release);
    super::clock::forget();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_in_the_middle_of_the_threads_own_attach_goes_on_and_leaves_it_under_way() {
        let attaching = Attaching::begin();
        let before = std::time::Instant::now();
        for _ in 0..100 {
            before_fork();
            in_parent();
        }
        // Each was a second of waiting for itself.
        assert!(before.elapsed() < std::time::Duration::from_secs(50));
        assert_eq!(HOLDER.load(Ordering::Relaxed), this_thread());
        drop(attaching);
        assert_ne!(HOLDER.load(Ordering::Relaxed), this_thread());
        before_fork();
        assert_eq!(HOLDER.load(Ordering::Relaxed), this_thread() | FORKING);
        in_parent();
        assert_ne!(HOLDER.load(Ordering::Relaxed), this_thread() | FORKING);
    }
}
