//! The unsafe of `ringfence exec`: signals that would end it before its environment is cleared away.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};

/// What asks a program to end.
const ENDING: [libc::c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// Runs a program to its end. Whoever asks this process to end meanwhile asks the program: it is its parent that has to
/// outlive it. What a terminal sends goes to the program anyway.
///
/// The calling thread must be the only one that takes signals, as it alone holds them back: one that comes to another thread ends this
/// process, and the child's end would be told to nobody.
pub fn run_to_its_end(command: &mut Command) -> io::Result<ExitStatus> {
    let mut all = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: sigemptyset fills the set that the others then change; each pointer is valid.
    let (all, before) = unsafe {
        libc::sigemptyset(all.as_mut_ptr());
        for signal in ENDING {
            libc::sigaddset(all.as_mut_ptr(), signal);
        }
        libc::sigaddset(all.as_mut_ptr(), libc::SIGCHLD);
        let code = libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code));
        }
        (all.assume_init(), before.assume_init())
    };
    // SAFETY: between fork and exec, one call that is async-signal-safe.
    unsafe {
        command.pre_exec(move || {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            Ok(())
        });
    }
    let mut child = command.spawn()?;
    loop {
        let mut how = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: a valid set, and room for what came.
        let (signal, how) = unsafe {
            let signal = libc::sigwaitinfo(&raw const all, how.as_mut_ptr());
            (signal, how.assume_init())
        };
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        // From a process, not from the kernel on the terminal's behalf.
        if ENDING.contains(&signal) && how.si_code <= 0 {
            // SAFETY: the child was just seen not to be reaped, so that the number is its own.
            unsafe { libc::kill(child.id().cast_signed(), signal) };
        }
    }
}
