//! A program without a display that presents all the same, through the Khronos loader and under the validation layer.

use ash::vk;
use mock_device::{DeviceIndex, World};

use crate::client::{Client, GIB};
use crate::environment::isolated;
use crate::picture::{Picture, flat, silence};
use crate::transfer::Mapped;

const INSTANCE: [&std::ffi::CStr; 2] = [ash::khr::surface::NAME, ash::ext::headless_surface::NAME];
const SIDE: u32 = 256;
const FRAMES: u8 = 7;
const IMAGES: u32 = 3;

struct Screen {
    surfaces: ash::khr::surface::Instance,
    swapchains: ash::khr::swapchain::Device,
    surface: vk::SurfaceKHR,
}

impl Screen {
    fn new(client: &Client) -> Self {
        let headless = ash::ext::headless_surface::Instance::new(&client.entry, &client.instance);
        let info = vk::HeadlessSurfaceCreateInfoEXT::default();
        Self {
            surfaces: ash::khr::surface::Instance::new(&client.entry, &client.instance),
            swapchains: ash::khr::swapchain::Device::new(&client.instance, &client.device),
            // SAFETY: valid usage.
            surface: unsafe { headless.create_headless_surface(&info, None) }.expect("a surface"),
        }
    }

    fn info(&self, side: u32) -> vk::SwapchainCreateInfoKHR<'static> {
        vk::SwapchainCreateInfoKHR::default()
            .surface(self.surface)
            .min_image_count(IMAGES)
            .image_format(vk::Format::B8G8R8A8_UNORM)
            .image_color_space(vk::ColorSpaceKHR::SRGB_NONLINEAR)
            .image_extent(vk::Extent2D {
                width: side,
                height: side,
            })
            .image_array_layers(1)
            .image_usage(
                vk::ImageUsageFlags::COLOR_ATTACHMENT
                    | vk::ImageUsageFlags::TRANSFER_SRC
                    | vk::ImageUsageFlags::TRANSFER_DST,
            )
            .image_sharing_mode(vk::SharingMode::EXCLUSIVE)
            .pre_transform(vk::SurfaceTransformFlagsKHR::IDENTITY)
            .composite_alpha(vk::CompositeAlphaFlagsKHR::OPAQUE)
            .present_mode(vk::PresentModeKHR::FIFO)
            .clipped(true)
    }

    fn swapchain(
        &self,
        info: &vk::SwapchainCreateInfoKHR<'_>,
    ) -> Result<vk::SwapchainKHR, vk::Result> {
        // SAFETY: valid usage but for what the test means to be refused.
        unsafe { self.swapchains.create_swapchain(info, None) }
    }

    fn destroy(self) {
        // SAFETY: its swapchains are gone.
        unsafe { self.surfaces.destroy_surface(self.surface, None) };
    }
}

fn client(validated: bool) -> Client {
    Client::of(
        vk::API_VERSION_1_3,
        validated,
        &INSTANCE,
        &[ash::khr::swapchain::NAME],
    )
}

fn used() -> u64 {
    World::ambient().expect("the world").used(DeviceIndex(0)).0
}

/// Asks what the surface can do, draws frames into whichever image is next, presents each, and finds the last one's picture.
#[test]
fn frames_are_presented_to_nowhere() {
    isolated(
        "presentation::frames_are_presented_to_nowhere",
        "h200",
        || {
            let client = client(true);
            let screen = Screen::new(&client);
            let device = &client.device;
            // SAFETY: valid usage.
            unsafe {
                let (surfaces, physical) = (&screen.surfaces, client.physical);
                let can = surfaces.get_physical_device_surface_support(physical, 0, screen.surface);
                assert_eq!(can, Ok(true));
                let capabilities = surfaces
                    .get_physical_device_surface_capabilities(physical, screen.surface)
                    .expect("capabilities");
                assert!(capabilities.min_image_count <= IMAGES);
                let formats = surfaces
                    .get_physical_device_surface_formats(physical, screen.surface)
                    .expect("formats");
                assert!(
                    formats
                        .iter()
                        .any(|known| known.format == vk::Format::B8G8R8A8_UNORM)
                );
                let modes = surfaces
                    .get_physical_device_surface_present_modes(physical, screen.surface)
                    .expect("modes");
                assert!(modes.contains(&vk::PresentModeKHR::FIFO));
            }
            let swapchain = screen.swapchain(&screen.info(SIDE)).expect("a swapchain");
            // SAFETY: as above.
            let (images, semaphores) = unsafe {
                let images = screen
                    .swapchains
                    .get_swapchain_images(swapchain)
                    .expect("images");
                let info = vk::SemaphoreCreateInfo::default();
                let semaphores =
                    [(); 2].map(|()| device.create_semaphore(&info, None).expect("a semaphore"));
                (images, semaphores)
            };
            assert_eq!(images.len() as u32, IMAGES);
            let to = Mapped::new(&client, u64::from(SIDE * SIDE * 4));
            let mut shown = Vec::new();
            for frame in 0..FRAMES {
                // SAFETY: as above.
                let (index, suboptimal) = unsafe {
                    screen
                        .swapchains
                        .acquire_next_image(swapchain, u64::MAX, semaphores[0], vk::Fence::null())
                        .expect("an image")
                };
                assert!(!suboptimal);
                let picture = Picture::around(
                    images[index as usize],
                    flat(vk::Format::B8G8R8A8_UNORM, SIDE, SIDE),
                );
                let gray = vk::ClearColorValue {
                    float32: [f32::from(frame) / 255.0; 4],
                };
                let (pool, commands) = crate::transfer::record(&client, |commands| {
                    picture.ready(&client, commands);
                    let layout = vk::ImageLayout::TRANSFER_DST_OPTIMAL;
                    // SAFETY: as above.
                    unsafe {
                        device.cmd_clear_color_image(
                            commands,
                            picture.image,
                            layout,
                            &gray,
                            &[picture.range()],
                        );
                    }
                    picture.read(&client, commands);
                    let layout = vk::ImageLayout::TRANSFER_SRC_OPTIMAL;
                    // SAFETY: as above.
                    unsafe {
                        device.cmd_copy_image_to_buffer(
                            commands,
                            picture.image,
                            layout,
                            to.buffer,
                            &[picture.copy(0)],
                        );
                    }
                    picture.barrier(&client, commands, layout, vk::ImageLayout::PRESENT_SRC_KHR);
                });
                let (wait, stage) = ([semaphores[0]], [vk::PipelineStageFlags::ALL_COMMANDS]);
                let (signal, list) = ([semaphores[1]], [commands]);
                let submit = vk::SubmitInfo::default()
                    .wait_semaphores(&wait)
                    .wait_dst_stage_mask(&stage)
                    .command_buffers(&list)
                    .signal_semaphores(&signal);
                let (chains, indices) = ([swapchain], [index]);
                let present = vk::PresentInfoKHR::default()
                    .wait_semaphores(&signal)
                    .swapchains(&chains)
                    .image_indices(&indices);
                // SAFETY: as above; idle before the commands go.
                unsafe {
                    device
                        .queue_submit(client.queue, &[submit], vk::Fence::null())
                        .expect("submit");
                    assert_eq!(
                        screen.swapchains.queue_present(client.queue, &present),
                        Ok(false)
                    );
                    device.queue_wait_idle(client.queue).expect("idle");
                    device.destroy_command_pool(pool, None);
                }
                assert!(
                    to.bytes(&client).iter().all(|byte| *byte == frame),
                    "frame {frame}"
                );
                shown.push(index);
            }
            assert_eq!(shown[..3], [0, 1, 2], "each in its turn");
            // SAFETY: nothing is in use.
            unsafe {
                screen.swapchains.destroy_swapchain(swapchain, None);
                semaphores
                    .iter()
                    .for_each(|semaphore| device.destroy_semaphore(*semaphore, None));
            }
            to.destroy(&client);
            screen.destroy();
            silence(client);
        },
    );
}

/// A swapchain's images are device memory; where they do not fit, there is no swapchain. An old one makes room for a new one
/// on its surface, but its memory is its own until it is destroyed.
#[test]
fn the_images_of_a_swapchain_are_device_memory() {
    isolated(
        "presentation::the_images_of_a_swapchain_are_device_memory",
        "h200",
        || {
            let client = client(false);
            let screen = Screen::new(&client);
            let before = used();
            let first = screen.swapchain(&screen.info(2048)).expect("a swapchain");
            let taken = used() - before;
            assert_eq!(taken, u64::from(IMAGES) * 2048 * 2048 * 4);
            let second = screen.swapchain(&screen.info(64));
            assert_eq!(second, Err(vk::Result::ERROR_NATIVE_WINDOW_IN_USE_KHR));
            let second = screen
                .swapchain(&screen.info(2048).old_swapchain(first))
                .expect("a new one");
            assert_eq!(used() - before, 2 * taken);
            // SAFETY: valid usage.
            unsafe {
                let fence = client
                    .device
                    .create_fence(&vk::FenceCreateInfo::default(), None)
                    .expect("a fence");
                let none = vk::Semaphore::null();
                let late = screen.swapchains.acquire_next_image(first, 0, none, fence);
                assert_eq!(late, Err(vk::Result::ERROR_OUT_OF_DATE_KHR));
                for _ in 0..IMAGES {
                    screen
                        .swapchains
                        .acquire_next_image(second, 0, none, fence)
                        .expect("an image");
                    client
                        .device
                        .wait_for_fences(&[fence], true, u64::MAX)
                        .expect("the image");
                    client.device.reset_fences(&[fence]).expect("a fence");
                }
                let beyond = screen.swapchains.acquire_next_image(second, 0, none, fence);
                assert_eq!(beyond, Err(vk::Result::NOT_READY));
                let beyond = screen
                    .swapchains
                    .acquire_next_image(second, 1_000_000, none, fence);
                assert_eq!(beyond, Err(vk::Result::TIMEOUT));
                client.device.destroy_fence(fence, None);
                screen.swapchains.destroy_swapchain(first, None);
                screen.swapchains.destroy_swapchain(second, None);
            }
            assert_eq!(used(), before);
            let mut held = Vec::new();
            while let Ok(memory) = client.allocate(GIB, client.device_local()) {
                held.push(memory);
            }
            let full = used();
            let refused = screen.swapchain(&screen.info(16384));
            assert_eq!(refused, Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY));
            assert_eq!(used(), full, "a part of a swapchain stays");
            held.into_iter().for_each(|memory| client.free(memory));
            let third = screen
                .swapchain(&screen.info(64))
                .expect("the surface is free");
            // SAFETY: not in use.
            unsafe { screen.swapchains.destroy_swapchain(third, None) };
            screen.destroy();
            client.destroy();
        },
    );
}
