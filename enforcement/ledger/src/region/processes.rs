//! Where /proc tells of a process.
//!
//! Of one whose first thread has ended while others go on (pthread_exit in `main`, a runtime that moves on) the kernel shows descriptors, maps,
//! environment, root and namespaces by another thread alone, and calls it a zombie (R78 of `fixtures/defects.txt`).

use std::path::{Path, PathBuf};

use seeds::{Seed, planted};

use super::folders::entries;
use super::{clock, environment};

/// A file of this process's own folder, by the thread that asks.
pub fn own(name: &str) -> PathBuf {
    let folder = match planted(Seed::R78) {
        true => "/proc/self",
        false => "/proc/thread-self",
    };
    Path::new(folder).join(name)
}

/// The folder that tells of a process.
pub fn folder_of(pid: u32) -> PathBuf {
    telling(PathBuf::from(format!("/proc/{pid}")))
}

/// The folder that tells of a process, of which this is the first thread's: that of a thread that has not ended, if there is one.
pub fn telling(folder: PathBuf) -> PathBuf {
    match state_in(&folder) {
        Some((state, _)) if has_ended(state) => living_thread(&folder).unwrap_or(folder),
        _ => folder,
    }
}

/// The environment that this process began with, `NAME=value` each and ended by a NUL; nothing where nobody can tell it.
pub fn own_environment() -> Vec<u8> {
    match std::fs::read(own("environ")) {
        Ok(environment) => environment,
        // A process that lets nobody look at it (after setuid(2), or PR_SET_DUMPABLE) may not look at itself either.
        Err(_) => environment::in_memory().unwrap_or_default(),
    }
}

/// When a process started, in clock ticks since boot as the machine's own time namespace counts them; 0 where there is none of that pid, or /proc does
/// not say.
pub fn start_of(pid: u32) -> u64 {
    state_in(Path::new(&format!("/proc/{pid}"))).map_or(0, |(_, start)| start)
}

/// The same of a process that has not ended: one that nobody has waited for yet is 0.
pub fn start_of_living(pid: u32) -> u64 {
    let folder = PathBuf::from(format!("/proc/{pid}"));
    state_in(&folder).map_or(0, |(state, start)| {
        match has_ended(state) && living_thread(&folder).is_none() {
            true => 0,
            false => start,
        }
    })
}

fn living_thread(process: &Path) -> Option<PathBuf> {
    let mut threads = entries(&process.join("task")).into_iter();
    threads
        .find(|thread| state_in(thread).is_some_and(|(state, _)| !has_ended(state)))
        .filter(|_| !planted(Seed::R78))
}

fn has_ended(state: char) -> bool {
    matches!(state, 'Z' | 'X')
}

/// The letter of a process's or a thread's state, and when it started.
fn state_in(folder: &Path) -> Option<(char, u64)> {
    let line = std::fs::read_to_string(folder.join("stat")).ok()?;
    // The command's name is in parentheses and may hold anything; the start is the 20th field after it.
    let (_, after) = line.rsplit_once(')')?;
    let mut fields = after.split_whitespace();
    let state = fields.next()?.chars().next()?;
    let ticks: u64 = fields.nth(18)?.parse().ok()?;
    // A tick is 10 ms wherever Linux runs with GPUs.
    let start = ticks.saturating_sub_signed(clock::offset("boottime") / 10_000_000);
    Some((state, start))
}
