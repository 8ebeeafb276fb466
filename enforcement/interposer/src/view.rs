//! Texture and surface objects: 64 bytes each of a block that the driver takes when the last is full (`fixtures/oracle/held-580.txt`, R71 of
//! `fixtures/defects.txt`). There has to be room for the next block where it may be taken, and what was taken is looked at after.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::cuda::{
    CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUresult, CUsurfObject,
    CUtexObject,
};
use seeds::{Seed, planted};

use crate::boundary::cross::{In, Out};
use crate::boundary::entries::next;
use crate::outcome::Outcome;
use crate::process::Tenant;

/// A context has room for so many (H200, 580.159.04: none takes a block for the first, each for the thousandth).
const FEW: u64 = 512;

/// Objects that were made, the destroyed included. All zeros is none.
#[repr(C)]
pub struct Views {
    made: AtomicU64,
    /// Bytes of those beyond the first few.
    bytes: AtomicU64,
}

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

fn create(tenant: Tenant, call: impl FnOnce() -> CUresult) -> Outcome<CUresult> {
    /// Of a block.
    const EACH: u64 = 64;
    let views = &tenant.memory.views;
    let few = views.made.fetch_add(1, Ordering::Relaxed) < FEW;
    match few || planted(Seed::R71) {
        true => Outcome::Done(call()),
        false => tenant.creep(&views.bytes, EACH, call),
    }
}
