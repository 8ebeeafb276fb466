//! The hidden entry of every program that has cases: what it does when it was started as one of their processes.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::case::Suite;
use crate::failure::Failure;
use crate::message::{self, Message};
use crate::peer::Parent;
use crate::plan::Plan;
use crate::session::Session;

/// Called first thing by `main`. Runs a case, a role or a look at NVML if the arguments ask for one.
///
/// `None` means that this process is none of them and `main` should go on.
pub fn child_main(suite: &Suite) -> Option<ExitCode> {
    let mut args = std::env::args().skip(1);
    let outcome = match args.next()?.as_str() {
        "__case" => run_case(suite, &args.next()?, &PathBuf::from(args.next()?)),
        "__role" => run_role(
            suite,
            &args.next()?,
            &PathBuf::from(args.next()?),
            args.collect(),
        ),
        "__where" => return Some(crate::recording::print_path(&args.next()?)),
        "__nvml" => return Some(crate::nvml::print_figures()),
        "__nvml-watch" => {
            let interval = Duration::from_millis(args.next()?.parse().ok()?);
            return Some(crate::nvml::print_again(interval));
        }
        _ => return None,
    };
    let failed = matches!(outcome, Message::Failed(_));
    let mut told = message::send(&outcome, &mut std::io::stdout().lock());
    // A case stays alive until the runner has looked at what it holds, and has it take the rest.
    for line in std::io::stdin().lines().map_while(Result::ok) {
        if line == EXHAUST {
            let answer = Message::Line(exhaust(suite).to_string());
            told = message::send(&answer, &mut std::io::stdout().lock());
        }
    }
    Some(if failed || told.is_err() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Asks a case's process whose body has ended to take what is left of the devices.
pub(crate) const EXHAUST: &str = "exhaust";

fn exhaust(suite: &Suite) -> bool {
    let plan = std::env::args().nth(3).map(PathBuf::from);
    let session = plan
        .and_then(|plan| Plan::load(&plan).ok())
        .map(Session::new);
    session.is_some_and(|session| {
        catch_unwind(AssertUnwindSafe(|| (suite.exhaust)(&session))).unwrap_or(false)
    })
}

fn run_case(suite: &Suite, name: &str, plan: &std::path::Path) -> Message {
    let Some(case) = suite.case(name) else {
        return Message::Failed(format!("this program has no case {name}"));
    };
    run(plan, |session| {
        (case.body)(session)?;
        (suite.afterwards)(case)
    })
}

fn run_role(suite: &Suite, name: &str, plan: &std::path::Path, args: Vec<String>) -> Message {
    let Some(role) = suite.role(name) else {
        return Message::Failed(format!("this program has no role {name}"));
    };
    run(plan, |session| {
        (role.body)(session, &mut Parent::new(args))?;
        let case = suite.case(&session.plan().name);
        case.map_or(Ok(()), suite.afterwards)
    })
}

fn run(plan: &std::path::Path, body: impl FnOnce(&mut Session) -> Result<(), Failure>) -> Message {
    let plan = match Plan::load(plan) {
        Ok(plan) => plan,
        Err(error) => return Message::Failed(format!("{}: {error}", plan.display())),
    };
    let mut session = Session::new(plan);
    match catch_unwind(AssertUnwindSafe(|| body(&mut session))) {
        Ok(Ok(())) => Message::Passed,
        Ok(Err(Failure::Broken(seen))) => Message::Failed(seen),
        Ok(Err(Failure::Skip(reason))) => Message::Skipped(reason),
        Err(panic) => Message::Failed(format!("panicked: {}", panic_text(panic.as_ref()))),
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("with no text")
}
