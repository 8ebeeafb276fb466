//! A tenant's compute budget: when its next piece of work may start.
//!
//! What is kept: of every second, the time in which *any* process of the tenant has work on the device is the budget's share
//! (decision 30). Work is admitted in *leases* of a few milliseconds. A lease is paid for in advance by what its work is
//! believed to take; marks in the stream around it say later what it took; the difference moves the time of the next lease.
//! So the mean follows what was measured, whatever was believed. Nobody waits for the marks: a tenant that has paid launches ahead.
//!
//! | part | holds | where it lives |
//! |---|---|---|
//! | [`Shared`] | when the next lease may start, and which part of the last quarter second is paid for | words of the tenant's ledger: no owner, no lock |
//! | [`Throttle`] | the process's leases: one that is open, and those in flight | the process |
//! | [`Costs`] | what a launch of each function takes | the process |
//! | [`Lane`] | both, and what is done about their orders at a [`Site`] | the process |
//!
//! No I/O, no clock, no unsafe: times come in as arguments, and the caller does the waiting and asks the driver. The device
//! model in `tests/model` drives exactly what the interposer drives.
#![forbid(unsafe_code)]

mod cost;
mod coverage;
mod lane;
mod lease;
mod rules;
mod shared;
mod throttle;
mod turns;
mod units;
mod word;

pub use cost::{Belief, Costs, Key};
pub use lane::{Budget, End, Lane, Mark, Marks, Paced, Site};
pub use lease::{LEASES, Slot};
pub use rules::{Rules, Sound};
pub use shared::{Shared, WORDS};
pub use throttle::{Launch, Launched, Measured, Order, Throttle, Told};
pub use units::{Nanos, Share};
