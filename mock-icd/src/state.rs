//! Every object that this process made, by handle. Handles are never addresses that somebody may follow, except the
//! dispatchable ones, whose first word the loader owns.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ash::vk;

use crate::buffer::Buffer;
use crate::command::{CommandBuffer, CommandPool};
use crate::descriptor::{DescriptorPool, DescriptorSet};
use crate::device::Device;
use crate::image::Image;
use crate::instance::{Instance, PhysicalDevice};
use crate::memory::Memory;
use crate::object::Object;
use crate::presentation::{Surface, Swapchain};
use crate::query::QueryPool;
use crate::queue::Queue;
use crate::sync::{Event, Fence, Semaphore};
use trace::vulkan::Named;

pub static STATE: State = State {
    instances: Dispatchable::new(vk::Instance::WORD),
    physical_devices: Dispatchable::new(vk::PhysicalDevice::WORD),
    devices: Dispatchable::new(vk::Device::WORD),
    queues: Dispatchable::new(vk::Queue::WORD),
    command_buffers: Dispatchable::new(vk::CommandBuffer::WORD),
    memories: Store::new(vk::DeviceMemory::WORD, 1),
    buffers: Store::new(vk::Buffer::WORD, 2),
    images: Store::new(vk::Image::WORD, 3),
    fences: Store::new(vk::Fence::WORD, 4),
    semaphores: Store::new(vk::Semaphore::WORD, 5),
    events: Store::new(vk::Event::WORD, 6),
    query_pools: Store::new(vk::QueryPool::WORD, 7),
    command_pools: Store::new(vk::CommandPool::WORD, 8),
    descriptor_pools: Store::new(vk::DescriptorPool::WORD, 9),
    descriptor_sets: Store::new(vk::DescriptorSet::WORD, 10),
    objects: Store::new("object", 11),
    surfaces: Store::new(vk::SurfaceKHR::WORD, 12),
    swapchains: Store::new(vk::SwapchainKHR::WORD, 13),
};

pub struct State {
    pub instances: Dispatchable<Instance>,
    pub physical_devices: Dispatchable<PhysicalDevice>,
    pub devices: Dispatchable<Device>,
    pub queues: Dispatchable<Queue>,
    pub command_buffers: Dispatchable<CommandBuffer>,
    pub memories: Store<Memory>,
    pub buffers: Store<Buffer>,
    pub images: Store<Image>,
    pub fences: Store<Fence>,
    pub semaphores: Store<Semaphore>,
    pub events: Store<Event>,
    pub query_pools: Store<QueryPool>,
    pub command_pools: Store<CommandPool>,
    pub descriptor_pools: Store<DescriptorPool>,
    pub descriptor_sets: Store<DescriptorSet>,
    /// Everything that is only made, named and destroyed.
    pub objects: Store<Object>,
    pub surfaces: Store<Surface>,
    pub swapchains: Store<Swapchain>,
}

/// What a handle that is not ours is answered with: a real driver would crash, and hide who was wrong.
pub const UNKNOWN_HANDLE: vk::Result = vk::Result::ERROR_UNKNOWN;

/// Objects that belong to a device and go with it.
pub trait Child {
    /// The device's handle.
    fn device(&self) -> u64;
}

/// Objects with plain handles: an index and the kind's own tag. A freed handle is the next to be given out, as drivers
/// that hand out addresses do (V13).
pub struct Store<T> {
    word: &'static str,
    tag: u64,
    slots: RwLock<Slots<T>>,
}

struct Slots<T> {
    live: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
}

impl<T> Store<T> {
    const fn new(word: &'static str, tag: u64) -> Self {
        Self {
            word,
            tag,
            slots: RwLock::new(Slots {
                live: Vec::new(),
                free: Vec::new(),
            }),
        }
    }

    pub fn insert(&self, object: T) -> u64 {
        let mut slots = self.write();
        let index = slots.free.pop().unwrap_or_else(|| {
            slots.live.push(None);
            slots.live.len() - 1
        });
        slots.live[index] = Some(Arc::new(object));
        ((index as u64 + 1) << 8) | self.tag
    }

    /// # Errors
    /// [`UNKNOWN_HANDLE`].
    pub fn find(&self, handle: impl vk::Handle) -> Result<Arc<T>, vk::Result> {
        let index = self.index(handle.as_raw()).ok_or(UNKNOWN_HANDLE)?;
        self.read()
            .live
            .get(index)
            .and_then(Clone::clone)
            .ok_or(UNKNOWN_HANDLE)
    }

    /// # Errors
    /// [`UNKNOWN_HANDLE`].
    pub fn remove(&self, handle: impl vk::Handle) -> Result<Arc<T>, vk::Result> {
        let handle = handle.as_raw();
        let index = self.index(handle).ok_or(UNKNOWN_HANDLE)?;
        let mut slots = self.write();
        let object = slots
            .live
            .get_mut(index)
            .and_then(Option::take)
            .ok_or(UNKNOWN_HANDLE)?;
        slots.free.push(index);
        drop(slots);
        trace::forget(self.word, handle);
        Ok(object)
    }

    /// The removed objects with the handles that they had.
    pub fn remove_where(&self, doomed: impl Fn(&T) -> bool) -> Vec<(u64, Arc<T>)> {
        let mut slots = self.write();
        let Slots { live, free } = &mut *slots;
        let mut removed = Vec::new();
        for (index, slot) in live.iter_mut().enumerate() {
            if let Some(object) = slot.take_if(|object| doomed(object)) {
                free.push(index);
                let handle = ((index as u64 + 1) << 8) | self.tag;
                trace::forget(self.word, handle);
                removed.push((handle, object));
            }
        }
        removed
    }

    /// Whether there is such an object.
    pub fn any(&self, wanted: impl Fn(&T) -> bool) -> bool {
        self.read()
            .live
            .iter()
            .flatten()
            .any(|object| wanted(object))
    }

    fn index(&self, handle: u64) -> Option<usize> {
        let index = usize::try_from(handle >> 8).ok()?.checked_sub(1)?;
        (handle & 0xff == self.tag).then_some(index)
    }

    fn read(&self) -> RwLockReadGuard<'_, Slots<T>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Slots<T>> {
        self.slots.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Child> Store<T> {
    /// Removes what a device leaves behind.
    pub fn remove_of(&self, device: u64) -> Vec<(u64, Arc<T>)> {
        self.remove_where(|object| object.device() == device)
    }
}

/// What the loader finds in the first word of a dispatchable handle, before it puts its own dispatch pointer there.
const LOADER_MAGIC: usize = 0x01CD_C0DE;

/// Objects with dispatchable handles: the handle is the address of a word for the loader.
pub struct Dispatchable<T> {
    word: &'static str,
    objects: RwLock<BTreeMap<u64, (LoaderWord, Arc<T>)>>,
}

/// Two words, as small as malloc's grain.
struct LoaderWord(Arc<[AtomicUsize; 2]>);

impl LoaderWord {
    fn new() -> Self {
        Self(Arc::new([
            AtomicUsize::new(LOADER_MAGIC),
            AtomicUsize::new(0),
        ]))
    }

    fn handle(&self) -> u64 {
        Arc::as_ptr(&self.0).addr() as u64
    }
}

impl<T> Dispatchable<T> {
    const fn new(word: &'static str) -> Self {
        Self {
            word,
            objects: RwLock::new(BTreeMap::new()),
        }
    }

    pub fn insert(&self, object: T) -> u64 {
        self.insert_with(|_| object)
    }

    /// For objects that must know their own handle.
    pub fn insert_with(&self, object: impl FnOnce(u64) -> T) -> u64 {
        let word = LoaderWord::new();
        let handle = word.handle();
        let object = Arc::new(object(handle));
        self.objects
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(handle, (word, object));
        handle
    }

    /// # Errors
    /// [`UNKNOWN_HANDLE`].
    pub fn find(&self, handle: impl Into<Raw64>) -> Result<Arc<T>, vk::Result> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects
            .get(&handle.into().0)
            .map(|(_, object)| Arc::clone(object))
            .ok_or(UNKNOWN_HANDLE)
    }

    /// # Errors
    /// [`UNKNOWN_HANDLE`].
    pub fn remove(&self, handle: impl Into<Raw64>) -> Result<Arc<T>, vk::Result> {
        let handle = handle.into().0;
        let removed = self
            .objects
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&handle);
        trace::forget(self.word, handle);
        removed.map(|(_, object)| object).ok_or(UNKNOWN_HANDLE)
    }

    pub fn count(&self) -> usize {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.len()
    }

    pub fn each(&self, act: impl Fn(&T)) {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.values().for_each(|(_, object)| act(object));
    }

    pub fn remove_where(&self, doomed: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let handles: Vec<u64> = objects
            .iter()
            .filter(|(_, (_, object))| doomed(object))
            .map(|(handle, _)| *handle)
            .collect();
        handles
            .into_iter()
            .filter_map(|handle| {
                trace::forget(self.word, handle);
                objects.remove(&handle).map(|(_, object)| object)
            })
            .collect()
    }
}

/// A handle's value, from the handle or from where it was kept.
pub struct Raw64(u64);

impl From<u64> for Raw64 {
    fn from(raw: u64) -> Self {
        Self(raw)
    }
}

macro_rules! raw_from {
    ($($kind:ident),+) => {$(
        impl From<vk::$kind> for Raw64 {
            fn from(handle: vk::$kind) -> Self {
                Self(vk::Handle::as_raw(handle))
            }
        }
    )+};
}
raw_from!(Instance, PhysicalDevice, Device, Queue, CommandBuffer);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_handle_is_given_out_again_and_names_the_new_object() {
        let store: Store<u32> = Store::new("test", 9);
        let first = vk::Buffer::from_raw(store.insert(1));
        assert_eq!(*store.remove(first).unwrap(), 1);
        assert_eq!(store.remove(first), Err(UNKNOWN_HANDLE));
        let second = vk::Buffer::from_raw(store.insert(2));
        assert_eq!(first, second);
        assert_eq!(*store.find(second).unwrap(), 2);
    }

    #[test]
    fn a_handle_of_another_kind_is_unknown() {
        let (memories, buffers): (Store<u32>, Store<u32>) =
            (Store::new("a", 1), Store::new("b", 2));
        buffers.insert(7);
        assert_eq!(
            buffers.find(vk::Buffer::from_raw(memories.insert(1))),
            Err(UNKNOWN_HANDLE)
        );
        assert_eq!(buffers.find(vk::Buffer::null()), Err(UNKNOWN_HANDLE));
    }

    use ash::vk::Handle;
}
