//! A process of the experiment, made by fork, which talks over two pipes.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The ends of all lines that this process has. Held while a child is made: a child that inherited the ends of another
/// test's line would keep that line from ever closing.
static ENDS: Mutex<Vec<i32>> = Mutex::new(Vec::new());

fn ends() -> MutexGuard<'static, Vec<i32>> {
    ENDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The child's end: wait for a word from the parent, or send one.
pub struct Line {
    from: Option<File>,
    to: Option<File>,
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut ends = ends();
        ends.retain(|fd| !self.uses(*fd));
        drop((self.from.take(), self.to.take()));
    }
}

impl Line {
    pub fn say(&mut self, byte: u8) {
        let mut to = self.to.as_ref().expect("not dropped yet");
        to.write_all(&[byte]).expect("the other end is there");
    }

    pub fn uses(&self, fd: i32) -> bool {
        [&self.from, &self.to]
            .into_iter()
            .flatten()
            .any(|end| end.as_raw_fd() == fd)
    }

    /// The next byte; 0 when the other end is gone.
    pub fn hear(&mut self) -> u8 {
        let mut byte = [0];
        match self.from.as_ref().expect("not dropped yet").read(&mut byte) {
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

/// The line made of two ends, noted among all.
fn line(ends: &mut Vec<i32>, from: File, to: File) -> Line {
    ends.extend([from.as_raw_fd(), to.as_raw_fd()]);
    Line {
        from: Some(from),
        to: Some(to),
    }
}

/// Runs `body` in a fork child; its answer is the exit status. The child ends with the thread that made it, unless it
/// [`outlives`] that.
pub fn fork(body: impl FnOnce(&mut Line) -> i32) -> Child {
    let mut all = ends();
    let (child_from, parent_to) = pipe();
    let (parent_from, child_to) = pipe();
    // SAFETY: the child runs only `body`, on the thread that forked; glibc keeps malloc usable there.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "fork failed");
    if pid == 0 {
        // SAFETY: concerns this process only; the ends are the parent's, of whom nothing in this process uses them.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            for end in all.drain(..) {
                libc::close(end);
            }
        }
        drop((parent_to, parent_from));
        let mut line = line(&mut all, child_from, child_to);
        drop(all);
        let status = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(&mut line)))
            .unwrap_or(101);
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(status) };
    }
    Child {
        pid,
        line: line(&mut all, parent_from, parent_to),
    }
}

/// Lets this child live on when its parent dies.
pub fn outlives() {
    // SAFETY: concerns this process only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, 0) };
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
