//! Host memory that stands for device memory: address space at once, pages when touched. 44 GiB cost nothing until written.

use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use ash::vk;

/// A private anonymous mapping without swap reservation.
#[derive(Debug)]
pub struct Reserve {
    base: *mut u8,
    length: usize,
    /// The application's own pages, which it unmaps itself.
    borrowed: bool,
}

// SAFETY: the mapping belongs to no thread; what a program's threads do to one another in it is the program's business,
// as with a real device's memory, and this type never forms a reference into it.
unsafe impl Send for Reserve {}
// SAFETY: as above.
unsafe impl Sync for Reserve {}

impl Reserve {
    /// `None` if the address space or the system's overcommit policy does not allow it.
    pub fn new(length: u64) -> Option<Self> {
        let length = usize::try_from(length).ok().filter(|length| *length > 0)?;
        // SAFETY: a fresh mapping; no address is asked for, so nothing existing is replaced.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        (base != libc::MAP_FAILED).then_some(Self {
            base: base.cast(),
            length,
            borrowed: false,
        })
    }

    /// A file's contents, as whoever else maps it sees them.
    pub fn of_file(file: BorrowedFd<'_>, length: u64) -> Option<Self> {
        let length = usize::try_from(length).ok().filter(|length| *length > 0)?;
        // SAFETY: a fresh shared mapping of a descriptor that is open.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                file.as_raw_fd(),
                0,
            )
        };
        (base != libc::MAP_FAILED).then_some(Self {
            base: base.cast(),
            length,
            borrowed: false,
        })
    }

    /// The application's memory, which by valid usage outlives the import; `None` for NULL.
    pub fn of_host(pointer: *mut std::ffi::c_void, length: u64) -> Option<Self> {
        let length = usize::try_from(length).ok()?;
        (!pointer.is_null()).then(|| Self {
            base: pointer.cast(),
            length,
            borrowed: true,
        })
    }

    /// The address of a byte inside; `None` outside.
    pub fn at(&self, offset: u64) -> Option<*mut u8> {
        let offset = usize::try_from(offset)
            .ok()
            .filter(|offset| *offset <= self.length)?;
        Some(self.base.wrapping_add(offset))
    }

    /// Repeats the four bytes of `word`; a tail shorter than a word is left out.
    pub fn fill(&self, offset: u64, length: u64, word: u32) {
        let Some((start, length)) = self.inside(offset, length) else {
            return;
        };
        for index in 0..length / 4 {
            // SAFETY: `inside` checked the whole range; unaligned because a buffer may be bound at any offset.
            unsafe { start.cast::<u32>().add(index).write_unaligned(word) }
        }
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let Some((start, length)) = self.inside(offset, bytes.len() as u64) else {
            return;
        };
        // SAFETY: `inside` checked the destination; the source is Rust's own memory, never inside the mapping.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), start, length) }
    }

    /// Bytes outside the mapping are left as they are.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        let Some((start, length)) = self.inside(offset, bytes.len() as u64) else {
            return;
        };
        // SAFETY: `inside` checked the source; the destination is Rust's own memory, never inside the mapping.
        unsafe { ptr::copy_nonoverlapping(start, bytes.as_mut_ptr(), length) }
    }

    /// Copies as memmove does: two regions of one memory object may overlap.
    pub fn copy_from(&self, offset: u64, source: &Self, source_offset: u64, length: u64) {
        let (Some((to, length)), Some((from, _))) = (
            self.inside(offset, length),
            source.inside(source_offset, length),
        ) else {
            return;
        };
        // SAFETY: `inside` checked both ranges.
        unsafe { ptr::copy(from, to, length) }
    }

    fn inside(&self, offset: u64, length: u64) -> Option<(*mut u8, usize)> {
        let end = usize::try_from(offset.checked_add(length)?).ok()?;
        let length = usize::try_from(length).ok()?;
        (end <= self.length).then(|| (self.base.wrapping_add(end - length), length))
    }
}

/// An unnamed file that stands for host memory which others may map.
///
/// # Errors
/// VK_ERROR_OUT_OF_HOST_MEMORY.
pub fn host_file(length: u64) -> Result<OwnedFd, vk::Result> {
    let full = vk::Result::ERROR_OUT_OF_HOST_MEMORY;
    // SAFETY: a C string; the descriptor is new and belongs to nobody else.
    let file = unsafe {
        let fd = libc::memfd_create(c"ringfence-host-memory".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return Err(full);
        }
        File::from_raw_fd(fd)
    };
    file.set_len(length).map_err(|_| full)?;
    Ok(file.into())
}

/// A descriptor that the application handed over; `None` for what is none.
pub fn borrow<'a>(fd: i32) -> Option<BorrowedFd<'a>> {
    // SAFETY: fcntl fails on what is no descriptor; by valid usage the application leaves it open during the call.
    unsafe { (fd >= 0 && libc::fcntl(fd, libc::F_GETFD) >= 0).then(|| BorrowedFd::borrow_raw(fd)) }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        if self.borrowed {
            return;
        }
        // SAFETY: the mapping made in `new`, unmapped once.
        unsafe {
            libc::munmap(self.base.cast(), self.length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Reserve;

    #[test]
    fn what_lies_outside_is_neither_read_nor_written() {
        let reserve = Reserve::new(8192).expect("8 KiB of address space");
        reserve.fill(8190, 4, 1);
        reserve.fill(u64::MAX, 4, 1);
        reserve.copy_from(0, &reserve, 8000, 200);
        assert!(reserve.at(8193).is_none());
        assert!(Reserve::new(0).is_none());
    }
}
