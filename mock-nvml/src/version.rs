//! Versions of structures: what a caller may write into `version`, as driver 580 answered every getter's every version.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use abi::nvml::*;
use mock_device::generation;

use crate::boundary::{Answer, Memory};
use crate::entry::Entry;
use crate::{layout, library};

/// These answer what they answer before they look at the version.
const REGARDLESS: &[&str] = &[
    "nvmlDeviceGetDramEncryptionMode",
    "nvmlDeviceGetNvlinkBwMode",
    "nvmlDeviceGetNvlinkSupportedBwModes",
    "nvmlDeviceGetPlatformInfo",
    "nvmlDeviceGetVgpuHeterogeneousMode",
    "nvmlDeviceGetVgpuMetadata",
    "nvmlDeviceGetVgpuProcessesUtilizationInfo",
    "nvmlDeviceGetVgpuTypeCreatablePlacements",
    "nvmlDeviceGetVgpuTypeSupportedPlacements",
    "nvmlGpuInstanceGetActiveVgpus",
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
    "nvmlGpuInstanceGetCreatableVgpus",
    "nvmlGpuInstanceGetVgpuHeterogeneousMode",
    "nvmlGpuInstanceGetVgpuSchedulerLog",
    "nvmlGpuInstanceGetVgpuSchedulerState",
    "nvmlGpuInstanceGetVgpuTypeCreatablePlacements",
    "nvmlVgpuInstanceGetMetadata",
    "nvmlVgpuInstanceGetRuntimeStateSize",
    "nvmlVgpuTypeGetBAR1Info",
    "nvmlVgpuTypeGetMaxInstancesPerGpuInstance",
];

/// These refuse with INVALID_ARGUMENT.
const INVALID: &[&str] = &[
    "nvmlDeviceGetGpuInstanceProfileInfoByIdV",
    "nvmlDeviceGetGpuInstanceProfileInfoV",
];

/// These know a plain 1, without the structure's size.
const PLAIN: &[&str] = &["nvmlGpmMetricsGet_t", "nvmlGpmSupport_t"];

/// Whether this machine's driver is not older than the version; one that no header documents is as old as its function.
fn is_of_this_driver(kind: &str, version: u32) -> bool {
    static SINCE: OnceLock<BTreeMap<String, u16>> = OnceLock::new();
    let since = SINCE.get_or_init(generation::nvml_structures);
    let name = format!("{}_v{}", layout::family(kind), version >> 24);
    let driver = library::world().map(|world| &world.machine().driver);
    match (since.get(&name), driver) {
        (Some(since), Some(driver)) => generation::number(driver) >= *since,
        _ => true,
    }
}

/// A structure whose version is none of its family's is refused.
pub fn check(entry: Entry, kind: &str, memory: &Memory) -> Answer {
    if memory.is_null() || !layout::structure(kind).is_some_and(layout::is_versioned) {
        return Ok(());
    }
    let version = memory.number();
    let known = if PLAIN.contains(&kind) {
        version == 1
    } else {
        layout::of_version(kind, version).is_some() && is_of_this_driver(kind, version)
    };
    if known || REGARDLESS.contains(&entry.name()) {
        Ok(())
    } else if INVALID.contains(&entry.name()) {
        Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT)
    } else {
        Err(nvmlReturn_t::ERROR_ARGUMENT_VERSION_MISMATCH)
    }
}
