//! What an application holds of device memory, and what the runtime remembers of it.

use ash::vk;

use crate::error::{Error, Result};
use crate::handle::RegionId;

/// Who has what a buffer stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The runtime: memory and VkBuffer end with the buffer.
    Owned,
    /// The application: the buffer is a note about a VkBuffer of its own.
    Wrapped,
    /// Another buffer: this one is a part of it.
    CropAlias,
}

/// What owned memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// Mapped and coherent: read and written by the host, and staged from.
    HostVisible,
    /// Read and written by the device.
    DeviceLocal,
}

/// So many bytes, and what they are on the device, if anything. It is no owner: what is not freed or detached is named
/// when its allocator is to be released.
#[derive(Debug)]
pub struct Buffer {
    bytes: u64,
    region: Option<RegionId>,
}

impl Buffer {
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes,
            region: None,
        }
    }

    pub(crate) fn of(bytes: u64, region: RegionId) -> Self {
        Self {
            bytes,
            region: Some(region),
        }
    }

    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    #[must_use]
    pub fn region(&self) -> Option<RegionId> {
        self.region
    }

    /// # Errors
    /// [`Error::NoRegion`].
    pub(crate) fn named(&self) -> Result<RegionId> {
        self.region.ok_or(Error::NoRegion)
    }

    /// # Errors
    /// [`Error::HasRegion`], [`Error::Empty`].
    pub(crate) fn ready_for_region(&self) -> Result<()> {
        match self.region {
            Some(region) => Err(Error::HasRegion { region }),
            None if self.bytes == 0 => Err(Error::Empty),
            None => Ok(()),
        }
    }

    pub(crate) fn put(&mut self, region: Option<RegionId>) {
        self.region = region;
    }
}

/// A part of a VkBuffer as copies and descriptors have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    pub buffer: vk::Buffer,
    pub offset: u64,
    pub bytes: u64,
}

impl View {
    /// # Errors
    /// [`Error::OutOfRange`], [`Error::Empty`].
    pub fn cropped(self, start: u64, bytes: u64) -> Result<Self> {
        if bytes == 0 {
            return Err(Error::Empty);
        }
        match start.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(Self {
                buffer: self.buffer,
                offset: self.offset + start,
                bytes,
            }),
            _ => Err(Error::OutOfRange {
                start,
                bytes,
                within: self.bytes,
            }),
        }
    }

    /// Whether a byte of the VkBuffer is in both.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.buffer == other.buffer
            && self.offset < other.offset + other.bytes
            && other.offset < self.offset + self.bytes
    }

    /// As a descriptor has it, which may begin only at multiples of `alignment`: at the last one before, and how many words
    /// of it the kernel must leave out.
    #[must_use]
    pub fn aligned(self, alignment: u64) -> Option<(Self, u32)> {
        let before = self.offset % alignment;
        let words = u32::try_from(before / 4).ok()?;
        let view = Self {
            buffer: self.buffer,
            offset: self.offset - before,
            bytes: self.bytes + before,
        };
        before.is_multiple_of(4).then_some((view, words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: View = View {
        buffer: vk::Buffer::null(),
        offset: 100,
        bytes: 50,
    };

    #[test]
    fn a_crop_of_a_crop_begins_where_both_begin() {
        let crop = WHOLE.cropped(7, 40).and_then(|crop| crop.cropped(3, 37));
        let crop = crop.expect("within");
        assert_eq!((crop.offset, crop.bytes), (110, 37));
        for (start, bytes) in [(0, 51), (50, 1), (1, u64::MAX), (u64::MAX, 1)] {
            let refused = WHOLE.cropped(start, bytes);
            assert!(
                matches!(refused, Err(Error::OutOfRange { .. })),
                "{start} {bytes}"
            );
        }
        assert!(matches!(WHOLE.cropped(3, 0), Err(Error::Empty)));
    }

    #[test]
    fn a_descriptor_begins_before_the_view_and_the_kernel_leaves_out_the_rest() {
        let view = WHOLE
            .aligned(32)
            .map(|(view, words)| (view.offset, view.bytes, words));
        assert_eq!(view, Some((96, 54, 1)));
        let odd = WHOLE.cropped(1, 8).expect("within");
        assert_eq!(odd.aligned(32), None, "5 bytes are no words");
        assert_eq!(odd.aligned(1).map(|(view, _)| view), Some(odd));
    }

    #[test]
    fn halves_do_not_overlap_and_whole_ones_do() {
        let (first, second) = (WHOLE.cropped(0, 25), WHOLE.cropped(25, 25));
        let (first, second) = (first.expect("a half"), second.expect("a half"));
        assert!(!first.overlaps(second) && !second.overlaps(first));
        assert!(first.overlaps(WHOLE) && WHOLE.overlaps(second));
    }
}
