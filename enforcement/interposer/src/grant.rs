//! Reserve, call, commit: here and nowhere else.

use budget::{Bytes, DeviceIndex, DeviceSet};
use ledger::{Refusal, Reservation};

use crate::boundary::arena::Errno;
use crate::nvml::Rows;
use crate::outcome::Refused;
use crate::process::Tenant;
use crate::report::{self, Once};

/// Bytes that may be asked of the driver, on each of the devices that one GPU may be. Dropped without a commit it gives them back.
#[must_use = "dropping a grant gives it back"]
#[derive(Default)]
pub struct Grant {
    /// One device, nearly always: no allocation then.
    first: Option<Reservation<'static>>,
    others: Vec<Reservation<'static>>,
}

impl Grant {
    /// The driver took `actual` of it, at most what was granted; the rest goes back.
    pub fn commit_as(self, actual: Bytes) {
        for part in self.first.into_iter().chain(self.others) {
            let taken = actual.min(part.bytes());
            part.commit_as(taken);
        }
    }
}

impl Tenant {
    /// Asks the ledger for `bytes` on each of `devices`.
    pub fn reserve(self, devices: DeviceSet, bytes: Bytes) -> Result<Grant, Refused> {
        let _errno = Errno::keep();
        let ledger = self.ledger().ok_or(Refused::NotEnforceable)?;
        if devices.is_empty() {
            report::once(
                Once::UnknownDevice,
                format_args!("a GPU that is none of the container's; its allocations are refused"),
            );
            return Err(Refused::UnknownDevice);
        }
        let mut grant = Grant::default();
        if bytes == Bytes::ZERO {
            return Ok(grant);
        }
        for device in devices.iter() {
            let part = ledger.reserve_with(device, bytes, &Rows).map_err(refused)?;
            match &grant.first {
                None => grant.first = Some(part),
                Some(_) => grant.others.push(part),
            }
        }
        Ok(grant)
    }

    /// As `reserve`; what our own pools and graphs hold without need is given back before a refusal.
    pub fn reserve_or_trim(self, devices: DeviceSet, bytes: Bytes) -> Result<Grant, Refused> {
        self.reserve(devices, bytes).or_else(|refused| {
            let fits = devices
                .iter()
                .all(|device| self.budget(device).is_none_or(|budget| bytes <= budget));
            // Both: what one gives back alone may not do.
            if fits && (self.trim_pools() | self.trim_graphs(devices)) {
                self.reserve(devices, bytes)
            } else {
                Err(refused)
            }
        })
    }

    /// Gives committed bytes back.
    pub fn release(self, devices: DeviceSet, bytes: Bytes) {
        if bytes == Bytes::ZERO {
            return;
        }
        let _errno = Errno::keep();
        if let Some(ledger) = self.ledger() {
            devices
                .iter()
                .for_each(|device| ledger.release(device, bytes));
        }
    }

    /// The budget of one device: the ledger's, which may change live, else the settings'.
    pub fn budget(self, device: DeviceIndex) -> Option<Bytes> {
        match self.ledger() {
            Some(ledger) => ledger.budget(device),
            None => device
                .slot()
                .and_then(|slot| self.settings().budgets()[slot]),
        }
    }

    /// What is told of a device: the smallest budget of those that it may be, and the most that the tenant uses there.
    pub fn share(self, devices: DeviceSet) -> Option<Share> {
        let Some(ledger) = self.ledger() else {
            let budget = devices
                .iter()
                .filter_map(|device| self.budget(device))
                .min();
            return Some(Share {
                budget: budget.unwrap_or(Bytes::MAX),
                usage: Bytes::MAX,
            });
        };
        let _errno = Errno::keep();
        // What the dead held is no use of the tenant's once their driver has let go of it.
        if devices
            .iter()
            .any(|device| ledger.usage(device) != ledger.own_usage(device))
        {
            ledger.reap(&Rows);
        }
        devices
            .iter()
            .filter_map(|device| {
                Some(Share {
                    budget: ledger.budget(device)?,
                    usage: ledger.usage(device),
                })
            })
            .min_by_key(|share| share.budget.saturating_sub(share.usage))
    }
}

/// A tenant's part of a device.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pub budget: Bytes,
    pub usage: Bytes,
}

fn refused(refusal: Refusal) -> Refused {
    if matches!(
        refusal,
        Refusal::Deleted | Refusal::Replaced | Refusal::Unreachable { .. }
    ) {
        report::once(
            Once::LostLedger,
            format_args!("{refusal}; allocations are refused"),
        );
    }
    Refused::Ledger(refusal)
}
