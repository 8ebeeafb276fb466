//! The world (skeleton: signatures are final, bodies follow).
use std::path::{Path, PathBuf};

use crate::fault::{Consultation, FaultError, FaultPlan};
use crate::identity::Identity;
use crate::memory::{Kind, OutOfDeviceMemory, ProcessUsage};
use crate::profile::{DeviceProfile, MachineProfile, ProfileError};
use crate::trace::TraceRecord;
use crate::units::{Api, Bytes, DeviceIndex};

/// What a world is made from.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct WorldSpec {
    pub machine: MachineProfile,
    #[serde(default)]
    pub faults: FaultPlan,
    #[serde(default)]
    pub trace: Option<PathBuf>,
    #[serde(default)]
    pub seed: u64,
    /// The devices of the machine that processes see, by index into `machine.devices`; `None` = all.
    #[serde(default)]
    pub visible: Option<Vec<u32>>,
}

impl WorldSpec {
    #[must_use]
    pub fn new(machine: MachineProfile) -> Self {
        Self {
            machine,
            faults: FaultPlan::default(),
            trace: None,
            seed: 0,
            visible: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    #[error("{path}: {source}")]
    Io {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path}: not a world of this version: {reason}")]
    Foreign { path: PathBuf, reason: String },
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error(transparent)]
    Fault(#[from] FaultError),
}

#[derive(Debug)]
pub struct World {
    spec: WorldSpec,
}

impl World {
    pub fn create(_path: &Path, spec: &WorldSpec) -> Result<Self, WorldError> {
        Ok(Self { spec: spec.clone() })
    }
    pub fn open(_path: &Path) -> Result<Self, WorldError> {
        Ok(Self {
            spec: WorldSpec::new(crate::profile::embedded(crate::profile::DEFAULT)?),
        })
    }
    pub fn ambient() -> Result<&'static Self, &'static WorldError> {
        static AMBIENT: std::sync::OnceLock<Result<World, WorldError>> = std::sync::OnceLock::new();
        AMBIENT.get_or_init(|| Self::open(Path::new(""))).as_ref()
    }
    #[must_use]
    pub fn machine(&self) -> &MachineProfile {
        &self.spec.machine
    }
    #[must_use]
    pub fn devices(&self) -> &[DeviceProfile] {
        &self.spec.machine.devices
    }
    #[must_use]
    pub fn identity(&self, dev: DeviceIndex, _api: Api) -> Identity {
        let device = &self.spec.machine.devices[dev.as_usize()];
        Identity {
            uuid: device.uuid.0,
            pci: device.pci,
        }
    }
    pub fn consult(&self, _api: Api, _entry: &'static str) -> Consultation {
        Consultation::Proceed
    }
    #[must_use]
    pub fn missing_symbols(&self, _api: Api) -> &[String] {
        &[]
    }
    pub fn take(
        &self,
        _dev: DeviceIndex,
        _kind: Kind,
        _bytes: Bytes,
    ) -> Result<(), OutOfDeviceMemory> {
        Ok(())
    }
    pub fn give_back(&self, _dev: DeviceIndex, _kind: Kind, _bytes: Bytes) {}
    #[must_use]
    pub fn used(&self, _dev: DeviceIndex) -> Bytes {
        Bytes::ZERO
    }
    #[must_use]
    pub fn free(&self, dev: DeviceIndex) -> Bytes {
        self.spec.machine.devices[dev.as_usize()].capacity()
    }
    #[must_use]
    pub fn used_by(&self, _dev: DeviceIndex, _pid: u32) -> Bytes {
        Bytes::ZERO
    }
    #[must_use]
    pub fn processes(&self, _dev: DeviceIndex) -> Vec<ProcessUsage> {
        Vec::new()
    }
    #[must_use]
    pub fn peak(&self, _dev: DeviceIndex) -> Bytes {
        Bytes::ZERO
    }
    pub fn reset_peak(&self) {}
    /// Whether [`World::trace`] writes anything: ask before building arguments.
    #[must_use]
    pub fn tracing(&self) -> bool {
        false
    }
    pub fn trace(&self, _record: &TraceRecord<'_>) {}
}
