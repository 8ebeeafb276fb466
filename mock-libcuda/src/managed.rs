//! Managed memory: addresses at its creation, device memory block by block as work touches it, and advice about it.

use std::collections::{BTreeMap, BTreeSet};

use abi::cuda::enumerations::*;
use abi::cuda::*;
use mock_device::{Bytes, Kind};

use crate::arena::Blocks;
use crate::boundary::{Answer, Out};
use crate::driver::{self, Driver, Ordinal};
use crate::memory::answer;
use crate::process::{Owner, Process};

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
/// What the driver keeps of a device from the first managed byte there on, and what it takes ahead of need (H200: 128 MiB
/// went with the first byte, the next 64 MiB of bytes cost nothing, and each free gave its own back).
const FIRST_TOUCH: u64 = 64 << 20;
const AHEAD: u64 = 64 << 20;
/// Blocks of this size come to a device as a whole.
const BLOCK: u64 = 2 << 20;

/// CUmemLocationType.
const NOWHERE: c_int = 0;
const DEVICE: c_int = 1;
const HOST: c_int = 2;
/// The numbers that stand for "the host" and "no place" where a device's would stand.
const HOST_ID: c_int = -1;
const NO_ID: c_int = -2;

type Place = (c_int, c_int);

/// What a range was advised.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Advice {
    read_mostly: bool,
    preferred: Place,
    accessed_by: BTreeSet<c_int>,
    prefetched: Place,
}

impl Default for Advice {
    fn default() -> Self {
        Advice {
            read_mostly: false,
            preferred: (NOWHERE, NO_ID),
            accessed_by: BTreeSet::new(),
            prefetched: (NOWHERE, NO_ID),
        }
    }
}

#[derive(Default)]
pub struct Managed {
    /// Blocks that small allocations share, by device.
    small: BTreeMap<usize, Blocks>,
    /// Advised ranges, start → end; no two overlap.
    advice: BTreeMap<u64, (u64, Advice)>,
    /// Blocks whose bytes a device has, by address.
    resident: BTreeSet<u64>,
    /// Of devices that were touched: what the driver took there ahead of need and has not used yet.
    spare: BTreeMap<usize, u64>,
}

impl Managed {
    fn split(&mut self, at: u64) {
        if let Some((&start, (end, advice))) = self.advice.range(..at).next_back()
            && *end > at
        {
            let (end, advice) = (*end, advice.clone());
            self.advice.insert(start, (at, advice.clone()));
            self.advice.insert(at, (end, advice));
        }
    }

    /// Changes what a range was advised.
    fn change(&mut self, start: u64, end: u64, act: impl Fn(&mut Advice)) {
        self.split(start);
        self.split(end);
        let mut at = start;
        let known: Vec<(u64, u64)> = self
            .advice
            .range(start..end)
            .map(|(from, (to, _))| (*from, *to))
            .collect();
        for (from, to) in known {
            if at < from {
                self.advice.insert(at, (from, Advice::default()));
            }
            at = to;
        }
        if at < end {
            self.advice.insert(at, (end, Advice::default()));
        }
        for (_, (_, advice)) in self.advice.range_mut(start..end) {
            act(advice);
        }
    }

    /// Every different advice in a range.
    fn all(&self, start: u64, end: u64) -> Vec<Advice> {
        let mut found = Vec::new();
        let mut at = start;
        let first = self
            .advice
            .range(..=start)
            .next_back()
            .map_or(start, |(from, _)| *from);
        for (&from, (to, advice)) in self.advice.range(first..end) {
            if *to <= start {
                continue;
            }
            if from > at {
                found.push(Advice::default());
            }
            found.push(advice.clone());
            at = *to;
        }
        if at < end {
            found.push(Advice::default());
        }
        found
    }
}

impl Process {
    fn allocate_managed(&mut self, driver: &Driver, size: u64) -> Result<u64, CUresult> {
        let context = self.current()?;
        let device = self.context(context).device;
        let full = CUresult::ERROR_OUT_OF_MEMORY;
        let (address, taken) = if size >= BLOCK {
            let taken = size.checked_next_multiple_of(BLOCK).ok_or(full)?;
            let holes = &mut self.arena(driver, device)?.holes;
            (holes.take(taken).ok_or(full)?, taken)
        } else {
            let taken = size.next_multiple_of(driver.profile(device).suballocation.0);
            let part = |process: &mut Process| {
                let small = process.managed.small.entry(device.0).or_default();
                small.allocate(taken)
            };
            let address = match part(self) {
                Some(address) => address,
                None => {
                    let base = self.arena(driver, device)?.holes.take(BLOCK).ok_or(full)?;
                    let small = self.managed.small.entry(device.0).or_default();
                    small.add(base, BLOCK);
                    self.arena(driver, device)?.contents.expose(base, BLOCK);
                    part(self).expect("a fresh block has room")
                }
            };
            (address, taken)
        };
        if size >= BLOCK {
            self.arena(driver, device)?.contents.expose(address, taken);
        }
        self.enter(address, size, taken, context, Owner::Managed);
        Ok(address)
    }

    /// Ends a managed allocation: its blocks leave the device.
    pub fn free_managed(&mut self, driver: &Driver, device: Ordinal, address: u64, taken: u64) {
        let (base, len) = if taken >= BLOCK {
            (address, taken)
        } else {
            let small = self.managed.small.entry(device.0).or_default();
            match small.free(address, taken) {
                Some((base, len)) => {
                    small.remove(base);
                    (base, len)
                }
                None => return,
            }
        };
        let gone: Vec<u64> = self
            .managed
            .resident
            .range(base..base + len)
            .copied()
            .collect();
        for block in &gone {
            self.managed.resident.remove(block);
        }
        let index = driver.index(device);
        let bytes = Bytes(gone.len() as u64 * BLOCK);
        driver.world.give_back(index, Kind::Managed, bytes);
        self.managed.split(base);
        self.managed.split(base + len);
        self.managed
            .advice
            .retain(|start, _| !(base..base + len).contains(start));
        if let Ok(arena) = self.arena(driver, device) {
            arena.contents.forget(base, base + len);
            arena.holes.give(base, len);
        }
    }

    /// Work on a device touches a range: what of it is managed comes there. Where the device is full it stays on the host.
    pub fn populate(&mut self, driver: &Driver, address: u64, len: u64) {
        let Some((_, allocation)) = self.holding(address, len) else {
            return;
        };
        if allocation.owner != Owner::Managed {
            return;
        }
        let device = allocation.device;
        let index = driver.index(device);
        self.touch_managed(driver, device);
        for block in (address / BLOCK..=(address + len - 1) / BLOCK).map(|block| block * BLOCK) {
            if self.managed.resident.contains(&block) {
                continue;
            }
            self.use_ahead(driver, device, BLOCK);
            if driver
                .world
                .take(index, Kind::Managed, Bytes(BLOCK))
                .is_err()
            {
                return;
            }
            self.managed.resident.insert(block);
        }
    }

    /// The first managed bytes of a device cost more than themselves.
    pub fn touch_managed(&mut self, driver: &Driver, device: Ordinal) {
        if self.managed.spare.contains_key(&device.0) {
            return;
        }
        let index = driver.index(device);
        let bytes = Bytes(FIRST_TOUCH + AHEAD);
        if driver.world.take(index, Kind::Managed, bytes).is_ok() {
            self.managed.spare.insert(device.0, AHEAD);
        }
    }

    /// Gives memory that was taken ahead of need back, for something else to take.
    pub fn use_ahead(&mut self, driver: &Driver, device: Ordinal, bytes: u64) {
        if let Some(spare) = self.managed.spare.get_mut(&device.0) {
            let used = bytes.min(*spare);
            *spare -= used;
            let index = driver.index(device);
            driver.world.give_back(index, Kind::Managed, Bytes(used));
        }
    }

    /// The last context of a device is gone, and with it what the driver kept there for managed memory.
    pub fn end_managed(&mut self, driver: &Driver, device: Ordinal) {
        if let Some(spare) = self.managed.spare.remove(&device.0) {
            let index = driver.index(device);
            let bytes = Bytes(FIRST_TOUCH + spare);
            driver.world.give_back(index, Kind::Managed, bytes);
        }
    }

    /// INVALID_VALUE for a range that no one managed allocation holds.
    fn managed_range(&self, address: u64, len: u64) -> Result<(u64, u64), CUresult> {
        let (_, allocation) = self
            .holding(address, len)
            .filter(|_| len > 0)
            .ok_or(INVALID)?;
        if allocation.owner == Owner::Managed {
            Ok((address, address + len))
        } else {
            Err(INVALID)
        }
    }
}

pub fn alloc(dptr: Out<CUdeviceptr>, size: usize, flags: c_uint) -> Answer {
    const KNOWN: std::ops::RangeInclusive<c_uint> = 1..=2;
    let dptr = dptr.required()?;
    let driver = driver::get()?;
    let mut process = driver.lock();
    dptr.set(0);
    process.current()?;
    if size == 0 || !KNOWN.contains(&flags) {
        return Err(INVALID);
    }
    let allocated = process.allocate_managed(driver, size as u64);
    answer(&dptr, allocated)
}

/// The place that a device's number means, as the first versions have it: -1 is the host.
fn place_of(driver: &Driver, number: CUdevice) -> Result<Place, CUresult> {
    if number == HOST_ID {
        return Ok((HOST, HOST_ID));
    }
    driver.ordinal(number)?;
    Ok((DEVICE, number))
}

/// The place that a location means. A host has one NUMA node here.
fn place_at(driver: &Driver, location: CUmemLocation) -> Result<Place, CUresult> {
    match (location.type_, location.id) {
        (DEVICE, id) => {
            driver.ordinal(id)?;
            Ok((DEVICE, id))
        }
        (HOST, _) => Ok((HOST, HOST_ID)),
        (3, 0) => Ok((3, 0)),
        (4, _) => Ok((4, 0)),
        _ => Err(INVALID),
    }
}

fn prefetched(start: u64, len: usize, place: Place, stream: CUstream) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.stream_context(stream)?;
    let (start, end) = process.managed_range(start, len as u64)?;
    process
        .managed
        .change(start, end, |advice| advice.prefetched = place);
    if place.0 == DEVICE {
        process.populate(driver, start, end - start);
    }
    Ok(())
}

pub fn prefetch(dptr: CUdeviceptr, len: usize, device: CUdevice, stream: CUstream) -> Answer {
    let driver = driver::get()?;
    let process = driver.lock();
    process.stream_context(stream)?;
    process.managed_range(dptr, len as u64)?;
    drop(process);
    prefetched(dptr, len, place_of(driver, device)?, stream)
}

pub fn prefetch_to(
    dptr: CUdeviceptr,
    len: usize,
    location: CUmemLocation,
    flags: c_uint,
    stream: CUstream,
) -> Answer {
    if dptr == 0 || flags != 0 {
        return Err(INVALID);
    }
    let driver = driver::get()?;
    driver.lock().managed_range(dptr, len as u64)?;
    prefetched(dptr, len, place_at(driver, location)?, stream)
}

/// CUmem_advise.
mod advise {
    pub const SET_READ_MOSTLY: i32 = 1;
    pub const UNSET_READ_MOSTLY: i32 = 2;
    pub const SET_PREFERRED_LOCATION: i32 = 3;
    pub const UNSET_PREFERRED_LOCATION: i32 = 4;
    pub const SET_ACCESSED_BY: i32 = 5;
    pub const UNSET_ACCESSED_BY: i32 = 6;
}

fn advised(
    dptr: CUdeviceptr,
    len: usize,
    advice: CUmem_advise,
    place: impl FnOnce() -> Result<Place, CUresult>,
) -> Answer {
    use advise::*;
    let mut process = driver::get()?.lock();
    process.current()?;
    if !(SET_READ_MOSTLY..=UNSET_ACCESSED_BY).contains(&advice) {
        return Err(INVALID);
    }
    let (start, end) = process.managed_range(dptr, len as u64)?;
    let needed = matches!(
        advice,
        SET_PREFERRED_LOCATION | SET_ACCESSED_BY | UNSET_ACCESSED_BY
    );
    // A NUMA node is the host to what reads it back.
    let place = match needed.then(place).transpose()? {
        Some((3 | 4, _)) => (HOST, HOST_ID),
        Some(place) => place,
        None => (NOWHERE, NO_ID),
    };
    process.managed.change(start, end, |range| match advice {
        SET_READ_MOSTLY => range.read_mostly = true,
        UNSET_READ_MOSTLY => range.read_mostly = false,
        SET_PREFERRED_LOCATION | UNSET_PREFERRED_LOCATION => range.preferred = place,
        SET_ACCESSED_BY => {
            range.accessed_by.insert(place.1);
        }
        _ => {
            range.accessed_by.remove(&place.1);
        }
    });
    Ok(())
}

pub fn advise(dptr: CUdeviceptr, len: usize, advice: CUmem_advise, device: CUdevice) -> Answer {
    let driver = driver::get()?;
    advised(dptr, len, advice, || place_of(driver, device))
}

pub fn advise_at(
    dptr: CUdeviceptr,
    len: usize,
    advice: CUmem_advise,
    location: CUmemLocation,
) -> Answer {
    // A place must be one even where the advice needs none.
    if dptr == 0 || location.type_ == NOWHERE {
        return Err(INVALID);
    }
    let driver = driver::get()?;
    advised(dptr, len, advice, || {
        place_at(driver, location).map_err(|_| INVALID)
    })
}

/// CUmem_range_attribute.
mod range {
    pub const READ_MOSTLY: i32 = 1;
    pub const PREFERRED_LOCATION: i32 = 2;
    pub const ACCESSED_BY: i32 = 3;
    pub const LAST_PREFETCH_LOCATION: i32 = 4;
    pub const PREFERRED_LOCATION_TYPE: i32 = 5;
    pub const PREFERRED_LOCATION_ID: i32 = 6;
    pub const LAST_PREFETCH_LOCATION_TYPE: i32 = 7;
    pub const LAST_PREFETCH_LOCATION_ID: i32 = 8;
}

/// Whether an attribute may have so many bytes.
fn sized(attribute: CUmem_range_attribute, size: usize) -> bool {
    match attribute {
        range::ACCESSED_BY => size > 0 && size.is_multiple_of(4),
        range::READ_MOSTLY..=range::LAST_PREFETCH_LOCATION_ID => size == 4,
        _ => false,
    }
}

/// What all of a range has in common; what its parts differ in reads as not set.
fn read(
    all: &[Advice],
    attribute: CUmem_range_attribute,
    out: &crate::boundary::Slot<c_int>,
    count: usize,
) {
    let common = |place: fn(&Advice) -> Place| {
        let first = place(&all[0]);
        let same = all.iter().all(|advice| place(advice) == first);
        if same { first } else { (NOWHERE, NO_ID) }
    };
    // The first attributes know devices and the host alone.
    let old = |(kind, id): Place| match kind {
        DEVICE => id,
        NOWHERE => NO_ID,
        _ => HOST_ID,
    };
    let preferred = common(|advice| advice.preferred);
    let prefetched = common(|advice| advice.prefetched);
    let value = match attribute {
        range::READ_MOSTLY => all.iter().all(|advice| advice.read_mostly).into(),
        range::PREFERRED_LOCATION => old(preferred),
        range::LAST_PREFETCH_LOCATION => old(prefetched),
        range::PREFERRED_LOCATION_TYPE => preferred.0,
        range::PREFERRED_LOCATION_ID => preferred.1,
        range::LAST_PREFETCH_LOCATION_TYPE => prefetched.0,
        range::LAST_PREFETCH_LOCATION_ID => prefetched.1,
        _ => {
            // Devices first, then the host.
            let everywhere = |id: &c_int| all.iter().all(|advice| advice.accessed_by.contains(id));
            let mut ids: Vec<c_int> = all[0]
                .accessed_by
                .iter()
                .copied()
                .filter(everywhere)
                .collect();
            ids.sort_by_key(|id| id.cast_unsigned());
            for at in 0..count {
                out.nth(at).set(ids.get(at).copied().unwrap_or(NO_ID));
            }
            return;
        }
    };
    out.set(value);
}

pub fn range_attribute(
    data: Out<c_void>,
    size: usize,
    attribute: CUmem_range_attribute,
    dptr: CUdeviceptr,
    len: usize,
) -> Answer {
    let process = driver::get()?.lock();
    process.current()?;
    let data = data.cast::<c_int>().required()?;
    if !sized(attribute, size) {
        return Err(INVALID);
    }
    let (start, end) = process.managed_range(dptr, len as u64)?;
    let all = process.managed.all(start, end);
    read(&all, attribute, &data, size / 4);
    Ok(())
}

/// All or nothing.
pub fn range_attributes(
    data: Out<*mut c_void>,
    sizes: Out<usize>,
    attributes: Out<CUmem_range_attribute>,
    count: usize,
    dptr: CUdeviceptr,
    len: usize,
) -> Answer {
    let process = driver::get()?.lock();
    let (data, sizes) = (data.required()?, sizes.required()?);
    let attributes = attributes.required()?;
    let fits = |at: usize| {
        sized(attributes.nth(at).get(), sizes.nth(at).get()) && !data.nth(at).get().is_null()
    };
    if count == 0 || !(0..count).all(fits) {
        return Err(INVALID);
    }
    let (start, end) = process.managed_range(dptr, len as u64)?;
    let all = process.managed.all(start, end);
    for at in 0..count {
        let out: Out<c_void> = crate::boundary::FromC::from_c(data.nth(at).get());
        let out = out.cast::<c_int>().required()?;
        read(
            &all,
            attributes.nth(at).get(),
            &out,
            sizes.nth(at).get() / 4,
        );
    }
    Ok(())
}

/// Ranges of a batch, each managed; the stream must be one that the client made.
fn batch(
    dptrs: Out<CUdeviceptr>,
    sizes: Out<usize>,
    count: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Result<Vec<(u64, usize)>, CUresult> {
    if stream.is_null() {
        return Err(INVALID);
    }
    let process = driver::get()?.lock();
    if count == 0 || flags != 0 {
        return Err(INVALID);
    }
    let (dptrs, sizes) = (dptrs.required()?, sizes.required()?);
    process.stream_context(stream)?;
    let ranges = (0..count).map(|at| (dptrs.nth(at).get(), sizes.nth(at).get()));
    ranges
        .map(|(start, len)| {
            process.managed_range(start, len as u64)?;
            Ok((start, len))
        })
        .collect()
}

/// The places of a batch: the `n`-th holds from the range that its index names on.
struct Places {
    locations: Out<CUmemLocation>,
    indices: Out<usize>,
    count: usize,
}

impl Places {
    fn read(self, driver: &Driver) -> Result<Vec<(usize, Place)>, CUresult> {
        let (locations, indices) = (self.locations.required()?, self.indices.required()?);
        if self.count == 0 {
            return Err(INVALID);
        }
        let places = (0..self.count).map(|at| {
            let place = place_at(driver, locations.nth(at).get())?;
            Ok((indices.nth(at).get(), place))
        });
        let places: Vec<(usize, Place)> = places.collect::<Result<_, CUresult>>()?;
        let ascending = places.windows(2).all(|two| two[0].0 < two[1].0);
        (ascending && places[0].0 == 0)
            .then_some(places)
            .ok_or(INVALID)
    }
}

#[expect(clippy::too_many_arguments, reason = "the C signature")]
pub fn prefetch_batch(
    dptrs: Out<CUdeviceptr>,
    sizes: Out<usize>,
    count: usize,
    locations: Out<CUmemLocation>,
    indices: Out<usize>,
    places: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Answer {
    let ranges = batch(dptrs, sizes, count, flags, stream)?;
    let places = Places {
        locations,
        indices,
        count: places,
    };
    let places = places.read(driver::get()?)?;
    for (at, (start, len)) in ranges.into_iter().enumerate() {
        let held = places.iter().rev().find(|(from, _)| *from <= at);
        let (_, place) = held.ok_or(INVALID)?;
        prefetched(start, len, *place, stream)?;
    }
    Ok(())
}

/// Discarded contents are undefined: here they stay as they are.
pub fn discard_batch(
    dptrs: Out<CUdeviceptr>,
    sizes: Out<usize>,
    count: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Answer {
    batch(dptrs, sizes, count, flags, stream).map(|_| ())
}

/// Decompression by the device is a feature that it does not have.
pub fn decompress_batch(
    _params: Out<CUmemDecompressParams>,
    _count: usize,
    _flags: c_uint,
    _error: Out<usize>,
    stream: CUstream,
) -> Answer {
    driver::get()?.lock().stream_context(stream)?;
    Err(CUresult::ERROR_NOT_SUPPORTED)
}
