//! A pool's steps: when they get memory, and when it goes back.

use super::*;

/// One step of a pool, with memory behind it.
#[derive(Default)]
pub(super) struct Step {
    live: u32,
    /// The last frees of something in it, by line, that nobody has waited for.
    pending: Vec<Freed>,
}

impl Step {
    /// Something in it is freed.
    pub(super) fn leave(&mut self, when: When) {
        self.live -= 1;
        if let When::Behind(freed) = when {
            self.pending.retain(|earlier| earlier.line != freed.line);
            self.pending.push(freed);
        }
    }
}

/// A free in the order of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freed {
    /// The line's, which may outlive it.
    context: ContextId,
    line: LineId,
    /// The how manieth of the process.
    number: u64,
}

/// When memory is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Now,
    /// When a line comes to it; the driver knows of that once somebody has waited for the line.
    Behind(Freed),
}

/// What a synchronisation waited for: all frees up to a number, of these lines or of a context.
pub struct Reached {
    of: Of,
    last: u64,
}

enum Of {
    Lines(Vec<LineId>),
    Context(ContextId),
}

impl Reached {
    fn covers(&self, freed: &Freed) -> bool {
        freed.number <= self.last
            && match &self.of {
                Of::Lines(lines) => lines.contains(&freed.line),
                Of::Context(context) => *context == freed.context,
            }
    }
}

impl Process {
    /// Memory for the steps of a range that have none.
    pub(super) fn back_steps(
        &mut self,
        driver: &Driver,
        id: PoolId,
        address: u64,
        len: u64,
        step: u64,
    ) -> Result<(), CUresult> {
        let pool = self.pool_mut(id);
        let numbers = pool.steps_of(address, len, step);
        let missing: Vec<u64> = numbers
            .clone()
            .filter(|number| !pool.steps.contains_key(number))
            .collect();
        let bytes = missing.len() as u64 * step;
        // What others were lent of the pool before is still in use.
        let kept = pool.shares.count_kept(&missing);
        let fresh = bytes - kept * step;
        if pool.max_size != 0 && pool.reserved.now + bytes > pool.max_size.next_multiple_of(step) {
            return Err(CUresult::ERROR_OUT_OF_MEMORY);
        }
        let device = pool.device;
        // Before charging, which may trim this very pool: what is to be used is in use.
        for number in numbers.clone() {
            if let Some(step) = self.pool_mut(id).steps.get_mut(&number) {
                step.live += 1;
            }
        }
        if fresh > 0
            && let Err(error) = self.charge(driver, device, Kind::Pool, fresh)
        {
            for number in numbers {
                if let Some(step) = self.pool_mut(id).steps.get_mut(&number) {
                    step.live -= 1;
                }
            }
            return Err(error);
        }
        let pool = self.pool_mut(id);
        for number in missing {
            let fresh = Step {
                live: 1,
                pending: Vec::new(),
            };
            pool.steps.insert(number, fresh);
        }
        pool.reserved.add(bytes);
        if kept > 0 {
            pool.show_kept(step);
        }
        Ok(())
    }

    /// What was in a range is there no longer. Steps that others were lent stay as they are: those may read on.
    pub(super) fn forget_in_pool(&mut self, driver: &Driver, id: PoolId, start: u64, len: u64) {
        let device = self.pool_mut(id).device;
        let step = driver.profile(device).pool_step.0;
        let pool = self.pool_mut(id);
        let base = pool.base();
        let mut numbers: Vec<u64> = pool.steps_of(start, len, step).collect();
        numbers.retain(|number| !pool.shares.keeps(*number));
        if let Ok(arena) = self.arena(driver, device) {
            // In one go as far as possible: a large range is one extent.
            for run in numbers.chunk_by(|one, next| one + 1 == *next) {
                let (first, last) = (run[0], run[run.len() - 1]);
                let from = start.max(base + first * step);
                let to = (start + len).min(base + (last + 1) * step);
                arena.contents.forget(from, to);
            }
        }
    }

    /// Returns steps in which nothing lives while more than `keep` is reserved; answers how much of the device's went. Without `forced`
    /// those stay whose frees no synchronisation has finished.
    pub(super) fn shrink(&mut self, driver: &Driver, id: PoolId, keep: u64, forced: bool) -> u64 {
        let device = self.pool_mut(id).device;
        let step = driver.profile(device).pool_step.0;
        let (mut gone, mut kept) = (0, false);
        while let pool = self.pool_mut(id)
            && pool.reserved.now > keep
            && let Some((&number, _)) = pool
                .steps
                .iter()
                .find(|(_, step)| step.live == 0 && (forced || step.pending.is_empty()))
        {
            pool.steps.remove(&number);
            pool.reserved.now -= step;
            let start = pool.base() + number * step;
            if pool.shares.keeps(number) {
                kept = true;
                continue;
            }
            if let Ok(arena) = self.arena(driver, device) {
                arena.contents.forget(start, start + step);
            }
            if !self.sharing.end(start) {
                let index = driver.index(device);
                driver.world.give_back(index, Kind::Pool, Bytes(step));
            }
            gone += step;
        }
        if kept {
            self.pool_mut(id).show_kept(step);
        }
        gone
    }

    pub(super) fn freed_behind(&mut self, context: ContextId, line: LineId) -> When {
        self.frees += 1;
        When::Behind(Freed {
            context,
            line,
            number: self.frees,
        })
    }

    /// A wait for all that a line has before it now. The legacy stream's is one for all blocking streams.
    pub fn reached_line(&self, line: LineId) -> Reached {
        let mut lines = self.timeline.waited_for_with(line);
        lines.push(line);
        Reached {
            of: Of::Lines(lines),
            last: self.frees,
        }
    }

    pub fn reached_context(&self, context: ContextId) -> Reached {
        Reached {
            of: Of::Context(context),
            last: self.frees,
        }
    }

    /// What a synchronisation does: what was freed before what it waited for is free, and each pool falls back to its threshold.
    pub fn settle_pools(&mut self, driver: &Driver, reached: &Reached) {
        for id in (0..self.pools.len() as u32).map(PoolId) {
            let pool = self.pool_mut(id);
            if pool.dirty {
                for step in pool.steps.values_mut() {
                    step.pending.retain(|freed| !reached.covers(freed));
                }
                pool.dirty = pool.steps.values().any(|step| !step.pending.is_empty());
                let keep = pool.threshold;
                self.shrink(driver, id, keep, false);
            }
        }
    }

    /// Before memory is refused: whatever pools of the device hold unused, thresholds or not.
    pub fn trim_pools(&mut self, driver: &Driver, device: Ordinal) -> u64 {
        let ids = (0..self.pools.len() as u32).map(PoolId);
        let ids: Vec<PoolId> = ids
            .filter(|id| self.pools[id.0 as usize].device == device)
            .collect();
        ids.into_iter()
            .map(|id| self.shrink(driver, id, 0, true))
            .sum()
    }

    /// A destroyed pool ends with the last that lived in it.
    pub(super) fn end_pool_if_empty(&mut self, driver: &Driver, id: PoolId) {
        if self.pool_mut(id).steps.values().any(|step| step.live > 0) {
            return;
        }
        self.shrink(driver, id, 0, true);
        self.end_lending(driver, id);
        let pool = self.pool_mut(id);
        let (device, span) = (pool.device, pool.span);
        if let Some((base, _)) = pool.addresses.take()
            && let Ok(arena) = self.arena(driver, device)
        {
            arena.holes.give(base, span);
        }
    }
}
