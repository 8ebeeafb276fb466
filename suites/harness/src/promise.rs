//! What must hold of every run, whatever happens to the drivers: what the checkers look at after every case, and what a sweep judges besides.
//! `FAULTS.md` says which of them hold under which fault.

use std::fmt;

/// What a correct enforcer keeps under any fault that the fault model names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub enum Promise {
    /// No process ends by a signal or an abort that the bare driver would not have ended as well.
    Survives,
    /// Nobody waits for ever.
    Ends,
    /// The devices never held more for the tenant than its budget.
    Budget,
    /// The ledger knows at least what the devices hold.
    Known,
    /// And not much more: what was refused or given back is charged no longer.
    Exact,
    /// NVML says what the devices hold.
    Nvml,
    /// When all are dead nothing is left, neither on a device nor in the ledger.
    Returned,
    /// The tenant's next process finds everything as if nothing had happened.
    GoesOn,
}

impl Promise {
    pub const ALL: [Self; 8] = [
        Self::Survives,
        Self::Ends,
        Self::Budget,
        Self::Known,
        Self::Exact,
        Self::Nvml,
        Self::Returned,
        Self::GoesOn,
    ];

    /// By the name in a report.
    pub fn named(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|promise| promise.name() == text)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Survives => "survives",
            Self::Ends => "ends",
            Self::Budget => "budget",
            Self::Known => "known",
            Self::Exact => "exact",
            Self::Nvml => "nvml",
            Self::Returned => "returned",
            Self::GoesOn => "goes-on",
        }
    }
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    pub promise: Promise,
    pub seen: String,
}

impl Finding {
    pub fn new(promise: Promise, seen: impl Into<String>) -> Self {
        Self {
            promise,
            seen: seen.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.seen)
    }
}
