//! Machine profiles: what GPUs there are and how they answer. Data files under `fixtures/profiles`, each fact with its
//! source; the four that the project ships are compiled in, so that a mock works without any file beside it. Others are read
//! from where their path says ([`of`]).

mod file;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cost::Cost;
use crate::generation;
use crate::identity::{PciAddress, Uuid};
use crate::memory::{Kind, Overhead};
use crate::nvml::AnswerText;
use crate::peer::Peering;
use crate::units::Bytes;

/// The world's bound; above the ledger's 32, so that the latter can be exceeded.
pub const MAX_DEVICES: usize = 64;

/// The machine of a mock that was told nothing.
pub const DEFAULT: &str = "rtx6000-ada";

const EMBEDDED: [(&str, &str); 4] = [
    (
        "rtx6000-ada",
        include_str!("../../fixtures/profiles/rtx6000-ada.toml"),
    ),
    ("h200", include_str!("../../fixtures/profiles/h200.toml")),
    (
        "h200x2",
        include_str!("../../fixtures/profiles/h200x2.toml"),
    ),
    ("tiny", include_str!("../../fixtures/profiles/tiny.toml")),
];

/// Machines in MIG mode: name, the machine that is cut, its instances.
const MIG: [(&str, &str, &str); 1] = [(
    "h200-mig",
    "h200",
    include_str!("../../fixtures/profiles/mig/h200.toml"),
)];

/// A host: one driver and its GPUs, in PCI order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineProfile {
    pub name: String,
    pub driver: DriverProfile,
    #[serde(rename = "device")]
    pub devices: Vec<DeviceProfile>,
    /// How the devices reach each other's memory.
    #[serde(default, skip_serializing_if = "Peering::is_unsaid")]
    pub peer: Peering,
    /// NVML tables of this machine's own, by the name that devices call them.
    #[serde(default)]
    pub nvml: BTreeMap<String, AnswerText>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverProfile {
    /// As NVML prints it: `580.142`.
    pub version: String,
    /// As cuDriverGetVersion answers: 13000 for CUDA 13.0.
    pub cuda_version: i32,
    /// VkPhysicalDeviceProperties::driverVersion, in the vendor's own packing (10, 8, 8, 6 bits).
    pub vulkan_version: u32,
    /// VkPhysicalDeviceIDProperties::driverUUID.
    pub vulkan_driver_uuid: Uuid,
    /// What the ICD reports as apiVersion: `[1, 4, 312]`.
    pub vulkan_api: [u32; 3],
    /// Devices that Vulkan shows as one group, by their number among those that are shown; all others are alone.
    #[serde(default)]
    pub vulkan_groups: Vec<Vec<u32>>,
    /// How many instances of Vulkan a process can have at once; any number without it.
    #[serde(default)]
    pub vulkan_instances: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceProfile {
    pub name: String,
    pub uuid: Uuid,
    /// Where the vendor's Vulkan driver reports another deviceUUID than CUDA and NVML do (V1: all zero in a container).
    #[serde(default)]
    pub vulkan_uuid: Option<Uuid>,
    pub pci: PciAddress,
    pub pci_device_id: u32,
    /// NVML's total, its reserve included.
    pub nvml_total: Bytes,
    /// What NVML counts as reserved on a bare card; never allocatable.
    pub nvml_reserve: Bytes,
    /// What cuDeviceTotalMem answers.
    pub cuda_total: Bytes,
    pub heaps: Vec<Heap>,
    pub memory_types: Vec<MemoryType>,
    pub queue_families: Vec<QueueFamily>,
    /// cuMemAlloc takes device memory in these.
    pub block: Bytes,
    /// cuMemAlloc hands out addresses in these, within a block.
    pub suballocation: Bytes,
    pub vmm_granularity: Bytes,
    pub vulkan_granularity: Bytes,
    /// Taken by cuInit, per process and device.
    pub init_overhead: Bytes,
    /// Taken by each context, beside `init_overhead`.
    pub context_overhead: Bytes,
    /// Of that: what the process's NVML row does not name. It names nothing of `init_overhead`.
    pub context_unlisted: Bytes,
    /// Taken by a process's first VkInstance, for as long as it has any.
    pub vulkan_instance_overhead: Bytes,
    pub vulkan_instance_unlisted: Bytes,
    /// Taken by a VkDevice.
    pub vulkan_device_overhead: Bytes,
    pub vulkan_device_unlisted: Bytes,
    /// A stream-ordered pool grows by multiples of this.
    pub pool_step: Bytes,
    pub sm_count: u32,
    /// Major, minor.
    pub compute_capability: [u32; 2],
    /// What work costs in time.
    pub cost: Cost,
    /// How long a dead process's memory stays taken after the world saw the death.
    pub teardown_lag_ms: u64,
    /// CUdevice_attribute values that no other field gives; ask [`DeviceProfile::attribute`].
    #[serde(default, with = "numbered")]
    pub attributes: BTreeMap<i32, i32>,
    /// The NVML table that says the rest of what NVML answers: see [`crate::nvml`].
    #[serde(default)]
    pub nvml: Option<String>,
    /// The instances that a device in MIG mode is cut into; none where the mode is off.
    #[serde(default)]
    pub mig: Vec<GpuInstance>,
}

/// A GPU instance of a device in MIG mode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuInstance {
    pub id: u32,
    /// As NVIDIA names it: `1g.18gb`.
    pub name: String,
    /// Its profile's number, as nvmlGpuInstanceInfo_t gives it.
    pub profile: u32,
    /// First memory slice and how many.
    pub placement: [u32; 2],
    pub memory: Bytes,
    pub sm_count: u32,
    pub slices: u32,
    pub copy_engines: u32,
    pub decoders: u32,
    pub encoders: u32,
    pub jpeg_engines: u32,
    pub ofa_engines: u32,
    pub compute: Vec<ComputeInstance>,
}

/// A compute instance: what a MIG device handle stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputeInstance {
    pub id: u32,
    /// Printed with `MIG-` before it.
    pub uuid: Uuid,
    pub profile: u32,
    pub sm_count: u32,
    pub slices: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Heap {
    pub size: Bytes,
    /// VkMemoryHeapFlags; 1 is DEVICE_LOCAL.
    pub flags: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryType {
    pub heap: u32,
    /// VkMemoryPropertyFlags.
    pub flags: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueFamily {
    /// VkQueueFlags.
    pub flags: u32,
    pub count: u32,
}

impl Heap {
    #[must_use]
    pub const fn device_local(self) -> bool {
        self.flags & 1 != 0
    }
}

impl DeviceProfile {
    /// What processes can hold together: NVML's total less its reserve.
    #[must_use]
    pub const fn capacity(&self) -> Bytes {
        self.nvml_total.saturating_sub(self.nvml_reserve)
    }

    /// What device memory can read and write in a second, by its clock and width.
    #[must_use]
    pub fn dram_bandwidth(&self) -> Option<u64> {
        let attribute = |number| {
            self.attribute(number)
                .and_then(|value| u64::try_from(value).ok())
        };
        let (kilohertz, bits) = (attribute(36)?, attribute(37)?);
        // Twice a clock.
        Some(kilohertz * 1000 * 2 * bits / 8).filter(|bandwidth| *bandwidth > 0)
    }

    /// How many blocks of so many threads one SM holds, if nothing but their number forbids more.
    #[must_use]
    pub fn blocks_per_sm(&self, threads: u32) -> u32 {
        const WARP: u32 = 32;
        let attribute = |number, otherwise| {
            let value = self
                .attribute(number)
                .and_then(|value| u32::try_from(value).ok());
            value.unwrap_or(otherwise)
        };
        let warps = attribute(39, 2048) / WARP;
        (warps / threads.div_ceil(WARP).max(1))
            .min(attribute(106, 32))
            .max(1)
    }

    /// What a context takes by itself.
    #[must_use]
    pub fn context(&self) -> Overhead {
        Overhead::new(Kind::Context, self.context_overhead, self.context_unlisted)
    }

    /// What a process's VkInstances take together.
    #[must_use]
    pub fn vulkan_instance(&self) -> Overhead {
        let (all, unlisted) = (self.vulkan_instance_overhead, self.vulkan_instance_unlisted);
        Overhead::new(Kind::VulkanInstance, all, unlisted)
    }

    /// What a VkDevice takes by itself.
    #[must_use]
    pub fn vulkan_device(&self) -> Overhead {
        let (all, unlisted) = (self.vulkan_device_overhead, self.vulkan_device_unlisted);
        Overhead::new(Kind::VulkanDevice, all, unlisted)
    }

    /// cuDeviceGetAttribute's answer; `None` for an attribute that the profile does not know.
    #[must_use]
    pub fn attribute(&self, number: i32) -> Option<i32> {
        let as_i32 = |value: u32| i32::try_from(value).ok();
        match number {
            16 => as_i32(self.sm_count),
            33 => as_i32(self.pci.bus),
            34 => as_i32(self.pci.device),
            50 => as_i32(self.pci.domain),
            75 => as_i32(self.compute_capability[0]),
            76 => as_i32(self.compute_capability[1]),
            _ => self.attributes.get(&number).copied(),
        }
    }
}

/// A profile that cannot be had. Every variant names the input it came from.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("no embedded profile is called `{asked}` (there are {known})", known = known_names())]
    Unknown { asked: String },
    #[error(
        "`{asked}`: no driver generation is called `{generation}` (there are {known})",
        known = known_generations()
    )]
    Generation { asked: String, generation: String },
    #[error("`{asked}`: the number of copies after `*` must be 1 to {MAX_DEVICES}")]
    Copies { asked: String },
    #[error("{path}: {source}")]
    File {
        path: String,
        source: std::io::Error,
    },
    #[error("{input}: not a profile: {source}")]
    Syntax {
        input: String,
        #[source]
        source: Box<toml::de::Error>,
    },
    #[error("{input}: {count} devices, a world holds at most {MAX_DEVICES}")]
    TooManyDevices { input: String, count: usize },
    #[error("{input}: device {device}: {problem}")]
    Device {
        input: String,
        device: usize,
        problem: String,
    },
    #[error("{input}: a machine without devices")]
    NoDevices { input: String },
}

fn known_names() -> String {
    let cut = MIG.iter().map(|(name, _, _)| *name);
    let names: Vec<&str> = names().into_iter().chain(cut).collect();
    names.join(", ")
}

fn known_generations() -> String {
    generation::numbers()
        .map(|number| number.to_string())
        .join(", ")
}

/// Names of the profiles that are compiled in.
#[must_use]
pub fn names() -> Vec<&'static str> {
    EMBEDDED.iter().map(|(name, _)| *name).collect()
}

/// A machine by what it is called: a path that ends in `.toml` is a file, a profile or what `ringfence probe` wrote; anything
/// else an embedded profile. `*N` and `+G` may follow both, as [`embedded`] says.
///
/// # Errors
/// As [`embedded`], and a file that cannot be read or is no profile.
pub fn of(asked: &str) -> Result<MachineProfile, ProfileError> {
    let Some((path, rest)) = file::path_of(asked) else {
        return embedded(asked);
    };
    let (copies, generation) = match rest.split_once('+') {
        None => (rest, None),
        Some((copies, generation)) => (copies, Some(generation)),
    };
    let machine = file::read(path)?;
    let machine = times(asked, machine, copies.strip_prefix('*'))?;
    with_driver(asked, machine, generation)
}

/// An embedded profile by name; `name*N` is the same machine with its devices N times over, each copy with its own UUID
/// and PCI address; `…+G` the same with a driver of generation G ([`generation`]); `name-group` the same with all devices that the
/// profile itself has in one Vulkan device group.
///
/// # Errors
/// An unknown name or generation, or more than [`MAX_DEVICES`] devices; the error names `asked`.
pub fn embedded(asked: &str) -> Result<MachineProfile, ProfileError> {
    let (machine, generation) = match asked.split_once('+') {
        None => (asked, None),
        Some((machine, generation)) => (machine, Some(generation)),
    };
    let (name, copies) = match machine.split_once('*') {
        None => (machine, None),
        Some((name, copies)) => (name, Some(copies)),
    };
    let machine = times(asked, compiled_in(asked, name)?, copies)?;
    with_driver(asked, machine, generation)
}

fn with_driver(
    asked: &str,
    mut machine: MachineProfile,
    generation: Option<&str>,
) -> Result<MachineProfile, ProfileError> {
    if let Some(number) = generation {
        generation::install(&mut machine, asked, number)?;
        asked.clone_into(&mut machine.name);
    }
    Ok(machine)
}

fn times(
    asked: &str,
    machine: MachineProfile,
    copies: Option<&str>,
) -> Result<MachineProfile, ProfileError> {
    match copies.map(str::parse::<usize>) {
        None | Some(Ok(1)) => Ok(machine),
        Some(Ok(copies @ 2..)) => multiply(asked, &machine, copies),
        Some(_) => Err(ProfileError::Copies {
            asked: asked.to_owned(),
        }),
    }
}

/// What a machine's name ends in whose Vulkan driver joins all its devices in one group.
const GROUPED: &str = "-group";

fn compiled_in(asked: &str, name: &str) -> Result<MachineProfile, ProfileError> {
    if let Some(alone) = name.strip_suffix(GROUPED) {
        let mut machine = compiled_in(asked, alone)?;
        let members = 0..machine.devices.len() as u32;
        machine.driver.vulkan_groups = vec![members.collect()];
        name.clone_into(&mut machine.name);
        return Ok(machine);
    }
    let cut = MIG.iter().find(|(known, _, _)| *known == name);
    let base = cut.map_or(name, |(_, base, _)| base);
    let text = EMBEDDED
        .iter()
        .find(|(known, _)| *known == base)
        .map(|(_, text)| *text);
    let mut machine = parse(
        base,
        text.ok_or_else(|| ProfileError::Unknown {
            asked: asked.to_owned(),
        })?,
    )?;
    if let Some((_, _, text)) = cut {
        cut_into_instances(&mut machine, name, text)?;
    }
    Ok(machine)
}

fn cut_into_instances(
    machine: &mut MachineProfile,
    name: &str,
    text: &str,
) -> Result<(), ProfileError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Cut {
        mig: Vec<GpuInstance>,
    }
    let cut: Cut = toml::from_str(text).map_err(|source| ProfileError::Syntax {
        input: name.to_owned(),
        source: Box::new(source),
    })?;
    name.clone_into(&mut machine.name);
    for device in &mut machine.devices {
        device.mig = cut.mig.clone();
    }
    Ok(())
}

/// A profile from the text of a TOML file; `input` is what errors call it.
///
/// # Errors
/// Text that is no profile, or a profile that contradicts itself.
pub fn parse(input: &str, text: &str) -> Result<MachineProfile, ProfileError> {
    let machine: MachineProfile = toml::from_str(text).map_err(|source| ProfileError::Syntax {
        input: input.to_owned(),
        source: Box::new(source),
    })?;
    check(input, &machine)?;
    Ok(machine)
}

fn multiply(
    asked: &str,
    machine: &MachineProfile,
    copies: usize,
) -> Result<MachineProfile, ProfileError> {
    let count = machine.devices.len().saturating_mul(copies);
    if count > MAX_DEVICES {
        return Err(ProfileError::TooManyDevices {
            input: asked.to_owned(),
            count,
        });
    }
    let highest_bus = machine
        .devices
        .iter()
        .map(|device| device.pci.bus)
        .max()
        .unwrap_or(0);
    let mut devices = machine.devices.clone();
    for copy in 1..copies {
        for original in &machine.devices {
            let step = u32::try_from(copy).unwrap_or(u32::MAX);
            let mut device = original.clone();
            device.uuid = device.uuid.nth_copy(step);
            device.vulkan_uuid = device.vulkan_uuid.map(|uuid| {
                if uuid == Uuid::ZERO {
                    uuid
                } else {
                    uuid.nth_copy(step)
                }
            });
            for compute in device.mig.iter_mut().flat_map(|gpu| &mut gpu.compute) {
                compute.uuid = compute.uuid.nth_copy(step);
            }
            device.pci.bus += step * (highest_bus + 1);
            device.pci.domain += device.pci.bus >> 8;
            device.pci.bus &= 0xff;
            devices.push(device);
        }
    }
    let machine = MachineProfile {
        name: asked.to_owned(),
        driver: machine.driver.clone(),
        devices,
        peer: machine.peer,
        nvml: machine.nvml.clone(),
    };
    check(asked, &machine)?;
    Ok(machine)
}

/// What a profile must satisfy for the mocks to be consistent with one another.
///
/// # Errors
/// The first contradiction found, with the device it was found in.
pub fn check(input: &str, machine: &MachineProfile) -> Result<(), ProfileError> {
    let count = machine.devices.len();
    if count == 0 {
        return Err(ProfileError::NoDevices {
            input: input.to_owned(),
        });
    }
    if count > MAX_DEVICES {
        return Err(ProfileError::TooManyDevices {
            input: input.to_owned(),
            count,
        });
    }
    for (index, device) in machine.devices.iter().enumerate() {
        if let Some(problem) = contradiction(device, &machine.devices[..index]) {
            return Err(ProfileError::Device {
                input: input.to_owned(),
                device: index,
                problem,
            });
        }
    }
    Ok(())
}

fn contradiction(device: &DeviceProfile, before: &[DeviceProfile]) -> Option<String> {
    let granularities = [
        device.block,
        device.suballocation,
        device.vmm_granularity,
        device.vulkan_granularity,
        device.pool_step,
    ];
    if before.iter().any(|other| other.uuid == device.uuid) {
        Some(format!(
            "UUID {} occurs twice (identity faults belong in the fault plan)",
            device.uuid
        ))
    } else if before.last().is_some_and(|other| other.pci >= device.pci) {
        Some(format!(
            "PCI address {} is not above its predecessor's: devices stand in PCI order",
            device.pci
        ))
    } else if device.nvml_reserve >= device.nvml_total {
        Some("nvml_reserve leaves nothing of nvml_total".to_owned())
    } else if device.cuda_total > device.nvml_total {
        Some("cuda_total exceeds nvml_total".to_owned())
    } else if granularities.iter().any(|unit| !unit.0.is_power_of_two()) {
        Some("a granularity is not a power of two".to_owned())
    } else if !device.heaps.iter().any(|heap| heap.device_local()) {
        Some("no device-local heap".to_owned())
    } else if let Some(name) = device.cost.zero() {
        Some(format!("cost.{name} is 0 bytes per second"))
    } else {
        let bad = device
            .memory_types
            .iter()
            .position(|kind| kind.heap as usize >= device.heaps.len())?;
        Some(format!("memory type {bad} names a heap that is not there"))
    }
}

/// Maps keyed by number, spelled with text keys in TOML.
mod numbered {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

    pub fn serialize<S: Serializer>(map: &BTreeMap<i32, i32>, out: S) -> Result<S::Ok, S::Error> {
        map.iter()
            .map(|(key, value)| (key.to_string(), *value))
            .collect::<BTreeMap<_, _>>()
            .serialize(out)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<BTreeMap<i32, i32>, D::Error> {
        BTreeMap::<String, i32>::deserialize(input)?
            .into_iter()
            .map(|(key, value)| {
                Ok((
                    key.parse()
                        .map_err(|_| de::Error::custom(format!("`{key}` is not a number")))?,
                    value,
                ))
            })
            .collect()
    }
}
