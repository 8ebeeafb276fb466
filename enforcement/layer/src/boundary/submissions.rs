//! The hooks of a compute budget: queues as they are given out, and what is submitted to them, which is also followed by a look now and then.

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
        parts(
            queue,
            (submits, count),
            |next| next.submit,
            |next, parts| next(queue, count, parts.cast(), fence),
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
    unsafe {
        parts(
            queue,
            (submits, count),
            |next| next.submit2,
            |next, parts| next(queue, count, parts.cast(), fence),
        )
    }
}

pub unsafe extern "system" fn submit2_khr(
    queue: vk::Queue,
    count: u32,
    submits: *const vk::SubmitInfo2<'_>,
    fence: vk::Fence,
) -> vk::Result {
    // SAFETY: valid usage.
    unsafe {
        parts(
            queue,
            (submits, count),
            |next| next.submit2_khr,
            |next, parts| next(queue, count, parts.cast(), fence),
        )
    }
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

/// What is submitted together.
trait Part: Copy {
    type Buffer: Copy;

    fn of(buffer: vk::CommandBuffer) -> Self::Buffer;
    fn buffers(&self) -> (*const Self::Buffer, u32);
    fn with(self, buffers: &[Self::Buffer]) -> Self;
    /// How many semaphores it waits for.
    fn waits(&self) -> u32;
    /// Whether its chain says nothing of single command buffers, as a device group's does.
    fn is_plain(&self) -> bool;
}

impl Part for vk::SubmitInfo<'_> {
    type Buffer = vk::CommandBuffer;

    fn of(buffer: vk::CommandBuffer) -> vk::CommandBuffer {
        buffer
    }

    fn buffers(&self) -> (*const vk::CommandBuffer, u32) {
        (self.p_command_buffers, self.command_buffer_count)
    }

    fn with(self, buffers: &[vk::CommandBuffer]) -> Self {
        vk::SubmitInfo {
            command_buffer_count: buffers.len() as u32,
            p_command_buffers: buffers.as_ptr(),
            ..self
        }
    }

    fn waits(&self) -> u32 {
        self.wait_semaphore_count
    }

    fn is_plain(&self) -> bool {
        // SAFETY: a part is as its command has it: its chain is valid.
        let first = unsafe { self.p_next.cast::<vk::BaseInStructure<'_>>().as_ref() };
        first.is_none_or(|first| {
            first.s_type == vk::StructureType::TIMELINE_SEMAPHORE_SUBMIT_INFO
                && first.p_next.is_null()
        })
    }
}

impl Part for vk::SubmitInfo2<'_> {
    type Buffer = vk::CommandBufferSubmitInfo<'static>;

    fn of(buffer: vk::CommandBuffer) -> Self::Buffer {
        vk::CommandBufferSubmitInfo::default().command_buffer(buffer)
    }

    fn buffers(&self) -> (*const Self::Buffer, u32) {
        let list = self.p_command_buffer_infos.cast();
        (list, self.command_buffer_info_count)
    }

    fn with(self, buffers: &[Self::Buffer]) -> Self {
        vk::SubmitInfo2 {
            command_buffer_info_count: buffers.len() as u32,
            p_command_buffer_infos: buffers.as_ptr(),
            ..self
        }
    }

    fn waits(&self) -> u32 {
        self.wait_semaphore_info_count
    }

    fn is_plain(&self) -> bool {
        self.p_next.is_null()
    }
}

/// # Safety
/// As the command that `of` names; `queue` is null or a queue, the list null or of so many members.
unsafe fn parts<P: Part, F: Copy>(
    queue: vk::Queue,
    (list, count): (*const P, u32),
    of: impl Fn(&DeviceNext) -> Option<F>,
    call: impl Fn(F, *const P) -> vk::Result,
) -> vk::Result {
    // SAFETY: the caller's obligation.
    unsafe {
        let first = list.as_ref().filter(|_| count > 0);
        let work = || Batch {
            buffers: total(list, count, |one| one.buffers().1),
            waits: total(list, count, Part::waits),
            has_room: first.is_some_and(|first| first.waits() > 0 && first.is_plain()),
        };
        by(queue, of, work, |next, ours| {
            let (buffers, parts);
            let list = match first.zip(ours) {
                None => list,
                Some((first, ours)) => {
                    buffers = before(P::of(ours), first.buffers());
                    parts = before(first.with(&buffers), (list.add(1), count - 1));
                    parts.as_ptr()
                }
            };
            call(next, list)
        })
    }
}

/// One, and the list behind it.
///
/// # Safety
/// The list has so many members.
unsafe fn before<T: Copy>(one: T, (list, count): (*const T, u32)) -> Vec<T> {
    let mut all = vec![one];
    if count > 0 {
        // SAFETY: the caller's obligation.
        all.extend_from_slice(unsafe { slice::from_raw_parts(list, count as usize) });
    }
    all
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
