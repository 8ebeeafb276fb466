//! What may hang at VkMemoryAllocateInfo, as the registry allows it: any members, in any order, unknown ones before, between and behind them.

use ash::vk;

use super::client::Made;
use crate::maker::Maker;

/// Words of the longest member.
const WORDS: usize = 16;
/// What no registry has.
const UNKNOWN: [i32; 3] = [0x7eed_0001, 1_000_999_000, i32::MAX];

/// Members, and what they mean.
pub struct Chain {
    members: Vec<[u64; WORDS]>,
    /// A duplicate of a descriptor that is the driver's once it has granted the call.
    pub imported: Option<i32>,
    /// What is allocated may be exported.
    pub exports: bool,
    /// What the dedicated object needs.
    pub size: Option<u64>,
    image: vk::Image,
    buffer: vk::Buffer,
}

impl std::fmt::Display for Chain {
    /// The members' types, in order.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds: Vec<_> = self.members.iter().map(|one| one[0] as u32).collect();
        write!(formatter, "{kinds:?}")
    }
}

impl Chain {
    pub fn make(maker: &mut Maker<'_>, made: &Made, descriptor: Option<i32>) -> Self {
        let mut chain = Self {
            members: Vec::new(),
            imported: None,
            exports: false,
            size: None,
            image: vk::Image::null(),
            buffer: vk::Buffer::null(),
        };
        for _ in 0..maker.byte() % 8 {
            chain.one(maker, made, descriptor);
        }
        let nexts: Vec<_> = chain
            .members
            .iter_mut()
            .map(|one| one.as_mut_ptr())
            .collect();
        for pair in nexts.windows(2) {
            // SAFETY: every member begins as VkBaseOutStructure does, and lives as long as the chain.
            unsafe { (*pair[0].cast::<vk::BaseOutStructure<'_>>()).p_next = pair[1].cast() };
        }
        chain
    }

    /// Where it begins.
    pub fn first(&self) -> *const std::ffi::c_void {
        self.members
            .first()
            .map_or(std::ptr::null(), |one| one.as_ptr().cast())
    }

    /// The dedicated object's end; what was allocated for it may outlive it.
    pub fn end(self, made: &Made) {
        // SAFETY: objects of this device that no work uses, or none.
        unsafe {
            made.device.destroy_image(self.image, None);
            made.device.destroy_buffer(self.buffer, None);
        }
    }

    fn has(&self, kind: vk::StructureType) -> bool {
        let kind = kind.as_raw() as u32 as u64;
        self.members
            .iter()
            .any(|one| one[0] & u64::from(u32::MAX) == kind)
    }

    /// No chain has a structure twice, but those that nobody knows.
    fn push<T: Copy>(&mut self, kind: vk::StructureType, value: T) {
        const { assert!(size_of::<T>() <= size_of::<[u64; WORDS]>() && align_of::<T>() <= 8) };
        if self.has(kind) {
            return;
        }
        let mut words = [0_u64; WORDS];
        // SAFETY: room for as many bytes, aligned as they need.
        unsafe { words.as_mut_ptr().cast::<T>().write(value) };
        self.members.push(words);
    }

    fn one(&mut self, maker: &mut Maker<'_>, made: &Made, descriptor: Option<i32>) {
        use vk::StructureType as S;
        let opaque = vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD;
        let none = vk::ExternalMemoryHandleTypeFlags::empty();
        match maker.byte() % 11 {
            0 => {
                let value = f32::from(maker.byte()) / 255.0;
                self.push(
                    S::MEMORY_PRIORITY_ALLOCATE_INFO_EXT,
                    vk::MemoryPriorityAllocateInfoEXT::default().priority(value),
                );
            }
            1 | 2 if !self.has(S::EXPORT_MEMORY_ALLOCATE_INFO) => {
                self.exports = maker.byte() < 160;
                let kinds = if self.exports { opaque } else { none };
                self.push(
                    S::EXPORT_MEMORY_ALLOCATE_INFO,
                    vk::ExportMemoryAllocateInfo::default().handle_types(kinds),
                );
            }
            3 => {
                let flags = match maker.byte() % 3 {
                    0 => vk::MemoryAllocateFlags::empty(),
                    1 => vk::MemoryAllocateFlags::DEVICE_MASK,
                    _ => vk::MemoryAllocateFlags::DEVICE_ADDRESS,
                };
                self.push(
                    S::MEMORY_ALLOCATE_FLAGS_INFO,
                    vk::MemoryAllocateFlagsInfo::default()
                        .flags(flags)
                        .device_mask(1),
                );
            }
            4 => self.push(
                S::MEMORY_OPAQUE_CAPTURE_ADDRESS_ALLOCATE_INFO,
                vk::MemoryOpaqueCaptureAddressAllocateInfo::default(),
            ),
            5 | 6 if !self.has(S::MEMORY_DEDICATED_ALLOCATE_INFO) => {
                let info = vk::MemoryDedicatedAllocateInfo::default();
                let info = match maker.byte() % 3 {
                    0 => info,
                    1 => info.image(self.dedicated_image(maker, made)),
                    _ => info.buffer(self.dedicated_buffer(maker, made)),
                };
                self.push(S::MEMORY_DEDICATED_ALLOCATE_INFO, info);
            }
            7 | 8 if !self.has(S::IMPORT_MEMORY_FD_INFO_KHR) => {
                let info = vk::ImportMemoryFdInfoKHR::default();
                let info = match descriptor.filter(|_| maker.byte() < 160) {
                    // A duplicate, because whoever imports a descriptor owns it.
                    Some(descriptor) => {
                        // SAFETY: a descriptor of ours.
                        let own = unsafe { libc::dup(descriptor) };
                        self.imported = Some(own);
                        info.handle_type(opaque).fd(own)
                    }
                    // No import at all: a handle type of 0 says so, whatever stands in fd.
                    None => info.handle_type(none).fd(i32::from(maker.byte()) - 1),
                };
                self.push(S::IMPORT_MEMORY_FD_INFO_KHR, info);
            }
            9 => self.push(
                S::IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
                vk::ImportMemoryHostPointerInfoEXT::default().handle_type(none),
            ),
            _ => {
                let kind = maker.one_of(&UNKNOWN);
                let mut unknown = [0xa5a5_a5a5_a5a5_a5a5_u64; WORDS];
                (unknown[0], unknown[1]) = (kind as u32 as u64, 0);
                self.members.push(unknown);
            }
        }
    }

    fn dedicated_image(&mut self, maker: &mut Maker<'_>, made: &Made) -> vk::Image {
        let info = vk::ImageCreateInfo::default()
            .image_type(vk::ImageType::TYPE_2D)
            .format(vk::Format::R8G8B8A8_UNORM)
            .extent(vk::Extent3D {
                width: 1 + u32::from(maker.byte()) * 8,
                height: 1 + u32::from(maker.byte()) * 8,
                depth: 1,
            })
            .mip_levels(1)
            .array_layers(1)
            .samples(vk::SampleCountFlags::TYPE_1)
            .usage(vk::ImageUsageFlags::SAMPLED);
        // SAFETY: the device lives; the structure outlives the call.
        if let Ok(image) = unsafe { made.device.create_image(&info, None) } {
            // SAFETY: it was just made.
            let needs = unsafe { made.device.get_image_memory_requirements(image) };
            (self.image, self.size) = (image, Some(needs.size));
        }
        self.image
    }

    fn dedicated_buffer(&mut self, maker: &mut Maker<'_>, made: &Made) -> vk::Buffer {
        let size = ((1 + u64::from(maker.byte())) << 16) - u64::from(maker.byte() % 3);
        let info = vk::BufferCreateInfo::default()
            .size(size)
            .usage(vk::BufferUsageFlags::STORAGE_BUFFER);
        // SAFETY: the device lives; the structure outlives the call.
        if let Ok(buffer) = unsafe { made.device.create_buffer(&info, None) } {
            // SAFETY: it was just made.
            let needs = unsafe { made.device.get_buffer_memory_requirements(buffer) };
            (self.buffer, self.size) = (buffer, Some(needs.size));
        }
        self.buffer
    }
}
