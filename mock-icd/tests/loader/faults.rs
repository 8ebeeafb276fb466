//! Every effect of the fault plan, through the real loader.

use std::time::{Duration, Instant};

use ash::vk;
use mock_device::{Bytes, DeviceIndex, Kind};

use crate::client::{Client, load};
use crate::environment::{Environment, role};

/// Runs `body` as a client of a world with this plan.
fn under(test: &str, machine: &str, plan: &str, body: fn()) {
    match role() {
        Some(_) => body(),
        None => Environment::with_faults(machine, plan).run(test, "client"),
    }
}

fn alloc(client: &Client, size: u64) -> vk::Result {
    client
        .allocate(size, client.device_local())
        .err()
        .unwrap_or(vk::Result::SUCCESS)
}

#[test]
fn a_result_or_an_untouched_success_does_nothing() {
    under(
        "faults::a_result_or_an_untouched_success_does_nothing",
        "tiny",
        r#"fault = [
            { at = "vulkan.alloc", when = "2", then = "result:-1" },
            { at = "vkAllocateMemory", when = "3", then = "untouched" },
        ]"#,
        || {
            let client = Client::new();
            assert_eq!(alloc(&client, 100), vk::Result::SUCCESS);
            let kind = client.device_local();
            let failed = client.allocate_onto(7, 100, kind);
            assert_eq!(failed, (vk::Result::ERROR_OUT_OF_HOST_MEMORY, 7));
            assert_eq!(client.allocate_onto(7, 100, kind), (vk::Result::SUCCESS, 7));
        },
    );
}

#[test]
fn after_so_many_bytes_every_allocation_fails_and_a_delay_delays() {
    under(
        "faults::after_so_many_bytes_every_allocation_fails_and_a_delay_delays",
        "tiny",
        r#"fault = [
            { at = "vulkan.alloc", when = "after:100MiB", then = "result:-2" },
            { at = "vulkan.alloc", then = "delay:30ms" },
        ]"#,
        || {
            let client = Client::new();
            let began = Instant::now();
            assert_eq!(alloc(&client, 100 << 20), vk::Result::SUCCESS);
            assert!(began.elapsed() >= Duration::from_millis(30));
            let refused = alloc(&client, 1);
            assert_eq!(refused, vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
        },
    );
}

#[test]
fn a_short_or_a_set_count_is_what_the_client_sees() {
    under(
        "faults::a_short_or_a_set_count_is_what_the_client_sees",
        "tiny*4",
        r#"fault = [
            { at = "vkGetPhysicalDeviceQueueFamilyProperties", then = "short:1" },
            { at = "vulkan.devices", then = "order:2,0" },
            { at = "vulkan.devices", then = "count:3" },
        ]"#,
        || {
            let client = Client::new();
            let mut count = 0;
            // SAFETY: a live physical device; NULL asks for the number alone.
            let devices = unsafe {
                (client
                    .instance
                    .fp_v1_0()
                    .get_physical_device_queue_family_properties)(
                    client.physical,
                    &mut count,
                    std::ptr::null_mut(),
                );
                client.instance.enumerate_physical_devices().unwrap()
            };
            assert_eq!((count, devices.len()), (1, 3));
        },
    );
}

#[test]
fn a_lost_device_says_so_where_the_specification_lets_it() {
    under(
        "faults::a_lost_device_says_so_where_the_specification_lets_it",
        "tiny",
        r#"fault = [{ at = "vkDeviceWaitIdle", when = "2", then = "lost" }]"#,
        || {
            let client = Client::new();
            let lost = vk::Result::ERROR_DEVICE_LOST;
            // SAFETY: a live device and queue; nothing is submitted.
            unsafe {
                assert_eq!(client.device.device_wait_idle(), Ok(()));
                assert_eq!(client.device.device_wait_idle(), Err(lost));
                assert_eq!(client.device.queue_wait_idle(client.queue), Err(lost));
                let submitted = client
                    .device
                    .queue_submit(client.queue, &[], vk::Fence::null());
                assert_eq!(submitted, Err(lost));
                let fence = client
                    .device
                    .create_fence(&vk::FenceCreateInfo::default(), None)
                    .expect("objects can be made and destroyed");
                assert_eq!(client.device.get_fence_status(fence), Err(lost));
                client.device.destroy_fence(fence, None);
            }
            client.destroy();
        },
    );
}

#[test]
fn a_driver_that_cannot_work_and_one_whose_devices_are_gone_show_none() {
    under(
        "faults::a_driver_that_cannot_work_and_one_whose_devices_are_gone_show_none",
        "tiny",
        r#"fault = [{ at = "vulkan.devices", then = "hidden" }]"#,
        || {
            let entry = load();
            // SAFETY: valid usage.
            let devices = unsafe {
                let instance = entry
                    .create_instance(&vk::InstanceCreateInfo::default(), None)
                    .expect("an instance");
                instance.enumerate_physical_devices()
            };
            assert!(devices.is_err() || devices == Ok(vec![]), "{devices:?}");
        },
    );
}

#[test]
fn a_kill_comes_before_or_after_the_act() {
    const TEST: &str = "faults::a_kill_comes_before_or_after_the_act";
    if role().is_some() {
        let client = Client::new();
        let _ = alloc(&client, 64 << 10);
        return;
    }
    for (then, left) in [("kill-before", 0), ("kill-after", 64 << 10)] {
        let plan = format!("[[fault]]\nat = \"vkAllocateMemory\"\nthen = \"{then}\"");
        let environment = Environment::with_faults("tiny", &plan);
        let mut child = environment.role(TEST, "client").spawn().expect("a client");
        let status = child.wait().expect("its end");
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(signal, Some(libc::SIGKILL), "{then}");
        // The teardown takes 70 ms.
        let holdings = environment.world.processes(DeviceIndex(0));
        let held: Bytes = holdings
            .iter()
            .map(|process| process.of(Kind::Vulkan))
            .sum();
        assert_eq!(held, Bytes(left), "{then}");
    }
}
