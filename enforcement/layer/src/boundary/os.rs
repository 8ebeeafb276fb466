//! What is asked of the system.

use ledger::KeptErrno;
use throttle::Nanos;

use core::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::exports::Descriptor;

/// The clock that all processes of the machine share.
pub fn now() -> Nanos {
    Nanos(ledger::now())
}

/// The processor's counter. Its differences are time; no call of libc's is needed.
#[inline(always)]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads the time-stamp counter, which every x86-64 has.
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: reads the virtual counter, which user space may read on Linux.
        unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack)) };
        return ticks;
    }
}

/// Ticks between two looks at the driver's figures that no request asks for: 20 to 100 ms.
pub fn look_interval() -> u64 {
    #[cfg(target_arch = "x86_64")]
    return 100_000_000;
    #[cfg(target_arch = "aarch64")]
    {
        let frequency: u64;
        // SAFETY: reads the counter's frequency, which user space may read on Linux.
        unsafe {
            core::arch::asm!("mrs {}, cntfrq_el0", out(reg) frequency, options(nomem, nostack))
        };
        return frequency / 20;
    }
}

/// Waits; a signal may end it early.
pub fn sleep_until(until: Nanos) {
    ledger::sleep_until(until.0);
}

/// What an open descriptor refers to; `None` where it is not open. Keeps errno.
pub fn descriptor(fd: i32) -> Option<Descriptor> {
    let _errno = KeptErrno::keep();
    // SAFETY: `status` has room for what fstat writes.
    unsafe {
        let mut status = std::mem::zeroed::<libc::stat>();
        let result = libc::fstat(fd, &mut status);
        (result == 0).then_some(Descriptor {
            fd,
            device: status.st_dev,
            inode: status.st_ino,
        })
    }
}

/// Where the loader found this library. Asked once, with the settings: dladdr takes the loader's lock, which a thread may hold that opens a library whose
/// constructor waits for this one (attack 25).
pub fn own_path() -> Option<&'static Path> {
    static PATH: OnceLock<Option<PathBuf>> = OnceLock::new();
    PATH.get_or_init(found_at).as_deref()
}

fn found_at() -> Option<PathBuf> {
    // SAFETY: plain pointers and numbers, for which all zeros is a value.
    let mut found: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: any address may be asked about; the answer is written to our own place.
    if unsafe { libc::dladdr(found_at as *const libc::c_void, &raw mut found) } == 0
        || found.dli_fname.is_null()
    {
        return None;
    }
    // SAFETY: the loader's own string, which lives as long as this library.
    sources::library(unsafe { CStr::from_ptr(found.dli_fname) })
}
