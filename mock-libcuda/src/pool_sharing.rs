//! Pools between processes: a descriptor names a pool, and 64 bytes name an allocation in it.

use std::collections::HashMap;
use std::os::fd::IntoRawFd;

use abi::cuda::enumerations::*;
use abi::cuda::*;
use mock_device::{Bytes, Kind, Object, ObjectId};

use crate::boundary::{Answer, Host, Out, descriptor};
use crate::driver;
use crate::pool::Pool;
use crate::process::Owner;
use crate::vmm::importable;

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
const POSIX_DESCRIPTOR: c_int = 1;

/// What a pool shares.
#[derive(Default)]
pub struct Shares {
    /// Of a pool made here: an object without bytes, which stands for the pool in its descriptors.
    name: Option<Object<'static>>,
    /// Of a pool made elsewhere: that object.
    pub imported: Option<Object<'static>>,
    /// Of a pool made elsewhere: steps that are mapped here, with how many allocations of theirs.
    steps: HashMap<u64, u32>,
}

/// CUmemPoolPtrExportData's eight words.
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
    if pool.shares.name.is_none() {
        let index = driver.index(pool.device);
        let name = driver.world.new_object(index, Kind::Pool, Bytes(0));
        pool.shares.name = Some(name.map_err(|_| CUresult::ERROR_OPERATING_SYSTEM)?);
    }
    let name = pool.shares.name.as_ref().expect("just made");
    let exported = name
        .export()
        .map_err(|_| CUresult::ERROR_OPERATING_SYSTEM)?;
    out.set(exported.into_raw_fd());
    Ok(())
}

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
    let object = driver.world.import_object(fd).map_err(|_| INVALID)?;
    if object.kind() != Kind::Pool || object.size() != Bytes(0) {
        return Err(INVALID);
    }
    let device = driver
        .ordinals()
        .find(|ordinal| driver.index(*ordinal) == object.device())
        .ok_or(INVALID)?;
    let mut pool = Pool::new(device, 0);
    pool.shares.imported = Some(object);
    out.set(process.enter_pool(pool));
    Ok(())
}

/// The step around the allocation becomes an object; the words say where in it the allocation lies.
pub fn export_pointer(out: Out<CUmemPoolPtrExportData>, address: CUdeviceptr) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let out = out.required()?;
    let allocation = *process.allocations.get(&address).ok_or(INVALID)?;
    let Owner::Pool(id) = allocation.owner else {
        return Err(INVALID);
    };
    let pool = process.pool_mut(id);
    // A pool that was never exported itself exports nothing of what is in it.
    if pool.shares.name.is_none() || pool.is_imported() {
        return Err(INVALID);
    }
    let (base, step) = process.step_around(driver, id, address);
    // An allocation of several steps is shared by its first one's object alone as far as that reaches.
    let object = process.share(driver, allocation.device, Kind::Pool, base, step)?;
    let words: Words = [
        MARK,
        object.id().0,
        address - base,
        allocation.size,
        allocation.taken,
        0,
        0,
        0,
    ];
    out.cast::<Words>().set(words);
    Ok(())
}

/// The same words again are the same address, once more to be freed.
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
    let words = data.cast::<Words>().get();
    if words[0] != MARK || !process.pool_mut(id).is_imported() {
        return Err(INVALID);
    }
    let known = process.sharing.of(ObjectId(words[1]));
    let base = match known {
        Some((base, _)) => base,
        None => {
            let object = driver.world.open_object(ObjectId(words[1]));
            process.adopt(driver, object.map_err(|_| INVALID)?)?.0
        }
    };
    let address = base + words[2];
    if process.allocations.contains_key(&address) {
        out.set(address);
        return Ok(());
    }
    let context = process.current()?;
    *process.pool_mut(id).shares.steps.entry(base).or_default() += 1;
    process.enter(address, words[3], words[4], context, Owner::Pool(id));
    out.set(address);
    Ok(())
}

impl crate::process::Process {
    /// An imported allocation is freed: its step goes with the last of them.
    pub fn free_imported(
        &mut self,
        driver: &crate::driver::Driver,
        id: crate::process::PoolId,
        address: u64,
    ) {
        let Some((base, _)) = self.sharing.around(address) else {
            return;
        };
        let steps = &mut self.pool_mut(id).shares.steps;
        match steps.get_mut(&base) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                steps.remove(&base);
                self.abandon(driver, base);
            }
        }
    }
}
