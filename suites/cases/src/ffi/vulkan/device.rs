//! A logical device and the memory allocated on it.

use super::super::library::Address;
use super::{Arc, CStr, Code, Inner, Instance, Mutex, PhysicalDevice, PoisonError, c_void, vk};

/// A logical device with one queue. Dropping it frees what is left and destroys it. Used from any thread.
pub struct Device {
    pub(super) raw: ash::Device,
    live: Mutex<Vec<vk::DeviceMemory>>,
    /// Destroyed after the device.
    _instance: Arc<Inner>,
}

/// A memory object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory(pub(super) vk::DeviceMemory);

/// vkAllocateMemory's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub code: Code,
    pub memory: Option<Memory>,
    /// The out-parameter holds what it held before the call.
    pub untouched: bool,
}

const UNTOUCHED: u64 = 0xdead_beef;

impl Instance {
    pub fn device(&self, physical: PhysicalDevice) -> Result<Device, Code> {
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(0)
            .queue_priorities(&[1.0])];
        let create = vk::DeviceCreateInfo::default().queue_create_infos(&queues);
        // SAFETY: the physical device is this instance's; every driver has queue family 0.
        let raw = unsafe { self.inner.raw.create_device(physical.0, &create, None) }?;
        Ok(Device::new(raw, Arc::clone(&self.inner)))
    }
}

impl Device {
    pub(super) fn new(raw: ash::Device, instance: Arc<Inner>) -> Self {
        Self {
            raw,
            live: Mutex::default(),
            _instance: instance,
        }
    }

    /// vkAllocateMemory, with a look at the out-parameter.
    pub fn ask(&self, memory_type: u32, bytes: u64) -> Allocation {
        let info = vk::MemoryAllocateInfo::default()
            .memory_type_index(memory_type)
            .allocation_size(bytes);
        self.ask_with(&info)
    }

    pub(super) fn ask_with(&self, info: &vk::MemoryAllocateInfo<'_>) -> Allocation {
        // SAFETY: it outlives the call.
        unsafe { self.ask_by(info) }
    }

    /// # Safety
    /// What is pointed to is a valid structure at any time of the call.
    pub(super) unsafe fn ask_by(&self, info: *const vk::MemoryAllocateInfo<'_>) -> Allocation {
        use vk::Handle;
        let mut out = vk::DeviceMemory::from_raw(UNTOUCHED);
        let allocate = self.raw.fp_v1_0().allocate_memory;
        // SAFETY: the device lives; the rest is the caller's.
        let code = unsafe { allocate(self.raw.handle(), info, std::ptr::null(), &mut out) };
        let granted = code == vk::Result::SUCCESS;
        if granted {
            self.live().push(out);
        }
        Allocation {
            code: code.into(),
            memory: granted.then_some(Memory(out)),
            untouched: out.as_raw() == UNTOUCHED,
        }
    }

    /// Whom an application calls under that name, by vkGetDeviceProcAddr.
    pub fn address_of(&self, instance: &Instance, name: &CStr) -> Option<Address> {
        let get = instance.inner.raw.fp_v1_0().get_device_proc_addr;
        // SAFETY: the device lives, and the name ends in NUL.
        unsafe { get(self.raw.handle(), name.as_ptr()) }
            .and_then(|found| Address::from_raw(found as *mut c_void))
    }

    pub fn allocate(&self, memory_type: u32, bytes: u64) -> Result<Memory, Code> {
        let allocation = self.ask(memory_type, bytes);
        allocation.memory.ok_or(allocation.code)
    }

    pub fn free(&self, memory: Memory) {
        self.live().retain(|&live| live != memory.0);
        // SAFETY: the object is this device's and freed once: it was in the list of live ones.
        unsafe { self.raw.free_memory(memory.0, None) };
    }

    /// vkFreeMemory(VK_NULL_HANDLE), which is allowed.
    pub fn free_nothing(&self) {
        // SAFETY: the specification allows the null handle.
        unsafe { self.raw.free_memory(vk::DeviceMemory::null(), None) };
    }

    /// Destroys the device without freeing its memory, which drivers survive though the specification forbids it.
    pub fn abandon_memory(self) {
        self.live().clear();
    }

    fn live(&self) -> std::sync::MutexGuard<'_, Vec<vk::DeviceMemory>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let left = std::mem::take(&mut *self.live());
        // SAFETY: nobody else holds the device, its memory objects are freed once and before it.
        unsafe {
            for memory in left {
                self.raw.free_memory(memory, None);
            }
            self.raw.destroy_device(None);
        }
    }
}
