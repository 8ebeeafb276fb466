//! Several processes of one tenant at once: what each asked, when, and what it was told, judged by a checker that knows no enforcer.
//!
//! * [`program`]: what the processes are to do, by chance. * [`history`]: what they did. * [`check`]: whether that is lawful.
//! * [`worker`]: a process that does its part and writes down each call before and after it. * [`crowd`]: starts, kills and waits for them.
//! * [`run`]: many programs, and the smallest that breaks a promise.

pub mod check;
pub mod crowd;
pub mod history;
pub mod program;
pub mod run;
pub mod worker;
