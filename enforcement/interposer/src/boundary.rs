//! Where C and the loader are met. All unsafe code of this library is here and below.

use core::ffi::{c_char, c_int};

floor::provide!(never_unmapped);

#[cfg(not(test))]
#[global_allocator]
static HEAP: floor::Heap = floor::Heap;

pub mod arena;
pub mod cross;
pub mod drivers;
mod elf;
pub mod entries;
#[cfg(not(proxy))]
pub mod environment;
pub mod image;
pub mod loader;
#[cfg(not(proxy))]
mod lookup;
pub mod manners;
#[cfg(not(proxy))]
mod precede;
#[cfg(not(proxy))]
mod rebind;
pub mod sign;
pub mod thread;
pub mod time;

/// This library's constructor, which glibc gives the process's arguments.
extern "C" fn begin(count: c_int, arguments: *const *const c_char) {
    loader::begin();
    #[cfg(not(proxy))]
    {
        // SAFETY: as the kernel laid them out.
        unsafe { environment::begin(count, arguments) };
        lookup::begin();
    }
    #[cfg(proxy)]
    let _ = (count, arguments);
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn(c_int, *const *const c_char) = begin;

/// The states of `seeds::Mark` that this process has reached, a bit each. What is shipped has no such export, and no marks.
#[cfg(seeded)]
#[unsafe(no_mangle)]
pub extern "C" fn ringfence_marks() -> u64 {
    seeds::reached()
}
