//! The controller against a model of a device: hours in seconds.
//!
//! `world` is the device and the processes on it, `program` what they do, `history` what is measured. `table` is the promise by budget,
//! length of kernel, number of processes and depth; `real` programs as they are measured on a card; `scenes` the promises that a
//! steady loop does not show; `properties` random programs; `defects` shows that each of the rules is needed.

mod defects;
mod history;
mod program;
mod properties;
mod real;
mod scenes;
mod table;
mod world;
