//! The one room of unsafe.
//!
//! * [`calls`]: each entry point of a family as something that makes its arguments and calls. * [`argument`]: an argument by its type and name.
//! * [`structures`]: those that are passed by pointer. * [`frame`]: where they lie. * [`ending`]: ends what a sequence left.
//! * [`surface`]: every entry point of the signature table, its arguments made by their types.
//! * [`vulkan`]: the same of the layer's commands. * [`coverage`]: counters of an instrumented library.

pub mod argument;
pub mod calls;
pub mod coverage;
pub mod ending;
pub mod frame;
pub mod structures;
pub mod surface;
pub mod vulkan;
