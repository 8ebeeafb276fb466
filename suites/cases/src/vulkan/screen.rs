//! Device memory that a driver takes for what is presented.

use harness::{Bytes, Failure, Session, cases, fail, skip};

use crate::clients::{Gpu, first_gpu, memory_type};
use crate::ffi::vulkan::{Client, Code, Place, Surface, Swapchain, Vulkan};
use crate::greed::{VULKAN_ROOM, budget, fills};

/// Three images of 1 GiB each.
const IMAGES: (u32, u32) = (3, 16_384);
const ALL: Bytes = Bytes::gib(3);

struct Screens {
    gpu: Gpu,
    surfaces: [Surface; 2],
}

impl Screens {
    fn open(session: &Session) -> Result<Screens, Failure> {
        let instance = match Vulkan::open()?.instance(Client::Headless) {
            Err(code) if session.is_real() => skip!("no headless surface: {code:?}"),
            instance => instance?,
        };
        let physical = first_gpu(&instance)?;
        Ok(Screens {
            surfaces: [instance.headless_surface()?, instance.headless_surface()?],
            gpu: Gpu {
                device: instance.presenting_device(physical)?,
                physical,
                memory_type: memory_type(&instance, physical, Place::Device)?,
                instance,
            },
        })
    }

    fn swapchain(&self, surface: usize) -> Result<Swapchain, Code> {
        let (device, instance) = (&self.gpu.device, &self.gpu.instance);
        device.swapchain(instance, self.surfaces[surface], IMAGES)
    }

    fn destroy(&self, swapchain: Swapchain) {
        self.gpu
            .device
            .destroy_swapchain(&self.gpu.instance, swapchain);
    }
}

cases! {
    /// The images of a swapchain, which the driver takes by itself, are charged: a second one that does not fit is refused, what is allocated
    /// beside the first ends at the budget, and destroyed it gives all of it back.
    swapchain_images_are_charged {
        kind: Budget, defects: ["K4", "V17"], entry_points: ["vkCreateSwapchainKHR", "vkDestroySwapchainKHR", "vkAllocateMemory"], budget: "0=4GiB",
    } (session) {
        let screens = Screens::open(session)?;
        let first = screens.swapchain(0)?;
        for _ in 0..2 {
            match screens.swapchain(1) {
                Err(Code::OUT_OF_DEVICE_MEMORY) => {}
                answered => fail!("3 GiB of images beside 3 under 4 were answered {answered:?}"),
            }
        }
        let taken = screens.gpu.fill();
        taken.refused_with(Code::OUT_OF_DEVICE_MEMORY)?;
        fills(taken.bytes + ALL, budget(session, 0)?, VULKAN_ROOM)?;
        taken.held.into_iter().for_each(|memory| screens.gpu.device.free(memory));
        screens.destroy(first);
        let second = screens.swapchain(1)?;
        screens.destroy(second);
        let taken = screens.gpu.fill();
        fills(taken.bytes, budget(session, 0)?, VULKAN_ROOM)
    }
}
