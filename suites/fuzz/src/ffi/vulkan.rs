//! The layer's commands. Handles are live ones, as Vulkan demands of its clients; sizes, counts, flags, chains and names are arbitrary.

use std::ffi::{CStr, c_char};

use ash::vk::{self, Handle};

use super::calls::{Answer, around};
use super::frame;
use crate::maker::Maker;

/// A command, or several that are called in the same way.
pub struct Command {
    pub names: &'static [&'static str],
    run: fn(&mut Client, &mut Maker<'_>) -> Option<(Answer, u64)>,
}

macro_rules! commands {
    ($table:ident { $($($name:ident)+ => $body:path;)* }) => {
        pub const $table: &[Command] = &[$(Command { names: &[$(stringify!($name)),+], run: $body }),*];
    };
}

commands! { MEMORY {
    vkAllocateMemory => allocate;
    vkAllocateMemory => allocate;
    vkFreeMemory => free;
    vkGetMemoryFdKHR => descriptor;
    vkGetPhysicalDeviceMemoryProperties => memory_properties;
    vkGetPhysicalDeviceMemoryProperties2 vkGetPhysicalDeviceMemoryProperties2KHR => memory_properties2;
} }

commands! { OBJECTS {
    vkCreateInstance => create_instance;
    vkDestroyInstance => destroy_instance;
    vkCreateDevice => create_device;
    vkDestroyDevice => destroy_device;
    vkGetInstanceProcAddr => instance_look_up;
    vkGetDeviceProcAddr => device_look_up;
    vkEnumerateInstanceExtensionProperties => instance_extensions;
    vkEnumerateDeviceExtensionProperties => device_extensions;
    vkEnumeratePhysicalDevices => physical_devices;
    vkEnumeratePhysicalDeviceGroups vkEnumeratePhysicalDeviceGroupsKHR => groups;
    vkAllocateMemory => allocate;
} }

commands! { QUEUES {
    vkGetDeviceQueue => queue;
    vkGetDeviceQueue2 => queue2;
    vkQueueSubmit => submit;
    vkQueueSubmit2 vkQueueSubmit2KHR => submit2;
    vkQueueBindSparse => bind_sparse;
    vkAllocateMemory => allocate;
    vkFreeMemory => free;
} }

struct Living {
    instance: ash::Instance,
    physical: Vec<vk::PhysicalDevice>,
    properties2: ash::khr::get_physical_device_properties2::Instance,
    groups: ash::khr::device_group_creation::Instance,
}

struct Made {
    /// Which instance's.
    instance: usize,
    physical: usize,
    device: ash::Device,
    external: ash::khr::external_memory_fd::Device,
    submit2: ash::khr::synchronization2::Device,
    memories: Vec<(vk::DeviceMemory, u32)>,
    queues: Vec<vk::Queue>,
}

/// A process's Vulkan client.
pub struct Client {
    entry: ash::Entry,
    instances: Vec<Option<Living>>,
    devices: Vec<Made>,
    descriptors: Vec<i32>,
}

/// Most objects of a kind at once.
const INSTANCES: usize = 4;
const DEVICES: usize = 6;
/// Of the host's own memory a client asks for little: it is the machine's.
const HOST_MOST: u64 = 1 << 20;

impl Client {
    pub fn open() -> Option<Self> {
        // SAFETY: the loader's name as every client opens it; it is never closed.
        let library = unsafe { libc::dlopen(c"libvulkan.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        // SAFETY: a library that is open, and a name that ends in NUL.
        let get = unsafe { libc::dlsym(library, c"vkGetInstanceProcAddr".as_ptr()) };
        if get.is_null() {
            return None;
        }
        // SAFETY: the loader exports this name with this type.
        let entry = unsafe {
            ash::Entry::from_static_fn(ash::StaticFn {
                get_instance_proc_addr: std::mem::transmute::<
                    *mut libc::c_void,
                    vk::PFN_vkGetInstanceProcAddr,
                >(get),
            })
        };
        Some(Self {
            entry,
            instances: Vec::new(),
            devices: Vec::new(),
            descriptors: Vec::new(),
        })
    }

    /// An instance and a device on each GPU. Refused as may be: then there is nothing to work with.
    pub fn begin(&mut self) {
        let _ = self.new_instance(vk::API_VERSION_1_3);
        for physical in 0..self
            .instances
            .first()
            .and_then(Option::as_ref)
            .map_or(0, |one| one.physical.len())
        {
            let _ = self.new_device(0, physical, 1);
        }
    }

    pub fn end(&mut self) {
        while !self.devices.is_empty() {
            // SAFETY: no work of ours is pending; the device goes with everything in it, or so the layer promises.
            unsafe {
                let made = self.devices.remove(0);
                let _ = made.device.device_wait_idle();
                for (memory, _) in made.memories {
                    made.device.free_memory(memory, None);
                }
                made.device.destroy_device(None);
            }
        }
        for living in self.instances.drain(..).flatten() {
            // SAFETY: its devices are gone.
            unsafe { living.instance.destroy_instance(None) };
        }
        for descriptor in self.descriptors.drain(..) {
            // SAFETY: a descriptor that was given to us.
            unsafe { libc::close(descriptor) };
        }
    }

    /// Asks each device for its whole budget, of which something is taken always: before that is refused the layer looks for what is gone.
    pub fn look(&mut self, budgets: &[u64]) {
        self.begin();
        for made in &self.devices {
            let (Some(living), Some(&budget)) =
                (&self.instances[made.instance], budgets.get(made.physical))
            else {
                continue;
            };
            // SAFETY: a physical device of a living instance.
            let memory = unsafe {
                living
                    .instance
                    .get_physical_device_memory_properties(living.physical[made.physical])
            };
            let local = |kind: &vk::MemoryType| {
                kind.property_flags
                    .contains(vk::MemoryPropertyFlags::DEVICE_LOCAL)
            };
            let kind = memory
                .memory_types_as_slice()
                .iter()
                .position(local)
                .unwrap_or(0);
            let info = vk::MemoryAllocateInfo::default()
                .allocation_size(budget)
                .memory_type_index(kind as u32);
            // SAFETY: a living device, and a type that it has.
            if let Ok(memory) = unsafe { made.device.allocate_memory(&info, None) } {
                // SAFETY: it was just given.
                unsafe { made.device.free_memory(memory, None) };
            }
        }
        self.end();
    }

    pub fn run(&mut self, command: &Command, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
        frame::clear();
        (command.run)(self, maker)
    }

    fn instance(&mut self, maker: &mut Maker<'_>) -> Option<&mut Living> {
        let nth = usize::from(maker.byte());
        let living = self.instances.iter_mut().flatten();
        let mut living: Vec<_> = living.collect();
        let count = living.len();
        (count > 0).then(|| living.swap_remove(nth % count))
    }

    fn device(&mut self, maker: &mut Maker<'_>) -> Option<&mut Made> {
        let nth = usize::from(maker.byte());
        let count = self.devices.len();
        (count > 0).then(|| &mut self.devices[nth % count])
    }

    fn new_instance(&mut self, version: u32) -> vk::Result {
        let application = vk::ApplicationInfo::default().api_version(version);
        let names = [
            ash::khr::get_physical_device_properties2::NAME.as_ptr(),
            ash::khr::device_group_creation::NAME.as_ptr(),
        ];
        let create = vk::InstanceCreateInfo::default()
            .application_info(&application)
            .enabled_extension_names(&names);
        // SAFETY: the structures outlive the calls; an instance that was just made.
        unsafe {
            let instance = match self.entry.create_instance(&create, None) {
                Ok(instance) => instance,
                Err(refused) => return refused,
            };
            let physical = instance.enumerate_physical_devices().unwrap_or_default();
            let properties2 =
                ash::khr::get_physical_device_properties2::Instance::new(&self.entry, &instance);
            let groups = ash::khr::device_group_creation::Instance::new(&self.entry, &instance);
            self.instances.push(Some(Living {
                instance,
                physical,
                properties2,
                groups,
            }));
        }
        vk::Result::SUCCESS
    }

    fn new_device(&mut self, instance: usize, physical: usize, queues: usize) -> vk::Result {
        let Some(living) = self.instances.get(instance).and_then(Option::as_ref) else {
            return vk::Result::NOT_READY;
        };
        let priorities = [1.0; 4];
        let families = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(0)
            .queue_priorities(&priorities[..queues])];
        let names = [
            ash::khr::external_memory_fd::NAME.as_ptr(),
            ash::khr::synchronization2::NAME.as_ptr(),
            ash::ext::memory_priority::NAME.as_ptr(),
        ];
        let mut features = vk::PhysicalDeviceVulkan13Features::default().synchronization2(true);
        let plain = vk::PhysicalDeviceFeatures::default().sparse_binding(true);
        let create = vk::DeviceCreateInfo::default()
            .queue_create_infos(&families)
            .enabled_extension_names(&names)
            .enabled_features(&plain)
            .push_next(&mut features);
        // SAFETY: a physical device of this instance; the structures outlive the calls.
        unsafe {
            let device =
                match living
                    .instance
                    .create_device(living.physical[physical], &create, None)
                {
                    Ok(device) => device,
                    Err(refused) => return refused,
                };
            let queues = (0..queues as u32)
                .map(|nth| device.get_device_queue(0, nth))
                .collect();
            self.devices.push(Made {
                instance,
                physical,
                external: ash::khr::external_memory_fd::Device::new(&living.instance, &device),
                submit2: ash::khr::synchronization2::Device::new(&living.instance, &device),
                device,
                memories: Vec::new(),
                queues,
            });
        }
        vk::Result::SUCCESS
    }
}

fn code(result: vk::Result) -> u32 {
    result.as_raw() as u32
}

const UNTOUCHED: u64 = 0xdead_beef;

fn allocate(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let imported = client.descriptors.last().copied();
    let made = client.device(maker)?;
    let (instance, physical) = (made.instance, made.physical);
    let at = client
        .devices
        .iter()
        .position(|one| one.instance == instance && one.physical == physical)?;
    let living = client.instances.get(instance)?.as_ref()?;
    // SAFETY: a physical device of a living instance.
    let memory = unsafe {
        living
            .instance
            .get_physical_device_memory_properties(living.physical[physical])
    };
    let types = memory.memory_types_as_slice();
    let kind = u32::from(maker.byte()) % types.len() as u32;
    let heap = memory.memory_heaps[types[kind as usize].heap_index as usize];
    let local = heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL);
    let mut size = maker.size();
    if !local && size < u64::MAX / 2 {
        size %= HOST_MOST;
    }
    let chosen = maker.byte();
    let mut priority =
        vk::MemoryPriorityAllocateInfoEXT::default().priority(f32::from(maker.byte()) / 255.0);
    let mut export = vk::ExportMemoryAllocateInfo::default()
        .handle_types(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
    let mut mask = vk::MemoryAllocateFlagsInfo::default()
        .flags(vk::MemoryAllocateFlags::DEVICE_MASK)
        .device_mask(1);
    let mut dedicated = vk::MemoryDedicatedAllocateInfo::default();
    let mut import = vk::ImportMemoryFdInfoKHR::default()
        .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
    let mut info = vk::MemoryAllocateInfo::default()
        .allocation_size(size)
        .memory_type_index(kind);
    if chosen & 1 != 0 {
        info = info.push_next(&mut priority);
    }
    if chosen & 6 == 6 {
        info = info.push_next(&mut export);
    }
    if chosen & 24 == 24 {
        info = info.push_next(&mut mask);
    }
    if chosen & 32 != 0 {
        info = info.push_next(&mut dedicated);
    }
    let taken = imported.filter(|_| chosen & 192 == 192);
    if let Some(descriptor) = taken {
        // A duplicate, because whoever imports a descriptor owns it.
        // SAFETY: a descriptor of ours.
        import = import.fd(unsafe { libc::dup(descriptor) });
        info = info.push_next(&mut import);
    }
    maker.tell(
        "bytes",
        format_args!("{size:#x} of type {kind}, {chosen:#x} on device {at}"),
    );
    let made = &mut client.devices[at];
    let mut out = vk::DeviceMemory::from_raw(UNTOUCHED);
    let function = made.device.fp_v1_0().allocate_memory;
    let answer = around(|| {
        // SAFETY: the device lives; what is pointed to outlives the call.
        code(unsafe { function(made.device.handle(), &info, std::ptr::null(), &mut out) })
    });
    let granted = answer.code == 0;
    if granted {
        made.memories.push((out, u32::from(chosen & 6 == 6)));
    } else if let Some(descriptor) = taken.map(|_| import.fd) {
        // SAFETY: what was not imported is still ours.
        unsafe { libc::close(descriptor) };
    }
    let state = if granted {
        3
    } else {
        u64::from(out.as_raw() == UNTOUCHED)
    };
    Some((answer, state))
}

fn free(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let made = client.device(maker)?;
    let nth = usize::from(maker.byte());
    let memory = match made.memories.len() {
        0 => vk::DeviceMemory::null(),
        _ if nth > 240 => vk::DeviceMemory::null(),
        count => made.memories.swap_remove(nth % count).0,
    };
    let answer = around(|| {
        // SAFETY: memory of this device, or none.
        unsafe { made.device.free_memory(memory, None) };
        0
    });
    Some((answer, 0))
}

fn descriptor(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let made = client.device(maker)?;
    let exportable: Vec<_> = made
        .memories
        .iter()
        .filter(|memory| memory.1 == 1)
        .collect();
    if exportable.is_empty() {
        return None;
    }
    let memory = exportable[usize::from(maker.byte()) % exportable.len()].0;
    let info = vk::MemoryGetFdInfoKHR::default()
        .memory(memory)
        .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
    let mut found = None;
    let answer = around(|| {
        // SAFETY: memory of this device that may be exported.
        match unsafe { made.external.get_memory_fd(&info) } {
            Ok(descriptor) => {
                found = Some(descriptor);
                0
            }
            Err(refused) => code(refused),
        }
    });
    client.descriptors.extend(found);
    Some((answer, 0))
}

fn memory_properties(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let nth = usize::from(maker.byte());
    let living = client.instance(maker)?;
    let physical = *living.physical.get(nth % living.physical.len().max(1))?;
    let mut heaps = 0;
    let answer = around(|| {
        // SAFETY: a physical device of a living instance.
        let memory = unsafe {
            living
                .instance
                .get_physical_device_memory_properties(physical)
        };
        heaps = memory.memory_heap_count;
        0
    });
    Some((answer, u64::from(heaps)))
}

fn memory_properties2(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let nth = usize::from(maker.byte());
    let chosen = maker.byte();
    let living = client.instance(maker)?;
    let physical = *living.physical.get(nth % living.physical.len().max(1))?;
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut properties = vk::PhysicalDeviceMemoryProperties2::default();
    if chosen & 1 != 0 {
        properties = properties.push_next(&mut budget);
    }
    let answer = around(|| {
        // SAFETY: a physical device of a living instance; a well-formed chain.
        unsafe {
            match chosen & 2 {
                0 => living
                    .instance
                    .get_physical_device_memory_properties2(physical, &mut properties),
                _ => living
                    .properties2
                    .get_physical_device_memory_properties2(physical, &mut properties),
            }
        }
        0
    });
    Some((
        answer,
        u64::from(properties.memory_properties.memory_heap_count),
    ))
}

fn create_instance(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    if client.instances.iter().flatten().count() >= INSTANCES {
        return None;
    }
    let version = maker.one_of(&[
        0,
        vk::API_VERSION_1_0,
        vk::API_VERSION_1_1,
        vk::API_VERSION_1_3,
    ]);
    maker.tell("version", format_args!("{version:#x}"));
    let made = client.new_instance(version);
    // Whoever makes an instance asks the system for much; a loader may leave errno as it likes.
    Some((
        Answer {
            code: code(made),
            kept: true,
        },
        0,
    ))
}

fn destroy_instance(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let nth = usize::from(maker.byte()) % client.instances.len().max(1);
    if client.devices.iter().any(|made| made.instance == nth) {
        return None;
    }
    let living = client.instances.get_mut(nth)?.take()?;
    // SAFETY: its devices are gone.
    unsafe { living.instance.destroy_instance(None) };
    Some((
        Answer {
            code: 0,
            kept: true,
        },
        0,
    ))
}

fn create_device(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    if client.devices.len() >= DEVICES {
        return None;
    }
    let nth = usize::from(maker.byte()) % client.instances.len().max(1);
    let physical = client.instances.get(nth)?.as_ref()?.physical.len();
    if physical == 0 {
        return None;
    }
    let physical = usize::from(maker.byte()) % physical;
    let queues = 1 + usize::from(maker.byte() % 4);
    let made = client.new_device(nth, physical, queues);
    Some((
        Answer {
            code: code(made),
            kept: true,
        },
        0,
    ))
}

/// With everything that was allocated from it: the layer gives that back.
fn destroy_device(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let count = client.devices.len();
    if count == 0 {
        return None;
    }
    let made = client.devices.remove(usize::from(maker.byte()) % count);
    // SAFETY: no work of ours is pending.
    unsafe { made.device.destroy_device(None) };
    Some((
        Answer {
            code: 0,
            kept: true,
        },
        0,
    ))
}

/// A command's name, cut or changed perhaps.
fn name(maker: &mut Maker<'_>) -> *const c_char {
    const NAMES: [&CStr; 12] = [
        c"vkAllocateMemory",
        c"vkCreateInstance",
        c"vkGetDeviceProcAddr",
        c"vkQueueSubmit2KHR",
        c"vkDestroyDevice",
        c"vkCmdDraw",
        c"vkEnumeratePhysicalDeviceGroupsKHR",
        c"vkNoSuchCommand",
        c"",
        c"vk",
        c"vkGetMemoryFdKHR",
        c"vkQueueBindSparse",
    ];
    let mut text = [0_u8; 64];
    let chosen = maker.one_of(&NAMES).to_bytes();
    text[..chosen.len()].copy_from_slice(chosen);
    if maker.byte() < 32 {
        let at = usize::from(maker.byte()) % 63;
        text[at] = maker.byte();
    }
    frame::put(text).cast()
}

fn instance_look_up(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let name = name(maker);
    let instance = match maker.byte() {
        0..=63 => vk::Instance::null(),
        _ => client.instance(maker)?.instance.handle(),
    };
    let get = client.entry.static_fn().get_instance_proc_addr;
    // SAFETY: a living instance or none, and a name that ends in NUL.
    let found = unsafe { get(instance, name) };
    Some((
        Answer {
            code: 0,
            kept: true,
        },
        u64::from(found.is_some()),
    ))
}

fn device_look_up(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let name = name(maker);
    let made = client.device(maker)?;
    let (instance, device) = (made.instance, made.device.handle());
    let get = client.instances[instance]
        .as_ref()?
        .instance
        .fp_v1_0()
        .get_device_proc_addr;
    // SAFETY: a living device, and a name that ends in NUL.
    let found = unsafe { get(device, name) };
    Some((
        Answer {
            code: 0,
            kept: true,
        },
        u64::from(found.is_some()),
    ))
}

/// Room for so many, of which the caller says how many there are.
const PROPERTIES: usize = 16;

fn instance_extensions(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
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
    Some((Answer { code, kept: true }, u64::from(count)))
}

fn device_extensions(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
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
    Some((Answer { code, kept: true }, u64::from(count)))
}

fn physical_devices(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
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
    Some((Answer { code, kept: true }, u64::from(count)))
}

fn groups(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
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
    Some((Answer { code, kept: true }, u64::from(count)))
}

fn queue(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let made = client.device(maker)?;
    let nth = u32::from(maker.byte()) % made.queues.len() as u32;
    let mut found = vk::Queue::null();
    let answer = around(|| {
        // SAFETY: a queue that the device was made with.
        found = unsafe { made.device.get_device_queue(0, nth) };
        0
    });
    Some((answer, u64::from(found == made.queues[nth as usize])))
}

fn queue2(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let made = client.device(maker)?;
    let nth = u32::from(maker.byte()) % made.queues.len() as u32;
    let info = vk::DeviceQueueInfo2::default()
        .queue_family_index(0)
        .queue_index(nth);
    let mut found = vk::Queue::null();
    let answer = around(|| {
        // SAFETY: as above.
        found = unsafe { made.device.get_device_queue2(&info) };
        0
    });
    Some((answer, u64::from(found == made.queues[nth as usize])))
}

fn submit(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let made = client.device(maker)?;
    let queue = made.queues[usize::from(maker.byte()) % made.queues.len()];
    let batches = [vk::SubmitInfo::default(); 4];
    let batches = &batches[..usize::from(maker.byte() % 5)];
    let answer = around(|| {
        // SAFETY: the device's queue, used by this thread alone; batches of nothing.
        let done = unsafe { made.device.queue_submit(queue, batches, vk::Fence::null()) };
        done.err().map_or(0, code)
    });
    Some((answer, 0))
}

fn submit2(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let made = client.device(maker)?;
    let queue = made.queues[usize::from(maker.byte()) % made.queues.len()];
    let batches = [vk::SubmitInfo2::default(); 4];
    let batches = &batches[..usize::from(maker.byte() % 5)];
    let by_alias = maker.byte() & 1 != 0;
    let answer = around(|| {
        // SAFETY: as above.
        let done = unsafe {
            match by_alias {
                true => made
                    .submit2
                    .queue_submit2(queue, batches, vk::Fence::null()),
                false => made.device.queue_submit2(queue, batches, vk::Fence::null()),
            }
        };
        done.err().map_or(0, code)
    });
    Some((answer, 0))
}

fn bind_sparse(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let made = client.device(maker)?;
    let queue = made.queues[usize::from(maker.byte()) % made.queues.len()];
    let binds = [vk::BindSparseInfo::default(); 4];
    let binds = &binds[..usize::from(maker.byte() % 5)];
    let answer = around(|| {
        // SAFETY: as above.
        let done = unsafe {
            made.device
                .queue_bind_sparse(queue, binds, vk::Fence::null())
        };
        done.err().map_or(0, code)
    });
    Some((answer, 0))
}
