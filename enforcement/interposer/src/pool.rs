//! Stream-ordered allocation: what a pool reserves is charged, not what is in use of it (FINDINGS 13).
//!
//! A mirror of the pool's use decides without asking the driver. Only a request that would pass the known reservation reserves, in steps, and reads the pool; a pool
//! that was freed from is read again at the next synchronisation, and trimmed before a refusal.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use abi::cuda::enumerations::CUmemAllocationType;
use abi::cuda::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUmemLocation, CUmemPool_attribute, CUmemPoolProps,
    CUmemoryPool, CUresult, CUstream,
};
use budget::Bytes;
use budget::charge::{POOL_STEP, SUBALLOCATION};
use throttle::Nanos;

use crate::boundary::arena::Lock;
use crate::boundary::cross::{In, Out};
use crate::boundary::entries::next;
use crate::boundary::time;
use crate::capture::{Capture, Relaxed, named};
use crate::devices::{Device, current_context};
use crate::grant::Grant;
use crate::memory::{IMPOSSIBLE, When, devices_of, free_by, refused_unless_undone};
use crate::outcome::{Outcome, Reason, Refused, verdict};
use crate::pools::Known;
use crate::process::Tenant;
use crate::records::{Pooled, owner_of};
use crate::threads::Tally;

/// A pool that grows by fragmentation within what its mirror calls free is noticed after so many bytes at the latest.
const READ_EVERY: u64 = 16 << 20;

/// From here on a request may fit nowhere in what its pool reserves, however much of that is free: it reserves before it asks.
const LARGE: u64 = 2 << 20;

/// How long a request waits for others that make its pool grow, and how often it looks.
const PATIENCE: Nanos = Nanos(2_000_000_000);
const LOOK: Nanos = Nanos(50_000);

/// Something was freed since the pools were read.
pub const FREED: u32 = 1;
/// A wait did not bring back all that it might: what was freed in the order of another stream goes back when that is waited for.
const SURPLUS: u32 = 2;

/// CU_MEM_LOCATION_TYPE_DEVICE.
const ON_DEVICE: i32 = 1;
/// CU_MEM_ALLOCATION_TYPE_MANAGED.
const MANAGED: CUmemAllocationType = 2;

/// One pool. All zeros is an unused one.
#[repr(C, align(64))]
pub struct Pool {
    charged: AtomicU64,
    /// Allocated since the driver was last asked.
    unread: AtomicU64,
    /// The stream of the last free in stream order, until it was waited for.
    freed_in: AtomicU64,
    /// [`FREED`]: it may hold less than it is charged for. [`SURPLUS`]: it may come to, when somebody waits.
    slack: AtomicU32,
    lock: Lock,
    /// Requests that may make it grow and are not settled.
    growing: AtomicU32,
    /// Requests that ask the ledger for room to grow.
    asking: AtomicU32,
    /// How many have been settled.
    settled: AtomicU32,
    /// What is in use of it.
    used: Tally,
}

pub fn alloc(
    tenant: Tenant,
    place: Out<'_, CUdeviceptr>,
    size: usize,
    stream: CUstream,
) -> Outcome<CUresult> {
    let calls = Calls {
        alloc: move |size| next::cuMemAllocAsync(place, size, stream),
        free: move |address| next::cuMemFreeAsync(address, stream),
        place,
        size,
        stream,
    };
    calls.decide(tenant, || tenant.pool_of(stream))
}

pub fn alloc_ptsz(
    tenant: Tenant,
    place: Out<'_, CUdeviceptr>,
    size: usize,
    stream: CUstream,
) -> Outcome<CUresult> {
    let calls = Calls {
        alloc: move |size| next::cuMemAllocAsync_ptsz(place, size, stream),
        free: move |address| next::cuMemFreeAsync_ptsz(address, stream),
        place,
        size,
        stream: named(stream),
    };
    calls.decide(tenant, || tenant.pool_of(stream))
}

pub fn alloc_from(
    tenant: Tenant,
    place: Out<'_, CUdeviceptr>,
    size: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Outcome<CUresult> {
    let Some(known) = tenant.pool_of_handle(pool) else {
        return Outcome::PassThrough(Reason::TakesNothing);
    };
    let calls = Calls {
        alloc: move |size| next::cuMemAllocFromPoolAsync(place, size, pool, stream),
        free: move |address| next::cuMemFreeAsync(address, stream),
        place,
        size,
        stream,
    };
    calls.decide(tenant, || Some(known))
}

pub fn alloc_from_ptsz(
    tenant: Tenant,
    place: Out<'_, CUdeviceptr>,
    size: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Outcome<CUresult> {
    let Some(known) = tenant.pool_of_handle(pool) else {
        return Outcome::PassThrough(Reason::TakesNothing);
    };
    let calls = Calls {
        alloc: move |size| next::cuMemAllocFromPoolAsync_ptsz(place, size, pool, stream),
        free: move |address| next::cuMemFreeAsync_ptsz(address, stream),
        place,
        size,
        stream: named(stream),
    };
    calls.decide(tenant, || Some(known))
}

/// A pool of the program's own.
pub fn create(
    tenant: Tenant,
    pool: Out<'_, CUmemoryPool>,
    props: In<'_, CUmemPoolProps>,
) -> Outcome<CUresult> {
    let before = pool.read();
    let code = next::cuMemPoolCreate(pool, props);
    let (CUresult::SUCCESS, Some(props), Some(made)) = (code, props.read(), pool.read()) else {
        return Outcome::Done(code);
    };
    let Err(refused) = tenant.meet_pool(made, props.location, props.allocType) else {
        return Outcome::Done(code);
    };
    let _ = next::cuMemPoolDestroy(made);
    before.into_iter().for_each(|before| pool.write(before));
    Outcome::Refused(refused)
}

/// A device's default pool of any kind of memory, which the driver makes when it is asked for.
pub fn default_at(
    tenant: Tenant,
    pool: Out<'_, CUmemoryPool>,
    location: Out<'_, CUmemLocation>,
    kind: CUmemAllocationType,
) -> Outcome<CUresult> {
    let before = pool.read();
    let code = next::cuMemGetDefaultMemPool(pool, location, kind);
    told(tenant, pool, before, location, kind, code)
}

pub fn current_at(
    tenant: Tenant,
    pool: Out<'_, CUmemoryPool>,
    location: Out<'_, CUmemLocation>,
    kind: CUmemAllocationType,
) -> Outcome<CUresult> {
    let before = pool.read();
    let code = next::cuMemGetMemPool(pool, location, kind);
    told(tenant, pool, before, location, kind, code)
}

fn told(
    tenant: Tenant,
    pool: Out<'_, CUmemoryPool>,
    before: Option<CUmemoryPool>,
    location: Out<'_, CUmemLocation>,
    kind: CUmemAllocationType,
    code: CUresult,
) -> Outcome<CUresult> {
    let (CUresult::SUCCESS, Some(location), Some(found)) = (code, location.read(), pool.read())
    else {
        return Outcome::Done(code);
    };
    match tenant.meet_pool(found, location, kind) {
        Ok(()) => Outcome::Done(code),
        Err(refused) => {
            before.into_iter().for_each(|before| pool.write(before));
            Outcome::Refused(refused)
        }
    }
}

/// Its allocations live on. What they hold stays charged until the last of them is freed and its device's contexts were waited
/// for, since nobody can be asked any longer; what nothing is in use of goes before.
pub fn destroy(tenant: Tenant, pool: CUmemoryPool) -> Outcome<CUresult> {
    let Some(known) = tenant.own_pool(pool) else {
        return Outcome::PassThrough(Reason::TakesNothing);
    };
    tenant.trim_pool(known);
    let held = known.pool.lock.hold();
    tenant.doom_pool(known);
    drop(held);
    let code = next::cuMemPoolDestroy(pool);
    if code != CUresult::SUCCESS {
        tenant.revive_pool(known, pool);
        return Outcome::Done(code);
    }
    tenant.succeed_pool(known);
    if known.pool.charged.load(Ordering::SeqCst) == 0 {
        tenant.bury_pool(known);
    }
    Outcome::Done(code)
}

pub fn set_current(tenant: Tenant, ordinal: CUdevice, pool: CUmemoryPool) -> Outcome<CUresult> {
    let code = next::cuDeviceSetMemPool(ordinal, pool);
    became_current(tenant, ordinal, pool, code)
}

/// The same by a location. A device has a current pool of managed memory beside that of its own.
pub fn set_current_at(
    tenant: Tenant,
    location: Out<'_, CUmemLocation>,
    kind: CUmemAllocationType,
    pool: CUmemoryPool,
) -> Outcome<CUresult> {
    const PINNED: CUmemAllocationType = 1;
    let code = next::cuMemSetMemPool(location, kind, pool);
    match location.read() {
        Some(location) if location.type_ == ON_DEVICE && kind == PINNED => {
            became_current(tenant, location.id, pool, code)
        }
        _ => Outcome::Done(code),
    }
}

fn became_current(
    tenant: Tenant,
    ordinal: CUdevice,
    pool: CUmemoryPool,
    code: CUresult,
) -> Outcome<CUresult> {
    if code == CUresult::SUCCESS
        && let Some(device) = tenant.devices().and_then(|devices| devices.get(ordinal))
    {
        tenant.set_current_pool(device, tenant.pool_of_handle(pool));
    }
    Outcome::Done(code)
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
    if !contexts.linger_at_all() && !tenant.any_doomed() {
        return Outcome::Done(tenant.after_synchronisation(call()));
    }
    let context = context();
    let gone = contexts.take_lingering(context);
    let unused = tenant.unused_doomed(contexts.ordinal_of(context));
    let code = call();
    if code == CUresult::SUCCESS {
        unused.into_iter().for_each(|known| tenant.bury_pool(known));
    }
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

/// One request, as it came.
#[derive(Clone, Copy)]
struct Calls<'a, Alloc, Free> {
    alloc: Alloc,
    free: Free,
    place: Out<'a, CUdeviceptr>,
    size: usize,
    /// As the plain entry points call it.
    stream: CUstream,
}

/// Why a request is not plainly granted.
enum Otherwise {
    /// The driver refuses it, or it asks for nothing.
    Nothing,
    Captured(Capture),
    /// Nobody can be charged for it.
    Uncharged,
    /// It is beyond what the pool is known to reserve. It is in `used` already.
    Beyond {
        known: Known,
        rounded: u64,
    },
    /// The driver has answered, and the pool is to be read.
    Unread {
        known: Known,
        rounded: u64,
        code: CUresult,
        recorded: Option<bool>,
    },
}

/// The rest of a request. Its parts come one by one: what is handed on by its address would be written to memory on the way of every call.
#[cold]
#[inline(never)]
fn otherwise<Alloc, Free>(
    alloc: Alloc,
    free: Free,
    place: Out<'_, CUdeviceptr>,
    size: usize,
    stream: CUstream,
    tenant: Tenant,
    what: Otherwise,
) -> Outcome<CUresult>
where
    Alloc: Fn(usize) -> CUresult,
    Free: Fn(CUdeviceptr) -> CUresult,
{
    let calls = Calls {
        alloc,
        free,
        place,
        size,
        stream,
    };
    match what {
        Otherwise::Nothing => Outcome::PassThrough(Reason::TakesNothing),
        Otherwise::Captured(capture) => calls.captured(tenant, capture),
        Otherwise::Uncharged => {
            let code = (calls.alloc)(size);
            refused_unless_undone(code, || place.read(), &calls.free)
        }
        Otherwise::Beyond { known, rounded } => calls.grown(tenant, known, rounded),
        Otherwise::Unread {
            known,
            rounded,
            code,
            recorded,
        } => {
            let settled = tenant.read_pool(known);
            calls.finished(tenant, known, code, recorded, settled, rounded)
        }
    }
}

impl<Alloc, Free> Calls<'_, Alloc, Free>
where
    Alloc: Fn(usize) -> CUresult,
    Free: Fn(CUdeviceptr) -> CUresult,
{
    #[inline(always)]
    fn decide(self, tenant: Tenant, pool: impl FnOnce() -> Option<Known>) -> Outcome<CUresult> {
        match self.plainly(tenant, pool) {
            Ok(code) => Outcome::Done(code),
            Err(what) => otherwise(
                self.alloc,
                self.free,
                self.place,
                self.size,
                self.stream,
                tenant,
                what,
            ),
        }
    }

    /// The common case: the pool has room for it that is charged already.
    #[inline(always)]
    fn plainly(
        &self,
        tenant: Tenant,
        pool: impl FnOnce() -> Option<Known>,
    ) -> Result<CUresult, Otherwise> {
        if self.place.is_null() || self.size == 0 {
            return Err(Otherwise::Nothing);
        }
        if let Some(capture) = tenant.capture_of(self.stream) {
            return Err(Otherwise::Captured(capture));
        }
        if self.size > IMPOSSIBLE - SUBALLOCATION.0 as usize {
            return Err(Otherwise::Uncharged);
        }
        let rounded = (self.size as u64).next_multiple_of(SUBALLOCATION.0);
        let known = pool().ok_or(Otherwise::Uncharged)?;
        let pool = known.pool;
        // In use first, then the look at what is charged: whoever lowers the charge looks in the other order, and one of the two sees the other.
        let used = pool.used.take(rounded);
        let unread = pool.unread.load(Ordering::Relaxed);
        if rounded >= LARGE
            || unread >= READ_EVERY
            || used > pool.charged.load(Ordering::SeqCst) && !pool.covers_used()
        {
            return Err(Otherwise::Beyond { known, rounded });
        }
        let code = (self.alloc)(self.size);
        let recorded = tenant.record(known.place, self.place, code, rounded);
        if recorded == Some(true) {
            // Not one atomic step: a lost count only puts the next reading off.
            let unread = pool.unread.load(Ordering::Relaxed) + rounded;
            pool.unread.store(unread, Ordering::Relaxed);
            if unread < READ_EVERY {
                return Ok(code);
            }
        }
        Err(Otherwise::Unread {
            known,
            rounded,
            code,
            recorded,
        })
    }

    /// A request of a stream that captures is a node, and takes nothing before its graph is launched. One that came after the
    /// capture's end, because another thread ended it, is not kept: nobody has charged it.
    #[cold]
    fn captured(&self, tenant: Tenant, capture: Capture) -> Outcome<CUresult> {
        tenant.memory.graphs.notice_allocation();
        let code = (self.alloc)(self.size);
        if code != CUresult::SUCCESS || tenant.capture_of(self.stream) == Some(capture) {
            return Outcome::Done(code);
        }
        refused_unless_undone(code, || self.place.read(), &self.free)
    }

    /// What the driver has against the request beside its size; else that it does not fit.
    fn verdict(&self, refused: Refused) -> Outcome<CUresult> {
        verdict((self.alloc)(IMPOSSIBLE), refused)
    }

    /// A request beyond what the pool is known to reserve.
    #[cold]
    fn grown(&self, tenant: Tenant, known: Known, rounded: u64) -> Outcome<CUresult> {
        let growth = match tenant.grow(known, Bytes(rounded)) {
            Ok(growth) => growth,
            Err(refused) => {
                known
                    .pool
                    .used
                    .give(tenant.memory.threads.number(), rounded);
                return self.verdict(refused);
            }
        };
        let code = (self.alloc)(self.size);
        let recorded = tenant.record(known.place, self.place, code, rounded);
        let settled = tenant.settle(known, growth);
        self.finished(tenant, known, code, recorded, settled, rounded)
    }

    /// The end of a request that was not plainly granted: what cannot be accounted for is not kept.
    #[cold]
    fn finished(
        &self,
        tenant: Tenant,
        known: Known,
        code: CUresult,
        recorded: Option<bool>,
        settled: Result<(), Refused>,
        rounded: u64,
    ) -> Outcome<CUresult> {
        if recorded != Some(true) {
            tenant.leave_pool(known.place, Bytes(rounded), When::Now);
        }
        let (Some(recorded), Some(address)) = (recorded, self.place.read()) else {
            return Outcome::Done(code);
        };
        let refused = match settled {
            Ok(()) if recorded => return Outcome::Done(code),
            Ok(()) => Refused::TableFull,
            Err(refused) => refused,
        };
        let _ = free_by(tenant, address, When::InStreamOrder(self.stream), || {
            (self.free)(address)
        });
        self.verdict(refused)
    }
}

/// The context of a stream that is not one of the current context's own.
fn context_of(stream: CUstream) -> Option<u64> {
    const PER_THREAD: usize = 2;
    let mut context = CUcontext::NULL;
    (stream.0 as usize > PER_THREAD
        && next::cuStreamGetCtx(stream, Out::to(&mut context)) == CUresult::SUCCESS)
        .then_some(context.0 as u64)
}

/// Each request that may make a pool grow reserves a whole step, and what it did not take is back when it is settled: many at once
/// may not fit where one after the other do. Waits for those under way; false where there were none, or for too long.
#[cold]
fn others_settle(pool: &Pool, before: u32, end: Nanos) -> bool {
    let busy = || pool.asking.load(Ordering::Acquire) | pool.growing.load(Ordering::Acquire) != 0;
    if !busy() && pool.settled.load(Ordering::Acquire) == before {
        return false;
    }
    while busy() {
        let now = time::now();
        if now >= end {
            return false;
        }
        time::sleep_until(now.plus(LOOK));
    }
    true
}

/// A request is settled once its charge is right.
struct Settled<'a>(&'a Pool);

impl Drop for Settled<'_> {
    fn drop(&mut self) {
        self.0.settled.fetch_add(1, Ordering::AcqRel);
        self.0.growing.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A reservation for a pool's growth, and its size.
struct Growth {
    grant: Grant,
    bound: Bytes,
}

impl Pool {
    /// Another pool takes the place of one that is gone: that one's last free says nothing of this one's.
    pub fn begin(&self) {
        self.freed_in.store(0, Ordering::SeqCst);
    }

    /// Whether what is charged is enough for what is in use, with all that was given back.
    #[cold]
    fn covers_used(&self) -> bool {
        self.used.held() <= self.charged.load(Ordering::SeqCst)
    }
}

impl Tenant {
    /// Puts an allocation of a pool on record: `None` if there is none, false if there is no room.
    #[inline]
    fn record(
        self,
        pool: u32,
        place: Out<'_, CUdeviceptr>,
        code: CUresult,
        rounded: u64,
    ) -> Option<bool> {
        let address = place
            .read()
            .filter(|address| code == CUresult::SUCCESS && *address != 0)?;
        let pooled = Pooled {
            address,
            size: Bytes(rounded),
            pool,
        };
        let thread = self.memory.threads.number();
        Some(self.memory.records.insert_pooled(thread, pooled))
    }

    /// A pool that the program has a handle of is known by it from now on. Pinned memory of the host takes none of a device's;
    /// managed memory that is at home there may be on the current one, all of it.
    fn meet_pool(
        self,
        handle: CUmemoryPool,
        location: CUmemLocation,
        kind: CUmemAllocationType,
    ) -> Result<(), Refused> {
        let device = match (location.type_, kind) {
            (ON_DEVICE, _) => self.devices().and_then(|devices| devices.get(location.id)),
            (_, MANAGED) => self.current_device().ok().or_else(|| self.device(0)),
            _ => return Ok(()),
        };
        let device = device.ok_or(Refused::UnknownDevice)?;
        if self.pool_of_handle(handle).is_some()
            || self.seat_pool(handle, device.ordinal, kind == MANAGED)
        {
            Ok(())
        } else {
            Err(Refused::TableFull)
        }
    }

    /// The pool that a stream allocates from. Always inlined: what is known of it stays in registers.
    #[inline(always)]
    fn pool_of(self, stream: CUstream) -> Option<Known> {
        let devices = self.devices()?;
        match devices.only() {
            Some(only) => self.current_pool(0, only),
            None => self
                .device_of(stream)
                .and_then(|device| self.current_pool(device.ordinal, device)),
        }
    }

    #[cold]
    fn device_of(self, stream: CUstream) -> Option<&'static Device> {
        if let Some(context) = context_of(stream)
            && let Some(ordinal) = self.memory.contexts.ordinal_of(context)
        {
            return self.devices()?.get(ordinal as CUdevice);
        }
        self.current_device().ok()
    }

    #[cold]
    fn grow(self, known: Known, size: Bytes) -> Result<Growth, Refused> {
        if self.is_managed(known) {
            self.keep_for_managed(known.device)?;
        }
        // The request may fit nowhere in what is reserved: the pool then grows by all of it.
        let bound = size.round_up(POOL_STEP).ok_or(Refused::TableFull)?;
        let (pool, end) = (known.pool, time::now().plus(PATIENCE));
        loop {
            let before = pool.settled.load(Ordering::Acquire);
            pool.asking.fetch_add(1, Ordering::AcqRel);
            let grant = self.reserve_or_trim(known.device.indices, bound);
            // Never neither: whoever looks sees a request that asks, or one that grows.
            pool.growing
                .fetch_add(u32::from(grant.is_ok()), Ordering::AcqRel);
            pool.asking.fetch_sub(1, Ordering::AcqRel);
            match grant {
                Ok(grant) => return Ok(Growth { grant, bound }),
                Err(refused) if !others_settle(pool, before, end) => return Err(refused),
                Err(_) => {}
            }
        }
    }

    /// The driver has answered: what the pool really grew by is charged.
    #[cold]
    fn settle(self, known: Known, growth: Growth) -> Result<(), Refused> {
        self.memory.activity.fetch_add(1, Ordering::Relaxed);
        let pool = known.pool;
        let _held = pool.lock.hold();
        let alone = pool.growing.load(Ordering::Acquire) == 1;
        let _settled = Settled(pool);
        let charged = Bytes(pool.charged.load(Ordering::SeqCst));
        let reserved = self.reserved(known).filter(|_| alone);
        let taken = reserved.map_or(growth.bound, |reserved| {
            reserved.saturating_sub(charged).min(growth.bound)
        });
        growth.grant.commit_as(taken);
        pool.charged
            .store(charged.saturating_add(taken).0, Ordering::SeqCst);
        match reserved {
            Some(reserved) => self.adjust(known, reserved),
            None => {
                self.mark_pool(pool);
                Ok(())
            }
        }
    }

    /// Reads a pool and charges what it reserves.
    #[cold]
    fn read_pool(self, known: Known) -> Result<(), Refused> {
        let pool = known.pool;
        let _held = pool.lock.hold();
        if pool.growing.load(Ordering::Acquire) != 0 {
            self.mark_pool(pool);
            return Ok(());
        }
        let Some(reserved) = self.reserved(known) else {
            return Ok(());
        };
        self.adjust(known, reserved)?;
        if self.may_give_back(known, reserved) {
            pool.slack.fetch_or(SURPLUS, Ordering::AcqRel);
            self.memory
                .slack
                .fetch_or(u64::from(SURPLUS), Ordering::AcqRel);
        }
        Ok(())
    }

    /// Whether the pool holds whole steps that it neither needs nor is to keep.
    fn may_give_back(self, known: Known, reserved: Bytes) -> bool {
        let needed = Bytes(known.pool.used.held()).round_up(POOL_STEP);
        let surplus = needed.is_some_and(|needed| reserved > needed);
        surplus && self.threshold(known).is_none_or(|keeps| reserved > keeps)
    }

    /// A destroyed pool of which nothing is left.
    #[cold]
    fn bury_pool(self, known: Known) {
        let _held = known.pool.lock.hold();
        if known.pool.used.held() == 0 && self.is_doomed(known) {
            let _ = self.adjust(known, Bytes::ZERO);
            self.unseat_pool(known);
        }
    }

    /// A device's destroyed pools that are out of use: what they owe to streams is done once its context was waited for.
    #[cold]
    fn unused_doomed(self, ordinal: Option<u32>) -> Vec<Known> {
        self.pools()
            .filter(|known| {
                Some(known.device.ordinal) == ordinal
                    && known.pool.used.held() == 0
                    && self.is_doomed(*known)
            })
            .collect()
    }

    /// Brings the charge to what the driver says. The pool's lock is held.
    fn adjust(self, known: Known, reserved: Bytes) -> Result<(), Refused> {
        let Known { pool, device, .. } = known;
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
            let kept = Bytes(pool.used.held()).min(charged).max(reserved);
            pool.charged.store(kept.0, Ordering::SeqCst);
            self.release(device.indices, charged.saturating_sub(kept));
        }
        Ok(())
    }

    /// An allocation of a pool is freed. What the pool holds is known at the next synchronisation.
    #[inline]
    pub fn leave_pool(self, place: u32, size: Bytes, when: When) {
        if let Some(pool) = self.mirror(place) {
            pool.used.give(self.memory.threads.number(), size.0);
            self.mark_pool(pool);
            if let When::InStreamOrder(stream) = when {
                self.freed_in(stream, &pool.freed_in);
            }
        }
    }

    /// Every next free in stream order is remembered.
    pub fn forget_last_frees(self) {
        for known in self.pools() {
            known.pool.freed_in.store(0, Ordering::SeqCst);
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
    fn mark_pool(self, pool: &Pool) {
        if pool.slack.load(Ordering::Relaxed) & FREED == 0 {
            pool.slack.store(FREED, Ordering::Release);
            self.memory.slack.store(u64::from(FREED), Ordering::Release);
        }
    }

    /// Marks every pool that is charged for anything.
    fn mark_pools(self) {
        for known in self.pools() {
            if known.pool.charged.load(Ordering::Relaxed) != 0 {
                self.mark_pool(known.pool);
            }
        }
    }

    /// Reads the pools that were freed from, and only those.
    #[inline]
    pub fn after_synchronisation(self, code: CUresult) -> CUresult {
        if code == CUresult::SUCCESS && self.memory.slack.load(Ordering::Relaxed) != 0 {
            self.read_marked();
        }
        code
    }

    #[cold]
    fn read_marked(self) {
        self.memory.slack.store(0, Ordering::SeqCst);
        for known in self.pools() {
            if known.pool.slack.swap(0, Ordering::AcqRel) != 0 {
                // What cannot be charged stays marked by its next free; a refusal here has nobody to be told to.
                let _ = self.read_pool(known);
            }
        }
    }

    /// Gives back what our pools hold without need. Answers whether anything came back.
    pub fn trim_pools(self) -> bool {
        let mut freed = false;
        for known in self.pools() {
            let charged = known.pool.charged.load(Ordering::SeqCst);
            if charged == 0 {
                continue;
            }
            self.trim_pool(known);
            freed |= known.pool.charged.load(Ordering::SeqCst) < charged;
        }
        freed
    }

    /// The driver is asked under the pool's lock: a pool that another thread destroys may not be named to it.
    fn trim_pool(self, known: Known) {
        let _change = self.change();
        let held = known.pool.lock.hold();
        if let Some(handle) = self.handle_of_pool(known) {
            let _relaxed = Relaxed::begin(self);
            let _ = next::cuMemPoolTrimTo(handle, 0);
        }
        drop(held);
        // What cannot be charged stays marked; nobody is asking for anything here.
        let _ = self.read_pool(known);
    }

    /// A device's last context is gone. Pools that are empty then have no records.
    pub fn forget_pools(self, device: &Device) {
        self.forget_managed(device);
        let of_device = self
            .pools()
            .filter(|known| known.device.ordinal == device.ordinal);
        for known in of_device {
            let pool = known.pool;
            if self.is_doomed(known) {
                self.bury_pool(known);
                continue;
            }
            let _held = pool.lock.hold();
            if pool.charged.load(Ordering::SeqCst) == 0
                || self.reserved(known).is_some_and(|held| held != Bytes::ZERO)
            {
                continue;
            }
            self.memory
                .records
                .take_owned(owner_of(known.place), |_| {});
            pool.used.clear();
            let _ = self.adjust(known, Bytes::ZERO);
        }
    }
}
