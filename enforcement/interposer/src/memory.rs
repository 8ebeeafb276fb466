//! cuMemAlloc and the freeing of anything that was allocated.

use core::sync::atomic::Ordering;

use abi::cuda::{CUdeviceptr, CUresult, CUstream};
use budget::charge::{self, Blocks, Span};
use budget::{Bytes, DeviceSet};

use crate::boundary::cross::Out;
use crate::boundary::entries::next;
use crate::devices::{Device, current_context};
use crate::grant::Grant;
use crate::outcome::{Outcome, Reason, Refused, verdict};
use crate::process::Tenant;
use crate::records::{Kind, Record};

/// More than any device has: where we refuse the driver is asked for this much, so that what it objects to beside the size comes first and the out-param is left
/// as it leaves it.
pub const IMPOSSIBLE: usize = 1 << 50;

pub fn alloc(tenant: Tenant, place: Out<'_, CUdeviceptr>, size: usize) -> Outcome<CUresult> {
    if place.is_null() || size == 0 {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    let Ok(device) = tenant.current_device() else {
        return uncharged(next::cuMemAlloc_v2(place, size), place, &|address| {
            next::cuMemFree_v2(address)
        });
    };
    let refuse = |refused| verdict(next::cuMemAlloc_v2(place, IMPOSSIBLE), refused);
    let bytes = Bytes(size as u64);
    // What no address space holds no budget does: the driver says so itself.
    let Some(bound) = charge::blocks(bytes).filter(|bound| bound.0 < IMPOSSIBLE as u64) else {
        return uncharged(next::cuMemAlloc_v2(place, size), place, &|address| {
            next::cuMemFree_v2(address)
        });
    };
    let grant = match tenant.reserve_or_trim(device.indices, bound) {
        Ok(grant) => grant,
        Err(refused) => return refuse(refused),
    };
    tenant.memory.activity.fetch_add(1, Ordering::Relaxed);
    let code = next::cuMemAlloc_v2(place, size);
    if code != CUresult::SUCCESS {
        return Outcome::Done(code);
    }
    let Some(address) = place.read().filter(|address| *address != 0) else {
        return Outcome::Done(code);
    };
    match settle(tenant, device, address, bytes, bound, grant) {
        Ok(()) => Outcome::Done(code),
        Err(refused) => refuse(refused),
    }
}

pub fn free(tenant: Tenant, address: CUdeviceptr) -> Outcome<CUresult> {
    Outcome::Done(free_by(tenant, address, When::Now, || {
        next::cuMemFree_v2(address)
    }))
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
    let record = tenant.memory.records.take(address);
    let code = call();
    if let Some(record) = record {
        if code == CUresult::SUCCESS {
            freed(tenant, record, when);
        } else if !tenant.memory.records.insert(record) {
            // Others filled its place: it stays charged until the process ends.
        }
    }
    code
}

/// An allocation is gone: what it was charged is given back.
#[inline]
pub fn freed(tenant: Tenant, record: Record, when: When) {
    match record.kind {
        Kind::Pool => tenant.leave_pool(record.ordinal, record.size),
        Kind::Blocks => {
            tenant.memory.activity.fetch_add(1, Ordering::Relaxed);
            if let Some(span) = Span::of(record.address, record.size) {
                let freed = Blocks::new(&tenant.memory.pages).give(span);
                match when {
                    When::Now => tenant.release(devices_of(tenant, record.ordinal), freed),
                    When::InStreamOrder(stream) => tenant.linger(stream, record.ordinal, freed),
                }
            }
        }
    }
}

/// A call that we expect the driver to refuse. Should it not, the memory goes back: nothing is held uncharged.
pub fn uncharged(
    code: CUresult,
    place: Out<'_, CUdeviceptr>,
    undo: &dyn Fn(CUdeviceptr) -> CUresult,
) -> Outcome<CUresult> {
    if code != CUresult::SUCCESS {
        return Outcome::Done(code);
    }
    if let Some(address) = place.read() {
        let _ = undo(address);
    }
    Outcome::Refused(Refused::UnknownDevice)
}

pub fn devices_of(tenant: Tenant, ordinal: u32) -> DeviceSet {
    tenant
        .devices()
        .and_then(|devices| devices.get(ordinal as i32))
        .map_or(DeviceSet::EMPTY, |device| device.indices)
}

/// Charges the blocks that an allocation is the first to touch, and puts it on record. What cannot be charged is freed, and only then is what was reserved for it
/// anybody's again.
fn settle(
    tenant: Tenant,
    device: &Device,
    address: u64,
    size: Bytes,
    bound: Bytes,
    grant: Grant,
) -> Result<(), Refused> {
    let blocks = Blocks::new(&tenant.memory.pages);
    let span = Span::of(address, size);
    let Some((span, fresh)) = span.and_then(|span| Some((span, blocks.take(span).ok()?))) else {
        let _ = next::cuMemFree_v2(address);
        return Err(Refused::TableFull);
    };
    let record = Record {
        address,
        size,
        kind: Kind::Blocks,
        ordinal: device.ordinal,
        owner: current_context(),
    };
    // An allocation that straddles one block more than its size needs.
    let excess = fresh.saturating_sub(bound);
    match tenant.reserve(device.indices, excess) {
        Ok(more) if tenant.memory.records.insert(record) => {
            grant.commit_as(fresh.min(bound));
            more.commit_as(excess);
            Ok(())
        }
        refused => {
            let _ = next::cuMemFree_v2(address);
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
