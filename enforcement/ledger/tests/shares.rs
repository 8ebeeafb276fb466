//! Budgets of time, as processes join them (V18 of `fixtures/defects.txt`).

use ledger::{Authority, DeviceIndex, Ledger, Setup};

#[test]
fn a_device_that_disagrees_keeps_no_other_from_its_share() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let ledger = Ledger::attach(&directory.path().join("ledger"), &Setup::default());
    let ledger = ledger.expect("a ledger");
    let of =
        |shares: [u16; 3]| move |device: DeviceIndex| *shares.get(device.0 as usize).unwrap_or(&0);
    assert_eq!(
        ledger.join_shares(of([2_000, 6_000, 6_000]), Authority::Tenant),
        None
    );
    let owners = ledger.join_shares(of([5_000, 3_000, 7_000]), Authority::Owner);
    assert_eq!(
        owners,
        Some((DeviceIndex(0), 2_000, 5_000)),
        "the first that holds otherwise"
    );
    let held = [0, 1, 2].map(|device| ledger.share(DeviceIndex(device)));
    assert_eq!(held, [2_000, 3_000, 6_000]);
}
