//! Queues, and what is submitted to them.

use ash::vk;

use super::client::{Client, code};
use crate::ffi::calls::{Answer, around};
use crate::maker::Maker;

pub fn queue(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let made = client.device(maker)?;
    let nth = u32::from(maker.byte()) % made.queues.len() as u32;
    let mut found = vk::Queue::null();
    let answer = around(|| {
        // SAFETY: a queue that the device was made with.
        found = unsafe { made.device.get_device_queue(0, nth) };
        0
    });
    Some((answer, u64::from(found == made.queues[nth as usize])))
}

pub fn queue2(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let made = client.device(maker)?;
    let nth = u32::from(maker.byte()) % made.queues.len() as u32;
    let info = vk::DeviceQueueInfo2::default()
        .queue_family_index(0)
        .queue_index(nth);
    let mut found = vk::Queue::null();
    let answer = around(|| {
        // SAFETY: as above.
        found = unsafe { made.device.get_device_queue2(&info) };
        0
    });
    Some((answer, u64::from(found == made.queues[nth as usize])))
}

pub fn submit(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let made = client.device(maker)?;
    let queue = made.queues[usize::from(maker.byte()) % made.queues.len()];
    let batches = [vk::SubmitInfo::default(); 4];
    let batches = &batches[..usize::from(maker.byte() % 5)];
    let answer = around(|| {
        // SAFETY: the device's queue, used by this thread alone; batches of nothing.
        let done = unsafe { made.device.queue_submit(queue, batches, vk::Fence::null()) };
        done.err().map_or(0, code)
    });
    Some((answer, 0))
}

pub fn submit2(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let made = client.device(maker)?;
    let queue = made.queues[usize::from(maker.byte()) % made.queues.len()];
    let batches = [vk::SubmitInfo2::default(); 4];
    let batches = &batches[..usize::from(maker.byte() % 5)];
    let by_alias = maker.byte() & 1 != 0;
    let answer = around(|| {
        // SAFETY: as above.
        let done = unsafe {
            match by_alias {
                true => made
                    .submit2
                    .queue_submit2(queue, batches, vk::Fence::null()),
                false => made.device.queue_submit2(queue, batches, vk::Fence::null()),
            }
        };
        done.err().map_or(0, code)
    });
    Some((answer, 0))
}

pub fn bind_sparse(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let made = client.device(maker)?;
    let queue = made.queues[usize::from(maker.byte()) % made.queues.len()];
    let binds = [vk::BindSparseInfo::default(); 4];
    let binds = &binds[..usize::from(maker.byte() % 5)];
    let answer = around(|| {
        // SAFETY: as above.
        let done = unsafe {
            made.device
                .queue_bind_sparse(queue, binds, vk::Fence::null())
        };
        done.err().map_or(0, code)
    });
    Some((answer, 0))
}
