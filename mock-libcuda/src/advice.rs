//! What ranges of managed memory were advised, and reading it back.

use std::collections::{BTreeMap, BTreeSet};

use abi::cuda::enumerations::*;
use abi::cuda::*;

use crate::boundary::{Answer, Out};
use crate::driver::{self, Driver};

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;

/// CUmemLocationType.
const NOWHERE: c_int = 0;
pub const DEVICE: c_int = 1;
const HOST: c_int = 2;
/// The numbers that stand for "the host" and "no place" where a device's would stand.
const HOST_ID: c_int = -1;
const NO_ID: c_int = -2;

pub type Place = (c_int, c_int);

/// What a range was advised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    read_mostly: bool,
    preferred: Place,
    accessed_by: BTreeSet<c_int>,
    pub prefetched: Place,
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

/// Advised ranges, start → end; no two overlap.
#[derive(Default)]
pub struct Advised(BTreeMap<u64, (u64, Advice)>);

impl Advised {
    fn split(&mut self, at: u64) {
        if let Some((&start, (end, advice))) = self.0.range(..at).next_back()
            && *end > at
        {
            let (end, advice) = (*end, advice.clone());
            self.0.insert(start, (at, advice.clone()));
            self.0.insert(at, (end, advice));
        }
    }

    /// Changes what a range was advised.
    pub fn change(&mut self, start: u64, end: u64, act: impl Fn(&mut Advice)) {
        self.split(start);
        self.split(end);
        let mut at = start;
        let known: Vec<(u64, u64)> = self
            .0
            .range(start..end)
            .map(|(from, (to, _))| (*from, *to))
            .collect();
        for (from, to) in known {
            if at < from {
                self.0.insert(at, (from, Advice::default()));
            }
            at = to;
        }
        if at < end {
            self.0.insert(at, (end, Advice::default()));
        }
        for (_, (_, advice)) in self.0.range_mut(start..end) {
            act(advice);
        }
    }

    /// Every different advice in a range.
    fn all(&self, start: u64, end: u64) -> Vec<Advice> {
        let mut found = Vec::new();
        let mut at = start;
        let first = self
            .0
            .range(..=start)
            .next_back()
            .map_or(start, |(from, _)| *from);
        for (&from, (to, advice)) in self.0.range(first..end) {
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

    /// A range is memory no more.
    pub fn forget(&mut self, start: u64, end: u64) {
        self.split(start);
        self.split(end);
        self.0.retain(|from, _| !(start..end).contains(from));
    }
}

/// The place that a device's number means, as the first versions have it: -1 is the host.
pub fn place_of(driver: &Driver, number: CUdevice) -> Result<Place, CUresult> {
    if number == HOST_ID {
        return Ok((HOST, HOST_ID));
    }
    driver.ordinal(number)?;
    Ok((DEVICE, number))
}

/// The place that a location means. A host has one NUMA node here.
pub fn place_at(driver: &Driver, location: CUmemLocation) -> Result<Place, CUresult> {
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
    process
        .managed
        .advised
        .change(start, end, |range| match advice {
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
    let all = process.managed.advised.all(start, end);
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
    let all = process.managed.advised.all(start, end);
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
