//! A history: every call of several processes with the time before and after it, on the one clock that they share.

use serde::{Deserialize, Serialize};

use super::program::Route;

/// Nanoseconds of CLOCK_MONOTONIC.
pub type Time = u64;

/// What the device has certainly lost, and what may be charged at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    pub least: u64,
    pub most: u64,
}

impl Cost {
    pub fn exactly(bytes: u64) -> Self {
        Self {
            least: bytes,
            most: bytes,
        }
    }

    pub fn with(self, other: Self) -> Self {
        Self {
            least: self.least.saturating_add(other.least),
            most: self.most.saturating_add(other.most),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    pub budget: u64,
    /// Of none of the processes.
    pub before: Cost,
    pub processes: Vec<Process>,
    pub calls: Vec<Call>,
    /// The most that the device ever held meanwhile.
    pub peak: u64,
    /// What was held when everybody had freed everything and the dead were gone.
    pub left: Cost,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: u32,
    /// What it holds all the time: its context.
    pub context: Cost,
    pub death: Option<Death>,
}

/// The end of a process that was killed, as an onlooker saw it on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    /// Before the signal was sent.
    pub killed: Time,
    /// When it was last seen to hold anything, and what it held then.
    pub seen: Time,
    pub held: u64,
    /// When it was first seen to hold nothing.
    pub gone: Time,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub process: usize,
    pub thread: usize,
    pub begin: Time,
    pub deed: Deed,
    /// None of a call in which its process was killed.
    pub end: Option<(Time, Answer)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deed {
    Take {
        route: Route,
        bytes: u64,
    },
    /// Of what the call with this number took.
    Free {
        of: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    Done,
    /// CUDA_ERROR_OUT_OF_MEMORY or VK_ERROR_OUT_OF_DEVICE_MEMORY.
    NoMemory,
    Otherwise(String),
}
