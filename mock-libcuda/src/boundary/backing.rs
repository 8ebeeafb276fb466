//! The host memory behind device addresses.

use std::io;

/// One sparse memfd, mapped whole: the device addresses of one device in one process. Nothing is used until it is
/// written, and a punched range gives its pages back.
pub struct Backing {
    fd: libc::c_int,
    base: u64,
    len: u64,
}

impl Backing {
    /// `len` bytes of address space, aligned as pools are: what lies where in it is then the same wherever it is.
    pub fn reserve(len: u64) -> io::Result<Backing> {
        const ALIGN: u64 = 32 << 20;
        // SAFETY: memfd_create with a constant name; mmap of an own descriptor at an address of the kernel's choice,
        // then MAP_FIXED only inside the range that the first mapping reserved.
        unsafe {
            let fd = libc::memfd_create(c"mock-device-memory".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            if libc::ftruncate(fd, len as libc::off_t) != 0 {
                let error = io::Error::last_os_error();
                libc::close(fd);
                return Err(error);
            }
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let room = libc::mmap(
                std::ptr::null_mut(),
                (len + ALIGN) as usize,
                libc::PROT_NONE,
                flags,
                -1,
                0,
            );
            if room == libc::MAP_FAILED {
                let error = io::Error::last_os_error();
                libc::close(fd);
                return Err(error);
            }
            let base = (room as u64).next_multiple_of(ALIGN);
            let mapped = libc::mmap(
                base as *mut libc::c_void,
                len as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED,
                fd,
                0,
            );
            if mapped == libc::MAP_FAILED {
                let error = io::Error::last_os_error();
                libc::munmap(room, (len + ALIGN) as usize);
                libc::close(fd);
                return Err(error);
            }
            Ok(Backing { fd, base, len })
        }
    }

    pub fn base(&self) -> u64 {
        self.base
    }

    /// Gives the pages of a range back; it reads as zero afterwards. Pages that the range covers in part are zeroed there.
    pub fn punch(&self, start: u64, end: u64) {
        debug_assert!(self.base <= start && start <= end && end <= self.base + self.len);
        if start == end {
            return;
        }
        // SAFETY: the range lies inside the own descriptor's file; fallocate touches nothing else.
        let punched = unsafe {
            libc::fallocate(
                self.fd,
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                (start - self.base) as libc::off_t,
                (end - start) as libc::off_t,
            )
        };
        if punched != 0 {
            fill_host(start, end - start, &[0]);
        }
    }
}

impl Backing {
    /// Puts a shared file's bytes from an offset on in place of a range, in which nothing of the own file is left.
    pub fn attach(
        &self,
        start: u64,
        end: u64,
        file: &std::fs::File,
        offset: u64,
    ) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        self.map_over(start, end, file.as_raw_fd(), offset)
    }

    /// The range is the own file's again.
    pub fn detach(&self, start: u64, end: u64) {
        if self
            .map_over(start, end, self.fd, start - self.base)
            .is_err()
        {
            // Out of mappings: the shared pages stay in view of an address range that nobody is given again.
            fill_host(start, 0, &[0]);
        }
    }

    /// Zeroes a range of attached pages, which go back to the system where the file allows it.
    pub fn punch_attached(&self, start: u64, end: u64) {
        let (first, last) = (start.next_multiple_of(4096), end / 4096 * 4096);
        if first < last {
            // SAFETY: whole pages of a shared mapping inside the own range; the call changes the file's holes alone.
            let removed = unsafe {
                libc::madvise(
                    first as *mut libc::c_void,
                    (last - first) as usize,
                    libc::MADV_REMOVE,
                )
            };
            if removed == 0 {
                fill_host(start, first - start, &[0]);
                return fill_host(last, end - last, &[0]);
            }
        }
        fill_host(start, end - start, &[0]);
    }

    fn map_over(&self, start: u64, end: u64, fd: libc::c_int, offset: u64) -> io::Result<()> {
        debug_assert!(self.base <= start && start <= end && end <= self.base + self.len);
        // SAFETY: MAP_FIXED inside the range that `reserve` mapped, of which no Rust reference exists.
        let mapped = unsafe {
            libc::mmap(
                start as *mut libc::c_void,
                (end - start) as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED,
                fd,
                offset as libc::off_t,
            )
        };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

/// Addresses that nothing else gets, and that nobody may touch: what cuMemAddressReserve gives.
pub struct AddressRange {
    base: u64,
    room: u64,
    room_len: usize,
    pub len: u64,
}

impl AddressRange {
    pub fn reserve(len: u64, align: u64) -> Option<AddressRange> {
        let room_len = usize::try_from(len.checked_add(align)?).ok()?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
        let room = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                room_len,
                libc::PROT_NONE,
                flags,
                -1,
                0,
            )
        };
        (room != libc::MAP_FAILED).then(|| AddressRange {
            base: (room as u64).next_multiple_of(align),
            room: room as u64,
            room_len,
            len,
        })
    }

    pub fn base(&self) -> u64 {
        self.base
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `reserve` made.
        unsafe {
            libc::munmap(self.room as *mut libc::c_void, self.room_len);
        }
    }
}

/// Whether every page of a range of the client's is mapped.
pub fn is_mapped(start: u64, len: u64) -> bool {
    const PAGE: u64 = 4096;
    let (mut at, end) = (start / PAGE * PAGE, start.saturating_add(len));
    let mut seen = [0u8; 256];
    while at < end {
        let pages = (end - at).div_ceil(PAGE).min(256);
        // SAFETY: mincore writes one byte per page of the range into `seen`, and reads nothing of the range.
        let answer = unsafe {
            libc::mincore(
                at as *mut libc::c_void,
                (pages * PAGE) as usize,
                seen.as_mut_ptr(),
            )
        };
        if answer != 0 {
            return false;
        }
        at += pages * PAGE;
    }
    true
}

/// Copies between host addresses, which may overlap.
pub fn copy_host(to: u64, from: u64, len: u64) {
    // SAFETY: device addresses were checked against live allocations by the caller; host addresses are the client's
    // word, as for the real driver.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len as usize) }
}

/// Repeats a pattern over host memory. The pattern's phase follows the address, so that a range may start anywhere.
pub fn fill_host(to: u64, len: u64, pattern: &[u8]) {
    if let [byte] = pattern {
        // SAFETY: as for `copy_host`.
        unsafe { std::ptr::write_bytes(to as *mut u8, *byte, len as usize) }
        return;
    }
    for at in to..to + len {
        let byte = pattern[(at % pattern.len() as u64) as usize];
        // SAFETY: as for `copy_host`.
        unsafe { (at as *mut u8).write(byte) }
    }
}

/// Page-locked host memory: an anonymous mapping of its own, returned on drop.
pub struct HostPages {
    base: u64,
    len: usize,
}

impl HostPages {
    pub fn map(len: usize) -> Option<HostPages> {
        let len = len.checked_next_multiple_of(4096)?;
        // SAFETY: a fresh anonymous mapping.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        (base != libc::MAP_FAILED).then_some(HostPages {
            base: base as u64,
            len,
        })
    }

    pub fn base(&self) -> u64 {
        self.base
    }
}

impl Drop for HostPages {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that `map` made; the client's contract ends with the free.
        unsafe {
            libc::munmap(self.base as *mut libc::c_void, self.len);
        }
    }
}
