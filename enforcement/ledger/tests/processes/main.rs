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

/// Reaps, and once more when what the dead may have held in no row is nobody's any longer.
fn reap_to_the_end(reap: impl Fn()) {
    reap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    reap();
}
