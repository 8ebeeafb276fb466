//! Dispatch tables of a context, loaded when its allocator is acquired, and the objects made through them.

use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ash::vk;

use super::host::{copy_in, copy_out};
use super::{Handles, Host, Loader};
use crate::error::{Error, Result};

/// A device's functions, with what is needed beside them.
pub(crate) struct Tables {
    pub(super) raw: ash::Device,
    pub(super) host: Host,
    handles: Handles,
    memory: vk::PhysicalDeviceMemoryProperties,
    limits: vk::PhysicalDeviceLimits,
    /// The device was destroyed: nothing is called any more.
    gone: AtomicBool,
}

impl Tables {
    /// Looks up every function. The handles are valid: [`super::External`] or [`super::Standing`] promised it. A NULL queue
    /// stands for the family's first.
    pub fn load(loader: Loader, mut handles: Handles, host: Host) -> Arc<Self> {
        let functions = loader.functions();
        // SAFETY: valid handles, by the promise above.
        let (instance, raw) = unsafe {
            let instance = ash::Instance::load(&functions, handles.instance);
            let raw = ash::Device::load(instance.fp_v1_0(), handles.device);
            (instance, raw)
        };
        // SAFETY: the physical device is the instance's.
        let (memory, limits) = unsafe {
            let memory = instance.get_physical_device_memory_properties(handles.physical_device);
            let properties = instance.get_physical_device_properties(handles.physical_device);
            (memory, properties.limits)
        };
        if handles.queue == vk::Queue::null() {
            // SAFETY: the device has a queue of this family.
            handles.queue = unsafe { raw.get_device_queue(handles.queue_family, 0) };
        }
        Arc::new(Self {
            raw,
            host,
            handles,
            memory,
            limits,
            gone: AtomicBool::new(false),
        })
    }

    pub fn handles(&self) -> &Handles {
        &self.handles
    }

    pub fn host(&self) -> Host {
        self.host
    }

    pub fn limits(&self) -> &vk::PhysicalDeviceLimits {
        &self.limits
    }

    pub fn memory_types(&self) -> &[vk::MemoryType] {
        self.memory.memory_types_as_slice()
    }

    /// The application destroyed the device: what was made on it went with it.
    pub fn forget(&self) {
        self.gone.store(true, Ordering::Release);
    }

    fn own<T: Kind>(self: &Arc<Self>, raw: T) -> Object<T> {
        Object {
            raw,
            tables: Arc::clone(self),
        }
    }

    pub fn allocate(self: &Arc<Self>, kind: u32, bytes: u64) -> Result<Object<vk::DeviceMemory>> {
        let info = vk::MemoryAllocateInfo::default()
            .allocation_size(bytes)
            .memory_type_index(kind);
        // SAFETY: a type of this device.
        let raw = unsafe { self.raw.allocate_memory(&info, self.host.callbacks()) };
        Ok(self.own(raw.map_err(Error::of("vkAllocateMemory"))?))
    }

    /// A buffer for shaders and transfers.
    pub fn buffer(self: &Arc<Self>, bytes: u64) -> Result<Object<vk::Buffer>> {
        let info = vk::BufferCreateInfo::default().size(bytes).usage(
            vk::BufferUsageFlags::STORAGE_BUFFER
                | vk::BufferUsageFlags::TRANSFER_SRC
                | vk::BufferUsageFlags::TRANSFER_DST,
        );
        // SAFETY: a live device, more than no bytes.
        let raw = unsafe { self.raw.create_buffer(&info, self.host.callbacks()) };
        Ok(self.own(raw.map_err(Error::of("vkCreateBuffer"))?))
    }

    pub fn requirements(&self, buffer: &Object<vk::Buffer>) -> vk::MemoryRequirements {
        // SAFETY: this device's buffer.
        unsafe { self.raw.get_buffer_memory_requirements(buffer.raw) }
    }

    /// The place fulfils the buffer's requirements, and nothing was bound to it before.
    pub fn bind(
        &self,
        buffer: &Object<vk::Buffer>,
        memory: &Object<vk::DeviceMemory>,
        start: u64,
    ) -> Result<()> {
        // SAFETY: both are this device's; for the rest see above.
        unsafe { self.raw.bind_buffer_memory(buffer.raw, memory.raw, start) }
            .map_err(Error::of("vkBindBufferMemory"))
    }

    /// All of memory that the host sees, until it is freed.
    pub fn map(&self, memory: &Object<vk::DeviceMemory>, bytes: u64) -> Result<Mapping> {
        // SAFETY: host-visible and mapped once, when the block is made.
        let start = unsafe {
            self.raw
                .map_memory(memory.raw, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())
        };
        let start = start.map_err(Error::of("vkMapMemory"))?;
        let start = NonNull::new(start.cast()).ok_or(Error::Null {
            which: "what vkMapMemory wrote",
        })?;
        Ok(Mapping { start, bytes })
    }

    pub fn module(self: &Arc<Self>, words: &[u32]) -> Result<Object<vk::ShaderModule>> {
        let info = vk::ShaderModuleCreateInfo::default().code(words);
        // SAFETY: the words begin as SPIR-V; that they are valid is the application's promise, as everywhere in Vulkan.
        let raw = unsafe { self.raw.create_shader_module(&info, self.host.callbacks()) };
        Ok(self.own(raw.map_err(Error::of("vkCreateShaderModule"))?))
    }

    /// So many storage buffers, from binding 0 on.
    pub fn set_layout(self: &Arc<Self>, buffers: u32) -> Result<Object<vk::DescriptorSetLayout>> {
        let binding = |index| {
            vk::DescriptorSetLayoutBinding::default()
                .binding(index)
                .descriptor_type(vk::DescriptorType::STORAGE_BUFFER)
                .descriptor_count(1)
                .stage_flags(vk::ShaderStageFlags::COMPUTE)
        };
        let bindings: [_; super::frame::BUFFERS] =
            std::array::from_fn(|index| binding(index as u32));
        let info =
            vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings[..buffers as usize]);
        // SAFETY: live device; the structure outlives the call.
        let raw = unsafe {
            self.raw
                .create_descriptor_set_layout(&info, self.host.callbacks())
        };
        Ok(self.own(raw.map_err(Error::of("vkCreateDescriptorSetLayout"))?))
    }

    pub fn pipeline_layout(
        self: &Arc<Self>,
        set: &Object<vk::DescriptorSetLayout>,
        constants: u32,
    ) -> Result<Object<vk::PipelineLayout>> {
        let sets = [set.raw];
        let ranges = [vk::PushConstantRange::default()
            .stage_flags(vk::ShaderStageFlags::COMPUTE)
            .size(constants * 4)];
        let info = vk::PipelineLayoutCreateInfo::default()
            .set_layouts(&sets)
            .push_constant_ranges(&ranges[..usize::from(constants != 0)]);
        // SAFETY: as above.
        let raw = unsafe {
            self.raw
                .create_pipeline_layout(&info, self.host.callbacks())
        };
        Ok(self.own(raw.map_err(Error::of("vkCreatePipelineLayout"))?))
    }

    pub fn pipeline(
        self: &Arc<Self>,
        module: &Object<vk::ShaderModule>,
        entry: &CStr,
        layout: &Object<vk::PipelineLayout>,
    ) -> Result<Object<vk::Pipeline>> {
        let stage = vk::PipelineShaderStageCreateInfo::default()
            .stage(vk::ShaderStageFlags::COMPUTE)
            .module(module.raw)
            .name(entry);
        let infos = [vk::ComputePipelineCreateInfo::default()
            .stage(stage)
            .layout(layout.raw)];
        let callbacks = self.host.callbacks();
        let callbacks = callbacks.map_or(std::ptr::null(), std::ptr::from_ref);
        let mut made = vk::Pipeline::null();
        // SAFETY: as above; both objects are this device's. ash's own wrapper hands in memory that nobody wrote, which the
        // validation layer reads though the driver refused.
        let code = unsafe {
            let create = self.raw.fp_v1_0().create_compute_pipelines;
            let (device, cache) = (self.raw.handle(), vk::PipelineCache::null());
            create(device, cache, 1, infos.as_ptr(), callbacks, &mut made)
        };
        code.result()
            .map_err(Error::of("vkCreateComputePipelines"))?;
        Ok(self.own(made))
    }

    pub(super) fn command_pool(self: &Arc<Self>) -> Result<Object<vk::CommandPool>> {
        let info = vk::CommandPoolCreateInfo::default()
            .flags(vk::CommandPoolCreateFlags::TRANSIENT)
            .queue_family_index(self.handles.queue_family);
        // SAFETY: the queue's own family.
        let raw = unsafe { self.raw.create_command_pool(&info, self.host.callbacks()) };
        Ok(self.own(raw.map_err(Error::of("vkCreateCommandPool"))?))
    }

    /// For one set of as many storage buffers as a kernel may have.
    pub(super) fn descriptor_pool(self: &Arc<Self>) -> Result<Object<vk::DescriptorPool>> {
        let sizes = [vk::DescriptorPoolSize::default()
            .ty(vk::DescriptorType::STORAGE_BUFFER)
            .descriptor_count(super::frame::BUFFERS as u32)];
        let info = vk::DescriptorPoolCreateInfo::default()
            .max_sets(1)
            .pool_sizes(&sizes);
        // SAFETY: as above.
        let raw = unsafe {
            self.raw
                .create_descriptor_pool(&info, self.host.callbacks())
        };
        Ok(self.own(raw.map_err(Error::of("vkCreateDescriptorPool"))?))
    }

    pub(super) fn fence(self: &Arc<Self>) -> Result<Object<vk::Fence>> {
        // SAFETY: as above.
        let raw = unsafe {
            self.raw
                .create_fence(&vk::FenceCreateInfo::default(), self.host.callbacks())
        };
        Ok(self.own(raw.map_err(Error::of("vkCreateFence"))?))
    }
}

/// Mapped memory of a block.
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: u64,
}

// SAFETY: who writes holds the runtime's state; the address is the process's.
unsafe impl Send for Mapping {}

impl Mapping {
    fn at(&self, from: u64, length: usize) -> Result<NonNull<u8>> {
        let out_of_range = Error::OutOfRange {
            start: from,
            bytes: length as u64,
            within: self.bytes,
        };
        match from.checked_add(length as u64) {
            Some(end) if end <= self.bytes => {
                // SAFETY: within the mapping, as was just checked.
                Ok(unsafe { self.start.add(from as usize) })
            }
            _ => Err(out_of_range),
        }
    }

    pub fn write(&mut self, from: u64, bytes: &[u8]) -> Result<()> {
        copy_in(self.at(from, bytes.len())?, bytes);
        Ok(())
    }

    pub fn read(&self, from: u64, bytes: &mut [u8]) -> Result<()> {
        copy_out(self.at(from, bytes.len())?, bytes);
        Ok(())
    }
}

/// An object of a device, destroyed when it is dropped, unless the device is gone.
pub(crate) struct Object<T: Kind> {
    raw: T,
    tables: Arc<Tables>,
}

impl<T: Kind> Object<T> {
    pub fn raw(&self) -> T {
        self.raw
    }

    /// Not destroyed any more: the device is gone.
    pub fn forget(&self) {
        self.tables.forget();
    }
}

impl<T: Kind> Drop for Object<T> {
    fn drop(&mut self) {
        if !self.tables.gone.load(Ordering::Acquire) {
            // SAFETY: made by these tables, destroyed once; the crate drops nothing that a queue still uses.
            unsafe { self.raw.destroy(&self.tables) };
        }
    }
}

/// What an [`Object`] can be.
pub(crate) trait Kind: Copy {
    /// # Safety
    /// The object is of that device, in no queue, and not used any more.
    unsafe fn destroy(self, tables: &Tables);
}

macro_rules! kinds {
    ($($kind:ident $destroy:ident)+) => {
        $(impl Kind for vk::$kind {
            unsafe fn destroy(self, tables: &Tables) {
                // SAFETY: the caller's promise.
                unsafe { tables.raw.$destroy(self, tables.host.callbacks()) };
            }
        })+
    };
}
kinds! {
    DeviceMemory free_memory
    Buffer destroy_buffer
    ShaderModule destroy_shader_module
    DescriptorSetLayout destroy_descriptor_set_layout
    PipelineLayout destroy_pipeline_layout
    Pipeline destroy_pipeline
    CommandPool destroy_command_pool
    DescriptorPool destroy_descriptor_pool
    Fence destroy_fence
}
