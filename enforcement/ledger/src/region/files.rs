//! Descriptors, the locks on a slot's byte, and creating the file.

use super::clock::{self, Moment};
use super::{Fixed, SIZE};
use core::ops::Range;
use core::time::Duration;
use std::ffi::CStr;
use std::os::fd::RawFd;

/// A failed system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno {
    pub call: &'static str,
    pub code: i32,
}

impl Errno {
    pub fn last(call: &'static str) -> Errno {
        // SAFETY: the thread's own errno.
        let code = unsafe { *libc::__errno_location() };
        Errno { call, code }
    }
}

/// The host's errno, put back when this is dropped: what is asked of the system on the way is none of the program's.
#[must_use = "dropping it puts errno back"]
pub struct KeptErrno(pub(super) i32);

impl KeptErrno {
    #[inline]
    pub fn keep() -> KeptErrno {
        KeptErrno(Errno::last("").code)
    }
}

impl Drop for KeptErrno {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the thread's own errno.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// How the thread lets itself be cancelled (pthread_cancel), taken from it by [`Cancelability::withhold`] until [`Cancelability::restore`]: what is asked
/// of the system on the way would be a cancellation point of the program's thread, whose stack could not be unwound through ours, with locks held.
///
/// It is no guard that a drop ends: where cancellation is asynchronous, a cancellation that has come meanwhile unwinds the stack from within
/// `restore`, and the program's unwinder knows nothing of our landing pads (C30 of `fixtures/defects.txt`).
#[derive(Clone, Copy, Debug)]
#[must_use = "the thread is not cancelled until it is restored"]
pub struct Cancelability {
    state: libc::c_int,
    kind: libc::c_int,
}

const PTHREAD_CANCEL_DISABLE: libc::c_int = 1;
const PTHREAD_CANCEL_DEFERRED: libc::c_int = 0;

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
    fn pthread_setcanceltype(kind: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

impl Cancelability {
    #[inline]
    pub fn withhold() -> Cancelability {
        let mut before = Cancelability {
            state: PTHREAD_CANCEL_DISABLE,
            kind: PTHREAD_CANCEL_DEFERRED,
        };
        // SAFETY: places of ours. From the first call on nothing is acted upon.
        unsafe {
            pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before.state);
            pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &raw mut before.kind);
        }
        before
    }

    /// Puts back what was withheld. To be called where nothing of the caller's is dropped: it may not return.
    #[inline]
    pub fn restore(self) {
        let mut now = 0;
        // SAFETY: what the calls themselves told, and a place of ours. The type comes last: until then the state alone acts upon nothing.
        unsafe {
            pthread_setcancelstate(self.state, &raw mut now);
            if self.kind != PTHREAD_CANCEL_DEFERRED {
                pthread_setcanceltype(self.kind, &raw mut now);
            }
        }
    }
}

/// Which file it is, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
    pub size: u64,
    pub regular: bool,
    /// How many names it has.
    pub links: libc::nlink_t,
}

impl Identity {
    /// The same file, whatever became of its size and names.
    pub fn is(&self, other: &Identity) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    fn read(
        call: &'static str,
        stat: impl FnOnce(*mut libc::stat) -> i32,
    ) -> Result<Identity, Errno> {
        let mut status = core::mem::MaybeUninit::<libc::stat>::zeroed();
        if stat(status.as_mut_ptr()) != 0 {
            return Err(Errno::last(call));
        }
        // SAFETY: plain integers, zeroed before and filled by the call.
        let status = unsafe { status.assume_init() };
        Ok(Identity {
            device: status.st_dev,
            inode: status.st_ino,
            size: status.st_size as u64,
            regular: status.st_mode & libc::S_IFMT == libc::S_IFREG,
            links: status.st_nlink,
        })
    }
}

pub fn identity_of(fd: RawFd) -> Result<Identity, Errno> {
    // SAFETY: fstat fills the buffer it is given, and answers EBADF for a descriptor that is none.
    Identity::read("fstat", |status| unsafe { libc::fstat(fd, status) })
}

pub fn identity_at(path: &CStr) -> Result<Identity, Errno> {
    // SAFETY: a NUL-terminated path and a buffer to fill.
    Identity::read("stat", |status| unsafe {
        libc::stat(path.as_ptr(), status)
    })
}

/// Whether a symbolic link lies there, wherever it leads.
pub fn is_link(path: &CStr) -> bool {
    let mut first: libc::c_char = 0;
    // readlink(2) and not lstat(2), for which glibc has a symbol since 2.33 alone.
    // SAFETY: a NUL-terminated path, and room for a byte of where it leads.
    unsafe { libc::readlink(path.as_ptr(), &raw mut first, 1) >= 0 }
}

pub fn open(path: &CStr) -> Result<RawFd, Errno> {
    // O_NONBLOCK: somebody may have put a FIFO there.
    let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { libc::open(path.as_ptr(), flags) };
    if fd < 0 {
        Err(Errno::last("open"))
    } else {
        Ok(fd)
    }
}

/// Another open file description of the file behind an own descriptor, which may have no name.
pub fn reopen(fd: RawFd) -> Result<RawFd, Errno> {
    match std::ffi::CString::new(format!("/proc/thread-self/fd/{fd}")) {
        Ok(path) => open(&path),
        Err(_) => Err(Errno {
            call: "open",
            code: libc::EINVAL,
        }),
    }
}

/// Gives the file behind an own descriptor the name `path` too, unless something is there. A file that has no name left cannot be given one.
pub fn name_again(fd: RawFd, path: &CStr) -> Result<(), Errno> {
    let Ok(from) = std::ffi::CString::new(format!("/proc/thread-self/fd/{fd}")) else {
        return Ok(());
    };
    // SAFETY: two NUL-terminated paths.
    let linked = unsafe {
        libc::linkat(
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_SYMLINK_FOLLOW,
        )
    };
    match linked {
        0 => Ok(()),
        _ => Err(Errno::last("linkat")),
    }
}

/// How long a newcomer waits for another that makes a ledger in the same folder, and how often it looks.
const PATIENCE: Duration = Duration::from_millis(300);
const LOOK: Duration = Duration::from_millis(1);

/// A lock (flock) that ends with its holder at the latest: on a folder, of who makes a ledger in it; on a ledger's file, of who takes what only one of its
/// users may take at a time.
#[derive(Debug)]
pub struct Turn(RawFd);

impl Turn {
    /// Waits until nobody else has it, or `is_over`, or for as long as one may be patient with a holder that stands still. `None` where it is not had.
    pub fn wait(path: &CStr, is_over: &dyn Fn() -> bool) -> Option<Turn> {
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC;
        // SAFETY: a NUL-terminated path.
        let fd = unsafe { libc::open(path.as_ptr(), flags) };
        let turn = (fd >= 0).then_some(Turn(fd))?;
        let began = Moment::now();
        loop {
            // SAFETY: our own descriptor.
            if unsafe { libc::flock(turn.0, libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                return Some(turn);
            }
            if Errno::last("").code != libc::EWOULDBLOCK || is_over() || began.elapsed() > PATIENCE
            {
                return None;
            }
            clock::pause(LOOK);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // A child that was forked meanwhile has a copy of the descriptor.
        // SAFETY: our own descriptor.
        unsafe { libc::flock(self.0, libc::LOCK_UN) };
        close(self.0);
    }
}

/// Creates the file with all its blocks and the given beginning, under `path`, unless something is there already: that is left
/// alone and is no error: whether the file is ours. `temporary` is a name beside it that nobody else uses. `prepare` gets the file before it has a name
/// that others know.
pub fn create(
    path: &CStr,
    temporary: &CStr,
    beginning: &[u8],
    prepare: impl FnOnce(RawFd) -> Result<(), Errno>,
) -> Result<bool, Errno> {
    may_be_so_large()?;
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    // SAFETY: a NUL-terminated path; the mode is passed as the variadic argument that O_CREAT asks for.
    let fd = unsafe { libc::open(temporary.as_ptr(), flags, 0o600 as libc::mode_t) };
    if fd < 0 {
        return Err(Errno::last("open"));
    }
    let filled = fill(fd, beginning).and_then(|()| prepare(fd));
    let made = filled.and_then(|()| match give_name(temporary, path) {
        Err(errno) if errno.code == libc::EEXIST => Ok(false),
        named => named.map(|()| true),
    });
    // SAFETY: removes the name made above; the descriptor is ours.
    unsafe {
        libc::unlink(temporary.as_ptr());
        libc::close(fd);
    }
    made
}

/// Gives the file at `temporary` the name `path` unless something is there: of two creators one must lose. By link(2), or where that is not
/// permitted (protected hard links, file systems without them, filters of system calls) by renameat2(2), which moves it.
fn give_name(temporary: &CStr, path: &CStr) -> Result<(), Errno> {
    // SAFETY: two NUL-terminated paths.
    if unsafe { libc::link(temporary.as_ptr(), path.as_ptr()) } == 0 {
        return Ok(());
    }
    let errno = Errno::last("link");
    if !matches!(errno.code, libc::EPERM | libc::EOPNOTSUPP | libc::ENOSYS) {
        return Err(errno);
    }
    // The kernel's own call: libc's name for it is of glibc 2.28.
    // SAFETY: two NUL-terminated paths, looked up from the current directory.
    let moved = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            temporary.as_ptr(),
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::RENAME_NOREPLACE,
        )
    };
    match moved {
        0 => Ok(()),
        _ if Errno::last("").code == libc::EEXIST => Err(Errno::last("renameat2")),
        _ => Err(errno),
    }
}

/// Fails where this process may not write a file so large (RLIMIT_FSIZE): asked to, the kernel would not only refuse but end the host by
/// SIGXFSZ.
fn may_be_so_large() -> Result<(), Errno> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: writes one rlimit, which is ours.
    let asked = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if asked == 0 && limit.rlim_cur < SIZE as libc::rlim_t {
        return Err(Errno {
            call: "RLIMIT_FSIZE",
            code: libc::EFBIG,
        });
    }
    Ok(())
}

fn fill(fd: RawFd, beginning: &[u8]) -> Result<(), Errno> {
    // A container has several users; fchmod, since the host's umask is not ours to change. Where it is not permitted the file is its maker's alone,
    // and another user's process says that it may not open it.
    // SAFETY: our own descriptor.
    if unsafe { libc::fchmod(fd, 0o666) } != 0 && Errno::last("").code != libc::EPERM {
        return Err(Errno::last("fchmod"));
    }
    // Blocks, not only a size: a sparse file on a full tmpfs is a SIGBUS later.
    // SAFETY: our own descriptor.
    let allocate = || unsafe { libc::posix_fallocate(fd, 0, SIZE as libc::off_t) };
    // tmpfs before Linux 5.17 ends at any signal that is pending, a profiler's timer included.
    let code = (0..100)
        .map(|_| allocate())
        .find(|code| *code != libc::EINTR);
    match code.unwrap_or(libc::EINTR) {
        0 => {}
        code => {
            return Err(Errno {
                call: "posix_fallocate",
                code,
            });
        }
    }
    // SAFETY: the buffer and its length.
    let written = unsafe { libc::pwrite(fd, beginning.as_ptr().cast(), beginning.len(), 0) };
    match usize::try_from(written) {
        Ok(length) if length == beginning.len() => Ok(()),
        Ok(_) => Err(Errno {
            call: "pwrite",
            code: libc::EIO,
        }),
        Err(_) => Err(Errno::last("pwrite")),
    }
}

pub fn read_header(fd: RawFd) -> Result<Fixed, Errno> {
    let mut bytes = [0_u8; Fixed::BYTES];
    // SAFETY: the buffer and its length. A short read leaves zeros, which are no header.
    let read = unsafe { libc::pread(fd, bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if read < 0 {
        Err(Errno::last("pread"))
    } else {
        Ok(Fixed::from_bytes(&bytes))
    }
}

/// A copy of the descriptor out of the way of programs that number theirs; the original is closed. Not as high as can be: the kernel's table of
/// descriptors reaches to the highest one, and every fork copies it.
pub fn keep_high(fd: RawFd) -> RawFd {
    // 3 at least: what a program writes to its standard descriptors is not for the ledger.
    for least in [1 << 10, 900, 200, 3] {
        // SAFETY: duplicates our own descriptor; fails where the limit on descriptors is lower.
        let high = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, least) };
        if high >= 0 {
            close(fd);
            return high;
        }
    }
    fd
}

pub fn close(fd: RawFd) {
    // SAFETY: callers pass descriptors that they opened, or that they found to be the ledger's.
    unsafe { libc::close(fd) };
}

fn bytes_lock(bytes: &Range<usize>, kind: i32) -> libc::flock {
    // SAFETY: plain integers; open-file-description locks ask for l_pid = 0.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = bytes.start as libc::off_t;
    lock.l_len = bytes.len() as libc::off_t;
    lock
}

fn byte_lock(slot: usize, kind: i32) -> libc::flock {
    bytes_lock(&(slot..slot + 1), kind)
}

/// Takes the slot's byte for this open file description; `false` where another holds it. Never waits.
pub fn lock(fd: RawFd, slot: usize) -> Result<bool, Errno> {
    lock_all(fd, &(slot..slot + 1))
}

/// As [`lock`], for each of several bytes or none of them.
pub fn lock_all(fd: RawFd, bytes: &Range<usize>) -> Result<bool, Errno> {
    match set(fd, &bytes_lock(bytes, libc::F_WRLCK)) {
        Ok(()) => Ok(true),
        Err(errno) if matches!(errno.code, libc::EAGAIN | libc::EACCES) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Takes a byte for this open file description beside others that share it. Never waits.
pub fn share(fd: RawFd, byte: usize) -> Result<(), Errno> {
    set(fd, &byte_lock(byte, libc::F_RDLCK))
}

fn set(fd: RawFd, lock: &libc::flock) -> Result<(), Errno> {
    // SAFETY: reads the lock description.
    match unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const *lock) } {
        0 => Ok(()),
        _ => Err(Errno::last("fcntl(F_OFD_SETLK)")),
    }
}

pub fn unlock(fd: RawFd, slot: usize) {
    unlock_all(fd, &(slot..slot + 1));
}

pub fn unlock_all(fd: RawFd, bytes: &Range<usize>) {
    let lock = bytes_lock(bytes, libc::F_UNLCK);
    // SAFETY: reads the lock description.
    unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const lock) };
}

/// Whether an open file description other than this one holds the slot's byte.
pub fn is_locked(fd: RawFd, slot: usize) -> Result<bool, Errno> {
    let mut lock = byte_lock(slot, libc::F_WRLCK);
    // SAFETY: reads and overwrites the lock description.
    if unsafe { libc::fcntl(fd, libc::F_OFD_GETLK, &raw mut lock) } != 0 {
        return Err(Errno::last("fcntl(F_OFD_GETLK)"));
    }
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}
