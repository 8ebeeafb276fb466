//! What a folder holds. By libc: std's reader panics where its descriptor cannot be closed, since a filter forbids that or another thread has closed all that it found
//! (attack 49, its first part), and a stranger's process would end by it.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The paths of what a folder holds, but for itself and the one above; none where it cannot be read.
pub fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else {
        return Vec::new();
    };
    // SAFETY: a NUL-terminated path.
    let stream = unsafe { libc::opendir(path.as_ptr()) };
    if stream.is_null() {
        return Vec::new();
    }
    let mut found = Vec::new();
    loop {
        // SAFETY: the stream is open, and this thread's alone.
        let entry = unsafe { libc::readdir64(stream) };
        // SAFETY: null at the end, else an entry that stands until the next call, whose name is NUL-terminated.
        let Some(name) = (unsafe {
            entry
                .as_ref()
                .map(|entry| CStr::from_ptr(entry.d_name.as_ptr()))
        }) else {
            break;
        };
        if !matches!(name.to_bytes(), b"." | b"..") {
            found.push(folder.join(OsStr::from_bytes(name.to_bytes())));
        }
    }
    // SAFETY: opened above, and used no more. Whether its descriptor was open still is nobody's concern.
    unsafe { libc::closedir(stream) };
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This thread is refused each `close` from now on.
    fn forbid_closing() {
        const CLOSE: u32 = libc::SYS_close as u32;
        let step = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
            code: code as u16,
            jt,
            jf,
            k,
        };
        let mut filter = [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, CLOSE),
            step(
                libc::BPF_RET | libc::BPF_K,
                0,
                0,
                libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
            ),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: plain numbers, and a program that outlives the call.
        let codes = unsafe {
            [
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                ),
            ]
        };
        assert_eq!(codes, [0, 0], "a filter");
    }

    #[test]
    fn a_folder_is_read_though_nothing_can_be_closed() {
        let folder = tempfile::tempdir().expect("a folder");
        let expected = folder.path().join("inside");
        std::fs::write(&expected, "").expect("a file");
        let path = folder.path().to_owned();
        let reader = std::thread::spawn(move || {
            forbid_closing();
            entries(&path)
        });
        assert_eq!(reader.join().expect("no panic"), [expected]);
        assert_eq!(entries(&folder.path().join("missing")), [] as [PathBuf; 0]);
    }
}
