//! The layer where it lives: between the Khronos loader and a driver, found by its manifest (defects V1, V6, V7, V9, decisions 27, 28).

#[path = "ffi/alone.rs"]
mod alone;
#[path = "ffi/client.rs"]
mod client;
#[path = "ffi/driver.rs"]
#[expect(dead_code, reason = "only the library's place is asked for here")]
mod driver;

use std::path::PathBuf;

use alone::alone;
use ash::vk;
use budget::DeviceIndex;
use client::{Driver, Environment};

const LAYER: &str = "libvgpu_vk.so";
const GIB: u64 = 1 << 30;
const BUDGET: u64 = 23_552 << 20;
const OUT_OF_DEVICE_MEMORY: Result<vk::DeviceMemory, vk::Result> =
    Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);

/// Runs the calling test by itself over a driver; goes on in that process only.
macro_rules! over {
    ($test:ident, $driver:expr, $($variable:literal = $value:literal),*) => {
        if std::env::var_os("RINGFENCE_LAYER_TEST").is_none() {
            let Some(environment) = Environment::new(&$driver, &[$(($variable, $value)),*]) else { return };
            let variables: Vec<_> = environment.variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert!(alone(stringify!($test), &variables).is_some());
            assert!(environment.place.path().exists());
            return;
        }
    };
}

fn ledger() -> PathBuf {
    PathBuf::from(std::env::var_os("RINGFENCE_LEDGER").expect("set by `over`"))
}

fn usage() -> u64 {
    ledger::View::open(&ledger())
        .expect("the layer made the ledger")
        .usage(DeviceIndex(0))
        .0
}

#[test]
fn a_vulkan_tenant_gets_its_budget_and_no_more_whatever_its_api_version() {
    over!(
        a_vulkan_tenant_gets_its_budget_and_no_more_whatever_its_api_version,
        Driver::Mock,
        "HAMI_VULKAN_ENABLE" = "1",
        "CUDA_DEVICE_MEMORY_LIMIT_0" = "23552m"
    );
    let entry = client::entry();
    for version in [
        vk::API_VERSION_1_0,
        vk::API_VERSION_1_1,
        vk::API_VERSION_1_3,
    ] {
        let instance = client::instance(&entry, version, &[]);
        assert!(client::is_mapped(LAYER));
        let gpu = client::gpu(&instance);
        let memory = client::memory(&instance, gpu);
        assert_eq!(client::local_heap(&memory), BUDGET);
        let device = client::device(&instance, gpu);
        let own = usage();
        assert!(own > 0, "a device's own memory is charged");
        for (size, granted) in [(20, true), (22, true), (25, false), (30, false)] {
            let memory = client::allocate(&device, &memory, size * GIB);
            assert_eq!(memory.is_ok(), granted, "{size} GiB: {memory:?}");
            match memory {
                Ok(memory) => client::free(&device, memory),
                refused => assert_eq!(refused, OUT_OF_DEVICE_MEMORY),
            }
            assert_eq!(usage(), own);
        }
        client::allocate(&device, &memory, 20 * GIB).expect("room");
        if version > vk::API_VERSION_1_0 {
            let (heap, budget, used) = client::budget(&instance, gpu);
            assert_eq!(heap, BUDGET);
            assert!(budget <= heap && used >= 20 * GIB, "{budget} {used}");
            assert_eq!(
                budget.saturating_sub(used),
                (BUDGET - usage()).min(heap.saturating_sub(used))
            );
        }
        client::destroy_device(&device);
        // The instance's own stays, which was charged with the device: there is no NVML here.
        let standing = usage();
        assert!(standing > 0 && standing < own.min(64 << 20), "{standing}");
        client::destroy_instance(&instance);
        assert_eq!(usage(), 0, "the last instance is gone");
    }
}

/// A loader older than 1.3.227 leaves an implicit layer out that is older than the application (V16 of `fixtures/defects.txt`): the manifest is of a
/// version that no application has.
#[test]
fn a_client_of_any_version_is_held_by_every_loader() {
    const NAME: &str = "a_client_of_any_version_is_held_by_every_loader";
    if std::env::var_os("RINGFENCE_LAYER_TEST").is_none() {
        let clients = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.clients"));
        let loaders = [
            // 1.4, as Chromium has it, and Debian 11's 1.2.162; the system's comes first.
            clients.join("loader/libvulkan.so.1"),
            clients.join("debian-11/usr/lib/x86_64-linux-gnu/libvulkan.so.1"),
        ];
        let there = loaders.into_iter().filter(|loader| {
            let there = loader.exists();
            if !there {
                client::skip(format_args!(
                    "{} is not there (suites/setup)",
                    loader.display()
                ));
            }
            there
        });
        for loader in [PathBuf::from("libvulkan.so.1")].into_iter().chain(there) {
            let own = [
                ("HAMI_VULKAN_ENABLE", "1"),
                ("CUDA_DEVICE_MEMORY_LIMIT_0", "23552m"),
                (client::LOADER, loader.to_str().expect("UTF-8")),
            ];
            let environment = Environment::new(&Driver::Mock, &own).expect("the mock");
            let variables: Vec<_> = environment
                .variables
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect();
            assert!(alone(NAME, &variables).is_some(), "{}", loader.display());
        }
        return;
    }
    let entry = client::entry();
    for minor in [0, 1, 3, 4, 9] {
        let instance = client::instance(&entry, vk::make_api_version(0, 1, minor, 0), &[]);
        assert!(client::is_mapped(LAYER), "a client of 1.{minor}");
        let memory = client::memory(&instance, client::gpu(&instance));
        assert_eq!(client::local_heap(&memory), BUDGET, "a client of 1.{minor}");
        client::destroy_instance(&instance);
    }
}

#[test]
fn a_1_0_client_with_the_khr_extension_sees_the_budget() {
    over!(
        a_1_0_client_with_the_khr_extension_sees_the_budget,
        Driver::Mock,
        "HAMI_VULKAN_ENABLE" = "1",
        "CUDA_DEVICE_MEMORY_LIMIT_0" = "23552m"
    );
    let entry = client::entry();
    let extension = vk::KHR_GET_PHYSICAL_DEVICE_PROPERTIES2_NAME;
    let instance = client::instance(&entry, vk::API_VERSION_1_0, &[extension.as_ptr()]);
    let khr = ash::khr::get_physical_device_properties2::Instance::new(&entry, &instance);
    let mut memory = vk::PhysicalDeviceMemoryProperties2::default();
    // SAFETY: valid usage.
    unsafe { khr.get_physical_device_memory_properties2(client::gpu(&instance), &mut memory) };
    assert_eq!(client::local_heap(&memory.memory_properties), BUDGET);
}

#[test]
fn without_being_enabled_the_layer_is_not_even_mapped() {
    over!(
        without_being_enabled_the_layer_is_not_even_mapped,
        Driver::Mock,
        "CUDA_DEVICE_MEMORY_LIMIT_0" = "23552m"
    );
    let instance = client::instance(&client::entry(), vk::API_VERSION_1_1, &[]);
    assert!(client::local_heap(&client::memory(&instance, client::gpu(&instance))) > BUDGET);
    assert!(client::is_mapped("libmock_icd.so") && !client::is_mapped(LAYER));
    assert!(!ledger().exists());
}

#[test]
fn disabling_wins_over_enabling() {
    over!(
        disabling_wins_over_enabling,
        Driver::Mock,
        "HAMI_VULKAN_ENABLE" = "1",
        "HAMI_VULKAN_DISABLE" = "1",
        "CUDA_DEVICE_MEMORY_LIMIT_0" = "23552m"
    );
    let instance = client::instance(&client::entry(), vk::API_VERSION_1_1, &[]);
    assert!(client::local_heap(&client::memory(&instance, client::gpu(&instance))) > BUDGET);
    assert!(!client::is_mapped(LAYER));
}

#[test]
fn enabled_without_a_budget_nothing_changes() {
    over!(
        enabled_without_a_budget_nothing_changes,
        Driver::Mock,
        "HAMI_VULKAN_ENABLE" = "1"
    );
    let instance = client::instance(&client::entry(), vk::API_VERSION_1_1, &[]);
    let gpu = client::gpu(&instance);
    let memory = client::memory(&instance, gpu);
    assert!(client::is_mapped(LAYER) && client::local_heap(&memory) > BUDGET);
    let device = client::device(&instance, gpu);
    client::allocate(&device, &memory, 30 * GIB).expect("the card has it");
    client::destroy_device(&device);
    client::destroy_instance(&instance);
    assert!(!ledger().exists());
}

#[test]
fn lavapipe_passes_through() {
    over!(
        lavapipe_passes_through,
        Driver::Lavapipe,
        "HAMI_VULKAN_ENABLE" = "1",
        "CUDA_DEVICE_MEMORY_LIMIT" = "64m"
    );
    let instance = client::instance(&client::entry(), vk::API_VERSION_1_1, &[]);
    let gpu = client::gpu(&instance);
    let memory = client::memory(&instance, gpu);
    assert!(client::is_mapped(LAYER) && client::local_heap(&memory) > 64 << 20);
    let device = client::device(&instance, gpu);
    let object = client::allocate(&device, &memory, 128 << 20).expect("nobody's budget");
    client::free(&device, object);
    client::destroy_device(&device);
    client::destroy_instance(&instance);
    assert!(!ledger().exists(), "a CPU device was charged");
}

#[test]
fn three_thousand_instances_use_one_slot() {
    over!(
        three_thousand_instances_use_one_slot,
        Driver::Mock,
        "HAMI_VULKAN_ENABLE" = "1",
        "CUDA_DEVICE_MEMORY_LIMIT" = "1g"
    );
    let entry = client::entry();
    for _ in 0..3000 {
        let instance = client::instance(&entry, vk::API_VERSION_1_1, &[]);
        assert_eq!(
            client::local_heap(&client::memory(&instance, client::gpu(&instance))),
            GIB
        );
        client::destroy_instance(&instance);
    }
    let slots = ledger::View::open(&ledger()).expect("a ledger").slots();
    assert_eq!(slots.len(), 1, "{slots:?}");
    assert!(client::is_mapped(LAYER), "the loader could unmap the layer");
}

#[test]
fn a_thousand_devices_on_two_threads_leave_nothing() {
    over!(
        a_thousand_devices_on_two_threads_leave_nothing,
        Driver::Mock,
        "HAMI_VULKAN_ENABLE" = "1",
        "CUDA_DEVICE_MEMORY_LIMIT" = "1g"
    );
    let entry = client::entry();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let instance = client::instance(&entry, vk::API_VERSION_1_1, &[]);
                let gpu = client::gpu(&instance);
                let memory = client::memory(&instance, gpu);
                for _ in 0..500 {
                    let device = client::device(&instance, gpu);
                    client::allocate(&device, &memory, 1 << 20).expect("room");
                    assert_eq!(
                        client::allocate(&device, &memory, GIB),
                        OUT_OF_DEVICE_MEMORY
                    );
                    client::destroy_device(&device);
                }
                client::destroy_instance(&instance);
            });
        }
    });
    assert_eq!(usage(), 0);
}
