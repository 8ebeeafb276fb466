//! Instance and device that the runtime makes for itself, and alone destroys.

use std::ffi::{CStr, CString, c_char};
use std::sync::Arc;

use ash::vk::{self, Handle};

use super::{Handles, Host, Loader, Tables};
use crate::error::{Error, Result};

/// What a context of the runtime's own is made of.
#[derive(Clone)]
pub struct OwnContext {
    /// Layers to be enabled.
    pub layers: Vec<CString>,
    /// Instance extensions to be enabled.
    pub extensions: Vec<CString>,
    /// The first physical device of which this holds is taken.
    pub wanted: fn(&vk::PhysicalDeviceProperties) -> bool,
    messenger: Option<vk::DebugUtilsMessengerCreateInfoEXT<'static>>,
}

/// Any physical device will do.
pub const PICK_FIRST: fn(&vk::PhysicalDeviceProperties) -> bool = |_| true;

impl Default for OwnContext {
    fn default() -> Self {
        Self {
            layers: Vec::new(),
            extensions: Vec::new(),
            wanted: PICK_FIRST,
            messenger: None,
        }
    }
}

impl OwnContext {
    /// With a debug messenger (VK_EXT_debug_utils is added to the extensions).
    ///
    /// # Safety
    /// The callback may be called with its user data for as long as the context lives.
    #[must_use]
    pub unsafe fn heard_by(mut self, info: vk::DebugUtilsMessengerCreateInfoEXT<'static>) -> Self {
        self.extensions.push(ash::ext::debug_utils::NAME.to_owned());
        self.messenger = Some(info);
        self
    }
}

/// A context that the runtime made. Dropped, it is destroyed; nothing made on its device may be left.
pub(crate) struct Standing {
    /// Destroyed before the instance.
    tables: Option<Arc<Tables>>,
    messenger: Option<(ash::ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
    instance: ash::Instance,
    host: Host,
}

impl Standing {
    pub fn new(loader: Loader, host: Host, options: &OwnContext) -> Result<Self> {
        // SAFETY: the loader's promise.
        let entry = unsafe { ash::Entry::from_static_fn(loader.functions()) };
        let mut standing = Self {
            tables: None,
            messenger: None,
            instance: instance(&entry, host, options)?,
            host,
        };
        if let Some(info) = &options.messenger {
            let utils = ash::ext::debug_utils::Instance::new(&entry, &standing.instance);
            // SAFETY: the extension is enabled; the callback is the application's promise.
            let made = unsafe { utils.create_debug_utils_messenger(info, host.callbacks()) };
            let made = made.map_err(Error::of("vkCreateDebugUtilsMessengerEXT"))?;
            standing.messenger = Some((utils, made));
        }
        let handles = device(&standing.instance, host, options)?;
        standing.tables = Some(Tables::load(loader, handles, host));
        Ok(standing)
    }

    /// `None` only while it is being made.
    pub fn tables(&self) -> Option<&Arc<Tables>> {
        self.tables.as_ref()
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        // SAFETY: made here, destroyed once and in this order; the runtime let go of all that was made on the device.
        unsafe {
            if let Some(tables) = &self.tables {
                let _lost = tables.raw.device_wait_idle();
                tables.raw.destroy_device(self.host.callbacks());
            }
            if let Some((utils, messenger)) = &self.messenger {
                utils.destroy_debug_utils_messenger(*messenger, self.host.callbacks());
            }
            self.instance.destroy_instance(self.host.callbacks());
        }
    }
}

fn pointers(names: &[CString]) -> Vec<*const c_char> {
    names.iter().map(|name| CStr::as_ptr(name)).collect()
}

fn instance(entry: &ash::Entry, host: Host, options: &OwnContext) -> Result<ash::Instance> {
    let application = vk::ApplicationInfo::default()
        .api_version(vk::API_VERSION_1_1)
        .engine_name(c"embedder");
    let (layers, extensions) = (pointers(&options.layers), pointers(&options.extensions));
    let mut heard = options.messenger.unwrap_or_default();
    let mut info = vk::InstanceCreateInfo::default()
        .application_info(&application)
        .enabled_layer_names(&layers)
        .enabled_extension_names(&extensions);
    if options.messenger.is_some() {
        info = info.push_next(&mut heard);
    }
    // SAFETY: all that is pointed to outlives the call.
    let made = unsafe { entry.create_instance(&info, host.callbacks()) };
    made.map_err(Error::of("vkCreateInstance"))
}

/// A device with one queue that computes.
fn device(instance: &ash::Instance, host: Host, options: &OwnContext) -> Result<Handles> {
    // SAFETY: the instance lives.
    let found = unsafe { instance.enumerate_physical_devices() };
    let found = found.map_err(Error::of("vkEnumeratePhysicalDevices"))?;
    let fits = |physical: vk::PhysicalDevice| {
        // SAFETY: a physical device of this instance.
        let (properties, families) = unsafe {
            (
                instance.get_physical_device_properties(physical),
                instance.get_physical_device_queue_family_properties(physical),
            )
        };
        let computes = |family: &vk::QueueFamilyProperties| {
            family.queue_flags.contains(vk::QueueFlags::COMPUTE)
        };
        let family = families.iter().position(computes);
        (options.wanted)(&properties)
            .then_some(family?)
            .map(|family| (physical, family as u32))
    };
    let wanted = found.iter().copied().find_map(fits);
    let (physical_device, queue_family) = wanted.ok_or(Error::NoDevice { found: found.len() })?;
    let queues = [vk::DeviceQueueCreateInfo::default()
        .queue_family_index(queue_family)
        .queue_priorities(&[1.0])];
    let info = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
    let mut raw = vk::Device::null();
    let functions = instance.fp_v1_0();
    let callbacks = host
        .callbacks()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a physical device and a queue family of this instance; the structures outlive the call. ash's own wrapper
    // would look up every function of the device, which `Tables` does.
    let code = unsafe { (functions.create_device)(physical_device, &info, callbacks, &mut raw) };
    code.result().map_err(Error::of("vkCreateDevice"))?;
    if raw.is_null() {
        let which = "what vkCreateDevice wrote";
        return Err(Error::Null { which });
    }
    Ok(Handles {
        instance: instance.handle(),
        physical_device,
        device: raw,
        // The family's only one, which `Tables` asks for.
        queue: vk::Queue::null(),
        queue_family,
    })
}
