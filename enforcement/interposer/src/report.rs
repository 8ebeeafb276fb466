//! What a user is told: a few lines once, and on request each decision.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use ledger::KeptErrno;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use budget::settings::{LogLevel, Settings};

use crate::boundary::entries::{Entry, name_at};
use crate::boundary::sign;
use crate::outcome::{Outcome, Refused};
use crate::process::{Standing, standing};

/// Lines that appear once in a process and its children.
#[derive(Clone, Copy)]
pub enum Once {
    Unparsable,
    NoLedger,
    OtherBudget,
    OtherShare,
    Remarks,
    UnknownDevice,
    LostLedger,
    Unasked,
    UnknownVariant,
    UnknownLimit,
    UnknownLocation,
    Overdrawn,
    NoMemory,
    SecondDriver,
    NarrowContexts,
    Seen,
    Precedes,
    OddImage,
}

impl Once {
    /// Whether it says why nothing is granted; the others are warnings.
    fn is_error(self) -> bool {
        match self {
            Once::Unparsable | Once::NoLedger | Once::UnknownDevice | Once::LostLedger => true,
            Once::NoMemory
            | Once::SecondDriver
            | Once::NarrowContexts
            | Once::Precedes
            | Once::OddImage => true,
            Once::UnknownVariant | Once::UnknownLimit | Once::UnknownLocation => true,
            Once::OtherBudget
            | Once::OtherShare
            | Once::Remarks
            | Once::Unasked
            | Once::Seen
            | Once::Overdrawn => false,
        }
    }
}

static SAID: AtomicU32 = AtomicU32::new(0);
/// Decisions are wanted, as a trace or on stderr.
static LOUD: AtomicBool = AtomicBool::new(false);
/// LIBCUDA_LOG_LEVEL, as HAMi-core counts: 0 errors alone; 1 and 2 warnings and messages too, which are refusals here; 3 what was found out; 4
/// every decision. Unset: errors and warnings, which are said once.
static LEVEL: AtomicU8 = AtomicU8::new(UNSET);
const UNSET: u8 = u8::MAX;

/// Says what the settings make necessary to say.
pub fn begin(settings: &Settings) {
    let level = settings.log_level.map_or(UNSET, |LogLevel(level)| level);
    LEVEL.store(level, Ordering::Relaxed);
    if let Some(refusal) = settings.refusal() {
        once(
            Once::Unparsable,
            format_args!("{refusal}; every allocation is refused"),
        );
    }
    remarks(settings);
    LOUD.store(
        settings.trace.is_some() || settings.log_level >= Some(LogLevel(1)),
        Ordering::Relaxed,
    );
}

/// What of the settings means nothing. Said also where nothing is enforced: somebody may have meant to.
pub fn remarks(settings: &Settings) {
    if !settings.remarks.is_empty() && is_wanted(Once::Remarks) {
        for remark in &settings.remarks {
            line(format_args!("{remark}"));
        }
    }
}

/// One line, the first time only.
pub fn once(which: Once, text: fmt::Arguments<'_>) {
    if is_wanted(which) {
        line(text);
    }
}

fn is_wanted(which: Once) -> bool {
    let heard = which.is_error() || LEVEL.load(Ordering::Relaxed) != 0;
    heard && first(which) && !sign::is_spoken_for()
}

/// Whether what was found out is wanted.
#[inline]
pub fn informs() -> bool {
    matches!(LEVEL.load(Ordering::Relaxed), 3..=4)
}

/// What was found out, if anybody wants to know.
pub fn info(text: fmt::Arguments<'_>) {
    if informs() {
        line(text);
    }
}

/// One decision, if anybody wants to know.
#[inline]
pub fn outcome<R: fmt::Debug>(entry: Entry, outcome: &Outcome<R>) {
    if LOUD.load(Ordering::Relaxed) {
        tell(entry, outcome);
    }
}

#[cold]
fn tell<R: fmt::Debug>(entry: Entry, outcome: &Outcome<R>) {
    let Standing::Enforce(tenant) = standing() else {
        return;
    };
    let _errno = KeptErrno::keep();
    let name = name_at(entry as usize).to_str().unwrap_or_default();
    let level = tenant.settings().log_level;
    match outcome {
        Outcome::Refused(refused) if level >= Some(LogLevel(1)) => {
            line(format_args!("{name}: {refused}"))
        }
        _ if level >= Some(LogLevel(4)) => line(format_args!("{name}: {outcome:?}")),
        _ => {}
    }
    if let Some(path) = &tenant.settings().trace {
        trace(path, name, outcome);
    }
}

fn trace<R: fmt::Debug>(path: &Path, name: &str, outcome: &Outcome<R>) {
    let mut text = Line::new();
    let _ = match outcome {
        Outcome::Done(answer) => writeln!(
            text,
            r#"{{"hook":"{name}","outcome":"done","answer":"{answer:?}"}}"#
        ),
        Outcome::PassThrough(reason) => writeln!(
            text,
            r#"{{"hook":"{name}","outcome":"pass-through","reason":"{reason:?}"}}"#
        ),
        Outcome::Refused(refused) => writeln!(
            text,
            r#"{{"hook":"{name}","outcome":"refused","reason":"{refused}"}}"#
        ),
    };
    // Opened for each line: a program that closes every descriptor keeps its trace. O_NONBLOCK: it may be a pipe that nobody reads.
    let opened = OpenOptions::new()
        .create(true)
        .append(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path);
    if let Ok(file) = opened {
        ledger::write_quietly(file.as_raw_fd(), text.bytes());
    }
}

fn first(which: Once) -> bool {
    SAID.fetch_or(1 << which as u32, Ordering::AcqRel) & (1 << which as u32) == 0
}

fn line(text: fmt::Arguments<'_>) {
    let mut line = Line::new();
    let _ = writeln!(line, "ringfence: {text}");
    ledger::complain(line.bytes());
}

/// A line in a buffer of its own: eprintln allocates, locks, and panics where stderr is closed.
struct Line {
    bytes: [u8; 1024],
    length: usize,
}

impl Line {
    fn new() -> Line {
        Line {
            bytes: [0; 1024],
            length: 0,
        }
    }

    /// What was written; a line that was too long ends as one all the same.
    fn bytes(&mut self) -> &[u8] {
        if self.length == self.bytes.len() {
            self.bytes[self.length - 1] = b'\n';
        }
        &self.bytes[..self.length]
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let taken = text.len().min(room.len());
        room[..taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.length += taken;
        Ok(())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Ledger(refusal) => refusal.fmt(formatter),
            Refused::NotEnforceable => formatter.write_str("the budget cannot be enforced"),
            Refused::UnknownDevice => formatter.write_str("no budget is known for the device"),
            Refused::TableFull => formatter.write_str("the table of allocations is full"),
            Refused::NoDescriptor => {
                formatter.write_str("this process has no descriptor left to see what it shares by")
            }
            Refused::NoMemory => formatter.write_str("no memory for our own state"),
            Refused::Panicked => formatter.write_str("an error of our own"),
        }
    }
}
