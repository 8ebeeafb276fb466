//! `ringfence diff`: what a driver upgrade changes for the enforcer, from what `ringfence probe` wrote before and after it.
//!
//! [`file`] reads a probe file as facts by [`Part`](file::Part), [`compare`] finds the facts that differ, [`judge`] and [`look_ups`] say
//! of each whether it matters and why, [`enforcer`] which hooks, cases and rows of the defect list it touches, [`report`] puts
//! it into words. Nothing here asks a driver.
//!
//! A driver's library by itself, or a list of its symbols, serves where no probe can be made: new versions of hooked functions are seen by their names.
//!
//! A fact that one file does not have, or has from a mock alone, is unknown and counted as that: it is never the same.

mod allowed;
mod compare;
mod enforcer;
mod file;
mod judge;
mod look_ups;
mod report;

use std::error::Error;
use std::process::ExitCode;

use crate::arguments::DiffArguments;
use allowed::Allowed;
use compare::{Verdict, compare};
pub use enforcer::{COMMANDS, Enforcer};
use file::Record;

pub fn run(arguments: &DiffArguments) -> Result<ExitCode, Box<dyn Error>> {
    Ok(match breaks(arguments)? {
        true => ExitCode::from(crate::UNEXPECTED),
        false => ExitCode::SUCCESS,
    })
}

/// The same for whoever goes on: whether the upgrade is not to be let through.
pub fn breaks(arguments: &DiffArguments) -> Result<bool, Box<dyn Error>> {
    let mut old = Record::read(&arguments.old)?;
    let mut new = Record::read(&arguments.new)?;
    old.narrow_to(&new);
    new.narrow_to(&old);
    let allowed = match &arguments.allow {
        Some(path) => Allowed::read(path)?,
        None => Allowed::default(),
    };
    let comparison = compare(&old, &new, &Enforcer::ours(), &allowed);
    let written = [
        (&arguments.markdown, comparison.markdown()),
        (&arguments.json, comparison.json()?),
    ];
    for (path, text) in written {
        if let Some(path) = path {
            std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
    }
    crate::say(&comparison.terminal(arguments.all))?;
    let least = if arguments.strict {
        Verdict::Look
    } else {
        Verdict::Breaks
    };
    Ok(comparison.verdict() >= least)
}
