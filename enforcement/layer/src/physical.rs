//! One instance's physical devices: which budget each draws on, and the shape of its memory.

use ash::vk;
use budget::identity::{self, Asked, NVIDIA, Pci, Resolution};
use budget::{Bytes, DeviceSet};
use seeds::{Seed, planted};

use crate::attachment;
use crate::boundary::next::{InstanceNext, Promoted};
use crate::candidates::candidates;
use crate::trace;

/// What Vulkan says of a physical device.
pub struct Description {
    pub handle: vk::PhysicalDevice,
    pub name: String,
    pub vendor: u32,
    pub kind: vk::PhysicalDeviceType,
    pub uuid: Option<[u8; 16]>,
    pub pci: Option<Pci>,
    pub memory: vk::PhysicalDeviceMemoryProperties,
    pub has_memory_budget: bool,
}

/// Which memory types lie in which kind of heap, one bit per type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryTypes {
    pub count: u32,
    pub device_local: u32,
    pub multi_instance: u32,
}

#[derive(Clone, Debug)]
pub struct Physical {
    pub handle: vk::PhysicalDevice,
    /// False for a CPU device or another vendor's: it passes through.
    pub tenant_gpu: bool,
    pub targets: DeviceSet,
    pub types: MemoryTypes,
    /// The largest of its device-local heaps, as the driver has it.
    pub heap: Bytes,
    pub has_memory_budget: bool,
}

/// What it takes to tell a tenant of its memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub targets: DeviceSet,
    pub is_tenant_gpu: bool,
    pub has_memory_budget: bool,
}

impl Physical {
    pub fn told(&self) -> Told {
        Told {
            targets: self.targets,
            is_tenant_gpu: self.tenant_gpu,
            has_memory_budget: self.has_memory_budget,
        }
    }
}

impl Description {
    fn asked(&self) -> Asked {
        let tenant_gpu = self.vendor == NVIDIA && self.kind != vk::PhysicalDeviceType::CPU;
        Asked {
            uuid: self.uuid,
            pci: self.pci,
            tenant_gpu,
        }
    }
}

impl MemoryTypes {
    pub fn of(memory: &vk::PhysicalDeviceMemoryProperties) -> MemoryTypes {
        let mut types = MemoryTypes {
            count: memory.memory_type_count.min(32),
            ..MemoryTypes::default()
        };
        for (number, kind) in memory.memory_types_as_slice().iter().enumerate().take(32) {
            let flags = memory
                .memory_heaps
                .get(kind.heap_index as usize)
                .map_or(vk::MemoryHeapFlags::DEVICE_LOCAL, |heap| heap.flags);
            let visible = vk::MemoryPropertyFlags::HOST_VISIBLE;
            let hidden = planted(Seed::V17l) && kind.property_flags.contains(visible);
            types.device_local |=
                u32::from(flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL) && !hidden) << number;
            types.multi_instance |=
                u32::from(flags.contains(vk::MemoryHeapFlags::MULTI_INSTANCE)) << number;
        }
        types
    }

    pub const fn is_device_local(self, number: u32) -> bool {
        number < self.count && self.device_local & 1 << number != 0
    }

    pub const fn knows(self, number: u32) -> bool {
        number < self.count
    }
}

/// Looks at the physical devices of an instance together: a UUID that two of them claim says nothing of either.
pub fn resolve(
    next: &InstanceNext,
    promoted: Promoted,
    handles: &[vk::PhysicalDevice],
) -> Vec<Physical> {
    let described: Vec<_> = handles
        .iter()
        .map(|handle| next.describe(*handle, promoted))
        .collect();
    let asked: Vec<_> = described.iter().map(Description::asked).collect();
    if !asked.iter().any(|asked| asked.tenant_gpu) {
        return described
            .iter()
            .map(|one| physical(one, Resolution::NotATenantGpu))
            .collect();
    }
    let resolutions = identity::resolve_all(&asked, &candidates(&asked));
    described
        .iter()
        .zip(resolutions)
        .map(|(one, resolution)| physical(one, resolution))
        .collect()
}

fn physical(described: &Description, resolution: Resolution) -> Physical {
    let mut targets = resolution.devices();
    if planted(Seed::V23) {
        targets = DeviceSet::from_bits(targets.bits() & u64::from(u32::MAX));
    }
    if trace::on() {
        say(described, resolution, targets);
    }
    Physical {
        handle: described.handle,
        tenant_gpu: resolution != Resolution::NotATenantGpu,
        targets,
        types: MemoryTypes::of(&described.memory),
        heap: largest_local_heap(&described.memory),
        has_memory_budget: described.has_memory_budget,
    }
}

fn largest_local_heap(memory: &vk::PhysicalDeviceMemoryProperties) -> Bytes {
    let heaps = memory.memory_heaps_as_slice().iter();
    let local = heaps.filter(|heap| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
    local
        .map(|heap| Bytes(heap.size))
        .max()
        .unwrap_or(Bytes::ZERO)
}

fn say(described: &Description, resolution: Resolution, targets: DeviceSet) {
    let (name, uuid, pci) = (
        &described.name,
        trace::uuid(described.uuid),
        trace::pci(described.pci),
    );
    match resolution {
        Resolution::NotATenantGpu => {
            trace::line(format_args!(
                "target {name:?} uuid={uuid} pci={pci} passes through: not a tenant's GPU"
            ));
        }
        Resolution::One(index, rule) => {
            trace::line(format_args!(
                "target {name:?} uuid={uuid} pci={pci} rule={rule:?} device={index}"
            ));
        }
        Resolution::Every(devices) => {
            let count = devices.len();
            trace::line(format_args!(
                "target {name:?} uuid={uuid} pci={pci} rule=Every devices={count}"
            ));
        }
    }
    if resolution == Resolution::NotATenantGpu {
        return;
    }
    let Some(attachment) = attachment::current() else {
        return;
    };
    for device in targets.iter() {
        match attachment.budget(DeviceSet::of(device)) {
            Some(budget) => trace::line(format_args!("device {device} budget={}", budget.0)),
            None => trace::line(format_args!("device {device} has no budget")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_what_its_heap_is() {
        let mut memory = vk::PhysicalDeviceMemoryProperties {
            memory_type_count: 3,
            memory_heap_count: 2,
            ..Default::default()
        };
        memory.memory_heaps[1].flags =
            vk::MemoryHeapFlags::DEVICE_LOCAL | vk::MemoryHeapFlags::MULTI_INSTANCE;
        memory.memory_types[1].heap_index = 1;
        // A heap that is not there: charged rather than waved through.
        memory.memory_types[2].heap_index = 99;
        let types = MemoryTypes::of(&memory);
        assert_eq!(
            types,
            MemoryTypes {
                count: 3,
                device_local: 0b110,
                multi_instance: 0b010
            }
        );
        assert!(!types.is_device_local(0) && types.is_device_local(1) && !types.is_device_local(3));
    }
}
