//! The system calls these tests need and std does not have: the one file of unsafe code among them.

use crate::child::{DEVICE, MIB, setup};
use ledger::{Bytes, DeviceIndex, Driver, Ledger, Refusal};
use std::ffi::CString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A driver that holds a process's memory exactly as long as the process exists.
pub struct Alive;

impl Driver for Alive {
    fn still_holds(&self, _device: DeviceIndex, pid: u32) -> Option<bool> {
        // SAFETY: signal 0 only asks.
        Some(unsafe { libc::kill(pid as libc::pid_t, 0) } == 0)
    }
}

pub fn close_from(least: u32) {
    // SAFETY: the child's own descriptors; whoever relied on them is what is tested.
    unsafe { libc::syscall(libc::SYS_close_range, least, u32::MAX, 0) };
}

/// Lowers the limit on descriptors.
pub fn allow_descriptors(most: u64) {
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: reads the limit; affects this process only.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
}

/// A fork child that does nothing until it is killed. Answers its pid.
pub fn fork_and_stay() -> i32 {
    let mut ends = [0; 2];
    // SAFETY: fills two descriptors.
    let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
    assert_eq!(made, 0);
    let mut began = 0_u8;
    // SAFETY: the child makes async-signal-safe calls only.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: one byte of our own.
        unsafe { libc::write(ends[1], (&raw const began).cast(), 1) };
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    }
    // Until a child has run it holds what its parent held: what is promised of it is promised from here on.
    // SAFETY: one byte of our own; the descriptors are not used again.
    unsafe {
        libc::read(ends[0], (&raw mut began).cast(), 1);
        libc::close(ends[0]);
        libc::close(ends[1]);
    }
    pid
}

pub fn kill(pid: i32, signal: i32) {
    // SAFETY: a process that the test started.
    unsafe { libc::kill(pid, signal) };
}

/// Moves this process's future children into a namespace of their own and becomes one of them: pid 1 there.
pub fn own_pid_namespace() -> String {
    // SAFETY: affects this process only, which has one thread that matters.
    if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
        return format!("not permitted: {}", std::io::Error::last_os_error());
    }
    // SAFETY: the child goes on with the orders; the parent waits for it and passes its end on.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: dies with its parent, which the test kills.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            format!("pid {}", std::process::id())
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for the child made above, then ends without running the parent's destructors.
            unsafe {
                libc::waitpid(child, &raw mut status, 0);
                libc::_exit(0)
            }
        }
    }
}

/// A private mount namespace for this thread. `false` where that is not permitted.
pub fn own_mounts() -> bool {
    // SAFETY: affects this thread only.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWNS) } == 0;
    unshared
        && mount(
            "none",
            Path::new("/"),
            "",
            libc::MS_REC | libc::MS_PRIVATE,
            "",
        )
        .is_ok()
}

pub fn mount(
    source: &str,
    target: &Path,
    kind: &str,
    flags: libc::c_ulong,
    options: &str,
) -> std::io::Result<()> {
    let text = |text: &str| CString::new(text).unwrap();
    let (source, target) = (text(source), text(target.to_str().unwrap()));
    let (kind, options) = (text(kind), text(options));
    // SAFETY: four NUL-terminated strings.
    let mounted = unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            options.as_ptr().cast(),
        )
    };
    if mounted == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Eight threads reserve and release while this process forks `forks` children, each of which finds its handle dead, attaches its
/// own slot, reserves, and ends. Answers what went wrong, or `clean`.
pub fn fork_while_busy(ledger: &Ledger, path: &Path, forks: usize) -> String {
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for size in 1..=8_u64 {
            let (stop, rounds) = (&stop, &rounds);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // Some of the lease, some beyond it: forks meet every stage.
                    let bytes = Bytes(if size % 2 == 0 {
                        64 << 10
                    } else {
                        size * 17 * MIB
                    });
                    drop(ledger.reserve(DEVICE, bytes));
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let failed = (0..forks)
            .map(|_| fork_one(ledger, path))
            .find(|status| *status != 0);
        let before = rounds.load(Ordering::Relaxed);
        while failed.is_none() && rounds.load(Ordering::Relaxed) < before + 8 {
            std::thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        failed.map_or_else(
            || "clean".into(),
            |status| format!("child status {status:#x}"),
        )
    })
}

fn fork_one(ledger: &Ledger, path: &Path) -> i32 {
    // SAFETY: the child attaches and ends by _exit; glibc's allocator works in the child of a threaded parent.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = in_fork_child(ledger, path);
        // SAFETY: ends the child without the parent's destructors.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    status
}

/// 0 where the promises to a fork child are kept, else which one is not.
fn in_fork_child(parents: &Ledger, path: &Path) -> i32 {
    if parents.is_mine() {
        return 1;
    }
    if parents.reserve(DEVICE, Bytes(MIB)).map(|_| ()) != Err(Refusal::Forked) {
        return 2;
    }
    parents.release(DEVICE, Bytes(MIB));
    if parents.own_usage(DEVICE) != Bytes(0) || parents.available(DEVICE) != Some(Bytes(0)) {
        return 3;
    }
    let Ok(own) = Ledger::attach(path, &setup(0)) else {
        return 4;
    };
    if own
        .reserve(DEVICE, Bytes(MIB))
        .map(ledger::Reservation::commit)
        .is_err()
    {
        return 5;
    }
    if own.own_usage(DEVICE) != Bytes(MIB) {
        return 6;
    }
    own.release(DEVICE, Bytes(MIB));
    0
}

/// Gives this thread an empty directory as its root. `false` where that is not permitted.
pub fn change_root(to: &Path) -> bool {
    let to = CString::new(to.as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: of this thread alone, from the first call on; the path ends in NUL.
    unsafe { libc::unshare(libc::CLONE_FS) == 0 && libc::chroot(to.as_ptr()) == 0 }
}

/// Locks one byte of a file for its open file description, as a ledger's processes do; whether it was free.
pub fn lock_byte(file: &std::fs::File, at: i64) -> bool {
    // SAFETY: plain integers.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = at;
    lock.l_len = 1;
    // SAFETY: an open file, and a description that is read.
    unsafe {
        libc::fcntl(
            std::os::fd::AsRawFd::as_raw_fd(file),
            libc::F_OFD_SETLK,
            &raw const lock,
        ) == 0
    }
}

/// Makes this thread the user nobody's, without any privilege; whether that was permitted.
pub fn become_nobody() -> bool {
    const NOBODY: libc::c_long = 65_534;
    // SAFETY: plain numbers; the kernel's own call changes the thread alone.
    unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) == 0 }
}
