//! A Vulkan layer's own entry points, called as a loader would, or as no loader would.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use ash::vk;

use super::library::{Absent, Library, Visibility};
use super::vulkan::Code;

/// LAYER_NEGOTIATE_INTERFACE_STRUCT of vk_layer.h.
pub const NEGOTIATE: i32 = 1;

/// `VkNegotiateLayerInterface`.
#[repr(C)]
struct Interface {
    kind: i32,
    next: *mut c_void,
    version: u32,
    get_instance_proc: Option<vk::PFN_vkGetInstanceProcAddr>,
    get_device_proc: Option<vk::PFN_vkGetDeviceProcAddr>,
    get_physical_device_proc: Option<vk::PFN_vkGetInstanceProcAddr>,
}

type Negotiate = unsafe extern "system" fn(*mut Interface) -> vk::Result;

/// A layer's library.
pub struct Layer {
    negotiate: Negotiate,
    get_instance_proc: vk::PFN_vkGetInstanceProcAddr,
}

/// What a negotiation ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    pub code: Code,
    /// What the structure holds then.
    pub version: u32,
    pub has_instance_proc: bool,
    pub has_device_proc: bool,
    pub has_physical_device_proc: bool,
}

impl Layer {
    pub fn open(path: &str) -> Result<Self, Absent> {
        let library = Library::open(path, Visibility::Local)?;
        let lacks = |name: &str| Absent {
            name: path.to_owned(),
            reason: format!("it lacks {name}"),
        };
        // SAFETY: the types are vk_layer.h's for these names.
        unsafe {
            Ok(Self {
                negotiate: library
                    .function("vkNegotiateLoaderLayerInterfaceVersion")
                    .ok_or_else(|| lacks("vkNegotiateLoaderLayerInterfaceVersion"))?,
                get_instance_proc: library
                    .function("vkGetInstanceProcAddr")
                    .ok_or_else(|| lacks("vkGetInstanceProcAddr"))?,
            })
        }
    }

    pub fn negotiate_nothing(&self) -> Code {
        // SAFETY: NULL is what the case asks about; nothing can be written.
        unsafe { (self.negotiate)(null_mut()) }.into()
    }

    pub fn negotiate(&self, kind: i32, version: u32) -> Negotiated {
        let mut interface = Interface {
            kind,
            next: null_mut(),
            version,
            get_instance_proc: None,
            get_device_proc: None,
            get_physical_device_proc: None,
        };
        // SAFETY: the structure is a local of the right layout.
        let code = unsafe { (self.negotiate)(&mut interface) };
        Negotiated {
            code: code.into(),
            version: interface.version,
            has_instance_proc: interface.get_instance_proc.is_some(),
            has_device_proc: interface.get_device_proc.is_some(),
            has_physical_device_proc: interface.get_physical_device_proc.is_some(),
        }
    }

    /// Whether vkGetInstanceProcAddr(NULL, name) answers anything.
    pub fn has(&self, name: &CStr) -> bool {
        self.find(name).is_some()
    }

    fn find(&self, name: &CStr) -> vk::PFN_vkVoidFunction {
        // SAFETY: a null instance and a name that ends in NUL.
        unsafe { (self.get_instance_proc)(vk::Instance::null(), name.as_ptr()) }
    }

    /// vkCreateInstance with no link information, as an application that opens the layer itself would call it. `None`:
    /// the layer has no such function.
    pub fn create_instance_without_loader(&self) -> Option<Code> {
        let function = self.find(c"vkCreateInstance")?;
        let mut instance = vk::Instance::null();
        let create = vk::InstanceCreateInfo::default();
        // SAFETY: the type is the command's; all pointers are to locals.
        let code = unsafe {
            let function: vk::PFN_vkCreateInstance = std::mem::transmute(function);
            function(&create, null(), &mut instance)
        };
        Some(code.into())
    }

    /// vkEnumerateInstanceExtensionProperties of this layer's own name: the code and the count.
    pub fn own_extensions(&self, name: &CStr) -> Option<(Code, u32)> {
        let function = self.find(c"vkEnumerateInstanceExtensionProperties")?;
        let mut count = 99;
        // SAFETY: the type is the command's; a NULL array asks for the count alone.
        let code = unsafe {
            let function: vk::PFN_vkEnumerateInstanceExtensionProperties =
                std::mem::transmute(function);
            function(name.as_ptr(), &mut count, null_mut())
        };
        Some((code.into(), count))
    }
}
