//! `ringfence trace-diff`.

use std::error::Error;
use std::process::ExitCode;

use harness::trace_diff::{Rules, compare};

use crate::UNEXPECTED;
use crate::arguments::TraceDiffArguments;

pub fn run(arguments: &TraceDiffArguments) -> Result<ExitCode, Box<dyn Error>> {
    let rules = match &arguments.allow {
        Some(path) => {
            let name = path.display().to_string();
            let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
            Rules::allowing(&name, &text)?
        }
        None => Rules::shipped()?,
    };
    let comparison = compare(&arguments.left, &arguments.right, &rules)?;
    crate::say(&comparison.report(arguments.all))?;
    Ok(if comparison.is_allowed() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(UNEXPECTED)
    })
}
