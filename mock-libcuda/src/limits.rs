//! cuCtxGetLimit and cuCtxSetLimit, and what limits take of the device, as an H200 took it.
//!
//! Each thread that an SM can hold has a stack, which is its local memory too: a launch that needs more raises the limit,
//! and nothing but cuCtxSetLimit lowers it. The malloc heap is taken at the first launch that may call malloc.

use abi::cuda::*;
use mock_device::{Bytes, DeviceProfile, Kind};

use crate::boundary::{Answer, Out};
use crate::driver::{self, Driver};
use crate::entry;
use crate::image::Attributes;
use crate::process::{ContextId, Process};

const STACK: CUlimit = 0;
const PRINTF: CUlimit = 1;
const HEAP: CUlimit = 2;
const SYNC_DEPTH: CUlimit = 3;
const LAUNCHES: CUlimit = 4;
const L2_FETCH: CUlimit = 5;
const L2_PERSISTING: CUlimit = 6;
const SHARED: CUlimit = 7;
const CIG: CUlimit = 8;
const CIG_SHARED: CUlimit = 9;
/// CU_LIMIT_PER_BLOCK_MEMORY_SIZE of CUDA 13.4.
const PER_BLOCK: CUlimit = 10;
/// Blocks that an SM holds at once.
const BLOCKS_OF_AN_SM: u64 = 32;

/// What a context's limits hold of its device beside the context's own share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserves {
    /// Bytes of stack more, or less, than a fresh context has.
    stack: i64,
    /// Of the malloc machinery and the heap.
    heap: u64,
    /// Of blocks' own memory.
    per_block: u64,
    machinery: bool,
    heap_taken: bool,
    printf_taken: bool,
}

/// Bytes of stack that a fresh context's threads have.
const FRESH_STACK: u64 = 1024;
/// Bytes of stack are given out in these, per thread.
const STACK_UNIT: usize = 16;
/// The most stack of a thread.
const MOST_STACK: usize = 511 << 10;
/// What loading the first module that calls malloc takes (measured: 138 MiB).
const MALLOC_MACHINERY: u64 = 144_703_488;
/// What the heap takes beyond its size.
const HEAP_MARGIN: u64 = 2 << 20;

/// Bytes of a persisting-L2 carve-out's unit: a sixteenth of the L2.
fn l2_unit(profile: &DeviceProfile) -> usize {
    profile.attribute(38).unwrap_or(0) as usize / 16
}

fn most_persisting(profile: &DeviceProfile) -> usize {
    // As far as measured: 10 of the 16 units.
    l2_unit(profile) * 10
}

fn default(limit: CUlimit, profile: &DeviceProfile) -> Result<usize, CUresult> {
    Ok(match limit {
        STACK => FRESH_STACK as usize,
        PRINTF => profile.sm_count as usize * (64 << 10),
        HEAP => 8 << 20,
        LAUNCHES => 2048,
        L2_FETCH => 64,
        L2_PERSISTING => l2_unit(profile) * 3,
        SHARED => profile.attribute(97).unwrap_or(0) as usize,
        CIG => 0,
        PER_BLOCK if entry::generation().number >= 615 => 0,
        SYNC_DEPTH | CIG_SHARED => return Err(CUresult::ERROR_UNSUPPORTED_LIMIT),
        _ => return Err(CUresult::ERROR_INVALID_VALUE),
    })
}

/// What the driver makes of a wanted value, stack aside.
fn settle(limit: CUlimit, value: usize, profile: &DeviceProfile) -> Result<usize, CUresult> {
    let round =
        |value: usize, unit: usize| value.checked_next_multiple_of(unit).unwrap_or(usize::MAX);
    Ok(match limit {
        PRINTF => round(value.clamp(512 << 10, 2 << 30), 256),
        HEAP => {
            // The bound lies near an eighth of the memory: 17,681,179,680 of an H200's 150,109,880,320 bytes.
            let most = u128::from(profile.cuda_total.0) * 17_681_179_680 / 150_109_880_320;
            round(value.max(4 << 20), 64 << 10).min(most as usize)
        }
        LAUNCHES => value.clamp(32, 599_186),
        L2_FETCH if value <= 128 => value,
        L2_PERSISTING if value <= most_persisting(profile) => match l2_unit(profile) {
            0 => 0,
            unit => round(value, unit),
        },
        PER_BLOCK if value <= 1 << 30 => value,
        SHARED | CIG => return Err(CUresult::ERROR_NOT_PERMITTED),
        _ => return Err(CUresult::ERROR_INVALID_VALUE),
    })
}

/// Device memory of stacks of `bytes` per thread, in whole blocks. The rest of a division finds room beside other memory
/// of the context unless it is nearly a block (measured at seven sizes).
fn stack_bytes(profile: &DeviceProfile, bytes: u64) -> u64 {
    let threads = u64::from(profile.sm_count) * profile.attribute(39).unwrap_or(2048) as u64;
    let (block, wanted) = (profile.block.0, threads * bytes);
    let rest = wanted % block;
    let nearly = rest > block / 8 * 7;
    wanted - rest + if nearly { block } else { 0 }
}

impl Process {
    fn limit(
        &self,
        driver: &Driver,
        context: ContextId,
        limit: CUlimit,
    ) -> Result<usize, CUresult> {
        let known = self.context(context);
        let unset = default(limit, driver.profile(known.device))?;
        Ok(known.limits.get(&limit).copied().unwrap_or(unset))
    }

    /// Takes or returns what stacks of `bytes` per thread need.
    fn set_stack(&mut self, driver: &Driver, context: ContextId, bytes: usize) -> Answer {
        let device = self.context(context).device;
        let profile = driver.profile(device);
        let wanted =
            stack_bytes(profile, bytes as u64) as i64 - stack_bytes(profile, FRESH_STACK) as i64;
        let more = wanted - self.modules.held(context).reserves.stack;
        match u64::try_from(more) {
            Ok(more) => self.charge(driver, device, Kind::Context, more)?,
            Err(_) => driver.world.give_back(
                driver.index(device),
                Kind::Context,
                Bytes(more.unsigned_abs()),
            ),
        }
        self.modules.held(context).reserves.stack = wanted;
        self.context_mut(context).limits.insert(STACK, bytes);
        Ok(())
    }

    /// Takes what memory of its own each block that the device may hold is given. When a driver takes it is not known: here at once, and
    /// until the context's end, as much as was ever wanted.
    fn set_per_block(&mut self, driver: &Driver, context: ContextId, bytes: usize) -> Answer {
        let device = self.context(context).device;
        let blocks = u64::from(driver.profile(device).sm_count) * BLOCKS_OF_AN_SM;
        let wanted = blocks * bytes as u64;
        let more = wanted.saturating_sub(self.modules.held(context).reserves.per_block);
        self.charge(driver, device, Kind::Context, more)?;
        self.modules.held(context).reserves.per_block += more;
        self.context_mut(context).limits.insert(PER_BLOCK, bytes);
        Ok(())
    }

    /// Before a kernel runs: its local memory, and the heap if it may call malloc.
    pub fn reserve_for_launch(
        &mut self,
        driver: &Driver,
        context: ContextId,
        needs: &Attributes,
    ) -> Answer {
        self.reserve_local(driver, context, needs)?;
        if needs.calls_malloc && !self.modules.held(context).reserves.heap_taken {
            let heap = self.limit(driver, context, HEAP)? as u64 + HEAP_MARGIN;
            let device = self.context(context).device;
            self.charge(driver, device, Kind::Context, heap)?;
            let reserves = &mut self.modules.held(context).reserves;
            reserves.heap += heap;
            reserves.heap_taken = true;
        }
        self.modules.held(context).reserves.printf_taken |= needs.calls_printf;
        Ok(())
    }

    /// When a kernel is launched, or made part of an executable graph: the local memory of its threads.
    pub fn reserve_local(
        &mut self,
        driver: &Driver,
        context: ContextId,
        needs: &Attributes,
    ) -> Answer {
        let local = (needs.local as usize).next_multiple_of(STACK_UNIT);
        match local > self.limit(driver, context, STACK)? {
            true => self.set_stack(driver, context, local),
            false => Ok(()),
        }
    }

    /// What a context's first module with malloc takes when it is loaded.
    pub fn reserve_for_malloc(&mut self, driver: &Driver, context: ContextId) -> Answer {
        if !self.modules.held(context).reserves.machinery {
            let device = self.context(context).device;
            self.charge(driver, device, Kind::Context, MALLOC_MACHINERY)?;
            let reserves = &mut self.modules.held(context).reserves;
            reserves.machinery = true;
            reserves.heap += MALLOC_MACHINERY;
        }
        Ok(())
    }

    /// At a context's end: what goes back beside its own share; negative where its stack was made smaller.
    pub fn reserved_beyond(&mut self, context: ContextId) -> i64 {
        let reserves = std::mem::take(&mut self.modules.held(context).reserves);
        (reserves.heap + reserves.per_block) as i64 + reserves.stack
    }
}

pub fn get(value: Out<usize>, limit: CUlimit) -> Answer {
    let driver = driver::get()?;
    let process = driver.lock();
    let context = process.current()?;
    let value = value.required()?;
    value.set(process.limit(driver, context, limit)?);
    Ok(())
}

pub fn set(limit: CUlimit, value: usize) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let context = process.current()?;
    // A buffer's size is set or refused at once, whatever the context has to do (H200: *buffers beside work* in `held-580.txt`); so is the stack that it has.
    // But beside a thread that sets another stack both wait.
    let restacks = limit == STACK && process.limit(driver, context, STACK)? != value;
    if restacks {
        process.restacking.insert(context);
    }
    if process.restacking.contains(&context) {
        drop(process);
        crate::admission::wait_until_idle();
        process = driver.lock();
        if restacks {
            process.restacking.remove(&context);
        }
    }
    // Another thread may have ended it meanwhile.
    let context = process.current()?;
    let profile = driver.profile(process.context(context).device);
    default(limit, profile)?;
    if limit == STACK {
        if value > MOST_STACK {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        return process.set_stack(driver, context, value.next_multiple_of(STACK_UNIT));
    }
    let value = settle(limit, value, profile)?;
    let reserves = process.modules.held(context).reserves;
    let in_use = match limit {
        HEAP => reserves.heap_taken,
        PRINTF => reserves.printf_taken,
        _ => false,
    };
    if in_use {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    if limit == PER_BLOCK {
        return process.set_per_block(driver, context, value);
    }
    process.context_mut(context).limits.insert(limit, value);
    Ok(())
}

/// CU_FUNC_CACHE_PREFER_*: a preference that no simulated device acts on.
const CACHE_CONFIGS: std::ops::RangeInclusive<c_int> = 0..=3;
/// CU_SHARED_MEM_CONFIG_*: bank sizes; devices since Maxwell have one.
const SHARED_CONFIGS: std::ops::RangeInclusive<c_int> = 0..=2;

fn tell(out: Out<c_int>, value: c_int) -> Answer {
    driver::get()?.lock().current()?;
    out.required()?.set(value);
    Ok(())
}

fn accept(value: c_int, known: std::ops::RangeInclusive<c_int>) -> Answer {
    driver::get()?.lock().current()?;
    if known.contains(&value) {
        Ok(())
    } else {
        Err(CUresult::ERROR_INVALID_VALUE)
    }
}

pub fn get_cache_config(config: Out<c_int>) -> Answer {
    tell(config, 0)
}

pub fn set_cache_config(config: c_int) -> Answer {
    accept(config, CACHE_CONFIGS)
}

/// Banks of four bytes, as devices since Maxwell have them.
pub fn get_shared_config(config: Out<c_int>) -> Answer {
    tell(config, 1)
}

pub fn set_shared_config(config: c_int) -> Answer {
    accept(config, SHARED_CONFIGS)
}

/// No line of a simulated L2 persists.
pub fn reset_persisting_l2() -> Answer {
    driver::get()?.lock().current().map(|_| ())
}
