//! Fences, semaphores, events.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ash::vk::{self, Handle};

use crate::boundary::{Chain, In, List, New, Out, Outcome};
use crate::state::{Child, STATE};

pub struct Fence {
    device: u64,
    signaled: AtomicBool,
}

impl Child for Fence {
    fn device(&self) -> u64 {
        self.device
    }
}

impl Fence {
    pub fn set(&self, signaled: bool) {
        self.signaled.store(signaled, Ordering::Release);
    }

    fn is_signaled(&self) -> bool {
        self.signaled.load(Ordering::Acquire)
    }
}

pub fn create_fence(
    device: vk::Device,
    info: In<vk::FenceCreateInfo<'_>>,
    fence: New<vk::Fence>,
) -> Outcome {
    STATE.devices.find(device)?;
    let signaled = info
        .demand()?
        .flags
        .contains(vk::FenceCreateFlags::SIGNALED);
    fence.put(STATE.fences.insert(Fence {
        device: device.as_raw(),
        signaled: AtomicBool::new(signaled),
    }));
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
        .for_each(|fence| fence.set(false));
    Ok(())
}

/// # Errors
/// VK_NOT_READY.
pub fn fence_status(fence: vk::Fence) -> Outcome {
    if STATE.fences.find(fence)?.is_signaled() {
        Ok(())
    } else {
        Err(vk::Result::NOT_READY)
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
    work.wait(timeout, || {
        let mut states = fences.iter().map(|fence| fence.is_signaled());
        if all == vk::FALSE {
            states.any(|signaled| signaled)
        } else {
            states.all(|signaled| signaled)
        }
    })
}

pub struct Semaphore {
    device: u64,
    payload: Mutex<Payload>,
}

#[derive(Clone, Copy)]
enum Payload {
    Binary(bool),
    Timeline(u64),
}

impl Child for Semaphore {
    fn device(&self) -> u64 {
        self.device
    }
}

impl Semaphore {
    pub fn reached(&self, value: u64) -> bool {
        match *self.payload() {
            Payload::Binary(signaled) => signaled,
            Payload::Timeline(now) => now >= value,
        }
    }

    /// A wait has been satisfied: a binary semaphore is unsignaled by it.
    pub fn consume(&self) {
        if let Payload::Binary(signaled) = &mut *self.payload() {
            *signaled = false;
        }
    }

    /// A timeline never goes back, whatever order invalid use asks for.
    pub fn signal(&self, value: u64) {
        match &mut *self.payload() {
            Payload::Binary(signaled) => *signaled = true,
            Payload::Timeline(now) => *now = value.max(*now),
        }
    }

    fn payload(&self) -> std::sync::MutexGuard<'_, Payload> {
        self.payload.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub fn create_semaphore(
    device: vk::Device,
    info: In<vk::SemaphoreCreateInfo<'_>>,
    semaphore: New<vk::Semaphore>,
) -> Outcome {
    STATE.devices.find(device)?;
    let chain = Chain::of(info.demand()?.p_next);
    let payload = match chain.find::<vk::SemaphoreTypeCreateInfo<'_>>() {
        Some(kind) if kind.semaphore_type == vk::SemaphoreType::TIMELINE => {
            Payload::Timeline(kind.initial_value)
        }
        _ => Payload::Binary(false),
    };
    semaphore.put(STATE.semaphores.insert(Semaphore {
        device: device.as_raw(),
        payload: Mutex::new(payload),
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
    match *STATE.semaphores.find(semaphore)?.payload() {
        Payload::Timeline(now) => {
            value.put(now);
            Ok(())
        }
        Payload::Binary(_) => Err(vk::Result::ERROR_UNKNOWN),
    }
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
    work.wait(timeout, || {
        let mut states = points
            .iter()
            .map(|(semaphore, value)| semaphore.reached(*value));
        if info.flags.contains(vk::SemaphoreWaitFlags::ANY) {
            states.any(|reached| reached)
        } else {
            states.all(|reached| reached)
        }
    })
}

pub fn signal_semaphore(device: vk::Device, info: In<vk::SemaphoreSignalInfo<'_>>) -> Outcome {
    let info = info.demand()?;
    let semaphore = STATE.semaphores.find(info.semaphore)?;
    STATE
        .devices
        .find(device)?
        .work
        .change(|| semaphore.signal(info.value));
    Ok(())
}

pub struct Event {
    device: u64,
    set: AtomicBool,
}

impl Child for Event {
    fn device(&self) -> u64 {
        self.device
    }
}

impl Event {
    pub fn set(&self, set: bool) {
        self.set.store(set, Ordering::Release);
    }
}

pub fn create_event(device: vk::Device, event: New<vk::Event>) -> Outcome {
    STATE.devices.find(device)?;
    event.put(STATE.events.insert(Event {
        device: device.as_raw(),
        set: AtomicBool::new(false),
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
    let set = STATE.events.find(event)?.set.load(Ordering::Acquire);
    Err(if set {
        vk::Result::EVENT_SET
    } else {
        vk::Result::EVENT_RESET
    })
}

pub fn change_event(event: vk::Event, set: bool) -> Outcome {
    STATE.events.find(event)?.set(set);
    Ok(())
}
