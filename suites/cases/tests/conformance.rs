//! Every conformance case as a test of its own, on the mock drivers: `ours::vulkan::vulkan_pull_request` and so on.
//!
//! Under `ours` each promise is kept, but for the expected failures. Under `none` every Budget case fails, or it proves
//! nothing. Under `passthrough` the drivers are asked for exactly what they are asked for under `none`.
//!
//! The whole suite runs under `ours` once more over the oldest driver and once over 16 GPUs of the newest (`ours@470::…`, `ours@x16::…`), and
//! three cases over every generation. What a driver is too old for is skipped by what its file exports; `needs@470::…` runs such a case all
//! the same, and finds that it does not pass: what passes without a need of its was skipped for nothing.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

use cases::SUITE;
use harness::driver::DEFAULT_GENERATION;
use harness::environment::{Environment, Request};
use harness::runner::UNCHANGED;
use harness::{
    Case, Driver, Entry, Libraries, Runner, Status, Target, Verdict, child_main, pool, report,
    symbols,
};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use mock_device::Api;

fn main() -> ExitCode {
    if let Some(code) = child_main(&SUITE) {
        return code;
    }
    let mut arguments = Arguments::from_args();
    arguments
        .test_threads
        .get_or_insert_with(pool::jobs_over_mocks);
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
    for (name, driver) in [
        ("ours@470", "mock:rtx6000-ada+470"),
        ("ours@x16", "mock:rtx6000-ada*16"),
    ] {
        let runner = Arc::new(Runner::new(SUITE, Target::named("ours")?, driver.parse()?)?);
        for entry in runner.entries() {
            let runner = Arc::clone(&runner);
            let full_name = format!("{name}::{}::{}", entry.case.area(), entry.name());
            trials.push(Trial::ignorable_test(full_name, move || {
                verdict(&runner, entry)
            }));
        }
    }
    for generation in mock_device::generation::numbers() {
        let driver: Driver = format!("mock:rtx6000-ada+{generation}").parse()?;
        let runner = Arc::new(Runner::new(SUITE, Target::named("ours")?, driver.clone())?);
        trials.push(Trial::test(
            format!("oracle@{generation}::its_drivers_export_what_the_oracle_lists"),
            move || exports_are_the_oracles(&driver, generation),
        ));
        for entry in runner.entries() {
            let runner = Arc::clone(&runner);
            // The oldest and the newest run all cases already.
            let told = [470, DEFAULT_GENERATION].contains(&generation);
            if EVERYWHERE.contains(&entry.case.name) && !told {
                let full_name = format!("ours@{generation}::{}", entry.name());
                trials.push(Trial::ignorable_test(full_name, move || {
                    verdict(&runner, entry)
                }));
            } else if lacks(generation, entry.case) {
                let full_name = format!("needs@{generation}::{}", entry.name());
                trials.push(Trial::test(full_name, move || in_need(&runner, entry.case)));
            }
        }
    }
    Ok(trials)
}

/// Cases that say something else over each generation, and so run over all of them.
const EVERYWHERE: [&str; 3] = [
    "what_a_runtime_looks_up_is_the_drivers_or_its_hook",
    "what_a_runtime_looks_up_escapes_no_hook",
    "by_handle_there_is_what_the_driver_exports",
];

/// What the oracle lists for a generation.
fn listed(generation: u16) -> BTreeSet<&'static str> {
    let of = |api| symbols::of_generation(api, generation);
    [Api::Cuda, Api::Nvml].into_iter().flat_map(of).collect()
}

fn lacks(generation: u16, case: &Case) -> bool {
    // One that names its machine's generation has that one everywhere.
    if case.machine.contains('+') {
        return false;
    }
    let listed = listed(generation);
    case.needs.iter().any(|name| !listed.contains(name))
}

/// What decides skips is the files: they say what the oracle says.
fn exports_are_the_oracles(driver: &Driver, generation: u16) -> Result<(), Failed> {
    let environment = Environment::create(&Request {
        libraries: Libraries::Neither,
        ..Request::new("exports", &Target::named("none")?, driver)
    })?;
    let exported = symbols::of_drivers(&environment.plan)?;
    let exported: BTreeSet<&str> = exported.iter().map(String::as_str).collect();
    let listed = listed(generation);
    let differs: Vec<_> = exported.symmetric_difference(&listed).collect();
    match differs.is_empty() {
        true => Ok(()),
        false => Err(format!("exported or listed, not both: {differs:?}").into()),
    }
}

fn in_need(runner: &Runner, case: &'static Case) -> Result<(), Failed> {
    let ending = runner.run_in_need(case)?;
    match ending.status {
        Status::Pass | Status::Skip => {
            Err(format!("{:?} without {:?}", ending.status, case.needs).into())
        }
        _ => Ok(()),
    }
}

fn verdict(runner: &Runner, entry: Entry) -> Result<Completion, Failed> {
    let result = runner.run_one(&entry);
    match result.verdict {
        Verdict::Skip => Ok(Completion::ignored_with(&result.detail)),
        verdict if verdict.is_expected() => Ok(Completion::Completed),
        _ => Err(Failed::from(report::story(&result))),
    }
}
