//! Lists: extensions, physical devices and their groups.

use ash::vk;

use super::client::{Client, code};
use crate::ffi::calls::Answer;
use crate::maker::Maker;

/// Room for so many, of which the caller says how many there are.
const PROPERTIES: usize = 16;

pub fn instance_extensions(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let mut count = u32::from(maker.byte()) % PROPERTIES as u32;
    let mut list = [vk::ExtensionProperties::default(); PROPERTIES];
    let place = if maker.byte() < 64 {
        std::ptr::null_mut()
    } else {
        list.as_mut_ptr()
    };
    let function = client
        .entry
        .fp_v1_0()
        .enumerate_instance_extension_properties;
    // SAFETY: no more than the list has is written.
    let code = code(unsafe { function(std::ptr::null(), &mut count, place) });
    Some((Answer { code, errno: None }, u64::from(count)))
}

pub fn device_extensions(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let mut count = u32::from(maker.byte()) % PROPERTIES as u32;
    let mut list = [vk::ExtensionProperties::default(); PROPERTIES];
    let place = if maker.byte() < 64 {
        std::ptr::null_mut()
    } else {
        list.as_mut_ptr()
    };
    let nth = usize::from(maker.byte());
    let living = client.instance(maker)?;
    let physical = *living.physical.get(nth % living.physical.len().max(1))?;
    let function = living
        .instance
        .fp_v1_0()
        .enumerate_device_extension_properties;
    // SAFETY: a physical device of a living instance; no more than the list has is written.
    let code = code(unsafe { function(physical, std::ptr::null(), &mut count, place) });
    Some((Answer { code, errno: None }, u64::from(count)))
}

pub fn physical_devices(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let mut count = u32::from(maker.byte()) % 8;
    let mut list = [vk::PhysicalDevice::null(); 8];
    let place = if maker.byte() < 64 {
        std::ptr::null_mut()
    } else {
        list.as_mut_ptr()
    };
    let living = client.instance(maker)?;
    let function = living.instance.fp_v1_0().enumerate_physical_devices;
    // SAFETY: a living instance; no more than the list has is written.
    let code = code(unsafe { function(living.instance.handle(), &mut count, place) });
    Some((Answer { code, errno: None }, u64::from(count)))
}

pub fn groups(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let mut count = u32::from(maker.byte()) % 8;
    let mut list = [vk::PhysicalDeviceGroupProperties::default(); 8];
    let place = if maker.byte() < 64 {
        std::ptr::null_mut()
    } else {
        list.as_mut_ptr()
    };
    let by_alias = maker.byte() & 1 != 0;
    let living = client.instance(maker)?;
    let function = match by_alias {
        true => living.groups.fp().enumerate_physical_device_groups_khr,
        false => living.instance.fp_v1_1().enumerate_physical_device_groups,
    };
    // SAFETY: a living instance; no more than the list has is written.
    let code = code(unsafe { function(living.instance.handle(), &mut count, place) });
    Some((Answer { code, errno: None }, u64::from(count)))
}
