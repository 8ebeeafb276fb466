//! Reserve, call, commit: here and nowhere else.

use budget::{Bytes, DeviceIndex, DeviceSet};
use ledger::{Change, KeptErrno, Refusal, Reservation};
use seeds::{Mark, Seed, mark, planted};

use crate::boundary::time;
use crate::frees::PATIENCE;
use crate::nvml::{Rows, Scope};
use crate::outcome::Refused;
use crate::process::Tenant;
use crate::report::{self, Once};

/// Bytes that may be asked of the driver, on each of the devices that one GPU may be. Dropped without a commit it gives them back.
#[must_use = "dropping a grant gives it back"]
pub struct Grant {
    /// One device, nearly always: no allocation then.
    first: Option<Reservation<'static>>,
    others: Vec<Reservation<'static>>,
    /// Dropped last: until then ledger and driver differ.
    _change: Change<'static>,
}

impl Grant {
    /// The driver took `actual` of it, at most what was granted; the rest goes back.
    pub fn commit_as(self, actual: Bytes) {
        let Grant {
            first,
            others,
            _change,
        } = self;
        for part in first.into_iter().chain(others) {
            let taken = actual.min(part.bytes());
            part.commit_as(taken);
        }
    }
}

impl Tenant {
    /// A grant of no bytes, for a call that may take none.
    pub fn nothing(self) -> Grant {
        Grant {
            first: None,
            others: Vec::new(),
            _change: self.change(),
        }
    }

    /// Asks the ledger for `bytes` on each of `devices`.
    pub fn reserve(self, devices: DeviceSet, bytes: Bytes) -> Result<Grant, Refused> {
        let _errno = KeptErrno::keep();
        let ledger = self.ledger().ok_or(Refused::NotEnforceable)?;
        if devices.is_empty() {
            report::once(
                Once::UnknownDevice,
                format_args!("a GPU that is none of the container's; its allocations are refused"),
            );
            return Err(Refused::UnknownDevice);
        }
        let mut grant = self.nothing();
        if bytes == Bytes::ZERO {
            return Ok(grant);
        }
        for device in devices.iter() {
            let part = ledger.reserve_with(device, bytes, &Rows).map_err(refused)?;
            self.note_charged(device);
            match &grant.first {
                None => grant.first = Some(part),
                Some(_) => grant.others.push(part),
            }
        }
        Ok(grant)
    }

    /// As `reserve`, with the books at the driver's figure; before a refusal what our own pools and graphs hold without need is
    /// given back, and then what they will hold without need once their streams have come to what was freed in them.
    pub fn reserve_or_trim(self, devices: DeviceSet, bytes: Bytes) -> Result<Grant, Refused> {
        if planted(Seed::X1) {
            return Err(Refused::TableFull);
        }
        self.reserve_for_context(devices, bytes)
    }

    /// As `reserve_or_trim`, for what a context takes.
    pub fn reserve_for_context(self, devices: DeviceSet, bytes: Bytes) -> Result<Grant, Refused> {
        if self.has_grown(devices, bytes) {
            return self.reserve_looked(devices, bytes);
        }
        self.reserve(devices, bytes)
            .or_else(|refused| self.reserve_late(devices, bytes, refused))
    }

    #[cold]
    fn reserve_looked(self, devices: DeviceSet, bytes: Bytes) -> Result<Grant, Refused> {
        let _nvml = Scope::begin(self);
        self.look_all(devices);
        let grant = self
            .reserve(devices, bytes)
            .or_else(|refused| self.reserve_late(devices, bytes, refused));
        if grant.is_ok() {
            self.looked_beside(devices);
        }
        grant
    }

    #[cold]
    fn reserve_late(
        self,
        devices: DeviceSet,
        bytes: Bytes,
        mut refused: Refused,
    ) -> Result<Grant, Refused> {
        let nvml = Scope::begin(self);
        let fits = devices
            .iter()
            .all(|device| self.budget(device).is_none_or(|budget| bytes <= budget));
        if fits {
            // All of them: what one gives back alone may not do. And asked again whatever they say, for another thread may have been the one to give back.
            let _ = self.end_deferred()
                | self.trim_pools()
                | self.trim_graphs(devices)
                | self.look_before_refusal(devices);
            match self.reserve(devices, bytes) {
                Ok(grant) => {
                    mark(Mark::LookedBeforeRefusal);
                    return Ok(grant);
                }
                Err(again) => refused = again,
            }
        }
        drop(nvml);
        let end = time::now().plus(PATIENCE);
        let waits = fits && self.is_between_contexts() && self.may_come_to_fit(devices, bytes);
        if waits && (self.await_deferred(devices, end) | self.await_frees(devices, end)) {
            mark(Mark::FreesAwaited);
            let _ = self.trim_pools();
            return self.reserve(devices, bytes);
        }
        mark(Mark::Refused);
        Err(refused)
    }

    /// Not while the calling thread makes or ends a context: all others would wait with it that do so (R86 of `fixtures/defects.txt`).
    fn is_between_contexts(self) -> bool {
        !self.memory.changing.is_mine() || planted(Seed::R86)
    }

    /// For a call that is to make a context, or what each context has: what [`Tenant::reserve_or_trim`] waits for it waits for now, unless it has begun to.
    pub fn await_room(self, devices: DeviceSet, bytes: Bytes) {
        if !self.memory.changing.is_mine() && !planted(Seed::R86) {
            drop(self.reserve_for_context(devices, bytes));
        }
    }

    /// Whether so much would fit if all came back that this process's streams may still give back: what they have yet to come to, and all that its
    /// pools and graphs hold. A request that is beyond that is not waited for (C40 of `fixtures/defects.txt`).
    pub fn may_come_to_fit(self, devices: DeviceSet, bytes: Bytes) -> bool {
        let (Some(ledger), false) = (self.ledger(), planted(Seed::C40)) else {
            return true;
        };
        devices.iter().all(|index| {
            let Some(budget) = ledger.budget(index) else {
                return true;
            };
            let wanted = ledger.usage(index).saturating_add(bytes);
            wanted <= budget.saturating_add(self.may_come_back(DeviceSet::from_iter([index])))
        })
    }

    /// The most that may come back on these devices by waiting for streams.
    fn may_come_back(self, devices: DeviceSet) -> Bytes {
        let pools = self
            .pools()
            .filter(|known| self.is_of(known.device.ordinal, devices));
        let pooled = pools.map(|known| known.pool.charged());
        let devices_of = self.devices().into_iter().flat_map(|known| known.iter());
        let graphs = devices_of
            .filter(|device| self.is_of(device.ordinal, devices))
            .map(|device| self.charged_for_graphs(device));
        pooled
            .chain(graphs)
            .fold(self.deferred_blocks(devices), Bytes::saturating_add)
    }

    /// Charges what the driver took already, even where it does not fit, so that nothing more is granted. False where the ledger
    /// cannot name the sum.
    pub fn charge_anyway(self, devices: DeviceSet, bytes: Bytes) -> bool {
        match self.reserve(devices, bytes) {
            Ok(grant) => {
                grant.commit_as(bytes);
                true
            }
            Err(_) => self.ledger().is_some_and(|ledger| {
                let charged = devices.iter().map(|index| ledger.overdraw(index, bytes));
                charged.filter(|charged| !charged).count() == 0
            }),
        }
    }

    /// Gives committed bytes back.
    pub fn release(self, devices: DeviceSet, bytes: Bytes) {
        if bytes == Bytes::ZERO {
            return;
        }
        let _errno = KeptErrno::keep();
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
        if self.any_deferred() {
            let _ = self.end_deferred();
        }
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
        let _errno = KeptErrno::keep();
        let least = || {
            let mut alone = true;
            let shares = devices.iter().filter_map(|device| {
                let usage = ledger.usage(device);
                alone &= usage == ledger.own_usage(device);
                let budget = ledger.budget(device)?;
                Some(Share { budget, usage })
            });
            let least = shares.min_by_key(|share| share.budget.saturating_sub(share.usage));
            (least, alone)
        };
        let (told, alone) = least();
        // What the dead held is no use of the tenant's once their driver has let go of it.
        if !alone && ledger.reap_at_times(&Rows) {
            return least().0;
        }
        told
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
