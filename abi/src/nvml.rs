//! NVML: the types that its entry points speak, and their signatures. Source: the public `nvml.h` (12.9).

mod signatures;
mod types;

pub use signatures::{NAMES, fns};
pub use types::*;
