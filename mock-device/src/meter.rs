//! Meters: what of a process's work is over, and what it still has to do. They lie in the world's file, one per process,
//! device and engine or kind of traffic; what they are for is the [engine](crate::engine)'s.
//!
//! Work is known to the nanosecond until [`EXACT`] after its end, as long as there is room for it, and in [`GRAIN`]s of 17 ms
//! for the 2.1 s before that.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::engine::{Interval, Spot};
use crate::region::{GRAINS, Meter, RUNS, Run};

/// Finished work is remembered in spans of this many nanoseconds.
pub(crate) const GRAIN: u64 = 1 << 24;
/// For so long finished work is told from what stood beside it in its grain: who measures something short begins in the
/// middle of a grain, and what ended before is not to be seen in it.
const EXACT: u64 = 8 * GRAIN;

/// A meter's content at one instant.
pub(crate) struct Activity {
    grains: Vec<u64>,
    runs: Vec<(u64, u64)>,
}

impl Activity {
    /// Time with work between two times inside one grain.
    pub(crate) fn within(&self, start: u64, end: u64) -> u64 {
        let runs = self
            .runs
            .iter()
            .map(|(from, to)| end.min(*to).saturating_sub(start.max(*from)));
        let remembered = self.grains[(start / GRAIN) as usize % GRAINS];
        runs.sum::<u64>() + part(remembered, start, end)
    }
}

/// What a grain's word says of a part of it.
fn part(word: u64, start: u64, end: u64) -> u64 {
    if word >> 32 != (start / GRAIN) & 0xffff_ffff {
        return 0;
    }
    (word & 0xffff_ffff) * (end - start) / GRAIN
}

pub(crate) fn grain_within(grains: &[AtomicU64; GRAINS], start: u64, end: u64) -> u64 {
    part(
        grains[(start / GRAIN) as usize % GRAINS].load(Relaxed),
        start,
        end,
    )
}

/// Adds work between two times, of which only the last [`GRAINS`] grains are kept.
pub(crate) fn remember(grains: &[AtomicU64; GRAINS], from: u64, to: u64) {
    let mut start = from.max(to.saturating_sub(GRAIN * GRAINS as u64));
    while start < to {
        let grain = start / GRAIN;
        let end = ((grain + 1) * GRAIN).min(to);
        add(grains, grain, end - start);
        start = end;
    }
}

pub(crate) fn add(grains: &[AtomicU64; GRAINS], grain: u64, more: u64) {
    let word = &grains[grain as usize % GRAINS];
    let (tag, known) = (grain & 0xffff_ffff, word.load(Relaxed));
    let busy = if known >> 32 == tag {
        (known & 0xffff_ffff) + more
    } else {
        more
    };
    word.store(tag << 32 | busy.min(0xffff_ffff), Relaxed);
}

impl Meter {
    pub(crate) fn is_of(&self, at: Spot) -> bool {
        self.tag.load(Acquire) == at.tag()
    }

    pub(crate) fn claim(&self, row: usize, at: Spot) {
        self.row.store(row as u32, Relaxed);
        self.tag.store(at.tag(), Release);
    }

    pub(crate) fn clear(&self) {
        self.until.store(0, Relaxed);
        for run in &self.runs {
            run.start.store(0, Relaxed);
            run.end.store(0, Relaxed);
        }
        self.grains.iter().for_each(|grain| grain.store(0, Relaxed));
    }

    /// When the last work that was ever submitted ends.
    #[inline]
    pub(crate) fn until(&self) -> u64 {
        self.until.load(Relaxed)
    }

    /// Changes the meter so that readers notice.
    #[inline]
    pub(crate) fn write<T>(&self, change: impl FnOnce() -> T) -> T {
        // Odd while it is written. A predecessor of this row killed in the middle left it odd.
        let sequence = self.sequence.load(Relaxed) | 1;
        self.sequence.store(sequence, Relaxed);
        std::sync::atomic::fence(Release);
        let answer = change();
        self.sequence.store(sequence.wrapping_add(1), Release);
        answer
    }

    /// What the meter holds of the time before `until`. A dead writer may have left it half-written: then as it is.
    pub(crate) fn read(&self, until: u64) -> Activity {
        for _ in 0..100 {
            let before = self.sequence.load(Acquire);
            let activity = self.snapshot(until);
            std::sync::atomic::fence(Acquire);
            if before & 1 == 0 && self.sequence.load(Relaxed) == before {
                return activity;
            }
            std::hint::spin_loop();
        }
        self.snapshot(until)
    }

    fn snapshot(&self, until: u64) -> Activity {
        Activity {
            grains: self
                .grains
                .iter()
                .map(|grain| grain.load(Relaxed))
                .collect(),
            runs: self
                .runs
                .iter()
                .map(|run| {
                    let (start, end) = run.get();
                    (start.min(until), end.min(until))
                })
                .filter(|(start, end)| start < end)
                .collect(),
        }
    }

    /// Moves into the grains what has been over for long. The runs in use stand first, ascending.
    #[inline]
    fn retire(&self, now: u64) {
        let over = self
            .runs
            .iter()
            .map(|run| run.end.load(Relaxed))
            .take_while(|end| *end != 0 && end.saturating_add(EXACT) <= now)
            .count();
        if over > 0 {
            self.retire_first(over);
        }
    }

    fn retire_first(&self, count: usize) {
        for run in &self.runs[..count] {
            let (start, end) = run.get();
            remember(&self.grains, start, end);
        }
        for to in 0..RUNS {
            match self.runs.get(to + count) {
                Some(run) => self.runs[to].set(run.get()),
                None => self.runs[to].set((0, 0)),
            }
        }
    }

    /// Adds an interval to the runs, which stay apart from each other; where there is no room for another gap, the smallest
    /// counts as work.
    #[inline]
    pub(crate) fn note(&self, now: u64, new: Interval) {
        self.insert(now, new, |before, after| (before.0, after.1));
    }

    /// As `note`, for intervals that never overlap: where there is no room for another gap, work moves to close the
    /// smallest, so that there is no more of it than was noted.
    pub(crate) fn note_all_of(&self, now: u64, new: Interval) {
        let closed =
            |before: (u64, u64), after: (u64, u64)| (before.0, before.1 + after.1 - after.0);
        self.insert(now, new, closed);
    }

    #[inline]
    fn insert(
        &self,
        now: u64,
        new: Interval,
        close: impl Fn((u64, u64), (u64, u64)) -> (u64, u64),
    ) {
        self.retire(now);
        let (start, end) = (new.start.0, new.end.0);
        if start >= end {
            return;
        }
        self.until.store(self.until().max(end), Relaxed);
        let used = self.used();
        // As most work comes: behind all other, or beside the last of it.
        if let Some(last) = used.checked_sub(1).map(|at| &self.runs[at]) {
            let (from, to) = last.get();
            if from <= start && start <= to {
                last.end.store(to.max(end), Relaxed);
                return;
            }
        }
        if used == RUNS && self.runs[0].end.load(Relaxed) <= now {
            self.retire_first(1);
        }
        let used = self.used();
        let mut all = [(u64::MAX, u64::MAX); RUNS + 1];
        for (to, run) in all.iter_mut().zip(&self.runs[..used]) {
            *to = run.get();
        }
        all[used] = (start, end);
        all[..=used].sort_unstable();
        let mut kept = join(&mut all[..=used]);
        if kept > RUNS {
            let gap = |at: &usize| all[at + 1].0 - all[*at].1;
            let at = (0..kept - 1).min_by_key(gap).unwrap_or(0);
            all[at] = close(all[at], all[at + 1]);
            all.copy_within(at + 2..kept, at + 1);
            kept -= 1;
        }
        for (at, run) in self.runs.iter().enumerate() {
            run.set(if at < kept { all[at] } else { (0, 0) });
        }
    }

    fn used(&self) -> usize {
        let ends = self.runs.iter().map(|run| run.end.load(Relaxed));
        ends.take_while(|end| *end != 0).count()
    }
}

/// Makes one of runs that touch or overlap; how many are left, at the front.
fn join(runs: &mut [(u64, u64)]) -> usize {
    let mut kept = 0;
    for at in 1..runs.len() {
        let (start, end) = runs[at];
        if start <= runs[kept].1 {
            runs[kept].1 = runs[kept].1.max(end);
        } else {
            kept += 1;
            runs[kept] = (start, end);
        }
    }
    kept + 1
}

impl Run {
    #[inline]
    pub(crate) fn get(&self) -> (u64, u64) {
        (self.start.load(Relaxed), self.end.load(Relaxed))
    }

    #[inline]
    fn set(&self, (start, end): (u64, u64)) {
        self.start.store(start, Relaxed);
        self.end.store(end, Relaxed);
    }
}
