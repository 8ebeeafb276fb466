//! The set of budgets that one allocation draws on, and holding a charge on all of them.

use budget::{Bytes, DeviceIndex, DeviceSet};
use ledger::{Change, Driver, Ledger, Refusal, Reservation};

/// The same number of bytes reserved on every target. Dropping it cancels.
#[must_use = "dropping a reservation cancels it"]
pub struct Held<'a> {
    parts: Parts<'a>,
    /// Dropped last: until then driver and ledger differ.
    _change: Change<'a>,
}

enum Parts<'a> {
    One(Reservation<'a>),
    Many(Vec<Reservation<'a>>),
}

impl Held<'_> {
    pub fn commit(self) {
        let Held { parts, _change } = self;
        match parts {
            Parts::One(reservation) => reservation.commit(),
            Parts::Many(reservations) => reservations.into_iter().for_each(Reservation::commit),
        }
    }

    /// The driver took `actual`, at most what was reserved.
    pub fn commit_as(self, actual: Bytes) {
        let Held { parts, _change } = self;
        match parts {
            Parts::One(reservation) => reservation.commit_as(actual),
            Parts::Many(reservations) => reservations
                .into_iter()
                .for_each(|one| one.commit_as(actual)),
        }
    }
}

/// Reserves `bytes` on every target, or nothing. No target at all is an unknown device: nothing can be granted.
#[inline]
pub fn reserve<'a>(
    ledger: &'a Ledger,
    change: Change<'a>,
    targets: DeviceSet,
    bytes: Bytes,
    driver: &dyn Driver,
) -> Result<Held<'a>, Refusal> {
    let parts = if let Some(device) = targets.only() {
        Parts::One(ledger.reserve_with(device, bytes, driver)?)
    } else if targets.is_empty() {
        return Err(Refusal::UnknownDevice(DeviceIndex(u32::MAX)));
    } else {
        let each = targets.iter();
        let each = each.map(|device| ledger.reserve_with(device, bytes, driver));
        Parts::Many(each.collect::<Result<_, _>>()?)
    };
    Ok(Held {
        parts,
        _change: change,
    })
}

pub fn release(ledger: &Ledger, targets: DeviceSet, bytes: Bytes) {
    for device in targets.iter() {
        ledger.release(device, bytes);
    }
}

/// The strictest budget among the targets; `None` where none of them has one.
#[inline]
pub fn smallest_budget(ledger: &Ledger, targets: DeviceSet) -> Option<Bytes> {
    match targets.only() {
        Some(device) => ledger.budget(device),
        None => smallest_of(targets, |device| ledger.budget(device)),
    }
}

/// What can still be taken from every target at once.
pub fn available(ledger: &Ledger, targets: DeviceSet) -> Option<Bytes> {
    smallest_of(targets, |device| ledger.available(device))
}

#[inline(never)]
fn smallest_of(targets: DeviceSet, of: impl Fn(DeviceIndex) -> Option<Bytes>) -> Option<Bytes> {
    targets.iter().filter_map(of).min()
}
