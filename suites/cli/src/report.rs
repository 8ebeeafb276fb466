//! `ringfence report`.

use std::error::Error;
use std::process::ExitCode;

use harness::merge::merge;
use harness::report::Report;

use crate::arguments::MergeArguments;
use crate::outputs::Outputs;

/// `ringfence report merge`.
pub fn join(arguments: &MergeArguments) -> Result<ExitCode, Box<dyn Error>> {
    let merged = merge(&arguments.files, &cases::SUITE)?;
    for remark in &merged.remarks {
        eprintln!("{remark}");
    }
    if merged.runs.is_empty() {
        return Err("there is no run in these files".into());
    }
    // Only now: one of the files may be what is written to.
    let mut outputs = Outputs::open(&arguments.report)?;
    for run in &merged.runs {
        outputs.begin(&run.run)?;
        for result in &run.results {
            outputs.add(&run.run, result);
        }
        outputs.end(&run.run, run.took);
    }
    match &merged.runs[..] {
        [run] => crate::say(&run.table())?,
        runs => crate::say(&Report::summaries(runs))?,
    }
    outputs.finish(&merged.runs)?;
    Ok(crate::judged(&merged.runs))
}
