//! What a sweep has shown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use super::{Baseline, LeftOut, Outcome};
use crate::status::Status;

/// The outcomes of a sweep.
pub struct SweepReport<'a> {
    pub baselines: &'a [Baseline],
    pub left_out: &'a [LeftOut],
    pub outcomes: &'a [Outcome<'a>],
    /// How many outcomes there would be, had it not been stopped.
    pub planned: usize,
    pub took: Duration,
}

#[derive(Default)]
struct Row {
    runs: usize,
    beyond: usize,
    passed: usize,
    told: usize,
    died: usize,
    broken: usize,
}

impl SweepReport<'_> {
    /// Runs that broke a promise, each time.
    pub fn broken(&self) -> usize {
        self.outcomes
            .iter()
            .filter(|outcome| !outcome.findings.is_empty())
            .count()
    }

    /// A table by effect, what was broken and how to see it again, and the sum.
    pub fn text(&self) -> String {
        let mut text = self.table();
        // Writing to a String cannot fail.
        let _ = self.listed(&mut text);
        let sites: usize = self
            .baselines
            .iter()
            .map(|baseline| baseline.sites.len())
            .sum();
        let entries = self.baselines.iter().flat_map(|baseline| &baseline.sites);
        let entries: BTreeSet<&str> = entries.map(|site| site.entry.as_str()).collect();
        let (cases, runs, broken) = (self.baselines.len(), self.outcomes.len(), self.broken());
        if runs < self.planned {
            let _ = writeln!(text, "\nstopped: {runs} of {} runs were made", self.planned);
        }
        let _ = writeln!(
            text,
            "\n{cases} cases, {sites} consultations of {} entry points, {runs} runs with a fault, {broken} that broke a promise, {:.0} s",
            entries.len(),
            self.took.as_secs_f64()
        );
        text
    }

    fn table(&self) -> String {
        let mut rows: BTreeMap<String, Row> = BTreeMap::new();
        for outcome in self.outcomes {
            let effects: Vec<String> = outcome
                .step
                .hits
                .iter()
                .map(|hit| String::from(hit.effect.clone()))
                .collect();
            // Of pairs one row.
            let name = match &effects[..] {
                [one] => one.clone(),
                _ => "two faults".to_owned(),
            };
            let row = rows.entry(name).or_default();
            row.runs += 1;
            match outcome.status {
                _ if !outcome.reached => row.beyond += 1,
                Some(Status::Pass) => row.passed += 1,
                Some(Status::Fail | Status::Skip) => row.told += 1,
                _ => row.died += 1,
            }
            row.broken += usize::from(!outcome.findings.is_empty());
        }
        let mut text =
            String::from("effect            runs  beyond  passed    told   ended  broken\n");
        for (name, row) in rows {
            let Row {
                runs,
                beyond,
                passed,
                told,
                died,
                broken,
            } = row;
            let _ = writeln!(
                text,
                "{name:<14} {runs:>7} {beyond:>7} {passed:>7} {told:>7} {died:>7} {broken:>7}"
            );
        }
        text
    }

    fn listed(&self, text: &mut String) -> std::fmt::Result {
        for left in self.left_out {
            writeln!(text, "left out: {}: {}", left.case, left.why)?;
        }
        for outcome in self.outcomes {
            let entries: Vec<&str> = outcome
                .step
                .hits
                .iter()
                .map(|hit| hit.entry.as_str())
                .collect();
            let entries = entries.join(", ");
            let found = match outcome.confirmed {
                true => "BROKEN",
                false => "FOUND, NOT LOOKED AT AGAIN",
            };
            for (heading, findings) in [
                ("ends without the enforcer too", &outcome.bare),
                ("NOT SEEN AGAIN", &outcome.unsteady),
                (found, &outcome.findings),
            ] {
                for finding in findings {
                    let (promise, command) = (finding.promise.name(), outcome.step.command());
                    writeln!(
                        text,
                        "{heading}: {promise}, at {entries}: {finding}\n    {command}"
                    )?;
                }
            }
            for (finding, reason) in &outcome.known {
                let (promise, case) = (finding.promise.name(), outcome.step.baseline.case.name);
                writeln!(text, "known: {promise}, {case} at {entries}: {reason}")?;
            }
            if !outcome.findings.is_empty() {
                for line in outcome.said.lines() {
                    writeln!(text, "    | {line}")?;
                }
            }
        }
        Ok(())
    }
}
