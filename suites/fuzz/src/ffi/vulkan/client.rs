//! A process's Vulkan client: what it has made, and what it works with.

use ash::vk;

use crate::maker::Maker;

pub struct Living {
    pub(super) instance: ash::Instance,
    pub(super) physical: Vec<vk::PhysicalDevice>,
    pub(super) properties2: ash::khr::get_physical_device_properties2::Instance,
    pub(super) groups: ash::khr::device_group_creation::Instance,
    pub(super) surfaces: Vec<vk::SurfaceKHR>,
}

pub struct Made {
    /// Which instance's.
    pub(super) instance: usize,
    pub(super) physical: usize,
    pub(super) device: ash::Device,
    pub(super) external: ash::khr::external_memory_fd::Device,
    pub(super) submit2: ash::khr::synchronization2::Device,
    pub(super) memories: Vec<(vk::DeviceMemory, u32)>,
    pub(super) queues: Vec<vk::Queue>,
    pub(super) screens: Option<ash::khr::swapchain::Device>,
    pub(super) swapchains: Vec<vk::SwapchainKHR>,
}

impl Made {
    pub(super) fn destroy_swapchain(&self, swapchain: vk::SwapchainKHR) {
        if let Some(screens) = &self.screens {
            // SAFETY: it was given to us by this device, and is not used again.
            unsafe { screens.destroy_swapchain(swapchain, None) };
        }
    }

    /// Frees what was allocated from it.
    pub(super) fn tidy(&self) {
        for swapchain in &self.swapchains {
            self.destroy_swapchain(*swapchain);
        }
        for (memory, _) in &self.memories {
            // SAFETY: it was given to us by this device, and is not used again.
            unsafe { self.device.free_memory(*memory, None) };
        }
    }
}

/// A process's Vulkan client.
pub struct Client {
    pub(super) entry: ash::Entry,
    pub(super) instances: Vec<Option<Living>>,
    pub(super) devices: Vec<Made>,
    pub(super) descriptors: Vec<i32>,
    /// Nobody frees what is left in a device that is destroyed.
    pub(super) tidies: bool,
    /// The driver presents to surfaces that nobody sees.
    pub(super) presents: bool,
}

/// Most objects of a kind at once.
pub const INSTANCES: usize = 4;
pub const DEVICES: usize = 6;

impl Client {
    /// Where no layer does, it `tidies`.
    pub fn open(tidies: bool) -> Option<Self> {
        // SAFETY: the loader's name as every client opens it; it is never closed.
        let library = unsafe { libc::dlopen(c"libvulkan.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        // SAFETY: a library that is open, and a name that ends in NUL.
        let get = unsafe { libc::dlsym(library, c"vkGetInstanceProcAddr".as_ptr()) };
        if get.is_null() {
            return None;
        }
        // SAFETY: the loader exports this name with this type.
        let entry = unsafe {
            ash::Entry::from_static_fn(ash::StaticFn {
                get_instance_proc_addr: std::mem::transmute::<
                    *mut libc::c_void,
                    vk::PFN_vkGetInstanceProcAddr,
                >(get),
            })
        };
        // SAFETY: no precondition.
        let known = unsafe { entry.enumerate_instance_extension_properties(None) };
        let presents = known
            .unwrap_or_default()
            .iter()
            .any(|known| known.extension_name_as_c_str() == Ok(ash::ext::headless_surface::NAME));
        Some(Self {
            presents,
            entry,
            instances: Vec::new(),
            devices: Vec::new(),
            descriptors: Vec::new(),
            tidies,
        })
    }

    /// An instance and a device on each GPU, and how each was answered. Refused as may be: then there is nothing to work with.
    pub fn begin(&mut self) -> Vec<u32> {
        let mut codes = vec![code(self.new_instance(vk::API_VERSION_1_3))];
        let first = self.instances.first().and_then(Option::as_ref);
        for physical in 0..first.map_or(0, |one| one.physical.len()) {
            codes.push(code(self.new_device(0, physical, 1)));
        }
        codes
    }

    pub fn end(&mut self) {
        while !self.devices.is_empty() {
            // SAFETY: no work of ours is pending; the device goes with everything in it, or so the layer promises.
            unsafe {
                let made = self.devices.remove(0);
                let _ = made.device.device_wait_idle();
                made.tidy();
                made.device.destroy_device(None);
            }
        }
        for living in self.instances.drain(..).flatten() {
            let surfaces = ash::khr::surface::Instance::new(&self.entry, &living.instance);
            // SAFETY: its devices are gone.
            unsafe {
                for surface in living.surfaces {
                    surfaces.destroy_surface(surface, None);
                }
                living.instance.destroy_instance(None);
            }
        }
        for descriptor in self.descriptors.drain(..) {
            // SAFETY: a descriptor that was given to us.
            unsafe { libc::close(descriptor) };
        }
    }

    /// Asks each device for its whole budget, of which something is taken always: before that is refused the layer looks for what is gone.
    pub fn look(&mut self, budgets: &[u64]) {
        self.begin();
        for made in &self.devices {
            let (Some(living), Some(&budget)) =
                (&self.instances[made.instance], budgets.get(made.physical))
            else {
                continue;
            };
            // SAFETY: a physical device of a living instance.
            let memory = unsafe {
                living
                    .instance
                    .get_physical_device_memory_properties(living.physical[made.physical])
            };
            let local = |kind: &vk::MemoryType| {
                kind.property_flags
                    .contains(vk::MemoryPropertyFlags::DEVICE_LOCAL)
            };
            let kind = memory
                .memory_types_as_slice()
                .iter()
                .position(local)
                .unwrap_or(0);
            let info = vk::MemoryAllocateInfo::default()
                .allocation_size(budget)
                .memory_type_index(kind as u32);
            // SAFETY: a living device, and a type that it has.
            if let Ok(memory) = unsafe { made.device.allocate_memory(&info, None) } {
                // SAFETY: it was just given.
                unsafe { made.device.free_memory(memory, None) };
            }
        }
        self.end();
    }

    pub(super) fn instance(&mut self, maker: &mut Maker<'_>) -> Option<&mut Living> {
        let nth = usize::from(maker.byte());
        let living = self.instances.iter_mut().flatten();
        let mut living: Vec<_> = living.collect();
        let count = living.len();
        (count > 0).then(|| living.swap_remove(nth % count))
    }

    pub(super) fn device(&mut self, maker: &mut Maker<'_>) -> Option<&mut Made> {
        let nth = usize::from(maker.byte());
        let count = self.devices.len();
        (count > 0).then(|| &mut self.devices[nth % count])
    }

    pub(super) fn new_instance(&mut self, version: u32) -> vk::Result {
        let application = vk::ApplicationInfo::default().api_version(version);
        let names = [
            ash::khr::get_physical_device_properties2::NAME.as_ptr(),
            ash::khr::device_group_creation::NAME.as_ptr(),
            ash::khr::surface::NAME.as_ptr(),
            ash::ext::headless_surface::NAME.as_ptr(),
        ];
        let names = &names[..if self.presents { 4 } else { 2 }];
        let create = vk::InstanceCreateInfo::default()
            .application_info(&application)
            .enabled_extension_names(names);
        // SAFETY: the structures outlive the calls; an instance that was just made.
        unsafe {
            let instance = match self.entry.create_instance(&create, None) {
                Ok(instance) => instance,
                Err(refused) => return refused,
            };
            let physical = instance.enumerate_physical_devices().unwrap_or_default();
            let properties2 =
                ash::khr::get_physical_device_properties2::Instance::new(&self.entry, &instance);
            let groups = ash::khr::device_group_creation::Instance::new(&self.entry, &instance);
            self.instances.push(Some(Living {
                instance,
                physical,
                properties2,
                groups,
                surfaces: Vec::new(),
            }));
        }
        vk::Result::SUCCESS
    }

    pub(super) fn new_device(
        &mut self,
        instance: usize,
        physical: usize,
        queues: usize,
    ) -> vk::Result {
        let Some(living) = self.instances.get(instance).and_then(Option::as_ref) else {
            return vk::Result::NOT_READY;
        };
        let priorities = [1.0; 4];
        let families = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(0)
            .queue_priorities(&priorities[..queues])];
        let names = [
            ash::khr::external_memory_fd::NAME.as_ptr(),
            ash::khr::synchronization2::NAME.as_ptr(),
            ash::ext::memory_priority::NAME.as_ptr(),
            ash::khr::swapchain::NAME.as_ptr(),
        ];
        let names = &names[..if self.presents { 4 } else { 3 }];
        let mut features = vk::PhysicalDeviceVulkan13Features::default().synchronization2(true);
        let plain = vk::PhysicalDeviceFeatures::default().sparse_binding(true);
        let create = vk::DeviceCreateInfo::default()
            .queue_create_infos(&families)
            .enabled_extension_names(names)
            .enabled_features(&plain)
            .push_next(&mut features);
        // SAFETY: a physical device of this instance; the structures outlive the calls.
        unsafe {
            let device =
                match living
                    .instance
                    .create_device(living.physical[physical], &create, None)
                {
                    Ok(device) => device,
                    Err(refused) => return refused,
                };
            let queues = (0..queues as u32)
                .map(|nth| device.get_device_queue(0, nth))
                .collect();
            self.devices.push(Made {
                instance,
                physical,
                external: ash::khr::external_memory_fd::Device::new(&living.instance, &device),
                submit2: ash::khr::synchronization2::Device::new(&living.instance, &device),
                screens: self
                    .presents
                    .then(|| ash::khr::swapchain::Device::new(&living.instance, &device)),
                device,
                memories: Vec::new(),
                swapchains: Vec::new(),
                queues,
            });
        }
        vk::Result::SUCCESS
    }
}

pub fn code(result: vk::Result) -> u32 {
    result.as_raw() as u32
}
