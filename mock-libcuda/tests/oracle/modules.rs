//! The probe of modules, functions, launches, occupancy, limits and linking (`fixtures/oracle/modules`), run on the mock as
//! it was run on an H200.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::boundary::built;
use crate::score::Score;

/// What differs and stays so: section and the row's leading texts, with the reason.
const KNOWN: &[(&str, &str)] = &[
    (
        "attributes/family.ptx/function/live8",
        "registers are estimated: 12 for the assembler's 22",
    ),
    ("occupancy/function/live8", "registers are estimated"),
    (
        "memory_default/addresses",
        "where a variable lies is the driver's own",
    ),
    (
        "link/complete empty",
        "a linked program without code has a size of its own",
    ),
    ("images/type mismatch", "operand types are not checked"),
    ("images/address size 32", "no warnings in the info log"),
    (
        "images/shared too large",
        "no sizes of functions in the info log",
    ),
    (
        "images/const too large",
        "no sizes of functions in the info log",
    ),
];

/// The same of what the first probe did not get to.
const SECOND: &[(&str, &str)] = &[];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures")
}

fn python(script: &Path) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.arg(script);
    command
}

fn rows(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).expect("a row of the probe"))
        .collect()
}

/// Texts of logs and sizes of linked programs are the assembler's own: what counts is whether there are any.
fn comparable(section: &str, row: &Value) -> Value {
    let mut row = row.clone();
    let Some(cells) = row.as_array_mut() else {
        return row;
    };
    let blurred: &[usize] = match section {
        "images" => &[6, 7, 8, 9],
        "link" if cells.len() > 4 => &[4, 5, 6],
        _ => &[],
    };
    for at in blurred {
        if let Some(cell) = cells.get_mut(*at) {
            *cell = match &*cell {
                Value::String(text) => json!(!text.is_empty()),
                Value::Number(number) => json!(number.as_u64() != Some(0)),
                other => other.clone(),
            };
        }
    }
    row
}

/// Where a section's process died on the card, the next call is missing from its rows.
fn is_death(row: &Value) -> bool {
    row[0].as_str().is_some_and(|text| text.starts_with("DIED"))
}

/// The texts at a row's beginning.
fn name(row: &Value) -> String {
    let cells = row.as_array().map(Vec::as_slice).unwrap_or_default();
    let texts = cells.iter().map_while(Value::as_str);
    texts.take(3).collect::<Vec<_>>().join("/")
}

fn compare(section: &str, recorded: &[Value], answered: &[Value], score: &mut Score) {
    // Images are told apart by name: those that the driver did not survive are missing.
    let by_name: HashMap<&str, &Value> = answered
        .iter()
        .filter_map(|row| Some((row[0].as_str()?, row)))
        .collect();
    for (at, row) in recorded
        .iter()
        .enumerate()
        .filter(|(_, row)| !is_death(row))
    {
        let met = match section {
            "images" => by_name.get(row[0].as_str().unwrap_or_default()).copied(),
            _ => answered.get(at),
        };
        score.checked += 1;
        let met = met.map_or(Value::Null, |met| comparable(section, met));
        if met != comparable(section, row) {
            let name = name(row);
            score
                .wrong
                .push(format!("{section}/{name}: {row}, the mock {met}"));
        }
    }
}

fn run(probe: &str, record: &str) -> Option<Score> {
    let own = fixtures().join("oracle/modules");
    let room = tempfile::tempdir().expect("a folder");
    let prepared = python(&own.join("prepare.py"))
        .arg(fixtures())
        .current_dir(room.path())
        .status();
    match prepared {
        Ok(status) => assert!(status.success(), "prepare.py: {status}"),
        Err(error) => {
            crate::missing::skip(format_args!("no /usr/bin/python3 ({error})"));
            return None;
        }
    }
    let answers = room.path().join("answers");
    std::fs::create_dir(&answers).expect("a folder");
    let status = python(&own.join(probe))
        .arg(&answers)
        .current_dir(room.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PROBE_LIB", built("libmock_libcuda.so"))
        .env("RINGFENCE_MACHINE", "h200")
        .env_remove("CUDA_MODULE_LOADING")
        .output()
        .expect("python3 ran before");
    assert!(status.status.success(), "{status:?}");
    let mut score = Score::default();
    let mut files: Vec<PathBuf> = std::fs::read_dir(own.join(record))
        .expect("the record")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    files.sort();
    for file in files {
        let section = file
            .file_stem()
            .and_then(|name| name.to_str())
            .expect("a name");
        let name = file.file_name().expect("a name");
        let (recorded, answered) = (rows(&file), rows(&answers.join(name)));
        compare(section, &recorded, &answered, &mut score);
    }
    Some(score)
}

fn check(probe: &str, record: &str, least: usize, known: &[(&str, &str)]) {
    if let Some(score) = run(probe, record) {
        assert!(score.checked > least, "{} rows", score.checked);
        score.all_but(&format!("modules, {record}"), known);
    }
}

#[test]
fn modules_answer_as_the_card_did() {
    check("probe.py", "h200", 900, KNOWN);
}

#[test]
fn opted_in_memory_carve_outs_and_clusters_answer_as_the_card_did() {
    check("second.py", "h200-second", 180, SECOND);
}
