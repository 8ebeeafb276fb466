//! A process that does as it is told, line by line: the same test executable, run again as its own child.

use crate::{kernel, stress};
use ledger::{Bytes, DeviceIndex, Driver, Key, Ledger, NoDriver, Refusal, Setup};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child as Process, ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "LEDGER_TEST_ROLE";
/// Marks the child's answers among what libtest prints.
const MARK: &str = "@ ";

pub const DEVICE: DeviceIndex = DeviceIndex(0);
pub const MIB: u64 = 1 << 20;

/// A budget on device 0 only.
pub fn setup(budget: u64) -> Setup {
    let mut setup = Setup::default();
    setup.budgets[0] = Some(Bytes(budget));
    setup
}

/// A child that waits for orders. Killed when dropped.
pub struct Child {
    process: Process,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Child {
    pub fn start() -> Child {
        Child::start_by(&[])
    }

    /// A child that another program becomes.
    pub fn start_by(program: &[&str]) -> Child {
        let executable = std::env::current_exe().unwrap();
        let program = program.iter().map(OsStr::new);
        let words: Vec<&OsStr> = program.chain([executable.as_os_str()]).collect();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .args(["--exact", "child::obeys", "--nocapture", "--test-threads=1"])
            .env(ROLE, "1");
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Child {
            process,
            orders,
            answers,
        }
    }

    /// A child with a slot.
    pub fn attached(path: &Path, budget: u64) -> Child {
        let mut child = Child::start();
        assert_eq!(
            child.ask(&format!("attach {} {budget}", path.display())),
            "attached"
        );
        child
    }

    /// Gives an order without waiting.
    pub fn say(&mut self, order: &str) {
        let orders = self.orders.as_mut().unwrap();
        writeln!(orders, "{order}").unwrap();
        orders.flush().unwrap();
    }

    /// The next answer; empty once the child is gone.
    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        while self.answers.read_line(&mut line).unwrap_or(0) > 0 {
            if let Some((_, answer)) = line.split_once(MARK) {
                return answer.trim_end().to_string();
            }
            line.clear();
        }
        String::new()
    }

    pub fn ask(&mut self, order: &str) -> String {
        self.say(order);
        self.answer()
    }

    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// SIGKILL, and the end is waited for.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let status = self.process.wait().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGKILL));
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn tell(answer: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{MARK}{answer}");
    let _ = out.flush();
}

/// Not a test of its own: what a child runs. Without the role it has nothing to do.
#[test]
fn obeys() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let mut ledger: Option<Ledger> = None;
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { return };
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |place: usize| {
            words
                .get(place)
                .and_then(|word| word.parse::<u64>().ok())
                .unwrap_or(0)
        };
        match (words.first().copied().unwrap_or(""), &ledger) {
            ("attach", _) => {
                let attached = Ledger::attach(Path::new(words[1]), &setup(number(2)));
                tell(
                    &attached
                        .as_ref()
                        .map_or_else(|error| format!("{:?}", error.reason), |_| "attached".into()),
                );
                ledger = attached.ok();
            }
            ("detach", _) => {
                ledger = None;
                tell("detached");
            }
            ("unshare", _) => tell(&kernel::own_pid_namespace()),
            ("stress", _) => stress::hammer(
                Path::new(words[1]),
                Path::new(words[2]),
                number(3),
                number(4) as usize,
            ),
            (_, None) => tell("no ledger"),
            ("reserve", Some(ledger)) => tell(&verdict(reserve(ledger, number(1), &NoDriver))),
            ("reserve-asking", Some(ledger)) => {
                tell(&verdict(reserve(ledger, number(1), &kernel::Alive)))
            }
            ("release", Some(ledger)) => {
                ledger.release(DEVICE, Bytes(number(1)));
                tell("released");
            }
            ("name", Some(ledger)) => {
                let devices = core::iter::once(DEVICE).collect();
                let named =
                    ledger.name_object(Key([number(1), 7]), devices, Bytes(number(2)), None);
                tell(if named.is_some() { "named" } else { "no room" });
            }
            ("hold", Some(ledger)) => {
                let held = ledger.hold_object(Key([number(1), 7]));
                tell(if held.is_some() { "held" } else { "unknown" });
            }
            ("note-listed", Some(ledger)) => {
                ledger.note_listed(DEVICE);
                tell("noted");
            }
            ("usage", Some(ledger)) => tell(&ledger.usage(DEVICE).0.to_string()),
            ("own", Some(ledger)) => tell(&ledger.own_usage(DEVICE).0.to_string()),
            ("close-all", Some(_)) => {
                kernel::close_from(3);
                tell("closed");
            }
            ("no-descriptors", Some(_)) => {
                kernel::close_from(3);
                kernel::allow_descriptors(3);
                tell("none");
            }
            ("fork-and-stay", Some(_)) => tell(&kernel::fork_and_stay().to_string()),
            ("fork-busy", Some(ledger)) => tell(&kernel::fork_while_busy(
                ledger,
                Path::new(words[1]),
                number(2) as usize,
            )),
            (unknown, _) => tell(&format!("unknown order {unknown}")),
        }
    }
}

pub fn reserve(ledger: &Ledger, bytes: u64, driver: &dyn Driver) -> Result<(), Refusal> {
    ledger
        .reserve_with(DEVICE, Bytes(bytes), driver)
        .map(ledger::Reservation::commit)
}

/// The variant's name, or `granted`.
fn verdict(result: Result<(), Refusal>) -> String {
    match result {
        Ok(()) => "granted".into(),
        Err(refusal) => {
            let text = format!("{refusal:?}");
            text.split([' ', '{'])
                .next()
                .unwrap_or_default()
                .to_string()
        }
    }
}
