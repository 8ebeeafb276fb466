//! The two quantities that every decision is about: how many bytes, on which device.

use core::fmt;

/// The devices one ledger can account for.
pub const MAX_DEVICES: usize = 64;

/// A number of bytes of device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    pub const ZERO: Bytes = Bytes(0);
    pub const MAX: Bytes = Bytes(u64::MAX);
    pub const KIB: Bytes = Bytes(1 << 10);
    pub const MIB: Bytes = Bytes(1 << 20);
    pub const GIB: Bytes = Bytes(1 << 30);

    /// `count` mebibytes.
    pub const fn mib(count: u64) -> Bytes {
        Bytes(count << 20)
    }

    /// `count` gibibytes.
    pub const fn gib(count: u64) -> Bytes {
        Bytes(count << 30)
    }

    #[must_use]
    pub const fn checked_add(self, other: Bytes) -> Option<Bytes> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Bytes(sum)),
            None => None,
        }
    }

    #[must_use]
    pub const fn saturating_add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }

    #[must_use]
    pub const fn saturating_sub(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_sub(other.0))
    }

    /// The next multiple of `step`, or `None` where that does not fit 64 bits. A `step` of 0 rounds nothing.
    #[must_use]
    pub const fn round_up(self, step: Bytes) -> Option<Bytes> {
        if step.0 == 0 {
            return Some(self);
        }
        match self.0.checked_next_multiple_of(step.0) {
            Some(rounded) => Some(Bytes(rounded)),
            None => None,
        }
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} bytes", self.0)
    }
}

/// A device by its place in the container: NVML's order, which is PCI order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct DeviceIndex(pub u32);

impl DeviceIndex {
    /// The index as an array position, or `None` beyond what a ledger holds.
    #[must_use]
    pub const fn slot(self) -> Option<usize> {
        if (self.0 as usize) < MAX_DEVICES {
            Some(self.0 as usize)
        } else {
            None
        }
    }

    /// Every index that a ledger holds.
    pub fn all() -> impl Iterator<Item = DeviceIndex> {
        (0..MAX_DEVICES as u32).map(DeviceIndex)
    }
}

impl fmt::Display for DeviceIndex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

/// A set of devices, at most [`MAX_DEVICES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceSet(u64);

impl DeviceSet {
    pub const EMPTY: DeviceSet = DeviceSet(0);

    /// That device alone; nothing where its index is beyond the ledger's.
    #[must_use]
    pub const fn of(device: DeviceIndex) -> DeviceSet {
        match device.slot() {
            Some(slot) => DeviceSet(1 << slot),
            None => DeviceSet::EMPTY,
        }
    }

    /// A bit for each device, the first one's lowest.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    #[must_use]
    pub const fn from_bits(bits: u64) -> DeviceSet {
        DeviceSet(bits)
    }

    #[must_use]
    pub const fn union(self, other: DeviceSet) -> DeviceSet {
        DeviceSet(self.0 | other.0)
    }

    /// The device that is all of it.
    #[must_use]
    pub const fn only(self) -> Option<DeviceIndex> {
        match self.0.is_power_of_two() {
            true => Some(DeviceIndex(self.0.trailing_zeros())),
            false => None,
        }
    }

    /// Adds a device; an index beyond the ledger's is left out and answers `false`.
    pub fn insert(&mut self, device: DeviceIndex) -> bool {
        match device.slot() {
            Some(slot) => {
                self.0 |= 1 << slot;
                true
            }
            None => false,
        }
    }

    #[must_use]
    pub fn contains(self, device: DeviceIndex) -> bool {
        device.slot().is_some_and(|slot| self.0 & (1 << slot) != 0)
    }

    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The members in ascending order, at the cost of the members alone.
    pub fn iter(self) -> impl Iterator<Item = DeviceIndex> {
        let mut rest = self.0;
        core::iter::from_fn(move || {
            let lowest = (rest != 0).then(|| rest.trailing_zeros())?;
            rest &= rest - 1;
            Some(DeviceIndex(lowest))
        })
    }
}

impl FromIterator<DeviceIndex> for DeviceSet {
    fn from_iter<I: IntoIterator<Item = DeviceIndex>>(devices: I) -> DeviceSet {
        let mut set = DeviceSet::EMPTY;
        for device in devices {
            set.insert(device);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sets_devices_are_walked_in_order_up_to_the_last_there_can_be() {
        let last = MAX_DEVICES as u32 - 1;
        let set: DeviceSet = [last, 4, 32, 0, 31].map(DeviceIndex).into_iter().collect();
        let walked: Vec<u32> = set.iter().map(|device| device.0).collect();
        assert_eq!(walked, [0, 4, 31, 32, last]);
        assert_eq!(DeviceSet::from_bits(set.bits()), set);
        assert_eq!((set.only(), DeviceSet::EMPTY.only()), (None, None));
        for device in DeviceIndex::all() {
            assert_eq!(DeviceSet::of(device).only(), Some(device));
        }
        assert!(DeviceSet::of(DeviceIndex(last + 1)).is_empty());
        assert_eq!(DeviceSet::EMPTY.iter().count(), 0);
    }
}
