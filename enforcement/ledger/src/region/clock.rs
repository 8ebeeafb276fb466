//! The clock that all processes of a machine share. CLOCK_MONOTONIC alone is not it: a time namespace shifts it (time_namespaces(7)), and who lives in
//! another's past or future pays nothing into what they share. Nor is libc's `clock_gettime`, which the program may have replaced (libfaketime has it stand
//! still): the kernel is asked by the vDSO, without a symbol of anybody's.

mod vdso;

use super::{KeptErrno, identity_at};
use core::sync::atomic::{AtomicI64, Ordering};
use core::time::Duration;
use seeds::{Seed, planted};

/// What this process's clock is ahead of the machine's, in nanoseconds, once that was read.
static AHEAD: AtomicI64 = AtomicI64::new(UNREAD);
const UNREAD: i64 = i64::MIN;

/// Nanoseconds; never 0.
pub fn now() -> u64 {
    nanoseconds(libc::CLOCK_MONOTONIC)
        .saturating_sub_signed(ahead())
        .max(1)
}

/// Milliseconds of [`now`]; never 0.
pub fn now_ms() -> u64 {
    (now() / 1_000_000).max(1)
}

/// Milliseconds as the kernel last noted them, some ago at most: a tenth of the cost. Of this process alone.
pub fn coarse_ms() -> u64 {
    (nanoseconds(libc::CLOCK_MONOTONIC_COARSE) / 1_000_000).max(1)
}

/// Waits until [`now`] says so much; a signal may end it early. Not by libc's function, which is a point where a thread may be cancelled. Keeps errno.
pub fn sleep_until(until: u64) {
    let until = until.saturating_add_signed(ahead());
    let until = libc::timespec {
        tv_sec: (until / 1_000_000_000) as libc::time_t,
        tv_nsec: (until % 1_000_000_000) as libc::c_long,
    };
    let _errno = KeptErrno::keep();
    // SAFETY: reads one timespec; nothing is written where the time is absolute.
    unsafe {
        libc::syscall(
            libc::SYS_clock_nanosleep,
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const until,
            core::ptr::null_mut::<libc::timespec>(),
        )
    };
}

/// Waits so long; a signal may end it early. Keeps errno.
pub fn pause(time: Duration) {
    sleep_until(now().saturating_add(nanoseconds_of(time)));
}

/// A moment of [`now`].
#[derive(Clone, Copy, Debug)]
pub struct Moment(u64);

impl Moment {
    pub fn now() -> Moment {
        Moment(now())
    }

    pub fn elapsed(self) -> Duration {
        Duration::from_nanos(now().saturating_sub(self.0))
    }
}

fn nanoseconds_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// In a child, which may have been born into another namespace. Async-signal-safe.
pub fn forget() {
    AHEAD.store(UNREAD, Ordering::Relaxed);
}

fn ahead() -> i64 {
    match AHEAD.load(Ordering::Relaxed) {
        UNREAD => {
            let _errno = KeptErrno::keep();
            let read = offset("monotonic");
            AHEAD.store(read, Ordering::Relaxed);
            read
        }
        known => known,
    }
}

/// What this process's time namespace adds to a clock that `/proc/self/timens_offsets` names, in nanoseconds. 0 where the kernel has no time namespaces,
/// and for who has made one for its children alone; also where nobody tells: a thread's folder has no such file, and the process's is empty once its first
/// thread has ended.
pub fn offset(clock: &str) -> i64 {
    let inode = |name| identity_at(name).map_or(0, |found| found.inode);
    if inode(c"/proc/thread-self/ns/time") != inode(c"/proc/thread-self/ns/time_for_children") {
        return 0;
    }
    let told = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
    told.lines()
        .find_map(|line| told_of(line, clock))
        .unwrap_or(0)
}

/// A line of `/proc/self/timens_offsets`: `clock seconds nanoseconds`.
fn told_of(line: &str, clock: &str) -> Option<i64> {
    let mut fields = line.split_whitespace();
    if fields.next()? != clock {
        return None;
    }
    let mut number = || fields.next()?.parse::<i64>().ok();
    let (seconds, nanoseconds) = (number()?, number()?);
    Some(
        seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(nanoseconds),
    )
}

fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    if planted(Seed::P17) {
        // SAFETY: writes one timespec, which is ours.
        unsafe { libc::clock_gettime(clock, &raw mut now) };
    } else if !vdso::read(clock, &mut now) {
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut now) };
    }
    (now.tv_sec as u64)
        .saturating_mul(1_000_000_000)
        .saturating_add(now.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_offsets_is_read_in_nanoseconds_and_others_are_not() {
        let line = "monotonic      100000         5";
        assert_eq!(told_of(line, "monotonic"), Some(100_000_000_000_005));
        assert_eq!(told_of(line, "boottime"), None);
        assert_eq!(
            told_of("monotonic  -2 7", "monotonic"),
            Some(-1_999_999_993)
        );
    }

    #[test]
    fn what_is_slept_until_has_come() {
        let until = now() + 3_000_000;
        while now() < until {
            sleep_until(until);
        }
        assert!(now_ms() >= until / 1_000_000);
    }
}
