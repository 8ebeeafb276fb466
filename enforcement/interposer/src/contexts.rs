//! The contexts of this process that were charged: a fixed table, changed under the process's lock for contexts.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use budget::{Bytes, charge};

use crate::boundary::arena::Lock;
use crate::devices::Device;
use crate::limits::Limits;
use crate::pinned::subtract;
use seeds::{Seed, planted};

const ROOM: usize = 4096;

/// All zeros is an empty table.
#[repr(C)]
pub struct Contexts {
    /// So many slots from the first have been used.
    used: AtomicU32,
    slots: [Slot; ROOM],
}

#[repr(C)]
struct Slot {
    /// Held while what is charged to its context changes, or that ends.
    books: Lock,
    handle: AtomicU64,
    bytes: AtomicU64,
    unlisted: AtomicU64,
    limits: Limits,
    streams: Streams,
    /// By cuCtxAttach, beside its own existence.
    attached: AtomicU64,
    ordinal: AtomicU32,
    primary: AtomicU32,
}

/// One context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    pub handle: u64,
    pub ordinal: u32,
    pub primary: bool,
    pub bytes: Bytes,
    /// The part of it that no process row of the driver's shows.
    pub unlisted: Bytes,
}

/// What a context's streams take, which stays with it. All zeros is none. Read and written under the slot's lock.
#[repr(C)]
#[derive(Debug, Default)]
struct Streams {
    /// Those that are being made among them.
    live: AtomicU64,
    /// So many at once are charged.
    most: AtomicU64,
    charged: AtomicU64,
}

/// A stream that is being made.
#[derive(Clone, Copy)]
pub struct Stream {
    slot: &'static Slot,
    /// Of the context, as its limits count it.
    life: u64,
    /// How many there are with it.
    number: u64,
    /// What it may have to be charged: others that are being made may be refused (R87a of `fixtures/defects.txt`).
    pub more: Bytes,
}

impl Streams {
    /// One more: answers how many there are with it, and what it may have to be charged.
    fn begin(&self) -> (u64, Bytes) {
        let live = self.live.load(Ordering::Relaxed).saturating_add(1);
        self.live.store(live, Ordering::Relaxed);
        let more = self.uncharged(live);
        if planted(Seed::R87a) {
            self.most.fetch_max(live, Ordering::Relaxed);
        }
        (live, more)
    }

    /// What so many take beyond what is charged.
    fn uncharged(&self, number: u64) -> Bytes {
        let most = self.most.load(Ordering::Relaxed);
        charge::streams(number.max(most)).saturating_sub(charge::streams(most))
    }

    /// One less. Streams that were there before we were are none of ours.
    fn end(&self) {
        subtract(&self.live, 1);
    }

    fn charged(&self) -> Bytes {
        Bytes(self.charged.load(Ordering::Acquire))
    }

    fn forget(&self) {
        for word in [&self.live, &self.most, &self.charged] {
            word.store(0, Ordering::Release);
        }
    }
}

impl Stream {
    /// It was made: what it is charged is its context's, until that ends. Nobody's where it has ended since, and what its streams took with it.
    pub fn commit(self, commit: impl FnOnce(Bytes)) {
        self.while_it_lives(|streams| {
            let more = match planted(Seed::R87a) {
                true => self.more,
                false => streams.uncharged(self.number).min(self.more),
            };
            streams.most.fetch_max(self.number, Ordering::Relaxed);
            if !planted(Seed::R87) {
                streams.charged.fetch_add(more.0, Ordering::AcqRel);
            }
            commit(more);
        });
    }

    /// It was not made after all.
    pub fn cancel(self) {
        if planted(Seed::R87) {
            let charged = &self.slot.streams.charged;
            charged.fetch_sub(self.more.0, Ordering::AcqRel);
        }
        self.while_it_lives(Streams::end);
    }

    /// Another context may have come into its place (R87 of `fixtures/defects.txt`).
    fn while_it_lives(self, act: impl FnOnce(&Streams)) {
        let _held = self.slot.books.hold();
        if self.slot.limits.lives(self.life) {
            act(&self.slot.streams);
        }
    }
}

impl Contexts {
    /// False if the table is full.
    #[must_use]
    pub fn insert(&self, context: Context) -> bool {
        let free = |slot: &Slot| slot.handle.load(Ordering::Acquire) == 0;
        let Some(place) = self.slots.iter().position(free) else {
            return false;
        };
        let slot = &self.slots[place];
        self.used.fetch_max(place as u32 + 1, Ordering::AcqRel);
        let _held = slot.books.hold();
        slot.bytes.store(context.bytes.0, Ordering::Relaxed);
        slot.unlisted.store(context.unlisted.0, Ordering::Relaxed);
        slot.attached.store(0, Ordering::Relaxed);
        slot.limits.begin();
        slot.streams.forget();
        slot.ordinal.store(context.ordinal, Ordering::Relaxed);
        slot.primary
            .store(u32::from(context.primary), Ordering::Relaxed);
        slot.handle.store(context.handle, Ordering::Release);
        true
    }

    /// Takes a context out by its handle.
    pub fn take(&self, handle: u64) -> Option<Context> {
        self.take_where(|context| context.handle == handle)
    }

    /// Takes a device's primary context out.
    pub fn take_primary(&self, ordinal: u32) -> Option<Context> {
        self.take_where(|context| context.primary && context.ordinal == ordinal)
    }

    pub fn has_primary(&self, ordinal: u32) -> bool {
        self.iter()
            .any(|(_, context)| context.primary && context.ordinal == ordinal)
    }

    /// The handle of a device's primary context.
    pub fn primary_of(&self, ordinal: u32) -> Option<u64> {
        self.iter()
            .find(|(_, context)| context.primary && context.ordinal == ordinal)
            .map(|(_, context)| context.handle)
    }

    /// So much more is charged to a context, until it ends. False where it has ended.
    pub fn add_to(&self, handle: u64, bytes: Bytes) -> bool {
        self.slot(handle).is_some_and(|slot| {
            let _held = slot.books.hold();
            let lives = slot.handle.load(Ordering::Acquire) == handle;
            if lives {
                slot.bytes.fetch_add(bytes.0, Ordering::AcqRel);
            }
            lives
        })
    }

    /// So much more is charged to a device's primary context, until it ends. False where there is none.
    pub fn add_to_primary(&self, ordinal: u32, bytes: Bytes) -> bool {
        self.primary_of(ordinal)
            .is_some_and(|handle| self.add_to(handle, bytes))
    }

    /// It was met first as the current context, and is a primary one.
    pub fn is_primary_after_all(&self, handle: u64) {
        if let Some(slot) = self.slot(handle) {
            slot.primary.store(1, Ordering::Relaxed);
        }
    }

    /// Whether it is a context that a program made by itself, and no primary one.
    pub fn is_created(&self, handle: u64) -> bool {
        self.slot(handle)
            .is_some_and(|slot| slot.primary.load(Ordering::Relaxed) == 0)
    }

    /// A context was attached to once more, and has to be detached from as often.
    pub fn attach(&self, handle: u64) {
        if let Some(slot) = self.slot(handle) {
            slot.attached.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// It is detached from. Whether that ends it.
    pub fn detach(&self, handle: u64) -> bool {
        let less = |attached: u64| attached.checked_sub(1);
        self.slot(handle).is_some_and(|slot| {
            let still = slot
                .attached
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
            still.is_err()
        })
    }

    /// Whether a device has any.
    pub fn has_any(&self, ordinal: u32) -> bool {
        self.iter().any(|(_, context)| context.ordinal == ordinal)
    }

    /// The device of a context. Needs no lock.
    pub fn ordinal_of(&self, handle: u64) -> Option<u32> {
        self.iter()
            .find(|(_, context)| context.handle == handle)
            .map(|(_, context)| context.ordinal)
    }

    /// Whether a launch with local memory, or the setting of a limit, is between its charge and the driver's answer, in whichever context of a device that
    /// lives or lived.
    pub fn any_in_use(&self, ordinal: u32) -> bool {
        let used = self.used.load(Ordering::Acquire) as usize;
        let mut slots = self.slots.iter().take(used);
        slots
            .any(|slot| slot.ordinal.load(Ordering::Relaxed) == ordinal && slot.limits.are_in_use())
    }

    /// The limits of a context.
    pub fn limits(&self, handle: u64) -> Option<&Limits> {
        self.slot(handle).map(|slot| &slot.limits)
    }

    /// Of a device's primary context, which its green contexts share.
    pub fn limits_of_primary(&self, ordinal: u32) -> Option<&Limits> {
        self.iter()
            .find(|(_, context)| context.primary && context.ordinal == ordinal)
            .map(|(slot, _)| &slot.limits)
    }

    /// What is charged for the limits of all of a device's contexts that the driver may have taken or not: local memory.
    pub fn limits_deferred(&self, device: &Device) -> Bytes {
        self.of_limits(device.ordinal, |limits| limits.stacks_awaited(device.shape))
    }

    /// What is charged for the limits of all of a device's contexts.
    pub fn limits_charged(&self, ordinal: u32) -> Bytes {
        self.of_limits(ordinal, Limits::charged)
    }

    /// What is charged for buffers that no launch has made the driver take.
    pub fn buffers_awaited(&self, ordinal: u32) -> Bytes {
        self.of_limits(ordinal, |limits| limits.buffers(false))
    }

    /// A sum over a device's contexts.
    fn of_limits(&self, ordinal: u32, each: impl Fn(&Limits) -> Bytes) -> Bytes {
        self.iter()
            .filter(|(_, context)| context.ordinal == ordinal)
            .fold(Bytes::ZERO, |sum, (slot, _)| {
                sum.saturating_add(each(&slot.limits))
            })
    }

    /// A stream is about to be made in a context; `None` where there is none of that handle.
    pub fn begin_stream(&'static self, handle: u64) -> Option<Stream> {
        let slot = self.slot(handle)?;
        let _held = slot.books.hold();
        let life = slot.limits.life();
        if slot.handle.load(Ordering::Acquire) != handle {
            return None;
        }
        let (number, more) = slot.streams.begin();
        if planted(Seed::R87) {
            slot.streams.charged.fetch_add(more.0, Ordering::AcqRel);
        }
        Some(Stream {
            slot,
            life,
            number,
            more,
        })
    }

    /// A stream of a context is gone.
    pub fn end_stream(&self, handle: u64) {
        if let Some(slot) = self.slot(handle) {
            let _held = slot.books.hold();
            if slot.handle.load(Ordering::Acquire) == handle {
                slot.streams.end();
            }
        }
    }

    /// All of them.
    pub fn list(&self) -> Vec<Context> {
        self.iter().map(|(_, context)| context).collect()
    }

    fn slot(&self, handle: u64) -> Option<&Slot> {
        self.iter()
            .find(|(_, context)| context.handle == handle)
            .map(|(slot, _)| slot)
    }

    /// With it goes what its limits and streams were charged.
    fn take_where(&self, matches: impl Fn(&Context) -> bool) -> Option<Context> {
        let (slot, context) = self.iter().find(|(_, context)| matches(context))?;
        let _held = slot.books.hold();
        let (limits, lowered) = slot.limits.end();
        let bytes = Bytes(slot.bytes.load(Ordering::Relaxed))
            .saturating_add(limits)
            .saturating_add(slot.streams.charged());
        let unlisted = Bytes(slot.unlisted.load(Ordering::Relaxed)).saturating_add(lowered);
        slot.handle.store(0, Ordering::Release);
        Some(Context {
            bytes,
            unlisted,
            ..context
        })
    }

    fn iter(&self) -> impl Iterator<Item = (&Slot, Context)> {
        let used = self.used.load(Ordering::Acquire) as usize;
        self.slots.iter().take(used).filter_map(|slot| {
            let handle = slot.handle.load(Ordering::Acquire);
            (handle != 0).then(|| {
                let context = Context {
                    handle,
                    ordinal: slot.ordinal.load(Ordering::Relaxed),
                    primary: slot.primary.load(Ordering::Relaxed) != 0,
                    bytes: Bytes(slot.bytes.load(Ordering::Relaxed)),
                    unlisted: Bytes(slot.unlisted.load(Ordering::Relaxed))
                        .saturating_add(slot.limits.lowered()),
                };
                (slot, context)
            })
        })
    }
}
