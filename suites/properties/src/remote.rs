//! The process that carries sequences out, and its starter's end of it: a line for each sequence, a line for what became of it.
//!
//! A process that dies takes its sequence along as a failure, and the next sequence gets a fresh process in a fresh environment: so
//! what kills a process shrinks like what breaks a promise.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

use harness::environment::{Environment, EnvironmentError, Request};
use harness::{Driver, Target};

use crate::operation::Operation;
use crate::program::Program;

/// What a child is started with.
const WORD: &str = "__properties";
/// Has the process say figures after every operation.
const FIGURES: &str = "RINGFENCE_PROPERTIES_FIGURES";
/// Before each answer: drivers print too.
const MARK: char = '@';

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
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// Removed when the process is.
    environment: Environment,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Already dead is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
        let stderr = match circumstances.told {
            true => Stdio::inherit(),
            false => std::fs::File::create(plan.root.join("stderr.txt"))?.into(),
        };
        if circumstances.told {
            command.env(FIGURES, "1");
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()?;
        let stdout = child
            .stdout
            .take()
            .ok_or_else(|| std::io::Error::other("no stdout"))?;
        let mut running = Self {
            child,
            stdout: BufReader::new(stdout),
            environment,
        };
        match running.answer() {
            Some(ready) if ready == "ready" => Ok(running),
            Some(told) => Err(Trouble::Beginning(told)),
            None => Err(Trouble::Beginning(running.death())),
        }
    }

    fn run(&mut self, operations: &[Operation]) -> Result<Outcome, Trouble> {
        let mut line = serde_json::to_string(operations)?;
        line.push('\n');
        let told = self
            .child
            .stdin
            .as_mut()
            .map(|stdin| stdin.write_all(line.as_bytes()));
        let answer = told
            .is_some_and(|told| told.is_ok())
            .then(|| self.answer())
            .flatten();
        match answer {
            Some(text) => Ok(serde_json::from_str(&text)?),
            None => Ok(Outcome {
                done: operations.len(),
                calls: 0,
                broken: Some(self.death()),
            }),
        }
    }

    /// The next line of ours; none when the process is at its end.
    fn answer(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(answer) = line.trim_end().strip_prefix(MARK) {
                return Some(answer.to_owned());
            }
        }
    }

    fn death(&mut self) -> String {
        let how = match self.child.wait() {
            Ok(status) => match status.signal() {
                Some(signal) => format!("died of signal {signal}"),
                None => format!("ended with {status}"),
            },
            Err(error) => format!("cannot be waited for: {error}"),
        };
        let said = std::fs::read_to_string(self.environment.plan.root.join("stderr.txt"))
            .unwrap_or_default();
        let last: Vec<&str> = said.lines().rev().take(4).collect();
        let last: Vec<&str> = last.into_iter().rev().collect();
        format!("the process {how}: {}", last.join(" / "))
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
            say(&failure.to_string());
            return Some(ExitCode::FAILURE);
        }
    };
    program.told = std::env::var_os(FIGURES).is_some();
    say("ready");
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
        say(&serde_json::to_string(&outcome).unwrap_or_default());
    }
    Some(ExitCode::SUCCESS)
}

fn say(line: &str) {
    // A starter that is gone reads no more.
    let _ = writeln!(std::io::stdout(), "{MARK}{}", line.replace('\n', " "));
}
