//! The other processes of a case: same executable, another role, lines over stdin and stdout.

use std::io::{BufReader, Stdin, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::case::Libraries;
use crate::failure::Failure;
use crate::message::{self, Message};
use crate::session::{PATIENCE, Session};

/// A role process that is about to start.
#[must_use = "start() starts it"]
pub struct Launch<'a> {
    session: &'a Session,
    role: String,
    name: Option<String>,
    args: Vec<String>,
    libraries: Libraries,
    env: Vec<(String, Option<String>)>,
    /// The only variables that it is left, where its environment is scrubbed.
    keeps: Option<Vec<String>>,
    /// The program that starts it, where that is not we.
    through: Vec<String>,
}

impl<'a> Launch<'a> {
    pub(crate) fn new(session: &'a Session, role: &str) -> Self {
        Self {
            session,
            role: role.to_owned(),
            name: None,
            args: Vec::new(),
            libraries: session.plan().libraries,
            env: Vec::new(),
            keeps: None,
            through: Vec::new(),
        }
    }

    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), Some(value.to_owned())));
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.env.push((name.to_owned(), None));
        self
    }

    /// Takes all variables but these from it, as a program does that starts others with an environment of its own.
    pub fn scrubbed(mut self, keeps: &[&str]) -> Self {
        self.keeps = Some(keeps.iter().map(|&name| name.to_owned()).collect());
        self
    }

    /// Has another program start it: the process's own command follows that program's arguments.
    pub fn through(mut self, program: &str, args: &[&str]) -> Self {
        let words = std::iter::once(&program).chain(args);
        self.through = words.map(|&word| word.to_owned()).collect();
        self
    }

    /// Which of the target's libraries this process meets; otherwise the case's.
    pub fn libraries(mut self, libraries: Libraries) -> Self {
        self.libraries = libraries;
        self
    }

    /// What traces and fault plans call it (`RINGFENCE_ROLE`); otherwise the role's name, the second one `name#2`.
    pub fn named(mut self, name: &str) -> Self {
        self.name = Some(name.to_owned());
        self
    }

    pub fn start(self) -> Result<Peer, Failure> {
        let plan = self.session.plan();
        let name = self
            .name
            .unwrap_or_else(|| self.session.next_name(&self.role));
        let mut command = match self.through.split_first() {
            None => Command::new(&plan.executable),
            Some((program, args)) => {
                let mut command = Command::new(program);
                command.args(args).arg(&plan.executable);
                command
            }
        };
        command
            .args(["__role", &self.role])
            .arg(plan.path())
            .args(&self.args);
        plan.apply(&mut command, self.libraries)?;
        command.env("RINGFENCE_ROLE", &name);
        for (variable, value) in &self.env {
            match value {
                Some(value) => command.env(variable, value),
                None => command.env_remove(variable),
            };
        }
        if let Some(keeps) = &self.keeps {
            let kept: Vec<_> = command
                .get_envs()
                .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
                .filter(|(name, _)| keeps.iter().any(|keep| name == keep.as_str()))
                .collect();
            command.env_clear().envs(kept);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (sender, messages) = channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stdout);
                while let Some(message) =
                    message::receive(&mut lines, |chatter| eprintln!("{chatter}"))
                {
                    if sender.send(message).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Peer {
            name,
            stdin: child.stdin.take(),
            child,
            messages,
        })
    }
}

/// A running role process, as its starter sees it. Dropping kills and reaps it.
pub struct Peer {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    messages: Receiver<Message>,
}

impl Peer {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Says a line to it.
    pub fn say(&mut self, line: &str) -> Result<(), Failure> {
        let name = &self.name;
        let stdin = self
            .stdin
            .as_mut()
            .ok_or_else(|| Failure::Broken(format!("{name} was told to finish already")))?;
        message::send(&Message::Line(line.to_owned()), stdin)
            .map_err(|error| Failure::Broken(format!("{name} does not listen: {error}")))
    }

    /// The next line it says; its failure or silence is the case's.
    pub fn line(&mut self) -> Result<String, Failure> {
        match self.line_within(PATIENCE)? {
            Some(line) => Ok(line),
            None => Err(Failure::Broken(format!(
                "{} was silent for {PATIENCE:?}",
                self.name
            ))),
        }
    }

    /// The next line, or `None` where it stays silent for that long.
    pub fn line_within(&mut self, patience: Duration) -> Result<Option<String>, Failure> {
        let name = &self.name;
        match self.messages.recv_timeout(patience) {
            Ok(Message::Line(line)) => Ok(Some(line)),
            Ok(Message::Passed) => Err(Failure::Broken(format!(
                "{name} ended where a line was expected"
            ))),
            Ok(Message::Failed(seen)) => Err(Failure::Broken(format!("{name}: {seen}"))),
            Ok(Message::Skipped(reason)) => Err(Failure::Skip(format!("{name}: {reason}"))),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.child.wait()?;
                Err(Failure::Broken(format!("{name} died: {status}")))
            }
        }
    }

    /// The next line, read as a number.
    pub fn number(&mut self) -> Result<u64, Failure> {
        let line = self.line()?;
        line.parse().map_err(|_| {
            Failure::Broken(format!(
                "{} said \"{line}\", a number was expected",
                self.name
            ))
        })
    }

    /// SIGKILL, and waits until it is reaped. Its memory may come back later: that is the driver's teardown.
    pub fn kill(&mut self) -> Result<ExitStatus, Failure> {
        self.child.kill()?;
        Ok(self.child.wait()?)
    }

    /// SIGSTOP.
    pub fn suspend(&self) -> Result<(), Failure> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::STOP)?)
    }

    /// SIGCONT.
    pub fn resume(&self) -> Result<(), Failure> {
        Ok(kill_process(Pid::from_child(&self.child), Signal::CONT)?)
    }

    /// Ends its input and waits for its exit, whatever that is.
    pub fn wait(&mut self) -> Result<ExitStatus, Failure> {
        self.stdin = None;
        Ok(self.child.wait()?)
    }

    /// Ends its input and waits for its body to pass; lines not yet read are dropped.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.stdin = None;
        loop {
            match self.messages.recv_timeout(PATIENCE) {
                Ok(Message::Line(_)) => {}
                Ok(Message::Passed) => break,
                Ok(Message::Failed(seen)) => {
                    return Err(Failure::Broken(format!("{}: {seen}", self.name)));
                }
                Ok(Message::Skipped(reason)) => {
                    return Err(Failure::Skip(format!("{}: {reason}", self.name)));
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Failure::Broken(format!(
                        "{} did not end in {PATIENCE:?}",
                        self.name
                    )));
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = self.child.wait()?;
        if status.success() {
            return Ok(());
        }
        let how = match status.signal() {
            Some(signal) => format!("died of signal {signal}"),
            None => format!("ended with {status}"),
        };
        Err(Failure::Broken(format!("{} {how}", self.name)))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Already reaped is as good as killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The starter, as a role sees it.
pub struct Parent {
    args: Vec<String>,
    stdin: BufReader<Stdin>,
}

impl Parent {
    pub(crate) fn new(args: Vec<String>) -> Self {
        Self {
            args,
            stdin: BufReader::new(std::io::stdin()),
        }
    }

    pub fn args(&self) -> &[String] {
        &self.args
    }

    /// Argument `index`, read as a number.
    pub fn number(&self, index: usize) -> Result<u64, Failure> {
        let text = self.args.get(index).map_or("", String::as_str);
        text.parse().map_err(|_| {
            Failure::Broken(format!(
                "argument {index} is \"{text}\", a number was expected"
            ))
        })
    }

    pub fn say(&mut self, line: &str) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        message::send(&Message::Line(line.to_owned()), &mut out)?;
        Ok(out.flush()?)
    }

    /// The next line it is told; `None` when it should finish.
    pub fn hear(&mut self) -> Option<String> {
        match message::receive(&mut self.stdin, |_| ())? {
            Message::Line(line) => Some(line),
            Message::Passed | Message::Failed(_) | Message::Skipped(_) => None,
        }
    }
}
