//! How our libraries know one another in a process: an ELF note, which is no export and costs nothing.
//!
//! A preloaded `libvgpu.so` and the proxies in the drivers' place may meet. None of them takes another for a driver, and one of them alone
//! keeps account: who comes later hands its calls on.

use core::ffi::CStr;
use std::path::PathBuf;

use super::elf;

const OWNER: [u8; 12] = *b"Ringfence\0\0\0";
/// The owner's length in the note counts its first NUL; the rest is padding.
const OWNER_LEN: usize = 10;

/// An Elf64_Nhdr, the owner's name and a description of four bytes.
#[repr(C, align(4))]
struct Note {
    name_len: u32,
    description_len: u32,
    kind: u32,
    owner: [u8; OWNER.len()],
    version: u32,
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".note.ringfence")]
static NOTE: Note = Note {
    name_len: OWNER_LEN as u32,
    description_len: 4,
    kind: 1,
    owner: OWNER,
    version: 1,
};

/// Whether an object is one of our libraries that have hooks.
pub fn is_ours(object: &elf::Object<'_>) -> bool {
    object.has_note(&OWNER[..OWNER_LEN])
}

/// The base address of the first of our libraries that exports `name`, unless that is this one.
pub fn leader(name: &CStr) -> Option<usize> {
    let here = is_ours as *const () as usize;
    let mut leader = None;
    elf::each(&mut |object| {
        let found = is_ours(object) && object.symbol(name).is_some();
        if found && !object.contains(here) {
            leader = Some(object.base);
        }
        found
    });
    leader
}

/// Where the loader found this library.
pub fn own_path() -> Option<PathBuf> {
    let mut path = [0; libc::PATH_MAX as usize];
    elf::each(&mut |object| {
        let found = object.contains(own_path as *const () as usize);
        if found {
            object.copy_name(&mut path);
        }
        found
    });
    sources::library(CStr::from_bytes_until_nul(&path).ok()?)
}

/// Whether another of our libraries in this process says what a user must know: of two proxies, libcuda's.
pub fn is_spoken_for() -> bool {
    cfg!(stands_for = "libnvml") && leader(c"cuInit").is_some()
}
