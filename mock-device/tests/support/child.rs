//! A process of the experiment, made by fork, which talks over two pipes.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};

/// The child's end: wait for a word from the parent, or send one.
pub struct Line {
    from: File,
    to: File,
}

impl Line {
    pub fn say(&mut self, byte: u8) {
        self.to.write_all(&[byte]).expect("the other end is there");
    }

    pub fn uses(&self, fd: i32) -> bool {
        [self.from.as_raw_fd(), self.to.as_raw_fd()].contains(&fd)
    }

    /// The next byte; 0 when the other end is gone.
    pub fn hear(&mut self) -> u8 {
        let mut byte = [0];
        match self.from.read(&mut byte) {
            Ok(1) => byte[0],
            _ => 0,
        }
    }
}

pub struct Child {
    pub pid: i32,
    pub line: Line,
}

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    Exit(i32),
    Signal(i32),
}

fn pipe() -> (File, File) {
    let mut ends = [0; 2];
    // SAFETY: pipe2 fills two descriptors, which nobody else owns.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1]))
    }
}

/// Runs `body` in a fork child; its answer is the exit status.
pub fn fork(body: impl FnOnce(&mut Line) -> i32) -> Child {
    let (child_from, parent_to) = pipe();
    let (parent_from, child_to) = pipe();
    // SAFETY: the child runs only `body`, on the thread that forked; glibc keeps malloc usable there.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        drop((parent_to, parent_from));
        let mut line = Line {
            from: child_from,
            to: child_to,
        };
        let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&mut line)))
            .unwrap_or(101);
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(status) };
    }
    Child {
        pid,
        line: Line {
            from: parent_from,
            to: parent_to,
        },
    }
}

impl Child {
    pub fn kill(mut self) -> End {
        // SAFETY: the child was not waited for yet, so that the number is still its own.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        self.reap()
    }

    pub fn reap(&mut self) -> End {
        let mut status = 0;
        // SAFETY: `status` is a valid place for the answer.
        let waited = unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
        assert_eq!(waited, self.pid);
        if libc::WIFSIGNALED(status) {
            End::Signal(libc::WTERMSIG(status))
        } else {
            End::Exit(libc::WEXITSTATUS(status))
        }
    }
}
