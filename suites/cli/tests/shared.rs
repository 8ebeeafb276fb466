//! In whose row memory is that several processes hold, or that outlives its context: the scripts that asked an H200 ask the mock.

use std::process::Command;

const MEMORY: &str = include_str!("../../../fixtures/oracle/shared-memory-580.txt");
const POOLS: &str = include_str!("../../../fixtures/oracle/shared-pools-580.txt");
const RESETS_RECORD: &str = include_str!("../../../fixtures/oracle/resets-580.txt");
const PROFILE: &str = include_str!("../../../fixtures/profiles/h200.toml");
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe");

/// What cuInit takes on the mock of a device on which another process has a context; on the card it took nothing more there.
const SECOND_INIT_MIB: f64 = 3.25;

/// Of a line: scenario and step; MiB in use; the two rows.
type Line<'a> = ((&'a str, &'a str), f64, (&'a str, &'a str));

fn lines(table: &str) -> Vec<Line<'_>> {
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    let parsed = |line| {
        let mut parts = str::split(line, '\t');
        let mut part = || parts.next();
        let place = (part()?, part()?);
        Some((place, part()?.parse().ok()?, (part()?, part()?)))
    };
    lines.filter_map(parsed).collect()
}

/// What a script says on a simulated H200. A dead process's memory is back at once there: how long its teardown takes beside
/// a step's tenth of a second is not what the record is about.
fn told(script: &str, arguments: &[&str]) -> Option<String> {
    if Command::new("python3").arg("--version").output().is_err() {
        eprintln!("SKIPPED: there is no python3 to run the script with");
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let profile = folder.path().join("h200.toml");
    let lag = |line: &str| line.starts_with("teardown_lag_ms");
    assert_eq!(PROFILE.lines().filter(|line| lag(line)).count(), 1);
    let at_once = PROFILE.lines().map(|line| {
        if lag(line) {
            "teardown_lag_ms = 0"
        } else {
            line
        }
    });
    let text = at_once.collect::<Vec<_>>().join("\n");
    std::fs::write(&profile, text).expect("written");
    let output = Command::new(env!("CARGO_BIN_EXE_ringfence"))
        .args(["exec", "--target", "none", "--profile"])
        .arg(&profile)
        .args(["--", "python3", &format!("{SCRIPTS}/{script}")])
        .args(arguments)
        .output()
        .expect("ringfence starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn compare(recorded: &[Line<'_>], told: &[Line<'_>]) {
    assert_eq!(recorded.len(), told.len(), "{told:?}");
    // A process without a context is in no row, and has what cuInit took all the same.
    let mut other_lives = "";
    for ((place, used, rows), (got_place, got_used, got_rows)) in recorded.iter().zip(told) {
        let (scenario, step) = *place;
        assert_eq!(place, got_place);
        assert_eq!(rows, got_rows, "rows of {place:?}");
        if rows.1 != "-" {
            other_lives = scenario;
        } else if step.ends_with("killed") || step == "the other ended" {
            other_lives = "";
        }
        let init = if other_lives == scenario {
            SECOND_INIT_MIB
        } else {
            0.0
        };
        assert!(
            (used + init - got_used).abs() < 0.01,
            "{place:?}: {got_used} MiB in use, {used} on the card"
        );
    }
}

#[test]
fn shared_memory_is_in_the_row_that_the_card_puts_it_in() {
    let recorded = lines(MEMORY);
    assert_eq!(recorded.len(), 26);
    if let Some(told) = told("shared.py", &[]) {
        compare(&recorded, &lines(&told));
    }
}

#[test]
fn what_no_context_owns_outlives_it_as_on_the_card() {
    let recorded = lines(RESETS_RECORD);
    assert_eq!(recorded.len(), 18);
    if let Some(told) = told("resets.py", &[]) {
        compare(&recorded, &lines(&told));
    }
}

/// Functions of `pools.py` and their scenarios in the record. Each runs on a machine of its own.
type Scenarios = &'static [(&'static str, &'static str)];

const ENDS_OF_THE_MAKER: Scenarios = &[
    ("the_makers", "its maker lets go"),
    ("of_the_dead", "its maker dies"),
    ("held_by_a_descriptor", "a descriptor is open"),
    ("held_by_nothing", "only the pool is imported"),
    ("not_imported", "nothing is imported"),
];
const IMPORTS: Scenarios = &[
    ("pool_first", "the pool is destroyed first"),
    (
        "requests_of_an_imported_pool",
        "requests of an imported pool",
    ),
    ("imported_twice", "imported twice"),
    ("alone", "alone"),
    ("imported_and_destroyed", "imported and destroyed"),
    ("the_importer_resets", "the importer resets"),
    ("the_importer_dies", "the importer dies"),
];
const GROWTH: Scenarios = &[
    ("again_and_again", "again and again"),
    ("other_sizes", "other sizes"),
    ("kept_by_the_pool", "kept by the pool"),
    ("given_back_at_once", "given back at once"),
];
const STEPS: Scenarios = &[
    ("without_a_descriptor", "without a descriptor"),
    ("small", "small"),
    ("a_part_of_a_step", "a part of a step"),
    ("in_a_large_gap", "in a large gap"),
    ("without_a_pointer", "without a pointer"),
    (
        "the_descriptor_is_closed_first",
        "the descriptor is closed first",
    ),
    ("destroyed_in_use", "destroyed in use"),
];
const RESETS: Scenarios = &[
    ("the_maker_resets", "the maker resets"),
    ("a_reset", "a reset"),
];

/// All at once: they mostly wait for the device to settle.
fn compare_each(scenarios: Scenarios) {
    std::thread::scope(|scope| {
        for (function, name) in scenarios {
            scope.spawn(move || {
                let mut recorded = lines(POOLS);
                recorded.retain(|(place, ..)| place.0 == *name);
                assert!(!recorded.is_empty(), "{name} is in the record");
                if let Some(told) = told("pools.py", &[function]) {
                    compare(&recorded, &lines(&told));
                }
            });
        }
    });
}

#[test]
fn what_a_pool_lent_is_in_the_device_until_nobody_has_the_pool() {
    compare_each(ENDS_OF_THE_MAKER);
}

#[test]
fn an_imported_pool_is_counted_and_answers_as_the_cards() {
    compare_each(IMPORTS);
}

#[test]
fn a_pool_grows_again_into_what_it_lent() {
    compare_each(GROWTH);
}

#[test]
fn a_pool_lends_the_steps_that_an_exported_pointer_touches() {
    compare_each(STEPS);
}

#[test]
fn a_pool_outlives_its_devices_contexts_and_is_in_no_row_meanwhile() {
    compare_each(RESETS);
}

#[test]
fn every_scenario_of_the_record_is_asked_again() {
    let groups = [ENDS_OF_THE_MAKER, IMPORTS, GROWTH, STEPS, RESETS].concat();
    let mut asked: Vec<&str> = groups.iter().map(|(_, name)| *name).collect();
    let mut recorded: Vec<&str> = lines(POOLS).iter().map(|(place, ..)| place.0).collect();
    asked.sort_unstable();
    recorded.sort_unstable();
    recorded.dedup();
    assert_eq!(asked, recorded);
    assert_eq!(lines(POOLS).len(), 196);
}
