//! cuMemAlloc and its kin: 2 MiB blocks, in which small allocations lie 512 bytes apart.

use abi::cuda::*;
use mock_device::Kind;

use crate::boundary::{Answer, Out};
use crate::driver::{self, Driver};
use crate::process::{ContextId, Owner, Process};

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
                small.add(base, block);
                small.allocate(taken).expect("a fresh block has room")
            }
        };
        self.enter(address, size, taken, context, Owner::Shared);
        Ok(address)
    }

    /// Ends an allocation of any origin; INVALID_VALUE where none begins at `address`.
    pub fn free(&mut self, driver: &Driver, address: u64) -> Result<Owner, CUresult> {
        if let Some(freed) = crate::graph_memory::free(self, address) {
            return freed.map(|()| Owner::Graph);
        }
        let allocation = self
            .allocations
            .remove(&address)
            .ok_or(CUresult::ERROR_INVALID_VALUE)?;
        let device = allocation.device;
        match allocation.owner {
            Owner::Blocks => {
                self.give_back(driver, device, Kind::Memory, address, allocation.taken)
            }
            Owner::Managed => {
                self.give_back(driver, device, Kind::Managed, address, allocation.taken)
            }
            Owner::Shared => {
                let small = &mut self.context_mut(allocation.context).small;
                if let Some((base, len)) = small.free(address, allocation.taken) {
                    small.remove(base);
                    self.give_back(driver, device, Kind::Memory, base, len);
                } else if let Ok(arena) = self.arena(driver, device) {
                    arena.contents.forget(address, address + allocation.taken);
                }
            }
            Owner::Graph => {}
            Owner::Module => {
                self.free_variable(driver, allocation.context, address, allocation.taken)
            }
            Owner::Pool(pool) => self.free_in_pool(driver, pool, address, allocation.taken),
        }
        Ok(allocation.owner)
    }
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
    let context = process.current()?;
    let dptr = dptr.required()?;
    answer(&dptr, process.allocate(driver, context, size as u64))
}

pub fn alloc_pitch(
    dptr: Out<CUdeviceptr>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    element: c_uint,
) -> Answer {
    const PITCH: usize = 512;
    let driver = driver::get()?;
    let mut process = driver.lock();
    let context = process.current()?;
    let (dptr, pitch) = (dptr.required()?, pitch.required()?);
    if width == 0 || height == 0 || !matches!(element, 4 | 8 | 16) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let row = width
        .checked_next_multiple_of(PITCH)
        .ok_or(CUresult::ERROR_INVALID_VALUE)?;
    let size = row
        .checked_mul(height)
        .ok_or(CUresult::ERROR_OUT_OF_MEMORY)?;
    answer(&dptr, process.allocate(driver, context, size as u64))?;
    pitch.set(row);
    Ok(())
}

/// Managed memory is charged whole at its creation, to the current device (FINDINGS 15's R15).
pub fn alloc_managed(dptr: Out<CUdeviceptr>, size: usize, flags: c_uint) -> Answer {
    let dptr = dptr.required()?;
    if size == 0 || !matches!(flags, 1 | 2) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    let driver = driver::get()?;
    let mut process = driver.lock();
    let context = process.current()?;
    let device = process.context(context).device;
    let block = driver.profile(device).block.0;
    let taken = (size as u64)
        .checked_next_multiple_of(block)
        .ok_or(CUresult::ERROR_OUT_OF_MEMORY)?;
    let allocated = process.take(driver, device, Kind::Managed, taken);
    if let Ok(address) = allocated {
        process.enter(address, size as u64, taken, context, Owner::Managed);
        process
            .arena(driver, device)?
            .contents
            .expose(address, taken);
    }
    answer(&dptr, allocated)
}

pub fn free(dptr: CUdeviceptr) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.current()?;
    if dptr == 0 {
        return Ok(());
    }
    if process.allocations.get(&dptr).map(|known| known.owner) == Some(Owner::Module) {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    // A synchronising free: what its pool holds beyond the threshold goes back too.
    if let Owner::Pool(_) = process.free(driver, dptr)? {
        process.settle_pools(driver);
    }
    Ok(())
}

pub fn get_info(free: Out<usize>, total: Out<usize>) -> Answer {
    let driver = driver::get()?;
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

/// The 32-bit entry points refuse every context but their own generation's, and that has no addresses to give.
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

pub fn get_info_32(_free: Out<c_uint>, _total: Out<c_uint>) -> Answer {
    only_legacy()
}

pub fn alloc_32(_dptr: Out<CUdeviceptr_v1>, _size: c_uint) -> Answer {
    only_legacy()
}

pub fn free_32(_dptr: CUdeviceptr_v1) -> Answer {
    only_legacy()
}
