//! What Vulkan's handles and results are called.

use ash::vk;

/// The API's name in a line.
pub const API: &str = "vulkan";

#[must_use]
pub fn result_name(result: vk::Result) -> String {
    if result == vk::Result::SUCCESS {
        "VK_SUCCESS".to_owned()
    } else {
        format!("VK_{result:?}")
    }
}
