//! What lies in `deploy/`: manifests that Kubernetes takes, and command lines that are ours.

#[path = "../../missing.rs"]
mod missing;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde::Deserialize;
use serde_json::Value;

/// Cases that the shards share for trial.
const FEW: [&str; 4] = [
    "a_refusal_looks_like_a_full_card",
    "memory_holds_what_was_written",
    "impossible_sizes_are_out_of_memory",
    "system_memory_is_not_charged",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(file: &str) -> String {
    let path = root().join("deploy").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The job of the manifest's documents.
fn job() -> Value {
    let text = text("kubernetes/conformance.yaml");
    let mut documents = serde_norway::Deserializer::from_str(&text)
        .map(|document| Value::deserialize(document).expect("YAML"));
    documents
        .find(|document| document["kind"] == "Job")
        .expect("a job")
}

fn run(program: &str, arguments: &[String]) -> Output {
    Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// By Kubernetes' own schemas, strictly: what they do not know is refused.
#[test]
fn kubernetes_takes_the_manifests() {
    let validate = root().join(".clients/kubernetes/bin/kubernetes-validate");
    if !validate.exists() {
        return missing::skip("kubernetes-validate is not installed");
    }
    let folder = tempfile::tempdir().expect("a directory");
    let accepts = |text: &str| {
        let file = folder.path().join("manifest.yaml");
        std::fs::write(&file, text).expect("it is written");
        let arguments = ["--strict".to_owned(), file.display().to_string()];
        run(&validate.display().to_string(), &arguments)
    };
    let text = text("kubernetes/conformance.yaml");
    let output = accepts(&text);
    assert!(output.status.success(), "{}", said(&output));
    // What is asked does refuse.
    for (right, wrong) in [
        ("completionMode:", "completionsMode:"),
        ("completions: 8", "completions: eight"),
        ("claimName:", "claim:"),
    ] {
        assert_eq!(text.matches(right).count(), 1, "{right}");
        let output = accepts(&text.replace(right, wrong));
        assert!(!output.status.success(), "{wrong}: {}", said(&output));
    }
}

/// The manifest's command line for every index, over a mock and with a few cases: what the pods write is the whole run.
#[test]
fn the_pods_of_the_job_run_all_of_the_suite() {
    let job = job();
    let spec = &job["spec"];
    assert_eq!(spec["completionMode"], "Indexed");
    let completions = spec["completions"].as_u64().expect("a number");
    let container = &spec["template"]["spec"]["containers"][0];
    assert_eq!(container["command"], serde_json::json!(["ringfence"]));
    assert_eq!(container["resources"]["requests"]["nvidia.com/gpu"], 1);
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    assert!(mounts.iter().any(|mount| mount["mountPath"] == "/results"));

    let results = tempfile::tempdir().expect("a directory");
    let program = env!("CARGO_BIN_EXE_ringfence");
    let arguments = |index: u64| -> Vec<String> {
        let words = container["args"].as_array().expect("arguments");
        let words = words.iter().map(|word| word.as_str().expect("a word"));
        let own = words.map(|word| {
            let word = word.replace("$(JOB_COMPLETION_INDEX)", &index.to_string());
            let folder = format!("{}/", results.path().display());
            // There is no card here.
            match word.as_str() {
                "real" => "mock".to_owned(),
                _ => word.replace("/results/", &folder),
            }
        });
        own.chain(["--".to_owned()])
            .chain(FEW.map(str::to_owned))
            .collect()
    };
    for index in 0..completions {
        let output = run(program, &arguments(index));
        assert!(output.status.success(), "{index}: {}", said(&output));
    }
    let files = std::fs::read_dir(results.path()).expect("a directory");
    let mut merge: Vec<String> = vec!["report".to_owned(), "merge".to_owned()];
    merge.extend(
        files
            .flatten()
            .map(|file| file.path().display().to_string()),
    );
    assert_eq!(merge.len() as u64, 2 + completions, "{merge:?}");
    let output = run(program, &merge);
    assert!(output.status.success(), "{}", said(&output));
    let all = format!("{0} of {0} as expected", FEW.len());
    assert!(said(&output).contains(&all), "{}", said(&output));
    assert!(output.stderr.is_empty(), "{}", said(&output));
}

/// Each schedule's line is understood: what it is told is wrong is the night that there is not.
#[test]
fn schedules_call_nightly_as_it_is_to_be_called() {
    for file in ["cron/ringfence-nightly", "ci/nightly.yaml"] {
        let text = text(file);
        let calls: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once("ringfence nightly "))
            .map(|(_, rest)| rest.split(" >").next().unwrap_or(rest))
            .collect();
        let [call] = calls[..] else {
            panic!("{file}: {calls:?}")
        };
        let words = call.split_whitespace().map(|word| word.replace('"', ""));
        let mut arguments = vec!["nightly".to_owned()];
        arguments.extend(words);
        arguments.extend(["--last-good", "/no/such/night"].map(str::to_owned));
        let output = run(env!("CARGO_BIN_EXE_ringfence"), &arguments);
        assert_eq!(output.status.code(), Some(2), "{call}: {}", said(&output));
        assert!(
            said(&output).contains("/no/such/night: no night"),
            "{}",
            said(&output)
        );
    }
}
