//! Decision 32, short form; `cargo run --release -p mock-device --example world_kill_storm -- 10000` is the long one.

#[path = "support/child.rs"]
mod child;
#[path = "support/storm.rs"]
mod storm;

use storm::Storm;

#[test]
fn the_world_survives_random_kills_with_its_books_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let report = Storm {
        kills: 500,
        workers: 12,
        seed: 20_260_101,
    }
    .run(&folder.path().join("world"));
    assert_eq!(
        report.last.deaths, report.kills,
        "every killed worker held a row and was buried once:\n{report}"
    );
    assert!(
        report.calls > report.kills && report.refusals > 0,
        "the storm was a calm:\n{report}"
    );
}
