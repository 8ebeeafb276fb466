//! vkQueueBindSparse: which memory lies behind which pages of buffers and images.

use ash::vk::{self, Handle};

use crate::binding::Piece;
use crate::boundary::{Chain, List};
use crate::queue::{points, timeline_values};
use crate::state::STATE;
use crate::work::Batch;

type Binds = Vec<Box<dyn FnOnce() + Send>>;

pub fn batch(info: &vk::BindSparseInfo<'_>) -> Result<Batch, vk::Result> {
    let (waits, signals) = timeline_values(Chain::of(info.p_next));
    let mut binds: Binds = Vec::new();
    for bind in List::field(info.p_buffer_binds).of(info.buffer_bind_count as usize) {
        let buffer = STATE.buffers.find(bind.buffer)?;
        for page in List::field(bind.p_binds).of(bind.bind_count as usize) {
            let (buffer, page, piece) = (
                buffer.clone(),
                *page,
                piece(page.memory, page.memory_offset)?,
            );
            binds.push(Box::new(move || {
                buffer
                    .binding
                    .bind_pages(page.resource_offset, page.size, piece);
            }));
        }
    }
    for bind in List::field(info.p_image_opaque_binds).of(info.image_opaque_bind_count as usize) {
        let image = STATE.images.find(bind.image)?;
        for page in List::field(bind.p_binds).of(bind.bind_count as usize) {
            // Images have no metadata here.
            if page.flags.contains(vk::SparseMemoryBindFlags::METADATA) {
                continue;
            }
            let (image, page, piece) = (
                image.clone(),
                *page,
                piece(page.memory, page.memory_offset)?,
            );
            binds.push(Box::new(move || {
                image.bind_pages(page.resource_offset, page.size, piece);
            }));
        }
    }
    for bind in List::field(info.p_image_binds).of(info.image_bind_count as usize) {
        let image = STATE.images.find(bind.image)?;
        for tiles in List::field(bind.p_binds).of(bind.bind_count as usize) {
            let (image, tiles, piece) = (
                image.clone(),
                *tiles,
                piece(tiles.memory, tiles.memory_offset)?,
            );
            binds.push(Box::new(move || image.bind_tiles(&tiles, piece)));
        }
    }
    Ok(Batch {
        waits: points(info.p_wait_semaphores, info.wait_semaphore_count, &waits)?,
        signals: points(
            info.p_signal_semaphores,
            info.signal_semaphore_count,
            &signals,
        )?,
        binds,
        ..Batch::default()
    })
}

/// `None` for VK_NULL_HANDLE, which unbinds.
fn piece(memory: vk::DeviceMemory, offset: u64) -> Result<Option<Piece>, vk::Result> {
    if memory.is_null() {
        return Ok(None);
    }
    let memory = STATE.memories.find(memory)?;
    Ok(Some(Piece::new(&memory, offset)))
}
