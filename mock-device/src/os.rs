//! The calls to the operating system that std does not have. No policy here.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

pub(crate) fn kill_self() -> ! {
    loop {
        // SAFETY: kill and getpid touch no memory of ours.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
}

pub(crate) fn pid() -> u32 {
    std::process::id()
}

/// Nanoseconds on the clock that all processes of the host share: CLOCK_MONOTONIC without what this process's time namespace adds (time_namespaces(7)).
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a valid place for the answer; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let told = time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs();
    told.saturating_sub_signed(ahead())
}

/// What the time namespace of this process adds to the clock, in nanoseconds. A child may have been born into another.
fn ahead() -> i64 {
    /// No offset is 0 with this bit turned over.
    const KNOWN: u64 = 1 << 63;
    static READ: OnceLock<Option<ForkWord>> = OnceLock::new();
    let Some(word) = READ.get_or_init(|| ForkWord::new().ok()) else {
        return offset();
    };
    match word.get() {
        0 => {
            let read = offset();
            word.set(read.cast_unsigned() ^ KNOWN);
            read
        }
        known => (known ^ KNOWN).cast_signed(),
    }
}

/// 0 where the kernel has no time namespaces, and for who has made one for its children alone.
fn offset() -> i64 {
    let namespace = |name| std::fs::read_link(format!("/proc/self/ns/{name}")).ok();
    if namespace("time") != namespace("time_for_children") {
        return 0;
    }
    let told = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    let of = |line: &str| {
        let mut fields = line.split_whitespace();
        fields.next().filter(|clock| *clock == "monotonic")?;
        let mut number = || fields.next()?.parse::<i64>().ok();
        Some(number()? * 1_000_000_000 + number()?)
    };
    told.lines().find_map(of).unwrap_or(0)
}

/// Whether a process of this number exists, as far as signals can tell.
pub(crate) fn exists(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else {
        return false;
    };
    // SAFETY: signal 0 is delivered to nobody.
    let answer = unsafe { libc::kill(pid, 0) };
    answer == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// A descriptor that is ready once the process has ended; none where there is no such process, or no such descriptors.
pub(crate) fn pidfd(pid: u32) -> Option<OwnedFd> {
    let pid = libc::pid_t::try_from(pid).ok()?;
    // SAFETY: pidfd_open takes two numbers; the returned descriptor is closed on exec and owned by nobody else.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0)?;
        Some(OwnedFd::from_raw_fd(fd))
    }
}

/// While it lives the thread takes no signal, nor do the threads that it starts, ever.
pub(crate) struct Deaf(libc::sigset_t);

impl Deaf {
    pub(crate) fn begin() -> io::Result<Self> {
        let mut all = std::mem::MaybeUninit::uninit();
        let mut before = std::mem::MaybeUninit::uninit();
        // SAFETY: sigfillset writes the first set, which pthread_sigmask reads; it writes the second where it succeeds.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            let code = libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
            match code {
                0 => Ok(Self(before.assume_init())),
                code => Err(io::Error::from_raw_os_error(code)),
            }
        }
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        // SAFETY: the set is one that pthread_sigmask wrote.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}

/// Waits until a descriptor is ready, or closed at its other end, or time is up. Which of them are.
pub(crate) fn ready(descriptors: &[BorrowedFd<'_>], patience: Duration) -> Vec<bool> {
    let asked = descriptors.iter().map(|fd| libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let mut asked: Vec<libc::pollfd> = asked.collect();
    let milliseconds = patience.as_nanos().div_ceil(1_000_000);
    let milliseconds = i32::try_from(milliseconds).unwrap_or(i32::MAX);
    // SAFETY: the pointer and the length are those of one array of pollfd, which poll reads and writes.
    let answer = unsafe {
        libc::poll(
            asked.as_mut_ptr(),
            asked.len() as libc::nfds_t,
            milliseconds,
        )
    };
    let is_ready = |asked: &libc::pollfd| answer > 0 && asked.revents != 0;
    asked.iter().map(is_ready).collect()
}

/// A number that exec changes and fork does not: part of the random bytes which the kernel hands every new image.
pub(crate) fn image() -> u64 {
    // SAFETY: AT_RANDOM is 0 or the address of 16 bytes that live as long as the image.
    unsafe {
        let random = libc::getauxval(libc::AT_RANDOM) as *const u64;
        if random.is_null() {
            0
        } else {
            random.read_unaligned()
        }
    }
}

/// An anonymous file that ends with its last user.
pub(crate) fn memfd() -> io::Result<File> {
    named_memfd(c"ringfence-world")
}

pub(crate) fn named_memfd(name: &std::ffi::CStr) -> io::Result<File> {
    // SAFETY: the name is a C string; the returned descriptor is owned by nobody else.
    unsafe {
        let fd = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(File::from_raw_fd(fd))
        }
    }
}

/// A new file; an existing one is an error.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .custom_flags(libc::O_CLOEXEC)
        .open(path)
}

pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC)
        .open(path)
}

fn byte(kind: i32, offset: u64) -> libc::flock {
    // SAFETY: flock is plain data, for which zeros are a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = i16::try_from(kind).unwrap_or_default();
    lock.l_whence = i16::try_from(libc::SEEK_SET).unwrap_or_default();
    lock.l_start = offset.cast_signed();
    lock.l_len = 1;
    lock
}

/// Locks one byte, beside others who share it, for the open file description of `file`.
pub(crate) fn share_byte(file: &File, offset: u64) -> bool {
    let mut lock = byte(libc::F_RDLCK, offset);
    // SAFETY: fcntl reads and writes `lock` only.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) == 0 }
}

/// Locks one byte for the open file description of `file`.
pub(crate) fn lock_byte(file: &File, offset: u64) -> bool {
    let mut lock = byte(libc::F_WRLCK, offset);
    // SAFETY: fcntl reads and writes `lock` only.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw mut lock) == 0 }
}

/// Whether another open file description holds the byte; `None` where the file system cannot tell.
pub(crate) fn byte_is_locked(file: &File, offset: u64) -> Option<bool> {
    let mut lock = byte(libc::F_WRLCK, offset);
    // SAFETY: fcntl reads and writes `lock` only.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    (answer == 0).then(|| i32::from(lock.l_type) != libc::F_UNLCK)
}

/// Pages mapped by this process, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) start: *mut u8,
    pub(crate) size: usize,
}

// SAFETY: a mapping is an address range; what lies in it is only reached through atomics and the world's mutex.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// The first `size` bytes of the file, shared with every process that maps it.
    pub(crate) fn shared(file: &File, size: usize) -> io::Result<Self> {
        Self::map(libc::MAP_SHARED, file.as_raw_fd(), size)
    }

    /// Keeps the open file description alive as long as this process image, and as long as its fork children until they call exec: so long a card keeps
    /// a process's memory, whose descriptors of the device they have (H200, 580.159.04).
    pub(crate) fn pin(file: &File) -> io::Result<Self> {
        Self::shared(file, PAGE)
    }

    fn map(flags: i32, fd: RawFd, size: usize) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), size, access, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: start.cast(),
            size,
        })
    }

    fn advise(&self, advice: i32) -> io::Result<()> {
        // SAFETY: the range is exactly this mapping.
        let answer = unsafe { libc::madvise(self.start.cast(), self.size, advice) };
        if answer == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly this mapping, and nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.start.cast(), self.size) };
    }
}

const PAGE: usize = 4096;

/// Words of this process: a fork child finds 0 in them, however it was forked.
#[derive(Debug)]
pub(crate) struct ForkWord {
    page: Mapping,
    /// The kernel does not wipe (gVisor): the process number beside the word says whose it is.
    by_pid: bool,
}

impl ForkWord {
    pub(crate) fn new() -> io::Result<Self> {
        let page = Mapping::map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, PAGE)?;
        let by_pid = page.advise(libc::MADV_WIPEONFORK).is_err();
        Ok(Self { page, by_pid })
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        use std::sync::atomic::Ordering::Acquire;
        if self.by_pid && self.word(1).load(Acquire) != u64::from(pid()) {
            return 0;
        }
        self.word(0).load(Acquire)
    }

    pub(crate) fn set(&self, value: u64) {
        use std::sync::atomic::Ordering::Release;
        self.word(0).store(value, Release);
        self.word(1).store(u64::from(pid()), Release);
    }

    /// Keeps a mapping that fork children do not have; the range is unmapped with the word.
    pub(crate) fn keep(&self, mapping: Mapping) {
        use std::sync::atomic::Ordering::AcqRel;
        let former = self.word(2).swap(mapping.start as u64, AcqRel);
        std::mem::forget(mapping);
        debug_assert_eq!(former, 0, "one row, one pin");
    }

    /// Gives back what [`ForkWord::keep`] was given, in the process that gave it.
    pub(crate) fn kept(&self) -> Option<Mapping> {
        use std::sync::atomic::Ordering::AcqRel;
        if self.get() == 0 {
            return None;
        }
        let start = self.word(2).swap(0, AcqRel) as *mut u8;
        (!start.is_null()).then_some(Mapping { start, size: PAGE })
    }

    /// A word for [`crate::engine::Turn`].
    #[inline]
    pub(crate) fn turn(&self) -> &AtomicU64 {
        self.word(3)
    }

    /// The process that [`ForkWord::set`] the word.
    #[inline]
    pub(crate) fn pid(&self) -> u64 {
        self.word(1).load(std::sync::atomic::Ordering::Relaxed)
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        // SAFETY: the page is mapped as long as `self`, aligned, and holds only atomic words; index is 0 to 3.
        unsafe { &*self.page.start.cast::<AtomicU64>().add(index) }
    }
}
