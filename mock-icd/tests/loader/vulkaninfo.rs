//! Debian's vulkaninfo. Skipped, aloud, where it is not installed.

use std::path::Path;

use crate::environment::Environment;

fn run(environment: &Environment, arguments: &[&str]) -> Option<String> {
    if !Path::new("/usr/bin/vulkaninfo").exists() {
        crate::missing::skip("vulkaninfo is not installed (Debian: vulkan-tools)");
        return None;
    }
    let output = environment
        .command("/usr/bin/vulkaninfo")
        .args(arguments)
        .output()
        .expect("vulkaninfo starts");
    assert!(
        output.status.success(),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The line's value, where a line says `name = value`.
fn values<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines
        .filter(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
        .collect()
}

#[test]
fn summary_names_every_device_with_its_identity() {
    let environment = Environment::new("rtx6000-ada*2");
    let Some(text) = run(&environment, &["--summary"]) else {
        return;
    };
    assert_eq!(
        values(&text, "deviceName"),
        ["NVIDIA RTX 6000 Ada Generation"; 2]
    );
    assert_eq!(
        values(&text, "deviceUUID"),
        ["00000000-0000-0000-0000-000000000000"; 2]
    );
    assert_eq!(values(&text, "driverInfo"), ["580.142"; 2]);
}

#[test]
fn the_full_run_ends_well_and_shows_the_heaps_of_the_profile() {
    let environment = Environment::new("rtx6000-ada");
    let Some(text) = run(&environment, &[]) else {
        return;
    };
    let heap = "48305799168 (0xb3f400000) (44.99 GiB)";
    assert_eq!(values(&text, "size").first(), Some(&heap));
    assert_eq!(values(&text, "pciBus"), ["1"]);
    assert!(text.contains("MEMORY_HEAP_DEVICE_LOCAL_BIT"));
    assert!(
        text.lines()
            .any(|line| line.starts_with("VkPhysicalDeviceVulkan13Features"))
    );
    assert!(
        environment
            .trace()
            .contains(r#""entry":"vkGetPhysicalDeviceMemoryProperties2""#),
        "the trace has the calls"
    );
    assert_eq!(
        environment.world.used(mock_device::DeviceIndex(0)).0,
        0,
        "nothing stays taken"
    );
}

#[test]
fn another_profile_shows_its_own_uuid_and_heap() {
    let environment = Environment::new("h200");
    let Some(text) = run(&environment, &[]) else {
        return;
    };
    let first = |name| values(&text, name).first().copied().unwrap_or_default();
    assert!(
        first("size").starts_with("150754820096 "),
        "{}",
        first("size")
    );
    let expected = environment
        .world
        .identity(mock_device::DeviceIndex(0), mock_device::Api::Vulkan)
        .uuid;
    let expected: String = expected.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(first("deviceUUID").replace('-', ""), expected);
}
