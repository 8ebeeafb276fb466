//! The set of budgets that one allocation draws on, and holding a charge on all of them.

use budget::{Bytes, DeviceIndex, DeviceSet};
use ledger::{Driver, Ledger, Refusal, Reservation};

/// Devices to charge, one bit each. One in the ordinary case; several for an ambiguous device or a device group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Targets(pub u32);

impl Targets {
    pub const NONE: Targets = Targets(0);

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub const fn union(self, other: Targets) -> Targets {
        Targets(self.0 | other.0)
    }

    /// In ascending order, at the cost of the members alone: this is walked per allocation.
    pub fn iter(self) -> impl Iterator<Item = DeviceIndex> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let lowest = (rest != 0).then(|| rest.trailing_zeros())?;
            rest &= rest - 1;
            Some(DeviceIndex(lowest))
        })
    }

    fn only(self) -> Option<DeviceIndex> {
        self.0
            .is_power_of_two()
            .then(|| DeviceIndex(self.0.trailing_zeros()))
    }
}

impl From<DeviceSet> for Targets {
    fn from(devices: DeviceSet) -> Targets {
        Targets(devices.iter().fold(0, |bits, device| bits | 1 << device.0))
    }
}

/// The same number of bytes reserved on every target. Dropping it cancels.
#[must_use = "dropping a reservation cancels it"]
pub enum Held<'a> {
    One(Reservation<'a>),
    Many(Vec<Reservation<'a>>),
}

impl Held<'_> {
    pub fn commit(self) {
        match self {
            Held::One(reservation) => reservation.commit(),
            Held::Many(reservations) => reservations.into_iter().for_each(Reservation::commit),
        }
    }

    /// The driver took `actual`, at most what was reserved.
    pub fn commit_as(self, actual: Bytes) {
        match self {
            Held::One(reservation) => reservation.commit_as(actual),
            Held::Many(reservations) => reservations
                .into_iter()
                .for_each(|one| one.commit_as(actual)),
        }
    }
}

/// Reserves `bytes` on every target, or nothing. No target at all is an unknown device: nothing can be granted.
#[inline]
pub fn reserve<'a>(
    ledger: &'a Ledger,
    targets: Targets,
    bytes: Bytes,
    driver: &dyn Driver,
) -> Result<Held<'a>, Refusal> {
    if let Some(device) = targets.only() {
        return ledger.reserve_with(device, bytes, driver).map(Held::One);
    }
    if targets.is_empty() {
        return Err(Refusal::UnknownDevice(DeviceIndex(u32::MAX)));
    }
    targets
        .iter()
        .map(|device| ledger.reserve_with(device, bytes, driver))
        .collect::<Result<_, _>>()
        .map(Held::Many)
}

pub fn release(ledger: &Ledger, targets: Targets, bytes: Bytes) {
    for device in targets.iter() {
        ledger.release(device, bytes);
    }
}

/// The strictest budget among the targets; `None` where none of them has one.
#[inline]
pub fn smallest_budget(ledger: &Ledger, targets: Targets) -> Option<Bytes> {
    match targets.only() {
        Some(device) => ledger.budget(device),
        None => smallest_of(targets, |device| ledger.budget(device)),
    }
}

/// What can still be taken from every target at once.
pub fn available(ledger: &Ledger, targets: Targets) -> Option<Bytes> {
    smallest_of(targets, |device| ledger.available(device))
}

#[inline(never)]
fn smallest_of(targets: Targets, of: impl Fn(DeviceIndex) -> Option<Bytes>) -> Option<Bytes> {
    targets.iter().filter_map(of).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_walked_in_order() {
        let targets = Targets(1 << 31 | 1 << 4 | 1);
        assert_eq!(
            targets.iter().map(|device| device.0).collect::<Vec<_>>(),
            [0, 4, 31]
        );
        assert_eq!(
            Targets::from(targets.iter().collect::<DeviceSet>()),
            targets
        );
        assert_eq!(Targets::NONE.iter().count(), 0);
    }
}
