//! Who a device says that it is.

use ash::vk;
use mock_device::{Api, DeviceIndex};

use crate::client::Client;
use crate::environment::{Environment, role};

/// deviceUUID by both structures and the PCI bus of every physical device.
fn identities(client: &Client) -> Vec<([u8; 16], u32)> {
    // SAFETY: a live instance.
    let devices =
        unsafe { client.instance.enumerate_physical_devices() }.expect("physical devices");
    let identity = |device: vk::PhysicalDevice| {
        let (mut id, mut whole, mut pci) = (
            vk::PhysicalDeviceIDProperties::default(),
            vk::PhysicalDeviceVulkan11Properties::default(),
            vk::PhysicalDevicePCIBusInfoPropertiesEXT::default(),
        );
        let mut properties = vk::PhysicalDeviceProperties2::default()
            .push_next(&mut id)
            .push_next(&mut whole)
            .push_next(&mut pci);
        // SAFETY: a live physical device and a proper chain.
        unsafe {
            client
                .instance
                .get_physical_device_properties2(device, &mut properties)
        };
        assert_eq!(id.device_uuid, whole.device_uuid);
        (id.device_uuid, pci.pci_bus)
    };
    devices.into_iter().map(identity).collect()
}

/// The client prints what it sees, the test compares with the world.
fn check(test: &str, machine: &str, faults: &str) -> Vec<[u8; 16]> {
    let environment = Environment::with_faults(machine, faults);
    let output = environment
        .role(test, "client")
        .output()
        .expect("the client");
    let text = String::from_utf8_lossy(&output.stdout);
    let seen: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("identity "))
        .collect();
    let count = u32::try_from(environment.world.devices().len()).unwrap();
    let expected: Vec<_> = (0..count)
        .map(|index| environment.world.identity(DeviceIndex(index), Api::Vulkan))
        .collect();
    let lines: Vec<String> = expected
        .iter()
        .map(|identity| format!("{:?} {}", identity.uuid, identity.pci.bus))
        .collect();
    assert_eq!(seen, lines, "{}", String::from_utf8_lossy(&output.stderr));
    expected.iter().map(|identity| identity.uuid).collect()
}

fn say() {
    let client = Client::new();
    println!();
    for (uuid, bus) in identities(&client) {
        println!("identity {uuid:?} {bus}");
    }
    client.destroy();
}

#[test]
fn the_container_profile_reports_a_zero_uuid() {
    const TEST: &str = "identity::the_container_profile_reports_a_zero_uuid";
    match role() {
        Some(_) => say(),
        None => assert_eq!(check(TEST, "rtx6000-ada", ""), [[0; 16]]),
    }
}

#[test]
fn a_duplicate_uuid_of_the_plan_is_shown() {
    const TEST: &str = "identity::a_duplicate_uuid_of_the_plan_is_shown";
    if role().is_some() {
        return say();
    }
    let bare = check(TEST, "h200x2", "");
    assert_ne!(bare[0], bare[1]);
    let faulty = check(
        TEST,
        "h200x2",
        "[[fault]]\nat = \"vulkan.identity\"\nthen = \"uuid:duplicate\"\n",
    );
    assert_eq!(faulty, [bare[0]; 2]);
}
