//! How our libraries know one another in a process: by the names that they export besides the drivers'.
//!
//! A preloaded `libvgpu.so` and the proxies in the drivers' place may meet. None of them takes another for a driver, and one of them alone
//! keeps account: who comes later hands its calls on. Their files are known by an ELF note, which costs nothing; in a process it is not read, as a
//! note may lie in no segment that is mapped.

use core::ffi::CStr;
use std::path::PathBuf;

use super::drivers::Library;
use super::{elf, loader};

/// An Elf64_Nhdr, the owner's name and a description of four bytes.
#[repr(C, align(4))]
struct Note {
    name_len: u32,
    description_len: u32,
    kind: u32,
    /// Its length in the note counts the first NUL; the rest is padding.
    owner: [u8; 12],
    version: u32,
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".note.ringfence")]
static NOTE: Note = Note {
    name_len: 10,
    description_len: 4,
    kind: 1,
    owner: *b"Ringfence\0\0\0",
    version: 1,
};

/// Whether an object is one of our libraries that have hooks.
pub fn is_ours(object: &elf::Object<'_>) -> bool {
    loader::RESOLVED
        .iter()
        .any(|name| object.exports_name(name))
}

/// The base address of the first of our libraries that exports `name`, unless that is this one.
pub fn leader(name: &CStr) -> Option<usize> {
    let own = loader::own().map(core::ptr::from_ref);
    let mut leader = None;
    elf::each(&mut |object| {
        let found = is_ours(object) && object.exports_name(name);
        if found && !object.is(own) {
            leader = Some(object.base);
        }
        found
    });
    leader
}

/// Whether this is a proxy, or one is in this process: who opens a driver's name finds a proxy then, and must not find the driver's own file before it.
pub fn is_among_proxies() -> bool {
    let own = loader::own().map(core::ptr::from_ref);
    let mut found = !Library::hears_look_ups();
    elf::each(&mut |object| {
        found |= is_ours(object) && !object.is(own);
        found
    });
    found
}

/// Where the loader found this library.
pub fn own_path() -> Option<PathBuf> {
    sources::library(loader::own()?.name())
}

/// Whether another of our libraries in this process says what a user must know: of two proxies, libcuda's.
pub fn is_spoken_for() -> bool {
    cfg!(stands_for = "libnvml") && leader(c"cuInit").is_some()
}
