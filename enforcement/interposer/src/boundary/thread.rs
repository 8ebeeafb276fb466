//! Which thread this is, without a call of libc's and without a thread-local of our own (decision 26).

/// The thread's pointer to its own block: no two living threads have the same, and 0 is none's.
#[inline(always)]
pub fn pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the ABI keeps the pointer at the start of the block that it points to; nothing is written.
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(pure, readonly, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(pure, nomem, nostack, preserves_flags));
    }
    pointer
}

/// Whether a thread of this process with the kernel's number is alive. Where the kernel does not tell, it is.
pub fn is_alive(thread: u32) -> bool {
    // SAFETY: sends no signal.
    let code = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) };
    code == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}
