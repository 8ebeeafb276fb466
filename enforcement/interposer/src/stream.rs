//! Streams: each takes memory of the driver's own, in blocks that its context keeps (decision 12: 128 of them 70 MiB).

use core::ffi::{c_int, c_uint};

use abi::cuda::{CUcontext, CUresult, CUstream};
use budget::Bytes;
use budget::settings::ContextCharge;

use crate::boundary::cross::Out;
use crate::boundary::entries::next;
use crate::devices::{NoDevice, current_context};
use crate::green;
use crate::outcome::{Outcome, Reason, Refused};
use crate::process::Tenant;
use seeds::{Seed, planted};

pub fn create(tenant: Tenant, stream: Out<'_, CUstream>, flags: c_uint) -> Outcome<CUresult> {
    make(tenant, stream, flags, &|| {
        next::cuStreamCreate(stream, flags)
    })
}

pub fn create_with_priority(
    tenant: Tenant,
    stream: Out<'_, CUstream>,
    flags: c_uint,
    priority: c_int,
) -> Outcome<CUresult> {
    make(tenant, stream, flags, &|| {
        next::cuStreamCreateWithPriority(stream, flags, priority)
    })
}

pub fn destroy(tenant: Tenant, stream: CUstream) -> Outcome<CUresult> {
    end(tenant, stream, next::cuStreamDestroy)
}

pub fn destroy_v2(tenant: Tenant, stream: CUstream) -> Outcome<CUresult> {
    end(tenant, stream, next::cuStreamDestroy_v2)
}

fn make(
    tenant: Tenant,
    stream: Out<'_, CUstream>,
    flags: c_uint,
    call: &dyn Fn() -> CUresult,
) -> Outcome<CUresult> {
    /// CU_STREAM_NON_BLOCKING, the only flag there is.
    const NON_BLOCKING: c_uint = 1;
    if stream.is_null()
        || flags & !NON_BLOCKING != 0
        || tenant.settings().context_charge == ContextCharge::Free
    {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    let device = match tenant.current_device() {
        Ok(device) => device,
        Err(NoDevice::Unknown) => return Outcome::Refused(Refused::UnknownDevice),
        Err(NoDevice::NoContext) => return Outcome::PassThrough(Reason::TakesNothing),
    };
    let handle = current_context();
    if handle == 0 {
        // The driver has a context and did not say which.
        return Outcome::Refused(Refused::UnknownDevice);
    }
    let contexts = &tenant.memory.contexts;
    let mut owner = handle;
    if contexts.ordinal_of(handle).is_none() {
        match contexts.primary_of(device.ordinal) {
            // A green context's, whose first takes a block as any beside it does (R16b of `fixtures/defects.txt`).
            Some(_) if !planted(Seed::R16b) => {
                return green::make_stream(tenant, device, stream, call);
            }
            Some(primary) => owner = primary,
            // What nobody knows was made past us.
            None => drop(tenant.adopt_current(device, handle)),
        }
    }
    // One that is gone: the driver refuses all that needs one.
    let Some(begun) = contexts.begin_stream(owner) else {
        return Outcome::PassThrough(Reason::TakesNothing);
    };
    let grant = match begun.more {
        Bytes::ZERO => None,
        more => match tenant.reserve_or_trim(device.indices, more) {
            Ok(grant) => Some(grant),
            Err(refused) => {
                begun.cancel();
                return Outcome::Refused(refused);
            }
        },
    };
    let code = call();
    match code {
        CUresult::SUCCESS => begun.commit(|more| {
            grant.into_iter().for_each(|grant| grant.commit_as(more));
        }),
        _ => begun.cancel(),
    }
    Outcome::Done(code)
}

fn end(tenant: Tenant, stream: CUstream, call: fn(CUstream) -> CUresult) -> Outcome<CUresult> {
    /// Handles up to here stand for default streams.
    const DEFAULT: usize = 2;
    let mut context = CUcontext::NULL;
    let known = stream.0 as usize > DEFAULT
        && next::cuStreamGetCtx(stream, Out::to(&mut context)) == CUresult::SUCCESS;
    tenant.forget_stream(stream);
    let code = call(stream);
    if code == CUresult::SUCCESS && known {
        tenant.memory.contexts.end_stream(context.0 as u64);
    }
    Outcome::Done(code)
}
