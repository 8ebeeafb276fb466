//! Commands before and about instances, and about physical devices.

use ash::vk;

use crate::boundary::{Allocator, In, New, Out, OutList, Text};
use crate::commands::commands;
use crate::{device, extension, format, image, instance, physical_device, properties};

commands! {
    Global V1_0 vkCreateInstance(create_info: In<vk::InstanceCreateInfo<'_>>, allocator: Allocator, instance:
        New<vk::Instance>) -> vk::Result
        = instance::create(create_info, instance);
    Instance V1_0 vkDestroyInstance(instance: vk::Instance, allocator: Allocator) -> ()
        = instance::destroy(instance);
    Instance V1_0 vkEnumeratePhysicalDevices(instance: vk::Instance, physical_device_count: Out<u32>,
        physical_devices: OutList<vk::PhysicalDevice>) -> vk::Result
        = instance::enumerate_devices(instance, physical_device_count, physical_devices);
    PhysicalDevice V1_0 vkGetPhysicalDeviceFeatures(physical_device: vk::PhysicalDevice, features:
        Out<vk::PhysicalDeviceFeatures>) -> ()
        = properties::features(features);
    PhysicalDevice V1_0 vkGetPhysicalDeviceFormatProperties(physical_device: vk::PhysicalDevice, format: vk::Format,
        format_properties: Out<vk::FormatProperties>) -> ()
        = format::properties(format, format_properties);
    PhysicalDevice V1_0 vkGetPhysicalDeviceImageFormatProperties(physical_device: vk::PhysicalDevice, format:
        vk::Format, kind: vk::ImageType, tiling: vk::ImageTiling, usage: vk::ImageUsageFlags, flags:
        vk::ImageCreateFlags, image_format_properties: Out<vk::ImageFormatProperties>) -> vk::Result
        = format::image_properties(format::Wanted { format, kind, tiling, usage, flags }, image_format_properties);
    PhysicalDevice V1_0 vkGetPhysicalDeviceProperties(physical_device: vk::PhysicalDevice, properties:
        Out<vk::PhysicalDeviceProperties>) -> ()
        = properties::properties(physical_device, properties);
    PhysicalDevice V1_0 vkGetPhysicalDeviceQueueFamilyProperties(physical_device: vk::PhysicalDevice,
        queue_family_property_count: Out<u32>, queue_family_properties: OutList<vk::QueueFamilyProperties>) -> ()
        = physical_device::queue_families(physical_device, queue_family_property_count, queue_family_properties);
    PhysicalDevice V1_0 vkGetPhysicalDeviceMemoryProperties(physical_device: vk::PhysicalDevice, memory_properties:
        Out<vk::PhysicalDeviceMemoryProperties>) -> ()
        = physical_device::memory_properties(physical_device, memory_properties);
    PhysicalDevice V1_0 vkCreateDevice(physical_device: vk::PhysicalDevice, create_info:
        In<vk::DeviceCreateInfo<'_>>, allocator: Allocator, device: New<vk::Device>) -> vk::Result
        = device::create(physical_device, create_info, device);
    Global V1_0 vkEnumerateInstanceExtensionProperties(layer_name: Text, property_count: Out<u32>, properties:
        OutList<vk::ExtensionProperties>) -> vk::Result
        = extension::enumerate_of_instance(layer_name, property_count, properties);
    PhysicalDevice V1_0 vkEnumerateDeviceExtensionProperties(physical_device: vk::PhysicalDevice, layer_name: Text,
        property_count: Out<u32>, properties: OutList<vk::ExtensionProperties>) -> vk::Result
        = extension::enumerate_of_device(layer_name, property_count, properties);
    Global V1_0 vkEnumerateInstanceLayerProperties(property_count: Out<u32>, properties:
        OutList<vk::LayerProperties>) -> vk::Result
        = instance::enumerate_layers(property_count, properties);
    PhysicalDevice V1_0 vkEnumerateDeviceLayerProperties(physical_device: vk::PhysicalDevice, property_count:
        Out<u32>, properties: OutList<vk::LayerProperties>) -> vk::Result
        = instance::enumerate_layers(property_count, properties);
    PhysicalDevice V1_0 vkGetPhysicalDeviceSparseImageFormatProperties(physical_device: vk::PhysicalDevice, format:
        vk::Format, kind: vk::ImageType, samples: vk::SampleCountFlags, usage: vk::ImageUsageFlags, tiling:
        vk::ImageTiling, property_count: Out<u32>, properties: OutList<vk::SparseImageFormatProperties>) -> ()
        = image::sparse_formats(format::Wanted { format, kind, tiling, usage, flags: vk::ImageCreateFlags::empty() }, samples, property_count, properties);
    Global V1_1 vkEnumerateInstanceVersion(api_version: Out<u32>) -> vk::Result
        = instance::enumerate_version(api_version);
    Instance V1_1 vkEnumeratePhysicalDeviceGroups(instance: vk::Instance, physical_device_group_count: Out<u32>,
        physical_device_group_properties: OutList<vk::PhysicalDeviceGroupProperties<'_>>) -> vk::Result
        = instance::enumerate_groups(instance, physical_device_group_count, physical_device_group_properties),
        vkEnumeratePhysicalDeviceGroupsKHR in "VK_KHR_device_group_creation";
    PhysicalDevice V1_1 vkGetPhysicalDeviceFeatures2(physical_device: vk::PhysicalDevice, features:
        Out<vk::PhysicalDeviceFeatures2<'_>>) -> ()
        = properties::features2(features),
        vkGetPhysicalDeviceFeatures2KHR in "VK_KHR_get_physical_device_properties2";
    PhysicalDevice V1_1 vkGetPhysicalDeviceProperties2(physical_device: vk::PhysicalDevice, properties:
        Out<vk::PhysicalDeviceProperties2<'_>>) -> ()
        = properties::properties2(physical_device, properties),
        vkGetPhysicalDeviceProperties2KHR in "VK_KHR_get_physical_device_properties2";
    PhysicalDevice V1_1 vkGetPhysicalDeviceFormatProperties2(physical_device: vk::PhysicalDevice, format:
        vk::Format, format_properties: Out<vk::FormatProperties2<'_>>) -> ()
        = format::properties2(format, format_properties),
        vkGetPhysicalDeviceFormatProperties2KHR in "VK_KHR_get_physical_device_properties2";
    PhysicalDevice V1_1 vkGetPhysicalDeviceImageFormatProperties2(physical_device: vk::PhysicalDevice,
        image_format_info: In<vk::PhysicalDeviceImageFormatInfo2<'_>>, image_format_properties:
        Out<vk::ImageFormatProperties2<'_>>) -> vk::Result
        = format::image_properties2(image_format_info, image_format_properties),
        vkGetPhysicalDeviceImageFormatProperties2KHR in "VK_KHR_get_physical_device_properties2";
    PhysicalDevice V1_1 vkGetPhysicalDeviceQueueFamilyProperties2(physical_device: vk::PhysicalDevice,
        queue_family_property_count: Out<u32>, queue_family_properties: OutList<vk::QueueFamilyProperties2<'_>>) ->
        ()
        = physical_device::queue_families2(physical_device, queue_family_property_count, queue_family_properties),
        vkGetPhysicalDeviceQueueFamilyProperties2KHR in "VK_KHR_get_physical_device_properties2";
    PhysicalDevice V1_1 vkGetPhysicalDeviceMemoryProperties2(physical_device: vk::PhysicalDevice, memory_properties:
        Out<vk::PhysicalDeviceMemoryProperties2<'_>>) -> ()
        = physical_device::memory_properties2(physical_device, memory_properties),
        vkGetPhysicalDeviceMemoryProperties2KHR in "VK_KHR_get_physical_device_properties2";
    PhysicalDevice V1_1 vkGetPhysicalDeviceSparseImageFormatProperties2(physical_device: vk::PhysicalDevice,
        format_info: In<vk::PhysicalDeviceSparseImageFormatInfo2<'_>>, property_count: Out<u32>, properties:
        OutList<vk::SparseImageFormatProperties2<'_>>) -> ()
        = image::sparse_formats2(format_info, property_count, properties),
        vkGetPhysicalDeviceSparseImageFormatProperties2KHR in "VK_KHR_get_physical_device_properties2";
    PhysicalDevice V1_1 vkGetPhysicalDeviceExternalBufferProperties(physical_device: vk::PhysicalDevice,
        external_buffer_info: In<vk::PhysicalDeviceExternalBufferInfo<'_>>, external_buffer_properties:
        Out<vk::ExternalBufferProperties<'_>>) -> ()
        = physical_device::external_buffer(external_buffer_info, external_buffer_properties),
        vkGetPhysicalDeviceExternalBufferPropertiesKHR in "VK_KHR_external_memory_capabilities";
    PhysicalDevice V1_1 vkGetPhysicalDeviceExternalFenceProperties(physical_device: vk::PhysicalDevice,
        external_fence_info: In<vk::PhysicalDeviceExternalFenceInfo<'_>>, external_fence_properties:
        Out<vk::ExternalFenceProperties<'_>>) -> ()
        = physical_device::external_fence(external_fence_info, external_fence_properties),
        vkGetPhysicalDeviceExternalFencePropertiesKHR in "VK_KHR_external_fence_capabilities";
    PhysicalDevice V1_1 vkGetPhysicalDeviceExternalSemaphoreProperties(physical_device: vk::PhysicalDevice,
        external_semaphore_info: In<vk::PhysicalDeviceExternalSemaphoreInfo<'_>>, external_semaphore_properties:
        Out<vk::ExternalSemaphoreProperties<'_>>) -> ()
        = physical_device::external_semaphore(external_semaphore_info, external_semaphore_properties),
        vkGetPhysicalDeviceExternalSemaphorePropertiesKHR in "VK_KHR_external_semaphore_capabilities";
    PhysicalDevice V1_3 vkGetPhysicalDeviceToolProperties(physical_device: vk::PhysicalDevice, tool_count: Out<u32>,
        tool_properties: OutList<vk::PhysicalDeviceToolProperties<'_>>) -> vk::Result
        = physical_device::tools(tool_count, tool_properties),
        vkGetPhysicalDeviceToolPropertiesEXT in "VK_EXT_tooling_info";
}
