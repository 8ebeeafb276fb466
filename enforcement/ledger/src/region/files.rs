//! Descriptors, the locks on a slot's byte, and creating the file.

use super::{Fixed, SIZE};
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

/// While it lives the thread is not cancelled (pthread_cancel waits): what is asked of the system on the way would be a cancellation point of the
/// program's thread, whose stack could not be unwound through ours, with locks held.
#[must_use = "dropping it lets the thread be cancelled again"]
pub struct Uncancelled(libc::c_int);

const PTHREAD_CANCEL_DISABLE: libc::c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, before: *mut libc::c_int) -> libc::c_int;
}

impl Uncancelled {
    #[inline]
    pub fn begin() -> Uncancelled {
        let mut before = PTHREAD_CANCEL_DISABLE;
        // SAFETY: a place of ours.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &mut before) };
        Uncancelled(before)
    }
}

impl Drop for Uncancelled {
    #[inline]
    fn drop(&mut self) {
        let mut now = 0;
        // SAFETY: a state that the call itself told, and a place of ours. It is no cancellation point.
        unsafe { pthread_setcancelstate(self.0, &mut now) };
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

/// Creates the file with all its blocks and the given beginning, under `path`, unless something is there already: that is left
/// alone and is no error. `temporary` is a name beside it that nobody else uses.
pub fn create(path: &CStr, temporary: &CStr, beginning: &[u8]) -> Result<(), Errno> {
    may_be_so_large()?;
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    // SAFETY: a NUL-terminated path; the mode is passed as the variadic argument that O_CREAT asks for.
    let fd = unsafe { libc::open(temporary.as_ptr(), flags, 0o600 as libc::mode_t) };
    if fd < 0 {
        return Err(Errno::last("open"));
    }
    let made = fill(fd, beginning).and_then(|()| {
        // link(2), not rename: of two creators one must lose.
        // SAFETY: two NUL-terminated paths.
        match unsafe { libc::link(temporary.as_ptr(), path.as_ptr()) } {
            0 => Ok(()),
            _ => Some(Errno::last("link"))
                .filter(|errno| errno.code != libc::EEXIST)
                .map_or(Ok(()), Err),
        }
    });
    // SAFETY: removes the name made above; the descriptor is ours.
    unsafe {
        libc::unlink(temporary.as_ptr());
        libc::close(fd);
    }
    made
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
    // A container has several users; fchmod, since the host's umask is not ours to change.
    // SAFETY: our own descriptor.
    if unsafe { libc::fchmod(fd, 0o666) } != 0 {
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

/// A copy of the descriptor out of the way of programs that number theirs; the original is closed.
pub fn keep_high(fd: RawFd) -> RawFd {
    // 3 at least: what a program writes to its standard descriptors is not for the ledger.
    for least in [1 << 19, 1 << 16, 900, 200, 3] {
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

fn byte_lock(slot: usize, kind: i32) -> libc::flock {
    // SAFETY: plain integers; open-file-description locks ask for l_pid = 0.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = slot as libc::off_t;
    lock.l_len = 1;
    lock
}

/// Takes the slot's byte for this open file description; `false` where another holds it. Never waits.
pub fn lock(fd: RawFd, slot: usize) -> Result<bool, Errno> {
    let lock = byte_lock(slot, libc::F_WRLCK);
    // SAFETY: reads the lock description.
    if unsafe { libc::fcntl(fd, libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(true);
    }
    let errno = Errno::last("fcntl(F_OFD_SETLK)");
    if matches!(errno.code, libc::EAGAIN | libc::EACCES) {
        Ok(false)
    } else {
        Err(errno)
    }
}

pub fn unlock(fd: RawFd, slot: usize) {
    let lock = byte_lock(slot, libc::F_UNLCK);
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
