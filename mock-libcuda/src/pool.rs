//! Stream-ordered pools: reserved in 32 MiB steps, returned at a synchronisation down to the release threshold, or by a
//! trim. A free alone returns nothing (FINDINGS 13).

use abi::cuda::*;
use mock_device::Kind;

use crate::arena::Blocks;
use crate::boundary::{Answer, In, Out};
use crate::driver::{self, Driver, Ordinal};
use crate::graph_memory;
use crate::handle;
use crate::memory::answer;
use crate::process::{ContextId, Owner, PoolId, Process};

pub struct Pool {
    device: Ordinal,
    /// False once cuMemPoolDestroy was called: what still lives in it keeps it.
    open: bool,
    max_size: u64,
    threshold: u64,
    reuse: [i32; 3],
    segments: Blocks,
    reserved: Watermark,
    used: Watermark,
    /// Whether anything was freed since the last synchronisation.
    dirty: bool,
}

#[derive(Clone, Copy, Default)]
struct Watermark {
    now: u64,
    high: u64,
}

impl Watermark {
    fn add(&mut self, bytes: u64) {
        self.now += bytes;
        self.high = self.high.max(self.now);
    }
}

impl Pool {
    /// `max_size` 0 is no bound.
    pub fn new(device: Ordinal, max_size: u64) -> Pool {
        Pool {
            device,
            open: true,
            max_size,
            threshold: 0,
            reuse: [1; 3],
            segments: Blocks::default(),
            reserved: Watermark::default(),
            used: Watermark::default(),
            dirty: false,
        }
    }
}

fn handle_of(id: PoolId) -> CUmemoryPool {
    CUmemoryPool(handle::encode(handle::Kind::Pool, id.0) as *mut c_void)
}

impl Process {
    fn pool_of(&self, pool: CUmemoryPool) -> Result<PoolId, CUresult> {
        let id = handle::decode(handle::Kind::Pool, pool.0 as u64)
            .ok_or(CUresult::ERROR_INVALID_VALUE)?;
        match self.pools.get(id as usize) {
            Some(pool) if pool.open => Ok(PoolId(id)),
            _ => Err(CUresult::ERROR_INVALID_VALUE),
        }
    }

    fn pool_mut(&mut self, id: PoolId) -> &mut Pool {
        &mut self.pools[id.0 as usize]
    }

    fn allocate_in_pool(
        &mut self,
        driver: &Driver,
        id: PoolId,
        context: ContextId,
        size: u64,
    ) -> Result<u64, CUresult> {
        if size == 0 {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        let device = self.pool_mut(id).device;
        let profile = driver.profile(device);
        let taken = size
            .checked_next_multiple_of(profile.suballocation.0)
            .ok_or(CUresult::ERROR_OUT_OF_MEMORY)?;
        let address = match self.pool_mut(id).segments.allocate(taken) {
            Some(address) => address,
            None => self.grow(driver, id, taken, profile.pool_step.0)?,
        };
        self.pool_mut(id).used.add(taken);
        self.enter(address, size, taken, context, Owner::Pool(id));
        Ok(address)
    }

    fn grow(
        &mut self,
        driver: &Driver,
        id: PoolId,
        taken: u64,
        step: u64,
    ) -> Result<u64, CUresult> {
        let segment = taken
            .checked_next_multiple_of(step)
            .ok_or(CUresult::ERROR_OUT_OF_MEMORY)?;
        let pool = self.pool_mut(id);
        if pool.max_size != 0 && pool.reserved.now + segment > pool.max_size {
            return Err(CUresult::ERROR_OUT_OF_MEMORY);
        }
        let device = pool.device;
        let base = self.take(driver, device, Kind::Pool, segment)?;
        let pool = self.pool_mut(id);
        pool.segments.add(base, segment);
        pool.reserved.add(segment);
        Ok(pool
            .segments
            .allocate(taken)
            .expect("a fresh segment has room"))
    }

    pub fn free_in_pool(&mut self, driver: &Driver, id: PoolId, address: u64, taken: u64) {
        let pool = self.pool_mut(id);
        pool.segments.free(address, taken);
        pool.used.now -= taken;
        pool.dirty = true;
        let (device, open) = (pool.device, pool.open);
        if let Ok(arena) = self.arena(driver, device) {
            arena.contents.forget(address, address + taken);
        }
        if !open {
            self.shrink(driver, id, 0);
        }
    }

    /// Returns unused segments while more than `keep` is reserved; answers how much went.
    fn shrink(&mut self, driver: &Driver, id: PoolId, keep: u64) -> u64 {
        let mut gone = 0;
        while let pool = self.pool_mut(id)
            && pool.reserved.now > keep
            && let Some((base, len)) = pool.segments.first_empty()
        {
            pool.segments.remove(base);
            pool.reserved.now -= len;
            let device = pool.device;
            self.give_back(driver, device, Kind::Pool, base, len);
            gone += len;
        }
        gone
    }

    /// What a synchronisation does: each pool falls back to its threshold.
    pub fn settle_pools(&mut self, driver: &Driver) {
        for id in (0..self.pools.len() as u32).map(PoolId) {
            let pool = self.pool_mut(id);
            if std::mem::take(&mut pool.dirty) {
                let keep = pool.threshold;
                self.shrink(driver, id, keep);
            }
        }
    }

    /// Before memory is refused: whatever pools of the device hold unused, thresholds or not.
    pub fn trim_pools(&mut self, driver: &Driver, device: Ordinal) -> u64 {
        let ids = (0..self.pools.len() as u32).map(PoolId);
        let ids: Vec<PoolId> = ids
            .filter(|id| self.pools[id.0 as usize].device == device)
            .collect();
        ids.into_iter().map(|id| self.shrink(driver, id, 0)).sum()
    }

    /// The last context of a device is gone, and with it all that its pools held.
    pub fn empty_pools(&mut self, driver: &Driver, device: Ordinal) {
        self.allocations.retain(|_, allocation| {
            !(allocation.device == device && matches!(allocation.owner, Owner::Pool(_)))
        });
        for id in (0..self.pools.len() as u32).map(PoolId) {
            if self.pools[id.0 as usize].device != device {
                continue;
            }
            let pool = self.pool_mut(id);
            (pool.reserved.now, pool.used.now) = (0, 0);
            for (base, len) in pool.segments.drain() {
                self.give_back(driver, device, Kind::Pool, base, len);
            }
        }
    }
}

pub fn alloc_async(dptr: Out<CUdeviceptr>, size: usize, stream: CUstream) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let context = process.stream_context(stream)?;
    let dptr = dptr.required()?;
    let device = process.context(context).device;
    if let Some(address) =
        graph_memory::captured_alloc(&mut process, driver, stream, device, size as u64)?
    {
        dptr.set(address);
        return Ok(());
    }
    let pool = process.current_pools[device.0];
    answer(
        &dptr,
        process.allocate_in_pool(driver, pool, context, size as u64),
    )
}

pub fn alloc_from_pool(
    dptr: Out<CUdeviceptr>,
    size: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let context = process.stream_context(stream)?;
    let dptr = dptr.required()?;
    let pool = process.pool_of(pool)?;
    answer(
        &dptr,
        process.allocate_in_pool(driver, pool, context, size as u64),
    )
}

pub fn free_async(dptr: CUdeviceptr, stream: CUstream) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.stream_context(stream)?;
    if dptr == 0 || graph_memory::captured_free(&mut process, stream, dptr)? {
        return Ok(());
    }
    process.free(driver, dptr).map(|_| ())
}

pub fn create(pool: Out<CUmemoryPool>, props: In<CUmemPoolProps>) -> Answer {
    const PINNED: c_int = 1;
    const ON_DEVICE: c_int = 1;
    let driver = driver::get()?;
    let (pool, props) = (pool.required()?, props.required()?);
    if props.allocType != PINNED || props.location.type_ != ON_DEVICE {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let device = driver.ordinal(props.location.id)?;
    let mut process = driver.lock();
    process.pools.push(Pool::new(device, props.maxSize as u64));
    pool.set(handle_of(PoolId(process.pools.len() as u32 - 1)));
    Ok(())
}

pub fn destroy(pool: CUmemoryPool) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.pool_of(pool)?;
    if (id.0 as usize) < driver.count() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    process.pool_mut(id).open = false;
    for device in driver.ordinals() {
        if process.current_pools[device.0] == id {
            process.current_pools[device.0] = PoolId(device.0 as u32);
        }
    }
    process.shrink(driver, id, 0);
    Ok(())
}

pub fn set_attribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: Out<c_void>) -> Answer {
    use pool_attribute::*;
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.pool_of(pool)?;
    if value.is_null() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let pool = process.pool_mut(id);
    match attr {
        REUSE_FOLLOW_EVENT_DEPENDENCIES..=REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            pool.reuse[attr as usize - 1] = (value.cast::<c_int>().required()?.get() != 0).into();
        }
        RELEASE_THRESHOLD => {
            pool.threshold = value.cast::<u64>().required()?.get();
            pool.dirty = true;
        }
        // A high-water mark can only be reset.
        RESERVED_MEM_HIGH | USED_MEM_HIGH => {
            if value.cast::<u64>().required()?.get() != 0 {
                return Err(CUresult::ERROR_INVALID_VALUE);
            }
            let mark = if attr == USED_MEM_HIGH {
                &mut pool.used
            } else {
                &mut pool.reserved
            };
            mark.high = mark.now;
        }
        _ => return Err(CUresult::ERROR_INVALID_VALUE),
    }
    Ok(())
}

pub fn get_attribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: Out<c_void>) -> Answer {
    use pool_attribute::*;
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.pool_of(pool)?;
    let pool = process.pool_mut(id);
    let number = match attr {
        REUSE_FOLLOW_EVENT_DEPENDENCIES..=REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            value
                .cast::<c_int>()
                .required()?
                .set(pool.reuse[attr as usize - 1]);
            return Ok(());
        }
        RELEASE_THRESHOLD => pool.threshold,
        RESERVED_MEM_CURRENT => pool.reserved.now,
        RESERVED_MEM_HIGH => pool.reserved.high,
        USED_MEM_CURRENT => pool.used.now,
        USED_MEM_HIGH => pool.used.high,
        _ => return Err(CUresult::ERROR_INVALID_VALUE),
    };
    value.cast::<u64>().required()?.set(number);
    Ok(())
}

pub fn trim_to(pool: CUmemoryPool, keep: usize) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.pool_of(pool)?;
    process.shrink(driver, id, keep as u64);
    Ok(())
}

pub fn default_of_device(pool: Out<CUmemoryPool>, dev: CUdevice) -> Answer {
    let driver = driver::get()?;
    let pool = pool.required()?;
    pool.set(handle_of(PoolId(driver.ordinal(dev)?.0 as u32)));
    Ok(())
}

pub fn of_device(pool: Out<CUmemoryPool>, dev: CUdevice) -> Answer {
    let driver = driver::get()?;
    let pool = pool.required()?;
    let device = driver.ordinal(dev)?;
    pool.set(handle_of(driver.lock().current_pools[device.0]));
    Ok(())
}

pub fn set_of_device(dev: CUdevice, pool: CUmemoryPool) -> Answer {
    let driver = driver::get()?;
    let device = driver.ordinal(dev)?;
    let mut process = driver.lock();
    let id = process.pool_of(pool)?;
    if process.pool_mut(id).device != device {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    process.current_pools[device.0] = id;
    Ok(())
}
