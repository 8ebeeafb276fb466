//! The bytes of a module's image, which a program points to without saying how many there are.

use core::ffi::{CStr, c_char, c_void};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use budget::image::{Form, Needs, needs};
use ledger::KeptErrno;

use super::cross::{Cross, In};

/// No image that a program has in memory is longer; a header that says more is not believed.
const MOST: usize = 1 << 32;

/// What the image at `bytes` needs; nothing where it is NULL, which the driver refuses.
pub fn needs_of(bytes: In<'_, c_void>) -> Needs {
    let start = <*const c_void as Cross>::back(bytes).cast::<u8>();
    // A structure may point to a fat binary, and that is all the pointing there is.
    read(start, |address| {
        read(address as usize as *const u8, |_| Needs::default())
    })
}

fn read(start: *const u8, elsewhere: impl Fn(u64) -> Needs) -> Needs {
    if start.is_null() {
        return Needs::default();
    }
    match Form::of(&first(start)) {
        Form::Elsewhere(address) => elsewhere(address),
        Form::Sized(length) => {
            let length = readable(start, length.min(MOST));
            // SAFETY: they can be read, and to the driver too the image has as many bytes as its header says.
            needs(unsafe { core::slice::from_raw_parts(start, length) })
        }
        // SAFETY: what is no binary is a text that ends with a NUL, to the driver too.
        Form::Text => needs(unsafe { CStr::from_ptr(start.cast()) }.to_bytes()),
    }
}

/// The beginning of an image, as far as it is there: a text may be shorter than any header.
fn first(start: *const u8) -> [u8; Form::LOOKS_AT] {
    let mut first = [0; Form::LOOKS_AT];
    for (at, byte) in first.iter_mut().enumerate() {
        // SAFETY: nothing is read behind a text's NUL.
        *byte = unsafe { start.add(at).read() };
        if *byte == 0 || at + 1 == Form::MAGIC {
            break;
        }
    }
    // SAFETY: what begins with a binary's magic number has a whole header.
    unsafe { start.copy_to_nonoverlapping(first.as_mut_ptr(), Form::header(&first)) };
    first
}

/// How many of these bytes can be read: a header may say anything, and what the driver refuses for another reason it need not read to the end.
fn readable(start: *const u8, length: usize) -> usize {
    /// No page is smaller, and that of every machine with such a GPU is a multiple of it.
    const PAGE: usize = 4096;
    /// As many ranges as one call takes (UIO_MAXIOV).
    const PAGES: usize = 1024;
    let _errno = KeptErrno::keep();
    let (begin, end) = (start as usize, (start as usize).saturating_add(length));
    let first = begin - begin % PAGE;
    for at in (first..end).step_by(PAGES * PAGE) {
        let byte_at = |page: usize| libc::iovec {
            iov_base: page.max(begin) as *mut c_void,
            iov_len: 1,
        };
        let pages: Vec<libc::iovec> = (at..end).step_by(PAGE).take(PAGES).map(byte_at).collect();
        let mut bytes = [0_u8; PAGES];
        let place = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: pages.len(),
        };
        let count = pages.len() as libc::c_ulong;
        // SAFETY: copies a byte of each page, as far as there are any, to where there is room for as many.
        let read = unsafe {
            libc::process_vm_readv(
                libc::getpid(),
                &raw const place,
                1,
                pages.as_ptr(),
                count,
                0,
            )
        };
        let read = match usize::try_from(read) {
            Ok(read) => read,
            Err(_) if std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT) => 0,
            // A kernel that does not say, or may not.
            Err(_) => return length,
        };
        if read < pages.len() {
            return (at + read * PAGE).saturating_sub(begin);
        }
    }
    length
}

/// What the image in a file needs; nothing where it cannot be read, which the driver refuses.
pub fn needs_of_file(name: In<'_, c_char>) -> Needs {
    let _errno = KeptErrno::keep();
    // A pipe can be read once only.
    let plain = path_of(name).filter(|path| std::fs::metadata(path).is_ok_and(|it| it.is_file()));
    let bytes = plain.and_then(|path| std::fs::read(path).ok());
    bytes.map_or(Needs::default(), |bytes| needs(&bytes))
}

/// The path, where that is of what is there and no plain file: a pipe, say.
pub fn odd_file(name: In<'_, c_char>) -> Option<&Path> {
    let _errno = KeptErrno::keep();
    let path = path_of(name)?;
    let found = std::fs::metadata(path).ok()?;
    (!found.is_file() && !found.is_dir()).then_some(path)
}

fn path_of(name: In<'_, c_char>) -> Option<&Path> {
    let name = <*const c_char as Cross>::back(name);
    if name.is_null() {
        return None;
    }
    // SAFETY: a C string, by the entry point's contract.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())))
}
