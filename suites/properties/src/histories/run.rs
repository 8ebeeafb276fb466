//! Many programs, and the smallest that breaks a promise.

use std::path::Path;
use std::time::{Duration, Instant};

use cases::kill_storm::Dice;
use serde::{Deserialize, Serialize};

use super::check::{Figures, Wrong, check};
use super::crowd::{Circumstances, Crowd, Made};
use super::history::{Answer, Deed, History};
use super::program::Program;
use crate::remote::Trouble;

/// A race that was lost once is lost again in so many runs, or counts as won.
const TRIES: usize = 8;

/// How many calls, and which chance they are made by.
pub struct Wish {
    pub calls: u64,
    pub seed: u64,
    /// How long a failure may be made smaller.
    pub patience: Duration,
}

#[derive(Debug)]
pub struct Report {
    pub histories: u64,
    pub figures: Figures,
    pub took: Duration,
    pub broken: Option<Failure>,
}

/// A program that broke a promise, and what its processes did then. None where one died of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    pub what: Vec<String>,
    pub program: Program,
    pub history: Option<History>,
}

/// Runs programs until so many calls were made, or one broke a promise.
pub fn run(circumstances: &Circumstances, wish: &Wish) -> Result<Report, Trouble> {
    let started = Instant::now();
    let mut crowd = Crowd::start(circumstances)?;
    let mut dice = Dice::new(wish.seed);
    let mut report = Report {
        histories: 0,
        figures: Figures::default(),
        took: Duration::ZERO,
        broken: None,
    };
    while report.figures.calls < wish.calls && report.broken.is_none() {
        let room = crowd.room()?;
        let seed = dice.below(u64::MAX);
        let program = Program::by_chance(seed, circumstances.processes, room);
        report.histories += 1;
        match attempt(&mut crowd, &program)? {
            Ok(figures) => report.figures.add(figures),
            Err(failure) => report.broken = Some(failure),
        }
        report.took = started.elapsed();
    }
    if let Some(failure) = report.broken.take() {
        drop(crowd);
        report.broken = Some(smaller(circumstances, failure, wish.patience)?);
    }
    Ok(report)
}

/// How many of so many runs of a failure's program break a promise, and the last that did.
pub fn rerun(
    circumstances: &Circumstances,
    program: &Program,
    times: usize,
) -> Result<(usize, Option<Failure>), Trouble> {
    let (mut broken, mut last) = (0, None);
    let mut crowd = Crowd::start(circumstances)?;
    for _ in 0..times {
        if let Err(failure) = attempt(&mut crowd, program)? {
            broken += 1;
            last = Some(failure);
            // Nothing is known of its processes.
            crowd = Crowd::start(circumstances)?;
        }
    }
    Ok((broken, last))
}

fn attempt(crowd: &mut Crowd, program: &Program) -> Result<Result<Figures, Failure>, Trouble> {
    let failed = |what, history| Failure {
        what,
        program: program.clone(),
        history,
    };
    Ok(match crowd.make(program)? {
        Made::Broken(what) => Err(failed(vec![what], None)),
        Made::History(history) => check(&history).map_err(|wrong| {
            let what = wrong.iter().map(Wrong::to_string).collect();
            failed(what, Some(history))
        }),
    })
}

/// Leaves out ever smaller parts, as long as what is left fails in some of a few runs; again from the beginning while there is patience, since
/// a race that nobody lost says little.
fn smaller(
    circumstances: &Circumstances,
    mut failure: Failure,
    patience: Duration,
) -> Result<Failure, Trouble> {
    let end = Instant::now() + patience;
    let mut crowd = Crowd::start(circumstances)?;
    let mut part = failure.program.parts() / 2;
    while part > 0 {
        let mut at = 0;
        while at < failure.program.parts() {
            let to = (at + part).min(failure.program.parts());
            let rest = failure.program.without(at..to);
            let mut found = None;
            for _ in 0..TRIES {
                if Instant::now() >= end {
                    return Ok(failure);
                }
                if let Err(smaller) = attempt(&mut crowd, &rest)? {
                    crowd = Crowd::start(circumstances)?;
                    found = Some(smaller);
                    break;
                }
            }
            match found {
                Some(smaller) => failure = smaller,
                None => at += part,
            }
        }
        part = match part / 2 {
            0 => failure.program.parts() / 2,
            half => half,
        };
    }
    Ok(failure)
}

impl Failure {
    pub fn read(path: &Path) -> Result<Self, Trouble> {
        Ok(serde_json::from_str(&std::fs::read_to_string(path)?)?)
    }

    pub fn save(&self, path: &Path) -> Result<(), Trouble> {
        Ok(std::fs::write(path, serde_json::to_string(self)?)?)
    }

    /// What the checker says of the history now.
    pub fn judged(&self) -> Option<Result<Figures, Vec<Wrong>>> {
        self.history.as_ref().map(check)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for what in &self.what {
            writeln!(out, "{what}")?;
        }
        let Some(history) = &self.history else {
            return Ok(());
        };
        let (budget, before) = (history.budget, history.before);
        writeln!(out, "budget {budget}, before {before:?}")?;
        for (number, process) in history.processes.iter().enumerate() {
            writeln!(
                out,
                "process {number}: {:?}, {:?}",
                process.context, process.death
            )?;
        }
        for (number, call) in history.calls.iter().enumerate() {
            let (process, thread, begin) = (call.process, call.thread, call.begin);
            let end = call
                .end
                .as_ref()
                .map_or("never".to_owned(), |(end, _)| format!("{end}"));
            let deed = match call.deed {
                Deed::Take { route, bytes } => format!("{route:?} {bytes}"),
                Deed::Free { of } => format!("free of {of}"),
            };
            let answer = match &call.end {
                Some((_, Answer::Done)) => "done",
                Some((_, Answer::NoMemory)) => "no memory",
                Some((_, Answer::Otherwise(code))) => code,
                None => "killed",
            };
            writeln!(
                out,
                "{number:3} {process}.{thread} {begin} to {end}: {deed}: {answer}"
            )?;
        }
        Ok(())
    }
}
