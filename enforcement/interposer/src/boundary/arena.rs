//! The one place for what a process knows of itself, locks included: zeroed by the kernel in a fork child, which so begins anew (decision 7).

use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use ledger::KeptErrno;

use seeds::{Seed, planted};
use throttle::Nanos;

use crate::boundary::time;
use crate::process::Memory;

static ARENA: AtomicPtr<Memory> = AtomicPtr::new(core::ptr::null_mut());
/// The kernel refused to wipe on fork: the owner's pid is compared instead.
static COMPARE_PID: AtomicU32 = AtomicU32::new(0);

/// The memory of a process in which hooks enforce, where a look at it is enough to know that they still do: the kernel wipes it on fork. It is here
/// that every call begins.
static ENFORCING: AtomicPtr<Memory> = AtomicPtr::new(core::ptr::null_mut());

#[inline(always)]
pub fn enforcing() -> Option<&'static Memory> {
    // SAFETY: as in `existing`: null, or what `existing` answers.
    unsafe { ENFORCING.load(Ordering::Acquire).as_ref() }
}

/// From now on a look at the process's memory is enough, if it can be; or no longer.
pub fn set_enforcing(memory: Option<&'static Memory>) {
    let memory = memory.filter(|_| COMPARE_PID.load(Ordering::Acquire) == 0);
    let memory = memory.map_or(core::ptr::null_mut(), |memory| {
        (&raw const *memory).cast_mut()
    });
    ENFORCING.store(memory, Ordering::SeqCst);
}

/// The process's memory; `None` where the kernel gives none.
pub fn memory() -> Option<&'static Memory> {
    existing().or_else(map)
}

/// The process's memory, if it has been asked for.
#[inline]
pub fn existing() -> Option<&'static Memory> {
    // SAFETY: once set it points to a mapping that is never unmapped, of the size and alignment of `Memory`, for which all zeros is a value.
    let memory = unsafe { ARENA.load(Ordering::Acquire).as_ref() }?;
    if COMPARE_PID.load(Ordering::Relaxed) != 0 {
        wipe_if_forked(memory);
    }
    Some(memory)
}

#[cold]
fn map() -> Option<&'static Memory> {
    let size = size_of::<Memory>();
    // SAFETY: a fresh anonymous mapping.
    let arena = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if arena == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: our own mapping.
    let wiped =
        planted(Seed::P7) || unsafe { libc::madvise(arena, size, libc::MADV_WIPEONFORK) } == 0;
    let arena = arena.cast::<Memory>();
    match ARENA.compare_exchange(
        core::ptr::null_mut(),
        arena,
        Ordering::AcqRel,
        Ordering::Acquire,
    ) {
        Ok(_) => {
            if !wiped {
                // SAFETY: as in `existing`.
                unsafe { &*arena }.owner.store(pid(), Ordering::Relaxed);
                COMPARE_PID.store(1, Ordering::Release);
            }
            // SAFETY: as in `existing`.
            Some(unsafe { &*arena })
        }
        Err(first) => {
            // SAFETY: our own mapping, which nobody has seen.
            unsafe { libc::munmap(arena.cast(), size) };
            // SAFETY: as in `existing`.
            Some(unsafe { &*first })
        }
    }
}

fn wipe_if_forked(memory: &'static Memory) {
    let (owner, own) = (memory.owner.load(Ordering::Relaxed), pid());
    if owner != own {
        // SAFETY: our own private mapping; a fork child has one thread, and fresh pages are zeros.
        unsafe {
            libc::madvise(
                (&raw const *memory).cast_mut().cast(),
                size_of::<Memory>(),
                libc::MADV_DONTNEED,
            )
        };
        memory.owner.store(own, Ordering::Relaxed);
    }
}

pub fn pid() -> u32 {
    // SAFETY: takes nothing.
    unsafe { libc::getpid() as u32 }
}

/// The calling thread's number, as the kernel says it.
pub fn thread() -> u32 {
    // SAFETY: takes nothing.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// A lock that is free when it is all zeros.
#[repr(transparent)]
#[derive(Default)]
pub struct Lock(AtomicU32);

/// Held until dropped.
#[must_use]
pub struct Held<'a>(&'a Lock);

impl Lock {
    pub fn hold(&self) -> Held<'_> {
        // 0 free, 1 held, 2 held and awaited.
        if self
            .0
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            let _errno = KeptErrno::keep();
            while self.0.swap(2, Ordering::Acquire) != 0 {
                self.wait(None);
            }
        }
        Held(self)
    }

    /// `None` where another thread holds it all that time.
    fn hold_within(&self, patience: Nanos) -> Option<Held<'_>> {
        if let Some(held) = self.try_hold() {
            return Some(held);
        }
        let _errno = KeptErrno::keep();
        let end = time::now().plus(patience);
        // From here on as one that is awaited: others may wait as well, and who lets go wakes one of them.
        while self.0.swap(2, Ordering::Acquire) != 0 {
            let left = Nanos(end.0.saturating_sub(time::now().0));
            if left == Nanos::ZERO {
                return None;
            }
            self.wait(Some(left));
        }
        Some(Held(self))
    }

    /// Until it may be free, at most so long.
    fn wait(&self, patience: Option<Nanos>) {
        let patience = patience.map(|time| libc::timespec {
            tv_sec: (time.0 / 1_000_000_000) as libc::time_t,
            tv_nsec: (time.0 % 1_000_000_000) as libc::c_long,
        });
        let patience = patience.as_ref().map_or(core::ptr::null(), |one| one);
        // SAFETY: waits while the word is 2; every outcome is followed by another try.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                2,
                patience,
            )
        };
    }
}

impl Lock {
    /// `None` where another thread holds it.
    pub fn try_hold(&self) -> Option<Held<'_>> {
        let free = self
            .0
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        // Not before: one that is made and dropped lets go of another's.
        free.is_ok().then(|| Held(self))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.0.0.swap(0, Ordering::Release) == 2 {
            // SAFETY: wakes a waiter on the word.
            unsafe {
                libc::syscall(
                    libc::SYS_futex,
                    self.0.0.as_ptr(),
                    libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                    1,
                )
            };
        }
    }
}

/// A lock for what may call back into us, as a driver's cuInit does that loads somebody's library: the thread that holds it is let through.
#[repr(C)]
pub struct Reentrant {
    lock: Lock,
    /// The thread that holds it, 0 if none does.
    thread: AtomicU32,
    /// Not 0: who holds it is in a call that may wait for what others are to do.
    lent: AtomicU32,
}

/// How long who needs the lock waits for a call during which it is lent.
const PATIENCE: Nanos = Nanos::millis(500);

/// Lent until dropped.
#[must_use]
pub struct Lent<'a>(&'a AtomicU32);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

/// Held until dropped.
#[must_use]
pub struct Owned<'a> {
    thread: &'a AtomicU32,
    /// Let go of last.
    _held: Held<'a>,
}

impl Reentrant {
    /// `None` where this thread has it already, and where who has it has lent it and does not come back: then the caller goes on beside them.
    pub fn hold(&self) -> Option<Owned<'_>> {
        let own = thread();
        if self.is_held_by(own) {
            return None;
        }
        let held = loop {
            match self.lock.hold_within(PATIENCE) {
                Some(held) => break held,
                None if self.lent.load(Ordering::Acquire) != 0 && !planted(Seed::R114) => {
                    return None;
                }
                None => {}
            }
        };
        self.thread.store(own, Ordering::Relaxed);
        Some(Owned {
            thread: &self.thread,
            _held: held,
        })
    }

    /// The calling thread makes a call that may wait for what other threads are to do: they wait for that only so long (R114 of `fixtures/defects.txt`).
    /// `None` where it has gone on beside who has the lock, which is not its own to lend.
    pub fn lend(&self) -> Option<Lent<'_>> {
        self.is_mine().then(|| {
            self.lent.store(1, Ordering::Release);
            Lent(&self.lent)
        })
    }

    /// Whether this thread has it.
    pub fn is_mine(&self) -> bool {
        self.is_held_by(thread())
    }

    /// `own` is the calling thread: only that can have written its own number.
    fn is_held_by(&self, own: u32) -> bool {
        self.thread.load(Ordering::Relaxed) == own
    }
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        self.thread.store(0, Ordering::Relaxed);
    }
}

/// A type of which all zeros is a value.
///
/// # Safety
/// It is made of integers and atomics, and of what is made of them.
pub unsafe trait Zeroed {}

// SAFETY: words, and a pointer that is null.
unsafe impl<const BUCKETS: usize> Zeroed for crate::records::Records<BUCKETS> {}

/// The values that [`Forever`]s keep, the last first. LeakSanitizer looks for the way to what a program has on its heap in stacks and in libraries' data, not in
/// mappings: what is only to be found from the arena it would call leaked, and end a clean program with an error. A fork child's are before its parent's.
static KEPT: AtomicPtr<Kept<()>> = AtomicPtr::new(core::ptr::null_mut());

/// A value, and the one that was kept before it.
#[repr(C)]
struct Kept<T> {
    before: AtomicPtr<Kept<()>>,
    value: T,
}

impl<T> Kept<T> {
    /// To be found from here for ever, once.
    fn keep(&self) {
        let own = (&raw const *self).cast_mut().cast();
        let mut last = KEPT.load(Ordering::Relaxed);
        loop {
            self.before.store(last, Ordering::Relaxed);
            match KEPT.compare_exchange_weak(last, own, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => last = other,
            }
        }
    }
}

/// A value of the process that was made once and lives as long as it; all zeros is none.
#[repr(transparent)]
pub struct Forever<T>(AtomicPtr<Kept<T>>);

impl<T: Zeroed + Sync + 'static> Forever<T> {
    /// The value, made of zeros now if there is none; `None` where there is no memory for it. Pages of it are taken as they are written.
    pub fn get_or_zeroed(&self) -> Option<&'static T> {
        if let Some(value) = self.get() {
            return Some(value);
        }
        let layout = core::alloc::Layout::new::<Kept<T>>();
        // SAFETY: the type is not empty.
        let fresh = unsafe { std::alloc::alloc_zeroed(layout) };
        if fresh.is_null() {
            return None;
        }
        // SAFETY: allocated just now for this type, of which all zeros is a value.
        Some(self.keep(unsafe { Box::from_raw(fresh.cast()) }))
    }
}

impl<T> Forever<T> {
    #[cfg(test)]
    pub const fn none() -> Forever<T> {
        Forever(AtomicPtr::new(core::ptr::null_mut()))
    }
}

impl<T: Sync + 'static> Forever<T> {
    pub fn get(&self) -> Option<&'static T> {
        // SAFETY: only `keep` stores here, a leaked box.
        let kept = unsafe { self.0.load(Ordering::Acquire).as_ref() }?;
        Some(&kept.value)
    }

    /// The value, made now if there is none.
    pub fn get_or_default(&self) -> &'static T
    where
        T: Default,
    {
        self.get().unwrap_or_else(|| self.set(T::default()))
    }

    /// Keeps `value` unless another thread was first; answers the one that is kept.
    pub fn set(&self, value: T) -> &'static T {
        self.keep(Box::new(Kept {
            before: AtomicPtr::default(),
            value,
        }))
    }

    fn keep(&self, fresh: Box<Kept<T>>) -> &'static T {
        let fresh = Box::into_raw(fresh);
        match self.0.compare_exchange(
            core::ptr::null_mut(),
            fresh,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => {
                // SAFETY: leaked just now.
                let kept = unsafe { &*fresh };
                kept.keep();
                &kept.value
            }
            Err(first) => {
                // SAFETY: our own box, which nobody has seen; the first one is a leaked box.
                unsafe {
                    drop(Box::from_raw(fresh));
                    &(*first).value
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_held_stays_so_whoever_tries_it() {
        let lock = Lock::default();
        let held = lock.hold();
        assert!(lock.try_hold().is_none());
        assert!(lock.try_hold().is_none());
        drop(held);
        assert!(lock.try_hold().is_some());
        assert!(lock.try_hold().is_some());
    }
}
