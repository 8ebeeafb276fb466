//! Arrays and mipmapped arrays: device memory without an address (R2).
//!
//! The charges are `texels`'s; here are the calls, and what the driver says to an array that does not fit.

use core::ffi::c_uint;

use abi::cuda::enumerations::CUarray_format;
use abi::cuda::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_DESCRIPTOR_v1, CUDA_ARRAY3D_DESCRIPTOR,
    CUDA_ARRAY3D_DESCRIPTOR_v1, CUarray, CUmipmappedArray, CUresult,
};
use budget::array::Array;

use crate::boundary::cross::{In, Out};
use crate::boundary::entries::next;
use crate::devices::NoDevice;
use crate::memory::refused_unless_undone;
use crate::outcome::{Outcome, Reason, Refused};
use crate::process::Tenant;
use crate::texels::Place;

pub fn create(
    tenant: Tenant,
    array: Out<'_, CUarray>,
    descriptor: In<'_, CUDA_ARRAY_DESCRIPTOR>,
) -> Outcome<CUresult> {
    descriptor.by_own(|descriptor| {
        let asked = descriptor.read().map(|it| Array {
            width: it.Width as u64,
            height: it.Height as u64,
            depth: 0,
            format: it.Format as u32,
            channels: it.NumChannels,
            flags: 0,
        });
        one(tenant, array, asked, without_memory, &|| {
            next::cuArrayCreate_v2(array, descriptor)
        })
    })
}

pub fn create_v1(
    tenant: Tenant,
    array: Out<'_, CUarray>,
    descriptor: In<'_, CUDA_ARRAY_DESCRIPTOR_v1>,
) -> Outcome<CUresult> {
    descriptor.by_own(|descriptor| {
        let asked = descriptor.read().map(|it| Array {
            width: u64::from(it.Width),
            height: u64::from(it.Height),
            depth: 0,
            format: it.Format as u32,
            channels: it.NumChannels,
            flags: 0,
        });
        one(tenant, array, asked, without_memory_v1, &|| {
            next::cuArrayCreate(array, descriptor)
        })
    })
}

pub fn create_3d(
    tenant: Tenant,
    array: Out<'_, CUarray>,
    descriptor: In<'_, CUDA_ARRAY3D_DESCRIPTOR>,
) -> Outcome<CUresult> {
    descriptor.by_own(|descriptor| {
        one(tenant, array, deep(descriptor), without_memory, &|| {
            next::cuArray3DCreate_v2(array, descriptor)
        })
    })
}

pub fn create_3d_v1(
    tenant: Tenant,
    array: Out<'_, CUarray>,
    descriptor: In<'_, CUDA_ARRAY3D_DESCRIPTOR_v1>,
) -> Outcome<CUresult> {
    descriptor.by_own(|descriptor| {
        let asked = descriptor.read().map(|it| Array {
            width: u64::from(it.Width),
            height: u64::from(it.Height),
            depth: u64::from(it.Depth),
            format: it.Format as u32,
            channels: it.NumChannels,
            flags: it.Flags,
        });
        one(tenant, array, asked, without_memory_v1, &|| {
            next::cuArray3DCreate(array, descriptor)
        })
    })
}

pub fn create_mipmapped(
    tenant: Tenant,
    array: Out<'_, CUmipmappedArray>,
    descriptor: In<'_, CUDA_ARRAY3D_DESCRIPTOR>,
    levels: c_uint,
) -> Outcome<CUresult> {
    descriptor.by_own(|descriptor| {
        let (Some(asked), false) = (deep(descriptor), array.is_null()) else {
            return Outcome::PassThrough(Reason::TakesNothing);
        };
        let made = Made {
            call: &|| next::cuMipmappedArrayCreate(array, descriptor, levels),
            handle: &|| array.read().map(|array| array.0 as u64),
            destroy: &|handle| next::cuMipmappedArrayDestroy(CUmipmappedArray(handle as *mut _)),
            least: without_memory,
            judge: &|| {
                let mut probe = CUmipmappedArray::NULL;
                let code = next::cuMipmappedArrayCreate(
                    Out::to(&mut probe),
                    In::of(&deferred(asked)),
                    levels,
                );
                if code == CUresult::SUCCESS {
                    let _ = next::cuMipmappedArrayDestroy(probe);
                }
                code
            },
        };
        make(tenant, asked, levels, &made)
    })
}

pub fn destroy(tenant: Tenant, array: CUarray) -> Outcome<CUresult> {
    end(tenant, array.0 as u64, || next::cuArrayDestroy(array))
}

pub fn destroy_mipmapped(tenant: Tenant, array: CUmipmappedArray) -> Outcome<CUresult> {
    end(tenant, array.0 as u64, || {
        next::cuMipmappedArrayDestroy(array)
    })
}

fn deep(descriptor: In<'_, CUDA_ARRAY3D_DESCRIPTOR>) -> Option<Array> {
    descriptor.read().map(|it| Array {
        width: it.Width as u64,
        height: it.Height as u64,
        depth: it.Depth as u64,
        format: it.Format as u32,
        channels: it.NumChannels,
        flags: it.Flags,
    })
}

/// How an array comes and goes.
struct Made<'a> {
    call: &'a dyn Fn() -> CUresult,
    handle: &'a dyn Fn() -> Option<u64>,
    destroy: &'a dyn Fn(u64) -> CUresult,
    /// What it says to one that is surely right.
    least: fn(Array) -> CUresult,
    /// What the driver says to the descriptor where it takes no memory for it.
    judge: &'a dyn Fn() -> CUresult,
}

fn one(
    tenant: Tenant,
    array: Out<'_, CUarray>,
    asked: Option<Array>,
    without_memory: fn(Array) -> CUresult,
    call: &dyn Fn() -> CUresult,
) -> Outcome<CUresult> {
    let (Some(asked), false) = (asked, array.is_null()) else {
        return Outcome::PassThrough(Reason::TakesNothing);
    };
    let made = Made {
        call,
        handle: &|| array.read().map(|array| array.0 as u64),
        destroy: &|handle| next::cuArrayDestroy(CUarray(handle as *mut _)),
        least: without_memory,
        judge: &|| without_memory(asked),
    };
    make(tenant, asked, 1, &made)
}

/// What the driver says to the same array if its memory is to be bound later.
fn without_memory(asked: Array) -> CUresult {
    let mut probe = CUarray::NULL;
    let code = next::cuArray3DCreate_v2(Out::to(&mut probe), In::of(&deferred(asked)));
    if code == CUresult::SUCCESS {
        let _ = next::cuArrayDestroy(probe);
    }
    code
}

/// The same by the 32-bit version, which refuses contexts that are not its own.
fn without_memory_v1(asked: Array) -> CUresult {
    let wide = deferred(asked);
    let narrow = CUDA_ARRAY3D_DESCRIPTOR_v1 {
        Width: wide.Width as c_uint,
        Height: wide.Height as c_uint,
        Depth: wide.Depth as c_uint,
        Format: wide.Format,
        NumChannels: wide.NumChannels,
        Flags: wide.Flags,
    };
    let mut probe = CUarray::NULL;
    let code = next::cuArray3DCreate(Out::to(&mut probe), In::of(&narrow));
    if code == CUresult::SUCCESS {
        let _ = next::cuArrayDestroy(probe);
    }
    code
}

fn deferred(asked: Array) -> CUDA_ARRAY3D_DESCRIPTOR {
    /// CUDA_ARRAY3D_DEFERRED_MAPPING.
    const DEFERRED_MAPPING: u32 = 0x80;
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: asked.width as usize,
        Height: asked.height as usize,
        Depth: asked.depth as usize,
        Format: asked.format as CUarray_format,
        NumChannels: asked.channels,
        Flags: asked.flags | DEFERRED_MAPPING,
    }
}

fn make(tenant: Tenant, asked: Array, levels: u32, made: &Made<'_>) -> Outcome<CUresult> {
    let device = match tenant.current_device() {
        Ok(device) => device,
        Err(NoDevice::NoContext) => {
            return refused_unless_undone((made.call)(), || (made.handle)(), made.destroy);
        }
        Err(NoDevice::Unknown) => return tenant.verdict(judged(made), Refused::UnknownDevice),
    };
    let owner = tenant.owner();
    let Some((place, bound)) = Place::of(asked, levels, device.ordinal, owner.context) else {
        // No address space holds it: the driver says so.
        return refused_unless_undone((made.call)(), || (made.handle)(), made.destroy);
    };
    let grant = match tenant.reserve_or_trim(device.indices, bound) {
        Ok(grant) => grant,
        Err(refused) => return tenant.verdict(judged(made), refused),
    };
    let code = (made.call)();
    if code == CUresult::SUCCESS
        && let Some(handle) = (made.handle)()
    {
        grant.commit_as(tenant.enter_array(handle, place));
        tenant.end_late_array(owner, handle);
        tenant.look_for_refilled(device);
    }
    Outcome::Done(code)
}

/// The record leaves first: its handle may come back to another thread at once.
fn end(tenant: Tenant, handle: u64, call: impl FnOnce() -> CUresult) -> Outcome<CUresult> {
    let owner = tenant.owner_of_array(handle);
    let place = tenant.take_array(handle);
    let view = tenant.take_view(handle);
    let _change = tenant.change();
    let code = call();
    match place {
        Some(place) if code == CUresult::SUCCESS => tenant.end_array(place),
        Some(place) => {
            tenant.return_array(handle, place);
            owner.inspect(|owner| tenant.end_late_array(*owner, handle));
        }
        None => {}
    }
    if let Some(view) = view {
        tenant.end_view(handle, view, code);
    }
    Outcome::Done(code)
}

/// A descriptor has no size that could be made impossible. A driver that can defer an array's memory judges it without any; of
/// another nobody can ask.
fn judged(made: &Made<'_>) -> CUresult {
    const BYTES: u32 = 1;
    let least = Array {
        width: 1,
        height: 0,
        depth: 0,
        format: BYTES,
        channels: 1,
        flags: 0,
    };
    match (made.least)(least) {
        CUresult::SUCCESS => (made.judge)(),
        // It knows no deferred arrays.
        CUresult::ERROR_INVALID_VALUE | CUresult::ERROR_NOT_SUPPORTED => {
            CUresult::ERROR_OUT_OF_MEMORY
        }
        // The context is not of the call's generation, has an error that stays, or captures: no descriptor would do.
        code => code,
    }
}
