//! Stream-ordered pools: a range of addresses whose 32 MiB steps get memory when something lives in them, and give it
//! back at a synchronisation down to the release threshold, or by a trim. A free alone returns nothing (decision 13), and a
//! context's end neither: a pool is its process's.

mod attribute;
mod current;
mod steps;

use std::collections::BTreeMap;

use abi::cuda::enumerations::*;
use abi::cuda::*;
use mock_device::{Bytes, Kind};

use crate::arena::Holes;
use crate::boundary::{Answer, In, Out, crash};
use crate::driver::{self, Driver, Ordinal};
use crate::graph_memory;
use crate::handle;
use crate::memory::answer;
use crate::pool_sharing::Shares;
use crate::process::{ContextId, Owner, PoolId, Process};
use crate::timeline::LineId;

pub use self::attribute::*;
pub use self::current::*;
use self::steps::Step;
pub use self::steps::{Reached, When};

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
/// CUmemAllocationType.
const PINNED: c_int = 1;
const MANAGED: c_int = 2;

pub struct Pool {
    pub device: Ordinal,
    /// False once cuMemPoolDestroy was called: what still lives in it keeps it.
    pub open: bool,
    max_size: u64,
    threshold: u64,
    reuse: [i32; 3],
    pub handle_types: c_int,
    pub managed: bool,
    /// The locality domain that it is of.
    pub domain: Option<u8>,
    /// First address and free ranges, from the first allocation on.
    addresses: Option<(u64, Holes)>,
    span: u64,
    /// By number from the first address.
    steps: BTreeMap<u64, Step>,
    reserved: Watermark,
    used: Watermark,
    access: BTreeMap<usize, c_int>,
    /// Whether anything was freed that no synchronisation has come to since.
    dirty: bool,
    pub shares: Shares,
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
            handle_types: 0,
            managed: false,
            domain: None,
            addresses: None,
            span: 0,
            steps: BTreeMap::new(),
            reserved: Watermark::default(),
            used: Watermark::default(),
            access: BTreeMap::new(),
            dirty: false,
            shares: Shares::default(),
        }
    }

    /// Whether work of a device reaches its memory.
    pub fn is_open_to(&self, device: Ordinal) -> bool {
        device == self.device || self.access.get(&device.0).is_some_and(|flags| *flags != 0)
    }

    pub fn is_imported(&self) -> bool {
        self.shares.imported.is_some()
    }

    pub fn base(&self) -> u64 {
        self.addresses.as_ref().map_or(0, |(base, _)| *base)
    }

    /// The numbers of the steps that a range lies in.
    pub fn steps_of(&self, address: u64, len: u64, step: u64) -> std::ops::RangeInclusive<u64> {
        let first = (address - self.base()) / step;
        let last = (address + len - 1 - self.base()) / step;
        first..=last
    }

    /// What was lent of it is in this process's row as far as the pool reserves it.
    fn show_kept(&self, step: u64) {
        let reserved = |number: &u64| self.steps.contains_key(number);
        self.shares.show(reserved, Bytes(step));
    }
}

pub fn handle_of(id: PoolId) -> CUmemoryPool {
    CUmemoryPool(handle::encode(handle::Kind::Pool, id.0) as *mut c_void)
}

impl Process {
    pub fn pool_of(&self, pool: CUmemoryPool) -> Result<PoolId, CUresult> {
        let id = handle::followed(handle::Kind::Pool, pool.0 as u64, INVALID)?;
        match self.pools.get(id as usize) {
            Some(pool) if pool.open => Ok(PoolId(id)),
            _ => Err(INVALID),
        }
    }

    /// A pool that is this process's own.
    fn own_pool_of(&self, pool: CUmemoryPool) -> Result<PoolId, CUresult> {
        let id = self.pool_of(pool)?;
        if self.pools[id.0 as usize].is_imported() {
            return Err(INVALID);
        }
        Ok(id)
    }

    pub fn pool_mut(&mut self, id: PoolId) -> &mut Pool {
        &mut self.pools[id.0 as usize]
    }

    /// The step that holds an address of a pool: its first address and its length.
    pub fn step_around(&self, driver: &Driver, id: PoolId, address: u64) -> (u64, u64) {
        let pool = &self.pools[id.0 as usize];
        let step = driver.profile(pool.device).pool_step.0;
        (pool.base() + (address - pool.base()) / step * step, step)
    }

    pub fn allocate_in_pool(
        &mut self,
        driver: &Driver,
        id: PoolId,
        context: ContextId,
        size: u64,
    ) -> Result<u64, CUresult> {
        if size == 0 {
            return Ok(0);
        }
        let device = self.pool_mut(id).device;
        let vain = |(other, flags): (&usize, &c_int)| {
            *flags != 0 && !driver.is_open_to(device, Ordinal(*other))
        };
        if self.pool_mut(id).access.iter().any(vain) {
            return Err(CUresult::ERROR_INVALID_DEVICE);
        }
        let profile = driver.profile(device);
        let (unit, step) = (profile.suballocation.0, profile.pool_step.0);
        let full = CUresult::ERROR_OUT_OF_MEMORY;
        let taken = size.checked_next_multiple_of(unit).ok_or(full)?;
        self.open_addresses(driver, id)?;
        let pool = self.pool_mut(id);
        let (_, holes) = pool.addresses.as_mut().expect("just opened");
        let address = holes.take(taken).ok_or(full)?;
        let first = pool.managed && pool.steps.is_empty();
        if let Err(error) = self.back_steps(driver, id, address, taken, step) {
            let pool = self.pool_mut(id);
            if let Some((_, holes)) = &mut pool.addresses {
                holes.give(address, taken);
            }
            return Err(error);
        }
        // Behind all that refuses: a request that cannot be met touches nothing (fixtures/oracle/captures-580.txt).
        if first {
            self.touch_managed_for(driver, device, step);
        }
        self.pool_mut(id).used.add(size);
        self.enter(address, size, taken, context, Owner::Pool(id));
        Ok(address)
    }

    /// Addresses for all that the device could give, or as many as there are: from a multiple of a step on.
    fn open_addresses(&mut self, driver: &Driver, id: PoolId) -> Result<(), CUresult> {
        if self.pool_mut(id).addresses.is_some() {
            return Ok(());
        }
        let device = self.pool_mut(id).device;
        let profile = driver.profile(device);
        let step = profile.pool_step.0;
        let mut span = profile.cuda_total.0.next_multiple_of(step) * 2;
        let holes = &mut self.arena(driver, device)?.holes;
        while span >= step {
            if let Some(base) = holes.take_aligned(span, step) {
                let pool = self.pool_mut(id);
                pool.addresses = Some((base, Holes::new(base, span)));
                pool.span = span;
                return Ok(());
            }
            span = span / 2 / step * step;
        }
        Err(CUresult::ERROR_OUT_OF_MEMORY)
    }

    /// `counted` is what leaves the pool's used bytes: nothing after a synchronous free, which the driver forgets to count.
    pub fn free_in_pool(
        &mut self,
        driver: &Driver,
        id: PoolId,
        address: u64,
        taken: u64,
        counted: u64,
        when: When,
    ) {
        let device = self.pool_mut(id).device;
        let step = driver.profile(device).pool_step.0;
        let pool = self.pool_mut(id);
        if let Some((_, holes)) = &mut pool.addresses {
            holes.give(address, taken);
        }
        for number in pool.steps_of(address, taken, step) {
            if let Some(step) = pool.steps.get_mut(&number) {
                step.leave(when);
            }
        }
        pool.used.now -= counted.min(pool.used.now);
        pool.dirty = true;
        let open = pool.open;
        self.forget_in_pool(driver, id, address, taken);
        if !open {
            self.end_pool_if_empty(driver, id);
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
    let allocated = process.own_pool_of(pool).and_then(|pool| {
        let device = process.pool_mut(pool).device;
        match graph_memory::captured_alloc(&mut process, driver, stream, device, size as u64)? {
            // The node's memory is the graphs' own, whatever pool was named.
            Some(address) => Ok(address),
            None => process.allocate_in_pool(driver, pool, context, size as u64),
        }
    });
    answer(&dptr, allocated)
}

/// Managed memory is freed by a synchronous free alone; what IPC opened is closed.
pub fn free_async(dptr: CUdeviceptr, stream: CUstream) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let context = process.stream_context(stream)?;
    if dptr == 0 || graph_memory::captured_free(&mut process, stream, dptr)? {
        return Ok(());
    }
    match process.allocations.get(&dptr).map(|found| found.owner) {
        Some(Owner::Managed) => Err(CUresult::ERROR_NOT_SUPPORTED),
        Some(Owner::Opened) => Err(INVALID),
        _ => {
            let line = process.line_of(stream)?;
            let when = process.freed_behind(context, line);
            process.free(driver, dptr, when).map(|_| ())
        }
    }
}

/// The properties that a pool may have, its device, and its domain there; host pools are not simulated.
fn checked(driver: &Driver, props: &CUmemPoolProps) -> Result<(Ordinal, Option<u8>), CUresult> {
    const KNOWN_TYPES: c_int = 1 | 8;
    if !matches!(props.allocType, PINNED | MANAGED) || props.handleTypes & !KNOWN_TYPES != 0 {
        return Err(INVALID);
    }
    match (driver.place(props.location), props.location.type_) {
        // Managed memory is of no domain, by the header.
        (Some(Ok((_, Some(_)))), _) if props.allocType == MANAGED => Err(INVALID),
        (Some(place), _) => place.map_err(|_| INVALID),
        (None, 2 | 3) => Err(CUresult::ERROR_NOT_SUPPORTED),
        (None, _) => Err(INVALID),
    }
}

pub fn create(pool: Out<CUmemoryPool>, props: In<CUmemPoolProps>) -> Answer {
    let driver = driver::get()?;
    let (pool, props) = (pool.required()?, props.required()?);
    let (device, domain) = checked(driver, &props)?;
    // More than a process can address: the card refused 2^50 so, and took 64 MiB (between them not measured).
    const ADDRESSES: usize = 1 << 47;
    if props.maxSize > ADDRESSES {
        return Err(CUresult::ERROR_OUT_OF_MEMORY);
    }
    let mut process = driver.lock();
    let mut made = Pool::new(device, props.maxSize as u64);
    made.handle_types = props.handleTypes;
    made.managed = props.allocType == MANAGED;
    made.domain = domain;
    pool.set(process.enter_pool(made));
    Ok(())
}

impl Process {
    pub fn enter_pool(&mut self, pool: Pool) -> CUmemoryPool {
        self.pools.push(pool);
        handle_of(PoolId(self.pools.len() as u32 - 1))
    }
}

pub fn destroy(pool: CUmemoryPool) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.pool_of(pool)?;
    let defaults = process.pools_of.values();
    let is_default = defaults.into_iter().any(|[default, _]| *default == id);
    if (id.0 as usize) < driver.count() || is_default {
        return Err(INVALID);
    }
    if process.pool_mut(id).is_imported() {
        return process.end_import(id);
    }
    process.pool_mut(id).open = false;
    for [default, current] in process.pools_of.values_mut() {
        if *current == id {
            *current = *default;
        }
    }
    for device in driver.ordinals() {
        if process.current_pools[device.0] == id {
            process.current_pools[device.0] = PoolId(device.0 as u32);
        }
    }
    process.end_pool_if_empty(driver, id);
    Ok(())
}

pub fn trim_to(pool: CUmemoryPool, keep: usize) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.own_pool_of(pool)?;
    process.shrink(driver, id, keep as u64, false);
    Ok(())
}
