//! `ringfence test`.

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use harness::progress::Bar;
use harness::report::{Report, Run};
use harness::{Driver, Entry, Observer, Runner, Target, pool};

use crate::arguments::TestArguments;
use crate::outputs::Outputs;
use crate::score;

/// Cases share a card: what one holds, another lacks.
const REAL_JOBS: usize = 1;

pub fn run(arguments: &TestArguments) -> Result<ExitCode, Box<dyn Error>> {
    let mut outputs = Outputs::open(&arguments.report)?;
    if arguments.matrix && arguments.driver.is_real() {
        return Err("--matrix is of mock drivers".into());
    }
    let mut runs = Vec::new();
    if arguments.matrix {
        for driver in arguments.driver.matrix() {
            let report = over(arguments, &driver, &mut outputs)?;
            eprintln!("{}", report.summary());
            runs.push(report);
        }
        crate::say(&Report::matrix(&runs))?;
    } else {
        let report = over(arguments, &arguments.driver, &mut outputs)?;
        if arguments.verbose {
            crate::say(&format!("{}\n", report.listing()))?;
        }
        crate::say(&report.table())?;
        runs.push(report);
    }
    outputs.finish(&runs)?;
    Ok(crate::judged(&runs))
}

/// One run of what was asked for.
pub fn over(
    arguments: &TestArguments,
    driver: &Driver,
    outputs: &mut Outputs<'_>,
) -> Result<Report, Box<dyn Error>> {
    let mut target = Target::named(&arguments.target)?;
    if let Some(seed) = &arguments.seed {
        score::plant(&mut target, score::seed(seed)?);
    }
    let mut runner = Runner::new(cases::SUITE, target, driver.clone())?;
    if let Some(directory) = &arguments.trace {
        std::fs::create_dir_all(directory)
            .map_err(|error| format!("--trace {}: {error}", directory.display()))?;
        runner.traces = Some(directory.clone());
    }
    if outputs.show_all() {
        runner.observer = Some(Observer::over(driver)?);
    }
    let mut entries = chosen(runner.entries(), &arguments.filters)?;
    entries.retain(|entry| {
        let left_out = |word: &String| entry.name().contains(word);
        !arguments.without.iter().any(left_out)
    });
    let names = entries.iter().map(Entry::name).collect();
    entries.retain(|entry| arguments.shard.holds(entry.case.name));
    if !runner.driver.is_real() && !harness::plan::has_validation_layer() {
        eprintln!("the Khronos validation layer is not installed: Vulkan cases run without it");
    }
    let jobs = match arguments.jobs {
        Some(jobs) => jobs as usize,
        None if runner.driver.is_real() => REAL_JOBS,
        None => pool::jobs_over_mocks(),
    };

    let run = Run::new(&runner, arguments.shard, names);
    outputs.begin(&run)?;
    let (started, progress) = (Instant::now(), Bar::new(entries.len()));
    let results = runner.run(&entries, jobs, |result| {
        outputs.add(&run, result);
        progress.show(result);
    });
    progress.finish();
    let took = started.elapsed();
    outputs.end(&run, took);
    Ok(Report { run, results, took })
}

/// Entries that one of the filters names; every filter must name one.
fn chosen(entries: Vec<Entry>, filters: &[String]) -> Result<Vec<Entry>, String> {
    let names = |entry: &Entry, filter: &String| {
        entry.name().contains(filter) || entry.case.is_meant_by(filter)
    };
    if let Some(filter) = filters
        .iter()
        .find(|filter| !entries.iter().any(|entry| names(entry, filter)))
    {
        return Err(format!(
            "\"{filter}\" matches no case; `ringfence list` shows them"
        ));
    }
    let wanted =
        |entry: &Entry| filters.is_empty() || filters.iter().any(|filter| names(entry, filter));
    Ok(entries.into_iter().filter(wanted).collect())
}
