//! The ledger between processes: what its words promise when their writers fork, die, stop, or live in other namespaces.

mod child;
mod deaths;
mod files;
mod forks;
mod kernel;
mod live;
mod places;
mod stress;
mod world;
