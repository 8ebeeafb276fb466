//! errno, which belongs to the program.

/// A value that no call of libc's sets.
const OWN: i32 = 0x5a5a;

/// Runs `call` with errno set to a value of our own. Its answer, and whether errno was left alone.
pub fn around<T>(call: impl FnOnce() -> T) -> (T, bool) {
    set(OWN);
    let answer = call();
    let kept = std::io::Error::last_os_error().raw_os_error() == Some(OWN);
    (answer, kept)
}

fn set(value: i32) {
    // SAFETY: the thread's own errno.
    unsafe { *libc::__errno_location() = value };
}
