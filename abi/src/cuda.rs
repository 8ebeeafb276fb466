//! libcuda: the types that its entry points speak, and their signatures.
//!
//! Sources: the public `cuda.h` (CUDA 12.9 and 13) and the export lists under `fixtures/oracle`.
//! C enumerations are newtypes, never Rust enums: a newer driver may answer a value that we do not know.

pub mod enumerations;
mod signatures;
pub mod structures;
mod types;

pub use signatures::{NAMES, fns};
pub use structures::*;
pub use types::*;
