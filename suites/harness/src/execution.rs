//! One run of one case: its process is started, heard out, looked at by the checkers while it waits, and ended.

use std::fs::File;
use std::io::{BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid,
};

use mock_device::Bytes;

use crate::case::Case;
use crate::checkers::Checkers;
use crate::child::EXHAUST;
use crate::course::{Course, Observer, Sampler};
use crate::environment::{Environment, EnvironmentError};
use crate::message::{self, Message};
use crate::nvml;
use crate::plan::Plan;
use crate::promise::Finding;
use crate::session::PATIENCE;
use crate::status::Status;
use crate::tail;

/// How often a silent child is looked at.
const TICK: Duration = Duration::from_millis(20);
/// The end of a case's stderr that a report shows.
const SHOWN_LINES: usize = 12;
/// The end of a case's trace that a report shows.
const SHOWN_CALLS: usize = 40;

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    pub status: Status,
    pub detail: String,
    /// What of that the checkers found.
    pub findings: Vec<Finding>,
    /// How much more the ledger knew of than a device held when the process had taken all that it got; `None` where it was not asked to or could not.
    pub excess: Option<Bytes>,
    /// The end of what its processes wrote to stderr, where it did not pass.
    pub said: String,
    /// The last calls that the drivers got, where it did not pass and was traced.
    pub calls: String,
    /// What the devices held meanwhile, where that was looked at.
    pub courses: Vec<Course>,
}

impl Ending {
    /// One that the checkers were not asked about.
    pub fn unchecked(status: Status, detail: String, said: String) -> Self {
        Self {
            status,
            detail,
            findings: Vec::new(),
            excess: None,
            said,
            calls: String::new(),
            courses: Vec::new(),
        }
    }
}

/// How closely a run is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Only what its body says counts.
    Away,
    /// The checkers look, while it waits and when it is dead.
    Check,
    /// And in between it takes what is left of the devices, which shows what is charged for nothing.
    Exhaust,
}

/// Runs a case in its environment.
pub fn execute(
    case: &Case,
    environment: &Environment,
    look: Look,
) -> Result<Ending, EnvironmentError> {
    attend(case, environment, look, None)
}

/// The same, with the devices' figures over the time.
pub(crate) fn execute_observed(
    case: &Case,
    environment: &Environment,
    look: Look,
    observer: &Observer,
) -> Result<Ending, EnvironmentError> {
    let (ending, courses) = observer.during(environment, |sampler| {
        attend(case, environment, look, Some(sampler))
    });
    Ok(Ending { courses, ..ending? })
}

fn attend(
    case: &Case,
    environment: &Environment,
    look: Look,
    sampler: Option<&Sampler<'_>>,
) -> Result<Ending, EnvironmentError> {
    let mark = || {
        if let Some(sampler) = sampler {
            sampler.mark();
        }
    };
    let plan = &environment.plan;
    let stderr_path = plan.root.join("stderr.txt");
    let file_error = |source| EnvironmentError::File {
        path: stderr_path.clone(),
        source,
    };
    let mut command = Command::new(&plan.executable);
    command.args(["__case", case.name]).arg(plan.path());
    plan.apply(&mut command, plan.libraries)?;
    command
        .env("RINGFENCE_ROLE", "case")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command.stderr(File::create(&stderr_path).map_err(file_error)?);
    let child = command.spawn().map_err(|source| EnvironmentError::File {
        path: plan.executable.clone(),
        source,
    })?;
    if let Some(sampler) = sampler {
        sampler.follow(child.id());
    }
    let mut run = Run::new(child, Duration::from_secs(case.seconds.into()));

    let (mut status, mut detail) = run.body();
    mark();
    let checkers = Checkers {
        environment,
        unaccounted: !case.unaccounted.is_empty(),
    };
    let judged = look != Look::Away && matches!(status, Status::Pass | Status::Fail);
    let mut findings = if judged {
        checkers.while_alive(run.child.id())
    } else {
        Vec::new()
    };
    let exhausted = judged && look == Look::Exhaust && run.exhaust();
    let excess = exhausted.then(|| checkers.excess());
    if let Some((worse, how)) = run.end(status) {
        (status, detail) = (worse, how);
    }
    // Whoever died by itself leaves nothing behind either.
    if look != Look::Away && status != Status::Skip {
        findings.extend(checkers.after_death());
    }
    mark();
    if !findings.is_empty() && status == Status::Pass {
        status = Status::Fail;
    }
    let told = [detail]
        .into_iter()
        .chain(findings.iter().map(Finding::to_string));
    let told: Vec<String> = told.filter(|line| !line.is_empty()).collect();
    let (said, calls) = match status {
        Status::Pass => (String::new(), String::new()),
        _ => (
            tail::lines(&stderr_path, SHOWN_LINES, |_| true),
            last_calls(plan),
        ),
    };
    Ok(Ending {
        status,
        detail: told.join("; "),
        findings,
        excess,
        said,
        calls,
        courses: Vec::new(),
    })
}

struct Run {
    child: Child,
    messages: Receiver<Message>,
    deadline: Instant,
    seconds: u64,
}

impl Run {
    fn new(mut child: Child, limit: Duration) -> Self {
        let (sender, messages) = channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stdout);
                while let Some(message) = message::receive(&mut lines, |_| ()) {
                    if sender.send(message).is_err() {
                        return;
                    }
                }
            });
        }
        Self {
            child,
            messages,
            deadline: Instant::now() + limit,
            seconds: limit.as_secs(),
        }
    }

    /// Waits for the end of the case's body.
    fn body(&mut self) -> (Status, String) {
        loop {
            // Asked before the messages, so that a last word is not taken for silence.
            let exited = self.exited();
            match self.messages.recv_timeout(TICK) {
                Ok(Message::Passed) => return (Status::Pass, String::new()),
                Ok(Message::Failed(seen)) => return (Status::Fail, seen),
                Ok(Message::Skipped(reason)) => return (Status::Skip, reason),
                Ok(Message::Line(_)) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => match exited {
                    Ok(Some(how)) => return (Status::Crash, how.described()),
                    Ok(None) if Instant::now() > self.deadline => {
                        return (Status::Timeout, format!("no end within {} s", self.seconds));
                    }
                    Ok(None) => std::thread::sleep(TICK / 4),
                    Err(error) => {
                        return (Status::Crash, format!("it cannot be waited for: {error}"));
                    }
                },
            }
        }
    }

    /// Has the process take what is left. Whether it did.
    fn exhaust(&mut self) -> bool {
        let asked = self
            .child
            .stdin
            .as_mut()
            .map(|stdin| writeln!(stdin, "{EXHAUST}"));
        if asked.is_none_or(|asked| asked.is_err()) {
            return false;
        }
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && matches!(self.exited(), Ok(None)) {
            match self.messages.recv_timeout(TICK) {
                Ok(Message::Line(line)) => return line == "true",
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
        false
    }

    /// Lets the process go, then ends all of its group. A bad exit outdoes what the body said.
    fn end(&mut self, body: Status) -> Option<(Status, String)> {
        drop(self.child.stdin.take());
        let patience = match body {
            Status::Pass | Status::Fail | Status::Skip => PATIENCE,
            Status::Crash | Status::Timeout => Duration::ZERO,
        };
        let deadline = Instant::now() + patience;
        let mut exit = None;
        while exit.is_none() && Instant::now() < deadline {
            exit = self.exited().ok().flatten();
            std::thread::sleep(Duration::from_millis(1));
        }
        // Its leader is not reaped yet, so that the number is still this group's.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
        let after = |how: &str| format!("its body ended, its process {how}");
        match (body, exit) {
            (Status::Crash | Status::Timeout, _) => None,
            (_, None) => Some((
                Status::Timeout,
                after(&format!("did not within {PATIENCE:?}")),
            )),
            (Status::Fail, Some(End::Status(_))) | (_, Some(End::Status(0))) => None,
            (_, Some(exit)) => Some((Status::Crash, after(&exit.described()))),
        }
    }

    /// How the process ended, if it did. It stays to be reaped.
    fn exited(&self) -> rustix::io::Result<Option<End>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let seen = waitid(WaitId::Pid(Pid::from_child(&self.child)), options)?;
        Ok(seen.map(|seen| End::of(&seen)))
    }
}

/// How a process ended.
#[derive(Clone, Copy)]
enum End {
    Status(i32),
    Signal(i32),
}

impl End {
    fn of(seen: &WaitIdStatus) -> Self {
        match seen.exit_status() {
            Some(code) => Self::Status(code),
            None => Self::Signal(seen.terminating_signal().unwrap_or_default()),
        }
    }

    fn described(self) -> String {
        match self {
            Self::Signal(signal) => format!("died of signal {signal}"),
            Self::Status(code) => format!("ended with status {code}"),
        }
    }
}

/// What the case's processes last asked the drivers for, as recorders or else the mocks themselves have it.
fn last_calls(plan: &Plan) -> String {
    let checkers = format!("\"role\":\"{}\"", nvml::CHECKER);
    let of = |path: PathBuf| tail::lines(&path, SHOWN_CALLS, |line| !line.contains(&checkers));
    Some(of(plan.record_path()))
        .filter(|calls| !calls.is_empty())
        .unwrap_or_else(|| of(plan.trace_path()))
}
