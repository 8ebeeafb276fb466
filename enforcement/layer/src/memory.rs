//! Memory objects: reserve, let the driver decide, commit or cancel; give back what was charged when the object is gone.

use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use ash::vk;
use budget::{Bytes, DeviceSet};
use ledger::{Refusal, Unnamed};
use seeds::{Seed, planted};

use crate::arena::Id;
use crate::attachment::{Attachment, Refused};
use crate::boundary::os;
use crate::candidates;
use crate::device::{Device, Enforced, Found};
use crate::exports::{Descriptor, Exports, Freed, Row, SharedId};
use crate::records::{Charge, Object, Records};
use crate::targets::Held;
use crate::trace;

/// A driver's allocations are multiples of this (H200, 580).
pub const GRANULARITY: Bytes = Bytes(64 << 10);

/// Of those that one resource has to itself and that are larger than this (oracle: vulkan-needs-580.txt, `allocate dedicated`).
const DEDICATED_GRANULARITY: Bytes = Bytes(2 << 20);

/// What an image takes that has its memory to itself; `None` beyond all memory.
pub fn image_bytes(size: Bytes) -> Option<Bytes> {
    size.round_up(if size > DEDICATED_GRANULARITY {
        DEDICATED_GRANULARITY
    } else {
        GRANULARITY
    })
}

/// What a process's memory objects and swapchains are charged. A fork child has others: it would wait for ever for a thread of its parent's that held a lock of
/// these when it was forked (V34 of `fixtures/defects.txt`).
pub struct Objects {
    pub memory: Records,
    pub swapchains: Records,
    exports: Exports,
    naming: Mutex<()>,
}

impl Objects {
    pub fn new() -> Objects {
        Objects {
            memory: Records::new(),
            swapchains: Records::new(),
            exports: Exports::new(),
            naming: Mutex::new(()),
        }
    }
}

/// What an allocation asks for, as far as it decides the charge.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub size: Bytes,
    pub memory_type: u32,
    pub device_mask: Option<u32>,
    pub import: Option<Import>,
    /// For one buffer or image alone.
    pub dedicated: bool,
    /// The application brought VkAllocationCallbacks.
    pub callbacks: bool,
}

impl Request {
    fn granularity(self) -> Bytes {
        if self.dedicated && self.size > DEDICATED_GRANULARITY {
            DEDICATED_GRANULARITY
        } else {
            GRANULARITY
        }
    }
}

/// Memory that is there already.
#[derive(Clone, Copy, Debug)]
pub enum Import {
    /// By file descriptor; `None` where it is not open, which the driver will refuse.
    Descriptor(Option<Descriptor>),
    /// By any other handle: charged like new memory.
    Other,
}

/// Allocates. `call` asks next and answers the new object; `free` is next's, for an object that must not be kept.
pub fn allocate(
    found: Found,
    request: Request,
    call: impl FnOnce() -> (vk::Result, Option<Object>),
    free: impl FnOnce(Object),
) -> vk::Result {
    let device = found.device;
    let Some(enforced) = &device.enforced else {
        return call().0;
    };
    let odd = !enforced.types.knows(request.memory_type) || request.size == Bytes::ZERO;
    let costs_nothing = !odd && !enforced.types.is_device_local(request.memory_type);
    if costs_nothing && !planted(Seed::V10) {
        return call().0;
    }
    let targets = if found.registered {
        enforced.masked(request.device_mask)
    } else {
        candidates::everyone()
    };
    if let Some(Import::Descriptor(Some(descriptor))) = request.import {
        // Held before the driver is asked, which closes the descriptor: it is charged whoever lets go of it meanwhile.
        if let Some(object) = enforced.attachment.hold(descriptor) {
            return import_known(device, enforced, targets, object, request, call);
        }
        let exports = &enforced.attachment.objects.exports;
        if let Some(held) = exports.taken_over(descriptor) {
            return import(device, enforced, descriptor, held, request, call);
        }
    }
    match request.import {
        Some(Import::Descriptor(None)) => {
            judged_by_driver(device, enforced, targets, request, call, free)
        }
        _ if odd => judged_by_driver(device, enforced, targets, request, call, free),
        _ => charged(device, enforced, targets, request, call, free),
    }
}

fn charged(
    device: &Device,
    enforced: &Enforced,
    targets: DeviceSet,
    request: Request,
    call: impl FnOnce() -> (vk::Result, Option<Object>),
    free: impl FnOnce(Object),
) -> vk::Result {
    let Some(mut bytes) = request.size.round_up(request.granularity()) else {
        return refused(request);
    };
    if planted(Seed::V17f) {
        bytes = Bytes(request.size.0 / GRANULARITY.0 * GRANULARITY.0);
    }
    let held = match planted(Seed::X1) {
        true => Err(Refused),
        false => reserve(enforced.attachment, targets, bytes),
    };
    let Ok(held) = held else {
        return refused(request);
    };
    let (result, object) = call();
    if let (true, Some(object)) = (succeeded(result), object) {
        if planted(Seed::V13) {
            // As a map that is keyed by the handle: a record that is still there is overwritten.
            enforced.attachment.objects.memory.take(device.id, object);
        }
        if !enforced.attachment.objects.memory.insert(
            device.id,
            object,
            Charge {
                targets,
                bytes,
                shared: None,
                callbacks: request.callbacks,
            },
        ) {
            free(object);
            return vk::Result::ERROR_OUT_OF_HOST_MEMORY;
        }
        held.commit();
        trace::line(format_args!(
            "allocate size={} charged={} verdict=granted",
            request.size.0, bytes.0
        ));
    } else {
        trace::line(format_args!(
            "allocate size={} verdict=driver answers {}",
            request.size.0,
            result.as_raw()
        ));
    }
    result
}

/// A call that no driver should grant: its own code is the answer. If it is granted all the same, it is charged or taken back.
fn judged_by_driver(
    device: &Device,
    enforced: &Enforced,
    targets: DeviceSet,
    request: Request,
    call: impl FnOnce() -> (vk::Result, Option<Object>),
    free: impl FnOnce(Object),
) -> vk::Result {
    let (result, object) = call();
    let (true, Some(object)) = (succeeded(result), object) else {
        trace::line(format_args!(
            "allocate size={} verdict=driver answers {}",
            request.size.0,
            result.as_raw()
        ));
        return result;
    };
    let bytes = Bytes(request.size.0.max(1))
        .round_up(request.granularity())
        .unwrap_or(Bytes::MAX);
    if let Ok(held) = reserve(enforced.attachment, targets, bytes)
        && enforced.attachment.objects.memory.insert(
            device.id,
            object,
            Charge {
                targets,
                bytes,
                shared: None,
                callbacks: request.callbacks,
            },
        )
    {
        held.commit();
        return result;
    }
    free(object);
    refused(request)
}

/// Memory this process already pays for: the new object holds the charge in its descriptor's place.
fn import(
    device: &Device,
    enforced: &Enforced,
    descriptor: Descriptor,
    (id, Freed { targets, bytes, .. }): (SharedId, Freed),
    request: Request,
    call: impl FnOnce() -> (vk::Result, Option<Object>),
) -> vk::Result {
    let objects = &enforced.attachment.objects;
    let (result, object) = call();
    let (true, Some(object)) = (succeeded(result), object) else {
        objects.exports.handed_back(descriptor, id);
        return result;
    };
    let charge = Charge {
        targets,
        bytes,
        shared: Some(id),
        callbacks: request.callbacks,
    };
    if !objects.memory.insert(device.id, object, charge) {
        // No room for hundreds of millions: the object stays charged until the process ends.
    }
    trace::line(format_args!("import charged=0 verdict=granted"));
    result
}

/// Memory that somebody has named, and that is charged to whoever it was.
fn import_known(
    device: &Device,
    enforced: &Enforced,
    targets: DeviceSet,
    held: ledger::Named,
    request: Request,
    call: impl FnOnce() -> (vk::Result, Option<Object>),
) -> vk::Result {
    let (result, object) = call();
    let (true, Some(object)) = (succeeded(result), object) else {
        enforced.attachment.let_go(held.object);
        return result;
    };
    let objects = &enforced.attachment.objects;
    let id = objects.exports.share(Freed {
        payer: enforced.attachment.id(),
        targets,
        bytes: Bytes::ZERO,
        row: Row::Held(held),
    });
    let charge = Charge {
        targets,
        bytes: Bytes::ZERO,
        shared: Some(id),
        callbacks: request.callbacks,
    };
    if !objects.memory.insert(device.id, object, charge) {
        // No room for hundreds of millions: the row stays held until the process ends.
    }
    // Had the driver taken new memory for it, the row would tell.
    enforced.attachment.look(targets, Some("an import"));
    trace::line(format_args!("import charged=0 verdict=granted"));
    result
}

fn refused(request: Request) -> vk::Result {
    trace::line(format_args!(
        "allocate size={} verdict=refused",
        request.size.0
    ));
    vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
}

fn succeeded(result: vk::Result) -> bool {
    result.as_raw() >= 0
}

/// Frees. The record goes first: once next has freed the object, its handle may be another thread's.
pub fn free(found: Found, object: Option<Object>, call: impl FnOnce()) {
    let _leaving = object.map(Leaving::begin);
    let late = planted(Seed::V13).then_some(object).flatten();
    let take = |object| found.objects()?.memory.take(found.device.id, object);
    let mut charge = object.filter(|_| late.is_none()).and_then(take);
    let _change = found.device.enforced.as_ref().map(Enforced::change);
    call();
    if let Some(object) = late {
        // Wide enough for another thread to be given the handle meanwhile.
        std::thread::sleep(std::time::Duration::from_micros(200));
        charge = take(object);
    }
    if let (Some(charge), Some(enforced)) = (charge, &found.device.enforced) {
        give_back(enforced.attachment, charge);
        trace::line(format_args!("free released={}", charge.bytes.0));
    }
}

/// An object's record leaves before the driver frees it, because the handle may come back to another thread at once. Until the driver has, it counts
/// here: a call that finds no record may have met the end of something charged.
struct Leaving(&'static AtomicU32);

impl Leaving {
    /// One word serves several objects: beside the free of another one a descriptor of uncharged memory may be refused for nothing.
    const WORDS: usize = 64;

    fn word(object: Object) -> &'static AtomicU32 {
        static LEAVING: [AtomicU32; Leaving::WORDS] = [const { AtomicU32::new(0) }; Leaving::WORDS];
        // Handles lie a few words apart.
        &LEAVING[(object.0 >> 4) as usize % Self::WORDS]
    }

    fn begin(object: Object) -> Leaving {
        let word = Self::word(object);
        word.fetch_add(1, Ordering::SeqCst);
        Leaving(word)
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether a descriptor that is about to be made of an object would be of something charged, as far as is known.
pub fn may_be_charged(found: &Found, object: Object) -> bool {
    let of_device = |objects: &Objects| {
        let records = &objects.memory;
        records.update(found.device.id, object, |charge| charge)
    };
    let recorded = || found.objects().is_some_and(of_device);
    let leaves = || Leaving::word(object).load(Ordering::SeqCst) != 0;
    !planted(Seed::R44a) && (recorded() || leaves())
}

/// A descriptor of the object was made: from now on its charge may outlive it. False where it has to be closed: nothing is left to see its end with, or the
/// object, which was charged, was freed meanwhile by another thread (R44a of `fixtures/defects.txt`).
#[must_use]
pub fn exported(found: Found, object: Object, descriptor: Descriptor, was_charged: bool) -> bool {
    let Some(enforced) = &found.device.enforced else {
        return true;
    };
    let objects = &enforced.attachment.objects;
    static NAMING: Mutex<()> = Mutex::new(());
    let _of_all = planted(Seed::V34).then(|| NAMING.lock());
    // One name for all descriptors: the second of two threads finds the first's.
    let _held = objects
        .naming
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let mut shared = None;
    objects.memory.update(found.device.id, object, |charge| {
        let Charge { targets, bytes, .. } = charge;
        shared = Some(charge.shared.unwrap_or_else(|| {
            objects.exports.share(Freed {
                payer: enforced.attachment.id(),
                targets,
                bytes,
                row: Row::None,
            })
        }));
        Charge { shared, ..charge }
    });
    match shared {
        Some(id) => name(enforced.attachment, id, descriptor),
        None => !was_charged,
    }
}

/// A descriptor that has a name holds the ledger's row; another holds the charge. False where it could have one and has none.
fn name(attachment: &Attachment, id: SharedId, descriptor: Descriptor) -> bool {
    let exports = &attachment.objects.exports;
    let freed = exports.freed(id);
    let freed = freed.filter(|freed| !(planted(Seed::R44) && matches!(freed.row, Row::Held(_))));
    let named = freed.map_or(Err(Unnamed::Impossible), |freed| {
        attachment.name(descriptor, freed)
    });
    match named {
        Ok(named) if freed.is_some_and(|freed| freed.row == Row::None) => exports.named(id, named),
        Ok(_) => {}
        Err(Unnamed::NoRoom) if !planted(Seed::R48) => exports.keep(id),
        Err(Unnamed::NoDescriptor) => return false,
        Err(_) => {
            if let Some(stale) = exports.opened(descriptor, id) {
                pay_back(attachment, stale);
            }
        }
    }
    true
}

/// Reserves. Before it refuses it looks for descriptors that were closed meanwhile, and at the driver's figures.
#[inline]
pub fn reserve(
    attachment: &Attachment,
    targets: DeviceSet,
    bytes: Bytes,
) -> Result<Held<'_>, Refused> {
    reserve_untold(attachment, targets, bytes).map_err(|refusal| told(refusal, bytes))
}

/// The same, with the refusal for the caller to tell.
#[inline]
pub fn reserve_untold(
    attachment: &Attachment,
    targets: DeviceSet,
    bytes: Bytes,
) -> Result<Held<'_>, Option<Refusal>> {
    match attachment.reserve(targets, bytes) {
        Ok(held) => Ok(held),
        Err(refusal) if !(forget_closed(attachment) | attachment.look(targets, None)) => {
            Err(refusal)
        }
        Err(_) => attachment.reserve(targets, bytes),
    }
}

/// Reserves what the driver has taken already for an instance or a device: no look before it is on the books, where it would be counted twice.
pub fn reserve_taken(
    attachment: &Attachment,
    targets: DeviceSet,
    bytes: Bytes,
) -> Result<Held<'_>, Refused> {
    attachment.forget_beyond(targets);
    let held = match attachment.reserve_taken(targets, bytes) {
        Err(_) if forget_closed(attachment) => attachment.reserve_taken(targets, bytes),
        held => held,
    };
    held.map_err(|refusal| told(refusal, bytes))
}

#[cold]
pub fn told(refusal: Option<Refusal>, bytes: Bytes) -> Refused {
    match refusal {
        Some(refusal) => trace::refusal(format_args!("{refusal}")),
        None => trace::refusal(format_args!("{bytes} are refused: nothing can be enforced")),
    }
    Refused
}

#[cold]
fn forget_closed(attachment: &Attachment) -> bool {
    let closed = attachment.objects.exports.sweep(os::descriptor);
    for freed in &closed {
        pay_back(attachment, *freed);
    }
    !closed.is_empty()
}

/// Frees what an application left behind in a device that it is about to destroy, and gives the charges back.
///
/// The specification wants it freed before; where it was not, the card keeps it until the instance goes (H200, 580: a GiB
/// stayed in the process's NVML row after vkDestroyDevice), so that the budget could be granted twice.
pub fn drain(device: Id, attachment: &Attachment, free: impl Fn(Object, Charge)) {
    for (object, charge) in attachment.objects.memory.drain(device) {
        let _change = attachment.change();
        free(object, charge);
        give_back(attachment, charge);
    }
}

fn give_back(attachment: &Attachment, charge: Charge) {
    match charge.shared {
        None => attachment.release(charge.targets, charge.bytes),
        Some(id) => {
            attachment
                .objects
                .exports
                .left(id)
                .into_iter()
                .for_each(|freed| pay_back(attachment, freed));
            // Its descriptors may be closed by now, and nobody else can tell.
            forget_closed(attachment);
        }
    }
}

fn pay_back(attachment: &Attachment, freed: Freed) {
    // A fork child inherits the list, but neither charges nor rows.
    if freed.payer != attachment.id() {
        return;
    }
    match freed.row {
        Row::None => {}
        // Whoever holds it on, descriptors among them, is charged for before we are relieved.
        Row::Named(named) => attachment.pass_on(named.object),
        Row::Held(named) => attachment.let_go(named.object),
    }
    attachment.release(freed.targets, freed.bytes);
}
