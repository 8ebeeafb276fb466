//! The file itself: who creates it, what is believed of it, and what happens when it goes.

use crate::child::{Child, DEVICE, MIB, reserve, setup};
use ledger::{
    Authority, Bytes, DeviceIndex, Disagreement, Ledger, NoDriver, Reason, Refusal, SLOTS, Setup,
    View,
};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;

const BUDGET: u64 = 256 * MIB;

fn place() -> (tempfile::TempDir, PathBuf) {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("ledger");
    (place, path)
}

fn reason(path: &Path) -> Option<Reason> {
    Ledger::attach(path, &setup(BUDGET)).err().map(|error| {
        assert_eq!(error.path, path);
        error.reason
    })
}

/// How many slots `counted` has, once they are no more than `most`, or after a minute. A child that another test's thread has forked meanwhile
/// holds what this process held, until it has become another program.
fn come_down_to(most: usize, counted: impl Fn() -> usize) -> usize {
    let mut held = usize::MAX;
    for _ in 0..12_000 {
        held = counted();
        if held <= most {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    held
}

#[test]
fn eight_creators_at_once_share_one_ledger_that_every_user_may_open() {
    let (place, path) = place();
    let barrier = Barrier::new(8);
    let ledgers: Vec<Ledger> = std::thread::scope(|scope| {
        let attach = || {
            barrier.wait();
            let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
            reserve(&ledger, 32 * MIB, &NoDriver).unwrap();
            ledger
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(attach)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    assert!(
        ledgers
            .iter()
            .all(|ledger| ledger.usage(DEVICE) == Bytes(BUDGET))
    );
    assert_eq!(View::open(&path).unwrap().slots().len(), 8);
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o666
    );
    assert_eq!(
        fs::read_dir(place.path()).unwrap().count(),
        1,
        "a temporary file was left"
    );
}

#[test]
fn a_full_ledger_refuses_the_next_process_and_takes_it_once_a_slot_is_free() {
    let (_place, path) = place();
    let mut ledgers: Vec<Ledger> = (0..SLOTS)
        .map(|_| Ledger::attach(&path, &setup(BUDGET)).unwrap())
        .collect();
    assert_eq!(reason(&path), Some(Reason::NoFreeSlot));
    drop(ledgers.swap_remove(SLOTS / 2));
    let last = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    assert_eq!(reserve(&last, BUDGET, &NoDriver), Ok(()));
    assert!(matches!(
        reserve(&ledgers[0], 1, &NoDriver),
        Err(Refusal::OverBudget { .. })
    ));
}

/// They died with something charged each, and nothing else is in use.
#[test]
fn a_newcomer_waits_for_the_dead_who_have_all_slots() {
    let (_place, path) = place();
    let budget = 2 * SLOTS as u64 * MIB;
    let ledgers: Vec<Ledger> = (0..SLOTS)
        .map(|_| Ledger::attach(&path, &setup(budget)).unwrap())
        .collect();
    for ledger in &ledgers {
        assert_eq!(reserve(ledger, MIB, &NoDriver), Ok(()));
    }
    drop(ledgers);
    let newcomer = Ledger::attach(&path, &setup(budget)).unwrap();
    assert_eq!(reserve(&newcomer, budget, &NoDriver), Ok(()));
}

#[test]
fn three_thousand_cycles_use_one_slot() {
    let (_place, path) = place();
    let first = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    for _ in 0..3_000 {
        let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
        drop(ledger.reserve(DEVICE, Bytes(MIB)).unwrap());
    }
    let view = View::open(&path).unwrap();
    // With those of the dead that still have something charged, a lease among it.
    let held = come_down_to(1, || view.slots().len());
    assert_eq!((held, view.usage(DEVICE)), (1, Bytes(0)));
    drop(first);
}

#[test]
fn a_deleted_file_is_granted_from_as_long_as_newcomers_find_it() {
    let (_place, path) = place();
    let mut holder = Child::attached(&path, BUDGET);
    fs::remove_file(&path).unwrap();
    assert_eq!(holder.ask(&format!("reserve {}", 100 * MIB)), "granted");
    let newcomer = Ledger::attach(&path, &setup(2 * BUDGET)).unwrap();
    assert_eq!(newcomer.usage(DEVICE), Bytes(100 * MIB));
    assert_eq!(newcomer.budget(DEVICE), Some(Bytes(BUDGET)));
    assert_eq!(
        View::find(&path).unwrap().usage(DEVICE),
        Bytes(100 * MIB),
        "what its owner sees"
    );
    drop(newcomer);
    // Where nobody could find it any more the next process makes another.
    assert_eq!(holder.ask("no-descriptors"), "none");
    assert_eq!(holder.ask(&format!("reserve {}", 20 * MIB)), "Deleted");
    let newcomer = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    assert_eq!(newcomer.usage(DEVICE), Bytes(0));
    assert_eq!(holder.ask(&format!("reserve {}", 20 * MIB)), "Replaced");
}

#[test]
fn a_replaced_file_refuses_and_says_so() {
    let (place, path) = place();
    let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    let other = place.path().join("other");
    let newcomer = Ledger::attach(&other, &setup(BUDGET)).unwrap();
    fs::rename(&other, &path).unwrap();
    assert_eq!(
        reserve(&ledger, 20 * MIB, &NoDriver),
        Err(Refusal::Replaced)
    );
    drop(newcomer);
    let newcomer = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    assert_eq!(reserve(&newcomer, 20 * MIB, &NoDriver), Ok(()));
}

#[test]
fn what_is_held_by_a_deleted_ledger_is_charged_until_its_holder_ends_or_gives_it_back() {
    let (_place, path) = place();
    let mut holders: Vec<Child> = (0..2).map(|_| Child::attached(&path, BUDGET)).collect();
    assert_eq!(holders[0].ask(&format!("reserve {}", 100 * MIB)), "granted");
    assert_eq!(holders[1].ask(&format!("reserve {}", 50 * MIB)), "granted");
    fs::remove_file(&path).unwrap();
    let mut newcomer = Child::attached(&path, BUDGET);
    let asks = |child: &mut Child, mib: u64| child.ask(&format!("reserve-asking {}", mib * MIB));
    assert_eq!(asks(&mut newcomer, 107), "OverBudget");
    assert_eq!(asks(&mut newcomer, 40), "granted");
    let mut last = Child::attached(&path, BUDGET);
    assert_eq!(asks(&mut last, 67), "OverBudget");
    let slots = View::find(&path).unwrap().slots();
    let alive: Vec<u32> = slots
        .iter()
        .filter(|slot| slot.alive)
        .map(|slot| slot.pid)
        .collect();
    let all = [
        holders[0].pid(),
        holders[1].pid(),
        newcomer.pid(),
        last.pid(),
    ];
    assert_eq!(alive, all, "each once: {slots:?}");
    holders[0].kill();
    assert_eq!(asks(&mut last, 150), "granted");
    assert_eq!(holders[1].ask(&format!("release {}", 50 * MIB)), "released");
    assert_eq!(asks(&mut last, 50), "granted");
    // Once all have ended there is no ledger, and the next process makes one.
    drop((holders, newcomer, last));
    let next = Ledger::attach(&path, &setup(2 * BUDGET)).unwrap();
    assert_eq!(next.budget(DEVICE), Some(Bytes(2 * BUDGET)));
    assert!(path.exists());
}

#[test]
fn what_several_hold_by_a_deleted_ledger_is_charged_until_the_last_of_them_lets_go() {
    let (_place, path) = place();
    let mut first = Child::attached(&path, BUDGET);
    assert_eq!(first.ask(&format!("reserve {}", 10 * MIB)), "granted");
    let [mut maker, mut importer] = [0, 1].map(|_| Child::attached(&path, BUDGET));
    assert_eq!(maker.ask(&format!("reserve {}", 200 * MIB)), "granted");
    assert_eq!(maker.ask(&format!("name 3 {}", 200 * MIB)), "named");
    assert_eq!(importer.ask("hold 3"), "held");
    maker.kill();
    fs::remove_file(&path).unwrap();
    let mut newcomer = Child::attached(&path, BUDGET);
    let asks = |child: &mut Child| child.ask(&format!("reserve-asking {}", 100 * MIB));
    assert_eq!(asks(&mut newcomer), "OverBudget");
    first.kill();
    assert_eq!(asks(&mut newcomer), "OverBudget");
    importer.kill();
    assert_eq!(asks(&mut newcomer), "granted");
}

#[test]
fn a_ledger_that_is_moved_away_is_gone_on_with() {
    type Move = fn(&Path, &Path);
    let moves: [(&str, bool, Move); 4] = [
        ("renamed", true, |path, other| {
            fs::rename(path, other).unwrap();
        }),
        ("linked", true, |path, other| {
            fs::hard_link(path, other).unwrap();
            fs::remove_file(path).unwrap();
        }),
        ("renamed and removed", false, |path, other| {
            fs::rename(path, other).unwrap();
            fs::remove_file(other).unwrap();
        }),
        ("folder renamed", true, |path, other| {
            let folder = path.parent().unwrap();
            fs::rename(folder, other).unwrap();
            fs::create_dir(folder).unwrap();
        }),
    ];
    for (what, has_name_again, moves) in moves {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::create_dir(place.path().join("folder")).unwrap();
        let path = place.path().join("folder/ledger");
        let mut holder = Child::attached(&path, BUDGET);
        assert_eq!(holder.ask(&format!("reserve {}", 200 * MIB)), "granted");
        moves(&path, &place.path().join("other"));
        let newcomer = Ledger::attach(&path, &setup(BUDGET)).unwrap();
        assert_eq!(newcomer.usage(DEVICE), Bytes(200 * MIB), "{what}");
        assert_eq!(path.exists(), has_name_again, "{what}");
        assert_eq!(
            holder.ask(&format!("reserve {}", 30 * MIB)),
            "granted",
            "{what}"
        );
        assert!(
            reserve(&newcomer, 30 * MIB, &NoDriver).is_err(),
            "{what}: 230 of 256 MiB are in use"
        );
        // Another ledger's processes are none of its.
        let other = Ledger::attach(&path.with_file_name("second"), &setup(BUDGET)).unwrap();
        assert_eq!(other.usage(DEVICE), Bytes(0), "{what}");
    }
}

#[test]
fn a_foreign_file_is_refused_by_its_first_differing_field_and_left_alone() {
    let (_place, path) = place();
    drop(Ledger::attach(&path, &setup(BUDGET)).unwrap());
    let good = fs::read(&path).unwrap();
    let fields = ["magic", "version", "size", "slots", "devices", "line size"];
    for (place, name) in fields.into_iter().enumerate() {
        let mut bad = good.clone();
        bad[place * 8] ^= 1;
        fs::write(&path, &bad).unwrap();
        let found = reason(&path);
        assert!(
            matches!(found, Some(Reason::ForeignFile { field, .. }) if field == name),
            "{name}: {found:?}"
        );
        assert_eq!(fs::read(&path).unwrap(), bad);
    }
    fs::write(&path, &good[..good.len() - 1]).unwrap();
    assert!(matches!(
        reason(&path),
        Some(Reason::ForeignFile {
            field: "file size",
            ..
        })
    ));
    fs::write(&path, b"").unwrap();
    assert!(matches!(
        reason(&path),
        Some(Reason::ForeignFile { field: "magic", .. })
    ));
}

#[test]
fn what_is_no_file_is_refused() {
    let (place, _path) = place();
    assert!(matches!(
        reason(place.path()),
        Some(Reason::System {
            call: "open",
            errno: libc::EISDIR
        })
    ));
    assert!(matches!(
        reason(&place.path().join("none/ledger")),
        Some(Reason::System {
            call: "open",
            errno: libc::ENOENT
        })
    ));
    assert!(matches!(
        reason(Path::new("/dev/null")),
        Some(Reason::ForeignFile {
            field: "regular file",
            ..
        })
    ));
    assert_eq!(reason(Path::new("")), Some(Reason::BadPath));
    assert!(View::open(&place.path().join("none")).is_err());
}

#[test]
fn any_content_of_the_words_is_survived() {
    let (_place, path) = place();
    let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let size = usize::try_from(file.metadata().unwrap().len()).unwrap();
    // Everything after what says that the file is a ledger.
    for filler in [0xff_u8, 0x80, 0x01] {
        file.write_all_at(&vec![filler; size - 48], 48).unwrap();
        let _ = reserve(&ledger, 20 * MIB, &NoDriver);
        ledger.release(DEVICE, Bytes(u64::MAX));
        ledger.reap(&NoDriver);
        let view = View::open(&path).unwrap();
        assert!(view.draining(DEVICE) <= view.usage(DEVICE));
        let _ = (
            view.slots(),
            view.stats(),
            ledger.available(DEVICE),
            reason(&path),
        );
    }
    assert_eq!(
        reserve(&ledger, u64::MAX, &NoDriver)
            .map_err(|refusal| matches!(refusal, Refusal::OverBudget { .. })),
        Err(true)
    );
}

#[test]
fn a_late_comer_joins_under_the_ledgers_budgets_and_can_say_which_differ() {
    let (_place, path) = place();
    let first = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    let late = Ledger::attach(&path, &setup(2 * BUDGET)).unwrap();
    let disagreement = Disagreement {
        device: DEVICE,
        asked: Some(Bytes(2 * BUDGET)),
        found: Some(Bytes(BUDGET)),
        holds: Some(Bytes(BUDGET)),
    };
    assert_eq!(
        (first.disagreement(), late.disagreement()),
        (None, Some(disagreement))
    );
    assert_eq!(late.budget(DEVICE), Some(Bytes(BUDGET)));
    assert_eq!(late.budget(DeviceIndex(31)), None);
    assert!(reserve(&late, 2 * BUDGET, &NoDriver).is_err());
}

#[test]
fn the_owners_word_lowers_what_is_above_it_and_nothing_else() {
    let (_place, path) = place();
    let first = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    let view = View::open(&path).unwrap();
    let owners = |budget: u64| Setup {
        authority: Authority::Owner,
        ..setup(budget)
    };
    for (found, holds) in [
        (Some(2 * BUDGET), BUDGET),
        (None, BUDGET),
        (Some(BUDGET / 2), BUDGET / 2),
    ] {
        match found {
            Some(found) => view.set_budget(DEVICE, Bytes(found)),
            None => view.clear_budget(DEVICE),
        };
        let late = Ledger::attach(&path, &owners(BUDGET)).unwrap();
        let told = late.disagreement().unwrap();
        assert_eq!(
            (told.found, told.holds),
            (found.map(Bytes), Some(Bytes(holds)))
        );
        assert_eq!(first.budget(DEVICE), Some(Bytes(holds)));
    }
    assert_eq!(first.join_share(DEVICE, 5_000, Authority::Tenant), 5_000);
    assert_eq!(first.join_share(DEVICE, 4_000, Authority::Tenant), 5_000);
    assert_eq!(first.join_share(DEVICE, 4_000, Authority::Owner), 4_000);
    assert_eq!(first.join_share(DEVICE, 4_500, Authority::Owner), 4_000);
    // A file that names no share leaves that to the tenant.
    assert_eq!(first.join_share(DEVICE, 0, Authority::Owner), 4_000);
}

#[test]
fn how_large_a_device_is_can_be_asked_once_anybody_has_seen_it() {
    let (_place, path) = place();
    let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    let view = View::open(&path).unwrap();
    assert_eq!(view.total(DEVICE), None);
    ledger.note_total(DEVICE, Bytes(5 * BUDGET));
    ledger.note_total(DEVICE, Bytes(4 * BUDGET));
    assert_eq!(view.total(DEVICE), Some(Bytes(5 * BUDGET)));
    assert_eq!(view.total(DeviceIndex(32)), None);
}

#[test]
fn a_device_beyond_the_ledger_has_nothing() {
    let (_place, path) = place();
    let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    let beyond = DeviceIndex(64);
    assert_eq!(
        ledger.reserve(beyond, Bytes(1)).map(|_| ()),
        Err(Refusal::UnknownDevice(beyond))
    );
    assert_eq!(
        (ledger.budget(beyond), ledger.usage(beyond)),
        (Some(Bytes(0)), Bytes(0))
    );
}

#[test]
fn a_namespaces_processes_are_told_apart_by_their_locks_not_their_pids() {
    let (_place, path) = place();
    let mut twins: Vec<Child> = (0..2).map(|_| Child::start()).collect();
    for twin in &mut twins {
        let answer = twin.ask("unshare");
        if answer.starts_with("not permitted") {
            eprintln!("SKIPPED: no PID namespace here ({answer})");
            return;
        }
        assert_eq!(answer, "pid 1");
        assert_eq!(
            twin.ask(&format!("attach {} {BUDGET}", path.display())),
            "attached"
        );
        assert_eq!(twin.ask(&format!("reserve {}", 100 * MIB)), "granted");
    }
    let view = View::open(&path).unwrap();
    assert_eq!(
        view.slots()
            .iter()
            .filter(|slot| slot.pid == 1 && slot.alive)
            .count(),
        2
    );
    twins.remove(0);
    // Its pid says that it lives: pid 1 always does. Its lock says that it does not.
    let alive = || view.slots().iter().filter(|slot| slot.alive).count();
    assert_eq!(come_down_to(1, alive), 1);
    assert_eq!(
        twins[0].ask(&format!("reserve-asking {}", 100 * MIB)),
        "granted"
    );
    assert_eq!(view.usage(DEVICE), Bytes(200 * MIB));
}
