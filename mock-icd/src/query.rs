//! Query pools: a query has no result until it is finished, and then a timestamp, or zeros for what only real work counts.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ash::vk::{self, Handle};
use mock_device::Nanos;

use crate::boundary::{In, New, OutList, Outcome, now};
use crate::state::{Child, STATE};

pub struct QueryPool {
    device: u64,
    timestamps: bool,
    /// Numbers in one result.
    width: usize,
    /// From when on each has a result.
    results: Mutex<Vec<Option<Nanos>>>,
}

impl Child for QueryPool {
    fn device(&self) -> u64 {
        self.device
    }
}

impl QueryPool {
    fn lock(&self) -> MutexGuard<'_, Vec<Option<Nanos>>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn reset(&self, first: u32, count: u32) {
        self.lock()
            .iter_mut()
            .skip(first as usize)
            .take(count as usize)
            .for_each(|result| *result = None);
    }

    pub fn finish(&self, query: u32, at: Nanos) {
        if let Some(result) = self.lock().get_mut(query as usize) {
            *result = Some(at);
        }
    }

    fn known_at(&self, query: u32) -> Option<Nanos> {
        self.lock().get(query as usize).copied().flatten()
    }

    /// A result at a time, as the flags want it laid out; `None` where there is none and nothing is to be written.
    /// A timestamp is the time itself (timestampPeriod is 1), everything else counts to 0.
    pub fn result(&self, query: u32, flags: vk::QueryResultFlags, at: Nanos) -> Option<Vec<u8>> {
        let result = self.known_at(query).filter(|known| *known <= at);
        let with_availability = flags.contains(vk::QueryResultFlags::WITH_AVAILABILITY);
        if result.is_none() && !with_availability && !flags.contains(vk::QueryResultFlags::PARTIAL)
        {
            return None;
        }
        let value = result.filter(|_| self.timestamps).unwrap_or_default().0;
        let mut numbers = vec![value; self.width];
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
        device.work.wait(u64::MAX, false, || {
            let times = queries.clone().map(|query| pool.known_at(query));
            times
                .collect::<Option<Vec<_>>>()
                .map(|times| times.into_iter().max().unwrap_or_default())
        })?;
    }
    let here = now();
    for (index, query) in queries.clone().enumerate() {
        let start = usize::try_from(asked.stride)
            .unwrap_or(usize::MAX)
            .saturating_mul(index);
        if let Some(bytes) = pool
            .result(query, asked.flags, here)
            .filter(|bytes| start.saturating_add(bytes.len()) <= asked.size)
        {
            data.put_at(start, bytes);
        }
    }
    let complete = queries
        .clone()
        .all(|query| pool.known_at(query).is_some_and(|at| at <= here));
    if complete {
        Ok(())
    } else {
        Err(vk::Result::NOT_READY)
    }
}
