//! Graphs that captures fill, and managed pools: the script that asked an H200 asks the mock.

use std::process::Command;

const RECORDED: &str = include_str!("../../../fixtures/oracle/captures-580.txt");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe/captures.py");

#[test]
fn captures_and_managed_pools_answer_as_the_card() {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no python3 to run the script with");
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(["exec", "--profile", "h200", "--target", "none", "--"])
        .args(["python3", SCRIPT])
        .output()
        .expect("ringfence starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let told = String::from_utf8_lossy(&output.stdout);
    let mut question = "";
    let mut lines = told.lines();
    for recorded in RECORDED.lines().filter(|line| !line.starts_with('#')) {
        if recorded.starts_with('[') {
            question = recorded;
        }
        assert_eq!(lines.next(), Some(recorded), "{question}");
    }
    assert_eq!(lines.next(), None);
}
