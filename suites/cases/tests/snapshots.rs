//! The pull request's case, call by call: what the Vulkan driver was asked, with our libraries before it and without.

use std::process::ExitCode;

use cases::SUITE;
use harness::environment::{Environment, Request};
use harness::execution::{Look, execute};
use harness::{Driver, Status, Target, child_main, traces};
use libtest_mimic::{Arguments, Failed, Trial};

const CASE: &str = "vulkan_pull_request";

fn main() -> ExitCode {
    if let Some(code) = child_main(&SUITE) {
        return code;
    }
    let arguments = Arguments::from_args();
    let trials = vec![
        Trial::test("the_pull_requests_case_under_our_libraries", || {
            // The driver is never asked for the 25 and 30 GiB.
            insta::assert_snapshot!("pull_request_ours", driver_calls("ours", Status::Pass)?);
            Ok(())
        }),
        Trial::test("the_pull_requests_case_on_the_bare_driver", || {
            insta::assert_snapshot!("pull_request_none", driver_calls("none", Status::Fail)?);
            Ok(())
        }),
        Trial::test("what_the_layer_decides_in_the_pull_requests_case", || {
            insta::assert_snapshot!("pull_request_decisions", decisions()?);
            Ok(())
        }),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Runs the case once.
fn run(target: &str, promised: Status, env: &[(&str, &str)]) -> Result<Environment, Failed> {
    let case = SUITE.case(CASE).ok_or("the suite has lost the case")?;
    let environment = Environment::create(&Request {
        env,
        traced: true,
        ..Request::of(case, &Target::named(target)?, &Driver::default())
    })?;
    let ending = execute(case, &environment, Look::Check)?;
    if ending.status != promised {
        return Err(format!("{target}: {:?}, {}", ending.status, ending.detail).into());
    }
    Ok(environment)
}

/// What the Vulkan driver was asked to create, allocate, free and destroy, a call a line. Which properties it is asked for
/// besides is the loader's affair and differs from one of its versions to the next.
fn driver_calls(target: &str, promised: Status) -> Result<String, Failed> {
    let environment = run(target, promised, &[])?;
    let traces = traces::read(&environment.plan.trace_path());
    let calls = traces
        .get("case")
        .ok_or("the case's process traced nothing")?;
    let verbs = ["vkCreate", "vkAllocate", "vkFree", "vkDestroy"];
    let told = |call: &&String| {
        verbs
            .iter()
            .any(|verb| call.contains(&format!("\"entry\":\"{verb}")))
    };
    Ok(calls
        .iter()
        .filter(told)
        .cloned()
        .collect::<Vec<_>>()
        .join("\n"))
}

/// The layer's own account: identity, rule, budget, heaps, verdicts.
fn decisions() -> Result<String, Failed> {
    let environment = run("ours", Status::Pass, &[("HAMI_VK_TRACE", "1")])?;
    let said = std::fs::read_to_string(environment.plan.root.join("stderr.txt"))?;
    let lines: Vec<_> = said
        .lines()
        .filter(|line| line.starts_with("HAMI_VK_TRACE:"))
        .collect();
    Ok(lines.join("\n"))
}
