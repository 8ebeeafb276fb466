//! Managed memory: addresses at its creation, device memory block by block as work touches it.

use std::collections::{BTreeMap, BTreeSet};

use abi::cuda::*;
use mock_device::{Bytes, Kind};

use crate::advice::Advised;
use crate::arena::Blocks;
use crate::boundary::{Answer, Out};
use crate::driver::{self, Driver, Ordinal};
use crate::memory::answer;
use crate::process::{ContextId, Owner, Process};

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
/// What the driver keeps of a device from the first managed byte there on, and what it takes ahead of need (H200: 128 MiB
/// went with the first byte, the next 64 MiB of bytes cost nothing, and each free gave its own back). No context's end gives it back.
const FIRST_TOUCH: u64 = 64 << 20;
const AHEAD: u64 = 64 << 20;
/// Blocks of this size come to a device as a whole.
const BLOCK: u64 = 2 << 20;
#[derive(Default)]
pub struct Managed {
    /// Blocks that small allocations share, by device.
    small: BTreeMap<usize, Blocks>,
    pub advised: Advised,
    /// Blocks whose bytes a device has, by address.
    resident: BTreeSet<u64>,
    /// Of devices that were touched: what the driver took there ahead of need and has not used yet.
    spare: BTreeMap<usize, u64>,
}

impl Process {
    /// Memory of a context's: one that is asked for, or a variable.
    pub fn allocate_managed(
        &mut self,
        driver: &Driver,
        context: ContextId,
        size: u64,
    ) -> Result<u64, CUresult> {
        let device = self.context(context).device;
        let full = CUresult::ERROR_OUT_OF_MEMORY;
        let (address, taken) = if size >= BLOCK {
            let taken = size.checked_next_multiple_of(BLOCK).ok_or(full)?;
            let holes = &mut self.arena(driver, device)?.holes;
            (holes.take(taken).ok_or(full)?, taken)
        } else {
            let taken = size.next_multiple_of(driver.profile(device).suballocation.0);
            let small = self.managed.small.entry(device.0).or_default();
            let address = match small.allocate(taken) {
                Some(address) => address,
                None => {
                    let base = self.arena(driver, device)?.holes.take(BLOCK).ok_or(full)?;
                    self.arena(driver, device)?.contents.expose(base, BLOCK);
                    let small = self.managed.small.entry(device.0).or_default();
                    small.begin(base, BLOCK, taken)
                }
            };
            (address, taken)
        };
        if size >= BLOCK {
            self.arena(driver, device)?.contents.expose(address, taken);
        }
        self.enter(address, size, taken, context, Owner::Managed);
        Ok(address)
    }

    /// Ends a managed allocation: its blocks leave the device.
    pub fn free_managed(&mut self, driver: &Driver, device: Ordinal, address: u64, taken: u64) {
        let (base, len) = if taken >= BLOCK {
            (address, taken)
        } else {
            let small = self.managed.small.entry(device.0).or_default();
            match small.free(address, taken) {
                Some(block) => block,
                None => return,
            }
        };
        let gone: Vec<u64> = self
            .managed
            .resident
            .range(base..base + len)
            .copied()
            .collect();
        for block in &gone {
            self.managed.resident.remove(block);
        }
        let index = driver.index(device);
        let bytes = Bytes(gone.len() as u64 * BLOCK);
        driver.world.give_back(index, Kind::Managed, bytes);
        self.managed.advised.forget(base, base + len);
        if let Ok(arena) = self.arena(driver, device) {
            arena.contents.forget(base, base + len);
            arena.holes.give(base, len);
        }
    }

    /// Work on a device touches a range: what of it is managed comes there. Where the device is full it stays on the host.
    pub fn populate(&mut self, driver: &Driver, address: u64, len: u64) {
        let Some((_, allocation)) = self.holding(address, len) else {
            return;
        };
        if allocation.owner != Owner::Managed {
            return;
        }
        let device = allocation.device;
        let index = driver.index(device);
        self.touch_managed(driver, device);
        for block in (address / BLOCK..=(address + len - 1) / BLOCK).map(|block| block * BLOCK) {
            if self.managed.resident.contains(&block) {
                continue;
            }
            self.use_ahead(driver, device, BLOCK);
            if driver
                .world
                .take(index, Kind::Managed, Bytes(BLOCK))
                .is_err()
            {
                return;
            }
            self.managed.resident.insert(block);
        }
    }

    /// The first managed bytes of a device cost more than themselves.
    fn touch_managed(&mut self, driver: &Driver, device: Ordinal) {
        if !self.managed.spare.contains_key(&device.0) {
            self.take_ahead(driver, device, AHEAD);
        }
    }

    fn take_ahead(&mut self, driver: &Driver, device: Ordinal, spare: u64) {
        let index = driver.index(device);
        let bytes = Bytes(FIRST_TOUCH + spare);
        if driver.world.take(index, Kind::Managed, bytes).is_ok() {
            self.managed.spare.insert(device.0, spare);
        }
    }

    /// The same where these bytes are the device's already: they are part of what is taken ahead.
    pub fn touch_managed_for(&mut self, driver: &Driver, device: Ordinal, bytes: u64) {
        match self.managed.spare.contains_key(&device.0) {
            true => self.use_ahead(driver, device, bytes),
            false => self.take_ahead(driver, device, AHEAD.saturating_sub(bytes)),
        }
    }

    /// Gives memory that was taken ahead of need back, for something else to take.
    fn use_ahead(&mut self, driver: &Driver, device: Ordinal, bytes: u64) {
        if let Some(spare) = self.managed.spare.get_mut(&device.0) {
            let used = bytes.min(*spare);
            *spare -= used;
            let index = driver.index(device);
            driver.world.give_back(index, Kind::Managed, Bytes(used));
        }
    }

    /// INVALID_VALUE for a range that no one managed allocation holds.
    pub fn managed_range(&self, address: u64, len: u64) -> Result<(u64, u64), CUresult> {
        let (_, allocation) = self
            .holding(address, len)
            .filter(|_| len > 0)
            .ok_or(INVALID)?;
        if allocation.owner == Owner::Managed {
            Ok((address, address + len))
        } else {
            Err(INVALID)
        }
    }
}

pub fn alloc(dptr: Out<CUdeviceptr>, size: usize, flags: c_uint) -> Answer {
    const KNOWN: std::ops::RangeInclusive<c_uint> = 1..=2;
    let dptr = dptr.required()?;
    let driver = driver::get()?;
    let mut process = driver.lock();
    dptr.set(0);
    let context = process.current()?;
    if size == 0 || !KNOWN.contains(&flags) {
        return Err(INVALID);
    }
    let allocated = process.allocate_managed(driver, context, size as u64);
    answer(&dptr, allocated)
}
