//! The contexts of this process that were charged: a fixed table, changed under the process's lock for contexts.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use budget::Bytes;

const ROOM: usize = 4096;

/// All zeros is an empty table.
#[repr(C)]
pub struct Contexts {
    slots: [Slot; ROOM],
}

#[repr(C)]
struct Slot {
    handle: AtomicU64,
    bytes: AtomicU64,
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
}

impl Contexts {
    /// False if the table is full.
    #[must_use]
    pub fn insert(&self, context: Context) -> bool {
        let Some(slot) = self
            .slots
            .iter()
            .find(|slot| slot.handle.load(Ordering::Acquire) == 0)
        else {
            return false;
        };
        slot.bytes.store(context.bytes.0, Ordering::Relaxed);
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

    fn take_where(&self, matches: impl Fn(&Context) -> bool) -> Option<Context> {
        let (slot, context) = self.iter().find(|(_, context)| matches(context))?;
        slot.handle.store(0, Ordering::Release);
        Some(context)
    }

    fn iter(&self) -> impl Iterator<Item = (&Slot, Context)> {
        self.slots.iter().filter_map(|slot| {
            let handle = slot.handle.load(Ordering::Acquire);
            (handle != 0).then(|| {
                let context = Context {
                    handle,
                    ordinal: slot.ordinal.load(Ordering::Relaxed),
                    primary: slot.primary.load(Ordering::Relaxed) != 0,
                    bytes: Bytes(slot.bytes.load(Ordering::Relaxed)),
                };
                (slot, context)
            })
        })
    }
}
