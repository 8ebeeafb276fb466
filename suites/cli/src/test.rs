//! `ringfence test`.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use harness::progress::Bar;
use harness::report::Report;
use harness::{Driver, Entry, Runner, Target};

use crate::arguments::TestArguments;
use crate::{UNEXPECTED, score};

const MOCK_JOBS: u32 = 2;
/// Cases share a card: what one holds, another lacks.
const REAL_JOBS: u32 = 1;

pub fn run(arguments: &TestArguments) -> Result<ExitCode, Box<dyn Error>> {
    let reports = arguments
        .report
        .iter()
        .map(|text| Output::read(text))
        .collect::<Result<Vec<_>, _>>()?;
    if !arguments.matrix {
        let report = over(arguments, &arguments.driver)?;
        if arguments.verbose {
            crate::say(&format!("{}\n", report.listing()))?;
        }
        crate::say(&report.table())?;
        return written(reports, &[report]);
    }
    if arguments.driver.is_real() {
        return Err("--matrix is of mock drivers".into());
    }
    let mut runs = Vec::new();
    for driver in arguments.driver.matrix() {
        let report = over(arguments, &driver)?;
        eprintln!("{}", report.summary());
        runs.push(report);
    }
    crate::say(&Report::matrix(&runs))?;
    written(reports, &runs)
}

/// Puts down what was asked for. The exit status says whether all is as expected.
fn written(outputs: Vec<Output<'_>>, runs: &[Report]) -> Result<ExitCode, Box<dyn Error>> {
    for output in outputs {
        output.write(runs)?;
    }
    Ok(match runs.iter().all(Report::is_expected) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(UNEXPECTED),
    })
}

/// One run of what was asked for.
fn over(arguments: &TestArguments, driver: &Driver) -> Result<Report, Box<dyn Error>> {
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
    let mut entries = chosen(runner.entries(), &arguments.filters)?;
    entries.retain(|entry| {
        let left_out = |word: &String| entry.name().contains(word);
        !arguments.without.iter().any(left_out)
    });
    if !runner.driver.is_real() && !harness::plan::has_validation_layer() {
        eprintln!("the Khronos validation layer is not installed: Vulkan cases run without it");
    }
    let jobs = arguments.jobs.unwrap_or(if runner.driver.is_real() {
        REAL_JOBS
    } else {
        MOCK_JOBS
    });

    let (started, progress) = (Instant::now(), Bar::new(entries.len()));
    let results = runner.run(&entries, jobs as usize, |result| progress.show(result));
    progress.finish();
    Ok(Report {
        target: runner.target.name.clone(),
        driver: runner.driver.to_string(),
        results,
        took: started.elapsed(),
    })
}

/// Entries that one of the filters names; every filter must name one.
fn chosen(entries: Vec<Entry>, filters: &[String]) -> Result<Vec<Entry>, String> {
    let names = |entry: &Entry, filter: &String| {
        entry.name().contains(filter) || entry.case.area().contains(filter)
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

/// A report that the user asked for.
struct Output<'a> {
    kind: Kind,
    path: &'a Path,
}

enum Kind {
    Junit,
    Json,
}

impl<'a> Output<'a> {
    fn read(text: &'a str) -> Result<Self, String> {
        let kind = |name: &str| match name {
            "junit" => Some(Kind::Junit),
            "json" => Some(Kind::Json),
            _ => None,
        };
        text.split_once('=')
            .and_then(|(name, path)| {
                Some(Self {
                    kind: kind(name)?,
                    path: Path::new(path),
                })
            })
            .ok_or_else(|| format!("--report \"{text}\": write junit=FILE or json=FILE"))
    }

    fn write(&self, runs: &[Report]) -> Result<(), Box<dyn Error>> {
        let text = match (&self.kind, runs) {
            (Kind::Junit, [report]) => harness::junit::document(report),
            (Kind::Junit, _) => {
                return Err("--report junit is of one run: a matrix writes json".into());
            }
            (Kind::Json, runs) => {
                let lines = runs.iter().map(Report::json_lines);
                lines.collect::<Result<Vec<_>, _>>()?.concat()
            }
        };
        std::fs::write(self.path, text)
            .map_err(|error| format!("{}: {error}", self.path.display()).into())
    }
}
