//! How busy engines were: between two times of the last 2.1 s, and the compute engine since the world began, which is what
//! power integrates to. That sum is brought up to date once a second, by whoever submits or buries then, before what it is
//! taken from is forgotten.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::accounts::Accounts;
use crate::engine::{Engine, Spot};
use crate::meter::{self, Activity, GRAIN};
use crate::region::{Region, Run, state};

/// Well below what meters remember, in nanoseconds.
const SUMMED_EVERY: u64 = 1_000_000_000;

impl Accounts {
    /// How busy processes kept an engine between two times, the dead included: the engine's sum, and of that the part of
    /// `pid`.
    pub(crate) fn busy(&self, at: Spot, pid: Option<u32>, from: u64, to: u64) -> u64 {
        busy(&self.region, at, pid, from, to)
    }

    /// For how long a device's compute engine had work between the world's beginning and `now`.
    pub(crate) fn worked(&self, device: usize, now: u64) -> u64 {
        let _guard = self.region.lock();
        sum_up(&self.region, device, now);
        let worked = &self.region.header().worked[device];
        let at = Spot::engine(device, Engine::Compute);
        worked.sum.load(Relaxed) + self.busy(at, None, worked.until.load(Relaxed), now)
    }

    #[inline]
    pub(crate) fn sum_up_in_time(&self, device: usize, now: u64) {
        let until = self.region.header().worked[device].until.load(Relaxed);
        if now.saturating_sub(until) > SUMMED_EVERY {
            self.sum_up_now(device, now);
        }
    }

    #[cold]
    fn sum_up_now(&self, device: usize, now: u64) {
        let _guard = self.region.lock();
        sum_up(&self.region, device, now);
    }
}

/// Up to the last whole grain, so that no grain is taken in parts. With the mutex held.
pub(crate) fn sum_up(region: &Region, device: usize, now: u64) {
    let worked = &region.header().worked[device];
    let until = worked.until.load(Relaxed);
    let now = now / GRAIN * GRAIN;
    if now <= until {
        return;
    }
    let at = Spot::engine(device, Engine::Compute);
    // Before the first work that any meter remembers there is nothing to look for.
    let from = until.max(earliest(region, at, now));
    let more = busy(region, at, None, from, now);
    // Killed between these two, an undertaker's or submitter's last second counts twice; the other way it would be lost.
    worked.sum.fetch_add(more, Relaxed);
    worked.until.store(now, Relaxed);
}

/// Before this time no work is remembered; a time at which a grain begins.
fn earliest(region: &Region, at: Spot, now: u64) -> u64 {
    let own = || region.meters().iter().filter(|meter| meter.is_of(at));
    let runs = own()
        .flat_map(|meter| meter.runs.iter().map(Run::get))
        .filter(|(start, end)| start < end)
        .map(|(start, _)| start / GRAIN * GRAIN);
    let departed = region.header().departed[at.device][at.slot].iter();
    let grains = own()
        .flat_map(|meter| meter.grains.iter())
        .chain(departed)
        .map(|grain| grain.load(Relaxed))
        .filter(|grain| *grain != 0)
        .map(|grain| ((now / GRAIN) & !0xffff_ffff | grain >> 32) * GRAIN);
    runs.chain(grains).min().unwrap_or(now)
}

/// How busy processes kept an engine, or how long something moved, between two times: all together, or one of them.
fn busy(region: &Region, at: Spot, pid: Option<u32>, from: u64, to: u64) -> u64 {
    let meters: Vec<(u32, Activity)> = region
        .meters()
        .iter()
        .filter(|meter| meter.is_of(at))
        .filter_map(|meter| {
            let row = region.owner(meter)?;
            let until = match row.state.load(Acquire) {
                state::LIVE => to,
                state::DYING => to.min(row.died_ns.load(Relaxed)),
                _ => return None,
            };
            Some((row.pid.load(Relaxed), meter.read(until)))
        })
        .collect();
    let departed = &region.header().departed[at.device][at.slot];
    let mut sum = 0;
    let mut start = from;
    while start < to {
        let end = ((start / GRAIN + 1) * GRAIN).min(to);
        let active = |activity: &Activity| activity.within(start, end).min(end - start);
        let gone = meter::grain_within(departed, start, end).min(end - start);
        let all: u64 = gone + meters.iter().map(|(_, of)| active(of)).sum::<u64>();
        let wanted = match pid {
            None => all,
            Some(pid) => meters
                .iter()
                .filter(|(owner, _)| *owner == pid)
                .map(|(_, of)| active(of))
                .sum(),
        };
        sum += if all > end - start {
            (u128::from(wanted) * u128::from(end - start) / u128::from(all)) as u64
        } else {
            wanted
        };
        start = end;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::{begin, pair};

    const MS: u64 = 1_000_000;
    const AT: Spot = Spot::engine(0, Engine::Compute);

    #[test]
    fn all_work_of_the_compute_engine_is_summed_however_long_ago_it_was() {
        let [own, other] = pair();
        let t = begin();
        let mut now = t;
        // Ten seconds, every second by turns a quarter and a half of it busy, half of the time through another process.
        for second in 0..10u64 {
            let accounts = if second % 2 == 0 { &own } else { &other };
            for tenth in 0..10 {
                now = t + second * 1000 * MS + tenth * 100 * MS;
                accounts.put(AT, now, 0, (25 + 25 * (second % 2)) * MS);
            }
        }
        // What comes after a long silence, too.
        now += 3_600_000 * MS;
        own.put(AT, now, 0, 7 * MS);
        let (all, part) = (own.worked(0, now + 7 * MS), own.worked(0, now + 3 * MS));
        assert_eq!(all, (5 * 250 + 5 * 500 + 7) * MS);
        assert!(part <= all, "asked again it says no less");
        assert_eq!(other.worked(0, now + 7 * MS), all, "whoever asks");
    }
}
