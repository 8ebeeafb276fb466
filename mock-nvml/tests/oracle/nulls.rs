//! NULL arguments: behind a device, alone, and before nvmlInit by generation.

use build_support::oracle::Export;

use crate::boundary::{Ended, ended, in_child};
use crate::score::Score;
use crate::{EXPORTS, NVML, generations, start};

/// What nvmlInit answered drivers 535 and 550 on a machine without one: DRIVER_NOT_LOADED. Here there is a driver.
const NO_DRIVER: Ended = Ended::Answered(9);

/// In the first column the recorder's first argument was a device handle, which entry points without a device took for an
/// out-pointer: theirs is memory here, as the card's handle was.
fn first_word(name: &str, device: u64, room: &mut [u64; 64]) -> u64 {
    let takes_device = name.starts_with("nvmlDevice") && !name.starts_with("nvmlDeviceGetCount");
    if takes_device {
        device
    } else {
        room.as_mut_ptr() as u64
    }
}

/// A device and NULLs.
pub fn with_device() -> Score {
    compare(
        |row| ended(row.after[0]),
        |name| {
            in_child(|| {
                let device = start();
                let room = Box::leak(Box::new([0u64; 64]));
                NVML.call(name, &[first_word(name, device, room)]).into()
            })
        },
    )
}

pub fn alone() -> Score {
    compare(
        |row| ended(row.after[1]),
        |name| {
            in_child(|| {
                start();
                NVML.call(name, &[]).into()
            })
        },
    )
}

/// What a generation answers before nvmlInit; `None` for one that was not asked.
pub fn before_init(generation: u16) -> Option<Score> {
    let score = compare(
        |row| ended(row.before(generation)),
        |name| generations::on(generation, |nvml| nvml.call(name, &[]).into()),
    );
    (score.checked > 0).then_some(score)
}

fn compare(recorded: impl Fn(&Export) -> Option<Ended>, ask: impl Fn(&str) -> Ended) -> Score {
    let mut score = Score::default();
    for row in EXPORTS.iter() {
        match recorded(row) {
            None => {}
            Some(NO_DRIVER) => score
                .left_out
                .push(format!("{}: asked without a driver", row.name)),
            Some(expected) => {
                let got = ask(row.name);
                score.checked += 1;
                if got != expected {
                    score
                        .wrong
                        .push(format!("{}: {got:?}, recorded {expected:?}", row.name));
                }
            }
        }
    }
    score
}

#[test]
fn a_device_and_nulls_are_answered_as_recorded() {
    with_device().all("NVML, device and NULLs");
}

#[test]
fn nulls_alone_are_answered_as_recorded() {
    alone().all("NVML, NULLs");
}

#[test]
fn nulls_before_init_are_answered_as_recorded() {
    for generation in [535, 550, 580] {
        let score = before_init(generation).expect("it was asked");
        assert!(score.checked > 200, "{}", score.checked);
        score.all(&format!("NVML, NULLs before nvmlInit of {generation}"));
    }
}

#[test]
fn what_is_not_simulated_never_succeeds() {
    for name in [
        "nvmlDeviceSetMigMode",
        "nvmlDeviceGetBridgeChipInfo",
        "nvmlDeviceGetClkMonStatus",
    ] {
        let mut room = [0u64; 64];
        let at = room.as_mut_ptr() as u64;
        let ended = in_child(|| NVML.call(name, &[start(), at, at]).into());
        assert_eq!(ended, Ended::Answered(3), "{name}");
    }
}
