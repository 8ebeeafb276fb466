//! Structures that hold handles: copied for a call, with what each handle is below.

use std::ffi::c_void;
use std::{mem, ptr, slice};

use ash::vk::*;

use super::object::{Wrapped, die};

/// Copies of one call, which live until it has returned.
#[derive(Default)]
pub struct Keep {
    copies: Vec<Vec<u64>>,
    /// The length of the next arrays: in every command an array stands behind its length.
    pub count: usize,
}

/// A structure that holds handles, or stands before one in a chain.
pub trait Holds: Copy {
    const CHAINED: bool;
    /// Whether it holds any itself.
    const HANDLES: bool;

    /// Replaces the handles that it holds by what they are below.
    ///
    /// # Safety
    /// As the specification has it: pointers and lengths are what they say.
    unsafe fn lower(&mut self, keep: &mut Keep);
}

impl Keep {
    /// So many structures, as below is to see them.
    ///
    /// # Safety
    /// So many valid structures, or null.
    pub unsafe fn structures<S: Holds>(&mut self, of: *const S, count: usize) -> *const S {
        // SAFETY: the caller's obligation; what is chained begins as VkBaseInStructure does.
        unsafe {
            self.copied(of, count, |keep, one| {
                one.lower(keep);
                if S::CHAINED {
                    let base = ptr::from_mut(one).cast::<BaseInStructure<'_>>();
                    (*base).p_next = keep.chain((*base).p_next.cast()).cast();
                }
            })
        }
    }

    /// So many handles, as below knows them.
    ///
    /// # Safety
    /// So many handles, or null.
    pub unsafe fn handles<H: Wrapped>(&mut self, of: *const H, count: usize) -> *const H {
        // SAFETY: the caller's obligation.
        unsafe { self.copied(of, count, |_, handle| *handle = handle.below()) }
    }

    /// # Safety
    /// So many of them, or null.
    unsafe fn copied<T: Copy>(
        &mut self,
        of: *const T,
        count: usize,
        mut lower: impl FnMut(&mut Keep, &mut T),
    ) -> *const T {
        if of.is_null() || count == 0 {
            return of;
        }
        // No structure of Vulkan's is aligned wider than a word.
        const { assert!(mem::align_of::<T>() <= mem::align_of::<u64>()) };
        let words = (count * size_of::<T>()).div_ceil(size_of::<u64>());
        let mut copy = vec![0_u64; words];
        let start = copy.as_mut_ptr().cast::<T>();
        // SAFETY: the caller's obligation; the copy has room for as many.
        let copies = unsafe {
            ptr::copy_nonoverlapping(of, start, count);
            slice::from_raw_parts_mut(start, count)
        };
        copies.iter_mut().for_each(|one| lower(self, one));
        self.copies.push(copy);
        start
    }

    /// A chain as below is to see it: the same one where nothing in it holds a handle.
    ///
    /// # Safety
    /// A valid pNext chain.
    unsafe fn chain(&mut self, first: *const c_void) -> *const c_void {
        let mut nodes = Vec::new();
        let mut at = first.cast::<BaseInStructure<'_>>();
        // SAFETY: the caller's obligation.
        while let Some(node) = unsafe { at.as_ref() } {
            nodes.push((at, node.s_type));
            at = node.p_next;
        }
        let Some(last) = nodes.iter().rposition(|(_, kind)| holds_handles(*kind)) else {
            return first;
        };
        // SAFETY: as above.
        unsafe {
            let mut rest = (*nodes[last].0).p_next;
            for (node, kind) in nodes[..=last].iter().rev() {
                let copy = self
                    .node((*node).cast(), *kind)
                    .cast::<BaseInStructure<'_>>();
                (*copy.cast_mut()).p_next = rest;
                rest = copy;
            }
            rest.cast()
        }
    }

    /// # Safety
    /// A structure of that kind.
    unsafe fn fields<S: Holds>(&mut self, of: *const c_void) -> *const c_void {
        // SAFETY: the caller's obligation.
        unsafe {
            self.copied(of.cast::<S>(), 1, |keep, one| one.lower(keep))
                .cast()
        }
    }
}

/// VkLayerInstanceCreateInfo and VkLayerDeviceCreateInfo, which the loader puts before what the application chains.
#[derive(Clone, Copy)]
#[repr(C)]
struct LoadersOwn {
    head: [u64; 2],
    function: u32,
    link: *const c_void,
}

impl Holds for LoadersOwn {
    const CHAINED: bool = true;
    const HANDLES: bool = false;
    unsafe fn lower(&mut self, _keep: &mut Keep) {}
}

/// Rows: a structure, its handles, its arrays of structures and of handles with their lengths.
macro_rules! structures {
    ($chained:literal: $($name:ident $(<$life:lifetime>)? { $($handle:ident)* $(; $($array:ident[$length:ident])*)? $(| $($list:ident[$many:ident])*)? })*) => { $(
        impl $(<$life>)? Holds for $name $(<$life>)? {
            const CHAINED: bool = $chained;
            const HANDLES: bool = [$(stringify!($handle),)* $($(stringify!($array),)*)? $($(stringify!($list),)*)? ""].len() > 1;
            #[allow(unused_variables, reason = "some hold none")]
            unsafe fn lower(&mut self, keep: &mut Keep) {
                $(self.$handle = self.$handle.below();)*
                // SAFETY: the caller's obligation.
                $($(self.$array = unsafe { keep.structures(self.$array, self.$length as usize) };)*)?
                // SAFETY: as above.
                $($(self.$list = unsafe { keep.handles(self.$list, self.$many as usize) };)*)?
            }
        }
    )* };
}

structures! { true:
    BindBufferMemoryInfo<'a> { buffer memory }
    BindImageMemoryInfo<'a> { image memory }
    BindSparseInfo<'a> { ; p_buffer_binds[buffer_bind_count] p_image_opaque_binds[image_opaque_bind_count] p_image_binds[image_bind_count] }
    BlitImageInfo2<'a> { src_image dst_image }
    BufferDeviceAddressInfo<'a> { buffer }
    BufferMemoryBarrier<'a> { buffer }
    BufferMemoryBarrier2<'a> { buffer }
    BufferMemoryRequirementsInfo2<'a> { buffer }
    BufferCreateInfo<'a> { }
    BufferViewCreateInfo<'a> { buffer }
    CommandBufferSubmitInfo<'a> { command_buffer }
    CopyBufferInfo2<'a> { src_buffer dst_buffer }
    CopyBufferToImageInfo2<'a> { src_buffer dst_image }
    CopyImageInfo2<'a> { src_image dst_image }
    CopyImageToBufferInfo2<'a> { src_image dst_buffer }
    DependencyInfo<'a> { ; p_buffer_memory_barriers[buffer_memory_barrier_count] p_image_memory_barriers[image_memory_barrier_count] }
    DeviceCreateInfo<'a> { }
    DeviceGroupDeviceCreateInfo<'a> { | p_physical_devices[physical_device_count] }
    DeviceMemoryOpaqueCaptureAddressInfo<'a> { memory }
    ExportMemoryAllocateInfo<'a> { }
    FenceCreateInfo<'a> { }
    FenceGetFdInfoKHR<'a> { fence }
    ImageCreateInfo<'a> { }
    ImageMemoryBarrier<'a> { image }
    ImageMemoryBarrier2<'a> { image }
    ImageMemoryRequirementsInfo2<'a> { image }
    ImageSparseMemoryRequirementsInfo2<'a> { image }
    ImageViewCreateInfo<'a> { image }
    ImportFenceFdInfoKHR<'a> { fence }
    ImportMemoryFdInfoKHR<'a> { }
    ImportMemoryHostPointerInfoEXT<'a> { }
    MappedMemoryRange<'a> { memory }
    MemoryAllocateFlagsInfo<'a> { }
    MemoryAllocateInfo<'a> { }
    MemoryDedicatedAllocateInfo<'a> { buffer image }
    MemoryGetFdInfoKHR<'a> { memory }
    MemoryMapInfoKHR<'a> { memory }
    MemoryOpaqueCaptureAddressAllocateInfo<'a> { }
    MemoryPriorityAllocateInfoEXT<'a> { }
    MemoryUnmapInfoKHR<'a> { memory }
    ResolveImageInfo2<'a> { src_image dst_image }
    SubmitInfo<'a> { | p_command_buffers[command_buffer_count] }
    SubmitInfo2<'a> { ; p_command_buffer_infos[command_buffer_info_count] }
}

structures! { false:
    DescriptorBufferInfo { buffer }
    SparseBufferMemoryBindInfo<'a> { buffer; p_binds[bind_count] }
    SparseImageMemoryBind { memory }
    SparseImageMemoryBindInfo<'a> { image; p_binds[bind_count] }
    SparseImageOpaqueMemoryBindInfo<'a> { image; p_binds[bind_count] }
    SparseMemoryBind { memory }
}

impl Holds for WriteDescriptorSet<'_> {
    const CHAINED: bool = true;
    const HANDLES: bool = true;
    unsafe fn lower(&mut self, keep: &mut Keep) {
        let of_buffers = [
            DescriptorType::UNIFORM_BUFFER,
            DescriptorType::STORAGE_BUFFER,
            DescriptorType::UNIFORM_BUFFER_DYNAMIC,
            DescriptorType::STORAGE_BUFFER_DYNAMIC,
        ];
        // The other pointers may be anything then.
        if of_buffers.contains(&self.descriptor_type) {
            // SAFETY: the caller's obligation.
            self.p_buffer_info =
                unsafe { keep.structures(self.p_buffer_info, self.descriptor_count as usize) };
        }
    }
}

/// Rows: what may stand in a chain that holds handles. A structure whose size is not known here cannot be stepped over.
macro_rules! nodes {
    ($($kind:ident: $name:ty;)*) => {
        fn holds_handles(kind: StructureType) -> bool {
            match kind {
                $(StructureType::$kind => <$name as Holds>::HANDLES,)*
                _ => false,
            }
        }

        impl Keep {
            /// # Safety
            /// A structure of that kind.
            unsafe fn node(&mut self, of: *const c_void, kind: StructureType) -> *const c_void {
                // SAFETY: the caller's obligation.
                unsafe {
                    match kind {
                        $(StructureType::$kind => self.fields::<$name>(of),)*
                        _ => die("a structure of unknown size before one that holds handles", kind.as_raw() as u64),
                    }
                }
            }
        }
    };
}

nodes! {
    LOADER_DEVICE_CREATE_INFO: LoadersOwn;
    DEVICE_GROUP_DEVICE_CREATE_INFO: DeviceGroupDeviceCreateInfo<'_>;
    EXPORT_MEMORY_ALLOCATE_INFO: ExportMemoryAllocateInfo<'_>;
    IMPORT_MEMORY_FD_INFO_KHR: ImportMemoryFdInfoKHR<'_>;
    IMPORT_MEMORY_HOST_POINTER_INFO_EXT: ImportMemoryHostPointerInfoEXT<'_>;
    MEMORY_ALLOCATE_FLAGS_INFO: MemoryAllocateFlagsInfo<'_>;
    MEMORY_DEDICATED_ALLOCATE_INFO: MemoryDedicatedAllocateInfo<'_>;
    MEMORY_OPAQUE_CAPTURE_ADDRESS_ALLOCATE_INFO: MemoryOpaqueCaptureAddressAllocateInfo<'_>;
    MEMORY_PRIORITY_ALLOCATE_INFO_EXT: MemoryPriorityAllocateInfoEXT<'_>;
}
