//! Memory objects. Those of a device-local heap are taken from the world, where they really run out; the others are held
//! against their heap's size.

use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ash::vk::{self, Handle};
use mock_device::object::Object;
use mock_device::{Bytes, DeviceProfile, Heap, Kind};

use crate::accounts;
use crate::binding::Member;
use crate::boundary::{Chain, In, List, New, Out, Outcome, Raw, Reserve, borrow, close, host_file};
use crate::device::Device;
use crate::instance::PhysicalDevice;
use crate::state::{Child, STATE};
use crate::touched::Touched;

/// Device addresses are never given out twice; 2^63 bytes of allocations wear the range out.
static NEXT_ADDRESS: AtomicU64 = AtomicU64::new(1 << 40);

pub struct Memory {
    device: u64,
    /// Where it lies: on each of these, or in the host's memory that the first one's heap stands for.
    holders: Vec<PhysicalDevice>,
    heap: u32,
    device_local: bool,
    host_visible: bool,
    /// In the device's address space, where no two live objects overlap.
    pub address: u64,
    /// As asked for.
    pub size: u64,
    /// As taken: the driver hands out whole granules.
    taken: Bytes,
    /// Host memory for the contents, once anybody needs it; one for each member of a device group that has its own.
    contents: Vec<OnceLock<Option<Reserve>>>,
    shared: Mutex<Shared>,
    pub touched: Touched,
    mapped: Mutex<bool>,
}

/// What others may hold as well.
enum Shared {
    Not,
    /// Device memory that the world counts as long as anybody holds it.
    Object(Object<'static>),
    /// The host's memory, which is not counted.
    Host(OwnedFd),
}

impl Child for Memory {
    fn device(&self) -> u64 {
        self.device
    }
}

impl Memory {
    /// The member's own instance; the one there is, where they share it.
    pub fn contents(&self, instance: Member) -> Option<&Reserve> {
        let last = self.contents.len().checked_sub(1)?;
        self.contents[last.min(instance.0 as usize)]
            .get_or_init(|| Reserve::new(self.size))
            .as_ref()
    }

    pub const fn is_on_device(&self) -> bool {
        self.device_local
    }
}

/// A request of 0 bytes, of more than the heap, and of more than the device has left are refused alike, with the
/// out-param untouched (oracle: vulkan-facts.txt).
///
/// # Errors
/// VK_ERROR_OUT_OF_DEVICE_MEMORY; VK_ERROR_INVALID_EXTERNAL_HANDLE for an import of what is no memory;
/// VK_ERROR_UNKNOWN for a memory type that does not exist; VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS for an address that another object
/// has, or that none ever had.
pub fn allocate(
    device: vk::Device,
    info: In<vk::MemoryAllocateInfo<'_>>,
    memory: New<vk::DeviceMemory>,
) -> Outcome {
    let owner = STATE.devices.find(device)?;
    let info = info.demand()?;
    let chain = Chain::of(info.p_next);
    let profile = owner.physical.profile();
    let kind = profile
        .memory_types
        .get(info.memory_type_index as usize)
        .ok_or(vk::Result::ERROR_UNKNOWN)?;
    let heap = profile.heaps[kind.heap as usize];
    let full = vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
    if info.allocation_size == 0 || info.allocation_size > heap.size.0 {
        return Err(full);
    }
    let visible = vk::MemoryPropertyFlags::from_raw(kind.flags)
        .contains(vk::MemoryPropertyFlags::HOST_VISIBLE);
    let holders = holders(&owner, chain, heap.device_local());
    let dedicated = chain
        .find::<vk::MemoryDedicatedAllocateInfo<'_>>()
        .is_some_and(|dedicated| !dedicated.buffer.is_null() || !dedicated.image.is_null());
    let taken = Bytes(info.allocation_size)
        .round_up(granule(
            profile,
            heap,
            visible,
            dedicated,
            info.allocation_size,
        ))
        .ok_or(full)?;
    let request = Request {
        chain,
        holders: &holders,
        heap,
        number: kind.heap,
        size: info.allocation_size,
        taken,
    };
    let address = address(device.as_raw(), chain, taken)?;
    let had = request.had()?;
    memory.put(STATE.memories.insert(Memory {
        device: device.as_raw(),
        heap: kind.heap,
        device_local: heap.device_local(),
        host_visible: visible,
        address,
        size: info.allocation_size,
        taken: had.taken,
        contents: had.contents,
        shared: Mutex::new(had.shared),
        touched: Touched::default(),
        mapped: Mutex::new(false),
        holders,
    }));
    Ok(())
}

/// Device memory that the driver takes for an image of its own, as for one that has its memory to itself. [`release`] gives it
/// back.
///
/// # Errors
/// VK_ERROR_OUT_OF_DEVICE_MEMORY.
pub fn of_driver(device: vk::Device, size: u64) -> Result<Arc<Memory>, vk::Result> {
    let owner = STATE.devices.find(device)?;
    let profile = owner.physical.profile();
    let full = vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
    let visible = vk::MemoryPropertyFlags::HOST_VISIBLE.as_raw();
    let mut heaps = profile
        .memory_types
        .iter()
        .map(|kind| (kind, profile.heaps[kind.heap as usize]));
    let (kind, heap) = heaps
        .find(|(kind, heap)| heap.device_local() && kind.flags & visible == 0)
        .ok_or(full)?;
    let granule = granule(profile, heap, false, true, size);
    let taken = Bytes(size).round_up(granule).ok_or(full)?;
    let holders = owner.members.clone();
    take(&holders, kind.heap, heap, taken)?;
    Ok(Arc::new(Memory {
        device: device.as_raw(),
        heap: kind.heap,
        device_local: true,
        host_visible: false,
        address: NEXT_ADDRESS.fetch_add(taken.0.max(ADDRESSES), Ordering::Relaxed),
        size,
        taken,
        contents: holders.iter().map(|_| OnceLock::new()).collect(),
        shared: Mutex::new(Shared::Not),
        touched: Touched::default(),
        mapped: Mutex::new(false),
        holders,
    }))
}

/// Where it will lie: where a capture tool saw it before, if that is what is asked for and nothing lies there.
fn address(device: u64, chain: Chain, taken: Bytes) -> Result<u64, vk::Result> {
    let wanted = chain
        .find::<vk::MemoryOpaqueCaptureAddressAllocateInfo<'_>>()
        .map_or(0, |info| info.opaque_capture_address);
    if wanted == 0 {
        return Ok(NEXT_ADDRESS.fetch_add(taken.0.max(ADDRESSES), Ordering::Relaxed));
    }
    let overlaps = |memory: &Memory| {
        memory.device == device
            && memory.address < wanted.saturating_add(taken.0)
            && wanted < memory.address + memory.taken.0.max(memory.size)
    };
    let was_given = wanted + taken.0.max(ADDRESSES) <= NEXT_ADDRESS.load(Ordering::Relaxed);
    if !was_given || STATE.memories.any(overlaps) {
        return Err(vk::Result::ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS);
    }
    Ok(wanted)
}

/// What memory is handed out in (oracle: vulkan-needs-580.txt): pages to what the host sees, blocks of the profile to the
/// rest, and whole 2 MiB blocks of the device to what a large resource has to itself.
fn granule(
    profile: &DeviceProfile,
    heap: Heap,
    visible: bool,
    dedicated: bool,
    size: u64,
) -> Bytes {
    const PAGE: Bytes = Bytes(4096);
    if heap.device_local() {
        if dedicated && size > profile.block.0 {
            profile.block
        } else {
            profile.vulkan_granularity
        }
    } else if visible || dedicated {
        PAGE
    } else {
        profile.vulkan_granularity
    }
}

/// A request for memory whose size is decided.
struct Request<'a> {
    chain: Chain,
    holders: &'a [PhysicalDevice],
    heap: Heap,
    number: u32,
    size: u64,
    taken: Bytes,
}

/// Where the bytes are, and what was taken for them.
struct Had {
    contents: Vec<OnceLock<Option<Reserve>>>,
    shared: Shared,
    taken: Bytes,
}

impl Request<'_> {
    fn had(&self) -> Result<Had, vk::Result> {
        let host = self
            .chain
            .find::<vk::ImportMemoryHostPointerInfoEXT<'_>>()
            .filter(|import| !import.handle_type.is_empty());
        if let Some(import) = host {
            let reserve = Reserve::of_host(import.p_host_pointer, self.size)
                .ok_or(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE)?;
            // Counted as the process's use of the heap, as the card does (oracle: +64 KiB for 64 KiB imported).
            self.take()?;
            return Ok(self.shared(Some(reserve), Shared::Not, self.taken));
        }
        let import = self
            .chain
            .find::<vk::ImportMemoryFdInfoKHR<'_>>()
            .filter(|import| !import.handle_type.is_empty());
        if let Some(import) = import {
            return self.imported(import.fd);
        }
        let exported = self
            .chain
            .find::<vk::ExportMemoryAllocateInfo<'_>>()
            .is_some_and(|export| !export.handle_types.is_empty());
        if exported {
            return self.exported();
        }
        self.take()?;
        let instances = if self.heap.device_local() {
            self.holders.len()
        } else {
            1
        };
        Ok(Had {
            contents: (0..instances).map(|_| OnceLock::new()).collect(),
            shared: Shared::Not,
            taken: self.taken,
        })
    }

    fn shared(&self, reserve: Option<Reserve>, shared: Shared, taken: Bytes) -> Had {
        Had {
            contents: vec![OnceLock::from(reserve)],
            shared,
            taken,
        }
    }

    /// What an import holds is counted where it was allocated, and not in this process's use of the heap (oracle).
    fn imported(&self, fd: i32) -> Result<Had, vk::Result> {
        let invalid = vk::Result::ERROR_INVALID_EXTERNAL_HANDLE;
        let descriptor = borrow(fd).ok_or(invalid)?;
        let holder = self.holders.first().ok_or(invalid)?;
        let (reserve, shared) = if self.heap.device_local() {
            let object = holder
                .world
                .import_object(descriptor)
                .map_err(|_| invalid)?;
            if object.device() != holder.index || object.size().0 < self.size {
                return Err(invalid);
            }
            (
                Reserve::of_file(object.file().as_fd(), self.size),
                Shared::Object(object),
            )
        } else {
            let copy = descriptor.try_clone_to_owned().map_err(|_| invalid)?;
            (
                Reserve::of_file(copy.as_fd(), self.size),
                Shared::Host(copy),
            )
        };
        let had = self.shared(Some(reserve.ok_or(invalid)?), shared, Bytes::ZERO);
        // A successful import owns the descriptor.
        close(fd)?;
        Ok(had)
    }

    fn exported(&self) -> Result<Had, vk::Result> {
        let full = vk::Result::ERROR_OUT_OF_DEVICE_MEMORY;
        let holder = self.holders.first().ok_or(full)?;
        let place = (holder.index, self.number);
        if !accounts::add(place, self.taken, self.heap.size) {
            return Err(full);
        }
        let made = if self.heap.device_local() {
            holder
                .world
                .new_object(holder.index, Kind::Vulkan, self.taken)
                .map_err(|_| full)
                .map(|object| {
                    (
                        Reserve::of_file(object.file().as_fd(), self.size),
                        Shared::Object(object),
                    )
                })
        } else {
            host_file(self.size).map(|file| {
                (
                    Reserve::of_file(file.as_fd(), self.size),
                    Shared::Host(file),
                )
            })
        };
        let made = made.and_then(|(reserve, shared)| {
            Ok(self.shared(Some(reserve.ok_or(full)?), shared, self.taken))
        });
        made.inspect_err(|_| accounts::subtract(place, self.taken))
    }

    fn take(&self) -> Outcome {
        take(self.holders, self.number, self.heap, self.taken)
    }
}

/// The least that an object takes of the address space.
const ADDRESSES: u64 = 1 << 16;

/// The devices of a group that get an instance each: those of the mask, and all where there is none (decision 29).
fn holders(owner: &Device, chain: Chain, device_local: bool) -> Vec<PhysicalDevice> {
    let mask = chain
        .find::<vk::MemoryAllocateFlagsInfo<'_>>()
        .filter(|flags| flags.flags.contains(vk::MemoryAllocateFlags::DEVICE_MASK))
        .map_or(u32::MAX, |flags| flags.device_mask);
    if !device_local {
        return vec![owner.physical];
    }
    let chosen = Member::of_mask(mask).filter_map(|member| owner.members.get(member.0 as usize));
    let chosen: Vec<PhysicalDevice> = chosen.copied().collect();
    if chosen.is_empty() {
        vec![owner.physical]
    } else {
        chosen
    }
}

/// Takes the bytes on every holder, or nowhere.
fn take(holders: &[PhysicalDevice], heap: u32, kind: Heap, bytes: Bytes) -> Outcome {
    for (index, holder) in holders.iter().enumerate() {
        let place = (holder.index, heap);
        let granted = accounts::add(place, bytes, kind.size)
            && (!kind.device_local()
                || holder
                    .world
                    .take(holder.index, Kind::Vulkan, bytes)
                    .inspect_err(|_| accounts::subtract(place, bytes))
                    .is_ok());
        if !granted {
            give_back(&holders[..index], heap, kind.device_local(), bytes);
            return Err(vk::Result::ERROR_OUT_OF_DEVICE_MEMORY);
        }
    }
    Ok(())
}

fn give_back(holders: &[PhysicalDevice], heap: u32, device_local: bool, bytes: Bytes) {
    for holder in holders {
        if device_local {
            holder.world.give_back(holder.index, Kind::Vulkan, bytes);
        }
        accounts::subtract((holder.index, heap), bytes);
    }
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
    let mut shared = memory.shared.lock().unwrap_or_else(PoisonError::into_inner);
    // An object is the world's to count: it goes when its last holder does.
    let counted_here = memory.device_local && !matches!(*shared, Shared::Object(_));
    *shared = Shared::Not;
    drop(shared);
    give_back(&memory.holders, memory.heap, counted_here, memory.taken);
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
        .contents(Member::FIRST)
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

/// # Errors
/// As [`map`].
pub fn map2(info: In<vk::MemoryMapInfoKHR<'_>>, data: Out<Raw>) -> Outcome {
    let info = info.demand()?;
    map(info.memory, info.offset, info.size, data)
}

pub fn unmap2(info: In<vk::MemoryUnmapInfoKHR<'_>>) -> Outcome {
    unmap(info.demand()?.memory)
}

/// A new descriptor of memory that was allocated for export.
///
/// # Errors
/// VK_ERROR_TOO_MANY_OBJECTS; VK_ERROR_UNKNOWN for memory that was not.
pub fn fd(info: In<vk::MemoryGetFdInfoKHR<'_>>, fd: Out<i32>) -> Outcome {
    let memory = STATE.memories.find(info.demand()?.memory)?;
    let shared = memory.shared.lock().unwrap_or_else(PoisonError::into_inner);
    let descriptor = match &*shared {
        Shared::Not => return Err(vk::Result::ERROR_UNKNOWN),
        Shared::Object(object) => object.export(),
        Shared::Host(file) => file.try_clone(),
    };
    let descriptor = descriptor.map_err(|_| vk::Result::ERROR_TOO_MANY_OBJECTS)?;
    fd.put(descriptor.into_raw_fd());
    Ok(())
}

/// # Errors
/// VK_ERROR_INVALID_EXTERNAL_HANDLE: what can be asked of is only a DMA_BUF, and the card exports none.
pub fn fd_properties(
    device: vk::Device,
    handle_type: vk::ExternalMemoryHandleTypeFlags,
    fd: i32,
    properties: Out<vk::MemoryFdPropertiesKHR<'_>>,
) -> Outcome {
    let _ = (STATE.devices.find(device)?, handle_type, fd, properties);
    Err(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE)
}

/// Nothing is ever paged out, so priorities change nothing.
pub fn set_priority(memory: vk::DeviceMemory) -> Outcome {
    STATE.memories.find(memory).map(drop)
}

/// The types that the application's own pages can be imported to: those of the host's heap that the host sees.
///
/// # Errors
/// VK_ERROR_INVALID_EXTERNAL_HANDLE for another kind of handle.
pub fn host_pointer_properties(
    device: vk::Device,
    handle_type: vk::ExternalMemoryHandleTypeFlags,
    pointer: List<u8>,
    properties: Out<vk::MemoryHostPointerPropertiesEXT<'_>>,
) -> Outcome {
    let profile = STATE.devices.find(device)?.physical.profile();
    if handle_type != vk::ExternalMemoryHandleTypeFlags::HOST_ALLOCATION_EXT || pointer.is_null() {
        return Err(vk::Result::ERROR_INVALID_EXTERNAL_HANDLE);
    }
    let visible = vk::MemoryPropertyFlags::HOST_VISIBLE.as_raw();
    let kinds = profile.memory_types.iter().enumerate();
    let bits = kinds
        .filter(|(_, kind)| {
            kind.flags & visible != 0 && !profile.heaps[kind.heap as usize].device_local()
        })
        .fold(0, |bits, (index, _)| bits | 1 << index);
    properties.edit(|properties| properties.memory_type_bits = bits);
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

/// The address that a capture tool gives back to have the object where it was.
pub fn capture_address(info: In<vk::DeviceMemoryOpaqueCaptureAddressInfo<'_>>) -> u64 {
    info.get()
        .and_then(|info| STATE.memories.find(info.memory).ok())
        .map_or(0, |memory| memory.address)
}
