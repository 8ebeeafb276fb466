//! The few calls to the operating system that std does not have.

pub(crate) fn kill_self() -> ! {
    loop {
        // SAFETY: kill and getpid touch no memory of ours.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}
