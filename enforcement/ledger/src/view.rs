//! The public reader: what operators, the harness and its checkers see of a ledger. (Skeleton.)

use crate::{AttachError, Driver, Reason};
use budget::{Bytes, DeviceIndex};
use core::convert::Infallible;
use std::path::Path;

/// A ledger seen from outside: takes no slot.
pub struct View {
    never: Infallible,
}

/// One process's slot.
#[derive(Clone, Debug)]
pub struct SlotView {
    pub slot: usize,
    pub pid: u32,
    /// Start time in clock ticks since boot, as /proc/<pid>/stat says.
    pub start: u64,
    /// Its owner still holds the slot's lock.
    pub alive: bool,
    /// Devices on which it holds or leases anything.
    pub devices: Vec<DeviceShare>,
}

/// A slot's share of one device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceShare {
    pub device: DeviceIndex,
    /// What is in use, leases not included.
    pub usage: Bytes,
    pub leased: Bytes,
}

/// Counters of the whole region since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub retries: u64,
    pub refusals: u64,
    pub reaps: u64,
    /// Nanoseconds of the longest time inside one reserve, waits for a driver's teardown not included.
    pub longest_stall: u64,
    /// Nanoseconds of the longest wait for a driver's teardown.
    pub longest_drain: u64,
}

impl View {
    pub fn open(path: &Path) -> Result<View, AttachError> {
        Err(AttachError {
            path: path.to_path_buf(),
            reason: Reason::NotLockable,
        })
    }
    pub fn budget(&self, _device: DeviceIndex) -> Option<Bytes> {
        match self.never {}
    }
    /// What the tenant holds of a device, draining bytes included, unused leases not.
    pub fn usage(&self, _device: DeviceIndex) -> Bytes {
        match self.never {}
    }
    /// What dead processes still hold.
    pub fn draining(&self, _device: DeviceIndex) -> Bytes {
        match self.never {}
    }
    pub fn slots(&self) -> Vec<SlotView> {
        match self.never {}
    }
    /// Changes a budget at once, for every process. Answers the usage seen under the new budget.
    pub fn set_budget(&self, _device: DeviceIndex, _budget: Bytes) -> Bytes {
        match self.never {}
    }
    pub fn clear_budget(&self, _device: DeviceIndex) {
        match self.never {}
    }
    pub fn reap(&self) {
        match self.never {}
    }
    pub fn reap_with(&self, _driver: &dyn Driver) {
        match self.never {}
    }
    pub fn stats(&self) -> Stats {
        match self.never {}
    }
}
