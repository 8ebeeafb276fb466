//! Recorded commands that change something, how they are recorded, and what they do when their batch is carried out.

use std::sync::Arc;

use ash::vk;

use crate::boundary::{In, List, Outcome};
use crate::buffer::Buffer;
use crate::command::{CommandBuffer, record};
use crate::query::QueryPool;
use crate::state::STATE;
use crate::sync::Event;

pub enum Effect {
    Fill {
        buffer: Arc<Buffer>,
        offset: u64,
        size: u64,
        word: u32,
    },
    Update {
        buffer: Arc<Buffer>,
        offset: u64,
        bytes: Vec<u8>,
    },
    Copy {
        from: Arc<Buffer>,
        to: Arc<Buffer>,
        regions: Vec<Region>,
    },
    Event {
        event: Arc<Event>,
        set: bool,
    },
    ResetQueries {
        pool: Arc<QueryPool>,
        first: u32,
        count: u32,
    },
    /// Ends a query or writes a timestamp: either way it has a result now.
    FinishQuery {
        pool: Arc<QueryPool>,
        query: u32,
    },
    CopyQueries {
        pool: Arc<QueryPool>,
        first: u32,
        count: u32,
        to: Arc<Buffer>,
        offset: u64,
        stride: u64,
        flags: vk::QueryResultFlags,
    },
    Execute(Vec<Arc<CommandBuffer>>),
}

#[derive(Clone, Copy)]
pub struct Region {
    pub from: u64,
    pub to: u64,
    pub size: u64,
}

impl Effect {
    pub fn carry_out(&self) {
        match self {
            Self::Fill {
                buffer,
                offset,
                size,
                word,
            } => buffer.fill(*offset, *size, *word),
            Self::Update {
                buffer,
                offset,
                bytes,
            } => buffer.write(*offset, bytes),
            Self::Copy { from, to, regions } => regions
                .iter()
                .for_each(|region| to.copy_from(from, *region)),
            Self::Event { event, set } => event.set(*set),
            Self::ResetQueries { pool, first, count } => pool.reset(*first, *count),
            Self::FinishQuery { pool, query } => pool.finish(*query),
            Self::CopyQueries {
                pool,
                first,
                count,
                to,
                offset,
                stride,
                flags,
            } => {
                for (index, query) in (*first..first.saturating_add(*count)).enumerate() {
                    if let Some(bytes) = pool.result(query, *flags) {
                        to.write(offset + index as u64 * stride, &bytes);
                    }
                }
            }
            Self::Execute(secondaries) => {
                secondaries.iter().for_each(|secondary| secondary.execute())
            }
        }
    }
}

pub fn fill(
    commands: vk::CommandBuffer,
    buffer: vk::Buffer,
    offset: u64,
    size: u64,
    word: u32,
) -> Outcome {
    record(
        commands,
        Effect::Fill {
            buffer: STATE.buffers.find(buffer)?,
            offset,
            size,
            word,
        },
    )
}

pub fn update(
    commands: vk::CommandBuffer,
    buffer: vk::Buffer,
    offset: u64,
    size: u64,
    data: List<u8>,
) -> Outcome {
    let bytes = usize::try_from(size)
        .map(|size| data.of(size).to_vec())
        .unwrap_or_default();
    record(
        commands,
        Effect::Update {
            buffer: STATE.buffers.find(buffer)?,
            offset,
            bytes,
        },
    )
}

pub fn copy(
    commands: vk::CommandBuffer,
    from: vk::Buffer,
    to: vk::Buffer,
    count: u32,
    regions: List<vk::BufferCopy>,
) -> Outcome {
    let regions = regions.of(count as usize).iter();
    let regions = regions
        .map(|copy| Region {
            from: copy.src_offset,
            to: copy.dst_offset,
            size: copy.size,
        })
        .collect();
    record(
        commands,
        Effect::Copy {
            from: STATE.buffers.find(from)?,
            to: STATE.buffers.find(to)?,
            regions,
        },
    )
}

pub fn copy2(commands: vk::CommandBuffer, info: In<vk::CopyBufferInfo2<'_>>) -> Outcome {
    let info = info.demand()?;
    let regions = List::field(info.p_regions);
    let regions = regions.of(info.region_count as usize).iter();
    let regions = regions
        .map(|copy| Region {
            from: copy.src_offset,
            to: copy.dst_offset,
            size: copy.size,
        })
        .collect();
    let (from, to) = (
        STATE.buffers.find(info.src_buffer)?,
        STATE.buffers.find(info.dst_buffer)?,
    );
    record(commands, Effect::Copy { from, to, regions })
}

pub fn event(commands: vk::CommandBuffer, event: vk::Event, set: bool) -> Outcome {
    record(
        commands,
        Effect::Event {
            event: STATE.events.find(event)?,
            set,
        },
    )
}

pub fn reset_queries(
    commands: vk::CommandBuffer,
    pool: vk::QueryPool,
    first: u32,
    count: u32,
) -> Outcome {
    record(
        commands,
        Effect::ResetQueries {
            pool: STATE.query_pools.find(pool)?,
            first,
            count,
        },
    )
}

pub fn finish_query(commands: vk::CommandBuffer, pool: vk::QueryPool, query: u32) -> Outcome {
    record(
        commands,
        Effect::FinishQuery {
            pool: STATE.query_pools.find(pool)?,
            query,
        },
    )
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
    results: &Results,
) -> Outcome {
    let Results {
        first,
        count,
        offset,
        stride,
        flags,
    } = *results;
    let (pool, to) = (STATE.query_pools.find(pool)?, STATE.buffers.find(to)?);
    record(
        commands,
        Effect::CopyQueries {
            pool,
            first,
            count,
            to,
            offset,
            stride,
            flags,
        },
    )
}
