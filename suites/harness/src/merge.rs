//! Reports of several runs, or of parts of one, as one: runs are told apart by target, driver and machine, and each is put together from its shards.
//!
//! What is there counts, whatever else is missing: of a case that no report tells of, the result says so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::case::Suite;
use crate::journal::{self, JournalError, Part};
use crate::report::{Report, Run};
use crate::runner::{EntryResult, UNCHANGED};
use crate::shard::Shard;
use crate::status::Verdict;

/// Reports that do not fit together.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(
        "{}: {name} of {run} is {verdict}, but {} says {other}: which of them counts?",
        path.display(), other_path.display()
    )]
    TwoResults {
        name: String,
        run: String,
        path: PathBuf,
        verdict: Verdict,
        other_path: PathBuf,
        other: Verdict,
    },
    #[error(
        "{} is shard {shard} of {run}, {} shard {other}: they are not parts of one run",
        path.display(), other_path.display()
    )]
    OtherShards {
        run: String,
        path: PathBuf,
        shard: Shard,
        other_path: PathBuf,
        other: Shard,
    },
    #[error(
        "{} and {} are parts of runs of {run} over other cases: {name} is in one alone",
        path.display(), other_path.display()
    )]
    OtherCases {
        run: String,
        path: PathBuf,
        other_path: PathBuf,
        name: String,
    },
    #[error("{}: {name} of {run} is no case of shard {shard}", path.display())]
    Stray {
        run: String,
        path: PathBuf,
        name: String,
        shard: Shard,
    },
}

/// Runs put together.
#[derive(Clone, Debug)]
pub struct Merged {
    pub runs: Vec<Report>,
    /// What was left out or is missing, a line each.
    pub remarks: Vec<String>,
}

/// Reads the files and puts their runs together, in the order in which they come.
pub fn merge(paths: &[PathBuf], suite: &Suite) -> Result<Merged, MergeError> {
    let (mut parts, mut remarks) = (Vec::new(), Vec::new());
    for path in paths {
        let contents = journal::read(path)?;
        let name = path.display();
        match contents.cut {
            Some(bytes) => remarks.push(format!(
                "{name}: its last line has no end: {bytes} bytes are left out"
            )),
            None if contents.parts.is_empty() => remarks.push(format!("{name}: nothing is in it")),
            None => {}
        }
        parts.extend(contents.parts);
    }
    let mut runs: Vec<Vec<Part>> = Vec::new();
    for part in parts {
        match runs.iter_mut().find(|run| is_of(&run[0].run, &part.run)) {
            Some(run) => run.push(part),
            None => runs.push(vec![part]),
        }
    }
    let join = |parts: &Vec<Part>| join(parts, suite, &mut remarks);
    Ok(Merged {
        runs: runs.iter().map(join).collect::<Result<_, _>>()?,
        remarks,
    })
}

fn is_of(run: &Run, other: &Run) -> bool {
    (&run.target, &run.driver, &run.machine) == (&other.target, &other.driver, &other.machine)
}

/// One run from its parts.
fn join(parts: &[Part], suite: &Suite, remarks: &mut Vec<String>) -> Result<Report, MergeError> {
    let first = &parts[0];
    let run = first.run.to_string();
    let mut told: BTreeMap<&str, (&Path, &EntryResult)> = BTreeMap::new();
    let mut counted: Vec<&Part> = Vec::new();
    for part in parts {
        fit(first, part, &run)?;
        let alike = |other: &&&Part| is_again(other, part);
        if let Some(other) = counted.iter().find(alike) {
            let (path, other) = (part.path.display(), other.path.display());
            let shard = part.run.shard;
            remarks.push(format!(
                "{path}: tells of shard {shard} of {run} as {other} does: counted once"
            ));
            continue;
        }
        counted.push(part);
        for result in &part.results {
            let shard = part.run.shard;
            let listed = part.run.entries.contains(&result.name);
            if !listed || !shard.holds(case_of(&result.name)) {
                return Err(MergeError::Stray {
                    run,
                    path: part.path.clone(),
                    name: result.name.clone(),
                    shard,
                });
            }
            put(&mut told, &part.path, result, &run)?;
        }
    }
    let lacking = |shard: &Shard| !parts.iter().any(|part| part.run.shard == *shard);
    let missing: Vec<Shard> = first.run.shard.all().filter(lacking).collect();
    let of_missing = |name: &str| {
        let of = |shard: &&Shard| shard.holds(case_of(name));
        missing.iter().find(of)
    };
    for shard in &missing {
        let cases = first.run.entries.iter();
        let count = cases.filter(|name| shard.holds(case_of(name))).count();
        remarks.push(format!("{run}: shard {shard} is missing, {count} cases"));
    }
    for part in counted.iter().filter(|part| part.took.is_none()) {
        let untold = |name: &&String| {
            part.run.shard.holds(case_of(name)) && !told.contains_key(name.as_str())
        };
        let names: Vec<&str> = part
            .run
            .entries
            .iter()
            .filter(untold)
            .map(String::as_str)
            .collect();
        let (path, count) = (part.path.display(), names.len());
        remarks.push(format!(
            "{path}: the run was ended early, {count} cases have no result: {}",
            names.join(", ")
        ));
    }
    let result = |name: &String| match told.get(name.as_str()) {
        Some((_, result)) => (*result).clone(),
        None => {
            let why = match of_missing(name) {
                Some(shard) => format!("shard {shard} is missing"),
                None => "the run was ended before its result".to_owned(),
            };
            EntryResult::missing(name, suite, why)
        }
    };
    let results = first.run.entries.iter().map(result).collect();
    Ok(Report {
        run: Run {
            shard: Shard::WHOLE,
            started: earliest(parts),
            ..first.run.clone()
        },
        results,
        took: counted.iter().map(|part| took(part)).sum(),
    })
}

/// Whether a part says nothing that another does not: of the same shard, with a result that ended the same for each of its own.
fn is_again(other: &Part, part: &Part) -> bool {
    let told = |result: &EntryResult| {
        let mut results = other.results.iter();
        results.any(|known| {
            (&known.name, known.status, known.verdict)
                == (&result.name, result.status, result.verdict)
        })
    };
    other.run.shard == part.run.shard && part.results.iter().all(told)
}

/// Whether a part is of the same division of the same cases as the first one.
fn fit(first: &Part, part: &Part, run: &str) -> Result<(), MergeError> {
    let (run, path, other_path) = (run.to_owned(), part.path.clone(), first.path.clone());
    let (shard, other) = (part.run.shard, first.run.shard);
    if shard.count() != other.count() {
        return Err(MergeError::OtherShards {
            run,
            path,
            shard,
            other_path,
            other,
        });
    }
    let alone = |names: &[String], others: &[String]| {
        let mut names = names.iter();
        names.find(|name| !others.contains(name)).cloned()
    };
    let (ours, theirs) = (&first.run.entries, &part.run.entries);
    let differing = match ours == theirs {
        true => None,
        false => alone(ours, theirs).or_else(|| alone(theirs, ours)),
    };
    match differing {
        None => Ok(()),
        Some(name) => Err(MergeError::OtherCases {
            run,
            path,
            other_path,
            name,
        }),
    }
}

/// A case may be told of twice if it ended the same; that it is missing is less than a result.
fn put<'a>(
    told: &mut BTreeMap<&'a str, (&'a Path, &'a EntryResult)>,
    path: &'a Path,
    result: &'a EntryResult,
    run: &str,
) -> Result<(), MergeError> {
    let Some((other_path, other)) = told.get(result.name.as_str()).copied() else {
        told.insert(&result.name, (path, result));
        return Ok(());
    };
    let ended = |result: &EntryResult| (result.status, result.verdict);
    if ended(result) == ended(other) || result.verdict == Verdict::Missing {
        return Ok(());
    }
    if other.verdict == Verdict::Missing {
        told.insert(&result.name, (path, result));
        return Ok(());
    }
    Err(MergeError::TwoResults {
        name: result.name.clone(),
        run: run.to_owned(),
        path: path.to_owned(),
        verdict: result.verdict,
        other_path: other_path.to_owned(),
        other: other.verdict,
    })
}

fn case_of(entry: &str) -> &str {
    entry.strip_suffix(UNCHANGED).unwrap_or(entry)
}

/// How long a part took, as far as it tells.
fn took(part: &Part) -> Duration {
    let told = || part.results.iter().map(|result| result.took).sum();
    part.took.unwrap_or_else(told)
}

/// Timestamps of one shape are in the order of their texts.
fn earliest(parts: &[Part]) -> String {
    let started = parts.iter().map(|part| &part.run.started);
    started.min().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;
    use crate::report::tests::{ENTRIES, report};

    const SUITE: Suite = Suite {
        cases: &[],
        roles: &[],
        expectations: &[],
        afterwards: |_| Ok(()),
        exhaust: |_| false,
    };

    /// The files of a directory that stays for the test.
    fn files(reports: &[Report]) -> (tempfile::TempDir, Vec<PathBuf>) {
        let directory = tempfile::tempdir().expect("a directory");
        let put = |(number, report): (usize, &Report)| {
            let path = directory.path().join(format!("{number}.json"));
            let mut journal = Journal::create(&path).expect("it can be written");
            journal.write(report).expect("it is written");
            path
        };
        let paths = reports.iter().enumerate().map(put).collect();
        (directory, paths)
    }

    fn shards(count: u32) -> Vec<Report> {
        let shards = (1..=count).map(|index| report("ours", &format!("{index}/{count}")));
        shards.collect()
    }

    #[test]
    fn the_shards_of_a_run_are_the_run() {
        let (_directory, paths) = files(&shards(3));
        let merged = merge(&paths, &SUITE).expect("they fit");
        assert!(merged.remarks.is_empty(), "{:?}", merged.remarks);
        let [run] = &merged.runs[..] else {
            panic!("{} runs", merged.runs.len())
        };
        let whole = report("ours", "1/1");
        assert_eq!(run.run, whole.run);
        assert_eq!(run.results, whole.results);
        assert_eq!(run.took, whole.took * 3);
    }

    #[test]
    fn runs_of_two_targets_stay_two() {
        let (_directory, paths) = files(&[report("ours", "1/1"), report("none", "1/1")]);
        let merged = merge(&paths, &SUITE).expect("they fit");
        let targets: Vec<&str> = merged
            .runs
            .iter()
            .map(|run| run.run.target.as_str())
            .collect();
        assert_eq!(targets, ["ours", "none"]);
    }

    #[test]
    fn a_missing_shard_is_named_and_each_of_its_cases_is_missing() {
        let mut shards = shards(3);
        let lost = shards.remove(1);
        let (_directory, paths) = files(&shards);
        let merged = merge(&paths, &SUITE).expect("they fit");
        assert_eq!(merged.remarks.len(), 1, "{:?}", merged.remarks);
        assert!(merged.remarks[0].contains("shard 2/3 is missing"));
        let results = &merged.runs[0].results;
        assert_eq!(results.len(), ENTRIES.len());
        let missing: Vec<&str> = results
            .iter()
            .filter(|result| result.verdict == Verdict::Missing)
            .map(|result| result.name.as_str())
            .collect();
        let lost: Vec<&str> = lost.results.iter().map(|of| of.name.as_str()).collect();
        assert!(!lost.is_empty());
        assert_eq!(missing, lost);
        assert!(!merged.runs[0].is_expected());
    }

    #[test]
    fn a_late_shard_fills_what_an_earlier_merge_lacked() {
        let mut shards = shards(2);
        let late = shards.remove(1);
        let (_first, paths) = files(&shards);
        let incomplete = merge(&paths, &SUITE).expect("they fit");
        // A merged report is of the whole, and so is the late one once it is merged alone.
        let (_second, paths) = files(&[late]);
        let late = merge(&paths, &SUITE).expect("it fits");
        let (_third, paths) = files(&[incomplete.runs, late.runs].concat());
        let merged = merge(&paths, &SUITE).expect("they fit");
        assert_eq!(merged.runs[0].results, report("ours", "1/1").results);
    }

    #[test]
    fn a_runner_killed_early_keeps_what_it_said_and_the_rest_is_named() {
        let (_directory, paths) = files(&[report("ours", "1/1")]);
        let text = std::fs::read_to_string(&paths[0]).expect("it is there");
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let half = lines[2].len() / 2;
        let cut = lines[..2].concat() + &lines[2][..half];
        std::fs::write(&paths[0], cut).expect("it is written");
        let merged = merge(&paths, &SUITE).expect("it reads");
        assert_eq!(merged.remarks.len(), 2, "{:?}", merged.remarks);
        assert!(merged.remarks[0].contains(&format!("{half} bytes are left out")));
        for name in &ENTRIES[1..] {
            assert!(merged.remarks[1].contains(name), "{:?}", merged.remarks);
        }
        let results = &merged.runs[0].results;
        assert_eq!(results[0], report("ours", "1/1").results[0]);
        let missing = |result: &EntryResult| result.verdict == Verdict::Missing;
        assert!(results[1..].iter().all(missing));
    }

    #[test]
    fn a_case_with_two_results_is_an_error_that_names_both_files() {
        let one = report("ours", "1/1");
        let mut other = one.clone();
        other.results[0].verdict = Verdict::Crash;
        let (_directory, paths) = files(&[one.clone(), other]);
        match merge(&paths, &SUITE) {
            Err(MergeError::TwoResults {
                name,
                path,
                other_path,
                verdict: Verdict::Crash,
                ..
            }) => {
                assert_eq!(name, ENTRIES[0]);
                assert_eq!([other_path, path], paths[..]);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_shard_that_is_given_twice_counts_once_and_is_named() {
        let mut shards = shards(2);
        shards.push(shards[1].clone());
        let (_directory, paths) = files(&shards);
        let merged = merge(&paths, &SUITE).expect("they fit");
        let [remark] = &merged.remarks[..] else {
            panic!("{:?}", merged.remarks)
        };
        for words in ["shard 2/2", "1.json", "2.json", "counted once"] {
            assert!(remark.contains(words), "{remark}");
        }
        let (run, whole) = (&merged.runs[0], report("ours", "1/1"));
        assert_eq!(run.results, whole.results);
        assert_eq!(run.took, whole.took * 2);
    }

    #[test]
    fn parts_of_other_divisions_or_other_cases_do_not_fit() {
        let (_directory, paths) = files(&[report("ours", "1/2"), report("ours", "1/3")]);
        assert!(matches!(
            merge(&paths, &SUITE),
            Err(MergeError::OtherShards { .. })
        ));
        let mut other = report("ours", "2/2");
        other.run.entries.push("another_case".to_owned());
        let (_directory, paths) = files(&[report("ours", "1/2"), other]);
        assert!(matches!(
            merge(&paths, &SUITE),
            Err(MergeError::OtherCases { name, .. }) if name == "another_case"
        ));
        let mut stray = report("ours", "1/2");
        stray.results = report("ours", "2/2").results;
        let (_directory, paths) = files(&[stray]);
        assert!(matches!(
            merge(&paths, &SUITE),
            Err(MergeError::Stray { .. })
        ));
    }
}
