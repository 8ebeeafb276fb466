//! A copy of the built library for each driver generation, made as the harness makes them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use abi::nvml::{nvmlEccSramErrorStatus_v1_t, nvmlGpuFabricInfo_v2_t, nvmlGpuFabricInfo_v3_t};
use build_support::oracle::GENERATIONS;
use harness::symbols;
use mock_device::Api;

use crate::boundary::{Ended, Library, built, in_child, set_environment};

static COPIES: LazyLock<BTreeMap<u16, Library>> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory");
    let copy = |generation: u16| {
        let path = directory.path().join(generation.to_string());
        less(&symbols::not_of_generation(Api::Nvml, generation), &path);
        (generation, Library::open(&path))
    };
    GENERATIONS.into_iter().map(copy).collect()
});

fn less(missing: &[&str], path: &Path) {
    symbols::copy_without(&built("libmock_nvml.so"), path, missing).expect("a copy");
}

pub fn library(generation: u16) -> &'static Library {
    &COPIES[&generation]
}

/// In a child whose machine has a driver of that generation.
pub fn on(generation: u16, act: impl FnOnce(&Library) -> u64) -> Ended {
    let library = library(generation);
    in_child(|| {
        become_a_machine_of(generation);
        act(library)
    })
}

fn become_a_machine_of(generation: u16) {
    set_environment("RINGFENCE_MACHINE", format!("h200+{generation}").as_bytes());
}

/// nvmlSystemGetDriverVersion and nvmlSystemGetCudaDriverVersion.
#[test]
fn the_driver_says_its_generations_version() {
    let versions = [
        (470, "470.256.02", 11040),
        (525, "525.147.05", 12000),
        (535, "535.309.01", 12020),
        (550, "550.163.01", 12040),
        (555, "555.58.02", 12050),
        (580, "580.159.04", 13000),
    ];
    for (generation, driver, cuda) in versions {
        let ended = on(generation, |nvml| {
            let (mut text, mut version) = ([0u8; 80], 0i32);
            assert_eq!(nvml.call("nvmlInit_v2", &[]), 0);
            let words = [text.as_mut_ptr() as u64, 80];
            assert_eq!(nvml.call("nvmlSystemGetDriverVersion", &words), 0);
            assert_eq!(
                nvml.call(
                    "nvmlSystemGetCudaDriverVersion_v2",
                    &[crate::out(&mut version)]
                ),
                0
            );
            assert!(text.starts_with(driver.as_bytes()));
            version as u64
        });
        assert_eq!(ended, Ended::Answered(cuda), "{generation}");
    }
}

/// Whether a getter of a generation refuses that version of its structure.
fn refuses(generation: u16, getter: &str, number: u32, size: usize) -> bool {
    const MISMATCH: u32 = 25;
    let ended = on(generation, |nvml| {
        let (mut device, mut room) = (0u64, [0u32; 64]);
        room[0] = size as u32 | number << 24;
        assert_eq!(nvml.call("nvmlInit_v2", &[]), 0);
        let words = [0, crate::out(&mut device)];
        assert_eq!(nvml.call("nvmlDeviceGetHandleByIndex_v2", &words), 0);
        let words = [device, crate::out(&mut room)];
        nvml.call(getter, &words).into()
    });
    ended == Ended::Answered(MISMATCH.into())
}

#[test]
fn a_generation_takes_the_versions_of_structures_that_it_knows() {
    let (second, third) = (
        size_of::<nvmlGpuFabricInfo_v2_t>(),
        size_of::<nvmlGpuFabricInfo_v3_t>(),
    );
    let fabric =
        |generation, number, size| refuses(generation, "nvmlDeviceGetGpuFabricInfoV", number, size);
    assert!(!fabric(550, 2, second) && fabric(550, 3, third));
    assert!(!fabric(580, 2, second) && !fabric(580, 3, third));
    assert!(fabric(580, 9, third));
    // Who has the function knows its structure's first version, though only a later header documents it.
    let first = size_of::<nvmlEccSramErrorStatus_v1_t>();
    let sram = |generation| refuses(generation, "nvmlDeviceGetSramEccErrorStatus", 1, first);
    assert!(!sram(535) && !sram(550) && !sram(580));
}

/// All tables at once: `cargo test -p mock-nvml --test oracle matrix -- --nocapture`.
#[test]
fn the_matrix_of_all_tables_is_printed() {
    println!("NVML of | exports | NULLs before nvmlInit");
    for generation in GENERATIONS {
        let before = crate::nulls::before_init(generation);
        let before = before.map_or("not recorded".to_owned(), |score| score.short());
        println!(
            "{generation} | {} | {before}",
            crate::exports::compare(generation).short()
        );
    }
    crate::nulls::with_device().say("NVML, device and NULLs");
    crate::nulls::alone().say("NVML, NULLs");
}
