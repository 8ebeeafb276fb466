//! NULL arguments: behind a device, alone, and before nvmlInit.

use crate::boundary::{Ended, in_child, recorded, report, rows};
use crate::{ANSWERS, NVML, start};

/// What nvmlInit answered driver 550 on a machine without one: DRIVER_NOT_LOADED. Here there is a driver.
const NO_DRIVER: &str = "(9)";

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

fn compare(what: &str, column: usize, known: &[&str], words: fn(&str) -> Vec<u64>) {
    let (mut checked, mut wrong) = (0, Vec::new());
    for row in rows(ANSWERS)
        .into_iter()
        .filter(|row| row[column] != NO_DRIVER)
    {
        let Some(expected) = recorded(row[column].trim_matches(['(', ')'])) else {
            continue;
        };
        let ended = in_child(|| NVML.call(row[0], &words(row[0])).into());
        checked += 1;
        if ended != expected {
            assert!(
                !matches!(ended, Ended::Answered(0) | Ended::Hung),
                "{}: {ended:?}",
                row[0]
            );
            wrong.push(format!("{}: {ended:?}, recorded {expected:?}", row[0]));
        }
    }
    let wrong = report(what, checked, wrong);
    let names: Vec<&str> = wrong
        .iter()
        .map(|line| line.split(':').next().unwrap_or(""))
        .collect();
    assert_eq!(names, known);
    assert!(checked > 200);
}

#[test]
fn a_device_and_nulls_are_answered_as_recorded() {
    compare("NVML, device and NULLs", 1, &[], |name| {
        let device = start();
        let room = Box::leak(Box::new([0u64; 64]));
        vec![first_word(name, device, room)]
    });
}

#[test]
fn nulls_alone_are_answered_as_recorded() {
    compare("NVML, NULLs", 2, &[], |_| {
        start();
        vec![]
    });
}

#[test]
fn nulls_before_init_are_answered_as_recorded() {
    compare("NVML, NULLs before nvmlInit", 3, &[], |_| vec![]);
}

#[test]
fn what_is_not_simulated_never_succeeds() {
    for name in [
        "nvmlDeviceSetMigMode",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetBAR1MemoryInfo",
        "nvmlGpmSampleAlloc",
    ] {
        let mut room = [0u64; 64];
        let at = room.as_mut_ptr() as u64;
        let ended = in_child(|| NVML.call(name, &[start(), at, at]).into());
        assert_eq!(ended, Ended::Answered(3), "{name}");
    }
}
