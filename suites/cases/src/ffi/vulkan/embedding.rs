//! An application with a runtime inside (`suites/workloads/embedder`): its own instance, device, queue and buffers, its host
//! memory, and its look-up of Vulkan, through which it sees what the runtime asks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use embedder::{External, ForeignBuffer, Handles, Host, Loader, OwnContext, Runtime, Settings};
use harness::{Failure, fail};

use super::super::library::{Library, Visibility};
use super::{Client, Code, Device, Instance, PhysicalDevice, Vulkan, c_void, validation, vk};
use crate::clients::NVIDIA;

mod witness;

pub use witness::{Bound, Placed, Recorded, Seen};

/// An application, ready to embed.
pub struct Application {
    pub runtime: Runtime,
    device: Option<Device>,
    pub instance: Instance,
    pub physical: PhysicalDevice,
    pub host: Arc<HostMemory>,
}

impl Application {
    /// Of the first GPU, or of the first device at all where there is no GPU.
    pub fn start(settings: Settings) -> Result<Self, Failure> {
        let instance = Vulkan::open()?.instance(Client::V1_1)?;
        let devices = instance.physical_devices()?;
        let gpu = devices.iter().find(|&&one| instance.kind(one).1 == NVIDIA);
        let Some(&physical) = gpu.or(devices.first()) else {
            fail!("Vulkan has no device");
        };
        let device = instance.device(physical)?;
        let host = Arc::new(HostMemory::default());
        let library = Library::open("libvulkan.so.1", Visibility::Local)?;
        // SAFETY: the loader exports this name with this type.
        let get: Option<vk::PFN_vkGetInstanceProcAddr> =
            unsafe { library.function("vkGetInstanceProcAddr") };
        let Some(get) = get else {
            fail!("libvulkan.so.1 lacks vkGetInstanceProcAddr");
        };
        // SAFETY: the loader is never unloaded; the witness answers what it does.
        let loader = unsafe { Loader::new(witness::before(get)) };
        // SAFETY: functions of this module; the memory's counts outlive the runtime, whose field is dropped first.
        let callbacks = unsafe { Host::of(host.callbacks()) };
        Ok(Self {
            runtime: Runtime::new(loader, callbacks, settings),
            device: Some(device),
            instance,
            physical,
            host,
        })
    }

    pub fn device(&self) -> Result<&Device, Failure> {
        match &self.device {
            Some(device) => Ok(device),
            None => fail!("the application destroyed its device"),
        }
    }

    /// Its handles, as it hands them to the runtime.
    pub fn handles(&self) -> Result<Handles, Failure> {
        self.handles_of(self.device()?)
    }

    pub fn external(&self) -> Result<External, Failure> {
        // SAFETY: the application's own, which outlive the runtime or are told of.
        Ok(unsafe { External::new(self.handles()?) })
    }

    /// Another device of the application's.
    pub fn external_of(&self, device: &Device) -> Result<External, Failure> {
        // SAFETY: the case keeps the device until the runtime has let go of it.
        Ok(unsafe { External::new(self.handles_of(device)?) })
    }

    /// With that handle missing.
    pub fn external_without(&self, which: &str) -> Result<External, Failure> {
        let mut handles = self.handles()?;
        match which {
            "VkInstance" => handles.instance = vk::Instance::null(),
            "VkPhysicalDevice" => handles.physical_device = vk::PhysicalDevice::null(),
            "VkDevice" => handles.device = vk::Device::null(),
            _ => handles.queue = vk::Queue::null(),
        }
        // SAFETY: what is not NULL is the application's own.
        Ok(unsafe { External::new(handles) })
    }

    fn handles_of(&self, device: &Device) -> Result<Handles, Failure> {
        Ok(Handles {
            instance: self.instance.inner.raw.handle(),
            physical_device: self.physical.0,
            device: device.raw.handle(),
            // SAFETY: every device here has one queue of family 0.
            queue: unsafe { device.raw.get_device_queue(0, 0) },
            queue_family: 0,
        })
    }

    /// Destroys the device, and answers what it was.
    pub fn destroy_device(&mut self) -> Result<vk::Device, Failure> {
        let handle = self.device()?.raw.handle();
        self.device = None;
        Ok(handle)
    }

    /// What its device can do at most.
    pub fn limits(&self) -> vk::PhysicalDeviceLimits {
        // SAFETY: a physical device of this instance.
        let properties = unsafe {
            let raw = &self.instance.inner.raw;
            raw.get_physical_device_properties(self.physical.0)
        };
        properties.limits
    }

    /// Whether shaders are carried out: the mock reckons with their time alone.
    pub fn computes(&self, real: bool) -> bool {
        real || self.instance.kind(self.physical).1 != NVIDIA
    }

    /// A buffer of the application's own, in memory that it maps.
    pub fn buffer(&self, bytes: u64) -> Result<OwnBuffer<'_>, Failure> {
        let device = self.device()?;
        let info = vk::BufferCreateInfo::default().size(bytes).usage(
            vk::BufferUsageFlags::STORAGE_BUFFER
                | vk::BufferUsageFlags::TRANSFER_SRC
                | vk::BufferUsageFlags::TRANSFER_DST,
        );
        // SAFETY: live device; what is made is destroyed with the value.
        unsafe {
            let mut made = OwnBuffer {
                raw: device.raw.create_buffer(&info, None).map_err(Code::from)?,
                memory: vk::DeviceMemory::null(),
                start: std::ptr::null_mut(),
                bytes: bytes as usize,
                device,
            };
            let needs = device.raw.get_buffer_memory_requirements(made.raw);
            let wanted =
                vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
            let physical = self.physical.0;
            let memory = self
                .instance
                .inner
                .raw
                .get_physical_device_memory_properties(physical);
            let fits = |(index, kind): &(u32, &vk::MemoryType)| {
                needs.memory_type_bits >> index & 1 != 0 && kind.property_flags.contains(wanted)
            };
            let mut types = (0..).zip(memory.memory_types_as_slice());
            let Some((kind, _)) = types.find(fits) else {
                fail!("no memory for a buffer that the host sees");
            };
            let info = vk::MemoryAllocateInfo::default()
                .allocation_size(needs.size)
                .memory_type_index(kind);
            made.memory = device
                .raw
                .allocate_memory(&info, None)
                .map_err(Code::from)?;
            let bound = device.raw.bind_buffer_memory(made.raw, made.memory, 0);
            bound.map_err(Code::from)?;
            let flags = vk::MemoryMapFlags::empty();
            let start = device.raw.map_memory(made.memory, 0, vk::WHOLE_SIZE, flags);
            made.start = start.map_err(Code::from)?.cast();
            if made.start.is_null() {
                fail!("vkMapMemory wrote no address");
            }
            Ok(made)
        }
    }
}

/// How a context of the runtime's own is made here: of an NVIDIA GPU, watched as the case's own instances are.
pub fn own_context() -> OwnContext {
    let mut options = unwatched_context();
    if !validation::wanted() {
        return options;
    }
    options.layers.push(validation::LAYER.to_owned());
    // SAFETY: a function of this crate, which uses no user data.
    unsafe { options.heard_by(validation::creation()) }
}

/// NULL in a VkBuffer's place.
pub fn no_buffer() -> ForeignBuffer {
    // SAFETY: NULL may be.
    unsafe { ForeignBuffer::new(vk::Buffer::null(), 256) }
}

/// The same without the validation layer.
pub fn unwatched_context() -> OwnContext {
    let mut options = OwnContext::default();
    options.wanted = |properties| properties.vendor_id == NVIDIA;
    options
}

/// A VkBuffer of the application's.
pub struct OwnBuffer<'a> {
    raw: vk::Buffer,
    memory: vk::DeviceMemory,
    start: *mut u8,
    bytes: usize,
    device: &'a Device,
}

impl OwnBuffer<'_> {
    /// As the application hands it to the runtime.
    pub fn foreign(&self) -> ForeignBuffer {
        // SAFETY: for storage and transfers, of so many bytes, bound, and the case lets go of it before it is dropped.
        unsafe { ForeignBuffer::new(self.raw, self.bytes as u64) }
    }

    pub fn raw(&self) -> vk::Buffer {
        self.raw
    }

    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.bytes, "the case's own buffer");
        // SAFETY: within the mapping, which no device writes at this time.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len()) };
    }

    pub fn read(&self, at: usize, length: usize) -> Vec<u8> {
        assert!(at + length <= self.bytes, "the case's own buffer");
        let mut bytes = vec![0; length];
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(self.start.add(at), bytes.as_mut_ptr(), length) };
        bytes
    }
}

impl Drop for OwnBuffer<'_> {
    fn drop(&mut self) {
        // SAFETY: the application's own, which no queue uses any more; NULL memory is allowed.
        unsafe {
            self.device.raw.destroy_buffer(self.raw, None);
            self.device.raw.free_memory(self.memory, None);
        }
    }
}

/// An application's host memory: counted, and refused when the case says so.
#[derive(Default)]
pub struct HostMemory {
    asked: AtomicUsize,
    live: AtomicUsize,
    /// Which request is refused; 0 is none.
    refused: AtomicUsize,
}

impl HostMemory {
    /// How many requests there were.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// How many blocks are not freed.
    pub fn live(&self) -> usize {
        self.live.load(Ordering::SeqCst)
    }

    /// Of the requests to come the n-th is answered NULL.
    pub fn refuse(&self, number: usize) {
        self.refused.store(self.asked() + number, Ordering::SeqCst);
    }

    fn callbacks(self: &Arc<Self>) -> vk::AllocationCallbacks<'static> {
        vk::AllocationCallbacks {
            p_user_data: Arc::as_ptr(self).cast_mut().cast(),
            pfn_allocation: Some(allocate),
            pfn_reallocation: Some(reallocate),
            pfn_free: Some(free),
            ..Default::default()
        }
    }
}

/// # Safety
/// `user` is a [`HostMemory`]; the alignment is a power of two.
unsafe extern "system" fn allocate(
    user: *mut c_void,
    size: usize,
    alignment: usize,
    _scope: vk::SystemAllocationScope,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    let memory = unsafe { &*user.cast::<HostMemory>() };
    let number = memory.asked.fetch_add(1, Ordering::SeqCst) + 1;
    if number == memory.refused.load(Ordering::SeqCst) {
        return std::ptr::null_mut();
    }
    // Mesa takes NULL for no bytes as a refusal: like malloc, this answers an address for them.
    let size = size.max(1);
    let mut start = std::ptr::null_mut();
    // SAFETY: a power of two, as large as a pointer at least.
    let failed =
        unsafe { libc::posix_memalign(&mut start, alignment.max(size_of::<usize>()), size) };
    if failed != 0 {
        return std::ptr::null_mut();
    }
    memory.live.fetch_add(1, Ordering::SeqCst);
    start
}

/// # Safety
/// As [`allocate`]; `old` is NULL or was answered by one of the two.
unsafe extern "system" fn reallocate(
    user: *mut c_void,
    old: *mut c_void,
    size: usize,
    alignment: usize,
    scope: vk::SystemAllocationScope,
) -> *mut c_void {
    // SAFETY: the caller's promise; as much is copied as both blocks have.
    unsafe {
        if size == 0 {
            free(user, old);
            return std::ptr::null_mut();
        }
        let new = allocate(user, size, alignment, scope);
        if !old.is_null() && !new.is_null() {
            let length = libc::malloc_usable_size(old).min(size);
            std::ptr::copy_nonoverlapping(old.cast::<u8>(), new.cast::<u8>(), length);
            free(user, old);
        }
        new
    }
}

/// # Safety
/// As [`reallocate`].
unsafe extern "system" fn free(user: *mut c_void, block: *mut c_void) {
    if block.is_null() {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let memory = &*user.cast::<HostMemory>();
        memory.live.fetch_sub(1, Ordering::SeqCst);
        libc::free(block);
    }
}
