//! Device memory as all processes share it. Two handles of one test are two libraries of one process.

use mock_device::{Bytes, DeviceIndex, Kind, OutOfDeviceMemory, World, WorldSpec, profile};
use proptest::prelude::*;

const DEV0: DeviceIndex = DeviceIndex(0);
const DEV1: DeviceIndex = DeviceIndex(1);

fn two_handles(machine: &str) -> (tempfile::TempDir, World, World) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("world");
    let first = World::create(&path, &WorldSpec::new(profile::embedded(machine).unwrap())).unwrap();
    let second = World::open(&path).unwrap();
    (folder, first, second)
}

#[test]
fn memory_runs_out_across_handles_to_the_byte() {
    let (_folder, first, second) = two_handles("tiny");
    let capacity = first.devices()[0].capacity();
    first.take(DEV0, Kind::Memory, Bytes::mib(600)).unwrap();
    let left = capacity - Bytes::mib(600);
    let asked = left + Bytes(1);
    let refusal = second.take(DEV0, Kind::Vulkan, asked).unwrap_err();
    assert_eq!(
        refusal,
        OutOfDeviceMemory {
            device: DEV0,
            asked,
            free: left
        }
    );
    assert_eq!(
        second.used(DEV0),
        Bytes::mib(600),
        "a refusal takes nothing"
    );
    second.take(DEV0, Kind::Vulkan, left).unwrap();
    assert_eq!(
        (first.free(DEV0), first.peak(DEV0)),
        (Bytes::ZERO, capacity)
    );
    first.give_back(DEV0, Kind::Memory, Bytes::mib(600));
    assert_eq!(second.free(DEV0), Bytes::mib(600));
}

#[test]
fn a_size_that_wraps_is_refused() {
    let (_folder, world, _) = two_handles("tiny");
    world.take(DEV0, Kind::Memory, Bytes(1)).unwrap();
    assert!(world.take(DEV0, Kind::Memory, Bytes(u64::MAX)).is_err());
    assert_eq!(world.used(DEV0), Bytes(1));
}

#[test]
fn the_peak_is_the_largest_sum_ever_held() {
    let (_folder, first, second) = two_handles("tiny*2");
    first.take(DEV0, Kind::Memory, Bytes(300)).unwrap();
    second.take(DEV0, Kind::Memory, Bytes(400)).unwrap();
    first.give_back(DEV0, Kind::Memory, Bytes(300));
    second.take(DEV0, Kind::Memory, Bytes(250)).unwrap();
    assert_eq!(
        (first.peak(DEV0), first.used(DEV0), first.peak(DEV1)),
        (Bytes(700), Bytes(650), Bytes::ZERO)
    );
    first.reset_peak();
    assert_eq!(second.peak(DEV0), Bytes(650));
}

#[test]
fn a_process_is_one_row_of_the_list_whatever_its_libraries() {
    let (_folder, first, second) = two_handles("tiny*2");
    first.take(DEV1, Kind::Context, Bytes(5)).unwrap();
    second.take(DEV1, Kind::VulkanDevice, Bytes(7)).unwrap();
    let processes = first.processes(DEV1);
    let [process] = &processes[..] else {
        panic!("{processes:?}")
    };
    assert_eq!(process.pid, std::process::id());
    assert_eq!(
        (process.of(Kind::Context), process.of(Kind::VulkanDevice)),
        (Bytes(5), Bytes(7))
    );
    assert_eq!(first.used_by(DEV1, process.pid), Bytes(12));
    assert_eq!(first.processes(DEV0), []);
}

#[test]
fn closing_a_handle_returns_what_it_held() {
    let (_folder, first, second) = two_handles("tiny");
    first.take(DEV0, Kind::Memory, Bytes(3)).unwrap();
    second.take(DEV0, Kind::Memory, Bytes(4)).unwrap();
    drop(second);
    let audit = first.audit();
    assert!(audit.is_consistent(), "{audit:#?}");
    assert_eq!((first.used(DEV0), audit.live), (Bytes(3), 1));
}

#[test]
fn giving_back_more_than_held_is_counted_and_takes_nothing_from_others() {
    let (_folder, first, second) = two_handles("tiny");
    first.take(DEV0, Kind::Memory, Bytes(10)).unwrap();
    second.give_back(DEV0, Kind::Memory, Bytes(4));
    first.give_back(DEV0, Kind::Pool, Bytes(1));
    let audit = first.audit();
    assert_eq!((audit.overreturns, first.used(DEV0)), (2, Bytes(10)));
    assert!(!audit.is_consistent());
}

#[test]
fn a_world_without_a_free_row_refuses_and_serves_again_when_one_is_free() {
    let (folder, world, _) = two_handles("tiny");
    let path = folder.path().join("world");
    let mut rows: Vec<World> = (0..4096).map(|_| World::open(&path).unwrap()).collect();
    for row in &rows {
        row.take(DEV0, Kind::Memory, Bytes(1)).unwrap();
    }
    assert!(world.take(DEV0, Kind::Memory, Bytes(1)).is_err());
    assert_eq!(
        (world.audit().rows_exhausted, world.used(DEV0)),
        (2, Bytes(4096))
    );
    rows.pop();
    world.take(DEV0, Kind::Memory, Bytes(1)).unwrap();
    assert_eq!(world.used(DEV0), Bytes(4096));
}

#[derive(Clone, Debug)]
enum Step {
    Take {
        handle: usize,
        device: u32,
        kind: usize,
        bytes: u64,
    },
    GiveBack {
        which: usize,
    },
    Reset,
}

fn step() -> impl Strategy<Value = Step> {
    let take = (
        0..3_usize,
        0..2_u32,
        0..Kind::COUNT,
        prop_oneof![0..(1_u64 << 29), Just(u64::MAX)],
    );
    prop_oneof![
        6 => take.prop_map(|(handle, device, kind, bytes)| Step::Take { handle, device, kind, bytes }),
        5 => any::<usize>().prop_map(|which| Step::GiveBack { which }),
        1 => Just(Step::Reset),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Against a model that adds up a list: grants, refusals, what is used by kind, and the peak.
    #[test]
    fn the_books_equal_the_sum_of_what_was_granted(steps in prop::collection::vec(step(), 1..80)) {
        let (folder, first, second) = two_handles("tiny*2");
        let handles = [first, second, World::open(&folder.path().join("world")).unwrap()];
        let capacity = handles[0].devices()[0].capacity().0;
        let mut held: Vec<(usize, u32, usize, u64)> = Vec::new();
        let mut peak = [0; 2];
        let sum = |held: &[(usize, u32, usize, u64)], device: u32| held.iter().filter(|row| row.1 == device).map(|row| row.3).sum::<u64>();
        for step in steps {
            match step {
                Step::Take { handle, device, kind, bytes } => {
                    let fits = sum(&held, device).checked_add(bytes).is_some_and(|sum| sum <= capacity);
                    let granted = handles[handle].take(DeviceIndex(device), Kind::ALL[kind], Bytes(bytes));
                    prop_assert_eq!(granted.is_ok(), fits);
                    if fits {
                        held.push((handle, device, kind, bytes));
                    }
                }
                Step::GiveBack { which } if !held.is_empty() => {
                    let (handle, device, kind, bytes) = held.swap_remove(which % held.len());
                    handles[handle].give_back(DeviceIndex(device), Kind::ALL[kind], Bytes(bytes));
                }
                Step::GiveBack { .. } => {}
                Step::Reset => {
                    handles[0].reset_peak();
                    peak = [0; 2];
                }
            }
            for device in 0..2 {
                let now = sum(&held, device);
                peak[device as usize] = peak[device as usize].max(now);
                prop_assert_eq!(handles[1].used(DeviceIndex(device)).0, now);
                prop_assert_eq!(handles[2].peak(DeviceIndex(device)).0, peak[device as usize]);
            }
        }
        for device in 0..2 {
            let by_kind: Vec<u64> = (0..Kind::COUNT)
                .map(|kind| held.iter().filter(|row| row.1 == device && row.2 == kind).map(|row| row.3).sum())
                .collect();
            let listed = handles[0].processes(DeviceIndex(device));
            let listed: Vec<u64> = Kind::ALL.iter().map(|kind| listed.iter().map(|row| row.of(*kind).0).sum()).collect();
            prop_assert_eq!(listed, by_kind);
        }
        prop_assert!(handles[0].audit().is_consistent());
    }
}
