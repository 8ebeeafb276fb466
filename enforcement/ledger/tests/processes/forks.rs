//! Fork children: they find the parent's handle dead, take slots of their own, and never keep a dead parent's alive.

use crate::child::{Child, DEVICE, MIB};
use crate::kernel;
use ledger::{Bytes, View};

const BUDGET: u64 = 4096 * MIB;

fn place() -> (tempfile::TempDir, std::path::PathBuf) {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("ledger");
    (place, path)
}

#[test]
fn fork_while_eight_threads_reserve_gives_each_child_a_dead_handle_and_its_own_slot() {
    let (_place, path) = place();
    let mut child = Child::attached(&path, BUDGET);
    assert_eq!(
        child.ask(&format!("fork-busy {} 60", path.display())),
        "clean"
    );
    assert_eq!(child.ask("own"), "0");
    let view = View::open(&path).unwrap();
    // The children left theirs; the parent's is all that remains.
    let owners: Vec<u32> = view.slots().iter().map(|slot| slot.pid).collect();
    assert_eq!((owners, view.usage(DEVICE)), (vec![child.pid()], Bytes(0)));
}

#[test]
fn a_surviving_fork_child_keeps_what_its_dead_parent_was_charged_and_no_longer() {
    let (_place, path) = place();
    let mut child = Child::attached(&path, BUDGET);
    assert_eq!(child.ask(&format!("reserve {}", 64 * MIB)), "granted");
    let survivor: i32 = child.ask("fork-and-stay").parse().unwrap();
    child.kill();
    let view = View::open(&path).unwrap();
    crate::reap_to_the_end(|| view.reap_with(&crate::kernel::Alive));
    let usage = view.usage(DEVICE);
    kernel::kill(survivor, libc::SIGKILL);
    assert_eq!(usage, Bytes(64 * MIB));
    // By the mapping that it inherited; nobody has called exec.
    let begun = std::time::Instant::now();
    while view.usage(DEVICE) != Bytes(0) && begun.elapsed().as_secs() < 20 {
        crate::reap_to_the_end(|| view.reap_with(&crate::kernel::Alive));
    }
    assert_eq!((view.usage(DEVICE), view.slots()), (Bytes(0), vec![]));
}
