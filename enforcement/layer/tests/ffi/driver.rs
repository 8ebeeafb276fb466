//! A next layer made of plain functions in this process: what stands below the layer when no loader is wanted.
//!
//! The tests' one room of unsafe. It simulates devices as data, counts what is held, and gives freed handles out again at once, as drivers do.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use ash::vk::{self, Handle};

/// A physical device as this driver reports it.
#[derive(Clone)]
pub struct Gpu {
    pub vendor: u32,
    pub kind: vk::PhysicalDeviceType,
    pub uuid: [u8; 16],
    pub bus: Option<u32>,
    pub heap: u64,
    pub multi_instance: bool,
    pub has_memory_budget: bool,
}

pub const NVIDIA: Gpu = Gpu {
    vendor: 0x10de,
    kind: vk::PhysicalDeviceType::DISCRETE_GPU,
    uuid: [0; 16],
    bus: Some(1),
    heap: 8 << 30,
    multi_instance: false,
    has_memory_budget: true,
};

/// What a VkDevice takes by itself.
pub const DEVICE_OVERHEAD: u64 = 16 << 20;
/// Memory types of every device: 0 in system memory, 1 device-local.
pub const SYSTEM: u32 = 0;
pub const LOCAL: u32 = 1;

#[derive(Default)]
pub struct World {
    pub gpus: Vec<Gpu>,
    /// Commands that this driver does not have.
    pub missing: Vec<&'static str>,
    pub held: AtomicU64,
    pub allocations: AtomicUsize,
    pub destroyed: AtomicUsize,
    pub extensions: AtomicUsize,
    /// Calls of vkQueueSubmit.
    pub submits: AtomicUsize,
    /// Calls of vkGetPhysicalDeviceProperties2.
    pub properties2: AtomicUsize,
    /// Calls of vkGetPhysicalDeviceMemoryProperties by chain.
    pub memory_calls: [AtomicUsize; 2],
}

static MEMORY: Mutex<Memory> = Mutex::new(Memory {
    live: BTreeMap::new(),
    free: Vec::new(),
    next: 0,
});

struct Memory {
    live: BTreeMap<u64, (usize, u64, bool)>,
    free: Vec<u64>,
    next: u64,
}

static WORLD: OnceLock<World> = OnceLock::new();

/// A dispatchable object: its first word is the dispatch pointer, as the loader sets it.
#[repr(C)]
struct Object {
    dispatch: usize,
    number: usize,
    chain: usize,
}

pub fn world() -> &'static World {
    WORLD.get().expect("a test makes its world first")
}

pub fn make_world(world: World) -> &'static World {
    assert!(WORLD.set(world).is_ok());
    self::world()
}

fn object(dispatch: usize, number: usize, chain: usize) -> u64 {
    ptr::from_mut(Box::leak(Box::new(Object {
        dispatch,
        number,
        chain,
    })))
    .expose_provenance() as u64
}

fn read(handle: u64) -> &'static Object {
    // SAFETY: every handle this driver gave is a leaked Object.
    unsafe { &*ptr::with_exposed_provenance::<Object>(handle as usize) }
}

fn fresh_dispatch() -> usize {
    Box::leak(Box::new(0_usize)) as *mut usize as usize
}

/// Where a command is. Compared, and called as what its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(*const c_void);

fn address(function: vk::PFN_vkVoidFunction) -> Option<Address> {
    function.map(|function| Address(function as *const c_void))
}

/// The layer under test, as built beside this executable.
pub struct Layer {
    library: libloading::Library,
}

pub fn library_path() -> PathBuf {
    let mut path = std::env::current_exe().expect("this executable has a path");
    path.set_file_name("libvgpu_vk.so");
    assert!(path.exists(), "{} was not built", path.display());
    path
}

#[repr(C)]
pub struct Negotiation {
    pub s_type: u32,
    pub p_next: *mut c_void,
    pub interface: u32,
    pub get_instance_proc_addr: Option<vk::PFN_vkGetInstanceProcAddr>,
    pub get_device_proc_addr: Option<vk::PFN_vkGetDeviceProcAddr>,
    pub get_physical_device_proc_addr: Option<vk::PFN_vkGetInstanceProcAddr>,
}

#[repr(C)]
struct Link<F> {
    next: *mut Link<F>,
    get: vk::PFN_vkGetInstanceProcAddr,
    second: F,
}

#[repr(C)]
struct LayerCreateInfo<F> {
    s_type: vk::StructureType,
    p_next: *const c_void,
    function: u32,
    link: *mut Link<F>,
}

impl Layer {
    pub fn open() -> Layer {
        // SAFETY: the layer's library does nothing when it is loaded.
        let library = unsafe { libloading::Library::new(library_path()) };
        Layer {
            library: library.expect("the layer loads"),
        }
    }

    pub fn negotiate(&self, negotiation: *mut Negotiation) -> vk::Result {
        // SAFETY: the symbol is the loader interface's; the pointer is null or a Negotiation.
        unsafe {
            let negotiate: libloading::Symbol<
                '_,
                unsafe extern "system" fn(*mut Negotiation) -> vk::Result,
            > = self
                .library
                .get(b"vkNegotiateLoaderLayerInterfaceVersion")
                .expect("exported");
            negotiate(negotiation)
        }
    }

    pub fn get(&self, instance: vk::Instance, name: &CStr) -> Option<Address> {
        // SAFETY: the symbol is the specification's.
        unsafe {
            let get: libloading::Symbol<'_, vk::PFN_vkGetInstanceProcAddr> = self
                .library
                .get(b"vkGetInstanceProcAddr")
                .expect("exported");
            address(get(instance, name.as_ptr()))
        }
    }

    pub fn get_device(&self, device: vk::Device, name: &CStr) -> Option<Address> {
        // SAFETY: the symbol is the specification's.
        unsafe {
            let get: libloading::Symbol<'_, vk::PFN_vkGetDeviceProcAddr> =
                self.library.get(b"vkGetDeviceProcAddr").expect("exported");
            address(get(device, name.as_ptr()))
        }
    }

    /// `command!`'s look-up: by device where there is one.
    pub fn command<F: Copy>(
        &self,
        instance: vk::Instance,
        device: Option<vk::Device>,
        name: &CStr,
    ) -> F {
        let found = device.map_or_else(
            || self.get(instance, name),
            |device| self.get_device(device, name),
        );
        let Some(Address(found)) = found else {
            panic!("{name:?} is not there");
        };
        assert_eq!(size_of::<F>(), size_of_val(&found));
        // SAFETY: the caller names the type that belongs to the name.
        unsafe { std::mem::transmute_copy(&found) }
    }

    /// Creates an instance over this driver's chain 0 or 1; with `linked` false without the loader's link.
    pub fn create_instance(&self, chain: usize, linked: bool) -> Result<vk::Instance, vk::Result> {
        self.create_instance_of(vk::API_VERSION_1_1, chain, linked)
    }

    pub fn create_instance_of(
        &self,
        version: u32,
        chain: usize,
        linked: bool,
    ) -> Result<vk::Instance, vk::Result> {
        let application = vk::ApplicationInfo::default().api_version(version);
        let mut link = Link::<usize> {
            next: ptr::null_mut(),
            get: [get_instance::<0>, get_instance::<1>][chain],
            second: 0,
        };
        let layer = LayerCreateInfo {
            s_type: vk::StructureType::LOADER_INSTANCE_CREATE_INFO,
            p_next: ptr::null(),
            function: 0,
            link: &mut link,
        };
        let p_next = if linked {
            ptr::from_ref(&layer).cast()
        } else {
            ptr::null()
        };
        let info = vk::InstanceCreateInfo {
            p_next,
            p_application_info: &application,
            ..Default::default()
        };
        let create: vk::PFN_vkCreateInstance =
            self.command(vk::Instance::null(), None, c"vkCreateInstance");
        let mut instance = vk::Instance::null();
        // SAFETY: the structures live until the call returns.
        let result = unsafe { create(&info, ptr::null(), &mut instance) };
        if result == vk::Result::SUCCESS {
            Ok(instance)
        } else {
            Err(result)
        }
    }

    pub fn destroy_instance(&self, instance: vk::Instance) {
        let destroy: vk::PFN_vkDestroyInstance = self.command(instance, None, c"vkDestroyInstance");
        // SAFETY: nobody uses it any more.
        unsafe { destroy(instance, ptr::null()) }
    }

    pub fn physical_devices(&self, instance: vk::Instance) -> Vec<vk::PhysicalDevice> {
        let enumerate: vk::PFN_vkEnumeratePhysicalDevices =
            self.command(instance, None, c"vkEnumeratePhysicalDevices");
        let (mut count, mut found) = (8, [vk::PhysicalDevice::null(); 8]);
        // SAFETY: the array has eight members.
        let result = unsafe { enumerate(instance, &mut count, found.as_mut_ptr()) };
        assert_eq!(result, vk::Result::SUCCESS);
        found[..count as usize].to_vec()
    }

    /// Creates a device of a group, with an extension if one is named; with `linked` false without the loader's link.
    pub fn create_device(
        &self,
        instance: vk::Instance,
        group: &[vk::PhysicalDevice],
        extension: Option<&CStr>,
        linked: bool,
    ) -> Result<vk::Device, vk::Result> {
        let mut link = Link::<vk::PFN_vkGetDeviceProcAddr> {
            next: ptr::null_mut(),
            get: get_instance::<0>,
            second: get_device,
        };
        let layer = LayerCreateInfo {
            s_type: vk::StructureType::LOADER_DEVICE_CREATE_INFO,
            p_next: ptr::null(),
            function: 0,
            link: &mut link,
        };
        let members = vk::DeviceGroupDeviceCreateInfo {
            p_next: if linked {
                ptr::from_ref(&layer).cast()
            } else {
                ptr::null()
            },
            physical_device_count: group.len() as u32,
            p_physical_devices: group.as_ptr(),
            ..Default::default()
        };
        let names: Vec<*const c_char> = extension.iter().map(|name| name.as_ptr()).collect();
        let info = vk::DeviceCreateInfo {
            p_next: ptr::from_ref(&members).cast(),
            enabled_extension_count: names.len() as u32,
            pp_enabled_extension_names: names.as_ptr(),
            ..Default::default()
        };
        let create: vk::PFN_vkCreateDevice = self.command(instance, None, c"vkCreateDevice");
        let mut device = vk::Device::null();
        // SAFETY: the structures live until the call returns.
        let result = unsafe { create(group[0], &info, ptr::null(), &mut device) };
        if result == vk::Result::SUCCESS {
            return Ok(device);
        }
        assert!(
            device.is_null(),
            "a refused vkCreateDevice wrote its out-param"
        );
        Err(result)
    }

    pub fn queue(&self, device: vk::Device) -> vk::Queue {
        let get: vk::PFN_vkGetDeviceQueue =
            self.command(vk::Instance::null(), Some(device), c"vkGetDeviceQueue");
        let mut queue = vk::Queue::null();
        // SAFETY: the out-parameter is a local.
        unsafe { get(device, 0, 0, &mut queue) };
        queue
    }

    /// Submits one command buffer, which nobody looks at, by the device's vkQueueSubmit.
    pub fn submit(&self, device: vk::Device, queue: vk::Queue) -> vk::Result {
        let submit: vk::PFN_vkQueueSubmit =
            self.command(vk::Instance::null(), Some(device), c"vkQueueSubmit");
        let buffers = [vk::CommandBuffer::null()];
        let info = vk::SubmitInfo::default().command_buffers(&buffers);
        // SAFETY: the structure outlives the call.
        unsafe { submit(queue, 1, &info, vk::Fence::null()) }
    }

    pub fn destroy_device(&self, device: vk::Device) {
        let destroy: vk::PFN_vkDestroyDevice =
            self.command(vk::Instance::null(), Some(device), c"vkDestroyDevice");
        // SAFETY: nobody uses it any more.
        unsafe { destroy(device, ptr::null()) }
    }

    /// Allocates; a refusal must leave the out-param alone.
    pub fn allocate(
        &self,
        device: vk::Device,
        kind: u32,
        size: u64,
        chain: *const c_void,
    ) -> Result<vk::DeviceMemory, vk::Result> {
        let allocate: vk::PFN_vkAllocateMemory =
            self.command(vk::Instance::null(), Some(device), c"vkAllocateMemory");
        let info = vk::MemoryAllocateInfo {
            allocation_size: size,
            memory_type_index: kind,
            p_next: chain,
            ..Default::default()
        };
        let untouched = vk::DeviceMemory::from_raw(0xdead);
        let mut memory = untouched;
        // SAFETY: the structures live until the call returns.
        let result = unsafe { allocate(device, &info, ptr::null(), &mut memory) };
        if result == vk::Result::SUCCESS {
            return Ok(memory);
        }
        assert_eq!(
            memory, untouched,
            "a refused vkAllocateMemory wrote its out-param"
        );
        Err(result)
    }

    pub fn free(&self, device: vk::Device, memory: vk::DeviceMemory) {
        let free: vk::PFN_vkFreeMemory =
            self.command(vk::Instance::null(), Some(device), c"vkFreeMemory");
        // SAFETY: nobody uses it any more.
        unsafe { free(device, memory, ptr::null()) }
    }

    pub fn export(&self, device: vk::Device, memory: vk::DeviceMemory) -> i32 {
        let get: vk::PFN_vkGetMemoryFdKHR =
            self.command(vk::Instance::null(), Some(device), c"vkGetMemoryFdKHR");
        let info = vk::MemoryGetFdInfoKHR {
            memory,
            handle_type: vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD,
            ..Default::default()
        };
        let mut fd = -1;
        // SAFETY: the structure lives until the call returns.
        assert_eq!(unsafe { get(device, &info, &mut fd) }, vk::Result::SUCCESS);
        fd
    }

    pub fn memory_properties(
        &self,
        instance: vk::Instance,
        device: vk::PhysicalDevice,
    ) -> vk::PhysicalDeviceMemoryProperties {
        let get: vk::PFN_vkGetPhysicalDeviceMemoryProperties =
            self.command(instance, None, c"vkGetPhysicalDeviceMemoryProperties");
        let mut memory = vk::PhysicalDeviceMemoryProperties::default();
        // SAFETY: the structure is what the command fills.
        unsafe { get(device, &mut memory) };
        memory
    }

    /// By either spelling: (heap sizes, budgets, usages).
    pub fn memory_budget(
        &self,
        instance: vk::Instance,
        device: vk::PhysicalDevice,
        name: &CStr,
    ) -> (u64, [u64; 16], [u64; 16]) {
        let get: vk::PFN_vkGetPhysicalDeviceMemoryProperties2 = self.command(instance, None, name);
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT {
            heap_budget: [7; 16],
            heap_usage: [7; 16],
            ..Default::default()
        };
        let mut memory = vk::PhysicalDeviceMemoryProperties2 {
            p_next: ptr::from_mut(&mut budget).cast(),
            ..Default::default()
        };
        // SAFETY: the structures are what the command fills.
        unsafe { get(device, &mut memory) };
        (
            memory.memory_properties.memory_heaps[1].size,
            budget.heap_budget,
            budget.heap_usage,
        )
    }

    /// Extension count by instance (no device) or device, for a layer's name.
    pub fn extension_count(
        &self,
        instance: vk::Instance,
        device: Option<vk::PhysicalDevice>,
        layer: Option<&CStr>,
    ) -> (vk::Result, u32) {
        let (layer, mut count) = (layer.map_or(ptr::null(), CStr::as_ptr), 99);
        // SAFETY: the count can be written, the name ends in NUL.
        let result = unsafe {
            match device {
                Some(device) => {
                    let get: vk::PFN_vkEnumerateDeviceExtensionProperties =
                        self.command(instance, None, c"vkEnumerateDeviceExtensionProperties");
                    get(device, layer, &mut count, ptr::null_mut())
                }
                None => {
                    let get: vk::PFN_vkEnumerateInstanceExtensionProperties =
                        self.command(instance, None, c"vkEnumerateInstanceExtensionProperties");
                    get(layer, &mut count, ptr::null_mut())
                }
            }
        };
        (result, count)
    }
}

/// A handle of somebody else's: well-formed, and unknown to the layer.
pub fn foreign<H: Handle>() -> H {
    H::from_raw(object(fresh_dispatch(), 0, 0))
}

/// A queue of the device that the layer never saw.
pub fn unseen_queue(device: vk::Device) -> vk::Queue {
    vk::Queue::from_raw(object(read(device.as_raw()).dispatch, 0, 0))
}

/// What this driver itself answers for a name.
pub fn own_address(
    device: Option<vk::Device>,
    instance: vk::Instance,
    name: &CStr,
) -> Option<Address> {
    // SAFETY: the name ends in NUL.
    address(unsafe {
        match device {
            Some(device) => get_device(device, name.as_ptr()),
            None => get_instance::<0>(instance, name.as_ptr()),
        }
    })
}

macro_rules! answers {
    ($name:expr; $($command:literal: $signature:ty => $body:expr,)*) => {
        match $name {
            name if world().missing.iter().any(|missing| missing.as_bytes() == name) => None,
            // SAFETY: a command's address is handed out as PFN_vkVoidFunction and called as what its name says.
            $($command => Some(unsafe { std::mem::transmute::<$signature, unsafe extern "system" fn()>($body) }),)*
            _ => None,
        }
    };
}

unsafe extern "system" fn get_instance<const CHAIN: usize>(
    instance: vk::Instance,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the name ends in NUL.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    answers! { name;
        b"vkCreateInstance": vk::PFN_vkCreateInstance => create_instance::<CHAIN>,
        b"vkDestroyInstance": vk::PFN_vkDestroyInstance => destroy_instance,
        b"vkEnumeratePhysicalDevices": vk::PFN_vkEnumeratePhysicalDevices => enumerate,
        b"vkGetPhysicalDeviceProperties": vk::PFN_vkGetPhysicalDeviceProperties => properties,
        b"vkGetPhysicalDeviceProperties2": vk::PFN_vkGetPhysicalDeviceProperties2 => properties2,
        b"vkGetPhysicalDeviceMemoryProperties": vk::PFN_vkGetPhysicalDeviceMemoryProperties => memory_properties::<CHAIN>,
        b"vkGetPhysicalDeviceMemoryProperties2": vk::PFN_vkGetPhysicalDeviceMemoryProperties2 => memory_properties2,
        b"vkGetPhysicalDeviceMemoryProperties2KHR": vk::PFN_vkGetPhysicalDeviceMemoryProperties2 => memory_properties2,
        b"vkEnumerateDeviceExtensionProperties": vk::PFN_vkEnumerateDeviceExtensionProperties => device_extensions,
        b"vkCreateDevice": vk::PFN_vkCreateDevice => create_device,
    }
    .or_else(|| {
        // SAFETY: the name is the caller's own. Device commands are there for an instance too, if there is one.
        (!instance.is_null()).then(|| unsafe { get_device(vk::Device::null(), name.as_ptr().cast()) })?
    })
}

unsafe extern "system" fn get_device(
    _device: vk::Device,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the name ends in NUL.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    answers! { name;
        b"vkGetDeviceProcAddr": vk::PFN_vkGetDeviceProcAddr => get_device,
        b"vkDestroyDevice": vk::PFN_vkDestroyDevice => destroy_device,
        b"vkAllocateMemory": vk::PFN_vkAllocateMemory => allocate,
        b"vkFreeMemory": vk::PFN_vkFreeMemory => free,
        b"vkGetMemoryFdKHR": vk::PFN_vkGetMemoryFdKHR => memory_fd,
        b"vkDeviceWaitIdle": vk::PFN_vkDeviceWaitIdle => wait_idle,
        b"vkGetDeviceQueue": vk::PFN_vkGetDeviceQueue => device_queue,
        b"vkQueueSubmit": vk::PFN_vkQueueSubmit => submit,
        b"vkQueueSubmit2": vk::PFN_vkQueueSubmit2 => submit2,
        b"vkQueueSubmit2KHR": vk::PFN_vkQueueSubmit2 => submit2,
    }
}

unsafe extern "system" fn create_instance<const CHAIN: usize>(
    _info: *const vk::InstanceCreateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::Instance,
) -> vk::Result {
    // SAFETY: the layer passes the caller's out-param.
    unsafe { *out = vk::Instance::from_raw(object(fresh_dispatch(), 0, CHAIN)) };
    vk::Result::SUCCESS
}

unsafe extern "system" fn destroy_instance(
    _instance: vk::Instance,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    world().destroyed.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "system" fn enumerate(
    instance: vk::Instance,
    count: *mut u32,
    out: *mut vk::PhysicalDevice,
) -> vk::Result {
    static HANDLES: Mutex<BTreeMap<(u64, usize), u64>> = Mutex::new(BTreeMap::new());
    let (gpus, known) = (world().gpus.len(), read(instance.as_raw()));
    // SAFETY: the array has as many members as said.
    unsafe {
        if !out.is_null() {
            let mut handles = HANDLES.lock().expect("no panic");
            for number in 0..gpus.min(*count as usize) {
                let handle = handles
                    .entry((instance.as_raw(), number))
                    .or_insert_with(|| object(known.dispatch, number, known.chain));
                *out.add(number) = vk::PhysicalDevice::from_raw(*handle);
            }
        }
        *count = gpus as u32;
    }
    vk::Result::SUCCESS
}

fn gpu(device: vk::PhysicalDevice) -> &'static Gpu {
    &world().gpus[read(device.as_raw()).number]
}

unsafe extern "system" fn properties(
    device: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceProperties,
) {
    // SAFETY: the caller's structure.
    unsafe {
        (*out).api_version = vk::API_VERSION_1_3;
        (*out).vendor_id = gpu(device).vendor;
        (*out).device_type = gpu(device).kind;
    }
}

unsafe extern "system" fn properties2(
    device: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceProperties2<'_>,
) {
    world().properties2.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the caller's chain of valid structures.
    unsafe {
        let mut at = (*out).p_next.cast::<vk::BaseOutStructure<'_>>();
        while let Some(structure) = at.as_mut() {
            match structure.s_type {
                vk::StructureType::PHYSICAL_DEVICE_ID_PROPERTIES => {
                    (*at.cast::<vk::PhysicalDeviceIDProperties<'_>>()).device_uuid =
                        gpu(device).uuid
                }
                vk::StructureType::PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT => {
                    let pci = &mut *at.cast::<vk::PhysicalDevicePCIBusInfoPropertiesEXT<'_>>();
                    pci.pci_domain = 0;
                    pci.pci_bus = gpu(device).bus.expect("only asked where it is");
                }
                _ => {}
            }
            at = structure.p_next;
        }
    }
}

unsafe extern "system" fn memory_properties<const CHAIN: usize>(
    device: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceMemoryProperties,
) {
    assert_eq!(
        read(device.as_raw()).chain,
        CHAIN,
        "asked by another instance's chain"
    );
    world().memory_calls[CHAIN].fetch_add(1, Ordering::SeqCst);
    let gpu = gpu(device);
    let multi = if gpu.multi_instance {
        vk::MemoryHeapFlags::MULTI_INSTANCE
    } else {
        vk::MemoryHeapFlags::empty()
    };
    // SAFETY: the caller's structure.
    let out = unsafe { &mut *out };
    (out.memory_heap_count, out.memory_type_count) = (2, 2);
    out.memory_heaps[0] = vk::MemoryHeap {
        size: 64 << 30,
        flags: vk::MemoryHeapFlags::empty(),
    };
    out.memory_heaps[1] = vk::MemoryHeap {
        size: gpu.heap,
        flags: vk::MemoryHeapFlags::DEVICE_LOCAL | multi,
    };
    out.memory_types[LOCAL as usize].heap_index = 1;
}

unsafe extern "system" fn memory_properties2(
    device: vk::PhysicalDevice,
    out: *mut vk::PhysicalDeviceMemoryProperties2<'_>,
) {
    // SAFETY: the caller's chain of valid structures.
    unsafe {
        match read(device.as_raw()).chain {
            0 => memory_properties::<0>(device, &mut (*out).memory_properties),
            _ => memory_properties::<1>(device, &mut (*out).memory_properties),
        }
        let at = (*out)
            .p_next
            .cast::<vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'_>>();
        if let Some(budget) = at.as_mut().filter(|_| gpu(device).has_memory_budget) {
            budget.heap_budget[1] = gpu(device).heap - (17 << 20);
            budget.heap_usage[1] = world().held.load(Ordering::SeqCst);
        }
    }
}

unsafe extern "system" fn device_extensions(
    device: vk::PhysicalDevice,
    _layer: *const c_char,
    count: *mut u32,
    out: *mut vk::ExtensionProperties,
) -> vk::Result {
    world().extensions.fetch_add(1, Ordering::SeqCst);
    let mut names = vec![vk::KHR_EXTERNAL_MEMORY_FD_NAME];
    names.extend(gpu(device).bus.map(|_| vk::EXT_PCI_BUS_INFO_NAME));
    names.extend(
        gpu(device)
            .has_memory_budget
            .then_some(vk::EXT_MEMORY_BUDGET_NAME),
    );
    // SAFETY: the array has as many members as said.
    unsafe {
        if !out.is_null() {
            for (position, name) in names.iter().enumerate() {
                (*out.add(position)) = vk::ExtensionProperties::default()
                    .extension_name(name)
                    .expect("short enough");
            }
        }
        *count = names.len() as u32;
    }
    vk::Result::SUCCESS
}

unsafe extern "system" fn create_device(
    physical: vk::PhysicalDevice,
    info: *const vk::DeviceCreateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::Device,
) -> vk::Result {
    // SAFETY: the caller's structures.
    unsafe {
        for position in 0..(*info).enabled_extension_count as usize {
            if CStr::from_ptr(*(*info).pp_enabled_extension_names.add(position))
                == c"VK_KHR_nonsense"
            {
                return vk::Result::ERROR_EXTENSION_NOT_PRESENT;
            }
        }
        world().held.fetch_add(DEVICE_OVERHEAD, Ordering::SeqCst);
        let dispatch = DISPATCH
            .lock()
            .expect("no panic")
            .pop()
            .unwrap_or_else(fresh_dispatch);
        let handle = object(dispatch, read(physical.as_raw()).number, 0);
        *out = vk::Device::from_raw(handle);
    }
    vk::Result::SUCCESS
}

/// Dispatch pointers recur: a device gets that of one destroyed before.
static DISPATCH: Mutex<Vec<usize>> = Mutex::new(Vec::new());

unsafe extern "system" fn destroy_device(
    device: vk::Device,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    let mut memory = MEMORY.lock().expect("no panic");
    let dispatch = read(device.as_raw()).dispatch;
    let gone: Vec<u64> = memory
        .live
        .iter()
        .filter(|(_, (owner, ..))| *owner == dispatch)
        .map(|(handle, _)| *handle)
        .collect();
    for handle in gone {
        memory.give_back(handle);
    }
    world().held.fetch_sub(DEVICE_OVERHEAD, Ordering::SeqCst);
    world().destroyed.fetch_add(1, Ordering::SeqCst);
    DISPATCH.lock().expect("no panic").push(dispatch);
}

impl Memory {
    fn give_back(&mut self, handle: u64) {
        let (_, size, local) = self
            .live
            .remove(&handle)
            .expect("the driver is asked to free what lives");
        self.free.push(handle);
        if local {
            world().held.fetch_sub(size, Ordering::SeqCst);
        }
    }
}

/// What happens elsewhere after an import closed its descriptor and before it answers.
pub static AFTER_TAKING_A_DESCRIPTOR: OnceLock<Box<dyn Fn() + Send + Sync>> = OnceLock::new();

unsafe extern "system" fn allocate(
    device: vk::Device,
    info: *const vk::MemoryAllocateInfo<'_>,
    _allocator: *const vk::AllocationCallbacks<'_>,
    out: *mut vk::DeviceMemory,
) -> vk::Result {
    world().allocations.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the caller's structures.
    let (info, out) = unsafe { (&*info, &mut *out) };
    if info.memory_type_index > LOCAL {
        return vk::Result::ERROR_UNKNOWN;
    }
    if info.allocation_size == 0 {
        return vk::Result::ERROR_VALIDATION_FAILED_EXT;
    }
    if info.allocation_size > 1 << 40 {
        return vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
    }
    // SAFETY: the chain's first structure, if any.
    let import = unsafe { info.p_next.cast::<vk::ImportMemoryFdInfoKHR<'_>>().as_ref() };
    if import.is_some_and(|import| import.s_type == vk::StructureType::IMPORT_MEMORY_FD_INFO_KHR) {
        // SAFETY: the descriptor is the importer's from here on.
        if unsafe { libc::close(import.expect("just seen").fd) } != 0 {
            return vk::Result::ERROR_INVALID_EXTERNAL_HANDLE;
        }
        if let Some(meanwhile) = AFTER_TAKING_A_DESCRIPTOR.get() {
            meanwhile();
        }
    }
    let (size, local) = (
        info.allocation_size.next_multiple_of(64 << 10),
        info.memory_type_index == LOCAL,
    );
    if local {
        world().held.fetch_add(size, Ordering::SeqCst);
    }
    let mut memory = MEMORY.lock().expect("no panic");
    let handle = memory.free.pop().unwrap_or_else(|| {
        memory.next += 1;
        memory.next
    });
    memory
        .live
        .insert(handle, (read(device.as_raw()).dispatch, size, local));
    *out = vk::DeviceMemory::from_raw(handle);
    vk::Result::SUCCESS
}

unsafe extern "system" fn free(
    _device: vk::Device,
    memory: vk::DeviceMemory,
    _allocator: *const vk::AllocationCallbacks<'_>,
) {
    if !memory.is_null() {
        MEMORY.lock().expect("no panic").give_back(memory.as_raw());
    }
}

unsafe extern "system" fn memory_fd(
    _device: vk::Device,
    _info: *const vk::MemoryGetFdInfoKHR<'_>,
    fd: *mut i32,
) -> vk::Result {
    // SAFETY: the name ends in NUL; the out-param is the caller's.
    unsafe { *fd = libc::memfd_create(c"exported".as_ptr(), 0) };
    vk::Result::SUCCESS
}

unsafe extern "system" fn device_queue(
    device: vk::Device,
    _family: u32,
    _index: u32,
    out: *mut vk::Queue,
) {
    // SAFETY: valid usage.
    unsafe { out.write(unseen_queue(device)) };
}

unsafe extern "system" fn submit(
    _queue: vk::Queue,
    _count: u32,
    _submits: *const vk::SubmitInfo<'_>,
    _fence: vk::Fence,
) -> vk::Result {
    world().submits.fetch_add(1, Ordering::Relaxed);
    vk::Result::SUCCESS
}

unsafe extern "system" fn submit2(
    _queue: vk::Queue,
    _count: u32,
    _submits: *const vk::SubmitInfo2<'_>,
    _fence: vk::Fence,
) -> vk::Result {
    vk::Result::SUCCESS
}

unsafe extern "system" fn wait_idle(_device: vk::Device) -> vk::Result {
    vk::Result::SUCCESS
}
