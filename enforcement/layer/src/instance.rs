//! One live VkInstance's chain, and what is known of its physical devices.

use ledger::KeptErrno;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use ash::vk;
use ash::vk::Handle;
use budget::DeviceSet;

use crate::attachment;
use crate::boundary::next::{InstanceNext, Promoted};
use crate::physical::{self, Physical, Told};
use crate::settings::settings;
use crate::table::{Key, Table};

pub struct Instance {
    pub next: InstanceNext,
    pub promoted: Promoted,
    /// Its engine is told the driver's heap budget (RINGFENCE_VK_BUDGET).
    pub inflated: bool,
    physical: RwLock<Vec<Arc<Physical>>>,
    /// Of the first of them, without a lock.
    told: [Seat; SEATS],
}

/// Devices that are told of without a lock.
const SEATS: usize = 16;

/// A physical device, whose handle never means another while its instance lives, and what is to be told of it.
#[derive(Default)]
struct Seat {
    /// 0 where nobody sits; written last.
    handle: AtomicU64,
    targets: AtomicU64,
    is_tenant_gpu: AtomicBool,
    has_memory_budget: AtomicBool,
}

impl Seat {
    #[inline]
    fn is_of(&self, handle: vk::PhysicalDevice) -> bool {
        self.handle.load(Ordering::Acquire) == handle.as_raw()
            && handle != vk::PhysicalDevice::null()
    }

    #[inline]
    fn told(&self) -> Told {
        Told {
            targets: DeviceSet::from_bits(self.targets.load(Ordering::Relaxed)),
            is_tenant_gpu: self.is_tenant_gpu.load(Ordering::Relaxed),
            has_memory_budget: self.has_memory_budget.load(Ordering::Relaxed),
        }
    }

    fn tell(&self, handle: u64, told: Told) {
        self.targets.store(told.targets.bits(), Ordering::Relaxed);
        self.is_tenant_gpu
            .store(told.is_tenant_gpu, Ordering::Relaxed);
        self.has_memory_budget
            .store(told.has_memory_budget, Ordering::Relaxed);
        self.handle.store(handle, Ordering::Release);
    }
}

static INSTANCES: Table<Instance> = Table::new();

pub fn register(key: Key, next: InstanceNext, promoted: Promoted, engine: Option<&str>) {
    let new = Instance {
        next,
        promoted,
        inflated: settings().budget_report.inflates(engine),
        physical: RwLock::new(Vec::new()),
        told: Default::default(),
    };
    let revive = |last: &Instance, new: &Instance| {
        (last.promoted, last.inflated) == (new.promoted, new.inflated)
            && last.next.revive(&new.next)
    };
    INSTANCES.insert(key, new, revive, |_, new| new);
}

/// The instance of a handle with this key. With no such instance any living one's chain has to do (defect V11).
#[inline]
pub fn find(key: Option<Key>) -> Option<&'static Instance> {
    registered(key).or_else(|| INSTANCES.any())
}

#[inline]
pub fn registered(key: Option<Key>) -> Option<&'static Instance> {
    INSTANCES.get(key?)
}

/// To be called before next destroys it: from then on its key may belong to another.
pub fn unregister(key: Key) -> Option<&'static Instance> {
    let instance = INSTANCES.remove(key)?;
    *instance
        .physical
        .write()
        .unwrap_or_else(PoisonError::into_inner) = Vec::new();
    for seat in &instance.told {
        seat.handle.store(0, Ordering::Release);
    }
    Some(instance)
}

impl Instance {
    /// What is known of a physical device; asks next for all of them when one is new. One that next does not enumerate is looked at all the same.
    pub fn physical(&self, handle: vk::PhysicalDevice) -> Option<Arc<Physical>> {
        self.known(handle)
            .or_else(|| {
                self.learn(&[]);
                self.known(handle)
            })
            .or_else(|| {
                self.learn(&[handle]);
                self.known(handle)
            })
    }

    /// What is to be told of a physical device.
    #[inline]
    pub fn told(&self, handle: vk::PhysicalDevice) -> Told {
        if self.told[0].is_of(handle) {
            return self.told[0].told();
        }
        self.told_otherwise(handle)
    }

    #[inline(never)]
    fn told_otherwise(&self, handle: vk::PhysicalDevice) -> Told {
        match self.told.iter().find(|seat| seat.is_of(handle)) {
            Some(seat) => seat.told(),
            None => self
                .physical(handle)
                .map_or_else(Told::default, |known| known.told()),
        }
    }

    /// The application enumerates: that is the moment to look at the devices, while the loader keeps others from doing the same.
    pub fn enumerated(&self) {
        let empty = self
            .physical
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty();
        if empty && attachment::enforcing() {
            self.learn(&[]);
        }
    }

    fn learn(&self, others: &[vk::PhysicalDevice]) {
        let _errno = KeptErrno::keep();
        let handles = [&self.next.physical_devices(), others].concat();
        let found = physical::resolve(&self.next, self.promoted, &handles)
            .into_iter()
            .map(Arc::new)
            .collect::<Vec<_>>();
        let mut known = self
            .physical
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *known = found;
        for one in known.iter() {
            let handle = one.handle.as_raw();
            let seat = self
                .told
                .iter()
                .find(|seat| [0, handle].contains(&seat.handle.load(Ordering::Relaxed)));
            if let Some(seat) = seat {
                seat.tell(handle, one.told());
            }
        }
    }

    fn known(&self, handle: vk::PhysicalDevice) -> Option<Arc<Physical>> {
        let known = self.physical.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|one| one.handle == handle).cloned()
    }
}
