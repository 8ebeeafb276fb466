//! `ringfence nightly`: everything that this machine's hardware can run, held against the last night that was good.
//!
//! A night is a directory: `report.json`, `report.html` and `junit.xml` of all runs; `traces`, what the driver was asked with nothing before it;
//! `probe.toml`, the driver itself; `verdict.txt`, and in `traces.txt` and `driver.md` what it is founded on. What is worse than in the last good night is a regression: a case that is shown no longer, a call
//! that is answered otherwise, a driver that changed under the hooks, besides whatever is unexpected by itself.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use harness::journal;
use harness::report::{Report, Run};
use harness::trace_diff::{self, Rules};
use harness::{EntryResult, Shard, Target, Verdict};

use crate::arguments::{DiffArguments, NightlyArguments, ProbeArguments, TestArguments};
use crate::outputs::Outputs;
use crate::{UNEXPECTED, diff, probe, test};

const REPORT: &str = "report.json";
const PAGE: &str = "report.html";
const JUNIT: &str = "junit.xml";
const TRACES: &str = "traces";
const PROBE: &str = "probe.toml";
const VERDICT: &str = "verdict.txt";
/// A link to the last night that was good, beside the nights.
const LAST_GOOD: &str = "last-good";
/// The target under which the driver itself is recorded.
const BARE: &str = "none";

pub fn run(arguments: &NightlyArguments) -> Result<ExitCode, Box<dyn Error>> {
    let linked = arguments.out.join(LAST_GOOD);
    let last = match &arguments.last_good {
        Some(directory) => Some(directory.clone()),
        None => linked.exists().then(|| linked.clone()),
    };
    if let Some(last) = last.as_ref().filter(|last| !last.join(REPORT).is_file()) {
        return Err(format!("{}: no night: it has no {REPORT}", last.display()).into());
    }
    // One that is none is known before the first has run for an hour.
    for target in &arguments.target {
        Target::named(target)?;
    }
    let night = begin(&arguments.out)?;

    let runs = suites(arguments, &night)?;
    let probed = probe::run(&ProbeArguments {
        output: night.join(PROBE),
        driver: arguments.driver.clone(),
        section: Vec::new(),
        name: None,
    });

    let mut verdict = Night::default();
    for run in &runs {
        verdict.say(run.summary());
        for result in run.results.iter().filter(|of| !of.verdict.is_expected()) {
            let story = harness::report::story(result);
            verdict.regression(format!("{}: {}: {story}", run.run, result.name));
        }
    }
    if let Err(error) = &probed {
        verdict.regression(format!("the driver could not be probed: {error}"));
    }
    match &last {
        None => verdict.say(format!(
            "no last good night in {}: nothing to compare with",
            arguments.out.display()
        )),
        Some(last) => {
            verdict.say(format!("compared with {}", named(last)));
            results_since(&mut verdict, last, &runs)?;
            traces_since(&mut verdict, last, &night)?;
            driver_since(&mut verdict, last, &night)?;
        }
    }
    let text = verdict.text();
    std::fs::write(night.join(VERDICT), &text)?;
    crate::say(&format!("\n{text}{}\n", night.display()))?;
    if !verdict.regressions.is_empty() {
        return Ok(ExitCode::from(UNEXPECTED));
    }
    if arguments.last_good.is_none() {
        point(&linked, &night)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A directory that is new: `2026-11-22T03-00-00Z`.
fn begin(out: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let now = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    let night = out.join(now.replace([':', '.'], "-"));
    let made = std::fs::create_dir_all(out).and_then(|()| std::fs::create_dir(&night));
    made.map_err(|error| format!("{}: {error}", night.display()))?;
    Ok(night)
}

/// Runs the suite for each target, and without one with the driver's calls recorded.
fn suites(arguments: &NightlyArguments, night: &Path) -> Result<Vec<Report>, Box<dyn Error>> {
    let file = |kind: &str, name: &str| format!("{kind}={}", night.join(name).display());
    let asked = [
        file("json", REPORT),
        file("html", PAGE),
        file("junit", JUNIT),
    ];
    let mut outputs = Outputs::open(&asked)?;
    let mut runs = Vec::new();
    let targets = arguments.target.iter().map(String::as_str);
    for target in targets.chain([BARE]) {
        let bare = target == BARE;
        let tests = TestArguments {
            filters: arguments.filters.clone(),
            without: Vec::new(),
            target: target.to_owned(),
            driver: arguments.driver.clone(),
            matrix: false,
            seed: None,
            report: Vec::new(),
            shard: Shard::WHOLE,
            trace: bare.then(|| night.join(TRACES)),
            jobs: arguments.jobs,
            verbose: false,
        };
        let report = test::over(&tests, &arguments.driver, &mut outputs)?;
        eprintln!("{}", report.summary());
        runs.push(report);
    }
    outputs.finish(&runs)?;
    Ok(runs)
}

/// What a night comes to.
#[derive(Default)]
struct Night {
    lines: Vec<String>,
    regressions: Vec<String>,
}

impl Night {
    fn say(&mut self, line: String) {
        self.lines.push(line);
    }

    fn regression(&mut self, line: String) {
        self.regressions.push(line);
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            text += line;
            text.push('\n');
        }
        for regression in &self.regressions {
            // A String takes whatever it is given.
            let _ = writeln!(text, "REGRESSION: {regression}");
        }
        let good = match self.regressions.len() {
            0 => "good".to_owned(),
            count => format!("{count} regressions"),
        };
        let _ = writeln!(text, "verdict: {good}");
        text
    }
}

/// A night by the name that it was given, not by the link to it.
fn named(night: &Path) -> String {
    let real = night.canonicalize().unwrap_or_else(|_| night.to_owned());
    real.display().to_string()
}

/// Cases that showed something and do no longer.
fn results_since(night: &mut Night, last: &Path, runs: &[Report]) -> Result<(), Box<dyn Error>> {
    let then = journal::read(&last.join(REPORT))?;
    for part in &then.parts {
        let of = |run: &&Report| same(&run.run, &part.run);
        let Some(now) = runs.iter().find(of) else {
            night.say(format!("not run this time: {}", part.run));
            continue;
        };
        if now.run.machine != part.run.machine {
            let (then, now) = (&part.run.machine, &now.run.machine);
            night.say(format!("another machine: {now}, it was {then}"));
        }
        let results = now.results.iter();
        let by_name: BTreeMap<&str, &EntryResult> = results
            .map(|result| (result.name.as_str(), result))
            .collect();
        for before in &part.results {
            let after = by_name.get(before.name.as_str()).map(|after| after.verdict);
            if is_less(before.verdict, after) {
                let after = after.map_or("not run".to_owned(), |after| after.to_string());
                let (run, name, before) = (&now.run, &before.name, before.verdict);
                night.regression(format!("{run}: {name}: {after}, it was {before}"));
            }
        }
    }
    Ok(())
}

fn same(run: &Run, other: &Run) -> bool {
    (&run.target, &run.driver) == (&other.target, &other.driver)
}

/// Whether a case shows less than it did. What is unexpected by itself is told as that.
fn is_less(before: Verdict, after: Option<Verdict>) -> bool {
    let shows = |verdict: Verdict| match verdict {
        Verdict::Pass => 2,
        Verdict::ExpectedFail | Verdict::KnownFlake => 1,
        _ => 0,
    };
    match after {
        Some(after) if !after.is_expected() => false,
        // A flake passes at times.
        Some(Verdict::KnownFlake) => false,
        Some(after) => shows(after) < shows(before),
        None => shows(before) > 0,
    }
}

/// What the driver is asked and answers, case by case.
fn traces_since(night: &mut Night, last: &Path, now: &Path) -> Result<(), Box<dyn Error>> {
    let [then, now] = [last, now].map(|of| of.join(TRACES));
    let comparison = trace_diff::compare(&then, &now, &Rules::shipped()?)?;
    std::fs::write(now.with_extension("txt"), comparison.report(true))?;
    for (api, tally) in &comparison.tallies {
        let (share, calls) = (tally.share(), tally.calls());
        night.say(format!(
            "traces: {api} {share:.2} % of {calls} calls as then"
        ));
    }
    // Cases whose processes race are made differently every time.
    let ordered = |case: &str| {
        let case = cases::SUITE
            .cases()
            .find(|of| harness::traces::file_name(of.name) == format!("{case}.jsonl"));
        case.is_none_or(|case| case.unordered.is_empty())
    };
    for difference in &comparison.differences {
        if difference.reason.is_none() && ordered(&difference.case) {
            let (case, entry, what) = (&difference.case, &difference.entry, &difference.what);
            night.regression(format!("trace of {case}: {entry}: {what}"));
        }
    }
    for (alone, (left, right)) in &comparison.unpaired {
        if alone.reason.is_none() && ordered(&alone.case) {
            let (case, entry) = (&alone.case, &alone.entry);
            night.regression(format!(
                "trace of {case}: {entry}: {left} calls then and {right} now without a counterpart"
            ));
        }
    }
    Ok(())
}

/// What changed in the driver under the hooks: `ringfence diff`.
fn driver_since(night: &mut Night, last: &Path, now: &Path) -> Result<(), Box<dyn Error>> {
    let [old, new] = [last, now].map(|of| of.join(PROBE));
    if !old.is_file() || !new.is_file() {
        night.say("driver: one of the nights has no probe".to_owned());
        return Ok(());
    }
    let breaks = diff::breaks(&DiffArguments {
        old,
        new,
        markdown: Some(now.join("driver.md")),
        json: None,
        allow: None,
        strict: false,
        all: false,
    })?;
    match breaks {
        true => night.regression("the driver breaks what hooks rely on: driver.md".to_owned()),
        false => night.say("driver: nothing that breaks a hook".to_owned()),
    }
    Ok(())
}

/// Has the link name this night, at no moment nothing.
fn point(link: &Path, night: &Path) -> Result<(), Box<dyn Error>> {
    let name = night.file_name().unwrap_or_default();
    let fresh = link.with_extension("new");
    let _ = std::fs::remove_file(&fresh);
    std::os::unix::fs::symlink(name, &fresh)
        .and_then(|()| std::fs::rename(&fresh, link))
        .map_err(|error| format!("{}: {error}", link.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_that_shows_less_than_it_did_is_a_regression() {
        use Verdict::{ExpectedFail, Fail, KnownFlake, Pass, Skip};
        for (before, after, less) in [
            (Pass, Some(Pass), false),
            (Pass, Some(Skip), true),
            (Pass, Some(ExpectedFail), true),
            (Pass, None, true),
            (ExpectedFail, Some(Skip), true),
            (ExpectedFail, Some(Pass), false),
            (Pass, Some(KnownFlake), false),
            (Skip, None, false),
            (Skip, Some(Pass), false),
            // Told by itself.
            (Pass, Some(Fail), false),
        ] {
            assert_eq!(is_less(before, after), less, "{before} {after:?}");
        }
    }
}
