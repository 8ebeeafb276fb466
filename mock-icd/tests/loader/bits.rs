//! Which commands the card's driver finds by which way (fixtures/oracle/vulkan-look-ups-580.txt), and which the mock does.

use std::ffi::{CString, c_char};

use ash::vk;
use ash::vk::Handle;

use crate::environment::isolated;
use crate::look_up::{Driver, LookUp};
use crate::oracle::Tally;

const TABLE: &str = include_str!("../../../fixtures/oracle/vulkan-look-ups-580.txt");

/// The way to vkGetDeviceProcAddr, and a device with these extensions, of an instance.
fn device(driver: &Driver, instance: u64, all: bool) -> (LookUp, u64) {
    let ask = |name| Driver::ask(driver.by_instance, instance, name);
    // SAFETY: the answers for these names are functions of these types; valid usage.
    unsafe {
        let enumerate = std::mem::transmute::<usize, vk::PFN_vkEnumeratePhysicalDevices>(ask(
            "vkEnumeratePhysicalDevices",
        ));
        let extensions = std::mem::transmute::<usize, vk::PFN_vkEnumerateDeviceExtensionProperties>(
            ask("vkEnumerateDeviceExtensionProperties"),
        );
        let create = std::mem::transmute::<usize, vk::PFN_vkCreateDevice>(ask("vkCreateDevice"));
        let (mut count, mut physical) = (1, vk::PhysicalDevice::null());
        let _ = enumerate(vk::Instance::from_raw(instance), &mut count, &mut physical);
        let mut count = 512;
        let mut found = vec![vk::ExtensionProperties::default(); 512];
        let _ = extensions(physical, std::ptr::null(), &mut count, found.as_mut_ptr());
        let names: Vec<*const c_char> = found[..count as usize]
            .iter()
            .filter(|extension| {
                all && extension.extension_name_as_c_str() != Ok(c"VK_EXT_buffer_device_address")
            })
            .map(|extension| extension.extension_name.as_ptr())
            .collect();
        let queues = [vk::DeviceQueueCreateInfo::default().queue_priorities(&[1.0])];
        let info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&names);
        let mut device = vk::Device::null();
        assert_eq!(
            create(physical, &info, std::ptr::null(), &mut device),
            vk::Result::SUCCESS
        );
        (
            std::mem::transmute::<usize, LookUp>(ask("vkGetDeviceProcAddr")),
            device.as_raw(),
        )
    }
}

#[test]
fn commands_are_found_by_the_ways_by_which_the_card_finds_them() {
    isolated(
        "bits::commands_are_found_by_the_ways_by_which_the_card_finds_them",
        "h200",
        || {
            let driver = Driver::open();
            let instance = |version: u32, names: &[&std::ffi::CStr]| {
                let names: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
                let application = vk::ApplicationInfo::default().api_version(version);
                let info = vk::InstanceCreateInfo::default()
                    .application_info(&application)
                    .enabled_extension_names(&names);
                driver.instance_of(&info)
            };
            let newest = vk::make_api_version(0, 1, 4, 0);
            let oldest = instance(vk::API_VERSION_1_0, &[]);
            let plain = instance(newest, &[]);
            let whole = instance(
                newest,
                &[
                    ash::khr::get_physical_device_properties2::NAME,
                    ash::khr::device_group_creation::NAME,
                    ash::khr::external_memory_capabilities::NAME,
                    ash::khr::external_semaphore_capabilities::NAME,
                    ash::khr::external_fence_capabilities::NAME,
                    ash::khr::surface::NAME,
                    ash::khr::get_surface_capabilities2::NAME,
                ],
            );
            let devices = [
                device(&driver, oldest, false),
                device(&driver, plain, false),
                device(&driver, whole, true),
            ];
            let ways = [
                (driver.by_instance, 0),
                (driver.by_instance, oldest),
                (driver.by_instance, plain),
                (driver.by_instance, whole),
                (driver.by_physical_device, whole),
                devices[0],
                devices[1],
                devices[2],
            ];
            let mut tally = Tally::of("look-ups");
            let mut left_out = Vec::new();
            for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
                let (recorded, names) = line.split_once(" | ").expect("bits and names");
                for name in names.split(' ') {
                    CString::new(name).expect("a name");
                    let answered: String = ways
                        .iter()
                        .map(|(way, handle)| {
                            char::from(b'0' + u8::from(Driver::ask(*way, *handle, name) != 0))
                        })
                        .collect();
                    if answered == "00000000" && recorded != answered {
                        left_out.push(name);
                        continue;
                    }
                    tally.row(|| name.to_owned(), recorded, &answered);
                }
            }
            println!(
                "{} commands of extensions that are not advertised: {}",
                left_out.len(),
                left_out.join(" ")
            );
            tally.end();
        },
    );
}
