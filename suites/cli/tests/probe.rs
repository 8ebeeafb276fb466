//! A probe writes down what is there: of a mock, the profile and the tables that the mock is made from; of the card, the
//! profile and the tables that the repository has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use toml::{Table, Value};

/// What depends on how fast or how busy this machine is, or is named otherwise than found.
const NOT_COMPARED: [&str; 4] = ["cost", "teardown_lag_ms", "nvml", "mig"];
/// One card is not another: serial numbers.
const SERIAL: [&str; 4] = ["uuid", "vulkan_uuid", "vulkan_driver_uuid", "pci"];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

fn read(path: &Path) -> Table {
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.parse()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn probe(driver: &str, sections: &[&str]) -> Table {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("probe.toml");
    let output = Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(["probe", "--driver", driver, "-o"])
        .arg(&file)
        .arg("--section")
        .args(sections)
        .output()
        .expect("ringfence starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{driver}: {said}");
    read(&file)
}

/// Fields of a recorded profile that another one has otherwise. What was not recorded is not compared.
fn differences(recorded: &Value, known: &Value, path: &str, left_out: &[&str]) -> Vec<String> {
    match (recorded, known) {
        (Value::Table(recorded), Value::Table(known)) => recorded
            .iter()
            .filter(|(field, _)| !left_out.contains(&field.as_str()))
            .flat_map(|(field, value)| match known.get(field) {
                Some(other) => differences(value, other, &format!("{path}.{field}"), left_out),
                None => vec![format!("{path}.{field} is {value}, the profile lacks it")],
            })
            .collect(),
        (Value::Array(recorded), Value::Array(known)) if recorded.len() == known.len() => recorded
            .iter()
            .zip(known)
            .enumerate()
            .flat_map(|(at, (one, other))| {
                differences(one, other, &format!("{path}[{at}]"), left_out)
            })
            .collect(),
        (recorded, known) if recorded == known => Vec::new(),
        (recorded, known) => vec![format!("{path} is {recorded}, the profile says {known}")],
    }
}

/// Graphics, compute, transfer, sparse, protected: the mock ICD has no video and no optical flow, and hides their bits.
const SIMULATED_QUEUES: i64 = 0x1f;

fn queues_as_simulated(profile: &mut Table) {
    let devices = profile["device"].as_array_mut().expect("devices");
    let families = devices
        .iter_mut()
        .filter_map(|device| device.get_mut("queue_families")?.as_array_mut())
        .flatten();
    for family in families {
        let flags = family["flags"].as_integer().expect("flags") & SIMULATED_QUEUES;
        family["flags"] = flags.into();
    }
}

fn assert_profile(recorded: &Table, left_out: &[&str], simulated: bool) {
    let mut known = read(&fixtures().join("profiles/h200.toml"));
    if simulated {
        queues_as_simulated(&mut known);
    }
    let found = differences(
        &recorded["profile"],
        &Value::Table(known),
        "profile",
        left_out,
    );
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_probe_of_the_mock_gives_the_mocks_profile() {
    let recorded = probe("mock:h200", &["devices", "memory", "vulkan"]);
    assert_profile(&recorded, &NOT_COMPARED, true);
}

#[test]
fn the_h200_profile_is_what_the_probe_found_on_the_card() {
    let recorded = read(&fixtures().join("oracle/probe-h200.toml"));
    let left_out = [&NOT_COMPARED[..], &SERIAL[..]].concat();
    assert_profile(&recorded, &left_out, false);
}

type Rows = BTreeMap<String, Vec<String>>;

fn rows(text: &str) -> Rows {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let mut fields = line.split(' ').map(str::to_owned);
            (fields.next().unwrap_or_default(), fields.collect())
        })
        .collect()
}

fn oracle(file: &str) -> Rows {
    let path = fixtures().join("oracle").join(file);
    rows(
        &std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display())),
    )
}

fn table(recorded: &Table, name: &str) -> Rows {
    rows(recorded["tables"][name].as_str().expect("a text"))
}

/// Compares columns of a recorded table with columns of the oracle's where both know an answer; prints the share.
fn compare(what: &str, recorded: &Rows, oracle: &Rows, columns: &[(usize, usize)]) -> Vec<String> {
    let (mut compared, mut different) = (0, Vec::new());
    for (name, answers) in recorded {
        let Some(known) = oracle.get(name) else {
            continue;
        };
        for &(ours, theirs) in columns {
            let (one, other) = (&answers[ours], &known[theirs]);
            if one == "-" || other == "-" {
                continue;
            }
            compared += 1;
            if one != other {
                different.push(format!("{name}: {one}, the oracle has {other}"));
            }
        }
    }
    let same = compared - different.len();
    println!("{what}: {same} of {compared} the same");
    for row in &different {
        println!("  {row}");
    }
    assert!(compared > 0, "{what}: nothing in common");
    different
}

const CUDA_COLUMNS: [(usize, usize); 2] = [(0, 3), (1, 4)];
const NVML_COLUMNS: [(usize, usize); 3] = [(0, 4), (1, 5), (2, 3)];

fn assert_tables(what: &str, recorded: &Table) {
    let cuda = compare(
        &format!("{what}, libcuda"),
        &table(recorded, "libcuda"),
        &oracle("libcuda.txt"),
        &CUDA_COLUMNS,
    );
    let nvml = compare(
        &format!("{what}, NVML"),
        &table(recorded, "nvml"),
        &oracle("nvml.txt"),
        &NVML_COLUMNS,
    );
    assert!(cuda.is_empty() && nvml.is_empty(), "{cuda:?} {nvml:?}");
}

#[test]
fn what_the_probe_heard_from_the_card_is_in_the_oracle() {
    assert_tables("H200", &read(&fixtures().join("oracle/probe-h200.toml")));
}

#[test]
fn a_probe_of_the_mock_hears_what_the_oracle_has() {
    assert_tables("mock:h200", &probe("mock:h200", &["nulls"]));
}

/// Whether a generation exports a symbol, by the oracle's second column: `470`, or `470-525` where it went away.
fn exports(row: &[String], generation: u16) -> bool {
    let (first, last) = row[0].split_once('-').unwrap_or((&row[0], "65535"));
    let number = |text: &str| text.parse::<u16>().expect("a generation");
    (number(first)..=number(last)).contains(&generation)
}

#[test]
fn a_probe_of_a_generation_gives_its_symbols() {
    for generation in [470, 525, 535, 550, 555, 580] {
        let recorded = probe(&format!("mock:h200+{generation}"), &["symbols"]);
        for (list, file) in [
            ("libcuda_exports", "libcuda.txt"),
            ("nvml_exports", "nvml.txt"),
        ] {
            let found: BTreeSet<String> = table(&recorded, list).into_keys().collect();
            let expected: BTreeSet<String> = oracle(file)
                .into_iter()
                .filter(|(_, row)| exports(row, generation))
                .map(|(name, _)| name)
                .collect();
            let other: Vec<&String> = found.symmetric_difference(&expected).collect();
            assert!(other.is_empty(), "{generation}, {file}: {other:?}");
        }
    }
}

/// `first version:answer` of one flag, only what a generation exports; `?` before the first, and 580's refusal at the end.
fn answers(
    base: &str,
    runs: &[String],
    flag: usize,
    generation: u16,
    symbols: &Rows,
) -> Vec<(i32, String)> {
    let exported = |suffix: &str| {
        symbols
            .get(&format!("{base}{suffix}"))
            .is_some_and(|row| exports(row, generation))
    };
    let mut found: Vec<(i32, String)> = runs
        .iter()
        .filter_map(|run| {
            let (from, spelled) = run.split_once(':')?;
            let three: Vec<&str> = spelled.split(',').collect();
            let answer = three.get(flag).unwrap_or(&three[0]);
            let suffix = answer.strip_prefix('+')?;
            exported(suffix).then(|| (from.parse().expect("a version"), (*answer).to_owned()))
        })
        .collect();
    if found.is_empty() {
        found.push((1000, "!".to_owned()));
    } else if found[0].0 > 1000 {
        found.insert(0, (1000, "?".to_owned()));
    }
    if generation == 580 {
        found.push((13010, "X".to_owned()));
    }
    found
}

#[test]
fn a_probe_of_a_generation_gives_its_look_ups() {
    let (symbols, known) = (oracle("libcuda.txt"), oracle("proc-address.txt"));
    for generation in [525, 535, 550, 555, 580] {
        let recorded = table(
            &probe(&format!("mock:h200+{generation}"), &["proc-address"]),
            "proc_address",
        );
        let (mut compared, mut different) = (0, Vec::new());
        for (base, runs) in &known {
            let Some(found) = recorded.get(base) else {
                continue;
            };
            compared += 1;
            let mut expected: BTreeMap<i32, Vec<String>> = BTreeMap::new();
            let by_flag: Vec<_> = (0..3)
                .map(|flag| answers(base, runs, flag, generation, &symbols))
                .collect();
            for from in by_flag.iter().flatten().map(|(from, _)| *from) {
                let at = |runs: &Vec<(i32, String)>| {
                    let run = runs.iter().rev().find(|(begin, _)| *begin <= from);
                    run.map_or_else(String::new, |(_, answer)| answer.clone())
                };
                let mut three: Vec<String> = by_flag.iter().map(at).collect();
                if three.iter().all(|one| *one == three[0]) {
                    three.truncate(1);
                }
                expected.insert(from, three);
            }
            let mut spelled: Vec<String> = Vec::new();
            for (from, three) in expected {
                let answer = three.join(",");
                let repeats = spelled
                    .last()
                    .is_some_and(|last| last.split_once(':').is_some_and(|(_, one)| one == answer));
                if !repeats {
                    spelled.push(format!("{from}:{answer}"));
                }
            }
            if *found != spelled {
                different.push(format!("{base}: {found:?}, the oracle has {spelled:?}"));
            }
        }
        println!(
            "{generation}: {} of {compared} names the same",
            compared - different.len()
        );
        assert!(different.is_empty(), "{generation}: {different:#?}");
        assert!(compared > 300, "{generation}: {compared}");
    }
}

#[test]
fn bad_input_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args([
            "probe",
            "--driver",
            "mock:tiny",
            "--section",
            "devices",
            "-o",
        ])
        .arg("/no/such/folder/probe.toml")
        .output()
        .expect("ringfence starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/folder/probe.toml"));
}

/// What a probe wrote is a machine to run on: the mock of the recorded card says of itself what the card did.
#[test]
fn a_recorded_machine_can_be_run_on() {
    let file = fixtures().join("oracle/probe-h200.toml");
    let again = probe(
        &format!("mock:{}", file.display()),
        &["devices", "memory", "vulkan"],
    );
    let mut recorded = read(&file)["profile"].as_table().expect("a table").clone();
    queues_as_simulated(&mut recorded);
    let left_out = [&NOT_COMPARED[..], &["name"]].concat();
    let found = differences(
        &Value::Table(recorded),
        &again["profile"],
        "profile",
        &left_out,
    );
    // The device's own name stands in the same field as the machine's.
    assert_eq!(
        again["profile"]["device"][0]["name"].as_str(),
        Some("NVIDIA H200")
    );
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Every version that the card was asked for, as its answers were recorded: taken there is taken by the mock, refused is refused.
#[test]
fn a_probe_of_the_mock_takes_the_structures_that_the_card_took() {
    const REFUSALS: [&str; 2] = ["25", "13"];
    let taken = table(&probe("mock:h200", &["structures"]), "nvml_structures");
    let path = fixtures().join("oracle/nvml-answers-580.txt");
    let answers = std::fs::read_to_string(path).expect("the card's answers");
    let (mut compared, mut different) = (0, Vec::new());
    for line in answers.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let Some(versions) = taken.get(fields[0]).filter(|row| row[0] != "plain") else {
            continue;
        };
        for set in fields[3].split(';') {
            let word = set
                .strip_prefix("D o")
                .and_then(|word| u32::from_str_radix(word, 16).ok());
            // The probe asks for six versions, and for sizes in steps of four.
            let asked = word.map(|word| (word >> 24, word & 0xff_ffff));
            let Some((version, size)) = asked.filter(|(version, size)| {
                (1..=6).contains(version) && (4..=4096).contains(size) && size % 4 == 0
            }) else {
                continue;
            };
            compared += 1;
            let by_mock = versions.contains(&format!("{version}:{size}"));
            if by_mock == REFUSALS.contains(&fields[1]) {
                different.push(format!("{} {version}:{size}: {}", fields[0], fields[1]));
            }
        }
    }
    println!("{compared} versions, {} otherwise", different.len());
    assert!(different.is_empty(), "{different:#?}");
    assert!(compared > 100, "{compared}");
}

/// What a mock of an older driver says is marked where no driver of that generation stands behind it.
#[test]
fn a_probe_of_an_older_mock_says_what_is_only_the_mocks() {
    let recorded = probe(
        "mock:h200+535",
        &["devices", "proc-address", "nulls", "symbols"],
    );
    let meta = recorded["probe"].as_table().expect("a table");
    assert_eq!(meta["source"].as_str(), Some("mock"));
    let presumed: Vec<&String> = meta["presumed"]
        .as_table()
        .expect("a table")
        .keys()
        .collect();
    assert_eq!(
        presumed,
        ["devices"],
        "look-ups and symbols of 535 are recorded"
    );
    // Before cuInit 535 was asked, with a context nobody of it was.
    let answers = &table(&recorded, "libcuda")["cuMemAlloc_v2"];
    assert_eq!(answers[0], "3");
    assert!(answers[1].starts_with('~'), "{answers:?}");
}
