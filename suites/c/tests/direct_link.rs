//! A C program linked directly with libcuda and NVML is held to its budget: it shares no type and no look-up with us.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use harness::environment::{Environment, Request};
use harness::{Driver, Libraries, Library, Target, artifacts};

const BUDGET: u64 = 23_552 << 20;

/// Builds the witness against the mocks, as a program is built against the vendor's stubs: only names are taken.
fn build(directory: &Path) -> std::path::PathBuf {
    for (library, name) in [
        (Library::MockLibcuda, "libcuda.so"),
        (Library::MockNvml, "libnvidia-ml.so"),
    ] {
        let built = artifacts::find(library).unwrap_or_else(|error| panic!("{error}"));
        symlink(built, directory.join(name)).expect("a link");
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("witness/budget.c");
    let program = directory.join("budget");
    let search = format!("-L{}", directory.display());
    c_witness::compile(
        &c_witness::Headers::usual().unwrap_or_else(|error| panic!("{error}")),
        &source,
        &program,
        &[
            &search,
            "-lcuda",
            "-lnvidia-ml",
            "-Wl,--allow-shlib-undefined",
        ],
    )
    .unwrap_or_else(|error| panic!("{error}"));
    program
}

/// What the witness was told, by name.
fn witness(target: &str) -> BTreeMap<String, u64> {
    let directory = tempfile::tempdir().expect("a directory");
    let program = build(directory.path());
    let driver = Driver::default();
    let target = Target::named(target).expect("a target");
    let environment = Environment::create(&Request {
        budget: "0=23552MiB",
        ..Request::new("direct-link", &target, &driver)
    })
    .unwrap_or_else(|error| panic!("{error}"));
    let mut command = Command::new(program);
    environment
        .plan
        .apply(&mut command, Libraries::Both)
        .unwrap_or_else(|error| panic!("{error}"));
    let output = command.output().expect("the witness starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text.lines()
        .map(|line| {
            let (name, value) = line.split_once(' ').expect("a name and a number");
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

#[test]
fn a_directly_linked_program_is_held_to_its_budget() {
    is_held(&witness("ours"));
}

#[test]
fn a_directly_linked_program_is_held_by_the_proxies() {
    is_held(&witness("proxy"));
}

fn is_held(told: &BTreeMap<String, u64>) {
    for total in ["device-total", "context-total", "nvml-total", "nvml2-total"] {
        assert_eq!(told[total], BUDGET, "{total} in {told:?}");
    }
    assert_eq!(told["graph"], 2, "{told:?}");
    assert_eq!(told["refusal"], 2, "{told:?}");
    assert_eq!(
        told["pointer-after-refusal"], 0,
        "the driver writes 0 into it: {told:?}"
    );
    assert!(told["granted"] <= BUDGET, "{told:?}");
    assert!(
        told["granted"] + told["free-at-the-end"] <= BUDGET,
        "{told:?}"
    );
    assert!(
        told["free-at-the-end"] < 256 << 20,
        "it asked until nothing was left: {told:?}"
    );
}

#[test]
fn without_the_enforcer_it_gets_the_card() {
    let told = witness("none");
    assert_eq!(told["graph"], 0, "{told:?}");
    assert!(told["granted"] > BUDGET, "{told:?}");
    assert!(told["device-total"] > BUDGET, "{told:?}");
}
