//! For how long a request was let wait although there was room: the enforcer's part of a wait, the driver's teardown apart.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use harness::Bytes;
use mock_device::engine::Nanos;
use mock_device::{DeviceIndex, World};

/// How often the device is looked at.
const LOOK_EVERY: Duration = Duration::from_micros(500);

/// What the first device held over a time, the dead included until their teardown ended: each change, with the last time it was seen
/// to hold as much.
#[derive(Debug, Default)]
pub struct Room {
    stretches: Vec<Stretch>,
}

#[derive(Clone, Copy, Debug)]
struct Stretch {
    last_seen: Nanos,
    held: Bytes,
}

impl Room {
    /// Looks at the device while `body` runs.
    pub fn during<R>(world: &World, body: impl FnOnce() -> R) -> (R, Self) {
        let (done, ended) = channel::<()>();
        std::thread::scope(|scope| {
            let looker = scope.spawn(move || {
                let mut room = Self::default();
                while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                    room.add(world.now(), world.used(DeviceIndex(0)));
                }
                room
            });
            let answer = body();
            drop(done);
            (answer, looker.join().unwrap_or_default())
        })
    }

    fn add(&mut self, now: Nanos, held: Bytes) {
        match self.stretches.last_mut() {
            Some(last) if last.held == held => last.last_seen = now,
            _ => self.stretches.push(Stretch {
                last_seen: now,
                held,
            }),
        }
    }

    /// The last time before `end` at which the device was seen to have no room for that many bytes under the budget. What it held
    /// between two looks counts as what it held at the first, so that a looker that is kept waiting shows too much and never too little.
    fn last_without(&self, end: Nanos, bytes: Bytes, budget: Bytes) -> Option<Nanos> {
        let before = self.stretches.partition_point(|one| one.last_seen < end);
        let full = |one: &&Stretch| one.held + bytes > budget;
        let last = self.stretches[..before].iter().rfind(full)?;
        Some(last.last_seen)
    }
}

/// One request that took its time and was granted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wait {
    start: Nanos,
    end: Nanos,
    bytes: Bytes,
}

impl Wait {
    pub const SIZE: usize = 24;

    /// One that took so long and was granted then.
    pub fn ending(end: Nanos, took: Duration, bytes: Bytes) -> Self {
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let start = Nanos(end.0.saturating_sub(took));
        Self { start, end, bytes }
    }

    pub fn bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let numbers = [self.start.0, self.end.0, self.bytes.0];
        for (slot, number) in bytes.chunks_mut(8).zip(numbers) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// None of one that was half written when its process was killed.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let mut numbers = bytes.chunks_exact(8);
        let mut next = || Some(u64::from_le_bytes(numbers.next()?.try_into().ok()?));
        let wait = Self {
            start: Nanos(next()?),
            end: Nanos(next()?),
            bytes: Bytes(next()?),
        };
        (wait.start.0 > 0 && wait.start <= wait.end && wait.bytes.0 > 0).then_some(wait)
    }
}

/// How long the slow requests took, and how long of it there was room: ascending each.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    pub whole: Vec<Duration>,
    pub with_room: Vec<Duration>,
}

impl Waits {
    pub fn of(waits: impl Iterator<Item = Wait>, room: &Room, budget: Bytes) -> Self {
        let mut all = Self::default();
        for wait in waits {
            let since = room.last_without(wait.end, wait.bytes, budget);
            let since = since.map_or(wait.start, |full| full.max(wait.start));
            let lasted = |from: Nanos| Duration::from_nanos(wait.end.0 - from.0);
            all.whole.push(lasted(wait.start));
            all.with_room.push(lasted(since));
        }
        all.whole.sort_unstable();
        all.with_room.sort_unstable();
        all
    }

    /// `median 3ms, 99 in 100 9ms, most 12ms`.
    pub fn told(of: &[Duration]) -> String {
        let at =
            |hundredth: usize| of.get((of.len() * hundredth / 100).min(of.len().saturating_sub(1)));
        match (at(50), at(99), of.last()) {
            (Some(median), Some(high), Some(most)) => {
                format!("median {median:.1?}, 99 in 100 {high:.1?}, most {most:.1?}")
            }
            _ => "none".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn room(looks: &[(u64, u64)]) -> Room {
        let mut room = Room::default();
        for (at, held) in looks {
            room.add(Nanos(at * MS), Bytes(*held));
        }
        room
    }

    fn wait(start: u64, end: u64, bytes: u64) -> Wait {
        Wait {
            start: Nanos(start * MS),
            end: Nanos(end * MS),
            bytes: Bytes(bytes),
        }
    }

    #[test]
    fn a_wait_counts_from_the_last_look_that_showed_no_room() {
        let room = room(&[
            (1, 90),
            (50, 90),
            (51, 20),
            (60, 95),
            (70, 95),
            (75, 20),
            (90, 20),
        ]);
        let with_room = |wait: Wait| Waits::of([wait].into_iter(), &room, Bytes(100)).with_room;
        // Room came between 70 and 75, was there at 51 too, and taken by another.
        assert_eq!(with_room(wait(10, 80, 30)), [Duration::from_millis(10)]);
        // There was room for so little all the time.
        assert_eq!(with_room(wait(10, 80, 5)), [Duration::from_millis(70)]);
        // No room before it began is no excuse, and what came after it says nothing.
        assert_eq!(with_room(wait(52, 58, 30)), [Duration::from_millis(6)]);
    }

    #[test]
    fn what_was_half_written_is_no_wait() {
        let whole = wait(1, 2, 3);
        assert_eq!(Wait::read(&whole.bytes()), Some(whole));
        let mut torn = whole.bytes();
        torn[16..].fill(0);
        assert_eq!((Wait::read(&torn), Wait::read(&torn[..16])), (None, None));
    }
}
