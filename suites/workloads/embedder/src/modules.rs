//! Shader modules with their pipelines, by VkDevice and code: contexts on one device share them, whoever made them. Those of
//! an allocator go when it is released; the next dispatch of another context misses them, and makes its own.

use std::ffi::CStr;
use std::sync::Arc;

use ash::vk;

use crate::boundary::{Host, List, Object, Tables, room};
use crate::error::{Error, Result};
use crate::handle::AllocatorId;
use crate::work::Kernel;

/// A kernel on a device. In the order in which it is destroyed.
pub(crate) struct Built {
    pub pipeline: Object<vk::Pipeline>,
    pub layout: Object<vk::PipelineLayout>,
    pub set: Object<vk::DescriptorSetLayout>,
    module: Object<vk::ShaderModule>,
}

struct Entry {
    number: u64,
    device: vk::Device,
    maker: AllocatorId,
    /// The kernel's words, its entry point's name, its buffers and scalars.
    words: List<u32>,
    name: List<u8>,
    shape: (u32, u32),
    built: Built,
    /// Dispatches under way.
    uses: u32,
    /// Not found any more, and gone with its last use.
    retired: bool,
}

impl Entry {
    fn is(&self, device: vk::Device, kernel: &Kernel<'_>) -> bool {
        !self.retired
            && self.device == device
            && self.shape == (kernel.buffers, kernel.scalars)
            && self.name[..] == *kernel.entry.to_bytes()
            && self.words[..] == *kernel.words
    }
}

pub(crate) struct Modules {
    entries: List<Entry>,
    next: u64,
}

impl Modules {
    /// The number of a submission without a module.
    pub const NONE: u64 = 0;

    pub fn new(host: Host) -> Self {
        Self {
            entries: List::new_in(host),
            next: 1,
        }
    }

    /// The kernel on the tables' device, made by this allocator if nobody did; one more use of it.
    pub fn take(
        &mut self,
        tables: &Arc<Tables>,
        maker: AllocatorId,
        kernel: &Kernel<'_>,
    ) -> Result<(u64, &Built)> {
        let device = tables.handles().device;
        let found = self
            .entries
            .iter()
            .position(|entry| entry.is(device, kernel));
        let index = match found {
            Some(index) => index,
            None => {
                room(&mut self.entries)?;
                let entry = Entry {
                    number: self.next,
                    device,
                    maker,
                    words: copied(tables.host(), kernel.words)?,
                    name: copied(tables.host(), kernel.entry.to_bytes())?,
                    shape: (kernel.buffers, kernel.scalars),
                    built: Built::new(tables, kernel)?,
                    uses: 0,
                    retired: false,
                };
                self.next += 1;
                self.entries.push(entry);
                self.entries.len() - 1
            }
        };
        let entry = &mut self.entries[index];
        entry.uses += 1;
        Ok((entry.number, &entry.built))
    }

    /// One use less.
    pub fn put_back(&mut self, number: u64) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.number == number) {
            entry.uses -= 1;
        }
        self.entries
            .retain(|entry| !entry.retired || entry.uses != 0);
    }

    /// What this allocator made is found no more, and destroyed as soon as no dispatch uses it.
    pub fn remove(&mut self, maker: AllocatorId) {
        for entry in self.entries.iter_mut().filter(|entry| entry.maker == maker) {
            entry.retired = true;
        }
        self.entries
            .retain(|entry| !entry.retired || entry.uses != 0);
    }

    /// The device was destroyed: nothing of its modules is called any more. Answers how many those were.
    pub fn forget(&mut self, device: vk::Device) -> usize {
        let before = self.entries.len();
        for entry in self.entries.iter().filter(|entry| entry.device == device) {
            entry.built.module.forget();
        }
        self.entries.retain(|entry| entry.device != device);
        before - self.entries.len()
    }

    /// How many a dispatch on this device would find.
    pub fn on(&self, device: vk::Device) -> usize {
        let here = |entry: &&Entry| entry.device == device && !entry.retired;
        self.entries.iter().filter(here).count()
    }
}

impl Built {
    fn new(tables: &Arc<Tables>, kernel: &Kernel<'_>) -> Result<Self> {
        let module = tables.module(kernel.words)?;
        let set = tables.set_layout(kernel.buffers)?;
        let layout = tables.pipeline_layout(&set, kernel.buffers + kernel.scalars)?;
        let name: &CStr = kernel.entry;
        Ok(Self {
            pipeline: tables.pipeline(&module, name, &layout)?,
            layout,
            set,
            module,
        })
    }
}

fn copied<T: Copy>(host: Host, values: &[T]) -> Result<List<T>> {
    let mut list = List::new_in(host);
    list.try_reserve_exact(values.len())
        .map_err(|_| Error::OutOfHostMemory {
            during: "the cache of modules",
        })?;
    list.extend_from_slice(values);
    Ok(list)
}
