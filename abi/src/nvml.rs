//! NVML: the types that its entry points speak, and their signatures. Source: the public `nvml.h` (12.9).

pub mod enumerations;
mod signatures;
pub mod structures;
mod types;

pub use signatures::{NAMES, fns};
pub use structures::*;
pub use types::*;
