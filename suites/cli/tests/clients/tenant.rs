//! Runs a program as a tenant of the simulated machine and holds what it saw against its budget.

use std::path::Path;
use std::process::Command;

pub const MIB: u64 = 1 << 20;
pub const BUDGET: u64 = 23_552 * MIB;
/// The most that a tenant may find missing from its budget when it asks in steps of 256 MiB: a step, a
/// context and cuInit (decision 12), and a pool's step.
const STEP_AND_OVERHEAD: u64 = (256 + 1024) * MIB;

/// Runs a program and returns the JSON object that it prints.
pub fn run(target: &str, program: &Path, arguments: &[&Path]) -> serde_json::Value {
    let output = Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args([
            "exec",
            "--profile",
            "rtx6000-ada",
            "--memory",
            "0=23552MiB",
            "--target",
            target,
            "--",
        ])
        .arg(program)
        .args(arguments)
        .output()
        .expect("ringfence starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{} failed: {stdout}{stderr}",
        program.display()
    );
    serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error} in {stdout:?} {stderr}"))
}

pub fn assert_held_to_the_budget(seen: &serde_json::Value) {
    let number = |key: &str| {
        seen[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key} in {seen}"))
    };
    assert_eq!(number("total"), BUDGET, "{seen}");
    assert_eq!(number("device_total"), BUDGET, "{seen}");
    assert_eq!(number("refusal"), 2, "{seen}");
    assert!(number("granted") <= BUDGET, "{seen}");
    assert!(number("granted") >= BUDGET - STEP_AND_OVERHEAD, "{seen}");
    assert_eq!(seen["round_trip"], true, "{seen}");
    assert_eq!(seen["granted_after_free"], true, "{seen}");
}
