//! What cuInit and contexts take: an upper bound is reserved before, the driver's own figure charged after (decision 12).

use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{Ordering, fence};
use ledger::{Change, KeptErrno};

use abi::cuda::{CUcontext, CUdevice, CUlimit, CUresult};
use budget::settings::ContextCharge;
use budget::{Bytes, DeviceIndex, DeviceSet, charge};

use crate::boundary::cross::Out;
use crate::boundary::drivers::Library;
use crate::boundary::entries::next;
use crate::boundary::{manners, time};
use crate::capture::Relaxed;
use crate::contexts::Context;
use crate::devices::{Device, Devices, devices_before_init};
use crate::memory;
use crate::module;
use crate::nvml::{self, Processes, Scope, Session};
use crate::outcome::{Outcome, Reason, Refused};
use crate::pinned::Asking;
use crate::process::{self, ORDINALS, Standing, Tenant};
use crate::report::{self, Once};
use seeds::{Mark, Seed, mark, planted};
use throttle::Nanos;

/// `initialised` once cuInit is charged.
const CHARGED: u32 = 2;

/// Of what a context takes, in no row at most: 5.6 MiB on an H200 under 580.
const UNSAID: Bytes = Bytes::mib(16);

/// cuInit can be called: it was looked up, or the program is linked to it. NVML is opened here already, since whoever calls cuInit may be waited for by a
/// library's constructor, with the loader's lock held (attack 27).
pub fn is_at_hand() {
    if matches!(process::standing(), Standing::Enforce(_)) {
        let _errno = KeptErrno::keep();
        nvml::find();
    }
}

pub fn init(tenant: Tenant, flags: c_uint) -> Outcome<CUresult> {
    let outcome = init_and_charge(tenant, flags);
    if tenant.memory.initialised.load(Ordering::Acquire) != 0 {
        // With nothing held: the loader's lock may be with somebody who waits for a lock of ours.
        let _errno = KeptErrno::keep();
        Library::Cuda.keep();
    }
    outcome
}

fn init_and_charge(tenant: Tenant, flags: c_uint) -> Outcome<CUresult> {
    let _errno = KeptErrno::keep();
    manners::forget();
    let memory = tenant.memory;
    if flags != 0 || memory.initialised.load(Ordering::Acquire) == CHARGED {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    if tenant.ledger().is_some() {
        nvml::find();
    }
    // What the driver's cuInit calls of ours in turn is part of it.
    let Some(_held) = memory.changing.hold() else {
        return Outcome::PassThrough(Reason::TakesNothing);
    };
    if memory.initialised.load(Ordering::Acquire) == CHARGED {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    // Nothing can be granted without a ledger, but the program may still look around.
    let counted =
        tenant.settings().context_charge == ContextCharge::Count && tenant.ledger().is_some();
    let (mut grants, mut before) = (Vec::new(), None);
    // Of devices that are full: what is charged beyond their budget until the driver tells whether this process is shown them.
    let mut beyond: Vec<(DeviceIndex, Refused)> = Vec::new();
    let give_back = |beyond: &[(DeviceIndex, Refused)]| {
        let devices = beyond.iter().map(|(index, _)| *index).collect();
        tenant.release(devices, charge::INIT);
    };
    if counted {
        before = devices_before_init();
        for candidate in before.iter().flatten() {
            let several = before.as_ref().map_or(0, Vec::len);
            match tenant.reserve(DeviceSet::from_iter([candidate.index]), charge::INIT) {
                Ok(grant) => grants.push((candidate.index, grant)),
                Err(refused)
                    if shows_fewer_than(several) && tenant.overdraw_for_init(candidate.index) =>
                {
                    beyond.push((candidate.index, refused));
                }
                Err(refused) => {
                    give_back(&beyond);
                    return Outcome::Refused(refused);
                }
            }
        }
    }
    let code = next::cuInit(flags);
    if code != CUresult::SUCCESS {
        give_back(&beyond);
        return Outcome::Done(code);
    }
    tenant.set_initialised();
    let mut seen: DeviceSet = match tenant.map_devices(before) {
        Some(devices) => devices
            .iter()
            .flat_map(|device| device.indices.iter())
            .collect(),
        // Initialised it is, on devices that it does not tell: on all that the container is known to have. Known by nobody, the next cuInit is charged.
        None if grants.is_empty() && beyond.is_empty() && counted => {
            return Outcome::Refused(Refused::UnknownDevice);
        }
        None => {
            let granted = grants.iter().map(|(index, _)| *index);
            granted
                .chain(beyond.iter().map(|(index, _)| *index))
                .collect()
        }
    };
    let (beyond, unseen): (Vec<_>, Vec<_>) = beyond
        .into_iter()
        .partition(|(index, _)| seen.contains(*index));
    give_back(&unseen);
    for (index, _) in &beyond {
        tenant.unlist(DeviceSet::from_iter([*index]), charge::INIT);
        seen = seen.iter().filter(|other| other != index).collect();
    }
    for (index, grant) in grants {
        if seen.contains(index) {
            grant.commit_as(charge::INIT);
            tenant.unlist(DeviceSet::from_iter([index]), charge::INIT);
            seen = seen.iter().filter(|other| *other != index).collect();
        }
    }
    if counted && !seen.is_empty() {
        // Devices that nothing but CUDA itself told of.
        match tenant.reserve(seen, charge::INIT) {
            Ok(grant) => {
                grant.commit_as(charge::INIT);
                tenant.unlist(seen, charge::INIT);
            }
            Err(refused) => return Outcome::Refused(refused),
        }
    }
    if counted || tenant.settings().context_charge == ContextCharge::Free || planted(Seed::R66) {
        memory.initialised.store(CHARGED, Ordering::Release);
    } else if tenant.ledger().is_some() {
        tenant.charge_init();
    }
    match beyond.into_iter().next() {
        Some((_, refused)) => Outcome::Refused(refused),
        None => Outcome::Done(code),
    }
}

/// Whether the program asks for fewer devices than there are. Which they are only the driver tells: of the order of their numbers, say.
fn shows_fewer_than(devices: usize) -> bool {
    let shown = std::env::var_os("CUDA_VISIBLE_DEVICES");
    shown
        .is_some_and(|shown| shown.as_encoded_bytes().split(|byte| *byte == b',').count() < devices)
}

impl Tenant {
    /// Charges what cuInit took while there was no ledger (R66 of `fixtures/defects.txt`), to the one that has come.
    pub fn charge_init(self) {
        /// What `Tenant::set_initialised` leaves.
        const UNCHARGED: u32 = 1;
        let initialised = &self.memory.initialised;
        let (order, failed) = (Ordering::AcqRel, Ordering::Acquire);
        if self.settings().context_charge == ContextCharge::Free
            || initialised
                .compare_exchange(UNCHARGED, CHARGED, order, failed)
                .is_err()
        {
            return;
        }
        for device in self.devices().into_iter().flat_map(Devices::iter) {
            if self.charge_anyway(device.indices, charge::INIT) {
                self.unlist(device.indices, charge::INIT);
            }
        }
    }

    /// Charges what cuInit takes of a full device, of which only the driver will tell whether this process is shown it (CUDA_VISIBLE_DEVICES). Not where
    /// the device is beyond its budget already: so it is by what one process takes, and no more.
    fn overdraw_for_init(self, device: DeviceIndex) -> bool {
        let within = self.ledger().is_some_and(|ledger| {
            let usage = ledger.usage(device);
            ledger.budget(device).is_some_and(|budget| usage <= budget)
        });
        within
            && !planted(Seed::C41)
            && self.charge_anyway(DeviceSet::from_iter([device]), charge::INIT)
    }
}

pub fn retain(tenant: Tenant, context: Out<'_, CUcontext>, ordinal: CUdevice) -> Outcome<CUresult> {
    let call = || next::cuDevicePrimaryCtxRetain(context, ordinal);
    let undo = |_| next::cuDevicePrimaryCtxRelease_v2(ordinal);
    let device = match target(tenant, context, ordinal) {
        Target::Known(device) => device,
        Target::Unknown => return judged(call(), context, Refused::UnknownDevice, &undo),
        Target::None => return Outcome::PassThrough(Reason::TakesNothing),
    };
    let memory = tenant.memory;
    let hold = memory.holds.begin();
    // Either who ends a context sees this, or this sees that it ends.
    fence(Ordering::SeqCst);
    if !planted(Seed::C31)
        && let Some(before) = memory.endings.quiet(0)
        && memory.contexts.has_primary(device.ordinal)
    {
        // Nobody waits for a stranger's context to have one more hold on this.
        let code = call();
        drop(hold);
        if memory.endings.quiet(0) != Some(before) {
            // It may have ended meanwhile, so that the driver has made another.
            let _held = memory.changing.hold();
            if code == CUresult::SUCCESS
                && !memory.contexts.has_primary(device.ordinal)
                && is_active(ordinal) != Some(false)
                && let Some(handle) = context.read()
                && !tenant.adopt(device, handle.0 as u64, true)
            {
                return judged(code, context, Refused::TableFull, &undo);
            }
        }
        return Outcome::Done(code);
    }
    drop(hold);
    await_room(tenant, device);
    let _held = memory.changing.hold();
    if memory.contexts.has_primary(device.ordinal) {
        return Outcome::Done(call());
    }
    if is_active(ordinal) == Some(true) {
        // Somebody made it past us.
        let code = call();
        if code == CUresult::SUCCESS
            && let Some(handle) = context.read()
            && !tenant.adopt(device, handle.0 as u64, true)
        {
            return judged(code, context, Refused::TableFull, &undo);
        }
        return Outcome::Done(code);
    }
    create(tenant, device, true, context, true, &call, &undo)
}

pub fn release(tenant: Tenant, ordinal: CUdevice) -> Outcome<CUresult> {
    end_primary(tenant, ordinal, next::cuDevicePrimaryCtxRelease)
}

pub fn release_v2(tenant: Tenant, ordinal: CUdevice) -> Outcome<CUresult> {
    end_primary(tenant, ordinal, next::cuDevicePrimaryCtxRelease_v2)
}

pub fn reset(tenant: Tenant, ordinal: CUdevice) -> Outcome<CUresult> {
    end_primary(tenant, ordinal, next::cuDevicePrimaryCtxReset)
}

pub fn reset_v2(tenant: Tenant, ordinal: CUdevice) -> Outcome<CUresult> {
    end_primary(tenant, ordinal, next::cuDevicePrimaryCtxReset_v2)
}

fn create_on(
    tenant: Tenant,
    context: Out<'_, CUcontext>,
    arguments: Arguments,
    ordinal: CUdevice,
    call: &dyn Fn() -> CUresult,
) -> Outcome<CUresult> {
    let undo = |context| next::cuCtxDestroy_v2(context);
    let device = match target(tenant, context, ordinal) {
        Target::Known(device) => device,
        Target::Unknown => return judged(call(), context, Refused::UnknownDevice, &undo),
        Target::None => return Outcome::PassThrough(Reason::TakesNothing),
    };
    await_room(tenant, device);
    let _held = tenant.memory.changing.hold();
    create(
        tenant,
        device,
        false,
        context,
        arguments == Arguments::Sound,
        call,
        &undo,
    )
}

/// On what a context is asked for.
enum Target {
    Known(&'static Device),
    /// No device that we know of; should the driver make a context there, it cannot be charged.
    Unknown,
    /// There are no devices yet, or no place for the answer.
    None,
}

fn target(tenant: Tenant, context: Out<'_, CUcontext>, ordinal: CUdevice) -> Target {
    match tenant.devices().filter(|_| !context.is_null()) {
        Some(devices) => devices.get(ordinal).map_or(Target::Unknown, Target::Known),
        None => Target::None,
    }
}

pub fn create_v1(
    tenant: Tenant,
    context: Out<'_, CUcontext>,
    flags: c_uint,
    ordinal: CUdevice,
) -> Outcome<CUresult> {
    let target = target(tenant, context, ordinal);
    if let Target::Known(device) = target {
        await_room(tenant, device);
    }
    let _held = tenant.memory.changing.hold();
    let call = || next::cuCtxCreate(context, flags, ordinal);
    // What is wrong with the call the driver says.
    let beside = match target {
        Target::Known(_) => tenant.narrow_context_beside(ordinal),
        Target::Unknown | Target::None => None,
    };
    if let Some(other) = beside {
        let refused = Refused::NotEnforceable;
        if Arguments::of(flags) != Arguments::Sound {
            return judged(call(), context, refused, &|context| {
                next::cuCtxDestroy_v2(context)
            });
        }
        report::once(
            Once::NarrowContexts,
            format_args!(
                "cuCtxCreate: a 32-bit context of device {ordinal} beside one of device {other} has the same addresses; it is refused"
            ),
        );
        return Outcome::Refused(refused);
    }
    let outcome = create_on(tenant, context, Arguments::of(flags), ordinal, &call);
    if let (Outcome::Done(CUresult::SUCCESS), Some(made)) = (&outcome, context.read())
        && let Some(word) = tenant.memory.narrow.get(ordinal as usize)
    {
        word.store(made.0 as u64, Ordering::Release);
    }
    outcome
}

pub fn create_v2(
    tenant: Tenant,
    context: Out<'_, CUcontext>,
    flags: c_uint,
    ordinal: CUdevice,
) -> Outcome<CUresult> {
    create_on(tenant, context, Arguments::of(flags), ordinal, &|| {
        next::cuCtxCreate_v2(context, flags, ordinal)
    })
}

pub fn create_v3(
    tenant: Tenant,
    context: Out<'_, CUcontext>,
    params: Out<'_, c_void>,
    count: c_int,
    flags: c_uint,
    ordinal: CUdevice,
) -> Outcome<CUresult> {
    let listed = count == 0 || count > 0 && !params.is_null();
    let arguments = Arguments::of(flags).and(listed);
    create_on(tenant, context, arguments, ordinal, &|| {
        next::cuCtxCreate_v3(context, params, count, flags, ordinal)
    })
}

pub fn create_v4(
    tenant: Tenant,
    context: Out<'_, CUcontext>,
    params: Out<'_, c_void>,
    flags: c_uint,
    ordinal: CUdevice,
) -> Outcome<CUresult> {
    create_on(tenant, context, Arguments::of(flags), ordinal, &|| {
        next::cuCtxCreate_v4(context, params, flags, ordinal)
    })
}

pub fn destroy(tenant: Tenant, context: CUcontext) -> Outcome<CUresult> {
    end(tenant, context, next::cuCtxDestroy)
}

pub fn destroy_v2(tenant: Tenant, context: CUcontext) -> Outcome<CUresult> {
    end(tenant, context, next::cuCtxDestroy_v2)
}

/// Whether a driver can object to anything but the size. What it can is its own to judge, even where we would refuse.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arguments {
    Sound,
    Odd,
}

impl Arguments {
    /// By the flags that cuda.h names, with one way of scheduling at most.
    fn of(flags: c_uint) -> Arguments {
        const SCHEDULING: c_uint = 7;
        if flags & !0xff == 0 && matches!(flags & SCHEDULING, 0 | 1 | 2 | 4) {
            Arguments::Sound
        } else {
            Arguments::Odd
        }
    }

    fn and(self, sound: bool) -> Arguments {
        if sound { self } else { Arguments::Odd }
    }
}

/// Whether a device has a primary context. `None` where the driver does not say, asked twice: then what is charged for one stays, and another is charged before it is
/// made (R144 of `fixtures/defects.txt`).
fn is_active(ordinal: CUdevice) -> Option<bool> {
    let ask = || {
        let (mut flags, mut active) = (0, 0);
        let code =
            next::cuDevicePrimaryCtxGetState(ordinal, Out::to(&mut flags), Out::to(&mut active));
        (code == CUresult::SUCCESS).then_some(active != 0)
    };
    match planted(Seed::R144) {
        true => Some(ask().unwrap_or(false)),
        false => ask().or_else(ask),
    }
}

/// What a context may take, without the libraries that are loaded.
pub fn bound_of(tenant: Tenant, device: &Device) -> Bytes {
    match tenant.settings().context_charge {
        ContextCharge::Count => device.context_bound,
        ContextCharge::Free => Bytes::ZERO,
    }
}

/// Before the process's lock for contexts is held.
fn await_room(tenant: Tenant, device: &Device) {
    let (beside, _) = tenant.libraries_need(device.ordinal);
    let bound = bound_of(tenant, device).saturating_add(beside);
    tenant.await_room(device.indices, bound);
}

/// Makes a context and charges it. The caller holds the process's lock for contexts.
fn create(
    tenant: Tenant,
    device: &'static Device,
    primary: bool,
    place: Out<'_, CUcontext>,
    arguments_are_sound: bool,
    call: &dyn Fn() -> CUresult,
    undo: &dyn Fn(CUcontext) -> CUresult,
) -> Outcome<CUresult> {
    let _nvml = Scope::begin(tenant);
    tenant.await_predecessors(device);
    tenant.relieve_before(device);
    let bound = bound_of(tenant, device);
    let reserve = || {
        let grant = tenant.reserve_for_context(device.indices, bound)?;
        // What libraries take in each context, and on each device.
        let (beside, managed) = tenant.libraries_need(device.ordinal);
        let room = module::room_for_managed(tenant, device, managed)?;
        let grant_beside = tenant.reserve_for_context(device.indices, beside)?;
        let tables = tenant.ask_for_locked(device)?;
        Ok((grant, room, beside, grant_beside, tables))
    };
    let (grant, room, beside, grant_beside, tables) = match reserve() {
        Ok(grants) => grants,
        Err(refused) if arguments_are_sound => return Outcome::Refused(refused),
        Err(refused) => return judged(call(), place, refused, undo),
    };
    if primary {
        await_uses(tenant, device);
    }
    let own_changes = 2 + u64::from(room.is_some()) + u64::from(tables.is_some());
    let meter = Meter::start(tenant, device, bound, own_changes);
    let code = call();
    let Some(handle) = place
        .read()
        .filter(|handle| code == CUresult::SUCCESS && !handle.is_null())
    else {
        return Outcome::Done(code);
    };
    let Taken {
        bytes: actual,
        unlisted,
        doubt,
    } = meter.taken(tables.as_ref().map_or(Bytes::ZERO, Asking::bytes));
    let excess = match tenant.reserve(device.indices, actual.saturating_sub(bound)) {
        Ok(excess) => excess,
        Err(refused) => return judged(code, place, refused, undo),
    };
    let context = Context {
        handle: handle.0 as u64,
        ordinal: device.ordinal,
        primary,
        bytes: actual,
        unlisted,
    };
    if !tenant.memory.contexts.insert(context) {
        return judged(code, place, Refused::TableFull, undo);
    }
    tenant.begin_locked(device, tables);
    // The next look tells.
    let known = actual.min(bound);
    tenant.settle_hidden(device, grant, known.saturating_add(doubt).min(bound), known);
    excess.commit_as(actual.saturating_sub(bound));
    tenant.unlist(device.indices, unlisted);
    let begun = match tenant.begin_modules(context) {
        _ if planted(Seed::R84a) => beside,
        begun => beside.min(begun),
    };
    tenant.keeps_for_managed(device, room);
    grant_beside.commit_as(begun);
    if let Err(refused) = module::bring(tenant, &tenant.libraries(), context) {
        let change = tenant.change();
        let _relaxed = Relaxed::begin(tenant);
        let _ = undo(handle);
        if (!primary || is_active(device.ordinal as CUdevice) == Some(false))
            && let Some(context) = tenant.memory.contexts.take(context.handle)
        {
            bury(tenant, device, context, change);
        }
        return Outcome::Refused(refused);
    }
    tenant.look_at(device);
    Outcome::Done(code)
}

/// Before a primary context is made anew: a library's kernels outlive one that has ended, and a launch that was charged there would take its local memory
/// here (R103 of `fixtures/defects.txt`). A thread that sets a limit of the one that has ended would set this one's (R106). Who waits in the driver has come to
/// the context that was there.
fn await_uses(tenant: Tenant, device: &Device) {
    const PATIENCE: Nanos = Nanos(250_000_000);
    const STEP: Nanos = Nanos(20_000);
    let end = time::now().plus(PATIENCE);
    let in_use = || tenant.memory.contexts.any_in_use(device.ordinal);
    while in_use() && !planted(Seed::R103) && time::now() < end {
        time::sleep_until(time::now().plus(STEP));
    }
}

/// A context that the driver made and that cannot be charged goes again; what the driver refuses itself stays its own answer.
fn judged(
    code: CUresult,
    place: Out<'_, CUcontext>,
    refused: Refused,
    undo: &dyn Fn(CUcontext) -> CUresult,
) -> Outcome<CUresult> {
    if code != CUresult::SUCCESS {
        return Outcome::Done(code);
    }
    if let Some(context) = place.read() {
        let _ = undo(context);
    }
    Outcome::Refused(refused)
}

/// Before a call that may end a primary context: waits for those that are about to have one more hold on it, and know it as alive. What ended under them
/// the driver would make anew for them, uncharged, while its room is granted to others (R97 of `fixtures/defects.txt`). Not for ever: one may have ended in
/// its call.
fn begin_to_end(tenant: Tenant) -> Change<'static> {
    const PATIENCE: Nanos = Nanos::millis(250);
    const STEP: Nanos = Nanos::micros(20);
    let memory = tenant.memory;
    let ending = memory.endings.begin();
    fence(Ordering::SeqCst);
    let end = time::now().plus(PATIENCE);
    while !planted(Seed::R97) && memory.holds.quiet(0).is_none() && time::now() < end {
        time::sleep_until(time::now().plus(STEP));
    }
    ending
}

/// Makes a call that ends a context. The driver waits for host functions then, of other contexts too (H200: *host functions* in
/// `fixtures/oracle/held-580.txt`), and these may wait for a thread that makes one or ends one meanwhile. What was launched there is `paced` on these devices.
fn ends(
    tenant: Tenant,
    paced: impl IntoIterator<Item = &'static Device>,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let code = {
        let _lent = tenant.memory.changing.lend();
        call()
    };
    for device in paced {
        tenant.settle_marks(device);
    }
    code
}

fn end_primary(
    tenant: Tenant,
    ordinal: CUdevice,
    call: fn(CUdevice) -> CUresult,
) -> Outcome<CUresult> {
    let Some(device) = tenant.devices().and_then(|devices| devices.get(ordinal)) else {
        return Outcome::PassThrough(Reason::TakesNothing);
    };
    let _held = tenant.memory.changing.hold();
    let mut paced = None;
    if let Some(context) = tenant.memory.contexts.primary_of(device.ordinal) {
        paced = tenant.forget_marks(context);
        tenant.forget_streams_of(context);
    }
    let _ending = begin_to_end(tenant);
    let change = tenant.change();
    let code = ends(tenant, paced, || call(ordinal));
    if code == CUresult::SUCCESS
        && is_active(ordinal) == Some(false)
        && let Some(context) = tenant.memory.contexts.take_primary(device.ordinal)
    {
        bury(tenant, device, context, change);
    }
    Outcome::Done(code)
}

fn end(tenant: Tenant, context: CUcontext, call: fn(CUcontext) -> CUresult) -> Outcome<CUresult> {
    let _held = tenant.memory.changing.hold();
    let paced = tenant.forget_marks(context.0 as u64);
    tenant.forget_streams_of(context.0 as u64);
    let change = tenant.change();
    let code = ends(tenant, paced, || call(context));
    if code == CUresult::SUCCESS
        && let Some(context) = tenant.memory.contexts.take(context.0 as u64)
        && let Some(device) = tenant
            .devices()
            .and_then(|devices| devices.get(context.ordinal as CUdevice))
    {
        bury(tenant, device, context, change);
    }
    Outcome::Done(code)
}

/// Once more the current context; it has to be detached from as often.
pub fn attach(tenant: Tenant, place: Out<'_, CUcontext>, flags: c_uint) -> Outcome<CUresult> {
    let code = next::cuCtxAttach(place, flags);
    if code == CUresult::SUCCESS
        && let Some(context) = place.read()
    {
        tenant.memory.contexts.attach(context.0 as u64);
    }
    Outcome::Done(code)
}

/// The last detachment of a created context destroys it.
pub fn detach(tenant: Tenant, context: CUcontext) -> Outcome<CUresult> {
    if planted(Seed::R27) {
        return Outcome::Done(next::cuCtxDetach(context));
    }
    let _held = tenant.memory.changing.hold();
    let handle = context.0 as u64;
    let is_created = tenant.memory.contexts.is_created(handle);
    if is_created && tenant.memory.contexts.detach(handle) {
        return end(tenant, context, next::cuCtxDetach);
    }
    let code = next::cuCtxDetach(context);
    if code != CUresult::SUCCESS && is_created {
        tenant.memory.contexts.attach(handle);
    }
    Outcome::Done(code)
}

/// Makes a call that may end primary contexts, by letting go of the last hold on one, and ends what is charged for those that it ended.
pub fn end_primaries(tenant: Tenant, call: &dyn Fn() -> CUresult) -> CUresult {
    let primaries: Vec<Context> = tenant.memory.contexts.list();
    let mut paced = Vec::new();
    for context in primaries.iter().filter(|context| context.primary) {
        paced.extend(tenant.forget_marks(context.handle));
        tenant.forget_streams_of(context.handle);
    }
    let _ending = begin_to_end(tenant);
    let mut change = Some(tenant.change());
    let code = ends(tenant, paced, call);
    for context in primaries.into_iter().filter(|context| context.primary) {
        let ordinal = context.ordinal as CUdevice;
        if is_active(ordinal) == Some(false)
            && let Some(device) = tenant.device(context.ordinal)
            && let Some(context) = tenant.memory.contexts.take_primary(context.ordinal)
        {
            let change = change.take().unwrap_or_else(|| tenant.change());
            bury(tenant, device, context, change);
        }
    }
    code
}

impl Tenant {
    /// Another device with a living 32-bit context. Such contexts begin at the same addresses on each device, and the books know memory by its address
    /// alone (R42 of `fixtures/defects.txt`).
    fn narrow_context_beside(self, ordinal: CUdevice) -> Option<u32> {
        let contexts = &self.memory.contexts;
        let is_live = |other: &u32| {
            let handle = self.memory.narrow[*other as usize].load(Ordering::Acquire);
            handle != 0 && contexts.ordinal_of(handle) == Some(*other)
        };
        (0..ORDINALS as u32)
            .filter(|other| *other as CUdevice != ordinal && !planted(Seed::R42))
            .find(is_live)
    }

    /// As [`Tenant::adopt`], of the current context, unless it is gone: one that was ended elsewhere stays current.
    pub fn adopt_current(self, device: &Device, handle: u64) -> bool {
        /// CU_LIMIT_STACK_SIZE, which every context has.
        const STACK: CUlimit = 0;
        // Asked and entered before anybody ends it: what is entered after its end nothing ends (R91 of `fixtures/defects.txt`).
        let _held = (!planted(Seed::R91)).then(|| self.memory.changing.hold());
        let mut value = 0;
        next::cuCtxGetLimit(Out::to(&mut value), STACK) == CUresult::SUCCESS
            && self.adopt(device, handle, false)
    }

    /// Enters a live context that somebody made past us: what it takes is charged by the driver's figure. False if the table is full.
    pub fn adopt(self, device: &Device, handle: u64, primary: bool) -> bool {
        let _held = self.memory.changing.hold();
        let contexts = &self.memory.contexts;
        if contexts.ordinal_of(handle).is_some() {
            if primary {
                contexts.is_primary_after_all(handle);
            }
            return true;
        }
        let unsaid = unsaid_within(bound_of(self, device));
        let context = Context {
            handle,
            ordinal: device.ordinal,
            primary,
            bytes: unsaid,
            unlisted: unsaid,
        };
        let entered = contexts.insert(context);
        if entered {
            mark(Mark::Adopted);
            self.charge_anyway(device.indices, unsaid);
            self.unlist(device.indices, unsaid);
            // Its end gives back what the libraries are charged for in it.
            let (beside, _) = self.libraries_need(device.ordinal);
            self.charge_anyway(device.indices, beside);
            self.begin_locked(device, None);
            let _ = self.begin_modules(context);
            // It is there already: what does not fit is charged all the same.
            let _ = module::bring(self, &self.libraries(), context);
            self.look_at(device);
        }
        entered
    }
}

/// A context is gone, and with it all that it owned.
fn bury(tenant: Tenant, device: &Device, context: Context, change: Change<'static>) {
    tenant.memory.records.take_owned(context.handle, |record| {
        memory::freed(tenant, record, memory::When::Now)
    });
    tenant.forget_late_streams_of(context.handle);
    tenant.end_deferred_of(context.handle);
    tenant.end_arrays(context.handle);
    tenant.end_openings(context.handle);
    tenant.end_views(context.handle);
    tenant.end_modules(context.handle);
    tenant.forget_functions_in(context.handle);
    tenant.end_branches_of(context.handle);
    let last = !tenant.memory.contexts.has_any(device.ordinal);
    if last {
        tenant.end_locked(device);
        tenant.forget_pools(device);
        tenant.forget_graphs(device);
    }
    tenant.list(device.indices, context.unlisted);
    tenant.tell_awaited(device);
    tenant.release(device.indices, context.bytes);
    drop(change);
    if last {
        tenant.forget_drift(device);
    }
    tenant.look_at(device);
}

/// What a context takes, and how much of it no process row shows.
struct Taken {
    bytes: Bytes,
    unlisted: Bytes,
    /// So much more may be its own, in place of what destroyed pools let go of meanwhile.
    doubt: Bytes,
}

/// Measures by our own NVML row what a call takes, whatever other threads take and give back meanwhile.
struct Meter {
    tenant: Tenant,
    device: &'static Device,
    bound: Bytes,
    /// The caller's grants.
    own_changes: u64,
    before: Option<(Session, DeviceIndex, Reading)>,
}

/// NVML's figures beside ours, at a moment in which nobody but the caller changes anything.
struct Reading {
    rows: Processes,
    device: Option<Bytes>,
    /// What this process is charged and its row may show, the caller's grants with it.
    charged: Bytes,
    /// Of that, what the driver takes at some launch or has taken already.
    deferred: Bytes,
    /// What no context owns: without one it is in no row, and with the next in ours again.
    apart: Bytes,
    /// Imported, and in our row alone; and all that is imported and charged elsewhere.
    imported: Bytes,
    shared: Bytes,
    /// What destroyed pools are charged, of which the driver may give back any moment: no change announces that.
    destroyed: Bytes,
    /// How many changes have begun.
    changes: u64,
    /// And of the process's other libraries of ours.
    beside: u64,
}

impl Meter {
    fn start(tenant: Tenant, device: &'static Device, bound: Bytes, own_changes: u64) -> Meter {
        let known = bound != Bytes::ZERO && device.indices.len() == 1;
        let index = device.indices.iter().next().filter(|_| known);
        let before = index.and_then(|index| {
            let nvml = Session::open()?;
            let reading = Reading::take(tenant, &nvml, device, index, own_changes)?;
            Some((nvml, index, reading))
        });
        Meter {
            tenant,
            device,
            bound,
            own_changes,
            before,
        }
    }

    /// What was taken, beside `tables` that no row shows and that are charged by themselves. The bound where NVML does not say, or where other threads
    /// never leave the books alone.
    fn taken(self, tables: Bytes) -> Taken {
        let Meter {
            tenant,
            device,
            bound,
            own_changes,
            before,
        } = self;
        let measured = before.and_then(|(nvml, index, before)| {
            let after = Reading::take(tenant, &nvml, device, index, own_changes)?;
            let row = after.rows.own()?;
            if let Some(ledger) = tenant.ledger() {
                ledger.note_listed(index);
            }
            let known = match before.rows.own() {
                Some(row) if planted(Seed::R74) => row,
                // Without a context what was imported may be in a row, and what no context owns is in none (R120 of `fixtures/defects.txt`).
                Some(row) if row <= before.imported && !planted(Seed::R120) => {
                    after.apart.saturating_add(after.imported)
                }
                // By a row of its own, a VkInstance's too, all that the process holds is listed.
                Some(row) => row
                    .saturating_add(after.charged)
                    .saturating_sub(before.charged),
                None => after.apart.saturating_add(after.imported),
            };
            let own = row.saturating_sub(known);
            let undisturbed = after.changes == before.changes || planted(Seed::R74);
            // A launch takes what it was charged for some time after its charge.
            let settled = undisturbed && after.deferred == Bytes::ZERO;
            // Nor is it known whether what others have too is in this row, while it is not known who of them is alive (R118 of `fixtures/defects.txt`).
            let settled = settled && (after.shared == after.imported || planted(Seed::R118));
            let likely = own != Bytes::ZERO && (settled || own <= bound);
            let likely = likely && (undisturbed || after.deferred == before.deferred);
            let likely = likely && (after.destroyed == Bytes::ZERO || !planted(Seed::R138));
            // What they gave back meanwhile hides as much of what was taken, or shows it twice.
            let (sooner, later) = (before.destroyed, after.destroyed);
            // What another library of ours was charged meanwhile may be more than the driver has taken for it.
            let likely = likely && after.beside == before.beside;
            let alone = undisturbed && before.rows.are_ours() && after.rows.are_ours();
            likely.then(|| {
                let lost = before.device.zip(after.device).filter(|_| alone);
                let lost = lost.map(|(then, now)| (then.saturating_add(tables), now));
                let most = lost_beside(own, lost, bound);
                let unlisted = most.saturating_sub(own);
                let bytes = most.saturating_sub(sooner).max(unlisted);
                let doubt = most.saturating_add(later).min(bound.max(most));
                let doubt = doubt.saturating_sub(bytes);
                Taken {
                    bytes,
                    unlisted,
                    doubt,
                }
            })
        });
        measured.unwrap_or(Taken {
            bytes: bound,
            unlisted: unsaid_within(bound),
            doubt: Bytes::ZERO,
        })
    }
}

impl Reading {
    /// `None` where NVML does not tell, or other threads are always about to take or give back.
    fn take(
        tenant: Tenant,
        nvml: &Session,
        device: &Device,
        index: DeviceIndex,
        own_changes: u64,
    ) -> Option<Reading> {
        /// Of some 100 us each, where a context takes 100 ms.
        const TRIES: usize = 16;
        let ledger = tenant.ledger()?;
        let changes = &tenant.memory.truth.changes;
        let books = || {
            let charged = ledger
                .process_usage(index)
                .saturating_add(ledger.shared_usage(index))
                .saturating_sub(tenant.spares(device).untaken);
            (charged, ledger.process_releases(index))
        };
        // No change announces what pools let go of: it is asked for.
        let given_back = || match planted(Seed::R137) {
            true => Bytes::ZERO,
            false => tenant.given_back(device),
        };
        let changes_beside = || match planted(Seed::V30) {
            true => Some(0),
            false => ledger.changes_beside(),
        };
        for _ in 0..TRIES {
            let begun = changes.quiet(own_changes);
            let told_beside = changes_beside();
            let stood = books();
            let given = given_back();
            let rows = nvml.rows(index)?;
            let imported = ledger.shown_imports(index, &|pid| rows.of(pid)).certain;
            // Of a graph's memory the device has some before any context has.
            let graphs = match planted(Seed::R92) {
                true => Bytes::ZERO,
                false => tenant.charged_for_graphs(device),
            };
            let reading = Reading {
                rows,
                imported: Bytes(imported),
                shared: ledger.shared_usage(index),
                device: nvml.device_usage(index),
                charged: stood.0.saturating_sub(given),
                deferred: tenant.charged_for_launches(device),
                destroyed: tenant.charged_for_destroyed(device),
                apart: tenant
                    .pooled_on(device)
                    .saturating_add(tenant.physical_on(device.ordinal))
                    .saturating_add(graphs),
                changes: begun.unwrap_or_default(),
                beside: told_beside.unwrap_or_default(),
            };
            let still = planted(Seed::R74)
                || begun.is_some()
                    && changes.quiet(own_changes) == begun
                    && books() == stood
                    && given_back() == given
                    && told_beside.is_some()
                    && changes_beside() == told_beside;
            if still {
                return Some(reading);
            }
            std::thread::yield_now();
        }
        None
    }
}

/// Of what a context is charged at most, what no row shows.
fn unsaid_within(bound: Bytes) -> Bytes {
    match planted(Seed::R107) {
        true => Bytes::ZERO,
        false => UNSAID.min(bound),
    }
}

/// What a device lost to a context of which the row gained `own`, if nobody else has a row (`lost`: used before and after) and it is near that: on an
/// H200 under 580 a row says 5.6 MiB less than a context takes, and nothing of cuInit. Otherwise as much as may be unsaid is assumed, within what was
/// reserved: what others take or give back in this moment must not pass for ours. Not less than that: a process that dies with cuInit alone is in no
/// list, so that its 3.25 MiB are given to others while the driver still has them.
fn lost_beside(own: Bytes, lost: Option<(Bytes, Bytes)>, bound: Bytes) -> Bytes {
    let most = own.saturating_add(UNSAID);
    match lost.map(|(before, after)| after.saturating_sub(before)) {
        Some(lost) if own <= lost && lost <= most => lost,
        _ => most.min(bound).max(own),
    }
}
