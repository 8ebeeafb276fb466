//! Environments, sessions, child processes, statuses, expectations and reports: what the conformance cases run in.
//!
//! The harness knows no GPU API. A case runs in a child process of its own, in an [`environment`] that puts either the
//! mock drivers or the machine's own under it, with a [`target`] (the enforcer under test) in front of them.
//!
//! * [`case`], [`rows`]: what a case is and the `cases!` and `roles!` tables it is written in.
//! * [`session`], [`peer`], [`failure`]: what a case's body holds, its other processes, and how it says no.
//! * [`driver`], [`target`], [`plan`], [`environment`], [`artifacts`], [`symbols`], [`proxies`]: what is put under and before a case.
//! * [`evidence`]: which of a mock's answers a driver of that generation gave.
//! * [`recording`], [`traces`], [`trace_diff`]: what drivers are asked, and how two such records compare.
//! * [`runner`], [`pool`], [`child`], [`checkers`], [`promise`]: running cases and judging what they left behind.
//! * [`sweep`]: running them again with each call that a driver gets failing once.
//! * [`status`], [`expectations`], [`report`], [`progress`]: what the results mean and how they are told.
//! * [`journal`], [`shard`], [`merge`], [`junit`], [`page`]: results as files, parts of a run, and how those are joined.
//! * [`servant`]: processes that other suites give orders, and what is told of their deaths.
//! * [`course`]: what devices held and the ledger knew of while a case ran.

pub mod artifacts;
pub mod budgets;
pub mod case;
mod checkers;
mod child;
pub mod course;
pub mod driver;
pub mod environment;
pub mod evidence;
pub mod execution;
pub mod expectations;
pub mod failure;
pub mod journal;
pub mod junit;
mod machine;
mod manifest;
pub mod maps;
pub mod merge;
mod message;
pub mod nvml;
pub mod page;
pub mod peer;
pub mod plan;
pub mod pool;
pub mod progress;
pub mod promise;
pub mod proxies;
pub mod recording;
pub mod report;
mod rows;
pub mod runner;
pub mod servant;
pub mod session;
pub mod shard;
pub mod size;
pub mod status;
pub mod sweep;
pub mod symbols;
mod tail;
pub mod target;
pub mod trace_diff;
pub mod traces;
mod watch;

pub use artifacts::Library;
pub use case::{Absent, Case, Kind, Libraries, RealDriver, Role, Suite};
pub use child::child_main;
pub use course::Observer;
pub use driver::Driver;
pub use failure::Failure;
pub use manifest::without_switch;
pub use maps::Maps;
pub use mock_device::{Api, Bytes, World};
pub use peer::{Launch, Parent, Peer};
pub use runner::{Entry, EntryResult, Runner};
pub use session::Session;
pub use shard::Shard;
pub use status::{Status, Verdict};
pub use target::Target;
