//! A Vulkan client that goes through the system's loader, with ash's types.
//!
//! With `RINGFENCE_VALIDATION` set every instance is created with the Khronos validation layer, and what it says is kept
//! until [`validated`] judges it.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;

use super::library::{Absent, Library, Visibility};

pub mod chains;
mod device;
pub mod embedding;
mod memory;
mod screen;
pub mod validation;
mod waits;
mod work;

pub use device::{Allocation, Device, Memory};
pub use memory::{Buffer, Image, Pages, Wish};
pub use screen::{Surface, Swapchain};
pub use validation::validated;
pub use waits::Timeline;
pub use work::{Route, Worker};

/// A VkResult as a number, shown with the name of the codes that cases meet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Code(pub i32);

impl Code {
    pub const SUCCESS: Code = Code(0);
    pub const OUT_OF_DEVICE_MEMORY: Code = Code(-2);
    pub const INITIALIZATION_FAILED: Code = Code(-3);
    pub const LAYER_NOT_PRESENT: Code = Code(-6);
    pub const INCOMPATIBLE_DRIVER: Code = Code(-9);
    pub const UNKNOWN: Code = Code(-13);
}

impl fmt::Debug for Code {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            0 => "VK_SUCCESS",
            -1 => "VK_ERROR_OUT_OF_HOST_MEMORY",
            -2 => "VK_ERROR_OUT_OF_DEVICE_MEMORY",
            -3 => "VK_ERROR_INITIALIZATION_FAILED",
            -6 => "VK_ERROR_LAYER_NOT_PRESENT",
            -7 => "VK_ERROR_EXTENSION_NOT_PRESENT",
            -9 => "VK_ERROR_INCOMPATIBLE_DRIVER",
            -13 => "VK_ERROR_UNKNOWN",
            _ => "VkResult",
        };
        write!(out, "{name} ({})", self.0)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, out)
    }
}

impl std::error::Error for Code {}

impl From<vk::Result> for Code {
    fn from(result: vk::Result) -> Self {
        Self(result.as_raw())
    }
}

/// What kind of client an instance belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Vulkan 1.0, no extension.
    V1_0,
    /// Vulkan 1.0 with VK_KHR_get_physical_device_properties2.
    V1_0WithProperties2,
    /// Vulkan 1.0 with VK_KHR_device_group_creation.
    V1_0WithGroups,
    V1_1,
    V1_3,
    V1_4,
    /// A version that there is not yet.
    V1_9,
    /// Vulkan 1.3 with VK_KHR_surface and VK_EXT_headless_surface.
    Headless,
}

impl Client {
    /// As Vulkan writes it in a word.
    pub fn version(self) -> u32 {
        match self {
            Self::V1_0 | Self::V1_0WithProperties2 | Self::V1_0WithGroups => vk::API_VERSION_1_0,
            Self::V1_1 => vk::API_VERSION_1_1,
            Self::V1_3 | Self::Headless => vk::API_VERSION_1_3,
            Self::V1_4 => vk::make_api_version(0, 1, 4, 0),
            Self::V1_9 => vk::make_api_version(0, 1, 9, 0),
        }
    }
}

/// By which command memory properties are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// vkGetPhysicalDeviceMemoryProperties.
    First,
    /// vkGetPhysicalDeviceMemoryProperties2.
    Second,
    /// vkGetPhysicalDeviceMemoryProperties2KHR.
    SecondKhr,
}

/// One memory heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heap {
    pub size: u64,
    pub device_local: bool,
}

/// VK_EXT_memory_budget's answer, beside the heaps of the same call.
#[derive(Clone, Debug)]
pub struct HeapBudgets {
    pub heaps: Vec<Heap>,
    pub budget: [u64; 16],
    pub usage: [u64; 16],
}

/// Which memory an allocation asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A device-local heap, not visible to the host.
    Device,
    /// A device-local heap, visible to the host.
    Visible,
    /// A heap that is not device-local.
    Host,
}

/// A physical device of one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhysicalDevice(vk::PhysicalDevice);

/// The Vulkan loader, or a driver without one.
pub struct Vulkan {
    entry: ash::Entry,
    /// Without it there are no layers, the validation layer among them.
    by_loader: bool,
}

/// An instance. Devices keep it alive.
#[derive(Clone)]
pub struct Instance {
    inner: Arc<Inner>,
}

struct Inner {
    entry: ash::Entry,
    /// Destroyed before the instance too.
    surfaces: Mutex<Vec<vk::SurfaceKHR>>,
    /// Destroyed before the instance.
    messenger: Option<validation::Messenger>,
    raw: ash::Instance,
    client: Client,
    properties2: ash::khr::get_physical_device_properties2::Instance,
    groups: ash::khr::device_group_creation::Instance,
}

impl Inner {
    fn surfaces(&self) -> std::sync::MutexGuard<'_, Vec<vk::SurfaceKHR>> {
        self.surfaces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let surfaces = std::mem::take(&mut *self.surfaces());
        if !surfaces.is_empty() {
            let destroy = ash::khr::surface::Instance::new(&self.entry, &self.raw);
            // SAFETY: the surfaces are this instance's and destroyed once; the devices with their swapchains are gone.
            unsafe {
                for surface in surfaces {
                    destroy.destroy_surface(surface, None);
                }
            }
        }
        self.messenger = None;
        // SAFETY: the last holder is gone, so are all devices.
        unsafe { self.raw.destroy_instance(None) };
    }
}

impl Vulkan {
    pub fn open() -> Result<Self, Absent> {
        let library = Library::open("libvulkan.so.1", Visibility::Local)?;
        // SAFETY: the loader exports this name with this type.
        let get: Option<vk::PFN_vkGetInstanceProcAddr> =
            unsafe { library.function("vkGetInstanceProcAddr") };
        let get = get.ok_or_else(|| Absent {
            name: "libvulkan.so.1".to_owned(),
            reason: "it lacks vkGetInstanceProcAddr".to_owned(),
        })?;
        // SAFETY: the pointer is the loader's own, which is never unloaded.
        let entry = unsafe {
            ash::Entry::from_static_fn(ash::StaticFn {
                get_instance_proc_addr: get,
            })
        };
        Ok(Self {
            entry,
            by_loader: true,
        })
    }

    /// A driver opened by itself, as an application with a loader of its own does: no layer is ever asked.
    pub fn open_driver(path: &std::path::Path) -> Result<Self, Absent> {
        let name = path.display().to_string();
        let library = Library::open(&name, Visibility::Local)?;
        // SAFETY: drivers export this name with this type (the loader-driver interface).
        let get: Option<vk::PFN_vkGetInstanceProcAddr> =
            unsafe { library.function("vk_icdGetInstanceProcAddr") };
        let get = get.ok_or_else(|| Absent {
            name,
            reason: "it lacks vk_icdGetInstanceProcAddr".to_owned(),
        })?;
        // SAFETY: the pointer is the driver's own, which is never unloaded.
        let entry = unsafe {
            ash::Entry::from_static_fn(ash::StaticFn {
                get_instance_proc_addr: get,
            })
        };
        Ok(Self {
            entry,
            by_loader: false,
        })
    }

    pub fn instance(&self, client: Client) -> Result<Instance, Code> {
        self.instance_of(client, c"")
    }

    /// Of an application that is built on this engine.
    pub fn instance_of(&self, client: Client, engine: &CStr) -> Result<Instance, Code> {
        let application = vk::ApplicationInfo::default()
            .api_version(client.version())
            .engine_name(engine);
        let mut extensions = Vec::new();
        match client {
            Client::V1_0WithProperties2 => {
                extensions.push(ash::khr::get_physical_device_properties2::NAME.as_ptr());
            }
            Client::V1_0WithGroups => {
                extensions.push(ash::khr::device_group_creation::NAME.as_ptr());
            }
            Client::Headless => {
                extensions.push(ash::khr::surface::NAME.as_ptr());
                extensions.push(ash::ext::headless_surface::NAME.as_ptr());
            }
            Client::V1_0 | Client::V1_1 | Client::V1_3 | Client::V1_4 | Client::V1_9 => {}
        }
        let mut layers = Vec::new();
        let mut creation = validation::creation();
        let mut create = vk::InstanceCreateInfo::default().application_info(&application);
        if self.by_loader && validation::wanted() {
            extensions.push(ash::ext::debug_utils::NAME.as_ptr());
            layers.push(validation::LAYER.as_ptr());
            create = create.push_next(&mut creation);
        }
        create = create
            .enabled_extension_names(&extensions)
            .enabled_layer_names(&layers);
        // SAFETY: every pointer in the structure outlives the call.
        let raw = unsafe { self.entry.create_instance(&create, None) }?;
        let messenger = self
            .by_loader
            .then(|| validation::listen(&self.entry, &raw))
            .flatten();
        let properties2 =
            ash::khr::get_physical_device_properties2::Instance::new(&self.entry, &raw);
        let groups = ash::khr::device_group_creation::Instance::new(&self.entry, &raw);
        Ok(Instance {
            inner: Arc::new(Inner {
                entry: self.entry.clone(),
                surfaces: Mutex::default(),
                messenger,
                raw,
                client,
                properties2,
                groups,
            }),
        })
    }

    /// Names of the layers that the loader would let an application enable.
    pub fn layers(&self) -> Result<Vec<String>, Code> {
        // SAFETY: no precondition.
        let layers = unsafe { self.entry.enumerate_instance_layer_properties() }?;
        Ok(layers.iter().map(|layer| text(&layer.layer_name)).collect())
    }

    /// The same with the version of Vulkan that each was written for.
    pub fn layer_versions(&self) -> Result<Vec<(String, u32)>, Code> {
        // SAFETY: no precondition.
        let layers = unsafe { self.entry.enumerate_instance_layer_properties() }?;
        let told = |layer: &vk::LayerProperties| (text(&layer.layer_name), layer.spec_version);
        Ok(layers.iter().map(told).collect())
    }

    /// Instance extensions that a layer names as its own.
    pub fn extensions_of_layer(&self, layer: &CStr) -> Result<usize, Code> {
        // SAFETY: the name ends in NUL.
        let found = unsafe {
            self.entry
                .enumerate_instance_extension_properties(Some(layer))
        };
        Ok(found?.len())
    }
}

impl Instance {
    pub fn physical_devices(&self) -> Result<Vec<PhysicalDevice>, Code> {
        // SAFETY: the instance lives.
        let found = unsafe { self.inner.raw.enumerate_physical_devices() }?;
        Ok(found.into_iter().map(PhysicalDevice).collect())
    }

    pub fn heaps(&self, device: PhysicalDevice, query: Query) -> Vec<Heap> {
        self.memory(
            device,
            query,
            &mut vk::PhysicalDeviceMemoryProperties2::default(),
        )
    }

    /// The heaps and their budgets in one call. The extension must be supported.
    pub fn heap_budgets(&self, device: PhysicalDevice, query: Query) -> HeapBudgets {
        let mut told = vk::PhysicalDeviceMemoryBudgetPropertiesEXT {
            // Entries past the heaps must come back as 0, whatever stood there.
            heap_budget: [7; 16],
            heap_usage: [7; 16],
            ..Default::default()
        };
        let mut properties = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut told);
        let heaps = self.memory(device, query, &mut properties);
        HeapBudgets {
            heaps,
            budget: told.heap_budget,
            usage: told.heap_usage,
        }
    }

    /// The same with a structure before the budgets' that nobody knows.
    pub fn heap_budgets_behind_another(&self, device: PhysicalDevice) -> HeapBudgets {
        let mut told = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut unknown = vk::BaseOutStructure {
            s_type: vk::StructureType::from_raw(2_000_000_007),
            p_next: (&raw mut told).cast(),
            ..Default::default()
        };
        let mut properties = vk::PhysicalDeviceMemoryProperties2 {
            p_next: (&raw mut unknown).cast(),
            ..Default::default()
        };
        let heaps = self.memory(device, Query::Second, &mut properties);
        HeapBudgets {
            heaps,
            budget: told.heap_budget,
            usage: told.heap_usage,
        }
    }

    fn memory(
        &self,
        device: PhysicalDevice,
        query: Query,
        properties: &mut vk::PhysicalDeviceMemoryProperties2<'_>,
    ) -> Vec<Heap> {
        let raw = &self.inner.raw;
        // SAFETY: the device is this instance's; the structure is a well-formed chain.
        unsafe {
            match query {
                Query::First => {
                    properties.memory_properties =
                        raw.get_physical_device_memory_properties(device.0);
                }
                Query::Second => raw.get_physical_device_memory_properties2(device.0, properties),
                Query::SecondKhr => self
                    .inner
                    .properties2
                    .get_physical_device_memory_properties2(device.0, properties),
            }
        }
        let heaps = properties.memory_properties.memory_heaps_as_slice();
        let heap = |heap: &vk::MemoryHeap| Heap {
            size: heap.size,
            device_local: heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL),
        };
        heaps.iter().map(heap).collect()
    }

    /// The first memory type of that kind.
    pub fn memory_type(&self, device: PhysicalDevice, place: Place) -> Option<u32> {
        // SAFETY: the device is this instance's.
        let memory = unsafe {
            self.inner
                .raw
                .get_physical_device_memory_properties(device.0)
        };
        let heaps = memory.memory_heaps_as_slice();
        let fits = |kind: &vk::MemoryType| {
            let heap = &heaps[kind.heap_index as usize];
            let local = heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL);
            let visible = kind
                .property_flags
                .contains(vk::MemoryPropertyFlags::HOST_VISIBLE);
            match place {
                Place::Device => local && !visible,
                Place::Visible => local && visible,
                Place::Host => !local && visible,
            }
        };
        let found = memory.memory_types_as_slice().iter().position(fits);
        found.and_then(|index| u32::try_from(index).ok())
    }

    pub fn extensions(&self, device: PhysicalDevice) -> Result<Vec<String>, Code> {
        // SAFETY: the device is this instance's.
        let found = unsafe {
            self.inner
                .raw
                .enumerate_device_extension_properties(device.0)
        }?;
        Ok(found.iter().map(|one| text(&one.extension_name)).collect())
    }

    /// (domain, bus, device), where the driver has VK_EXT_pci_bus_info. For 1.1 clients and later.
    pub fn pci(&self, device: PhysicalDevice) -> Result<Option<(u32, u32, u32)>, Code> {
        let extensions = self.extensions(device)?;
        if !extensions.iter().any(|name| name == "VK_EXT_pci_bus_info") {
            return Ok(None);
        }
        let mut pci = vk::PhysicalDevicePCIBusInfoPropertiesEXT::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut pci);
        self.properties(device, &mut properties);
        Ok(Some((pci.pci_domain, pci.pci_bus, pci.pci_device)))
    }

    /// deviceUUID. For 1.1 clients and later.
    pub fn uuid(&self, device: PhysicalDevice) -> [u8; 16] {
        let mut id = vk::PhysicalDeviceIDProperties::default();
        let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
        self.properties(device, &mut properties);
        id.device_uuid
    }

    /// VkPhysicalDeviceType and the vendor id.
    pub fn kind(&self, device: PhysicalDevice) -> (i32, u32) {
        // SAFETY: the device is this instance's.
        let properties = unsafe { self.inner.raw.get_physical_device_properties(device.0) };
        (properties.device_type.as_raw(), properties.vendor_id)
    }

    fn properties(
        &self,
        device: PhysicalDevice,
        properties: &mut vk::PhysicalDeviceProperties2<'_>,
    ) {
        // SAFETY: the device is this instance's; the structure is a well-formed chain.
        unsafe {
            match self.inner.client {
                Client::V1_0 | Client::V1_0WithProperties2 | Client::V1_0WithGroups => self
                    .inner
                    .properties2
                    .get_physical_device_properties2(device.0, properties),
                Client::V1_1 | Client::V1_3 | Client::V1_4 | Client::V1_9 | Client::Headless => {
                    self.inner
                        .raw
                        .get_physical_device_properties2(device.0, properties)
                }
            }
        }
    }

    /// Whether vkGetInstanceProcAddr answers anything for the name.
    pub fn has(&self, vulkan: &Vulkan, name: &CStr) -> bool {
        // SAFETY: the instance lives and the name ends in NUL.
        let found = unsafe {
            vulkan
                .entry
                .get_instance_proc_addr(self.inner.raw.handle(), name.as_ptr())
        };
        found.is_some()
    }
}

fn text(name: &[std::ffi::c_char]) -> String {
    let bytes = name.iter().map(|&byte| byte as u8);
    let bytes: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
