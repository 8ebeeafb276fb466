//! The long forms of the kill storms: `cargo run --release -p cases --example kill_storm -- [KILLS] [memory | compute] [TARGET]`. By `memory`, which is what none means, processes
//! allocate and free, every second one by Vulkan; by `compute` they launch under a compute budget, and somebody launches behind each round of kills.

use std::process::ExitCode;

use cases::SUITE;
use cases::kill_storm::KILLS;
use harness::environment::{Environment, Request};
use harness::execution::{Look, execute};
use harness::{Case, Driver, Failure, Status, Target, child_main, ensure_eq, fail};

const MEMORY: &str = "a_storm_of_kills_loses_nothing_and_grants_nothing_twice";
const COMPUTE: &str = "nobody_waits_for_the_debt_of_the_killed";

fn main() -> ExitCode {
    if let Some(code) = child_main(&SUITE) {
        return code;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let kills = std::env::args().nth(1).unwrap_or_else(|| "2000".to_owned());
    let Ok(number) = kills.parse::<u32>() else {
        fail!("\"{kills}\" is not a number of kills")
    };
    let case = match std::env::args().nth(2).as_deref() {
        None | Some("memory") => MEMORY,
        Some("compute") => COMPUTE,
        Some(other) => fail!("\"{other}\" is neither memory nor compute"),
    };
    let target = std::env::args().nth(3).unwrap_or_else(|| "ours".to_owned());
    let Some(short) = SUITE.case(case) else {
        fail!("the suite has lost {case}")
    };
    let case = Case {
        seconds: short.seconds.max(number),
        ..*short
    };
    let env: Vec<_> = case
        .env
        .iter()
        .copied()
        .chain([(KILLS, kills.as_str())])
        .collect();
    let environment = Environment::create(&Request {
        env: &env,
        ..Request::of(&case, &Target::named(&target)?, &Driver::default())
    })?;
    let ending = execute(&case, &environment, Look::Check)?;
    print!(
        "{}",
        std::fs::read_to_string(environment.plan.root.join("stderr.txt"))?
    );
    ensure_eq!(ending.status, Status::Pass, "{}", ending.detail);
    Ok(())
}
