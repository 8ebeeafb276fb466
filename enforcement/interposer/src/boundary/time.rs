//! The clock that all processes of the machine share, and waiting for it.

use throttle::Nanos;

pub fn now() -> Nanos {
    Nanos(ledger::now())
}

/// Waits; a signal may end it early.
pub fn sleep_until(until: Nanos) {
    ledger::sleep_until(until.0);
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
