//! Where C and the loader are met. All unsafe code of this library is here and below.

floor::provide!(never_unmapped);

pub mod arena;
pub mod cross;
pub mod drivers;
mod elf;
pub mod entries;
pub mod image;
pub mod loader;
#[cfg(not(proxy))]
mod lookup;
pub mod manners;
pub mod sign;
pub mod thread;
pub mod time;
