//! How a hook ends.

use seeds::{Seed, planted};

use abi::cuda::CUresult;

use crate::process::Tenant;

/// What a hook did.
#[derive(Debug)]
#[must_use]
pub enum Outcome<R> {
    /// The driver was asked, or we answer in its place.
    Done(R),
    /// The driver gets the caller's arguments, unchanged; nothing is charged.
    PassThrough(Reason),
    /// The tenant's budget, or the lack of one that can be enforced, is in the way.
    Refused(Refused),
}

/// Why a call is none of our business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    NoBudget,
    /// A lease of the device's time covers it.
    Covered,
    /// It takes no memory, or the driver refuses it whatever the budget.
    TakesNothing,
}

/// Why memory was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    Ledger(ledger::Refusal),
    /// No ledger could be attached, or a budget could not be read.
    NotEnforceable,
    /// It is not known whose budget the device draws on.
    UnknownDevice,
    /// Our own tables are full.
    TableFull,
    /// Nothing is left to look at a descriptor with that memory is shared by.
    NoDescriptor,
    /// The kernel gives us no memory for our own state.
    NoMemory,
    Panicked,
}

impl Tenant {
    /// What the driver said, where we refuse: any complaint of its own comes first. Before it is out of memory it has its pools give back what they hold
    /// without need, which is charged no longer (R123 of `fixtures/defects.txt`).
    pub fn verdict(self, driver: CUresult, refused: Refused) -> Outcome<CUresult> {
        if driver == CUresult::ERROR_OUT_OF_MEMORY && !planted(Seed::R123) {
            self.read_pools();
        }
        match driver {
            _ if planted(Seed::C1) => Outcome::Refused(refused),
            CUresult::SUCCESS | CUresult::ERROR_OUT_OF_MEMORY => Outcome::Refused(refused),
            complaint => Outcome::Done(complaint),
        }
    }
}
