//! A Vulkan device, and what is asked of it: with the layer, or past it.

use ash::vk;

/// A device and the memory functions that its chain gives for it.
pub struct Chain {
    _entry: ash::Entry,
    instance: ash::Instance,
    physical: vk::PhysicalDevice,
    device: ash::Device,
    queue: vk::Queue,
    memory_type: u32,
}

impl Chain {
    pub fn create() -> Self {
        // SAFETY: the real loader, and structures that live through the calls.
        unsafe {
            let entry = ash::Entry::load().expect("libvulkan.so.1");
            let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
            let instance = entry
                .create_instance(
                    &vk::InstanceCreateInfo::default().application_info(&application),
                    None,
                )
                .expect("an instance");
            let physical = instance.enumerate_physical_devices().expect("devices")[0];
            let memory = instance.get_physical_device_memory_properties(physical);
            let memory_type = memory
                .memory_types_as_slice()
                .iter()
                .position(|kind| kind.property_flags == vk::MemoryPropertyFlags::DEVICE_LOCAL)
                .expect("a device-local type") as u32;
            let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
            let device = instance
                .create_device(
                    physical,
                    &vk::DeviceCreateInfo::default().queue_create_infos(&queues),
                    None,
                )
                .expect("a device");
            Self {
                _entry: entry,
                queue: device.get_device_queue(0, 0),
                instance,
                physical,
                device,
                memory_type,
            }
        }
    }

    pub fn allocate_and_free(&self) {
        let request = vk::MemoryAllocateInfo::default()
            .allocation_size(65536)
            .memory_type_index(self.memory_type);
        // SAFETY: a live device; the memory is freed at once.
        unsafe {
            let memory = self.device.allocate_memory(&request, None).expect("memory");
            self.device.free_memory(memory, None);
        }
    }
}

impl Chain {
    pub fn submit_nothing(&self) {
        // SAFETY: the live device's queue, and no batch.
        unsafe {
            self.device
                .queue_submit(self.queue, &[], vk::Fence::null())
                .expect("a submission");
        }
    }

    pub fn properties(&self) -> u32 {
        // SAFETY: a live instance's device.
        let properties = unsafe {
            self.instance
                .get_physical_device_memory_properties(self.physical)
        };
        properties.memory_heap_count
    }

    pub fn properties2(&self) -> u32 {
        let mut properties = vk::PhysicalDeviceMemoryProperties2::default();
        // SAFETY: as above, with a structure that lives through the call.
        unsafe {
            self.instance
                .get_physical_device_memory_properties2(self.physical, &mut properties);
        }
        properties.memory_properties.memory_heap_count
    }
}

impl Chain {
    /// With the layer switched off: the loader reads the variable when an instance is created.
    pub fn without_the_layer() -> Self {
        let (name, value) = (c"HAMI_VULKAN_DISABLE", c"1");
        // SAFETY: this process has one thread here.
        unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
        let chain = Self::create();
        // SAFETY: as above.
        unsafe { libc::unsetenv(name.as_ptr()) };
        chain
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // SAFETY: nothing made from them is left.
        unsafe {
            self.device.destroy_device(None);
            self.instance.destroy_instance(None);
        }
    }
}
