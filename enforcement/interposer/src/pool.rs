//! Stream-ordered allocation: what a pool reserves is charged, not what is in use of it (decision 13).
//!
//! The hooks. [`ordered`](crate::ordered) decides a request, [`mirror`](crate::mirror) keeps what is charged for a pool.

use core::ffi::c_void;

use abi::cuda::enumerations::CUmemAllocationType;
use abi::cuda::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUmemLocation, CUmemPool_attribute, CUmemPoolProps,
    CUmemoryPool, CUresult, CUstream,
};

use crate::boundary::cross::{In, Out};
use crate::boundary::entries::next;
use crate::capture::{Relaxed, named};
use crate::devices::current_context;
use crate::lent;
use crate::location::{self, Home};
use crate::memory::{When, free_by};
use crate::ordered::Calls;
use crate::outcome::{Outcome, Reason, Refused};
use crate::process::Tenant;

/// CU_MEM_LOCATION_TYPE_DEVICE.
const ON_DEVICE: i32 = 1;
/// CU_MEM_ALLOCATION_TYPE_PINNED.
const PINNED: CUmemAllocationType = 1;
/// CU_MEM_ALLOCATION_TYPE_MANAGED.
const MANAGED: CUmemAllocationType = 2;

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
    let pool = || tenant.pool_of(stream);
    calls.decide(tenant, tenant.era_of_pools(), pool, &pool)
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
    let pool = || tenant.pool_of(stream);
    calls.decide(tenant, tenant.era_of_pools(), pool, &pool)
}

pub fn alloc_from(
    tenant: Tenant,
    place: Out<'_, CUdeviceptr>,
    size: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Outcome<CUresult> {
    let era = tenant.era_of_pools();
    let known = match tenant.pool_of_handle(pool) {
        Ok(Some(known)) => known,
        Ok(None) => return Outcome::PassThrough(Reason::TakesNothing),
        Err(refused) => return Outcome::Refused(refused),
    };
    let calls = Calls {
        alloc: move |size| next::cuMemAllocFromPoolAsync(place, size, pool, stream),
        free: move |address| next::cuMemFreeAsync(address, stream),
        place,
        size,
        stream,
    };
    let again = || tenant.pool_of_handle(pool).ok().flatten();
    calls.decide(tenant, era, || Some(known), &again)
}

pub fn alloc_from_ptsz(
    tenant: Tenant,
    place: Out<'_, CUdeviceptr>,
    size: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Outcome<CUresult> {
    let era = tenant.era_of_pools();
    let known = match tenant.pool_of_handle(pool) {
        Ok(Some(known)) => known,
        Ok(None) => return Outcome::PassThrough(Reason::TakesNothing),
        Err(refused) => return Outcome::Refused(refused),
    };
    let calls = Calls {
        alloc: move |size| next::cuMemAllocFromPoolAsync_ptsz(place, size, pool, stream),
        free: move |address| next::cuMemFreeAsync_ptsz(address, stream),
        place,
        size,
        stream: named(stream),
    };
    let again = || tenant.pool_of_handle(pool).ok().flatten();
    calls.decide(tenant, era, || Some(known), &again)
}

/// A pool of the program's own.
pub fn create(
    tenant: Tenant,
    pool: Out<'_, CUmemoryPool>,
    props: In<'_, CUmemPoolProps>,
) -> Outcome<CUresult> {
    props.by_own(|props| {
        let before = pool.read();
        let code = next::cuMemPoolCreate(pool, props);
        let (CUresult::SUCCESS, Some(props), Some(made)) = (code, props.read(), pool.read()) else {
            return Outcome::Done(code);
        };
        let Err(refused) = tenant.meet_pool(made, props.location, props.allocType) else {
            let shareable = props.handleTypes != 0;
            if let Some(known) = tenant.own_pool(made).filter(|_| shareable) {
                tenant.begin_loan(known);
            }
            return Outcome::Done(code);
        };
        let _relaxed = Relaxed::begin(tenant);
        let _ = next::cuMemPoolDestroy(made);
        before.into_iter().for_each(|before| pool.write(before));
        Outcome::Refused(refused)
    })
}

/// A device's default pool of any kind of memory, which the driver makes when it is asked for.
pub fn default_at(
    tenant: Tenant,
    pool: Out<'_, CUmemoryPool>,
    location: Out<'_, CUmemLocation>,
    kind: CUmemAllocationType,
) -> Outcome<CUresult> {
    location.by_own(|location| {
        let before = pool.read();
        let code = next::cuMemGetDefaultMemPool(pool, location, kind);
        told(tenant, pool, before, location, kind, code)
    })
}

pub fn current_at(
    tenant: Tenant,
    pool: Out<'_, CUmemoryPool>,
    location: Out<'_, CUmemLocation>,
    kind: CUmemAllocationType,
) -> Outcome<CUresult> {
    location.by_own(|location| {
        let before = pool.read();
        let code = next::cuMemGetMemPool(pool, location, kind);
        told(tenant, pool, before, location, kind, code)
    })
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

/// Its allocations live on. What they hold stays charged until the last of them is freed and all streams have come to what was freed of it,
/// since nobody can be asked any longer; what nothing is in use of goes before.
pub fn destroy(tenant: Tenant, pool: CUmemoryPool) -> Outcome<CUresult> {
    let Some(known) = tenant.own_pool(pool) else {
        return lent::destroy(tenant, pool);
    };
    tenant.trim_pool(known);
    let (leaving, is_empty) = tenant.begin_to_destroy(known, pool, || tenant.end_pool(known));
    let code = next::cuMemPoolDestroy(pool);
    if code != CUresult::SUCCESS {
        tenant.revive_pool(known, pool);
        return Outcome::Done(code);
    }
    tenant.succeed_pool(known);
    drop(leaving);
    if is_empty {
        tenant.bury_pool(known);
    } else {
        let _ = tenant.end_deferred();
    }
    Outcome::Done(code)
}

pub fn set_current(tenant: Tenant, ordinal: CUdevice, pool: CUmemoryPool) -> Outcome<CUresult> {
    becomes_current(tenant, ordinal, pool, || {
        next::cuDeviceSetMemPool(ordinal, pool)
    })
}

/// The same by a location. A device has a current pool of managed memory beside that of its own.
pub fn set_current_at(
    tenant: Tenant,
    location: Out<'_, CUmemLocation>,
    kind: CUmemAllocationType,
    pool: CUmemoryPool,
) -> Outcome<CUresult> {
    location.by_own(|location| {
        let call = || next::cuMemSetMemPool(location, kind, pool);
        let home = location.read().map(Home::of).filter(|_| kind == PINNED);
        match home {
            Some(Home::Device(ordinal)) => becomes_current(tenant, ordinal, pool, call),
            // A domain's is the whole device's where there is one domain.
            Some(Home::PartOf(ordinal)) => {
                let _changing = tenant.change_pools();
                let known = match tenant.pool_of_handle(pool) {
                    Ok(known) => known,
                    Err(refused) => return Outcome::Refused(refused),
                };
                let code = call();
                let device = tenant.devices().and_then(|devices| devices.get(ordinal));
                if let Some(device) = device.filter(|_| current_pool(ordinal) == Some(pool)) {
                    tenant.set_current_pool(device, known);
                }
                Outcome::Done(code)
            }
            // Where the driver has a pool of such a place, whose memory it is cannot be told.
            Some(Home::Unknown) => {
                let mut current = CUmemoryPool::NULL;
                match next::cuMemGetMemPool(Out::to(&mut current), location, kind) {
                    CUresult::SUCCESS => {
                        location.read().into_iter().for_each(location::say_unknown);
                        Outcome::Refused(Refused::UnknownDevice)
                    }
                    _ => Outcome::Done(call()),
                }
            }
            Some(Home::Nowhere | Home::Host) | None => Outcome::Done(call()),
        }
    })
}

/// The pool that plain requests on a device come from.
fn current_pool(ordinal: CUdevice) -> Option<CUmemoryPool> {
    let mut location = CUmemLocation {
        type_: ON_DEVICE,
        id: ordinal,
    };
    let mut pool = CUmemoryPool::NULL;
    let code = next::cuMemGetMemPool(Out::to(&mut pool), Out::to(&mut location), PINNED);
    (code == CUresult::SUCCESS).then_some(pool)
}

/// It must be known before: plain requests come from it as soon as the driver has agreed.
fn becomes_current(
    tenant: Tenant,
    ordinal: CUdevice,
    pool: CUmemoryPool,
    call: impl FnOnce() -> CUresult,
) -> Outcome<CUresult> {
    // One that is being destroyed no longer becomes current, unless it comes back.
    let _changing = tenant.change_pools();
    let known = match tenant.pool_of_handle(pool) {
        Ok(known) => known,
        Err(refused) => return Outcome::Refused(refused),
    };
    let code = call();
    if code == CUresult::SUCCESS
        && let Some(device) = tenant.devices().and_then(|devices| devices.get(ordinal))
    {
        tenant.set_current_pool(device, known);
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
    giving_back(tenant, || next::cuMemPoolTrimTo(pool, keep))
}

/// A call within which the driver may give back what any pool holds.
fn giving_back(tenant: Tenant, call: impl FnOnce() -> CUresult) -> Outcome<CUresult> {
    let change = tenant.change();
    let code = call();
    tenant.mark_pools();
    drop(change);
    Outcome::Done(tenant.after_synchronisation(code))
}

pub fn set_attribute(
    tenant: Tenant,
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: Out<'_, c_void>,
) -> Outcome<CUresult> {
    giving_back(tenant, || {
        next::cuMemPoolSetAttribute(pool, attribute, value)
    })
}

/// A wait of the program's, from before it. What is freed while it lasts may not be waited for.
#[derive(Clone, Copy)]
pub struct Wait {
    /// The context that is waited for with all that it has to do, and the last free before; NULL is the current one.
    whole: Option<(CUcontext, u64)>,
}

pub fn wait_for_current(tenant: Tenant) -> Wait {
    wait_for_context(tenant, CUcontext::NULL)
}

#[inline]
pub fn wait_for_context(tenant: Tenant, context: CUcontext) -> Wait {
    let last = tenant.last_deferred();
    Wait {
        whole: last.map(|last| (context, last)),
    }
}

pub fn wait_for_stream(_: Tenant, _: CUstream) -> Wait {
    Wait { whole: None }
}

pub fn wait_for_event(_: Tenant, _: CUevent) -> Wait {
    Wait { whole: None }
}

impl Wait {
    /// It has ended with the driver's answer.
    #[inline]
    pub fn end(self, tenant: Tenant, code: CUresult) -> CUresult {
        if code == CUresult::SUCCESS
            && let Some((context, last)) = self.whole
        {
            let context = match context.0 as u64 {
                0 => current_context(),
                handle => handle,
            };
            tenant.end_deferred_in(context, last);
        }
        tenant.after_synchronisation(code)
    }
}

impl Tenant {
    /// A pool that the program has a handle of is known by it from now on. Pinned memory of the host takes none of a device's;
    /// managed memory that is at home there may be on the current one, all of it.
    fn meet_pool(
        self,
        handle: CUmemoryPool,
        location: CUmemLocation,
        kind: CUmemAllocationType,
    ) -> Result<(), Refused> {
        let device = match (Home::of(location), kind) {
            (Home::Device(ordinal) | Home::PartOf(ordinal), _) => {
                self.devices().and_then(|devices| devices.get(ordinal))
            }
            (_, MANAGED) => self.current_device().ok().or_else(|| self.device(0)),
            (Home::Host, _) => return Ok(()),
            (Home::Nowhere | Home::Unknown, _) => {
                location::say_unknown(location);
                None
            }
        };
        let device = device.ok_or(Refused::UnknownDevice)?;
        if self.pool_of_handle(handle)?.is_some()
            || self.seat_pool(handle, device.ordinal, kind == MANAGED)
        {
            Ok(())
        } else {
            Err(Refused::TableFull)
        }
    }
}
