//! What a tenant is told of a GPU's memory: heap sizes, and `VK_EXT_memory_budget` (defect V4).

use ash::vk;
use budget::{Bytes, heap};
use seeds::{Seed, planted};

use crate::attachment::Attachment;
use crate::physical::Told;
use crate::trace;

/// All device-local heaps of a device draw on one budget, so none is larger than it.
#[inline]
pub fn clamp(
    attachment: &Attachment,
    physical: Told,
    memory: &mut vk::PhysicalDeviceMemoryProperties,
) {
    let Some(budget) = attachment.budget(physical.targets) else {
        return;
    };
    if trace::on() {
        say_clamp(memory, budget);
    }
    for (_, heap) in local_heaps(memory) {
        heap.size = heap::clamp(Bytes(heap.size), Some(budget)).0;
    }
}

#[cold]
fn say_clamp(memory: &mut vk::PhysicalDeviceMemoryProperties, budget: Bytes) {
    for (number, heap) in local_heaps(memory) {
        let (before, after) = (heap.size, heap::clamp(Bytes(heap.size), Some(budget)).0);
        trace::line(format_args!("heap {number} clamp {before} -> {after}"));
    }
}

/// Rewrites the report for the heaps that `clamp` left: usage is the driver's for this process, the budget what it has and the tenant
/// may still take; or, `inflated`, the driver's budget and a usage that leaves as much. Where no budget is set, the driver's report stands.
pub fn report(
    attachment: &Attachment,
    physical: Told,
    memory: &mut vk::PhysicalDeviceMemoryProperties,
    report: &mut vk::PhysicalDeviceMemoryBudgetPropertiesEXT<'_>,
    inflated: bool,
) {
    let count = memory.memory_heap_count as usize;
    if let Some(available) = attachment
        .available(physical.targets)
        .filter(|_| physical.has_memory_budget)
    {
        let budget = attachment.budget(physical.targets);
        for (number, heap) in local_heaps(memory) {
            let driver = heap::HeapReport {
                budget: Bytes(report.heap_budget[number]),
                usage: Bytes(report.heap_usage[number]),
            };
            let told = match budget {
                Some(budget) if inflated && planted(Seed::V19) => {
                    heap::inflate(driver, budget.saturating_sub(driver.usage))
                }
                _ if inflated => heap::inflate(driver, available),
                _ if planted(Seed::V4) => driver,
                _ => heap::report(Bytes(heap.size), driver.usage, available),
            };
            report.heap_budget[number] = told.budget.0;
            report.heap_usage[number] = told.usage.0;
            trace::line(format_args!(
                "heap {number} budget {} -> {} usage {}",
                driver.budget.0, told.budget.0, told.usage.0
            ));
        }
    }
    for number in count..vk::MAX_MEMORY_HEAPS {
        report.heap_budget[number] = 0;
        report.heap_usage[number] = 0;
    }
}

#[inline]
fn local_heaps(
    memory: &mut vk::PhysicalDeviceMemoryProperties,
) -> impl Iterator<Item = (usize, &mut vk::MemoryHeap)> {
    let count = memory.memory_heap_count as usize;
    memory
        .memory_heaps
        .iter_mut()
        .enumerate()
        .take(count)
        .filter(|(_, heap)| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL))
}
