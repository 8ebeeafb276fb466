//! Memory figures, identity and processes, on a world with memory taken in it.

use std::ffi::CString;
use std::path::Path;

use abi::nvml::{nvmlMemory_t, nvmlMemory_v2_t, nvmlProcessInfo_t};
use mock_device::{Bytes, DeviceIndex, Kind, World, WorldSpec, profile};

use crate::boundary::{Ended, in_child, set_environment};
use crate::{NVML, must, out, start};

/// Runs in a child whose machine is one H200.
fn on_an_h200(act: impl FnOnce(u64, &Path)) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("world");
    World::create(
        &path,
        &WorldSpec::new(profile::embedded("h200").expect("embedded")),
    )
    .expect("a world");
    let ended = in_child(|| {
        set_environment("RINGFENCE_WORLD", path.to_str().expect("UTF-8").as_bytes());
        act(start(), &path);
        0
    });
    assert_eq!(ended, Ended::Answered(0));
}

#[test]
fn an_idle_card_shows_its_reserve_as_used_in_version_1_and_apart_in_version_2() {
    on_an_h200(|device, _| {
        let mut first = nvmlMemory_t::default();
        must("nvmlDeviceGetMemoryInfo", &[device, out(&mut first)]);
        assert_eq!(
            (first.total, first.free, first.used),
            (150_754_820_096, 150_109_880_320, 644_939_776)
        );
        let mut second = nvmlMemory_v2_t {
            version: nvmlMemory_v2_t::VERSION,
            ..Default::default()
        };
        must("nvmlDeviceGetMemoryInfo_v2", &[device, out(&mut second)]);
        let figures = (second.total, second.reserved, second.free, second.used);
        assert_eq!(figures, (150_754_820_096, 644_939_776, 150_109_880_320, 0));
        second.version = 0;
        assert_eq!(
            NVML.call("nvmlDeviceGetMemoryInfo_v2", &[device, out(&mut second)]),
            13
        );
    });
}

#[test]
fn a_uuid_needs_room_and_finds_its_device_again() {
    on_an_h200(|device, _| {
        let mut text = [0u8; 80];
        assert_eq!(
            NVML.call("nvmlDeviceGetUUID", &[device, text.as_mut_ptr() as u64, 40]),
            7
        );
        must("nvmlDeviceGetUUID", &[device, text.as_mut_ptr() as u64, 41]);
        assert_eq!(&text[..41], b"GPU-8b9d345e-f790-043e-88bb-5b84201eb79e\0");
        let mut found = 0u64;
        must(
            "nvmlDeviceGetHandleByUUID",
            &[text.as_ptr() as u64, out(&mut found)],
        );
        assert_eq!(found, device);
        let other = CString::new("GPU-00000000-0000-0000-0000-000000000000").expect("no NUL");
        assert_eq!(
            NVML.call(
                "nvmlDeviceGetHandleByUUID",
                &[other.as_ptr() as u64, out(&mut found)]
            ),
            6
        );
        let bus = CString::new("00000000:00:06.0").expect("no NUL");
        found = 0;
        must(
            "nvmlDeviceGetHandleByPciBusId_v2",
            &[bus.as_ptr() as u64, out(&mut found)],
        );
        assert_eq!(found, device);
        assert_eq!(
            NVML.call("nvmlDeviceGetHandleByIndex_v2", &[9, out(&mut found)]),
            2
        );
        assert_eq!(
            NVML.call("nvmlDeviceGetIndex", &[device + 1, out(&mut found)]),
            2,
            "no handle"
        );
    });
}

#[test]
fn a_process_row_has_what_the_world_holds_for_it() {
    on_an_h200(|device, path| {
        let world = World::open(path).expect("the same world");
        world
            .take(DeviceIndex(0), Kind::Memory, Bytes::mib(512))
            .expect("room");
        let (mut count, mut rows) = (0u32, [nvmlProcessInfo_t::default(); 4]);
        let name = "nvmlDeviceGetComputeRunningProcesses_v3";
        assert_eq!(
            (NVML.call(name, &[device, out(&mut count), 0]), count),
            (7, 1)
        );
        count = 4;
        must(name, &[device, out(&mut count), out(&mut rows)]);
        assert_eq!(count, 1);
        assert_eq!(
            (rows[0].pid, rows[0].usedGpuMemory),
            (std::process::id(), 512 << 20)
        );
        assert_eq!(
            (rows[0].gpuInstanceId, rows[0].computeInstanceId),
            (u32::MAX, u32::MAX)
        );
        count = 4;
        must(
            "nvmlDeviceGetGraphicsRunningProcesses_v3",
            &[device, out(&mut count), out(&mut rows)],
        );
        assert_eq!(count, 0);
        let mut memory = nvmlMemory_t::default();
        must("nvmlDeviceGetMemoryInfo", &[device, out(&mut memory)]);
        assert_eq!(memory.used, 644_939_776 + (512 << 20));
        assert_eq!(memory.total, memory.used + memory.free);
        world.give_back(DeviceIndex(0), Kind::Memory, Bytes::mib(512));
    });
}

#[test]
fn init_and_shutdown_are_counted() {
    let ended = in_child(|| {
        let mut count = 0u32;
        assert_eq!(NVML.call("nvmlDeviceGetCount_v2", &[out(&mut count)]), 1);
        must("nvmlInit_v2", &[]);
        must("nvmlInitWithFlags", &[0]);
        must("nvmlShutdown", &[]);
        must("nvmlDeviceGetCount_v2", &[out(&mut count)]);
        must("nvmlShutdown", &[]);
        assert_eq!(NVML.call("nvmlDeviceGetCount_v2", &[out(&mut count)]), 1);
        0
    });
    assert_eq!(ended, Ended::Answered(0));
}
