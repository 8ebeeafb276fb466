//! The probe of green contexts and 32-bit contexts (`fixtures/oracle/contexts`), run on the mock as it was run on an H200.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::boundary::built;
use crate::score::Score;

const RECORD: &str = include_str!("../../../fixtures/oracle/contexts/h200.txt");
const REASONS: &str = include_str!("../../../fixtures/oracle/contexts/reasons.txt");

/// Section and number of a call in it.
type Row = (String, u32);

/// `1,3-5`.
fn numbers(text: &str) -> impl Iterator<Item = u32> + '_ {
    text.split(',').flat_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<u32>().expect("a number");
        number(first)..=number(last)
    })
}

fn rows(text: &str) -> BTreeMap<Row, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .flat_map(|line| {
            let cells: Vec<&str> = line.splitn(3, '\t').collect();
            let [section, at, value] = cells[..] else {
                panic!("three cells: {line}");
            };
            numbers(at).map(move |at| ((section.to_owned(), at), value.to_owned()))
        })
        .collect()
}

/// Whether an answer is the recorded one, in which H stands for any handle or address.
fn is_same(recorded: &str, answered: &str) -> bool {
    let is_part = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    // The bytes of a structure are told, but not compared.
    let words = |text: &str| -> Vec<String> {
        text.split(is_part)
            .filter(|word| !word.is_empty() && word.len() < 200)
            .map(str::to_owned)
            .collect()
    };
    let (recorded, answered) = (words(recorded), words(answered));
    let equal = |(one, other): (&String, &String)| {
        one == other || one == "H" && other.starts_with("0x") && other.len() > 6
    };
    recorded.len() == answered.len() && recorded.iter().zip(&answered).all(equal)
}

/// The mock's answers, and what each call is called.
fn played(folder: &Path) -> Option<BTreeMap<Row, (String, String)>> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/oracle/contexts");
    let ended = Command::new("/usr/bin/python3")
        .arg(own.join("probe.py"))
        .arg(folder)
        .env("LIMIT", "600")
        .env("PROBE_LIB", built("libmock_libcuda.so"))
        .env("PROBE_NVML", built("libmock_nvml.so"))
        .env("RINGFENCE_MACHINE", "h200")
        .output();
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            println!("SKIPPED: no /usr/bin/python3 ({error}): contexts are not compared");
            return None;
        }
    };
    assert!(ended.status.success(), "{ended:?}");
    let mut answers = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("the answers") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("text");
        let section = path.file_stem().and_then(|name| name.to_str());
        let section = section.expect("a name").to_owned();
        for line in text.lines() {
            let cells: Vec<&str> = line.splitn(3, '\t').collect();
            if let [at, name, value] = cells[..] {
                let at = at.parse().expect("a number");
                answers.insert((section.clone(), at), (name.to_owned(), value.to_owned()));
            }
        }
    }
    Some(answers)
}

#[test]
fn contexts_answer_as_the_card_did() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(answers) = played(folder.path()) else {
        return;
    };
    let (recorded, reasons) = (rows(RECORD), rows(REASONS));
    let mut score = Score::default();
    let mut unneeded = Vec::new();
    for (row, expected) in &recorded {
        score.checked += 1;
        let (name, answer) = answers
            .get(row)
            .map_or(("", "-"), |(name, answer)| (name, answer));
        let same = is_same(expected, answer);
        let reason = reasons.get(row);
        if !same {
            let why = reason.map_or("no reason", String::as_str);
            println!("  differs: {row:?} {name}: {expected}, the mock {answer} ({why})");
            if reason.is_none() {
                score
                    .wrong
                    .push(format!("{row:?} {name}: {expected}, the mock {answer}"));
            }
        } else if reason.is_some() {
            unneeded.push(row);
        }
    }
    println!(
        "contexts: {} of {} rows, {} with a reason",
        score.checked - score.wrong.len() - reasons.len() + unneeded.len(),
        score.checked,
        reasons.len()
    );
    assert!(score.checked > 2600, "{} rows", score.checked);
    assert_eq!(unneeded, Vec::<&Row>::new(), "reasons without a difference");
    let strangers: Vec<&Row> = reasons
        .keys()
        .filter(|row| !recorded.contains_key(*row))
        .collect();
    assert_eq!(strangers, Vec::<&Row>::new(), "reasons without a row");
    score.all("contexts");
}
