//! Where C and the loader are met. All unsafe code of this library is here and below.

floor::provide!(never_unmapped);

pub mod arena;
pub mod cross;
pub mod drivers;
mod elf;
pub mod entries;
mod heap;
pub mod image;
pub mod loader;
#[cfg(not(proxy))]
mod lookup;
pub mod manners;
#[cfg(not(proxy))]
mod rebind;
pub mod sign;
pub mod thread;
pub mod time;

/// This library's constructor.
extern "C" fn begin() {
    loader::begin();
    #[cfg(not(proxy))]
    lookup::begin();
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// The states of `seeds::Mark` that this process has reached, a bit each. What is shipped has no such export, and no marks.
#[cfg(seeded)]
#[unsafe(no_mangle)]
pub extern "C" fn ringfence_marks() -> u64 {
    seeds::reached()
}
