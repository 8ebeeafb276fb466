//! One live VkDevice's chain and charges, from creation to destruction.

use ledger::{Change, KeptErrno};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ash::vk;
use budget::{Bytes, DeviceIndex, DeviceSet, MAX_DEVICES};
use seeds::{Seed, planted};

use crate::arena::Id;
use crate::attachment::{self, Attachment, Refused};
use crate::boundary::marks::Marking;
use crate::boundary::next::{DeviceNext, HeapUse};
use crate::boundary::nvml;
use crate::floor::Books;
use crate::instance::Instance;
use crate::memory::{self, Objects};
use crate::pace::Timed;
use crate::physical::{MemoryTypes, Physical};
use crate::records::{Charge, Object};
use crate::standing;
use crate::swapchains;
use crate::table::{Key, Table};
use crate::targets::Held;
use crate::trace;

pub struct Device {
    pub next: DeviceNext,
    pub id: Id,
    /// `None`: not a tenant's GPU, or no budget is set. Nothing of it is hooked or charged.
    pub enforced: Option<Enforced>,
    /// Where there is a compute budget.
    pub timed: Option<Box<Timed>>,
}

pub struct Enforced {
    pub attachment: &'static Attachment,
    pub types: MemoryTypes,
    /// Of each physical device of the group, in the order of device masks.
    pub group: Vec<DeviceSet>,
    pub all: DeviceSet,
    overhead: AtomicU64,
    /// Of the overhead, what no row of the driver's shows.
    unlisted: AtomicU64,
}

/// A device and whether it is really the one asked for.
#[derive(Clone, Copy)]
pub struct Found {
    pub device: &'static Device,
    pub registered: bool,
}

impl Found {
    /// What its objects are charged; `None` where nothing is.
    pub fn objects(&self) -> Option<&'static Objects> {
        let enforced = self.device.enforced.as_ref()?;
        Some(&enforced.attachment.objects)
    }
}

/// What next gave for vkCreateDevice.
pub struct Made {
    pub key: Key,
    pub next: DeviceNext,
    /// Where there is a compute budget.
    pub marking: Option<Marking>,
}

static DEVICES: Table<Device> = Table::new();
/// What a device of each GPU was seen to take, so that the next one's reservation is exact.
static LEARNED: [AtomicU64; MAX_DEVICES] = [const { AtomicU64::new(0) }; MAX_DEVICES];

/// Before the first was measured: reserved for a device, or an eighth of a small budget. Trued up at once.
const FIRST_BOUND: Bytes = Bytes::mib(256);
/// What a device takes at most that is made beside CUDA's contexts, whose charges are bounds: 68 MiB on an H200, where extensions are asked for. At most what
/// one was seen to take.
const BESIDE: Bytes = Bytes::mib(72);
/// No VkDevice is made where less is left: on an H200 it takes 29 MiB and more.
const LEAST: Bytes = Bytes::mib(24);
/// What a GPU loses to a device beyond what the process's NVML row gains: 17.4 MiB on an H200.
const UNSAID: standing::Unsaid = standing::Unsaid {
    usual: Bytes::mib(18),
    most: Bytes::mib(24),
};

pub fn find(key: Option<Key>) -> Option<Found> {
    match key.and_then(|key| DEVICES.get(key)) {
        Some(device) => Some(Found {
            device,
            registered: true,
        }),
        None => DEVICES.any().map(|device| Found {
            device,
            registered: false,
        }),
    }
}

/// The device of a queue. The loader's word in it is written above the first layer, and a layer that gives out queues of its own may
/// have kept it to them: then the queue is known by having been given out here.
#[inline]
pub fn of_queue(key: Option<Key>, queue: vk::Queue) -> Option<Found> {
    match find(key) {
        Some(found) if !found.registered => Some(giver(queue).unwrap_or(found)),
        found => found,
    }
}

#[cold]
fn giver(queue: vk::Queue) -> Option<Found> {
    let gave = |device: &&Device| device.timed.as_ref().is_some_and(|timed| timed.gave(queue));
    DEVICES.living().find(gave).map(|device| Found {
        device,
        registered: true,
    })
}

/// A device by its number, destroyed or not.
pub fn of_id(id: Id) -> Option<&'static Device> {
    DEVICES.of_id(id)
}

/// To be called before next destroys it: from then on its key may belong to another.
pub fn unregister(key: Key) -> Option<&'static Device> {
    DEVICES.remove(key)
}

/// Creates a device and charges what it takes by itself. `hopeless` says whether next would refuse for another reason than memory.
pub fn create(
    instance: &Instance,
    group: &[vk::PhysicalDevice],
    hopeless: impl FnOnce() -> bool,
    make: impl FnOnce() -> Result<Made, vk::Result>,
) -> vk::Result {
    let _errno = KeptErrno::keep();
    let group: Vec<_> = if attachment::enforcing() {
        group
            .iter()
            .filter_map(|handle| instance.physical(*handle))
            .collect()
    } else {
        Vec::new()
    };
    if !group.iter().any(|physical| physical.tenant_gpu) {
        return make().map_or_else(|code| code, |made| register(made, None));
    }
    let Some(attachment) = attachment::current() else {
        return vk::Result::ERROR_OUT_OF_HOST_MEMORY;
    };
    let enforced = Enforced::new(attachment, &group);
    if planted(Seed::V26) && !attachment.stands() {
        return make().map_or_else(|code| code, |made| register(made, Some(enforced)));
    }
    // Measured by the process's growth, so one at a time; the loader does the same.
    static CREATING: Mutex<()> = Mutex::new(());
    let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    charged(instance, &group, enforced, hopeless, make)
}

fn charged(
    instance: &Instance,
    group: &[Arc<Physical>],
    enforced: Enforced,
    hopeless: impl FnOnce() -> bool,
    make: impl FnOnce() -> Result<Made, vk::Result>,
) -> vk::Result {
    let (attachment, all) = (enforced.attachment, enforced.all);
    let bound = enforced.bound();
    attachment.await_predecessors(all);
    let held = standing::late(attachment, all).and_then(|()| enforced.reserve(bound));
    let Ok((held, reserved)) = held else {
        trace::line(format_args!(
            "create device reserve={} verdict=refused",
            bound.0
        ));
        return match hopeless().then(make) {
            Some(Err(code)) => code,
            Some(Ok(made)) => refuse(&made),
            None => vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
        };
    };
    let before = measure(instance, group, &enforced);
    let made = match make() {
        Ok(made) => made,
        Err(code) => return code,
    };
    let after = measure(instance, group, &enforced);
    let readings = before.as_ref().zip(after.as_ref());
    let measured = readings.and_then(|(before, after)| after.since(before, bound));
    let took = measured
        .unwrap_or(bound)
        .round_up(memory::GRANULARITY)
        .unwrap_or(Bytes::MAX);
    let Ok(rest) = took
        .0
        .checked_sub(reserved.0)
        .filter(|rest| *rest > 0)
        .map(|rest| memory::reserve_taken(attachment, all, Bytes(rest)))
        .transpose()
    else {
        return refuse(&made);
    };
    // Until it is said what of it no row shows.
    let change = attachment.change();
    held.commit_as(took.min(reserved));
    rest.into_iter().for_each(Held::commit);
    // What another thread's commands took meanwhile is no device's.
    let is_exact = readings.is_some_and(|(before, after)| after.stood_since(before));
    for device in all.iter().filter(|_| measured.is_some() && is_exact) {
        LEARNED[device.0 as usize].fetch_max(took.0, Ordering::Relaxed);
    }
    trace::line(format_args!(
        "create device charged={} verdict=granted",
        took.0
    ));
    enforced.overhead.store(took.0, Ordering::Relaxed);
    let listed = readings.and_then(|(before, after)| after.listed(before));
    let alone = readings.is_some_and(|(before, after)| after.alone_since(before));
    let listed = listed.filter(|_| alone);
    // What was not measured has as much in no row as is usual.
    let unlisted = listed.map_or(UNSAID.usual, |listed| took.saturating_sub(listed));
    let unlisted = unlisted.min(UNSAID.most).min(took);
    enforced.unlisted.store(unlisted.0, Ordering::Relaxed);
    attachment.unlist(all, unlisted);
    drop(change);
    attachment.look(all, None);
    register(made, Some(enforced))
}

fn register(made: Made, enforced: Option<Enforced>) -> vk::Result {
    let Made { key, next, marking } = made;
    let timed = marking.filter(|_| enforced.is_some()).map(Timed::new);
    let new = (next, enforced, timed.map(Box::new));
    let revive = |last: &Device, (next, enforced, timed): &(_, Option<Enforced>, Option<_>)| {
        last.revive(next, enforced.as_ref(), timed.as_deref())
    };
    match DEVICES.insert(key, new, revive, |id, (next, enforced, timed)| Device {
        next,
        id,
        enforced,
        timed,
    }) {
        Some(_) => vk::Result::SUCCESS,
        None => vk::Result::ERROR_OUT_OF_HOST_MEMORY,
    }
}

fn refuse(made: &Made) -> vk::Result {
    made.next.destroy_device();
    vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
}

impl Enforced {
    fn new(attachment: &'static Attachment, group: &[Arc<Physical>]) -> Enforced {
        for physical in group {
            attachment.note_total(physical.targets, physical.heap);
        }
        let all = group.iter().fold(DeviceSet::EMPTY, |all, physical| {
            all.union(physical.targets)
        });
        Enforced {
            attachment,
            types: group
                .first()
                .map_or_else(MemoryTypes::default, |first| first.types),
            group: group.iter().map(|physical| physical.targets).collect(),
            all,
            overhead: AtomicU64::new(0),
            unlisted: AtomicU64::new(0),
        }
    }

    /// What one of these was seen to take; 0 where none was.
    fn learned(&self) -> Bytes {
        let of = |device: DeviceIndex| LEARNED[device.0 as usize].load(Ordering::Relaxed);
        Bytes(self.all.iter().map(of).max().unwrap_or(0))
    }

    fn bound(&self) -> Bytes {
        if self.learned() != Bytes::ZERO {
            return self.learned();
        }
        let eighth = self
            .attachment
            .budget(self.all)
            .map_or(FIRST_BOUND, |budget| Bytes(budget.0 / 8));
        FIRST_BOUND
            .min(eighth)
            .round_up(memory::GRANULARITY)
            .unwrap_or(FIRST_BOUND)
    }

    /// Reserves the bound of a device, or all that is left where that does not fit: the device is made and measured then, and destroyed and refused if it takes
    /// more. Nothing is made where no device is known to be so small as what is left.
    fn reserve(&self, bound: Bytes) -> Result<(Held<'static>, Bytes), Refused> {
        let refusal = match memory::reserve_untold(self.attachment, self.all, bound) {
            Ok(held) => return Ok((held, bound)),
            Err(refusal) => refusal,
        };
        let left = self.attachment.available(self.all).unwrap_or_default();
        let whole = Bytes(left.0 / memory::GRANULARITY.0 * memory::GRANULARITY.0);
        // What one was seen to take the next takes, too.
        if self.learned() != Bytes::ZERO && !planted(Seed::V31)
            || whole < LEAST
            || whole >= bound
            || planted(Seed::X1a)
        {
            return Err(memory::told(refusal, bound));
        }
        Ok((memory::reserve(self.attachment, self.all, whole)?, whole))
    }

    /// Driver and ledger are about to differ.
    pub fn change(&self) -> Change<'_> {
        self.attachment.change()
    }

    /// What an allocation with this mask falls on. No mask is every device of the group: a MULTI_INSTANCE heap then has one
    /// instance on each, and which device a single instance lies on is not said (decision 29).
    pub fn masked(&self, mask: Option<u32>) -> DeviceSet {
        let Some(mask) = mask.filter(|_| self.group.len() > 1) else {
            return self.all;
        };
        let chosen = self
            .group
            .iter()
            .enumerate()
            .filter(|(position, _)| mask & 1_u32.unbounded_shl(*position as u32) != 0)
            .take(if planted(Seed::V17k) { 1 } else { usize::MAX });
        let targets = chosen.fold(DeviceSet::EMPTY, |all, (_, one)| all.union(*one));
        if targets.is_empty() {
            self.all
        } else {
            targets
        }
    }
}

impl Device {
    /// Becomes what is made now, if this, which is destroyed, was just like that.
    fn revive(
        &self,
        next: &DeviceNext,
        enforced: Option<&Enforced>,
        timed: Option<&Timed>,
    ) -> bool {
        // Last of all: what is not revived stays gone.
        let is_timed_so = || match (&self.timed, timed) {
            (None, None) => true,
            (Some(last), Some(new)) => last.revive(new),
            _ => false,
        };
        match (&self.enforced, enforced) {
            (None, None) => self.next.revive(next) && is_timed_so(),
            (Some(last), Some(new)) => {
                let is_again = last.attachment.id() == new.attachment.id()
                    && (last.types, last.all) == (new.types, new.all)
                    && last.group == new.group
                    && self.next.revive(next)
                    && is_timed_so();
                if is_again {
                    let (overhead, unlisted) = (&new.overhead, &new.unlisted);
                    let order = Ordering::Relaxed;
                    last.overhead.store(overhead.load(order), order);
                    last.unlisted.store(unlisted.load(order), order);
                }
                is_again
            }
            _ => false,
        }
    }

    /// Before next destroys it: whatever the application left in it is freed and given back.
    pub fn leave_nothing(&self, free: impl Fn(Object, Charge), destroy: impl Fn(Object, Charge)) {
        if let Some(enforced) = self.enforced.as_ref().filter(|_| !planted(Seed::V9)) {
            swapchains::drain(self.id, enforced.attachment, destroy);
            memory::drain(self.id, enforced.attachment, free);
        }
    }

    /// To be kept from before next destroys it until [`Device::destroyed`] has returned.
    pub fn change(&self) -> Option<Change<'_>> {
        self.enforced.as_ref().map(Enforced::change)
    }

    /// After next destroyed it: whatever it still held is back.
    pub fn destroyed(&self) {
        let Some(enforced) = self.enforced.as_ref().filter(|_| !planted(Seed::V9)) else {
            return;
        };
        enforced.attachment.list(
            enforced.all,
            Bytes(enforced.unlisted.swap(0, Ordering::Relaxed)),
        );
        enforced.attachment.release(
            enforced.all,
            Bytes(enforced.overhead.swap(0, Ordering::Relaxed)),
        );
    }

    /// What its command buffers took beyond the books is back with it. Beside other devices that is looked for with the next request: the loader lists this one until
    /// vkDestroyDevice has returned, and reads its handle where another thread makes a swapchain or names an object of another device (V33 of
    /// `fixtures/defects.txt`).
    pub fn look(&self) {
        if let Some(enforced) = self.enforced.as_ref().filter(|_| !planted(Seed::R83)) {
            match DEVICES.any().is_none() || planted(Seed::V33) {
                true => _ = enforced.attachment.look(enforced.all, None),
                false => enforced.attachment.look_later(enforced.all),
            }
        }
    }
}

/// What there is to tell a VkDevice's own memory by, while no other thread takes or gives back.
struct Measure {
    /// Of each target: the process's row, and how the books stood.
    rows: Vec<(Option<Bytes>, Books)>,
    /// Each list was read: a process that is in none has no row.
    told: bool,
    /// No other process has a row of any of them.
    alone: bool,
    heaps: Option<HeapUse>,
}

/// `None` where other threads never leave the books alone.
fn measure(instance: &Instance, group: &[Arc<Physical>], enforced: &Enforced) -> Option<Measure> {
    /// What is reserved for the device.
    const OWN_CHANGES: u64 = 1;
    let attachment = enforced.attachment;
    let reporting = group.iter().find(|physical| physical.has_memory_budget);
    let ((own, heaps), books) = attachment.read_quietly(enforced.all, OWN_CHANGES, || {
        let own: Vec<_> = enforced.all.iter().map(nvml::own).collect();
        let heaps = reporting
            .and_then(|physical| instance.next.heap_use(physical.handle, instance.promoted));
        (own, heaps)
    })?;
    if own.iter().any(|own| own.row.is_some()) {
        attachment.note_listed(enforced.all);
    }
    Some(Measure {
        told: own.iter().all(|own| own.told),
        alone: own.iter().all(|own| own.alone),
        rows: own.into_iter().map(|own| own.row).zip(books).collect(),
        heaps,
    })
}

impl Measure {
    /// Whether no other thread has taken or given back anything since `before`.
    fn stood_since(&self, before: &Measure) -> bool {
        let mut rows = self.rows.iter().zip(&before.rows);
        rows.all(|((_, now), (_, then))| now.stood_since(then))
    }

    /// Whether CUDA did nothing in this process since `before`.
    fn alone_since(&self, before: &Measure) -> bool {
        let mut rows = self.rows.iter().zip(&before.rows);
        rows.all(|((_, now), (_, then))| now.alone_since(then))
    }

    /// The most by which any of the targets gained from `then` to `now`, less what this library charged there for other things meanwhile.
    fn grown(&self, before: &Measure, then: Bytes, now: Bytes) -> Bytes {
        let rows = self.rows.iter().zip(&before.rows);
        let grown = rows.map(|((_, books), (_, stood))| books.grown_since(stood, then, now));
        grown.max().unwrap_or_default()
    }

    /// By how much the process's rows grew since `before`, less that. `None` where it has none, or nobody can say (R146 of `fixtures/defects.txt`).
    fn listed(&self, before: &Measure) -> Option<Bytes> {
        if !before.told && !planted(Seed::R146) {
            return None;
        }
        let rows = self.rows.iter().zip(&before.rows);
        let grown = rows.filter_map(|((now, books), (then, stood))| {
            Some(books.grown_since(stood, then.unwrap_or_default(), (*now)?))
        });
        grown.max()
    }

    /// What was taken since `before`, less what this library charged for other things meanwhile. `None` where nothing can tell.
    fn since(&self, before: &Measure, bound: Bytes) -> Option<Bytes> {
        let by_row = self.listed(before);
        // What is free is everybody's: a neighbour's allocation in this very moment is counted too, but never above the bound.
        let lost = |now: HeapUse, then: HeapUse| self.grown(before, now.free(), then.free());
        let heaps = self.heaps.zip(before.heaps);
        if let Some(by_row) = by_row {
            let alone = before.alone && self.alone && self.stood_since(before);
            let lost = heaps.map(|(now, then)| lost(now, then));
            let taken = standing::taken(by_row, lost.filter(|_| alone), UNSAID, bound);
            return Some(match self.alone_since(before) {
                true => taken,
                false => taken.max(BESIDE.min(bound)),
            });
        }
        let (now, then) = heaps?;
        let used = self.grown(before, then.usage, now.usage);
        Some(used.max(lost(now, then).min(bound)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(row: Option<u64>, own: u64, heaps: Option<(u64, u64)>) -> Measure {
        let heaps = heaps.map(|(usage, budget)| HeapUse {
            usage: Bytes(usage),
            budget: Bytes(budget),
        });
        Measure {
            rows: vec![(row.map(Bytes), Books::charged(Bytes(own)))],
            told: true,
            alone: true,
            heaps,
        }
    }

    fn took(before: &Measure, after: &Measure) -> Option<u64> {
        after.since(before, Bytes(100)).map(|took| took.0)
    }

    #[test]
    fn a_row_says_the_least_and_the_heaps_what_the_device_lost() {
        let heaps = |free| Some((0, free));
        assert_eq!(
            took(&at(None, 0, heaps(900)), &at(Some(16), 0, heaps(100))),
            Some(800)
        );
        assert_eq!(
            took(&at(Some(10), 5, heaps(900)), &at(Some(16), 5, heaps(890))),
            Some(10)
        );
        assert_eq!(
            took(&at(Some(10), 0, heaps(900)), &at(Some(16), 0, heaps(900))),
            Some(100),
            "a neighbour gave something back: the bound"
        );
        assert_eq!(
            took(&at(Some(10), 0, None), &at(Some(16), 0, None)),
            Some(100),
            "nothing tells: the bound"
        );
        let beside = Measure {
            alone: false,
            ..at(Some(16), 0, heaps(100))
        };
        assert_eq!(
            took(&at(Some(0), 0, heaps(130)), &beside),
            Some(100),
            "another process has a row: what the heaps lost may be its doing"
        );
        assert_eq!(
            took(&at(Some(16), 0, None), &at(Some(10), 0, None)),
            Some(0)
        );
    }

    #[test]
    fn what_other_threads_take_and_give_back_is_not_the_devices() {
        let listed = |then, now: Measure| now.listed(&then).map(|listed| listed.0);
        let before = || at(Some(100), 90, None);
        assert_eq!(listed(before(), at(Some(120), 94, None)), Some(16));
        assert_eq!(listed(before(), at(Some(36), 10, None)), Some(16));
        assert_eq!(listed(before(), at(Some(100), 94, None)), Some(0));
    }

    #[test]
    fn without_a_row_the_heaps_tell() {
        assert_eq!(
            took(&at(None, 0, Some((0, 900))), &at(None, 0, Some((16, 900)))),
            Some(16),
            "usage grew"
        );
        assert_eq!(
            took(&at(None, 0, Some((0, 900))), &at(None, 0, Some((0, 880)))),
            Some(20),
            "the device lost it"
        );
        assert_eq!(
            took(&at(None, 0, Some((0, 900))), &at(None, 0, Some((0, 100)))),
            Some(100),
            "a neighbour's share is bounded"
        );
        assert_eq!(took(&at(None, 0, None), &at(None, 0, None)), None);
    }
}
