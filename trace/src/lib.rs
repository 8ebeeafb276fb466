//! What a driver was asked and answered, as one JSON line per call: the same on the mocks, which write it themselves, and on
//! a real driver, where `suites/recorder` stands before it.
//!
//! | file | what |
//! |---|---|
//! | [`line`], [`names`], [`file`] | the line, canonical names of handles (`ctx#1`, `mem#3`), where lines go |
//! | [`arguments`] | how an argument of any C type is shown; [`shape!`] picks the way |
//! | [`cuda`], [`nvml`], [`vulkan`] | what each API's types are called |
//!
//! No addresses, no pids, no times: two runs can be compared line by line. What a machine decides (sizes, clocks, fds) is
//! written as it is; `ringfence trace-diff` has the rule by which it is compared.
//!
//! unsafe is in `boundary.rs`: reading what a call left in an out-parameter.

pub mod arguments;
mod boundary;
pub mod cuda;
pub mod file;
pub mod line;
pub mod names;
pub mod nvml;
mod thread;
#[cfg(feature = "vulkan")]
pub mod vulkan;

pub use arguments::{Arguments, Shown, forget};
pub use file::TraceFile;
pub use line::{TraceRecord, Value};
pub use names::Names;
