//! What the dead leave behind, and when it is granted again.

use crate::child::{Child, DEVICE, MIB, reserve, setup};
use crate::{kernel, reap_to_the_end};
use ledger::{Bytes, DeviceIndex, Driver, Key, Ledger, NoDriver, Refusal, View};
use std::cell::Cell;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const BUDGET: u64 = 100 * MIB;

/// Says that the dead hold memory until it was asked a number of times.
struct LetsGoAfter(Cell<u32>);

impl Driver for LetsGoAfter {
    fn still_holds(&self, _device: DeviceIndex, _pid: u32) -> Option<bool> {
        let left = self.0.get();
        self.0.set(left.saturating_sub(1));
        Some(left > 0)
    }
}

struct Holds(bool);

impl Driver for Holds {
    fn still_holds(&self, _device: DeviceIndex, _pid: u32) -> Option<bool> {
        Some(self.0)
    }
}

/// Rows in which whoever asks has none, nor has the dead process any longer. Counts how often they are read.
#[derive(Default)]
struct ShowsNeither(Cell<u32>);

impl Driver for ShowsNeither {
    fn still_holds(&self, _device: DeviceIndex, _pid: u32) -> Option<bool> {
        None
    }

    fn lists(&self, _device: DeviceIndex, _pid: u32) -> Option<bool> {
        self.0.set(self.0.get() + 1);
        Some(false)
    }
}

fn place() -> (tempfile::TempDir, std::path::PathBuf) {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("ledger");
    (place, path)
}

#[test]
fn release_after_crash_returns_budget_once_the_driver_lets_go() {
    let (_place, path) = place();
    let mut child = Child::attached(&path, BUDGET);
    assert_eq!(child.ask(&format!("reserve {}", 90 * MIB)), "granted");
    let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    assert_eq!(ledger.usage(DEVICE), Bytes(90 * MIB));
    let over = Err(Refusal::OverBudget {
        requested: Bytes(20 * MIB),
        usage: Bytes(90 * MIB),
        budget: Bytes(BUDGET),
    });
    assert_eq!(reserve(&ledger, 20 * MIB, &Holds(true)), over);
    child.kill();
    let driver = LetsGoAfter(Cell::new(3));
    assert_eq!(reserve(&ledger, 20 * MIB, &driver), Ok(()));
    assert_eq!(driver.0.get(), 0, "granted before the driver let go");
    assert_eq!(ledger.usage(DEVICE), Bytes(20 * MIB));
}

/// As by execve: the new program has the old one's pid, and the row that the driver shows is its own.
#[test]
fn a_process_is_not_taken_for_a_dead_one_of_its_pid() {
    let (_place, path) = place();
    let first = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    assert_eq!(reserve(&first, 90 * MIB, &Holds(true)), Ok(()));
    drop(first);
    let second = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    let before = Instant::now();
    assert_eq!(reserve(&second, 20 * MIB, &Holds(true)), Ok(()));
    assert!(
        before.elapsed() > Duration::from_millis(500),
        "no time to drain"
    );
    assert_eq!(second.usage(DEVICE), Bytes(20 * MIB));
}

#[test]
fn the_dead_drain_from_the_moment_that_the_next_process_begins() {
    let (_place, path) = place();
    let mut child = Child::attached(&path, BUDGET);
    assert_eq!(child.ask(&format!("reserve {}", 90 * MIB)), "granted");
    child.kill();
    let view = View::open(&path).unwrap();
    assert_eq!(view.draining(DEVICE), Bytes(0), "nobody has looked yet");
    let _next = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    assert_eq!(view.draining(DEVICE), Bytes(90 * MIB));
}

#[test]
fn what_was_passed_on_is_no_lease_of_who_made_it() {
    let (_place, path) = place();
    let (maker, other) = (
        Ledger::attach(&path, &setup(BUDGET)).unwrap(),
        Ledger::attach(&path, &setup(BUDGET)).unwrap(),
    );
    let mut held = Vec::new();
    for number in 0..2 {
        assert_eq!(reserve(&maker, 40 * MIB, &NoDriver), Ok(()));
        let key = Key([number, 0]);
        let object = maker
            .name_object(key, [DEVICE].into_iter().collect(), Bytes(40 * MIB), None)
            .unwrap();
        held.push(other.hold_object(key).unwrap());
        maker.pass_object_on(object);
        maker.release(DEVICE, Bytes(40 * MIB));
        assert_eq!(maker.usage(DEVICE), Bytes((number + 1) * 40 * MIB));
    }
    assert!(matches!(
        reserve(&maker, 40 * MIB, &NoDriver),
        Err(Refusal::OverBudget { .. })
    ));
    held.into_iter()
        .for_each(|object| other.let_go_of_object(object));
    assert_eq!(reserve(&maker, 90 * MIB, &NoDriver), Ok(()));
}

#[test]
fn who_had_a_row_is_seen_to_be_gone_by_a_process_that_has_none_yet() {
    let waits = [true, false].map(|listed| {
        let (_place, path) = place();
        let mut child = Child::attached(&path, BUDGET);
        assert_eq!(child.ask(&format!("reserve {}", 90 * MIB)), "granted");
        if listed {
            assert_eq!(child.ask("note-listed"), "noted");
        }
        let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
        child.kill();
        let (driver, before) = (ShowsNeither::default(), Instant::now());
        assert_eq!(reserve(&ledger, 20 * MIB, &driver), Ok(()));
        before.elapsed()
    });
    // Else the rows may be in terms of another namespace, and a bounded wait decides.
    assert!(waits[0] < waits[1], "{waits:?}");
}

#[test]
fn bytes_of_the_dead_count_until_the_bounded_wait_ends_where_no_driver_can_tell() {
    let (_place, path) = place();
    let mut child = Child::attached(&path, BUDGET);
    assert_eq!(child.ask(&format!("reserve {}", 90 * MIB)), "granted");
    let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    let before = Instant::now();
    child.kill();
    ledger.reap(&NoDriver);
    let view = View::open(&path).unwrap();
    assert_eq!(
        (view.usage(DEVICE), view.draining(DEVICE)),
        (Bytes(90 * MIB), Bytes(90 * MIB))
    );
    // What fits beside them does not wait for them.
    assert_eq!(reserve(&ledger, 5 * MIB, &NoDriver), Ok(()));
    assert_eq!(reserve(&ledger, 20 * MIB, &NoDriver), Ok(()));
    assert!(
        before.elapsed() > Duration::from_millis(500),
        "granted while the memory was still draining"
    );
    assert_eq!(
        (view.usage(DEVICE), view.draining(DEVICE)),
        (Bytes(25 * MIB), Bytes(0))
    );
    assert!(view.stats().longest_drain > 0);
}

#[test]
fn a_driver_that_never_lets_go_is_told_apart_from_a_full_budget() {
    let (_place, path) = place();
    let mut child = Child::attached(&path, BUDGET);
    assert_eq!(child.ask(&format!("reserve {}", 90 * MIB)), "granted");
    let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    child.kill();
    let draining = Bytes(90 * MIB);
    let refused = Err(Refusal::Draining {
        requested: Bytes(20 * MIB),
        draining,
        budget: Bytes(BUDGET),
    });
    assert_eq!(reserve(&ledger, 20 * MIB, &Holds(true)), refused);
    // A newcomer, which asks no driver, does not know better.
    let newcomer = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    assert_eq!(reserve(&newcomer, 20 * MIB, &Holds(true)), refused);
    assert_eq!(reserve(&ledger, 20 * MIB, &Holds(false)), Ok(()));
}

#[test]
fn a_stopped_process_keeps_what_it_holds() {
    let (_place, path) = place();
    let mut child = Child::attached(&path, BUDGET);
    assert_eq!(child.ask(&format!("reserve {}", 90 * MIB)), "granted");
    crate::kernel::kill(child.pid() as i32, libc::SIGSTOP);
    let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    assert!(matches!(
        reserve(&ledger, 20 * MIB, &Holds(false)),
        Err(Refusal::OverBudget { .. })
    ));
    assert_eq!(ledger.usage(DEVICE), Bytes(90 * MIB));
}

#[test]
fn a_neighbours_lease_is_no_reason_to_refuse() {
    let (_place, path) = place();
    let mut child = Child::attached(&path, BUDGET);
    // Given back to its lease: nothing in use, something charged.
    assert_eq!(child.ask(&format!("reserve {}", 40 * MIB)), "granted");
    assert_eq!(child.ask(&format!("release {}", 40 * MIB)), "released");
    let view = View::open(&path).unwrap();
    let leased: u64 = view
        .slots()
        .iter()
        .flat_map(|slot| &slot.devices)
        .map(|share| share.leased.0)
        .sum();
    assert_eq!((view.usage(DEVICE), leased), (Bytes(0), 40 * MIB));
    let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    assert_eq!(reserve(&ledger, BUDGET, &NoDriver), Ok(()));
    assert_eq!(child.ask("reserve 4096"), "OverBudget");
}

#[test]
fn a_process_that_leaves_with_charges_drains_like_a_dead_one() {
    let (_place, path) = place();
    let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    let leaver = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    assert_eq!(reserve(&leaver, 90 * MIB, &NoDriver), Ok(()));
    drop(leaver);
    assert_eq!(ledger.usage(DEVICE), Bytes(90 * MIB));
    assert_eq!(reserve(&ledger, 20 * MIB, &Holds(false)), Ok(()));
    assert_eq!(ledger.usage(DEVICE), Bytes(20 * MIB));
}

#[test]
fn the_dead_are_found_after_a_program_closed_every_descriptor() {
    let (_place, path) = place();
    let mut child = Child::attached(&path, BUDGET);
    assert_eq!(child.ask(&format!("reserve {}", 90 * MIB)), "granted");
    let mut other = Child::attached(&path, BUDGET);
    assert_eq!(other.ask("close-all"), "closed");
    // Its own slot is held by the mapping.
    let view = View::open(&path).unwrap();
    view.reap();
    assert!(
        view.slots()
            .iter()
            .any(|slot| slot.pid == other.pid() && slot.alive)
    );
    child.kill();
    assert_eq!(
        other.ask(&format!("reserve-asking {}", 20 * MIB)),
        "granted"
    );
}

#[test]
fn a_reaper_without_a_descriptor_refuses_and_says_why() {
    let (_place, path) = place();
    let mut child = Child::attached(&path, BUDGET);
    assert_eq!(child.ask(&format!("reserve {}", 60 * MIB)), "granted");
    let mut other = Child::attached(&path, BUDGET);
    assert_eq!(other.ask("no-descriptors"), "none");
    child.kill();
    assert_eq!(
        other.ask(&format!("reserve-asking {}", 50 * MIB)),
        "Unreaped"
    );
}

#[test]
fn an_object_is_charged_until_its_last_holder_lets_go_whoever_dies() {
    let (_place, path) = place();
    let (mut maker, mut holder) = (
        Child::attached(&path, BUDGET),
        Child::attached(&path, BUDGET),
    );
    let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    let (key, size) = (Key([3, 7]), Bytes(60 * MIB));
    assert_eq!(ledger.hold_object(key), None);
    assert_eq!(maker.ask(&format!("reserve {}", 90 * MIB)), "granted");
    assert_eq!(maker.ask(&format!("name 3 {}", size.0)), "named");
    assert_eq!(holder.ask("hold 3"), "held");
    let object = ledger.hold_object(key).unwrap();
    assert_eq!(ledger.usage(DEVICE), Bytes(90 * MIB), "charged once");
    maker.kill();
    reap_to_the_end(|| ledger.reap(&Holds(false)));
    assert_eq!(ledger.usage(DEVICE), size, "its holders have it still");
    let view = View::open(&path).unwrap();
    assert_eq!(view.usage(DEVICE), size);
    assert_eq!(
        reserve(&ledger, 50 * MIB, &Holds(false)),
        Err(Refusal::OverBudget {
            requested: Bytes(50 * MIB),
            usage: size,
            budget: Bytes(BUDGET),
        })
    );
    ledger.let_go_of_object(object);
    assert_eq!(ledger.usage(DEVICE), size, "one holder has it still");
    holder.kill();
    ledger.reap(&Holds(true));
    assert_eq!(ledger.usage(DEVICE), size, "until the driver let go of it");
    reap_to_the_end(|| ledger.reap(&Holds(false)));
    assert_eq!(ledger.usage(DEVICE), Bytes::ZERO);
    assert_eq!(ledger.hold_object(key), None, "it is gone");
    assert_eq!(view.slots().len(), 1, "the dead have left their slots");
}

#[test]
fn an_object_that_its_maker_is_relieved_of_is_charged_to_the_tenant() {
    let (_place, path) = place();
    let mut holder = Child::attached(&path, BUDGET);
    let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    let devices = || core::iter::once(DEVICE).collect();
    for (number, held) in [(1, false), (2, true)] {
        assert_eq!(reserve(&ledger, 60 * MIB, &NoDriver), Ok(()));
        let key = Key([number, 7]);
        let object = ledger
            .name_object(key, devices(), Bytes(60 * MIB), None)
            .unwrap();
        if held {
            assert_eq!(holder.ask(&format!("hold {number}")), "held");
        }
        ledger.pass_object_on(object);
        ledger.release(DEVICE, Bytes(60 * MIB));
        let left = if held { 60 * MIB } else { 0 };
        assert_eq!(ledger.usage(DEVICE), Bytes(left));
        assert_eq!(ledger.own_usage(DEVICE), Bytes::ZERO);
    }
    holder.kill();
    reap_to_the_end(|| ledger.reap(&Holds(false)));
    assert_eq!(ledger.usage(DEVICE), Bytes::ZERO);
}

/// Wherever the file lies: a tmpfs may be below /dev, where devices are.
#[test]
fn a_descriptor_holds_an_object_until_it_is_closed_or_its_file_is_gone() {
    for folder in [std::env::temp_dir(), "/dev/shm".into()] {
        let (_place, path) = place();
        let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
        for (number, gone) in [(1, false), (2, true)] {
            let file = tempfile::NamedTempFile::new_in(&folder).unwrap();
            let shared = file.reopen().unwrap();
            let descriptor =
                ledger::name_descriptor(shared.as_raw_fd(), number, Bytes::ZERO).unwrap();
            assert_eq!(reserve(&ledger, 60 * MIB, &NoDriver), Ok(()));
            let devices = core::iter::once(DEVICE).collect();
            let object = ledger
                .name_object(
                    Key([number, 7]),
                    devices,
                    Bytes(60 * MIB),
                    Some(&descriptor),
                )
                .unwrap();
            ledger.pass_object_on(object);
            ledger.release(DEVICE, Bytes(60 * MIB));
            ledger.reap(&Holds(false));
            assert_eq!(ledger.usage(DEVICE), Bytes(60 * MIB), "it is open");
            if gone {
                file.close().unwrap();
            } else {
                drop(shared);
            }
            // A child that another test's thread has forked holds what this process held, until it has become another program.
            let freed = (0..12_000).any(|_| {
                ledger.reap(&Holds(false));
                ledger.usage(DEVICE) == Bytes::ZERO || {
                    std::thread::sleep(Duration::from_millis(5));
                    false
                }
            });
            assert!(freed, "in {}, the file gone: {gone}", folder.display());
        }
    }
}

#[test]
fn a_reaper_that_is_stopped_keeps_nobody_from_a_dead_ones_memory() {
    let (_place, path) = place();
    let mut dead = Child::attached(&path, 100 * MIB);
    assert_eq!(dead.ask(&format!("reserve {}", 90 * MIB)), "granted");
    let mut asker = Child::attached(&path, 100 * MIB);
    // What one has that is stopped there: the first of the bytes that say so, which no other may have meanwhile.
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    assert!(kernel::lock_byte(&file, ledger::SLOTS as i64));
    dead.kill();
    let ask = format!("reserve-asking {}", 90 * MIB);
    assert_eq!(asker.ask(&ask), "granted");
    // Its slot stays empty until it goes on.
    let newcomer = Ledger::attach(&path, &setup(100 * MIB)).unwrap();
    let view = View::open(&path).unwrap();
    let slots: Vec<usize> = view.slots().iter().map(|slot| slot.slot).collect();
    assert_eq!(slots, [1, 2]);
    drop((newcomer, file));
    let _newcomer = Ledger::attach(&path, &setup(100 * MIB)).unwrap();
    let slots: Vec<usize> = view.slots().iter().map(|slot| slot.slot).collect();
    assert_eq!(slots, [0, 1]);
}

#[test]
fn in_a_time_namespace_the_dead_hold_their_bytes_as_long_as_elsewhere() {
    const SHIFTED: [&str; 7] = [
        "unshare",
        "-T",
        "--monotonic",
        "1000000",
        "--boottime",
        "1000000",
        "--",
    ];
    let (_place, path) = place();
    let mut shifted = Child::start_by(&SHIFTED);
    if shifted.ask(&format!("attach {} {}", path.display(), 100 * MIB)) != "attached" {
        eprintln!("SKIPPED: no time namespace here");
        return;
    }
    let mut dead = Child::attached(&path, 100 * MIB);
    assert_eq!(dead.ask(&format!("reserve {}", 90 * MIB)), "granted");
    let before = std::time::Instant::now();
    dead.kill();
    // Found dead by a process of the machine's own time.
    let view = View::open(&path).unwrap();
    while view.draining(DEVICE) == Bytes(0) {
        view.reap();
    }
    assert_eq!(shifted.ask(&format!("reserve {}", 90 * MIB)), "granted");
    assert!(before.elapsed() >= std::time::Duration::from_secs(2));
}
