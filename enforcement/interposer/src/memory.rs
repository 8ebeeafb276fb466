//! Memory with an address of its own, by any of the plain entry points, and the freeing of anything that was allocated.

use core::ffi::c_uint;

use abi::cuda::{CUdeviceptr, CUdeviceptr_v1, CUresult, CUstream};
use budget::charge::{self, Blocks, Span};
use budget::{Bytes, DeviceSet};
use seeds::{Seed, planted};

use crate::boundary::cross::Out;
use crate::boundary::entries::next;
use crate::capture::Relaxed;
use crate::deferred::Freed;
use crate::devices::{Device, NoDevice, Owner};
use crate::grant::Grant;
use crate::outcome::{Outcome, Reason, Refused};
use crate::pools::Known;
use crate::process::Tenant;
use crate::records::{Kind, Pooled, Record};

/// More than any device has: where we refuse the driver is asked for this much, so that what it objects to beside the size comes first and the out-param is left
/// as it leaves it.
pub const IMPOSSIBLE: usize = 1 << 50;

pub fn alloc(tenant: Tenant, place: Out<'_, CUdeviceptr>, size: usize) -> Outcome<CUresult> {
    if place.is_null() || size == 0 {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    let bytes = Some(Bytes(size as u64));
    let request = Request {
        place,
        kind: Kind::Blocks,
        bound: bytes,
        taken: || bytes,
        call: || next::cuMemAlloc_v2(place, size),
        impossible: || next::cuMemAlloc_v2(place, IMPOSSIBLE),
        undo: next::cuMemFree_v2,
    };
    request.decide(tenant)
}

/// The call of 32-bit days: its sizes and addresses end at 4 GiB.
pub fn alloc_v1(tenant: Tenant, place: Out<'_, CUdeviceptr_v1>, size: c_uint) -> Outcome<CUresult> {
    if place.is_null() || size == 0 {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    let bytes = Some(Bytes(u64::from(size)));
    let request = Request {
        place,
        kind: Kind::Blocks,
        bound: bytes,
        taken: || bytes,
        call: || next::cuMemAlloc(place, size),
        impossible: || next::cuMemAlloc(place, c_uint::MAX),
        undo: free_narrow,
    };
    request.decide(tenant)
}

/// Rows are padded to the driver's pitch, which it tells afterwards.
pub fn alloc_pitch(
    tenant: Tenant,
    place: Out<'_, CUdeviceptr>,
    pitch: Out<'_, usize>,
    width: usize,
    height: usize,
    element: c_uint,
) -> Outcome<CUresult> {
    pitch.answered_by_own(|pitch| {
        if place.is_null() || pitch.is_null() || width == 0 || height == 0 {
            return Outcome::PassThrough(Reason::TakesNothing);
        }
        let rows = |pitch: u64| pitch.checked_mul(height as u64).map(Bytes);
        let call = |height| next::cuMemAllocPitch_v2(place, pitch, width, height, element);
        let request = Request {
            place,
            kind: Kind::Blocks,
            bound: charge::pitch(Bytes(width as u64)).and_then(|pitch| rows(pitch.0)),
            taken: || rows(pitch.read()? as u64),
            call: || call(height),
            impossible: || call(height.max(IMPOSSIBLE / width + 1)),
            undo: next::cuMemFree_v2,
        };
        request.decide(tenant)
    })
}

pub fn alloc_pitch_v1(
    tenant: Tenant,
    place: Out<'_, CUdeviceptr_v1>,
    pitch: Out<'_, c_uint>,
    width: c_uint,
    height: c_uint,
    element: c_uint,
) -> Outcome<CUresult> {
    pitch.answered_by_own(|pitch| {
        if place.is_null() || pitch.is_null() || width == 0 || height == 0 {
            return Outcome::PassThrough(Reason::TakesNothing);
        }
        let rows = |pitch: u64| pitch.checked_mul(u64::from(height)).map(Bytes);
        let call = |height| next::cuMemAllocPitch(place, pitch, width, height, element);
        let request = Request {
            place,
            kind: Kind::Blocks,
            bound: charge::pitch(Bytes(u64::from(width))).and_then(|pitch| rows(pitch.0)),
            taken: || rows(u64::from(pitch.read()?)),
            call: || call(height),
            // More than 32 bits address, whatever the width.
            impossible: || call(height.max((c_uint::MAX / width).saturating_add(1))),
            undo: free_narrow,
        };
        request.decide(tenant)
    })
}

/// Managed memory is charged in full when it is created, to the current device, wherever its pages are: a tenant that may
/// have all of them there must be able to (decision 10). With the first goes what the device keeps from its first page on.
pub fn alloc_managed(
    tenant: Tenant,
    place: Out<'_, CUdeviceptr>,
    size: usize,
    flags: c_uint,
) -> Outcome<CUresult> {
    if place.is_null() || size == 0 {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    let bytes = Some(Bytes(size as u64));
    let device = tenant.current_device();
    let room = match device.map(|device| tenant.room_for_managed(device)) {
        Ok(room) => room,
        // Which device keeps something for it nobody says (R145 of `fixtures/defects.txt`).
        Err(NoDevice::Unknown) if !planted(Seed::R145) => Err(Refused::UnknownDevice),
        Err(_) => Ok(None),
    };
    let room = match room {
        Ok(room) => room,
        Err(refused) => {
            return tenant.verdict(next::cuMemAllocManaged(place, IMPOSSIBLE, flags), refused);
        }
    };
    let request = Request {
        place,
        kind: Kind::Managed,
        bound: bytes,
        taken: || bytes,
        call: || next::cuMemAllocManaged(place, size, flags),
        impossible: || next::cuMemAllocManaged(place, IMPOSSIBLE, flags),
        undo: next::cuMemFree_v2,
    };
    let outcome = request.decide(tenant);
    if let (Outcome::Done(CUresult::SUCCESS), Ok(device)) = (&outcome, device) {
        tenant.keeps_for_managed(device, room);
    }
    outcome
}

/// One request for memory that has an address, by any of the entry points.
struct Request<'a, T, Taken, Call, Impossible> {
    place: Out<'a, T>,
    kind: Kind,
    /// At most so much; `None` for what no 64 bits hold.
    bound: Option<Bytes>,
    /// What it was, once the driver has granted it.
    taken: Taken,
    call: Call,
    /// The same call for more than there is.
    impossible: Impossible,
    undo: fn(CUdeviceptr) -> CUresult,
}

impl<T, Taken, Call, Impossible> Request<'_, T, Taken, Call, Impossible>
where
    T: Copy + Into<u64>,
    Taken: Fn() -> Option<Bytes>,
    Call: Fn() -> CUresult,
    Impossible: Fn() -> CUresult,
{
    #[inline]
    fn decide(&self, tenant: Tenant) -> Outcome<CUresult> {
        let device = match tenant.current_device() {
            Ok(device) => device,
            Err(NoDevice::NoContext) if planted(Seed::C8) => {
                return Outcome::Done(CUresult::SUCCESS);
            }
            Err(NoDevice::NoContext) => return self.uncharged(),
            Err(NoDevice::Unknown) if planted(Seed::C8a) => {
                return Outcome::PassThrough(Reason::TakesNothing);
            }
            Err(NoDevice::Unknown) => {
                return tenant.verdict((self.impossible)(), Refused::UnknownDevice);
            }
        };
        // What no address space holds no budget does: the driver says so itself.
        let bound = self
            .bound
            .and_then(charge::blocks)
            .filter(|bound| bound.0 < IMPOSSIBLE as u64);
        let bound = if planted(Seed::C6) {
            self.bound.map(|bound| Bytes(u64::from(bound.0 as u32)))
        } else {
            bound
        };
        let Some(bound) = bound else {
            return self.uncharged();
        };
        let grant = match tenant.reserve_or_trim(device.indices, bound) {
            Ok(grant) => grant,
            Err(refused) => return tenant.verdict((self.impossible)(), refused),
        };
        let owner = tenant.owner();
        let code = (self.call)();
        if code != CUresult::SUCCESS {
            return Outcome::Done(code);
        }
        let Some(address) = self.address() else {
            return Outcome::Done(code);
        };
        let taken = (self.taken)().unwrap_or(bound);
        let record = Record {
            address,
            size: taken,
            kind: self.kind,
            ordinal: device.ordinal,
            owner: owner.context,
        };
        match settle(tenant, device, record, bound, grant, self.undo) {
            Ok(()) => {
                end_late(tenant, owner, address);
                Outcome::Done(code)
            }
            Err(refused) => tenant.verdict((self.impossible)(), refused),
        }
    }

    fn address(&self) -> Option<u64> {
        self.place
            .read()
            .map(Into::into)
            .filter(|address| *address != 0)
    }

    fn uncharged(&self) -> Outcome<CUresult> {
        refused_unless_undone((self.call)(), || self.address(), &self.undo)
    }
}

pub fn free(tenant: Tenant, address: CUdeviceptr) -> Outcome<CUresult> {
    let code = free_by(tenant, address, When::Now, || next::cuMemFree_v2(address));
    // It waits, so that pools may have given back.
    Outcome::Done(tenant.after_synchronisation(code))
}

pub fn free_v1(tenant: Tenant, address: CUdeviceptr_v1) -> Outcome<CUresult> {
    let code = free_by(tenant, u64::from(address), When::Now, || {
        next::cuMemFree(address)
    });
    Outcome::Done(tenant.after_synchronisation(code))
}

/// A 32-bit context refuses the other call.
fn free_narrow(address: CUdeviceptr) -> CUresult {
    next::cuMemFree(address as CUdeviceptr_v1)
}

/// When the driver lets go of what is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Now,
    /// When the stream comes to it.
    InStreamOrder(CUstream),
}

/// The record leaves before the driver's call, because the address may come back to another thread at once, and returns if the driver refuses.
#[inline]
pub fn free_by(
    tenant: Tenant,
    address: CUdeviceptr,
    when: When,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    if tenant.shares() {
        return free_sought(tenant, address, when, call);
    }
    let Some(pooled) = tenant.memory.records.take_pooled(address) else {
        return free_sought(tenant, address, when, call);
    };
    let _change = gives_back(when).then(|| tenant.change());
    let code = call();
    if code == CUresult::SUCCESS {
        tenant.leave_pool(pooled.pool, pooled.size, when);
    } else {
        put_back(tenant, pooled.record());
    }
    code
}

/// Its record may be anywhere, or nowhere.
#[inline(never)]
fn free_sought(
    tenant: Tenant,
    address: CUdeviceptr,
    when: When,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let found = tenant.memory.records.find(address);
    let owner = found.map(|found| tenant.owner_of(found.owner));
    let Some(record) = tenant.memory.records.take(address) else {
        if planted(Seed::C2) && address != 0 {
            return CUresult::ERROR_INVALID_HANDLE;
        }
        let view = tenant.take_view(address);
        let _change = view.map(|_| tenant.change());
        let code = call();
        if let Some(view) = view {
            tenant.end_view(address, view, code);
        }
        return code;
    };
    let code = free_recorded(tenant, record, when, call);
    if code != CUresult::SUCCESS
        && let Some(owner) = owner
    {
        end_late(tenant, owner, address);
    }
    code
}

/// Whether the driver may give back a pool's memory within the call that frees it, not in a wait to come.
#[inline]
fn gives_back(when: When) -> bool {
    when == When::Now && !planted(Seed::R137)
}

/// What is more than its pool's.
fn free_recorded(
    tenant: Tenant,
    record: Record,
    when: When,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let _change = (record.kind != Kind::Pool || gives_back(when)).then(|| tenant.change());
    let code = call();
    if code == CUresult::SUCCESS {
        freed(tenant, record, when);
    } else {
        put_back(tenant, record);
    }
    code
}

#[cold]
pub fn put_back(tenant: Tenant, record: Record) {
    if !tenant.memory.records.insert(record) {
        // Others filled its place: it stays charged until the process ends.
    }
}

/// An allocation is gone: what it was charged is given back.
pub fn freed(tenant: Tenant, record: Record, when: When) {
    let kept = if tenant.shares() {
        tenant.unexport(record.address)
    } else {
        None
    };
    match record.kind {
        Kind::Pool => {
            // Its pool gives it back where it can, and the rest is in no row.
            kept.into_iter()
                .for_each(|kept| _ = tenant.charge_anyway(kept.devices, kept.bytes));
            tenant.leave_pool(record.ordinal, record.size, when);
        }
        Kind::PageLocked => tenant.end_page_locked(record),
        Kind::Blocks | Kind::Managed => {
            if let Some(span) = span_of(&record) {
                let freed = Blocks::new(&tenant.memory.pages).give(span);
                if record.kind == Kind::Managed {
                    tenant.unmanage(devices_of(tenant, record.ordinal), freed);
                }
                match when {
                    // It stays charged until the process ends.
                    _ if kept.is_some() => {}
                    When::Now => tenant.release(devices_of(tenant, record.ordinal), freed),
                    When::InStreamOrder(_) if freed == Bytes::ZERO => {}
                    When::InStreamOrder(stream) => tenant.defer(
                        stream,
                        Freed::Blocks {
                            ordinal: record.ordinal,
                            bytes: freed,
                        },
                    ),
                }
            }
        }
    }
}

/// A call that we expect the driver to refuse. Should it not, what it made goes again: nothing is held uncharged.
pub fn refused_unless_undone(
    code: CUresult,
    made: impl Fn() -> Option<u64>,
    undo: &dyn Fn(u64) -> CUresult,
) -> Outcome<CUresult> {
    if code != CUresult::SUCCESS {
        return Outcome::Done(code);
    }
    if let Some(made) = made() {
        let _ = undo(made);
    }
    Outcome::Refused(Refused::UnknownDevice)
}

/// The pages that an allocation shares with its like.
fn span_of(record: &Record) -> Option<Span> {
    match record.kind {
        // Its pages count as in no row: those of one kind are not handed to another by an address that comes again (R93 of `fixtures/defects.txt`).
        Kind::Managed if !planted(Seed::R93) => Span::of_managed(record.address, record.size),
        _ => Span::of(record.address, record.size),
    }
}

pub fn devices_of(tenant: Tenant, ordinal: u32) -> DeviceSet {
    tenant
        .device(ordinal)
        .map_or(DeviceSet::EMPTY, |device| device.indices)
}

/// A driver gives an address out again while what had it before is on record only where another thread destroys that one's context just now: the
/// driver has, and the books do not know it yet. Two records of one address could not be told apart by who frees it (R29).
pub fn end_stale(tenant: Tenant, address: u64, ordinal: u32) {
    let records = &tenant.memory.records;
    let of_a_context = |found: Record| found.owner != 0 && found.ordinal == ordinal;
    if records.find(address).is_some_and(of_a_context)
        && !planted(Seed::R29)
        && let Some(stale) = records.take(address)
    {
        freed(tenant, stale, When::Now);
    }
}

impl Tenant {
    /// What came from a pool and has no place that its thread alone enters. In such a place it is found before whatever has its address: here it is not (R99 of
    /// `fixtures/defects.txt`).
    #[inline(never)]
    pub fn insert_among_others(self, address: u64, size: Bytes, known: Known) -> bool {
        let pooled = Pooled {
            address,
            size,
            pool: known.place,
        };
        if !planted(Seed::R99) {
            end_stale(self, address, known.device.ordinal);
        }
        self.memory.records.insert(pooled.record())
    }
}

/// What has come on record after its context had ended is gone with that.
pub fn end_late(tenant: Tenant, owner: Owner, address: u64) {
    if !tenant.has_ended(owner) {
        return;
    }
    let records = &tenant.memory.records;
    if records
        .find(address)
        .is_some_and(|found| found.owner == owner.context)
        && let Some(record) = records.take(address)
    {
        freed(tenant, record, When::Now);
    }
}

/// Charges the blocks that an allocation is the first to touch, and puts it on record. What cannot be charged is freed, and only then is what was reserved for it
/// anybody's again.
fn settle(
    tenant: Tenant,
    device: &Device,
    record: Record,
    bound: Bytes,
    grant: Grant,
    undo: fn(CUdeviceptr) -> CUresult,
) -> Result<(), Refused> {
    end_stale(tenant, record.address, record.ordinal);
    let blocks = Blocks::new(&tenant.memory.pages);
    let span = span_of(&record);
    let Some((span, fresh)) = span.and_then(|span| Some((span, blocks.take(span).ok()?))) else {
        let _relaxed = Relaxed::begin(tenant);
        let _ = undo(record.address);
        return Err(Refused::TableFull);
    };
    // An allocation that straddles one block more than its size needs.
    let excess = if planted(Seed::C6) {
        Bytes::ZERO
    } else {
        fresh.saturating_sub(bound)
    };
    match tenant.reserve(device.indices, excess) {
        Ok(more) if tenant.memory.records.insert(record) => {
            grant.commit_as(fresh.min(bound));
            more.commit_as(excess);
            if record.kind == Kind::Managed {
                tenant.manage(device.indices, fresh);
            }
            Ok(())
        }
        refused => {
            let _relaxed = Relaxed::begin(tenant);
            let _ = undo(record.address);
            // Blocks that others came to share meanwhile are theirs, at this charge.
            let kept = fresh.saturating_sub(blocks.give(span));
            grant.commit_as(kept.min(bound));
            refused.and_then(|more| {
                more.commit_as(kept.saturating_sub(bound));
                Err(Refused::TableFull)
            })
        }
    }
}
