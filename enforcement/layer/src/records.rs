//! What each live memory object is charged, by device and handle, without a lock and without one device's records in another's way.
//!
//! A record is taken out *before* the driver frees the object: from then on the handle may come back to another thread's
//! allocation, and its record must not be found in place of ours (defect V13).

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use budget::{Bytes, DeviceSet};

use crate::arena::Id;
use crate::exports::SharedId;
use crate::table::hash;

/// What a memory object holds of the budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    pub targets: DeviceSet,
    pub bytes: Bytes,
    /// The charge belongs to an exported object that others hold too.
    pub shared: Option<SharedId>,
    /// Allocated with VkAllocationCallbacks, without which it cannot be freed either.
    pub callbacks: bool,
}

/// A memory object's handle, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object(pub u64);

const FREE: u32 = 0;
/// A few instructions long: somebody reads or writes the record.
const BUSY: u32 = u32::MAX;
const FIRST_SEGMENT: usize = 1024;
const SEGMENTS: usize = 20;
const WINDOW: usize = 8;

struct Slot {
    /// FREE, BUSY or the device's [`Id`].
    owner: AtomicU32,
    targets: AtomicU64,
    object: AtomicU64,
    bytes: AtomicU64,
    shared: AtomicU32,
    callbacks: AtomicBool,
}

pub struct Records {
    segments: [OnceLock<Box<[Slot]>>; SEGMENTS],
}

impl Records {
    pub const fn new() -> Records {
        Records {
            segments: [const { OnceLock::new() }; SEGMENTS],
        }
    }

    /// False when hundreds of millions of objects live: the caller must then refuse the object.
    pub fn insert(&self, owner: Id, object: Object, charge: Charge) -> bool {
        for (number, segment) in self.segments.iter().enumerate() {
            let slots = segment.get_or_init(|| {
                (0..FIRST_SEGMENT << number)
                    .map(|_| Slot::empty())
                    .collect()
            });
            for slot in window(slots, owner, object) {
                if slot.owner.load(Ordering::Relaxed) == FREE && slot.claim(FREE) {
                    slot.object.store(object.0, Ordering::Relaxed);
                    slot.write(charge);
                    slot.owner.store(owner.0, Ordering::Release);
                    return true;
                }
            }
        }
        false
    }

    /// Takes a record out; `None` for an object that was never charged.
    pub fn take(&self, owner: Id, object: Object) -> Option<Charge> {
        let slot = self.claim(owner, object)?;
        let charge = slot.read();
        slot.owner.store(FREE, Ordering::Release);
        Some(charge)
    }

    /// Changes a record in place. Answers whether there was one.
    pub fn update(&self, owner: Id, object: Object, change: impl FnOnce(Charge) -> Charge) -> bool {
        let Some(slot) = self.claim(owner, object) else {
            return false;
        };
        slot.write(change(slot.read()));
        slot.owner.store(owner.0, Ordering::Release);
        true
    }

    /// Takes out every record of a device that goes.
    pub fn drain(&self, owner: Id) -> impl Iterator<Item = (Object, Charge)> {
        self.segments
            .iter()
            .map_while(OnceLock::get)
            .flat_map(|slots| slots.iter())
            .filter(move |slot| {
                slot.owner.load(Ordering::Acquire) == owner.0 && slot.claim(owner.0)
            })
            .map(|slot| {
                let found = (Object(slot.object.load(Ordering::Relaxed)), slot.read());
                slot.owner.store(FREE, Ordering::Release);
                found
            })
    }

    /// Loops rather than chained iterators: this is walked at every free.
    fn claim(&self, owner: Id, object: Object) -> Option<&Slot> {
        for segment in &self.segments {
            let slots = segment.get()?;
            for slot in window(slots, owner, object) {
                if slot.claim_for(owner, object) {
                    return Some(slot);
                }
            }
        }
        None
    }
}

impl Slot {
    fn empty() -> Slot {
        Slot {
            owner: AtomicU32::new(FREE),
            targets: AtomicU64::new(0),
            object: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            shared: AtomicU32::new(0),
            callbacks: AtomicBool::new(false),
        }
    }

    fn claim(&self, from: u32) -> bool {
        self.owner
            .compare_exchange(from, BUSY, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Leaves the slot BUSY if it is this object's. One that is BUSY for somebody else is waited for: it may become this object's
    /// again, when its holder had mistaken it for another (the slot was given anew between its look and its claim).
    fn claim_for(&self, owner: Id, object: Object) -> bool {
        let mut spins = 0_u32;
        loop {
            match self.owner.load(Ordering::Acquire) {
                BUSY => {
                    spins += 1;
                    if spins.is_multiple_of(64) {
                        std::thread::yield_now()
                    } else {
                        std::hint::spin_loop()
                    }
                }
                found if found != owner.0 || self.object.load(Ordering::Relaxed) != object.0 => {
                    return false;
                }
                _ if self.claim(owner.0) => {
                    if self.object.load(Ordering::Relaxed) == object.0 {
                        return true;
                    }
                    self.owner.store(owner.0, Ordering::Release);
                }
                _ => {}
            }
        }
    }

    fn read(&self) -> Charge {
        Charge {
            targets: DeviceSet::from_bits(self.targets.load(Ordering::Relaxed)),
            bytes: Bytes(self.bytes.load(Ordering::Relaxed)),
            shared: SharedId::from_word(self.shared.load(Ordering::Relaxed)),
            callbacks: self.callbacks.load(Ordering::Relaxed),
        }
    }

    fn write(&self, charge: Charge) {
        self.targets.store(charge.targets.bits(), Ordering::Relaxed);
        self.bytes.store(charge.bytes.0, Ordering::Relaxed);
        self.shared
            .store(SharedId::to_word(charge.shared), Ordering::Relaxed);
        self.callbacks.store(charge.callbacks, Ordering::Relaxed);
    }
}

fn window(slots: &[Slot], owner: Id, object: Object) -> impl Iterator<Item = &Slot> {
    let start = hash(object.0 ^ u64::from(owner.0).rotate_right(16)) as usize;
    (0..WINDOW).map(move |step| &slots[(start + step) & (slots.len() - 1)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use budget::DeviceIndex;

    fn charge(bytes: u64) -> Charge {
        Charge {
            targets: DeviceSet::of(DeviceIndex(0)),
            bytes: Bytes(bytes),
            shared: None,
            callbacks: false,
        }
    }

    #[test]
    fn equal_handles_of_two_devices_are_two_records() {
        let records = Records::new();
        assert!(records.insert(Id(1), Object(7), charge(1)));
        assert!(records.insert(Id(2), Object(7), charge(2)));
        assert_eq!(records.take(Id(2), Object(7)), Some(charge(2)));
        assert_eq!(records.take(Id(2), Object(7)), None);
        assert_eq!(records.take(Id(1), Object(7)), Some(charge(1)));
    }

    #[test]
    fn draining_a_device_leaves_the_others() {
        let records = Records::new();
        for object in 1..=5000 {
            assert!(records.insert(Id(1), Object(object), charge(object)));
            assert!(records.insert(Id(2), Object(object), charge(1)));
        }
        assert_eq!(
            records
                .drain(Id(1))
                .map(|(_, charge)| charge.bytes.0)
                .sum::<u64>(),
            5000 * 5001 / 2
        );
        assert_eq!(records.drain(Id(1)).count(), 0);
        assert_eq!(records.drain(Id(2)).count(), 5000);
    }

    #[test]
    fn updating_keeps_the_record() {
        let records = Records::new();
        assert!(records.insert(Id(1), Object(9), charge(64)));
        let shared = Charge {
            shared: SharedId::from_word(3),
            ..charge(64)
        };
        assert!(records.update(Id(1), Object(9), |_| shared));
        assert!(!records.update(Id(1), Object(10), |_| shared));
        assert_eq!(records.take(Id(1), Object(9)), Some(shared));
    }

    /// Four threads hand few handles round as a driver would: every charge put in is taken out exactly once.
    #[test]
    fn reused_handles_never_lose_or_double_a_charge() {
        use std::sync::Mutex;
        let (records, handles) = (Records::new(), Mutex::new((1..=12_u64).collect::<Vec<_>>()));
        let totals: Vec<(u64, u64)> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4_u64)
                .map(|thread| {
                    let (records, handles) = (&records, &handles);
                    scope.spawn(move || {
                        let (mut put, mut got) = (0, 0);
                        for round in 0..20_000 {
                            let Some(handle) = handles.lock().expect("no panic").pop() else {
                                continue;
                            };
                            let bytes = thread << 32 | round;
                            assert!(records.insert(Id(1), Object(handle), charge(bytes)));
                            put += bytes;
                            got += records
                                .take(Id(1), Object(handle))
                                .expect("just inserted")
                                .bytes
                                .0;
                            handles.lock().expect("no panic").push(handle);
                        }
                        (put, got)
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        assert!(totals.iter().all(|(put, got)| put == got && *put > 0));
        assert_eq!(records.drain(Id(1)).count(), 0);
    }
}
