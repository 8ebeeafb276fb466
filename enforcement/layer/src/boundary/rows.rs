//! The table: every command that is hooked. A command that is not changed has no row.

macro_rules! table {
    ($callback:ident) => {
        $callback! {
            vkGetInstanceProcAddr: vk::PFN_vkGetInstanceProcAddr => negotiate::vkGetInstanceProcAddr, Global, Chain;
            vkCreateInstance: vk::PFN_vkCreateInstance => commands::create_instance, Global, Chain;
            vkEnumerateInstanceExtensionProperties: vk::PFN_vkEnumerateInstanceExtensionProperties => commands::instance_extensions, Global, Chain;
            vkDestroyInstance: vk::PFN_vkDestroyInstance => commands::destroy_instance, Instance, Chain;
            vkCreateDevice: vk::PFN_vkCreateDevice => commands::create_device, Instance, Chain;
            vkEnumerateDeviceExtensionProperties: vk::PFN_vkEnumerateDeviceExtensionProperties => commands::device_extensions, Instance, Chain;
            vkEnumeratePhysicalDevices: vk::PFN_vkEnumeratePhysicalDevices => commands::physical_devices, Instance, Budget;
            vkEnumeratePhysicalDeviceGroups: vk::PFN_vkEnumeratePhysicalDeviceGroups => commands::groups, Instance, Budget;
            vkEnumeratePhysicalDeviceGroupsKHR: vk::PFN_vkEnumeratePhysicalDeviceGroups => commands::groups_khr, Instance, Budget;
            vkGetPhysicalDeviceMemoryProperties: vk::PFN_vkGetPhysicalDeviceMemoryProperties => commands::memory_properties, Instance, Budget;
            vkGetPhysicalDeviceMemoryProperties2: vk::PFN_vkGetPhysicalDeviceMemoryProperties2 => commands::memory_properties2, Instance, Budget;
            vkGetPhysicalDeviceMemoryProperties2KHR: vk::PFN_vkGetPhysicalDeviceMemoryProperties2 => commands::memory_properties2_khr, Instance, Budget;
            vkGetDeviceProcAddr: vk::PFN_vkGetDeviceProcAddr => negotiate::vkGetDeviceProcAddr, Device, Chain;
            vkDestroyDevice: vk::PFN_vkDestroyDevice => commands::destroy_device, Device, Chain;
            vkAllocateMemory: vk::PFN_vkAllocateMemory => commands::allocate_memory, Device, Budget;
            vkFreeMemory: vk::PFN_vkFreeMemory => commands::free_memory, Device, Budget;
            vkGetMemoryFdKHR: vk::PFN_vkGetMemoryFdKHR => commands::memory_fd, Device, Budget;
            vkCreateSwapchainKHR: vk::PFN_vkCreateSwapchainKHR => commands::create_swapchain, Device, Budget;
            vkDestroySwapchainKHR: vk::PFN_vkDestroySwapchainKHR => commands::destroy_swapchain, Device, Budget;
            vkCreateGraphicsPipelines: vk::PFN_vkCreateGraphicsPipelines => makers::graphics_pipelines, Device, Budget;
            vkCreateComputePipelines: vk::PFN_vkCreateComputePipelines => makers::compute_pipelines, Device, Budget;
            vkCreateRayTracingPipelinesKHR: vk::PFN_vkCreateRayTracingPipelinesKHR => makers::ray_tracing_pipelines, Device, Budget;
            vkCreateRayTracingPipelinesNV: vk::PFN_vkCreateRayTracingPipelinesNV => makers::ray_tracing_pipelines_nv, Device, Budget;
            vkCreateShadersEXT: vk::PFN_vkCreateShadersEXT => makers::shaders, Device, Budget;
            vkCreateSharedSwapchainsKHR: vk::PFN_vkCreateSharedSwapchainsKHR => makers::shared_swapchains, Device, Budget;
            vkCreateVideoSessionKHR: vk::PFN_vkCreateVideoSessionKHR => makers::video_session, Device, Budget;
            vkCreateOpticalFlowSessionNV: vk::PFN_vkCreateOpticalFlowSessionNV => makers::optical_flow_session, Device, Budget;
            vkCreateCuModuleNVX: vk::PFN_vkCreateCuModuleNVX => makers::cu_module, Device, Budget;
            vkCreateCudaModuleNV: vk::PFN_vkCreateCudaModuleNV => makers::cuda_module, Device, Budget;
            vkBeginCommandBuffer: vk::PFN_vkBeginCommandBuffer => makers::begin_commands, Device, Budget;
            vkEndCommandBuffer: vk::PFN_vkEndCommandBuffer => makers::end_commands, Device, Budget;
            vkGetDeviceQueue: vk::PFN_vkGetDeviceQueue => submissions::queue, Device, Pace;
            vkGetDeviceQueue2: vk::PFN_vkGetDeviceQueue2 => submissions::queue2, Device, Pace;
            vkQueueSubmit: vk::PFN_vkQueueSubmit => submissions::submit, Device, Work;
            vkQueueSubmit2: vk::PFN_vkQueueSubmit2 => submissions::submit2, Device, Work;
            vkQueueSubmit2KHR: vk::PFN_vkQueueSubmit2 => submissions::submit2_khr, Device, Work;
            vkQueueBindSparse: vk::PFN_vkQueueBindSparse => submissions::bind_sparse, Device, Work;
        }
    };
}
pub(crate) use table;
