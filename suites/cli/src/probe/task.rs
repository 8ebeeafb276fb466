//! The child processes that ask, and the parent's end of them.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use harness::Libraries;
use harness::plan::Plan;

use super::ffi;
use super::ffi::say;

/// What a child is started with.
const WORD: &str = "__probe";

/// Starts children in the environment of the driver that is probed.
pub struct Asker<'a> {
    pub plan: &'a Plan,
}

/// What a child said, and how it ended.
pub struct Said {
    pub lines: Vec<String>,
    /// It ended by itself, without trouble.
    pub whole: bool,
    /// It was ended by SIGALRM: a call never came back.
    pub silent: bool,
    pub error: String,
}

impl<'a> Asker<'a> {
    pub fn new(plan: &'a Plan) -> Self {
        Self { plan }
    }

    /// Has a task done by one child. `names` is what it is about.
    pub fn start(&self, task: &str, names: &[String]) -> Result<Said, Box<dyn std::error::Error>> {
        let mut command = Command::new(&self.plan.executable);
        command.args([WORD, task]);
        self.plan.apply(&mut command, Libraries::Neither)?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A child that died does not read on.
            let _ = stdin.write_all(names.join("\n").as_bytes());
        }
        let lines = said(&mut child);
        let mut error = String::new();
        if let Some(stderr) = &mut child.stderr {
            let _ = stderr.read_to_string(&mut error);
        }
        let status = child.wait()?;
        Ok(Said {
            lines,
            whole: status.success(),
            silent: status.signal() == Some(ALARM),
            error: error.trim().to_owned(),
        })
    }

    /// The same for tasks that are expected to end well.
    pub fn ask(
        &self,
        task: &str,
        names: &[String],
    ) -> Result<Vec<String>, Box<dyn std::error::Error>> {
        let said = self.start(task, names)?;
        if said.whole {
            Ok(said.lines)
        } else {
            Err(format!("{task}: {}", said.error).into())
        }
    }
}

const ALARM: i32 = 14;

/// The lines that begin with our mark: drivers print too.
fn said(child: &mut Child) -> Vec<String> {
    let Some(stdout) = child.stdout.take() else {
        return Vec::new();
    };
    BufReader::new(stdout)
        .split(b'\n')
        .map_while(Result::ok)
        .filter_map(|line| String::from_utf8(line).ok())
        .filter_map(|line| line.strip_prefix('@').map(str::to_owned))
        .collect()
}

/// The child's side. `None` where this process is none.
pub fn child_main() -> Option<ExitCode> {
    let mut args = std::env::args().skip(1);
    if args.next()? != WORD {
        return None;
    }
    let task = args.next()?;
    let names: Vec<String> = match task.as_str() {
        "hold" => Vec::new(),
        _ => std::io::stdin()
            .lock()
            .lines()
            .map_while(Result::ok)
            .collect(),
    };
    let outcome = match task.as_str() {
        "cuda-before" => ffi::before_init(super::CUDA, &names),
        "nvml-before" => ffi::before_init(super::NVML, &names),
        "cuda-ready" => ffi::initialised_cuda(&names),
        "nvml-device" => ffi::initialised_nvml(&names, true),
        "nvml-nulls" => ffi::initialised_nvml(&names, false),
        "nvml-structures" => ffi::structures(&names),
        "proc-addresses" => match names.split_first() {
            Some((exports, bases)) => {
                let exports: Vec<String> = exports.split(' ').map(str::to_owned).collect();
                ffi::proc_addresses(bases, &exports)
            }
            None => Err("no names".to_owned()),
        },
        "nvml-identity" => ffi::nvml_identity(),
        "cuda-identity" => ffi::cuda_identity(),
        "attributes" => ffi::attributes(),
        "memory" => ffi::cuda_memory(0),
        "vulkan" => ffi::vulkan_facts(),
        "cost" => ffi::cost(),
        "hold" => match args.next() {
            Some(lock) => hold(&lock),
            None => Err("no lock to hold".to_owned()),
        },
        "teardown" => teardown(),
        other => Err(format!("no task is called {other}")),
    };
    Some(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    })
}

/// Holds a file lock, as an enforcer's ledger does, and memory, until it is killed.
fn hold(lock: &str) -> Result<(), String> {
    let file = std::fs::File::create(lock).map_err(|error| format!("{lock}: {error}"))?;
    file.lock().map_err(|error| format!("{lock}: {error}"))?;
    ffi::hold()
}

/// How long a killed process's memory stays taken: line `teardown_lag_ms N`, from when its file lock was free.
fn teardown() -> Result<(), String> {
    const PATIENCE: Duration = Duration::from_secs(60);
    let onlooker = ffi::Onlooker::open(0)?;
    let idle = onlooker.used();
    let failed = |error: std::io::Error| error.to_string();
    let lock = std::env::temp_dir().join(format!("ringfence-teardown-{}", std::process::id()));
    let mut child = Command::new(std::env::current_exe().map_err(failed)?)
        .args([WORD, "hold"])
        .arg(&lock)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout)
            .read_line(&mut line)
            .map_err(failed)?;
    }
    let file = std::fs::File::open(&lock).map_err(failed)?;
    child.kill().map_err(failed)?;
    while file.try_lock().is_err() {
        std::thread::sleep(Duration::from_micros(200));
    }
    let died = Instant::now();
    let _ = std::fs::remove_file(&lock);
    if line.trim() != "@held" {
        child.wait().map_err(failed)?;
        return Err("nothing could be held".to_owned());
    }
    while onlooker.used() > idle {
        if died.elapsed() > PATIENCE {
            return Err(format!("still taken after {PATIENCE:?}"));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    say(&format!("teardown_lag_ms {}", died.elapsed().as_millis()));
    child.wait().map_err(failed)?;
    Ok(())
}
