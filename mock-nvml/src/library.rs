//! The library as one process holds it: how often it was initialised, and its device handles.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Once, OnceLock};

use abi::nvml::*;
use mock_device::nvml::Answers;
use mock_device::{DeviceIndex, DeviceProfile, World};

/// nvmlInit counts up, nvmlShutdown down.
static USERS: AtomicU32 = AtomicU32::new(0);

/// The simulated machine; `None`, once said on stderr, where it cannot be opened.
pub fn world() -> Option<&'static World> {
    static SAID: Once = Once::new();
    match World::ambient() {
        Ok(world) => Some(world),
        Err(error) => {
            SAID.call_once(|| {
                eprintln!("mock-nvml: the simulated machine cannot be opened: {error}")
            });
            None
        }
    }
}

pub fn initialised() -> bool {
    USERS.load(Ordering::Acquire) > 0
}

pub fn enter_user() {
    USERS.fetch_add(1, Ordering::AcqRel);
}

/// False where there was no user.
pub fn leave_user() -> bool {
    USERS
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |users| {
            users.checked_sub(1)
        })
        .is_ok()
}

/// The machine of an initialised library; UNINITIALIZED otherwise.
pub fn ready() -> Result<&'static World, nvmlReturn_t> {
    if !initialised() {
        return Err(nvmlReturn_t::ERROR_UNINITIALIZED);
    }
    world().ok_or(nvmlReturn_t::ERROR_UNKNOWN)
}

/// Above what a process can map, so that no handle is ever a valid address.
const HANDLES: u64 = 0x00d0_0000_0000_0000;
const GPU_INSTANCES: u64 = 0x00d1_0000_0000_0000;
const COMPUTE_INSTANCES: u64 = 0x00d2_0000_0000_0000;

/// A compute instance of a device in MIG mode: what a MIG device handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    pub device: DeviceIndex,
    /// Position in the profile's `mig`.
    pub gpu: usize,
    /// Position in that instance's `compute`.
    pub compute: usize,
}

/// What a device handle stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    Device(DeviceIndex),
    Instance(Instance),
}

impl Subject {
    /// The device, or the one that the instance is part of.
    pub fn device(self) -> DeviceIndex {
        match self {
            Self::Device(device) => device,
            Self::Instance(instance) => instance.device,
        }
    }
}

fn number(kind: u64, device: DeviceIndex, gpu: usize, compute: usize) -> u64 {
    kind | u64::from(device.0) << 4 | (gpu as u64) << 16 | (compute as u64) << 32
}

/// Device, and the two positions, of a number of that kind.
fn parts(kind: u64, handle: u64) -> Result<(DeviceIndex, usize, usize), nvmlReturn_t> {
    let rest = handle ^ kind;
    let device = rest >> 4 & 0xfff;
    let count = world().map_or(0, |world| world.devices().len() as u64);
    if rest & 0xf == 0 && rest >> 48 == 0 && device < count {
        let positions = (rest >> 16 & 0xffff, rest >> 32 & 0xffff);
        Ok((
            DeviceIndex(device as u32),
            positions.0 as usize,
            positions.1 as usize,
        ))
    } else {
        Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT)
    }
}

pub fn handle(index: DeviceIndex) -> nvmlDevice_t {
    nvmlDevice_t(number(HANDLES, index, 0, 0) as *mut c_void)
}

/// Positions count from 1 in a handle, so that 0 is the whole device.
pub fn instance_handle(instance: Instance) -> nvmlDevice_t {
    let Instance {
        device,
        gpu,
        compute,
    } = instance;
    nvmlDevice_t(number(HANDLES, device, gpu + 1, compute + 1) as *mut c_void)
}

pub fn gpu_instance_handle(device: DeviceIndex, gpu: usize) -> nvmlGpuInstance_t {
    nvmlGpuInstance_t(number(GPU_INSTANCES, device, gpu, 0) as *mut c_void)
}

pub fn compute_instance_handle(instance: Instance) -> nvmlComputeInstance_t {
    let Instance {
        device,
        gpu,
        compute,
    } = instance;
    nvmlComputeInstance_t(number(COMPUTE_INSTANCES, device, gpu, compute) as *mut c_void)
}

/// What the handle stands for; INVALID_ARGUMENT for any other number.
pub fn subject(handle: nvmlDevice_t) -> Result<Subject, nvmlReturn_t> {
    match parts(HANDLES, handle.0 as u64)? {
        (device, 0, 0) => Ok(Subject::Device(device)),
        (device, gpu, compute) if gpu > 0 && compute > 0 => Ok(Subject::Instance(Instance {
            device,
            gpu: gpu - 1,
            compute: compute - 1,
        })),
        _ => Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT),
    }
}

/// The device of a handle; NOT_SUPPORTED for a MIG device, INVALID_ARGUMENT for any other number.
pub fn device(handle: nvmlDevice_t) -> Result<DeviceIndex, nvmlReturn_t> {
    match subject(handle)? {
        Subject::Device(device) => Ok(device),
        Subject::Instance(_) => Err(nvmlReturn_t::ERROR_NOT_SUPPORTED),
    }
}

pub fn gpu_instance(handle: nvmlGpuInstance_t) -> Result<(DeviceIndex, usize), nvmlReturn_t> {
    let (device, gpu, _) = parts(GPU_INSTANCES, handle.0 as u64)?;
    Ok((device, gpu))
}

pub fn compute_instance(handle: nvmlComputeInstance_t) -> Result<Instance, nvmlReturn_t> {
    let (device, gpu, compute) = parts(COMPUTE_INSTANCES, handle.0 as u64)?;
    Ok(Instance {
        device,
        gpu,
        compute,
    })
}

/// What the profile's NVML table says of the device. A table that cannot be read counts as empty, once said on stderr.
pub fn answers(world: &'static World, index: DeviceIndex) -> &'static Answers {
    static TABLES: OnceLock<BTreeMap<Option<String>, Answers>> = OnceLock::new();
    static NONE: Answers = Answers::new();
    let tables = TABLES.get_or_init(|| {
        let mut tables = BTreeMap::new();
        for device in world.devices() {
            tables.entry(device.nvml.clone()).or_insert_with(|| {
                mock_device::nvml::answers(world.machine(), device).unwrap_or_else(|error| {
                    eprintln!("mock-nvml: {error}");
                    Answers::new()
                })
            });
        }
        tables
    });
    tables.get(&profile(world, index).nvml).unwrap_or(&NONE)
}

pub fn profile(world: &'static World, index: DeviceIndex) -> &'static DeviceProfile {
    &world.devices()[index.as_usize()]
}
