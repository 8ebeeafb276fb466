//! Page-locked host memory: each device with a context of the process maps it by pages of 4 KiB, and the page tables lie in the device's own memory, in no row
//! of NVML's (R19 of `fixtures/defects.txt`). So no look finds them, and they are charged by model: a table of 4 KiB for each 2 MiB of addresses in which anything
//! is page-locked, in blocks of 2 MiB (H200, 580.159.04: 2 MiB for each GiB, whether it is allocated or registered, at once or MiB by MiB, whichever device's
//! context is current; a device's first context begins with those of all that is page-locked already, and its last ends with them). So are those of what
//! cuMemCreate gives, of each device that may access a mapping of it ([`crate::physical::set_access`]): the host's by such tables (R64; 2 MiB for each GiB that is mapped), device
//! memory by directories of 4 KiB for each 512 MiB of addresses with a mapping (R67; 96 MiB for 24,576 mappings so far apart).

use core::ffi::{c_uint, c_void};
use core::sync::atomic::{AtomicU64, Ordering};

use abi::cuda::CUresult;
use budget::charge::{self, Blocks, Span};
use budget::settings::ContextCharge;
use budget::{Bytes, DeviceSet};
use seeds::{Seed, planted};

use crate::boundary::arena::Lock;
use crate::boundary::cross::Out;
use crate::boundary::entries::next;
use crate::capture::Relaxed;
use crate::devices::{Device, Devices, NoDevice, Owner};
use crate::grant::Grant;
use crate::memory::{self, IMPOSSIBLE, put_back};
use crate::outcome::{Outcome, Reason, Refused};
use crate::process::{ORDINALS, Tenant};
use crate::records::{Kind, Record};

/// What page tables are charged. All zeros is nothing.
#[repr(C)]
pub struct PageTables {
    lock: Lock,
    /// Pieces of 2 MiB of addresses in which anything is page-locked. Changed by who holds the lock, as all that follows.
    locked: AtomicU64,
    devices: [Tables; ORDINALS],
}

/// A device's.
#[repr(C)]
struct Tables {
    /// One for each 2 MiB of addresses, those that a call under way may need among them.
    count: AtomicU64,
    /// Bytes that they are charged, or that calls under way have asked for.
    charged: AtomicU64,
    /// Bytes of that which calls under way have asked for.
    asked: AtomicU64,
    /// Those of the count that map page-locked memory.
    locked: AtomicU64,
    /// Not 0: a context is there, so that all page-locked memory is mapped.
    begun: AtomicU64,
}

fn add(word: &AtomicU64, more: u64) {
    word.store(word.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// Under the lock that guards the word. Never below nothing.
pub fn subtract(word: &AtomicU64, less: u64) {
    let left = word.load(Ordering::Relaxed).saturating_sub(less);
    word.store(left, Ordering::Relaxed);
}

pub fn alloc(tenant: Tenant, place: Out<'_, *mut c_void>, size: usize) -> Outcome<CUresult> {
    allocate(tenant, place, size, &|size| {
        next::cuMemAllocHost_v2(place, size)
    })
}

pub fn alloc_v1(tenant: Tenant, place: Out<'_, *mut c_void>, size: c_uint) -> Outcome<CUresult> {
    allocate(tenant, place, size as usize, &|size| {
        // No 32 bits hold what no machine has: nothing is asked for then, which takes none and brings the driver's other objections (R19d of
        // `fixtures/defects.txt`).
        let most = if planted(Seed::R19d) { c_uint::MAX } else { 0 };
        let size = c_uint::try_from(size).unwrap_or(most);
        next::cuMemAllocHost(place, size)
    })
}

pub fn alloc_with_flags(
    tenant: Tenant,
    place: Out<'_, *mut c_void>,
    size: usize,
    flags: c_uint,
) -> Outcome<CUresult> {
    allocate(tenant, place, size, &|size| {
        next::cuMemHostAlloc(place, size, flags)
    })
}

fn allocate(
    tenant: Tenant,
    place: Out<'_, *mut c_void>,
    size: usize,
    call: &dyn Fn(usize) -> CUresult,
) -> Outcome<CUresult> {
    if place.is_null() || size == 0 {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    let undo = |address| {
        let _relaxed = Relaxed::begin(tenant);
        let _ = next::cuMemFreeHost(Out::at(address));
    };
    let request = Request {
        size: Bytes(size as u64),
        call: &|| call(size),
        address: &|| place.read().map(|address| address as u64),
        refuse: &|refused| tenant.verdict(call(IMPOSSIBLE), refused),
        undo: &undo,
    };
    request.decide(tenant)
}

pub fn register(
    tenant: Tenant,
    place: Out<'_, c_void>,
    size: usize,
    flags: c_uint,
) -> Outcome<CUresult> {
    enter(tenant, place, size, &|size| {
        next::cuMemHostRegister_v2(place, size, flags)
    })
}

pub fn register_v1(
    tenant: Tenant,
    place: Out<'_, c_void>,
    size: usize,
    flags: c_uint,
) -> Outcome<CUresult> {
    enter(tenant, place, size, &|size| {
        next::cuMemHostRegister(place, size, flags)
    })
}

fn enter(
    tenant: Tenant,
    place: Out<'_, c_void>,
    size: usize,
    call: &dyn Fn(usize) -> CUresult,
) -> Outcome<CUresult> {
    // No machine has so much memory, which the driver says.
    const BEYOND: usize = 1 << 47;
    if place.is_null() || size == 0 || size >= BEYOND {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    let undo = |address| {
        let _ = next::cuMemHostUnregister(Out::at(address));
    };
    let request = Request {
        size: Bytes(size as u64),
        call: &|| call(size),
        address: &|| Some(place.address()),
        // What the driver has against the range itself only it can say: of its first byte, where that takes nothing.
        refuse: &|refused| {
            if !tenant.has_spare_tables() {
                return Outcome::Refused(refused);
            }
            let code = call(1);
            if code == CUresult::SUCCESS {
                undo(place.address());
            }
            tenant.verdict(code, refused)
        },
        undo: &undo,
    };
    request.decide(tenant)
}

pub fn free(tenant: Tenant, place: Out<'_, c_void>) -> Outcome<CUresult> {
    leave(tenant, place.address(), &|| next::cuMemFreeHost(place))
}

pub fn unregister(tenant: Tenant, place: Out<'_, c_void>) -> Outcome<CUresult> {
    leave(tenant, place.address(), &|| {
        next::cuMemHostUnregister(place)
    })
}

/// The record leaves before the driver's call, because the address may come back to another thread at once.
fn leave(tenant: Tenant, address: u64, call: &dyn Fn() -> CUresult) -> Outcome<CUresult> {
    let address = keyed(address);
    let found = tenant.memory.records.find(address);
    let owner = found.map(|found| tenant.owner_of(found.owner));
    let record = tenant.memory.records.take(address);
    let code = call();
    match record {
        Some(record) if code == CUresult::SUCCESS && record.kind == Kind::PageLocked => {
            tenant.end_page_locked(record);
        }
        Some(record) => {
            put_back(tenant, record);
            owner.inspect(|owner| memory::end_late(tenant, *owner, address));
        }
        None => {}
    }
    Outcome::Done(code)
}

/// One request for memory that is page-locked.
struct Request<'a> {
    size: Bytes,
    call: &'a dyn Fn() -> CUresult,
    /// Where the memory lies, once it is page-locked.
    address: &'a dyn Fn() -> Option<u64>,
    refuse: &'a dyn Fn(Refused) -> Outcome<CUresult>,
    undo: &'a dyn Fn(u64),
}

impl Request<'_> {
    fn decide(&self, tenant: Tenant) -> Outcome<CUresult> {
        if tenant.settings().context_charge == ContextCharge::Free {
            return Outcome::PassThrough(Reason::TakesNothing);
        }
        let device = match tenant.current_device() {
            Ok(device) => device,
            Err(NoDevice::NoContext) => return Outcome::PassThrough(Reason::TakesNothing),
            Err(NoDevice::Unknown) => return (self.refuse)(Refused::UnknownDevice),
        };
        // Neither end need lie at the begin of a table's part.
        let most = self.size.0 / charge::MAPPED_BY_TABLE.0 + 2;
        let _change = tenant.change();
        let devices = tenant.devices_that_map(device);
        let asked: Result<Vec<_>, _> = devices
            .map(|device| Asking::begin(tenant, device, most))
            .collect();
        let asked = match asked {
            Ok(asked) => asked,
            Err(refused) => return (self.refuse)(refused),
        };
        let owner = tenant.owner();
        let code = (self.call)();
        let succeeded = code == CUresult::SUCCESS;
        let address = succeeded.then(|| (self.address)()).flatten();
        let fresh = address
            .and_then(|address| tenant.enter_page_locked(device, owner, (address, self.size)));
        if let (Some(address), None) = (address, fresh) {
            (self.undo)(address);
        }
        tenant.end_asking(asked, fresh.unwrap_or(0));
        if address.is_some() && fresh.is_none() {
            return Outcome::Refused(Refused::TableFull);
        }
        address
            .into_iter()
            .for_each(|address| memory::end_late(tenant, owner, keyed(address)));
        Outcome::Done(code)
    }
}

/// Page tables that a call may need of a device, charged before it. Dropped without an end they are not needed.
pub struct Asking {
    tenant: Tenant,
    device: &'static Device,
    most: u64,
    bytes: Bytes,
    grant: Option<Grant>,
}

impl Asking {
    pub fn begin(tenant: Tenant, device: &'static Device, most: u64) -> Result<Asking, Refused> {
        let mut asking = Asking {
            tenant,
            device,
            most,
            bytes: tenant.ask_for_tables(device, most),
            grant: None,
        };
        asking.grant = Some(match asking.bytes {
            Bytes::ZERO => tenant.nothing(),
            bytes => tenant.reserve_or_trim(device.indices, bytes)?,
        });
        Ok(asking)
    }

    /// What is charged for them so far.
    pub fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// The call is over, and needed so many of them.
    pub fn end(mut self, needed: u64) {
        if let Some(grant) = self.grant.take() {
            self.tenant.unlist(self.device.indices, self.bytes);
            grant.commit_as(self.bytes);
            self.settle(needed, Asked::Granted(self.bytes));
        }
        self.most = 0;
        self.bytes = Bytes::ZERO;
    }

    fn settle(&self, needed: u64, asked: Asked) {
        let counts = (self.most, needed);
        self.tenant.settle_tables(self.device, counts, asked);
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if self.most != 0 {
            self.settle(0, Asked::Refused(self.bytes));
        }
    }
}

/// No address of a device has it.
const HOST_SIDE: u64 = 1 << 63;

/// By which a host address is on record: a context of 32 bits gives its memory addresses that the host's may have too (R19e of `fixtures/defects.txt`).
fn keyed(address: u64) -> u64 {
    match planted(Seed::R19e) {
        true => address,
        false => address | HOST_SIDE,
    }
}

/// The pieces of 2 MiB of addresses that a range lies in.
fn span_of(address: u64, size: Bytes) -> Option<Span> {
    match planted(Seed::R19b) {
        true => Span::of(address, size),
        false => Span::of_host(address, size),
    }
}

/// What became of the bytes that a call asked for.
#[derive(Clone, Copy)]
enum Asked {
    Granted(Bytes),
    Refused(Bytes),
}

impl Tenant {
    /// Those that map what is page-locked: with a context of this process, and the current one.
    fn devices_that_map(self, current: &'static Device) -> impl Iterator<Item = &'static Device> {
        let all = self.devices().into_iter().flat_map(Devices::iter);
        all.filter(move |device| {
            device.ordinal == current.ordinal
                || !planted(Seed::R19a) && self.memory.contexts.has_any(device.ordinal)
        })
    }

    /// So many pieces more are page-locked, for which these have asked.
    fn end_asking(self, asked: Vec<Asking>, pieces: u64) {
        {
            let tables = &self.memory.page_tables;
            let _held = tables.lock.hold();
            add(&tables.locked, pieces);
            let is_asked = |device: &Device| {
                let mut asked = asked.iter();
                asked.any(|asking| asking.device.ordinal == device.ordinal)
            };
            for (device, tables) in self.all_tables() {
                if is_asked(device) {
                    add(&tables.locked, pieces);
                } else if tables.begun.load(Ordering::Relaxed) != 0 {
                    // A context of it was made meanwhile.
                    add(&tables.locked, pieces);
                    add(&tables.count, pieces);
                    self.bring_tables(device.indices, tables);
                }
            }
        }
        asked.into_iter().for_each(|asking| asking.end(pieces));
    }

    /// Before a context of a device: the page tables that it begins with, where it is the first there.
    pub fn ask_for_locked(self, device: &'static Device) -> Result<Option<Asking>, Refused> {
        let tables = self.tables(device.ordinal);
        let first = tables.is_some_and(|tables| tables.begun.load(Ordering::Relaxed) == 0);
        let locked = self.memory.page_tables.locked.load(Ordering::Relaxed);
        match first && locked != 0 && !planted(Seed::R19a) {
            true => Asking::begin(self, device, locked).map(Some),
            false => Ok(None),
        }
    }

    /// A context of a device is there.
    pub fn begin_locked(self, device: &Device, asking: Option<Asking>) {
        let Some(tables) = self.tables(device.ordinal) else {
            return;
        };
        let asked = asking.as_ref().map_or(0, |asking| asking.most);
        let mut needed = 0;
        {
            let all = &self.memory.page_tables;
            let _held = all.lock.hold();
            if tables.begun.swap(1, Ordering::Relaxed) == 0 && !planted(Seed::R19a) {
                let locked = all.locked.load(Ordering::Relaxed);
                // It may have had some of them already, by a context that nobody knew.
                let before = tables.locked.swap(locked, Ordering::Relaxed);
                needed = locked.saturating_sub(before);
                add(&tables.count, needed.saturating_sub(asked));
                self.bring_tables(device.indices, tables);
            }
        }
        if let Some(asking) = asking {
            asking.end(needed.min(asked));
        }
    }

    /// The last context of a device is gone.
    pub fn end_locked(self, device: &Device) {
        if let Some(tables) = self.tables(device.ordinal) {
            let _held = self.memory.page_tables.lock.hold();
            tables.begun.store(0, Ordering::Relaxed);
            let locked = tables.locked.swap(0, Ordering::Relaxed);
            subtract(&tables.count, locked);
            self.bring_tables(device.indices, tables);
        }
    }

    /// A call may need so many page tables more: bytes that it has to ask for. What others have asked for they may be refused (P22 of
    /// `fixtures/defects.txt`); what is asked for twice goes back when that is settled.
    fn ask_for_tables(self, device: &Device, count: u64) -> Bytes {
        let Some(tables) = self.tables(device.ordinal) else {
            return Bytes::ZERO;
        };
        let _held = self.memory.page_tables.lock.hold();
        add(&tables.count, count);
        let wanted = charge::page_tables(tables.count.load(Ordering::Relaxed));
        let asked = match planted(Seed::P22) {
            true => 0,
            false => tables.asked.load(Ordering::Relaxed),
        };
        let charged = Bytes(tables.charged.load(Ordering::Relaxed).saturating_sub(asked));
        let more = wanted.saturating_sub(charged);
        add(&tables.charged, more.0);
        add(&tables.asked, more.0);
        more
    }

    /// Whether two page tables more, of the current device, would take no block.
    fn has_spare_tables(self) -> bool {
        let device = self.current_device().ok();
        let tables = device.and_then(|device| self.tables(device.ordinal));
        tables.is_some_and(|tables| {
            let count = tables.count.load(Ordering::Relaxed);
            charge::page_tables(count) == charge::page_tables(count + 2)
        })
    }

    /// It is over, and has counted so many for those that it needs.
    fn settle_tables(self, device: &Device, (counted, needed): (u64, u64), asked: Asked) {
        let Some(tables) = self.tables(device.ordinal) else {
            return;
        };
        let _held = self.memory.page_tables.lock.hold();
        match asked {
            Asked::Granted(bytes) => subtract(&tables.asked, bytes.0),
            Asked::Refused(bytes) => {
                subtract(&tables.asked, bytes.0);
                subtract(&tables.charged, bytes.0);
            }
        }
        subtract(&tables.count, counted);
        let needed = match planted(Seed::R94) {
            true => needed.min(counted),
            // By a right that the call itself has taken and given, or by mappings that came meanwhile.
            false => needed,
        };
        add(&tables.count, needed);
        self.bring_tables(device.indices, tables);
    }

    /// Charges what there is; what calls under way have asked for is theirs to settle.
    fn bring_tables(self, devices: DeviceSet, tables: &Tables) {
        let wanted = charge::page_tables(tables.count.load(Ordering::Relaxed));
        let charged = Bytes(tables.charged.load(Ordering::Relaxed));
        let asked = Bytes(tables.asked.load(Ordering::Relaxed));
        let less = charged.saturating_sub(asked).saturating_sub(wanted);
        let more = wanted.saturating_sub(charged);
        if less != Bytes::ZERO {
            subtract(&tables.charged, less.0);
            self.list(devices, less);
            self.release(devices, less);
        }
        // Another call was refused what this one counted on.
        if more != Bytes::ZERO && self.charge_anyway(devices, more) {
            add(&tables.charged, more.0);
            self.unlist(devices, more);
        }
    }

    /// Puts a range on record. How many page tables it is the first to need; `None` if our tables are full.
    fn enter_page_locked(
        self,
        device: &Device,
        owner: Owner,
        (address, size): (u64, Bytes),
    ) -> Option<u64> {
        let blocks = Blocks::new(&self.memory.pages);
        let span = span_of(address, size)?;
        let fresh = blocks.take(span).ok()?;
        let record = Record {
            address: keyed(address),
            size,
            kind: Kind::PageLocked,
            ordinal: device.ordinal,
            owner: owner.context,
        };
        if !self.memory.records.insert(record) {
            blocks.give(span);
            return None;
        }
        Some(fresh.0 / charge::MAPPED_BY_TABLE.0)
    }

    /// A range is page-locked no longer.
    pub fn end_page_locked(self, record: Record) {
        let Some(span) = span_of(record.address & !HOST_SIDE, record.size) else {
            return;
        };
        let _change = self.change();
        let freed = Blocks::new(&self.memory.pages).give(span).0 / charge::MAPPED_BY_TABLE.0;
        let all = &self.memory.page_tables;
        let _held = all.lock.hold();
        subtract(&all.locked, freed);
        for (device, tables) in self.all_tables() {
            let less = freed.min(tables.locked.load(Ordering::Relaxed));
            subtract(&tables.locked, less);
            subtract(&tables.count, less);
            self.bring_tables(device.indices, tables);
        }
    }

    /// So many of a device's page tables map nothing any longer.
    pub fn end_tables(self, device: &Device, count: u64) {
        if let Some(tables) = self.tables(device.ordinal) {
            let _held = self.memory.page_tables.lock.hold();
            subtract(&tables.count, count);
            self.bring_tables(device.indices, tables);
        }
    }

    fn all_tables(self) -> impl Iterator<Item = (&'static Device, &'static Tables)> {
        let devices = self.devices().into_iter().flat_map(Devices::iter);
        devices.filter_map(move |device| Some((device, self.tables(device.ordinal)?)))
    }

    fn tables(self, ordinal: u32) -> Option<&'static Tables> {
        self.memory.page_tables.devices.get(ordinal as usize)
    }
}
