//! A Vulkan client with the few calls that the tests make. Its unsafe code is the use of ash; the validation layer is the
//! judge of whether that use is valid.

use std::ffi::{CStr, c_void};
use std::sync::Mutex;

use ash::vk;

pub const GIB: u64 = 1 << 30;

/// Loader, instance, the first physical device, a device with a queue of family 0.
pub struct Client {
    pub entry: ash::Entry,
    pub instance: ash::Instance,
    pub physical: vk::PhysicalDevice,
    pub device: ash::Device,
    pub queue: vk::Queue,
    messenger: Option<(ash::ext::debug_utils::Instance, vk::DebugUtilsMessengerEXT)>,
}

/// What the validation layer has said in this process.
pub static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "system" fn hear(
    _: vk::DebugUtilsMessageSeverityFlagsEXT,
    _: vk::DebugUtilsMessageTypeFlagsEXT,
    data: *const vk::DebugUtilsMessengerCallbackDataEXT<'_>,
    _: *mut c_void,
) -> vk::Bool32 {
    // SAFETY: the layer passes a filled structure; its message is a C string or NULL.
    let message = unsafe { data.as_ref().and_then(|data| data.message_as_c_str()) };
    MESSAGES
        .lock()
        .unwrap()
        .push(message.unwrap_or(c"").to_string_lossy().into_owned());
    vk::FALSE
}

fn messenger_info<'a>() -> vk::DebugUtilsMessengerCreateInfoEXT<'a> {
    // At the level of information the layer speaks only of itself: that it is active, where it caches shaders.
    let severities = vk::DebugUtilsMessageSeverityFlagsEXT::ERROR
        | vk::DebugUtilsMessageSeverityFlagsEXT::WARNING;
    let kinds = vk::DebugUtilsMessageTypeFlagsEXT::VALIDATION
        | vk::DebugUtilsMessageTypeFlagsEXT::PERFORMANCE;
    vk::DebugUtilsMessengerCreateInfoEXT::default()
        .message_severity(severities)
        .message_type(kinds)
        .pfn_user_callback(Some(hear))
}

/// Names another loader than the system's.
pub const LOADER: &str = "RINGFENCE_ICD_LOADER";

pub fn load() -> ash::Entry {
    // SAFETY: a Vulkan loader; its constructors are those of any client.
    let entry = unsafe {
        match std::env::var_os(LOADER) {
            Some(path) => ash::Entry::load_from(path),
            None => ash::Entry::load(),
        }
    };
    entry.expect("the Khronos loader (Debian: libvulkan1)")
}

impl Client {
    pub fn new() -> Self {
        Self::with(vk::API_VERSION_1_3, false, &[])
    }

    pub fn validated() -> Self {
        Self::with(vk::API_VERSION_1_3, true, &[])
    }

    pub fn with(version: u32, validated: bool, instance_extensions: &[&CStr]) -> Self {
        Self::of(version, validated, instance_extensions, &[])
    }

    pub fn of(
        version: u32,
        validated: bool,
        instance_extensions: &[&CStr],
        device_extensions: &[&CStr],
    ) -> Self {
        Self::made(
            version,
            validated,
            instance_extensions,
            device_extensions,
            false,
        )
    }

    /// A validated client whose device is made of the first group of physical devices.
    pub fn grouped() -> Self {
        Self::made(vk::API_VERSION_1_3, true, &[], &[], true)
    }

    fn made(
        version: u32,
        validated: bool,
        instance_extensions: &[&CStr],
        device_extensions: &[&CStr],
        grouped: bool,
    ) -> Self {
        let entry = load();
        let application = vk::ApplicationInfo::default().api_version(version);
        let layers = if validated {
            vec![c"VK_LAYER_KHRONOS_validation".as_ptr()]
        } else {
            vec![]
        };
        let mut extensions: Vec<_> = instance_extensions
            .iter()
            .map(|name| name.as_ptr())
            .collect();
        let mut heard = messenger_info();
        let mut info = vk::InstanceCreateInfo::default()
            .application_info(&application)
            .enabled_layer_names(&layers);
        if validated {
            extensions.push(ash::ext::debug_utils::NAME.as_ptr());
            info = info.push_next(&mut heard);
        }
        let info = info.enabled_extension_names(&extensions);
        // SAFETY: valid usage of the specification for all calls of this function.
        unsafe {
            let instance = entry.create_instance(&info, None).expect("an instance");
            let messenger = validated.then(|| {
                let utils = ash::ext::debug_utils::Instance::new(&entry, &instance);
                let messenger = utils
                    .create_debug_utils_messenger(&messenger_info(), None)
                    .expect("a messenger");
                (utils, messenger)
            });
            let physical = instance
                .enumerate_physical_devices()
                .expect("physical devices")[0];
            let queues = [vk::DeviceQueueCreateInfo::default()
                .queue_family_index(0)
                .queue_priorities(&[1.0])];
            let mut features_13 = vk::PhysicalDeviceVulkan13Features::default()
                .synchronization2(true)
                .dynamic_rendering(true);
            let mut features_12 = vk::PhysicalDeviceVulkan12Features::default()
                .timeline_semaphore(true)
                .host_query_reset(true);
            let device_extensions: Vec<_> =
                device_extensions.iter().map(|name| name.as_ptr()).collect();
            let features = vk::PhysicalDeviceFeatures::default()
                .sparse_binding(grouped || validated)
                .sparse_residency_image2_d(grouped || validated);
            let mut info = vk::DeviceCreateInfo::default()
                .queue_create_infos(&queues)
                .enabled_extension_names(&device_extensions)
                .enabled_features(&features);
            let mut groups = Vec::new();
            if grouped {
                let count = instance
                    .enumerate_physical_device_groups_len()
                    .expect("groups");
                groups.resize(count, vk::PhysicalDeviceGroupProperties::default());
                instance
                    .enumerate_physical_device_groups(&mut groups)
                    .expect("groups");
            }
            let members = groups.first().map_or(&[][..], |group| {
                &group.physical_devices[..group.physical_device_count as usize]
            });
            let mut group = vk::DeviceGroupDeviceCreateInfo::default().physical_devices(members);
            if grouped {
                info = info.push_next(&mut group);
            }
            if version >= vk::API_VERSION_1_3 {
                info = info.push_next(&mut features_13).push_next(&mut features_12);
            }
            let device = instance
                .create_device(physical, &info, None)
                .expect("a device");
            let queue = device.get_device_queue(0, 0);
            Self {
                entry,
                instance,
                physical,
                device,
                queue,
                messenger,
            }
        }
    }

    /// The first memory type with these properties, on a device-local heap or not.
    pub fn memory_type(&self, flags: vk::MemoryPropertyFlags, device_local: bool) -> u32 {
        // SAFETY: a live physical device.
        let memory = unsafe {
            self.instance
                .get_physical_device_memory_properties(self.physical)
        };
        let types = memory.memory_types_as_slice();
        let found = types.iter().position(|kind| {
            let heap = memory.memory_heaps[kind.heap_index as usize];
            kind.property_flags.contains(flags)
                && heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL) == device_local
        });
        u32::try_from(found.expect("a memory type")).unwrap()
    }

    pub fn device_local(&self) -> u32 {
        self.memory_type(vk::MemoryPropertyFlags::DEVICE_LOCAL, true)
    }

    pub fn allocate(&self, size: u64, memory_type: u32) -> Result<vk::DeviceMemory, vk::Result> {
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .memory_type_index(memory_type);
        // SAFETY: a live device; sizes beyond the heap are what some tests are about, and any driver refuses them.
        unsafe { self.device.allocate_memory(&info, None) }
    }

    /// As [`Client::allocate`], with the answer and what the out-param holds of the value put there before.
    pub fn allocate_onto(&self, mark: u64, size: u64, memory_type: u32) -> (vk::Result, u64) {
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .memory_type_index(memory_type);
        let mut memory = <vk::DeviceMemory as vk::Handle>::from_raw(mark);
        // SAFETY: as above; the out-param is this frame's.
        let result = unsafe {
            (self.device.fp_v1_0().allocate_memory)(
                self.device.handle(),
                &info,
                std::ptr::null(),
                &mut memory,
            )
        };
        (result, vk::Handle::as_raw(memory))
    }

    pub fn free(&self, memory: vk::DeviceMemory) {
        // SAFETY: NULL, or allocated by this client and not in use.
        unsafe { self.device.free_memory(memory, None) }
    }

    /// Heap budget and usage as VK_EXT_memory_budget gives them.
    pub fn heap_budget(&self) -> (Vec<u64>, Vec<u64>) {
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut properties = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: a live physical device and a proper chain.
        unsafe {
            self.instance
                .get_physical_device_memory_properties2(self.physical, &mut properties)
        };
        (budget.heap_budget.to_vec(), budget.heap_usage.to_vec())
    }

    pub fn destroy(self) {
        self.destroy_leaving(|| ());
    }

    /// Destroys the device, looks round, and destroys the instance.
    pub fn destroy_leaving(self, look: impl FnOnce()) {
        // SAFETY: tests that let the validation layer judge have destroyed their objects; the others mean what they leave.
        unsafe {
            self.device.destroy_device(None);
            look();
            if let Some((utils, messenger)) = self.messenger {
                utils.destroy_debug_utils_messenger(messenger, None);
            }
            self.instance.destroy_instance(None);
        }
    }
}
