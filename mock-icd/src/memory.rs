//! Memory objects. Those of a device-local heap are taken from the world, where they really run out; the others are held
//! against their heap's size.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ash::vk::{self, Handle};
use mock_device::{Bytes, Kind};

use crate::accounts;
use crate::boundary::{Chain, In, List, New, Out, Outcome, Raw, Reserve};
use crate::instance::PhysicalDevice;
use crate::state::{Child, STATE};
use crate::touched::Touched;
use crate::trace::Told;

/// Device addresses are never given out twice; 2^63 bytes of allocations wear the range out.
static NEXT_ADDRESS: AtomicU64 = AtomicU64::new(1 << 40);

pub struct Memory {
    device: u64,
    physical: PhysicalDevice,
    heap: u32,
    device_local: bool,
    host_visible: bool,
    /// In the device's address space, where no two live objects overlap.
    pub address: u64,
    /// As asked for.
    pub size: u64,
    /// As taken: the driver hands out whole granules.
    taken: Bytes,
    /// Host memory for the contents, once anybody needs it.
    contents: OnceLock<Option<Reserve>>,
    pub touched: Touched,
    mapped: Mutex<bool>,
}

impl Child for Memory {
    fn device(&self) -> u64 {
        self.device
    }
}

impl Memory {
    pub fn contents(&self) -> Option<&Reserve> {
        self.contents
            .get_or_init(|| Reserve::new(self.size))
            .as_ref()
    }
}

/// A request of 0 bytes, of more than the heap, and of more than the device has left are refused alike, with the
/// out-param untouched (oracle: vulkan-facts.txt).
///
/// # Errors
/// VK_ERROR_OUT_OF_DEVICE_MEMORY; VK_ERROR_INVALID_EXTERNAL_HANDLE for an import, of which no kind is supported;
/// VK_ERROR_UNKNOWN for a memory type that does not exist.
pub fn allocate(
    device: vk::Device,
    info: Told<vk::MemoryAllocateInfo<'_>>,
    memory: New<vk::DeviceMemory>,
) -> Outcome {
    let physical = STATE.devices.find(device)?.physical;
    let info = info.0.demand()?;
    let profile = physical.profile();
    let kind = profile
        .memory_types
        .get(info.memory_type_index as usize)
        .ok_or(vk::Result::ERROR_UNKNOWN)?;
    let heap = profile.heaps[kind.heap as usize];
    if Chain::of(info.p_next)
        .find::<vk::ImportMemoryFdInfoKHR<'_>>()
        .is_some()
    {
        return Err(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE);
    }
    let full = vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
    if info.allocation_size == 0 || info.allocation_size > heap.size.0 {
        return Err(full);
    }
    let taken = Bytes(info.allocation_size)
        .round_up(profile.vulkan_granularity)
        .ok_or(full)?;
    let place = (physical.index, kind.heap);
    if !accounts::add(place, taken, heap.size) {
        return Err(full);
    }
    if heap.device_local() {
        let granted = physical.world.take(physical.index, Kind::Vulkan, taken);
        granted
            .inspect_err(|_| accounts::subtract(place, taken))
            .map_err(|_| full)?;
    }
    memory.put(
        STATE.memories.insert(Memory {
            device: device.as_raw(),
            physical,
            heap: kind.heap,
            device_local: heap.device_local(),
            host_visible: vk::MemoryPropertyFlags::from_raw(kind.flags)
                .contains(vk::MemoryPropertyFlags::HOST_VISIBLE),
            address: NEXT_ADDRESS.fetch_add(taken.0, Ordering::Relaxed),
            size: info.allocation_size,
            taken,
            contents: OnceLock::new(),
            touched: Touched::default(),
            mapped: Mutex::new(false),
        }),
    );
    Ok(())
}

pub fn free(memory: vk::DeviceMemory) -> Outcome {
    if memory.is_null() {
        return Ok(());
    }
    release(&*STATE.memories.remove(memory)?);
    Ok(())
}

/// Gives the bytes back. Called once per object, by whoever took it out of the store.
pub fn release(memory: &Memory) {
    if memory.device_local {
        memory
            .physical
            .world
            .give_back(memory.physical.index, Kind::Vulkan, memory.taken);
    }
    accounts::subtract((memory.physical.index, memory.heap), memory.taken);
}

/// What devices that are gone left behind, by the physical-device handle that they were made by.
static LEFT_BEHIND: Mutex<Vec<(u64, Arc<Memory>)>> = Mutex::new(Vec::new());

/// Keeps memory that was never freed with the process, until [`forget_left_behind`].
pub fn leave_behind(made_by: u64, memories: impl Iterator<Item = Arc<Memory>>) {
    let mut left = LEFT_BEHIND.lock().unwrap_or_else(PoisonError::into_inner);
    left.extend(memories.map(|memory| (made_by, memory)));
}

/// The instance that showed a physical device goes, and with it what that device's devices left behind.
pub fn forget_left_behind(made_by: u64) {
    let mut left = LEFT_BEHIND.lock().unwrap_or_else(PoisonError::into_inner);
    left.retain(|(owner, memory)| {
        let stays = *owner != made_by;
        if !stays {
            release(memory);
        }
        stays
    });
}

/// # Errors
/// VK_ERROR_MEMORY_MAP_FAILED for memory that the host cannot see, that is mapped already, or a range outside it.
pub fn map(memory: vk::DeviceMemory, offset: u64, size: u64, data: Out<Raw>) -> Outcome {
    let memory = STATE.memories.find(memory)?;
    let failed = vk::Result::ERROR_MEMORY_MAP_FAILED;
    let end = if size == vk::WHOLE_SIZE {
        Some(memory.size)
    } else {
        offset.checked_add(size)
    };
    if !memory.host_visible || offset >= memory.size || end.is_none_or(|end| end > memory.size) {
        return Err(failed);
    }
    let address = memory
        .contents()
        .and_then(|contents| contents.at(offset))
        .ok_or(failed)?;
    let mut mapped = memory.mapped.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::replace(&mut *mapped, true) {
        return Err(failed);
    }
    data.put(Raw(address.cast()));
    Ok(())
}

pub fn unmap(memory: vk::DeviceMemory) -> Outcome {
    *STATE
        .memories
        .find(memory)?
        .mapped
        .lock()
        .unwrap_or_else(PoisonError::into_inner) = false;
    Ok(())
}

/// All memory is coherent with the host: there is one copy of it.
pub fn flush(count: u32, ranges: List<vk::MappedMemoryRange<'_>>) -> Outcome {
    ranges
        .of(count as usize)
        .iter()
        .try_for_each(|range| STATE.memories.find(range.memory).map(drop))
}

/// No memory is lazily allocated, so all of it is committed.
pub fn commitment(memory: vk::DeviceMemory, committed: Out<u64>) -> Outcome {
    committed.put(STATE.memories.find(memory)?.size);
    Ok(())
}

/// The address that a capture tool would give back: any value that is the same for the same object.
pub fn capture_address(info: In<vk::DeviceMemoryOpaqueCaptureAddressInfo<'_>>) -> u64 {
    info.get()
        .filter(|info| STATE.memories.find(info.memory).is_ok())
        .map_or(0, |info| info.memory.as_raw() << 16)
}
