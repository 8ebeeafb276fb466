//! The newtypes of the world. Deliberately its own, not `budget`'s: the judge shares no code with the judged.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// A number of bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Bytes {
    pub const ZERO: Self = Self(0);

    #[must_use]
    pub const fn kib(count: u64) -> Self {
        Self(count << 10)
    }

    #[must_use]
    pub const fn mib(count: u64) -> Self {
        Self(count << 20)
    }

    #[must_use]
    pub const fn gib(count: u64) -> Self {
        Self(count << 30)
    }

    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// Rounded up to a multiple of `unit`; `None` where that passes 2^64 - 1. A `unit` of 0 rounds nothing.
    #[must_use]
    pub const fn round_up(self, unit: Self) -> Option<Self> {
        if unit.0 == 0 {
            return Some(self);
        }
        match self.0.checked_next_multiple_of(unit.0) {
            Some(rounded) => Some(Self(rounded)),
            None => None,
        }
    }
}

impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(values: I) -> Self {
        values.fold(Self::ZERO, Add::add)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)
    }
}

/// A device as this world shows it: an index into [`crate::World::devices`], in PCI order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct DeviceIndex(pub u32);

impl DeviceIndex {
    #[must_use]
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for DeviceIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dev{}", self.0)
    }
}

/// The face through which the world is asked. Each mock is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    Cuda,
    Nvml,
    Vulkan,
}

impl Api {
    pub const ALL: [Self; 3] = [Self::Cuda, Self::Nvml, Self::Vulkan];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Nvml => "nvml",
            Self::Vulkan => "vulkan",
        }
    }

    /// The API that exports `symbol`, by the prefix of its name. Vulkan's extension names count as its symbols.
    #[must_use]
    pub fn of_symbol(symbol: &str) -> Option<Self> {
        if symbol.starts_with("nvml") {
            Some(Self::Nvml)
        } else if symbol.starts_with("cu") {
            Some(Self::Cuda)
        } else if symbol.starts_with("vk") || symbol.starts_with("VK_") {
            Some(Self::Vulkan)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_up_stops_at_the_end_of_the_number_range() {
        assert_eq!(Bytes(1).round_up(Bytes::mib(2)), Some(Bytes::mib(2)));
        assert_eq!(Bytes::mib(2).round_up(Bytes::mib(2)), Some(Bytes::mib(2)));
        assert_eq!(Bytes(u64::MAX).round_up(Bytes::mib(2)), None);
        assert_eq!(Bytes(7).round_up(Bytes::ZERO), Some(Bytes(7)));
    }

    #[test]
    fn a_symbol_belongs_to_the_api_of_its_prefix() {
        assert_eq!(Api::of_symbol("cuMemAlloc_v2"), Some(Api::Cuda));
        assert_eq!(Api::of_symbol("nvmlInit_v2"), Some(Api::Nvml));
        assert_eq!(Api::of_symbol("vkQueueSubmit2"), Some(Api::Vulkan));
        assert_eq!(Api::of_symbol("VK_EXT_pci_bus_info"), Some(Api::Vulkan));
        assert_eq!(Api::of_symbol("malloc"), None);
    }
}
