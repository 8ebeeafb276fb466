//! The unsafe of scripts that several processes play: pages, descriptors and the messages between them.

use crate::boundary::{Ended, wait};

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
        crate::shared_with_children();
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
                // Nothing of what other tests' threads have open just now: the numbers of new descriptors are compared.
                const LINE: i32 = 3;
                libc::dup2(ends[1], LINE);
                libc::syscall(libc::SYS_close_range, LINE + 1, u32::MAX, 0);
                let line = Line(LINE);
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
