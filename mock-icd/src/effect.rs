//! Recorded commands on buffers, events and queries: how they are recorded, and what they do when their batch is carried
//! out.

use ash::vk;

use crate::boundary::{In, List, Outcome};
use crate::command::{Takes, record};
use crate::state::STATE;

pub fn fill(
    commands: vk::CommandBuffer,
    buffer: vk::Buffer,
    offset: u64,
    size: u64,
    word: u32,
) -> Outcome {
    let buffer = STATE.buffers.find(buffer)?;
    let length = buffer.range(offset, size);
    record(commands, Takes::Fill { bytes: length }, move |moment| {
        buffer.binding.fill(moment.on, offset, length, word);
    })
}

pub fn update(
    commands: vk::CommandBuffer,
    buffer: vk::Buffer,
    offset: u64,
    size: u64,
    data: List<u8>,
) -> Outcome {
    let buffer = STATE.buffers.find(buffer)?;
    let size = usize::try_from(buffer.range(offset, size)).unwrap_or(0);
    let bytes = data.of(size).to_vec();
    let takes = Takes::Fill { bytes: size as u64 };
    record(commands, takes, move |moment| {
        buffer.binding.write(moment.on, offset, &bytes);
    })
}

pub fn copy(
    commands: vk::CommandBuffer,
    from: vk::Buffer,
    to: vk::Buffer,
    count: u32,
    regions: List<vk::BufferCopy>,
) -> Outcome {
    copy_all(commands, from, to, regions.of(count as usize).to_vec())
}

pub fn copy2(commands: vk::CommandBuffer, info: In<vk::CopyBufferInfo2<'_>>) -> Outcome {
    let info = info.demand()?;
    let regions = List::field(info.p_regions);
    let regions = regions
        .of(info.region_count as usize)
        .iter()
        .map(|copy| vk::BufferCopy {
            src_offset: copy.src_offset,
            dst_offset: copy.dst_offset,
            size: copy.size,
        })
        .collect();
    copy_all(commands, info.src_buffer, info.dst_buffer, regions)
}

fn copy_all(
    commands: vk::CommandBuffer,
    from: vk::Buffer,
    to: vk::Buffer,
    mut regions: Vec<vk::BufferCopy>,
) -> Outcome {
    let (from, to) = (STATE.buffers.find(from)?, STATE.buffers.find(to)?);
    for region in &mut regions {
        region.size = region
            .size
            .min(from.size.saturating_sub(region.src_offset))
            .min(to.size.saturating_sub(region.dst_offset));
    }
    let takes = Takes::Copy {
        from: from.on_device(),
        to: to.on_device(),
        bytes: regions.iter().map(|region| region.size).sum(),
    };
    record(commands, takes, move |moment| {
        for region in &regions {
            let (at, source) = (region.dst_offset, region.src_offset);
            to.binding
                .copy_from(moment.on, at, &from.binding, source, region.size);
        }
    })
}

pub fn event(commands: vk::CommandBuffer, event: vk::Event, set: bool) -> Outcome {
    let event = STATE.events.find(event)?;
    record(commands, Takes::Nothing, move |moment| {
        event.change(set, moment.at)
    })
}

pub fn reset_queries(
    commands: vk::CommandBuffer,
    pool: vk::QueryPool,
    first: u32,
    count: u32,
) -> Outcome {
    let pool = STATE.query_pools.find(pool)?;
    record(commands, Takes::Nothing, move |_| pool.reset(first, count))
}

/// Ends a query or writes a timestamp: either way it has a result from here on.
pub fn finish_query(commands: vk::CommandBuffer, pool: vk::QueryPool, query: u32) -> Outcome {
    let pool = STATE.query_pools.find(pool)?;
    record(commands, Takes::Nothing, move |moment| {
        pool.finish(query, moment.at)
    })
}

/// Queries by number, and where their results go.
pub struct Results {
    pub first: u32,
    pub count: u32,
    pub offset: u64,
    pub stride: u64,
    pub flags: vk::QueryResultFlags,
}

pub fn copy_queries(
    commands: vk::CommandBuffer,
    pool: vk::QueryPool,
    to: vk::Buffer,
    results: Results,
) -> Outcome {
    let (pool, to) = (STATE.query_pools.find(pool)?, STATE.buffers.find(to)?);
    record(commands, Takes::Nothing, move |moment| {
        let queries = results.first..results.first.saturating_add(results.count);
        for (index, query) in (0_u64..).zip(queries) {
            if let Some(bytes) = pool.result(query, results.flags, moment.at) {
                let at = results.offset + index * results.stride;
                to.binding.write(moment.on, at, &bytes);
            }
        }
    })
}
