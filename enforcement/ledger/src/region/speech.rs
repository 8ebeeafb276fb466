//! How a guest writes: in one call, and without the signals by which the kernel ends whoever writes to a pipe that nobody reads, or beyond what
//! a file may hold. A program that never writes to stderr has no reason to expect them.

use super::{KeptErrno, clock};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use std::os::fd::RawFd;

/// How long a line waits for the reader of a full pipe: once, then no line does until one goes through.
const PATIENCE_MS: u64 = 500;
static STUCK: AtomicBool = AtomicBool::new(false);

/// Writes one line to stderr, whatever state that is in; not where nobody reads what was written before: a program that writes nothing there has no reason
/// to be kept by it. Keeps errno.
pub fn complain(line: &[u8]) {
    let _errno = KeptErrno::keep();
    let mut asked = libc::pollfd {
        fd: libc::STDERR_FILENO,
        events: libc::POLLOUT,
        revents: 0,
    };
    let patience = match STUCK.load(Ordering::Relaxed) {
        true => 0,
        false => PATIENCE_MS,
    };
    let end = clock::now_ms() + patience;
    let is_free = loop {
        let left = end.saturating_sub(clock::now_ms());
        // SAFETY: one descriptor to ask about.
        match unsafe { libc::poll(&raw mut asked, 1, left as i32) } {
            // A signal of the program's: no handler of its own has it wait again.
            -1 if KeptErrno::keep().0 == libc::EINTR => {}
            answer => break answer == 1,
        }
    };
    STUCK.store(!is_free, Ordering::Relaxed);
    if is_free {
        write_quietly(libc::STDERR_FILENO, line);
    }
}

/// Writes as much as can be written. Keeps errno, and raises no SIGPIPE and no SIGXFSZ.
pub fn write_quietly(fd: RawFd, bytes: &[u8]) {
    let _errno = KeptErrno::keep();
    let (mut quiet, mut before, mut pending) = (
        MaybeUninit::<libc::sigset_t>::zeroed(),
        MaybeUninit::<libc::sigset_t>::zeroed(),
        MaybeUninit::<libc::sigset_t>::zeroed(),
    );
    // SAFETY: sets of signals of our own, which these calls fill before they are read; the buffer and its length. Both signals are sent to the
    // thread that writes: what is taken back was raised by this write, because nothing was pending before.
    unsafe {
        libc::sigemptyset(quiet.as_mut_ptr());
        libc::sigaddset(quiet.as_mut_ptr(), libc::SIGPIPE);
        libc::sigaddset(quiet.as_mut_ptr(), libc::SIGXFSZ);
        // By this one a terminal stops a job in the background that writes to it, if it was told to.
        libc::sigaddset(quiet.as_mut_ptr(), libc::SIGTTOU);
        if mask(libc::SIG_BLOCK, quiet.as_ptr(), before.as_mut_ptr()) != 0 {
            return;
        }
        libc::sigpending(pending.as_mut_ptr());
        let written = libc::write(fd, bytes.as_ptr().cast(), bytes.len());
        let raised = match KeptErrno::keep().0 {
            _ if written >= 0 => None,
            libc::EPIPE => Some(libc::SIGPIPE),
            libc::EFBIG => Some(libc::SIGXFSZ),
            _ => None,
        };
        if let Some(signal) = raised
            && libc::sigismember(pending.as_ptr(), signal) == 0
        {
            take_back(signal);
        }
        mask(libc::SIG_SETMASK, before.as_ptr(), core::ptr::null_mut());
    }
}

/// The kernel's own call: libc's name for it, where there is no libpthread, is of glibc 2.32.
///
/// # Safety
/// `set` is a set of signals, `before` NULL or a place for one.
unsafe fn mask(how: i32, set: *const libc::sigset_t, before: *mut libc::sigset_t) -> libc::c_long {
    // The kernel's set is the first eight bytes of libc's.
    const KERNELS: usize = 8;
    // SAFETY: as the caller promises.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, set, before, KERNELS) }
}

/// Takes a blocked signal that is pending away.
fn take_back(signal: i32) {
    let mut only = MaybeUninit::<libc::sigset_t>::zeroed();
    let at_once = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: a set of our own, filled before it is read.
    unsafe {
        libc::sigemptyset(only.as_mut_ptr());
        libc::sigaddset(only.as_mut_ptr(), signal);
        while libc::sigtimedwait(only.as_ptr(), core::ptr::null_mut(), &raw const at_once) < 0
            && KeptErrno::keep().0 == libc::EINTR
        {}
    }
}
