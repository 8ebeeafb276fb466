//! Runs a test in a process of its own: the layer reads its environment once, and a ledger's slot is a process's.

use std::process::{Command, Output};

const MARK: &str = "RINGFENCE_LAYER_TEST";

/// In the test's own process `None`: the body goes on. Elsewhere the test was run there, with just these variables, and this is what it said.
pub fn alone(test: &str, variables: &[(&str, &str)]) -> Option<Output> {
    if std::env::var_os(MARK).is_some_and(|mark| mark == test) {
        return None;
    }
    let output = Command::new(std::env::current_exe().expect("this executable has a path"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env_clear()
        .env(MARK, test)
        .envs(variables.iter().copied())
        .output()
        .expect("this executable runs");
    let (said, complained) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success(),
        "{test} failed in its own process: {}\n{said}\n{complained}",
        output.status
    );
    assert!(
        said.contains("1 passed"),
        "{test} is not this function's name:\n{said}"
    );
    Some(output)
}
