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

/// A magic number's bytes, none of them 0.
const MAGIC: usize = 4;

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
            // SAFETY: the driver reads as much of what begins with such a header.
            needs(unsafe { core::slice::from_raw_parts(start, length.min(MOST)) })
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
        if *byte == 0 || at + 1 == MAGIC {
            break;
        }
    }
    if Form::of(&first) != Form::Text {
        // SAFETY: what begins with a binary's magic number has a whole header.
        unsafe { start.copy_to_nonoverlapping(first.as_mut_ptr(), first.len()) };
    }
    first
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
