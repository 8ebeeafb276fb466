//! Instances and the physical devices that each of them shows.

use std::sync::{Mutex, MutexGuard, PoisonError};

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
/// VK_ERROR_INITIALIZATION_FAILED without a world or beyond the driver's number of instances, which the loader tells as
/// VK_ERROR_INCOMPATIBLE_DRIVER; VK_ERROR_EXTENSION_NOT_PRESENT.
pub fn create(info: In<vk::InstanceCreateInfo<'_>>, instance: New<vk::Instance>) -> Outcome {
    let info = info.demand()?;
    let world = world().ok_or(vk::Result::ERROR_INITIALIZATION_FAILED)?;
    // Layers are the loader's affair: a driver passes over their names, as the card's does.
    let most = world.machine().driver.vulkan_instances;
    if most.is_some_and(|most| STATE.instances.count() >= most as usize) {
        return Err(vk::Result::ERROR_INITIALIZATION_FAILED);
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
    Standing::begin(world)?;
    instance.put(STATE.instances.insert(Instance {
        physical_devices,
        extensions,
    }));
    Ok(())
}

/// What this process's instances hold together on every device that they show: taken by the first, given back by the last.
struct Standing {
    /// A fork child's instances are its parent's.
    pid: u32,
    instances: usize,
    devices: Vec<DeviceIndex>,
}

static STANDING: Mutex<Standing> = Mutex::new(Standing {
    pid: 0,
    instances: 0,
    devices: Vec::new(),
});

impl Standing {
    fn own() -> MutexGuard<'static, Self> {
        let mut standing = STANDING.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = std::process::id();
        if standing.pid != pid {
            *standing = Self {
                pid,
                instances: 0,
                devices: Vec::new(),
            };
        }
        standing
    }

    /// Takes what a first instance takes, everywhere or nowhere.
    fn begin(world: &World) -> Outcome {
        let mut standing = Self::own();
        if standing.instances == 0 {
            for device in world.shown(Api::Vulkan) {
                let own = world.devices()[device.as_usize()].vulkan_instance();
                if world.take_own(device, own).is_err() {
                    standing.give_back(world);
                    return Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
                }
                standing.devices.push(device);
            }
        }
        standing.instances += 1;
        Ok(())
    }

    fn end(world: &World) {
        let mut standing = Self::own();
        standing.instances = standing.instances.saturating_sub(1);
        if standing.instances == 0 {
            standing.give_back(world);
        }
    }

    fn give_back(&mut self, world: &World) {
        for device in self.devices.drain(..) {
            let own = world.devices()[device.as_usize()].vulkan_instance();
            world.give_back_own(device, own);
        }
    }
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
    let handle = instance.as_raw();
    STATE
        .surfaces
        .remove_where(|surface| surface.instance == handle);
    if let Some(world) = world() {
        Standing::end(world);
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

/// The groups of the profile; every other device is one by itself.
fn groups(world: &World, devices: usize) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut grouped = vec![false; devices];
    for group in &world.machine().driver.vulkan_groups {
        let members = group.iter().map(|member| *member as usize);
        let members: Vec<usize> = members
            .filter(|member| *member < devices && !std::mem::replace(&mut grouped[*member], true))
            .take(vk::MAX_DEVICE_GROUP_SIZE)
            .collect();
        if !members.is_empty() {
            groups.push(members);
        }
    }
    groups.extend(
        (0..devices)
            .filter(|device| !grouped[*device])
            .map(|device| vec![device]),
    );
    groups.sort();
    groups
}

impl PhysicalDevice {
    /// Whether it is one of several that can be one logical device.
    pub fn is_grouped(&self) -> bool {
        let shown = self.world.shown(Api::Vulkan);
        let place = shown.iter().position(|index| *index == self.index);
        groups(self.world, shown.len())
            .iter()
            .any(|group| group.len() > 1 && place.is_some_and(|place| group.contains(&place)))
    }
}

pub fn enumerate_groups(
    instance: vk::Instance,
    count: Out<u32>,
    list: OutList<vk::PhysicalDeviceGroupProperties<'_>>,
) -> Outcome {
    let instance = STATE.instances.find(instance)?;
    let devices = &instance.physical_devices;
    let world = world().ok_or(vk::Result::ERROR_INITIALIZATION_FAILED)?;
    let groups = groups(world, devices.len());
    enumerate_begun(count, list, groups.len(), |index, group| {
        let members = &groups[index];
        group.physical_device_count = u32::try_from(members.len()).unwrap_or(0);
        group.physical_devices = [vk::PhysicalDevice::null(); vk::MAX_DEVICE_GROUP_SIZE];
        for (to, member) in group.physical_devices.iter_mut().zip(members) {
            *to = vk::PhysicalDevice::from_raw(devices[*member]);
        }
        // One device's instance can be allocated alone, where there are several.
        group.subset_allocation = (members.len() > 1).into();
    })
}
