//! Processes that reserve, release and are killed at random instants, judged by what they really hold.

use crate::child::{Child, DEVICE, MIB, setup};
use crate::world::World;
use ledger::{Bytes, DeviceIndex, Driver, Ledger, View};
use std::path::Path;
use std::time::Duration;

const BUDGET: u64 = 512 * MIB;
const PROCESSES: usize = 6;
/// 32 quick attempts, then sleeps of 20 µs or more within 50 ms, and of 1 ms within the 2.1 s that memory may drain.
const MOST_RETRIES: u64 = 32 + 50_000 / 20 + 2_100;

/// The simulated driver: it holds a process's memory until its row is torn down.
struct Rows<'a>(&'a World);

impl Driver for Rows<'_> {
    fn still_holds(&self, _device: DeviceIndex, pid: u32) -> Option<bool> {
        Some(self.0.holds(pid))
    }
}

/// A child's life: reserve, hold, release, at random, until it is killed.
pub fn hammer(path: &Path, world: &Path, seed: u64, row: usize) {
    let world = World::open(world);
    world.enter(row);
    let ledger = Ledger::attach(path, &setup(BUDGET)).unwrap();
    let mut random = Random(seed | 1);
    let mut held: Vec<u64> = Vec::new();
    println!("@ hammering");
    loop {
        if held.len() > 12 || (random.next() % 5 < 2 && !held.is_empty()) {
            let bytes = held.swap_remove(random.next() as usize % held.len());
            world.give_back(row, bytes);
            ledger.release(DEVICE, Bytes(bytes));
            continue;
        }
        let bytes = match random.next() % 3 {
            0 => 1 + random.next() % (64 << 10),
            1 => 2 * MIB,
            _ => (1 + random.next() % 48) * MIB,
        };
        if let Ok(reservation) = ledger.reserve_with(DEVICE, Bytes(bytes), &Rows(&world)) {
            if random.next().is_multiple_of(8) {
                continue;
            }
            let actual = bytes - random.next() % 2 * (bytes / 4);
            world.take(row, actual);
            reservation.commit_as(Bytes(actual));
            held.push(actual);
            if let Some(total) = world.instant() {
                assert!(total <= BUDGET, "{total} held");
            }
        }
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 8
    }
}

#[test]
fn processes_killed_at_random_never_hold_more_than_the_budget_and_leave_nothing() {
    let kills = std::env::var_os("LEDGER_TEST_KILLS")
        .and_then(|text| text.to_str()?.parse().ok())
        .unwrap_or(150);
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, rows) = (place.path().join("ledger"), place.path().join("world"));
    let world = World::create(&rows);
    let mut random = Random(0x5eed);
    let start = |row: usize, seed: u64| {
        let mut child = Child::start();
        child.say(&format!(
            "stress {} {} {seed} {row}",
            path.display(),
            rows.display()
        ));
        assert_eq!(child.answer(), "hammering");
        child
    };
    let mut children: Vec<Child> = (0..PROCESSES)
        .map(|row| start(row, random.next()))
        .collect();
    for _ in 0..kills {
        std::thread::sleep(Duration::from_micros(random.next() % 20_000));
        let row = random.next() as usize % PROCESSES;
        children[row].kill();
        // Teardown takes its time, and the others get no byte before it ends.
        std::thread::sleep(Duration::from_millis(random.next() % 10));
        world.tear_down(row);
        children[row] = start(row, random.next());
    }
    for (row, mut child) in children.into_iter().enumerate() {
        child.kill();
        world.tear_down(row);
    }
    let view = View::open(&path).unwrap();
    crate::reap_to_the_end(|| view.reap_with(&Rows(&world)));
    let (checks, largest, grants) = world.tally();
    let stats = view.stats();
    println!(
        "{kills} kills, {grants} grants, {checks} instants, largest {largest} of {BUDGET}, {stats:?}"
    );
    assert_eq!(view.usage(DEVICE), Bytes(0));
    assert_eq!(view.slots(), []);
    assert!(
        largest <= BUDGET && largest > BUDGET / 2,
        "largest sum held: {largest}"
    );
    assert!(checks > 100, "only {checks} instants were caught");
    assert!(stats.most_retries <= MOST_RETRIES, "{stats:?}");
    assert!(stats.reaps > 0);
}
