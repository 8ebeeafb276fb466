//! The recorder in libcuda's place.

#![allow(
    clippy::missing_safety_doc,
    reason = "each export's obligation is the driver's"
)]

mod boundary;
