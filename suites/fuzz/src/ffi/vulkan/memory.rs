//! What takes and gives memory, and what is told of it.

use ash::vk::{self, Handle};

use super::chain::Chain;
use super::client::{Client, code};
use crate::ffi::calls::{Answer, around};
use crate::maker::Maker;

/// Of the host's own memory a client asks for little: it is the machine's.
const HOST_MOST: u64 = 1 << 20;
const UNTOUCHED: u64 = 0xdead_beef;

pub fn allocate(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
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
    let chain = Chain::make(maker, &client.devices[at], imported);
    // What is dedicated is as large as its object needs, where the chain means anything to a driver.
    size = chain.size.unwrap_or(size);
    let mut info = vk::MemoryAllocateInfo::default()
        .allocation_size(size)
        .memory_type_index(kind);
    info.p_next = chain.first();
    maker.tell(
        "bytes",
        format_args!("{size:#x} of type {kind}, {chain} on device {at}"),
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
        made.memories.push((out, u32::from(chain.exports)));
    } else if let Some(descriptor) = chain.imported {
        // SAFETY: what was not imported is still ours.
        unsafe { libc::close(descriptor) };
    }
    chain.end(made);
    let state = if granted {
        3
    } else {
        u64::from(out.as_raw() == UNTOUCHED)
    };
    Some((answer, state))
}

pub fn free(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
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

pub fn descriptor(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
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

pub fn memory_properties(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
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

pub fn memory_properties2(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
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
