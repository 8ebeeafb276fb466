//! Texture and surface objects: 64 bytes each of a block that the driver takes when the last is full (`fixtures/oracle/held-580.txt`, R71 of
//! `fixtures/defects.txt`). There has to be room for the next block where it may be taken, and what was taken is looked at after.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::cuda::{
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUresult, CUsurfObject,
    CUtexObject,
};
use budget::charge::BLOCK;
use seeds::{Seed, planted};

use crate::boundary::cross::{In, Out};
use crate::boundary::entries::next;
use crate::outcome::Outcome;
use crate::process::Tenant;

/// Objects that have room in a block.
const OF_A_BLOCK: u64 = 32_768;

/// Objects that were made, the destroyed included. All zeros is none.
#[repr(C)]
pub struct Views(AtomicU64);

pub fn create_texture(
    tenant: Tenant,
    object: Out<'_, CUtexObject>,
    resource: In<'_, CUDA_RESOURCE_DESC>,
    texture: In<'_, CUDA_TEXTURE_DESC>,
    view: In<'_, CUDA_RESOURCE_VIEW_DESC>,
) -> Outcome<CUresult> {
    create(tenant, || {
        next::cuTexObjectCreate(object, resource, texture, view)
    })
}

pub fn create_surface(
    tenant: Tenant,
    object: Out<'_, CUsurfObject>,
    resource: In<'_, CUDA_RESOURCE_DESC>,
) -> Outcome<CUresult> {
    create(tenant, || next::cuSurfObjectCreate(object, resource))
}

/// None is made over the budget, and each that may take a block only within it.
fn create(tenant: Tenant, call: impl FnOnce() -> CUresult) -> Outcome<CUresult> {
    if planted(Seed::R71) {
        return Outcome::Done(call());
    }
    let made = tenant.memory.views.0.fetch_add(1, Ordering::Relaxed);
    if !made.is_multiple_of(OF_A_BLOCK) {
        return match tenant.room_for_unasked() {
            Ok(()) => Outcome::Done(call()),
            Err(refused) => Outcome::Refused(refused),
        };
    }
    let grant = match tenant.reserve_or_trim(tenant.current_indices(), BLOCK) {
        Ok(grant) => grant,
        Err(refused) => return Outcome::Refused(refused),
    };
    let code = call();
    drop(grant);
    tenant.look_all(tenant.current_indices());
    Outcome::Done(code)
}
