//! One live VkInstance's chain, and what is known of its physical devices.

use std::sync::{Arc, PoisonError, RwLock};

use ash::vk;

use crate::attachment;
use crate::boundary::next::{InstanceNext, Promoted};
use crate::physical::{self, Physical};
use crate::table::{Key, Table};

pub struct Instance {
    pub next: InstanceNext,
    pub promoted: Promoted,
    physical: RwLock<Vec<Arc<Physical>>>,
}

static INSTANCES: Table<Instance> = Table::new();

pub fn register(key: Key, next: InstanceNext, promoted: Promoted) {
    INSTANCES.insert(key, |_| Instance {
        next,
        promoted,
        physical: RwLock::new(Vec::new()),
    });
}

/// The instance of a handle with this key. With no such instance any living one's chain has to do (DEFECTS V11).
pub fn find(key: Option<Key>) -> Option<&'static Instance> {
    registered(key).or_else(|| INSTANCES.any())
}

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
        let handles = [&self.next.physical_devices(), others].concat();
        let found = physical::resolve(&self.next, self.promoted, &handles)
            .into_iter()
            .map(Arc::new)
            .collect();
        *self
            .physical
            .write()
            .unwrap_or_else(PoisonError::into_inner) = found;
    }

    fn known(&self, handle: vk::PhysicalDevice) -> Option<Arc<Physical>> {
        let known = self.physical.read().unwrap_or_else(PoisonError::into_inner);
        known.iter().find(|one| one.handle == handle).cloned()
    }
}
