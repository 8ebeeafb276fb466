//! Presenting without a display: surfaces of VK_EXT_headless_surface and swapchains on them.

use super::{Arc, Code, Device, Instance, PhysicalDevice, vk};

/// A surface that nobody sees. It lives as long as its instance.
#[derive(Clone, Copy, Debug)]
pub struct Surface(vk::SurfaceKHR);

/// A swapchain, by its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swapchain(vk::SwapchainKHR);

impl Instance {
    /// A surface, of an instance of [`super::Client::Headless`].
    pub fn headless_surface(&self) -> Result<Surface, Code> {
        let create = ash::ext::headless_surface::Instance::new(&self.inner.entry, &self.inner.raw);
        let info = vk::HeadlessSurfaceCreateInfoEXT::default();
        // SAFETY: the instance lives and has the extension enabled.
        let surface = unsafe { create.create_headless_surface(&info, None) }?;
        self.inner.surfaces().push(surface);
        Ok(Surface(surface))
    }

    /// A device that presents.
    pub fn presenting_device(&self, physical: PhysicalDevice) -> Result<Device, Code> {
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(0)
            .queue_priorities(&[1.0])];
        let names = [ash::khr::swapchain::NAME.as_ptr()];
        let create = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&names);
        // SAFETY: the physical device is this instance's; every driver has queue family 0.
        let raw = unsafe { self.inner.raw.create_device(physical.0, &create, None) }?;
        Ok(Device::new(raw, Arc::clone(&self.inner)))
    }
}

impl Device {
    /// A swapchain of so many square images at least, of four bytes a texel. The device is a presenting one of `instance`.
    pub fn swapchain(
        &self,
        instance: &Instance,
        surface: Surface,
        (count, side): (u32, u32),
    ) -> Result<Swapchain, Code> {
        let asked = ash::khr::surface::Instance::new(&instance.inner.entry, &instance.inner.raw);
        let swapchains = ash::khr::swapchain::Device::new(&instance.inner.raw, &self.raw);
        let devices = instance.physical_devices()?;
        let info = vk::SwapchainCreateInfoKHR::default()
            .surface(surface.0)
            .min_image_count(count)
            .image_format(vk::Format::B8G8R8A8_UNORM)
            .image_color_space(vk::ColorSpaceKHR::SRGB_NONLINEAR)
            .image_extent(vk::Extent2D {
                width: side,
                height: side,
            })
            .image_array_layers(1)
            .image_usage(vk::ImageUsageFlags::COLOR_ATTACHMENT | vk::ImageUsageFlags::TRANSFER_DST)
            .image_sharing_mode(vk::SharingMode::EXCLUSIVE)
            .pre_transform(vk::SurfaceTransformFlagsKHR::IDENTITY)
            .composite_alpha(vk::CompositeAlphaFlagsKHR::OPAQUE)
            .present_mode(vk::PresentModeKHR::FIFO)
            .clipped(true);
        // SAFETY: surface and device live; what the surface can do is asked for before, as the specification wants it.
        unsafe {
            for device in devices {
                let all = asked.get_physical_device_surface_support(device.0, 0, surface.0)?;
                let _modes =
                    asked.get_physical_device_surface_present_modes(device.0, surface.0)?;
                let _formats = asked.get_physical_device_surface_formats(device.0, surface.0)?;
                let can = asked.get_physical_device_surface_capabilities(device.0, surface.0)?;
                if !all || can.max_image_extent.width < side {
                    return Err(vk::Result::ERROR_FORMAT_NOT_SUPPORTED.into());
                }
            }
            Ok(Swapchain(swapchains.create_swapchain(&info, None)?))
        }
    }

    pub fn destroy_swapchain(&self, instance: &Instance, swapchain: Swapchain) {
        let swapchains = ash::khr::swapchain::Device::new(&instance.inner.raw, &self.raw);
        // SAFETY: the swapchain is this device's and destroyed once.
        unsafe { swapchains.destroy_swapchain(swapchain.0, None) };
    }
}
