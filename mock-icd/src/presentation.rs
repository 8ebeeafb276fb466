//! Surfaces that nobody sees, and swapchains on them. A swapchain's images are images like any others, in device memory that
//! the driver takes itself; who presents one gives it back as soon as what the presentation waits for has happened: there is
//! no display whose refresh it would wait for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ash::vk::{self, Handle};
use mock_device::Nanos;

use crate::boundary::{Chain, ChainOut, In, List, New, Out, OutList, Outcome, now};
use crate::enumerate::{enumerate, enumerate_begun};
use crate::image;
use crate::memory::{self, Memory};
use crate::queue::points;
use crate::state::{Child, STATE};
use crate::work::{Batch, Work};

pub struct Surface {
    pub instance: u64,
    /// A swapchain that is not retired presents to it.
    in_use: AtomicBool,
}

pub struct Swapchain {
    device: u64,
    surface: vk::SurfaceKHR,
    pub images: Vec<SwapchainImage>,
    places: Mutex<Vec<Place>>,
    /// Presented with which number (VK_KHR_present_id), and from when on it is.
    presented: Mutex<Vec<(u64, Nanos)>>,
    retired: AtomicBool,
}

pub struct SwapchainImage {
    pub handle: u64,
    pub memory: Arc<Memory>,
}

/// Where one of its images is.
#[derive(Clone, Copy)]
enum Place {
    /// To be acquired; whoever does may use it from then on.
    Available(Nanos),
    /// With the application, or with a presentation that waits for something without a time.
    Away,
}

impl Child for Swapchain {
    fn device(&self) -> u64 {
        self.device
    }
}

/// Images of a swapchain, whatever is asked for beyond.
const FEWEST: u32 = 2;
const MOST: u32 = 8;

const MODES: [vk::PresentModeKHR; 4] = [
    vk::PresentModeKHR::FIFO,
    vk::PresentModeKHR::FIFO_RELAXED,
    vk::PresentModeKHR::MAILBOX,
    vk::PresentModeKHR::IMMEDIATE,
];

const FORMATS: [vk::Format; 4] = [
    vk::Format::B8G8R8A8_UNORM,
    vk::Format::B8G8R8A8_SRGB,
    vk::Format::R8G8B8A8_UNORM,
    vk::Format::R8G8B8A8_SRGB,
];

fn capabilities() -> vk::SurfaceCapabilitiesKHR {
    let side = |side| vk::Extent2D {
        width: side,
        height: side,
    };
    vk::SurfaceCapabilitiesKHR {
        min_image_count: FEWEST,
        max_image_count: MOST,
        // Whatever the swapchain has.
        current_extent: side(u32::MAX),
        min_image_extent: side(1),
        max_image_extent: side(32_768),
        max_image_array_layers: 1,
        supported_transforms: vk::SurfaceTransformFlagsKHR::IDENTITY,
        current_transform: vk::SurfaceTransformFlagsKHR::IDENTITY,
        supported_composite_alpha: vk::CompositeAlphaFlagsKHR::OPAQUE,
        supported_usage_flags: vk::ImageUsageFlags::TRANSFER_SRC
            | vk::ImageUsageFlags::TRANSFER_DST
            | vk::ImageUsageFlags::SAMPLED
            | vk::ImageUsageFlags::STORAGE
            | vk::ImageUsageFlags::COLOR_ATTACHMENT
            | vk::ImageUsageFlags::INPUT_ATTACHMENT,
    }
}

fn formats() -> impl ExactSizeIterator<Item = vk::SurfaceFormatKHR> {
    FORMATS.into_iter().map(|format| vk::SurfaceFormatKHR {
        format,
        color_space: vk::ColorSpaceKHR::SRGB_NONLINEAR,
    })
}

/// A surface of VK_EXT_headless_surface.
pub fn create_headless(instance: vk::Instance, surface: New<vk::SurfaceKHR>) -> Outcome {
    STATE.instances.find(instance)?;
    surface.put(STATE.surfaces.insert(Surface {
        instance: instance.as_raw(),
        in_use: AtomicBool::new(false),
    }));
    Ok(())
}

pub fn destroy_surface(surface: vk::SurfaceKHR) -> Outcome {
    if surface.is_null() {
        return Ok(());
    }
    STATE.surfaces.remove(surface).map(drop)
}

/// Every family of queues presents.
pub fn support(
    physical: vk::PhysicalDevice,
    surface: vk::SurfaceKHR,
    supported: Out<vk::Bool32>,
) -> Outcome {
    STATE.physical_devices.find(physical)?;
    STATE.surfaces.find(surface)?;
    supported.put(vk::TRUE);
    Ok(())
}

pub fn surface_capabilities(
    surface: vk::SurfaceKHR,
    to: Out<vk::SurfaceCapabilitiesKHR>,
) -> Outcome {
    STATE.surfaces.find(surface)?;
    to.put(capabilities());
    Ok(())
}

pub fn surface_capabilities2(
    info: In<vk::PhysicalDeviceSurfaceInfo2KHR<'_>>,
    to: Out<vk::SurfaceCapabilities2KHR<'_>>,
) -> Outcome {
    let info = info.demand()?;
    STATE.surfaces.find(info.surface)?;
    let mode = Chain::of(info.p_next)
        .find::<vk::SurfacePresentModeEXT<'_>>()
        .map(|mode| mode.present_mode);
    to.edit(|to| {
        to.surface_capabilities = capabilities();
        let chain = ChainOut::of(to.p_next);
        chain.edit::<vk::SurfaceProtectedCapabilitiesKHR<'_>>(|protected| {
            protected.supports_protected = vk::FALSE;
        });
        // Nothing is scaled: a picture has the size of its swapchain.
        chain.edit::<vk::SurfacePresentScalingCapabilitiesEXT<'_>>(|scaling| {
            scaling.supported_present_scaling = vk::PresentScalingFlagsEXT::empty();
            scaling.supported_present_gravity_x = vk::PresentGravityFlagsEXT::empty();
            scaling.supported_present_gravity_y = vk::PresentGravityFlagsEXT::empty();
            scaling.min_scaled_image_extent = capabilities().min_image_extent;
            scaling.max_scaled_image_extent = capabilities().max_image_extent;
        });
        // Each mode goes with itself alone.
        chain.edit::<vk::SurfacePresentModeCompatibilityEXT<'_>>(|compatible| {
            let (modes, room) = (Vec::from_iter(mode), compatible.present_mode_count as usize);
            if !compatible.p_present_modes.is_null() {
                OutList::field(compatible.p_present_modes).put(modes.iter().copied().take(room));
            }
            compatible.present_mode_count = modes.len() as u32;
        });
    });
    Ok(())
}

pub fn surface_formats(
    surface: vk::SurfaceKHR,
    count: Out<u32>,
    list: OutList<vk::SurfaceFormatKHR>,
) -> Outcome {
    // Without a surface: VK_GOOGLE_surfaceless_query, which is not offered.
    STATE.surfaces.find(surface)?;
    enumerate(count, list, formats())
}

pub fn surface_formats2(
    info: In<vk::PhysicalDeviceSurfaceInfo2KHR<'_>>,
    count: Out<u32>,
    list: OutList<vk::SurfaceFormat2KHR<'_>>,
) -> Outcome {
    STATE.surfaces.find(info.demand()?.surface)?;
    let formats: Vec<_> = formats().collect();
    enumerate_begun(count, list, formats.len(), |index, to| {
        to.surface_format = formats[index];
    })
}

pub fn present_modes(
    surface: vk::SurfaceKHR,
    count: Out<u32>,
    list: OutList<vk::PresentModeKHR>,
) -> Outcome {
    STATE.surfaces.find(surface)?;
    enumerate(count, list, MODES.into_iter())
}

/// All of a surface, as large as it can be: it has no size of its own.
pub fn present_rectangles(
    surface: vk::SurfaceKHR,
    count: Out<u32>,
    list: OutList<vk::Rect2D>,
) -> Outcome {
    STATE.surfaces.find(surface)?;
    let all = vk::Rect2D {
        offset: vk::Offset2D::default(),
        extent: capabilities().max_image_extent,
    };
    enumerate(count, list, [all].into_iter())
}

/// Each device of a group presents its own images.
pub fn group_capabilities(
    device: vk::Device,
    to: Out<vk::DeviceGroupPresentCapabilitiesKHR<'_>>,
) -> Outcome {
    let members = STATE.devices.find(device)?.members.len();
    to.edit(|to| {
        to.present_mask = [0; vk::MAX_DEVICE_GROUP_SIZE];
        for (member, mask) in to.present_mask.iter_mut().enumerate().take(members) {
            *mask = 1 << member;
        }
        to.modes = vk::DeviceGroupPresentModeFlagsKHR::LOCAL;
    });
    Ok(())
}

pub fn group_modes(
    surface: vk::SurfaceKHR,
    modes: Out<vk::DeviceGroupPresentModeFlagsKHR>,
) -> Outcome {
    STATE.surfaces.find(surface)?;
    modes.put(vk::DeviceGroupPresentModeFlagsKHR::LOCAL);
    Ok(())
}

impl Swapchain {
    fn places(&self) -> MutexGuard<'_, Vec<Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn presented(&self) -> MutexGuard<'_, Vec<(u64, Nanos)>> {
        self.presented
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The image that is available first, and from when on.
    fn next(&self) -> Option<(usize, Nanos)> {
        let places = self.places();
        let available = places
            .iter()
            .enumerate()
            .filter_map(|(index, place)| match place {
                Place::Available(at) => Some((index, *at)),
                Place::Away => None,
            });
        available.min_by_key(|(_, at)| *at)
    }

    fn put(&self, index: usize, place: Place) {
        if let Some(at) = self.places().get_mut(index) {
            *at = place;
        }
    }

    /// From when on the picture of this number, or a later one, is presented.
    fn presented_at(&self, number: u64) -> Option<Nanos> {
        let presented = self.presented();
        let reached = presented.iter().filter(|(known, _)| *known >= number);
        reached.map(|(_, at)| *at).min()
    }

    /// Its images and their memory go.
    fn release(&self) {
        for image in &self.images {
            let _unknown = STATE.images.remove(vk::Image::from_raw(image.handle));
            memory::release(&image.memory);
        }
        if !self.retired.load(Ordering::Relaxed) {
            free(self.surface);
        }
    }
}

fn free(surface: vk::SurfaceKHR) {
    if let Ok(surface) = STATE.surfaces.find(surface) {
        surface.in_use.store(false, Ordering::Relaxed);
    }
}

/// # Errors
/// VK_ERROR_NATIVE_WINDOW_IN_USE_KHR where another swapchain presents to the surface; VK_ERROR_OUT_OF_DEVICE_MEMORY where the
/// images do not fit, and then none is made.
pub fn create(
    device: vk::Device,
    info: In<vk::SwapchainCreateInfoKHR<'_>>,
    swapchain: New<vk::SwapchainKHR>,
) -> Outcome {
    STATE.devices.find(device)?;
    let info = info.demand()?;
    let surface = STATE.surfaces.find(info.surface)?;
    // The old one is retired even where the new one cannot be made.
    if !info.old_swapchain.is_null() {
        let old = STATE.swapchains.find(info.old_swapchain)?;
        if !old.retired.swap(true, Ordering::Relaxed) {
            free(old.surface);
        }
    }
    if surface.in_use.swap(true, Ordering::Relaxed) {
        return Err(vk::Result::ERROR_NATIVE_WINDOW_IN_USE_KHR);
    }
    let mut made = Swapchain {
        device: device.as_raw(),
        surface: info.surface,
        images: Vec::new(),
        places: Mutex::default(),
        presented: Mutex::default(),
        retired: AtomicBool::new(false),
    };
    let mut flags = vk::ImageCreateFlags::empty();
    if info
        .flags
        .contains(vk::SwapchainCreateFlagsKHR::MUTABLE_FORMAT)
    {
        flags |= vk::ImageCreateFlags::MUTABLE_FORMAT | vk::ImageCreateFlags::EXTENDED_USAGE;
    }
    let image = vk::ImageCreateInfo::default()
        .flags(flags)
        .image_type(vk::ImageType::TYPE_2D)
        .format(info.image_format)
        .extent(info.image_extent.into())
        .mip_levels(1)
        .array_layers(info.image_array_layers)
        .samples(vk::SampleCountFlags::TYPE_1)
        .tiling(vk::ImageTiling::OPTIMAL)
        .usage(info.image_usage);
    for _ in 0..info.min_image_count.clamp(FEWEST, MOST) {
        match image::create_bound(device, &image) {
            Ok((handle, memory)) => made.images.push(SwapchainImage { handle, memory }),
            Err(error) => {
                made.release();
                return Err(error);
            }
        }
    }
    made.places = Mutex::new(vec![Place::Available(Nanos::ZERO); made.images.len()]);
    swapchain.put(STATE.swapchains.insert(made));
    Ok(())
}

pub fn destroy(swapchain: vk::SwapchainKHR) -> Outcome {
    if swapchain.is_null() {
        return Ok(());
    }
    STATE.swapchains.remove(swapchain)?.release();
    Ok(())
}

/// What a destroyed device leaves behind.
pub fn forget_of(device: u64) {
    for (_, swapchain) in STATE.swapchains.remove_of(device) {
        swapchain.release();
    }
}

pub fn images(swapchain: vk::SwapchainKHR, count: Out<u32>, list: OutList<vk::Image>) -> Outcome {
    let swapchain = STATE.swapchains.find(swapchain)?;
    let handles = swapchain.images.iter();
    enumerate(
        count,
        list,
        handles.map(|image| vk::Image::from_raw(image.handle)),
    )
}

/// # Errors
/// VK_ERROR_OUT_OF_DATE_KHR of a retired swapchain; VK_NOT_READY and VK_TIMEOUT while all images are away.
pub fn acquire(
    device: vk::Device,
    info: &vk::AcquireNextImageInfoKHR<'_>,
    index: Out<u32>,
) -> Outcome {
    let swapchain = STATE.swapchains.find(info.swapchain)?;
    let work: Arc<Work> = Arc::clone(&STATE.devices.find(device)?.work);
    if swapchain.retired.load(Ordering::Relaxed) {
        return Err(vk::Result::ERROR_OUT_OF_DATE_KHR);
    }
    let semaphore = match info.semaphore.is_null() {
        true => None,
        false => Some(STATE.semaphores.find(info.semaphore)?),
    };
    let fence = match info.fence.is_null() {
        true => None,
        false => Some(STATE.fences.find(info.fence)?),
    };
    // An image whose presentation has an end can be had before: the semaphore and the fence tell when.
    work.wait(info.timeout, false, || {
        swapchain.next().map(|_| Nanos::ZERO)
    })
    .map_err(|error| match (error, info.timeout) {
        (vk::Result::TIMEOUT, 0) => vk::Result::NOT_READY,
        _ => error,
    })?;
    let (next, at) = swapchain.next().ok_or(vk::Result::ERROR_UNKNOWN)?;
    swapchain.put(next, Place::Away);
    let at = at.max(now());
    work.change(|| {
        if let Some(semaphore) = semaphore {
            semaphore.signal(0, at);
        }
        if let Some(fence) = fence {
            fence.signal(at);
        }
    });
    index.put(next as u32);
    Ok(())
}

/// As [`acquire`].
pub fn acquire2(
    device: vk::Device,
    info: In<vk::AcquireNextImageInfoKHR<'_>>,
    index: Out<u32>,
) -> Outcome {
    acquire(device, info.demand()?, index)
}

/// Presents to nowhere: the images are available again when what the presentation waits for has happened.
pub fn present(queue: vk::Queue, info: In<vk::PresentInfoKHR<'_>>) -> Outcome {
    let queue = STATE.queues.find(queue)?;
    let info = info.demand()?;
    let count = info.swapchain_count as usize;
    let chain = Chain::of(info.p_next);
    let fences = chain
        .find::<vk::SwapchainPresentFenceInfoEXT<'_>>()
        .map(|fences| List::field(fences.p_fences).of(count).to_vec());
    let numbers = chain
        .find::<vk::PresentIdKHR<'_>>()
        .filter(|numbers| !numbers.p_present_ids.is_null())
        .map(|numbers| List::field(numbers.p_present_ids).of(count).to_vec());
    let mut batch = Batch {
        waits: points(info.p_wait_semaphores, info.wait_semaphore_count, &[])?,
        ..Batch::default()
    };
    let (swapchains, indices) = (
        List::field(info.p_swapchains),
        List::field(info.p_image_indices),
    );
    for (place, (swapchain, index)) in swapchains
        .of(count)
        .iter()
        .zip(indices.of(count))
        .enumerate()
    {
        let swapchain = STATE.swapchains.find(*swapchain)?;
        let index = *index as usize;
        let fence = fences.as_ref().map(|fences| fences[place]);
        let fence = match fence.filter(|fence| !fence.is_null()) {
            Some(fence) => Some(STATE.fences.find(fence)?),
            None => None,
        };
        // 0 stands for none.
        let number = numbers.as_ref().map_or(0, |numbers| numbers[place]);
        batch.ended.push(Box::new(move |end| {
            if number != 0 {
                swapchain.presented().push((number, end));
            }
            swapchain.put(index, Place::Available(end));
            if let Some(fence) = fence {
                fence.signal(end);
            }
        }));
    }
    queue.work.submit(queue.line, [batch]);
    if !info.p_results.is_null() {
        OutList::field(info.p_results).put((0..count).map(|_| vk::Result::SUCCESS));
    }
    Ok(())
}

/// # Errors
/// VK_TIMEOUT while no picture of this number, or a later one, is presented; VK_ERROR_OUT_OF_DATE_KHR of a retired swapchain.
pub fn wait_for_present(
    device: vk::Device,
    swapchain: vk::SwapchainKHR,
    number: u64,
    timeout: u64,
) -> Outcome {
    let swapchain = STATE.swapchains.find(swapchain)?;
    let work = Arc::clone(&STATE.devices.find(device)?.work);
    if swapchain.retired.load(Ordering::Relaxed) {
        return Err(vk::Result::ERROR_OUT_OF_DATE_KHR);
    }
    work.wait(timeout, false, || swapchain.presented_at(number))
}

/// Images that were acquired and are not to be presented.
pub fn release_images(info: In<vk::ReleaseSwapchainImagesInfoEXT<'_>>) -> Outcome {
    let info = info.demand()?;
    let swapchain = STATE.swapchains.find(info.swapchain)?;
    let indices = List::field(info.p_image_indices);
    for index in indices.of(info.image_index_count as usize) {
        swapchain.put(*index as usize, Place::Available(now()));
    }
    Ok(())
}
