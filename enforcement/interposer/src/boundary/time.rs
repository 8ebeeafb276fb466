//! The clock that all processes of the machine share, and waiting for it.

use throttle::Nanos;

pub fn now() -> Nanos {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    Nanos((now.tv_sec as u64).saturating_mul(1_000_000_000) + now.tv_nsec as u64)
}

/// Waits; a signal may end it early. Not by libc's function, which is a point where a thread may be cancelled.
pub fn sleep_until(until: Nanos) {
    let until = libc::timespec {
        tv_sec: (until.0 / 1_000_000_000) as libc::time_t,
        tv_nsec: (until.0 % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: reads one timespec; nothing is written where the time is absolute.
    unsafe {
        libc::syscall(
            libc::SYS_clock_nanosleep,
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const until,
            core::ptr::null_mut::<libc::timespec>(),
        )
    };
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

/// Ticks between two looks in passing.
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
