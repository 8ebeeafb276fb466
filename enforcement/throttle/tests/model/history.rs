//! How long a tenant had work on the device, by the millisecond.

use throttle::{Nanos, Told};

const GRAIN: u64 = 1_000_000;

#[derive(Debug, Default)]
pub struct History {
    /// Busy nanoseconds of each millisecond.
    grains: Vec<u32>,
}

impl History {
    pub fn add(&mut self, from: u64, to: u64) {
        let mut at = from;
        while at < to {
            let grain = (at / GRAIN) as usize;
            let end = ((at / GRAIN + 1) * GRAIN).min(to);
            if self.grains.len() <= grain {
                self.grains.resize(grain + 1, 0);
            }
            self.grains[grain] += (end - at) as u32;
            at = end;
        }
    }

    fn until(&self, end: Nanos) -> impl Iterator<Item = u64> {
        let length = (end.0 / GRAIN) as usize;
        (0..length).map(|grain| self.grains.get(grain).map_or(0, |busy| u64::from(*busy)))
    }

    /// What NVML tells at `now`: the whole percent of each fifth of a second that has ended since `since`.
    pub fn told(&self, since: u64, now: u64) -> Told {
        const FIGURE: u64 = 200 * GRAIN;
        let all: Vec<u64> = self.until(Nanos(now)).collect();
        let ends = (1..).map(|count| count * FIGURE);
        let fresh = ends
            .take_while(|end| *end <= now)
            .filter(|end| *end > since);
        fresh.fold(Told::default(), |told, end| {
            let grains = (end - FIGURE) / GRAIN..end / GRAIN;
            let busy: u64 = grains.map(|grain| all[grain as usize]).sum();
            Told {
                last: end,
                figures: told.figures + 1,
                percent: told.percent + (busy * 100 + FIGURE / 2) / FIGURE,
                alone: false,
            }
        })
    }

    /// Percent of the time from `start` to `end`.
    pub fn mean(&self, start: Nanos, end: Nanos) -> f64 {
        let skipped = (start.0 / GRAIN) as usize;
        let busy: u64 = self.until(end).skip(skipped).sum();
        busy as f64 * 100.0 / (end.0 - start.0) as f64
    }

    /// The least and the most percent of any second.
    pub fn seconds(&self, start: Nanos, end: Nanos) -> (f64, f64) {
        let grains: Vec<u64> = self.until(end).skip((start.0 / GRAIN) as usize).collect();
        let mut sum: u64 = grains.iter().take(1000).sum();
        let (mut least, mut most) = (sum, sum);
        for at in 1000..grains.len() {
            sum = sum + grains[at] - grains[at - 1000];
            (least, most) = (least.min(sum), most.max(sum));
        }
        (least as f64 / 1e7, most as f64 / 1e7)
    }
}
