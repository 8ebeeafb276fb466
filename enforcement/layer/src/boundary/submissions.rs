//! The hooks of a compute budget: queues as they are given out, and what is submitted to them, which is also followed by a look now and then.

use std::ffi::c_void;
use std::slice;

use ash::vk;
use seeds::{Seed, planted};

use super::next::DeviceNext;
use super::{guard, key};
use crate::device::{self, Found};
use crate::pace::Batch;
use crate::{floor, pace};

// As in `commands`: the obligations of a Vulkan command towards its caller are the specification's, and they are what the SAFETY notes lean on.

pub unsafe extern "system" fn queue(
    handle: vk::Device,
    family: u32,
    index: u32,
    out: *mut vk::Queue,
) {
    guard((), || {
        // SAFETY: valid usage.
        unsafe {
            if let Some((found, next)) =
                device::find(key(handle)).and_then(|found| Some((found, found.device.next.queue?)))
            {
                next(handle, family, index, out);
                given(found, family, out);
            }
        }
    });
}

pub unsafe extern "system" fn queue2(
    handle: vk::Device,
    info: *const vk::DeviceQueueInfo2<'_>,
    out: *mut vk::Queue,
) {
    guard((), || {
        // SAFETY: valid usage.
        unsafe {
            if let Some((found, next)) =
                device::find(key(handle)).and_then(|found| Some((found, found.device.next.queue2?)))
            {
                next(handle, info.cast(), out);
                if let Some(info) = info.as_ref() {
                    given(found, info.queue_family_index, out);
                }
            }
        }
    });
}

/// # Safety
/// `out` is null or can be read.
unsafe fn given(found: Found, family: u32, out: *const vk::Queue) {
    // SAFETY: the caller's obligation.
    let queue = unsafe { out.as_ref() };
    let timed = found.device.timed.as_ref().filter(|_| found.registered);
    if let (Some(timed), Some(queue)) = (timed, queue) {
        timed.learn(*queue, family);
    }
}

pub unsafe extern "system" fn submit(
    queue: vk::Queue,
    count: u32,
    submits: *const vk::SubmitInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    // SAFETY: valid usage.
    unsafe {
        by(
            queue,
            |next| next.submit,
            || Batch {
                buffers: total(submits, count, |one| one.command_buffer_count),
                waits: total(submits, count, |one| one.wait_semaphore_count),
                has_room: first(submits, count)
                    .is_some_and(|one| one.wait_semaphore_count > 0 && is_plain(one.p_next)),
            },
            |next, ours| {
                let (buffer, list);
                let first = first(submits, count).zip(ours);
                let submits = match first {
                    None => submits,
                    Some((first, ours)) => {
                        let theirs = first.command_buffer_count as usize;
                        buffer = with(ours, first.p_command_buffers, theirs);
                        let first = vk::SubmitInfo {
                            command_buffer_count: buffer.len() as u32,
                            p_command_buffers: buffer.as_ptr(),
                            ..*first
                        };
                        list = with(first, submits.add(1), count as usize - 1);
                        list.as_ptr()
                    }
                };
                next(queue, count, submits.cast(), fence)
            },
        )
    }
}

/// # Safety
/// As the command.
unsafe fn submit2_by(
    queue: vk::Queue,
    count: u32,
    submits: *const vk::SubmitInfo2<'_>,
    fence: vk::Fence,
    of: impl Fn(&DeviceNext) -> Option<vk::PFN_vkQueueSubmit2>,
) -> vk::Result {
    // SAFETY: the caller's obligation.
    unsafe {
        by(
            queue,
            of,
            || Batch {
                buffers: total(submits, count, |one| one.command_buffer_info_count),
                waits: total(submits, count, |one| one.wait_semaphore_info_count),
                has_room: first(submits, count)
                    .is_some_and(|one| one.wait_semaphore_info_count > 0 && one.p_next.is_null()),
            },
            |next, ours| {
                let (buffer, list);
                let first = first(submits, count).zip(ours);
                let submits = match first {
                    None => submits,
                    Some((first, ours)) => {
                        let ours = vk::CommandBufferSubmitInfo::default().command_buffer(ours);
                        let theirs = first.command_buffer_info_count as usize;
                        buffer = with(ours, first.p_command_buffer_infos, theirs);
                        let first = vk::SubmitInfo2 {
                            command_buffer_info_count: buffer.len() as u32,
                            p_command_buffer_infos: buffer.as_ptr(),
                            ..*first
                        };
                        list = with(first, submits.add(1), count as usize - 1);
                        list.as_ptr()
                    }
                };
                next(queue, count, submits.cast(), fence)
            },
        )
    }
}

pub unsafe extern "system" fn submit2(
    queue: vk::Queue,
    count: u32,
    submits: *const vk::SubmitInfo2<'_>,
    fence: vk::Fence,
) -> vk::Result {
    // SAFETY: valid usage.
    unsafe { submit2_by(queue, count, submits, fence, |next| next.submit2) }
}

pub unsafe extern "system" fn submit2_khr(
    queue: vk::Queue,
    count: u32,
    submits: *const vk::SubmitInfo2<'_>,
    fence: vk::Fence,
) -> vk::Result {
    // SAFETY: valid usage.
    unsafe { submit2_by(queue, count, submits, fence, |next| next.submit2_khr) }
}

pub unsafe extern "system" fn bind_sparse(
    queue: vk::Queue,
    count: u32,
    binds: *const vk::BindSparseInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    // SAFETY: valid usage.
    unsafe {
        by(
            queue,
            |next| next.bind_sparse,
            || Batch {
                buffers: u64::from(count),
                waits: total(binds, count, |one| one.wait_semaphore_count),
                has_room: false,
            },
            |next, _| next(queue, count, binds.cast(), fence),
        )
    }
}

/// # Safety
/// As the command that `of` names; `queue` is null or a queue.
unsafe fn by<F: Copy>(
    queue: vk::Queue,
    of: impl Fn(&DeviceNext) -> Option<F>,
    work: impl Fn() -> Batch,
    call: impl Fn(F, Option<vk::CommandBuffer>) -> vk::Result,
) -> vk::Result {
    guard(vk::Result::ERROR_OUT_OF_HOST_MEMORY, || {
        // SAFETY: the caller's obligation.
        let found = device::of_queue(unsafe { key(queue) }, queue)
            .and_then(|found| Some((found, of(&found.device.next)?)));
        let Some((found, next)) = found else {
            return vk::Result::ERROR_OUT_OF_HOST_MEMORY;
        };
        let answer = pace::submit(found, queue, work(), &mut |ours| call(next, ours));
        floor::poll(found);
        answer
    })
}

/// Whether a chain says nothing of single command buffers, as a device group's does.
///
/// # Safety
/// The chain is valid.
unsafe fn is_plain(chain: *const c_void) -> bool {
    // SAFETY: the caller's obligation.
    unsafe { chain.cast::<vk::BaseInStructure<'_>>().as_ref() }.is_none_or(|first| {
        first.s_type == vk::StructureType::TIMELINE_SEMAPHORE_SUBMIT_INFO && first.p_next.is_null()
    })
}

/// # Safety
/// The list is null or has so many members.
unsafe fn first<'a, T>(list: *const T, count: u32) -> Option<&'a T> {
    // SAFETY: the caller's obligation.
    unsafe { list.as_ref() }.filter(|_| count > 0)
}

/// One, and the list behind it.
///
/// # Safety
/// The list has so many members.
unsafe fn with<T: Copy>(one: T, list: *const T, count: usize) -> Vec<T> {
    let mut all = vec![one];
    if count > 0 {
        // SAFETY: the caller's obligation.
        all.extend_from_slice(unsafe { slice::from_raw_parts(list, count) });
    }
    all
}

/// # Safety
/// The list is null or has so many members.
unsafe fn total<T>(list: *const T, count: u32, of: impl Fn(&T) -> u32) -> u64 {
    if list.is_null() {
        return 0;
    }
    // SAFETY: the caller's obligation.
    let list = unsafe { slice::from_raw_parts(list, count as usize) };
    let counted = match planted(Seed::V17s) {
        true => &list[..list.len().min(1)],
        false => list,
    };
    counted.iter().map(|one| u64::from(of(one))).sum()
}
