//! `ringfence score`: whether the suite notices what it is there to notice.
//!
//! Each seed is one known defect (`enforcement/seeds`). The cases that name its row are run against our libraries with the defect, until one fails that
//! passes without it; one whose threads race is run up to three times. What none notices then is judged once more at the end, with nothing beside it: on a busy
//! machine a race may not take place. A row whose seed no case notices is a hole in the suite, and the last lines name it.

use std::error::Error;
use std::process::ExitCode;

use harness::{Driver, Entry, Runner, Status, Target, pool};
use seeds::Seed;

use crate::UNEXPECTED;
use crate::arguments::ScoreArguments;

pub fn run(arguments: &ScoreArguments) -> Result<ExitCode, Box<dyn Error>> {
    let chosen = match arguments.seeds.as_slice() {
        [] => Seed::ALL.to_vec(),
        names => names
            .iter()
            .map(|name| seed(name))
            .collect::<Result<_, _>>()?,
    };
    let sound = Runner::new(cases::SUITE, Target::named("seeded")?, Driver::default())?;
    let jobs = arguments
        .jobs
        .map_or_else(pool::jobs_over_mocks, |jobs| jobs as usize);
    let missed = judged(&chosen, jobs, &sound)?;
    let missed = judged(&missed, 1, &sound)?;
    let noticed = chosen.len() - missed.len();
    let mut end = format!("{noticed} of {} seeded defects are noticed\n", chosen.len());
    for seed in &missed {
        end += &format!("not noticed: {}\n", seed.name());
    }
    crate::say(&end)?;
    Ok(match missed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(UNEXPECTED),
    })
}

/// Says a line of each seed, and answers with those that no case notices.
fn judged(chosen: &[Seed], jobs: usize, sound: &Runner) -> Result<Vec<Seed>, Box<dyn Error>> {
    let (mut missed, mut failed) = (Vec::new(), None);
    let score = |seed: &Seed| (*seed, noticed_by(*seed, sound).map_err(|e| e.to_string()));
    pool::all(jobs, chosen, score, |(seed, by)| {
        let said = by.clone().and_then(|case| {
            let by = case.unwrap_or_else(|| {
                missed.push(*seed);
                "no case notices it"
            });
            let line = format!("{:<4} {}: {by}\n", seed.name(), seed.what());
            crate::say(&line).map_err(|e| e.to_string())
        });
        failed = failed.take().or(said.err());
    });
    match failed {
        Some(failed) => Err(failed.into()),
        None => Ok(missed),
    }
}

/// The seed of that name.
pub fn seed(name: &str) -> Result<Seed, String> {
    let known = || Seed::ALL.iter().map(|seed| seed.name()).collect::<Vec<_>>();
    Seed::named(name)
        .ok_or_else(|| format!("no defect \"{name}\" can be seeded: {}", known().join(", ")))
}

/// Has the processes of a target that can have a defect have this one.
pub fn plant(target: &mut Target, seed: Seed) {
    // No library can have this one: it is in what the loader reads before it opens any.
    if let (Seed::V16, Some(layer)) = (seed, &mut target.layer) {
        layer.api_version = Some("1.3.0".to_owned());
    }
    target
        .environment
        .insert(seeds::VARIABLE.to_owned(), seed.name().to_owned());
}

/// The first case of the row that fails with the defect and passes without it.
fn noticed_by(seed: Seed, sound: &Runner) -> Result<Option<&'static str>, Box<dyn Error>> {
    let mut target = Target::named("seeded")?;
    plant(&mut target, seed);
    let broken = Runner::new(cases::SUITE, target, Driver::default())?;
    let row = seed
        .name()
        .trim_end_matches(|letter: char| letter.is_ascii_lowercase());
    let fails = |runner: &Runner, entry: &Entry| {
        let status = runner.run_one(entry).status;
        matches!(status, Some(Status::Fail | Status::Crash | Status::Timeout))
    };
    // Threads that race may miss a defect once.
    let tries = |entry: &Entry| match entry.case.unordered {
        "" => 1,
        _ => 3,
    };
    let of_row = |entry: &Entry| {
        let defects = entry.case.defects;
        defects.contains(&row) || defects.contains(&seed.name())
    };
    let entries = broken.entries().into_iter().filter(of_row);
    for entry in entries {
        if (0..tries(&entry)).any(|_| fails(&broken, &entry)) && !fails(sound, &entry) {
            return Ok(Some(entry.case.name));
        }
    }
    Ok(None)
}
