//! Buffers: what they stand for, and its bytes as the host sees them.

use ash::vk::{self, Handle};

use super::Runtime;
use crate::allocator::Allocator;
use crate::boundary::ForeignBuffer;
use crate::buffer::{Buffer, Ownership, Usage};
use crate::error::{Error, Result};
use crate::handle::{ContextId, RegionId};

impl Runtime {
    /// Gives the buffer memory of the context's allocator.
    ///
    /// # Errors
    /// [`Error::HasRegion`], [`Error::Empty`], [`Error::NoMemoryType`], what Vulkan answers.
    pub fn allocate(&self, context: ContextId, buffer: &mut Buffer, usage: Usage) -> Result<()> {
        buffer.ready_for_region()?;
        let mut state = self.state();
        let region = state.allocator(context)?.allocate(buffer.bytes(), usage)?;
        buffer.put(Some(region));
        Ok(())
    }

    /// Makes the buffer stand for a part of a VkBuffer of the application's, from `offset` on. Nothing is allocated on the device.
    ///
    /// # Errors
    /// [`Error::Null`], [`Error::HasRegion`], [`Error::Empty`], [`Error::OutOfRange`].
    pub fn wrap_buffer(
        &self,
        context: ContextId,
        buffer: &mut Buffer,
        foreign: ForeignBuffer,
        offset: u64,
    ) -> Result<()> {
        if foreign.view().buffer.is_null() {
            return Err(Error::Null { which: "VkBuffer" });
        }
        buffer.ready_for_region()?;
        let mut state = self.state();
        let region = state
            .allocator(context)?
            .wrap(foreign, offset, buffer.bytes())?;
        buffer.put(Some(region));
        Ok(())
    }

    /// A buffer for a part of another. It is freed before the one that owns or wraps the bytes.
    ///
    /// # Errors
    /// [`Error::NoRegion`], [`Error::OutOfRange`], [`Error::Empty`].
    pub fn crop(&self, buffer: &Buffer, start: u64, bytes: u64) -> Result<Buffer> {
        let region = self.with(buffer, |allocator, region| {
            allocator.crop(region, start, bytes)
        })?;
        Ok(Buffer::of(bytes, region))
    }

    /// The VkBuffer and where in it the buffer begins, through however many crops.
    ///
    /// # Errors
    /// [`Error::NoRegion`], [`Error::UnknownRegion`].
    pub fn get_buffer(&self, buffer: &Buffer) -> Result<(vk::Buffer, u64)> {
        let view = self.with(buffer, |allocator, region| allocator.view(region))?;
        Ok((view.buffer, view.offset))
    }

    /// # Errors
    /// As [`Runtime::get_buffer`].
    pub fn ownership(&self, buffer: &Buffer) -> Result<Ownership> {
        self.with(buffer, |allocator, region| allocator.ownership(region))
    }

    /// The region that owns or wraps the buffer's bytes: never a crop.
    ///
    /// # Errors
    /// As [`Runtime::get_buffer`].
    pub fn owner(&self, buffer: &Buffer) -> Result<RegionId> {
        self.with(buffer, |allocator, region| allocator.owner(region))
    }

    /// Gives a wrapped VkBuffer back to the application, which had it all the time.
    ///
    /// # Errors
    /// [`Error::NotWrapped`], [`Error::HasCrops`], [`Error::Busy`].
    pub fn detach(&self, buffer: &mut Buffer) -> Result<(vk::Buffer, u64)> {
        let view = self.with(buffer, |allocator, region| {
            match allocator.ownership(region)? {
                Ownership::Wrapped => {}
                ownership => return Err(Error::NotWrapped { region, ownership }),
            }
            let view = allocator.view(region)?;
            allocator.free(region)?;
            Ok(view)
        })?;
        buffer.put(None);
        Ok((view.buffer, view.offset))
    }

    /// Ends what the buffer stands for: its memory if it is owned, else only the note.
    ///
    /// # Errors
    /// [`Error::NoRegion`], [`Error::HasCrops`], [`Error::Busy`].
    pub fn free(&self, buffer: &mut Buffer) -> Result<()> {
        self.with(buffer, Allocator::free)?;
        buffer.put(None);
        Ok(())
    }

    /// Writes by the mapping of owned, host-visible memory, of which the buffer may be a part.
    ///
    /// # Errors
    /// [`Error::NotMappable`], [`Error::NotVisible`], [`Error::OutOfRange`].
    pub fn write(&self, buffer: &Buffer, at: u64, bytes: &[u8]) -> Result<()> {
        self.with(buffer, |allocator, region| {
            allocator.write(region, at, bytes)
        })
    }

    /// The same way reads.
    ///
    /// # Errors
    /// As [`Runtime::write`].
    pub fn read(&self, buffer: &Buffer, at: u64, bytes: &mut [u8]) -> Result<()> {
        self.with(buffer, |allocator, region| {
            allocator.read(region, at, bytes)
        })
    }

    fn with<T>(
        &self,
        buffer: &Buffer,
        body: impl FnOnce(&mut Allocator, RegionId) -> Result<T>,
    ) -> Result<T> {
        let region = buffer.named()?;
        let mut state = self.state();
        let allocator = state.allocator(region.allocator().context())?;
        body(allocator, region)
    }
}
