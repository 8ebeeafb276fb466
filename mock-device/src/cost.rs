//! What work costs in time on a device: data of the profile, and the arithmetic that needs nothing but it.

use serde::{Deserialize, Serialize};

use crate::engine::{Engine, Nanos};
use crate::schedule::Share;
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

/// What moves while an engine works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Traffic {
    /// Over the bus, to the device.
    In,
    InPageable,
    /// Over the bus, from the device.
    Out,
    OutPageable,
    /// Within the device.
    Within,
    /// To or from another device.
    Peer,
    /// The same through the host's memory.
    Staged,
    /// A memset.
    Fill,
}

impl Traffic {
    pub const ALL: [Self; 8] = [
        Self::In,
        Self::InPageable,
        Self::Out,
        Self::OutPageable,
        Self::Within,
        Self::Peer,
        Self::Staged,
        Self::Fill,
    ];
    pub const COUNT: usize = Self::ALL.len();
}

/// A piece of work as a device's engines see it: the same for every API that asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    pub engine: Engine,
    pub time: Nanos,
    /// How much of the engine it takes meanwhile.
    pub share: Share,
    /// What it moves, and for how long at the end of its time.
    pub moves: Option<(Traffic, Nanos)>,
}

/// A kernel's launch, a dispatch of compute shaders, or what stands for a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Thread blocks, or workgroups.
    pub blocks: u64,
    /// The SMs that they may run on.
    pub sms: u32,
    /// How many of them one SM holds at a time.
    pub blocks_per_sm: u32,
    /// Instructions that each of its threads executes.
    pub instructions: u64,
}

impl Cost {
    /// Every API's copies: a task for the engine of its direction.
    #[must_use]
    pub fn copying(&self, direction: Direction, pageable: bool, bytes: Bytes) -> Task {
        let traffic = match (direction, pageable) {
            (Direction::HostToDevice, false) => Traffic::In,
            (Direction::HostToDevice, true) => Traffic::InPageable,
            (Direction::DeviceToHost, false) => Traffic::Out,
            (Direction::DeviceToHost, true) => Traffic::OutPageable,
            (Direction::DeviceToDevice, _) => Traffic::Within,
            (Direction::Peer, _) => Traffic::Peer,
            (Direction::Staged, _) => Traffic::Staged,
        };
        let engine = match direction {
            Direction::DeviceToHost => Engine::CopyOut,
            _ => Engine::Copy,
        };
        self.moving(engine, traffic, bytes)
    }

    /// Every API's memsets.
    #[must_use]
    pub fn filling(&self, bytes: Bytes) -> Task {
        self.moving(Engine::Compute, Traffic::Fill, bytes)
    }

    /// Every API's kernels: their launch, as many waves as the device needs for them, and their blocks one by one.
    #[must_use]
    pub fn launching(&self, grid: &Grid) -> Task {
        let at_once = u64::from(grid.sms) * u64::from(grid.blocks_per_sm.max(1));
        let waves = grid.blocks.div_ceil(at_once.max(1));
        Task {
            engine: Engine::Compute,
            time: self.kernel(waves, grid.instructions) + self.blocks(grid.blocks),
            share: Share::of_grid(grid.blocks, at_once),
            moves: None,
        }
    }

    fn moving(&self, engine: Engine, traffic: Traffic, bytes: Bytes) -> Task {
        let time = self.transfer(self.bandwidth(traffic), bytes);
        Task {
            engine,
            time,
            share: Share::WHOLE,
            moves: Some((traffic, time.saturating_sub(Nanos(self.transfer_ns)))),
        }
    }

    /// Bytes that this traffic moves in a second.
    #[must_use]
    pub const fn bandwidth(&self, traffic: Traffic) -> u64 {
        match traffic {
            Traffic::In => self.h2d,
            Traffic::InPageable => self.h2d_pageable,
            Traffic::Out => self.d2h,
            Traffic::OutPageable => self.d2h_pageable,
            Traffic::Within => self.d2d,
            Traffic::Peer => self.p2p,
            Traffic::Staged if self.d2h < self.h2d => self.d2h,
            Traffic::Staged => self.h2d,
            Traffic::Fill => self.memset,
        }
    }

    /// What handing out so many thread blocks adds to a kernel.
    const fn blocks(&self, count: u64) -> Nanos {
        Nanos(count.saturating_mul(self.block_ps) / 1000)
    }

    /// A kernel of so many waves of thread blocks, whose threads execute so many instructions.
    fn kernel(&self, waves: u64, instructions: u64) -> Nanos {
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
        let copying = |bytes| cost.copying(Direction::HostToDevice, false, Bytes(bytes));
        let copy = |bytes| copying(bytes).time;
        assert_eq!(
            [0, 5, 1_000_000].map(copy),
            [1000, 1005, 1_001_000].map(Nanos)
        );
        assert!(copy(u64::MAX) > copy(u64::MAX / 2), "no overflow");
        assert_eq!(
            copying(5).moves,
            Some((Traffic::In, Nanos(5))),
            "nothing moves before the first byte"
        );
    }
}
