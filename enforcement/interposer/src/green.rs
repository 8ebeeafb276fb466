//! Green contexts: each holds its device's primary context, which the first of them makes, and takes memory of its own there (R16 of
//! `fixtures/defects.txt`). On an H200 under 580.159.04: 5 MiB each and 512 KiB for a stream, in blocks of 2 MiB, which stay until the
//! primary context ends; what was allocated in one is the primary context's.

use core::ffi::{c_int, c_uint};

use abi::cuda::{CUcontext, CUdevResourceDesc, CUdevice, CUgreenCtx, CUresult, CUstream};
use budget::Bytes;
use budget::settings::ContextCharge;
use seeds::{Seed, planted};

use crate::boundary::cross::Out;
use crate::boundary::entries::next;
use crate::capture::Relaxed;
use crate::context;
use crate::devices::Device;
use crate::marks::Entered;
use crate::outcome::{Outcome, Reason, Refused};
use crate::process::Tenant;

/// What a green context takes at most, beside its primary one.
const EACH: Bytes = Bytes::mib(6);
/// What a stream of one takes at most.
const STREAM: Bytes = Bytes::mib(2);

pub fn create(
    tenant: Tenant,
    place: Out<'_, CUgreenCtx>,
    desc: CUdevResourceDesc,
    ordinal: CUdevice,
    flags: c_uint,
) -> Outcome<CUresult> {
    /// CU_GREEN_CTX_DEFAULT_STREAM, which every driver wants and no other.
    const DEFAULT_STREAM: c_uint = 1;
    let known = tenant.devices().and_then(|devices| devices.get(ordinal));
    let Some(device) = known.filter(|_| !place.is_null() && flags == DEFAULT_STREAM) else {
        return Outcome::PassThrough(Reason::TakesNothing);
    };
    if planted(Seed::R16) {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    let primary = match tenant.memory.contexts.has_primary(device.ordinal) {
        true => Bytes::ZERO,
        false => context::bound_of(tenant, device),
    };
    tenant.await_room(device.indices, EACH.saturating_add(primary));
    let _held = tenant.memory.changing.hold();
    // The primary context is charged as by a call of its own, and held until the green one holds it.
    let mut primary = CUcontext::NULL;
    let makes_primary = !tenant.memory.contexts.has_primary(device.ordinal);
    if makes_primary {
        match context::retain(tenant, Out::to(&mut primary), ordinal) {
            Outcome::Done(CUresult::SUCCESS) => {}
            Outcome::Refused(refused) => return Outcome::Refused(refused),
            Outcome::Done(_) | Outcome::PassThrough(_) => {
                return Outcome::PassThrough(Reason::TakesNothing);
            }
        }
    }
    let before = place.read();
    let outcome = tenant.take_for_context(
        device,
        EACH,
        &|| next::cuGreenCtxCreate(place, desc, ordinal, flags),
        &|| {
            place.read().map(next::cuGreenCtxDestroy);
            before.into_iter().for_each(|before| place.write(before));
        },
    );
    if makes_primary {
        let _ = context::release_v2(tenant, ordinal);
    }
    outcome
}

/// The last holder of a primary context ends it, and all that was allocated there.
pub fn destroy(tenant: Tenant, green: CUgreenCtx) -> Outcome<CUresult> {
    let _held = tenant.memory.changing.hold();
    let mut context = CUcontext::NULL;
    if !green.0.is_null()
        && next::cuCtxFromGreenCtx(Out::to(&mut context), green) == CUresult::SUCCESS
    {
        let device = {
            let _entered = Entered::into(context.0 as u64);
            tenant.current_device()
        };
        let primary = |device: &Device| tenant.memory.contexts.primary_of(device.ordinal);
        let primary = device.ok().and_then(primary).unwrap_or_default();
        tenant.forget_streams_of_green(context.0 as u64, primary);
    }
    let code = context::end_primaries(tenant, &|| next::cuGreenCtxDestroy(green));
    Outcome::Done(code)
}

pub fn create_stream(
    tenant: Tenant,
    place: Out<'_, CUstream>,
    green: CUgreenCtx,
    flags: c_uint,
    priority: c_int,
) -> Outcome<CUresult> {
    let call = || next::cuGreenCtxStreamCreate(place, green, flags, priority);
    let mut context = CUcontext::NULL;
    let sound = !place.is_null()
        && !green.0.is_null()
        && !planted(Seed::R16)
        && next::cuCtxFromGreenCtx(Out::to(&mut context), green) == CUresult::SUCCESS;
    if !sound {
        return Outcome::Done(call());
    }
    let device = {
        let _entered = Entered::into(context.0 as u64);
        tenant.current_device()
    };
    let Ok(device) = device else {
        return Outcome::Refused(Refused::UnknownDevice);
    };
    make_stream(tenant, device, place, &call)
}

/// Makes a stream of a green context, by whichever call.
pub fn make_stream(
    tenant: Tenant,
    device: &Device,
    place: Out<'_, CUstream>,
    call: &dyn Fn() -> CUresult,
) -> Outcome<CUresult> {
    let before = place.read();
    tenant.take_for_context(device, STREAM, call, &|| {
        place.read().map(next::cuStreamDestroy_v2);
        before.into_iter().for_each(|before| place.write(before));
    })
}

impl Tenant {
    /// Makes a call that takes at most `bound` of the driver's own, which stays with the device's primary context: charged by the driver's
    /// figure, or as `bound` where the driver tells none. What cannot be charged is undone.
    fn take_for_context(
        self,
        device: &Device,
        bound: Bytes,
        call: &dyn Fn() -> CUresult,
        undo: &dyn Fn(),
    ) -> Outcome<CUresult> {
        let bound = match self.settings().context_charge {
            ContextCharge::Count => bound,
            ContextCharge::Free => Bytes::ZERO,
        };
        let grant = match self.reserve_or_trim(device.indices, bound) {
            Ok(grant) => grant,
            Err(refused) => return Outcome::Refused(refused),
        };
        let before = self.look_before(device, bound);
        let code = call();
        if code != CUresult::SUCCESS {
            return Outcome::Done(code);
        }
        match self.settle_by_row(device, before, grant, (bound, Bytes::ZERO, bound)) {
            Ok(bytes) if self.memory.contexts.add_to_primary(device.ordinal, bytes) => {
                Outcome::Done(code)
            }
            // No primary context of the device is known, whose end would end it: the driver has ended it under its green ones.
            Ok(bytes) => {
                self.release(device.indices, bytes);
                match self.memory.contexts.has_any(device.ordinal) {
                    true => _ = self.look_at(device),
                    false => self.forget_drift(device),
                }
                Outcome::Done(code)
            }
            Err((refused, grant)) => {
                let _relaxed = Relaxed::begin(self);
                undo();
                drop(grant);
                Outcome::Refused(refused)
            }
        }
    }
}
