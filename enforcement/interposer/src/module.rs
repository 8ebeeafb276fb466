//! Loading of modules and libraries: their variables and code are device memory (R13).
//!
//! The image says at most how much (`budget::image`), as far as it can be read without unpacking it; the driver's figure says
//! what it was, and what turns out not to fit is unloaded.

use core::ffi::{c_char, c_uint, c_void};

use abi::cuda::enumerations::{CUjit_option, CUlibraryOption};
use abi::cuda::{CUlibrary, CUmodule, CUresult};
use budget::Bytes;
use budget::image::Needs;
use budget::settings::ContextCharge;

use crate::boundary::arena::Owned;
use crate::boundary::cross::{In, Out};
use crate::boundary::entries::next;
use crate::boundary::image;
use crate::capture::Relaxed;
use crate::contexts::Context;
use crate::devices::{Device, Devices, NoDevice, current_context};
use crate::grant::Grant;
use crate::limits::Limits;
use crate::marks::Entered;
use crate::memory::devices_of;
use crate::modules::{Library, Part};
use crate::nvml::Scope;
use crate::outcome::{Outcome, Reason, Refused};
use crate::process::Tenant;
use crate::report::{self, Once};
use ledger::KeptErrno;
use seeds::{Seed, planted};

pub fn load(tenant: Tenant, module: Out<'_, CUmodule>, name: In<'_, c_char>) -> Outcome<CUresult> {
    if let Err(refused) = readable(tenant, name) {
        return Outcome::Refused(refused);
    }
    load_module(tenant, module, || image::needs_of_file(name), &|| {
        next::cuModuleLoad(module, name)
    })
}

/// What is no plain file can be read once, and that is the driver's: nobody could say what it takes, least of all managed variables, which no row shows
/// (R69 of `fixtures/defects.txt`).
fn readable(tenant: Tenant, name: In<'_, c_char>) -> Result<(), Refused> {
    let devices = tenant.devices().into_iter().flat_map(Devices::iter);
    let has_budget = devices
        .flat_map(|device| device.indices.iter())
        .any(|index| tenant.budget(index).is_some());
    let Some(path) = image::odd_file(name).filter(|_| has_budget && !planted(Seed::R69)) else {
        return Ok(());
    };
    report::once(
        Once::OddImage,
        format_args!(
            "{}: no plain file, so nobody can say what its image takes of a device; it is not loaded",
            path.display()
        ),
    );
    Err(Refused::NotEnforceable)
}

pub fn load_data(
    tenant: Tenant,
    module: Out<'_, CUmodule>,
    bytes: In<'_, c_void>,
) -> Outcome<CUresult> {
    load_module(tenant, module, || image::needs_of(bytes), &|| {
        next::cuModuleLoadData(module, bytes)
    })
}

pub fn load_data_ex(
    tenant: Tenant,
    module: Out<'_, CUmodule>,
    bytes: In<'_, c_void>,
    count: c_uint,
    options: Out<'_, CUjit_option>,
    values: Out<'_, *mut c_void>,
) -> Outcome<CUresult> {
    load_module(tenant, module, || image::needs_of(bytes), &|| {
        next::cuModuleLoadDataEx(module, bytes, count, options, values)
    })
}

pub fn load_fat_binary(
    tenant: Tenant,
    module: Out<'_, CUmodule>,
    bytes: In<'_, c_void>,
) -> Outcome<CUresult> {
    load_module(tenant, module, || image::needs_of(bytes), &|| {
        next::cuModuleLoadFatBinary(module, bytes)
    })
}

/// A module takes its memory at once.
fn load_module(
    tenant: Tenant,
    module: Out<'_, CUmodule>,
    needs: impl FnOnce() -> Needs,
    call: &dyn Fn() -> CUresult,
) -> Outcome<CUresult> {
    /// What the first module of a context that calls malloc takes (H200, 580.159.04).
    const MALLOC_MACHINERY: Bytes = Bytes(144_703_488);
    let device = match tenant.current_device() {
        Ok(device) if !module.is_null() => device,
        Err(NoDevice::Unknown) => return Outcome::Refused(Refused::UnknownDevice),
        _ => return Outcome::PassThrough(Reason::TakesNothing),
    };
    let needs = needs();
    let _nvml = Scope::begin(tenant);
    let limits = tenant.limits_of(current_context(), device);
    let machinery =
        limits.filter(|limits| needs.calls_malloc && !limits.has_malloc() && !planted(Seed::R82));
    let bound = match tenant.settings().context_charge {
        ContextCharge::Count => {
            let machinery = machinery.map_or(Bytes::ZERO, |_| MALLOC_MACHINERY);
            needs.bound().saturating_add(machinery)
        }
        ContextCharge::Free => needs.lasting(),
    };
    let (own, managed) = (needs.lasting(), needs.managed);
    let room = match room_for_managed(tenant, device, managed) {
        Ok(room) => room,
        Err(refused) => return Outcome::Refused(refused),
    };
    let (grant, granted) = match reserve(tenant, device, needs, bound, machinery.is_some()) {
        Ok(granted) => granted,
        Err(refused) => return Outcome::Refused(refused),
    };
    let _alone = match alone(tenant, (granted, bound)) {
        Ok(alone) => alone,
        Err(refused) => return Outcome::Refused(refused),
    };
    // Far from the budget what it takes is charged at most, and not looked at before the next look comes.
    let unseen = needs.whole && granted == bound && tenant.is_far(device, bound);
    let looked = match unseen {
        true => None,
        false => tenant.look_before(device, granted),
    };
    let owner = tenant.owner();
    let before = module.read();
    let code = call();
    let Some(made) = module.read().filter(|_| code == CUresult::SUCCESS) else {
        drop((room, grant));
        // A load that failed may have left something behind.
        tenant.look_at(device);
        return Outcome::Done(code);
    };
    // In no row, so beside it before anything is looked at. What the device keeps for it stays, whatever becomes of the module.
    tenant.manage(device.indices, managed);
    tenant.keeps_for_managed(device, room);
    let settled = match unseen {
        true => Ok(tenant.settle_unseen(device, grant, bound, own)),
        false => tenant.settle_by_row(device, looked, grant, (granted, own, bound)),
    };
    let settled = settled.map(|bytes| Part {
        context: owner.context,
        ordinal: device.ordinal,
        bytes,
        managed,
    });
    let (refused, grant) = match settled {
        Ok(part) => {
            machinery.into_iter().for_each(Limits::note_malloc);
            tenant.enter_module(made.0 as u64, part);
            tenant.end_late_module(owner, made.0 as u64);
            return Outcome::Done(code);
        }
        Err(refused) => refused,
    };
    // A capture under way would forbid it, and the module stay (R104 of `fixtures/defects.txt`).
    let _relaxed = (!planted(Seed::R104)).then(|| Relaxed::begin(tenant));
    let _ = next::cuModuleUnload(made);
    tenant.unmanage(device.indices, managed);
    drop(grant);
    if let Some(before) = before {
        module.write(before);
    }
    tenant.look_at(device);
    Outcome::Refused(refused)
}

/// The first managed memory takes what a device keeps for it, a variable as anything else (R41 of `fixtures/defects.txt`).
pub fn room_for_managed(
    tenant: Tenant,
    device: &Device,
    managed: Bytes,
) -> Result<Option<Grant>, Refused> {
    match managed == Bytes::ZERO || planted(Seed::R41) {
        true => Ok(None),
        false => tenant.room_for_managed(device),
    }
}

/// The most that a module takes. Where no budget has room for code and small variables they may still fit beside others of their
/// context, as the driver will tell: the driver's own complaints come first then.
fn reserve(
    tenant: Tenant,
    device: &Device,
    needs: Needs,
    bound: Bytes,
    takes_machinery: bool,
) -> Result<(Grant, Bytes), Refused> {
    /// Variables that may hold more than this fit beside no others.
    const MOST_BESIDE: Bytes = Bytes::mib(32);
    let may_fit = needs.lasting() == Bytes::ZERO
        && (needs.shared <= MOST_BESIDE || planted(Seed::R31c))
        && !takes_machinery;
    match tenant.reserve_or_trim(device.indices, bound) {
        Ok(grant) => Ok((grant, bound)),
        Err(_) if may_fit => Ok((tenant.reserve(device.indices, Bytes::ZERO)?, Bytes::ZERO)),
        Err(refused) => Err(refused),
    }
}

/// A load that no room was granted for is there before it is judged: so is one of a tenant at a time (R111, R140 of `fixtures/defects.txt`).
/// Among the process's threads, and among the tenant's processes.
fn alone(
    tenant: Tenant,
    (granted, bound): (Bytes, Bytes),
) -> Result<(Option<Owned<'static>>, Option<ledger::Turn>), Refused> {
    if granted == bound || planted(Seed::R111) {
        return Ok((None, None));
    }
    let own = tenant.memory.loading.hold();
    match ledger::turn(&tenant.settings().ledger) {
        _ if planted(Seed::R140) => Ok((own, None)),
        None => Err(Refused::NotEnforceable),
        turn => Ok((own, turn)),
    }
}

/// The record leaves first: its handle may come back to another thread at once.
pub fn unload(tenant: Tenant, module: CUmodule) -> Outcome<CUresult> {
    let owner = tenant.owner_of_module(module.0 as u64);
    let part = tenant.take_module(module.0 as u64);
    let functions = tenant.forget_functions_of(module.0 as u64);
    let change = tenant.change();
    let code = next::cuModuleUnload(module);
    if code != CUresult::SUCCESS {
        tenant.restore_functions(functions);
    }
    match part {
        Some(part) if code == CUresult::SUCCESS => {
            tenant.release_parts(&[part]);
            drop(change);
            look_after(tenant, &[part]);
        }
        Some(part) => {
            tenant.enter_module(module.0 as u64, part);
            owner.inspect(|owner| tenant.end_late_module(*owner, module.0 as u64));
        }
        None => {}
    }
    Outcome::Done(code)
}

#[expect(clippy::too_many_arguments, reason = "they are the driver's")]
pub fn load_library(
    tenant: Tenant,
    library: Out<'_, CUlibrary>,
    code: In<'_, c_void>,
    options: Out<'_, CUjit_option>,
    values: Out<'_, *mut c_void>,
    count: c_uint,
    library_options: Out<'_, CUlibraryOption>,
    library_values: Out<'_, *mut c_void>,
    library_count: c_uint,
) -> Outcome<CUresult> {
    load_for_all(tenant, library, || image::needs_of(code), &|| {
        next::cuLibraryLoadData(
            library,
            code,
            options,
            values,
            count,
            library_options,
            library_values,
            library_count,
        )
    })
}

#[expect(clippy::too_many_arguments, reason = "they are the driver's")]
pub fn load_library_file(
    tenant: Tenant,
    library: Out<'_, CUlibrary>,
    name: In<'_, c_char>,
    options: Out<'_, CUjit_option>,
    values: Out<'_, *mut c_void>,
    count: c_uint,
    library_options: Out<'_, CUlibraryOption>,
    library_values: Out<'_, *mut c_void>,
    library_count: c_uint,
) -> Outcome<CUresult> {
    if let Err(refused) = readable(tenant, name) {
        return Outcome::Refused(refused);
    }
    load_for_all(tenant, library, || image::needs_of_file(name), &|| {
        next::cuLibraryLoadFromFile(
            library,
            name,
            options,
            values,
            count,
            library_options,
            library_values,
            library_count,
        )
    })
}

/// A library's variables are taken in each context when it is first used there, and charged from its load on (R31 of `fixtures/defects.txt`). It is used
/// at once, so that the driver's row tells what its image did not (R65). Its code comes function by function.
fn load_for_all(
    tenant: Tenant,
    library: Out<'_, CUlibrary>,
    needs: impl FnOnce() -> Needs,
    call: &dyn Fn() -> CUresult,
) -> Outcome<CUresult> {
    if library.is_null() {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    let needs = needs();
    // Many ways lead to a library's variables, launches among them, so whoever loads it answers for all of them. What code takes is the next look's.
    let own = match tenant.settings().context_charge {
        ContextCharge::Count if !planted(Seed::R31) => needs.own.saturating_add(needs.shared),
        _ => needs.own,
    };
    let managed = needs.managed;
    if let Err(refused) = tenant.room_for_unasked() {
        return Outcome::Refused(refused);
    }
    let contexts = tenant.memory.contexts.list();
    for device in tenant.devices().into_iter().flat_map(Devices::iter) {
        let own = contexts
            .iter()
            .filter(|it| it.ordinal == device.ordinal)
            .fold(managed, |sum, _| sum.saturating_add(own));
        if own != managed {
            tenant.await_room(device.indices, own);
        }
    }
    // No context may come between.
    let _held = tenant.memory.changing.hold();
    let contexts = tenant.memory.contexts.list();
    let mut loaded = Library {
        own,
        managed,
        ..Library::default()
    };
    for context in &contexts {
        let _ = loaded.begin_context(context.handle, context.ordinal);
    }
    let mut rooms = Vec::new();
    for device in loaded.ordinals_of_managed().map(|it| tenant.device(it)) {
        match device.map(|device| (device, room_for_managed(tenant, device, managed))) {
            Some((device, Ok(room))) => rooms.push((device, room)),
            Some((_, Err(refused))) => return Outcome::Refused(refused),
            None => {}
        }
    }
    let mut grants = Vec::new();
    for part in &loaded.parts {
        match tenant.reserve_or_trim(devices_of(tenant, part.ordinal), part.bytes) {
            Ok(grant) => grants.push((grant, part)),
            Err(refused) => return Outcome::Refused(refused),
        }
    }
    let before = library.read();
    let code = call();
    let Some(made) = library.read().filter(|_| code == CUresult::SUCCESS) else {
        return Outcome::Done(code);
    };
    for (grant, part) in grants {
        tenant.manage(devices_of(tenant, part.ordinal), part.managed);
        grant.commit_as(part.bytes);
    }
    for (device, room) in rooms {
        tenant.keeps_for_managed(device, room);
    }
    tenant.enter_library(made.0 as u64, loaded);
    // Whatever its image said: it may have been another by the time that the driver read it.
    let mut contexts = contexts.into_iter();
    match contexts.try_for_each(|context| bring(tenant, &[made.0 as u64], context)) {
        Ok(()) => Outcome::Done(code),
        Err(refused) => {
            let _ = unload_library(tenant, made);
            if let Some(before) = before {
                library.write(before);
            }
            Outcome::Refused(refused)
        }
    }
}

/// Uses libraries in a context, as anything would that needs them there, and charges what they take by it. Refused is what does not fit: it is there
/// all the same, until the library or the context ends.
pub fn bring(tenant: Tenant, libraries: &[u64], context: Context) -> Result<(), Refused> {
    let is_told = tenant.settings().context_charge == ContextCharge::Count;
    let Some(device) = tenant
        .device(context.ordinal)
        .filter(|_| is_told && !libraries.is_empty() && !planted(Seed::R65))
    else {
        return Ok(());
    };
    if !device
        .indices
        .iter()
        .any(|index| tenant.budget(index).is_some())
    {
        return Ok(());
    }
    // The driver has made the call, and its errno is the program's.
    let _errno = KeptErrno::keep();
    let grant = tenant.reserve(device.indices, Bytes::ZERO)?;
    {
        let _entered = Entered::into(context.handle);
        let _relaxed = Relaxed::begin(tenant);
        for library in libraries {
            let asked = CUlibrary(core::ptr::without_provenance_mut(*library as usize));
            let mut module = CUmodule::NULL;
            // That an image is bad, or none for that device, is the program's to find where it uses it.
            if next::cuLibraryGetModule(Out::to(&mut module), asked) == CUresult::SUCCESS {
                tenant.note_brought(*library, context.handle);
            }
        }
    }
    let _nvml = Scope::begin(tenant);
    let none = Bytes::ZERO;
    match tenant.settle_by_row(device, None, grant, (none, none, none)) {
        Ok(_) => Ok(()),
        Err((refused, _)) => Err(refused),
    }
}

pub fn unload_library(tenant: Tenant, library: CUlibrary) -> Outcome<CUresult> {
    // A context that is being made is charged for it already and has no part of it yet (R84a of `fixtures/defects.txt`).
    let _held = (!planted(Seed::R84a)).then(|| tenant.memory.changing.hold());
    let known = tenant.begin_to_unload(library.0 as u64);
    let functions = tenant.forget_functions_of(library.0 as u64);
    let change = tenant.change();
    let code = {
        // Who makes a context meanwhile is charged for it, too.
        let _lent = tenant.memory.changing.lend();
        next::cuLibraryUnload(library)
    };
    let known = known.and_then(|number| tenant.take_library(number));
    if code != CUresult::SUCCESS {
        tenant.restore_functions(functions);
    }
    match known {
        Some(known) if code == CUresult::SUCCESS => {
            tenant.release_parts(&known.parts);
            drop(change);
            look_after(tenant, &known.parts);
        }
        Some(known) => tenant.enter_library(library.0 as u64, known),
        None => {}
    }
    Outcome::Done(code)
}

fn look_after(tenant: Tenant, parts: &[Part]) {
    let _nvml = Scope::begin(tenant);
    for part in parts {
        if let Some(device) = tenant.device(part.ordinal) {
            tenant.look_at(device);
        }
    }
}
