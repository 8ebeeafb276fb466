//! A run's results, and how a person reads them on a terminal. How programs do is in [`crate::journal`] and [`crate::junit`], the page in [`crate::page`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::machine;
use crate::runner::{EntryResult, Runner};
use crate::shard::Shard;
use crate::status::Verdict;

/// What a run is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub target: String,
    pub driver: String,
    /// The real driver's version and GPU; empty over mocks.
    pub machine: String,
    /// Which part of the entries was run.
    pub shard: Shard,
    /// RFC 3339, UTC.
    pub started: String,
    /// Names of all that the run and its other shards are of.
    pub entries: Vec<String>,
}

impl Run {
    /// One that begins now.
    pub fn new(runner: &Runner, shard: Shard, entries: Vec<String>) -> Self {
        let machine = match runner.driver.is_real() {
            true => machine::of_this_host(),
            false => String::new(),
        };
        Self {
            target: runner.target.name.clone(),
            driver: runner.driver.to_string(),
            machine,
            shard,
            started: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            entries,
        }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} on {}", self.target, self.driver)?;
        match self.machine.as_str() {
            "" => Ok(()),
            machine => write!(out, " ({machine})"),
        }
    }
}

/// The results of one run.
#[derive(Clone, Debug)]
pub struct Report {
    pub run: Run,
    pub results: Vec<EntryResult>,
    pub took: Duration,
}

/// More results than this with one and the same reason are counted, not named.
const SAME_STORY: usize = 3;

/// Columns of the table: a heading and the verdicts that it counts.
const COLUMNS: [(&str, &[Verdict]); 4] = [
    ("pass", &[Verdict::Pass]),
    (
        "expected fail",
        &[Verdict::ExpectedFail, Verdict::KnownFlake],
    ),
    ("skip", &[Verdict::Skip]),
    (
        "unexpected",
        &[
            Verdict::Fail,
            Verdict::Crash,
            Verdict::Timeout,
            Verdict::UnexpectedImprovement,
            Verdict::Missing,
        ],
    ),
];

impl Report {
    pub fn is_expected(&self) -> bool {
        self.results
            .iter()
            .all(|result| result.verdict.is_expected())
    }

    /// The table by area, then everything that is not simply a Pass, the unexpected last.
    pub fn table(&self) -> String {
        let mut text = String::new();
        self.counts(&mut text);
        self.section(&mut text, "Skipped", &[Verdict::Skip]);
        self.section(
            &mut text,
            "Expected failures",
            &[Verdict::ExpectedFail, Verdict::KnownFlake],
        );
        self.section(&mut text, "Unexpected", COLUMNS[3].1);
        put(&mut text, format_args!("\n{}\n", self.summary()));
        text
    }

    /// The last line of the table.
    pub fn summary(&self) -> String {
        let as_expected = self.count(|verdict| verdict.is_expected());
        let (total, seconds) = (self.results.len(), self.took.as_secs_f64());
        let run = &self.run;
        let shard = match run.shard {
            Shard::WHOLE => String::new(),
            shard => format!(", shard {shard}"),
        };
        format!("{as_expected} of {total} as expected: {run}{shard}, {seconds:.1} s")
    }

    /// Several runs, a line each with what `COLUMNS` count; what was skipped in any, and why; what was unexpected.
    pub fn matrix(runs: &[Report]) -> String {
        let width = runs
            .iter()
            .map(|run| run.run.driver.len())
            .max()
            .unwrap_or(0);
        let mut text = String::new();
        put(&mut text, format_args!("{:<width$}  cases", "driver"));
        for (heading, _) in COLUMNS {
            put(&mut text, format_args!("  {heading}"));
        }
        put(&mut text, format_args!("  seconds\n"));
        for run in runs {
            put(
                &mut text,
                format_args!("{:<width$}  {:>5}", run.run.driver, run.results.len()),
            );
            for (heading, verdicts) in COLUMNS {
                let count = run.count(|verdict| verdicts.contains(&verdict));
                put(
                    &mut text,
                    format_args!("  {count:>width$}", width = heading.len()),
                );
            }
            put(
                &mut text,
                format_args!("  {:>7.1}\n", run.took.as_secs_f64()),
            );
        }
        let mut skipped: BTreeMap<(&str, String), usize> = BTreeMap::new();
        for result in runs.iter().flat_map(|run| &run.results) {
            if result.verdict == Verdict::Skip {
                *skipped.entry((&result.name, story(result))).or_default() += 1;
            }
        }
        for ((name, why), times) in skipped {
            put(
                &mut text,
                format_args!("skipped {times} times: {name}: {why}\n"),
            );
        }
        for run in runs.iter().filter(|run| !run.is_expected()) {
            put(&mut text, format_args!("\n{}", run.run.driver));
            run.section(&mut text, "Unexpected", COLUMNS[3].1);
        }
        text
    }

    /// Several runs, a line each, and what was unexpected in any.
    pub fn summaries(runs: &[Report]) -> String {
        let mut text = String::new();
        for run in runs {
            run.section(&mut text, "Unexpected", COLUMNS[3].1);
            put(&mut text, format_args!("{}\n", run.summary()));
        }
        text
    }

    fn count(&self, counted: impl Fn(Verdict) -> bool) -> usize {
        let verdicts = self.results.iter().map(|result| result.verdict);
        verdicts.filter(|verdict| counted(*verdict)).count()
    }

    /// Every result with its time, in the order of the suite.
    pub fn listing(&self) -> String {
        let width = self
            .results
            .iter()
            .map(|result| result.name.len())
            .max()
            .unwrap_or(0);
        let mut text = String::new();
        for result in &self.results {
            let (verdict, seconds) = (result.verdict.to_string(), result.took.as_secs_f64());
            put(
                &mut text,
                format_args!("{verdict:<21} {:<width$} {seconds:>7.2} s\n", result.name),
            );
        }
        text
    }

    fn counts(&self, text: &mut String) {
        let mut areas: BTreeMap<&str, Vec<&EntryResult>> = BTreeMap::new();
        for result in &self.results {
            areas.entry(&result.area).or_default().push(result);
        }
        let width = areas
            .keys()
            .map(|area| area.len())
            .max()
            .unwrap_or(0)
            .max("area".len());
        put(text, format_args!("{:<width$}  cases", "area"));
        for (heading, _) in COLUMNS {
            put(text, format_args!("  {heading}"));
        }
        put(text, format_args!("  seconds\n"));
        let rows = areas.iter().map(|(area, results)| (*area, results.clone()));
        for (area, results) in rows.chain([("all", self.results.iter().collect())]) {
            put(text, format_args!("{area:<width$}  {:>5}", results.len()));
            for (heading, verdicts) in COLUMNS {
                let of_these = |result: &&&EntryResult| verdicts.contains(&result.verdict);
                let count = results.iter().filter(of_these).count();
                put(
                    text,
                    format_args!("  {count:>width$}", width = heading.len()),
                );
            }
            let took: Duration = results.iter().map(|result| result.took).sum();
            put(text, format_args!("  {:>7.1}\n", took.as_secs_f64()));
        }
    }

    fn section(&self, text: &mut String, heading: &str, verdicts: &[Verdict]) {
        let of_these: Vec<_> = self
            .results
            .iter()
            .filter(|result| verdicts.contains(&result.verdict))
            .collect();
        if of_these.is_empty() {
            return;
        }
        put(text, format_args!("\n{heading}\n"));
        let mut told = BTreeSet::new();
        for result in &of_these {
            let story = story(result);
            let alike: Vec<_> = of_these
                .iter()
                .filter(|other| self::story(other) == story)
                .collect();
            if result.verdict.is_expected() && alike.len() > SAME_STORY {
                if told.insert(story.clone()) {
                    put(text, format_args!("  {} cases: {story}\n", alike.len()));
                }
                continue;
            }
            put(text, format_args!("  {}: {story}\n", result.name));
            if !result.verdict.is_expected() {
                for line in result.said.lines() {
                    put(text, format_args!("    | {line}\n"));
                }
            }
        }
    }
}

/// Why a result is what it is, on one line.
pub fn story(result: &EntryResult) -> String {
    let detail = result.detail.lines().collect::<Vec<_>>().join(" ");
    match result.verdict {
        Verdict::Pass => String::new(),
        Verdict::Skip => detail,
        Verdict::ExpectedFail | Verdict::KnownFlake => result.reason.clone(),
        Verdict::UnexpectedImprovement => {
            format!(
                "UnexpectedImprovement: it passes, though expected to fail ({})",
                result.reason
            )
        }
        Verdict::Fail | Verdict::Crash | Verdict::Timeout | Verdict::Missing => {
            format!("{}: {detail}", result.verdict)
        }
    }
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // A String takes whatever it is given.
    let _ = text.write_fmt(arguments);
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::status::Status;

    /// What the runs of tests are of.
    pub(crate) const ENTRIES: [&str; 6] = ["one", "two", "three", "four", "five", "six"];

    /// A shard of a run in which all passed.
    pub(crate) fn report(target: &str, shard: &str) -> Report {
        let shard: Shard = shard.parse().expect("a shard");
        let result = |name: &str| EntryResult {
            name: name.to_owned(),
            area: "area".to_owned(),
            promise: format!("Keeps {name}."),
            defects: vec!["V1".to_owned()],
            status: Some(Status::Pass),
            verdict: Verdict::Pass,
            detail: String::new(),
            reason: String::new(),
            said: String::new(),
            calls: String::new(),
            courses: Vec::new(),
            took: Duration::from_millis(250),
        };
        let names = ENTRIES.into_iter().filter(|name| shard.holds(name));
        Report {
            run: Run {
                target: target.to_owned(),
                driver: "mock".to_owned(),
                machine: String::new(),
                shard,
                started: "2026-11-22T13:00:00Z".to_owned(),
                entries: ENTRIES.map(str::to_owned).to_vec(),
            },
            results: names.map(result).collect(),
            took: Duration::from_secs(2),
        }
    }
}
