//! A device that fell off the bus: every call on its handle answers NVML_ERROR_GPU_IS_LOST, and no new handle is had.

use abi::nvml::{nvmlDevice_t, nvmlReturn_t};
use mock_device::{Parameters, World};

use crate::library;

const NEW_HANDLE: &str = "nvmlDeviceGetHandleBy";

/// The answer to a call on a lost device. `after` says that the call has been carried out.
pub fn answer(
    world: &World,
    entry: &str,
    parameters: &Parameters,
    after: bool,
) -> Option<nvmlReturn_t> {
    let handle = parameters
        .0
        .iter()
        .filter(|parameter| parameter.kind.ends_with("nvmlDevice_t"))
        .find_map(|parameter| match parameter.size {
            0 if !after => Some(parameter.value),
            1.. if after && entry.starts_with(NEW_HANDLE) => parameter.read(8),
            _ => None,
        })?;
    let subject = library::subject(nvmlDevice_t(handle as *mut _)).ok()?;
    let device = subject.device();
    world
        .lost(device)
        .then_some(nvmlReturn_t::ERROR_GPU_IS_LOST)
}
