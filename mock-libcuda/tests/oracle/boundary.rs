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

/// Pages of their own with these bytes, for as long as the process lives.
pub fn fresh_pages(size: usize, byte: impl Fn(usize) -> u8) -> u64 {
    // SAFETY: a fresh anonymous mapping, written within its length.
    unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let start = libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        for at in 0..size {
            start.cast::<u8>().add(at).write(byte(at));
        }
        start as u64
    }
}

pub fn bytes_at(address: u64, len: usize) -> Vec<u8> {
    // SAFETY: callers name ranges of `fresh_pages`.
    unsafe { std::slice::from_raw_parts(address as *const u8, len).to_vec() }
}

pub fn write_byte(address: u64, byte: u8) {
    // SAFETY: as for `bytes_at`.
    unsafe { (address as *mut u8).write(byte) }
}

pub fn close(number: i32) -> bool {
    // SAFETY: a descriptor that a script names.
    unsafe { libc::close(number) == 0 }
}

/// A message between processes, with a descriptor or without.
pub struct Parcel {
    pub text: String,
    pub descriptor: Option<i32>,
}

/// One end of a line of messages.
pub struct Line(i32);

const LONGEST: usize = 1 << 20;
/// Room for a control message with one descriptor.
const CONTROL: usize = 64;

impl Line {
    pub fn send(&self, parcel: &Parcel) -> bool {
        let mut control = [0u64; CONTROL / 8];
        let mut part = libc::iovec {
            iov_base: parcel.text.as_ptr().cast_mut().cast(),
            iov_len: parcel.text.len(),
        };
        // SAFETY: the message names the text and the control buffer, both alive during the call.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
            if let Some(number) = parcel.descriptor {
                message.msg_control = control.as_mut_ptr().cast();
                message.msg_controllen = libc::CMSG_SPACE(4) as usize;
                let head = libc::CMSG_FIRSTHDR(&raw const message);
                (*head).cmsg_level = libc::SOL_SOCKET;
                (*head).cmsg_type = libc::SCM_RIGHTS;
                (*head).cmsg_len = libc::CMSG_LEN(4) as usize;
                libc::CMSG_DATA(head).cast::<i32>().write_unaligned(number);
            }
            libc::sendmsg(self.0, &raw const message, libc::MSG_NOSIGNAL) >= 0
        }
    }

    /// The next message; `None` when the other end is gone.
    pub fn receive(&self) -> Option<Parcel> {
        let mut text = vec![0u8; LONGEST];
        let mut control = [0u64; CONTROL / 8];
        let mut part = libc::iovec {
            iov_base: text.as_mut_ptr().cast(),
            iov_len: text.len(),
        };
        // SAFETY: as for `send`; a control message is read only where the kernel says that it wrote one.
        let (len, descriptor) = unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = CONTROL;
            let len = libc::recvmsg(self.0, &raw mut message, 0);
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            let number =
                (!head.is_null()).then(|| libc::CMSG_DATA(head).cast::<i32>().read_unaligned());
            (len, number)
        };
        let len = usize::try_from(len).ok().filter(|len| *len > 0)?;
        text.truncate(len);
        Some(Parcel {
            text: String::from_utf8(text).expect("UTF-8"),
            descriptor,
        })
    }
}

/// A fork child that answers messages.
pub struct Fork {
    line: Line,
    child: libc::pid_t,
    ended: Option<String>,
}

impl Fork {
    /// Runs `body` in a child that has none of the other children's lines.
    pub fn start(others: &[&Fork], body: impl FnOnce(&Line)) -> Fork {
        let mut ends = [0; 2];
        // SAFETY: socketpair fills two descriptors; fork as in `in_child`.
        unsafe {
            let made = libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, ends.as_mut_ptr());
            assert_eq!(made, 0, "socketpair");
            let child = libc::fork();
            if child == 0 {
                libc::close(ends[0]);
                for other in others {
                    libc::close(other.line.0);
                }
                let line = Line(ends[1]);
                let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&line)));
                libc::_exit(i32::from(done.is_err()));
            }
            assert!(child > 0, "fork");
            libc::close(ends[1]);
            Fork {
                line: Line(ends[0]),
                child,
                ended: None,
            }
        }
    }

    pub fn request(&mut self, parcel: &Parcel) -> Option<Parcel> {
        if self.ended.is_some() {
            return None;
        }
        self.line.send(parcel);
        let answer = self.line.receive();
        if answer.is_none() {
            self.reap();
        }
        answer
    }

    /// The answer's text; how the child ended, if it does; `gone` ever after.
    pub fn ask(&mut self, text: &str) -> String {
        if self.ended.is_some() {
            return "gone".into();
        }
        let parcel = Parcel {
            text: text.to_owned(),
            descriptor: None,
        };
        match self.request(&parcel) {
            Some(answer) => answer.text,
            None => self.ended.clone().unwrap_or_default(),
        }
    }

    pub fn is_gone(&self) -> bool {
        self.ended.is_some()
    }

    fn reap(&mut self) {
        self.ended = Some(match wait(self.child) {
            Some(Ended::Died(signal)) => format!("S{signal}"),
            other => format!("{other:?}"),
        });
    }

    pub fn kill(&mut self) {
        if self.ended.is_none() {
            // SAFETY: an own child that has not been waited for.
            unsafe { libc::kill(self.child, libc::SIGKILL) };
            self.reap();
        }
    }

    /// Lets the child end by itself.
    pub fn end(&mut self) {
        if self.ended.is_none() {
            // SAFETY: an own descriptor.
            unsafe { libc::shutdown(self.line.0, libc::SHUT_RDWR) };
            self.reap();
        }
    }
}

impl Drop for Fork {
    fn drop(&mut self) {
        self.end();
        close(self.line.0);
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
/// first user.
pub fn in_child(act: impl FnOnce() -> u64) -> Ended {
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
fn wait(child: libc::pid_t) -> Option<Ended> {
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
