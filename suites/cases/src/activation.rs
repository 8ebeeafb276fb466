//! Which libraries a program meets, and what is missing around it.

pub mod absent;
pub mod mapped;
pub mod matrix;
pub mod misled;
pub mod pod;
pub mod proxy;
pub mod scrubbed;
