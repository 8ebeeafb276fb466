//! What changes with the world: handles by name, process lists, utilisation, events, instances; as the H200 answered.

use std::ffi::CString;
use std::path::Path;
use std::time::{Duration, Instant};

use abi::nvml::*;
use mock_device::{
    Bytes, DeviceIndex, Direction, Engine, Kind, MachineProfile, Nanos, World, WorldSpec, profile,
};

use crate::boundary::{Ended, in_child, set_environment};
use crate::{NVML, must, out, start};

/// Runs in a child on that machine, with its first device's handle.
fn on(machine: &str, act: impl FnOnce(u64, &World)) {
    on_machine(profile::embedded(machine).expect("embedded"), act);
}

fn on_machine(machine: MachineProfile, act: impl FnOnce(u64, &World)) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("world");
    let spec = WorldSpec::new(machine);
    World::create(&path, &spec).expect("a world");
    let ended = in_child(|| {
        set_environment("RINGFENCE_WORLD", path.to_str().expect("UTF-8").as_bytes());
        let world = World::open(Path::new(&path)).expect("the same world");
        act(start(), &world);
        0
    });
    assert_eq!(ended, Ended::Answered(0));
}

fn by(entry: &str, text: &str) -> u32 {
    let text = CString::new(text).expect("no NUL");
    let mut found = 0u64;
    NVML.call(entry, &[text.as_ptr() as u64, out(&mut found)])
}

/// Spelled as on the recorded card, whose device this stands for.
#[test]
fn a_device_is_found_by_the_spellings_that_the_card_took() {
    const UUID: &[(&str, u32)] = &[
        ("GPU-8b9d345e-f790-043e-88bb-5b84201eb79e", 0),
        ("8b9d345e-f790-043e-88bb-5b84201eb79e", 0),
        ("gpu-8b9d345e-f790-043e-88bb-5b84201eb79e", 6),
        ("GPU-8B9D345E-F790-043E-88BB-5B84201EB79E", 6),
        ("GPU-8b9d345e-f790-043e-88bb-5b84201eb79", 6),
        ("GPU-8b9d345e-f790-043e-88bb-5b84201eb79e ", 6),
        ("MIG-8b9d345e-f790-043e-88bb-5b84201eb79e", 6),
        ("MIG-GPU-8b9d345e-f790-043e-88bb-5b84201eb79e/0/0", 6),
        ("GPU-", 6),
        ("", 6),
    ];
    const BUS: &[(&str, u32)] = &[
        ("00000000:00:06.0", 0),
        ("0000:00:06.0", 0),
        ("00:06.0", 0),
        ("00000000:00:06", 0),
        ("0:0:6.0", 0),
        (" 00000000:00:06.0", 0),
        ("00:06", 2),
        ("000000000006.0", 2),
        ("", 2),
        ("x", 2),
        ("00000000:00:06.1", 2),
        ("00000000:00:06.0 ", 2),
        ("00000000:00:06.0junk", 2),
        ("0000:00:00.0", 6),
        ("0000:7f:06.0", 6),
        ("10000000:00:06.0", 6),
    ];
    on("h200", |device, _| {
        for (text, code) in UUID {
            assert_eq!(by("nvmlDeviceGetHandleByUUID", text), *code, "{text:?}");
        }
        for (text, code) in BUS {
            for entry in [
                "nvmlDeviceGetHandleByPciBusId",
                "nvmlDeviceGetHandleByPciBusId_v2",
            ] {
                assert_eq!(by(entry, text), *code, "{text:?}");
            }
        }
        let mut serial = [0u8; 32];
        must("nvmlDeviceGetSerial", &[device, out(&mut serial), 32]);
        let serial = String::from_utf8_lossy(&serial);
        let serial = serial.trim_end_matches('\0');
        assert_eq!(by("nvmlDeviceGetHandleBySerial", serial), 0);
        assert_eq!(by("nvmlDeviceGetHandleBySerial", "0"), 6);
    });
}

#[test]
fn process_rows_come_in_every_versions_layout() {
    on("h200", |device, world| {
        let taken = Bytes::mib(1030);
        world
            .take(DeviceIndex(0), Kind::Memory, taken)
            .expect("room");
        let pid = u64::from(std::process::id());
        for (entry, stride) in [
            ("nvmlDeviceGetComputeRunningProcesses", 2),
            ("nvmlDeviceGetComputeRunningProcesses_v2", 3),
            ("nvmlDeviceGetComputeRunningProcesses_v3", 3),
        ] {
            let (mut count, mut rows) = (2u32, [0u64; 8]);
            must(entry, &[device, out(&mut count), out(&mut rows)]);
            assert_eq!(
                (count, rows[0] as u32, rows[1]),
                (1, pid as u32, taken.0),
                "{entry}"
            );
            // No instance, and nothing behind the row.
            assert_eq!(rows[2], if stride == 3 { u64::MAX } else { 0 }, "{entry}");
            assert_eq!(rows[stride], 0, "{entry}");
        }
        let mut rows = [nvmlProcessDetail_v1_t::zeroed(); 2];
        let mut list = nvmlProcessDetailList_v1_t {
            version: 24 | 1 << 24,
            mode: 0,
            numProcArrayEntries: 0,
            procArray: std::ptr::null_mut(),
        };
        let entry = "nvmlDeviceGetRunningProcessDetailList";
        assert_eq!(NVML.call(entry, &[device, out(&mut list)]), 7);
        assert_eq!(list.numProcArrayEntries, 1);
        list.procArray = rows.as_mut_ptr();
        must(entry, &[device, out(&mut list)]);
        assert_eq!((rows[0].pid, rows[0].usedGpuMemory), (pid as u32, taken.0));
        list.mode = 3;
        assert_eq!(NVML.call(entry, &[device, out(&mut list)]), 2);

        let mut name = [0xa5u8; 8];
        let entry = "nvmlSystemGetProcessName";
        assert_eq!(NVML.call(entry, &[pid, out(&mut name), 0]), 2);
        must(entry, &[pid, out(&mut name), 4]);
        assert_eq!((name[3], name[4]), (0, 0xa5), "cut, and ended");
        assert_eq!(NVML.call(entry, &[999_999_999, out(&mut name), 8]), 6);
        world.give_back(DeviceIndex(0), Kind::Memory, taken);
    });
}

#[test]
fn utilisation_is_the_worlds_busy_time() {
    on("h200", |device, world| {
        let rates = || {
            let mut rates = nvmlUtilization_t::default();
            must("nvmlDeviceGetUtilizationRates", &[device, out(&mut rates)]);
            rates
        };
        assert_eq!(rates().gpu, 0);
        world
            .take(DeviceIndex(0), Kind::Memory, Bytes::mib(2))
            .expect("room");
        // Longer than any machine may keep this waiting: the samples are looked at while it lasts.
        let hour = Nanos(3_600_000_000_000);
        world.submit(DeviceIndex(0), Engine::Compute, world.now(), hour);
        let began = Instant::now();
        while rates().gpu < 95 {
            assert!(began.elapsed() < Duration::from_secs(60), "{:?}", rates());
            std::thread::sleep(Duration::from_millis(10));
        }

        let mut rows = [nvmlProcessUtilizationSample_t::zeroed(); 100];
        let mut count = 1u32;
        let entry = "nvmlDeviceGetProcessUtilization";
        let mut ask = |count: &mut u32| NVML.call(entry, &[device, out(&mut rows), out(count), 0]);
        assert_eq!((ask(&mut count), count), (7, 72));
        count = 100;
        assert_eq!((ask(&mut count), count), (0, 1));
        assert_eq!(rows[0].pid, std::process::id());
        assert!(rows[0].smUtil > 0, "{}", rows[0].smUtil);

        let mut samples = [nvmlSample_t::zeroed(); 100];
        let (mut kind, mut count) = (0u32, 100u32);
        must(
            "nvmlDeviceGetSamples",
            &[
                device,
                1,
                0,
                out(&mut kind),
                out(&mut count),
                out(&mut samples),
            ],
        );
        assert_eq!((kind, count), (1, 71));
        let ordered = samples[..71].is_sorted_by_key(|sample| sample.timeStamp);
        assert!(ordered, "oldest first");
        world.give_back(DeviceIndex(0), Kind::Memory, Bytes::mib(2));
    });
}

#[test]
fn memory_bus_and_energy_follow_copies_and_memsets() {
    on("h200", |device, world| {
        let dev = DeviceIndex(0);
        let cost = world.devices()[0].cost;
        let memory = || {
            let mut rates = nvmlUtilization_t::default();
            must("nvmlDeviceGetUtilizationRates", &[device, out(&mut rates)]);
            rates.memory
        };
        let bus = |way: u64| {
            let mut rate = 0u32;
            let entry = "nvmlDeviceGetPcieThroughput";
            must(entry, &[device, way, out(&mut rate)]);
            rate
        };
        let energy = || {
            let mut joules = 0u64;
            let entry = "nvmlDeviceGetTotalEnergyConsumption";
            must(entry, &[device, out(&mut joules)]);
            joules
        };
        const TX: u64 = 0;
        const RX: u64 = 1;
        let idle = (bus(TX), bus(RX));
        assert_eq!((memory(), idle), (0, (825, 393)), "the idle card's own");
        let (began, before) = (world.now(), energy());
        // Memsets and copies to the device, each for ten minutes that the test does not wait for.
        let long = |per_second: u64| Bytes(per_second * 600);
        let fill = world.carry(dev, world.now(), &cost.filling(long(cost.memset)));
        let to_device = cost.copying(Direction::HostToDevice, false, long(cost.h2d));
        world.carry(dev, world.now(), &to_device);
        let mut gpm = [0u64; 2];
        must("nvmlGpmSampleAlloc", &[out(&mut gpm[0])]);
        must("nvmlGpmSampleAlloc", &[out(&mut gpm[1])]);
        must("nvmlGpmSampleGet", &[device, gpm[0]]);
        std::thread::sleep(Duration::from_millis(650));
        must("nvmlGpmSampleGet", &[device, gpm[1]]);
        assert!(memory() >= 95, "{}", memory());
        let wanted = cost.h2d / 1000;
        let (tx, rx) = (u64::from(bus(TX)), u64::from(bus(RX)));
        assert!(rx.abs_diff(wanted) < wanted / 50, "{rx}, {wanted} KB/s");
        assert_eq!(tx, 825, "nothing comes from the device");
        // Half a second at least, at what a busy card takes, less the rounding of two answers.
        let spent = energy() - before;
        let (now, mut power) = (world.now(), 0u32);
        must("nvmlDeviceGetPowerUsage", &[device, out(&mut power)]);
        assert!(fill.end > now, "the machine stood still for ten minutes");
        let seconds = now.saturating_sub(began).0 as f64 / 1e9;
        let most = f64::from(power) * seconds;
        assert!(power > 300_000, "{power} mW at full load");
        assert!(
            spent as f64 <= most + 2.0 && spent as f64 >= most * 0.9 * 0.65 / seconds,
            "{spent} mJ in {seconds} s at {power} mW"
        );

        let mut asked = nvmlGpmMetricsGet_t::zeroed();
        asked.version = 1;
        asked.numMetrics = 3;
        asked.sample1 = nvmlGpmSample_t(gpm[0] as *mut _);
        asked.sample2 = nvmlGpmSample_t(gpm[1] as *mut _);
        for (metric, id) in asked.metrics.iter_mut().zip([10, 20, 21]) {
            metric.metricId = id;
        }
        must("nvmlGpmMetricsGet", &[out(&mut asked)]);
        let [dram, tx, rx] = [0, 1, 2].map(|at| asked.metrics[at].value);
        let most = world.devices()[0].dram_bandwidth().expect("its clock") as f64;
        let wanted = (cost.memset + cost.h2d) as f64 / most * 100.0;
        assert!((dram - wanted).abs() < 2.0, "{dram} %, {wanted}");
        let wanted = cost.h2d as f64 / 1_048_576.0;
        assert!(
            (rx - wanted).abs() < wanted / 50.0 && tx == 0.0,
            "{rx} {tx}"
        );
    });
}

#[test]
fn an_event_set_takes_what_the_card_supports_and_waits_as_long_as_it_is_told() {
    on("h200", |device, _| {
        let mut set = 0u64;
        must("nvmlEventSetCreate", &[out(&mut set)]);
        let register = |types: u64| NVML.call("nvmlDeviceRegisterEvents", &[device, types, set]);
        for bit in 0..26 {
            // Whatever 580 has a name for, although the card says that it supports fewer.
            assert_eq!(
                register(1 << bit),
                if bit < 16 { 0 } else { 3 },
                "bit {bit}"
            );
        }
        assert_eq!((register(0), register(u64::MAX)), (0, 3));
        let mut data = [0u64; 8];
        for entry in ["nvmlEventSetWait", "nvmlEventSetWait_v2"] {
            let began = Instant::now();
            assert_eq!(NVML.call(entry, &[set, out(&mut data), 30]), 10);
            assert!(began.elapsed() >= Duration::from_millis(30));
        }
        must("nvmlEventSetFree", &[set]);
        assert_eq!(NVML.call("nvmlEventSetFree", &[0]), 2);
    });
}

#[test]
fn instances_of_a_device_in_mig_mode_have_handles_of_their_own() {
    on("h200-mig", |device, world| {
        let (mut current, mut pending) = (9u32, 9u32);
        must(
            "nvmlDeviceGetMigMode",
            &[device, out(&mut current), out(&mut pending)],
        );
        assert_eq!((current, pending), (1, 1));
        let mut most = 0u32;
        must("nvmlDeviceGetMaxMigDeviceCount", &[device, out(&mut most)]);
        assert_eq!(most, 7);
        let entry = "nvmlDeviceGetMigDeviceHandleByIndex";
        let mut instances = Vec::new();
        for index in 0..u64::from(most) {
            let mut instance = 0u64;
            match NVML.call(entry, &[device, index, out(&mut instance)]) {
                0 => instances.push(instance),
                code => assert_eq!(code, 6),
            }
        }
        assert_eq!(instances.len(), 3);
        for (instance, cut) in instances.iter().zip(&world.devices()[0].mig) {
            let mut parent = 0u64;
            must(
                "nvmlDeviceGetDeviceHandleFromMigDeviceHandle",
                &[*instance, out(&mut parent)],
            );
            assert_eq!(parent, device);
            let mut text = [0u8; 96];
            must("nvmlDeviceGetUUID", &[*instance, out(&mut text), 96]);
            assert!(text.starts_with(b"MIG-5c9f1a7e-"));
            let mut found = 0u64;
            must(
                "nvmlDeviceGetHandleByUUID",
                &[out(&mut text), out(&mut found)],
            );
            assert_eq!(found, *instance);
            let mut memory = nvmlMemory_t::default();
            must("nvmlDeviceGetMemoryInfo", &[*instance, out(&mut memory)]);
            assert_eq!(memory.total, cut.memory.0);
            let (mut gpu, mut is_mig) = (0u32, 0u32);
            must("nvmlDeviceGetGpuInstanceId", &[*instance, out(&mut gpu)]);
            must(
                "nvmlDeviceIsMigDeviceHandle",
                &[*instance, out(&mut is_mig)],
            );
            assert_eq!((gpu, is_mig), (cut.id, 1));
            let mut attributes = nvmlDeviceAttributes_t::zeroed();
            must(
                "nvmlDeviceGetAttributes_v2",
                &[*instance, out(&mut attributes)],
            );
            assert_eq!(attributes.multiprocessorCount, cut.sm_count);
        }
        let mut rates = nvmlUtilization_t::default();
        let entry = "nvmlDeviceGetUtilizationRates";
        assert_eq!(NVML.call(entry, &[device, out(&mut rates)]), 3);
    });
}

/// docs/holes.md, K7: what is left of a card follows from the instances that it is cut into.
#[test]
fn room_for_more_instances_is_what_those_there_are_leave() {
    let remaining = |device: u64, profile: u64| {
        let mut count = 99u32;
        let words = [device, profile, out(&mut count)];
        let entry = "nvmlDeviceGetGpuInstanceRemainingCapacity";
        (NVML.call(entry, &words), count)
    };
    const PROFILES: [u64; 7] = [0, 5, 9, 14, 15, 19, 20];
    // Not cut: as recorded.
    on("h200", |device, _| {
        let all = PROFILES.map(|profile| remaining(device, profile));
        assert_eq!(all, [1, 1, 2, 3, 4, 7, 1].map(|count| (0, count)));
        assert_eq!((remaining(device, 6).0, remaining(device, 1).0), (3, 2));
    });
    // 3g.71gb in slices 0 to 3, 2g.35gb in 4 and 5, 1g.18gb in 6: slice 7 is no profile's.
    on("h200-mig", |device, _| {
        let all = PROFILES.map(|profile| remaining(device, profile));
        assert_eq!(all, [(0, 0); 7]);
        assert_eq!((remaining(device, 6).0, remaining(device, 1).0), (3, 2));
        let mut instance = 0u64;
        must(
            "nvmlDeviceGetGpuInstanceById",
            &[device, 2, out(&mut instance)],
        );
        let of_three = |profile: u64| {
            let mut count = 99u32;
            let entry = "nvmlGpuInstanceGetComputeInstanceRemainingCapacity";
            (
                NVML.call(entry, &[instance, profile, out(&mut count)]),
                count,
            )
        };
        // One compute instance has all three slices; a seven-slice one never fits.
        assert_eq!([0, 1, 2].map(of_three), [(0, 0); 3]);
        assert_eq!((of_three(4).0, of_three(99).0), (3, 2));
    });
    // Without the smallest, as much is left as it took; without the half, that.
    for (without, left) in [
        (2, [0, 0, 0, 0, 1, 1, 1]),
        (1, [0, 0, 0, 1, 1, 2, 1]),
        (0, [0, 1, 1, 2, 2, 4, 1]),
    ] {
        let mut machine = profile::embedded("h200-mig").expect("embedded");
        machine.devices[0].mig.remove(without);
        on_machine(machine, |device, _| {
            let all = PROFILES.map(|profile| remaining(device, profile));
            assert_eq!(all, left.map(|count| (0, count)), "without {without}");
        });
    }
}

/// 580 answers every field's number by itself.
#[test]
fn every_field_has_a_value_or_a_code() {
    on("h200", |device, _| {
        let mut fields = vec![nvmlFieldValue_t::zeroed(); 330];
        for (id, field) in fields.iter_mut().enumerate() {
            field.fieldId = id as u32;
        }
        let entry = "nvmlDeviceGetFieldValues";
        must(entry, &[device, 330, fields.as_mut_ptr() as u64]);
        let with_value = fields
            .iter()
            .filter(|field| field.nvmlReturn == nvmlReturn_t::SUCCESS);
        assert!(with_value.count() > 50);
        let code = |id: usize| fields[id].nvmlReturn.0;
        assert_eq!((code(83), code(7), code(0), code(329)), (0, 3, 2, 2));
        assert_eq!(
            NVML.call(entry, &[device, 0, fields.as_mut_ptr() as u64]),
            2
        );
    });
}

/// Read, write, NVLink, atomics, PCI, and a question that is none: 0 is OK, 5 is NOT_SUPPORTED.
fn peer_status(first: u64, second: u64) -> [u32; 6] {
    std::array::from_fn(|capability| {
        let mut status = 7u32;
        let words = [first, second, capability as u64, out(&mut status)];
        must("nvmlDeviceGetP2PStatus", &words);
        status
    })
}

/// docs/holes.md, K6: states, versions and fields of the links tell the same.
fn one_story_of_links(device: u64) {
    // nvmlFieldValue_t as words: field and scope; when, and for how long; value type and answer; value.
    let field = |id: u32, scope: u32| {
        let mut field = [u64::from(id) | u64::from(scope) << 32, 0, 0, 0, 0];
        must("nvmlDeviceGetFieldValues", &[device, 1, out(&mut field)]);
        (field[3] >> 32, field[4])
    };
    let number = |entry: &str, words: &[u64]| {
        let mut told = 99u32;
        let words: Vec<u64> = words.iter().copied().chain([out(&mut told)]).collect();
        must(entry, &words);
        u64::from(told)
    };
    let links = (0..32).take_while(|link| field(165, *link).0 == 0).count();
    assert_eq!(links, 18);
    // Common speed, count, and how many end at a switch.
    assert_eq!(
        [90, 91, 147].map(|id| field(id, 0)),
        [(0, 26_562), (0, 18), (0, 18)]
    );
    for link in 0..18 {
        let words = [device, link.into()];
        let state = number("nvmlDeviceGetNvLinkState", &words);
        let version = number("nvmlDeviceGetNvLinkVersion", &words);
        let told = [164, 165, 166].map(|id| field(id, link));
        assert_eq!(told, [(0, 26_562), (0, state), (0, version)], "link {link}");
        assert_eq!(
            number("nvmlDeviceGetNvLinkCapability", &[device, link.into(), 0]),
            1
        );
        let mut errors = 99u64;
        must(
            "nvmlDeviceGetNvLinkErrorCounter",
            &[device, link.into(), 0, out(&mut errors)],
        );
        assert_eq!((errors, field(161, link)), (0, (0, 0)));
        // nvmlPciInfo_t as words: 16 bytes of text, domain, bus, device, device and vendor, …
        let mut switch = [0u32; 17];
        for entry in [
            "nvmlDeviceGetNvLinkRemotePciInfo",
            "nvmlDeviceGetNvLinkRemotePciInfo_v2",
        ] {
            must(entry, &[device, link.into(), out(&mut switch)]);
            assert_eq!(switch[7], 0x22a3_10de);
        }
    }
    // No link 18, in whatever way it is asked after.
    assert_eq!([164, 165, 166, 138].map(|id| field(id, 18).0), [2; 4]);
    assert_eq!(field(138, u32::MAX), (0, 0), "bytes of all links");
}

#[test]
fn devices_are_joined_as_the_machine_says() {
    const NOT_SUPPORTED: u32 = 3;
    const INVALID_ARGUMENT: u32 = 2;
    let handle = |index: u64| {
        let mut device = 0u64;
        must("nvmlDeviceGetHandleByIndex_v2", &[index, out(&mut device)]);
        device
    };
    let link = |entry: &str, device: u64, link: u64| {
        let mut told = 7u32;
        (NVML.call(entry, &[device, link, out(&mut told)]), told)
    };
    for (machine, last, joined) in [
        ("h200x2", 1, [0, 0, 0, 0, 5, 0]),
        ("h200*4", 3, [0, 0, 0, 0, 5, 0]),
        ("rtx6000-ada*16", 15, [0, 0, 5, 5, 0, 0]),
        ("tiny*16", 15, [5, 5, 5, 5, 5, 0]),
    ] {
        on(machine, |device, _| {
            assert_eq!(peer_status(device, handle(last)), joined, "{machine}");
            assert_eq!(peer_status(handle(last), device), joined, "{machine}");
            assert_eq!(peer_status(device, device), [5, 5, 5, 5, 5, 0], "{machine}");
            let state = link("nvmlDeviceGetNvLinkState", device, 17);
            if joined[2] == 0 {
                assert_eq!(state, (0, 1), "{machine}");
                assert_eq!(link("nvmlDeviceGetNvLinkVersion", device, 0), (0, 6));
                let remote = link("nvmlDeviceGetNvLinkRemoteDeviceType", device, 0);
                assert_eq!(remote, (0, 2), "a switch");
                let beyond = link("nvmlDeviceGetNvLinkState", device, 18);
                assert_eq!(beyond.0, INVALID_ARGUMENT);
                one_story_of_links(device);
            } else {
                assert_eq!(state.0, NOT_SUPPORTED, "{machine}");
            }
        });
    }
    // Alone, its links are down.
    on("h200", |device, _| {
        assert_eq!(link("nvmlDeviceGetNvLinkState", device, 0).0, NOT_SUPPORTED);
        for id in [90, 91, 164] {
            let mut field = nvmlFieldValue_t::zeroed();
            field.fieldId = id;
            must("nvmlDeviceGetFieldValues", &[device, 1, out(&mut field)]);
            assert_eq!(field.nvmlReturn.0, NOT_SUPPORTED, "field {id}");
        }
    });
}
