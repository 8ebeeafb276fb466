//! Copies between images and the application's memory that no queue carries out (VK_EXT_host_image_copy).

use ash::vk;

use crate::binding::Member;
use crate::boundary::{HostBytes, In, List, Outcome};
use crate::state::STATE;
use crate::transfer::{Pair, Region};

pub fn into_image(info: In<vk::CopyMemoryToImageInfoEXT<'_>>) -> Outcome {
    let info = info.demand()?;
    let image = STATE.images.find(info.dst_image)?;
    for copy in List::field(info.p_regions).of(info.region_count as usize) {
        let region = Region::new(
            &image,
            0,
            (copy.memory_row_length, copy.memory_image_height),
            &copy.image_subresource,
            copy.image_offset,
            copy.image_extent,
        );
        let host = HostBytes::field(copy.p_host_pointer.cast_mut());
        region.fill_image(Member::FIRST, &image, |offset, bytes| {
            host.read(offset, bytes)
        });
    }
    Ok(())
}

pub fn out_of_image(info: In<vk::CopyImageToMemoryInfoEXT<'_>>) -> Outcome {
    let info = info.demand()?;
    let image = STATE.images.find(info.src_image)?;
    for copy in List::field(info.p_regions).of(info.region_count as usize) {
        let region = Region::new(
            &image,
            0,
            (copy.memory_row_length, copy.memory_image_height),
            &copy.image_subresource,
            copy.image_offset,
            copy.image_extent,
        );
        let host = HostBytes::field(copy.p_host_pointer);
        region.take_image(Member::FIRST, &image, |offset, bytes| {
            host.write(offset, bytes)
        });
    }
    Ok(())
}

pub fn between_images(info: In<vk::CopyImageToImageInfoEXT<'_>>) -> Outcome {
    let info = info.demand()?;
    let (from, to) = (
        STATE.images.find(info.src_image)?,
        STATE.images.find(info.dst_image)?,
    );
    for copy in List::field(info.p_regions).of(info.region_count as usize) {
        let copy = vk::ImageCopy {
            src_subresource: copy.src_subresource,
            src_offset: copy.src_offset,
            dst_subresource: copy.dst_subresource,
            dst_offset: copy.dst_offset,
            extent: copy.extent,
        };
        Pair::new(&from, &to, &copy).copy(Member::FIRST, &from, &to);
    }
    Ok(())
}

/// Layouts make no difference to where texels lie.
pub fn transition(
    count: u32,
    transitions: List<vk::HostImageLayoutTransitionInfoEXT<'_>>,
) -> Outcome {
    transitions
        .of(count as usize)
        .iter()
        .try_for_each(|transition| STATE.images.find(transition.image).map(drop))
}
