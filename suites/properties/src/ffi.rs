//! The one room of unsafe.
//!
//! * [`errno`]: what a guest must leave alone.

pub mod errno;
