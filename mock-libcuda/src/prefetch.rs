//! Prefetches, one and in batches, and what else is asked of many ranges of managed memory at once.

use abi::cuda::*;

use crate::advice::{DEVICE, Place, place_at, place_of};
use crate::boundary::{Answer, Out};
use crate::driver::{self, Driver};

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;

fn prefetched(start: u64, len: usize, place: Place, stream: CUstream) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let line = process.line_of(stream)?;
    crate::capture::forbids_waiting(&mut process, stream, line)?;
    let (start, end) = process.managed_range(start, len as u64)?;
    process
        .managed
        .advised
        .change(start, end, |advice| advice.prefetched = place);
    if place.0 == DEVICE {
        process.populate(driver, start, end - start);
    }
    Ok(())
}

pub fn one(dptr: CUdeviceptr, len: usize, device: CUdevice, stream: CUstream) -> Answer {
    let driver = driver::get()?;
    let process = driver.lock();
    process.stream_context(stream)?;
    process.managed_range(dptr, len as u64)?;
    drop(process);
    prefetched(dptr, len, place_of(driver, device)?, stream)
}

pub fn one_to(
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

/// Ranges of a batch, each managed; the stream must be one that the client made.
fn ranges(
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
pub fn batch(
    dptrs: Out<CUdeviceptr>,
    sizes: Out<usize>,
    count: usize,
    locations: Out<CUmemLocation>,
    indices: Out<usize>,
    places: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Answer {
    let ranges = ranges(dptrs, sizes, count, flags, stream)?;
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
pub fn discard(
    dptrs: Out<CUdeviceptr>,
    sizes: Out<usize>,
    count: usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Answer {
    ranges(dptrs, sizes, count, flags, stream).map(|_| ())
}

/// Decompression by the device is a feature that it does not have.
pub fn decompress(
    _params: Out<CUmemDecompressParams>,
    _count: usize,
    _flags: c_uint,
    _error: Out<usize>,
    stream: CUstream,
) -> Answer {
    driver::get()?.lock().stream_context(stream)?;
    Err(CUresult::ERROR_NOT_SUPPORTED)
}
