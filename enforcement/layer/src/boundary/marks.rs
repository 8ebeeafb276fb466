//! Marks in a queue: timestamps, in command buffers of our own, before and behind what the application submits.
//!
//! Whoever submits has the queue to himself (the specification's rule), so what we submit within his call is in nobody's way. Of his
//! objects none is touched; ours are made at the first mark of a queue family, once per device, and a mark is used again only when the
//! device is done with it. The loader makes our command buffers handles like any other's.

use std::array;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use ash::vk;
use ash::vk::Handle;
use throttle::{LEASES, Mark, Nanos, Slot};

use super::next::MarkNext;
use super::os;

/// PFN_vkSetDeviceLoaderData of vk_layer.h.
pub type SetLoaderData = unsafe extern "system" fn(vk::Device, *mut c_void) -> vk::Result;

/// Queue families that are told apart; no driver has more.
pub const FAMILIES: usize = 16;
/// Three for each lease.
const MARKS: usize = 3 * LEASES;
/// The longest that the destruction of a device waits for a mark behind work that is done.
const LAST_WAIT: u64 = 1_000_000_000;

/// How marks are made on one device.
pub struct Marking {
    next: MarkNext,
    /// Without it there are no marks: what is submitted is paid for as it is believed.
    set_loader_data: Option<SetLoaderData>,
    families: Vec<vk::QueueFamilyProperties>,
    /// Nanoseconds per tick.
    period: f32,
    /// Boxes, as all of this crosses the stack of whoever makes a device, of which there may be little (attack 35). Null: not made yet; [`NONE`]: it cannot be.
    sets: [AtomicPtr<Set>; FAMILIES],
}

/// No set.
const NONE: *mut Set = ptr::without_provenance_mut(align_of::<Set>());

/// The objects of one queue family.
struct Set {
    pool: vk::CommandPool,
    queries: vk::QueryPool,
    buffers: [vk::CommandBuffer; MARKS],
    states: [State; MARKS],
}

struct State {
    fence: vk::Fence,
    /// Somebody is at it.
    busy: AtomicBool,
    /// It is in a queue, or was reached.
    was_set: AtomicBool,
    at: AtomicU64,
}

// SAFETY: the handles are used by one thread at a time (`busy`), or by calls that need no such care.
unsafe impl Send for Set {}
// SAFETY: as above.
unsafe impl Sync for Set {}

fn index((slot, mark): (Slot, Mark)) -> usize {
    slot.index() * 3 + mark as usize
}

impl Marking {
    pub fn new(
        next: MarkNext,
        set_loader_data: Option<SetLoaderData>,
        families: Vec<vk::QueueFamilyProperties>,
        period: f32,
    ) -> Marking {
        Marking {
            next,
            set_loader_data,
            families,
            period,
            sets: array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
        }
    }

    /// Becomes that of another device, if its marks are made in the same way. This one's has ended.
    pub fn revive(&self, new: &Marking) -> bool {
        let loaders = |marking: &Marking| marking.set_loader_data.map(|set| set as usize);
        let kinds = |marking: &Marking| {
            let kind = |family: &vk::QueueFamilyProperties| {
                (family.queue_flags, family.timestamp_valid_bits)
            };
            marking.families.iter().map(kind).collect::<Vec<_>>()
        };
        let is_same = loaders(self) == loaders(new)
            && self.period.to_bits() == new.period.to_bits()
            && kinds(self) == kinds(new)
            && self.next.revive(&new.next);
        if is_same {
            for set in &self.sets {
                set.store(ptr::null_mut(), Ordering::Release);
            }
        }
        is_same
    }

    /// Whether a family's queues compute or draw. What is known only to copy is not paced.
    pub fn computes(&self, family: u32) -> bool {
        self.families.get(family as usize).is_none_or(|family| {
            family
                .queue_flags
                .intersects(vk::QueueFlags::GRAPHICS | vk::QueueFlags::COMPUTE)
        })
    }

    /// Sets a mark at the end of a queue that the caller's caller has to himself. False where that is not possible.
    #[must_use]
    pub fn set(&self, queue: vk::Queue, family: u32, mark: (Slot, Mark)) -> bool {
        let Some(buffer) = self.lend(family, mark) else {
            return false;
        };
        let buffers = [buffer];
        let info = vk::SubmitInfo::default().command_buffers(&buffers);
        self.put(queue, family, mark, Some(&[info]))
    }

    /// A mark that the caller's caller is to submit first of all in his own batch, so that it comes behind what that waits for. [`Marking::submitted`] follows.
    /// It counts as reached when the batch is done.
    #[must_use]
    pub fn lend(&self, family: u32, mark: (Slot, Mark)) -> Option<vk::CommandBuffer> {
        let set = self.set_of(family)?;
        let state = &set.states[index(mark)];
        if state.busy.swap(true, Ordering::Acquire) {
            return None;
        }
        if self.is_free(state) {
            return Some(set.buffers[index(mark)]);
        }
        state.busy.store(false, Ordering::Release);
        None
    }

    /// The batch with the mark that was lent was submitted to the queue, or was not.
    pub fn submitted(&self, queue: vk::Queue, family: u32, mark: (Slot, Mark), was_made: bool) {
        self.put(queue, family, mark, was_made.then_some(&[][..]));
    }

    /// Submits what is left to submit of a mark that was lent, with its fence; nothing where it is in no queue. Whether it is set.
    fn put(
        &self,
        queue: vk::Queue,
        family: u32,
        mark: (Slot, Mark),
        infos: Option<&[vk::SubmitInfo<'_>]>,
    ) -> bool {
        let Some(set) = self.made(family) else {
            return false;
        };
        let state = &set.states[index(mark)];
        let was_set = infos
            .and_then(|infos| self.submit(queue, infos, state.fence))
            .is_some();
        if was_set {
            state.at.store(os::now().0, Ordering::Relaxed);
            state.was_set.store(true, Ordering::Release);
        }
        state.busy.store(false, Ordering::Release);
        was_set
    }

    /// Whether the device has reached a mark; `None` where nobody can say.
    pub fn reached(&self, family: u32, mark: (Slot, Mark)) -> Option<bool> {
        let state = &self.made(family)?.states[index(mark)];
        if !state.was_set.load(Ordering::Acquire) {
            return None;
        }
        match self.status(state.fence)? {
            vk::Result::SUCCESS => Some(true),
            vk::Result::NOT_READY => Some(false),
            _ => None,
        }
    }

    /// From one mark to another, both reached. Never more than has gone by since the first was set.
    pub fn between(&self, family: u32, from: (Slot, Mark), to: (Slot, Mark)) -> Option<Nanos> {
        let set = self.made(family)?;
        let bits = self.families.get(family as usize)?.timestamp_valid_bits;
        let mask = u64::MAX.checked_shr(64 - bits.min(64))?;
        let (start, end) = (self.ticks(set, from)?, self.ticks(set, to)?);
        let ticks = end.wrapping_sub(start) & mask;
        let since = Nanos(set.states[index(from)].at.load(Ordering::Relaxed));
        (ticks <= mask / 2)
            .then(|| Nanos((ticks as f64 * f64::from(self.period)) as u64))
            .map(|span| span.min(os::now().less(since)))
    }

    /// The device is about to be destroyed, and nobody asks any more: what we made goes first, unless the device never comes to an end with it.
    pub fn end(&self) {
        for place in &self.sets {
            let set = place.swap(NONE, Ordering::AcqRel);
            if set.is_null() || set == NONE {
                continue;
            }
            // SAFETY: a set of `set_of`'s, which nobody else takes out. Whoever had it submitted to the device, which is over, or asked while it had the turn, and finds
            // the device gone from now on.
            let set = unsafe { Box::from_raw(set) };
            let waits: Vec<vk::Fence> = set
                .states
                .iter()
                .filter(|state| state.was_set.load(Ordering::Acquire))
                .map(|state| state.fence)
                .collect();
            // SAFETY: the fences are ours and alive.
            let done = waits.is_empty()
                || self.next.wait_fences.is_some_and(|wait| unsafe {
                    wait(
                        self.next.handle(),
                        waits.len() as u32,
                        waits.as_ptr(),
                        vk::TRUE,
                        LAST_WAIT,
                    )
                } == vk::Result::SUCCESS);
            if done {
                self.destroy(&set);
            }
        }
    }

    fn made(&self, family: u32) -> Option<&Set> {
        let set = self.sets.get(family as usize)?.load(Ordering::Acquire);
        match set {
            NONE => None,
            // SAFETY: null, or a box of `set_of`'s, which lives until the device's end (see there).
            set => unsafe { set.as_ref() },
        }
    }

    fn set_of(&self, family: u32) -> Option<&Set> {
        let place = self.sets.get(family as usize)?;
        if place.load(Ordering::Acquire).is_null() {
            let made = self.make(family).map(Box::new);
            let made = made.map_or(NONE, Box::into_raw);
            let order = (Ordering::AcqRel, Ordering::Acquire);
            let first = place.compare_exchange(ptr::null_mut(), made, order.0, order.1);
            if first.is_err() && made != NONE {
                // Another queue of the family was faster.
                // SAFETY: from `into_raw`, and nobody has seen it.
                let made = unsafe { Box::from_raw(made) };
                self.destroy(&made);
            }
        }
        self.made(family)
    }

    fn make(&self, family: u32) -> Option<Set> {
        self.set_loader_data?;
        if self.families.get(family as usize)?.timestamp_valid_bits == 0 {
            return None;
        }
        let (device, none) = (self.next.handle(), ptr::null());
        let mut set = Set {
            pool: vk::CommandPool::null(),
            queries: vk::QueryPool::null(),
            buffers: [vk::CommandBuffer::null(); MARKS],
            states: array::from_fn(|_| State {
                fence: vk::Fence::null(),
                busy: AtomicBool::new(false),
                was_set: AtomicBool::new(false),
                at: AtomicU64::new(0),
            }),
        };
        let pool = vk::CommandPoolCreateInfo::default().queue_family_index(family);
        let queries = vk::QueryPoolCreateInfo::default()
            .query_type(vk::QueryType::TIMESTAMP)
            .query_count(MARKS as u32);
        let fence = vk::FenceCreateInfo::default();
        // SAFETY: the device lives, as the application is submitting to it; every structure outlives its call.
        let made = unsafe {
            (|| {
                good((self.next.create_pool?)(device, &pool, none, &mut set.pool))?;
                good((self.next.create_queries?)(
                    device,
                    &queries,
                    none,
                    &mut set.queries,
                ))?;
                for state in &mut set.states {
                    good((self.next.create_fence?)(
                        device,
                        &fence,
                        none,
                        &mut state.fence,
                    ))?;
                }
                let buffers = vk::CommandBufferAllocateInfo::default()
                    .command_pool(set.pool)
                    .command_buffer_count(MARKS as u32);
                good((self.next.allocate_buffers?)(
                    device,
                    &buffers,
                    set.buffers.as_mut_ptr(),
                ))?;
                (0..)
                    .zip(set.buffers)
                    .try_for_each(|(query, buffer)| self.record(buffer, set.queries, query))
            })()
        };
        if made.is_none() {
            self.destroy(&set);
            return None;
        }
        Some(set)
    }

    /// # Safety
    /// The command buffer was just allocated.
    unsafe fn record(
        &self,
        buffer: vk::CommandBuffer,
        queries: vk::QueryPool,
        query: u32,
    ) -> Option<()> {
        let begin = vk::CommandBufferBeginInfo::default();
        let object = ptr::with_exposed_provenance_mut(buffer.as_raw() as usize);
        // SAFETY: the loader's own function on a new dispatchable handle of this device; then recording as the specification has it.
        unsafe {
            good((self.set_loader_data?)(self.next.handle(), object))?;
            good((self.next.begin?)(buffer, &begin))?;
            (self.next.reset_queries?)(buffer, queries, query, 1);
            let end = vk::PipelineStageFlags::BOTTOM_OF_PIPE;
            (self.next.write_timestamp?)(buffer, end, queries, query);
            good((self.next.end?)(buffer))
        }
    }

    /// Whether the device is done with a mark, which can then be set again.
    fn is_free(&self, state: &State) -> bool {
        if !state.was_set.load(Ordering::Acquire) {
            return true;
        }
        if self.status(state.fence) != Some(vk::Result::SUCCESS) {
            return false;
        }
        let Some(reset) = self.next.reset_fences else {
            return false;
        };
        state.was_set.store(false, Ordering::Release);
        // SAFETY: a fence of ours that no queue has.
        unsafe { reset(self.next.handle(), 1, &state.fence) == vk::Result::SUCCESS }
    }

    fn submit(
        &self,
        queue: vk::Queue,
        infos: &[vk::SubmitInfo<'_>],
        fence: vk::Fence,
    ) -> Option<()> {
        // SAFETY: the application has the queue to itself and waits for us; command buffers are recorded and in no queue.
        good(unsafe { (self.next.submit?)(queue, infos.len() as u32, infos.as_ptr(), fence) })
    }

    fn status(&self, fence: vk::Fence) -> Option<vk::Result> {
        // SAFETY: a fence of ours, of a device that lives.
        self.next
            .fence_status
            .map(|status| unsafe { status(self.next.handle(), fence) })
    }

    fn ticks(&self, set: &Set, mark: (Slot, Mark)) -> Option<u64> {
        // What was never written may not be asked for.
        let was_set = &set.states[index(mark)].was_set;
        was_set.load(Ordering::Acquire).then_some(())?;
        let mut ticks = 0_u64;
        let size = size_of::<u64>();
        // SAFETY: one query of ours, and room for its 64 bits.
        good(unsafe {
            (self.next.results?)(
                self.next.handle(),
                set.queries,
                index(mark) as u32,
                1,
                size,
                (&raw mut ticks).cast(),
                size as u64,
                vk::QueryResultFlags::TYPE_64,
            )
        })?;
        Some(ticks)
    }

    fn destroy(&self, set: &Set) {
        let (device, none) = (self.next.handle(), ptr::null());
        // SAFETY: our own objects, or null, which no queue has any more.
        unsafe {
            for state in &set.states {
                if let Some(destroy) = self.next.destroy_fence {
                    destroy(device, state.fence, none);
                }
            }
            if let Some(destroy) = self.next.destroy_queries {
                destroy(device, set.queries, none);
            }
            if let Some(destroy) = self.next.destroy_pool {
                destroy(device, set.pool, none);
            }
        }
    }
}

/// The loader's function that makes an object of ours a handle like the application's. `None` where it gives none.
///
/// # Safety
/// `create_info` is null or a VkDeviceCreateInfo whose pNext chain is valid.
pub unsafe fn set_loader_data(
    create_info: *const vk::DeviceCreateInfo<'_>,
) -> Option<SetLoaderData> {
    /// VK_LOADER_DATA_CALLBACK.
    const LOADER_DATA_CALLBACK: u32 = 1;
    #[repr(C)]
    struct Callback {
        s_type: vk::StructureType,
        p_next: *const c_void,
        function: u32,
        set: Option<SetLoaderData>,
    }
    // SAFETY: every structure of a pNext chain begins as VkBaseInStructure does, and those of the loader's type are VkLayerDeviceCreateInfo; this function's union member is the callback.
    unsafe {
        let mut at = create_info
            .as_ref()?
            .p_next
            .cast::<vk::BaseInStructure<'_>>();
        while let Some(structure) = at.as_ref() {
            if structure.s_type == vk::StructureType::LOADER_DEVICE_CREATE_INFO {
                let info = at.cast::<Callback>();
                if (*info).function == LOADER_DATA_CALLBACK {
                    return (*info).set;
                }
            }
            at = structure.p_next;
        }
    }
    None
}

fn good(result: vk::Result) -> Option<()> {
    (result == vk::Result::SUCCESS).then_some(())
}
