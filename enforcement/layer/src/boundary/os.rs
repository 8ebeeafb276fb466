//! Two questions to the system.

use core::ffi::CStr;
use std::path::PathBuf;

use crate::exports::Descriptor;

/// One write(2) to stderr. Nothing is done about a failure: a guest has no other place to complain.
pub fn stderr(text: &[u8]) {
    // SAFETY: the buffer is as long as said.
    let _written = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

/// What an open descriptor refers to; `None` where it is not open. Keeps errno.
pub fn descriptor(fd: i32) -> Option<Descriptor> {
    // SAFETY: errno is this thread's own, and `status` has room for what fstat writes.
    unsafe {
        let errno = *libc::__errno_location();
        let mut status = std::mem::zeroed::<libc::stat>();
        let result = libc::fstat(fd, &mut status);
        *libc::__errno_location() = errno;
        (result == 0).then_some(Descriptor {
            fd,
            device: status.st_dev,
            inode: status.st_ino,
        })
    }
}

/// Where the loader found this library.
pub fn own_path() -> Option<PathBuf> {
    // SAFETY: plain pointers and numbers, for which all zeros is a value.
    let mut found: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: any address may be asked about; the answer is written to our own place.
    if unsafe { libc::dladdr(own_path as *const libc::c_void, &raw mut found) } == 0
        || found.dli_fname.is_null()
    {
        return None;
    }
    // SAFETY: the loader's own string, which lives as long as this library.
    sources::library(unsafe { CStr::from_ptr(found.dli_fname) })
}
