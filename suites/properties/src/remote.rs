//! The process that carries sequences out, and its starter's end of it: a line for each sequence, a line for what became of it.
//!
//! A process that dies takes its sequence along as a failure, and the next sequence gets a fresh process in a fresh environment: so
//! what kills a process shrinks like what breaks a promise.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use harness::environment::{Environment, EnvironmentError, Request};
use harness::servant::{self, Servant};
use harness::{Driver, Target};

use crate::operation::Operation;
use crate::program::Program;

/// What a child is started with.
const WORD: &str = "__properties";
/// Has the process say figures after every operation.
const FIGURES: &str = "RINGFENCE_PROPERTIES_FIGURES";

/// What became of a sequence.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Outcome {
    /// Operations that were begun.
    pub done: usize,
    /// Calls of the APIs that they made.
    pub calls: u64,
    pub broken: Option<String>,
}

/// Why nothing could be run at all.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Target(#[from] harness::target::TargetError),
    #[error("the process that runs sequences: {0}")]
    Process(#[from] std::io::Error),
    #[error("the process that runs sequences did not begin: {0}")]
    Beginning(String),
    #[error("a sequence or its outcome: {0}")]
    Text(#[from] serde_json::Error),
}

/// Where sequences are run.
pub struct Circumstances {
    pub target: Target,
    pub driver: Driver,
    pub machine: String,
    pub budget: String,
    /// Has the process say figures after every operation.
    pub told: bool,
}

impl Circumstances {
    /// Two GPUs with different budgets.
    pub fn over_mocks(target: Target) -> Self {
        Self {
            target,
            driver: Driver::default(),
            machine: "rtx6000-ada*2".to_owned(),
            budget: "0=4GiB,1=2GiB".to_owned(),
            told: false,
        }
    }
}

struct Running {
    servant: Servant,
    /// Removed when the process is.
    _environment: Environment,
}

/// Runs sequences in a process that is started when one is needed.
pub struct Remote {
    circumstances: Circumstances,
    running: Option<Running>,
}

impl Remote {
    pub fn new(circumstances: Circumstances) -> Self {
        Self {
            circumstances,
            running: None,
        }
    }

    /// The next sequence gets a fresh process.
    pub fn forget(&mut self) {
        self.running = None;
    }

    pub fn run(&mut self, operations: &[Operation]) -> Result<Outcome, Trouble> {
        let mut running = match self.running.take() {
            Some(running) => running,
            None => Running::start(&self.circumstances)?,
        };
        let outcome = running.run(operations)?;
        // After a failure nothing is known of the process.
        if outcome.broken.is_none() {
            self.running = Some(running);
        }
        Ok(outcome)
    }
}

impl Running {
    fn start(circumstances: &Circumstances) -> Result<Self, Trouble> {
        let environment = Environment::create(&Request {
            machine: &circumstances.machine,
            budget: &circumstances.budget,
            ..Request::new("properties", &circumstances.target, &circumstances.driver)
        })?;
        let plan = &environment.plan;
        let mut command = Command::new(&plan.executable);
        command
            .arg(WORD)
            .arg(plan.root.join("world"))
            .arg(&plan.ledger);
        plan.apply(&mut command, plan.libraries)?;
        let stderr = (!circumstances.told).then(|| plan.root.join("stderr.txt"));
        if circumstances.told {
            command.env(FIGURES, "1");
        }
        let mut running = Self {
            servant: Servant::start(command, stderr)?,
            _environment: environment,
        };
        match running.servant.answer() {
            Some(ready) if ready == "ready" => Ok(running),
            Some(told) => Err(Trouble::Beginning(told)),
            None => Err(Trouble::Beginning(running.servant.death())),
        }
    }

    fn run(&mut self, operations: &[Operation]) -> Result<Outcome, Trouble> {
        let told = self.servant.tell(&serde_json::to_string(operations)?);
        match told.ok().and_then(|()| self.servant.answer()) {
            Some(text) => Ok(serde_json::from_str(&text)?),
            None => Ok(Outcome {
                done: operations.len(),
                calls: 0,
                broken: Some(self.servant.death()),
            }),
        }
    }
}

/// The child's side. `None` where this process is none.
pub fn child_main() -> Option<ExitCode> {
    let mut args = std::env::args().skip(1);
    if args.next()? != WORD {
        return None;
    }
    let (world, ledger) = (PathBuf::from(args.next()?), PathBuf::from(args.next()?));
    let mut program = match Program::begin(&world, &ledger) {
        Ok(program) => program,
        Err(failure) => {
            servant::answer(&failure.to_string());
            return Some(ExitCode::FAILURE);
        }
    };
    program.told = std::env::var_os(FIGURES).is_some();
    servant::answer("ready");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let Ok(operations) = serde_json::from_str::<Vec<Operation>>(&line) else {
            return Some(ExitCode::FAILURE);
        };
        let before = program.calls;
        let (done, broken) = program.run(&operations);
        let outcome = Outcome {
            done,
            calls: program.calls - before,
            broken,
        };
        servant::answer(&serde_json::to_string(&outcome).unwrap_or_default());
    }
    Some(ExitCode::SUCCESS)
}
