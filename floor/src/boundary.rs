//! The bodies behind the names.

mod heap;

pub use heap::Heap;

use core::ffi::{c_char, c_int, c_void};
use core::ptr;

/// `stat(path, buffer)`, which glibc has as a symbol since 2.33.
///
/// # Safety
/// As stat(2): a path that ends with a NUL; room for one `struct stat`, which is the kernel's on the 64-bit machines that CUDA runs on.
pub unsafe extern "C" fn stat(path: *const c_char, buffer: *mut libc::stat) -> c_int {
    // SAFETY: the caller's. syscall sets errno, as stat does.
    unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path, buffer, 0) as c_int }
}

/// `fstat(descriptor, buffer)`, which glibc has as a symbol since 2.33.
///
/// # Safety
/// As fstat(2): room for one `struct stat`.
pub unsafe extern "C" fn fstat(descriptor: c_int, buffer: *mut libc::stat) -> c_int {
    // SAFETY: the caller's.
    unsafe { libc::syscall(libc::SYS_fstat, descriptor, buffer) as c_int }
}

/// glibc's `struct dl_find_object` where `DLFO_STRUCT_HAS_EH_DBASE` is 0: x86-64 and aarch64.
#[repr(C)]
pub struct FoundObject {
    flags: u64,
    map_start: *mut c_void,
    map_end: *mut c_void,
    link_map: *mut c_void,
    eh_frame: *mut c_void,
    reserved: [u64; 7],
}

/// `_dl_find_object(address, result)`, which glibc has since 2.35 and which gcc's unwinder asks, since gcc 12, whose code an address is. Answers by
/// `dl_iterate_phdr`, which the unwinder asked before. 0 if the object was found and tells how to unwind it; -1 otherwise. `link_map` stays null:
/// the unwinder does not read it.
///
/// # Safety
/// `result` is null or has room for one.
pub unsafe extern "C" fn find_object(address: *mut c_void, result: *mut FoundObject) -> c_int {
    let mut search = Search {
        address: address as usize,
        found: None,
    };
    // SAFETY: `one` gets the very `search` that is given here, and only until the call returns.
    unsafe { libc::dl_iterate_phdr(Some(one), (&raw mut search).cast()) };
    let Some(found) = search.found else { return -1 };
    // SAFETY: the caller's.
    unsafe { ptr::write(result, found) };
    0
}

struct Search {
    address: usize,
    found: Option<FoundObject>,
}

/// One loaded object: not 0 ends the search.
unsafe extern "C" fn one(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    search: *mut c_void,
) -> c_int {
    // SAFETY: `find_object` hands over a `Search` of its own, and the loader an object with so many program headers.
    let (search, info, headers) = unsafe {
        let info = &*info;
        let headers = match info.dlpi_phdr.is_null() {
            true => &[],
            false => core::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)),
        };
        (&mut *search.cast::<Search>(), info, headers)
    };
    let base = info.dlpi_addr as usize;
    let loaded = || {
        headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD)
    };
    let from = |header: &libc::Elf64_Phdr| base.wrapping_add(header.p_vaddr as usize);
    let within =
        loaded().any(|header| search.address.wrapping_sub(from(header)) < header.p_memsz as usize);
    if !within {
        return 0;
    }
    let start = loaded().map(from).min().unwrap_or(base);
    let end = loaded()
        .map(|header| from(header).wrapping_add(header.p_memsz as usize))
        .max()
        .unwrap_or(base);
    let unwinding = headers
        .iter()
        .find(|header| header.p_type == libc::PT_GNU_EH_FRAME);
    search.found = unwinding.map(|header| FoundObject {
        flags: 0,
        map_start: start as *mut c_void,
        map_end: end as *mut c_void,
        link_map: ptr::null_mut(),
        eh_frame: from(header) as *mut c_void,
        reserved: [0; 7],
    });
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The address of some code of this executable, and of libc.
    fn addresses() -> [usize; 2] {
        [
            addresses as *const () as usize,
            libc::malloc as *const () as usize,
        ]
    }

    #[test]
    fn the_object_of_an_address_is_the_one_that_the_loader_tells_of() {
        for address in addresses() {
            let mut found = core::mem::MaybeUninit::<FoundObject>::uninit();
            // SAFETY: room for one.
            let answer = unsafe { find_object(address as *mut c_void, found.as_mut_ptr()) };
            assert_eq!(answer, 0);
            // SAFETY: 0 says that it was written.
            let found = unsafe { found.assume_init() };
            assert!((found.map_start as usize..found.map_end as usize).contains(&address));
            // SAFETY: the first byte of .eh_frame_hdr is its version: 1.
            assert_eq!(unsafe { found.eh_frame.cast::<u8>().read() }, 1);
            let mut own = core::mem::MaybeUninit::<libc::Dl_info>::uninit();
            // SAFETY: room for one.
            let answer = unsafe { libc::dladdr(address as *const c_void, own.as_mut_ptr()) };
            assert_ne!(answer, 0);
            // SAFETY: not 0 says that it was written.
            assert_eq!(found.map_start, unsafe { own.assume_init() }.dli_fbase);
        }
    }

    #[test]
    fn an_address_that_is_nobodys_code_has_no_object() {
        let stack = 0u64;
        let nobody = [
            ptr::null_mut(),
            (&raw const stack).cast_mut().cast(),
            usize::MAX as *mut c_void,
        ];
        for address in nobody {
            // SAFETY: nothing is written where nothing is found.
            assert_eq!(unsafe { find_object(address, ptr::null_mut()) }, -1);
        }
    }

    #[test]
    fn a_file_is_told_as_std_tells_it() {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::MetadataExt;
        let own = std::env::current_exe().expect("a path");
        let file = std::fs::File::open(&own).expect("it can be read");
        let told = file.metadata().expect("a file has some");
        let path =
            std::ffi::CString::new(own.into_os_string().into_encoded_bytes()).expect("no NUL");
        let mut by_path = core::mem::MaybeUninit::<libc::stat>::uninit();
        let mut by_number = core::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: room for one each, and a path.
        let answers = unsafe {
            (
                stat(path.as_ptr(), by_path.as_mut_ptr()),
                fstat(file.as_raw_fd(), by_number.as_mut_ptr()),
            )
        };
        assert_eq!(answers, (0, 0));
        // SAFETY: 0 says that they were written.
        for status in unsafe { [by_path.assume_init(), by_number.assume_init()] } {
            assert_eq!(
                (status.st_ino, status.st_size as u64, status.st_mode),
                (told.ino(), told.len(), told.mode())
            );
        }
        // SAFETY: errno is read at once.
        let refused = unsafe { (fstat(-1, by_number.as_mut_ptr()), *libc::__errno_location()) };
        assert_eq!(refused, (-1, libc::EBADF));
    }
}
