//! The floor under the libraries that programs load, ours and the mocks': glibc 2.17.
//!
//! A library that asks the loader for a version of a symbol that the container's glibc lacks does not load, and a preload that does not load ends
//! the program (decision 22). Rust's std runs on glibc 2.17, but a library that is linked on a newer system asks for the newest version of every
//! name. Three things keep it from that:
//!
//! * [`provide!`] defines, hidden in the library itself, what glibc had no symbol for before 2.33 (`stat` and `fstat` were written into each program)
//!   and what gcc's unwinder takes from glibc 2.35 (`_dl_find_object`);
//! * it declares what std only uses where there is some (statx, getrandom, gettid; in a library that is never unmapped `__cxa_thread_atexit_impl` too)
//!   as not there: std has another way for each;
//! * `build_support::link::old_glibc` links what glibc 2.34 moved into libc by the name that it had before.
//!
//! Nothing of that is called by name: [`provide!`] stands once in each library. Under those that live in strangers' processes lies a [`Heap`], too.

pub mod boundary;

pub use boundary::Heap;

/// Defines this library's own `stat`, `stat64`, `fstat`, `fstat64` and `_dl_find_object`, seen by nobody else, and lets std find no statx, getrandom
/// and gettid. `#[no_mangle]` would export them, and programs would find ours before their libc's.
///
/// `provide!(never_unmapped)` also hides `__cxa_thread_atexit_impl`, of glibc 2.18: std then ends a thread's variables by a pthread key, which unlike
/// that function keeps nobody from unmapping the library before the thread ends.
#[macro_export]
macro_rules! provide {
    (never_unmapped) => {
        $crate::provide!();
        core::arch::global_asm!(
            ".weak __cxa_thread_atexit_impl",
            ".hidden __cxa_thread_atexit_impl",
        );
    };
    () => {
        core::arch::global_asm!(
            ".macro floor_name name, body",
            // Weak, because an executable of tests may hold two of our libraries.
            ".weak \\name",
            ".hidden \\name",
            ".type \\name, @function",
            "\\name:",
            $crate::jump!(),
            ".size \\name, . - \\name",
            ".endm",
            ".pushsection .text",
            "floor_name stat, {stat}",
            "floor_name stat64, {stat}",
            "floor_name fstat, {fstat}",
            "floor_name fstat64, {fstat}",
            "floor_name _dl_find_object, {find_object}",
            ".popsection",
            ".purgem floor_name",
            // Weak and hidden: whoever asks for one finds that there is none.
            ".weak statx, getrandom, gettid",
            ".hidden statx, getrandom, gettid",
            stat = sym $crate::boundary::stat,
            fstat = sym $crate::boundary::fstat,
            find_object = sym $crate::boundary::find_object,
        );
    };
}

#[doc(hidden)]
#[cfg(target_arch = "x86_64")]
#[macro_export]
macro_rules! jump {
    () => {
        // endbr64: with IBT a name may be reached by an indirect call.
        "endbr64\njmp \\body"
    };
}

#[doc(hidden)]
#[cfg(target_arch = "aarch64")]
#[macro_export]
macro_rules! jump {
    () => {
        "bti c\nb \\body"
    };
}
