//! cuMemAlloc and its kin: 2 MiB blocks, in which small allocations lie 512 bytes apart.

use std::collections::btree_map::Entry;

use abi::cuda::*;
use mock_device::Kind;

use crate::boundary::{Answer, Out};
use crate::driver::{self, Driver};
use crate::pool::When;
use crate::process::{Allocation, ContextId, Owner, Process};
use crate::stream;

impl Process {
    pub fn allocate(
        &mut self,
        driver: &Driver,
        context: ContextId,
        size: u64,
    ) -> Result<u64, CUresult> {
        if size == 0 {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        let device = self.context(context).device;
        let profile = driver.profile(device);
        let block = profile.block.0;
        if size >= block {
            let taken = size
                .checked_next_multiple_of(block)
                .ok_or(CUresult::ERROR_OUT_OF_MEMORY)?;
            let address = self.take(driver, device, Kind::Memory, taken)?;
            self.enter(address, size, taken, context, Owner::Blocks);
            return Ok(address);
        }
        let taken = size.next_multiple_of(profile.suballocation.0);
        let address = match self.context_mut(context).small.allocate(taken) {
            Some(address) => address,
            None => {
                let base = self.take(driver, device, Kind::Memory, block)?;
                let small = &mut self.context_mut(context).small;
                small.begin(base, block, taken)
            }
        };
        self.enter(address, size, taken, context, Owner::Shared);
        Ok(address)
    }

    /// Ends an allocation of any origin; INVALID_VALUE where none begins at `address`. What IPC opened is closed instead.
    pub fn free(&mut self, driver: &Driver, address: u64, when: When) -> Result<Owner, CUresult> {
        if let Some(freed) = crate::graph_memory::free(self, address) {
            return freed.map(|()| Owner::Graph);
        }
        let invalid = CUresult::ERROR_INVALID_VALUE;
        let Entry::Occupied(found) = self.allocations.entry(address) else {
            return Err(invalid);
        };
        if found.get().owner == Owner::Opened {
            return Err(invalid);
        }
        let allocation = found.remove();
        self.end_allocation(driver, address, &allocation, when);
        Ok(allocation.owner)
    }

    fn end_allocation(
        &mut self,
        driver: &Driver,
        address: u64,
        allocation: &Allocation,
        when: When,
    ) {
        let (device, taken) = (allocation.device, allocation.taken);
        match allocation.owner {
            Owner::Blocks => self.give_back(driver, device, Kind::Memory, address, taken),
            Owner::Managed => self.free_managed(driver, device, address, taken),
            Owner::Shared => {
                let small = &mut self.context_mut(allocation.context).small;
                if let Some((base, len)) = small.free(address, taken) {
                    self.give_back(driver, device, Kind::Memory, base, len);
                } else if let Ok(arena) = self.arena(driver, device) {
                    arena.contents.forget(address, address + taken);
                }
            }
            Owner::Graph => {}
            Owner::Module => self.free_variable(driver, allocation.context, address, taken),
            Owner::Pool(pool) if self.pool_mut(pool).is_imported() => {
                self.free_imported(driver, pool, address);
            }
            Owner::Pool(pool) => {
                let counted = if when == When::Now {
                    0
                } else {
                    allocation.size
                };
                self.free_in_pool(driver, pool, address, taken, counted, when);
            }
            Owner::External(import) => self.free_external(driver, import, address),
            Owner::Narrow => self.end_narrow(driver, address, allocation),
            Owner::Opened => self.close_opened(driver, address),
        }
    }

    /// All of a context's allocations, at its end; what lives in pools is the process's.
    pub fn end_allocations(&mut self, driver: &Driver, id: ContextId) {
        let ends = |allocation: &Allocation| {
            allocation.context == id && !matches!(allocation.owner, Owner::Pool(_))
        };
        let gone: Vec<(u64, Allocation)> = self
            .allocations
            .extract_if(.., |_, allocation| ends(allocation))
            .collect();
        for (address, allocation) in gone {
            self.end_allocation(driver, address, &allocation, When::Now);
        }
    }
}

/// The driver begins with zeros: what a call that fails later leaves behind.
pub fn zeroed<T: Default>(out: Out<T>) -> Out<T> {
    if let Some(slot) = out.slot() {
        slot.set(T::default());
    }
    out
}

/// Gives an allocation's address, or 0 where it failed: the driver writes it either way.
pub fn answer(
    dptr: &crate::boundary::Slot<CUdeviceptr>,
    allocated: Result<u64, CUresult>,
) -> Answer {
    dptr.set(allocated.unwrap_or(0));
    allocated.map(|_| ())
}

pub fn alloc(dptr: Out<CUdeviceptr>, size: usize) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let dptr = zeroed(dptr);
    let context = process.current()?;
    let dptr = dptr.required()?;
    answer(&dptr, process.allocate(driver, context, size as u64))
}

/// Bytes from row to row.
pub fn pitched(width: usize, height: usize, element: c_uint) -> Result<usize, CUresult> {
    const PITCH: usize = 512;
    if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    width
        .checked_next_multiple_of(PITCH)
        .ok_or(CUresult::ERROR_INVALID_VALUE)
}

pub fn alloc_pitch(
    dptr: Out<CUdeviceptr>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    element: c_uint,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let (dptr, pitch) = (zeroed(dptr), zeroed(pitch));
    let context = process.current()?;
    let (dptr, pitch) = (dptr.required()?, pitch.required()?);
    let row = pitched(width, height, element)?;
    // The pitch is told even where there is no room.
    pitch.set(row);
    let size = row
        .checked_mul(height)
        .ok_or(CUresult::ERROR_OUT_OF_MEMORY)?;
    answer(&dptr, process.allocate(driver, context, size as u64))
}

pub fn free(dptr: CUdeviceptr) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    // Without a current context it frees all the same (ffmpeg's thumbnail_cuda does), but not in a destroyed one.
    match process.current() {
        Ok(_) | Err(CUresult::ERROR_INVALID_CONTEXT) => {}
        Err(destroyed) => return Err(destroyed),
    }
    if dptr == 0 {
        return Ok(());
    }
    let mut waited_for = None;
    if let Some(&Allocation { owner, context, .. }) = process.allocations.get(&dptr) {
        if owner == Owner::Module {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        // Work that may still use it ends first.
        if process.context(context).alive {
            process = stream::wait_for_context(driver, process, context);
        }
        waited_for = Some(process.reached_context(context));
    }
    // A synchronising free: what its pool holds beyond the threshold goes back too.
    if let (Owner::Pool(_), Some(reached)) = (process.free(driver, dptr, When::Now)?, waited_for) {
        process.settle_pools(driver, &reached);
    }
    Ok(())
}

pub fn get_info(free: Out<usize>, total: Out<usize>) -> Answer {
    let driver = driver::get()?;
    let (free, total) = (zeroed(free), zeroed(total));
    let context = driver.lock().current()?;
    let device = driver.lock().context(context).device;
    if let Some(free) = free.optional() {
        let profile = driver.profile(device);
        free.set(
            driver
                .world
                .free(driver.index(device))
                .0
                .min(profile.cuda_total.0) as usize,
        );
    }
    if let Some(total) = total.optional() {
        total.set(driver.profile(device).cuda_total.0 as usize);
    }
    Ok(())
}

/// 32-bit entry points that are not simulated refuse every context but their own generation's.
pub fn only_legacy() -> Answer {
    let driver = driver::get()?;
    let process = driver.lock();
    let context = process.current()?;
    let legacy = process.context(context).legacy;
    Err(if legacy {
        CUresult::ERROR_NOT_SUPPORTED
    } else {
        CUresult::ERROR_INVALID_CONTEXT
    })
}
