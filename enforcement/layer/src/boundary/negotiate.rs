//! The loader's first call, and the three exports.

use std::ffi::c_char;

use ash::vk;

use super::{guard, resolve};

const INTERFACE_STRUCT: u32 = 1;
const INTERFACE: u32 = 2;

/// VkNegotiateLayerInterface of vk_layer.h.
#[repr(C)]
pub struct Negotiation {
    s_type: u32,
    p_next: *mut std::ffi::c_void,
    interface: u32,
    get_instance_proc_addr: Option<vk::PFN_vkGetInstanceProcAddr>,
    get_device_proc_addr: Option<vk::PFN_vkGetDeviceProcAddr>,
    get_physical_device_proc_addr: Option<vk::PFN_vkGetInstanceProcAddr>,
}

/// Agrees on interface 2. A loader of interface 0 or 1 does not know this call: what asks with them is refused, and written nothing.
///
/// # Safety
/// `negotiation` is null or a VkNegotiateLayerInterface.
#[cfg_attr(test, expect(non_snake_case, reason = "the loader asks for this name"))]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "system" fn vkNegotiateLoaderLayerInterfaceVersion(
    negotiation: *mut Negotiation,
) -> vk::Result {
    guard(vk::Result::ERROR_INITIALIZATION_FAILED, || {
        // SAFETY: the caller's obligation.
        let Some(negotiation) =
            (unsafe { negotiation.as_mut() }).filter(|one| one.s_type == INTERFACE_STRUCT)
        else {
            return vk::Result::ERROR_INITIALIZATION_FAILED;
        };
        if negotiation.interface < INTERFACE {
            return vk::Result::ERROR_INITIALIZATION_FAILED;
        }
        negotiation.interface = INTERFACE;
        negotiation.get_instance_proc_addr = Some(vkGetInstanceProcAddr);
        negotiation.get_device_proc_addr = Some(vkGetDeviceProcAddr);
        // Only for physical-device commands that the loader does not know; none is hooked (decision 29).
        negotiation.get_physical_device_proc_addr = None;
        vk::Result::SUCCESS
    })
}

/// # Safety
/// As the specification's.
#[cfg_attr(test, expect(non_snake_case, reason = "the loader asks for this name"))]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "system" fn vkGetInstanceProcAddr(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the caller's obligation.
    guard(None, || unsafe { resolve::for_instance(instance, name) })
}

/// # Safety
/// As the specification's.
#[cfg_attr(test, expect(non_snake_case, reason = "the loader asks for this name"))]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "system" fn vkGetDeviceProcAddr(
    device: vk::Device,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the caller's obligation.
    guard(None, || unsafe { resolve::for_device(device, name) })
}
