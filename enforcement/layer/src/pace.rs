//! Submissions under a compute budget.
//!
//! The same [`Lane`] as CUDA's launches come through, and the same words of the ledger. What a submission takes is believed by its queue and
//! its number of command buffers, and measured by timestamps around it. A queue that was never seen is passed on, and so is one that only copies.

use std::array;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ash::vk;
use ash::vk::Handle;
use seeds::{Seed, planted};
use throttle::{Budget, Key, Lane, Mark, Marks, Nanos, Paced, Site, Slot, Told};

use crate::arena::Id;
use crate::boundary::marks::Marking;
use crate::boundary::{fresh_lane, os};
use crate::device::{self, Device, Found};

/// Queues of one device that are told apart.
const QUEUES: usize = 64;
/// Bits of a place that are the queue family's.
const FAMILY: u32 = 8;

/// What a process does on one GPU.
pub struct Turns {
    pub lane: Box<Lane>,
    turn: Mutex<()>,
}

/// A device whose submissions are paced.
pub struct Timed {
    marking: Marking,
    queues: [Queue; QUEUES],
    /// It is being destroyed: changed and asked in turn.
    gone: AtomicBool,
}

struct Queue {
    handle: AtomicU64,
    family: AtomicU32,
}

impl Timed {
    pub fn new(marking: Marking) -> Timed {
        Timed {
            marking,
            queues: array::from_fn(|_| Queue {
                handle: AtomicU64::new(0),
                family: AtomicU32::new(0),
            }),
            gone: AtomicBool::new(false),
        }
    }

    /// Becomes that of another device, if its marks are made in the same way. This one is gone.
    pub fn revive(&self, new: &Timed) -> bool {
        let is_same = self.gone.load(Ordering::Relaxed) && self.marking.revive(&new.marking);
        if is_same {
            for queue in &self.queues {
                queue.handle.store(0, Ordering::Release);
            }
            self.gone.store(false, Ordering::Relaxed);
        }
        is_same
    }

    /// A queue was given out.
    pub fn learn(&self, queue: vk::Queue, family: u32) {
        let handle = queue.as_raw();
        if handle == 0 || self.family_of(queue).is_some() {
            return;
        }
        let taken = self.queues.iter().find(|slot| {
            slot.handle
                .compare_exchange(0, u64::MAX, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        });
        if let Some(slot) = taken {
            slot.family.store(family, Ordering::Relaxed);
            slot.handle.store(handle, Ordering::Release);
        }
    }

    /// Whether it gave this queue out.
    pub fn gave(&self, queue: vk::Queue) -> bool {
        queue != vk::Queue::null() && self.family_of(queue).is_some()
    }

    fn family_of(&self, queue: vk::Queue) -> Option<u32> {
        self.queues
            .iter()
            .find(|slot| slot.handle.load(Ordering::Acquire) == queue.as_raw())
            .map(|slot| slot.family.load(Ordering::Relaxed))
    }
}

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            lane: fresh_lane(),
            turn: Mutex::default(),
        }
    }
}

impl Turns {
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is submitted.
#[derive(Clone, Copy, Default)]
pub struct Batch {
    /// Command buffers.
    pub buffers: u64,
    /// Semaphores that it waits for.
    pub waits: u64,
    /// Its first part waits, and may have a command buffer more.
    pub has_room: bool,
}

/// Lets `call`, which submits a batch to a queue, happen when it may; with a command buffer of ours before all of it, where the batch has room for one.
pub fn submit(
    found: Found,
    queue: vk::Queue,
    batch: Batch,
    call: &mut dyn FnMut(Option<vk::CommandBuffer>) -> vk::Result,
) -> vk::Result {
    let Some(site) = site(found, queue, batch) else {
        return call(None);
    };
    // What comes behind it in its queue waits as well.
    if site.waits && (batch.buffers > 0 || !planted(Seed::T14)) {
        site.turns.lane.note_wait();
    }
    if batch.buffers == 0 {
        return call(None);
    }
    let key = Key::batch(queue.as_raw(), batch.buffers);
    if site.turns.lane.pass(key) {
        return call(None);
    }
    let Some(budget) = time_budget(site.device) else {
        return call(None);
    };
    let mut answer = vk::Result::SUCCESS;
    let paced = site.turns.lane.pace(&site, &budget, key, &mut || {
        let lent = site.lent.take();
        answer = call(lent.map(|(_, buffer)| buffer));
        let was_made = answer == vk::Result::SUCCESS;
        if let Some((mark, _)) = lent {
            site.timed
                .marking
                .submitted(queue, site.family, mark, was_made);
        }
        was_made
    });
    match paced {
        Paced::Covered => call(None),
        Paced::Made => answer,
    }
}

/// To be called before next destroys the device.
pub fn end(device: &Device) {
    let Some(timed) = &device.timed else {
        return;
    };
    if let Some(turns) = turns(device) {
        let _turn = turns.turn();
        let budget = time_budget(device);
        let look = || {
            if let Some(budget) = &budget {
                turns.lane.look(&Anywhere, budget, os::now());
            }
        };
        look();
        timed.gone.store(true, Ordering::Relaxed);
        // Whatever it has not done by now nobody will know of.
        look();
    }
    timed.marking.end();
}

fn time_budget(device: &Device) -> Option<Budget<'_>> {
    let enforced = device.enforced.as_ref()?;
    enforced.attachment.time_budget(enforced.all)
}

/// Marks of any device.
struct Anywhere;

impl Marks for Anywhere {
    fn reached(&self, place: u64, slot: Slot, mark: Mark) -> Option<bool> {
        let (timed, family) = at(place)?;
        timed.marking.reached(family, (slot, mark))
    }

    fn between(&self, place: u64, from: (Slot, Mark), to: (Slot, Mark)) -> Option<Nanos> {
        let (timed, family) = at(place)?;
        timed.marking.between(family, from, to)
    }
}

struct Place {
    device: &'static Device,
    timed: &'static Timed,
    turns: &'static Turns,
    queue: vk::Queue,
    family: u32,
    waits: bool,
    has_room: bool,
    /// A mark that the batch takes along.
    lent: Cell<Option<((Slot, Mark), vk::CommandBuffer)>>,
}

fn site(found: Found, queue: vk::Queue, batch: Batch) -> Option<Place> {
    let device = found.device;
    let timed = device.timed.as_ref().filter(|_| found.registered)?;
    let family = timed
        .family_of(queue)
        .filter(|family| timed.marking.computes(*family))?;
    let waits = batch.waits > 0 && !planted(Seed::T5);
    Some(Place {
        device,
        timed,
        turns: turns(device)?,
        queue,
        family,
        waits,
        has_room: waits && batch.has_room && !planted(Seed::T13),
        lent: Cell::new(None),
    })
}

fn turns(device: &Device) -> Option<&'static Turns> {
    let enforced = device.enforced.as_ref()?;
    enforced.attachment.turns(enforced.all)
}

/// The device and queue family of a number that [`Site::set`] answered.
fn at(place: u64) -> Option<(&'static Timed, u32)> {
    let id = Id(u32::try_from(place >> FAMILY).ok()?);
    let timed = device::of_id(id)?.timed.as_ref()?;
    (!timed.gone.load(Ordering::Relaxed)).then_some((timed, (place & 0xff) as u32))
}

impl Site for Place {
    type Turn = MutexGuard<'static, ()>;

    fn turn(&self) -> MutexGuard<'static, ()> {
        self.turns.turn()
    }

    fn now(&self) -> Nanos {
        os::now()
    }

    fn sleep_until(&self, until: Nanos) {
        os::sleep_until(until);
    }

    /// Batches are seldom so short that a mark's own time matters.
    fn set(&self, slot: Slot, mark: Mark) -> u64 {
        let marking = &self.timed.marking;
        let was_set = match mark {
            Mark::Behind => false,
            Mark::Opened | Mark::Last if self.has_room => {
                let lent = marking.lend(self.family, (slot, mark));
                self.lent.set(lent.map(|buffer| ((slot, mark), buffer)));
                lent.is_some()
            }
            _ => marking.set(self.queue, self.family, (slot, mark)),
        };
        if was_set {
            u64::from(self.device.id.0) << FAMILY | u64::from(self.family)
        } else {
            0
        }
    }

    fn told(&self, since: u64) -> Option<Told> {
        let enforced = self
            .device
            .enforced
            .as_ref()
            .filter(|_| !planted(Seed::T15))?;
        enforced.attachment.told(enforced.all, since)
    }
}

/// Of a queue nobody can ask whether it is idle.
impl Marks for Place {
    fn reached(&self, place: u64, slot: Slot, mark: Mark) -> Option<bool> {
        Anywhere.reached(place, slot, mark)
    }

    fn between(&self, place: u64, from: (Slot, Mark), to: (Slot, Mark)) -> Option<Nanos> {
        Anywhere.between(place, from, to)
    }

    fn waits(&self) -> bool {
        self.waits
    }

    fn stream(&self) -> u64 {
        self.queue.as_raw()
    }
}
