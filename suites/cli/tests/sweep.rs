//! Sweeps as a user types them: the short form, in which all of a few cases' calls fail, and what is said of an enforcer that breaks.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

fn sweep(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .arg("sweep")
        .args(arguments)
        .output()
        .expect("ringfence starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// `… runs with a fault, 0 that broke a promise …`: how many runs.
fn runs(said: &str) -> usize {
    let line = said.lines().find(|line| line.contains("runs with a fault"));
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    let at = words.iter().position(|word| *word == "runs");
    at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok())
        .unwrap_or(0)
}

/// CUDA and NVML, and a Vulkan program under both libraries.
const SHORT: [&str; 2] = [
    "a_refusal_looks_like_a_full_card",
    "a_refused_vulkan_allocation_writes_nothing",
];

#[test]
fn whatever_call_fails_no_promise_breaks() {
    let output = sweep(&SHORT);
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert!(runs(&said) > 300, "{said}");
    assert!(said.contains(" 0 that broke a promise"), "{said}");
}

#[test]
fn wherever_a_process_is_killed_no_promise_breaks() {
    let output = sweep(&[
        "--kill",
        SHORT[0],
        "kills_around_an_allocation_leave_nothing",
    ]);
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert!(runs(&said) > 100, "{said}");
}

#[test]
fn two_faults_chosen_by_chance_break_no_promise() {
    let pairs = ["--pairs", "60", "--chance", "7"];
    let output = sweep(&[&pairs[..], &SHORT].concat());
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert_eq!(runs(&said), 60, "{said}");
}

#[test]
fn an_enforcer_that_grants_where_it_knows_nothing_is_found_and_the_way_to_it_told() {
    let seeded = ["--target", "seeded", "--seed", "C8a", SHORT[0]];
    let output = sweep(&seeded);
    let found = said(&output);
    assert_eq!(output.status.code(), Some(1), "{found}");
    let at = "BROKEN: budget, at cuCtxGetDevice: ";
    assert!(found.contains(at), "{found}");
    // The command under the finding shows it alone.
    let lines: Vec<&str> = found.lines().collect();
    let place = lines
        .iter()
        .position(|line| line.starts_with(at))
        .expect("seen above");
    let command = lines[place + 1]
        .trim()
        .strip_prefix("ringfence sweep ")
        .expect("a command");
    let again = [&seeded[..4], &command.split(' ').collect::<Vec<_>>()].concat();
    let output = sweep(&again);
    let found = said(&output);
    assert_eq!(
        (output.status.code(), runs(&found)),
        (Some(1), 1),
        "{found}"
    );
}

#[test]
fn a_sweep_that_is_stopped_tells_what_it_found() {
    let mut sweep = Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(["sweep", "-j", "1"])
        .args(SHORT)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ringfence starts");
    let mut heard = BufReader::new(sweep.stderr.take().expect("piped")).lines();
    let first = heard.next().and_then(Result::ok).unwrap_or_default();
    assert!(first.contains(" runs to make"), "{first}");
    let pid = sweep.id().to_string();
    let killed = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    let output = sweep.wait_with_output().expect("it ends");
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("stopped: "), "{said}");
    assert!(
        said.contains(" runs with a fault, 0 that broke a promise"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_swept_is_named() {
    for (arguments, named) in [
        (&["no_such_case"][..], "no_such_case"),
        (&[SHORT[0], "--hit", "case:1"], "case:1"),
        (&[SHORT[0], "--hit", "case:1=explode"], "explode"),
        (&[SHORT[0], "--hit", "case:100000=lost"], "case:100000=lost"),
        (&["--driver", "real"], "real"),
    ] {
        let output = sweep(arguments);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(named), "{said}");
    }
}
