//! Every effect of the fault plan, through the built libnvidia-ml.so.1.

#[path = "../../../mock-libcuda/tests/oracle/boundary.rs"]
#[allow(dead_code, reason = "each test program uses its own part")]
mod boundary;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use boundary::{Ended, Library, in_child, set_environment};
use mock_device::{Bytes, DeviceIndex, FaultPlan, Kind, World, WorldSpec, profile};

static NVML: LazyLock<Library> =
    LazyLock::new(|| Library::open(&boundary::built("libmock_nvml.so")));

const GPU_IS_LOST: u32 = 15;

/// Makes what fork children use; see [`boundary::in_child`].
fn shared_with_children() {
    LazyLock::force(&NVML);
}

fn out<T>(value: &mut T) -> u64 {
    std::ptr::from_mut(value) as u64
}

fn call(name: &str, words: &[u64]) -> u32 {
    NVML.call(name, words)
}

fn start() {
    assert_eq!(call("nvmlInit_v2", &[]), 0);
}

fn handle(index: u64) -> u64 {
    let mut device = 0u64;
    assert_eq!(
        call("nvmlDeviceGetHandleByIndex_v2", &[index, out(&mut device)]),
        0
    );
    device
}

fn count() -> u32 {
    let mut count = 0u32;
    assert_eq!(call("nvmlDeviceGetCount_v2", &[out(&mut count)]), 0);
    count
}

fn uuid(device: u64) -> String {
    let mut text = [0u8; 96];
    assert_eq!(
        call("nvmlDeviceGetUUID", &[device, text.as_mut_ptr() as u64, 96]),
        0
    );
    let end = text.iter().position(|byte| *byte == 0).unwrap();
    String::from_utf8(text[..end].to_vec()).unwrap()
}

/// nvmlDeviceGetMemoryInfo_v2: the code, then version, total, reserved, free, used.
fn memory(device: u64) -> (u32, [u64; 5]) {
    let mut memory = [0u64; 5];
    memory[0] = 0x0200_0028;
    let code = call(
        "nvmlDeviceGetMemoryInfo_v2",
        &[device, memory.as_mut_ptr() as u64],
    );
    (code, memory)
}

fn holds(plan: &str, act: impl FnOnce(&World)) {
    assert_eq!(under("tiny*2", plan, act), Ended::Answered(1), "{plan}");
}

/// Runs `act` as the only client of a world with this plan.
fn under(machine: &str, plan: &str, act: impl FnOnce(&World)) -> Ended {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("world");
    let mut spec = WorldSpec::new(profile::embedded(machine).expect("embedded"));
    spec.faults = FaultPlan::parse("test", plan).expect("a plan");
    let world = World::create(&path, &spec).expect("a world");
    in_child(|| {
        set_environment("RINGFENCE_WORLD", path.to_str().unwrap().as_bytes());
        act(&world);
        1
    })
}

#[test]
fn a_library_that_fails_to_initialise_answers_its_code() {
    for code in [9, 12, 18] {
        let plan = format!("[[fault]]\nat = \"nvml.init\"\nthen = \"result:{code}\"");
        holds(&plan, |_| {
            assert_eq!(call("nvmlInit_v2", &[]), code);
            let mut count = 7u32;
            assert_eq!(
                call("nvmlDeviceGetCount_v2", &[out(&mut count)]),
                1,
                "UNINITIALIZED"
            );
            assert_eq!(count, 7);
        });
    }
}

#[test]
fn answers_are_altered_as_the_row_says() {
    holds(
        r#"fault = [{ at = "nvml.memory", then = "untouched" }]"#,
        |_| {
            start();
            assert_eq!(memory(handle(0)), (0, [0x0200_0028, 0, 0, 0, 0]));
        },
    );
    holds(
        r#"fault = [{ at = "nvml.memory", then = "set:memory.free=5" }]"#,
        |_| {
            start();
            let (code, memory) = memory(handle(0));
            assert_eq!((code, memory[1], memory[3]), (0, 1 << 30, 5));
        },
    );
    holds(
        r#"fault = [{ at = "nvml.memory", then = "wrong-version" }]"#,
        |_| {
            start();
            let (code, memory) = memory(handle(0));
            assert_eq!(
                (code, memory[0] as u32, memory[1]),
                (0, 0x0300_0028, 1 << 30)
            );
        },
    );
    holds(
        r#"fault = [{ at = "nvmlDeviceGetCount*", then = "short" }]"#,
        |_| {
            start();
            assert_eq!(count(), 1);
        },
    );
    holds(
        r#"fault = [{ at = "nvmlDeviceGetCount*", then = "delay:50ms" }]"#,
        |_| {
            start();
            let began = Instant::now();
            assert_eq!(count(), 2);
            assert!(began.elapsed() >= Duration::from_millis(50));
        },
    );
    holds(
        r#"fault = [{ at = "nvml.memory", when = "2", then = "result:999" }]"#,
        |_| {
            start();
            let codes = [0, 1, 0].map(|device| memory(handle(device)).0);
            assert_eq!(codes, [0, 999, 0]);
        },
    );
}

#[test]
fn a_lost_device_is_lost_to_its_handle_and_gives_no_new_one() {
    let plan = r#"fault = [{ at = "nvml.memory", when = "2", then = "lost", device = 1 }]"#;
    holds(plan, |_| {
        start();
        let (first, second) = (handle(0), handle(1));
        assert_eq!(memory(second).0, 0);
        assert_eq!(memory(second).0, GPU_IS_LOST);
        assert_eq!(memory(first).0, 0);
        let mut again = 0u64;
        let words = [1, out(&mut again)];
        assert_eq!(call("nvmlDeviceGetHandleByIndex_v2", &words), GPU_IS_LOST);
        assert_eq!(count(), 2, "who knew it still counts it");
    });
}

#[test]
fn a_kill_ends_the_process() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("world");
    let mut spec = WorldSpec::new(profile::embedded("tiny").expect("embedded"));
    let plan = r#"fault = [{ at = "nvmlInit_v2", then = "kill-after" }]"#;
    spec.faults = FaultPlan::parse("test", plan).expect("a plan");
    World::create(&path, &spec).expect("a world");
    let ended = in_child(|| {
        set_environment("RINGFENCE_WORLD", path.to_str().unwrap().as_bytes());
        start();
        1
    });
    assert_eq!(ended, Ended::Died(libc::SIGKILL));
}

#[test]
fn views_order_hide_and_rename_the_devices() {
    let own: Vec<String> = profile::embedded("tiny*2")
        .unwrap()
        .devices
        .iter()
        .map(|device| device.uuid.to_string())
        .collect();
    let row = |then: &str| format!("fault = [{{ at = \"nvml.devices\", then = \"{then}\" }}]");
    let uuids = || -> Vec<String> {
        start();
        (0..count())
            .map(|index| uuid(handle(index.into())))
            .collect()
    };
    holds(&row("order:reversed"), |_| {
        assert_eq!(uuids(), [own[1].clone(), own[0].clone()]);
        let mut index = 7u32;
        assert_eq!(call("nvmlDeviceGetIndex", &[handle(0), out(&mut index)]), 0);
        assert_eq!(index, 0);
    });
    holds(&row("count:1"), |_| assert_eq!(uuids(), [own[0].clone()]));
    holds(
        r#"fault = [{ at = "nvml.identity", then = "uuid:mig", device = 1 }]"#,
        |_| {
            let shown = uuids();
            assert!(
                shown[0] == own[0] && shown[1].starts_with("MIG-"),
                "{shown:?}"
            );
        },
    );
}

#[test]
fn a_device_disappears_while_the_library_is_used() {
    let plan =
        r#"fault = [{ at = "nvml.devices", when = "after:300ms", then = "hidden", device = 0 }]"#;
    holds(plan, |_| {
        let began = Instant::now();
        start();
        // By how many looks it is still there, nobody promises; that it is for 300 ms, somebody does.
        while count() == 2 {
            assert!(began.elapsed().as_secs() < 60, "it never disappeared");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(count(), 1);
        assert!(began.elapsed() >= Duration::from_millis(300));
    });
}

#[test]
fn a_reserve_that_grows_takes_from_what_is_free() {
    let plan = r#"fault = [{ at = "nvml.devices", then = "reserve:64MiB" }]"#;
    holds(plan, |world| {
        start();
        world
            .take(DeviceIndex(0), Kind::Memory, Bytes::mib(100))
            .unwrap();
        let (_, [_, total, reserved, free, used]) = memory(handle(0));
        assert_eq!(
            [total, reserved, free, used].map(|bytes| bytes >> 20),
            [1024, 16 + 64, 1024 - 80 - 100, 100]
        );
    });
}

/// One entry point that is simulated and one that the profile's table answers, each with a number to tell.
const KINDS: [(&str, &str, u32); 2] = [
    ("nvmlDeviceGetIndex", "index", 0),
    ("nvmlDeviceGetMaxPcieLinkWidth", "max_link_width", 16),
];

#[test]
fn every_effect_takes_hold_of_every_kind_of_entry_point() {
    for (name, parameter, told) in KINDS {
        let plan = |then: &str| {
            format!("fault = [{{ at = \"{name}\", when = \"2\", then = \"{then}\" }}]")
        };
        let ask = |device: u64| {
            let mut number = 7u32;
            (call(name, &[device, out(&mut number)]), number)
        };
        let second = |then: &str, expected: (u32, u32)| {
            let ended = under("h200", &plan(then), |_| {
                start();
                let device = handle(0);
                assert_eq!(ask(device), (0, told), "the first {name}");
                assert_eq!(ask(device), expected, "{then} at {name}");
                assert_eq!(ask(device), (0, told), "the third {name}");
            });
            assert_eq!(ended, Ended::Answered(1), "{then} at {name}");
        };
        second("result:9", (9, 7));
        second("untouched", (0, 7));
        second("delay:1ms", (0, told));
        second(&format!("set:{parameter}=99"), (0, 99));
        second("short:1", (0, told));
        second("wrong-version", (0, told));
        for then in ["kill-before", "kill-after"] {
            let ended = under("h200", &plan(then), |_| {
                start();
                let device = handle(0);
                ask(device);
                ask(device);
            });
            assert_eq!(ended, Ended::Died(libc::SIGKILL), "{then} at {name}");
        }
        let ended = under("h200", &plan("lost"), |_| {
            start();
            let device = handle(0);
            ask(device);
            ask(device);
            assert_eq!(memory(device).0, GPU_IS_LOST, "after {name}");
        });
        assert_eq!(ended, Ended::Answered(1), "lost at {name}");
    }
}
