//! The unsafe of these tests: the built library opened as a client opens it, and calls in processes of their own.

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::time::Duration;

use build_support::oracle::Recorded;

/// A library opened with dlopen. Opening runs none of its code.
pub struct Library(*mut c_void);

// SAFETY: a dlopen handle may be used from any thread.
unsafe impl Sync for Library {}
// SAFETY: as above.
unsafe impl Send for Library {}

/// Where cargo puts a cdylib of the package under test: beside the test executable.
pub fn built(file: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("the own path");
    exe.parent().expect("a directory").join(file)
}

/// Sixteen words: more than any entry point takes, so that "all zero" means what it says, and a structure of 64 bytes fits
/// on the stack.
type Call = unsafe extern "C" fn(
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
) -> u32;

impl Library {
    pub fn open(path: &Path) -> Library {
        let name = CString::new(path.to_str().expect("UTF-8")).expect("no NUL");
        // SAFETY: a NUL-terminated path; the library's constructors are Rust's own.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{} cannot be opened", path.display());
        Library(handle)
    }

    pub fn address(&self, name: &str) -> Option<u64> {
        let name = CString::new(name).expect("no NUL");
        // SAFETY: a live handle and a NUL-terminated name.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address as u64)
    }

    /// Calls an export with these words and zeros after them.
    pub fn call(&self, name: &str, words: &[u64]) -> u32 {
        let address = self
            .address(name)
            .unwrap_or_else(|| panic!("{name} is not exported"));
        let mut w = [0; 16];
        w[..words.len()].copy_from_slice(words);
        // SAFETY: the export takes at most sixteen words in the C calling convention; extra ones are ignored, and the test
        // gives valid pointers where it wants an answer.
        unsafe {
            let call: Call = std::mem::transmute(address as usize);
            call(
                w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12],
                w[13], w[14], w[15],
            )
        }
    }
}

/// Sixteen words: a structure of 64 bytes passed by value lies on the stack, behind six words in registers.
type WideCall = unsafe extern "C" fn(
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
    u64,
) -> u32;

impl Library {
    /// As [`Library::call`], with up to sixteen words.
    pub fn call_wide(&self, name: &str, words: &[u64]) -> u32 {
        let address = self
            .address(name)
            .unwrap_or_else(|| panic!("{name} is not exported"));
        let mut w = [0; 16];
        w[..words.len()].copy_from_slice(words);
        // SAFETY: as for `call`.
        unsafe {
            let call: WideCall = std::mem::transmute(address as usize);
            call(
                w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12],
                w[13], w[14], w[15],
            )
        }
    }
}

/// How a call in a process of its own ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Answered(u64),
    Died(i32),
    Hung,
}

/// Runs `act` in a fork child and brings its answer back. The parent never calls the library, so that every child is a
/// first user. What the children share is there before the first of them: a child that is forked while another thread
/// still makes it would wait for that thread, which it does not have, for ever.
pub fn in_child(act: impl FnOnce() -> u64) -> Ended {
    crate::shared_with_children();
    // SAFETY: a shared anonymous page for the answer; fork in a test that holds no locks of ours; the child ends by
    // _exit, so that nothing of the test harness runs twice.
    unsafe {
        let page = libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(page, libc::MAP_FAILED);
        let answer = page.cast::<u64>();
        let child = libc::fork();
        if child == 0 {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
            let code = i32::from(done.is_err());
            answer.write(done.unwrap_or(u64::MAX));
            libc::_exit(code);
        }
        assert!(child > 0, "fork");
        let ended = wait(child).unwrap_or_else(|| Ended::Answered(answer.read()));
        libc::munmap(page, 4096);
        ended
    }
}

/// `None` for a child that exited with 0.
pub fn wait(child: libc::pid_t) -> Option<Ended> {
    let started = std::time::Instant::now();
    let mut status = 0;
    loop {
        // SAFETY: an own child, a valid pointer.
        let gone = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) };
        if gone == child {
            break;
        }
        if started.elapsed() > Duration::from_secs(60) {
            // SAFETY: an own child that has not been waited for.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &mut status, 0);
            }
            return Some(Ended::Hung);
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    if libc::WIFSIGNALED(status) {
        Some(Ended::Died(libc::WTERMSIG(status)))
    } else if libc::WEXITSTATUS(status) != 0 {
        Some(Ended::Died(0))
    } else {
        None
    }
}

/// Changes the environment of a child of [`in_child`], which has one thread.
pub fn set_environment(name: &str, value: &[u8]) {
    let (name, value) = (
        CString::new(name).expect("no NUL"),
        CString::new(value).expect("no NUL"),
    );
    // SAFETY: one thread; NUL-terminated strings.
    unsafe {
        libc::setenv(name.as_ptr(), value.as_ptr(), 1);
    }
}

/// How a recorded call ended; `None` where nothing is known.
pub fn ended(recorded: Recorded) -> Option<Ended> {
    match recorded {
        Recorded::Unknown => None,
        Recorded::Crash => Some(Ended::Died(libc::SIGSEGV)),
        Recorded::Code(code) => Some(Ended::Answered(code.into())),
    }
}
