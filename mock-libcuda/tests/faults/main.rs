//! Every effect of the fault plan, through the built libcuda.so.1.

#[path = "../oracle/boundary.rs"]
#[allow(dead_code, reason = "each test program uses its own part")]
mod boundary;

use std::sync::LazyLock;

use boundary::{Ended, Library, in_child, set_environment};
use mock_device::{FaultPlan, World, WorldSpec, profile};

static CUDA: LazyLock<Library> =
    LazyLock::new(|| Library::open(&boundary::built("libmock_libcuda.so")));

/// Makes what fork children use; see [`boundary::in_child`].
fn shared_with_children() {
    LazyLock::force(&CUDA);
}

fn out<T>(value: &mut T) -> u64 {
    std::ptr::from_mut(value) as u64
}

fn call(name: &str, words: &[u64]) -> u32 {
    CUDA.call(name, words)
}

/// cuInit, and a device's primary context made current.
fn start(device: u64) {
    let mut context = 0u64;
    assert_eq!(call("cuInit", &[0]), 0);
    assert_eq!(
        call("cuDevicePrimaryCtxRetain", &[out(&mut context), device]),
        0
    );
    assert_eq!(call("cuCtxSetCurrent", &[context]), 0);
}

/// cuMemAlloc_v2 of so many bytes: the code, and what is in an out-parameter that held 7.
fn alloc(bytes: u64) -> (u32, u64) {
    let mut pointer = 7u64;
    (call("cuMemAlloc_v2", &[out(&mut pointer), bytes]), pointer)
}

/// Runs `act` as the only client of a world with this plan.
fn under(machine: &str, plan: &str, act: impl FnOnce()) -> Ended {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("world");
    let mut spec = WorldSpec::new(profile::embedded(machine).expect("embedded"));
    spec.faults = FaultPlan::parse("test", plan).expect("a plan");
    World::create(&path, &spec).expect("a world");
    in_child(|| {
        set_environment("RINGFENCE_WORLD", path.to_str().unwrap().as_bytes());
        act();
        1
    })
}

fn holds(plan: &str, act: impl FnOnce()) {
    assert_eq!(under("tiny*2", plan, act), Ended::Answered(1), "{plan}");
}

const DEVICE_UNAVAILABLE: u32 = 46;

#[test]
fn a_result_or_an_untouched_success_does_nothing() {
    holds(
        r#"fault = [{ at = "cuda.alloc", when = "2", then = "result:304" }]"#,
        || {
            start(0);
            assert_eq!(alloc(100).0, 0);
            let mut pointer = 7u64;
            assert_eq!(call("cuMemAllocAsync", &[out(&mut pointer), 100, 0]), 304);
            assert_eq!(pointer, 7);
            assert_eq!(alloc(100).0, 0);
        },
    );
    holds(
        r#"fault = [{ at = "cuMemAlloc*", then = "untouched" }]"#,
        || {
            start(0);
            let (mut before, mut after, mut total) = (0u64, 0u64, 0u64);
            assert_eq!(
                call("cuMemGetInfo_v2", &[out(&mut before), out(&mut total)]),
                0
            );
            assert_eq!(alloc(100 << 20), (0, 7));
            assert_eq!(
                call("cuMemGetInfo_v2", &[out(&mut after), out(&mut total)]),
                0
            );
            assert_eq!(before, after);
        },
    );
}

#[test]
fn an_out_parameter_is_set_to_what_the_row_says() {
    holds(
        r#"fault = [
            { at = "cuDeviceGetAttribute", then = "set:pi=-1" },
            { at = "cuDeviceGetCount", then = "set:count=99" },
            { at = "cuMemGetInfo_v2", then = "set:free=0" },
        ]"#,
        || {
            start(0);
            let (mut threads, mut count) = (7i32, 7i32);
            assert_eq!(call("cuDeviceGetAttribute", &[out(&mut threads), 1, 0]), 0);
            assert_eq!(call("cuDeviceGetCount", &[out(&mut count)]), 0);
            assert_eq!((threads, count), (-1, 99));
            let (mut free, mut total) = (7u64, 7u64);
            assert_eq!(
                call("cuMemGetInfo_v2", &[out(&mut free), out(&mut total)]),
                0
            );
            assert!(free == 0 && total > 7, "{free} of {total}");
            assert_eq!(call("cuDeviceGetCount", &[0]), 0, "nothing to set");
        },
    );
}

#[test]
fn a_look_up_answers_null_with_success_or_does_not_know_the_symbol() {
    let look_up = |name: &std::ffi::CStr| {
        let (mut found, mut status) = (7u64, 7i32);
        let words = [
            name.as_ptr() as u64,
            out(&mut found),
            12000,
            0,
            out(&mut status),
        ];
        (call("cuGetProcAddress_v2", &words), found, status)
    };
    holds(
        r#"fault = [{ at = "cuda.look-up", when = "2..", then = "null" }]"#,
        || {
            assert!(look_up(c"cuMemAlloc").1 > 7);
            assert_eq!(look_up(c"cuMemAlloc"), (0, 0, 0));
        },
    );
    holds(
        r#"fault = [{ at = "cuMemAllocAsync", then = "missing" }]"#,
        || {
            assert_eq!(look_up(c"cuMemAllocAsync"), (0, 0, 1));
            assert!(look_up(c"cuMemAlloc").1 > 7);
        },
    );
}

#[test]
fn a_short_answer_counts_fewer() {
    holds(
        r#"fault = [{ at = "cuDeviceGetCount", then = "short" }]"#,
        || {
            let mut count = 7i32;
            assert_eq!(call("cuInit", &[0]), 0);
            assert_eq!(call("cuDeviceGetCount", &[out(&mut count)]), 0);
            assert_eq!(count, 1);
        },
    );
}

#[test]
fn a_delayed_call_answers_as_ever_but_later() {
    holds(
        r#"fault = [{ at = "cuMemAlloc_v2", then = "delay:50ms" }]"#,
        || {
            start(0);
            let began = std::time::Instant::now();
            assert_eq!(alloc(100).0, 0);
            assert!(began.elapsed() >= std::time::Duration::from_millis(50));
        },
    );
}

#[test]
fn after_so_many_bytes_every_such_call_fails() {
    holds(
        r#"fault = [{ at = "cuda.alloc", when = "after:100MiB", then = "result:2" }]"#,
        || {
            start(0);
            assert_eq!(alloc(60 << 20).0, 0);
            assert_eq!(alloc(40 << 20).0, 0);
            assert_eq!(alloc(1).0, 2);
            let mut pointer = 7u64;
            assert_eq!(call("cuMemAllocAsync", &[out(&mut pointer), 1, 0]), 2);
        },
    );
}

#[test]
fn a_lost_device_answers_unavailable_for_good_and_the_other_does_not() {
    holds(
        r#"fault = [{ at = "cuMemAlloc_v2", when = "3", then = "lost", device = 0 }]"#,
        || {
            start(0);
            let (_, pointer) = alloc(100);
            assert_eq!(alloc(100).0, 0);
            assert_eq!(alloc(100), (DEVICE_UNAVAILABLE, 7));
            assert_eq!(alloc(100), (DEVICE_UNAVAILABLE, 7));
            assert_eq!(call("cuMemFree_v2", &[pointer]), DEVICE_UNAVAILABLE);
            assert_eq!(call("cuCtxSynchronize", &[]), DEVICE_UNAVAILABLE);
            let mut word = 0u64;
            assert_eq!(
                call("cuDevicePrimaryCtxRetain", &[out(&mut word), 0]),
                DEVICE_UNAVAILABLE
            );
            assert_eq!(
                call("cuCtxGetCurrent", &[out(&mut word)]),
                0,
                "known without it"
            );
            assert_eq!(call("cuDevicePrimaryCtxRelease_v2", &[0]), 0);
            assert_eq!(call("cuDevicePrimaryCtxRetain", &[out(&mut word), 1]), 0);
            assert_eq!(call("cuCtxSetCurrent", &[word]), 0);
            assert_eq!(alloc(100).0, 0, "the other device");
        },
    );
}

#[test]
fn a_kill_comes_before_or_after_the_act() {
    for (then, left) in [("kill-before", 0), ("kill-after", 2 << 20)] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("world");
        let mut machine = profile::embedded("tiny").expect("embedded");
        machine.devices[0].teardown_lag_ms = 60_000;
        let mut spec = WorldSpec::new(machine);
        let plan = format!("[[fault]]\nat = \"cuda.alloc\"\nthen = \"{then}\"");
        spec.faults = FaultPlan::parse("test", &plan).expect("a plan");
        let world = World::create(&path, &spec).expect("a world");
        let ended = in_child(|| {
            set_environment("RINGFENCE_WORLD", path.to_str().unwrap().as_bytes());
            start(0);
            alloc(100);
            1
        });
        assert_eq!(ended, Ended::Died(libc::SIGKILL));
        let holdings = world.processes(mock_device::DeviceIndex(0));
        let held: u64 = holdings
            .iter()
            .map(|process| process.of(mock_device::Kind::Memory).0)
            .sum();
        assert_eq!(held, left, "{then}");
    }
}

#[test]
fn a_driver_that_fails_to_initialise_answers_its_code() {
    for code in [100, 999, 803] {
        let plan = format!("[[fault]]\nat = \"cuInit\"\nthen = \"result:{code}\"");
        holds(&plan, || {
            assert_eq!(call("cuInit", &[0]), code);
            assert_eq!(alloc(1).0, 3, "NOT_INITIALIZED");
        });
    }
}

#[test]
fn views_order_hide_and_rename_the_devices() {
    let uuids = || {
        let mut count = 0i32;
        assert_eq!(call("cuInit", &[0]), 0);
        assert_eq!(call("cuDeviceGetCount", &[out(&mut count)]), 0);
        (0..count as u64)
            .map(|device| {
                let mut uuid = [0u8; 16];
                assert_eq!(
                    call("cuDeviceGetUuid_v2", &[uuid.as_mut_ptr() as u64, device]),
                    0
                );
                uuid
            })
            .collect::<Vec<_>>()
    };
    let own: Vec<[u8; 16]> = profile::embedded("tiny*2")
        .unwrap()
        .devices
        .iter()
        .map(|device| device.uuid.0)
        .collect();
    let row = |then: &str| format!("fault = [{{ at = \"cuda.devices\", then = \"{then}\" }}]");
    holds(&row("order:reversed"), || {
        assert_eq!(uuids(), [own[1], own[0]])
    });
    holds(&row("count:1"), || assert_eq!(uuids(), [own[0]]));
    holds(&row("hidden"), || assert_eq!(call("cuInit", &[0]), 100));
    holds(
        r#"fault = [{ at = "cuda.identity", then = "uuid:mig" }]"#,
        || {
            assert!(uuids().iter().all(|uuid| !own.contains(uuid)));
        },
    );
}

/// A row of each kind of entry point: a simulated one with an out-parameter, and stubs with and without a header's word on
/// their arguments.
const KINDS: [&str; 3] = [
    "cuDeviceGetCount",
    "cuMulticastGetGranularity",
    "cuMemGetAttribute",
];

/// Calls an entry point of [`KINDS`] with an out-parameter that held 7: the code, and what is in it.
fn one_of(name: &str) -> (u32, u64) {
    let (mut number, mut prop) = (7u64, [0u64; 8]);
    let words = match name {
        "cuMulticastGetGranularity" => [out(&mut number), out(&mut prop), 0],
        _ => [out(&mut number), 0, 0],
    };
    (call(name, &words), number)
}

/// What a call of [`one_of`] answers without any fault.
fn without_fault(name: &str) -> (u32, u64) {
    match name {
        "cuDeviceGetCount" => (0, 2),
        _ => (801, 7),
    }
}

#[test]
fn every_effect_takes_hold_of_every_kind_of_entry_point() {
    for name in KINDS {
        let plan = |then: &str| {
            format!("fault = [{{ at = \"{name}\", when = \"2\", then = \"{then}\" }}]")
        };
        let second = |then: &str, expected: (u32, u64)| {
            holds(&plan(then), || {
                assert_eq!(call("cuInit", &[0]), 0);
                assert_eq!(one_of(name), without_fault(name), "the first {name}");
                assert_eq!(one_of(name), expected, "{then} at {name}");
                assert_eq!(one_of(name), without_fault(name), "the third {name}");
            });
        };
        let (code, number) = without_fault(name);
        second("result:304", (304, 7));
        second("untouched", (0, 7));
        second("delay:1ms", (code, number));
        let set = match name {
            "cuDeviceGetCount" => Some("set:count=99"),
            "cuMulticastGetGranularity" => Some("set:granularity=99"),
            // No header says what it takes.
            _ => None,
        };
        if let Some(set) = set {
            second(set, (0, 99));
        }
        // The number of devices is counted; a granularity is not.
        let short = if name == "cuDeviceGetCount" { 1 } else { 7 };
        second("short:1", (code, short));
        for then in ["kill-before", "kill-after"] {
            let ended = under("tiny*2", &plan(then), || {
                assert_eq!(call("cuInit", &[0]), 0);
                one_of(name);
                one_of(name);
            });
            assert_eq!(ended, Ended::Died(libc::SIGKILL), "{then} at {name}");
        }
        let gone = format!("fault = [{{ at = \"{name}\", then = \"missing\" }}]");
        holds(&gone, || {
            let (mut found, mut status) = (7u64, 7i32);
            let asked = std::ffi::CString::new(name).expect("no NUL");
            let words = [
                asked.as_ptr() as u64,
                out(&mut found),
                13000,
                0,
                out(&mut status),
            ];
            assert_eq!(call("cuGetProcAddress_v2", &words), 0);
            assert_eq!((found, status), (0, 1), "{name}");
        });
        // The device that is lost takes the context's calls with it, and the count is known without it.
        holds(&plan("lost"), || {
            start(0);
            one_of(name);
            one_of(name);
            assert_eq!(alloc(100).0, DEVICE_UNAVAILABLE, "after {name}");
        });
    }
}

#[test]
fn a_stub_is_hit_by_bytes_by_chance_and_by_role_too() {
    const STUB: &str = "cuMulticastGetGranularity";
    let row =
        |rest: &str| format!("fault = [{{ at = \"{STUB}\", then = \"result:304\", {rest} }}]");
    let hits = |rest: &str, expected: &[usize]| {
        holds(&row(rest), || {
            assert_eq!(call("cuInit", &[0]), 0);
            let hit: Vec<usize> = (1..=6).filter(|_| one_of(STUB).0 == 304).collect();
            assert_eq!(hit, expected, "{rest}");
        });
    };
    hits("when = \"3..\"", &[3, 4, 5, 6]);
    hits("when = \"one-in:1\"", &[1, 2, 3, 4, 5, 6]);
    hits("role = \"another\"", &[]);
    // It asks for no bytes: they are never passed.
    hits("when = \"after:1B\"", &[]);
    hits("when = \"after:0ms\"", &[1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_kernel_that_the_plan_lets_fault_gives_every_context_its_error_for_good() {
    const PTX: &str =
        ".version 6.4\n.target sm_52\n.address_size 64\n.visible .entry k() { ret; }\n\0";
    const FAILED: u32 = 719;
    let plan = "[[fault]]\nat = \"cuLaunchKernel\"\nwhen = \"2\"\nthen = \"kernel-fault:719\"\n";
    holds(plan, || {
        start(0);
        let (mut module, mut function) = (0u64, 0u64);
        let image = PTX.as_ptr() as u64;
        assert_eq!(call("cuModuleLoadData", &[out(&mut module), image]), 0);
        let name = c"k".as_ptr() as u64;
        assert_eq!(
            call("cuModuleGetFunction", &[out(&mut function), module, name]),
            0
        );
        let launch = || call("cuLaunchKernel", &[function, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0]);
        assert_eq!(launch(), 0);
        assert_eq!(call("cuCtxSynchronize", &[]), 0, "the first is as always");
        assert_eq!(launch(), 0, "a launch does not wait for its kernel");
        assert_eq!(call("cuCtxSynchronize", &[]), FAILED);
        assert_eq!(alloc(4096), (FAILED, 7));
        let mut device = 7u32;
        assert_eq!(call("cuCtxGetDevice", &[out(&mut device)]), 0);
        assert_eq!(call("cuDevicePrimaryCtxReset_v2", &[0]), 0);
        let mut context = 0u64;
        assert_eq!(
            call("cuDevicePrimaryCtxRetain", &[out(&mut context), 0]),
            FAILED
        );
    });
}
