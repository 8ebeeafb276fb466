//! Swapchains on surfaces that nobody sees.

use ash::vk;

use super::client::{Client, code};
use crate::ffi::calls::Answer;
use crate::maker::Maker;

/// Beyond what any device takes.
const SIDES: u64 = 40_000;
/// Beyond what any surface has.
const IMAGES: u8 = 12;

pub fn create_swapchain(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    if !client.presents {
        return None;
    }
    let made = client.device(maker)?;
    let instance = made.instance;
    let at = client
        .devices
        .iter()
        .position(|one| one.instance == instance)?;
    let living = client.instances.get_mut(instance)?.as_mut()?;
    let side = (maker.size() % SIDES).max(1) as u32;
    let height = match maker.byte() {
        0..=127 => side,
        byte => u32::from(byte),
    };
    let headless = ash::ext::headless_surface::Instance::new(&client.entry, &living.instance);
    let create = vk::HeadlessSurfaceCreateInfoEXT::default();
    // SAFETY: a living instance that has the extension enabled.
    let surface = match unsafe { headless.create_headless_surface(&create, None) } {
        Ok(surface) => surface,
        Err(refused) => return Some((answer(refused), 0)),
    };
    living.surfaces.push(surface);
    let info = vk::SwapchainCreateInfoKHR::default()
        .surface(surface)
        .min_image_count((maker.byte() % IMAGES).into())
        .image_format(vk::Format::B8G8R8A8_UNORM)
        .image_color_space(vk::ColorSpaceKHR::SRGB_NONLINEAR)
        .image_extent(vk::Extent2D {
            width: side,
            height,
        })
        .image_array_layers(1)
        .image_usage(vk::ImageUsageFlags::COLOR_ATTACHMENT)
        .image_sharing_mode(vk::SharingMode::EXCLUSIVE)
        .pre_transform(vk::SurfaceTransformFlagsKHR::IDENTITY)
        .composite_alpha(vk::CompositeAlphaFlagsKHR::OPAQUE)
        .present_mode(vk::PresentModeKHR::FIFO);
    let made = &mut client.devices[at];
    let swapchains = ash::khr::swapchain::Device::new(&living.instance, &made.device);
    // SAFETY: a living device with the extension enabled, and a surface of its instance.
    Some(match unsafe { swapchains.create_swapchain(&info, None) } {
        Ok(swapchain) => {
            made.swapchains.push(swapchain);
            (answer(vk::Result::SUCCESS), 0)
        }
        Err(refused) => (answer(refused), 0),
    })
}

pub fn destroy_swapchain(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let nth = usize::from(maker.byte());
    let made = client.device(maker)?;
    let count = made.swapchains.len();
    if count == 0 {
        return None;
    }
    let swapchain = made.swapchains.swap_remove(nth % count);
    made.destroy_swapchain(swapchain);
    Some((answer(vk::Result::SUCCESS), 0))
}

fn answer(result: vk::Result) -> Answer {
    Answer {
        code: code(result),
        errno: None,
    }
}
