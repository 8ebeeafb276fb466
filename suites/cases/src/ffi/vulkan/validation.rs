//! The Khronos validation layer as a witness: what it said in this process.

use super::{CStr, Mutex, PoisonError, c_void, vk};
use harness::{Case, Failure};

pub const LAYER: &CStr = c"VK_LAYER_KHRONOS_validation";

/// Set by the runner where Vulkan programs are to run under the layer, which must then be findable (VK_LAYER_PATH). Empty is unset.
pub const SWITCH: &str = "RINGFENCE_VALIDATION";

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

pub fn wanted() -> bool {
    std::env::var_os(SWITCH).is_some_and(|value| !value.is_empty())
}

/// Fails a case during which the layer said anything but what the case provokes on purpose.
pub fn validated(case: &Case) -> Result<(), Failure> {
    let said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    let provoked = |message: &str| case.invalid_use.iter().any(|vuid| message.contains(vuid));
    let unexpected = said.iter().find(|message| !provoked(message));
    match unexpected {
        Some(message) => Err(Failure::Broken(format!(
            "the validation layer says: {message}"
        ))),
        None => Ok(()),
    }
}

/// In the chain of an instance's creation, so that its own creation and destruction are covered.
pub fn creation() -> vk::DebugUtilsMessengerCreateInfoEXT<'static> {
    use vk::{
        DebugUtilsMessageSeverityFlagsEXT as Severity, DebugUtilsMessageTypeFlagsEXT as Type,
    };
    vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(Severity::WARNING | Severity::ERROR)
        .message_type(Type::GENERAL | Type::VALIDATION | Type::PERFORMANCE)
        .pfn_user_callback(Some(hear))
}

/// Hears between an instance's creation and destruction.
pub struct Messenger {
    utils: ash::ext::debug_utils::Instance,
    raw: vk::DebugUtilsMessengerEXT,
}

impl Drop for Messenger {
    fn drop(&mut self) {
        // SAFETY: destroyed once, before its instance.
        unsafe { self.utils.destroy_debug_utils_messenger(self.raw, None) };
    }
}

/// A messenger, where validation is wanted.
pub fn listen(entry: &ash::Entry, instance: &ash::Instance) -> Option<Messenger> {
    if !wanted() {
        return None;
    }
    let utils = ash::ext::debug_utils::Instance::new(entry, instance);
    // SAFETY: the extension is enabled, the callback is a function of this module.
    let raw = unsafe { utils.create_debug_utils_messenger(&creation(), None) }.ok()?;
    Some(Messenger { utils, raw })
}

unsafe extern "system" fn hear(
    _severity: vk::DebugUtilsMessageSeverityFlagsEXT,
    _kind: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    _user: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the layer hands in a valid structure for the duration of the call.
    let data = unsafe { &*data };
    // SAFETY: both texts are C strings, or NULL.
    let text = |text: *const std::ffi::c_char| unsafe {
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    };
    let name = text(data.p_message_id_name).unwrap_or_default();
    let message = text(data.p_message).unwrap_or_default();
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    said.push(format!("{name}: {message}"));
    vk::FALSE
}
