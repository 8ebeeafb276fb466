//! Every way in which programs find entry points.

pub mod lookup;
pub mod missing;
pub mod own_data;
pub mod proc_address;
pub mod runtimes;
pub mod ways;
