//! Buffers: a size, the memory bound to them, and the bytes that transfer commands move.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use ash::vk::{self, Handle};

use crate::boundary::{ChainOut, In, List, New, Out, Outcome};
use crate::effect::Region;
use crate::memory::Memory;
use crate::state::{Child, STATE};
use crate::trace::Told;

/// Of every buffer, whatever its usage.
pub const ALIGNMENT: u64 = 16;

pub struct Buffer {
    device: u64,
    size: u64,
    binding: Mutex<Option<Binding>>,
}

/// Memory that may be freed before what is bound to it.
#[derive(Clone)]
struct Binding {
    memory: Weak<Memory>,
    offset: u64,
}

impl Child for Buffer {
    fn device(&self) -> u64 {
        self.device
    }
}

impl Buffer {
    /// The memory, and where in it the range lies; `None` unbound, or outside the buffer.
    fn place(&self, offset: u64, size: u64) -> Option<(Arc<Memory>, u64)> {
        let inside = offset.checked_add(size).is_some_and(|end| end <= self.size);
        let binding = self
            .binding
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()?;
        Some((
            binding.memory.upgrade().filter(|_| inside)?,
            binding.offset.checked_add(offset)?,
        ))
    }

    /// A size of VK_WHOLE_SIZE means the rest, in whole words.
    pub fn fill(&self, offset: u64, size: u64, word: u32) {
        let size = if size == vk::WHOLE_SIZE {
            self.size.saturating_sub(offset) & !3
        } else {
            size
        };
        let Some((memory, start)) = self.place(offset, size) else {
            return;
        };
        let Some(contents) = memory.contents() else {
            return;
        };
        for (part, length) in memory.touched.admit(start, size) {
            contents.fill(start + part, length, word);
        }
    }

    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let Some((memory, start)) = self.place(offset, bytes.len() as u64) else {
            return;
        };
        let Some(contents) = memory.contents() else {
            return;
        };
        for (part, length) in memory.touched.admit(start, bytes.len() as u64) {
            let part = usize::try_from(part).unwrap_or(usize::MAX);
            let length = usize::try_from(length).unwrap_or(0);
            contents.write(start + part as u64, &bytes[part..part + length]);
        }
    }

    pub fn copy_from(&self, source: &Self, region: Region) {
        let Some((from, from_start)) = source.place(region.from, region.size) else {
            return;
        };
        let Some((to, to_start)) = self.place(region.to, region.size) else {
            return;
        };
        let (Some(source), Some(contents)) = (from.contents(), to.contents()) else {
            return;
        };
        for (part, length) in to.touched.admit(to_start, region.size) {
            contents.copy_from(to_start + part, source, from_start + part, length);
        }
    }
}

pub fn create(
    device: vk::Device,
    info: Told<vk::BufferCreateInfo<'_>>,
    buffer: New<vk::Buffer>,
) -> Outcome {
    STATE.devices.find(device)?;
    let size = info.0.demand()?.size;
    buffer.put(STATE.buffers.insert(Buffer {
        device: device.as_raw(),
        size,
        binding: Mutex::new(None),
    }));
    Ok(())
}

pub fn destroy(buffer: vk::Buffer) -> Outcome {
    if buffer.is_null() {
        return Ok(());
    }
    STATE.buffers.remove(buffer).map(drop)
}

fn needed(device: vk::Device, size: u64) -> Result<vk::MemoryRequirements, vk::Result> {
    let types = STATE
        .devices
        .find(device)?
        .physical
        .profile()
        .memory_types
        .len();
    let size = size.checked_next_multiple_of(ALIGNMENT).unwrap_or(size);
    Ok(vk::MemoryRequirements {
        size,
        alignment: ALIGNMENT,
        memory_type_bits: (1 << types) - 1,
    })
}

pub fn requirements(
    device: vk::Device,
    buffer: vk::Buffer,
    requirements: Out<vk::MemoryRequirements>,
) -> Outcome {
    requirements.put(needed(device, STATE.buffers.find(buffer)?.size)?);
    Ok(())
}

pub fn requirements2(
    device: vk::Device,
    info: In<vk::BufferMemoryRequirementsInfo2<'_>>,
    requirements: Out<vk::MemoryRequirements2<'_>>,
) -> Outcome {
    put_requirements(
        requirements,
        needed(device, STATE.buffers.find(info.demand()?.buffer)?.size)?,
    );
    Ok(())
}

/// For a buffer that does not exist yet.
pub fn requirements_of_info(
    device: vk::Device,
    info: In<vk::DeviceBufferMemoryRequirements<'_>>,
    requirements: Out<vk::MemoryRequirements2<'_>>,
) -> Outcome {
    let create = In::field(info.demand()?.p_create_info);
    put_requirements(requirements, needed(device, create.demand()?.size)?);
    Ok(())
}

/// Nothing here needs memory of its own.
pub fn put_requirements(
    to: Out<vk::MemoryRequirements2<'_>>,
    requirements: vk::MemoryRequirements,
) {
    to.edit(|to| {
        to.memory_requirements = requirements;
        ChainOut::of(to.p_next).edit::<vk::MemoryDedicatedRequirements<'_>>(|dedicated| {
            dedicated.prefers_dedicated_allocation = vk::FALSE;
            dedicated.requires_dedicated_allocation = vk::FALSE;
        });
    });
}

pub fn bind(buffer: vk::Buffer, memory: vk::DeviceMemory, offset: u64) -> Outcome {
    let memory = Arc::downgrade(&STATE.memories.find(memory)?);
    let buffer = STATE.buffers.find(buffer)?;
    *buffer
        .binding
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = Some(Binding { memory, offset });
    Ok(())
}

pub fn bind2(count: u32, infos: List<vk::BindBufferMemoryInfo<'_>>) -> Outcome {
    infos
        .of(count as usize)
        .iter()
        .try_for_each(|info| bind(info.buffer, info.memory, info.memory_offset))
}

/// Where the buffer lies in the device's address space; 0 while it lies nowhere.
pub fn address(info: In<vk::BufferDeviceAddressInfo<'_>>) -> u64 {
    let buffer = info
        .get()
        .and_then(|info| STATE.buffers.find(info.buffer).ok());
    let place = buffer.and_then(|buffer| buffer.place(0, 0));
    place.map_or(0, |(memory, offset)| memory.address + offset)
}

/// The value that a capture tool would give back: the same for the same buffer.
pub fn capture_address(info: In<vk::BufferDeviceAddressInfo<'_>>) -> u64 {
    address(info)
}
