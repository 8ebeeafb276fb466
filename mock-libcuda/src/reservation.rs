//! cuMemAddressReserve and cuMemMap: addresses of the client's choice, and the physical memory behind them.

use std::collections::{BTreeMap, BTreeSet};

use abi::cuda::*;

use crate::boundary::{AddressRange, Answer, Host, In, Out};
use crate::copy::Piece;
use crate::driver::{self, Driver, Ordinal};
use crate::handle;
use crate::host::Pages;
use crate::process::Process;

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;

/// Access rights of CUmemAccess_flags.
const READ: c_int = 1;
const READ_WRITE: c_int = 3;

struct Mapping {
    len: u64,
    physical: u32,
    offset: u64,
    access: BTreeMap<usize, c_int>,
    /// Devices whose page tables map it.
    tables: BTreeSet<usize>,
}

pub struct Reservation {
    range: AddressRange,
    /// By address; they do not overlap.
    mappings: BTreeMap<u64, Mapping>,
}

impl Reservation {
    fn end(&self) -> u64 {
        self.range.base() + self.range.len
    }

    fn mapping_at(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (&start, mapping) = self.mappings.range(..=address).next_back()?;
        (address < start + mapping.len).then_some((start, mapping))
    }

    /// The mappings that a range holds, none of them in part.
    fn inside(&self, start: u64, len: u64) -> Option<Vec<u64>> {
        let end = start.checked_add(len).filter(|_| len > 0)?;
        let cut = |at: u64| self.mapping_at(at).is_some_and(|(base, _)| base != at);
        if cut(start) || cut(end) {
            return None;
        }
        Some(self.mappings.range(start..end).map(|(at, _)| *at).collect())
    }

    /// The mappings that make up a range exactly.
    fn whole(&self, start: u64, len: u64) -> Option<Vec<u64>> {
        let end = start.checked_add(len)?;
        let found: Vec<(u64, u64)> = self
            .mappings
            .range(start..end)
            .map(|(at, mapping)| (*at, mapping.len))
            .collect();
        let mut at = start;
        for (base, len) in &found {
            if *base != at {
                return None;
            }
            at += len;
        }
        (len > 0 && at == end).then(|| found.into_iter().map(|(base, _)| base).collect())
    }
}

/// By first address.
pub type Reservations = BTreeMap<u64, Reservation>;

/// What a mapped address is.
pub struct Mapped {
    pub mapping: (u64, u64),
    pub reservation: (u64, u64),
    pub physical: u32,
    pub access: c_int,
}

impl Process {
    fn reservation_at(&self, address: u64) -> Option<&Reservation> {
        let (_, reservation) = self.reservations.range(..=address).next_back()?;
        (address < reservation.end()).then_some(reservation)
    }

    fn reservation_at_mut(&mut self, address: u64) -> Option<&mut Reservation> {
        let (_, reservation) = self.reservations.range_mut(..=address).next_back()?;
        (address < reservation.end()).then_some(reservation)
    }

    /// A device that is to access a mapping gets page tables for it, if it has none yet (H200, 580.159.04: of the host's memory 2 MiB for each GiB, of
    /// device memory, whichever device's, 4 KiB for each mapping far from others; cuMemMap alone takes none).
    fn enter_mapping(&mut self, driver: &Driver, device: Ordinal, at: u64) -> Answer {
        let found = self
            .reservation_at(at)
            .and_then(|reservation| reservation.mapping_at(at));
        let Some((base, mapping)) = found else {
            return Err(INVALID);
        };
        if mapping.tables.contains(&device.0) {
            return Ok(());
        }
        let range = (self.pages_of(mapping.physical), base, mapping.len);
        self.enter_tables(driver, device, range)?;
        let reservation = self.reservation_at_mut(base);
        if let Some(mapping) = reservation.and_then(|found| found.mappings.get_mut(&base)) {
            mapping.tables.insert(device.0);
        }
        Ok(())
    }

    /// It is to access it no longer.
    fn leave_mapping(&mut self, driver: &Driver, device: Ordinal, at: u64) {
        let found = self
            .reservation_at_mut(at)
            .and_then(|reservation| reservation.mappings.get_mut(&at));
        if let Some(mapping) = found
            && mapping.tables.remove(&device.0)
        {
            let (physical, len) = (mapping.physical, mapping.len);
            let range = (self.pages_of(physical), at, len);
            self.end_tables(driver, device, range);
        }
    }

    fn pages_of(&self, physical: u32) -> Pages {
        match self.physical[&physical].location().0 {
            None => Pages::Small,
            Some(_) => Pages::Large,
        }
    }

    pub fn mapped_at(&self, address: u64) -> Option<Mapped> {
        let reservation = self.reservation_at(address)?;
        let (start, mapping) = reservation.mapping_at(address)?;
        let device = self
            .current()
            .map_or(0, |context| self.context(context).device.0);
        Some(Mapped {
            mapping: (start, mapping.len),
            reservation: (reservation.range.base(), reservation.range.len),
            physical: mapping.physical,
            access: mapping.access.get(&device).copied().unwrap_or(0),
        })
    }

    /// Where reserved addresses lead; `None` for addresses that are not reserved.
    pub fn mapped_pieces(&self, address: u64, len: u64) -> Option<Result<Vec<Piece>, CUresult>> {
        let reservation = self.reservation_at(address)?;
        let mut pieces = Vec::new();
        let (mut at, end) = (address, address.checked_add(len)?);
        while at < end {
            let Some((start, mapping)) = reservation.mapping_at(at) else {
                return Some(Err(INVALID));
            };
            if mapping.access.values().all(|access| *access == 0) {
                return Some(Err(INVALID));
            }
            let len = (start + mapping.len).min(end) - at;
            let (device, base) = self.physical[&mapping.physical].location();
            pieces.push(Piece {
                at: base + mapping.offset + (at - start),
                len,
                device,
            });
            at += len;
        }
        Some(Ok(pieces))
    }
}

fn granularity(driver: &Driver) -> u64 {
    driver.profile(Ordinal(0)).vmm_granularity.0
}

pub fn reserve(
    ptr: Out<CUdeviceptr>,
    size: usize,
    alignment: usize,
    hint: CUdeviceptr,
    flags: c_ulonglong,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let ptr = ptr.required()?;
    let (size, alignment, unit) = (size as u64, alignment as u64, granularity(driver));
    let aligned = alignment == 0 || alignment.is_power_of_two();
    if size == 0
        || !size.is_multiple_of(unit)
        || !aligned
        || flags != 0
        || !hint.is_multiple_of(unit)
    {
        return Err(INVALID);
    }
    let range =
        AddressRange::reserve(size, alignment.max(unit)).ok_or(CUresult::ERROR_OUT_OF_MEMORY)?;
    let base = range.base();
    process.reservations.insert(
        base,
        Reservation {
            range,
            mappings: BTreeMap::new(),
        },
    );
    ptr.set(base);
    Ok(())
}

pub fn free(ptr: CUdeviceptr, size: usize) -> Answer {
    let mut process = driver::get()?.lock();
    match process.reservations.get(&ptr) {
        Some(reservation)
            if reservation.range.len == size as u64 && reservation.mappings.is_empty() =>
        {
            process.reservations.remove(&ptr);
            Ok(())
        }
        _ => Err(INVALID),
    }
}

pub fn map(
    ptr: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: c_ulonglong,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let (size, offset) = (size as u64, offset as u64);
    if ptr == 0 || size == 0 || flags != 0 {
        return Err(INVALID);
    }
    // Memory is mapped whole; that of a released handle which something still maps is looked at too.
    let id = handle::followed(handle::Kind::Physical, handle, INVALID)?;
    let known = process.physical.get(&id).ok_or(INVALID)?;
    if offset != 0 || size != known.size {
        return Err(CUresult::ERROR_NOT_SUPPORTED);
    }
    let id = process.physical_of(handle)?;
    let reservation = process.reservation_at_mut(ptr).ok_or(INVALID)?;
    let end = ptr.checked_add(size).ok_or(INVALID)?;
    let taken = reservation.mapping_at(ptr).is_some()
        || reservation.mappings.range(ptr..end).next().is_some();
    if !ptr.is_multiple_of(granularity(driver)) || taken {
        return Err(INVALID);
    }
    reservation.mappings.insert(
        ptr,
        Mapping {
            len: size,
            physical: id,
            offset,
            access: BTreeMap::new(),
            tables: BTreeSet::new(),
        },
    );
    if let Some(physical) = process.physical.get_mut(&id) {
        physical.mappings += 1;
    }
    Ok(())
}

/// Mappings go as a whole; addresses without any are no error.
pub fn unmap(ptr: CUdeviceptr, size: usize) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let reservation = process.reservation_at_mut(ptr).ok_or(INVALID)?;
    let gone = reservation.inside(ptr, size as u64).ok_or(INVALID)?;
    let gone: Vec<(u64, Mapping)> = gone
        .iter()
        .filter_map(|at| Some((*at, reservation.mappings.remove(at)?)))
        .collect();
    for (at, mapping) in gone {
        let id = mapping.physical;
        let range = (process.pages_of(id), at, mapping.len);
        for device in mapping.tables {
            process.end_tables(driver, Ordinal(device), range);
        }
        if let Some(physical) = process.physical.get_mut(&id) {
            physical.mappings -= 1;
        }
        process.settle_physical(driver, id);
    }
    Ok(())
}

pub fn set_access(
    ptr: CUdeviceptr,
    size: usize,
    list: In<CUmemAccessDesc>,
    count: usize,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    if list.is_null() || count == 0 {
        return Err(INVALID);
    }
    let mut rights = Vec::new();
    for at in 0..count {
        let wanted = list.nth(at).ok_or(INVALID)?;
        if !matches!(wanted.flags, 0 | READ | READ_WRITE) {
            return Err(INVALID);
        }
        match wanted.location.type_ {
            1 => {
                let device = driver.ordinal(wanted.location.id).map_err(|_| INVALID)?;
                rights.push((device, wanted.flags));
            }
            2 | 3 => return Err(CUresult::ERROR_NOT_SUPPORTED),
            _ => return Err(INVALID),
        }
    }
    for (device, flags) in &rights {
        let closed = |at: &u64| {
            let memory = process.mapped_at(*at).map(|mapped| mapped.physical);
            let place = memory.and_then(|id| process.physical[&id].location().0);
            place.is_some_and(|memory| !driver.is_open_to(memory, *device))
        };
        let reservation = process.reservation_at(ptr).ok_or(INVALID)?;
        // As reported from cards that no link joins (pytorch/pytorch#174030).
        let all = reservation.whole(ptr, size as u64).ok_or(INVALID)?;
        if *flags != 0 && all.iter().any(closed) {
            return Err(CUresult::ERROR_INVALID_DEVICE);
        }
    }
    let reservation = process.reservation_at(ptr).ok_or(INVALID)?;
    for at in reservation.whole(ptr, size as u64).ok_or(INVALID)? {
        for (device, flags) in &rights {
            match flags {
                0 => process.leave_mapping(driver, *device, at),
                _ => process.enter_mapping(driver, *device, at)?,
            }
        }
    }
    let reservation = process.reservation_at_mut(ptr).ok_or(INVALID)?;
    for at in reservation.whole(ptr, size as u64).ok_or(INVALID)? {
        if let Some(mapping) = reservation.mappings.get_mut(&at) {
            for (device, flags) in &rights {
                mapping.access.insert(device.0, *flags);
            }
        }
    }
    Ok(())
}

pub fn get_access(
    flags: Out<c_ulonglong>,
    location: In<CUmemLocation>,
    ptr: CUdeviceptr,
) -> Answer {
    let driver = driver::get()?;
    let process = driver.lock();
    let (flags, location) = (flags.required()?, location.required()?);
    if ptr == 0 {
        return Err(INVALID);
    }
    let device = match location.type_ {
        1 => Some(driver.ordinal(location.id)?),
        2 => None,
        _ => return Err(INVALID),
    };
    flags.set(0);
    let reservation = process.reservation_at(ptr).ok_or(INVALID)?;
    let (_, mapping) = reservation.mapping_at(ptr).ok_or(INVALID)?;
    let access = device.and_then(|device| mapping.access.get(&device.0));
    flags.set(access.copied().unwrap_or(0) as c_ulonglong);
    Ok(())
}

pub fn retain_handle(out: Out<CUmemGenericAllocationHandle>, address: Host) -> Answer {
    let mut process = driver::get()?.lock();
    let out = out.required()?;
    let mapped = process.mapped_at(address.0).ok_or(INVALID)?;
    out.set(process.retain_physical(mapped.physical));
    Ok(())
}

/// CUarrayMapInfo as words of 32 bits.
type MapWords = [u32; 24];

/// Binds tiles of a sparse array to memory of a tile pool, or takes them away. Contents of arrays are this library's own
/// affair: what is bound only keeps its memory.
pub fn map_array(list: Out<CUarrayMapInfo>, count: c_uint, stream: CUstream) -> Answer {
    if list.is_null() || count == 0 {
        return Err(INVALID);
    }
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.stream_context(stream)?;
    let list = list.cast::<MapWords>().required()?;
    for at in 0..count as usize {
        process.map_tiles(&list.nth(at).get())?;
    }
    Ok(())
}

impl Process {
    fn map_tiles(&mut self, words: &MapWords) -> Answer {
        const MAP: u32 = 1;
        const UNMAP: u32 = 2;
        const TILE: u64 = 64 << 10;
        let pair = |at: usize| u64::from(words[at]) | u64::from(words[at + 1]) << 32;
        let array = CUarray(pair(2) as *mut c_void);
        let found = self.array_of(array, INVALID)?;
        let shape = found.shape;
        let (level, origin, extent) = (words[6], &words[8..11], &words[11..14]);
        if words[0] != 0 || words[4] != 0 || !shape.has(crate::shape::SPARSE) || level != 0 {
            return Err(INVALID);
        }
        let size = [shape.width, shape.height.max(1), shape.depth.max(1)];
        let mut tiles = 1;
        for axis in 0..3 {
            let tile = u64::from(shape.tile()[axis]);
            let (from, len) = (u64::from(origin[axis]), u64::from(extent[axis]).max(1));
            let whole = from.is_multiple_of(tile) && (len.is_multiple_of(tile) || axis == 2);
            if !whole || from + len > size[axis].max(tile) {
                return Err(INVALID);
            }
            tiles *= len.div_ceil(tile);
        }
        match words[14] {
            UNMAP => Ok(()),
            MAP => {
                let (handle, offset, mask) = (pair(16), pair(18), words[20]);
                let id = self.physical_of(handle)?;
                let physical = self.physical.get_mut(&id).ok_or(INVALID)?;
                let fits = offset.is_multiple_of(TILE) && offset + tiles * TILE <= physical.size;
                if mask == 0 || !physical.is_tile_pool() || !fits {
                    return Err(INVALID);
                }
                physical.mappings += 1;
                self.bind_tiles(array, id);
                Ok(())
            }
            _ => Err(INVALID),
        }
    }
}
