//! Submissions: three shapes of one thing.

use std::sync::Arc;

use ash::vk::{self, Handle};

use crate::boundary::{Chain, List, Outcome};
use crate::instance::PhysicalDevice;
use crate::sparse;
use crate::state::STATE;
use crate::work::{Batch, Point, Work};

pub struct Queue {
    pub physical: PhysicalDevice,
    pub work: Arc<Work>,
    /// The queue's line of the device's work.
    pub line: usize,
}

pub fn submit(
    queue: vk::Queue,
    count: u32,
    submits: List<vk::SubmitInfo<'_>>,
    fence: vk::Fence,
) -> Outcome {
    let batches = submits.of(count as usize).iter().map(batch).collect();
    put(queue, batches, fence)
}

pub fn submit2(
    queue: vk::Queue,
    count: u32,
    submits: List<vk::SubmitInfo2<'_>>,
    fence: vk::Fence,
) -> Outcome {
    let batches = submits.of(count as usize).iter().map(batch2).collect();
    put(queue, batches, fence)
}

/// Sparse binding changes which memory a resource has, in the order of the queue.
pub fn bind_sparse(
    queue: vk::Queue,
    count: u32,
    binds: List<vk::BindSparseInfo<'_>>,
    fence: vk::Fence,
) -> Outcome {
    let batches = binds.of(count as usize).iter().map(sparse::batch).collect();
    put(queue, batches, fence)
}

pub fn wait_idle(queue: vk::Queue) -> Outcome {
    let queue = STATE.queues.find(queue)?;
    queue.work.wait_idle(Some(queue.line))
}

/// The fence is signaled after all batches, and alone where there are none.
fn put(queue: vk::Queue, batches: Result<Vec<Batch>, vk::Result>, fence: vk::Fence) -> Outcome {
    let queue = STATE.queues.find(queue)?;
    let mut batches = batches?;
    if !fence.is_null() {
        batches.push(Batch {
            fence: Some(STATE.fences.find(fence)?),
            ..Batch::default()
        });
    }
    queue.work.submit(queue.line, batches);
    Ok(())
}

fn batch(info: &vk::SubmitInfo<'_>) -> Result<Batch, vk::Result> {
    let commands = List::field(info.p_command_buffers);
    let commands = commands.of(info.command_buffer_count as usize).iter();
    let (waits, signals) = timeline_values(Chain::of(info.p_next));
    let masks = Chain::of(info.p_next)
        .find::<vk::DeviceGroupSubmitInfo<'_>>()
        .map(|group| List::field(group.p_command_buffer_device_masks))
        .filter(|masks| !masks.is_null());
    let masks = masks.as_ref().map_or(&[][..], |masks| {
        masks.of(info.command_buffer_count as usize)
    });
    let masks = masks.iter().copied().chain(std::iter::repeat(u32::MAX));
    Ok(Batch {
        waits: points(info.p_wait_semaphores, info.wait_semaphore_count, &waits)?,
        commands: commands
            .zip(masks)
            .map(|(commands, mask)| Ok((STATE.command_buffers.find(*commands)?, mask)))
            .collect::<Result<_, vk::Result>>()?,
        signals: points(
            info.p_signal_semaphores,
            info.signal_semaphore_count,
            &signals,
        )?,
        ..Batch::default()
    })
}

fn batch2(info: &vk::SubmitInfo2<'_>) -> Result<Batch, vk::Result> {
    let points = |list: *const vk::SemaphoreSubmitInfo<'_>, count: u32| {
        let list = List::field(list);
        let point = |info: &vk::SemaphoreSubmitInfo<'_>| {
            Ok(Point {
                semaphore: STATE.semaphores.find(info.semaphore)?,
                value: info.value,
            })
        };
        list.of(count as usize)
            .iter()
            .map(point)
            .collect::<Result<Vec<_>, vk::Result>>()
    };
    let commands = List::field(info.p_command_buffer_infos);
    let commands = commands.of(info.command_buffer_info_count as usize).iter();
    Ok(Batch {
        waits: points(info.p_wait_semaphore_infos, info.wait_semaphore_info_count)?,
        commands: commands
            .map(|info| {
                // A mask of 0 stands for all members.
                let mask = if info.device_mask == 0 {
                    u32::MAX
                } else {
                    info.device_mask
                };
                Ok((STATE.command_buffers.find(info.command_buffer)?, mask))
            })
            .collect::<Result<_, vk::Result>>()?,
        signals: points(
            info.p_signal_semaphore_infos,
            info.signal_semaphore_info_count,
        )?,
        ..Batch::default()
    })
}

/// The values to wait for and to signal; binary semaphores have none, and theirs are ignored.
pub fn timeline_values(chain: Chain) -> (Vec<u64>, Vec<u64>) {
    let Some(info) = chain.find::<vk::TimelineSemaphoreSubmitInfo<'_>>() else {
        return (Vec::new(), Vec::new());
    };
    let waits = List::field(info.p_wait_semaphore_values);
    let signals = List::field(info.p_signal_semaphore_values);
    (
        waits.of(info.wait_semaphore_value_count as usize).to_vec(),
        signals
            .of(info.signal_semaphore_value_count as usize)
            .to_vec(),
    )
}

pub fn points(
    semaphores: *const vk::Semaphore,
    count: u32,
    values: &[u64],
) -> Result<Vec<Point>, vk::Result> {
    let semaphores = List::field(semaphores);
    let values = values.iter().copied().chain(std::iter::repeat(0));
    let points = semaphores.of(count as usize).iter().zip(values);
    points
        .map(|(semaphore, value)| {
            Ok(Point {
                semaphore: STATE.semaphores.find(*semaphore)?,
                value,
            })
        })
        .collect()
}
