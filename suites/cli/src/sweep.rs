//! `ringfence sweep`.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use harness::progress::{Bar, Long};
use harness::sweep::{
    self, Baseline, Effect, Hit, Jobs, LeftOut, Outcome, Site, Step, SweepReport, Sweeper,
};
use harness::{Case, Runner, Target, pool};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::arguments::SweepArguments;
use crate::{UNEXPECTED, score};

pub fn run(arguments: &SweepArguments) -> Result<ExitCode, Box<dyn Error>> {
    let started = Instant::now();
    let mut target = Target::named(&arguments.target)?;
    if let Some(seed) = &arguments.seed {
        score::plant(&mut target, score::seed(seed)?);
    }
    let runner = Runner::new(cases::SUITE, target, arguments.driver.clone())?;
    if runner.driver.is_real() {
        return Err("a real driver takes no faults: --driver mock…".into());
    }
    let sweeper = Sweeper { runner: &runner };
    let jobs = arguments
        .jobs
        .map_or_else(pool::jobs_over_mocks, |jobs| jobs as usize);
    let (baselines, left_out) = baselines(&sweeper, &chosen(&arguments.cases)?, jobs);
    let steps = match (&arguments.hits[..], arguments.pairs) {
        ([], None) => {
            let effects = |site: &Site| match arguments.kill {
                true => vec![Effect::KillBefore, Effect::KillAfter],
                false => site.effects(),
            };
            sweep::steps(&baselines, !arguments.cases.is_empty(), effects)
        }
        ([], Some(runs)) => sweep::pairs(&baselines, runs, arguments.chance),
        (hits, _) => named(&baselines, hits)?,
    };
    let stop = stopped_by_signals()?;
    let cost = |step: &Step<'_>| step.baseline.took;
    eprintln!("{} runs to make, {jobs} at a time", steps.len());
    let mut bar = Long::new(steps.len(), steps.iter().map(cost).sum());
    let runs = Jobs {
        first: jobs,
        again: jobs.min(pool::processors()),
    };
    let outcomes = sweeper.run_all(&steps, runs, &stop, |outcome| {
        let name = outcome.step.baseline.case.name;
        match outcome.confirmed {
            false => bar.advance(name, cost(&outcome.step)),
            true => unexpected(outcome)
                .into_iter()
                .for_each(|line| bar.tell(&line)),
        }
    });
    bar.finish();
    let report = SweepReport {
        baselines: &baselines,
        left_out: &left_out,
        outcomes: &outcomes,
        planned: steps.len(),
        took: started.elapsed(),
    };
    crate::say(&report.text())?;
    Ok(match report.broken() {
        0 if outcomes.len() == steps.len() => ExitCode::SUCCESS,
        _ => ExitCode::from(UNEXPECTED),
    })
}

/// Set by the first signal that asks for an end: what was found until then is told. The second ends it at once.
fn stopped_by_signals() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds it unset.
        flag::register_conditional_default(signal, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// One line of an outcome that nobody hoped for.
fn unexpected(outcome: &Outcome<'_>) -> Option<String> {
    let found = outcome.findings.first()?;
    Some(format!(
        "{}: {found}: {}",
        found.promise.name(),
        outcome.step.command()
    ))
}

/// Cases by name, or by part of it; all of the suite without a name.
fn chosen(names: &[String]) -> Result<Vec<&'static Case>, String> {
    if names.is_empty() {
        return Ok(cases::SUITE.cases().collect());
    }
    let mut chosen = Vec::new();
    for name in names {
        let exact = cases::SUITE.case(name);
        let found: Vec<&Case> = match exact {
            Some(case) => vec![case],
            None => cases::SUITE
                .cases()
                .filter(|case| case.name.contains(name))
                .collect(),
        };
        if found.is_empty() {
            return Err(format!(
                "\"{name}\" matches no case; `ringfence list` shows them"
            ));
        }
        chosen.extend(found);
    }
    Ok(chosen)
}

/// The cases by themselves, the cheapest first.
fn baselines(
    sweeper: &Sweeper<'_>,
    cases: &[&'static Case],
    jobs: usize,
) -> (Vec<Baseline>, Vec<LeftOut>) {
    let bar = Bar::new(cases.len());
    let results = pool::all(
        jobs,
        cases,
        |case| sweeper.baseline(case),
        |result| match result {
            Ok(baseline) => bar.advance(baseline.case.name, None),
            Err(left) => bar.advance(left.case, None),
        },
    );
    bar.finish();
    let (mut baselines, mut left_out) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(baseline) => baselines.push(baseline),
            Err(left) => left_out.push(left),
        }
    }
    baselines.sort_by_key(|baseline| (baseline.took, baseline.sites.len()));
    (baselines, left_out)
}

/// The one step that `--hit ROLE:N=EFFECT` names, once or more.
fn named<'a>(baselines: &'a [Baseline], texts: &[String]) -> Result<Vec<Step<'a>>, String> {
    let [baseline] = baselines else {
        return Err("--hit is of one case: give its whole name".to_owned());
    };
    let hits = texts.iter().map(|text| read(baseline, text));
    Ok(vec![Step {
        baseline,
        hits: hits.collect::<Result<_, _>>()?,
    }])
}

fn read(baseline: &Baseline, text: &str) -> Result<Hit, String> {
    let shape = || format!("--hit \"{text}\": write ROLE:N=EFFECT, as in case:17=result:2");
    let (place, effect) = text.split_once('=').ok_or_else(shape)?;
    let (role, n) = place.split_once(':').ok_or_else(shape)?;
    let n: u64 = n.parse().map_err(|_| shape())?;
    let effect = effect
        .parse()
        .map_err(|problem| format!("--hit \"{text}\": {problem}"))?;
    let site = baseline
        .sites
        .iter()
        .find(|site| site.role == role && site.n == n);
    let site = site.ok_or_else(|| {
        let calls = baseline
            .sites
            .iter()
            .filter(|site| site.role == role)
            .count();
        format!(
            "--hit \"{text}\": {role} makes {calls} calls in {}",
            baseline.case.name
        )
    })?;
    Ok(sweep::hit(site, effect))
}
