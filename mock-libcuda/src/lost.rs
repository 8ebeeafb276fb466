//! A device that fell off the bus: whatever needs it answers CUDA_ERROR_DEVICE_UNAVAILABLE, for good. What the driver
//! knows without asking the device (names, attributes, which context is current) it goes on answering, and contexts can
//! be let go.

use abi::cuda::CUresult;
use mock_device::fault::fits;
use mock_device::{DeviceIndex, Parameters, World};

use crate::driver;
use crate::entry::Entry;

/// Entry points that need no device.
const KNOWN_WITHOUT: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetProcAddress*",
    "cuGetExportTable",
    "cuGetError*",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetUuid*",
    "cuDeviceGetLuid",
    "cuDeviceGetAttribute",
    "cuDeviceGetPCIBusId",
    "cuDeviceGetByPCIBusId",
    "cuDeviceGetProperties",
    "cuDeviceComputeCapability",
    "cuDeviceTotalMem*",
    "cuDevicePrimaryCtxGetState",
    "cuDevicePrimaryCtxRelease*",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxPushCurrent*",
    "cuCtxPopCurrent*",
    "cuCtxDestroy*",
    "cuCtxDetach",
    "cuCtxGetDevice",
    "cuCtxGetFlags",
    "cuCtxGetApiVersion",
];

/// The answer to a call that needs a lost device.
pub fn answer(world: &World, entry: Entry, parameters: &Parameters) -> Option<CUresult> {
    let name = entry.name();
    if KNOWN_WITHOUT.iter().any(|known| fits(known, name)) {
        return None;
    }
    let device = device(parameters)?;
    world
        .lost(device)
        .then_some(CUresult::ERROR_DEVICE_UNAVAILABLE)
}

/// The device that is named, else the current context's.
fn device(parameters: &Parameters) -> Option<DeviceIndex> {
    let driver = driver::get().ok()?;
    let named = parameters
        .0
        .iter()
        .find(|parameter| parameter.kind.ends_with("CUdevice"));
    let ordinal = match named.filter(|parameter| parameter.size == 0) {
        Some(parameter) => driver.ordinal(parameter.value as u32 as i32).ok()?,
        None => {
            let process = driver.lock();
            process.context(process.current().ok()?).device
        }
    };
    Some(driver.index(ordinal))
}
