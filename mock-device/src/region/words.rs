//! The words that fences and semaphores are made of ([`crate::payload`]): this process's own, or a page of a file that other processes map as
//! well. Times in them are of CLOCK_MONOTONIC, which is the same for all.

use std::fs::File;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::payload::PayloadError;

pub const WORDS: usize = 512;

type Page = [AtomicU64; WORDS];

/// In the first word of a page, so that no other file is taken for one.
const MAGIC: u64 = 0x7269_6e67_776f_7264;

const BYTES: usize = size_of::<Page>();

/// A payload. It starts all zero.
pub struct Words(Place);

enum Place {
    Own(Box<OwnPage>),
    Shared(Mapped),
}

/// Made when somebody first needs it: most semaphores never leave their process.
struct OwnPage(OnceLock<Box<Page>>);

struct Mapped {
    page: NonNull<Page>,
    file: OwnedFd,
}

// SAFETY: atomics in a mapping that lives as long as the value.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Words {
    #[must_use]
    pub fn own() -> Self {
        Self(Place::Own(Box::new(OwnPage(OnceLock::new()))))
    }

    /// A page that can be exported.
    ///
    /// # Errors
    /// [`PayloadError::Full`].
    pub fn shared() -> Result<Self, PayloadError> {
        let full = PayloadError::Full;
        // SAFETY: a C string; the descriptor is new and belongs to nobody else.
        let file = unsafe {
            let fd = libc::memfd_create(c"ringfence-payload".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(full);
            }
            OwnedFd::from_raw_fd(fd)
        };
        let file = File::from(file);
        file.set_len(BYTES as u64).map_err(|_| full)?;
        let words = Self::map(file.into()).ok_or(full)?;
        words.page()[0].store(MAGIC, Ordering::Release);
        Ok(words)
    }

    /// The page that somebody exported. The descriptor is consumed on success, as every API's import has it.
    ///
    /// # Errors
    /// [`PayloadError::Foreign`] for what is no such page, [`PayloadError::Full`] without room for another descriptor.
    pub fn import(fd: RawFd) -> Result<Self, PayloadError> {
        let invalid = PayloadError::Foreign;
        // SAFETY: fstat and dup fail on what is no descriptor; the copy belongs to nobody else.
        let copy = unsafe {
            let mut facts: libc::stat = std::mem::zeroed();
            if fd < 0 || libc::fstat(fd, &raw mut facts) != 0 || facts.st_size < BYTES as i64 {
                return Err(invalid);
            }
            let copy = libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0);
            if copy < 0 {
                return Err(PayloadError::Full);
            }
            OwnedFd::from_raw_fd(copy)
        };
        let words = Self::map(copy).ok_or(invalid)?;
        if words.page()[0].load(Ordering::Acquire) != MAGIC {
            return Err(invalid);
        }
        // SAFETY: the caller gave the descriptor away.
        unsafe { libc::close(fd) };
        Ok(words)
    }

    /// A new descriptor of the page.
    ///
    /// # Errors
    /// [`PayloadError::Own`], or [`PayloadError::Full`].
    pub fn export(&self) -> Result<RawFd, PayloadError> {
        match &self.0 {
            Place::Own(_) => Err(PayloadError::Own),
            Place::Shared(mapped) => mapped
                .file
                .try_clone()
                .map(IntoRawFd::into_raw_fd)
                .map_err(|_| PayloadError::Full),
        }
    }

    #[must_use]
    pub const fn is_shared(&self) -> bool {
        matches!(self.0, Place::Shared(_))
    }

    #[must_use]
    pub fn page(&self) -> &Page {
        match &self.0 {
            Place::Own(own) => own
                .0
                .get_or_init(|| Box::new([const { AtomicU64::new(0) }; WORDS])),
            // SAFETY: mapped for a whole page for as long as `self` lives; all access is atomic.
            Place::Shared(mapped) => unsafe { mapped.page.as_ref() },
        }
    }

    fn map(file: OwnedFd) -> Option<Self> {
        use std::os::fd::AsRawFd;
        // SAFETY: a fresh shared mapping of a file that is at least this long.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return None;
        }
        let page = NonNull::new(address.cast())?;
        Some(Self(Place::Shared(Mapped { page, file })))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, unmapped once.
        unsafe {
            libc::munmap(self.page.as_ptr().cast(), BYTES);
        }
    }
}
