//! Where a location of CUDA's lies. A location that is not known to be the host's is a device's; where the device cannot be told, what would
//! take memory there is refused (R22 of `fixtures/defects.txt`).

use abi::cuda::{CUdevice, CUmemLocation};
use seeds::{Seed, planted};

use crate::report::{self, Once};

/// CU_MEM_LOCATION_TYPE_NONE.
const NONE: i32 = 0;
/// CU_MEM_LOCATION_TYPE_DEVICE.
const DEVICE: i32 = 1;
/// CU_MEM_LOCATION_TYPE_HOST.
const HOST: i32 = 2;
/// CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, the last of the host's.
const HOST_NUMA_CURRENT: i32 = 4;
/// CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN, since CUDA 13.4: the low byte is the device, the next one its domain.
const LOCALITY_DOMAIN: i32 = 6;

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    /// No preference.
    Nowhere,
    Host,
    Device(CUdevice),
    /// Of a part of it.
    PartOf(CUdevice),
    /// Of a type that no header up to CUDA 13.5 has, or that names no device.
    Unknown,
}

impl Home {
    pub fn of(location: CUmemLocation) -> Home {
        match location.type_ {
            NONE => Home::Nowhere,
            DEVICE => Home::Device(location.id),
            HOST..=HOST_NUMA_CURRENT => Home::Host,
            _ if planted(Seed::R22) => Home::Host,
            LOCALITY_DOMAIN => Home::PartOf(location.id & 0xff),
            _ => Home::Unknown,
        }
    }

    /// The device, where it can be told.
    pub fn device(self) -> Option<CUdevice> {
        match self {
            Home::Device(ordinal) | Home::PartOf(ordinal) => Some(ordinal),
            Home::Nowhere | Home::Host | Home::Unknown => None,
        }
    }
}

/// Says once why nothing is granted at a location whose device cannot be told.
pub fn say_unknown(location: CUmemLocation) {
    report::once(
        Once::UnknownLocation,
        format_args!(
            "which device's memory a location of type {} is cannot be told; what asks for memory there is refused",
            location.type_
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_hosts_is_a_devices() {
        let home = |type_, id| Home::of(CUmemLocation { type_, id });
        assert_eq!(home(1, 3).device(), Some(3));
        // Device 3, domain 1, and what a C program leaves in the union's other bytes.
        assert_eq!(home(6, 0x7f2a_0103), Home::PartOf(3));
        assert!([2, 3, 4].iter().all(|kind| home(*kind, 0) == Home::Host));
        assert!(
            [5, 7, -1]
                .iter()
                .all(|kind| home(*kind, 0) == Home::Unknown)
        );
        assert_eq!(home(0, 0), Home::Nowhere);
    }
}
