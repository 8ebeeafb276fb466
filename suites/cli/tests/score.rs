//! Known defects, planted into a build of our own libraries: whether a case notices.

use std::process::{Command, Output};

fn ringfence(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(arguments)
        .output()
        .expect("ringfence starts")
}

#[test]
fn a_seeded_defect_is_noticed_by_a_case_of_its_row() {
    let output = ringfence(&["score", "C3", "V4"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(said.contains("C3   a refusal is -1: "), "{said}");
    assert!(
        said.ends_with("2 of 2 seeded defects are noticed\n"),
        "{said}"
    );
}

#[test]
fn a_suite_run_with_a_seed_fails() {
    let arguments = [
        "test",
        "a_refusal_looks_like_a_full_card",
        "--target",
        "seeded",
    ];
    assert!(ringfence(&arguments).status.success());
    let output = ringfence(&[&arguments[..], &["--seed", "C3"]].concat());
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
}

#[test]
fn a_seed_that_there_is_not_is_named() {
    for arguments in [
        &["score", "V99"][..],
        &["test", "--target", "seeded", "--seed", "V99"],
    ] {
        let output = ringfence(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("V99"), "{said}");
    }
}
