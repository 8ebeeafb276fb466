//! Physical memory (cuMemCreate): charged to the device that the call names, from its creation until the last handle and
//! the last mapping are gone (R5 and C9).
//!
//! No lock is held while the driver is asked, but where it maps and where it is told what a device may access. Handles and
//! addresses come back to other threads as soon as it has let go of them, so an entry that is on its way out stays until the
//! driver has answered, and is forgotten only if nobody has taken its name meanwhile; memory that any call is under way with
//! is not at its end.

use core::ffi::{c_ulonglong, c_void};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use abi::cuda::enumerations::{CU_MEM_ACCESS_FLAGS_PROT_NONE as CLOSED, CUmemAllocationHandleType};
use abi::cuda::{
    CUarrayMapInfo, CUdeviceptr, CUmemAccessDesc, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUmemLocation, CUresult, CUstream,
};
use budget::Bytes;
use budget::charge::{self, BLOCK};
use budget::settings::ContextCharge;
use ledger::{KeptErrno, Named, size_by_descriptor};
use seeds::{Seed, planted};

use crate::boundary::arena::Held;
use crate::boundary::cross::{In, Out};
use crate::boundary::entries::next;
use crate::capture::Relaxed;
use crate::devices::Device;
use crate::grant::Grant;
use crate::location::{self, Home};
use crate::memory::{IMPOSSIBLE, devices_of, refused_unless_undone};
use crate::nvml::Scope;
use crate::outcome::{Outcome, Reason, Refused};
use crate::pinned::Asking;
use crate::process::Tenant;
use crate::sharing::DESCRIPTOR;

/// What this process created and has not lost.
#[derive(Default)]
pub struct Physical(Mutex<Book>);

#[derive(Default)]
struct Book {
    /// The driver may give one memory several handles.
    handles: HashMap<CUmemGenericAllocationHandle, Handle>,
    mappings: Mappings,
    memories: HashMap<Id, Memory>,
    created: u64,
    /// Mappings of the host's memory, by address, in order.
    hosted: Vec<HostMapping>,
}

/// One cuMemCreate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Id(u64);

#[derive(Clone, Copy)]
struct Handle {
    memory: Id,
    /// How often it has to be released; 0 while the last release is under way.
    count: u32,
}

/// By address, in order. A vector: a tree's code would be a good part of what the library makes every process load.
#[derive(Default)]
struct Mappings(Vec<(CUdeviceptr, Mapping)>);

impl Mappings {
    fn find(&self, address: CUdeviceptr) -> Result<usize, usize> {
        self.0.binary_search_by_key(&address, |(at, _)| *at)
    }

    fn insert(&mut self, address: CUdeviceptr, mapping: Mapping) {
        match self.find(address) {
            Ok(at) => self.0[at].1 = mapping,
            Err(at) => self.0.insert(at, (address, mapping)),
        }
    }

    fn get_mut(&mut self, address: CUdeviceptr) -> Option<&mut Mapping> {
        let at = self.find(address).ok()?;
        self.0.get_mut(at).map(|(_, mapping)| mapping)
    }

    /// Takes those out that are gone, of those that begin from one address to another: all at once, for each that goes alone moves all behind it.
    fn remove_gone(&mut self, first: CUdeviceptr, last: CUdeviceptr) {
        let place = |address| self.find(address).unwrap_or_else(|at| at);
        let (begin, end) = (place(first), place(last.saturating_add(1)));
        let mut kept = begin;
        for at in begin..end {
            if !self.0[at].1.gone {
                self.0.swap(kept, at);
                kept += 1;
            }
        }
        self.0.drain(kept..end);
    }

    /// The last that begins at an address or below.
    fn last_to(&self, address: CUdeviceptr) -> Option<Mapping> {
        let above = match self.find(address) {
            Ok(at) => at + 1,
            Err(at) => at,
        };
        self.0.get(..above)?.last().map(|(_, mapping)| *mapping)
    }

    /// How many of a device's page directories map the mapping at an address and no other that it may access.
    fn alone(&self, address: CUdeviceptr, mapping: Mapping, ordinal: u32) -> u64 {
        const EACH: u64 = charge::MAPPED_BY_DIRECTORY.0;
        let (first, last) = directories_of(address, mapping.end);
        // Mappings do not overlap: only those at its ends can be another's too.
        let is_shared = |directory: u64| {
            let (begin, end) = (
                directory * EACH,
                directory.saturating_add(1).saturating_mul(EACH),
            );
            let from = self.find(begin).unwrap_or_else(|at| at).saturating_sub(1);
            let reaching = self.0.get(from..).unwrap_or_default().iter();
            reaching
                .take_while(|(at, _)| *at < end)
                .any(|(at, other)| *at != address && other.end > begin && other.access.has(ordinal))
        };
        let shared = u64::from(is_shared(first)) + u64::from(first != last && is_shared(last));
        (last - first + 1).saturating_sub(shared)
    }

    /// Those that begin within a range.
    fn within(&mut self, begin: CUdeviceptr, end: CUdeviceptr) -> &mut [(CUdeviceptr, Mapping)] {
        let place = |address| self.find(address).unwrap_or_else(|at| at);
        let (first, last) = (place(begin), place(end));
        self.0.get_mut(first..last).unwrap_or_default()
    }
}

/// The first and the last page directory that map a range, by their places.
fn directories_of(begin: u64, end: u64) -> (u64, u64) {
    let of = |address: u64| address / charge::MAPPED_BY_DIRECTORY.0;
    (of(begin), of(end.saturating_sub(1).max(begin)))
}

#[derive(Clone, Copy)]
struct Mapping {
    memory: Id,
    end: u64,
    leaving: bool,
    /// About to be taken out.
    gone: bool,
    access: Access,
}

/// Of the host's memory.
#[derive(Clone, Copy)]
struct HostMapping {
    address: u64,
    size: u64,
    access: Access,
}

impl HostMapping {
    /// Page tables that it needs, which are those of no other mapping: what the driver maps is aligned as a table's part is.
    fn tables(&self) -> u64 {
        let first = self.address / charge::MAPPED_BY_TABLE.0;
        let end = self.address.saturating_add(self.size);
        end.div_ceil(charge::MAPPED_BY_TABLE.0)
            .saturating_sub(first)
    }
}

/// The devices that may access a mapping, and have page tables for it.
#[derive(Clone, Copy, Default)]
struct Access(u64);

impl Access {
    fn has(self, ordinal: u32) -> bool {
        self.0 & Access::bit(ordinal) != 0
    }

    /// Whether it changed.
    fn set(&mut self, ordinal: u32, has: bool) -> bool {
        let before = self.has(ordinal);
        self.0 ^= Access::bit(ordinal) * u64::from(before != has);
        before != has
    }

    fn bit(ordinal: u32) -> u64 {
        1_u64.checked_shl(ordinal).unwrap_or(0)
    }

    fn ordinals(self) -> impl Iterator<Item = u32> {
        (0..u64::BITS).filter(move |ordinal| self.has(*ordinal))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Memory {
    ordinal: u32,
    bytes: Bytes,
    handles: u32,
    mappings: u32,
    /// Calls under way.
    calls: u32,
    /// A tile of an array may hold it too, or a descriptor without a name, whose end is not seen.
    held_elsewhere: bool,
    /// A tile may hold it that a driver bound before it refused another: its end is no end before the driver's row says so.
    doubtful: bool,
    /// What it is called by those who import it, since it was exported.
    named: Option<Named>,
    /// It was imported, and whoever made it has named it: nothing of it is charged to us.
    hold: Option<Named>,
    /// It was imported, and nobody of this tenant has named it: it is charged as far as it is mapped, and whole where its maker said how large it is.
    foreign: bool,
}

impl Memory {
    fn new(ordinal: u32, bytes: Bytes) -> Memory {
        Memory {
            ordinal,
            bytes,
            handles: 1,
            mappings: 0,
            calls: 0,
            held_elsewhere: false,
            doubtful: false,
            named: None,
            hold: None,
            foreign: false,
        }
    }
}

impl Book {
    fn enter(&mut self, handle: CUmemGenericAllocationHandle, ordinal: u32, bytes: Bytes) {
        self.enter_memory(handle, Memory::new(ordinal, bytes));
    }

    /// False where the driver gave a handle that it had given before: what was imported is held and charged already.
    fn enter_import(&mut self, handle: CUmemGenericAllocationHandle, imported: Memory) -> bool {
        if let Some(found) = self.handles.get_mut(&handle)
            && let Some(memory) = self.memories.get_mut(&found.memory)
            && found.count > 0
        {
            found.count += 1;
            memory.handles += 1;
            return false;
        }
        self.enter_memory(handle, imported);
        true
    }

    /// What has to be charged before memory is mapped up to `end`, and where.
    fn unpaid(&self, id: Id, end: u64) -> Option<(u32, Bytes)> {
        let memory = self.memories.get(&id).filter(|memory| memory.foreign)?;
        let more = Bytes(end).saturating_sub(memory.bytes);
        (more != Bytes::ZERO).then_some((memory.ordinal, more))
    }

    fn enter_memory(&mut self, handle: CUmemGenericAllocationHandle, memory: Memory) {
        self.created += 1;
        let id = Id(self.created);
        self.memories.insert(id, memory);
        let handle_of = Handle {
            memory: id,
            count: 1,
        };
        self.handles.insert(handle, handle_of);
    }

    /// A call concerning memory begins: it is not at its end before `finish`.
    fn begin(&mut self, id: Id) -> Option<Id> {
        self.memories.get_mut(&id)?.calls += 1;
        Some(id)
    }

    fn begin_with(&mut self, handle: CUmemGenericAllocationHandle) -> Option<Id> {
        let id = self.handles.get(&handle)?.memory;
        self.begin(id)
    }

    /// The call is over; answers the memory if nothing holds it any longer.
    fn finish(&mut self, id: Id, change: impl FnOnce(&mut Memory)) -> Option<Memory> {
        let memory = self.memories.get_mut(&id)?;
        change(memory);
        memory.calls -= 1;
        let is_mapped = memory.mappings > 0 && !planted(Seed::R5);
        (memory.handles == 0 && !is_mapped && memory.calls == 0)
            .then(|| self.memories.remove(&id))
            .flatten()
    }

    fn begin_release(&mut self, handle: CUmemGenericAllocationHandle) -> Option<Id> {
        let found = self.handles.get_mut(&handle)?;
        found.count = found.count.checked_sub(1)?;
        let id = found.memory;
        self.begin(id)
    }

    fn finish_release(
        &mut self,
        handle: CUmemGenericAllocationHandle,
        id: Id,
        released: bool,
    ) -> Option<Memory> {
        if let Some(found) = self.handles.get_mut(&handle)
            && found.memory == id
        {
            if !released {
                found.count += 1;
            } else if found.count == 0 {
                self.handles.remove(&handle);
            }
        }
        self.finish(id, |memory| memory.handles -= u32::from(released))
    }

    /// Tiles were bound to memory, or a driver refused some of them.
    fn hold_by_tiles(&mut self, handle: CUmemGenericAllocationHandle, is_certain: bool) {
        if let Some(found) = self.handles.get(&handle)
            && let Some(memory) = self.memories.get_mut(&found.memory)
        {
            memory.held_elsewhere |= is_certain;
            memory.doubtful |= !is_certain;
        }
    }

    /// The memory mapped at an address.
    fn begin_at(&mut self, address: CUdeviceptr) -> Option<Id> {
        let mapping = self.mappings.last_to(address)?;
        let (id, end) = (mapping.memory, mapping.end);
        (address < end).then(|| self.begin(id)).flatten()
    }

    fn finish_retain(
        &mut self,
        id: Id,
        handle: Option<CUmemGenericAllocationHandle>,
    ) -> Option<Memory> {
        if let Some(handle) = handle {
            let found = self.handles.entry(handle);
            let found = found.or_insert(Handle {
                memory: id,
                count: 0,
            });
            if found.memory != id {
                *found = Handle {
                    memory: id,
                    count: 0,
                };
            }
            found.count += 1;
        }
        self.finish(id, |memory| memory.handles += u32::from(handle.is_some()))
    }

    fn pay(&mut self, id: Id, more: Bytes) {
        if let Some(memory) = self.memories.get_mut(&id) {
            memory.bytes = memory.bytes.saturating_add(more);
        }
    }

    /// Answers which memory ended, and how many page tables of which devices did.
    fn finish_map(
        &mut self,
        id: Id,
        mapped: Option<(CUdeviceptr, u64)>,
    ) -> (Vec<Memory>, Vec<(u32, u64)>) {
        let (mut ended, mut tables) = (Vec::new(), Vec::new());
        if let Some((address, size)) = mapped {
            // What was mapped there has gone: on its way out, or so at least for the driver.
            if let Some(before) = self.mappings.get_mut(address).map(|mapping| *mapping) {
                tables = self.tables_of(address, before);
                if !before.leaving
                    && let Some(id) = self.begin(before.memory)
                {
                    ended.extend(self.finish(id, |memory| memory.mappings -= 1));
                }
            }
            let mapping = Mapping {
                memory: id,
                end: address.saturating_add(size),
                leaving: false,
                gone: false,
                access: Access::default(),
            };
            self.mappings.insert(address, mapping);
        }
        ended.extend(self.finish(id, |memory| memory.mappings += u32::from(mapped.is_some())));
        (ended, tables)
    }

    /// Page directories that map a mapping and no other, by device.
    fn tables_of(&self, address: CUdeviceptr, mapping: Mapping) -> Vec<(u32, u64)> {
        let ordinals = mapping.access.ordinals();
        let alone = |ordinal| (ordinal, self.mappings.alone(address, mapping, ordinal));
        ordinals.map(alone).collect()
    }

    /// Page tables that a device needs at most to access all that is mapped in a range.
    fn most_tables(&mut self, (begin, end): (u64, u64), ordinal: u32) -> u64 {
        let closed = |access: Access| !access.has(ordinal);
        let own = self.mappings.within(begin, end).iter();
        let directories = own.filter(|(_, mapping)| closed(mapping.access) && !planted(Seed::R67));
        let directories = directories.map(|(at, mapping)| {
            let (first, last) = directories_of(*at, mapping.end);
            last - first + 1
        });
        let directories: u64 = directories.sum();
        let hosted = self.hosted_within(begin, end).iter();
        let tables = hosted.filter(|mapping| closed(mapping.access) && !planted(Seed::R64));
        tables.map(HostMapping::tables).sum::<u64>() + directories
    }

    /// A device may access all that is mapped in a range, or no longer: how many page tables that needs, or ends.
    fn set_access(&mut self, (begin, end): (u64, u64), ordinal: u32, has: bool) -> u64 {
        let mut tables = 0;
        for mapping in self.hosted_within(begin, end) {
            if mapping.access.set(ordinal, has) && !planted(Seed::R64) {
                tables += mapping.tables();
            }
        }
        let addresses: Vec<u64> = self
            .mappings
            .within(begin, end)
            .iter()
            .map(|(at, _)| *at)
            .collect();
        for at in addresses {
            if let Some(mapping) = self.mappings.get_mut(at)
                && mapping.access.set(ordinal, has)
                && !planted(Seed::R67)
            {
                let mapping = *mapping;
                tables += self.mappings.alone(at, mapping, ordinal);
            }
        }
        tables
    }

    fn hosted_within(&mut self, begin: u64, end: u64) -> &mut [HostMapping] {
        let place = |end: u64| self.hosted.partition_point(|mapping| mapping.address < end);
        let range = place(begin)..place(end);
        self.hosted.get_mut(range).unwrap_or_default()
    }

    fn enter_hosted(&mut self, mapping: HostMapping) {
        let place = self
            .hosted
            .partition_point(|other| other.address < mapping.address);
        self.hosted.insert(place, mapping);
    }

    /// The mappings of the host's memory that begin within a range, which are taken out.
    fn take_hosted(&mut self, address: CUdeviceptr, size: u64) -> Vec<HostMapping> {
        let place = |end: u64| self.hosted.partition_point(|mapping| mapping.address < end);
        let range = place(address)..place(address.saturating_add(size));
        self.hosted.drain(range).collect()
    }

    /// The mappings within a range are on their way out.
    fn begin_unmap(&mut self, address: CUdeviceptr, size: u64) -> Vec<(CUdeviceptr, Id)> {
        let mut leaving = Vec::new();
        for (at, mapping) in self.mappings.within(address, address.saturating_add(size)) {
            if let Some(memory) = self.memories.get_mut(&mapping.memory)
                && !mapping.leaving
            {
                memory.calls += 1;
                mapping.leaving = true;
                leaving.push((*at, mapping.memory));
            }
        }
        leaving
    }

    /// Those of them that `are_gone`. Answers which memory ended, and how many page directories of which devices did.
    fn finish_unmap(
        &mut self,
        leaving: Vec<(CUdeviceptr, Id)>,
        are_gone: &[bool],
    ) -> (Vec<Memory>, Vec<(u32, u64)>) {
        let (mut ended, mut tables) = (Vec::new(), Vec::new());
        let ends = leaving.first().zip(leaving.last());
        let ends = ends.map(|((first, _), (last, _))| (*first, *last));
        for ((at, id), is_gone) in leaving.into_iter().zip(are_gone) {
            // Where something else is mapped by now it is gone, too.
            let mut is_gone = *is_gone;
            match self.mappings.get_mut(at) {
                Some(mapping) if mapping.memory == id && mapping.leaving => {
                    mapping.leaving = false;
                    let mapping = *mapping;
                    if is_gone {
                        tables.extend(self.tables_of(at, mapping));
                        if let Some(mapping) = self.mappings.get_mut(at) {
                            mapping.access = Access::default();
                            mapping.gone = true;
                        }
                    }
                }
                _ => is_gone = true,
            }
            ended.extend(self.finish(id, |memory| memory.mappings -= u32::from(is_gone)));
        }
        if let Some((first, last)) = ends {
            self.mappings.remove_gone(first, last);
        }
        (ended, tables)
    }
}

pub fn create(
    tenant: Tenant,
    handle: Out<'_, CUmemGenericAllocationHandle>,
    size: usize,
    prop: In<'_, CUmemAllocationProp>,
    flags: c_ulonglong,
) -> Outcome<CUresult> {
    prop.by_own(|prop| {
        let Some(location) = prop.read().map(|prop| prop.location) else {
            return Outcome::PassThrough(Reason::TakesNothing);
        };
        let home = Home::of(location);
        let call = |size| next::cuMemCreate(handle, size, prop, flags);
        if handle.is_null() || size == 0 || home == Home::Host {
            return Outcome::Done(call(size));
        }
        let bytes = Bytes(size as u64);
        let device = home
            .device()
            .and_then(|ordinal| tenant.devices()?.get(ordinal));
        let device = if planted(Seed::C9) {
            tenant.current_device().ok()
        } else {
            device
        };
        let (Some(device), true) = (device, size < IMPOSSIBLE) else {
            let outcome = refused_unless_undone(call(size), || handle.read(), &|handle| {
                next::cuMemRelease(handle)
            });
            if home == Home::Unknown && matches!(outcome, Outcome::Refused(_)) {
                location::say_unknown(location);
            }
            return outcome;
        };
        let grant = match tenant.reserve_or_trim(device.indices, bytes) {
            Ok(grant) => grant,
            Err(refused) => {
                // As little a whole number of granules as what was asked for.
                let impossible = IMPOSSIBLE | (size & (BLOCK.0 as usize - 1));
                return tenant.verdict(call(impossible), refused);
            }
        };
        let code = call(size);
        if code == CUresult::SUCCESS
            && let Some(created) = handle.read()
        {
            tenant.physical(|book| book.enter(created, device.ordinal, bytes));
            grant.commit_as(bytes);
        }
        Outcome::Done(code)
    })
}

pub fn release(tenant: Tenant, handle: CUmemGenericAllocationHandle) -> Outcome<CUresult> {
    let Some(id) = tenant.physical(|book| book.begin_release(handle)) else {
        return Outcome::PassThrough(Reason::TakesNothing);
    };
    let change = tenant.change();
    let code = next::cuMemRelease(handle);
    // Nor is there anything to put back where the driver knows it no longer: another thread's call, which found nothing on record, was before this one in the
    // driver (R95 of `fixtures/defects.txt`).
    let released = code == CUresult::SUCCESS || !planted(Seed::R95) && !is_known(handle);
    let ended = tenant.physical(|book| book.finish_release(handle, id, released));
    tenant.end_physical(ended);
    drop(change);
    tenant.look_for_tiles(ended.as_slice());
    Outcome::Done(code)
}

pub fn retain(
    tenant: Tenant,
    handle: Out<'_, CUmemGenericAllocationHandle>,
    address: Out<'_, c_void>,
) -> Outcome<CUresult> {
    // What another thread is mapping there is on record as soon as the driver knows it: what is retained uncounted would be given back at its release (R132).
    let _held = tenant.hold_mappings().filter(|_| !planted(Seed::R132));
    let Some(id) = tenant.physical(|book| book.begin_at(address.address())) else {
        return Outcome::Done(next::cuMemRetainAllocationHandle(handle, address));
    };
    let code = next::cuMemRetainAllocationHandle(handle, address);
    let retained = handle.read().filter(|_| code == CUresult::SUCCESS);
    let ended = tenant.physical(|book| book.finish_retain(id, retained));
    tenant.end_physical(ended);
    Outcome::Done(code)
}

pub fn map(
    tenant: Tenant,
    address: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: c_ulonglong,
) -> Outcome<CUresult> {
    let Some(id) = tenant.physical(|book| book.begin_with(handle)) else {
        return map_hosts(tenant, address, size, handle, &|| {
            next::cuMemMap(address, size, offset, handle, flags)
        });
    };
    let end = (offset as u64).saturating_add(size as u64);
    let unpaid = tenant.physical(|book| book.unpaid(id, end));
    let (ordinal, more) = unpaid.unwrap_or_default();
    // Charged already, where its maker has let go of it and a look has found it in our row.
    let looked = unpaid.and_then(|_| tenant.device(ordinal));
    let found = looked.map_or(Bytes::ZERO, |device| tenant.take_drift(device, more));
    let beside = more.saturating_sub(found);
    let grant = match tenant.reserve_if_any(ordinal, beside) {
        Ok(grant) => grant,
        Err(refused) => {
            looked
                .into_iter()
                .for_each(|device| tenant.return_drift(device, found));
            let ended = tenant.physical(|book| book.finish(id, |_| ()));
            tenant.end_physical(ended);
            return Outcome::Refused(refused);
        }
    };
    let held = tenant.hold_mappings();
    let code = next::cuMemMap(address, size, offset, handle, flags);
    let mapped = (code == CUresult::SUCCESS).then_some((address, size as u64));
    match looked {
        _ if mapped.is_some() => {
            grant.commit_as(beside);
            tenant.physical(|book| book.pay(id, more));
        }
        Some(device) => tenant.return_drift(device, found),
        None => {}
    }
    let (ended, tables) = tenant.physical(|book| book.finish_map(id, mapped));
    drop(held);
    tenant.end_all_tables(tables);
    looked
        .into_iter()
        .for_each(|device| _ = tenant.look_at(device));
    tenant.end_physical(ended);
    Outcome::Done(code)
}

/// Memory that no book knows is the host's, or no memory.
fn map_hosts(
    tenant: Tenant,
    address: CUdeviceptr,
    size: usize,
    handle: CUmemGenericAllocationHandle,
    call: &dyn Fn() -> CUresult,
) -> Outcome<CUresult> {
    if home_of(handle) != Home::Host {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    let _held = tenant.hold_mappings();
    let code = call();
    if code == CUresult::SUCCESS {
        let mapping = HostMapping {
            address,
            size: size as u64,
            access: Access::default(),
        };
        tenant.physical(|book| book.enter_hosted(mapping));
    }
    Outcome::Done(code)
}

/// Devices get page tables for what they may access, whoever's memory it is, and no row of NVML's shows them (R64 and R67 of `fixtures/defects.txt`; two
/// H200, 580.159.04: cuMemMap alone takes none).
pub fn set_access(
    tenant: Tenant,
    address: CUdeviceptr,
    size: usize,
    descs: In<'_, CUmemAccessDesc>,
    count: usize,
) -> Outcome<CUresult> {
    /// A right for each device and more; what repeats itself beyond that is refused.
    const MOST: usize = 1 << 12;
    let range = (address, address.saturating_add(size as u64));
    if tenant.settings().context_charge == ContextCharge::Free || count == 0 {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    if count > MOST {
        return Outcome::Refused(Refused::TableFull);
    }
    let Some(descs) = descs.copies(count) else {
        return Outcome::PassThrough(Reason::TakesNothing);
    };
    let device = |desc: &CUmemAccessDesc| {
        let ordinal = Home::of(desc.location).device()?;
        tenant.devices()?.get(ordinal)
    };
    let mut asked: Vec<(&'static Device, Asking)> = Vec::new();
    for desc in descs.iter().filter(|desc| desc.flags != CLOSED) {
        let Some(device) = device(desc) else { continue };
        if asked
            .iter()
            .any(|(other, _)| other.ordinal == device.ordinal)
        {
            continue;
        }
        let most = tenant.physical(|book| book.most_tables(range, device.ordinal));
        match Asking::begin(tenant, device, most) {
            Ok(asking) => asked.push((device, asking)),
            Err(refused) => return Outcome::Refused(refused),
        }
    }
    let _change = tenant.change();
    // What another thread maps meanwhile is in the book before or in the driver after.
    let _held = tenant.hold_mappings();
    let code = next::cuMemSetAccess(address, size, In::list(&descs), count);
    if code != CUresult::SUCCESS {
        return Outcome::Done(code);
    }
    let mut needed = vec![0; asked.len()];
    for desc in &descs {
        let Some(device) = device(desc) else { continue };
        let has = desc.flags != CLOSED;
        let tables = tenant.physical(|book| book.set_access(range, device.ordinal, has));
        let place = asked
            .iter()
            .position(|(other, _)| other.ordinal == device.ordinal);
        match place {
            Some(place) if has => needed[place] += tables,
            // First what this very call has given: that is not counted yet.
            Some(place) if !planted(Seed::R110) => {
                let own = tables.min(needed[place]);
                needed[place] -= own;
                tenant.end_tables(device, tables - own);
            }
            _ => tenant.end_tables(device, tables),
        }
    }
    for ((_, asking), needed) in asked.into_iter().zip(needed) {
        asking.end(needed);
    }
    Outcome::Done(code)
}

pub fn unmap(tenant: Tenant, address: CUdeviceptr, size: usize) -> Outcome<CUresult> {
    let (leaving, hosted) = tenant.physical(|book| {
        let leaving = book.begin_unmap(address, size as u64);
        (leaving, book.take_hosted(address, size as u64))
    });
    if leaving.is_empty() && hosted.is_empty() {
        return Outcome::PassThrough(Reason::TakesNothing);
    }
    let change = tenant.change();
    let code = next::cuMemUnmap(address, size);
    let unmapped = code == CUresult::SUCCESS;
    for mapping in hosted {
        if unmapped && (planted(Seed::R76) || !is_mapped(mapping.address)) {
            let ordinals = mapping.access.ordinals();
            tenant.end_all_tables(ordinals.map(|ordinal| (ordinal, mapping.tables())));
        } else {
            tenant.physical(|book| book.enter_hosted(mapping));
        }
    }
    // What the range begins with is gone; of one that goes on in another reservation a driver may have unmapped no more (R76), and nothing at all where
    // the first has no mapping (R76a).
    let first = leaving.first().map(|(at, _)| *at);
    let is_gone = |(at, _): &(CUdeviceptr, Id)| {
        let begins = *at == address || planted(Seed::R76a) && first == Some(*at);
        unmapped && (begins || planted(Seed::R76) || !is_mapped(*at))
    };
    let are_gone: Vec<bool> = leaving.iter().map(is_gone).collect();
    let (ended, tables) = tenant.physical(|book| book.finish_unmap(leaving, &are_gone));
    tenant.end_all_tables(tables);
    tenant.end_physical(ended.iter().copied());
    drop(change);
    tenant.look_for_tiles(&ended);
    Outcome::Done(code)
}

/// Whether a driver knows memory of cuMemCreate's by this handle, as far as it says.
fn is_known(handle: CUmemGenericAllocationHandle) -> bool {
    properties_of(handle).0 != CUresult::ERROR_INVALID_VALUE
}

/// Whether a driver has memory of cuMemCreate's mapped at an address.
fn is_mapped(address: CUdeviceptr) -> bool {
    let mut handle = 0;
    let held = next::cuMemRetainAllocationHandle(Out::to(&mut handle), Out::at(address))
        == CUresult::SUCCESS;
    if held {
        let _ = next::cuMemRelease(handle);
    }
    held
}

pub fn export(
    tenant: Tenant,
    out: Out<'_, c_void>,
    handle: CUmemGenericAllocationHandle,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> Outcome<CUresult> {
    let Some(id) = tenant.physical(|book| book.begin_with(handle)) else {
        return Outcome::PassThrough(Reason::TakesNothing);
    };
    let before = (kind == DESCRIPTOR).then(|| out.descriptor()).flatten();
    let code = next::cuMemExportToShareableHandle(out, handle, kind, flags);
    let noted = match code {
        CUresult::SUCCESS => {
            let descriptor = (kind == DESCRIPTOR).then(|| out.descriptor()).flatten();
            tenant.note_export(id, descriptor)
        }
        _ => Ok(()),
    };
    let ended = tenant.physical(|book| book.finish(id, |_| ()));
    tenant.end_physical(ended);
    if let Err(refused) = noted {
        out.take_back_descriptor(before);
        return Outcome::Refused(refused);
    }
    Outcome::Done(code)
}

/// What another process exported is held before the driver is asked, so that it is charged whoever lets go of it meanwhile. What another tenant's made, which
/// says how large it is, is charged as ours, though it be that one's too (R34e of `fixtures/defects.txt`). What nobody has named has a
/// size that the driver tells nobody: it is in its maker's row until that one lets go of it and in ours from then on, so every such import is made
/// between two looks, and not while the budget is exceeded (R34).
pub fn import(
    tenant: Tenant,
    place: Out<'_, CUmemGenericAllocationHandle>,
    descriptor: Out<'_, c_void>,
    kind: CUmemAllocationHandleType,
) -> Outcome<CUresult> {
    let fd = (kind == DESCRIPTOR).then(|| descriptor.address() as i32);
    let hold = fd.and_then(|fd| tenant.hold_descriptor(fd));
    let unnamed = hold.is_none() && !planted(Seed::R34);
    let told = fd.filter(|_| unnamed).and_then(size_by_descriptor);
    let bytes = told.unwrap_or_default();
    let _nvml = Scope::begin(tenant);
    if unnamed && let Err(refused) = tenant.look_for_imported(None) {
        return Outcome::Refused(refused);
    }
    let before = place.read();
    let code = next::cuMemImportFromShareableHandle(place, descriptor, kind);
    let handle = place.read().filter(|_| code == CUresult::SUCCESS);
    let Some(handle) = handle else {
        hold.into_iter()
            .for_each(|named| tenant.let_go(named.object));
        return Outcome::Done(code);
    };
    let ordinal = ordinal_of(handle);
    let devices = devices_of(tenant, ordinal);
    if unnamed && let Err(refused) = tenant.charge_stranger(ordinal, bytes) {
        let _relaxed = Relaxed::begin(tenant);
        let _ = next::cuMemRelease(handle);
        before.into_iter().for_each(|before| place.write(before));
        let _ = tenant.look_for_imported(Some(ordinal));
        return Outcome::Refused(refused);
    }
    let memory = Memory {
        hold,
        foreign: hold.is_none(),
        ..Memory::new(ordinal, bytes)
    };
    if !tenant.physical(|book| book.enter_import(handle, memory)) {
        tenant.release(devices, bytes);
        hold.into_iter()
            .for_each(|named| tenant.let_go(named.object));
    }
    Outcome::Done(code)
}

fn ordinal_of(handle: CUmemGenericAllocationHandle) -> u32 {
    let ordinal = home_of(handle).device();
    ordinal
        .and_then(|ordinal| u32::try_from(ordinal).ok())
        .unwrap_or(0)
}

/// Whose memory it is, by what the driver says of the handle; nowhere where it says nothing.
fn home_of(handle: CUmemGenericAllocationHandle) -> Home {
    Home::of(properties_of(handle).1.location)
}

/// What memory of cuMemCreate's is, by a handle.
fn properties_of(handle: CUmemGenericAllocationHandle) -> (CUresult, CUmemAllocationProp) {
    let mut prop = CUmemAllocationProp {
        type_: 0,
        requestedHandleTypes: 0,
        location: CUmemLocation { type_: 0, id: 0 },
        win32HandleMetaData: core::ptr::null_mut(),
        compressionType: 0,
        gpuDirectRDMACapable: 0,
        usage: 0,
        reserved: [0; 4],
    };
    let code = next::cuMemGetAllocationPropertiesFromHandle(Out::to(&mut prop), handle);
    (code, prop)
}

pub fn map_array(
    tenant: Tenant,
    infos: Out<'_, CUarrayMapInfo>,
    count: u32,
    stream: CUstream,
) -> Outcome<CUresult> {
    let code = next::cuMemMapArrayAsync(infos, count, stream);
    bound(tenant, infos, count, code)
}

pub fn map_array_ptsz(
    tenant: Tenant,
    infos: Out<'_, CUarrayMapInfo>,
    count: u32,
    stream: CUstream,
) -> Outcome<CUresult> {
    let code = next::cuMemMapArrayAsync_ptsz(infos, count, stream);
    bound(tenant, infos, count, code)
}

/// Tiles of sparse arrays are bound to memory, and nobody sees them unbound: it stays charged until this process ends. A tile
/// that was unbound names no memory, or an old one, which does no harm. A driver may have bound some before it refused another.
fn bound(
    tenant: Tenant,
    infos: Out<'_, CUarrayMapInfo>,
    count: u32,
    code: CUresult,
) -> Outcome<CUresult> {
    let is_certain = code == CUresult::SUCCESS;
    // The first alone is bound or refused.
    if is_certain || count > 1 && !planted(Seed::R77) {
        let handles = (0..count as usize).filter_map(|at| infos.memory_at(at));
        tenant.physical(|book| {
            handles.for_each(|handle| book.hold_by_tiles(handle, is_certain));
        });
    }
    Outcome::Done(code)
}

impl Tenant {
    fn physical<R>(self, act: impl FnOnce(&mut Book) -> R) -> R {
        let _errno = KeptErrno::keep();
        act(&mut self.physical_book())
    }

    /// Not in each of its callers: the library stays small.
    #[inline(never)]
    fn physical_book(self) -> MutexGuard<'static, Book> {
        let physical = self.memory.physical.get_or_default();
        physical.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Charges what an import of a stranger's memory is told to hold, and what looks find.
    fn charge_stranger(self, ordinal: u32, bytes: Bytes) -> Result<(), Refused> {
        let devices = devices_of(self, ordinal);
        self.reserve_or_trim(devices, bytes)?.commit_as(bytes);
        self.look_for_imported(Some(ordinal))
            .inspect_err(|_| self.release(devices, bytes))
    }

    /// What this process is charged for what nobody of this tenant has named; `None` where it holds no such thing. It may be in its maker's row.
    pub fn imports_of_strangers_on(self, ordinal: u32) -> Option<Bytes> {
        self.physical(|book| {
            let memories = book.memories.values();
            let foreign = memories.filter(|memory| memory.foreign && memory.ordinal == ordinal);
            foreign
                .map(|memory| memory.bytes)
                .reduce(Bytes::saturating_add)
        })
    }

    /// What this process created on a device and holds, which is in its row, whoever else holds it too: so says an H200
    /// (`fixtures/oracle/shared-memory-580.txt`).
    pub fn physical_on(self, ordinal: u32) -> Bytes {
        self.physical(|book| {
            let own = book.memories.values().filter(|memory| {
                memory.ordinal == ordinal
                    && !(planted(Seed::R9a) && memory.named.is_some())
                    && memory.hold.is_none()
                    && !memory.foreign
            });
            own.fold(Bytes::ZERO, |sum, memory| sum.saturating_add(memory.bytes))
        })
    }

    /// A descriptor holds the memory as a handle does: it gets a name, by which others know what they import and by which its end is seen.
    /// Where it cannot be named the memory stays charged until this process ends. What was imported has its maker's name, also where it is exported again:
    /// that makes another open file description (R44 of `fixtures/defects.txt`).
    fn note_export(self, id: Id, descriptor: Option<i32>) -> Result<(), Refused> {
        // One name for all descriptors: the second of two threads finds the first's.
        let _held = self.memory.naming.hold();
        let known = self.physical(|book| book.memories.get(&id).copied());
        let named = match known.zip(descriptor) {
            Some((known, fd)) if known.named.or(known.hold).is_some() || !known.foreign => {
                let name = known.named.or(known.hold);
                let devices = devices_of(self, known.ordinal);
                self.name_descriptor(fd, name, devices, known.bytes)?
            }
            _ => None,
        };
        self.physical(|book| {
            let memory = book.memories.get_mut(&id);
            memory.into_iter().for_each(|memory| {
                if memory.hold.is_none() {
                    memory.named = memory.named.or(named);
                }
                memory.held_elsewhere |= named.is_none();
            });
        });
        Ok(())
    }

    /// From a driver's call that maps, or gives a device a right, until the books have it: of two threads the last in the driver is the last in the books (R94a
    /// of `fixtures/defects.txt`).
    fn hold_mappings(self) -> Option<Held<'static>> {
        (!planted(Seed::R94a) && !planted(Seed::R94)).then(|| self.memory.mapping.hold())
    }

    /// A descriptor of a range of addresses was made. Whether physical memory is mapped there.
    pub fn note_range_export(self, descriptor: Option<i32>, address: u64, size: u64) -> bool {
        let ids = self.physical(|book| {
            let end = address.saturating_add(size);
            let first = book.begin_at(address);
            let within = book.mappings.within(address.saturating_add(1), end);
            let others: Vec<Id> = within.iter().map(|(_, mapping)| mapping.memory).collect();
            let others = others.into_iter().filter_map(|id| book.begin(id));
            first.into_iter().chain(others).collect::<Vec<Id>>()
        });
        // One of several memories has nobody's name.
        let descriptor = descriptor.filter(|_| ids.windows(2).all(|pair| pair[0] == pair[1]));
        for id in &ids {
            // What such a descriptor is of has no name on a card.
            let _ = self
                .note_export(*id, descriptor)
                .or_else(|_| self.note_export(*id, None));
            let ended = self.physical(|book| book.finish(*id, |_| ()));
            self.end_physical(ended);
        }
        !ids.is_empty()
    }

    /// So many page tables of devices map nothing any longer.
    fn end_all_tables(self, tables: impl IntoIterator<Item = (u32, u64)>) {
        for (ordinal, count) in tables {
            if let Some(device) = self.device(ordinal) {
                self.end_tables(device, count);
            }
        }
    }

    fn reserve_if_any(self, ordinal: u32, bytes: Bytes) -> Result<Grant, Refused> {
        match bytes {
            Bytes::ZERO => Ok(self.nothing()),
            bytes => self.reserve_or_trim(devices_of(self, ordinal), bytes),
        }
    }

    /// What the driver's row says where a tile may hold memory that has ended.
    fn look_for_tiles(self, ended: &[Memory]) {
        let doubtful = ended.iter().filter(|memory| memory.doubtful);
        let devices = doubtful.filter_map(|memory| self.device(memory.ordinal));
        devices.for_each(|device| _ = self.look_at(device));
    }

    fn end_physical(self, ended: impl IntoIterator<Item = Memory>) {
        for memory in ended {
            if memory.held_elsewhere {
                continue;
            }
            memory
                .hold
                .into_iter()
                .for_each(|named| self.let_go(named.object));
            // Whoever holds it on, descriptors among them, is charged for before we are relieved.
            if let (Some(named), Some(ledger)) = (memory.named, self.ledger()) {
                ledger.pass_object_on(named.object);
            }
            self.release(devices_of(self, memory.ordinal), memory.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 2 << 20;

    fn book() -> Book {
        let mut book = Book::default();
        book.enter(7, 3, Bytes(SIZE));
        book
    }

    fn release(book: &mut Book, handle: u64) -> Option<Memory> {
        let id = book.begin_release(handle)?;
        book.finish_release(handle, id, true)
    }

    fn map(book: &mut Book, handle: u64, address: u64) -> Option<Memory> {
        let id = book.begin_with(handle)?;
        book.finish_map(id, Some((address, SIZE))).0.pop()
    }

    fn unmap(book: &mut Book, address: u64, size: u64) -> Vec<Memory> {
        let leaving = book.begin_unmap(address, size);
        let are_gone = vec![true; leaving.len()];
        book.finish_unmap(leaving, &are_gone).0
    }

    #[test]
    fn a_device_needs_a_directory_once_for_all_that_it_may_access() {
        const FAR: u64 = charge::MAPPED_BY_DIRECTORY.0;
        let mut book = book();
        book.enter(8, 4, Bytes(SIZE));
        let mut map = |handle, address, size| {
            let id = book.begin_with(handle).unwrap();
            assert_eq!(book.finish_map(id, Some((address, size))).1, []);
        };
        map(7, 0, SIZE);
        map(7, 4 * SIZE, SIZE);
        map(8, 2 * SIZE, SIZE);
        map(7, FAR - SIZE, 2 * SIZE);
        map(7, 3 * FAR - SIZE, FAR + 2 * SIZE);
        // Whosever memory it is, and whichever device's.
        assert_eq!(book.set_access((0, SIZE), 3, true), 1);
        assert_eq!(book.set_access((0, SIZE), 3, true), 0);
        assert_eq!(book.set_access((SIZE, 6 * SIZE), 3, true), 0);
        assert_eq!(book.set_access((2 * SIZE, 3 * SIZE), 4, true), 1);
        assert_eq!(book.set_access((6 * SIZE, 8 * FAR), 3, true), 1 + 3);
        assert_eq!(book.most_tables((0, 8 * FAR), 3), 0);
        assert_eq!(book.set_access((4 * SIZE, 5 * SIZE), 3, false), 0);
        let leaving = book.begin_unmap(0, 5 * SIZE);
        let ended = book.finish_unmap(leaving, &[true; 3]).1;
        assert_eq!(ended, [(3, 0), (3, 0), (4, 1)]);
        let leaving = book.begin_unmap(0, 8 * FAR);
        assert_eq!(book.finish_unmap(leaving, &[true; 2]).1, [(3, 2), (3, 3)]);
    }

    #[test]
    fn memory_ends_with_the_last_of_handles_and_mappings() {
        let mut book = book();
        assert_eq!(map(&mut book, 7, SIZE), None);
        assert_eq!(map(&mut book, 7, 8 * SIZE), None);
        assert_eq!(release(&mut book, 7), None);
        let id = book.begin_at(9 * SIZE - 1).unwrap();
        assert_eq!(book.finish_retain(id, Some(9)), None);
        assert_eq!(book.begin_at(9 * SIZE), None);
        assert_eq!(unmap(&mut book, 0, 16 * SIZE), []);
        let ended = release(&mut book, 9).unwrap();
        assert_eq!((ended.ordinal, ended.bytes), (3, Bytes(SIZE)));
        assert!(book.handles.is_empty() && book.mappings.0.is_empty() && book.memories.is_empty());
    }

    #[test]
    fn what_the_driver_refuses_changes_nothing() {
        let mut book = book();
        map(&mut book, 7, SIZE);
        let id = book.begin_release(7).unwrap();
        assert_eq!(book.finish_release(7, id, false), None);
        let leaving = book.begin_unmap(SIZE, SIZE);
        assert_eq!(book.finish_unmap(leaving, &[false]), (vec![], vec![]));
        assert_eq!(release(&mut book, 7), None);
        assert_eq!(release(&mut book, 7), None);
        assert_eq!(unmap(&mut book, SIZE, SIZE).len(), 1);
    }

    #[test]
    fn a_mapping_made_while_the_last_handle_goes_keeps_the_memory() {
        let mut book = book();
        let releasing = book.begin_release(7).unwrap();
        let mapping = book.begin_with(7).unwrap();
        assert_eq!(book.finish_release(7, releasing, true), None);
        assert_eq!(
            book.finish_map(mapping, Some((SIZE, SIZE))),
            (vec![], vec![])
        );
        assert_eq!(unmap(&mut book, SIZE, SIZE).len(), 1);
    }

    #[test]
    fn names_that_come_back_at_once_are_their_new_owners() {
        let mut book = book();
        map(&mut book, 7, SIZE);
        let releasing = book.begin_release(7).unwrap();
        book.enter(7, 4, Bytes(SIZE));
        assert_eq!(book.finish_release(7, releasing, true), None);
        let leaving = book.begin_unmap(SIZE, SIZE);
        assert_eq!(map(&mut book, 7, SIZE), None);
        assert_eq!(book.finish_unmap(leaving, &[true]).0[0].ordinal, 3);
        assert_eq!(release(&mut book, 7), None);
        assert_eq!(unmap(&mut book, SIZE, SIZE)[0].ordinal, 4);
    }

    /// A thread unmaps, another maps there at once, and the first finds something mapped: whichever of them is first to say so.
    #[test]
    fn what_another_mapping_replaces_is_gone() {
        for says_first in [false, true] {
            let mut book = book();
            map(&mut book, 7, SIZE);
            assert_eq!(release(&mut book, 7), None);
            book.enter(8, 4, Bytes(SIZE));
            let mut ended = Vec::new();
            let leaving = book.begin_unmap(SIZE, SIZE);
            if says_first {
                ended.extend(map(&mut book, 8, SIZE));
            }
            ended.extend(book.finish_unmap(leaving, &[false]).0);
            if !says_first {
                ended.extend(map(&mut book, 8, SIZE));
            }
            let ordinals: Vec<u32> = ended.iter().map(|memory| memory.ordinal).collect();
            assert_eq!(ordinals, [3]);
            assert_eq!(release(&mut book, 8), None);
            assert_eq!(unmap(&mut book, SIZE, SIZE)[0].ordinal, 4);
        }
    }
}
