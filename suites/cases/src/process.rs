//! Processes that end, fork, hide, stop or come late.

pub mod births;
pub mod endings;
pub mod foreign;
pub mod fork;
pub mod guest;
pub mod ledger;
pub mod owner;
pub mod settings;
pub mod storm;
pub mod telling;
