//! mock-device: the simulated GPU world under the three mocks. See the end of the file list for the entry: [`World`].

pub mod fault;
pub mod identity;
pub mod memory;
mod os;
pub mod profile;
pub mod trace;
pub mod units;
pub mod world;

pub use fault::{Consultation, Fault, FaultPlan};
pub use identity::{Identity, PciAddress, Uuid};
pub use memory::{Kind, OutOfDeviceMemory, ProcessUsage};
pub use profile::{
    DeviceProfile, DriverProfile, Heap, MachineProfile, MemoryType, ProfileError, QueueFamily,
};
pub use trace::{TraceRecord, Value};
pub use units::{Api, Bytes, DeviceIndex};
pub use world::{World, WorldError, WorldSpec};
