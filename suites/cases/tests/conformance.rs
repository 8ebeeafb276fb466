//! Every conformance case as a test of its own, on the mock drivers: `ours::vulkan::vulkan_pull_request` and so on.
//!
//! Under `ours` each promise is kept, but for the expected failures. Under `none` every Budget case fails, or it proves
//! nothing. Under `passthrough` the drivers are asked for exactly what they are asked for under `none`.

use std::process::ExitCode;
use std::sync::Arc;

use cases::SUITE;
use harness::runner::UNCHANGED;
use harness::{Driver, Entry, Runner, Target, Verdict, child_main, report};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

fn main() -> ExitCode {
    if let Some(code) = child_main(&SUITE) {
        return code;
    }
    let arguments = Arguments::from_args();
    match trials() {
        Ok(trials) => libtest_mimic::run(&arguments, trials).exit_code(),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn trials() -> Result<Vec<Trial>, Box<dyn std::error::Error>> {
    let mut trials = Vec::new();
    for name in ["ours", "none", "passthrough"] {
        let runner = Arc::new(Runner::new(SUITE, Target::named(name)?, Driver::default())?);
        let wanted = |entry: &Entry| name != "passthrough" || entry.name().ends_with(UNCHANGED);
        for entry in runner.entries().into_iter().filter(wanted) {
            let runner = Arc::clone(&runner);
            let full_name = format!("{name}::{}::{}", entry.case.area(), entry.name());
            trials.push(Trial::ignorable_test(full_name, move || {
                verdict(&runner, entry)
            }));
        }
    }
    Ok(trials)
}

fn verdict(runner: &Runner, entry: Entry) -> Result<Completion, Failed> {
    let result = runner.run_one(&entry);
    match result.verdict {
        Verdict::Skip => Ok(Completion::ignored_with(&result.detail)),
        verdict if verdict.is_expected() => Ok(Completion::Completed),
        _ => Err(Failed::from(report::story(&result))),
    }
}
