//! Runs the entries of a suite against a target over a driver, a few at a time, and judges each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use mock_device::{Api, Bytes};

use crate::case::{Case, Kind, RealDriver, Suite};
use crate::course::{Course, Observer};
use crate::driver::Driver;
use crate::environment::{Environment, EnvironmentError, Request};
use crate::execution::{Ending, Look, execute, execute_observed};
use crate::expectations::{self, Expectations, LineError};
use crate::nvml::{self, NvmlError};
use crate::pool;
use crate::status::{Status, Verdict, judge};
use crate::symbols;
use crate::target::{Target, TargetError};
use crate::traces;

/// What the entry that compares a case's traces is called: the case's name with this.
pub const UNCHANGED: &str = "::unchanged";

/// Where, in a directory of traces, those lie that the mocks wrote themselves in the same run.
pub const OWN_TRACES: &str = "own";

/// One thing to run.
#[derive(Clone, Copy)]
pub struct Entry {
    pub case: &'static Case,
    check: Check,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    /// The case's own promise.
    Promise,
    /// That the drivers see the same calls as without the target.
    Unchanged,
}

impl Entry {
    pub fn name(&self) -> String {
        match self.check {
            Check::Promise => self.case.name.to_owned(),
            Check::Unchanged => format!("{}{UNCHANGED}", self.case.name),
        }
    }
}

/// What came of an entry.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct EntryResult {
    pub name: String,
    pub area: String,
    /// On one line.
    pub promise: String,
    /// Rows of the defect list that it can catch.
    pub defects: Vec<String>,
    /// None where it could not be run.
    pub status: Option<Status>,
    pub verdict: Verdict,
    /// What was seen, or why it was skipped.
    pub detail: String,
    /// Why another end than Pass was expected.
    pub reason: String,
    /// The end of its stderr.
    pub said: String,
    /// The last calls that the drivers got of it, a line of JSON each, where it was traced.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub calls: String,
    /// What the devices held and the ledger knew of, where a report was to show it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub courses: Vec<Course>,
    #[serde(with = "seconds")]
    pub took: Duration,
}

impl EntryResult {
    /// Of an entry of which nobody can say how it ended.
    pub fn missing(name: &str, suite: &Suite, why: String) -> Self {
        let case = suite.case(name.strip_suffix(UNCHANGED).unwrap_or(name));
        let case = case.unwrap_or(&Case::BLANK);
        Self {
            name: name.to_owned(),
            detail: why,
            ..Self::of(case)
        }
    }

    /// Before anything is known of how it ends.
    fn of(case: &Case) -> Self {
        let defects = case.defects.iter().map(|row| (*row).to_owned());
        Self {
            name: case.name.to_owned(),
            area: case.area().to_owned(),
            promise: case.promise_line(),
            defects: defects.collect(),
            status: None,
            verdict: Verdict::Missing,
            detail: String::new(),
            reason: String::new(),
            said: String::new(),
            calls: String::new(),
            courses: Vec::new(),
            took: Duration::ZERO,
        }
    }
}

/// A duration in a report: seconds.
pub(crate) mod seconds {
    use std::time::Duration;

    use serde::Deserialize;

    pub fn serialize<S: serde::Serializer>(took: &Duration, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_f64(took.as_secs_f64())
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// Why a run cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("two cases are called {0}")]
    SameName(&'static str),
    #[error("case {case} needs {name}, which no driver exports")]
    NoSuchNeed {
        case: &'static str,
        name: &'static str,
    },
    #[error("expectations: {0}")]
    Expectations(#[from] LineError),
    #[error("--driver real: {0}")]
    NoDriver(#[from] NvmlError),
}

/// A suite with what it is run against.
pub struct Runner {
    suite: Suite,
    pub target: Target,
    pub driver: Driver,
    expectations: Expectations,
    real_devices: Vec<Bytes>,
    /// Where a trace of each case is put, taken by recorders in the drivers' places.
    pub traces: Option<PathBuf>,
    /// Has cases traced by the mocks and their devices looked at, for a report that shows both.
    pub observer: Option<Observer>,
}

impl Runner {
    pub fn new(suite: Suite, target: Target, driver: Driver) -> Result<Self, RunnerError> {
        let real_devices = match driver.is_real() {
            true => nvml::figures_of_this_machine()?
                .iter()
                .map(|device| device.total)
                .collect(),
            false => Vec::new(),
        };
        let mut names = BTreeSet::new();
        if let Some(case) = suite.cases().find(|case| !names.insert(case.name)) {
            return Err(RunnerError::SameName(case.name));
        }
        check_needs(&suite)?;
        expectations::check(&suite)?;
        let expectations = Expectations::known(&suite, &target, &driver)?;
        Ok(Self {
            suite,
            target,
            driver,
            expectations,
            real_devices,
            traces: None,
            observer: None,
        })
    }

    /// Everything to run, in the order of the suite; a target that is to change nothing has its traces compared too.
    pub fn entries(&self) -> Vec<Entry> {
        let compares = self.target.own && !self.target.enforces && !self.driver.is_real();
        let checks = if compares {
            &[Check::Promise, Check::Unchanged][..]
        } else {
            &[Check::Promise]
        };
        self.suite
            .cases()
            .flat_map(|case| checks.iter().map(move |&check| Entry { case, check }))
            .collect()
    }

    /// Runs one entry to its verdict.
    pub fn run_one(&self, entry: &Entry) -> EntryResult {
        let started = Instant::now();
        let name = entry.name();
        let (expectation, reason) = self.expectations.of(&name, entry.case, &self.target);
        let skipped = self
            .expectations
            .skip(&name)
            .map(str::to_owned)
            .or_else(|| self.unsuitable(entry.case))
            .or_else(|| self.incomparable(entry));
        let ending = match (skipped, entry.check) {
            (Some(reason), _) => Ok(skip(reason)),
            (None, Check::Promise) => self.run_case(entry.case, true),
            (None, Check::Unchanged) => self.compare_traces(entry.case),
        };
        let blank = EntryResult {
            reason: reason.to_owned(),
            took: started.elapsed(),
            name,
            ..EntryResult::of(entry.case)
        };
        match ending {
            Ok(ending) => EntryResult {
                status: Some(ending.status),
                verdict: judge(Some(ending.status), expectation),
                detail: ending.detail,
                said: ending.said,
                calls: ending.calls,
                courses: ending.courses,
                ..blank
            },
            Err(error) => EntryResult {
                verdict: judge(None, expectation),
                detail: error.to_string(),
                ..blank
            },
        }
    }

    /// Runs entries, `jobs` at a time but for what a real machine is to run alone, and shows each result to the observer as it comes. Answers in the entries' order.
    pub fn run(
        &self,
        entries: &[Entry],
        jobs: usize,
        observe: impl FnMut(&EntryResult),
    ) -> Vec<EntryResult> {
        let beside = RwLock::new(());
        let run = |entry: &Entry| {
            let is_alone =
                self.driver.is_real() && matches!(entry.case.on_real, RealDriver::Alone(_));
            // What it keeps is nothing.
            let others = || beside.read().unwrap_or_else(PoisonError::into_inner);
            let all = || beside.write().unwrap_or_else(PoisonError::into_inner);
            let _kept_out = (is_alone.then(all), (!is_alone).then(others));
            self.run_one(entry)
        };
        pool::all(jobs, entries, run, observe)
    }

    /// Runs a case under `none` and under the target, and compares what the drivers were asked, process by process.
    ///
    /// The answer is Pass where the traces are equal, Fail with the first line that differs, Skip where two runs of the case
    /// may differ anyway.
    pub fn compare_traces(&self, case: &'static Case) -> Result<Ending, EnvironmentError> {
        if !case.unordered.is_empty() {
            return Ok(skip(case.unordered.to_owned()));
        }
        let traced = |target: &Target| {
            let environment = Environment::create(&Request {
                traced: true,
                validated: false,
                ..self.request(case, target)
            })?;
            if let Some(skipped) = lacking(case, &environment)? {
                return Ok((skipped, BTreeMap::new()));
            }
            let ending = execute(case, &environment, Look::Away)?;
            Ok::<_, EnvironmentError>((ending, traces::read(&environment.plan.trace_path())))
        };
        let (bare, bare_traces) = traced(&Target::nothing())?;
        let (guarded, guarded_traces) = traced(&self.target)?;
        if bare.status != guarded.status {
            let detail = format!(
                "{:?} without the target, {:?} with it: {}",
                bare.status, guarded.status, guarded.detail
            );
            return Ok(Ending::unchecked(Status::Fail, detail, guarded.said));
        }
        Ok(
            match traces::first_difference(&bare_traces, &guarded_traces) {
                Some(difference) => {
                    Ending::unchecked(Status::Fail, difference.to_string(), guarded.said)
                }
                None if bare_traces.is_empty() => {
                    skip("the case asks the drivers for nothing".to_owned())
                }
                None => Ending::unchecked(Status::Pass, String::new(), String::new()),
            },
        )
    }

    /// Runs a case in an environment that is there, unless its driver lacks what it needs.
    pub(crate) fn execute(
        &self,
        case: &'static Case,
        environment: &Environment,
        look: Look,
    ) -> Result<Ending, EnvironmentError> {
        match lacking(case, environment)? {
            Some(skipped) => Ok(skipped),
            None => execute(case, environment, look),
        }
    }

    /// Runs a case whatever its driver lacks, by which a need is seen to be one.
    pub fn run_in_need(&self, case: &'static Case) -> Result<Ending, EnvironmentError> {
        self.run_case(case, false)
    }

    fn run_case(&self, case: &'static Case, heeds: bool) -> Result<Ending, EnvironmentError> {
        let mut environment = Environment::create(&Request {
            // It asks the driver for itself.
            validated: self.traces.is_none(),
            traced: self.traces.is_some() || self.observer.is_some(),
            ..self.request(case, &self.target)
        })?;
        if heeds && let Some(skipped) = lacking(case, &environment)? {
            return Ok(skipped);
        }
        let execute = |environment: &Environment| match &self.observer {
            Some(observer) => execute_observed(case, environment, Look::Check, observer),
            None => execute(case, environment, Look::Check),
        };
        let Some(traces) = &self.traces else {
            return execute(&environment);
        };
        let recorded = environment.record()?;
        let ending = execute(&environment)?;
        let own = environment.plan.trace_path();
        for (written, directory) in [(recorded, traces.clone()), (own, traces.join(OWN_TRACES))] {
            // A case that asked for nothing has none, a real driver writes none itself.
            if written.exists() {
                let kept = directory.join(traces::file_name(case.name));
                std::fs::create_dir_all(&directory)
                    .and_then(|()| std::fs::copy(&written, &kept))
                    .map_err(|source| EnvironmentError::File { path: kept, source })?;
            }
        }
        Ok(ending)
    }

    pub(crate) fn request<'a>(&'a self, case: &'a Case, target: &'a Target) -> Request<'a> {
        Request {
            real_devices: &self.real_devices,
            validated: true,
            ..Request::of(case, target, &self.driver)
        }
    }

    /// Why a comparison with this entry's traces shows nothing.
    fn incomparable(&self, entry: &Entry) -> Option<String> {
        (entry.case.kind == Kind::Own && entry.check == Check::Unchanged)
            .then(|| "about our own libraries: there is nothing to compare with".to_owned())
    }

    /// Why this case shows nothing here.
    pub(crate) fn unsuitable(&self, case: &Case) -> Option<String> {
        if case.kind == Kind::Own && !self.target.own {
            return Some(format!(
                "about our own libraries, which {} has not",
                self.target.name
            ));
        }
        if case.kind == Kind::Neutral && !self.target.grants {
            return Some(format!(
                "promises no budget, and {} grants nothing",
                self.target.name
            ));
        }
        if case.kind == Kind::Own && !case.budget.is_empty() && !self.target.enforces {
            return Some(format!(
                "needs a budget, and {} sets none",
                self.target.name
            ));
        }
        if case.kind == Kind::Budget
            && case.budget.is_empty()
            && self.target.own
            && !self.target.enforces
        {
            return Some(format!(
                "sets its budget by variables of its own, and {} is to have none",
                self.target.name
            ));
        }
        if !self.driver.is_real() {
            return None;
        }
        if let RealDriver::No(reason) = case.on_real {
            return Some(reason.to_owned());
        }
        if !case.faults.is_empty() || !case.absent.is_empty() {
            return Some("a real driver takes no faults".to_owned());
        }
        let (here, needed) = (self.real_devices.len(), case.needs_gpus as usize);
        (here < needed).then(|| format!("needs {needed} GPUs, here are {here}"))
    }
}

/// The end of a case whose driver does not export all that it needs, by the driver's own files.
fn lacking(case: &Case, environment: &Environment) -> Result<Option<Ending>, EnvironmentError> {
    if case.needs.is_empty() {
        return Ok(None);
    }
    let exported = symbols::of_drivers(&environment.plan)?;
    let lacks = |name: &&&str| !exported.contains(**name);
    let lacks: Vec<&str> = case.needs.iter().filter(lacks).copied().collect();
    let reason = format!("the driver exports no {}", lacks.join(", no "));
    Ok((!lacks.is_empty()).then(|| skip(reason)))
}

fn skip(reason: String) -> Ending {
    Ending::unchecked(Status::Skip, reason, String::new())
}

/// A need that is spelled wrong would skip its case everywhere.
fn check_needs(suite: &Suite) -> Result<(), RunnerError> {
    let known: BTreeSet<&str> = [Api::Cuda, Api::Nvml]
        .into_iter()
        .flat_map(symbols::of_any_generation)
        .collect();
    for case in suite.cases() {
        if let Some(name) = case.needs.iter().find(|name| !known.contains(*name)) {
            let case = case.name;
            return Err(RunnerError::NoSuchNeed { case, name });
        }
    }
    Ok(())
}
