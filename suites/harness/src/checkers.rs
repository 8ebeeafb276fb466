//! What must hold of every case, whatever it tried: run by the runner, not by the case.
//!
//! Once while the case's process waits at the end of its body (its other processes are gone or dying, so that figures
//! stand still), and once when all of it is dead.
//!
//! * The device never held more for the tenant than its budget: `peak ≤ budget`, at any instant, as the simulated device
//!   itself counted it.
//! * The ledger knows at least what the device holds: `device ≤ ledger`. It may know more: a request is charged in whole
//!   2 MiB blocks and a context by an upper bound, before the driver decides what it really takes.
//! * NVML says what the simulated device holds, to the byte.
//! * Nothing is left of a dead case, neither on the device nor in the ledger.
//!
//! Over a real driver its NVML takes the simulated device's place, and only the case's own process is looked at: others
//! may use the card.

use std::time::{Duration, Instant};

use ledger::DeviceIndex as LedgerDevice;
use ledger::{Driver, View};
use mock_device::{Bytes, DeviceIndex, World};

use crate::environment::Environment;
use crate::nvml;
use crate::promise::{Finding, Promise};
use crate::session::PATIENCE;

/// Reads of the same wrong figures, 10 ms apart and more, after which they are taken to stand still: a dying process that
/// the machine keeps waiting moves none meanwhile.
const STILL: u32 = 200;
/// The same for NVML's figures beside a simulated device that stood still; each read is a process's whole life.
const STILL_OF_NVML: u32 = 5;

/// What the checkers look at.
pub struct Checkers<'a> {
    pub environment: &'a Environment,
    /// The case says that its target does not account for all it does, so that only the drivers are judged.
    pub unaccounted: bool,
}

impl Checkers<'_> {
    /// While the case's process `pid` is alive and still.
    pub fn while_alive(&self, pid: u32) -> Vec<Finding> {
        match &self.environment.world {
            Some(_) => self.simulated(),
            None => self.real(pid),
        }
    }

    /// How much more the living were charged than a simulated device holds, of the device where that is most. Requests are charged by upper bounds
    /// (the context's, above all), and what a driver says it gave is believed.
    pub fn excess(&self) -> Bytes {
        let (Some(world), Some(ledger)) = (&self.environment.world, self.ledger()) else {
            return Bytes::ZERO;
        };
        let slots = ledger.slots();
        let charged = |device: u32| {
            let living = slots.iter().filter(|slot| slot.alive);
            let shares = living.flat_map(|slot| &slot.devices);
            let here = shares.filter(|share| share.device.0 == device);
            here.map(|share| Bytes(share.usage.0)).sum::<Bytes>()
        };
        let excess = |device| charged(device).saturating_sub(world.used(DeviceIndex(device)));
        self.devices().map(excess).max().unwrap_or(Bytes::ZERO)
    }

    /// When every process of the case is dead.
    pub fn after_death(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let Some(world) = &self.environment.world else {
            return findings;
        };
        let deadline = Instant::now() + PATIENCE;
        for device in self.devices() {
            let device = DeviceIndex(device);
            while world.used(device) != Bytes::ZERO && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
            }
            if world.used(device) != Bytes::ZERO {
                findings.push(Finding::new(
                    Promise::Returned,
                    format!(
                        "{device} still holds {} for dead processes",
                        world.used(device)
                    ),
                ));
            }
            if let Some(budget) = self
                .budget(device.0)
                .filter(|&budget| world.peak(device) > budget)
            {
                findings.push(Finding::new(
                    Promise::Budget,
                    format!(
                        "{device} held {} at its peak, over a budget of {budget}",
                        world.peak(device)
                    ),
                ));
            }
        }
        let Some(ledger) = self.ledger() else {
            return findings;
        };
        for device in self.devices() {
            let mut left = ledger.usage(LedgerDevice(device));
            while left.0 != 0 && Instant::now() < deadline {
                ledger.reap_with(&Truth(world));
                std::thread::sleep(Duration::from_millis(2));
                left = ledger.usage(LedgerDevice(device));
            }
            if left.0 != 0 {
                findings.push(Finding::new(
                    Promise::Returned,
                    format!("the ledger still charges {left} on device {device} to dead processes"),
                ));
            }
        }
        findings
    }

    fn simulated(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        let Some(world) = &self.environment.world else {
            return findings;
        };
        for device in self
            .devices()
            .filter(|&device| self.budget(device).is_some() && self.judges_ledger())
        {
            let figures = still(
                || (self.charged(device), world.used(DeviceIndex(device))),
                |(ledger, held)| held <= ledger,
            );
            if let Some((ledger, held)) = figures {
                findings.push(Finding::new(
                    Promise::Known,
                    format!("device {device} holds {held}, the ledger knows of {ledger}"),
                ));
            }
        }
        if self.environment.nvml_answers {
            match self.nvml_differences(world) {
                Ok(differences) => findings.extend(differences),
                Err(error) => findings.push(Finding::new(Promise::Nvml, error.to_string())),
            }
        }
        findings
    }

    /// What NVML says of free memory and the simulated devices do not: of each its last read, once they disagreed in
    /// [`STILL_OF_NVML`] reads during which the device stood still.
    fn nvml_differences(&self, world: &World) -> Result<Vec<Finding>, nvml::NvmlError> {
        let free = || -> Vec<Bytes> {
            self.devices()
                .map(|device| world.free(DeviceIndex(device)))
                .collect()
        };
        let deadline = Instant::now() + PATIENCE;
        let mut wrong = 0;
        loop {
            let before = free();
            let figures = nvml::figures_of(&self.environment.plan)?;
            let says = |device: usize| {
                figures
                    .get(device)
                    .map_or(Bytes::ZERO, |figures| figures.free)
            };
            let differences: Vec<Finding> = before
                .iter()
                .enumerate()
                .filter(|(device, simulated)| says(*device) != **simulated)
                .map(|(device, simulated)| {
                    let nvml = says(device);
                    let seen = format!(
                        "NVML says that {nvml} of device {device} are free, {simulated} are"
                    );
                    Finding::new(Promise::Nvml, seen)
                })
                .collect();
            wrong += u32::from(before == free());
            if differences.is_empty() || wrong == STILL_OF_NVML || Instant::now() > deadline {
                return Ok(differences);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn real(&self, pid: u32) -> Vec<Finding> {
        if !self.judges_ledger() {
            return Vec::new();
        }
        let figures = match nvml::figures_of(&self.environment.plan) {
            Ok(figures) => figures,
            Err(error) => return vec![Finding::new(Promise::Nvml, error.to_string())],
        };
        let mut findings = Vec::new();
        for (device, figures) in (0..).zip(&figures) {
            let Some(budget) = self.budget(device) else {
                continue;
            };
            let Some((_, held)) = figures.processes.iter().find(|(of, _)| *of == pid) else {
                continue;
            };
            let charged = self.charged(device);
            if *held > charged {
                findings.push(Finding::new(Promise::Known, format!(
                    "NVML says that the case holds {held} of device {device}, the ledger {charged}"
                )));
            }
            if *held > budget {
                findings.push(Finding::new(
                    Promise::Budget,
                    format!(
                        "NVML says that the case holds {held} of device {device}, over {budget}"
                    ),
                ));
            }
        }
        findings
    }

    fn devices(&self) -> impl Iterator<Item = u32> + use<> {
        0..self.environment.plan.gpus
    }

    fn judges_ledger(&self) -> bool {
        !self.unaccounted && self.environment.plan.target.declares_ledger
    }

    /// The budget that holds: the case's, or what it was raised to live.
    fn budget(&self, device: u32) -> Option<Bytes> {
        if self.unaccounted || !self.environment.plan.target.enforces {
            return None;
        }
        let set = self.environment.plan.budgets.get(device as usize)?;
        let live = self
            .ledger()
            .and_then(|ledger| ledger.budget(LedgerDevice(device)));
        Some(live.map_or(set, |live| Bytes(live.0.max(set.0))))
    }

    /// What the ledger charges; nothing where no process ever made one.
    fn charged(&self, device: u32) -> Bytes {
        self.ledger().map_or(Bytes::ZERO, |ledger| {
            Bytes(ledger.usage(LedgerDevice(device)).0)
        })
    }

    fn ledger(&self) -> Option<View> {
        let plan = &self.environment.plan;
        plan.target
            .declares_ledger
            .then(|| View::find(&plan.ledger).ok())
            .flatten()
    }
}

/// The simulated device, asked by the ledger whether a dead process's memory is back.
struct Truth<'a>(&'a World);

impl Driver for Truth<'_> {
    fn still_holds(&self, device: LedgerDevice, pid: u32) -> Option<bool> {
        Some(self.0.used_by(DeviceIndex(device.0), pid) != Bytes::ZERO)
    }
}

/// Reads figures until they are right, or stand still and are wrong: those are answered.
fn still<T: PartialEq>(read: impl Fn() -> T, right: impl Fn(&T) -> bool) -> Option<T> {
    let deadline = Instant::now() + PATIENCE;
    let mut last = read();
    let mut same = 0;
    while !right(&last) && same < STILL && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
        let now = read();
        same = if now == last { same + 1 } else { 0 };
        last = now;
    }
    (!right(&last)).then_some(last)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn figures_that_become_right_are_no_finding() {
        let reads = Cell::new(0);
        let figure = || reads.replace(reads.get() + 1);
        assert_eq!(still(figure, |&figure| figure > 5), None);
    }

    #[test]
    fn figures_that_stay_wrong_are_answered() {
        assert_eq!(still(|| 7, |&figure| figure > 7), Some(7));
    }
}
