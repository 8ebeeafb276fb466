//! Stream-ordered pools: a range of addresses whose 32 MiB steps get memory when something lives in them, and give it
//! back at a synchronisation down to the release threshold, or by a trim. A free alone returns nothing (FINDINGS 13).

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

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
/// CUmemAllocationType.
const PINNED: c_int = 1;
const MANAGED: c_int = 2;

/// One step of a pool, with memory behind it.
#[derive(Default)]
struct Step {
    live: u32,
    /// The last frees of something in it, by line, that nobody has waited for.
    pending: Vec<Freed>,
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

pub struct Pool {
    pub device: Ordinal,
    /// False once cuMemPoolDestroy was called: what still lives in it keeps it.
    pub open: bool,
    max_size: u64,
    threshold: u64,
    reuse: [i32; 3],
    pub handle_types: c_int,
    pub managed: bool,
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

    fn base(&self) -> u64 {
        self.addresses.as_ref().map_or(0, |(base, _)| *base)
    }

    /// The numbers of the steps that a range lies in.
    fn steps_of(&self, address: u64, len: u64, step: u64) -> std::ops::RangeInclusive<u64> {
        let first = (address - self.base()) / step;
        let last = (address + len - 1 - self.base()) / step;
        first..=last
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
        if let Err(error) = self.back_steps(driver, id, address, taken, step) {
            let pool = self.pool_mut(id);
            if let Some((_, holes)) = &mut pool.addresses {
                holes.give(address, taken);
            }
            return Err(error);
        }
        self.pool_mut(id).used.add(size);
        self.enter(address, size, taken, context, Owner::Pool(id));
        Ok(address)
    }

    /// Addresses for all that the device could give, or as many as there are.
    fn open_addresses(&mut self, driver: &Driver, id: PoolId) -> Result<(), CUresult> {
        if self.pool_mut(id).addresses.is_some() {
            return Ok(());
        }
        let (device, managed) = (self.pool_mut(id).device, self.pool_mut(id).managed);
        let profile = driver.profile(device);
        let step = profile.pool_step.0;
        if managed {
            self.touch_managed(driver, device);
            self.use_ahead(driver, device, step);
        }
        let mut span = profile.cuda_total.0.next_multiple_of(step) * 2;
        let holes = &mut self.arena(driver, device)?.holes;
        while span >= step {
            if let Some(base) = holes.take(span) {
                let pool = self.pool_mut(id);
                pool.addresses = Some((base, Holes::new(base, span)));
                pool.span = span;
                return Ok(());
            }
            span /= 2;
        }
        Err(CUresult::ERROR_OUT_OF_MEMORY)
    }

    /// Memory for the steps of a range that have none.
    fn back_steps(
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
        if bytes > 0
            && let Err(error) = self.charge(driver, device, Kind::Pool, bytes)
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
        Ok(())
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
                step.live -= 1;
                if let When::Behind(freed) = when {
                    step.pending.retain(|earlier| earlier.line != freed.line);
                    step.pending.push(freed);
                }
            }
        }
        pool.used.now -= counted.min(pool.used.now);
        pool.dirty = true;
        let open = pool.open;
        if let Ok(arena) = self.arena(driver, device) {
            arena.contents.forget(address, address + taken);
        }
        if !open {
            self.end_pool_if_empty(driver, id);
        }
    }

    /// Returns steps in which nothing lives while more than `keep` is reserved; answers how much went. Without `forced`
    /// those stay whose frees no synchronisation has finished.
    fn shrink(&mut self, driver: &Driver, id: PoolId, keep: u64, forced: bool) -> u64 {
        let device = self.pool_mut(id).device;
        let step = driver.profile(device).pool_step.0;
        let mut gone = 0;
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
            if let Ok(arena) = self.arena(driver, device) {
                arena.contents.forget(start, start + step);
            }
            if !self.sharing.end(start) {
                let index = driver.index(device);
                driver.world.give_back(index, Kind::Pool, Bytes(step));
            }
            gone += step;
        }
        gone
    }

    fn freed_behind(&mut self, context: ContextId, line: LineId) -> When {
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

    fn end_pool_if_empty(&mut self, driver: &Driver, id: PoolId) {
        if self.pool_mut(id).steps.values().any(|step| step.live > 0) {
            return;
        }
        self.shrink(driver, id, 0, true);
        let pool = self.pool_mut(id);
        let (device, span) = (pool.device, pool.span);
        if let Some((base, _)) = pool.addresses.take()
            && let Ok(arena) = self.arena(driver, device)
        {
            arena.holes.give(base, span);
        }
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
            pool.used.now = 0;
            for step in pool.steps.values_mut() {
                step.live = 0;
            }
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

/// The properties that a pool may have, and its device; host pools are not simulated.
fn checked(driver: &Driver, props: &CUmemPoolProps) -> Result<Ordinal, CUresult> {
    const ON_DEVICE: c_int = 1;
    const KNOWN_TYPES: c_int = 1 | 8;
    if !matches!(props.allocType, PINNED | MANAGED) || props.handleTypes & !KNOWN_TYPES != 0 {
        return Err(INVALID);
    }
    match props.location.type_ {
        ON_DEVICE => driver.ordinal(props.location.id).map_err(|_| INVALID),
        2 | 3 => Err(CUresult::ERROR_NOT_SUPPORTED),
        _ => Err(INVALID),
    }
}

pub fn create(pool: Out<CUmemoryPool>, props: In<CUmemPoolProps>) -> Answer {
    let driver = driver::get()?;
    let (pool, props) = (pool.required()?, props.required()?);
    let device = checked(driver, &props)?;
    // More than a process can address: the card refused 2^50 so, and took 64 MiB (between them not measured).
    const ADDRESSES: usize = 1 << 47;
    if props.maxSize > ADDRESSES {
        return Err(CUresult::ERROR_OUT_OF_MEMORY);
    }
    let mut process = driver.lock();
    let mut made = Pool::new(device, props.maxSize as u64);
    made.handle_types = props.handleTypes;
    made.managed = props.allocType == MANAGED;
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
    let defaults = process.managed_pools.values();
    let is_default = defaults.into_iter().any(|[default, _]| *default == id);
    if (id.0 as usize) < driver.count() || is_default {
        return Err(INVALID);
    }
    process.pool_mut(id).open = false;
    for [default, current] in process.managed_pools.values_mut() {
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

pub fn set_attribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: Out<c_void>) -> Answer {
    use pool_attribute::*;
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.own_pool_of(pool)?;
    // The real driver reads the value of a known attribute without looking.
    if value.is_null() {
        match attr {
            REUSE_FOLLOW_EVENT_DEPENDENCIES..=RELEASE_THRESHOLD => crash(),
            _ => return Err(INVALID),
        }
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
                return Err(INVALID);
            }
            let mark = if attr == USED_MEM_HIGH {
                &mut pool.used
            } else {
                &mut pool.reserved
            };
            mark.high = mark.now;
        }
        _ => return Err(INVALID),
    }
    Ok(())
}

pub fn get_attribute(pool: CUmemoryPool, attr: CUmemPool_attribute, value: Out<c_void>) -> Answer {
    use pool_attribute::*;
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.own_pool_of(pool)?;
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
        _ => return Err(INVALID),
    };
    value.cast::<u64>().required()?.set(number);
    Ok(())
}

pub fn trim_to(pool: CUmemoryPool, keep: usize) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.own_pool_of(pool)?;
    process.shrink(driver, id, keep as u64, false);
    Ok(())
}

/// The own device's access is read and write, and cannot be taken away.
pub fn set_access(pool: CUmemoryPool, list: In<CUmemAccessDesc>, count: usize) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.pool_of(pool)?;
    if list.is_null() {
        return Err(INVALID);
    }
    let mut rights = Vec::new();
    for at in 0..count {
        let wanted = list.nth(at).ok_or(INVALID)?;
        if !matches!(wanted.flags, 0 | 1 | 3) {
            return Err(INVALID);
        }
        if wanted.location.type_ != 1 {
            return Err(CUresult::ERROR_NOT_SUPPORTED);
        }
        let device = driver.ordinal(wanted.location.id)?;
        match wanted.flags {
            0 if device == process.pool_mut(id).device => {
                return Err(CUresult::ERROR_INVALID_DEVICE);
            }
            1 => return Err(CUresult::ERROR_NOT_SUPPORTED),
            // A pool without memory learns only at its next allocation what it was promised in vain (NVIDIA's
            // programming guide).
            3 if !process.pool_mut(id).steps.is_empty()
                && !driver.is_open_to(process.pool_mut(id).device, device) =>
            {
                return Err(CUresult::ERROR_INVALID_DEVICE);
            }
            _ => {}
        }
        rights.push((device.0, wanted.flags));
    }
    process.pool_mut(id).access.extend(rights);
    Ok(())
}

pub fn get_access(
    flags: Out<CUmemAccess_flags>,
    pool: CUmemoryPool,
    location: Out<CUmemLocation>,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let flags = flags.required()?;
    let id = process.pool_of(pool)?;
    let location = location.required()?.get();
    match location.type_ {
        1 => {}
        // The host has none of it.
        2 => {
            flags.set(0);
            return Ok(());
        }
        _ => return Err(INVALID),
    }
    let device = driver.ordinal(location.id).map_err(|_| INVALID)?;
    let pool = process.pool_mut(id);
    let own = if device == pool.device { 3 } else { 0 };
    flags.set(pool.access.get(&device.0).copied().unwrap_or(own));
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
    let device = driver.ordinal(dev).map_err(|_| INVALID)?;
    pool.set(handle_of(driver.lock().current_pools[device.0]));
    Ok(())
}

pub fn set_of_device(dev: CUdevice, pool: CUmemoryPool) -> Answer {
    let driver = driver::get()?;
    let device = driver.ordinal(dev).map_err(|_| INVALID)?;
    let mut process = driver.lock();
    let id = process.own_pool_of(pool)?;
    if process.pool_mut(id).device != device {
        return Err(INVALID);
    }
    process.current_pools[device.0] = id;
    Ok(())
}

/// The device that a location and a type of memory have a pool on, and whether the memory is managed.
fn place_of(
    driver: &Driver,
    location: Out<CUmemLocation>,
    kind: c_int,
) -> Result<(Ordinal, bool), CUresult> {
    let location = location.required()?.get();
    match (kind, location.type_) {
        (PINNED | MANAGED, 1) => {
            let device = driver.ordinal(location.id).map_err(|_| INVALID)?;
            Ok((device, kind == MANAGED))
        }
        (PINNED | MANAGED, 2..=4) => Err(CUresult::ERROR_NOT_SUPPORTED),
        _ => Err(INVALID),
    }
}

impl Process {
    /// A device's default pool of managed memory and its current one.
    fn managed_pools(&mut self, device: Ordinal) -> &mut [PoolId; 2] {
        let next = PoolId(self.pools.len() as u32);
        if let std::collections::btree_map::Entry::Vacant(entry) =
            self.managed_pools.entry(device.0)
        {
            entry.insert([next; 2]);
            let mut pool = Pool::new(device, 0);
            pool.managed = true;
            self.pools.push(pool);
        }
        self.managed_pools.entry(device.0).or_insert([next; 2])
    }
}

pub fn default_of_location(
    pool: Out<CUmemoryPool>,
    location: Out<CUmemLocation>,
    kind: c_int,
) -> Answer {
    let driver = driver::get()?;
    let pool = pool.required()?;
    let (device, managed) = place_of(driver, location, kind)?;
    pool.set(handle_of(match managed {
        true => driver.lock().managed_pools(device)[0],
        false => PoolId(device.0 as u32),
    }));
    Ok(())
}

pub fn of_location(pool: Out<CUmemoryPool>, location: Out<CUmemLocation>, kind: c_int) -> Answer {
    let driver = driver::get()?;
    let pool = pool.required()?;
    let (device, managed) = place_of(driver, location, kind)?;
    let mut process = driver.lock();
    pool.set(handle_of(match managed {
        true => process.managed_pools(device)[1],
        false => process.current_pools[device.0],
    }));
    Ok(())
}

pub fn set_of_location(location: Out<CUmemLocation>, kind: c_int, pool: CUmemoryPool) -> Answer {
    let driver = driver::get()?;
    let (device, managed) = place_of(driver, location, kind)?;
    if !managed {
        return set_of_device(device.0 as CUdevice, pool);
    }
    let mut process = driver.lock();
    let id = process.own_pool_of(pool)?;
    let pool = process.pool_mut(id);
    if pool.device != device || !pool.managed {
        return Err(INVALID);
    }
    process.managed_pools(device)[1] = id;
    Ok(())
}
