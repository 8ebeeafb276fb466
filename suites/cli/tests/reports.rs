//! Reports as a user asks for them: shards, what they come to together, and what is said of those that do not fit.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// Cases of three areas that need little time.
const FEW: [&str; 5] = [
    "a_refusal_looks_like_a_full_card",
    "memory_holds_what_was_written",
    "a_refused_vulkan_allocation_writes_nothing",
    "impossible_sizes_are_out_of_memory",
    "system_memory_is_not_charged",
];

fn ringfence(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(arguments)
        .output()
        .expect("ringfence starts")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs the few cases, or a part of them, and answers where its lines are.
fn run(folder: &Path, name: &str, further: &[&str]) -> PathBuf {
    let path = folder.join(name);
    let report = format!("json={}", path.display());
    let arguments = [&["test"], &FEW[..], &["--report", &report], further].concat();
    let output = ringfence(&arguments);
    assert!(output.status.success(), "{}", said(&output));
    path
}

fn merge(files: &[&Path], report: &str) -> Output {
    let files = files.iter().map(|path| path.to_str().expect("a name"));
    let mut arguments = vec!["report", "merge"];
    arguments.extend(files);
    arguments.extend(["--report", report]);
    ringfence(&arguments)
}

/// Each result's case, status and verdict, by name.
fn results(path: &Path) -> Vec<[String; 3]> {
    let text = std::fs::read_to_string(path).expect("a report");
    let values = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"));
    let mut results: Vec<_> = values
        .filter(|value| value["line"] == "result")
        .map(|value| ["name", "status", "verdict"].map(|key| value[key].to_string()))
        .collect();
    // A run tells them as they end.
    results.sort();
    results
}

#[test]
fn shards_that_are_merged_are_the_whole_run_and_what_is_missing_is_named() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = |name: &str| folder.path().join(name);
    let whole = run(folder.path(), "whole.json", &[]);
    let shards = [("1/3", "a.json"), ("1+1/3", "b.json"), ("3/3", "c.json")];
    let [a, b, c] = shards.map(|(shard, file)| run(folder.path(), file, &["--shard", shard]));
    let counts = [&a, &b, &c].map(|path| results(path).len());
    assert_eq!(counts.iter().sum::<usize>(), FEW.len(), "{counts:?}");
    assert!(counts.iter().filter(|&&count| count > 0).count() > 1);

    let merged = path("merged.json");
    let report = format!("json={}", merged.display());
    let output = merge(&[&c, &a, &b], &report);
    assert!(output.status.success(), "{}", said(&output));
    assert!(output.stderr.is_empty(), "{}", said(&output));
    assert_eq!(results(&merged), results(&whole));

    // One shard's file is not there.
    let (lost, count) = match counts[0] {
        0 => (&b, counts[1]),
        count => (&a, count),
    };
    let rest: Vec<&Path> = [&a, &b, &c]
        .into_iter()
        .filter(|path| *path != lost)
        .map(PathBuf::as_path)
        .collect();
    let junit = path("merged.xml");
    let output = merge(&rest, &format!("junit={}", junit.display()));
    assert_eq!(output.status.code(), Some(1));
    let number = if lost == &a { 1 } else { 2 };
    let shard = format!("shard {number}/3 is missing, {count} cases");
    assert!(said(&output).contains(&shard), "{}", said(&output));
    let xml = std::fs::read_to_string(&junit).expect("a document");
    assert_eq!(xml.matches("<error ").count(), count, "{xml}");

    // One has lost its end.
    let text = std::fs::read_to_string(lost).expect("it is there");
    let cut = text.rfind("{\"line\":\"result\"").expect("a result") + 20;
    std::fs::write(lost, &text[..cut]).expect("it is written");
    let output = merge(&[&a, &b, &c], &report);
    assert_eq!(output.status.code(), Some(1));
    for words in [
        "20 bytes are left out",
        "was ended early, 1 cases have no result",
    ] {
        assert!(said(&output).contains(words), "{}", said(&output));
    }
    let kept = results(&merged);
    assert_eq!(kept.len(), FEW.len());
    let missing = kept
        .iter()
        .filter(|[_, _, verdict]| verdict == "\"Missing\"");
    assert_eq!(missing.count(), 1);

    // And one says otherwise of a case than another does.
    let text = std::fs::read_to_string(&whole).expect("it is there");
    let other = path("other.json");
    let changed = text.replacen("\"verdict\":\"Pass\"", "\"verdict\":\"Crash\"", 1);
    std::fs::write(&other, changed).expect("it is written");
    let output = merge(&[&whole, &other], &report);
    assert_eq!(output.status.code(), Some(2));
    for name in ["whole.json", "other.json", "Crash"] {
        assert!(said(&output).contains(name), "{}", said(&output));
    }
}

#[test]
fn a_failure_is_told_with_its_last_calls_and_what_the_device_held() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = run(folder.path(), "none.json", &["--target", "none"]);
    let text = std::fs::read_to_string(path).expect("a report");
    let failed = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("a line of JSON"))
        .find(|value| value["name"] == FEW[0])
        .expect("the case");
    assert_eq!(failed["verdict"], "ExpectedFail");
    let calls = failed["calls"].as_str().expect("the last calls");
    assert!(calls.contains("\"entry\":\"cuMemAlloc_v2\""), "{calls}");
    assert!(!calls.contains("nvml-checker"), "{calls}");
    let course = &failed["courses"][0];
    let points = course["points"].as_array().expect("points");
    // Its process waits with a context and what it was granted when its body has ended.
    let held = |point: &Value| point[1].as_u64().expect("bytes");
    let most = points.iter().map(held).max().expect("a point");
    assert!(most > 500 << 20, "{course}");
    assert!(most <= course["peak"].as_u64().expect("bytes"), "{course}");
    assert_eq!(points.last().map(held), Some(0), "{course}");
    assert_eq!(course["source"], "Simulated");
}

/// What a real driver's cases are sampled by, over the mock: NVML's figures as a line, again and again.
#[test]
fn nvml_is_asked_again_and_again_by_one_process() {
    let program = env!("CARGO_BIN_EXE_ringfence");
    let script = format!("{program} __nvml-watch 1 | head -n 3");
    let output = ringfence(&["exec", "--target", "none", "--", "sh", "-c", &script]);
    let text = String::from_utf8_lossy(&output.stdout);
    let figures: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a line of JSON"))
        .collect();
    assert_eq!(figures.len(), 3, "{}", said(&output));
    for devices in &figures {
        assert!(devices[0]["total"].as_u64() > Some(0), "{devices}");
    }
}
