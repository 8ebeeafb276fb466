//! Every entry point that the enforcer hooks or may hook, argument by argument: the recorder itself asks the mock.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::boundary::built;
use crate::score::Score;

const RECORDED: &str = include_str!("../../../fixtures/oracle/cuda-arguments-h200.txt");
const RECORDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../suites/probe/arguments.py");

/// By function and call: the code and, of each out-parameter, whether it was left alone, zeroed or written.
type Answers<'t> = BTreeMap<(&'t str, &'t str), String>;

/// The rows of a table: function, what the calls have in common, calls.
fn rows(table: &'static str) -> Answers<'static> {
    let mut answers = Answers::new();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        for call in fields[2].split(';') {
            answers.insert((fields[0], call), fields[1].to_owned());
        }
    }
    answers
}

/// The recorder's own lines, in the table's words.
fn told(text: &str) -> Answers<'_> {
    let line = |line| {
        let mut fields = str::split(line, '\t');
        let (function, call, code) = (fields.next()?, fields.next()?, fields.next()?);
        let outs = fields.next().unwrap_or_default().split_whitespace();
        let kinds: String = outs
            .filter_map(|out| Some(kind(out.split_once(':')?.1)))
            .collect();
        let code = if code == "died 11" { "died" } else { code };
        let blank = if kinds.is_empty() { "" } else { " " };
        Some(((function, call), format!("{code}{blank}{kinds}")))
    };
    text.lines().filter_map(line).collect()
}

fn kind(value: &str) -> char {
    match value {
        "=" => '=',
        zeros if zeros.bytes().all(|digit| digit == b'0') => '0',
        _ => 'x',
    }
}

/// `None` where there is no Python.
pub fn compare() -> Option<Score> {
    let directory = tempfile::tempdir().expect("a directory");
    let place = |name: &str| directory.path().join(name);
    std::os::unix::fs::symlink(built("libmock_libcuda.so"), place("libcuda.so.1")).expect("a link");
    let status = Command::new("python3")
        .arg(Path::new(RECORDER))
        .arg(place("answers"))
        .env("LD_LIBRARY_PATH", directory.path())
        .env("RINGFENCE_MACHINE", "h200")
        .env("PROBE_WORKERS", "2")
        .env("PROBE_SECONDS", "1200")
        .env("PROBE_ALARM", "120")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .status()
        .ok()?;
    assert!(status.success(), "{status}");
    let text =
        std::fs::read_to_string(place("answers/arguments.txt")).expect("the recorder's lines");
    let (recorded, told) = (rows(RECORDED), told(&text));
    let difference = |(call, wanted): (&(&str, &str), &String)| {
        let got = told.get(call).map_or("nothing", String::as_str);
        (got != wanted).then(|| format!("{} {}: {got}, recorded {wanted}", call.0, call.1))
    };
    Some(Score {
        checked: recorded.len(),
        wrong: recorded.iter().filter_map(difference).collect(),
        ..Score::default()
    })
}

/// Why rows may differ: in the table's own form, with the reason in place of the answer.
const REASONS: &str = include_str!("../../../fixtures/oracle/cuda-arguments-reasons.txt");

#[test]
fn arguments_are_answered_as_on_the_card() {
    let Some(score) = compare() else {
        crate::missing::skip("there is no python3 to run the recorder with");
        return;
    };
    assert!(score.checked > 3500);
    let reasons = rows(REASONS);
    let known: Vec<(String, &str)> = reasons
        .iter()
        .map(|((function, call), why)| (format!("{function} {call}"), why.as_str()))
        .collect();
    score.with_reasons("arguments", &known);
}
