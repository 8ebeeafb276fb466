//! In whose row memory is that several processes hold: the script that asked an H200 asks the mock.

use std::process::Command;

const RECORDED: &str = include_str!("../../../fixtures/oracle/shared-memory-580.txt");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../probe/shared.py");

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

#[test]
fn shared_memory_is_in_the_row_that_the_card_puts_it_in() {
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
    let (recorded, told) = (lines(RECORDED), lines(&told));
    assert_eq!(recorded.len(), 26);
    assert_eq!(told.len(), recorded.len(), "{told:?}");
    for ((place, used, rows), (got_place, got_used, got_rows)) in recorded.iter().zip(&told) {
        assert_eq!(place, got_place);
        assert_eq!(rows, got_rows, "rows of {place:?}");
        let other_lives = rows.1 != "-";
        let init = if other_lives { SECOND_INIT_MIB } else { 0.0 };
        assert!(
            (used + init - got_used).abs() < 0.01,
            "{place:?}: {got_used} MiB in use, {used} on the card"
        );
    }
}
