//! Instances and the physical devices that each of them shows.

use ash::vk::{self, Handle};
use mock_device::{Api, DeviceIndex, DeviceProfile, World};

use crate::boundary::{In, List, New, Out, OutList, Outcome, Text, world};
use crate::enumerate::{enumerate, enumerate_begun};
use crate::state::STATE;
use crate::{extension, memory};

pub struct Instance {
    physical_devices: Vec<u64>,
    pub extensions: Vec<String>,
}

/// One device of the world as one instance shows it.
#[derive(Clone, Copy)]
pub struct PhysicalDevice {
    pub world: &'static World,
    pub index: DeviceIndex,
}

impl PhysicalDevice {
    pub fn profile(&self) -> &'static DeviceProfile {
        &self.world.devices()[self.index.as_usize()]
    }
}

/// The newest version whose every command and structure this mock answers. Profiles of newer drivers are shown as this.
const ANSWERED: u32 = vk::make_api_version(0, 1, 4, 312);

/// What VkPhysicalDeviceProperties::apiVersion says.
pub fn api_version(world: &World) -> u32 {
    let [major, minor, patch] = world.machine().driver.vulkan_api;
    vk::make_api_version(0, major, minor, patch).min(ANSWERED)
}

/// # Errors
/// VK_ERROR_INITIALIZATION_FAILED without a world, VK_ERROR_LAYER_NOT_PRESENT, VK_ERROR_EXTENSION_NOT_PRESENT.
pub fn create(info: In<vk::InstanceCreateInfo<'_>>, instance: New<vk::Instance>) -> Outcome {
    let info = info.demand()?;
    let world = world().ok_or(vk::Result::ERROR_INITIALIZATION_FAILED)?;
    if info.enabled_layer_count > 0 {
        return Err(vk::Result::ERROR_LAYER_NOT_PRESENT);
    }
    let extensions = enabled(
        info.pp_enabled_extension_names,
        info.enabled_extension_count,
        extension::is_of_instance,
    )?;
    let physical_devices = world
        .shown(Api::Vulkan)
        .into_iter()
        .map(|index| {
            STATE
                .physical_devices
                .insert(PhysicalDevice { world, index })
        })
        .collect();
    instance.put(STATE.instances.insert(Instance {
        physical_devices,
        extensions,
    }));
    Ok(())
}

/// The names that a create-info enables.
///
/// # Errors
/// VK_ERROR_EXTENSION_NOT_PRESENT for a name that is not `known`.
pub fn enabled(
    names: *const *const std::ffi::c_char,
    count: u32,
    known: fn(&str) -> bool,
) -> Result<Vec<String>, vk::Result> {
    List::field(names)
        .of(count as usize)
        .iter()
        .map(|name| {
            let name = Text::field(*name);
            let name = name
                .get()
                .filter(|name| known(name))
                .ok_or(vk::Result::ERROR_EXTENSION_NOT_PRESENT)?;
            Ok(name.to_owned())
        })
        .collect()
}

pub fn destroy(instance: vk::Instance) -> Outcome {
    let removed = STATE.instances.remove(instance)?;
    for physical_device in &removed.physical_devices {
        STATE.physical_devices.remove(*physical_device)?;
        memory::forget_left_behind(*physical_device);
    }
    Ok(())
}

pub fn enumerate_version(version: Out<u32>) -> Outcome {
    version.put(world().map_or(ANSWERED, api_version));
    Ok(())
}

pub fn enumerate_layers(count: Out<u32>, layers: OutList<vk::LayerProperties>) -> Outcome {
    enumerate(count, layers, std::iter::empty())
}

pub fn enumerate_devices(
    instance: vk::Instance,
    count: Out<u32>,
    devices: OutList<vk::PhysicalDevice>,
) -> Outcome {
    let instance = STATE.instances.find(instance)?;
    enumerate(
        count,
        devices,
        instance
            .physical_devices
            .iter()
            .map(|raw| vk::PhysicalDevice::from_raw(*raw)),
    )
}

/// Every device is a group by itself, as on hosts whose GPUs are not linked for graphics.
pub fn enumerate_groups(
    instance: vk::Instance,
    count: Out<u32>,
    groups: OutList<vk::PhysicalDeviceGroupProperties<'_>>,
) -> Outcome {
    let instance = STATE.instances.find(instance)?;
    enumerate_begun(
        count,
        groups,
        instance.physical_devices.len(),
        |index, group| {
            group.physical_device_count = 1;
            group.physical_devices = [vk::PhysicalDevice::null(); vk::MAX_DEVICE_GROUP_SIZE];
            group.physical_devices[0] =
                vk::PhysicalDevice::from_raw(instance.physical_devices[index]);
            group.subset_allocation = vk::FALSE;
        },
    )
}
