//! Pure policy: what the settings ask for, what a request costs, who a device is, what a heap may claim.
//!
//! No I/O, no clock, no unsafe: everything here is a function of its arguments, so that the interposer and the layer cannot decide
//! the same question differently.
#![forbid(unsafe_code)]

pub mod array;
pub mod charge;
pub mod heap;
pub mod identity;
pub mod image;
pub mod pages;
pub mod percent;
pub mod settings;
pub mod size;
pub mod tenant_file;
pub mod units;

pub use units::{Bytes, DeviceIndex, DeviceSet, MAX_DEVICES};
