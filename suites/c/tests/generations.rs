//! A driver of another generation, or without a symbol, is one for every way to ask: linked, by handle, by cuGetProcAddress.

use std::path::{Path, PathBuf};
use std::process::Command;

use harness::environment::{Environment, Request};
use harness::{Driver, Libraries, Library, Target, artifacts};

/// Built against the mocks, as a program is built against the vendor's stubs: only names are taken.
fn build(directory: &Path) -> PathBuf {
    for (library, name) in [
        (Library::MockLibcuda, "libcuda.so"),
        (Library::MockNvml, "libnvidia-ml.so"),
    ] {
        let built = artifacts::find(library).unwrap_or_else(|error| panic!("{error}"));
        std::os::unix::fs::symlink(built, directory.join(name)).expect("a link");
    }
    let program = directory.join("ways");
    let search = format!("-L{}", directory.display());
    c_witness::compile(
        &c_witness::Headers::usual().unwrap_or_else(|error| panic!("{error}")),
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("witness/ways.c"),
        &program,
        &[
            &search,
            "-lcuda",
            "-lnvidia-ml",
            "-ldl",
            "-Wl,--allow-shlib-undefined",
        ],
    )
    .unwrap_or_else(|error| panic!("{error}"));
    program
}

/// What the witness finds, line by line.
fn found(driver: &str, target: &str) -> Vec<String> {
    let directory = tempfile::tempdir().expect("a directory");
    let program = build(directory.path());
    let driver: Driver = driver.parse().unwrap_or_else(|error| panic!("{error}"));
    let target = Target::named(target).expect("a target");
    let environment = Environment::create(&Request {
        budget: "0=4GiB",
        ..Request::new("generations", &target, &driver)
    })
    .unwrap_or_else(|error| panic!("{error}"));
    let mut command = Command::new(program);
    environment
        .plan
        .apply(&mut command, Libraries::Both)
        .unwrap_or_else(|error| panic!("{error}"));
    let output = command.output().expect("the witness starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(str::to_owned).collect()
}

/// Versions, and of each symbol whether it is there.
fn expected(versions: &str, there: [bool; 8]) -> Vec<String> {
    const CUDA: [&str; 5] = [
        "cuMemAlloc_v2",
        "cuLibraryLoadData",
        "cuGetProcAddress_v2",
        "cuCtxCreate_v4",
        "cuMemFree_v2",
    ];
    const NVML: [&str; 3] = [
        "nvmlDeviceCcuGetStreamState",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetName",
    ];
    let mut lines = vec![format!("versions {versions}")];
    let there = there.map(u8::from);
    lines.extend(
        CUDA.iter()
            .zip(there)
            .map(|(name, it)| format!("{name} {it} {it} {it}")),
    );
    lines.extend(
        NVML.iter()
            .zip(&there[5..])
            .map(|(name, it)| format!("{name} {it} {it}")),
    );
    lines
}

const YES: bool = true;
const NO: bool = false;

#[test]
fn all_ways_agree_on_what_a_generation_has() {
    let machines = [
        (
            "mock:h200+470",
            "11040 470.256.02",
            [YES, NO, NO, NO, YES, NO, NO, YES],
        ),
        (
            "mock:h200+525",
            "12000 525.147.05",
            [YES, YES, YES, NO, YES, YES, YES, YES],
        ),
        (
            "mock:h200+535",
            "12020 535.309.01",
            [YES, YES, YES, NO, YES, NO, YES, YES],
        ),
        (
            "mock:h200+580",
            "13000 580.159.04",
            [YES, YES, YES, YES, YES, NO, YES, YES],
        ),
    ];
    for (driver, versions, there) in machines {
        assert_eq!(found(driver, "none"), expected(versions, there), "{driver}");
    }
}

#[test]
fn a_driver_without_a_symbol_is_without_it_in_every_way() {
    let driver = "mock:h200+535-cuMemAlloc_v2-nvmlDeviceGetName";
    let there = [NO, YES, YES, NO, YES, NO, YES, NO];
    assert_eq!(found(driver, "none"), expected("12020 535.309.01", there));
}

/// Under the enforcer too what the driver lacks is found neither by handle nor by cuGetProcAddress (defect S2).
#[test]
fn the_enforcer_adds_nothing_that_the_driver_lacks() {
    let lines = found("mock:h200+535-cuMemAlloc_v2", "ours");
    let alloc = lines.iter().find(|line| line.starts_with("cuMemAlloc_v2 "));
    let free = lines.iter().find(|line| line.starts_with("cuMemFree_v2 "));
    assert!(
        alloc.is_some_and(|line| line.ends_with(" 0 0")),
        "{lines:?}"
    );
    assert_eq!(
        free.map(String::as_str),
        Some("cuMemFree_v2 1 1 1"),
        "{lines:?}"
    );
}
