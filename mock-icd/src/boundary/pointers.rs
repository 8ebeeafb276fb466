//! What C hands over, as types. Each is one pointer wide and laid out like the pointer it stands for, so that the rows of
//! the table are the C signatures themselves. They come from the caller of a command, or from a field of a structure
//! that such a caller filled; the Vulkan specification's valid usage is the promise on which every dereference rests.

use std::ffi::{CStr, c_char, c_void};

use ash::vk;
use trace::vulkan::Many;

use crate::recorded::Table;

/// A structure to read; C may pass NULL where the specification says so.
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T> In<T> {
    /// As C has it.
    pub const fn raw(self) -> *const T {
        self.0
    }

    /// The structure that another structure's field points to.
    pub const fn field(pointer: *const T) -> Self {
        Self(pointer)
    }

    pub fn get(&self) -> Option<&T> {
        // SAFETY: NULL or, by valid usage, a live structure of this type for the length of the call.
        unsafe { self.0.as_ref() }
    }

    /// # Errors
    /// VK_ERROR_INITIALIZATION_FAILED for NULL, where the specification demands a structure.
    pub fn demand(&self) -> Result<&T, vk::Result> {
        self.get().ok_or(vk::Result::ERROR_INITIALIZATION_FAILED)
    }
}

/// An array to read; its length is another argument.
#[repr(transparent)]
pub struct List<T>(*const T);

impl<T> List<T> {
    /// As C has it.
    pub const fn raw(self) -> *const T {
        self.0
    }

    /// The array that a structure's field points to.
    pub const fn field(pointer: *const T) -> Self {
        Self(pointer)
    }

    pub const fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The array with its length; empty for NULL.
    pub fn of(&self, count: usize) -> &[T] {
        if self.0.is_null() {
            return &[];
        }
        // SAFETY: by valid usage the array has as many elements as the length beside it says.
        unsafe { std::slice::from_raw_parts(self.0, count) }
    }
}

/// Where one value goes.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    pub const fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// As C has it.
    pub const fn raw(self) -> *mut T {
        self.0
    }

    /// Writes without reading what was there; nothing for NULL.
    pub fn put(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: by valid usage not NULL means writable for one T.
            unsafe { self.0.write(value) }
        }
    }

    /// Edits a structure that the caller has begun (sType and pNext are its own).
    pub fn edit(self, edit: impl FnOnce(&mut T)) {
        // SAFETY: by valid usage a live structure that nobody else uses during the call.
        if let Some(value) = unsafe { self.0.as_mut() } {
            edit(value);
        }
    }

    /// The structure itself with all that is chained to it.
    pub const fn chain(self) -> ChainOut {
        ChainOut(self.0.cast())
    }

    pub fn read(self) -> Option<T>
    where
        T: Copy,
    {
        // SAFETY: as for `edit`; counts are initialised by the caller.
        unsafe { self.0.as_ref() }.copied()
    }
}

/// Where a handle goes that the command makes.
#[repr(transparent)]
pub struct New<T>(Out<T>);

impl<T> New<T> {
    /// As C has it.
    pub const fn raw(self) -> *mut T {
        self.0.raw()
    }
}

impl<T: vk::Handle + Copy> New<T> {
    pub fn put(self, raw: u64) {
        self.0.put(T::from_raw(raw));
    }
}

/// Where several values go; their number is another argument.
#[repr(transparent)]
pub struct OutList<T>(*mut T);

impl<T> OutList<T> {
    /// The array that a structure's field points to.
    pub const fn field(pointer: *mut T) -> Self {
        Self(pointer)
    }

    pub const fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// As C has it.
    pub const fn raw(self) -> Many<T> {
        Many(self.0)
    }

    /// Whether it is this array.
    pub fn is(self, pointer: *mut T) -> bool {
        std::ptr::eq(self.0, pointer)
    }

    pub fn put(self, values: impl IntoIterator<Item = T>) {
        self.put_at(0, values);
    }

    pub fn put_at(self, start: usize, values: impl IntoIterator<Item = T>) {
        for (index, value) in values.into_iter().enumerate() {
            // SAFETY: callers give no more values than fit what the count beside this array says.
            unsafe { self.0.add(start + index).write(value) }
        }
    }

    /// Edits elements that the caller has begun.
    pub fn edit(self, count: usize, mut edit: impl FnMut(usize, &mut T)) {
        for index in 0..count {
            // SAFETY: as for `put`; the caller initialised sType and pNext of each.
            edit(index, unsafe { &mut *self.0.add(index) });
        }
    }
}

/// Copied as the pointers that they are, whatever lies behind.
macro_rules! copied {
    ($($kind:ident),+) => {$(
        impl<T> Clone for $kind<T> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<T> Copy for $kind<T> {}
    )+};
}
copied!(In, List, Out, New, OutList);

/// A pointer that is passed on, never followed.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Raw(pub *mut c_void);

impl Raw {
    /// As C has it.
    pub const fn raw(self) -> *mut c_void {
        self.0
    }
}

/// The application's memory at the other end of a copy, as long as the copy's region says.
#[derive(Clone, Copy)]
pub struct HostBytes(*mut u8);

impl HostBytes {
    pub const fn field(pointer: *mut c_void) -> Self {
        Self(pointer.cast())
    }

    pub fn read(self, offset: u64, bytes: &mut [u8]) {
        let Ok(offset) = usize::try_from(offset) else {
            return;
        };
        // SAFETY: by valid usage the region's bytes are the application's to be read; the target is Rust's own memory.
        unsafe {
            std::ptr::copy_nonoverlapping(self.0.add(offset), bytes.as_mut_ptr(), bytes.len())
        }
    }

    pub fn write(self, offset: u64, bytes: &[u8]) {
        let Ok(offset) = usize::try_from(offset) else {
            return;
        };
        // SAFETY: as above, to be written.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.add(offset), bytes.len()) }
    }
}

/// Host allocation callbacks: the mock keeps its records by itself, as the specification permits.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Allocator(*const c_void);

impl Allocator {
    /// As C has it.
    pub const fn raw(self) -> *const vk::AllocationCallbacks<'static> {
        self.0.cast()
    }
}

/// A NUL-terminated string.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

impl Text {
    /// As C has it.
    pub const fn raw(self) -> *const c_char {
        self.0
    }

    /// The string that a structure's array holds.
    pub const fn field(pointer: *const c_char) -> Self {
        Self(pointer)
    }

    /// `None` for NULL or for what is not UTF-8 (no Vulkan name is).
    pub fn get(&self) -> Option<&str> {
        if self.0.is_null() {
            return None;
        }
        // SAFETY: by valid usage a NUL-terminated string, alive during the call.
        unsafe { CStr::from_ptr(self.0) }.to_str().ok()
    }
}

/// What a proc-address command answers: a function, or NULL.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function(pub *const ());

impl Function {
    pub const NULL: Self = Self(std::ptr::null());
}

// SAFETY: the address of a function in this library's text: valid on every thread.
unsafe impl Sync for Function {}
// SAFETY: as above.
unsafe impl Send for Function {}

/// The structures chained to one that is read.
#[derive(Clone, Copy)]
pub struct Chain(*const c_void);

impl Chain {
    pub const fn of(next: *const c_void) -> Self {
        Self(next)
    }

    /// The first structure of the type asked for. What the mock does not know it passes over.
    pub fn find<T: vk::TaggedStructure>(&self) -> Option<&T> {
        let mut next = self.0.cast::<vk::BaseInStructure<'_>>();
        // SAFETY: by valid usage a chain of structures that begin with sType and pNext and end with NULL; sType says
        // which structure it is.
        unsafe {
            while let Some(here) = next.as_ref() {
                if here.s_type == T::STRUCTURE_TYPE {
                    return next.cast::<T>().as_ref();
                }
                next = here.p_next;
            }
        }
        None
    }
}

/// The structures chained to one that is filled.
#[derive(Clone, Copy)]
pub struct ChainOut(*mut c_void);

impl ChainOut {
    pub const fn of(next: *mut c_void) -> Self {
        Self(next)
    }

    /// Writes into each structure what the table holds for its type.
    pub fn fill(self, table: &Table) {
        let mut next = self.0.cast::<vk::BaseOutStructure<'_>>();
        // SAFETY: as for `Chain::find`; the table was recorded from structures of these types, and its bytes lie inside.
        unsafe {
            while let Some(here) = next.as_ref() {
                for (at, bytes) in table.find(here.s_type).into_iter().flatten() {
                    std::ptr::copy_nonoverlapping(
                        bytes.as_ptr(),
                        next.cast::<u8>().add(*at),
                        bytes.len(),
                    );
                }
                next = here.p_next;
            }
        }
    }

    /// Edits the first structure of the type, if the caller chained one.
    pub fn edit<T: vk::TaggedStructure>(self, edit: impl FnOnce(&mut T)) {
        let mut next = self.0.cast::<vk::BaseOutStructure<'_>>();
        // SAFETY: as for `Chain::find`; the structures are the caller's to be written.
        unsafe {
            while let Some(here) = next.as_ref() {
                if here.s_type == T::STRUCTURE_TYPE {
                    if let Some(found) = next.cast::<T>().as_mut() {
                        edit(found);
                    }
                    return;
                }
                next = here.p_next;
            }
        }
    }
}

/// VkPhysicalDeviceVulkan14Properties, which is newer than our Vulkan crate: as far as the mock reads it.
#[repr(C)]
pub struct Vulkan14Properties {
    s_type: vk::StructureType,
    p_next: *mut c_void,
    before: [u32; 19],
    pub copy_src_layout_count: u32,
    pub p_copy_src_layouts: *mut vk::ImageLayout,
    pub copy_dst_layout_count: u32,
    pub p_copy_dst_layouts: *mut vk::ImageLayout,
}

// SAFETY: the C structure of this sType begins so (oracle: vulkan-properties-580.txt has the offsets).
unsafe impl vk::TaggedStructure for Vulkan14Properties {
    const STRUCTURE_TYPE: vk::StructureType = vk::StructureType::from_raw(56);
}

const _: () = assert!(
    std::mem::offset_of!(Vulkan14Properties, copy_src_layout_count) == 92
        && std::mem::offset_of!(Vulkan14Properties, p_copy_dst_layouts) == 112
);
