//! Memory objects that are asked for with more than a size and a type, and what is bound to them.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::ffi::race::while_changed;

use super::{Allocation, Arc, Client, Code, Device, Instance, Memory, PhysicalDevice, vk};

/// What vkAllocateMemory is asked beside size and type; each is a structure of its chain.
#[derive(Default)]
pub struct Wish<'a> {
    /// VkExportMemoryAllocateInfo.
    pub exportable: bool,
    /// VkImportMemoryFdInfoKHR.
    pub import: Option<OwnedFd>,
    /// VkImportMemoryHostPointerInfoEXT.
    pub host: Option<&'a Pages>,
    /// VkMemoryDedicatedAllocateInfo.
    pub buffer: Option<&'a Buffer<'a>>,
    /// The same for an image.
    pub image: Option<&'a Image<'a>>,
    /// VkMemoryAllocateFlagsInfo's deviceMask.
    pub mask: Option<u32>,
    /// VkMemoryAllocateFlagsInfo with device addresses that can be had again, and VkMemoryOpaqueCaptureAddressAllocateInfo; 0 is any address.
    pub address: Option<u64>,
    /// VkMemoryPriorityAllocateInfoEXT.
    pub priority: Option<f32>,
}

impl Device {
    /// vkAllocateMemory of so many bytes, of a type that another thread changes all the while and that is the second at first, until so many were granted or
    /// it is time to end; they are the device's to free.
    pub fn allocate_of_a_changing_type(&self, types: [u32; 2], bytes: u64, most: usize) {
        let mut info = vk::MemoryAllocateInfo::default()
            .allocation_size(bytes)
            .memory_type_index(types[1]);
        let info = &raw mut info;
        // SAFETY: the structure outlives both threads, and this side changes the word as an atomic alone.
        let place = unsafe { AtomicU32::from_ptr(&raw mut (*info).memory_type_index) };
        let mut granted = 0;
        while_changed(
            |first| place.store(types[usize::from(!first)], Ordering::Relaxed),
            || {
                // SAFETY: as above.
                let answer = unsafe { self.ask_by(info) };
                granted += usize::from(answer.memory.is_some());
                granted < most
            },
        );
    }
}

/// Host memory that a driver can import.
pub struct Pages {
    pub(super) start: *mut std::ffi::c_void,
    bytes: usize,
}

impl Pages {
    pub fn new(bytes: usize) -> std::io::Result<Self> {
        Self::map(ptr::null_mut(), bytes, 0)
    }

    /// At an address where nothing is.
    pub fn at(address: u64, bytes: u64) -> std::io::Result<Self> {
        let place = ptr::without_provenance_mut(address as usize);
        Self::map(place, bytes as usize, libc::MAP_FIXED_NOREPLACE)
    }

    fn map(place: *mut std::ffi::c_void, bytes: usize, flags: i32) -> std::io::Result<Self> {
        // SAFETY: a new private mapping, which replaces none.
        let start = unsafe {
            libc::mmap(
                place,
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | flags,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self { start, bytes })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing imports it any more.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

/// A buffer of a device.
pub struct Buffer<'a> {
    device: &'a Device,
    pub(super) raw: vk::Buffer,
    size: u64,
}

/// A two-dimensional image of a device.
pub struct Image<'a> {
    device: &'a Device,
    pub(super) raw: vk::Image,
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: the device's own, in no queue.
        unsafe { self.device.raw.destroy_buffer(self.raw, None) };
    }
}

impl Drop for Image<'_> {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { self.device.raw.destroy_image(self.raw, None) };
    }
}

/// Extensions that [`Instance::device_with_all`] enables where the driver has them.
const EXTENSIONS: [&std::ffi::CStr; 3] = [
    ash::khr::external_memory_fd::NAME,
    ash::ext::external_memory_host::NAME,
    ash::ext::memory_priority::NAME,
];

impl Instance {
    /// A device of one or several physical devices of a group, with everything that a [`Wish`] may want. For 1.3 clients.
    pub fn device_with_all(&self, group: &[PhysicalDevice]) -> Result<Device, Code> {
        let first = *group.first().ok_or(Code::INITIALIZATION_FAILED)?;
        self.device_of_group(first, group)
    }

    /// The same made from `first`, which should be of the group.
    pub fn device_of_group(
        &self,
        first: PhysicalDevice,
        group: &[PhysicalDevice],
    ) -> Result<Device, Code> {
        let known = self.extensions(first)?;
        let names: Vec<_> = EXTENSIONS
            .into_iter()
            .filter(|name| {
                known
                    .iter()
                    .any(|known| known.as_bytes() == name.to_bytes())
            })
            .map(std::ffi::CStr::as_ptr)
            .collect();
        let members: Vec<_> = group.iter().map(|member| member.0).collect();
        let queues = [vk::DeviceQueueCreateInfo::default()
            .queue_family_index(0)
            .queue_priorities(&[1.0])];
        let mut whole = vk::DeviceGroupDeviceCreateInfo::default().physical_devices(&members);
        let mut core = vk::PhysicalDeviceVulkan12Features::default()
            .buffer_device_address(true)
            .buffer_device_address_capture_replay(true)
            .buffer_device_address_multi_device(members.len() > 1)
            .timeline_semaphore(true);
        let mut priority =
            vk::PhysicalDeviceMemoryPriorityFeaturesEXT::default().memory_priority(true);
        let mut create = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&names)
            .push_next(&mut core)
            .push_next(&mut priority);
        if members != [first.0] {
            create = create.push_next(&mut whole);
        }
        // SAFETY: the physical devices are this instance's and of one group; the structures outlive the call.
        let raw = unsafe { self.inner.raw.create_device(first.0, &create, None) }?;
        Ok(Device::new(raw, Arc::clone(&self.inner)))
    }

    /// vkEnumeratePhysicalDeviceGroups, or its alias in a client of 1.0.
    pub fn groups(&self) -> Result<Vec<Vec<PhysicalDevice>>, Code> {
        let (core, khr) = (&self.inner.raw, &self.inner.groups);
        let by_alias = self.inner.client == Client::V1_0WithGroups;
        // SAFETY: the instance lives; no more than the array has is written.
        let groups = unsafe {
            let count = match by_alias {
                true => khr.enumerate_physical_device_groups_len()?,
                false => core.enumerate_physical_device_groups_len()?,
            };
            let mut groups = vec![vk::PhysicalDeviceGroupProperties::default(); count];
            match by_alias {
                true => khr.enumerate_physical_device_groups(&mut groups)?,
                false => core.enumerate_physical_device_groups(&mut groups)?,
            }
            groups
        };
        let members = |group: &vk::PhysicalDeviceGroupProperties<'_>| {
            let count = group.physical_device_count as usize;
            group.physical_devices[..count]
                .iter()
                .map(|device| PhysicalDevice(*device))
                .collect()
        };
        Ok(groups.iter().map(members).collect())
    }

    fn external_fd(&self, device: &Device) -> ash::khr::external_memory_fd::Device {
        ash::khr::external_memory_fd::Device::new(&self.inner.raw, &device.raw)
    }
}

impl Device {
    /// vkAllocateMemory with all that is wished for. An import that fails gives its descriptor up.
    pub fn ask_for(&self, memory_type: u32, bytes: u64, wish: Wish<'_>) -> Allocation {
        let opaque = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
        let mut export = vk::ExportMemoryAllocateInfo::default().handle_types(opaque);
        let mut import = vk::ImportMemoryFdInfoKHR::default().handle_type(opaque);
        let mut host = vk::ImportMemoryHostPointerInfoEXT::default()
            .handle_type(vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT);
        let mut dedicated = vk::MemoryDedicatedAllocateInfo::default();
        let mut flags = vk::MemoryAllocateFlagsInfo::default();
        let mut address = vk::MemoryOpaqueCaptureAddressAllocateInfo::default();
        let mut priority = vk::MemoryPriorityAllocateInfoEXT::default();
        let mut info = vk::MemoryAllocateInfo::default()
            .memory_type_index(memory_type)
            .allocation_size(bytes);
        if wish.exportable {
            info = info.push_next(&mut export);
        }
        let imported = wish.import.as_ref().map(AsRawFd::as_raw_fd);
        if let Some(fd) = imported {
            import.fd = fd;
            info = info.push_next(&mut import);
        }
        if let Some(pages) = wish.host {
            host.p_host_pointer = pages.start;
            info = info.push_next(&mut host);
        }
        if wish.buffer.is_some() || wish.image.is_some() {
            dedicated.buffer = wish
                .buffer
                .map_or_else(vk::Buffer::null, |buffer| buffer.raw);
            dedicated.image = wish.image.map_or_else(vk::Image::null, |image| image.raw);
            info = info.push_next(&mut dedicated);
        }
        if let Some(wanted) = wish.address {
            flags.flags |= vk::MemoryAllocateFlags::DEVICE_ADDRESS
                | vk::MemoryAllocateFlags::DEVICE_ADDRESS_CAPTURE_REPLAY;
            address.opaque_capture_address = wanted;
            info = info.push_next(&mut address);
        }
        if let Some(mask) = wish.mask {
            flags.flags |= vk::MemoryAllocateFlags::DEVICE_MASK;
            flags.device_mask = mask;
        }
        if !flags.flags.is_empty() {
            info = info.push_next(&mut flags);
        }
        if let Some(wanted) = wish.priority {
            priority.priority = wanted;
            info = info.push_next(&mut priority);
        }
        let allocation = self.ask_with(&info);
        if let (Some(fd), true) = (wish.import, allocation.memory.is_some()) {
            // The driver's now.
            let _driver = fd.into_raw_fd();
        }
        allocation
    }

    /// vkGetMemoryFdKHR.
    pub fn export(&self, instance: &Instance, memory: Memory) -> Result<OwnedFd, Code> {
        let info = vk::MemoryGetFdInfoKHR::default()
            .memory(memory.0)
            .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
        // SAFETY: the memory is this device's, whose extension is enabled; the descriptor is new and ours.
        Ok(unsafe { OwnedFd::from_raw_fd(instance.external_fd(self).get_memory_fd(&info)?) })
    }

    /// vkGetDeviceMemoryOpaqueCaptureAddress.
    pub fn capture_address(&self, memory: Memory) -> u64 {
        let info = vk::DeviceMemoryOpaqueCaptureAddressInfo::default().memory(memory.0);
        // SAFETY: the memory is this device's and was allocated for it.
        unsafe { self.raw.get_device_memory_opaque_capture_address(&info) }
    }

    /// A buffer, at any address or none.
    pub fn buffer(&self, size: u64, address: Option<u64>) -> Result<Buffer<'_>, Code> {
        let mut capture = vk::BufferOpaqueCaptureAddressCreateInfo::default();
        let mut info = vk::BufferCreateInfo::default()
            .size(size)
            .usage(vk::BufferUsageFlags::TRANSFER_SRC | vk::BufferUsageFlags::TRANSFER_DST);
        if let Some(address) = address {
            capture.opaque_capture_address = address;
            info.usage |= vk::BufferUsageFlags::SHADER_DEVICE_ADDRESS;
            info.flags |= vk::BufferCreateFlags::DEVICE_ADDRESS_CAPTURE_REPLAY;
            info = info.push_next(&mut capture);
        }
        // SAFETY: the structures outlive the call.
        let raw = unsafe { self.raw.create_buffer(&info, None) }?;
        Ok(Buffer {
            device: self,
            raw,
            size,
        })
    }

    /// A square image of four bytes a texel.
    pub fn image(&self, side: u32) -> Result<Image<'_>, Code> {
        let info = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(vk::Format::R8G8B8A8_UNORM)
            .extent(vk::Extent3D {
                width: side,
                height: side,
                depth: 1,
            })
            .mip_levels(1)
            .array_layers(1)
            .samples(vk::SampleCountFlags::TYPE_1)
            .usage(vk::ImageUsageFlags::TRANSFER_DST);
        // SAFETY: as above.
        let raw = unsafe { self.raw.create_image(&info, None) }?;
        Ok(Image { device: self, raw })
    }

    /// Fills the first buffer with a word, copies it to the second, which lies in `visible` memory, waits by a fence and by a timeline
    /// semaphore, and reads the first word of that memory.
    pub fn carry(
        &self,
        word: u32,
        from: &Buffer<'_>,
        to: &Buffer<'_>,
        visible: Memory,
    ) -> Result<u32, Code> {
        let raw = &self.raw;
        let mut kind = vk::SemaphoreTypeCreateInfo::default()
            .semaphore_type(vk::SemaphoreType::TIMELINE)
            .initial_value(1);
        // SAFETY: every object is this device's and destroyed when its queue is done with it; every structure outlives its call.
        unsafe {
            let queue = raw.get_device_queue(0, 0);
            let pool = raw.create_command_pool(&vk::CommandPoolCreateInfo::default(), None)?;
            let fence = raw.create_fence(&vk::FenceCreateInfo::default(), None)?;
            let timeline = raw.create_semaphore(
                &vk::SemaphoreCreateInfo::default().push_next(&mut kind),
                None,
            )?;
            let buffers = raw.allocate_command_buffers(
                &vk::CommandBufferAllocateInfo::default()
                    .command_pool(pool)
                    .command_buffer_count(2),
            )?;
            let work = buffers[0];
            raw.begin_command_buffer(work, &vk::CommandBufferBeginInfo::default())?;
            raw.cmd_fill_buffer(work, from.raw, 0, vk::WHOLE_SIZE, word);
            let filled = vk::BufferMemoryBarrier::default()
                .src_access_mask(vk::AccessFlags::TRANSFER_WRITE)
                .dst_access_mask(vk::AccessFlags::TRANSFER_READ)
                .src_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                .dst_queue_family_index(vk::QUEUE_FAMILY_IGNORED)
                .buffer(from.raw)
                .size(vk::WHOLE_SIZE);
            let transfer = vk::PipelineStageFlags::TRANSFER;
            raw.cmd_pipeline_barrier(
                work,
                transfer,
                transfer,
                vk::DependencyFlags::empty(),
                &[],
                &[filled],
                &[],
            );
            let region = vk::BufferCopy::default().size(from.size.min(to.size));
            raw.cmd_copy_buffer(work, from.raw, to.raw, &[region]);
            raw.end_command_buffer(work)?;
            let (timelines, values) = ([timeline], [2]);
            let mut steps =
                vk::TimelineSemaphoreSubmitInfo::default().signal_semaphore_values(&values);
            let submit = vk::SubmitInfo::default()
                .command_buffers(slice::from_ref(&work))
                .signal_semaphores(&timelines)
                .push_next(&mut steps);
            raw.queue_submit(queue, &[submit], fence)?;
            raw.wait_for_fences(&[fence], true, u64::MAX)?;
            raw.wait_semaphores(
                &vk::SemaphoreWaitInfo::default()
                    .semaphores(&timelines)
                    .values(&values),
                u64::MAX,
            )?;
            raw.reset_fences(&[fence])?;
            raw.free_command_buffers(pool, &buffers);
            raw.destroy_command_pool(pool, None);
            raw.destroy_semaphore(timeline, None);
            raw.destroy_fence(fence, None);
            let mapped =
                raw.map_memory(visible.0, 0, vk::WHOLE_SIZE, vk::MemoryMapFlags::empty())?;
            let read = mapped.cast::<u32>().read();
            raw.unmap_memory(visible.0);
            Ok(read)
        }
    }
}

impl Buffer<'_> {
    /// Bytes of memory that it needs, and the types that it may lie in.
    pub fn needs(&self) -> (u64, u32) {
        // SAFETY: the device's own.
        let needs = unsafe { self.device.raw.get_buffer_memory_requirements(self.raw) };
        (needs.size, needs.memory_type_bits)
    }

    pub fn bind(&self, memory: Memory) -> Result<(), Code> {
        // SAFETY: both are the device's, and it was never bound.
        Ok(unsafe { self.device.raw.bind_buffer_memory(self.raw, memory.0, 0) }?)
    }

    /// The same by vkBindBufferMemory2.
    pub fn bind_by_structure(&self, memory: Memory) -> Result<(), Code> {
        let bind = vk::BindBufferMemoryInfo::default()
            .buffer(self.raw)
            .memory(memory.0);
        // SAFETY: as above.
        Ok(unsafe { self.device.raw.bind_buffer_memory2(&[bind]) }?)
    }

    /// vkGetBufferDeviceAddress and vkGetBufferOpaqueCaptureAddress.
    pub fn addresses(&self) -> (u64, u64) {
        let info = vk::BufferDeviceAddressInfo::default().buffer(self.raw);
        // SAFETY: it is bound, and was created for it.
        unsafe {
            (
                self.device.raw.get_buffer_device_address(&info),
                self.device.raw.get_buffer_opaque_capture_address(&info),
            )
        }
    }
}

impl Image<'_> {
    /// As [`Buffer::needs`].
    pub fn needs(&self) -> (u64, u32) {
        // SAFETY: the device's own.
        let needs = unsafe { self.device.raw.get_image_memory_requirements(self.raw) };
        (needs.size, needs.memory_type_bits)
    }

    pub fn bind(&self, memory: Memory) -> Result<(), Code> {
        // SAFETY: both are the device's, and it was never bound.
        Ok(unsafe { self.device.raw.bind_image_memory(self.raw, memory.0, 0) }?)
    }
}
