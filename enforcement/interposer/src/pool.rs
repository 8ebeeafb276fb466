//! Stream-ordered allocation: what a device's pool reserves is charged, not what is in use of it (FINDINGS 13).
//!
//! A mirror of the pool's use decides without asking the driver. Only a request that would pass the known reservation reserves, in steps, and reads the pool; a pool
//! that was freed from is read again at the next synchronisation, and trimmed before a refusal.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::cuda::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUmemPool_attribute, CUmemoryPool, CUresult,
    CUstream, pool_attribute,
};
use budget::Bytes;
use budget::charge::{POOL_STEP, SUBALLOCATION};

use crate::boundary::arena::Lock;
use crate::boundary::cross::Out;
use crate::boundary::entries::next;
use crate::devices::{Device, current_context};
use crate::grant::Grant;
use crate::memory::{IMPOSSIBLE, When, devices_of, free_by, uncharged};
use crate::outcome::{Outcome, Reason, Refused, verdict};
use crate::process::Tenant;
use crate::records::{Kind, Record};

/// A pool that grows by fragmentation within what its mirror calls free is noticed after so many bytes at the latest.
const READ_EVERY: u64 = 16 << 20;

/// From here on a request may fit nowhere in what its pool reserves, however much of that is free: it reserves before it asks.
const LARGE: u64 = 2 << 20;

/// One device's pool. All zeros is an unused one.
#[repr(C, align(64))]
pub struct Pool {
    used: AtomicU64,
    charged: AtomicU64,
    /// Allocated since the driver was last asked.
    unread: AtomicU64,
    /// Requests that may make it grow and are not settled.
    growing: AtomicU32,
    lock: Lock,
}

type Alloc = fn(Out<'_, CUdeviceptr>, usize, CUstream) -> CUresult;
type Free = fn(CUdeviceptr, CUstream) -> CUresult;

pub fn alloc(
    tenant: Tenant,
    place: Out<'_, CUdeviceptr>,
    size: usize,
    stream: CUstream,
) -> Outcome<CUresult> {
    alloc_by(
        tenant,
        place,
        size,
        stream,
        next::cuMemAllocAsync,
        next::cuMemFreeAsync,
    )
}

pub fn alloc_ptsz(
    tenant: Tenant,
    place: Out<'_, CUdeviceptr>,
    size: usize,
    stream: CUstream,
) -> Outcome<CUresult> {
    alloc_by(
        tenant,
        place,
        size,
        stream,
        next::cuMemAllocAsync_ptsz,
        next::cuMemFreeAsync_ptsz,
    )
}

pub fn free(tenant: Tenant, address: CUdeviceptr, stream: CUstream) -> Outcome<CUresult> {
    Outcome::Done(free_by(
        tenant,
        address,
        When::InStreamOrder(stream),
        || next::cuMemFreeAsync(address, stream),
    ))
}

pub fn free_ptsz(tenant: Tenant, address: CUdeviceptr, stream: CUstream) -> Outcome<CUresult> {
    Outcome::Done(free_by(
        tenant,
        address,
        When::InStreamOrder(stream),
        || next::cuMemFreeAsync_ptsz(address, stream),
    ))
}

pub fn trim_to(tenant: Tenant, pool: CUmemoryPool, keep: usize) -> Outcome<CUresult> {
    let code = next::cuMemPoolTrimTo(pool, keep);
    tenant.mark_pools();
    Outcome::Done(tenant.after_synchronisation(code))
}

pub fn set_attribute(
    tenant: Tenant,
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: Out<'_, c_void>,
) -> Outcome<CUresult> {
    let code = next::cuMemPoolSetAttribute(pool, attribute, value);
    tenant.mark_pools();
    Outcome::Done(tenant.after_synchronisation(code))
}

pub fn synchronize(tenant: Tenant) -> Outcome<CUresult> {
    waited(tenant, CUcontext::NULL, next::cuCtxSynchronize)
}

pub fn synchronize_context(tenant: Tenant, context: CUcontext) -> Outcome<CUresult> {
    waited(tenant, context, || next::cuCtxSynchronize_v2(context))
}

/// A wait for all that a context has to do; NULL is the current one. What is freed while it lasts may not be waited for.
#[inline]
fn waited(
    tenant: Tenant,
    context: CUcontext,
    call: impl FnOnce() -> CUresult,
) -> Outcome<CUresult> {
    let contexts = &tenant.memory.contexts;
    let context = || match context.0 as u64 {
        0 => current_context(),
        handle => handle,
    };
    if !contexts.linger_at_all() {
        return Outcome::Done(tenant.after_synchronisation(call()));
    }
    let context = context();
    let gone = contexts.take_lingering(context);
    let code = call();
    if let Some((ordinal, bytes)) = gone {
        if code == CUresult::SUCCESS {
            tenant.release(devices_of(tenant, ordinal), bytes);
        } else if !contexts.linger(context, ordinal, bytes) {
            // Its context is gone: it stays charged until the process ends.
        }
    }
    Outcome::Done(tenant.after_synchronisation(code))
}

pub fn synchronize_stream(tenant: Tenant, stream: CUstream) -> Outcome<CUresult> {
    Outcome::Done(tenant.after_synchronisation(next::cuStreamSynchronize(stream)))
}

pub fn synchronize_stream_ptsz(tenant: Tenant, stream: CUstream) -> Outcome<CUresult> {
    Outcome::Done(tenant.after_synchronisation(next::cuStreamSynchronize_ptsz(stream)))
}

pub fn synchronize_event(tenant: Tenant, event: CUevent) -> Outcome<CUresult> {
    Outcome::Done(tenant.after_synchronisation(next::cuEventSynchronize(event)))
}

#[inline]
fn alloc_by(
    tenant: Tenant,
    place: Out<'_, CUdeviceptr>,
    size: usize,
    stream: CUstream,
    alloc: Alloc,
    free: Free,
) -> Outcome<CUresult> {
    if place.is_null() || size == 0 {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    let rounded = size
        .checked_next_multiple_of(SUBALLOCATION.0 as usize)
        .filter(|rounded| *rounded < IMPOSSIBLE);
    let (Some(rounded), Some((device, pool))) = (rounded, tenant.pool_of(stream)) else {
        return uncharged(alloc(place, size, stream), place, &|address| {
            free(address, stream)
        });
    };
    let rounded = rounded as u64;
    // In use first, then the look at what is charged: whoever lowers the charge looks in the other order, and one of the two sees the other.
    let used = pool.used.fetch_add(rounded, Ordering::SeqCst) + rounded;
    let calls = Calls {
        alloc,
        free,
        place,
        size,
        stream,
    };
    let unread = pool.unread.load(Ordering::Relaxed);
    if rounded >= LARGE || used > pool.charged.load(Ordering::SeqCst) || unread >= READ_EVERY {
        return grown(tenant, device, pool, rounded, &calls);
    }
    let code = alloc(place, size, stream);
    let recorded = tenant.record(device, place, code, rounded);
    if recorded == Some(true) {
        // Not one atomic step: a lost count only puts the next reading off.
        let unread = pool.unread.load(Ordering::Relaxed) + rounded;
        pool.unread.store(unread, Ordering::Relaxed);
        if unread < READ_EVERY {
            return Outcome::Done(code);
        }
    }
    let settled = tenant.read_pool(device, pool);
    finished(tenant, device, code, recorded, settled, rounded, &calls)
}

/// One request, as it came.
struct Calls<'a> {
    alloc: Alloc,
    free: Free,
    place: Out<'a, CUdeviceptr>,
    size: usize,
    stream: CUstream,
}

impl Calls<'_> {
    /// What the driver has against the request beside its size; else that it does not fit.
    fn verdict(&self, refused: Refused) -> Outcome<CUresult> {
        verdict((self.alloc)(self.place, IMPOSSIBLE, self.stream), refused)
    }
}

/// A request beyond what the pool is known to reserve. It is in `used` already.
#[cold]
fn grown(
    tenant: Tenant,
    device: &Device,
    pool: &Pool,
    rounded: u64,
    calls: &Calls<'_>,
) -> Outcome<CUresult> {
    let growth = match tenant.grow(device, pool, Bytes(rounded)) {
        Ok(growth) => growth,
        Err(refused) => {
            pool.used.fetch_sub(rounded, Ordering::SeqCst);
            return calls.verdict(refused);
        }
    };
    let code = (calls.alloc)(calls.place, calls.size, calls.stream);
    let recorded = tenant.record(device, calls.place, code, rounded);
    let settled = tenant.settle(device, pool, growth);
    finished(tenant, device, code, recorded, settled, rounded, calls)
}

/// The end of a request that was not plainly granted: what cannot be accounted for is not kept.
#[cold]
fn finished(
    tenant: Tenant,
    device: &Device,
    code: CUresult,
    recorded: Option<bool>,
    settled: Result<(), Refused>,
    rounded: u64,
    calls: &Calls<'_>,
) -> Outcome<CUresult> {
    if recorded != Some(true) {
        tenant.leave_pool(device.ordinal, Bytes(rounded));
    }
    let (Some(recorded), Some(address)) = (recorded, calls.place.read()) else {
        return Outcome::Done(code);
    };
    let refused = match settled {
        Ok(()) if recorded => return Outcome::Done(code),
        Ok(()) => Refused::TableFull,
        Err(refused) => refused,
    };
    let _ = free_by(tenant, address, When::InStreamOrder(calls.stream), || {
        (calls.free)(address, calls.stream)
    });
    calls.verdict(refused)
}

/// The context of a stream that is not one of the current context's own.
fn context_of(stream: CUstream) -> Option<u64> {
    const PER_THREAD: usize = 2;
    let mut context = CUcontext::NULL;
    (stream.0 as usize > PER_THREAD
        && next::cuStreamGetCtx(stream, Out::to(&mut context)) == CUresult::SUCCESS)
        .then_some(context.0 as u64)
}

/// Records of a pool die with it; no context has so small a handle.
fn owner_of(ordinal: u32) -> u64 {
    u64::from(ordinal) + 1
}

/// A reservation for a pool's growth, and its size.
struct Growth {
    grant: Grant,
    bound: Bytes,
}

impl Tenant {
    /// Puts an allocation of a pool on record: `None` if there is none, false if there is no room.
    #[inline]
    fn record(
        self,
        device: &Device,
        place: Out<'_, CUdeviceptr>,
        code: CUresult,
        rounded: u64,
    ) -> Option<bool> {
        let address = place
            .read()
            .filter(|address| code == CUresult::SUCCESS && *address != 0)?;
        Some(self.memory.records.insert(Record {
            address,
            size: Bytes(rounded),
            kind: Kind::Pool,
            ordinal: device.ordinal,
            owner: owner_of(device.ordinal),
        }))
    }

    /// The device and pool that a stream allocates from.
    #[inline]
    fn pool_of(self, stream: CUstream) -> Option<(&'static Device, &'static Pool)> {
        let devices = self.devices()?;
        let device = devices.only().or_else(|| self.device_of(stream))?;
        Some((device, self.memory.pools.get(device.ordinal as usize)?))
    }

    fn device_of(self, stream: CUstream) -> Option<&'static Device> {
        if let Some(context) = context_of(stream)
            && let Some(ordinal) = self.memory.contexts.ordinal_of(context)
        {
            return self.devices()?.get(ordinal as CUdevice);
        }
        self.current_device().ok()
    }

    #[cold]
    fn grow(self, device: &Device, pool: &Pool, size: Bytes) -> Result<Growth, Refused> {
        // The request may fit nowhere in what is reserved: the pool then grows by all of it.
        let bound = size.round_up(POOL_STEP).ok_or(Refused::TableFull)?;
        let grant = self.reserve_or_trim(device.indices, bound)?;
        pool.growing.fetch_add(1, Ordering::AcqRel);
        Ok(Growth { grant, bound })
    }

    /// The driver has answered: what the pool really grew by is charged.
    #[cold]
    fn settle(self, device: &Device, pool: &Pool, growth: Growth) -> Result<(), Refused> {
        self.memory.activity.fetch_add(1, Ordering::Relaxed);
        let _held = pool.lock.hold();
        let alone = pool.growing.fetch_sub(1, Ordering::AcqRel) == 1;
        let charged = Bytes(pool.charged.load(Ordering::SeqCst));
        let reserved = reserved(device.ordinal).filter(|_| alone);
        let taken = reserved.map_or(growth.bound, |reserved| {
            reserved.saturating_sub(charged).min(growth.bound)
        });
        growth.grant.commit_as(taken);
        pool.charged
            .store(charged.saturating_add(taken).0, Ordering::SeqCst);
        match reserved {
            Some(reserved) => self.adjust(device, pool, reserved),
            None => {
                self.mark_pool(device.ordinal);
                Ok(())
            }
        }
    }

    /// Reads a pool and charges what it reserves.
    #[cold]
    fn read_pool(self, device: &Device, pool: &Pool) -> Result<(), Refused> {
        let _held = pool.lock.hold();
        if pool.growing.load(Ordering::Acquire) != 0 {
            self.mark_pool(device.ordinal);
            return Ok(());
        }
        match reserved(device.ordinal) {
            Some(reserved) => self.adjust(device, pool, reserved),
            None => Ok(()),
        }
    }

    /// Brings the charge to what the driver says. The pool's lock is held.
    fn adjust(self, device: &Device, pool: &Pool, reserved: Bytes) -> Result<(), Refused> {
        pool.unread.store(0, Ordering::Relaxed);
        let charged = Bytes(pool.charged.load(Ordering::SeqCst));
        if reserved > charged {
            let excess = reserved.saturating_sub(charged);
            // Until it can be charged, requests reserve first: none is granted beside what nobody pays for.
            self.reserve(device.indices, excess)
                .inspect_err(|_| pool.unread.store(READ_EVERY, Ordering::Relaxed))?
                .commit_as(excess);
            pool.charged.store(reserved.0, Ordering::SeqCst);
        } else if reserved < charged {
            self.memory.activity.fetch_add(1, Ordering::Relaxed);
            pool.charged.store(reserved.0, Ordering::SeqCst);
            // A request that went ahead under the old charge is in `used` by now.
            let kept = Bytes(pool.used.load(Ordering::SeqCst))
                .min(charged)
                .max(reserved);
            pool.charged.store(kept.0, Ordering::SeqCst);
            self.release(device.indices, charged.saturating_sub(kept));
        }
        Ok(())
    }

    /// An allocation of a pool is freed. What the pool holds is known at the next synchronisation.
    #[inline]
    pub fn leave_pool(self, ordinal: u32, size: Bytes) {
        if let Some(pool) = self.memory.pools.get(ordinal as usize) {
            pool.used.fetch_sub(size.0, Ordering::SeqCst);
            self.mark_pool(ordinal);
        }
    }

    /// Blocks that the driver lets go of when their stream comes to it: charged until its whole context was waited for or is gone.
    /// A wait for another stream says nothing of it, and handles of streams recur.
    #[cold]
    pub fn linger(self, stream: CUstream, ordinal: u32, bytes: Bytes) {
        let context = context_of(stream).unwrap_or_else(current_context);
        if bytes != Bytes::ZERO && !self.memory.contexts.linger(context, ordinal, bytes) {
            // Another device's stream, or a context that was never charged: charged until the process ends.
        }
    }

    #[inline]
    fn mark_pool(self, ordinal: u32) {
        let mark = 1 << ordinal;
        if self.memory.slack.load(Ordering::Relaxed) & mark == 0 {
            self.memory.slack.fetch_or(mark, Ordering::AcqRel);
        }
    }

    /// Marks every pool that is charged for anything.
    fn mark_pools(self) {
        for (ordinal, pool) in (0..).zip(&self.memory.pools) {
            if pool.charged.load(Ordering::Relaxed) != 0 {
                self.mark_pool(ordinal);
            }
        }
    }

    /// Reads the pools that were freed from, and only those.
    #[inline]
    fn after_synchronisation(self, code: CUresult) -> CUresult {
        if code == CUresult::SUCCESS && self.memory.slack.load(Ordering::Relaxed) != 0 {
            self.read_marked();
        }
        code
    }

    #[cold]
    fn read_marked(self) {
        let marked = self.memory.slack.swap(0, Ordering::AcqRel);
        for device in self
            .devices()
            .into_iter()
            .flat_map(|devices| devices.iter())
        {
            if marked & (1 << device.ordinal) != 0 {
                // What cannot be charged stays marked by its next free; a refusal here has nobody to be told to.
                let _ = self.read_pool(device, &self.memory.pools[device.ordinal as usize]);
            }
        }
    }

    /// Gives back what our pools hold without need. Answers whether anything came back.
    pub fn trim_pools(self) -> bool {
        let mut freed = false;
        for device in self
            .devices()
            .into_iter()
            .flat_map(|devices| devices.iter())
        {
            let pool = &self.memory.pools[device.ordinal as usize];
            let charged = pool.charged.load(Ordering::SeqCst);
            if charged == 0 {
                continue;
            }
            for handle in pools_of(device.ordinal).into_iter().flatten() {
                let _ = next::cuMemPoolTrimTo(handle, 0);
            }
            let _ = self.read_pool(device, pool);
            freed |= pool.charged.load(Ordering::SeqCst) < charged;
        }
        freed
    }

    /// A device's last context is gone. If the pool is empty then, so are its records.
    pub fn forget_pool(self, device: &Device) {
        let pool = &self.memory.pools[device.ordinal as usize];
        if pool.charged.load(Ordering::SeqCst) == 0 {
            return;
        }
        if reserved(device.ordinal).is_none_or(|reserved| reserved == Bytes::ZERO) {
            let _held = pool.lock.hold();
            self.memory
                .records
                .take_owned(owner_of(device.ordinal), |_| {});
            pool.used.store(0, Ordering::SeqCst);
            let _ = self.adjust(device, pool, Bytes::ZERO);
        }
    }
}

/// The device's pools that the plain entry points allocate from: the current one, and the default one if that is another.
fn pools_of(ordinal: u32) -> [Option<CUmemoryPool>; 2] {
    let (mut current, mut default) = (CUmemoryPool::NULL, CUmemoryPool::NULL);
    let ordinal = ordinal as CUdevice;
    let current = (next::cuDeviceGetMemPool(Out::to(&mut current), ordinal) == CUresult::SUCCESS)
        .then_some(current);
    let default = (next::cuDeviceGetDefaultMemPool(Out::to(&mut default), ordinal)
        == CUresult::SUCCESS)
        .then_some(default);
    [current, default.filter(|_| default != current)]
}

/// What the device's pools hold, by the driver.
fn reserved(ordinal: u32) -> Option<Bytes> {
    let mut sum = None;
    for pool in pools_of(ordinal).into_iter().flatten() {
        let mut value = 0;
        if next::cuMemPoolGetAttribute(
            pool,
            pool_attribute::RESERVED_MEM_CURRENT,
            Out::word(&mut value),
        ) == CUresult::SUCCESS
        {
            sum = Some(sum.unwrap_or(Bytes::ZERO).saturating_add(Bytes(value)));
        }
    }
    sum
}
