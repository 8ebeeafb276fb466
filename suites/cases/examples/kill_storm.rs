//! The long form of the kill storm, every second process by Vulkan: `cargo run --release -p cases --example kill_storm -- 2000`.

use std::process::ExitCode;

use cases::SUITE;
use cases::kill_storm::KILLS;
use harness::environment::{Environment, Request};
use harness::execution::{Look, execute};
use harness::{Case, Driver, Failure, Status, Target, child_main, ensure_eq, fail};

const CASE: &str = "a_storm_of_kills_loses_nothing_and_grants_nothing_twice";

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
    let target = std::env::args().nth(2).unwrap_or_else(|| "ours".to_owned());
    let Some(short) = SUITE.case(CASE) else {
        fail!("the suite has lost {CASE}")
    };
    let case = Case {
        seconds: short.seconds.max(number),
        ..*short
    };
    let environment = Environment::create(&Request {
        env: &[(KILLS, &kills)],
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
