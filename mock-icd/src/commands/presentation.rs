//! Commands of surfaces and swapchains.

use ash::vk;

use crate::boundary::{Allocator, In, New, Out, OutList};
use crate::commands::commands;
use crate::presentation;

commands! {
    Instance "VK_KHR_surface" vkDestroySurfaceKHR(instance: vk::Instance, surface: vk::SurfaceKHR, allocator: Allocator) -> ()
        = presentation::destroy_surface(surface);
    PhysicalDevice "VK_KHR_surface" vkGetPhysicalDeviceSurfaceSupportKHR(physical_device: vk::PhysicalDevice,
        queue_family_index: u32, surface: vk::SurfaceKHR, supported: Out<u32>) -> vk::Result
        = presentation::support(physical_device, surface, supported);
    PhysicalDevice "VK_KHR_surface" vkGetPhysicalDeviceSurfaceCapabilitiesKHR(physical_device: vk::PhysicalDevice,
        surface: vk::SurfaceKHR, surface_capabilities: Out<vk::SurfaceCapabilitiesKHR>) -> vk::Result
        = presentation::surface_capabilities(surface, surface_capabilities);
    PhysicalDevice "VK_KHR_surface" vkGetPhysicalDeviceSurfaceFormatsKHR(physical_device: vk::PhysicalDevice,
        surface: vk::SurfaceKHR, surface_format_count: Out<u32>, surface_formats: OutList<vk::SurfaceFormatKHR>)
        -> vk::Result
        = presentation::surface_formats(surface, surface_format_count, surface_formats);
    PhysicalDevice "VK_KHR_surface" vkGetPhysicalDeviceSurfacePresentModesKHR(physical_device: vk::PhysicalDevice,
        surface: vk::SurfaceKHR, present_mode_count: Out<u32>, present_modes: OutList<vk::PresentModeKHR>) -> vk::Result
        = presentation::present_modes(surface, present_mode_count, present_modes);
    PhysicalDevice "VK_KHR_get_surface_capabilities2" vkGetPhysicalDeviceSurfaceCapabilities2KHR(physical_device:
        vk::PhysicalDevice, surface_info: In<vk::PhysicalDeviceSurfaceInfo2KHR<'_>>, surface_capabilities:
        Out<vk::SurfaceCapabilities2KHR<'_>>) -> vk::Result
        = presentation::surface_capabilities2(surface_info, surface_capabilities);
    PhysicalDevice "VK_KHR_get_surface_capabilities2" vkGetPhysicalDeviceSurfaceFormats2KHR(physical_device:
        vk::PhysicalDevice, surface_info: In<vk::PhysicalDeviceSurfaceInfo2KHR<'_>>, surface_format_count: Out<u32>,
        surface_formats: OutList<vk::SurfaceFormat2KHR<'_>>) -> vk::Result
        = presentation::surface_formats2(surface_info, surface_format_count, surface_formats);
    Instance "VK_EXT_headless_surface" vkCreateHeadlessSurfaceEXT(instance: vk::Instance, create_info:
        In<vk::HeadlessSurfaceCreateInfoEXT<'_>>, allocator: Allocator, surface: New<vk::SurfaceKHR>) -> vk::Result
        = presentation::create_headless(instance, surface);
    Device "VK_KHR_swapchain" vkCreateSwapchainKHR(device: vk::Device, create_info:
        In<vk::SwapchainCreateInfoKHR<'_>>, allocator: Allocator, swapchain: New<vk::SwapchainKHR>) -> vk::Result
        = presentation::create(device, create_info, swapchain);
    Device "VK_KHR_swapchain" vkDestroySwapchainKHR(device: vk::Device, swapchain: vk::SwapchainKHR, allocator:
        Allocator) -> ()
        = presentation::destroy(swapchain);
    Device "VK_KHR_swapchain" vkGetSwapchainImagesKHR(device: vk::Device, swapchain: vk::SwapchainKHR,
        swapchain_image_count: Out<u32>, swapchain_images: OutList<vk::Image>) -> vk::Result
        = presentation::images(swapchain, swapchain_image_count, swapchain_images);
    Device "VK_KHR_swapchain" vkAcquireNextImageKHR(device: vk::Device, swapchain: vk::SwapchainKHR, timeout: u64,
        semaphore: vk::Semaphore, fence: vk::Fence, image_index: Out<u32>) -> vk::Result
        = presentation::acquire(device, &vk::AcquireNextImageInfoKHR { swapchain, timeout, semaphore, fence, ..Default::default() }, image_index);
    Device "VK_KHR_swapchain" vkQueuePresentKHR(queue: vk::Queue, present_info: In<vk::PresentInfoKHR<'_>>) -> vk::Result
        = presentation::present(queue, present_info);
    Device "VK_KHR_swapchain" vkGetDeviceGroupPresentCapabilitiesKHR(device: vk::Device,
        device_group_present_capabilities: Out<vk::DeviceGroupPresentCapabilitiesKHR<'_>>) -> vk::Result
        = presentation::group_capabilities(device, device_group_present_capabilities);
    Device "VK_KHR_swapchain" vkGetDeviceGroupSurfacePresentModesKHR(device: vk::Device, surface: vk::SurfaceKHR, modes:
        Out<vk::DeviceGroupPresentModeFlagsKHR>) -> vk::Result
        = presentation::group_modes(surface, modes);
    PhysicalDevice "VK_KHR_swapchain" vkGetPhysicalDevicePresentRectanglesKHR(physical_device: vk::PhysicalDevice,
        surface: vk::SurfaceKHR, rect_count: Out<u32>, rects: OutList<vk::Rect2D>) -> vk::Result
        = presentation::present_rectangles(surface, rect_count, rects);
    Device "VK_KHR_swapchain" vkAcquireNextImage2KHR(device: vk::Device, acquire_info:
        In<vk::AcquireNextImageInfoKHR<'_>>, image_index: Out<u32>) -> vk::Result
        = presentation::acquire2(device, acquire_info, image_index);
    Device "VK_KHR_present_wait" vkWaitForPresentKHR(device: vk::Device, swapchain: vk::SwapchainKHR, present_id: u64,
        timeout: u64) -> vk::Result
        = presentation::wait_for_present(device, swapchain, present_id, timeout);
    Device "VK_EXT_swapchain_maintenance1" vkReleaseSwapchainImagesEXT(device: vk::Device, release_info:
        In<vk::ReleaseSwapchainImagesInfoEXT<'_>>) -> vk::Result
        = presentation::release_images(release_info);
}
