//! Fuzzing: calls made of arbitrary bytes, hook family by hook family, in processes with and without the enforcer.
//!
//! * [`family`]: which entry points belong together. Every hook is in one. * [`oracle`]: where the driver itself dies, by the oracle's list.
//! * [`input`]: a sequence of calls as bytes, and how more are made of them.
//! * [`maker`]: what an argument is made of. * [`session`]: a process that carries sequences out and judges them.
//! * [`remote`]: that process, and its starter's end of it. * [`run`]: the three of them that are fed alike, the comparison, the smallest that breaks a promise.
//! * [`surface`]: sequences over all exports, hooked or not, held to the device's own figure. * [`ffi`]: the one room of unsafe.

pub mod family;
pub mod ffi;
pub mod input;
pub mod maker;
pub mod oracle;
pub mod remote;
pub mod run;
pub mod session;
pub mod surface;

pub use remote::child_main;
