//! What the device can do, who it is and what its properties are: as recorded, with identity from the world, whose faults
//! show here (V1, V2), and with the profile's own facts.

use ash::vk;
use mock_device::Api;

use crate::boundary::{ChainOut, Out, OutList, Outcome, Vulkan14Properties};
use crate::extension::put_text;
use crate::instance::{PhysicalDevice, api_version};
use crate::recorded;
use crate::state::STATE;

/// Changes when a cache made by an older build of this mock would be misread.
pub const CACHE_UUID: [u8; vk::UUID_SIZE] = *b"ringfence-mock-2";

pub fn features(features: Out<vk::PhysicalDeviceFeatures>) {
    let mut all = vk::PhysicalDeviceFeatures2::default();
    ChainOut::of((&raw mut all).cast()).fill(recorded::features());
    features.put(all.features);
}

pub fn features2(features: Out<vk::PhysicalDeviceFeatures2<'_>>) {
    features.chain().fill(recorded::features());
}

pub fn properties(
    physical: vk::PhysicalDevice,
    properties: Out<vk::PhysicalDeviceProperties>,
) -> Outcome {
    let physical = *STATE.physical_devices.find(physical)?;
    let mut all = vk::PhysicalDeviceProperties2::default();
    ChainOut::of((&raw mut all).cast()).fill(recorded::properties());
    identify(physical, &mut all.properties);
    properties.put(all.properties);
    Ok(())
}

pub fn properties2(
    physical: vk::PhysicalDevice,
    properties: Out<vk::PhysicalDeviceProperties2<'_>>,
) -> Outcome {
    let physical = *STATE.physical_devices.find(physical)?;
    let chain = properties.chain();
    let room = room_for_layouts(chain);
    chain.fill(recorded::properties());
    properties.edit(|properties| identify(physical, &mut properties.properties));
    identify_chain(physical, chain);
    put_layouts(chain, &room);
    Ok(())
}

fn identify(physical: PhysicalDevice, properties: &mut vk::PhysicalDeviceProperties) {
    let profile = physical.profile();
    properties.api_version = api_version(physical.world);
    properties.driver_version = physical.world.machine().driver.vulkan_version;
    properties.device_id = profile.pci_device_id;
    properties.pipeline_cache_uuid = CACHE_UUID;
    put_text(&mut properties.device_name, &profile.name);
}

fn identify_chain(physical: PhysicalDevice, chain: ChainOut) {
    let identity = physical.world.identity(physical.index, Api::Vulkan);
    let driver = &physical.world.machine().driver;
    chain.edit::<vk::PhysicalDeviceIDProperties<'_>>(|id| {
        id.device_uuid = identity.uuid;
        id.driver_uuid = driver.vulkan_driver_uuid.0;
    });
    chain.edit::<vk::PhysicalDeviceVulkan11Properties<'_>>(|id| {
        id.device_uuid = identity.uuid;
        id.driver_uuid = driver.vulkan_driver_uuid.0;
    });
    chain.edit::<vk::PhysicalDeviceDriverProperties<'_>>(|named| {
        put_text(&mut named.driver_info, &driver.version);
    });
    chain.edit::<vk::PhysicalDeviceVulkan12Properties<'_>>(|named| {
        put_text(&mut named.driver_info, &driver.version);
    });
    chain.edit::<vk::PhysicalDevicePCIBusInfoPropertiesEXT<'_>>(|pci| {
        pci.pci_domain = identity.pci.domain;
        pci.pci_bus = identity.pci.bus;
        pci.pci_device = identity.pci.device;
        pci.pci_function = identity.pci.function;
    });
}

/// The layouts that host image copies take: as many as the card names.
const LAYOUTS: [vk::ImageLayout; 18] = [
    vk::ImageLayout::GENERAL,
    vk::ImageLayout::COLOR_ATTACHMENT_OPTIMAL,
    vk::ImageLayout::DEPTH_STENCIL_ATTACHMENT_OPTIMAL,
    vk::ImageLayout::DEPTH_STENCIL_READ_ONLY_OPTIMAL,
    vk::ImageLayout::SHADER_READ_ONLY_OPTIMAL,
    vk::ImageLayout::TRANSFER_SRC_OPTIMAL,
    vk::ImageLayout::TRANSFER_DST_OPTIMAL,
    vk::ImageLayout::PREINITIALIZED,
    vk::ImageLayout::DEPTH_READ_ONLY_STENCIL_ATTACHMENT_OPTIMAL,
    vk::ImageLayout::DEPTH_ATTACHMENT_STENCIL_READ_ONLY_OPTIMAL,
    vk::ImageLayout::DEPTH_ATTACHMENT_OPTIMAL,
    vk::ImageLayout::DEPTH_READ_ONLY_OPTIMAL,
    vk::ImageLayout::STENCIL_ATTACHMENT_OPTIMAL,
    vk::ImageLayout::STENCIL_READ_ONLY_OPTIMAL,
    vk::ImageLayout::READ_ONLY_OPTIMAL,
    vk::ImageLayout::ATTACHMENT_OPTIMAL,
    vk::ImageLayout::RENDERING_LOCAL_READ_KHR,
    vk::ImageLayout::ATTACHMENT_FEEDBACK_LOOP_OPTIMAL_EXT,
];

/// The arrays for layouts that a chain brings, with how many each has room for.
fn room_for_layouts(chain: ChainOut) -> Vec<(OutList<vk::ImageLayout>, u32)> {
    let mut room = Vec::new();
    chain.edit::<vk::PhysicalDeviceHostImageCopyPropertiesEXT<'_>>(|copy| {
        room.push((
            OutList::field(copy.p_copy_src_layouts),
            copy.copy_src_layout_count,
        ));
        room.push((
            OutList::field(copy.p_copy_dst_layouts),
            copy.copy_dst_layout_count,
        ));
    });
    chain.edit::<Vulkan14Properties>(|copy| {
        room.push((
            OutList::field(copy.p_copy_src_layouts),
            copy.copy_src_layout_count,
        ));
        room.push((
            OutList::field(copy.p_copy_dst_layouts),
            copy.copy_dst_layout_count,
        ));
    });
    room
}

/// Where the application gave arrays, they are filled, and the counts say how far.
fn put_layouts(chain: ChainOut, room: &[(OutList<vk::ImageLayout>, u32)]) {
    for (list, room) in room.iter().filter(|(list, _)| !list.is_null()) {
        list.put(LAYOUTS.into_iter().take(*room as usize));
    }
    let put = |list: *mut vk::ImageLayout, count: &mut u32| {
        let same = |given: &&(OutList<vk::ImageLayout>, u32)| given.0.is(list);
        if let Some((_, room)) = room.iter().find(same).filter(|(list, _)| !list.is_null()) {
            *count = (*count).min(*room);
        }
    };
    chain.edit::<vk::PhysicalDeviceHostImageCopyPropertiesEXT<'_>>(|copy| {
        put(copy.p_copy_src_layouts, &mut copy.copy_src_layout_count);
        put(copy.p_copy_dst_layouts, &mut copy.copy_dst_layout_count);
    });
    chain.edit::<Vulkan14Properties>(|copy| {
        put(copy.p_copy_src_layouts, &mut copy.copy_src_layout_count);
        put(copy.p_copy_dst_layouts, &mut copy.copy_dst_layout_count);
    });
}
