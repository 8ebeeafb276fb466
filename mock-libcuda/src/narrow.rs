//! 32-bit contexts, which the unsuffixed cuCtxCreate makes: their addresses end at 4 GiB, only the unsuffixed entry points
//! work in them, and a device has no other context beside them. As an H200 answered (580.159.04;
//! `fixtures/oracle/narrow-h200.txt`).
//!
//! Behind the addresses lies device memory as everywhere, whose own addresses nobody sees.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use abi::cuda::*;
use mock_device::Kind;

use crate::arena::{Blocks, Holes};
use crate::boundary::{Answer, Host, Out};
use crate::driver::{self, Driver, Ordinal};
use crate::entry::Entry;
use crate::memory::zeroed;
use crate::pool::When;
use crate::process::{Allocation, ContextId, Owner, Process};
use crate::{copy, fill, host, memory, stream};

/// Where the card's first allocation lies, and where its last ends.
const FIRST: u64 = 0x0c40_0000;
const END: u64 = 1 << 32;

/// Whether this process ever made such a context.
static ANY: AtomicBool = AtomicBool::new(false);

/// Entry points that refuse a 32-bit context: those whose unsuffixed version is of its own generation.
const WIDE: &[&str] = &[
    "cuMemAllocManaged",
    "cuMemAllocPitch_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemGetAddressRange_v2",
    "cuMemGetInfo_v2",
    "cuMemHostGetDevicePointer_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoD_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyHtoD_v2",
    "cuMemsetD16_v2",
    "cuMemsetD2D16_v2",
    "cuMemsetD2D32_v2",
    "cuMemsetD2D8_v2",
    "cuMemsetD32_v2",
    "cuMemsetD8_v2",
    "cuModuleGetGlobal_v2",
];

/// The addresses of one device.
pub struct Narrow {
    holes: Holes,
    small: Blocks,
    /// Device memory behind a range: first address, its own first address and length.
    hidden: BTreeMap<u64, (u64, u64)>,
}

impl Default for Narrow {
    fn default() -> Self {
        Self {
            holes: Holes::new(FIRST, END - FIRST),
            small: Blocks::default(),
            hidden: BTreeMap::new(),
        }
    }
}

pub fn begins() {
    ANY.store(true, Ordering::Relaxed);
}

/// Whether an entry point refuses the calling thread's context because that is one of 32 bits.
#[inline]
pub fn refuses(entry: Entry) -> bool {
    ANY.load(Ordering::Relaxed) && WIDE.binary_search(&entry.name()).is_ok() && current().is_ok()
}

/// The calling thread's 32-bit context; INVALID_CONTEXT for every other.
pub fn current() -> Result<ContextId, CUresult> {
    let process = driver::get()?.lock();
    let context = process.current()?;
    match process.context(context).legacy {
        true => Ok(context),
        false => Err(CUresult::ERROR_INVALID_CONTEXT),
    }
}

impl Process {
    fn narrow(&mut self, device: Ordinal) -> &mut Narrow {
        self.narrow.entry(device).or_default()
    }

    /// Where the memory behind an address lies.
    pub fn behind(&self, device: Ordinal, address: u64) -> Option<u64> {
        let (base, (hidden, len)) = self
            .narrow
            .get(&device)?
            .hidden
            .range(..=address)
            .next_back()?;
        (address - base < *len).then_some(hidden + (address - base))
    }

    fn take_narrow(&mut self, driver: &Driver, device: Ordinal, len: u64) -> Result<u64, CUresult> {
        let full = CUresult::ERROR_OUT_OF_MEMORY;
        let base = self.narrow(device).holes.take(len).ok_or(full)?;
        match self.take(driver, device, Kind::Memory, len) {
            Ok(hidden) => {
                self.narrow(device).hidden.insert(base, (hidden, len));
                Ok(base)
            }
            Err(error) => {
                self.narrow(device).holes.give(base, len);
                Err(error)
            }
        }
    }

    fn give_narrow(&mut self, driver: &Driver, device: Ordinal, base: u64) {
        let Some((hidden, len)) = self.narrow(device).hidden.remove(&base) else {
            return;
        };
        self.narrow(device).holes.give(base, len);
        self.give_back(driver, device, Kind::Memory, hidden, len);
    }

    fn allocate_narrow(
        &mut self,
        driver: &Driver,
        context: ContextId,
        size: u64,
    ) -> Result<u64, CUresult> {
        if size == 0 {
            return Err(CUresult::ERROR_INVALID_VALUE);
        }
        let device = self.context(context).device;
        let profile = driver.profile(device);
        let (block, unit) = (profile.block.0, profile.suballocation.0);
        let whole = size >= block;
        let taken = size.next_multiple_of(if whole { block } else { unit });
        let address = if whole {
            self.take_narrow(driver, device, taken)?
        } else {
            match self.narrow(device).small.allocate(taken) {
                Some(address) => address,
                None => {
                    let base = self.take_narrow(driver, device, block)?;
                    let small = &mut self.narrow(device).small;
                    small.begin(base, block, taken)
                }
            }
        };
        self.enter(address, size, taken, context, Owner::Narrow);
        Ok(address)
    }

    /// Ends a 32-bit allocation.
    pub fn end_narrow(&mut self, driver: &Driver, address: u64, allocation: &Allocation) {
        let (device, taken) = (allocation.device, allocation.taken);
        if taken >= driver.profile(device).block.0 {
            return self.give_narrow(driver, device, address);
        }
        let small = &mut self.narrow(device).small;
        if let Some((base, _)) = small.free(address, taken) {
            self.give_narrow(driver, device, base);
        }
    }
}

pub fn alloc(dptr: Out<CUdeviceptr_v1>, size: c_uint) -> Answer {
    let driver = driver::get()?;
    let dptr = zeroed(dptr);
    let context = current()?;
    let dptr = dptr.required()?;
    let address = driver
        .lock()
        .allocate_narrow(driver, context, size.into())?;
    dptr.set(address as CUdeviceptr_v1);
    Ok(())
}

pub fn alloc_pitch(
    dptr: Out<CUdeviceptr_v1>,
    pitch: Out<c_uint>,
    width: c_uint,
    height: c_uint,
    element: c_uint,
) -> Answer {
    let driver = driver::get()?;
    let (dptr, pitch) = (zeroed(dptr), zeroed(pitch));
    let context = current()?;
    let (dptr, pitch) = (dptr.required()?, pitch.required()?);
    let row = memory::pitched(width as usize, height as usize, element)?;
    pitch.set(row as c_uint);
    let size = row as u64 * u64::from(height);
    let address = driver.lock().allocate_narrow(driver, context, size)?;
    dptr.set(address as CUdeviceptr_v1);
    Ok(())
}

/// Without a context it looks for the address, and none is anybody's.
pub fn free(dptr: CUdeviceptr_v1) -> Answer {
    let driver = driver::get()?;
    if let Err(CUresult::ERROR_INVALID_CONTEXT) = driver.lock().current() {
        return Err(CUresult::ERROR_INVALID_VALUE);
    }
    current()?;
    if dptr == 0 {
        return Ok(());
    }
    let address = u64::from(dptr);
    let mut process = driver.lock();
    let found = process.allocations.get(&address).copied();
    let Some(allocation) = found.filter(|found| found.owner == Owner::Narrow) else {
        return Err(CUresult::ERROR_INVALID_VALUE);
    };
    process = stream::wait_for_context(driver, process, allocation.context);
    process.free(driver, address, When::Now).map(|_| ())
}

/// No more is free than there are addresses for.
pub fn get_info(free: Out<c_uint>, total: Out<c_uint>) -> Answer {
    let driver = driver::get()?;
    let (free, total) = (zeroed(free), zeroed(total));
    let context = current()?;
    let mut process = driver.lock();
    let device = process.context(context).device;
    let told = |bytes: u64| c_uint::try_from(bytes).unwrap_or(c_uint::MAX);
    if let Some(free) = free.optional() {
        let room = process.narrow(device).holes.room();
        let left = driver.world.free(driver.index(device)).0;
        free.set(told(room.min(left)));
    }
    if let Some(total) = total.optional() {
        total.set(told(driver.profile(device).cuda_total.0));
    }
    Ok(())
}

pub fn address_range(base: Out<CUdeviceptr_v1>, size: Out<c_uint>, dptr: CUdeviceptr_v1) -> Answer {
    if base.is_null() && size.is_null() {
        return Ok(());
    }
    let driver = driver::get()?;
    let (base, size) = (zeroed(base), zeroed(size));
    current()?;
    let process = driver.lock();
    let found = process.holding(dptr.into(), 1);
    let (start, allocation) = found.ok_or(CUresult::ERROR_NOT_FOUND)?;
    if let Some(base) = base.optional() {
        base.set(start as CUdeviceptr_v1);
    }
    if let Some(size) = size.optional() {
        size.set(allocation.size as c_uint);
    }
    Ok(())
}

pub fn alloc_host(pp: Out<*mut c_void>, size: c_uint) -> Answer {
    driver::get()?;
    if let Some(pp) = pp.slot() {
        pp.set(std::ptr::null_mut());
    }
    current()?;
    host::alloc(pp, size as usize)
}

/// Host memory has no address of 32 bits.
pub fn host_device_pointer(pdptr: Out<CUdeviceptr_v1>, _pointer: Host, _flags: c_uint) -> Answer {
    driver::get()?;
    zeroed(pdptr);
    current()?;
    Err(CUresult::ERROR_INVALID_VALUE)
}

pub fn host_to_device(to: CUdeviceptr_v1, from: Host, len: c_uint) -> Answer {
    current()?;
    copy::host_to_device(to.into(), from, len as usize)
}

pub fn device_to_host(to: Host, from: CUdeviceptr_v1, len: c_uint) -> Answer {
    current()?;
    copy::device_to_host(to, from.into(), len as usize)
}

pub fn device_to_device(to: CUdeviceptr_v1, from: CUdeviceptr_v1, len: c_uint) -> Answer {
    current()?;
    copy::device_to_device(to.into(), from.into(), len as usize)
}

pub fn host_to_device_async(
    to: CUdeviceptr_v1,
    from: Host,
    len: c_uint,
    stream: CUstream,
) -> Answer {
    current()?;
    copy::host_to_device_async(to.into(), from, len as usize, stream)
}

pub fn device_to_host_async(
    to: Host,
    from: CUdeviceptr_v1,
    len: c_uint,
    stream: CUstream,
) -> Answer {
    current()?;
    copy::device_to_host_async(to, from.into(), len as usize, stream)
}

pub fn device_to_device_async(
    to: CUdeviceptr_v1,
    from: CUdeviceptr_v1,
    len: c_uint,
    stream: CUstream,
) -> Answer {
    current()?;
    copy::device_to_device_async(to.into(), from.into(), len as usize, stream)
}

macro_rules! fills {
    ($($unit:ty: $set:ident $rows:ident;)*) => { $(
        pub fn $set(to: CUdeviceptr_v1, value: $unit, count: c_uint) -> Answer {
            current()?;
            fill::$set(to.into(), value, count as usize)
        }

        pub fn $rows(
            to: CUdeviceptr_v1,
            pitch: c_uint,
            value: $unit,
            width: c_uint,
            height: c_uint,
        ) -> Answer {
            current()?;
            fill::$rows(to.into(), pitch as usize, value, width as usize, height as usize)
        }
    )* };
}
fills! {
    u8: set_8 set_rows_8;
    u16: set_16 set_rows_16;
    u32: set_32 set_rows_32;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted() {
        assert!(WIDE.is_sorted());
    }
}
