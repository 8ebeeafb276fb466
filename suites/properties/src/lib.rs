//! Properties: programs made by chance, run against the enforcer, and judged by a model that shares none of its code.
//!
//! * [`operation`]: what a program does, and how sequences are made and shrunk.
//! * [`model`]: what a tenant holds, by what it asked for.
//! * [`program`]: carries a sequence out in this process and judges every answer.
//! * [`remote`]: the process that does so, and its starter's end of it. * [`run`]: many sequences, and the smallest that breaks a promise.
//! * [`histories`]: several processes at once, and the checker of what they were told.
//! * [`ffi`]: the one room of unsafe.

pub mod ffi;
pub mod histories;
pub mod model;
pub mod operation;
pub mod program;
pub mod remote;
pub mod run;

/// The side of a process that was started to carry something out. `None` where this process is none.
pub fn child_main() -> Option<std::process::ExitCode> {
    remote::child_main().or_else(histories::worker::child_main)
}
