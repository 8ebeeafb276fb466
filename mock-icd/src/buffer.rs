//! Buffers: a size, the memory bound to them, and the bytes that transfer commands move.

use ash::vk::{self, Handle};

use crate::binding::{Binding, Piece};
use crate::boundary::{Chain, In, List, New, Out, Outcome};
use crate::needs::{self, Needs};
use crate::state::{Child, STATE};

pub struct Buffer {
    device: u64,
    pub size: u64,
    pub binding: Binding,
    handle_types: vk::ExternalMemoryHandleTypeFlags,
    flags: vk::BufferCreateFlags,
    usage: vk::BufferUsageFlags,
}

impl Child for Buffer {
    fn device(&self) -> u64 {
        self.device
    }
}

impl Buffer {
    fn new(device: u64, info: &vk::BufferCreateInfo<'_>) -> Self {
        Self {
            device,
            size: info.size,
            binding: Binding::default(),
            handle_types: Chain::of(info.p_next)
                .find::<vk::ExternalMemoryBufferCreateInfo<'_>>()
                .map(|external| external.handle_types)
                .unwrap_or_default(),
            flags: info.flags,
            usage: info.usage,
        }
    }

    /// A range cut to the buffer. A size of VK_WHOLE_SIZE means the rest, in whole words.
    pub fn range(&self, offset: u64, size: u64) -> u64 {
        let rest = self.size.saturating_sub(offset);
        if size == vk::WHOLE_SIZE {
            rest & !3
        } else {
            size.min(rest)
        }
    }

    /// Whether the buffer lies in memory of the device; so it is taken to where it is bound page by page.
    pub fn on_device(&self) -> bool {
        self.binding
            .first()
            .is_none_or(|(memory, _)| memory.is_on_device())
    }
}

pub fn create(
    device: vk::Device,
    info: In<vk::BufferCreateInfo<'_>>,
    buffer: New<vk::Buffer>,
) -> Outcome {
    STATE.devices.find(device)?;
    let info = info.demand()?;
    buffer.put(STATE.buffers.insert(Buffer::new(device.as_raw(), info)));
    Ok(())
}

pub fn destroy(buffer: vk::Buffer) -> Outcome {
    if buffer.is_null() {
        return Ok(());
    }
    STATE.buffers.remove(buffer).map(drop)
}

fn needed(device: vk::Device, buffer: &Buffer) -> Result<Needs, vk::Result> {
    let device = STATE.devices.find(device)?;
    Ok(needs::of_buffer(
        &device,
        buffer.size,
        buffer.usage,
        buffer.flags,
        buffer.handle_types,
    ))
}

pub fn requirements(
    device: vk::Device,
    buffer: vk::Buffer,
    requirements: Out<vk::MemoryRequirements>,
) -> Outcome {
    requirements.put(needed(device, &*STATE.buffers.find(buffer)?)?.requirements);
    Ok(())
}

pub fn requirements2(
    device: vk::Device,
    info: In<vk::BufferMemoryRequirementsInfo2<'_>>,
    requirements: Out<vk::MemoryRequirements2<'_>>,
) -> Outcome {
    let buffer = STATE.buffers.find(info.demand()?.buffer)?;
    needed(device, &buffer)?.put(requirements);
    Ok(())
}

/// For a buffer that does not exist yet.
pub fn requirements_of_info(
    device: vk::Device,
    info: In<vk::DeviceBufferMemoryRequirements<'_>>,
    requirements: Out<vk::MemoryRequirements2<'_>>,
) -> Outcome {
    let create = In::field(info.demand()?.p_create_info);
    let buffer = Buffer::new(device.as_raw(), create.demand()?);
    needed(device, &buffer)?.put(requirements);
    Ok(())
}

pub fn bind(buffer: vk::Buffer, memory: vk::DeviceMemory, offset: u64) -> Outcome {
    let memory = STATE.memories.find(memory)?;
    STATE
        .buffers
        .find(buffer)?
        .binding
        .bind(Piece::new(&memory, offset));
    Ok(())
}

/// In a device group each device may use another one's instance of the memory.
pub fn bind2(count: u32, infos: List<vk::BindBufferMemoryInfo<'_>>) -> Outcome {
    for info in infos.of(count as usize) {
        let chain = Chain::of(info.p_next);
        let mut piece = Piece::new(&STATE.memories.find(info.memory)?, info.memory_offset);
        if let Some(group) = chain.find::<vk::BindBufferMemoryDeviceGroupInfo<'_>>() {
            let indices = List::field(group.p_device_indices);
            piece.instances = indices.of(group.device_index_count as usize).to_vec();
        }
        STATE.buffers.find(info.buffer)?.binding.bind(piece);
    }
    Ok(())
}

/// Where the buffer lies in the device's address space; 0 while it lies nowhere.
pub fn address(info: In<vk::BufferDeviceAddressInfo<'_>>) -> u64 {
    let buffer = info
        .get()
        .and_then(|info| STATE.buffers.find(info.buffer).ok());
    let place = buffer.and_then(|buffer| buffer.binding.first());
    place.map_or(0, |(memory, offset)| memory.address + offset)
}

/// The value that a capture tool would give back: the same for the same buffer.
pub fn capture_address(info: In<vk::BufferDeviceAddressInfo<'_>>) -> u64 {
    address(info)
}
