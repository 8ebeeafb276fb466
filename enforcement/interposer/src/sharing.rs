//! Memory shared with other processes by handles of 64 bytes (R9, decision 11).
//!
//! What is exported gets a row in the ledger, named after the handle. Whoever opens a handle holds that row: the memory stays
//! charged when its maker is gone, and is charged once however many hold it. A handle that names no row is charged to who opens it.
//!
//! A descriptor by which other drivers of the host reach a range of device memory (a dma-buf) keeps the whole allocation after that was freed (R43 of
//! `fixtures/defects.txt`), in no process's row. It gets a name as physical memory's do; where the file allows none, as a card's dma-buf does not, what
//! is freed stays charged until this process ends.

use core::ffi::{c_uint, c_ulonglong, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use abi::cuda::enumerations::{CUmemAllocationHandleType, CUmemRangeHandleType};
use abi::cuda::{CUdevice, CUdeviceptr, CUipcMemHandle, CUresult};
use budget::charge::{POOL_STEP, Span};
use budget::{Bytes, DeviceSet};
use ledger::{Holds, KeptErrno, Key, Named, Object, Unnamed};

use seeds::{Seed, planted};
use throttle::Nanos;

use crate::boundary::cross::Out;
use crate::boundary::entries::next;
use crate::boundary::time;
use crate::devices::{Device, current_context};
use crate::frees::PATIENCE;
use crate::memory::devices_of;
use crate::outcome::{Outcome, Reason, Refused};
use crate::process::Tenant;
use crate::records::Kind;

/// CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.
pub const DESCRIPTOR: CUmemAllocationHandleType = 1;
/// CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD.
const DMA_BUF: CUmemRangeHandleType = 1;
/// CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL.
const ORDINAL_OF: i32 = 9;

/// What this process shares with others.
#[derive(Default)]
pub struct Sharing(Mutex<Book>);

/// Addresses that are shared: nothing is looked up while there are none.
#[repr(transparent)]
pub struct Shared(AtomicU64);

#[derive(Default)]
struct Book {
    /// By first address: the rows of what was exported. No more than the ledger has: a list, because a map's code would be a good part of what the
    /// library makes every process load.
    exported: Vec<(u64, Key, Object)>,
    /// By the address that an opening gave: as many as there were.
    opened: Vec<(u64, Opened)>,
    ranges: Vec<Range>,
    holds: Holds,
    /// Refused openings, of which the program never heard, that the driver would not close: address and context.
    unheard: Vec<(u64, u64)>,
}

/// A part of an allocation of which descriptors were made: all of it, or one step of its pool.
#[derive(Clone, Copy)]
struct Range {
    /// The allocation's first address.
    base: u64,
    /// The part's.
    start: u64,
    devices: DeviceSet,
    /// What it may take beside what its device gives back when it is freed.
    bytes: Bytes,
    named: Option<Named>,
    /// Not each of them has the name.
    unseen: bool,
}

/// What stays on the device when an allocation is freed, in the hands of descriptors whose end nobody sees.
#[derive(Clone, Copy)]
pub struct Kept {
    pub devices: DeviceSet,
    pub bytes: Bytes,
}

/// One opening.
#[derive(Clone, Copy)]
struct Opened {
    hold: Hold,
    context: u64,
}

/// Who pays for what others made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    Row(Object),
    /// This process: nobody had named it.
    Own {
        ordinal: u32,
        bytes: Bytes,
    },
    /// An opening before this one.
    Another,
}

pub fn get_handle(
    tenant: Tenant,
    out: Out<'_, CUipcMemHandle>,
    address: CUdeviceptr,
) -> Outcome<CUresult> {
    let code = next::cuIpcGetMemHandle(out, address);
    if code == CUresult::SUCCESS
        && let Some(handle) = out.read()
        && let Some((base, size)) = tenant.allocation_around(address)
    {
        tenant.export(key_of(&handle), base, size);
    }
    Outcome::Done(code)
}

pub fn open_handle(
    tenant: Tenant,
    place: Out<'_, CUdeviceptr>,
    handle: CUipcMemHandle,
    flags: c_uint,
) -> Outcome<CUresult> {
    tenant.open(place, key_of(&handle), &|| {
        next::cuIpcOpenMemHandle(place, handle, flags)
    })
}

pub fn open_handle_v2(
    tenant: Tenant,
    place: Out<'_, CUdeviceptr>,
    handle: CUipcMemHandle,
    flags: c_uint,
) -> Outcome<CUresult> {
    tenant.open(place, key_of(&handle), &|| {
        next::cuIpcOpenMemHandle_v2(place, handle, flags)
    })
}

pub fn close_handle(tenant: Tenant, address: CUdeviceptr) -> Outcome<CUresult> {
    tenant.close_unheard();
    // The record leaves first: the address may come back to another thread at once.
    let Some(opened) = tenant.sharing(|book| book.take(address)) else {
        return Outcome::PassThrough(Reason::TakesNothing);
    };
    let code = next::cuIpcCloseMemHandle(address);
    if code == CUresult::SUCCESS {
        tenant.closed(opened);
    } else {
        tenant.sharing(|book| book.opened.push((address, opened)));
    }
    Outcome::Done(code)
}

pub fn get_range_handle(
    tenant: Tenant,
    out: Out<'_, c_void>,
    address: CUdeviceptr,
    size: usize,
    kind: CUmemRangeHandleType,
    flags: c_ulonglong,
) -> Outcome<CUresult> {
    let before = (kind == DMA_BUF).then(|| out.descriptor()).flatten();
    let code = next::cuMemGetHandleForAddressRange(out, address, size, kind, flags);
    if code != CUresult::SUCCESS || planted(Seed::R43) {
        return Outcome::Done(code);
    }
    let descriptor = (kind == DMA_BUF).then(|| out.descriptor()).flatten();
    if !tenant.export_range(descriptor, address, size as u64) && is_being_freed(tenant, address) {
        // As if the driver had freed it before (R43c of `fixtures/defects.txt`).
        if kind == DMA_BUF {
            out.take_back_descriptor(before);
        }
        return Outcome::Done(CUresult::ERROR_INVALID_VALUE);
    }
    Outcome::Done(code)
}

/// Whether what no record knows at an address is being freed by another thread, which takes its record before the driver's call, or may be as long as
/// anybody waits. What was made past us stays when nothing is under way.
fn is_being_freed(tenant: Tenant, address: CUdeviceptr) -> bool {
    /// A free in a stream's order is no change, and waits for nothing.
    const SOON: Nanos = Nanos::millis(10);
    if planted(Seed::R43c) {
        return false;
    }
    let began = time::now();
    while range_of(address).is_some() {
        let now = time::now();
        if now > began.plus(SOON) && tenant.memory.truth.changes.quiet(0).is_some() {
            return false;
        }
        if now > began.plus(PATIENCE) {
            return true;
        }
        time::sleep_until(now.plus(Nanos::millis(1)));
    }
    true
}

/// The name that all who have a handle's bytes give its object.
fn key_of(handle: &CUipcMemHandle) -> Key {
    Key(
        [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f].map(|seed: u64| {
            handle.reserved.iter().fold(seed, |hash, byte| {
                let mixed = (hash ^ u64::from(*byte as u8)).wrapping_mul(0xff51_afd7_ed55_8ccd);
                mixed ^ (mixed >> 32)
            })
        }),
    )
}

/// The allocation around an address, by the driver.
pub fn range_of(address: CUdeviceptr) -> Option<(u64, Bytes)> {
    let (mut base, mut size) = (0, 0);
    let code = next::cuMemGetAddressRange_v2(Out::to(&mut base), Out::to(&mut size), address);
    (code == CUresult::SUCCESS).then_some((base, Bytes(size as u64)))
}

impl Book {
    /// The last opening of an address that nothing else needs.
    fn take(&mut self, address: u64) -> Option<Opened> {
        let at = self.opened.iter().rposition(|(of, _)| *of == address)?;
        Some(self.opened.remove(at).1)
    }

    /// What holds an opened address is not let go of when that is closed: a descriptor may have it. False where nothing was opened there.
    fn keep_opened(&mut self, address: u64) -> bool {
        let of = self.opened.iter_mut().filter(|(at, _)| *at == address);
        of.map(|(_, opened)| opened.hold = Hold::Another).count() != 0
    }
}

impl Tenant {
    /// Whether anything of this process is shared.
    #[inline]
    pub fn shares(self) -> bool {
        self.memory.shared.0.load(Ordering::Relaxed) != 0
    }

    /// The allocation around an address: by the driver, and by the records where it tells none, as in a context of 32 bits (R43a of
    /// `fixtures/defects.txt`).
    fn allocation_around(self, address: CUdeviceptr) -> Option<(u64, Bytes)> {
        let recorded = || {
            let record = self.memory.records.around(address)?;
            Some((record.address, record.size)).filter(|_| !planted(Seed::R43a))
        };
        range_of(address).or_else(recorded)
    }

    /// An allocation of ours has a name from now on, unless it has it already.
    fn export(self, key: Key, base: u64, size: Bytes) {
        let Some(record) = self.memory.records.find(base) else {
            return;
        };
        let (Some(span), Some(ledger)) = (Span::of(base, size), self.ledger()) else {
            return;
        };
        let devices = devices_of(self, record.ordinal);
        self.sharing(|book| {
            let known = |(of, name, _): &(u64, Key, Object)| *of == base && *name == key;
            if !book.exported.iter().any(known) {
                let named = ledger.name_object(key, devices, span.bytes(), None);
                book.exported
                    .extend(named.map(|object| (base, key, object)));
            }
        });
    }

    /// A descriptor of an allocation of ours, or of what was mapped or opened, was made. False of what none of these is.
    fn export_range(self, descriptor: Option<i32>, address: u64, size: u64) -> bool {
        let told = self.allocation_around(address);
        // What is mapped has no record of its own.
        let (base, whole) = told.unwrap_or((address, Bytes(size)));
        let record = self.memory.records.find(base);
        let (Some(record), Some(span)) = (record, Span::of(base, whole)) else {
            return self.note_range_export(descriptor, address, size)
                || self.sharing(|book| book.keep_opened(base));
        };
        let parts: Vec<(u64, Bytes)> = match record.kind {
            Kind::Pool if planted(Seed::R43b) => {
                vec![(base, whole.round_up(POOL_STEP).unwrap_or(whole))]
            }
            // The steps that it touches, and no others (`fixtures/oracle/held-580.txt`, *dma-bufs of pools*).
            Kind::Pool => {
                let steps =
                    (address / POOL_STEP.0)..address.saturating_add(size).div_ceil(POOL_STEP.0);
                steps.map(|step| (step * POOL_STEP.0, POOL_STEP)).collect()
            }
            Kind::Blocks | Kind::Managed | Kind::PageLocked => vec![(base, span.bytes())],
        };
        // One of several parts has nobody's name.
        let descriptor = descriptor.filter(|_| parts.len() == 1);
        let device = match record.kind {
            Kind::Pool => self.pool_at(record.ordinal).map(|known| known.device),
            Kind::Blocks | Kind::Managed | Kind::PageLocked => self.device(record.ordinal),
        };
        let devices = device.map_or(DeviceSet::EMPTY, |device| device.indices);
        self.sharing(|book| {
            for (start, bytes) in parts {
                let mut ranges = book.ranges.iter();
                let known = ranges.position(|range| (range.base, range.start) == (base, start));
                let at = known.unwrap_or_else(|| {
                    book.ranges.push(Range {
                        base,
                        start,
                        devices,
                        bytes,
                        named: None,
                        unseen: false,
                    });
                    book.ranges.len() - 1
                });
                if let Some(range) = book.ranges.get_mut(at) {
                    let named = descriptor.and_then(|fd| {
                        self.name_descriptor(fd, range.named, devices, bytes).ok()?
                    });
                    range.unseen |= named.is_none();
                    range.named = range.named.or(named);
                }
            }
        });
        true
    }

    /// An allocation is about to be released: who opened it holds it on. Answers what descriptors may keep unseen.
    #[cold]
    pub fn unexport(self, base: u64) -> Option<Kept> {
        let ledger = self.ledger()?;
        self.sharing(|book| {
            book.exported.retain(|(of, _, object)| {
                if *of == base {
                    ledger.pass_object_on(*object);
                }
                *of != base
            });
            let mut kept: Option<Kept> = None;
            book.ranges.retain(|range| {
                if range.base != base {
                    return true;
                }
                match range.named.filter(|_| !range.unseen) {
                    Some(named) => ledger.pass_object_on(named.object),
                    None => {
                        let before = kept.map_or(Bytes::ZERO, |kept| kept.bytes);
                        kept = Some(Kept {
                            devices: range.devices,
                            bytes: before.saturating_add(range.bytes),
                        });
                    }
                }
                false
            });
            kept
        })
    }

    /// Makes a call that opens what a key names. It is held before, so that it is charged whoever lets go of it meanwhile.
    fn open(
        self,
        place: Out<'_, CUdeviceptr>,
        key: Key,
        call: &dyn Fn() -> CUresult,
    ) -> Outcome<CUresult> {
        self.close_unheard();
        let before = place.read();
        let row = (!planted(Seed::R9)).then(|| self.hold(key)).flatten();
        let owner = self.ending_context();
        let code = call();
        let address = place.read().filter(|_| code == CUresult::SUCCESS);
        let Some(address) = address else {
            row.into_iter().for_each(|object| self.let_go(object));
            return Outcome::Done(code);
        };
        let hold = match row {
            Some(object) => Ok(Hold::Row(object)),
            None => self.charge_opened(address),
        };
        match hold {
            Ok(hold) => {
                let context = owner.context;
                let opened = Opened { hold, context };
                self.sharing(|book| book.opened.push((address, opened)));
                if self.has_ended(owner) {
                    self.end_openings(context);
                }
                Outcome::Done(code)
            }
            Err(refused) => {
                let context = current_context();
                self.sharing(|book| book.unheard.push((address, context)));
                // A second time where it fails: what stays open nobody is charged for.
                (0..2).for_each(|_| self.close_unheard());
                before.into_iter().for_each(|before| place.write(before));
                Outcome::Refused(refused)
            }
        }
    }

    /// Closes what was opened and refused. What the driver will not close now is left for the next opening or closing.
    fn close_unheard(self) {
        let unheard = self.sharing(|book| std::mem::take(&mut book.unheard));
        let failed =
            |(address, _): &(u64, u64)| next::cuIpcCloseMemHandle(*address) != CUresult::SUCCESS;
        let left: Vec<(u64, u64)> = unheard.into_iter().filter(failed).collect();
        if !left.is_empty() {
            self.sharing(|book| book.unheard.extend(left));
        }
    }

    fn charge_opened(self, address: u64) -> Result<Hold, Refused> {
        if self.sharing(|book| book.opened.iter().any(|(of, _)| *of == address)) {
            return Ok(Hold::Another);
        }
        let device = self.device_at(address).ok_or(Refused::UnknownDevice)?;
        let (base, size) = range_of(address).ok_or(Refused::UnknownDevice)?;
        let bytes = Span::of(base, size).ok_or(Refused::UnknownDevice)?.bytes();
        self.reserve_or_trim(device.indices, bytes)?
            .commit_as(bytes);
        let ordinal = device.ordinal;
        Ok(Hold::Own { ordinal, bytes })
    }

    /// The device that an address lies on.
    pub fn device_at(self, address: u64) -> Option<&'static Device> {
        let mut ordinal = 0;
        let code = next::cuPointerGetAttribute(Out::word(&mut ordinal), ORDINAL_OF, address);
        (code == CUresult::SUCCESS)
            .then(|| self.devices()?.get(ordinal as CUdevice))
            .flatten()
    }

    /// One opening is over.
    fn closed(self, opened: Opened) {
        self.end_hold(opened.hold);
    }

    pub fn end_hold(self, hold: Hold) {
        match hold {
            Hold::Row(object) => self.let_go(object),
            Hold::Own { ordinal, bytes } => self.release(devices_of(self, ordinal), bytes),
            Hold::Another => {}
        }
    }

    /// A context is gone, and with it what was opened in it.
    pub fn end_openings(self, context: u64) {
        if !self.shares() {
            return;
        }
        let ended = self.sharing(|book| {
            let mut ended = Vec::new();
            book.unheard.retain(|(_, of)| *of != context);
            book.opened.retain(|(_, opened)| {
                if opened.context == context {
                    ended.push(*opened);
                }
                opened.context != context
            });
            ended
        });
        ended.into_iter().for_each(|opened| self.closed(opened));
    }

    /// Names a descriptor of something, as its others are if it has `named` ones. `None` where that is not possible: then nobody sees its end. Refused where
    /// it would be possible and this process has used up its descriptors: it is to be closed.
    pub fn name_descriptor(
        self,
        fd: i32,
        named: Option<Named>,
        devices: DeviceSet,
        bytes: Bytes,
    ) -> Result<Option<Named>, Refused> {
        let Some(ledger) = self.ledger() else {
            return Ok(None);
        };
        match ledger.name_by_descriptor(fd, named, devices, bytes) {
            Ok(named) => Ok(Some(named)),
            Err(Unnamed::NoDescriptor) => Err(Refused::NoDescriptor),
            Err(Unnamed::Impossible | Unnamed::NoRoom) => Ok(None),
        }
    }

    /// Holds what a descriptor stands for, if whoever made it has named it.
    pub fn hold_descriptor(self, fd: i32) -> Option<Named> {
        let ledger = self.ledger()?;
        self.sharing(|book| book.holds.hold_by_descriptor(ledger, fd))
    }

    fn hold(self, key: Key) -> Option<Object> {
        let ledger = self.ledger()?;
        self.sharing(|book| book.holds.hold(ledger, key))
    }

    pub fn let_go(self, object: Object) {
        if let Some(ledger) = self.ledger() {
            self.sharing(|book| book.holds.let_go(ledger, object));
        }
    }

    fn sharing<R>(self, act: impl FnOnce(&mut Book) -> R) -> R {
        let _errno = KeptErrno::keep();
        let mut book = self.sharing_book();
        let answer = act(&mut book);
        let count =
            book.exported.len() + book.opened.len() + book.ranges.len() + book.unheard.len();
        self.memory.shared.0.store(count as u64, Ordering::Release);
        answer
    }

    /// Not in each of its callers: the library stays small.
    #[inline(never)]
    fn sharing_book(self) -> MutexGuard<'static, Book> {
        let sharing = self.memory.sharing.get_or_default();
        sharing.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
