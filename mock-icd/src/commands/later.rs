//! Commands of Vulkan 1.4 and of extensions, except those that are recorded.

use ash::vk;

use crate::boundary::{In, List, Out, OutList, Raw};
use crate::commands::commands;
use crate::{device, host_copy, image, lists, memory, object, sync, time};

commands! {
    Device V1_4 vkMapMemory2(device: vk::Device, memory_map_info: In<vk::MemoryMapInfoKHR<'_>>, data: Out<Raw>) ->
        vk::Result
        = memory::map2(memory_map_info, data),
        vkMapMemory2KHR in "VK_KHR_map_memory2";
    Device V1_4 vkUnmapMemory2(device: vk::Device, memory_unmap_info: In<vk::MemoryUnmapInfoKHR<'_>>) -> vk::Result
        = memory::unmap2(memory_unmap_info),
        vkUnmapMemory2KHR in "VK_KHR_map_memory2";
    Device V1_4 vkGetDeviceImageSubresourceLayout(device: vk::Device, info:
        In<vk::DeviceImageSubresourceInfoKHR<'_>>, layout: Out<vk::SubresourceLayout2KHR<'_>>) -> ()
        = image::subresource_of_info(device, info, layout),
        vkGetDeviceImageSubresourceLayoutKHR in "VK_KHR_maintenance5";
    Device V1_4 vkGetImageSubresourceLayout2(device: vk::Device, image: vk::Image, subresource:
        In<vk::ImageSubresource2KHR<'_>>, layout: Out<vk::SubresourceLayout2KHR<'_>>) -> ()
        = image::subresource2(image, subresource, layout),
        vkGetImageSubresourceLayout2EXT in "VK_EXT_host_image_copy",
        vkGetImageSubresourceLayout2KHR in "VK_KHR_maintenance5";
    Device V1_4 vkCopyMemoryToImage(device: vk::Device, copy_memory_to_image_info:
        In<vk::CopyMemoryToImageInfoEXT<'_>>) -> vk::Result
        = host_copy::into_image(copy_memory_to_image_info),
        vkCopyMemoryToImageEXT in "VK_EXT_host_image_copy";
    Device V1_4 vkCopyImageToMemory(device: vk::Device, copy_image_to_memory_info:
        In<vk::CopyImageToMemoryInfoEXT<'_>>) -> vk::Result
        = host_copy::out_of_image(copy_image_to_memory_info),
        vkCopyImageToMemoryEXT in "VK_EXT_host_image_copy";
    Device V1_4 vkCopyImageToImage(device: vk::Device, copy_image_to_image_info:
        In<vk::CopyImageToImageInfoEXT<'_>>) -> vk::Result
        = host_copy::between_images(copy_image_to_image_info),
        vkCopyImageToImageEXT in "VK_EXT_host_image_copy";
    Device V1_4 vkTransitionImageLayout(device: vk::Device, transition_count: u32, transitions:
        List<vk::HostImageLayoutTransitionInfoEXT<'_>>) -> vk::Result
        = host_copy::transition(transition_count, transitions),
        vkTransitionImageLayoutEXT in "VK_EXT_host_image_copy";
    Device V1_4 vkGetRenderingAreaGranularity(device: vk::Device, rendering_area_info:
        In<vk::RenderingAreaInfoKHR<'_>>, granularity: Out<vk::Extent2D>) -> ()
        = granularity.put(vk::Extent2D { width: 1, height: 1 }),
        vkGetRenderingAreaGranularityKHR in "VK_KHR_maintenance5";
    Device "VK_KHR_external_memory_fd" vkGetMemoryFdKHR(device: vk::Device, get_fd_info:
        In<vk::MemoryGetFdInfoKHR<'_>>, fd: Out<i32>) -> vk::Result
        = memory::fd(get_fd_info, fd);
    Device "VK_KHR_external_memory_fd" vkGetMemoryFdPropertiesKHR(device: vk::Device, handle_type:
        vk::ExternalMemoryHandleTypeFlags, fd: i32, memory_fd_properties: Out<vk::MemoryFdPropertiesKHR<'_>>) ->
        vk::Result
        = memory::fd_properties(device, handle_type, fd, memory_fd_properties);
    Device "VK_KHR_external_semaphore_fd" vkImportSemaphoreFdKHR(device: vk::Device, import_semaphore_fd_info:
        In<vk::ImportSemaphoreFdInfoKHR<'_>>) -> vk::Result
        = sync::import_semaphore_fd(import_semaphore_fd_info);
    Device "VK_KHR_external_semaphore_fd" vkGetSemaphoreFdKHR(device: vk::Device, get_fd_info:
        In<vk::SemaphoreGetFdInfoKHR<'_>>, fd: Out<i32>) -> vk::Result
        = sync::semaphore_fd(get_fd_info, fd);
    Device "VK_KHR_external_fence_fd" vkImportFenceFdKHR(device: vk::Device, import_fence_fd_info:
        In<vk::ImportFenceFdInfoKHR<'_>>) -> vk::Result
        = sync::import_fence_fd(import_fence_fd_info);
    Device "VK_KHR_external_fence_fd" vkGetFenceFdKHR(device: vk::Device, get_fd_info:
        In<vk::FenceGetFdInfoKHR<'_>>, fd: Out<i32>) -> vk::Result
        = sync::fence_fd(get_fd_info, fd);
    Device "VK_EXT_external_memory_host" vkGetMemoryHostPointerPropertiesEXT(device: vk::Device, handle_type:
        vk::ExternalMemoryHandleTypeFlags, host_pointer: List<u8>, memory_host_pointer_properties:
        Out<vk::MemoryHostPointerPropertiesEXT<'_>>) -> vk::Result
        = memory::host_pointer_properties(device, handle_type, host_pointer, memory_host_pointer_properties);
    Device "VK_EXT_calibrated_timestamps" vkGetCalibratedTimestampsEXT(device: vk::Device, timestamp_count: u32,
        timestamp_infos: List<vk::CalibratedTimestampInfoKHR<'_>>, timestamps: OutList<u64>, max_deviation:
        Out<u64>) -> vk::Result
        = time::calibrated(timestamp_count, timestamp_infos, timestamps, max_deviation),
        vkGetCalibratedTimestampsKHR in "VK_KHR_calibrated_timestamps";
    Device "VK_EXT_device_fault" vkGetDeviceFaultInfoEXT(device: vk::Device, fault_counts:
        Out<vk::DeviceFaultCountsEXT<'_>>, fault_info: Out<vk::DeviceFaultInfoEXT<'_>>) -> vk::Result
        = device::fault_info(device, fault_counts);
    Device "VK_EXT_pageable_device_local_memory" vkSetDeviceMemoryPriorityEXT(device: vk::Device, memory:
        vk::DeviceMemory, priority: f32) -> ()
        = memory::set_priority(memory);
    Device "VK_EXT_shader_module_identifier" vkGetShaderModuleIdentifierEXT(device: vk::Device, shader_module:
        vk::ShaderModule, identifier: Out<vk::ShaderModuleIdentifierEXT<'_>>) -> ()
        = object::module_identifier(shader_module, identifier);
    Device "VK_EXT_shader_module_identifier" vkGetShaderModuleCreateInfoIdentifierEXT(device: vk::Device,
        create_info: In<vk::ShaderModuleCreateInfo<'_>>, identifier: Out<vk::ShaderModuleIdentifierEXT<'_>>) -> ()
        = object::identifier_of_info(create_info, identifier);
    PhysicalDevice "VK_EXT_calibrated_timestamps" vkGetPhysicalDeviceCalibrateableTimeDomainsEXT(physical_device:
        vk::PhysicalDevice, time_domain_count: Out<u32>, time_domains: OutList<vk::TimeDomainKHR>) -> vk::Result
        = time::domains(time_domain_count, time_domains),
        vkGetPhysicalDeviceCalibrateableTimeDomainsKHR in "VK_KHR_calibrated_timestamps";
    PhysicalDevice "VK_EXT_sample_locations" vkGetPhysicalDeviceMultisamplePropertiesEXT(physical_device:
        vk::PhysicalDevice, samples: vk::SampleCountFlags, multisample_properties:
        Out<vk::MultisamplePropertiesEXT<'_>>) -> ()
        = lists::sample_locations(samples, multisample_properties);
    PhysicalDevice "VK_KHR_fragment_shading_rate" vkGetPhysicalDeviceFragmentShadingRatesKHR(physical_device:
        vk::PhysicalDevice, fragment_shading_rate_count: Out<u32>, fragment_shading_rates:
        OutList<vk::PhysicalDeviceFragmentShadingRateKHR<'_>>) -> vk::Result
        = lists::shading_rates(fragment_shading_rate_count, fragment_shading_rates);
    PhysicalDevice "VK_KHR_cooperative_matrix" vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR(physical_device:
        vk::PhysicalDevice, property_count: Out<u32>, properties: OutList<vk::CooperativeMatrixPropertiesKHR<'_>>)
        -> vk::Result
        = lists::cooperative_matrices(property_count, properties);
}
