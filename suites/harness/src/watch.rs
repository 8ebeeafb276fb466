//! What NVML says, again and again: one process asks for as long as it is wanted, for NVML's own start takes longer than what is to be seen.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::artifacts;
use crate::nvml::{DeviceFigures, NvmlError};

/// From one answer to the next.
const INTERVAL: Duration = Duration::from_millis(5);
/// How long a new answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The system's own NVML, asked every few milliseconds.
pub struct Watch {
    asker: Child,
    told: Arc<Told>,
}

#[derive(Default)]
struct Told {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Clone, Default)]
struct State {
    answers: u64,
    ended: bool,
    latest: Vec<DeviceFigures>,
}

impl Watch {
    pub fn start() -> Result<Self, NvmlError> {
        Self::by(&mut Command::new(
            artifacts::program().map_err(std::io::Error::other)?,
        ))
    }

    /// Of the NVML that this program, one of ours, finds.
    fn by(command: &mut Command) -> Result<Self, NvmlError> {
        let mut asker = command
            .args(["__nvml-watch", &INTERVAL.as_millis().to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let told = Arc::<Told>::default();
        if let Some(stdout) = asker.stdout.take() {
            let told = Arc::clone(&told);
            std::thread::spawn(move || {
                told.listen(BufReader::new(stdout));
                told.state().ended = true;
                told.news.notify_all();
            });
        }
        Ok(Self { asker, told })
    }

    /// The last answer; none of any device before the first.
    pub fn latest(&self) -> Vec<DeviceFigures> {
        self.told.state().latest.clone()
    }

    /// Waits for an answer to a question that was asked after this call.
    pub fn refresh(&self) {
        let before = self.told.state().answers;
        // The next one may have been asked for already.
        let old = |state: &mut State| !state.ended && state.answers < before + 2;
        let waited = self
            .told
            .news
            .wait_timeout_while(self.told.state(), PATIENCE, old);
        drop(waited);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.asker.kill();
        let _ = self.asker.wait();
    }
}

impl Told {
    fn listen(&self, lines: impl BufRead) {
        for line in lines.lines().map_while(Result::ok) {
            let Ok(figures) = serde_json::from_str(&line) else {
                return;
            };
            let mut state = self.state();
            state.latest = figures;
            state.answers += 1;
            self.news.notify_all();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(used: u64) -> String {
        format!(r#"[{{"uuid":"GPU","total":9,"free":1,"used":{used},"processes":[[7,{used}]]}}]"#)
    }

    /// A shell stands in for the program that asks.
    fn told(script: &str) -> Watch {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        Watch::by(&mut shell).expect("a shell")
    }

    #[test]
    fn the_second_answer_from_now_is_a_fresh_one() {
        let script = format!(
            "echo '{}'; echo '{}'; exec sleep 1000",
            answer(3),
            answer(4)
        );
        let watch = told(&script);
        watch.refresh();
        assert_eq!(watch.latest()[0].processes[0].1.0, 4);
    }

    #[test]
    fn nobody_waits_for_one_that_has_died() {
        let watch = told("exit 3");
        watch.refresh();
        assert!(watch.latest().is_empty());
    }
}
