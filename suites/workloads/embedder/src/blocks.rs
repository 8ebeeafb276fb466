//! Device memory as the driver gives it, a block at a time, of which regions are parts.

use std::sync::Arc;

use ash::vk;

use crate::boundary::{List, Mapping, Object, Tables, pushed};
use crate::buffer::Usage;
use crate::error::{Error, Result};
use crate::placement::Placement;

/// One VkDeviceMemory.
struct Block {
    kind: u32,
    placement: Placement,
    /// Of memory that the host sees.
    mapping: Option<Mapping>,
    memory: Object<vk::DeviceMemory>,
}

/// A part of a block.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    memory: vk::DeviceMemory,
    pub start: u64,
}

pub(crate) struct Blocks {
    list: List<Block>,
    /// Bytes of a block, where that is enough.
    usual: u64,
    tables: Arc<Tables>,
}

impl Blocks {
    pub fn new(tables: Arc<Tables>, usual: u64) -> Self {
        Self {
            list: List::new_in(tables.host()),
            usual,
            tables,
        }
    }

    /// What the driver gave.
    pub fn held(&self) -> u64 {
        self.list.iter().map(|block| block.placement.size()).sum()
    }

    /// A place that meets the needs, in a block that has room or in a new one.
    pub fn take(&mut self, usage: Usage, needs: &vk::MemoryRequirements) -> Result<Place> {
        let (bytes, alignment) = (needs.size, needs.alignment);
        let kind = self.memory_type(usage, needs.memory_type_bits)?;
        for block in self.list.iter_mut().filter(|block| block.kind == kind) {
            if let Some(start) = block.placement.take(bytes, alignment)? {
                let memory = block.memory.raw();
                return Ok(Place { memory, start });
            }
        }
        let mut block = self.block(kind, bytes)?;
        let memory = block.memory.raw();
        let Some(start) = block.placement.take(bytes, alignment)? else {
            unreachable!("a new block is large enough from its beginning");
        };
        pushed(&mut self.list, block)?;
        Ok(Place { memory, start })
    }

    /// The place was taken for this buffer.
    pub fn bind(&self, buffer: &Object<vk::Buffer>, place: Place) -> Result<()> {
        let block = self.list.iter().find(|block| block.holds(place));
        let block = block.expect("a block stays while a place of it is taken");
        self.tables.bind(buffer, &block.memory, place.start)
    }

    /// The mapping that the place is a part of, if the host sees it.
    pub fn mapping(&mut self, place: Place) -> Option<&mut Mapping> {
        let block = self.list.iter_mut().find(|block| block.holds(place))?;
        block.mapping.as_mut()
    }

    /// Gives a place back. One empty block of the usual size is kept of each type.
    pub fn give_back(&mut self, place: Place) {
        let Some(index) = self.list.iter().position(|block| block.holds(place)) else {
            return;
        };
        self.list[index].placement.give_back(place.start);
        let emptied = &self.list[index];
        if !emptied.placement.is_empty() {
            return;
        }
        let spare = |other: &Block| {
            other.kind == emptied.kind && other.placement.is_empty() && !other.holds(place)
        };
        if emptied.placement.size() != self.usual || self.list.iter().any(spare) {
            self.list.swap_remove(index);
        }
    }

    /// Gives empty blocks back to the driver, and answers how many bytes that were.
    pub fn trim(&mut self) -> u64 {
        let before = self.held();
        self.list.retain(|block| !block.placement.is_empty());
        before - self.held()
    }

    /// The type that has least beside what is needed.
    fn memory_type(&self, usage: Usage, allowed: u32) -> Result<u32> {
        use vk::MemoryPropertyFlags as Has;
        let (needed, unwanted) = match usage {
            Usage::HostVisible => (Has::HOST_VISIBLE | Has::HOST_COHERENT, Has::DEVICE_LOCAL),
            Usage::DeviceLocal => (Has::DEVICE_LOCAL, Has::HOST_VISIBLE),
        };
        let fits = |(index, kind): &(u32, &vk::MemoryType)| {
            allowed >> index & 1 != 0 && kind.property_flags.contains(needed)
        };
        let fitting = (0..).zip(self.tables.memory_types()).filter(fits);
        let best = fitting.min_by_key(|(_, kind)| kind.property_flags.intersects(unwanted));
        best.map(|(index, _)| index)
            .ok_or(Error::NoMemoryType { usage, allowed })
    }

    /// A new block: of the usual size; if there is no memory for it, of the usual size without what is empty, then as small
    /// as will do.
    fn block(&mut self, kind: u32, bytes: u64) -> Result<Block> {
        let usual = bytes.max(self.usual);
        match self.block_of(kind, usual) {
            Err(Error::OutOfDeviceMemory { .. }) => {}
            answer => return answer,
        }
        if self.trim() != 0
            && let Ok(block) = self.block_of(kind, usual)
        {
            return Ok(block);
        }
        self.block_of(kind, bytes)
    }

    fn block_of(&self, kind: u32, bytes: u64) -> Result<Block> {
        let memory = self.tables.allocate(kind, bytes)?;
        let flags = self.tables.memory_types()[kind as usize].property_flags;
        let visible =
            vk::MemoryPropertyFlags::HOST_VISIBLE | vk::MemoryPropertyFlags::HOST_COHERENT;
        let mapping = flags
            .contains(visible)
            .then(|| self.tables.map(&memory, bytes))
            .transpose()?;
        Ok(Block {
            kind,
            placement: Placement::new(bytes, self.tables.host()),
            mapping,
            memory,
        })
    }
}

impl Block {
    fn holds(&self, place: Place) -> bool {
        self.memory.raw() == place.memory
    }
}
