//! The fault plan: what rows mean, who is hit, and what cannot be said.

#[path = "support/child.rs"]
mod child;

use child::{End, fork};
use mock_device::fault::{MAX_FAULTS, kill_self};
use mock_device::{
    Api, Bytes, Consultation, DeviceIndex, FaultError, FaultPlan, Kind, PciAddress, Uuid, World,
    WorldError, WorldSpec, profile,
};

fn spec(machine: &str, plan: &str) -> WorldSpec {
    let faults = FaultPlan::parse("test", plan).unwrap();
    WorldSpec {
        faults,
        ..WorldSpec::new(profile::embedded(machine).unwrap())
    }
}

fn world(machine: &str, plan: &str) -> (tempfile::TempDir, World) {
    let folder = tempfile::tempdir().unwrap();
    let world = World::create(&folder.path().join("world"), &spec(machine, plan)).unwrap();
    (folder, world)
}

fn none() -> Bytes {
    Bytes::ZERO
}

#[test]
fn the_nth_call_is_counted_over_all_processes_of_the_world() {
    let plan = "[[fault]]\nat = \"cuMemAlloc_v2\"\nwhen = \"3\"\nthen = \"result:2\"";
    let (folder, first) = world("tiny", plan);
    let second = World::open(&folder.path().join("world")).unwrap();
    fn ask(world: &World) -> Consultation<'_> {
        world.consult(Api::Cuda, "cuMemAlloc_v2", none)
    }
    assert_eq!(ask(&first), Consultation::Proceed);
    let mut child = fork(|_| i32::from(ask(&second) != Consultation::Proceed));
    assert_eq!(child.reap(), End::Exit(0));
    assert_eq!(
        second.consult(Api::Cuda, "cuMemFree_v2", none),
        Consultation::Proceed
    );
    assert_eq!(
        second.consult(Api::Nvml, "nvmlInit_v2", none),
        Consultation::Proceed
    );
    assert_eq!(ask(&second), Consultation::Result(2));
    assert_eq!(ask(&first), Consultation::Proceed);
}

#[test]
fn from_the_nth_on_every_call_and_whole_groups_are_hit() {
    let (_folder, world) = world(
        "tiny",
        r#"
        [[fault]]
        at = "vkAllocateMemory"
        when = "2.."
        then = "result:-2"
        [[fault]]
        at = "nvml.*"
        then = "result:999"
        [[fault]]
        at = "*"
        when = "5"
        then = "kill-after"
        "#,
    );
    let ask = || world.consult(Api::Vulkan, "vkAllocateMemory", none);
    assert_eq!(
        [ask(), ask(), ask()],
        [
            Consultation::Proceed,
            Consultation::Result(-2),
            Consultation::Result(-2)
        ]
    );
    assert_eq!(
        world.consult(Api::Nvml, "nvmlInit_v2", none),
        Consultation::Result(999)
    );
    assert_eq!(
        world.consult(Api::Cuda, "cuInit", none),
        Consultation::KillAfter,
        "the fifth call of all"
    );
    assert_eq!(
        world.consult(Api::Cuda, "cuInit", none),
        Consultation::Proceed
    );
}

#[test]
fn a_kill_before_leaves_nothing_taken_and_a_kill_after_leaves_it_to_the_teardown() {
    for (then, held) in [("kill-before", Bytes::ZERO), ("kill-after", Bytes::mib(2))] {
        let (_folder, world) = world(
            "tiny",
            &format!("[[fault]]\nat = \"cuMemAlloc_v2\"\nthen = \"{then}\""),
        );
        let mut victim = fork(|_| {
            let asked = world.consult(Api::Cuda, "cuMemAlloc_v2", none);
            if asked == Consultation::KillBefore {
                kill_self();
            }
            assert!(
                world
                    .take(DeviceIndex(0), Kind::Memory, Bytes::mib(2))
                    .is_ok()
            );
            if asked == Consultation::KillAfter {
                kill_self();
            }
            0
        });
        assert_eq!(victim.reap(), End::Signal(libc::SIGKILL));
        assert_eq!(world.used(DeviceIndex(0)), held, "{then}");
    }
}

#[test]
fn missing_symbols_are_listed_by_api() {
    let rows = [
        "cuMemAllocAsync",
        "nvmlDeviceGetMemoryInfo_v2",
        "VK_EXT_pci_bus_info",
        "vkQueueSubmit2",
    ];
    let plan: String = rows
        .iter()
        .map(|at| format!("[[fault]]\nat = \"{at}\"\nthen = \"missing\"\n"))
        .collect();
    let (_folder, world) = world("tiny", &plan);
    assert_eq!(world.missing_symbols(Api::Cuda), ["cuMemAllocAsync"]);
    assert_eq!(
        world.missing_symbols(Api::Nvml),
        ["nvmlDeviceGetMemoryInfo_v2"]
    );
    assert_eq!(
        world.missing_symbols(Api::Vulkan),
        ["VK_EXT_pci_bus_info", "vkQueueSubmit2"]
    );
    assert_eq!(
        world.consult(Api::Cuda, "cuMemAllocAsync", none),
        Consultation::Proceed
    );
}

/// Which device's UUID each device shows through `api`: `None` is zero, 99 nobody's.
fn shown(machine: &str, api: Api, row: &str) -> Vec<Option<usize>> {
    let (_folder, world) = world(
        machine,
        &format!("[[fault]]\nat = \"{}.identity\"\n{row}", api.name()),
    );
    let own: Vec<[u8; 16]> = world.devices().iter().map(|device| device.uuid.0).collect();
    (0..own.len())
        .map(|device| {
            world
                .identity(DeviceIndex(u32::try_from(device).unwrap()), api)
                .uuid
        })
        .map(|uuid| {
            (uuid != [0; 16]).then(|| own.iter().position(|known| *known == uuid).unwrap_or(99))
        })
        .collect()
}

#[test]
fn identity_views_are_false_in_the_way_the_row_says() {
    for machine in ["rtx6000-ada*4", "tiny*4"] {
        let see = |row| shown(machine, Api::Vulkan, row);
        assert_eq!(see("then = \"uuid:zero\""), [None; 4]);
        assert_eq!(see("then = \"uuid:duplicate\""), [Some(0); 4]);
        assert_eq!(
            see("then = \"uuid:swapped\""),
            [Some(1), Some(0), Some(3), Some(2)]
        );
        assert_eq!(see("then = \"uuid:bytes-swapped\""), [Some(99); 4]);
    }
    let see = |row| shown("tiny*3", Api::Cuda, row);
    assert_eq!(
        see("then = \"uuid:zero\"\ndevice = 1"),
        [Some(0), None, Some(2)]
    );
    assert_eq!(
        see("then = \"uuid:duplicate\"\ndevice = 0"),
        [Some(1), Some(1), Some(2)]
    );
    assert_eq!(
        see("then = \"uuid:duplicate\"\ndevice = 2"),
        [Some(0), Some(1), Some(1)]
    );
    assert_eq!(
        see("then = \"uuid:swapped\"\ndevice = 2"),
        [Some(0), Some(2), Some(1)]
    );
    assert_eq!(see("then = \"uuid:swapped\""), [Some(1), Some(0), Some(2)]);
    assert_eq!(
        shown("tiny", Api::Nvml, "then = \"uuid:swapped\""),
        [Some(0)],
        "one GPU has nobody to exchange with"
    );
}

#[test]
fn an_identity_fault_of_one_api_leaves_the_others_true() {
    let (_folder, world) = world(
        "tiny*2",
        "[[fault]]\nat = \"vulkan.identity\"\nthen = \"uuid:zero\"\n[[fault]]\nat = \"nvml.identity\"\nthen = \"pci:zero\"",
    );
    let own = &world.devices()[1];
    let identity = |api| world.identity(DeviceIndex(1), api);
    assert_eq!(
        (identity(Api::Cuda).uuid, identity(Api::Cuda).pci),
        (own.uuid.0, own.pci)
    );
    assert_eq!(
        (identity(Api::Nvml).uuid, identity(Api::Nvml).pci),
        (own.uuid.0, PciAddress::default())
    );
    assert_eq!(
        (identity(Api::Vulkan).uuid, identity(Api::Vulkan).pci),
        (Uuid::ZERO.0, own.pci)
    );
}

#[test]
fn a_row_that_can_never_take_effect_is_refused_by_name() {
    for (row, at) in [
        ("at = \"mallocs\"\nthen = \"result:1\"", "mallocs"),
        ("at = \"cuInit\"\nthen = \"uuid:zero\"", "cuInit"),
        (
            "at = \"vulkan.identity\"\nwhen = \"2\"\nthen = \"uuid:zero\"",
            "vulkan.identity",
        ),
        (
            "at = \"cuInit\"\nwhen = \"1\"\nthen = \"missing\"",
            "cuInit",
        ),
        ("at = \"*\"\nthen = \"missing\"", "*"),
        (
            "at = \"cuInit\"\nthen = \"kill-after\"\ndevice = 0",
            "cuInit",
        ),
        ("at = \"cuda.allocs\"\nthen = \"result:1\"", "cuda.allocs"),
        ("at = \"cuda.alloc\"\nthen = \"missing\"", "cuda.alloc"),
        ("at = \"cuInit\"\nthen = \"null\"", "cuInit"),
        ("at = \"cuInit\"\nthen = \"wrong-version\"", "cuInit"),
        ("at = \"cuInit\"\nthen = \"hidden\"", "cuInit"),
        ("at = \"cuInit\"\nthen = \"absent\"", "cuInit"),
        ("at = \"cuda.library\"\nthen = \"result:1\"", "cuda.library"),
        (
            "at = \"cuda.devices\"\nthen = \"reserve:1MiB\"",
            "cuda.devices",
        ),
        (
            "at = \"cuda.devices\"\nthen = \"count:1\"\ndevice = 0",
            "cuda.devices",
        ),
        (
            "at = \"cuda.devices\"\nwhen = \"3\"\nthen = \"hidden\"",
            "cuda.devices",
        ),
        (
            "at = \"cuda.library\"\nthen = \"absent\"\nrole = \"x\"",
            "cuda.library",
        ),
        (
            "at = \"vulkan.identity\"\nthen = \"result:3\"",
            "vulkan.identity",
        ),
    ] {
        match FaultPlan::parse("plan.toml", &format!("[[fault]]\n{row}")) {
            Err(FaultError::Row {
                input,
                row: 0,
                at: named,
                ..
            }) => assert_eq!((input.as_str(), named.as_str()), ("plan.toml", at)),
            other => panic!("{row}: {other:?}"),
        }
    }
    for (field, row) in [
        ("when", "when = \"0\""),
        ("when", "when = \"..3\""),
        ("when", "when = \"often\""),
        ("when", "when = \"after:4\""),
        ("when", "when = \"one-in:0\""),
        ("then", "then = \"explode\""),
        ("then", "then = \"result:x\""),
        ("then", "then = \"delay:5\""),
        ("then", "then = \"set:=1\""),
        ("then", "then = 5"),
        ("device", "device = \"first\""),
        ("role", "role = 7"),
        ("colour", "colour = 1"),
    ] {
        let head = if row.starts_with("then") {
            "at = \"cuInit\""
        } else {
            "at = \"cuInit\"\nthen = \"result:1\""
        };
        let healthy = "[[fault]]\nat = \"cuInit\"\nthen = \"result:1\"\n";
        let text = format!("{healthy}[[fault]]\n{head}\n{row}");
        match FaultPlan::parse("plan.toml", &text) {
            Err(FaultError::Row {
                row: 1,
                field: named,
                ..
            }) => assert_eq!(named, field),
            other => panic!("{row}: {other:?}"),
        }
    }
    for text in ["fault = 3", "[[view]]\nat = \"cuInit\"", "fault = [1]"] {
        let error = FaultPlan::parse("plan.toml", text).unwrap_err();
        assert!(matches!(error, FaultError::Shape { .. }), "{text}: {error}");
    }
    let error = FaultPlan::parse("plan.toml", "[[fault]").unwrap_err();
    assert!(matches!(error, FaultError::Syntax { .. }), "{error}");
    let many = "[[fault]]\nat = \"cuInit\"\nthen = \"result:1\"\n".repeat(MAX_FAULTS + 1);
    assert!(
        matches!(FaultPlan::parse("many", &many), Err(FaultError::TooMany { count, .. }) if count == MAX_FAULTS + 1)
    );
}

#[test]
fn a_fault_on_a_device_that_is_not_there_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let spec = spec(
        "tiny*2",
        "[[fault]]\nat = \"vulkan.identity\"\nthen = \"uuid:zero\"\ndevice = 2",
    );
    let error = World::create(&folder.path().join("world"), &spec).unwrap_err();
    assert!(
        matches!(
            &error,
            WorldError::FaultDevice {
                device: 2,
                count: 2,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_plan_survives_the_way_through_the_world_file() {
    let plan = "[[fault]]\nat = \"cuInit\"\nwhen = \"2..\"\nthen = \"result:100\"\nrole = \"child\"\n[[fault]]\nat = \"cuda.identity\"\nthen = \"uuid:swapped\"\ndevice = 0";
    let (folder, created) = world("tiny*2", plan);
    let opened = World::open(&folder.path().join("world")).unwrap();
    assert_eq!(opened.spec(), created.spec());
    assert_eq!(
        opened.consult(Api::Cuda, "cuInit", none),
        Consultation::Proceed,
        "this process has another role"
    );
}

#[test]
fn every_plan_under_fixtures_is_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/faults");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let plan = FaultPlan::parse(
            &path.display().to_string(),
            &std::fs::read_to_string(&path).unwrap(),
        )
        .unwrap();
        assert!(!plan.faults.is_empty(), "{}", path.display());
        count += 1;
    }
    assert!(
        count >= 6,
        "the project ships plans for each identity fault, kills and failures"
    );
}

#[test]
fn a_row_may_hit_after_bytes_by_chance_or_late() {
    let (_folder, healthy) = world("tiny", "");
    assert_eq!(
        healthy.consult(Api::Cuda, "cuMemAlloc_v2", none),
        Consultation::Proceed
    );
    let (_folder, world) = world(
        "tiny",
        r#"
        [[fault]]
        at = "cuda.alloc"
        when = "after:100MiB"
        then = "result:2"
        [[fault]]
        at = "nvml.*"
        when = "after:30ms"
        then = "result:15"
        "#,
    );
    let ask = |entry, mib| world.consult(Api::Cuda, entry, || Bytes::mib(mib));
    assert_eq!(ask("cuMemAlloc_v2", 60), Consultation::Proceed);
    assert_eq!(ask("cuMemFree_v2", 60), Consultation::Proceed);
    assert_eq!(ask("cuMemAllocAsync", 40), Consultation::Proceed, "100 MiB");
    assert_eq!(ask("cuMemCreate", 1), Consultation::Result(2));
    assert_eq!(ask("cuMemAlloc_v2", 0), Consultation::Result(2));
    let late = || world.consult(Api::Nvml, "nvmlInit_v2", none);
    let asked_first = std::time::Instant::now();
    assert_eq!(late(), Consultation::Proceed, "however old the world is");
    while late() == Consultation::Proceed {
        assert!(asked_first.elapsed().as_secs() < 60, "never late");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(asked_first.elapsed() >= std::time::Duration::from_millis(30));
    assert_eq!(late(), Consultation::Result(15));
}

#[test]
fn one_in_n_is_the_same_calls_for_the_same_seed() {
    let hits = |seed| -> Vec<usize> {
        let folder = tempfile::tempdir().unwrap();
        let spec = WorldSpec {
            seed,
            ..spec(
                "tiny",
                "[[fault]]\nat = \"cu*\"\nwhen = \"one-in:10\"\nthen = \"untouched\"",
            )
        };
        let world = World::create(&folder.path().join("world"), &spec).unwrap();
        (0..1000)
            .filter(|_| world.consult(Api::Cuda, "cuInit", none) == Consultation::Untouched)
            .collect()
    };
    assert_eq!(hits(7), hits(7));
    assert_ne!(hits(7), hits(8));
    assert!((50..200).contains(&hits(7).len()), "{}", hits(7).len());
}

#[test]
fn a_delay_is_over_when_the_answer_comes_and_joins_another_fault() {
    let (_folder, world) = world(
        "tiny",
        r#"fault = [
            { at = "cuInit", then = "delay:30ms" },
            { at = "cu*", then = "result:3" },
        ]"#,
    );
    let began = std::time::Instant::now();
    assert_eq!(
        world.consult(Api::Cuda, "cuInit", none),
        Consultation::Result(3)
    );
    assert!(began.elapsed() >= std::time::Duration::from_millis(30));
}

#[test]
fn a_lost_device_is_lost_to_all_and_hidden_from_who_comes_later() {
    let (folder, world) = world(
        "tiny*3",
        "[[fault]]\nat = \"cuMemAlloc_v2\"\nwhen = \"2\"\nthen = \"lost\"\ndevice = 1",
    );
    let other = World::open(&folder.path().join("world")).unwrap();
    let ask = || world.consult(Api::Cuda, "cuMemAlloc_v2", none);
    assert_eq!(ask(), Consultation::Proceed);
    assert!(!other.any_lost());
    assert_eq!(ask(), Consultation::Proceed);
    let lost = |world: &World| [0, 1, 2].map(|device| world.lost(DeviceIndex(device)));
    assert_eq!(
        (lost(&world), lost(&other)),
        ([false, true, false], [false, true, false])
    );
    let newcomer = World::open(&folder.path().join("world")).unwrap();
    for api in Api::ALL {
        assert_eq!(other.shown(api).len(), 3, "who knew it still names it");
        assert_eq!(newcomer.shown(api), [DeviceIndex(0), DeviceIndex(2)]);
    }
}

#[test]
fn an_answer_is_altered_as_the_row_says() {
    let fields = |kind: &str| -> &'static [(&'static str, usize)] {
        match kind {
            "Memory" => &[("version", 0), ("total", 8), ("free", 16)],
            _ => &[],
        }
    };
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(C)]
    struct Memory {
        version: u32,
        total: u64,
        free: u64,
    }
    let asked = |then: &str| {
        let (mut count, mut memory) = (
            7u32,
            Memory {
                version: 0x0200_0018,
                total: 5,
                free: 4,
            },
        );
        let (counted, told) = (&raw mut count, &raw mut memory);
        let plan = format!("[[fault]]\nat = \"nvmlX\"\nthen = \"{then}\"");
        let (_folder, world) = world("tiny", &plan);
        let answer = world.consult(Api::Nvml, "nvmlX", none).carry_out(
            Some,
            || mock_device::parameters!(counted: *mut u32, told: *mut Memory),
            fields,
            || 99,
        );
        (answer, count, memory)
    };
    let memory = Memory {
        version: 0x0200_0018,
        total: 5,
        free: 4,
    };
    assert_eq!(asked("untouched"), (0, 7, memory));
    assert_eq!(asked("result:-3"), (-3, 7, memory));
    assert_eq!(asked("set:counted=-1"), (0, u32::MAX, memory));
    assert_eq!(
        asked("set:told.free=0"),
        (0, 7, Memory { free: 0, ..memory })
    );
    assert_eq!(asked("set:nobody=0"), (0, 7, memory));
    assert_eq!(asked("short"), (99, 3, memory));
    assert_eq!(asked("short:2"), (99, 2, memory));
    let other = Memory {
        version: 0x0300_0018,
        ..memory
    };
    assert_eq!(asked("wrong-version"), (99, 7, other));
}

#[test]
fn absent_libraries_are_listed() {
    let plan = r#"fault = [
        { at = "nvml.library", then = "absent" },
        { at = "cuInit", then = "result:100" },
    ]"#;
    let plan = FaultPlan::parse("test", plan).unwrap();
    assert_eq!(plan.absent().collect::<Vec<_>>(), [Api::Nvml]);
}
