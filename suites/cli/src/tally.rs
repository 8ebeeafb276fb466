//! `ringfence tally`: what reports say of each known defect, side by side, and the expectation lines that they amount to.
//!
//! Reports of the same target over the same driver are repetitions: a case counts by its worst end, and one that did not always end so is a flake.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use harness::{Case, Status};

use crate::arguments::TallyArguments;

pub fn run(arguments: &TallyArguments) -> Result<ExitCode, Box<dyn Error>> {
    let mut runs: Vec<Run> = Vec::new();
    for path in &arguments.files {
        read(path, &mut runs)?;
    }
    let text = match arguments.expectations {
        true => runs.iter().map(Run::expectations).collect(),
        false => table(&runs)?,
    };
    crate::say(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// What a report says of one case; of the other lines that a report may have nothing is asked.
#[derive(serde::Deserialize)]
struct Line {
    target: String,
    driver: String,
    name: String,
    status: Option<String>,
    detail: String,
}

/// One target over one driver.
#[derive(Debug, Default)]
struct Run {
    target: String,
    driver: String,
    /// Every end of each case, with what was seen.
    ends: BTreeMap<String, Vec<(Status, String)>>,
}

fn read(path: &Path, runs: &mut Vec<Run>) -> Result<(), Box<dyn Error>> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
    for (index, text) in text.lines().enumerate() {
        let wrong = |what: &dyn std::fmt::Display| format!("{shown}:{}: {what}", index + 1);
        let value: serde_json::Value = serde_json::from_str(text).map_err(|error| wrong(&error))?;
        if value.get("name").is_none() {
            continue;
        }
        let line: Line = serde_json::from_value(value).map_err(|error| wrong(&error))?;
        let status: Status = line
            .status
            .as_deref()
            .and_then(|status| status.parse().ok())
            .ok_or_else(|| wrong(&format_args!("{} was not run: {}", line.name, line.detail)))?;
        let known = |run: &Run| run.target == line.target && run.driver == line.driver;
        let place = runs.iter().position(known).unwrap_or_else(|| {
            runs.push(Run {
                target: line.target.clone(),
                driver: line.driver.clone(),
                ends: BTreeMap::new(),
            });
            runs.len() - 1
        });
        let ends = runs[place].ends.entry(line.name).or_default();
        ends.push((status, line.detail));
    }
    Ok(())
}

/// From the best to the worst. A skipped case says nothing, so that any other end counts before it.
const WORSE: [Status; 5] = [
    Status::Skip,
    Status::Pass,
    Status::Fail,
    Status::Crash,
    Status::Timeout,
];

fn severity(status: Status) -> usize {
    WORSE
        .iter()
        .position(|known| *known == status)
        .unwrap_or(WORSE.len())
}

impl Run {
    /// A case's worst end and what was seen then.
    fn worst(&self, name: &str) -> Option<&(Status, String)> {
        let ends = self.ends.get(name)?;
        ends.iter().max_by_key(|(status, _)| severity(*status))
    }

    /// `3/8: 4 fail, 1 crash`: how many cases passed of those that could be run, and how the others ended.
    fn cell(&self, cases: &[&Case]) -> String {
        let mut counts = [0usize; WORSE.len()];
        for (status, _) in cases.iter().filter_map(|case| self.worst(case.name)) {
            counts[severity(*status)] += 1;
        }
        let [skips, passed, failures @ ..] = counts;
        let ran = passed + failures.iter().sum::<usize>();
        if ran == 0 {
            return match skips {
                0 => "–".to_owned(),
                skips => format!("– ({skips} skipped)"),
            };
        }
        let ends = failures
            .iter()
            .zip(["fail", "crash", "time out"])
            .filter(|(count, _)| **count > 0);
        let ends: Vec<_> = ends.map(|(count, end)| format!("{count} {end}")).collect();
        let mut cell = format!("{passed}/{ran}");
        if !ends.is_empty() {
            cell += &format!(": {}", ends.join(", "));
        }
        if skips > 0 {
            cell += &format!(" ({skips} skipped)");
        }
        cell
    }

    /// The lines of its expectation files: what always ended otherwise than by a pass, and what sometimes did.
    fn expectations(&self) -> String {
        let (mut always, mut sometimes) = (String::new(), String::new());
        for (name, ends) in &self.ends {
            let Some((worst, seen)) = self.worst(name) else {
                continue;
            };
            if matches!(worst, Status::Pass | Status::Skip) {
                continue;
            }
            let all = ends.iter().all(|(status, _)| status == worst);
            let lines = if all { &mut always } else { &mut sometimes };
            let seen = seen.split_whitespace().collect::<Vec<_>>().join(" ");
            // A String takes whatever it is given.
            let _ = writeln!(lines, "{name},{worst:?}  # {seen}");
        }
        let (target, driver) = (&self.target, &self.driver);
        format!(
            "# {target} on {driver}: fails\n{always}# {target} on {driver}: flakes\n{sometimes}"
        )
    }
}

/// A row of Markdown for each known defect, then what no row knows of, then all.
fn table(runs: &[Run]) -> Result<String, Box<dyn Error>> {
    let cases: Vec<&Case> = cases::SUITE.cases().collect();
    for run in runs {
        let unknown = |name: &&String| !cases.iter().any(|case| case.name == **name);
        if let Some(name) = run.ends.keys().find(unknown) {
            return Err(format!(
                "{} on {}: there is no case {name}: reports of another version?",
                run.target, run.driver
            )
            .into());
        }
    }
    let mut text = "| row | the promise |".to_owned();
    for run in runs {
        write!(text, " {} on {} |", run.target, run.driver)?;
    }
    text.push_str("\n|---|---|");
    text.push_str(&"---|".repeat(runs.len()));
    text.push('\n');
    let mut row = |id: &str, promise: &str, of_row: &dyn Fn(&Case) -> bool| {
        let of_row: Vec<&Case> = cases.iter().copied().filter(|case| of_row(case)).collect();
        write!(text, "| {id} | {promise} |")?;
        for run in runs {
            write!(text, " {} |", run.cell(&of_row))?;
        }
        writeln!(text)
    };
    for (id, promise) in crate::list::defects()? {
        row(id, promise, &|case| case.defects.contains(&id))?;
    }
    row("", "cases of no row", &|case| case.defects.is_empty())?;
    row("", "all cases", &|_| true)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ends: &[(&str, &[Status])]) -> Run {
        let ends = ends.iter().map(|(name, ends)| {
            let ends = ends.iter().map(|end| (*end, format!("seen\n {end:?}")));
            ((*name).to_owned(), ends.collect())
        });
        Run {
            target: "other".to_owned(),
            driver: "mock".to_owned(),
            ends: ends.collect(),
        }
    }

    #[test]
    fn a_case_counts_by_its_worst_end_and_flakes_where_it_had_a_better_one() {
        let run = run(&[
            ("always", &[Status::Crash, Status::Crash]),
            ("never", &[Status::Pass, Status::Pass]),
            ("skipped", &[Status::Skip]),
            ("sometimes", &[Status::Pass, Status::Fail]),
        ]);
        assert_eq!(
            run.expectations(),
            "# other on mock: fails\nalways,Crash  # seen Crash\n# other on mock: flakes\nsometimes,Fail  # seen Fail\n"
        );
        let case = |name| Case {
            name,
            ..Case::BLANK
        };
        let cases = ["always", "never", "skipped", "sometimes", "unknown"].map(case);
        let cases: Vec<&Case> = cases.iter().collect();
        assert_eq!(run.cell(&cases), "1/3: 1 fail, 1 crash (1 skipped)");
        assert_eq!(run.cell(&cases[2..3]), "– (1 skipped)");
        assert_eq!(run.cell(&cases[4..]), "–");
    }
}
