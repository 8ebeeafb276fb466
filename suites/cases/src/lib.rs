//! cases
pub mod ffi;
