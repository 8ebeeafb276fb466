//! The driver as one process holds it: made by cuInit, gone in a fork child.

use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};

use abi::cuda::{CUmemLocation, CUresult};
use mock_device::{DeviceIndex, DeviceProfile, Link, World};

use crate::boundary::Canary;
use crate::entry;
use crate::movement::Waiting;
use crate::process::Process;
use crate::timeline::Attendant;

/// A device as this process numbers it, after CUDA_VISIBLE_DEVICES.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ordinal(pub usize);

pub struct Driver {
    pub world: &'static World,
    devices: Vec<DeviceIndex>,
    process: Mutex<Process>,
    pub attendant: Attendant,
    pub waiting: Waiting,
    canary: Canary,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();

/// The simulated machine; `None`, once said on stderr, where it cannot be opened.
pub fn world() -> Option<&'static World> {
    static SAID: Once = Once::new();
    match World::ambient() {
        Ok(world) => Some(world),
        Err(error) => {
            SAID.call_once(|| {
                eprintln!("mock-libcuda: the simulated machine cannot be opened: {error}")
            });
            None
        }
    }
}

/// The driver, if cuInit made it in this very process.
pub fn get() -> Result<&'static Driver, CUresult> {
    match DRIVER.get() {
        Some(driver) if driver.canary.alive() => Ok(driver),
        _ => Err(CUresult::ERROR_NOT_INITIALIZED),
    }
}

/// What the thread's context, or none, says before anything else is looked at. Before cuInit nothing is said.
pub fn refuse_without_context() -> Result<(), CUresult> {
    match get() {
        Ok(driver) => driver.lock().current().map(|_| ()),
        Err(_) => Ok(()),
    }
}

/// Whether a driver was made here or in the process that this one was forked from.
pub fn exists() -> bool {
    DRIVER.get().is_some()
}

/// Keeps the driver that cuInit has made. A second one is dropped: the first stays.
pub fn install(world: &'static World, devices: Vec<DeviceIndex>) {
    let process = Mutex::new(Process::new(devices.len()));
    let _ = DRIVER.set(Driver {
        world,
        devices,
        process,
        attendant: Attendant::new(),
        waiting: Waiting::new(),
        canary: Canary::new(),
    });
}

impl Driver {
    pub fn lock(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn count(&self) -> usize {
        self.devices.len()
    }

    pub fn ordinals(&self) -> impl Iterator<Item = Ordinal> {
        (0..self.devices.len()).map(Ordinal)
    }

    /// The device that a client's number means; INVALID_DEVICE where there is none.
    pub fn ordinal(&self, number: i32) -> Result<Ordinal, CUresult> {
        match usize::try_from(number) {
            Ok(number) if number < self.devices.len() => Ok(Ordinal(number)),
            _ => Err(CUresult::ERROR_INVALID_DEVICE),
        }
    }

    /// The device that a location names, and which of its locality domains where it is one (CUDA 13.4: a byte of device, a byte of domain);
    /// `None` where it is of another type. No driver was asked for domains: by the header, with as many as a device of two dies has.
    pub fn place(
        &self,
        location: CUmemLocation,
    ) -> Option<Result<(Ordinal, Option<u8>), CUresult>> {
        const ON_DEVICE: i32 = 1;
        const DOMAIN: i32 = 6;
        const DOMAINS: u8 = 2;
        /// A type that no header has, for what no driver's number stands for.
        const STRANGE: i32 = 7;
        match location.type_ {
            ON_DEVICE => Some(self.ordinal(location.id).map(|device| (device, None))),
            DOMAIN if entry::generation().number >= 615 => {
                let [device, domain, ..] = location.id.to_le_bytes();
                Some(match (self.ordinal(device.into()), domain) {
                    (Ok(device), ..DOMAINS) => Ok((device, Some(domain))),
                    (Ok(_), _) => Err(CUresult::ERROR_INVALID_VALUE),
                    (Err(code), _) => Err(code),
                })
            }
            STRANGE if entry::generation().number >= 999 => Some(Ok((Ordinal(0), None))),
            _ => None,
        }
    }

    pub fn index(&self, ordinal: Ordinal) -> DeviceIndex {
        self.devices[ordinal.0]
    }

    /// What joins two devices.
    pub fn link(&self, one: Ordinal, other: Ordinal) -> Link {
        self.world
            .machine()
            .link(self.index(one), self.index(other))
    }

    pub fn profile(&self, ordinal: Ordinal) -> &'static DeviceProfile {
        &self.world.devices()[self.index(ordinal).as_usize()]
    }
}
