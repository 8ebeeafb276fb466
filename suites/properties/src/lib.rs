//! Properties: programs made by chance, run against the enforcer, and judged by a model that shares none of its code.
//!
//! * [`operation`]: what a program does, and how sequences are made and shrunk.
//! * [`model`]: what a tenant holds, by what it asked for.
//! * [`program`]: carries a sequence out in this process and judges every answer.
//! * [`remote`]: the process that does so, and its starter's end of it. * [`run`]: many sequences, and the smallest that breaks a promise.
//! * [`ffi`]: the one room of unsafe.

pub mod ffi;
pub mod model;
pub mod operation;
pub mod program;
pub mod remote;
pub mod run;

pub use remote::child_main;
