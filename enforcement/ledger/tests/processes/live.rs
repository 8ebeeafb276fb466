//! Budgets that change under running processes.

use crate::child::{Child, DEVICE, MIB, reserve, setup};
use ledger::{Bytes, Ledger, NoDriver, Refusal, View};

fn place() -> (tempfile::TempDir, std::path::PathBuf) {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = place.path().join("ledger");
    (place, path)
}

#[test]
fn a_budget_lowered_below_usage_only_refuses_further_grants() {
    let (_place, path) = place();
    let ledger = Ledger::attach(&path, &setup(1000 * MIB)).unwrap();
    let mut child = Child::attached(&path, 0);
    assert_eq!(child.ask(&format!("reserve {}", 100 * MIB)), "granted");
    assert_eq!(reserve(&ledger, 2 * MIB, &NoDriver), Ok(()));
    let view = View::open(&path).unwrap();
    assert_eq!(view.set_budget(DEVICE, Bytes(50 * MIB)), Bytes(102 * MIB));
    assert_eq!(
        (ledger.budget(DEVICE), ledger.available(DEVICE)),
        (Some(Bytes(50 * MIB)), Some(Bytes(0)))
    );
    // The lease that came with the first grant is void, and what is given back is not kept as one.
    assert!(matches!(
        reserve(&ledger, 4096, &NoDriver),
        Err(Refusal::OverBudget { .. })
    ));
    ledger.release(DEVICE, Bytes(2 * MIB));
    assert!(matches!(
        reserve(&ledger, 2 * MIB, &NoDriver),
        Err(Refusal::OverBudget { .. })
    ));
    assert_eq!(ledger.usage(DEVICE), Bytes(100 * MIB));
    assert_eq!(child.ask(&format!("release {}", 100 * MIB)), "released");
    assert_eq!(reserve(&ledger, 50 * MIB, &NoDriver), Ok(()));
}

#[test]
fn a_raised_budget_is_granted_at_once() {
    let (_place, path) = place();
    let ledger = Ledger::attach(&path, &setup(10 * MIB)).unwrap();
    assert!(matches!(
        reserve(&ledger, 20 * MIB, &NoDriver),
        Err(Refusal::OverBudget { .. })
    ));
    View::open(&path)
        .unwrap()
        .set_budget(DEVICE, Bytes(20 * MIB));
    assert_eq!(reserve(&ledger, 20 * MIB, &NoDriver), Ok(()));
}

#[test]
fn a_budget_can_be_taken_away_and_given_again() {
    let (_place, path) = place();
    let ledger = Ledger::attach(&path, &setup(10 * MIB)).unwrap();
    let view = View::open(&path).unwrap();
    view.clear_budget(DEVICE);
    assert_eq!(
        (ledger.budget(DEVICE), ledger.available(DEVICE)),
        (None, None)
    );
    assert_eq!(reserve(&ledger, 20 * MIB, &NoDriver), Ok(()));
    assert_eq!(view.set_budget(DEVICE, Bytes(10 * MIB)), Bytes(20 * MIB));
    assert!(matches!(
        reserve(&ledger, 1, &NoDriver),
        Err(Refusal::OverBudget { .. })
    ));
}

#[test]
fn charges_are_counted_where_there_is_no_budget() {
    let (_place, path) = place();
    let ledger = Ledger::attach(&path, &ledger::Setup::default()).unwrap();
    assert_eq!(reserve(&ledger, 7 * MIB + 5, &NoDriver), Ok(()));
    ledger
        .reserve(DEVICE, Bytes(9 * MIB))
        .unwrap()
        .commit_as(Bytes(MIB));
    drop(ledger.reserve(DEVICE, Bytes(MIB)).unwrap());
    assert_eq!(
        (ledger.usage(DEVICE), ledger.own_usage(DEVICE)),
        (Bytes(8 * MIB + 5), Bytes(8 * MIB + 5))
    );
}
