//! What a tenant is told of a device-local heap: its size, and `VK_EXT_memory_budget` (defect V4).

use crate::Bytes;

/// One heap's entry of `VkPhysicalDeviceMemoryBudgetPropertiesEXT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapReport {
    pub budget: Bytes,
    pub usage: Bytes,
}

/// The size a device-local heap is given: at most the tenant's budget.
#[must_use]
pub fn clamp(size: Bytes, budget: Option<Bytes>) -> Bytes {
    budget.map_or(size, |budget| size.min(budget))
}

/// The entry within the specification: usage is the process's own, 0 < budget ≤ the (clamped) heap size.
///
/// `own` is what this process has charged, `available` what the tenant has left.
#[must_use]
pub fn report(clamped: Bytes, own: Bytes, available: Bytes) -> HeapReport {
    let budget = own.saturating_add(available).min(clamped).max(Bytes(1));
    HeapReport { budget, usage: own }
}

/// The opt-in quirk: the driver's budget stays, and usage grows so that their difference is no more than `available`, what the tenant has left.
#[must_use]
pub fn inflate(driver: HeapReport, available: Bytes) -> HeapReport {
    HeapReport {
        budget: driver.budget,
        usage: driver.usage.max(driver.budget.saturating_sub(available)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_heap_is_clamped_to_the_budget_and_never_enlarged() {
        assert_eq!(
            clamp(Bytes(48_305_799_168), Some(Bytes::mib(23_552))),
            Bytes::mib(23_552)
        );
        assert_eq!(clamp(Bytes::gib(8), Some(Bytes::gib(16))), Bytes::gib(8));
        assert_eq!(clamp(Bytes::gib(8), None), Bytes::gib(8));
    }

    /// The figures of the pull request: 23 GiB of budget, 1.1 GiB used, 21.9 GiB available.
    #[test]
    fn the_quirk_keeps_the_difference_right() {
        let used = Bytes(11 * Bytes::GIB.0 / 10);
        let available = Bytes::gib(23).saturating_sub(used);
        let driver = HeapReport {
            budget: Bytes::gib(44),
            usage: used,
        };
        let told = inflate(driver, available);
        assert_eq!(told.budget, Bytes::gib(44));
        assert_eq!(told.budget.saturating_sub(told.usage), available);
    }

    proptest! {
        #[test]
        fn a_report_stays_within_the_specification(clamped in 1_u64.., own: u64, available: u64) {
            let told = report(Bytes(clamped), Bytes(own), Bytes(available));
            prop_assert!(told.budget >= Bytes(1) && told.budget <= Bytes(clamped));
            prop_assert_eq!(told.usage, Bytes(own));
            prop_assert!(told.budget.saturating_sub(told.usage) <= Bytes(available.max(1)));
        }

        #[test]
        fn the_quirk_never_offers_more_than_the_tenant_has(budget: u64, usage: u64, available: u64) {
            let told = inflate(HeapReport { budget: Bytes(budget), usage: Bytes(usage) }, Bytes(available));
            prop_assert_eq!(told.budget, Bytes(budget));
            prop_assert!(told.usage >= Bytes(usage));
            let left = told.budget.saturating_sub(told.usage);
            prop_assert!(left <= Bytes(available));
            // And no less than both the driver and the tenant have.
            prop_assert!(left >= Bytes(available.min(budget.saturating_sub(usage))));
        }
    }
}
