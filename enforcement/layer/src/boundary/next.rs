//! Next's functions, looked up once per instance and device, and what we ask of it for ourselves.
//!
//! All of them when the chain is made: at its end, a loader before 1.3.240 answers later look-ups with what lies at its top, where handles
//! may be others than ours.

use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use ash::vk;
use ash::vk::Handle;
use budget::Bytes;
use budget::identity::{NVIDIA, Pci};

use crate::physical::Description;
use crate::swapchains::Images;

/// What a look-up gives when it gives something.
type Function = unsafe extern "system" fn();

macro_rules! next {
    ($(#[$doc:meta])* $table:ident of $handle:ty, by $get:ident: $getter:ty { $($field:ident: $function:ty = $name:literal,)* }) => {
        $(#[$doc])*
        pub struct $table {
            handle: AtomicU64,
            pub $get: $getter,
            $(pub $field: Option<$function>,)*
        }

        impl $table {
            /// # Safety
            /// `handle` lives, and `getter` is the chain's look-up for it.
            pub unsafe fn load(getter: $getter, handle: $handle) -> $table {
                // SAFETY: the caller's obligation; a command's address is what its name says.
                unsafe {
                    $table {
                        handle: AtomicU64::new(handle.as_raw()),
                        $get: getter,
                        $($field: std::mem::transmute::<vk::PFN_vkVoidFunction, Option<$function>>(getter(handle, $name.as_ptr())),)*
                    }
                }
            }

            pub fn handle(&self) -> $handle {
                <$handle>::from_raw(self.handle.load(Ordering::Relaxed))
            }

            /// Becomes the chain of another handle, if that leads to the same functions.
            pub fn revive(&self, new: &$table) -> bool {
                let same = self.$get as usize == new.$get as usize
                    $(&& self.$field.map(|function| function as usize) == new.$field.map(|function| function as usize))*;
                if same {
                    self.handle.store(new.handle.load(Ordering::Relaxed), Ordering::Relaxed);
                }
                same
            }

            /// Asks next for a name on behalf of a handle of this chain.
            pub fn look_up(&self, handle: $handle, name: &CStr) -> Option<Function> {
                // SAFETY: the handle's dispatch key is this chain's, and the name ends in NUL.
                unsafe { (self.$get)(handle, name.as_ptr()) }
            }

            /// The same for the handle that the chain was made for.
            pub fn look_up_own(&self, name: &CStr) -> Option<Function> {
                self.look_up(self.handle(), name)
            }
        }
    };
}

next! {
    InstanceNext of vk::Instance, by get_proc_addr: vk::PFN_vkGetInstanceProcAddr {
        destroy: vk::PFN_vkDestroyInstance = c"vkDestroyInstance",
        physical_devices: vk::PFN_vkEnumeratePhysicalDevices = c"vkEnumeratePhysicalDevices",
        groups: vk::PFN_vkEnumeratePhysicalDeviceGroups = c"vkEnumeratePhysicalDeviceGroups",
        groups_khr: vk::PFN_vkEnumeratePhysicalDeviceGroups = c"vkEnumeratePhysicalDeviceGroupsKHR",
        extensions: vk::PFN_vkEnumerateDeviceExtensionProperties = c"vkEnumerateDeviceExtensionProperties",
        properties: vk::PFN_vkGetPhysicalDeviceProperties = c"vkGetPhysicalDeviceProperties",
        properties2: vk::PFN_vkGetPhysicalDeviceProperties2 = c"vkGetPhysicalDeviceProperties2",
        properties2_khr: vk::PFN_vkGetPhysicalDeviceProperties2 = c"vkGetPhysicalDeviceProperties2KHR",
        queue_families: vk::PFN_vkGetPhysicalDeviceQueueFamilyProperties = c"vkGetPhysicalDeviceQueueFamilyProperties",
        memory: vk::PFN_vkGetPhysicalDeviceMemoryProperties = c"vkGetPhysicalDeviceMemoryProperties",
        memory2: vk::PFN_vkGetPhysicalDeviceMemoryProperties2 = c"vkGetPhysicalDeviceMemoryProperties2",
        memory2_khr: vk::PFN_vkGetPhysicalDeviceMemoryProperties2 = c"vkGetPhysicalDeviceMemoryProperties2KHR",
    }
}

next! {
    DeviceNext of vk::Device, by get_proc_addr: vk::PFN_vkGetDeviceProcAddr {
        destroy: vk::PFN_vkDestroyDevice = c"vkDestroyDevice",
        allocate: vk::PFN_vkAllocateMemory = c"vkAllocateMemory",
        free: vk::PFN_vkFreeMemory = c"vkFreeMemory",
        memory_fd: vk::PFN_vkGetMemoryFdKHR = c"vkGetMemoryFdKHR",
        create_swapchain: vk::PFN_vkCreateSwapchainKHR = c"vkCreateSwapchainKHR",
        destroy_swapchain: vk::PFN_vkDestroySwapchainKHR = c"vkDestroySwapchainKHR",
        swapchain_images: vk::PFN_vkGetSwapchainImagesKHR = c"vkGetSwapchainImagesKHR",
        create_image: vk::PFN_vkCreateImage = c"vkCreateImage",
        destroy_image: vk::PFN_vkDestroyImage = c"vkDestroyImage",
        image_requirements: vk::PFN_vkGetImageMemoryRequirements = c"vkGetImageMemoryRequirements",
        queue: vk::PFN_vkGetDeviceQueue = c"vkGetDeviceQueue",
        queue2: vk::PFN_vkGetDeviceQueue2 = c"vkGetDeviceQueue2",
        submit: vk::PFN_vkQueueSubmit = c"vkQueueSubmit",
        submit2: vk::PFN_vkQueueSubmit2 = c"vkQueueSubmit2",
        submit2_khr: vk::PFN_vkQueueSubmit2 = c"vkQueueSubmit2KHR",
        bind_sparse: vk::PFN_vkQueueBindSparse = c"vkQueueBindSparse",
        graphics_pipelines: vk::PFN_vkCreateGraphicsPipelines = c"vkCreateGraphicsPipelines",
        compute_pipelines: vk::PFN_vkCreateComputePipelines = c"vkCreateComputePipelines",
        ray_tracing_pipelines: vk::PFN_vkCreateRayTracingPipelinesKHR = c"vkCreateRayTracingPipelinesKHR",
        ray_tracing_pipelines_nv: vk::PFN_vkCreateRayTracingPipelinesNV = c"vkCreateRayTracingPipelinesNV",
        shaders: vk::PFN_vkCreateShadersEXT = c"vkCreateShadersEXT",
        shared_swapchains: vk::PFN_vkCreateSharedSwapchainsKHR = c"vkCreateSharedSwapchainsKHR",
        video_session: vk::PFN_vkCreateVideoSessionKHR = c"vkCreateVideoSessionKHR",
        optical_flow_session: vk::PFN_vkCreateOpticalFlowSessionNV = c"vkCreateOpticalFlowSessionNV",
        cu_module: vk::PFN_vkCreateCuModuleNVX = c"vkCreateCuModuleNVX",
        cuda_module: vk::PFN_vkCreateCudaModuleNV = c"vkCreateCudaModuleNV",
        begin_commands: vk::PFN_vkBeginCommandBuffer = c"vkBeginCommandBuffer",
        end_commands: vk::PFN_vkEndCommandBuffer = c"vkEndCommandBuffer",
    }
}

#[expect(dead_code, reason = "a mark looks nothing up afterwards")]
mod mark {
    use super::*;

    next! {
        /// What marks are made with, where there are any.
        MarkNext of vk::Device, by get_proc_addr: vk::PFN_vkGetDeviceProcAddr {
            submit: vk::PFN_vkQueueSubmit = c"vkQueueSubmit",
            create_pool: vk::PFN_vkCreateCommandPool = c"vkCreateCommandPool",
            destroy_pool: vk::PFN_vkDestroyCommandPool = c"vkDestroyCommandPool",
            allocate_buffers: vk::PFN_vkAllocateCommandBuffers = c"vkAllocateCommandBuffers",
            begin: vk::PFN_vkBeginCommandBuffer = c"vkBeginCommandBuffer",
            end: vk::PFN_vkEndCommandBuffer = c"vkEndCommandBuffer",
            reset_queries: vk::PFN_vkCmdResetQueryPool = c"vkCmdResetQueryPool",
            write_timestamp: vk::PFN_vkCmdWriteTimestamp = c"vkCmdWriteTimestamp",
            create_queries: vk::PFN_vkCreateQueryPool = c"vkCreateQueryPool",
            destroy_queries: vk::PFN_vkDestroyQueryPool = c"vkDestroyQueryPool",
            results: vk::PFN_vkGetQueryPoolResults = c"vkGetQueryPoolResults",
            create_fence: vk::PFN_vkCreateFence = c"vkCreateFence",
            destroy_fence: vk::PFN_vkDestroyFence = c"vkDestroyFence",
            fence_status: vk::PFN_vkGetFenceStatus = c"vkGetFenceStatus",
            reset_fences: vk::PFN_vkResetFences = c"vkResetFences",
            wait_fences: vk::PFN_vkWaitForFences = c"vkWaitForFences",
        }
    }
}

pub use mark::MarkNext;

impl DeviceNext {
    /// What an image needs that is like those which a swapchain is to have; `None` where next makes no such image.
    ///
    /// # Safety
    /// `device` is of this chain, and `info` is what an application creates a swapchain with.
    pub unsafe fn image_like(
        &self,
        device: vk::Device,
        info: &vk::SwapchainCreateInfoKHR<'_>,
    ) -> Option<Bytes> {
        let mut flags = vk::ImageCreateFlags::empty();
        if info
            .flags
            .contains(vk::SwapchainCreateFlagsKHR::MUTABLE_FORMAT)
        {
            flags |= vk::ImageCreateFlags::MUTABLE_FORMAT;
        }
        let like = vk::ImageCreateInfo::default()
            .flags(flags)
            .image_type(vk::ImageType::TYPE_2D)
            .format(info.image_format)
            .extent(info.image_extent.into())
            .mip_levels(1)
            .array_layers(info.image_array_layers)
            .samples(vk::SampleCountFlags::TYPE_1)
            .usage(info.image_usage);
        let (create, destroy) = (self.create_image?, self.destroy_image?);
        let mut image = vk::Image::null();
        // SAFETY: the image is nobody else's, and goes before anybody sees it. By valid usage of the swapchain its format and usage are the
        // surface's, which images have too.
        unsafe {
            if create(device, &like, ptr::null(), &mut image) != vk::Result::SUCCESS {
                return None;
            }
            let needs = self.needs_of(device, image);
            destroy(device, image, ptr::null());
            needs
        }
    }

    /// How many images a swapchain has, and what the first of them needs.
    ///
    /// # Safety
    /// The swapchain lives, and is `device`'s, which is of this chain.
    pub unsafe fn images_of(
        &self,
        device: vk::Device,
        swapchain: vk::SwapchainKHR,
    ) -> Option<Images> {
        let images = self.swapchain_images?;
        let (mut count, mut one, mut first) = (0, 1, vk::Image::null());
        // SAFETY: the caller's obligation; room for one image is told as such.
        unsafe {
            if images(device, swapchain, &mut count, ptr::null_mut()) != vk::Result::SUCCESS
                || images(device, swapchain, &mut one, &mut first).as_raw() < 0
                || one == 0
            {
                return None;
            }
            let each = self.needs_of(device, first)?;
            Some(Images { count, each })
        }
    }

    /// # Safety
    /// The image lives, and is `device`'s, which is of this chain.
    unsafe fn needs_of(&self, device: vk::Device, image: vk::Image) -> Option<Bytes> {
        let mut needs = vk::MemoryRequirements::default();
        // SAFETY: the caller's obligation.
        unsafe { self.image_requirements?(device, image, &mut needs) };
        Some(Bytes(needs.size))
    }

    /// Takes back a device that the application will not get.
    pub fn destroy_device(&self) {
        if let Some(destroy) = self.destroy {
            // SAFETY: the device was just created and nobody else has it.
            unsafe { destroy(self.handle(), ptr::null()) };
        }
    }
}

impl InstanceNext {
    /// A physical device's queue families, and the nanoseconds of one tick of its timestamps.
    pub fn queue_families(
        &self,
        device: vk::PhysicalDevice,
    ) -> Option<(Vec<vk::QueueFamilyProperties>, f32)> {
        let get = self.queue_families?;
        let mut properties = vk::PhysicalDeviceProperties::default();
        let mut count = 0;
        // SAFETY: the physical device is this instance's, and the array as long as said.
        unsafe {
            (self.properties?)(device, &mut properties);
            get(device, &mut count, ptr::null_mut());
            let mut families = vec![vk::QueueFamilyProperties::default(); count as usize];
            get(device, &mut count, families.as_mut_ptr());
            families.truncate(count as usize);
            Some((families, properties.limits.timestamp_period))
        }
    }

    pub fn physical_devices(&self) -> Vec<vk::PhysicalDevice> {
        let Some(enumerate) = self.physical_devices else {
            return Vec::new();
        };
        // SAFETY: the instance lives; the array has as many members as said.
        two_calls(|count, array| unsafe { enumerate(self.handle(), count, array) })
    }

    pub fn device_extensions(&self, device: vk::PhysicalDevice) -> Vec<vk::ExtensionProperties> {
        let Some(enumerate) = self.extensions else {
            return Vec::new();
        };
        // SAFETY: as above, for all layers and the driver together.
        two_calls(|count, array| unsafe { enumerate(device, ptr::null(), count, array) })
    }

    /// Everything that identity and charging need to know of a physical device.
    pub fn describe(&self, handle: vk::PhysicalDevice, promoted: Promoted) -> Description {
        let (mut properties, mut memory) = (
            vk::PhysicalDeviceProperties::default(),
            vk::PhysicalDeviceMemoryProperties::default(),
        );
        // SAFETY: the physical device is this instance's, and each structure is what its command fills.
        unsafe {
            if let Some(get) = self.properties {
                get(handle, &mut properties);
            }
            if let Some(get) = self.memory {
                get(handle, &mut memory);
            }
        }
        let mut description = Description {
            handle,
            name: text(&properties.device_name),
            vendor: properties.vendor_id,
            kind: properties.device_type,
            uuid: None,
            pci: None,
            memory,
            has_memory_budget: false,
        };
        if description.vendor == NVIDIA {
            let extensions = self.device_extensions(handle);
            let has = |name: &CStr| {
                extensions
                    .iter()
                    .any(|one| one.extension_name_as_c_str() == Ok(name))
            };
            description.has_memory_budget = has(vk::EXT_MEMORY_BUDGET_NAME);
            (description.uuid, description.pci) =
                self.identity(handle, promoted, has(vk::EXT_PCI_BUS_INFO_NAME));
        }
        description
    }

    fn identity(
        &self,
        handle: vk::PhysicalDevice,
        promoted: Promoted,
        has_pci: bool,
    ) -> (Option<[u8; 16]>, Option<Pci>) {
        let get = self.promoted(handle, promoted, self.properties2, self.properties2_khr);
        let Some(get) = get else {
            return (None, None);
        };
        // The loader answers in a driver's place that lacks the command, and fills no structure of the chain: what is still there afterwards was
        // never said.
        const UNSAID: u32 = u32::MAX;
        let mut pci = vk::PhysicalDevicePCIBusInfoPropertiesEXT {
            pci_domain: UNSAID,
            ..Default::default()
        };
        let mut id = vk::PhysicalDeviceIDProperties::default();
        if has_pci {
            id.p_next = ptr::from_mut(&mut pci).cast();
        }
        let mut properties = vk::PhysicalDeviceProperties2 {
            p_next: ptr::from_mut(&mut id).cast(),
            ..Default::default()
        };
        // SAFETY: the chain's structures live until the call returns; the second is chained only where its extension is.
        unsafe { get(handle, &mut properties) };
        let place = Pci {
            domain: pci.pci_domain,
            bus: pci.pci_bus,
            device: pci.pci_device,
            function: pci.pci_function,
        };
        (
            Some(id.device_uuid),
            (has_pci && place.domain != UNSAID).then_some(place),
        )
    }

    fn promoted<F>(
        &self,
        handle: vk::PhysicalDevice,
        promoted: Promoted,
        core: Option<F>,
        extension: Option<F>,
    ) -> Option<F> {
        let mut properties = vk::PhysicalDeviceProperties::default();
        if let Some(get) = self.properties {
            // SAFETY: the physical device is this instance's.
            unsafe { get(handle, &mut properties) };
        }
        if promoted.core && properties.api_version >= vk::API_VERSION_1_1 {
            return core;
        }
        extension.filter(|_| promoted.extension)
    }

    /// What VK_EXT_memory_budget says of the device-local heaps together. Only for a device that has the extension.
    pub fn heap_use(&self, handle: vk::PhysicalDevice, promoted: Promoted) -> Option<HeapUse> {
        let get = self.promoted(handle, promoted, self.memory2, self.memory2_khr)?;
        let mut report = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut memory = vk::PhysicalDeviceMemoryProperties2 {
            p_next: ptr::from_mut(&mut report).cast(),
            ..Default::default()
        };
        // SAFETY: the chain's structures live until the call returns.
        unsafe { get(handle, &mut memory) };
        let heaps = memory
            .memory_properties
            .memory_heaps_as_slice()
            .iter()
            .enumerate();
        let local =
            heaps.filter(|(_, heap)| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
        let sum = local.fold(HeapUse::default(), |sum, (number, _)| HeapUse {
            usage: sum.usage.saturating_add(Bytes(report.heap_usage[number])),
            budget: sum.budget.saturating_add(Bytes(report.heap_budget[number])),
        });
        // A heap's budget is never 0: the loader answered in a 1.0 driver's place.
        (sum.budget > Bytes::ZERO).then_some(sum)
    }
}

/// By which names the instance's application could use the commands of VK_KHR_get_physical_device_properties2. We ask by no other: a layer below that
/// checks valid use would complain of us, and on a plain 1.0 instance the loader answers without asking the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promoted {
    pub core: bool,
    pub extension: bool,
}

/// The device-local heaps of VK_EXT_memory_budget: what this process holds, and what it could hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapUse {
    pub usage: Bytes,
    pub budget: Bytes,
}

impl HeapUse {
    pub const fn free(self) -> Bytes {
        self.budget.saturating_sub(self.usage)
    }
}

/// Count, then fill; again while the count grows in between.
fn two_calls<T: Default + Clone>(call: impl Fn(*mut u32, *mut T) -> vk::Result) -> Vec<T> {
    for _ in 0..4 {
        let mut count = 0;
        if call(&mut count, ptr::null_mut()) != vk::Result::SUCCESS {
            return Vec::new();
        }
        let mut found = vec![T::default(); count as usize];
        match call(&mut count, found.as_mut_ptr()) {
            vk::Result::SUCCESS => {
                found.truncate(count as usize);
                return found;
            }
            vk::Result::INCOMPLETE => {}
            _ => return Vec::new(),
        }
    }
    Vec::new()
}

fn text(name: &[c_char]) -> String {
    let bytes: Vec<u8> = name
        .iter()
        .map(|byte| byte.cast_unsigned())
        .take_while(|byte| *byte != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
