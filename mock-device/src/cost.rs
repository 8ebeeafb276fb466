//! What work costs in time on a device: data of the profile, and the arithmetic that needs nothing but it.

use serde::{Deserialize, Serialize};

use crate::engine::Nanos;
use crate::units::Bytes;

/// Bandwidths are in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// From when the device takes a kernel up until its first thread block runs.
    pub launch_ns: u64,
    /// One wave of thread blocks (as many as the device holds at once) of a kernel that does nothing.
    pub wave_ns: u64,
    /// What each thread block adds, in picoseconds: how fast a device hands them out.
    pub block_ps: u64,
    /// What each instruction that a thread executes adds to its wave.
    pub instruction_ns: u64,
    /// From when an engine takes a copy or a memset up until its first byte moves.
    pub transfer_ns: u64,
    /// Host to device, from pinned memory.
    pub h2d: u64,
    /// Device to host, to pinned memory.
    pub d2h: u64,
    /// The same two with memory that is not pinned.
    pub h2d_pageable: u64,
    pub d2h_pageable: u64,
    /// Within one device: bytes copied, each read once and written once.
    pub d2d: u64,
    /// From one device to another.
    pub p2p: u64,
    pub memset: u64,
}

/// Which way a copy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    HostToDevice,
    DeviceToHost,
    DeviceToDevice,
    /// Between two devices, over what joins them.
    Peer,
    /// Between two devices through the host's memory, piece by piece: the slower way of the two decides.
    Staged,
}

impl Cost {
    #[must_use]
    pub fn copy(&self, direction: Direction, bytes: Bytes) -> Nanos {
        let bandwidth = match direction {
            Direction::HostToDevice => self.h2d,
            Direction::DeviceToHost => self.d2h,
            Direction::DeviceToDevice => self.d2d,
            Direction::Peer => self.p2p,
            Direction::Staged => self.d2h.min(self.h2d),
        };
        self.transfer(bandwidth, bytes)
    }

    /// A copy from or to host memory that is not pinned.
    #[must_use]
    pub fn copy_pageable(&self, direction: Direction, bytes: Bytes) -> Nanos {
        match direction {
            Direction::HostToDevice => self.transfer(self.h2d_pageable, bytes),
            Direction::DeviceToHost => self.transfer(self.d2h_pageable, bytes),
            Direction::DeviceToDevice | Direction::Peer | Direction::Staged => {
                self.copy(direction, bytes)
            }
        }
    }

    /// What handing out so many thread blocks adds to a kernel.
    #[must_use]
    pub const fn blocks(&self, count: u64) -> Nanos {
        Nanos(count.saturating_mul(self.block_ps) / 1000)
    }

    #[must_use]
    pub fn memset(&self, bytes: Bytes) -> Nanos {
        self.transfer(self.memset, bytes)
    }

    /// A kernel of so many waves of thread blocks, whose threads execute so many instructions.
    #[must_use]
    pub fn kernel(&self, waves: u64, instructions: u64) -> Nanos {
        let wave = self
            .instruction_ns
            .saturating_mul(instructions)
            .saturating_add(self.wave_ns);
        Nanos(waves.saturating_mul(wave).saturating_add(self.launch_ns))
    }

    fn transfer(&self, bandwidth: u64, bytes: Bytes) -> Nanos {
        let moving = u128::from(bytes.0) * 1_000_000_000 / u128::from(bandwidth.max(1));
        Nanos(
            u64::try_from(moving)
                .unwrap_or(u64::MAX)
                .saturating_add(self.transfer_ns),
        )
    }

    /// The first bandwidth that is 0.
    pub(crate) fn zero(&self) -> Option<&'static str> {
        [
            ("h2d", self.h2d),
            ("d2h", self.d2h),
            ("d2d", self.d2d),
            ("h2d_pageable", self.h2d_pageable),
            ("d2h_pageable", self.d2h_pageable),
            ("p2p", self.p2p),
            ("memset", self.memset),
        ]
        .into_iter()
        .find(|(_, bandwidth)| *bandwidth == 0)
        .map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_costs_its_start_and_its_bytes() {
        let card = crate::profile::embedded("h200").unwrap().devices.remove(0);
        let cost = Cost {
            transfer_ns: 1000,
            h2d: 1_000_000_000,
            ..card.cost
        };
        let copy = |bytes| cost.copy(Direction::HostToDevice, Bytes(bytes));
        assert_eq!(
            [0, 5, 1_000_000].map(copy),
            [1000, 1005, 1_001_000].map(Nanos)
        );
        assert!(copy(u64::MAX) > copy(u64::MAX / 2), "no overflow");
    }
}
