//! CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, end to end on two H200; fork.

use mock_device::{FaultPlan, World, WorldSpec, profile};

use crate::boundary::{Ended, in_child, set_environment};
use crate::score::Score;
use crate::{CUDA, must, out, start};

const TABLE: &str = include_str!("../../../fixtures/oracle/visible-devices-h200x2.txt");

/// What a client sees: cuInit's answer, then the devices' UUIDs.
fn seen() -> (u32, Vec<[u8; 16]>) {
    let code = CUDA.call("cuInit", &[0]);
    let mut count = -7i32;
    let counted = CUDA.call("cuDeviceGetCount", &[out(&mut count)]);
    if code != 0 {
        assert_eq!((counted, count), (3, -7));
        return (code, vec![]);
    }
    let uuid = |device| {
        let mut uuid = [0u8; 16];
        must("cuDeviceGetUuid_v2", &[uuid.as_mut_ptr() as u64, device]);
        uuid
    };
    (code, (0..count as u64).map(uuid).collect())
}

pub fn compare() -> Score {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("world");
    let machine = profile::embedded("h200x2").expect("embedded");
    let uuids: Vec<[u8; 16]> = machine.devices.iter().map(|device| device.uuid.0).collect();
    World::create(&path, &WorldSpec::new(machine)).expect("a world");

    let rows: Vec<Vec<&str>> = TABLE
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('\t').collect())
        .collect();
    let mut wrong = Vec::new();
    for row in &rows {
        let devices: Vec<[u8; 16]> = row[3]
            .split_whitespace()
            .map(|at| uuids[at.parse::<usize>().unwrap()])
            .collect();
        let wanted = (row[2].parse::<u32>().unwrap(), devices);
        let ended = in_child(|| {
            set_environment("RINGFENCE_WORLD", path.to_str().unwrap().as_bytes());
            for (variable, value) in [
                ("CUDA_VISIBLE_DEVICES", row[0]),
                ("CUDA_DEVICE_ORDER", row[1]),
            ] {
                if value != "~" {
                    set_environment(variable, value.as_bytes());
                }
            }
            (seen() == wanted).into()
        });
        if ended != Ended::Answered(1) {
            wrong.push(format!(
                "{:?} {:?}: {ended:?}, recorded {wanted:?}",
                row[0], row[1]
            ));
        }
    }
    Score {
        checked: rows.len(),
        wrong,
        ..Score::default()
    }
}

#[test]
fn devices_are_numbered_as_on_the_card_under_every_recorded_spelling() {
    compare().all("visible devices");
}

#[test]
fn a_fork_child_of_an_initialised_process_is_not_initialised() {
    let ended = in_child(|| {
        start();
        let mut pointer = 0u64;
        must("cuMemAlloc_v2", &[out(&mut pointer), 4096]);
        let child = in_child(|| {
            let mut mine = 0u64;
            let calls: [(&str, &[u64]); 5] = [
                ("cuMemAlloc_v2", &[out(&mut mine), 1]),
                ("cuMemFree_v2", &[pointer]),
                ("cuCtxSynchronize", &[]),
                ("cuInit", &[0]),
                ("cuMemGetInfo_v2", &[0, 0]),
            ];
            calls
                .iter()
                .filter(|(name, words)| CUDA.call(name, words) == 3)
                .count() as u64
        });
        assert_eq!(child, Ended::Answered(5));
        must("cuMemFree_v2", &[pointer]);
        0
    });
    assert_eq!(ended, Ended::Answered(0));
}

#[test]
fn faults_and_the_trace_pass_through_the_boundary() {
    const PLAN: &str = r#"
        [[fault]]
        at = "cuMemAlloc_v2"
        when = "3"
        then = "result:2"
        [[fault]]
        at = "cuMemFree_v2"
        when = "2"
        then = "kill-after"
        [[fault]]
        at = "cuMemAllocAsync"
        then = "missing"
        [[fault]]
        at = "cuda.identity"
        then = "uuid:zero"
    "#;
    let directory = tempfile::tempdir().expect("a directory");
    let (path, trace) = (
        directory.path().join("world"),
        directory.path().join("trace"),
    );
    let mut spec = WorldSpec::new(profile::embedded("tiny").expect("embedded"));
    spec.faults = FaultPlan::parse("plan", PLAN).expect("a plan");
    spec.trace = Some(trace.clone());
    World::create(&path, &spec).expect("a world");
    let ended = in_child(|| {
        set_environment("RINGFENCE_WORLD", path.to_str().unwrap().as_bytes());
        start();
        let mut uuid = [7u8; 16];
        must("cuDeviceGetUuid_v2", &[uuid.as_mut_ptr() as u64, 0]);
        assert_eq!(uuid, [0; 16]);
        let mut pointers = [7u64; 3];
        let codes = pointers
            .each_mut()
            .map(|pointer| CUDA.call("cuMemAlloc_v2", &[out(pointer), 100]));
        assert_eq!(
            (codes, pointers[2]),
            ([0, 0, 2], 7),
            "the third fails, its out-parameter untouched"
        );
        let (name, mut found, mut status) = (c"cuMemAllocAsync", 7u64, 7i32);
        let words = [
            name.as_ptr() as u64,
            out(&mut found),
            12000,
            0,
            out(&mut status),
        ];
        must("cuGetProcAddress_v2", &words);
        assert_eq!((found, status), (0, 1), "a missing symbol is unknown");
        must("cuMemFree_v2", &[pointers[0]]);
        CUDA.call("cuMemFree_v2", &[pointers[1]]).into()
    });
    assert_eq!(ended, Ended::Died(libc::SIGKILL));
    let lines: Vec<String> = std::fs::read_to_string(trace)
        .expect("a trace")
        .lines()
        .map(str::to_owned)
        .collect();
    assert_eq!(
        lines[4],
        r#"{"api":"cuda","entry":"cuMemAlloc_v2","args":{"dptr":"mem#1","bytesize":100},"answer":0}"#
    );
    assert_eq!(
        lines[6],
        r#"{"api":"cuda","entry":"cuMemAlloc_v2","args":{"dptr":"out","bytesize":100},"answer":2}"#
    );
    let last = lines.last().expect("lines");
    assert_eq!(
        last, r#"{"api":"cuda","entry":"cuMemFree_v2","args":{"dptr":"mem#2"},"answer":0}"#,
        "the driver had acted"
    );
}
