//! Every way in which programs find entry points.

pub mod lookup;
pub mod missing;
pub mod proc_address;
pub mod runtimes;
pub mod ways;
