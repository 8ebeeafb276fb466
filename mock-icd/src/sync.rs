//! Fences, semaphores, events. Work is put on the device's engines when it is submitted, so its end is known at once: what
//! it signals is signaled *from a time on*, and who asks compares that with the clock.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use ash::vk::{self, Handle};
use mock_device::Nanos;
use mock_device::payload::{Counting, PayloadError, SIGNALED, Words};

use crate::boundary::{Chain, In, List, New, Out, Outcome, now};
use crate::state::{Child, STATE};

/// In a word that holds a time: never.
const NEVER: u64 = 0;

/// A payload with the one that an import with VK_FENCE_IMPORT_TEMPORARY_BIT put before it.
struct Payloads {
    own: Arc<Words>,
    temporary: Option<Arc<Words>>,
}

impl Payloads {
    fn current(&self) -> Arc<Words> {
        Arc::clone(self.temporary.as_ref().unwrap_or(&self.own))
    }
}

pub struct Fence {
    device: u64,
    payloads: Mutex<Payloads>,
}

impl Child for Fence {
    fn device(&self) -> u64 {
        self.device
    }
}

impl Fence {
    fn words(&self) -> Arc<Words> {
        self.payloads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .current()
    }

    pub fn signal(&self, at: Nanos) {
        self.words().page()[SIGNALED].store(at.0.max(1), Ordering::Release);
    }

    /// Unsignals, and ends a temporary import.
    fn reset(&self) {
        let mut payloads = self.payloads.lock().unwrap_or_else(PoisonError::into_inner);
        payloads.temporary = None;
        payloads.own.page()[SIGNALED].store(NEVER, Ordering::Release);
    }

    /// From when on it is signaled, as far as is known.
    fn signaled_at(&self) -> Option<Nanos> {
        let at = self.words().page()[SIGNALED].load(Ordering::Acquire);
        (at != NEVER).then_some(Nanos(at))
    }

    fn is_shared(&self) -> bool {
        self.words().is_shared()
    }
}

fn refusal(error: PayloadError) -> vk::Result {
    match error {
        PayloadError::Foreign => vk::Result::ERROR_INVALID_EXTERNAL_HANDLE,
        PayloadError::Full => vk::Result::ERROR_TOO_MANY_OBJECTS,
        PayloadError::Own => vk::Result::ERROR_UNKNOWN,
    }
}

fn words_for(exported: bool) -> Result<Arc<Words>, vk::Result> {
    Ok(Arc::new(if exported {
        Words::shared().map_err(|_| vk::Result::ERROR_OUT_OF_HOST_MEMORY)?
    } else {
        Words::own()
    }))
}

pub fn create_fence(
    device: vk::Device,
    info: In<vk::FenceCreateInfo<'_>>,
    fence: New<vk::Fence>,
) -> Outcome {
    STATE.devices.find(device)?;
    let info = info.demand()?;
    let exported = Chain::of(info.p_next)
        .find::<vk::ExportFenceCreateInfo<'_>>()
        .is_some_and(|export| !export.handle_types.is_empty());
    let made = Fence {
        device: device.as_raw(),
        payloads: Mutex::new(Payloads {
            own: words_for(exported)?,
            temporary: None,
        }),
    };
    if info.flags.contains(vk::FenceCreateFlags::SIGNALED) {
        made.signal(now());
    }
    fence.put(STATE.fences.insert(made));
    Ok(())
}

pub fn destroy_fence(fence: vk::Fence) -> Outcome {
    if fence.is_null() {
        return Ok(());
    }
    STATE.fences.remove(fence).map(drop)
}

fn find_fences(count: u32, fences: &List<vk::Fence>) -> Result<Vec<Arc<Fence>>, vk::Result> {
    fences
        .of(count as usize)
        .iter()
        .map(|fence| STATE.fences.find(*fence))
        .collect()
}

pub fn reset_fences(count: u32, fences: List<vk::Fence>) -> Outcome {
    find_fences(count, &fences)?
        .iter()
        .for_each(|fence| fence.reset());
    Ok(())
}

/// # Errors
/// VK_NOT_READY.
pub fn fence_status(fence: vk::Fence) -> Outcome {
    match STATE.fences.find(fence)?.signaled_at() {
        Some(at) if at <= now() => Ok(()),
        _ => Err(vk::Result::NOT_READY),
    }
}

/// From when on a list of conditions holds: all of them, or one.
fn together(times: impl Iterator<Item = Option<Nanos>>, all: bool) -> Option<Nanos> {
    if all {
        times
            .collect::<Option<Vec<_>>>()
            .map(|times| times.into_iter().max().unwrap_or_default())
    } else {
        times.flatten().min()
    }
}

/// # Errors
/// VK_TIMEOUT.
pub fn wait_fences(
    device: vk::Device,
    count: u32,
    fences: List<vk::Fence>,
    all: vk::Bool32,
    timeout: u64,
) -> Outcome {
    let fences = find_fences(count, &fences)?;
    let work = Arc::clone(&STATE.devices.find(device)?.work);
    let shared = fences.iter().any(|fence| fence.is_shared());
    work.wait(timeout, shared, || {
        together(
            fences.iter().map(|fence| fence.signaled_at()),
            all != vk::FALSE,
        )
    })
}

/// # Errors
/// VK_ERROR_UNKNOWN for a fence that was not made for export.
pub fn fence_fd(info: In<vk::FenceGetFdInfoKHR<'_>>, fd: Out<i32>) -> Outcome {
    let info = info.demand()?;
    let fence = STATE.fences.find(info.fence)?;
    fd.put(fence.words().export().map_err(refusal)?);
    Ok(())
}

/// # Errors
/// VK_ERROR_INVALID_EXTERNAL_HANDLE.
pub fn import_fence_fd(info: In<vk::ImportFenceFdInfoKHR<'_>>) -> Outcome {
    let info = info.demand()?;
    let fence = STATE.fences.find(info.fence)?;
    let words = Arc::new(Words::import(info.fd).map_err(refusal)?);
    let mut payloads = fence
        .payloads
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if info.flags.contains(vk::FenceImportFlags::TEMPORARY) {
        payloads.temporary = Some(words);
    } else {
        payloads.own = words;
    }
    Ok(())
}

pub struct Semaphore {
    device: u64,
    counting: Counting,
    payloads: Mutex<Payloads>,
}

impl Child for Semaphore {
    fn device(&self) -> u64 {
        self.device
    }
}

impl Semaphore {
    fn words(&self) -> Arc<Words> {
        self.payloads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .current()
    }

    /// From when on a wait for the value is over; `None` while no signal for it was submitted.
    pub fn reached_at(&self, value: u64) -> Option<Nanos> {
        self.words().reached_at(self.counting, value)
    }

    /// A wait has been satisfied: a binary semaphore is unsignaled by it, and a temporary import ends.
    pub fn consume(&self) {
        let mut payloads = self.payloads.lock().unwrap_or_else(PoisonError::into_inner);
        payloads.current().consume(self.counting);
        payloads.temporary = None;
    }

    pub fn signal(&self, value: u64, at: Nanos) {
        self.words().signal(self.counting, value, at);
    }

    pub fn is_shared(&self) -> bool {
        self.words().is_shared()
    }
}

pub fn create_semaphore(
    device: vk::Device,
    info: In<vk::SemaphoreCreateInfo<'_>>,
    semaphore: New<vk::Semaphore>,
) -> Outcome {
    STATE.devices.find(device)?;
    let chain = Chain::of(info.demand()?.p_next);
    let exported = chain
        .find::<vk::ExportSemaphoreCreateInfo<'_>>()
        .is_some_and(|export| !export.handle_types.is_empty());
    let timeline = chain
        .find::<vk::SemaphoreTypeCreateInfo<'_>>()
        .filter(|kind| kind.semaphore_type == vk::SemaphoreType::TIMELINE);
    let own = words_for(exported)?;
    if let Some(kind) = timeline {
        own.start_at(kind.initial_value);
    }
    semaphore.put(STATE.semaphores.insert(Semaphore {
        device: device.as_raw(),
        counting: match timeline {
            Some(_) => Counting::Timeline,
            None => Counting::Binary,
        },
        payloads: Mutex::new(Payloads {
            own,
            temporary: None,
        }),
    }));
    Ok(())
}

pub fn destroy_semaphore(semaphore: vk::Semaphore) -> Outcome {
    if semaphore.is_null() {
        return Ok(());
    }
    STATE.semaphores.remove(semaphore).map(drop)
}

/// # Errors
/// VK_ERROR_UNKNOWN for a binary semaphore, which has no counter.
pub fn counter(semaphore: vk::Semaphore, value: Out<u64>) -> Outcome {
    let semaphore = STATE.semaphores.find(semaphore)?;
    if semaphore.counting == Counting::Binary {
        return Err(vk::Result::ERROR_UNKNOWN);
    }
    value.put(semaphore.words().value(now()));
    Ok(())
}

/// # Errors
/// VK_TIMEOUT.
pub fn wait_semaphores(
    device: vk::Device,
    info: In<vk::SemaphoreWaitInfo<'_>>,
    timeout: u64,
) -> Outcome {
    let info = info.demand()?;
    let count = info.semaphore_count as usize;
    let semaphores = List::field(info.p_semaphores);
    let values = List::field(info.p_values);
    let points: Vec<(Arc<Semaphore>, u64)> = semaphores
        .of(count)
        .iter()
        .zip(values.of(count))
        .map(|(semaphore, value)| Ok((STATE.semaphores.find(*semaphore)?, *value)))
        .collect::<Result<_, vk::Result>>()?;
    let work = Arc::clone(&STATE.devices.find(device)?.work);
    let shared = points.iter().any(|(semaphore, _)| semaphore.is_shared());
    let all = !info.flags.contains(vk::SemaphoreWaitFlags::ANY);
    work.wait(timeout, shared, || {
        let times = points
            .iter()
            .map(|(semaphore, value)| semaphore.reached_at(*value));
        together(times, all)
    })
}

pub fn signal_semaphore(device: vk::Device, info: In<vk::SemaphoreSignalInfo<'_>>) -> Outcome {
    let info = info.demand()?;
    let semaphore = STATE.semaphores.find(info.semaphore)?;
    STATE
        .devices
        .find(device)?
        .work
        .change(|| semaphore.signal(info.value, now()));
    Ok(())
}

/// # Errors
/// VK_ERROR_UNKNOWN for a semaphore that was not made for export.
pub fn semaphore_fd(info: In<vk::SemaphoreGetFdInfoKHR<'_>>, fd: Out<i32>) -> Outcome {
    let info = info.demand()?;
    let semaphore = STATE.semaphores.find(info.semaphore)?;
    fd.put(semaphore.words().export().map_err(refusal)?);
    Ok(())
}

/// # Errors
/// VK_ERROR_INVALID_EXTERNAL_HANDLE.
pub fn import_semaphore_fd(info: In<vk::ImportSemaphoreFdInfoKHR<'_>>) -> Outcome {
    let info = info.demand()?;
    let semaphore = STATE.semaphores.find(info.semaphore)?;
    let words = Arc::new(Words::import(info.fd).map_err(refusal)?);
    let mut payloads = semaphore
        .payloads
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if info.flags.contains(vk::SemaphoreImportFlags::TEMPORARY) {
        payloads.temporary = Some(words);
    } else {
        payloads.own = words;
    }
    Ok(())
}

pub struct Event {
    device: u64,
    /// Before and after the time: a queue's change of an event holds from its end on.
    state: Mutex<(bool, bool, Nanos)>,
}

impl Child for Event {
    fn device(&self) -> u64 {
        self.device
    }
}

impl Event {
    pub fn change(&self, set: bool, at: Nanos) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = (state.1, set, at);
    }

    fn is_set(&self) -> bool {
        let (before, after, at) = *self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if at <= now() { after } else { before }
    }
}

pub fn create_event(device: vk::Device, event: New<vk::Event>) -> Outcome {
    STATE.devices.find(device)?;
    event.put(STATE.events.insert(Event {
        device: device.as_raw(),
        state: Mutex::default(),
    }));
    Ok(())
}

pub fn destroy_event(event: vk::Event) -> Outcome {
    if event.is_null() {
        return Ok(());
    }
    STATE.events.remove(event).map(drop)
}

/// # Errors
/// VK_EVENT_SET and VK_EVENT_RESET, the two answers there are.
pub fn event_status(event: vk::Event) -> Outcome {
    Err(if STATE.events.find(event)?.is_set() {
        vk::Result::EVENT_SET
    } else {
        vk::Result::EVENT_RESET
    })
}

pub fn change_event(event: vk::Event, set: bool) -> Outcome {
    STATE.events.find(event)?.change(set, now());
    Ok(())
}
