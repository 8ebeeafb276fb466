//! What one process's work takes of an engine, and when: work begins at the first time from which there is room for it
//! until it ends. Kernels that leave room stand side by side; what takes the whole engine stands alone.

use std::collections::VecDeque;

/// A part of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    const UNITS: u64 = 1 << 24;
    pub const WHOLE: Self = Self(Self::UNITS as u32);
    /// Grids that a device runs side by side, however small (H200, 580.159.04: the 129th waited).
    const GRIDS: u64 = 128;

    /// `part` of `whole`, at least the smallest part there is and at most all.
    #[must_use]
    pub fn of(part: u64, whole: u64) -> Self {
        let units = u128::from(part) * u128::from(Self::UNITS) / u128::from(whole.max(1));
        Self(units.clamp(1, u128::from(Self::UNITS)) as u32)
    }
}

impl Share {
    /// What a grid leaves to no other: its blocks, of as many of their kind as the device holds at once.
    #[must_use]
    pub fn of_grid(blocks: u64, at_once: u64) -> Self {
        Self::of(blocks, at_once).max(Self::of(1, Self::GRIDS))
    }
}

/// From a time on so much is taken, until the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    at: u64,
    taken: u32,
}

/// Steps in the order of time; before the first and from the last on nothing is taken.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    steps: VecDeque<Step>,
}

/// Steps that are kept apart. Beyond, the far future is remembered as fuller than it is.
const MOST: usize = 1024;

impl Schedule {
    /// Takes `share` for `length` from the first time on, not before `earliest`, at which there is room; that time.
    pub(crate) fn place(&mut self, now: u64, earliest: u64, length: u64, share: Share) -> u64 {
        while self.steps.get(1).is_some_and(|next| next.at <= now) {
            self.steps.pop_front();
        }
        let start = self.room(earliest, length, share);
        if length > 0 {
            let end = start.saturating_add(length);
            let (from, to) = (self.cut(start), self.cut(end));
            for step in self.steps.range_mut(from..to) {
                step.taken += share.0;
            }
            self.join(to);
            self.join(from);
            self.bound();
        }
        start
    }

    fn room(&self, earliest: u64, length: u64, share: Share) -> u64 {
        let mut start = earliest;
        let first = self.steps.partition_point(|step| step.at <= start);
        let mut at = first.saturating_sub(1);
        while let Some(step) = self.steps.get(at) {
            if step.at > start && step.at >= start.saturating_add(length) {
                break;
            }
            let end = self.steps.get(at + 1).map_or(u64::MAX, |next| next.at);
            if end > start && step.taken + share.0 > Share::WHOLE.0 {
                start = end;
            }
            at += 1;
        }
        start
    }

    /// The position of the step that begins at a time; makes one where there is none.
    fn cut(&mut self, time: u64) -> usize {
        let at = self.steps.partition_point(|step| step.at < time);
        if self.steps.get(at).is_none_or(|step| step.at != time) {
            let taken = at
                .checked_sub(1)
                .map_or(0, |before| self.steps[before].taken);
            self.steps.insert(at, Step { at: time, taken });
        }
        at
    }

    /// Drops a step that changes nothing.
    fn join(&mut self, at: usize) {
        let before = at
            .checked_sub(1)
            .map_or(0, |before| self.steps[before].taken);
        if self.steps.get(at).is_some_and(|step| step.taken == before) {
            self.steps.remove(at);
        }
    }

    fn bound(&mut self) {
        while self.steps.len() > MOST {
            // The last step takes nothing; the one before it takes in its predecessor's time.
            let at = self.steps.len() - 2;
            if let Some(gone) = self.steps.remove(at)
                && let Some(before) = self.steps.get_mut(at - 1)
            {
                before.taken = before.taken.max(gone.taken);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(schedule: &mut Schedule, wanted: &[(u64, u64, Share)]) -> Vec<u64> {
        let place = |(earliest, length, share): &(u64, u64, Share)| {
            schedule.place(0, *earliest, *length, *share)
        };
        wanted.iter().map(place).collect()
    }

    #[test]
    fn what_leaves_room_stands_side_by_side() {
        let half = Share::of(1, 2);
        let mut schedule = Schedule::default();
        let wanted = [
            (10, 5, half),
            (10, 5, half),
            (10, 5, half),
            (10, 5, Share::WHOLE),
        ];
        assert_eq!(placed(&mut schedule, &wanted), [10, 10, 15, 20]);
        // The second half of 15..20 is free, and all before 10.
        assert_eq!(
            placed(&mut schedule, &[(0, 5, half), (12, 5, half)]),
            [0, 15]
        );
        assert_eq!(placed(&mut schedule, &[(0, 10, Share::WHOLE)]), [25]);
    }

    #[test]
    fn thousands_of_small_ones_fit_and_one_more_waits() {
        let small = Share::of(1, 4224);
        let mut schedule = Schedule::default();
        let starts: Vec<u64> = (0..4224).map(|_| schedule.place(0, 7, 3, small)).collect();
        assert!(starts.iter().all(|start| *start == 7));
        assert!(schedule.steps.len() <= 2, "equal neighbours are one step");
        assert_eq!(schedule.place(0, 7, 3, Share::of(1, 100)), 10);
    }

    /// Grids of blocks that all take 1 ms, started at once on so many streams, and the ms until all were done: H200,
    /// 580.159.04, 21 November 2026. Blocks of 32 threads fit 32 to an SM, of 1024 two, with 48 KiB of shared memory four,
    /// with 255 registers and 256 threads one.
    #[test]
    fn kernels_overlap_as_on_the_card() {
        const SMS: u64 = 132;
        let rows = [
            (1, 1, 32, 1),
            (8, 1, 32, 1),
            (64, 1, 32, 1),
            (128, 1, 32, 1),
            (129, 1, 32, 2),
            (160, 1, 32, 2),
            (32, 132, 32, 1),
            (2, 132, 2, 1),
            (3, 132, 2, 2),
            (4, 132, 2, 2),
            (8, 132, 2, 4),
            (4, 66, 2, 1),
            (5, 66, 2, 2),
            (8, 66, 2, 2),
            (32, 1, 2, 1),
            (2, 264, 2, 2),
            (4, 264, 2, 4),
            (4, 132, 4, 1),
            (5, 132, 4, 2),
            (8, 132, 4, 2),
            (2, 132, 1, 2),
            (4, 132, 1, 4),
        ];
        for (streams, blocks, per_sm, ms) in rows {
            let mut schedule = Schedule::default();
            let share = Share::of_grid(blocks, SMS * per_sm);
            let last = (0..streams)
                .map(|_| schedule.place(0, 0, 1, share) + 1)
                .max();
            assert_eq!(
                last,
                Some(ms),
                "{streams} grids of {blocks}, {per_sm} to an SM"
            );
        }
    }

    #[test]
    fn at_no_time_is_more_taken_than_there_is() {
        let (mut schedule, mut random) = (Schedule::default(), 1u64);
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        let mut all: Vec<(u64, u64, u32)> = Vec::new();
        for now in 0..2000 {
            let (length, share) = (1 + next(50), Share::of(1 + next(100), 100));
            let earliest = now + next(40);
            let start = schedule.place(now, earliest, length, share);
            assert!(start >= earliest);
            all.push((start, start + length, share.0));
        }
        for (time, _, _) in &all {
            let sharing = all
                .iter()
                .filter(|(from, to, _)| (from..to).contains(&time));
            let taken: u32 = sharing.map(|(_, _, share)| share).sum();
            assert!(taken <= Share::WHOLE.0, "{taken} at {time}");
        }
    }

    #[test]
    fn a_schedule_stays_small() {
        let mut schedule = Schedule::default();
        for at in 0..5000 {
            schedule.place(0, at * 10, 5, Share::of(1, 3));
        }
        assert!(schedule.steps.len() <= MOST);
    }
}
