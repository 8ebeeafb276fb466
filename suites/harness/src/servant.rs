//! A process of ours that is given orders and answers through pipes until one of the two ends, and what is told of its death.
//!
//! What it is asked and answers is its starter's: lines ([`Servant::tell`], [`Servant::answer`]), or bytes through the pipes themselves.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::tail;

/// Before each answer: drivers print too.
const MARK: char = '@';
/// How many of the last lines are told of what a dead process said.
const LAST: usize = 4;
/// And of how many panics: the last is often only of what must not unwind.
const PANICS: usize = 2;

/// Killed when it is dropped.
pub struct Servant {
    child: Child,
    stdout: BufReader<ChildStdout>,
    /// Where it says what nobody asked it; `None` where that is the starter's own stderr.
    stderr: Option<PathBuf>,
}

impl Drop for Servant {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Servant {
    pub fn start(mut command: Command, stderr: Option<PathBuf>) -> io::Result<Self> {
        let said = match &stderr {
            Some(path) => File::create(path)?.into(),
            None => Stdio::inherit(),
        };
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = pipes.stderr(said).spawn()?;
        let stdout = child.stdout.take();
        let stdout = stdout.ok_or_else(|| io::Error::other("no stdout"))?;
        Ok(Self {
            child,
            stdout: BufReader::new(stdout),
            stderr,
        })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn stdin(&mut self) -> io::Result<&mut ChildStdin> {
        let stdin = self.child.stdin.as_mut();
        stdin.ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }

    pub fn stdout(&mut self) -> &mut BufReader<ChildStdout> {
        &mut self.stdout
    }

    /// A line for it.
    pub fn tell(&mut self, line: &str) -> io::Result<()> {
        self.stdin()?.write_all(format!("{line}\n").as_bytes())
    }

    /// What it says next by [`answer`]; none when it is at its end.
    pub fn answer(&mut self) -> Option<String> {
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

    pub fn kill(&mut self) {
        // Both fail only of a process that is dead already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// How it ended, and what it said last. Waits for its end, for which it gets no more orders.
    pub fn death(&mut self) -> String {
        let how = match self.child.wait() {
            Ok(status) => match status.signal() {
                Some(signal) => format!("died of signal {signal}"),
                None => format!("ended with {status}"),
            },
            Err(error) => format!("cannot be waited for: {error}"),
        };
        let said = self.stderr.as_deref().map(tail::text).unwrap_or_default();
        format!("the process {how}: {}", told(&said))
    }
}

/// Says a line to the starter. One that is gone reads no more.
pub fn answer(line: &str) {
    let _ = writeln!(io::stdout(), "{MARK}{}", line.replace('\n', " "));
}

/// Of what a process said: the last panics with their messages, however much stands behind them, and the last lines.
fn told(said: &str) -> String {
    let lines: Vec<&str> = said.lines().collect();
    let panics = (0..lines.len()).filter(|&at| lines[at].contains(" panicked at "));
    let mut shown: Vec<usize> = panics
        .rev()
        .take(PANICS)
        .flat_map(|at| [at, at + 1])
        .collect();
    shown.extend(lines.len().saturating_sub(LAST)..lines.len());
    shown.sort_unstable();
    shown.dedup();
    let shown: Vec<&str> = shown
        .iter()
        .filter_map(|&at| lines.get(at).copied())
        .collect();
    shown.join(" / ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "stack backtrace:\n   0: one\n   1: two\n   2: three\n   3: four\nnote: some details are omitted\n";

    #[test]
    fn a_panic_is_told_however_long_its_trace() {
        let cause = "thread 'main' (7) panicked at src/graph.rs:9:5:\nan id that graph_id gave";
        let end = "thread 'main' (7) panicked at library/core/src/panicking.rs:2:3:\npanic in a function that cannot unwind";
        let said = format!("before\n\n{cause}\n{TRACE}\n{end}\n{TRACE}aborting\n");
        let told = told(&said);
        for line in cause.lines().chain(end.lines()).chain(["aborting"]) {
            assert!(told.contains(line), "{line} is not in {told}");
        }
        assert!(
            !told.contains("before") && !told.contains("0: one"),
            "{told}"
        );
    }

    #[test]
    fn of_what_did_not_panic_the_last_lines_are_told() {
        assert_eq!(told("1\n2\n3\n4\n5\n"), "2 / 3 / 4 / 5");
        assert_eq!(told("panicked at"), "panicked at");
        assert_eq!(told(""), "");
    }

    #[test]
    fn answers_are_the_marked_lines_and_a_death_says_how() {
        let said = tempfile::NamedTempFile::new().expect("a file");
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "echo noise; read order; echo \"@$order\"; echo last >&2; kill -9 $$",
        ]);
        let mut servant = Servant::start(command, Some(said.path().to_owned())).expect("sh starts");
        servant.tell("hello").expect("it reads");
        assert_eq!(servant.answer().as_deref(), Some("hello"));
        assert_eq!(servant.answer(), None);
        assert_eq!(servant.death(), "the process died of signal 9: last");
    }
}
