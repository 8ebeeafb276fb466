//! The process that carries sequences out, and its starter's end of it: sequences one way, verdicts back.
//!
//! A process that dies takes its sequence along as one that broke a promise; the next gets a fresh process in a fresh environment.

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use harness::environment::{Environment, EnvironmentError, Request};
use harness::servant::Servant;
use harness::{Driver, Target};

use crate::family::Family;
use crate::session::{Session, Verdict};

/// What a child is started with.
const WORD: &str = "__fuzz";
/// Where a child says what is not asked of it, and how much of that is of interest.
const STDERR: &str = "stderr.txt";
const LINES: usize = 8;
/// Most bytes of a frame: whatever is longer is garbage.
const MOST: usize = 64 << 20;

/// Why nothing could be run at all.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Target(#[from] harness::target::TargetError),
    #[error("a process that is fuzzed: {0}")]
    Process(#[from] io::Error),
    #[error("a process that is to be fuzzed did not begin: {0}")]
    Beginning(String),
    #[error("there is no family \"{0}\"; there are {known}", known = crate::family::all().map(|family| family.name).collect::<Vec<_>>().join(", "))]
    NoFamily(String),
    #[error("not a file that `ringfence fuzz` wrote: {0}")]
    File(String),
}

/// Where sequences are run.
#[derive(Clone)]
pub struct Circumstances {
    pub target: Target,
    pub driver: Driver,
    pub machine: String,
    pub budget: String,
    pub env: Vec<(String, String)>,
}

/// What is asked of a process: sequences of one family.
#[derive(serde::Serialize, serde::Deserialize)]
struct Order {
    family: String,
    lengths: Vec<usize>,
    tell: bool,
}

/// What it says of them.
#[derive(Default, serde::Serialize, serde::Deserialize)]
pub struct Told {
    pub verdicts: Vec<Verdict>,
    /// Places that were reached since it began, of how many.
    pub reached: (usize, usize),
}

/// How a process ended that was to answer.
#[derive(Debug)]
pub struct Death(pub String);

/// A process that runs sequences.
pub struct Remote {
    servant: Servant,
    /// Removed when the process is.
    environment: Environment,
}

impl Remote {
    pub fn start(circumstances: &Circumstances) -> Result<Self, Trouble> {
        let env: Vec<(&str, &str)> = circumstances
            .env
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let environment = Environment::create(&Request {
            machine: &circumstances.machine,
            budget: &circumstances.budget,
            env: &env,
            ..Request::new("fuzz", &circumstances.target, &circumstances.driver)
        })?;
        let plan = &environment.plan;
        let mut command = Command::new(&plan.executable);
        command
            .arg(WORD)
            .arg(plan.root.join("world"))
            .arg(&plan.ledger);
        plan.apply(&mut command, plan.libraries)?;
        let mut remote = Self {
            servant: Servant::start(command, Some(plan.root.join(STDERR)))?,
            environment,
        };
        match remote.frame() {
            Ok(ready) if ready.is_empty() => Ok(remote),
            Ok(why) => Err(Trouble::Beginning(
                String::from_utf8_lossy(&why).into_owned(),
            )),
            Err(_) => Err(Trouble::Beginning(remote.servant.death())),
        }
    }

    /// Sends sequences; their verdicts are fetched with [`Remote::told`].
    pub fn send(&mut self, family: &Family, sequences: &[Vec<u8>], tell: bool) -> io::Result<()> {
        let order = Order {
            family: family.name.to_owned(),
            lengths: sequences.iter().map(Vec::len).collect(),
            tell,
        };
        let order = serde_json::to_vec(&order).map_err(io::Error::other)?;
        let mut stdin = BufWriter::new(self.servant.stdin()?);
        write_frame(&mut stdin, &order)?;
        for sequence in sequences {
            stdin.write_all(sequence)?;
        }
        stdin.flush()
    }

    /// What became of the sequences that were sent, or of the process.
    pub fn told(&mut self) -> Result<Told, Death> {
        let frame = self.frame().map_err(|_| Death(self.servant.death()))?;
        serde_json::from_slice(&frame).map_err(|error| Death(error.to_string()))
    }

    /// The last lines that it has said on stderr until now.
    pub fn said(&self) -> String {
        let path = self.environment.plan.root.join(STDERR);
        let said = std::fs::read(path).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<&str> = said.lines().rev().take(LINES).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    fn frame(&mut self) -> io::Result<Vec<u8>> {
        read_frame(self.servant.stdout())
    }
}

fn write_frame(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(&(bytes.len() as u32).to_le_bytes())?;
    out.write_all(bytes)
}

fn read_frame(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MOST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The child's side. `None` where this process is none.
pub fn child_main() -> Option<ExitCode> {
    let mut args = std::env::args().skip(1);
    if args.next()? != WORD {
        return None;
    }
    let (world, ledger) = (PathBuf::from(args.next()?), PathBuf::from(args.next()?));
    let mut out = BufWriter::new(io::stdout().lock());
    let mut say = |bytes: &[u8]| write_frame(&mut out, bytes).and_then(|()| out.flush());
    let mut session = match Session::begin(&world, &ledger) {
        Ok(session) => session,
        Err(why) => {
            // A starter that is gone reads no more.
            let _ = say(why.as_bytes());
            return Some(ExitCode::FAILURE);
        }
    };
    let served = say(&[]).and_then(|()| {
        let mut stdin = BufReader::new(io::stdin().lock());
        while let Ok(order) = read_frame(&mut stdin) {
            let order: Order = serde_json::from_slice(&order)?;
            let family = Family::named(&order.family).ok_or(io::ErrorKind::InvalidInput)?;
            let mut told = Told::default();
            for length in order.lengths {
                let mut bytes = vec![0; length];
                stdin.read_exact(&mut bytes)?;
                told.verdicts.push(session.run(family, &bytes, order.tell));
            }
            told.reached = session.reached();
            say(&serde_json::to_vec(&told)?)?;
        }
        Ok(())
    });
    Some(if served.is_ok() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
