//! The layer's promises over a driver of plain functions: charges, refusals, chains.

#[path = "ffi/alone.rs"]
mod alone;
#[path = "ffi/driver.rs"]
#[expect(dead_code, reason = "each test executable uses a part")]
mod driver;

use std::ffi::c_void;
use std::path::Path;
use std::ptr;
use std::sync::atomic::Ordering;

use alone::alone;
use ash::vk;
use budget::{Bytes, DeviceIndex};
use driver::{
    DEVICE_OVERHEAD, Gpu, LOCAL, Layer, NVIDIA, SYSTEM, World, foreign, make_world, own_address,
    unseen_queue, world,
};

const MIB: u64 = 1 << 20;
const OUT_OF_DEVICE_MEMORY: Result<vk::DeviceMemory, vk::Result> =
    Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);

/// Runs the calling test by itself under `budgets` and goes on in that process only; gives the ledger's path there.
macro_rules! under {
    ($test:ident, $($variable:literal = $value:expr),*) => {{
        let place = tempfile::tempdir().expect("a directory");
        let ledger = Path::new("/dev/shm").join(format!("layer-{}-{}", stringify!($test), std::process::id()));
        let ledger = ledger.to_str().expect("UTF-8").to_owned();
        let said = alone(stringify!($test), &[("RINGFENCE_LEDGER", &ledger), $(($variable, $value)),*]);
        if let Some(said) = said {
            drop(place);
            let _ = std::fs::remove_file(&ledger);
            return check(said, &[]);
        }
        std::env::var_os("RINGFENCE_LEDGER").map(|path| Path::new(&path).to_owned()).expect("set above")
    }};
}

fn check(said: std::process::Output, needles: &[&str]) {
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    for needle in needles {
        assert!(text.contains(needle), "{needle:?} is not in:\n{text}");
    }
}

/// What is charged to a GPU without NVML for its VkInstances, from the first VkDevice on.
const INSTANCE: u64 = 32 * MIB;

fn charged(ledger: &Path, device: u32) -> u64 {
    ledger::View::open(ledger)
        .expect("the layer made the ledger")
        .usage(DeviceIndex(device))
        .0
}

/// What is charged beside the instances to a GPU that had a VkDevice, or to none.
fn usage(ledger: &Path, device: u32) -> u64 {
    charged(ledger, device).saturating_sub(INSTANCE)
}

fn gpu(uuid: u8, bus: Option<u32>) -> Gpu {
    Gpu {
        uuid: [uuid; 16],
        bus,
        ..NVIDIA
    }
}

struct Client {
    layer: Layer,
    instance: vk::Instance,
    gpus: Vec<vk::PhysicalDevice>,
}

impl Client {
    fn new(world: World) -> Client {
        make_world(world);
        let layer = Layer::open();
        let instance = layer.create_instance(0, true).expect("an instance");
        let gpus = layer.physical_devices(instance);
        Client {
            layer,
            instance,
            gpus,
        }
    }

    fn device(&self, number: usize) -> vk::Device {
        self.layer
            .create_device(self.instance, &self.gpus[number..=number], None, true)
            .expect("a device")
    }

    fn allocate(&self, device: vk::Device, size: u64) -> Result<vk::DeviceMemory, vk::Result> {
        self.layer.allocate(device, LOCAL, size, ptr::null())
    }
}

fn one() -> World {
    World {
        gpus: vec![NVIDIA],
        ..World::default()
    }
}

#[test]
fn a_device_and_its_memory_are_charged_in_64_kib_and_given_back() {
    let ledger = under!(
        a_device_and_its_memory_are_charged_in_64_kib_and_given_back,
        "CUDA_DEVICE_MEMORY_LIMIT" = "1g"
    );
    let client = Client::new(one());
    let device = client.device(0);
    assert_eq!(usage(&ledger, 0), DEVICE_OVERHEAD);
    let memory = client.allocate(device, 1).expect("room");
    assert_eq!(usage(&ledger, 0), DEVICE_OVERHEAD + (64 << 10));
    let system = client
        .layer
        .allocate(device, SYSTEM, 40 << 30, ptr::null())
        .expect("system memory is nobody's budget");
    assert_eq!(usage(&ledger, 0), DEVICE_OVERHEAD + (64 << 10));
    client.layer.free(device, system);
    client.layer.free(device, memory);
    client.layer.free(device, vk::DeviceMemory::null());
    assert_eq!(usage(&ledger, 0), DEVICE_OVERHEAD);
    client.allocate(device, 100 * MIB).expect("room");
    client.layer.destroy_device(device);
    assert_eq!(
        (usage(&ledger, 0), world().held.load(Ordering::SeqCst)),
        (0, 0)
    );
    client.layer.destroy_instance(client.instance);
}

#[test]
fn nothing_over_the_budget_reaches_the_driver() {
    let ledger = under!(
        nothing_over_the_budget_reaches_the_driver,
        "CUDA_DEVICE_MEMORY_LIMIT" = "1056m"
    );
    let client = Client::new(one());
    let device = client.device(0);
    let calls = || world().allocations.load(Ordering::SeqCst);
    for size in [1024 * MIB, 1008 * MIB + 1, 2 << 30, u64::MAX, u64::MAX - 5] {
        assert_eq!(
            client.allocate(device, size),
            OUT_OF_DEVICE_MEMORY,
            "{size}"
        );
    }
    assert_eq!(calls(), 0);
    let all = client
        .allocate(device, 1008 * MIB)
        .expect("exactly what is left");
    assert_eq!(client.allocate(device, 1), OUT_OF_DEVICE_MEMORY);
    client.layer.free(device, all);
    client.allocate(device, 1008 * MIB).expect("it came back");
    assert_eq!(usage(&ledger, 0), 1024 * MIB);
    assert_eq!(world().held.load(Ordering::SeqCst), 1024 * MIB);
}

#[test]
fn a_call_that_the_driver_refuses_gets_the_drivers_code_and_costs_nothing() {
    let ledger = under!(
        a_call_that_the_driver_refuses_gets_the_drivers_code_and_costs_nothing,
        "CUDA_DEVICE_MEMORY_LIMIT" = "4096g"
    );
    let client = Client::new(one());
    let device = client.device(0);
    assert_eq!(
        client.allocate(device, 2 << 40),
        OUT_OF_DEVICE_MEMORY,
        "the driver's own refusal"
    );
    assert_eq!(usage(&ledger, 0), DEVICE_OVERHEAD);
    let rest = ledger::View::open(&ledger).expect("a ledger");
    rest.set_budget(DeviceIndex(0), Bytes(INSTANCE + DEVICE_OVERHEAD));
    assert_eq!(client.allocate(device, 1), OUT_OF_DEVICE_MEMORY);
    // With nothing left, what is wrong in another way is still judged by the driver.
    assert_eq!(
        client.allocate(device, 0),
        Err(vk::Result::ERROR_VALIDATION_FAILED_EXT)
    );
    assert_eq!(
        client.layer.allocate(device, 7, 64, ptr::null()),
        Err(vk::Result::ERROR_UNKNOWN)
    );
    assert_eq!(
        client.layer.allocate(device, u32::MAX, 64, ptr::null()),
        Err(vk::Result::ERROR_UNKNOWN)
    );
    assert_eq!(
        import(&client, device, 999),
        Err(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE)
    );
    let more = client
        .layer
        .create_device(client.instance, &client.gpus, None, true);
    assert_eq!(more, Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY));
    let odd = client.layer.create_device(
        client.instance,
        &client.gpus,
        Some(c"VK_KHR_nonsense"),
        true,
    );
    assert_eq!(odd, Err(vk::Result::ERROR_EXTENSION_NOT_PRESENT));
    assert_eq!(usage(&ledger, 0), DEVICE_OVERHEAD);
}

fn import(client: &Client, device: vk::Device, fd: i32) -> Result<vk::DeviceMemory, vk::Result> {
    let chain = vk::ImportMemoryFdInfoKHR::default()
        .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD)
        .fd(fd);
    client.layer.allocate(
        device,
        LOCAL,
        64 * MIB,
        ptr::from_ref(&chain).cast::<c_void>(),
    )
}

#[test]
fn an_import_is_charged_once_and_a_strangers_like_new_memory() {
    let ledger = under!(
        an_import_is_charged_once_and_a_strangers_like_new_memory,
        "CUDA_DEVICE_MEMORY_LIMIT" = "1g"
    );
    let client = Client::new(one());
    let (here, there) = (client.device(0), client.device(0));
    let base = 2 * DEVICE_OVERHEAD;
    let memory = client.allocate(here, 64 * MIB).expect("room");
    let imported = import(&client, there, client.layer.export(here, memory)).expect("ours");
    assert_eq!(usage(&ledger, 0), base + 64 * MIB);
    client.layer.free(here, memory);
    assert_eq!(usage(&ledger, 0), base + 64 * MIB, "the importer holds it");
    client.layer.free(there, imported);
    assert_eq!(usage(&ledger, 0), base);

    // SAFETY: the name ends in NUL. A descriptor that was not exported here.
    let stranger = unsafe { libc::memfd_create(c"stranger".as_ptr(), 0) };
    let imported = import(&client, there, stranger).expect("room");
    assert_eq!(usage(&ledger, 0), base + 64 * MIB);
    client.layer.free(there, imported);

    // A descriptor that is closed unseen holds its object until memory runs short.
    let memory = client.allocate(here, 512 * MIB).expect("room");
    let fd = client.layer.export(here, memory);
    client.layer.free(here, memory);
    assert_eq!(usage(&ledger, 0), base + 512 * MIB);
    // SAFETY: nobody else has the descriptor.
    unsafe { libc::close(fd) };
    client
        .allocate(here, 900 * MIB)
        .expect("the closed descriptor's memory is back");
    client.layer.destroy_device(here);
    client.layer.destroy_device(there);
    assert_eq!(usage(&ledger, 0), 0);
}

/// The driver closes a descriptor before it answers: who looks for closed ones in between must not take it for given up.
#[test]
fn an_import_is_charged_whoever_looks_for_closed_descriptors_meanwhile() {
    let ledger = under!(
        an_import_is_charged_whoever_looks_for_closed_descriptors_meanwhile,
        "CUDA_DEVICE_MEMORY_LIMIT" = "1g"
    );
    let client: &'static Client = Box::leak(Box::new(Client::new(one())));
    let device = client.device(0);
    let memory = client.allocate(device, 64 * MIB).expect("room");
    let fd = client.layer.export(device, memory);
    client.layer.free(device, memory);
    let meanwhile = Box::new(move || {
        assert_eq!(client.allocate(device, 1024 * MIB), OUT_OF_DEVICE_MEMORY);
    });
    assert!(
        driver::AFTER_TAKING_A_DESCRIPTOR.set(meanwhile).is_ok(),
        "set once"
    );
    let imported = import(client, device, fd).expect("ours");
    assert_eq!(usage(&ledger, 0), DEVICE_OVERHEAD + 64 * MIB);
    client.layer.free(device, imported);
    assert_eq!(usage(&ledger, 0), DEVICE_OVERHEAD);

    // An import that fails leaves the descriptor to its owner, and to the charge.
    let memory = client.allocate(device, 64 * MIB).expect("room");
    let fd = client.layer.export(device, memory);
    client.layer.free(device, memory);
    let chain = vk::ImportMemoryFdInfoKHR::default()
        .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD)
        .fd(fd);
    let chain = ptr::from_ref(&chain).cast::<c_void>();
    assert_eq!(
        client.layer.allocate(device, LOCAL, 2 << 40, chain),
        OUT_OF_DEVICE_MEMORY
    );
    assert_eq!(usage(&ledger, 0), DEVICE_OVERHEAD + 64 * MIB);
    // SAFETY: nobody else has the descriptor.
    unsafe { libc::close(fd) };
    assert_eq!(client.allocate(device, 1024 * MIB), OUT_OF_DEVICE_MEMORY);
    assert_eq!(usage(&ledger, 0), DEVICE_OVERHEAD);
}

#[test]
fn all_that_tells_of_memory_tells_of_the_budget() {
    under!(
        all_that_tells_of_memory_tells_of_the_budget,
        "CUDA_DEVICE_MEMORY_LIMIT" = "1g"
    );
    let client = Client::new(one());
    let (device, gpu) = (client.device(0), client.gpus[0]);
    client.allocate(device, 100 * MIB).expect("room");
    let memory = client.layer.memory_properties(client.instance, gpu);
    assert_eq!(
        (memory.memory_heaps[0].size, memory.memory_heaps[1].size),
        (64 << 30, 1 << 30)
    );
    for name in [
        c"vkGetPhysicalDeviceMemoryProperties2",
        c"vkGetPhysicalDeviceMemoryProperties2KHR",
    ] {
        let (heap, budget, usage) = client.layer.memory_budget(client.instance, gpu, name);
        assert_eq!(
            (heap, budget[1], usage[1]),
            (1 << 30, (1 << 30) - INSTANCE, DEVICE_OVERHEAD + 100 * MIB),
            "{name:?}"
        );
        assert!(budget[2..].iter().chain(&usage[2..]).all(|word| *word == 0));
    }
}

#[test]
fn each_identity_draws_on_its_own_budget() {
    let ledger = under!(
        each_identity_draws_on_its_own_budget,
        "CUDA_DEVICE_MEMORY_LIMIT_0" = "1g",
        "CUDA_DEVICE_MEMORY_LIMIT_1" = "2g"
    );
    // No NVML and no /proc here: the order is Vulkan's PCI order, the first GPU is on the higher bus, and both have zero UUIDs.
    let client = Client::new(World {
        gpus: vec![gpu(0, Some(9)), gpu(0, Some(3))],
        ..World::default()
    });
    let size = |number: usize| {
        client
            .layer
            .memory_properties(client.instance, client.gpus[number])
            .memory_heaps[1]
            .size
    };
    assert_eq!((size(0), size(1)), (2 << 30, 1 << 30));
    let (first, second) = (client.device(0), client.device(1));
    client.allocate(first, 64 * MIB).expect("room");
    assert_eq!(
        (usage(&ledger, 0), usage(&ledger, 1)),
        (DEVICE_OVERHEAD, DEVICE_OVERHEAD + 64 * MIB)
    );
    client.layer.destroy_device(second);
    client.layer.destroy_device(first);
    assert_eq!((usage(&ledger, 0), usage(&ledger, 1)), (0, 0));
}

#[test]
fn an_ambiguous_device_is_charged_to_every_candidate() {
    let ledger = under!(
        an_ambiguous_device_is_charged_to_every_candidate,
        "CUDA_DEVICE_MEMORY_LIMIT_0" = "1g",
        "CUDA_DEVICE_MEMORY_LIMIT_1" = "2g"
    );
    let client = Client::new(World {
        gpus: vec![gpu(0, None), gpu(0, None)],
        ..World::default()
    });
    let device = client.device(1);
    assert_eq!(
        client
            .layer
            .memory_properties(client.instance, client.gpus[1])
            .memory_heaps[1]
            .size,
        1 << 30
    );
    client.allocate(device, 64 * MIB).expect("room");
    let both = DEVICE_OVERHEAD + 64 * MIB;
    assert_eq!((usage(&ledger, 0), usage(&ledger, 1)), (both, both));
    assert_eq!(client.allocate(device, 1 << 30), OUT_OF_DEVICE_MEMORY);
    assert_eq!(
        (usage(&ledger, 0), usage(&ledger, 1)),
        (both, both),
        "a refusal by one leaves nothing with the other"
    );
    client.layer.destroy_device(device);
    assert_eq!((usage(&ledger, 0), usage(&ledger, 1)), (0, 0));
}

/// A plain 1.0 instance may not use Properties2, so that its two GPUs cannot be told apart.
#[test]
fn a_plain_1_0_client_of_two_gpus_is_charged_on_both() {
    let ledger = under!(
        a_plain_1_0_client_of_two_gpus_is_charged_on_both,
        "CUDA_DEVICE_MEMORY_LIMIT_0" = "1g",
        "CUDA_DEVICE_MEMORY_LIMIT_1" = "2g"
    );
    make_world(World {
        gpus: vec![gpu(1, Some(1)), gpu(2, Some(2))],
        ..World::default()
    });
    let layer = Layer::open();
    let plain = layer
        .create_instance_of(vk::API_VERSION_1_0, 0, true)
        .expect("an instance");
    let gpus = layer.physical_devices(plain);
    assert_eq!(
        layer.memory_properties(plain, gpus[1]).memory_heaps[1].size,
        1 << 30
    );
    assert_eq!(
        world().properties2.load(Ordering::SeqCst),
        0,
        "an invalid use of next"
    );
    let device = layer
        .create_device(plain, &gpus[1..], None, true)
        .expect("a device");
    let base = usage(&ledger, 0);
    // Nothing can be measured: the reservation, an eighth of the smallest budget, stays.
    assert_eq!((base, usage(&ledger, 1)), (128 * MIB, 128 * MIB));
    layer
        .allocate(device, LOCAL, MIB, ptr::null())
        .expect("room");
    assert_eq!(
        (usage(&ledger, 0), usage(&ledger, 1)),
        (base + MIB, base + MIB)
    );
    layer.destroy_device(device);
    assert_eq!((usage(&ledger, 0), usage(&ledger, 1)), (0, 0));
}

#[test]
fn a_group_is_charged_by_its_device_mask() {
    let ledger = under!(
        a_group_is_charged_by_its_device_mask,
        "CUDA_DEVICE_MEMORY_LIMIT" = "1g"
    );
    let both = vec![
        Gpu {
            multi_instance: true,
            ..gpu(1, Some(1))
        },
        Gpu {
            multi_instance: true,
            ..gpu(2, Some(2))
        },
    ];
    let client = Client::new(World {
        gpus: both,
        ..World::default()
    });
    let device = client
        .layer
        .create_device(client.instance, &client.gpus, None, true)
        .expect("a device of two");
    let base = [usage(&ledger, 0), usage(&ledger, 1)];
    let charged = |mask: Option<u32>| {
        let flags = vk::MemoryAllocateFlagsInfo::default()
            .flags(vk::MemoryAllocateFlags::DEVICE_MASK)
            .device_mask(mask.unwrap_or(0));
        let chain = if mask.is_some() {
            ptr::from_ref(&flags).cast()
        } else {
            ptr::null()
        };
        let memory = client
            .layer
            .allocate(device, LOCAL, MIB, chain)
            .expect("room");
        let now = [usage(&ledger, 0) - base[0], usage(&ledger, 1) - base[1]];
        client.layer.free(device, memory);
        now
    };
    assert_eq!(charged(None), [MIB, MIB]);
    assert_eq!(charged(Some(0b01)), [MIB, 0]);
    assert_eq!(charged(Some(0b10)), [0, MIB]);
    assert_eq!(charged(Some(0b11)), [MIB, MIB]);
    assert_eq!([usage(&ledger, 0), usage(&ledger, 1)], base);
}

#[test]
fn other_vendors_and_cpus_pass_through() {
    let ledger = under!(
        other_vendors_and_cpus_pass_through,
        "CUDA_DEVICE_MEMORY_LIMIT" = "64m"
    );
    let cpu = Gpu {
        kind: vk::PhysicalDeviceType::CPU,
        ..NVIDIA
    };
    let client = Client::new(World {
        gpus: vec![
            Gpu {
                vendor: 0x1002,
                ..NVIDIA
            },
            cpu,
        ],
        ..World::default()
    });
    for number in [0, 1] {
        let device = client.device(number);
        assert_eq!(
            client
                .layer
                .memory_properties(client.instance, client.gpus[number])
                .memory_heaps[1]
                .size,
            8 << 30
        );
        client.allocate(device, 4 << 30).expect("nobody's budget");
        let ours = client.layer.get_device(device, c"vkAllocateMemory");
        assert_eq!(
            ours,
            driver::own_address(Some(device), client.instance, c"vkAllocateMemory")
        );
        client.layer.destroy_device(device);
    }
    assert!(
        !ledger.exists(),
        "a program without a tenant's GPU took a slot"
    );
}

#[test]
fn without_a_budget_next_is_handed_out() {
    let ledger = under!(
        without_a_budget_next_is_handed_out,
        "CUDA_DEVICE_MEMORY_LIMIT" = "0"
    );
    let client = Client::new(one());
    let device = client.device(0);
    let names = [
        c"vkEnumeratePhysicalDevices",
        c"vkGetPhysicalDeviceMemoryProperties",
        c"vkGetPhysicalDeviceMemoryProperties2KHR",
        c"vkAllocateMemory",
    ];
    for name in names {
        assert_eq!(
            client.layer.get(client.instance, name),
            driver::own_address(None, client.instance, name),
            "{name:?}"
        );
    }
    for name in [
        c"vkAllocateMemory",
        c"vkFreeMemory",
        c"vkGetMemoryFdKHR",
        c"vkDeviceWaitIdle",
    ] {
        assert_eq!(
            client.layer.get_device(device, name),
            driver::own_address(Some(device), client.instance, name),
            "{name:?}"
        );
    }
    assert_eq!(
        world().extensions.load(Ordering::SeqCst),
        0,
        "asked about identities without need"
    );
    client.allocate(device, 4 << 30).expect("no budget");
    client.layer.destroy_device(device);
    client.layer.destroy_instance(client.instance);
    assert_eq!(world().destroyed.load(Ordering::SeqCst), 2);
    assert!(!ledger.exists());
}

#[test]
fn what_next_lacks_is_lacking() {
    under!(
        what_next_lacks_is_lacking,
        "CUDA_DEVICE_MEMORY_LIMIT" = "1g"
    );
    let missing = vec![
        "vkGetPhysicalDeviceMemoryProperties2KHR",
        "vkGetMemoryFdKHR",
        "vkEnumeratePhysicalDeviceGroups",
    ];
    let client = Client::new(World {
        gpus: vec![NVIDIA],
        missing,
        ..World::default()
    });
    let device = client.device(0);
    assert!(
        client
            .layer
            .get(client.instance, c"vkGetPhysicalDeviceMemoryProperties2KHR")
            .is_none()
    );
    assert!(
        client
            .layer
            .get(client.instance, c"vkEnumeratePhysicalDeviceGroups")
            .is_none()
    );
    assert!(
        client
            .layer
            .get_device(device, c"vkGetMemoryFdKHR")
            .is_none()
    );
    assert!(
        client
            .layer
            .get_device(device, c"vkGetPhysicalDeviceMemoryProperties")
            .is_none(),
        "not a device's command"
    );
    assert!(
        client
            .layer
            .get(client.instance, c"vkGetPhysicalDeviceMemoryProperties2")
            .is_some()
    );
}

#[test]
fn handles_of_others_are_answered_and_charged_to_everyone() {
    let ledger = under!(
        handles_of_others_are_answered_and_charged_to_everyone,
        "CUDA_DEVICE_MEMORY_LIMIT" = "1g"
    );
    let client = Client::new(World {
        gpus: vec![gpu(1, Some(1)), gpu(2, Some(2))],
        ..World::default()
    });
    let device = client.device(0);
    let base = usage(&ledger, 0);
    for instance in [vk::Instance::null(), driver::foreign()] {
        let ours = client
            .layer
            .get(client.instance, c"vkGetPhysicalDeviceMemoryProperties");
        assert_eq!(
            client
                .layer
                .get(instance, c"vkGetPhysicalDeviceMemoryProperties"),
            ours
        );
        let next = driver::own_address(Some(device), client.instance, c"vkDeviceWaitIdle");
        assert!(next.is_some());
        assert_eq!(client.layer.get(instance, c"vkDeviceWaitIdle"), next);
    }
    let stranger: vk::Device = driver::foreign();
    let memory = client.allocate(stranger, 64 * MIB).expect("room");
    assert_eq!(
        (usage(&ledger, 0), charged(&ledger, 1)),
        (base + 64 * MIB, 64 * MIB),
        "the second GPU has no VkDevice, so that nothing is charged to it for instances"
    );
    assert_eq!(client.allocate(stranger, 1 << 30), OUT_OF_DEVICE_MEMORY);
    client.layer.free(stranger, memory);
    assert_eq!((usage(&ledger, 0), usage(&ledger, 1)), (base, 0));
    client.layer.destroy_device(device);
    client.layer.destroy_instance(client.instance);
    assert!(
        client
            .layer
            .get(driver::foreign(), c"vkAllocateMemory")
            .is_none(),
        "no chain is left to ask"
    );
}

#[test]
fn own_name_has_no_extensions_and_others_are_nexts() {
    under!(
        own_name_has_no_extensions_and_others_are_nexts,
        "CUDA_DEVICE_MEMORY_LIMIT" = "1g"
    );
    let client = Client::new(one());
    let (instance, gpu, ours) = (
        client.instance,
        Some(client.gpus[0]),
        Some(c"VK_LAYER_HAMI_vgpu"),
    );
    let success = |count: u32| (vk::Result::SUCCESS, count);
    assert_eq!(
        client.layer.extension_count(instance, gpu, ours),
        success(0)
    );
    assert_eq!(
        client.layer.extension_count(instance, gpu, None),
        success(3)
    );
    assert_eq!(
        client.layer.extension_count(instance, None, ours),
        success(0)
    );
    assert_eq!(
        client
            .layer
            .extension_count(vk::Instance::null(), None, None),
        success(0)
    );
}

#[test]
fn two_instances_use_their_own_chains() {
    under!(
        two_instances_use_their_own_chains,
        "CUDA_DEVICE_MEMORY_LIMIT" = "1g"
    );
    let client = Client::new(one());
    let second = client
        .layer
        .create_instance(1, true)
        .expect("another instance");
    let theirs = client.layer.physical_devices(second);
    let calls = || {
        world()
            .memory_calls
            .each_ref()
            .map(|calls| calls.load(Ordering::SeqCst))
    };
    let before = calls();
    // The driver itself asserts that it is asked by the right chain.
    assert_eq!(
        client
            .layer
            .memory_properties(second, theirs[0])
            .memory_heaps[1]
            .size,
        1 << 30
    );
    assert_eq!(calls(), [before[0], before[1] + 1]);
    client.layer.destroy_instance(client.instance);
    assert_eq!(
        client
            .layer
            .memory_properties(second, theirs[0])
            .memory_heaps[1]
            .size,
        1 << 30
    );
    assert_eq!(calls(), [before[0], before[1] + 2]);
}

#[test]
fn a_thousand_devices_on_two_threads_leave_nothing() {
    let ledger = under!(
        a_thousand_devices_on_two_threads_leave_nothing,
        "CUDA_DEVICE_MEMORY_LIMIT" = "1g"
    );
    let client = Client::new(one());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for round in 0..500 {
                    let device = client.device(0);
                    let kept = client.allocate(device, MIB).expect("room");
                    let freed = client.allocate(device, (round + 1) * 1000).expect("room");
                    client.layer.free(device, freed);
                    assert_ne!(kept, freed);
                    client.layer.destroy_device(device);
                }
            });
        }
    });
    assert_eq!(
        (usage(&ledger, 0), world().held.load(Ordering::SeqCst)),
        (0, 0)
    );
}

#[test]
fn threads_that_reuse_handles_lose_and_double_nothing() {
    let ledger = under!(
        threads_that_reuse_handles_lose_and_double_nothing,
        "CUDA_DEVICE_MEMORY_LIMIT" = "1g"
    );
    let client = Client::new(one());
    let device = client.device(0);
    std::thread::scope(|scope| {
        for thread in 1..=4_u64 {
            let client = &client;
            scope.spawn(move || {
                for round in 0..5000_u64 {
                    let memory = client
                        .allocate(device, thread * 65_536 * (1 + round % 3))
                        .expect("room");
                    client.layer.free(device, memory);
                }
            });
        }
    });
    assert_eq!(usage(&ledger, 0), DEVICE_OVERHEAD);
    assert_eq!(world().held.load(Ordering::SeqCst), DEVICE_OVERHEAD);
}

#[test]
fn what_is_not_a_size_refuses_everything_and_says_so_once() {
    let said = alone(
        "what_is_not_a_size_refuses_everything_and_says_so_once",
        &[
            ("CUDA_DEVICE_MEMORY_LIMIT_0", "lots"),
            ("RINGFENCE_LEDGER", "/dev/shm/never-made"),
        ],
    );
    if let Some(said) = said {
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(
            text.matches("ringfence: CUDA_DEVICE_MEMORY_LIMIT_0=\"lots\" is not a size")
                .count(),
            1,
            "{text}"
        );
        return;
    }
    make_world(one());
    let layer = Layer::open();
    for _ in 0..2 {
        let refused = layer.create_instance(0, true).err();
        assert_eq!(refused, OUT_OF_DEVICE_MEMORY.err());
    }
}

#[test]
fn a_ledger_that_cannot_be_had_refuses_everything_and_says_so_once() {
    let said = alone(
        "a_ledger_that_cannot_be_had_refuses_everything_and_says_so_once",
        &[
            ("CUDA_DEVICE_MEMORY_LIMIT", "1g"),
            ("RINGFENCE_LEDGER", "/nonexistent/ledger"),
        ],
    );
    if let Some(said) = said {
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        assert_eq!(
            text.matches("ringfence: ledger /nonexistent/ledger")
                .count(),
            1,
            "{text}"
        );
        return;
    }
    let client = Client::new(one());
    for _ in 0..2 {
        let (layer, gpus) = (&client.layer, &client.gpus[..1]);
        let refused = layer.create_device(client.instance, gpus, None, true).err();
        assert_eq!(refused, OUT_OF_DEVICE_MEMORY.err());
    }
    assert_eq!(world().held.load(Ordering::SeqCst), 0);
}

#[test]
fn decisions_are_traced_on_request() {
    let test = "decisions_are_traced_on_request";
    let ledger = format!("/dev/shm/layer-{test}-{}", std::process::id());
    let variables = [
        ("CUDA_DEVICE_MEMORY_LIMIT", "1g"),
        ("RINGFENCE_LEDGER", ledger.as_str()),
        ("HAMI_VK_TRACE", "1"),
    ];
    if let Some(said) = alone(test, &variables) {
        let _ = std::fs::remove_file(&ledger);
        return check(
            said,
            &[
                "HAMI_VK_TRACE: candidate 0 uuid=unknown pci=0000:01:00.0 source=vulkan\n",
                "rule=Pci device=0\n",
                "HAMI_VK_TRACE: device 0 budget=1073741824\n",
                "HAMI_VK_TRACE: heap 1 clamp 8589934592 -> 1073741824\n",
                "HAMI_VK_TRACE: allocate size=5 charged=65536 verdict=granted\n",
                "HAMI_VK_TRACE: allocate size=2147483648 verdict=refused\n",
            ],
        );
    }
    let client = Client::new(one());
    let device = client.device(0);
    let memory = client
        .layer
        .memory_properties(client.instance, client.gpus[0]);
    assert_eq!(memory.memory_heap_count, 2);
    client.allocate(device, 5).expect("room");
    assert_eq!(client.allocate(device, 2 << 30), OUT_OF_DEVICE_MEMORY);
}

#[test]
fn a_queue_that_was_never_seen_is_passed_on_and_what_next_lacks_is_not_there() {
    let _ledger = under!(
        a_queue_that_was_never_seen_is_passed_on_and_what_next_lacks_is_not_there,
        "CUDA_DEVICE_SM_LIMIT" = "30"
    );
    let client = Client::new(World {
        missing: vec!["vkQueueSubmit2"],
        ..one()
    });
    let device = client.device(0);
    let get = |name| client.layer.get_device(device, name);
    let driver = |name| own_address(Some(device), vk::Instance::null(), name);
    assert_eq!(get(c"vkQueueSubmit2"), None);
    for hooked in [c"vkQueueSubmit", c"vkQueueSubmit2KHR", c"vkGetDeviceQueue"] {
        assert!(
            get(hooked).is_some() && get(hooked) != driver(hooked),
            "{hooked:?}"
        );
    }
    let seen = client.layer.queue(device);
    for (queue, submits) in [(seen, 1), (unseen_queue(device), 2), (foreign(), 3)] {
        assert_eq!(client.layer.submit(device, queue), vk::Result::SUCCESS);
        assert_eq!(world().submits.load(Ordering::Relaxed), submits);
    }
}

/// A thread with so little stack makes a device and submits to it (attack 35).
#[test]
fn a_device_fits_on_a_small_stack() {
    let _ledger = under!(
        a_device_fits_on_a_small_stack,
        "CUDA_DEVICE_MEMORY_LIMIT" = "1g",
        "CUDA_DEVICE_SM_LIMIT" = "50"
    );
    let client = Client::new(one());
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(32 << 10);
        let use_device = || {
            let device = client.device(0);
            let queue = client.layer.queue(device);
            assert_eq!(client.layer.submit(device, queue), vk::Result::SUCCESS);
            client.layer.destroy_device(device);
        };
        thread.spawn_scoped(scope, use_device).expect("a thread");
    });
}

#[test]
fn without_a_budget_submissions_are_nexts_own() {
    let _ledger = under!(
        without_a_budget_submissions_are_nexts_own,
        "LIBCUDA_LOG_LEVEL" = "1"
    );
    let client = Client::new(one());
    let device = client.device(0);
    for name in [c"vkQueueSubmit", c"vkQueueSubmit2", c"vkGetDeviceQueue"] {
        assert_eq!(
            client.layer.get_device(device, name),
            own_address(Some(device), vk::Instance::null(), name),
            "{name:?}"
        );
    }
}
