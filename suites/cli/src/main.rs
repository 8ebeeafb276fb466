//! `ringfence`: runs the conformance cases, or any program on the simulated machine under the enforcer.

mod arguments;
mod commands;
mod diff;
mod exec;
mod exports;
mod fuzz_run;
mod install;
mod ledger_set;
mod ledger_show;
mod list;
mod nightly;
mod outputs;
mod probe;
mod properties_run;
mod report;
mod score;
mod sweep;
mod tally;
mod test;
mod trace_diff;
mod unhook;

use std::error::Error;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use harness::report::Report;
use harness::{Library, artifacts};

use arguments::{Arguments, Command, LedgerCommand, ReportCommand};

/// Exit status of a run with unexpected results.
const UNEXPECTED: u8 = 1;
/// Exit status of a command that could not be carried out.
const TROUBLE: u8 = 2;

fn main() -> ExitCode {
    if let Some(code) = harness::child_main(&cases::SUITE) {
        return code;
    }
    if let Some(code) = probe::child_main() {
        return code;
    }
    if let Some(code) = properties::child_main() {
        return code;
    }
    if let Some(code) = fuzz::child_main() {
        return code;
    }
    let outcome = match Arguments::parse().command {
        Command::Test(arguments) => test::run(&arguments),
        Command::Report(ReportCommand::Merge(arguments)) => report::join(&arguments),
        Command::Nightly(arguments) => nightly::run(&arguments),
        Command::List(arguments) => list::run(&arguments),
        Command::Score(arguments) => score::run(&arguments),
        Command::Tally(arguments) => tally::run(&arguments),
        Command::Sweep(arguments) => sweep::run(&arguments),
        Command::Properties(arguments) => properties_run::run(&arguments),
        Command::Fuzz(arguments) => fuzz_run::run(&arguments),
        Command::Exec(arguments) => exec::run(&arguments),
        Command::Probe(arguments) => probe::run(&arguments),
        Command::Diff(arguments) => diff::run(&arguments),
        Command::TraceDiff(arguments) => trace_diff::run(&arguments),
        Command::Install {
            prefix,
            proxies_before,
        } => install_under(&prefix, proxies_before.as_deref()),
        Command::Ledger(LedgerCommand::Show { path }) => ledger_show::run(&path),
        Command::Ledger(LedgerCommand::Set(arguments)) => ledger_set::run(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("ringfence: {error}");
        ExitCode::from(TROUBLE)
    })
}

/// Prints what was asked for. A reader who has seen enough (`ringfence list | head`) is no trouble.
fn say(text: &str) -> std::io::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

/// The exit status of runs: whether all is as expected.
fn judged(runs: &[Report]) -> ExitCode {
    match runs.iter().all(Report::is_expected) {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(UNEXPECTED),
    }
}

fn install_under(prefix: &Path, proxies_before: Option<&Path>) -> Result<ExitCode, Box<dyn Error>> {
    let (interposer, layer) = (
        artifacts::find(Library::Interposer)?,
        artifacts::find(Library::Layer)?,
    );
    let installed = install::install(prefix, &interposer, &layer)?;
    for path in [
        &installed.libvgpu,
        &installed.libvgpu_vk,
        &installed.manifest,
    ] {
        println!("{}", path.display());
    }
    if let Some(drivers) = proxies_before {
        for path in install::install_proxies(&installed, drivers)? {
            println!("{}", path.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}
