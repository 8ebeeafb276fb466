//! How the loader hands a layer its next: four structures of vk_layer.h, which ash does not have.

use std::ffi::c_void;

use ash::vk;

const LINK_INFO: u32 = 0;

#[repr(C)]
pub struct InstanceLink {
    pub next: *mut InstanceLink,
    pub get_instance_proc_addr: Option<vk::PFN_vkGetInstanceProcAddr>,
    pub get_physical_device_proc_addr: Option<vk::PFN_vkGetInstanceProcAddr>,
}

#[repr(C)]
pub struct DeviceLink {
    pub next: *mut DeviceLink,
    pub get_instance_proc_addr: Option<vk::PFN_vkGetInstanceProcAddr>,
    pub get_device_proc_addr: Option<vk::PFN_vkGetDeviceProcAddr>,
}

/// VkLayerInstanceCreateInfo and VkLayerDeviceCreateInfo: alike as far as a link goes.
#[repr(C)]
struct LayerCreateInfo<Link> {
    s_type: vk::StructureType,
    p_next: *const c_void,
    function: u32,
    link: *mut Link,
}

trait Linked: Sized {
    const KIND: vk::StructureType;
    fn following(&self) -> *mut Self;
}

impl Linked for InstanceLink {
    const KIND: vk::StructureType = vk::StructureType::LOADER_INSTANCE_CREATE_INFO;
    fn following(&self) -> *mut InstanceLink {
        self.next
    }
}

impl Linked for DeviceLink {
    const KIND: vk::StructureType = vk::StructureType::LOADER_DEVICE_CREATE_INFO;
    fn following(&self) -> *mut DeviceLink {
        self.next
    }
}

/// Our link, taken: the chain now shows next's. `None` without link info, as when somebody calls us past the loader.
///
/// # Safety
/// `create_info` is null or a VkInstanceCreateInfo whose pNext chain is valid; the loader's own structures in it may be written.
pub unsafe fn take_instance_link(
    create_info: *const vk::InstanceCreateInfo<'_>,
) -> Option<vk::PFN_vkGetInstanceProcAddr> {
    // SAFETY: the caller's obligation.
    unsafe {
        let create_info = create_info.as_ref()?;
        (*take::<InstanceLink>(create_info.p_next)?).get_instance_proc_addr
    }
}

/// # Safety
/// As [`take_instance_link`], for a VkDeviceCreateInfo.
pub unsafe fn take_device_link(
    create_info: *const vk::DeviceCreateInfo<'_>,
) -> Option<(vk::PFN_vkGetInstanceProcAddr, vk::PFN_vkGetDeviceProcAddr)> {
    // SAFETY: the caller's obligation.
    unsafe {
        let create_info = create_info.as_ref()?;
        let link = take::<DeviceLink>(create_info.p_next)?;
        Some((
            (*link).get_instance_proc_addr?,
            (*link).get_device_proc_addr?,
        ))
    }
}

/// # Safety
/// `chain` is a valid pNext chain.
unsafe fn take<Link: Linked>(chain: *const c_void) -> Option<*mut Link> {
    let mut at = chain.cast::<vk::BaseInStructure<'_>>();
    // SAFETY: every structure of a pNext chain begins as VkBaseInStructure does; those of the loader's type are its VkLayer…CreateInfo, which it
    // made for layers to advance.
    unsafe {
        while let Some(structure) = at.as_ref() {
            if structure.s_type == Link::KIND {
                let info = at.cast::<LayerCreateInfo<Link>>().cast_mut();
                if (*info).function == LINK_INFO {
                    let link = (*info).link;
                    (*info).link = link.as_ref()?.following();
                    return Some(link);
                }
            }
            at = structure.p_next;
        }
    }
    None
}
