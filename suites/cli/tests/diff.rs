//! The upgrade gate over all neighbouring driver generations, over a recorded card and its mock, and over changes that were planted.
//!
//! Probe files of the generations are made here, by the mocks, and not kept: six of them are half a megabyte that says once more what
//! fixtures/oracle says, and a kept file would go on saying it when the tables, the mocks or the probe's format had moved on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use serde_json::Value;

/// All that does not depend on how fast this machine is, but for the answers to zeros.
const SECTIONS: [&str; 6] = [
    "devices",
    "vulkan",
    "memory",
    "symbols",
    "proc-address",
    "structures",
];
/// Whose answers to zeros are looked at: they take a hundred processes that die.
const ASKED_FOR_ANSWERS: [&str; 4] = [
    "mock:h200+535",
    "mock:h200+550",
    "mock:h200+555",
    "mock:h200+580",
];

fn ringfence(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(arguments)
        .output()
        .expect("ringfence starts")
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(name)
}

fn probe_into(file: &Path, driver: &str) {
    let mut arguments = vec!["probe", "--driver", driver, "--section"];
    arguments.extend(SECTIONS);
    if ASKED_FOR_ANSWERS.contains(&driver) {
        arguments.push("nulls");
    }
    let output = ringfence(&[&arguments[..], &["-o", &file.display().to_string()]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{driver}: {said}");
}

/// What a probe of this driver wrote. Each driver is asked once by a test program, several at a time.
fn probe(driver: &str) -> String {
    static PROBES: Mutex<BTreeMap<String, Arc<OnceLock<String>>>> = Mutex::new(BTreeMap::new());
    let place = {
        let mut probes = PROBES.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(probes.entry(driver.to_owned()).or_default())
    };
    let made = || {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("probe.toml");
        probe_into(&file, driver);
        std::fs::read_to_string(file).expect("a probe file")
    };
    place.get_or_init(made).clone()
}

/// What the gate says of two files: its exit status, everything as JSON, the Markdown and the terminal's text.
struct Said {
    status: Option<i32>,
    json: Value,
    markdown: String,
    terminal: String,
}

fn diff(old: &str, new: &str, options: &[&str]) -> Said {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    for (name, text) in [("old.toml", old), ("new.toml", new)] {
        std::fs::write(path(name), text).expect("a file");
    }
    let (json, markdown) = (path("all.json"), path("report.md"));
    let (old, new) = (path("old.toml"), path("new.toml"));
    let arguments = ["diff", &old, &new, "--json", &json, "--markdown", &markdown];
    let output = ringfence(&[&arguments[..], options].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.is_empty(), "{error}");
    let read = |path: &str| std::fs::read_to_string(path).expect("a report");
    Said {
        status: output.status.code(),
        json: serde_json::from_str(&read(&json)).expect("JSON"),
        markdown: read(&markdown),
        terminal: String::from_utf8_lossy(&output.stdout).into_owned(),
    }
}

impl Said {
    fn differences(&self) -> &[Value] {
        self.json["differences"].as_array().expect("a list")
    }

    /// `PART SUBJECT` of those with this verdict that nothing allows.
    fn of(&self, verdict: &str) -> BTreeSet<String> {
        let wanted = |one: &&Value| one["verdict"] == verdict && one["reason"].is_null();
        let named = self.differences().iter().filter(wanted);
        named
            .map(|one| format!("{} {}", text(&one["part"]), text(&one["subject"])))
            .collect()
    }

    fn one(&self, part: &str, subject: &str) -> &Value {
        let wanted = |one: &&Value| one["part"] == part && one["subject"] == subject;
        let found = self.differences().iter().find(wanted);
        found.unwrap_or_else(|| panic!("{part} {subject}: {}", self.terminal))
    }

    fn unknown(&self) -> BTreeSet<&str> {
        let parts = self.json["unknown"].as_array().expect("a list");
        parts.iter().map(|one| text(&one["part"])).collect()
    }

    /// Symbols without a counterpart: on the side that has them the other one's field is null.
    fn symbols_without(&self, side: &str) -> BTreeSet<String> {
        let wanted = |one: &&Value| one["part"] == "symbols" && one[side].is_null();
        let symbols = self.differences().iter().filter(wanted);
        symbols
            .map(|one| text(&one["subject"]).to_owned())
            .collect()
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn names(value: &Value) -> BTreeSet<&str> {
    value.as_array().expect("a list").iter().map(text).collect()
}

/// The exports of a generation, by the second column of the oracle's tables: `470`, or `470-525` where it went away.
fn exports(generation: u16) -> BTreeSet<String> {
    let number = |text: &str| text.parse::<u16>().expect("a generation");
    let of = |file: &str| -> Vec<String> {
        let text = std::fs::read_to_string(fixture("oracle").join(file)).expect("a table");
        let rows = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        let exported = rows.filter(|row| {
            let span = row.split(' ').nth(1).expect("a generation");
            let (first, last) = span.split_once('-').unwrap_or((span, "65535"));
            (number(first)..=number(last)).contains(&generation)
        });
        exported
            .map(|row| row.split(' ').next().unwrap_or_default().to_owned())
            .collect()
    };
    of("libcuda.txt")
        .into_iter()
        .chain(of("nvml.txt"))
        .collect()
}

const MACHINE: [&str; 6] = [
    "identities",
    "totals",
    "heaps",
    "granularities",
    "attributes",
    "extensions",
];

/// What no driver of both generations told is unknown, although the mocks of both say the same.
#[test]
fn the_neighbours_differ_as_the_oracle_says_and_none_breaks_a_promise() {
    for (old, new, verdict) in [
        (470, 525, "nothing"),
        (525, 535, "nothing"),
        (535, 550, "look"),
        (550, 555, "nothing"),
        (555, 580, "look"),
    ] {
        let of = |generation: u16| probe(&format!("mock:h200+{generation}"));
        let said = diff(&of(old), &of(new), &[]);
        assert_eq!(said.status, Some(0), "{old} to {new}: {}", said.terminal);
        assert_eq!(said.json["verdict"], verdict, "{old} to {new}");
        assert_eq!(said.json["old"]["is_mock"], true);
        let (before, after) = (exports(old), exports(new));
        let (gone, came) = (said.symbols_without("new"), said.symbols_without("old"));
        assert_eq!(
            gone,
            before.difference(&after).cloned().collect(),
            "{old} to {new}"
        );
        assert_eq!(
            came,
            after.difference(&before).cloned().collect(),
            "{old} to {new}"
        );
        assert!(
            said.unknown().is_superset(&MACHINE.into()),
            "{old} to {new}"
        );
        // Drivers 535, 550 and 580 were asked for their answers before initialisation: only two of these are neighbours.
        let answers = said.unknown().contains("answers");
        assert_eq!(answers, (old, new) != (535, 550), "{old} to {new}");
        let look_ups = said.unknown().contains("look-ups");
        assert_eq!(look_ups, old == 470, "{old} to {new}");
    }
}

#[test]
fn what_is_known_of_upgrades_is_found() {
    let of = |generation: u16| probe(&format!("mock:h200+{generation}"));
    // CUDA 12.5 gives programs of 12.5 another way to make a context; it has had a hook since.
    let said = diff(&of(550), &of(555), &[]);
    let contexts = said.one("look-ups", "cuCtxCreate from 12050 on");
    assert_eq!(
        (text(&contexts["old"]), text(&contexts["new"])),
        ("cuCtxCreate_v3", "cuCtxCreate_v4")
    );
    assert_eq!(contexts["verdict"], "nothing");
    // 550 answers zeros before cuInit otherwise than 535.
    let said = diff(&of(535), &of(550), &[]);
    let answer = said.one("answers", "cuFuncGetAttribute before cuInit");
    assert_eq!((text(&answer["old"]), text(&answer["new"])), ("3", "1"));
    assert!(names(&answer["calls"]).contains("cuFuncGetAttribute"));
    // 580 refuses look-ups of versions above its own.
    let said = diff(&of(555), &of(580), &[]);
    let newer = said.one("driver", "look-ups of a CUDA version above its own");
    assert_eq!(
        (text(&newer["old"]), text(&newer["new"])),
        ("answered as its own", "refused")
    );
    assert!(names(&newer["hooks"]).contains("cuGetProcAddress_v2"));
    assert!(
        newer["cases"]
            .as_array()
            .is_some_and(|cases| !cases.is_empty())
    );
    // Whoever wants to be asked about everything is.
    let strict = diff(&of(555), &of(580), &["--strict"]);
    assert_eq!(strict.status, Some(1));
}

/// The next driver's library alone tells a version of a hooked function that has no hook.
#[test]
fn a_new_version_of_a_hooked_function_is_seen_in_a_drivers_file_alone() {
    let mock = harness::artifacts::find(harness::Library::MockLibcuda).expect("the mock is built");
    let directory = tempfile::tempdir().expect("a directory");
    let library = directory.path().join("libcuda.so.1");
    let missing = harness::symbols::not_of_generation(harness::Api::Cuda, 999);
    harness::symbols::copy_without(&mock, &library, &missing).expect("a copy");
    let list = directory.path().join("symbols.txt");
    let names = harness::symbols::of_generation(harness::Api::Cuda, 615).join("\n");
    std::fs::write(&list, names).expect("a list");
    let (list, library) = (list.display().to_string(), library.display().to_string());
    let output = ringfence(&["diff", &list, &library, "--all"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for name in [
        "cuMemAlloc_v3",
        "cuMemAllocAsync_v2",
        "cuMemAllocAsync_v2_ptsz",
    ] {
        assert!(said.contains(name), "{name}: {said}");
    }
    // From a probe of 580 to the list of 615: what the headers bring is hooked or known, and nothing of NVML is gone.
    let file = directory.path().join("580.toml");
    std::fs::write(&file, probe("mock:h200+580")).expect("a probe file");
    let output = ringfence(&["diff", &file.display().to_string(), &list]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
}

#[test]
fn the_report_for_a_pull_request() {
    let said = diff(&probe("mock:h200+535"), &probe("mock:h200+550"), &[]);
    insta::assert_snapshot!("diff_535_550", said.markdown);
}

#[test]
fn a_probe_of_the_same_driver_differs_in_nothing() {
    let old = probe("mock:h200+580");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("again.toml");
    probe_into(&file, "mock:h200+580");
    let new = std::fs::read_to_string(file).expect("a probe file");
    assert_eq!(old, new, "a probe is the same every time");
    let said = diff(&old, &new, &["--strict"]);
    assert_eq!((said.status, said.differences().len()), (Some(0), 0));
}

/// The mock is the card but for what the list says, with the reason.
#[test]
fn a_card_and_its_mock_differ_in_what_is_explained() {
    let real = std::fs::read_to_string(fixture("oracle/probe-h200.toml")).expect("a record");
    let list = fixture("upgrades/h200-and-its-mock.txt");
    let list = list.display().to_string();
    let said = diff(
        &real,
        &probe("mock:h200+580"),
        &["--allow", &list, "--strict"],
    );
    assert_eq!(said.status, Some(0), "{}", said.terminal);
    assert_eq!(said.json["stale"], Value::Array(Vec::new()));
    let differing = said.differences().len();
    assert_eq!(differing, 4, "{}", said.terminal);
    // What that record is too old to have.
    assert_eq!(said.unknown(), BTreeSet::from(["structures", "extensions"]));
}

#[test]
fn a_hooked_v2_that_is_gone_breaks() {
    let said = diff(
        &probe("mock:h200+580"),
        &probe("mock:h200+580-cuMemAlloc_v2"),
        &[],
    );
    assert_eq!(said.status, Some(1), "{}", said.terminal);
    let expected = ["look-ups cuMemAlloc from 3020 on", "symbols cuMemAlloc_v2"];
    assert_eq!(
        said.of("breaks"),
        BTreeSet::from(expected.map(str::to_owned))
    );
    let gone = said.one("symbols", "cuMemAlloc_v2");
    assert!(gone["new"].is_null());
    assert_eq!(names(&gone["hooks"]), BTreeSet::from(["cuMemAlloc_v2"]));
    assert!(names(&gone["defects"]).contains("S2"));
    assert!(names(&gone["cases"]).contains("a_missing_v2_stays_missing"));
    // Programs of CUDA 3.2 and later are given the function with 32-bit sizes.
    let look_up = said.one("look-ups", "cuMemAlloc from 3020 on");
    assert_eq!(look_up["new"], "cuMemAlloc");
    assert_eq!(names(&look_up["defects"]), BTreeSet::from(["S1", "S2"]));
    for words in ["## Driver upgrade: breaks", "cuMemAlloc_v2", "S2"] {
        assert!(said.markdown.contains(words), "{words}: {}", said.markdown);
    }
    assert!(said.terminal.ends_with("verdict: breaks\n"));
}

/// Exchanges one row of a probe file for another.
fn planted(text: &str, row: &str, other: &str) -> String {
    let (row, other) = (format!("\n{row}\n"), format!("\n{other}\n"));
    assert_eq!(text.matches(&row).count(), 1, "{row}");
    text.replace(&row, &other)
}

#[test]
fn a_changed_abi_breaks() {
    let old = probe("mock:h200+580");
    for (row, other, part, subject, hook, defect) in [
        // Programs of CUDA 11 and later get the function with 32-bit sizes.
        (
            "cuMemGetInfo 1000:? 2000:+ 3020:+_v2 13010:X",
            "cuMemGetInfo 1000:? 2000:+ 3020:+_v2 11000:+ 13010:X",
            "look-ups",
            "cuMemGetInfo from 11000 on",
            "cuMemGetInfo_v2",
            "S1",
        ),
        // nvmlMemory_v2_t has grown.
        (
            "nvmlDeviceGetMemoryInfo_v2 2:40",
            "nvmlDeviceGetMemoryInfo_v2 2:48",
            "structures",
            "nvmlDeviceGetMemoryInfo_v2",
            "nvmlDeviceGetMemoryInfo_v2",
            "T4",
        ),
        // What was refused as invalid is granted.
        (
            "cuMemAllocManaged 1 1",
            "cuMemAllocManaged 1 0",
            "answers",
            "cuMemAllocManaged with a context",
            "cuMemAllocManaged",
            "C1",
        ),
        // Stream-ordered memory is asked for by a version that no hook stands before.
        (
            "cuMemAllocAsync 1000:? 11020:+,+,+_ptsz 13010:X",
            "cuMemAllocAsync 1000:? 11020:+,+,+_ptsz 13000:+_v2,+_v2,+_v2_ptsz 13010:X",
            "look-ups",
            "cuMemAllocAsync from 13000 on",
            "cuMemAllocAsync",
            "S1",
        ),
    ] {
        let said = diff(&old, &planted(&old, row, other), &[]);
        assert_eq!(said.status, Some(1), "{other}: {}", said.terminal);
        let found = said.one(part, subject);
        assert_eq!(found["verdict"], "breaks", "{other}");
        assert!(names(&found["hooks"]).contains(hook), "{other}: {found:#}");
        assert!(
            names(&found["defects"]).contains(defect),
            "{other}: {found:#}"
        );
        assert!(!names(&found["cases"]).is_empty(), "{other}");
    }
}

/// The same machine after its Vulkan driver began to say zeros, as 580.142 did in a container.
#[test]
fn a_zero_uuid_breaks() {
    let sound = std::fs::read_to_string(fixture("profiles/h200.toml")).expect("a profile");
    let zero = "vulkan_uuid = \"GPU-00000000-0000-0000-0000-000000000000\"";
    let machine = sound.replacen(
        "\nvmm_granularity",
        &format!("\n{zero}\nvmm_granularity"),
        1,
    );
    assert_ne!(machine, sound);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("zero.toml");
    std::fs::write(&file, machine).expect("a file");
    let new = probe(&format!("mock:{}", file.display()));
    let said = diff(&probe("mock:h200+580"), &new, &[]);
    assert_eq!(said.status, Some(1), "{}", said.terminal);
    let expected = [
        "identities device 0: UUID by Vulkan",
        "identities device 0: UUIDs of the three APIs",
    ];
    assert_eq!(
        said.of("breaks"),
        BTreeSet::from(expected.map(str::to_owned))
    );
    let found = said.one("identities", "device 0: UUID by Vulkan");
    assert_eq!(names(&found["defects"]), BTreeSet::from(["V1", "V2"]));
    assert!(
        names(&found["cases"]).contains("zero_uuids_in_vulkan_keep_each_budget"),
        "{found:#}"
    );
}

/// Status 2, nothing on stdout, and the file that is wrong with what is wrong on stderr.
fn assert_names(arguments: &[&str], wrong: &[&str]) {
    let output = ringfence(&[&["diff"], arguments].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    for word in wrong {
        assert!(stderr.contains(word), "{arguments:?}: {stderr}");
    }
}

#[test]
fn bad_input_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let real = fixture("oracle/probe-h200.toml").display().to_string();
    let text = std::fs::read_to_string(&real).expect("a record");
    let half = text.len() / 2;
    for (name, content, wrong) in [
        (
            "profile.toml",
            "name = \"h200\"\n",
            "not written by ringfence probe",
        ),
        ("cut.toml", &text[..half], "cut off"),
        (
            "lacks.toml",
            "[probe]\ndriver = \"real\"\nformat = 2\nsections = [\"symbols\"]\n",
            "the section symbols",
        ),
        (
            "newer.toml",
            "[probe]\ndriver = \"real\"\nformat = 3\n",
            "format is 3",
        ),
        (
            "mock.toml",
            "[probe]\ndriver = \"mock:h200+535\"\n",
            "probe again",
        ),
        (
            "nothing.toml",
            "",
            "neither a probe file nor a driver's symbols",
        ),
    ] {
        let path = directory.path().join(name);
        std::fs::write(&path, content).expect("a file");
        let path = path.display().to_string();
        assert_names(&[&real, &path], &[&path, wrong]);
        assert_names(&[&path, &real], &[&path, wrong]);
    }
    assert_names(&["/no/such/probe.toml", &real], &["/no/such/probe.toml"]);
    assert_names(
        &[&real, &directory.path().display().to_string()],
        &["directory"],
    );
    assert_names(&[&real, &real, "--allow", "/no/list"], &["/no/list"]);
    assert_names(&[&real, &real, "--allow", &real], &["part subject"]);
    let nowhere = "/no/such/folder/report.md";
    assert_names(&[&real, &real, "--markdown", nowhere], &[nowhere]);
}
