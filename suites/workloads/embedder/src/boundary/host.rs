//! Host memory by the application's VkAllocationCallbacks.

use std::alloc::Layout;
use std::ptr::{self, NonNull};

use allocator_api2::alloc::{AllocError, Allocator, Global};
use ash::vk;

use crate::error::{Error, Result};

/// Whose host memory drivers and the runtime's own lists use.
#[derive(Clone, Copy)]
pub struct Host(Option<vk::AllocationCallbacks<'static>>);

/// A list in the application's memory.
pub type List<T> = allocator_api2::vec::Vec<T, Host>;

impl Host {
    /// The process's own memory.
    #[must_use]
    pub const fn systems() -> Self {
        Self(None)
    }

    /// # Safety
    /// The functions keep the promises of VkAllocationCallbacks, from any thread, for as long as the runtime lives;
    /// allocation, reallocation and free are there.
    #[must_use]
    pub unsafe fn of(callbacks: vk::AllocationCallbacks<'static>) -> Self {
        Self(Some(callbacks))
    }

    pub(super) fn callbacks(&self) -> Option<&vk::AllocationCallbacks<'static>> {
        self.0.as_ref()
    }
}

// SAFETY: blocks live until they are freed, and copies of a `Host` hold the same callbacks.
unsafe impl Allocator for Host {
    fn allocate(&self, layout: Layout) -> std::result::Result<NonNull<[u8]>, AllocError> {
        let Some(callbacks) = self.callbacks().filter(|_| layout.size() != 0) else {
            return Global.allocate(layout);
        };
        let allocate = callbacks.pfn_allocation.ok_or(AllocError)?;
        // SAFETY: the callbacks' own user data; size and alignment are a layout's.
        let start = unsafe {
            allocate(
                callbacks.p_user_data,
                layout.size(),
                layout.align(),
                vk::SystemAllocationScope::OBJECT,
            )
        };
        let start = NonNull::new(start.cast::<u8>()).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(start, layout.size()))
    }

    unsafe fn deallocate(&self, start: NonNull<u8>, layout: Layout) {
        match self.callbacks().filter(|_| layout.size() != 0) {
            // SAFETY: `allocate` had it from the same allocator.
            None => unsafe { Global.deallocate(start, layout) },
            Some(callbacks) => {
                if let Some(free) = callbacks.pfn_free {
                    // SAFETY: `allocate` had it from these callbacks.
                    unsafe { free(callbacks.p_user_data, start.as_ptr().cast()) };
                }
            }
        }
    }
}

/// Room for one more element.
pub(crate) fn room<T>(list: &mut List<T>) -> Result<()> {
    list.try_reserve(1).map_err(|_| Error::OutOfHostMemory {
        during: "the runtime's own lists",
    })
}

/// Appends, or drops the value.
pub(crate) fn pushed<T>(list: &mut List<T>, value: T) -> Result<()> {
    room(list)?;
    list.push(value);
    Ok(())
}

/// Where mapped memory is read and written.
pub(super) fn copy_in(to: NonNull<u8>, bytes: &[u8]) {
    // SAFETY: the caller checked the range of the mapping, which nobody else has a reference into.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to.as_ptr(), bytes.len()) };
}

pub(super) fn copy_out(from: NonNull<u8>, bytes: &mut [u8]) {
    // SAFETY: as above.
    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), bytes.as_mut_ptr(), bytes.len()) };
}
