//! What this process holds of each heap, as VK_EXT_memory_budget tells it, and the bound of the heaps that are not the
//! device's: those are the host's memory, which the world does not count.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mock_device::{Bytes, DeviceIndex};

/// A heap of a device.
pub type Place = (DeviceIndex, u32);

static HELD: Mutex<BTreeMap<Place, Bytes>> = Mutex::new(BTreeMap::new());

fn held() -> MutexGuard<'static, BTreeMap<Place, Bytes>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds to the account; `false`, and nothing is added, where the heap's size would be passed.
pub fn add(place: Place, bytes: Bytes, size: Bytes) -> bool {
    let mut held = held();
    let account = held.entry(place).or_default();
    match account.checked_add(bytes) {
        Some(sum) if sum <= size => {
            *account = sum;
            true
        }
        _ => false,
    }
}

pub fn subtract(place: Place, bytes: Bytes) {
    if let Some(account) = held().get_mut(&place) {
        *account = account.saturating_sub(bytes);
    }
}

pub fn usage(place: Place) -> Bytes {
    held().get(&place).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_ends_at_its_size() {
        let place = (DeviceIndex(63), 1);
        assert!(add(place, Bytes(60), Bytes(100)));
        assert!(!add(place, Bytes(41), Bytes(100)));
        assert!(!add(place, Bytes(u64::MAX), Bytes(100)));
        assert_eq!(usage(place), Bytes(60));
        subtract(place, Bytes(60));
        assert_eq!(usage(place), Bytes::ZERO);
    }
}
