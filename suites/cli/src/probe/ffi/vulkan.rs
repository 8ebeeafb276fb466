//! What Vulkan says of the devices, and what a VkDevice and its memory take.

use ash::vk;

use super::nvml::Onlooker;
use super::{Library, say, text, uuid};

/// Lines `driver KEY VALUE` and `PCI KEY VALUE`; the device's PCI address is its name in all three APIs.
pub fn facts() -> Result<(), String> {
    let library = Library::open("libvulkan.so.1")?;
    let idle: Vec<Onlooker> = (0..)
        .map_while(|index| Onlooker::open(index).ok())
        .collect();
    let idle: Vec<(Onlooker, u64)> = idle.into_iter().map(|one| (one, one.free())).collect();
    // SAFETY: the loader exports this name with this type, and is never unloaded; every call below is on handles made
    // here that still live, with structures that outlive it.
    unsafe {
        let get = library
            .function::<vk::PFN_vkGetInstanceProcAddr>("vkGetInstanceProcAddr")
            .ok_or("libvulkan.so.1 lacks vkGetInstanceProcAddr")?;
        let entry = ash::Entry::from_static_fn(ash::StaticFn {
            get_instance_proc_addr: get,
        });
        let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
        let create = vk::InstanceCreateInfo::default().application_info(&application);
        let instance = entry
            .create_instance(&create, None)
            .map_err(|error| format!("vkCreateInstance: {error:?}"))?;
        let devices = instance
            .enumerate_physical_devices()
            .map_err(|error| format!("vkEnumeratePhysicalDevices: {error:?}"))?;
        for (index, device) in devices.into_iter().enumerate() {
            if let Some((onlooker, free)) = idle.get(index) {
                one(&instance, device, *onlooker, *free)?;
            }
        }
        instance.destroy_instance(None);
    }
    Ok(())
}

/// # Safety
/// The device is the instance's, which lives.
unsafe fn one(
    instance: &ash::Instance,
    device: vk::PhysicalDevice,
    onlooker: Onlooker,
    // What was free before there was an instance, which takes some itself.
    idle: u64,
) -> Result<(), String> {
    let mut id = vk::PhysicalDeviceIDProperties::default();
    let mut bus = vk::PhysicalDevicePCIBusInfoPropertiesEXT::default();
    let mut told = vk::PhysicalDeviceProperties2::default()
        .push_next(&mut id)
        .push_next(&mut bus);
    // SAFETY: by the obligation above; the chain's structures live.
    unsafe { instance.get_physical_device_properties2(device, &mut told) };
    let properties = told.properties;
    if properties.vendor_id != 0x10de {
        return Ok(());
    }
    let pci = format!(
        "{:04x}:{:02x}:{:02x}.{:x}",
        bus.pci_domain, bus.pci_bus, bus.pci_device, bus.pci_function
    );
    let (api, version) = (properties.api_version, properties.driver_version);
    say(&format!("driver vulkan_version {version}"));
    say(&format!(
        "driver vulkan_driver_uuid {}",
        uuid(id.driver_uuid)
    ));
    say(&format!(
        "driver vulkan_api {} {} {}",
        vk::api_version_major(api),
        vk::api_version_minor(api),
        vk::api_version_patch(api)
    ));
    say(&format!("{pci} vulkan_uuid {}", uuid(id.device_uuid)));
    // SAFETY: as above.
    let extensions = unsafe { instance.enumerate_device_extension_properties(device) };
    for extension in extensions.map_err(|error| format!("extensions of {pci}: {error:?}"))? {
        let (name, version) = (text(&extension.extension_name), extension.spec_version);
        say(&format!("{pci} extension {name} {version}"));
    }

    // SAFETY: as above.
    let memory = unsafe { instance.get_physical_device_memory_properties(device) };
    for heap in memory.memory_heaps_as_slice() {
        say(&format!("{pci} heap {} {}", heap.size, heap.flags.as_raw()));
    }
    for kind in memory.memory_types_as_slice() {
        say(&format!(
            "{pci} memory_type {} {}",
            kind.heap_index,
            kind.property_flags.as_raw()
        ));
    }
    // SAFETY: as above.
    for family in unsafe { instance.get_physical_device_queue_family_properties(device) } {
        say(&format!(
            "{pci} queue_family {} {}",
            family.queue_flags.as_raw(),
            family.queue_count
        ));
    }
    let local = memory
        .memory_heaps_as_slice()
        .iter()
        .position(|heap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
    let Some(local) = local else {
        return Ok(());
    };
    say(&format!(
        "{pci} vulkan_instance_overhead {}",
        idle.saturating_sub(onlooker.free())
    ));
    // SAFETY: as above.
    unsafe { allocations(instance, device, &pci, local, onlooker, &memory) }
}

/// # Safety
/// As for [`one`].
unsafe fn allocations(
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    pci: &str,
    local: usize,
    onlooker: Onlooker,
    memory: &vk::PhysicalDeviceMemoryProperties,
) -> Result<(), String> {
    let kind = memory
        .memory_types_as_slice()
        .iter()
        .position(|kind| kind.heap_index as usize == local)
        .ok_or("no memory type of the device-local heap")?;
    let usage = || {
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut memory = vk::PhysicalDeviceMemoryProperties2::default().push_next(&mut budget);
        // SAFETY: by the obligation above.
        unsafe { instance.get_physical_device_memory_properties2(physical, &mut memory) };
        budget.heap_usage[local]
    };
    let before = onlooker.used();
    let queues = [vk::DeviceQueueCreateInfo::default()
        .queue_family_index(0)
        .queue_priorities(&[1.0])];
    let create = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
    // SAFETY: as above; every driver has queue family 0.
    let device = unsafe { instance.create_device(physical, &create, None) }
        .map_err(|error| format!("vkCreateDevice: {error:?}"))?;
    say(&format!(
        "{pci} vulkan_device_overhead {}",
        onlooker.used().saturating_sub(before)
    ));
    for bytes in [1, 4096, 65536, 1 << 20, (1 << 20) + 1, 2 << 20, 64 << 20] {
        let info = vk::MemoryAllocateInfo::default()
            .memory_type_index(u32::try_from(kind).unwrap_or_default())
            .allocation_size(bytes);
        let before = usage();
        // SAFETY: the device lives; what was allocated is freed once.
        unsafe {
            if let Ok(made) = device.allocate_memory(&info, None) {
                let taken = usage().saturating_sub(before);
                say(&format!("{pci} vkAllocateMemory.{bytes} {taken}"));
                device.free_memory(made, None);
            }
        }
    }
    // SAFETY: nothing of the device is left.
    unsafe { device.destroy_device(None) };
    Ok(())
}
