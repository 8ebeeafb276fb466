//! A process's hold on its tenant's ledger. (Skeleton: the shapes are final, attaching is not there yet.)

use crate::{AttachError, Driver, Reason, Refusal};
use budget::{Bytes, DeviceIndex, MAX_DEVICES};
use core::convert::Infallible;
use std::path::Path;

/// What a newcomer asks for. Whoever creates the file sets the budgets; later ones join under those.
pub struct Setup {
    pub budgets: [Option<Bytes>; MAX_DEVICES],
}

/// One process's slot in a tenant's ledger.
pub struct Ledger {
    never: Infallible,
}

/// Bytes that are charged but not in use yet. Dropping it cancels.
#[must_use = "dropping a reservation cancels it"]
pub struct Reservation<'a> {
    ledger: &'a Ledger,
}

impl Ledger {
    pub fn attach(path: &Path, _setup: &Setup) -> Result<Ledger, AttachError> {
        Err(AttachError {
            path: path.to_path_buf(),
            reason: Reason::NotLockable,
        })
    }
    /// Whether the handle belongs to this process: false in a fork child.
    pub fn is_mine(&self) -> bool {
        match self.never {}
    }
    /// The budget of a device; `None` where it has none.
    pub fn budget(&self, _device: DeviceIndex) -> Option<Bytes> {
        match self.never {}
    }
    /// The first device whose budget in the ledger is not what `attach` asked for.
    pub fn disagreement(&self) -> Option<DeviceIndex> {
        match self.never {}
    }
    pub fn reserve(&self, _device: DeviceIndex, _bytes: Bytes) -> Result<Reservation<'_>, Refusal> {
        match self.never {}
    }
    pub fn reserve_with(
        &self,
        _device: DeviceIndex,
        _bytes: Bytes,
        _driver: &dyn Driver,
    ) -> Result<Reservation<'_>, Refusal> {
        match self.never {}
    }
    pub fn release(&self, _device: DeviceIndex, _bytes: Bytes) {
        match self.never {}
    }
    /// What the tenant holds of a device, draining bytes included, unused leases not.
    pub fn usage(&self, _device: DeviceIndex) -> Bytes {
        match self.never {}
    }
    pub fn own_usage(&self, _device: DeviceIndex) -> Bytes {
        match self.never {}
    }
    /// Budget less usage; `None` where the device has no budget.
    pub fn available(&self, _device: DeviceIndex) -> Option<Bytes> {
        match self.never {}
    }
    /// Looks for dead processes and takes back what their driver has let go of. Never waits.
    pub fn reap(&self, _driver: &dyn Driver) {
        match self.never {}
    }
}

impl Reservation<'_> {
    /// The driver granted it: the charge stays until `Ledger::release`.
    pub fn commit(self) {
        match self.ledger.never {}
    }
    /// The driver took `actual`, at most what was reserved; the rest is given back.
    pub fn commit_as(self, _actual: Bytes) {
        match self.ledger.never {}
    }
    pub fn bytes(&self) -> Bytes {
        match self.ledger.never {}
    }
    pub fn device(&self) -> DeviceIndex {
        match self.ledger.never {}
    }
}
