//! Pools between processes: a descriptor names a pool, and 64 bytes name an allocation in it.
//!
//! What a pool lends is one object of the world, a store, whose contents are laid out as the pool's addresses are. A step of
//! which a pointer was exported is in it from then on, whatever its maker frees or trims, and goes with it: when the pool has
//! ended, every import of it, and every descriptor (H200, 580.159.04: `fixtures/oracle/shared-pools-580.txt`).

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::IntoRawFd;

use abi::cuda::enumerations::*;
use abi::cuda::*;
use mock_device::{Bytes, Kind, Object, ObjectId};

use crate::boundary::{Answer, Host, Out, descriptor};
use crate::driver::{self, Driver};
use crate::pool::{Pool, handle_of};
use crate::process::{Owner, PoolId, Process};
use crate::vmm::importable;

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
const FAILED: CUresult = CUresult::ERROR_OPERATING_SYSTEM;
const POSIX_DESCRIPTOR: c_int = 1;

/// What a pool shares.
#[derive(Default)]
pub struct Shares {
    /// Of a pool made here that was exported.
    store: Option<Object<'static>>,
    /// Numbers of the steps that are in the store.
    kept: BTreeSet<u64>,
    /// Of a pool made elsewhere.
    pub imported: Option<Import>,
}

/// A pool made elsewhere, or here and imported all the same.
pub struct Import {
    store: Object<'static>,
    /// How often it was imported, less how often it was destroyed.
    times: u32,
    /// Its allocations that were imported, by where they are here.
    mapped: BTreeMap<u64, Mapped>,
}

struct Mapped {
    /// First byte in the store, and length.
    lies: (u64, u64),
    /// The steps around it: where they begin here, and their length.
    steps: (u64, u64),
}

impl Shares {
    pub fn keeps(&self, number: u64) -> bool {
        self.kept.contains(&number)
    }

    pub fn count_kept(&self, numbers: &[u64]) -> u64 {
        numbers.iter().filter(|number| self.keeps(**number)).count() as u64
    }

    pub fn show(&self, reserved: impl Fn(&u64) -> bool, step: Bytes) {
        let count = self.kept.iter().filter(|number| reserved(number)).count();
        if let Some(store) = &self.store {
            store.show(Bytes(count as u64 * step.0));
        }
    }
}

impl Import {
    /// The steps around an allocation that begins at `address`.
    pub fn mapping_of(&self, address: u64) -> Option<(u64, u64)> {
        self.mapped.get(&address).map(|mapped| mapped.steps)
    }

    /// Where an allocation is mapped.
    fn place_of(&self, lies: (u64, u64)) -> Option<u64> {
        let mut mapped = self.mapped.iter();
        let found = mapped.find(|(_, mapped)| mapped.lies == lies);
        found.map(|(address, _)| *address)
    }
}

/// CUmemPoolPtrExportData's eight words: mark, store, where in it the allocation lies, its size, what it takes.
type Words = [u64; 8];
const MARK: u64 = u64::from_le_bytes(*b"ringpool");

pub fn export(
    out: Out<c_void>,
    pool: CUmemoryPool,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let out = out.cast::<c_int>().required()?;
    let id = process.pool_of(pool)?;
    let pool = process.pool_mut(id);
    let allowed = pool.handle_types & POSIX_DESCRIPTOR != 0 && !pool.is_imported();
    if kind != POSIX_DESCRIPTOR || flags != 0 || !allowed {
        return Err(INVALID);
    }
    let store = match &mut pool.shares.store {
        Some(store) => store,
        none => {
            let index = driver.index(pool.device);
            let made = driver.world.new_store(index, Kind::Pool);
            none.insert(made.map_err(|_| FAILED)?)
        }
    };
    let exported = store.export().map_err(|_| FAILED)?;
    out.set(exported.into_raw_fd());
    Ok(())
}

/// The same pool again is the same handle, to be destroyed once more.
pub fn import(
    out: Out<CUmemoryPool>,
    os_handle: Host,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let out = out.required()?;
    if os_handle.0 == 0 || flags != 0 {
        return Err(INVALID);
    }
    out.set(CUmemoryPool::NULL);
    importable(os_handle, kind)?;
    let fd = descriptor(os_handle.0).ok_or(CUresult::ERROR_UNKNOWN)?;
    let store = driver.world.import_object(fd).map_err(|_| INVALID)?;
    if store.kind() != Kind::Pool || !store.is_store() {
        return Err(INVALID);
    }
    if let Some(id) = process.import_again(store.id()) {
        out.set(handle_of(id));
        return Ok(());
    }
    let device = driver
        .ordinals()
        .find(|ordinal| driver.index(*ordinal) == store.device())
        .ok_or(INVALID)?;
    let mut pool = Pool::new(device, 0);
    pool.shares.imported = Some(Import {
        store,
        times: 1,
        mapped: BTreeMap::new(),
    });
    out.set(process.enter_pool(pool));
    Ok(())
}

/// The steps around the allocation are the store's from here on; the words say where in it the allocation lies.
pub fn export_pointer(out: Out<CUmemPoolPtrExportData>, address: CUdeviceptr) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let out = out.required()?;
    let allocation = *process.allocations.get(&address).ok_or(INVALID)?;
    let Owner::Pool(id) = allocation.owner else {
        return Err(INVALID);
    };
    let step = driver.profile(allocation.device).pool_step.0;
    let pool = process.pool_mut(id);
    // A pool that was never exported itself exports nothing of what is in it.
    let Some(store) = pool.shares.store.as_ref().map(Object::id) else {
        return Err(INVALID);
    };
    let lies = address - pool.base();
    let numbers = pool.steps_of(address, allocation.taken, step);
    // All or none.
    let mut each = numbers.clone();
    if each.any(|number| process.is_another_object(driver, id, number)) {
        return Err(CUresult::ERROR_NOT_SUPPORTED);
    }
    for number in numbers {
        process.lend(driver, id, number)?;
    }
    let words: Words = [
        MARK,
        store.0,
        lies,
        allocation.size,
        allocation.taken,
        0,
        0,
        0,
    ];
    out.cast::<Words>().set(words);
    Ok(())
}

/// The same words again are the same address, to be freed once.
pub fn import_pointer(
    out: Out<CUdeviceptr>,
    pool: CUmemoryPool,
    data: Out<CUmemPoolPtrExportData>,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let out = out.required()?;
    if pool.is_null() {
        return Err(INVALID);
    }
    let data = data.required()?;
    out.set(0);
    let id = process.pool_of(pool)?;
    let [mark, store, at, size, taken, ..] = data.cast::<Words>().get();
    let import = process.pool_mut(id).shares.imported.as_ref();
    let import = import.filter(|import| mark == MARK && import.store.id() == ObjectId(store));
    let address = match import.ok_or(INVALID)?.place_of((at, taken)) {
        Some(known) => known,
        None => {
            let context = process.current()?;
            let address = process.map_imported(driver, id, (at, taken))?;
            process.enter(address, size, taken, context, Owner::Pool(id));
            address
        }
    };
    out.set(address);
    Ok(())
}

impl Process {
    /// Whether the pool lends the step that holds an address.
    pub fn is_lent(&self, driver: &Driver, address: u64) -> bool {
        let Some((_, allocation)) = self.holding(address, 0) else {
            return false;
        };
        let Owner::Pool(id) = allocation.owner else {
            return false;
        };
        let pool = &self.pools[id.0 as usize];
        let step = driver.profile(pool.device).pool_step.0;
        let mut numbers = pool.steps_of(address, 1, step);
        !pool.is_imported() && numbers.any(|number| pool.shares.keeps(number))
    }

    /// Whether a dma-buf was made of a step, which is an object of its own: no card was asked what it says then.
    fn is_another_object(&mut self, driver: &Driver, id: PoolId, number: u64) -> bool {
        let pool = self.pool_mut(id);
        let step = driver.profile(pool.device).pool_step.0;
        let start = pool.base() + number * step;
        !pool.shares.keeps(number) && self.sharing.object(start).is_some()
    }

    /// Puts a step into its pool's store, contents and all.
    fn lend(&mut self, driver: &Driver, id: PoolId, number: u64) -> Answer {
        if self.pool_mut(id).shares.keeps(number) {
            return Ok(());
        }
        let device = self.pool_mut(id).device;
        let step = driver.profile(device).pool_step.0;
        let (start, place) = (self.pool_mut(id).base() + number * step, number * step);
        self.others_look(driver);
        let end = start + step;
        let (pool, arena) = self.pool_and_arena(driver, id)?;
        let contents = &mut arena.contents;
        let store = pool.shares.store.as_ref().ok_or(INVALID)?;
        let len = store.file().metadata().map_err(|_| FAILED)?.len();
        if len < place + step {
            store.file().set_len(place + step).map_err(|_| FAILED)?;
        }
        let shared = contents.share(start, end, (store.file(), place), true);
        shared.map_err(|_| FAILED)?;
        if store.put(Bytes(step)).is_err() {
            contents.forget(start, end);
            return Err(FAILED);
        }
        pool.shares.kept.insert(number);
        Ok(())
    }

    /// A pool has ended: what it lent is its importers'.
    pub fn end_lending(&mut self, driver: &Driver, id: PoolId) {
        let pool = self.pool_mut(id);
        let (device, base) = (pool.device, pool.base());
        let step = driver.profile(device).pool_step.0;
        let kept = std::mem::take(&mut pool.shares.kept);
        pool.shares.store = None;
        if let Ok(arena) = self.arena(driver, device) {
            for start in kept.into_iter().map(|number| base + number * step) {
                arena.contents.forget(start, start + step);
            }
        }
    }

    /// The import of a store that this process has already, counted once more.
    fn import_again(&mut self, store: ObjectId) -> Option<PoolId> {
        let mut imports = self.pools.iter_mut().enumerate();
        imports.find_map(|(index, pool)| {
            let import = pool.shares.imported.as_mut()?;
            (import.store.id() == store).then(|| {
                import.times += 1;
                PoolId(index as u32)
            })
        })
    }

    /// Destroys an imported pool, once for each time that it was imported; never while something of it is imported.
    pub fn end_import(&mut self, id: PoolId) -> Answer {
        let pool = self.pool_mut(id);
        let import = pool.shares.imported.as_mut().ok_or(INVALID)?;
        if !import.mapped.is_empty() {
            return Err(INVALID);
        }
        import.times -= 1;
        if import.times == 0 {
            pool.open = false;
            pool.shares.imported = None;
        }
        Ok(())
    }

    /// Addresses for the steps around an allocation of an imported pool; answers the allocation's.
    fn map_imported(
        &mut self,
        driver: &Driver,
        id: PoolId,
        lies: (u64, u64),
    ) -> Result<u64, CUresult> {
        let device = self.pool_mut(id).device;
        let step = driver.profile(device).pool_step.0;
        let (at, taken) = lies;
        let first = at / step * step;
        let end = at.checked_add(taken).ok_or(INVALID)?;
        let len = end.checked_next_multiple_of(step).ok_or(INVALID)? - first;
        self.others_look(driver);
        let (pool, arena) = self.pool_and_arena(driver, id)?;
        let import = pool.shares.imported.as_mut().ok_or(INVALID)?;
        let file = import.store.file();
        if first + len > file.metadata().map_err(|_| FAILED)?.len() {
            return Err(INVALID);
        }
        let full = CUresult::ERROR_OUT_OF_MEMORY;
        let base = arena.holes.take_aligned(len, step).ok_or(full)?;
        let shared = arena.contents.share(base, base + len, (file, first), false);
        if shared.is_err() {
            arena.holes.give(base, len);
            return Err(FAILED);
        }
        let (address, steps) = (base + (at - first), (base, len));
        import.mapped.insert(address, Mapped { lies, steps });
        Ok(address)
    }

    /// An imported allocation is freed.
    pub fn free_imported(&mut self, driver: &Driver, id: PoolId, address: u64) {
        let pool = self.pool_mut(id);
        let device = pool.device;
        let import = pool.shares.imported.as_mut();
        let mapped = import.and_then(|import| import.mapped.remove(&address));
        if let Some(Mapped { steps, .. }) = mapped
            && let Ok(arena) = self.arena(driver, device)
        {
            arena.contents.forget(steps.0, steps.0 + steps.1);
            arena.holes.give(steps.0, steps.1);
        }
    }
}
