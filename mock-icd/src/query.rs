//! Query pools: a query has no result until it is finished, and then a timestamp, or zeros for what only real work counts.

use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ash::vk::{self, Handle};

use crate::boundary::{In, New, OutList, Outcome};
use crate::state::{Child, STATE};

pub struct QueryPool {
    device: u64,
    timestamps: bool,
    /// Numbers in one result.
    width: usize,
    results: Mutex<Vec<Option<u64>>>,
}

impl Child for QueryPool {
    fn device(&self) -> u64 {
        self.device
    }
}

impl QueryPool {
    pub fn reset(&self, first: u32, count: u32) {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results
            .iter_mut()
            .skip(first as usize)
            .take(count as usize)
            .for_each(|result| *result = None);
    }

    pub fn finish(&self, query: u32) {
        let mut results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(result) = results.get_mut(query as usize) {
            *result = Some(if self.timestamps { nanoseconds() } else { 0 });
        }
    }

    /// A result as the flags want it laid out; `None` where there is none and nothing is to be written.
    pub fn result(&self, query: u32, flags: vk::QueryResultFlags) -> Option<Vec<u8>> {
        let result = *self
            .results
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(query as usize)?;
        let with_availability = flags.contains(vk::QueryResultFlags::WITH_AVAILABILITY);
        if result.is_none() && !with_availability && !flags.contains(vk::QueryResultFlags::PARTIAL)
        {
            return None;
        }
        let mut numbers = vec![result.unwrap_or(0); self.width];
        if with_availability {
            numbers.push(result.is_some().into());
        }
        let wide = flags.contains(vk::QueryResultFlags::TYPE_64);
        let bytes = numbers.iter().flat_map(|number| {
            let bytes = number.to_le_bytes();
            bytes.into_iter().take(if wide { 8 } else { 4 })
        });
        Some(bytes.collect())
    }

    fn has(&self, query: u32) -> bool {
        let results = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        results.get(query as usize).is_some_and(Option::is_some)
    }
}

/// timestampPeriod is 1.
fn nanoseconds() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

pub fn create(
    device: vk::Device,
    info: In<vk::QueryPoolCreateInfo<'_>>,
    pool: New<vk::QueryPool>,
) -> Outcome {
    STATE.devices.find(device)?;
    let info = info.demand()?;
    let statistics = info.pipeline_statistics.as_raw().count_ones() as usize;
    pool.put(STATE.query_pools.insert(QueryPool {
        device: device.as_raw(),
        timestamps: info.query_type == vk::QueryType::TIMESTAMP,
        width: if info.query_type == vk::QueryType::PIPELINE_STATISTICS {
            statistics
        } else {
            1
        },
        results: Mutex::new(vec![None; info.query_count as usize]),
    }));
    Ok(())
}

pub fn destroy(pool: vk::QueryPool) -> Outcome {
    if pool.is_null() {
        return Ok(());
    }
    STATE.query_pools.remove(pool).map(drop)
}

pub fn reset(pool: vk::QueryPool, first: u32, count: u32) -> Outcome {
    STATE.query_pools.find(pool)?.reset(first, count);
    Ok(())
}

/// Which queries, and how much room for each.
pub struct Asked {
    pub first: u32,
    pub count: u32,
    pub size: usize,
    pub stride: u64,
    pub flags: vk::QueryResultFlags,
}

/// # Errors
/// VK_NOT_READY where a query has no result and the flags do not ask to wait for it.
pub fn results(
    device: vk::Device,
    pool: vk::QueryPool,
    asked: &Asked,
    data: OutList<u8>,
) -> Outcome {
    let pool = STATE.query_pools.find(pool)?;
    let queries = asked.first..asked.first.saturating_add(asked.count);
    if asked.flags.contains(vk::QueryResultFlags::WAIT) {
        let device = STATE.devices.find(device)?;
        device
            .work
            .wait(u64::MAX, || queries.clone().all(|query| pool.has(query)))?;
    }
    for (index, query) in queries.clone().enumerate() {
        let start = usize::try_from(asked.stride)
            .unwrap_or(usize::MAX)
            .saturating_mul(index);
        if let Some(bytes) = pool
            .result(query, asked.flags)
            .filter(|bytes| start.saturating_add(bytes.len()) <= asked.size)
        {
            data.put_at(start, bytes);
        }
    }
    let complete = queries.clone().all(|query| pool.has(query));
    if complete {
        Ok(())
    } else {
        Err(vk::Result::NOT_READY)
    }
}
