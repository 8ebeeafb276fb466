//! A request that the lease does not cover: attempts, waits, reaping, and the refusal.
//!
//! Grants are linearizable. A refusal is justified: `OverBudget` by charges that stood at one instant of the call after the dead
//! were looked for, `Draining` by those and dead processes' memory, `Contended` by those and other requests in flight.

use crate::account::{Account, Attempt, Survey};
use crate::attach::Seat;
use crate::driver::Driver;
use crate::reap::{DRAIN_MS, Reaper, Swept};
use crate::region::clock::{Moment, pause};
use crate::region::{Errno, Slot};
use crate::{Bytes, DeviceIndex, Refusal};
use core::sync::atomic::Ordering;
use core::time::Duration;

/// How long a request that fits the charges tries to get past other requests in flight. A neighbour stopped in the middle of an
/// announcement costs this much, and no more.
const CONTEND: Duration = Duration::from_millis(50);
/// How long a request waits for dead processes' memory: as long as it may drain unasked.
const DRAIN: Duration = Duration::from_millis(DRAIN_MS + 100);
/// How often the dead are looked for while waiting.
const SWEEP: Duration = Duration::from_millis(4);

/// Charges `bytes` of `device` to the seat's slot.
pub fn reserve(
    seat: &Seat,
    device: DeviceIndex,
    bytes: Bytes,
    driver: &dyn Driver,
) -> Result<(), Refusal> {
    let account = device
        .slot()
        .and_then(|device| seat.layout().account(device));
    let (Some(account), Some(record)) = (account, seat.layout().slots.get(seat.slot)) else {
        return Err(Refusal::UnknownDevice(device));
    };
    let mut contest = Contest {
        seat,
        device,
        bytes,
        driver,
        account,
        start: Moment::now(),
        drained: Duration::ZERO,
        retries: 0,
        swept: None,
        seen: None,
    };
    let verdict = contest.run();
    contest.record(record, verdict.is_err());
    verdict
}

struct Contest<'a> {
    seat: &'a Seat,
    device: DeviceIndex,
    bytes: Bytes,
    driver: &'a dyn Driver,
    account: Account<'a>,
    start: Moment,
    /// Time spent waiting for drivers to tear down, which no protocol could shorten.
    drained: Duration,
    retries: u64,
    /// The last look for the dead: when, and what came of it.
    swept: Option<(Moment, Result<Swept, Errno>)>,
    /// The mark of the last hopeless survey that came after a look for the dead.
    seen: Option<u64>,
}

/// What to do after an attempt that was not granted.
enum Next {
    Again,
    Pause,
    Drain,
    Refuse(Refusal),
}

impl Contest<'_> {
    fn run(&mut self) -> Result<(), Refusal> {
        if self.account.budget().limit().is_some() {
            self.seat.probe.still_at_path()?;
            if !self.seat.is_held() {
                return Err(Refusal::Evicted);
            }
        }
        loop {
            let next = match self.account.attempt(self.seat.slot, self.bytes.0) {
                Attempt::Granted => return Ok(()),
                Attempt::Hopeless { seen, limit } => self.after_hopeless(&seen, limit),
                Attempt::Crowded { seen, limit } => self.after_crowded(&seen, limit),
            };
            self.retries += 1;
            match next {
                Next::Again => {}
                Next::Pause => self.pause(),
                Next::Drain => self.drain(),
                Next::Refuse(refusal) => return Err(refusal),
            }
        }
    }

    fn after_hopeless(&mut self, seen: &Survey, limit: u64) -> Next {
        let (requested, usage, budget) = (self.bytes, Bytes(seen.used), Bytes(limit));
        let over = Refusal::OverBudget {
            requested,
            usage,
            budget,
        };
        if self.bytes.0 > limit {
            return Next::Refuse(over);
        }
        let swept_before = self.swept.is_some();
        let draining = match self.sweep() {
            Some(Ok(swept)) if swept.freed => return Next::Again,
            Some(Ok(swept)) if swept.busy && !self.contended_too_long() => {
                self.swept = None;
                return Next::Pause;
            }
            Some(Ok(swept)) => Bytes(swept.draining),
            Some(Err(errno)) => {
                return Next::Refuse(Refusal::Unreaped {
                    requested,
                    usage,
                    budget,
                    errno: errno.code,
                });
            }
            None => Bytes::ZERO,
        };
        let fits_once_drained = seen
            .used
            .saturating_sub(draining.0)
            .saturating_add(self.bytes.0)
            <= limit;
        if draining > Bytes::ZERO && fits_once_drained {
            let waited = self.start.elapsed() >= DRAIN;
            return if waited {
                Next::Refuse(Refusal::Draining {
                    requested,
                    draining,
                    budget,
                })
            } else {
                Next::Drain
            };
        }
        if swept_before && self.seen == Some(seen.mark) {
            return Next::Refuse(over);
        }
        if self.swept.is_some() {
            self.seen = Some(seen.mark);
        }
        if self.contended_too_long() {
            Next::Refuse(Refusal::Contended {
                requested,
                usage,
                budget,
            })
        } else {
            Next::Pause
        }
    }

    fn after_crowded(&mut self, seen: &Survey, limit: u64) -> Next {
        self.seen = None;
        // A dead process's announcement stands in the way until it is buried.
        if self.retries > 16 && matches!(self.sweep(), Some(Ok(Swept { freed: true, .. }))) {
            return Next::Again;
        }
        if self.contended_too_long() {
            let (usage, budget) = (Bytes(seen.used), Bytes(limit));
            return Next::Refuse(Refusal::Contended {
                requested: self.bytes,
                usage,
                budget,
            });
        }
        Next::Pause
    }

    fn contended_too_long(&self) -> bool {
        self.start.elapsed().saturating_sub(self.drained) >= CONTEND
    }

    /// Looks for the dead, unless that was done a moment ago. `None` while no look has succeeded yet because another thread of this
    /// process is at it.
    fn sweep(&mut self) -> Option<Result<Swept, Errno>> {
        if let Some((when, found)) = self.swept
            && when.elapsed() < SWEEP
        {
            return Some(found.map(|swept| Swept {
                freed: false,
                ..swept
            }));
        }
        let found = self.seat.arena.alone(|| {
            let fd = self.seat.probe.fd()?;
            let (layout, namespace) = (self.seat.layout(), self.seat.namespace);
            Reaper {
                layout,
                fd,
                me: Some(self.seat.slot),
                namespace,
            }
            .sweep(self.device, self.driver)
        });
        if let Some(found) = found {
            self.swept = Some((Moment::now(), found));
            return Some(found);
        }
        self.swept.map(|(_, found)| found)
    }

    /// Longer with each retry, and different for each process, so that two who keep meeting part.
    fn pause(&self) {
        match self.retries {
            0..4 => (0..self.jitter() % 64).for_each(|_| core::hint::spin_loop()),
            4..32 => std::thread::yield_now(),
            _ => pause(Duration::from_micros(20 + self.jitter() % 180)),
        }
    }

    fn drain(&mut self) {
        let before = Moment::now();
        pause(Duration::from_millis(1));
        self.drained += before.elapsed();
    }

    fn jitter(&self) -> u64 {
        let clock = self.start.elapsed().subsec_nanos();
        (u64::from(clock) ^ self.seat.owner() ^ self.retries).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            >> 32
    }

    fn record(&self, record: &Slot, refused: bool) {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        if self.retries > 0 {
            record.retries.fetch_add(self.retries, Ordering::Relaxed);
            record
                .most_retries
                .fetch_max(self.retries, Ordering::Relaxed);
            let stall = self.start.elapsed().saturating_sub(self.drained);
            record
                .longest_stall
                .fetch_max(nanoseconds(stall), Ordering::Relaxed);
            record
                .longest_drain
                .fetch_max(nanoseconds(self.drained), Ordering::Relaxed);
        }
        if refused {
            crate::region::count(&record.refusals);
        }
    }
}
