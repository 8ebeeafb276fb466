//! The file systems a ledger may lie on. Each in a private mount namespace, which is the thread's own.

use crate::child::{Child, DEVICE, MIB, reserve, setup};
use crate::kernel;
use ledger::{Bytes, Ledger, NoDriver, Reason, Refusal, View};
use std::path::Path;
use std::process::Command;
use std::sync::Barrier;

const BUDGET: u64 = 100 * MIB;

/// Whether mounts can be made here; loud where not.
fn mounts(what: &str) -> bool {
    let permitted = kernel::own_mounts();
    if !permitted {
        eprintln!(
            "SKIPPED: {what}: no private mount namespace here ({})",
            std::io::Error::last_os_error()
        );
    }
    permitted
}

/// What every place must keep: a living process's charges stay, a dead one's come back; a fork child keeps them where the file system keeps a mapping's
/// locks (`inherits`), and else holds nothing up.
fn keeps_the_promises(place: &Path, inherits: bool) {
    let path = place.join("ledger");
    let mut child = Child::attached(&path, BUDGET);
    assert_eq!(child.ask(&format!("reserve {}", 90 * MIB)), "granted");
    let mut other = Child::attached(&path, BUDGET);
    assert_eq!(
        other.ask(&format!("reserve-asking {}", 20 * MIB)),
        "OverBudget"
    );
    let view = View::open(&path).unwrap();
    assert_eq!(view.slots().iter().filter(|slot| slot.alive).count(), 2);
    let survivor: i32 = child.ask("fork-and-stay").parse().unwrap();
    child.kill();
    let mut answer = other.ask(&format!("reserve-asking {}", 20 * MIB));
    kernel::kill(survivor, libc::SIGKILL);
    if inherits {
        assert_ne!(answer, "granted");
        let begun = std::time::Instant::now();
        while answer != "granted" && begun.elapsed().as_secs() < 20 {
            answer = other.ask(&format!("reserve-asking {}", 20 * MIB));
        }
    }
    assert_eq!(answer, "granted");
    assert_eq!(view.usage(DEVICE), Bytes(20 * MIB));
    // A program that closes every descriptor either keeps its slot or takes it again before its next grant.
    assert_eq!(other.ask("close-all"), "closed");
    assert_eq!(
        other.ask(&format!("reserve-asking {}", 50 * MIB)),
        "granted"
    );
    view.reap_with(&kernel::Alive);
    assert_eq!(view.usage(DEVICE), Bytes(70 * MIB));
    // However often it does so: more often than there are descriptors that fork children are kept from.
    for round in 0..100 {
        assert_eq!(other.ask("close-all"), "closed");
        let answer = other.ask("reserve-asking 4096");
        assert_eq!(answer, "granted", "after closing all {round} times more");
    }
}

#[test]
fn tmpfs_keeps_the_promises() {
    if !mounts("tmpfs") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    kernel::mount("none", place.path(), "tmpfs", 0, "size=16m").unwrap();
    keeps_the_promises(place.path(), true);
}

#[test]
fn overlayfs_keeps_the_promises_by_a_kept_descriptor() {
    if !mounts("overlayfs") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    kernel::mount("none", place.path(), "tmpfs", 0, "size=32m").unwrap();
    let [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map(|name| {
        let part = place.path().join(name);
        std::fs::create_dir(&part).unwrap();
        part
    });
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    kernel::mount("overlay", &merged, "overlay", 0, &options).unwrap();
    keeps_the_promises(&merged, false);
}

#[test]
fn ext4_keeps_the_promises() {
    if !mounts("ext4") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let (image, root) = (place.path().join("image"), place.path().join("root"));
    std::fs::File::create(&image)
        .unwrap()
        .set_len(32 << 20)
        .unwrap();
    std::fs::create_dir(&root).unwrap();
    let run = |program: &str, arguments: &[&std::ffi::OsStr]| {
        let ran = Command::new(program).args(arguments).output();
        ran.is_ok_and(|output| output.status.success())
    };
    let made = run("mkfs.ext4", &["-q".as_ref(), image.as_os_str()])
        && run(
            "mount",
            &[
                "-o".as_ref(),
                "loop".as_ref(),
                image.as_os_str(),
                root.as_os_str(),
            ],
        );
    if !made {
        eprintln!("SKIPPED: ext4: no mkfs.ext4 or no loop device here");
        return;
    }
    keeps_the_promises(&root, true);
}

#[test]
fn a_full_file_system_refuses_to_attach_and_leaves_nothing() {
    if !mounts("a full tmpfs") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    kernel::mount("none", place.path(), "tmpfs", 0, "size=1m").unwrap();
    let attached = Ledger::attach(&place.path().join("ledger"), &setup(BUDGET));
    let full = Reason::System {
        call: "posix_fallocate",
        errno: libc::ENOSPC,
    };
    assert_eq!(attached.err().map(|error| error.reason), Some(full));
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn in_another_root_or_mount_namespace_a_ledger_is_granted_from_until_it_is_deleted() {
    fn goes_on_until_deleted(what: &str, moves: impl Fn(&Path) -> bool + Sync) {
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = place.path().join("ledger");
        let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
        let ask = || reserve(&ledger, 20 * MIB, &NoDriver);
        let (here, there) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            let elsewhere = scope.spawn(|| {
                let answer = moves(place.path()).then(ask);
                here.wait();
                there.wait();
                answer.map(|before| (before, ask()))
            });
            here.wait();
            std::fs::remove_file(&path).unwrap();
            there.wait();
            match elsewhere.join().unwrap() {
                Some(answers) => assert_eq!(answers, (Ok(()), Err(Refusal::Deleted)), "{what}"),
                None => eprintln!("SKIPPED: {what}: not permitted here"),
            }
        });
    }
    goes_on_until_deleted("another mount namespace", |place| {
        mounts("another mount namespace") && {
            kernel::mount("none", place, "tmpfs", 0, "size=1m").unwrap();
            true
        }
    });
    let empty = tempfile::tempdir().unwrap();
    goes_on_until_deleted("another root", |_| kernel::change_root(empty.path()));
    // In the same tree of files a ledger that was moved away is found by whoever comes next.
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("ledger");
    let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    std::fs::rename(&path, place.path().join("other")).unwrap();
    assert_eq!(reserve(&ledger, 20 * MIB, &NoDriver), Ok(()));
    let next = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    assert_eq!(next.usage(DEVICE), Bytes(20 * MIB));
}

#[test]
fn a_thread_that_becomes_a_user_to_whom_the_folder_is_closed_keeps_its_ledger() {
    use std::os::unix::fs::PermissionsExt;
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("ledger");
    let ledger = Ledger::attach(&path, &setup(BUDGET)).unwrap();
    std::fs::set_permissions(place.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let ask = |mib: u64| reserve(&ledger, mib * MIB, &NoDriver);
    let answers = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            kernel::become_nobody().then(|| {
                assert!(std::fs::metadata(&path).is_err(), "the folder is open");
                (ask(20), ask(100))
            })
        });
        other.join().unwrap()
    });
    match answers {
        Some((within, beyond)) => {
            assert_eq!(within, Ok(()));
            assert!(matches!(beyond, Err(Refusal::OverBudget { .. })));
        }
        None => eprintln!("SKIPPED: no other user can be had here"),
    }
}

#[test]
fn processes_that_start_together_say_nothing_of_a_file_that_was_moved() {
    const ROUNDS: usize = 8;
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let said = place.path().join("said");
    let begins = format!("exec \"$0\" \"$@\" 2>>{}", said.display());
    let mut children: Vec<Child> = (0..8)
        .map(|_| Child::start_by(&["sh", "-c", &begins]))
        .collect();
    for round in 0..ROUNDS {
        let path = place.path().join(format!("ledger-{round}"));
        for child in &mut children {
            child.say(&format!("attach {} {BUDGET}", path.display()));
        }
        for child in &mut children {
            assert_eq!(child.answer(), "attached");
        }
    }
    let said = std::fs::read_to_string(&said).unwrap();
    assert!(!said.contains("was moved away"), "{said}");
}
