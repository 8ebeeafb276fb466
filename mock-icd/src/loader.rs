//! The contract with the loader that is not Vulkan's own.

use ash::vk;

use crate::boundary::{Out, Outcome};

/// Version 7: the driver's entry points are also had by name. Older loaders get what they ask for.
const INTERFACE: u32 = 7;

/// Agrees on the older of the two versions.
///
/// # Errors
/// VK_ERROR_INITIALIZATION_FAILED without a version to agree on.
pub fn negotiate(version: Out<u32>) -> Outcome {
    let asked = version
        .read()
        .ok_or(vk::Result::ERROR_INITIALIZATION_FAILED)?;
    version.put(asked.min(INTERFACE));
    Ok(())
}
