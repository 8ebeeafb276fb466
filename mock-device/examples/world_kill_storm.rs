//! `world_kill_storm [KILLS] [WORKERS] [SEED]`: the world alone, without an enforcer, under random SIGKILLs. Prints its figures;
//! panics at the first inconsistency.

#[path = "../tests/support/child.rs"]
mod child;
#[path = "../tests/support/storm.rs"]
mod storm;

use storm::Storm;

fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .map(|text| text.parse::<u64>().expect("a number"));
    let kills = numbers.next().unwrap_or(10_000);
    let workers = numbers
        .next()
        .map_or(12, |workers| usize::try_from(workers).expect("small"));
    let seed = numbers.next().unwrap_or(1);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let report = Storm {
        kills,
        workers,
        seed,
    }
    .run(&folder.path().join("world"));
    print!("{report}");
}
