//! Device memory runs out as the card's does.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ash::vk;
use mock_device::{Bytes, DeviceIndex, World};

use crate::client::{Client, GIB};
use crate::environment::{Environment, isolated, role};

const FIRST: DeviceIndex = DeviceIndex(0);
const OUT_OF_MEMORY: vk::Result = vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;

#[test]
fn what_the_card_refuses_is_refused_and_the_out_param_left_alone() {
    isolated(
        "memory::what_the_card_refuses_is_refused_and_the_out_param_left_alone",
        "h200",
        || {
            let client = Client::new();
            let local = client.device_local();
            for size in [0, 1 << 50, 150_754_820_097, u64::MAX] {
                assert_eq!(
                    client.allocate_onto(0xdead, size, local),
                    (OUT_OF_MEMORY, 0xdead),
                    "{size}"
                );
            }
            client.free(vk::DeviceMemory::null());
            client.destroy();
        },
    );
}

#[test]
fn usage_grows_by_whole_granules_and_falls_back() {
    isolated(
        "memory::usage_grows_by_whole_granules_and_falls_back",
        "h200",
        || {
            let client = Client::new();
            let local = client.device_local();
            // Size asked for, growth of heapUsage: measured on the card.
            let rows = [
                (1, 65536),
                (4096, 65536),
                (65536, 65536),
                (1 << 20, 1 << 20),
                ((1 << 20) + 1, 1_114_112),
            ];
            for (size, growth) in rows {
                let before = client.heap_budget();
                let memory = client.allocate(size, local).expect("memory");
                let after = client.heap_budget();
                assert_eq!(after.1[0] - before.1[0], growth);
                assert_eq!(
                    after.0[0], before.0[0],
                    "own usage and what is left change together"
                );
                client.free(memory);
                assert_eq!(client.heap_budget(), before);
            }
            let (budget, usage) = client.heap_budget();
            assert!(
                budget[2..]
                    .iter()
                    .chain(&usage[2..])
                    .all(|entry| *entry == 0),
                "entries past the heaps"
            );
            client.destroy();
        },
    );
}

#[test]
fn a_host_heap_holds_its_size_and_takes_nothing_of_the_device() {
    isolated(
        "memory::a_host_heap_holds_its_size_and_takes_nothing_of_the_device",
        "h200",
        || {
            let client = Client::new();
            let host = client.memory_type(vk::MemoryPropertyFlags::HOST_VISIBLE, false);
            let before = client.heap_budget();
            let held = client.allocate(90 * GIB, host).expect("90 of 94 GiB");
            assert_eq!(client.allocate(10 * GIB, host), Err(OUT_OF_MEMORY));
            assert_eq!(client.heap_budget().0[0], before.0[0]);
            client.free(held);
            client.free(client.allocate(94 * GIB, host).expect("all of it"));
            client.destroy();
        },
    );
}

#[test]
fn what_a_device_left_behind_goes_with_its_instance() {
    isolated(
        "memory::what_a_device_left_behind_goes_with_its_instance",
        "rtx6000-ada",
        || {
            for _ in 0..3 {
                let client = Client::new();
                client
                    .allocate(40 * GIB, client.device_local())
                    .expect("40 of 45 GiB, each time");
                client.destroy_leaving(|| {
                    let path = std::env::var_os("RINGFENCE_WORLD").expect("a world");
                    let world = World::open(path.as_ref()).expect("the world");
                    assert_eq!(
                        world.used(DeviceIndex(0)),
                        Bytes(40 * GIB) + world.devices()[0].vulkan_instance_overhead,
                        "the card keeps it so long"
                    );
                });
            }
        },
    );
}

#[test]
fn memory_runs_out_across_processes_and_comes_back_with_a_death() {
    const TEST: &str = "memory::memory_runs_out_across_processes_and_comes_back_with_a_death";
    match role().as_deref() {
        Some("holder") => {
            let client = Client::new();
            client
                .allocate(30 * GIB, client.device_local())
                .expect("30 GiB");
            println!("\nheld");
            std::thread::sleep(Duration::from_secs(60));
        }
        Some("asker") => {
            let client = Client::new();
            let local = client.device_local();
            assert_eq!(client.allocate(20 * GIB, local), Err(OUT_OF_MEMORY));
            client.free(
                client
                    .allocate(10 * GIB, local)
                    .expect("what the other left"),
            );
            client.destroy();
        }
        _ => {
            let environment = Environment::new("rtx6000-ada");
            let mut holder = environment
                .role(TEST, "holder")
                .stdout(Stdio::piped())
                .spawn()
                .expect("the holder");
            let lines = BufReader::new(holder.stdout.take().expect("its output")).lines();
            assert!(
                lines.map_while(Result::ok).any(|line| line == "held"),
                "the holder got its memory"
            );
            let card = &environment.world.devices()[0];
            let overhead = card.vulkan_instance_overhead + card.vulkan_device_overhead;
            assert_eq!(environment.world.used(FIRST), Bytes::gib(30) + overhead);
            environment.run(TEST, "asker");
            holder.kill().expect("SIGKILL");
            holder.wait().expect("its end");
            let deadline = Instant::now() + Duration::from_secs(60);
            while environment.world.used(FIRST) != Bytes::ZERO {
                assert!(
                    Instant::now() < deadline,
                    "{} still used",
                    environment.world.used(FIRST)
                );
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

#[test]
fn a_fault_is_answered_where_the_plan_says() {
    const TEST: &str = "memory::a_fault_is_answered_where_the_plan_says";
    if role().is_some() {
        let client = Client::new();
        let local = client.device_local();
        let answers: Vec<_> = (0..3)
            .map(|_| {
                client
                    .allocate(GIB, local)
                    .map(|memory| client.free(memory))
            })
            .collect();
        assert_eq!(
            answers,
            [Ok(()), Err(vk::Result::ERROR_DEVICE_LOST), Ok(())]
        );
        client.destroy();
    } else {
        let faults = "[[fault]]\nat = \"vkAllocateMemory\"\nwhen = \"2\"\nthen = \"result:-4\"\n";
        let environment = Environment::with_faults("rtx6000-ada", faults);
        environment.run(TEST, "client");
        let trace = environment.trace();
        let answers: Vec<_> = trace
            .lines()
            .filter(|line| line.contains("\"vkAllocateMemory\""))
            .collect();
        assert!(
            answers[0].contains(
                r#""allocation_size":1073741824,"memory_type_index":1,"memory":"mem#1"}"#
            ),
            "{}",
            answers[0]
        );
        assert!(
            answers[1].contains(r#""memory":null},"answer":"VK_ERROR_DEVICE_LOST""#),
            "{}",
            answers[1]
        );
        assert_eq!(environment.world.used(FIRST), Bytes::ZERO);
    }
}

#[test]
fn a_process_dies_before_or_after_the_driver_acts() {
    const TEST: &str = "memory::a_process_dies_before_or_after_the_driver_acts";
    if role().is_some() {
        let client = Client::new();
        let _ = client.allocate(GIB, client.device_local());
        unreachable!("killed inside vkAllocateMemory");
    }
    for (effect, acted) in [("kill-before", false), ("kill-after", true)] {
        let faults = format!("[[fault]]\nat = \"vkAllocateMemory\"\nthen = \"{effect}\"\n");
        let environment = Environment::with_faults("rtx6000-ada", &faults);
        let status = environment
            .role(TEST, "client")
            .stdout(Stdio::null())
            .status()
            .expect("the client");
        assert_eq!(status.signal(), Some(libc::SIGKILL));
        let card = &environment.world.devices()[0];
        let overhead = card.vulkan_instance_overhead + card.vulkan_device_overhead;
        let held = if acted {
            Bytes::gib(1) + overhead
        } else {
            overhead
        };
        assert_eq!(environment.world.peak(FIRST), held, "{effect}");
    }
}
