//! Page-locked host memory: allocated, or the client's own and registered. Of each device with a context of the process it takes the page tables that map it,
//! in no row of NVML's; and so does what cuMemCreate gives of the host's, of each device that may access it where it is mapped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use abi::cuda::*;
use mock_device::{Bytes, Kind};

use crate::boundary::{Answer, Host, HostPages, Out, is_mapped};
use crate::driver::{self, Driver, Ordinal};
use crate::memory::zeroed;
use crate::process::{ContextId, Process};

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;

pub struct HostAllocation {
    /// `None` for the client's own pages.
    pages: Option<HostPages>,
    pub size: u64,
    pub flags: u32,
    pub context: ContextId,
    pub id: u64,
    /// Whose page tables map it; none once its context has ended.
    devices: BTreeSet<usize>,
}

impl HostAllocation {
    pub fn is_registered(&self) -> bool {
        self.pages.is_none()
    }
}

/// PORTABLE, DEVICEMAP, WRITECOMBINED.
const KNOWN_FLAGS: u32 = 7;
/// PORTABLE, DEVICEMAP, READ_ONLY; IOMEMORY is refused for memory that is none.
const REGISTER_FLAGS: u32 = 0xb;
const PORTABLE: u32 = 1;
/// With unified addressing every page-locked range is mapped.
const DEVICE_MAP: u32 = 2;
const PAGE: u64 = 4096;
/// A page table of 4 KiB maps so much.
const MAPPED_BY_TABLE: u64 = 2 << 20;

/// A page directory of 4 KiB, of pages of 2 MiB, maps so much (H200, 580.159.04: 16 MiB for 4,096 mappings of device memory that lie 512 MiB apart).
const MAPPED_BY_DIRECTORY: u64 = 512 << 20;

/// What is mapped by what.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pages {
    /// The host's, by tables.
    Small,
    /// The device's own, by directories.
    Large,
}

/// The page tables and directories of one device, by the addresses that each maps, with how many ranges lie there.
#[derive(Default)]
pub struct PageTables(BTreeMap<(Pages, u64), u32>);

impl PageTables {
    fn of(pages: Pages, base: u64, size: u64) -> impl Iterator<Item = (Pages, u64)> {
        let each = match pages {
            Pages::Small => MAPPED_BY_TABLE,
            Pages::Large => MAPPED_BY_DIRECTORY,
        };
        (base / each..=(base + size - 1) / each).map(move |table| (pages, table))
    }

    fn enter(&mut self, pages: Pages, base: u64, size: u64) {
        for table in PageTables::of(pages, base, size) {
            *self.0.entry(table).or_default() += 1;
        }
    }

    fn end(&mut self, pages: Pages, base: u64, size: u64) {
        for table in PageTables::of(pages, base, size) {
            if let Some(ranges) = self.0.get_mut(&table) {
                *ranges -= 1;
                if *ranges == 0 {
                    self.0.remove(&table);
                }
            }
        }
    }

    /// Device memory that they take, in blocks, the first of which the context has already (H200, 580.159.04: nothing for 512 MiB, 2 MiB for
    /// 1 and 1.5 GiB, 16 for 8, be they allocated or registered, at once or MiB by MiB).
    fn bytes(&self) -> u64 {
        const EACH: u64 = 4 << 10;
        const BLOCK: u64 = 2 << 20;
        self.0.len() as u64 * EACH / BLOCK * BLOCK
    }
}

impl Process {
    /// Whether one page-locked allocation holds all of a range.
    pub fn host_holding(&self, address: u64, len: u64) -> bool {
        self.host_at(address).is_some_and(|(base, allocation)| {
            address
                .checked_add(len)
                .is_some_and(|end| end <= base + allocation.size)
        })
    }

    pub fn host_at(&self, address: u64) -> Option<(u64, &HostAllocation)> {
        let (&base, allocation) = self.host.range(..=address).next_back()?;
        (address < base + allocation.size).then_some((base, allocation))
    }

    fn enter_host(
        &mut self,
        driver: &Driver,
        base: u64,
        pages: Option<HostPages>,
        size: u64,
        flags: u32,
    ) -> Answer {
        let context = self.current()?;
        let id = self.next_buffer();
        let allocation = HostAllocation {
            pages,
            size,
            flags,
            context,
            id,
            devices: BTreeSet::new(),
        };
        self.host.insert(base, allocation);
        let devices: Vec<Ordinal> = (0..self.page_tables.len())
            .map(Ordinal)
            .filter(|device| self.has_context_on(*device))
            .collect();
        for device in devices {
            if let Err(full) = self.map_host(driver, base, device) {
                self.end_host(driver, base);
                return Err(full);
            }
        }
        Ok(())
    }

    fn map_host(&mut self, driver: &Driver, base: u64, device: Ordinal) -> Answer {
        let size = self.host[&base].size;
        self.enter_tables(driver, device, (Pages::Small, base, size))?;
        if let Some(allocation) = self.host.get_mut(&base) {
            allocation.devices.insert(device.0);
        }
        Ok(())
    }

    /// A device's first context of the process begins: all that is page-locked is mapped there too (two H200, 580.159.04).
    pub fn map_host_on(&mut self, driver: &Driver, device: Ordinal) -> Answer {
        let mapped = |(base, allocation): (&u64, &HostAllocation)| {
            (!allocation.devices.is_empty()).then_some(*base)
        };
        let bases: Vec<u64> = self.host.iter().filter_map(mapped).collect();
        for base in bases {
            if let Err(full) = self.map_host(driver, base, device) {
                self.unmap_host_on(driver, device);
                return Err(full);
            }
        }
        Ok(())
    }

    /// Its last has ended.
    pub fn unmap_host_on(&mut self, driver: &Driver, device: Ordinal) {
        let mut ranges = Vec::new();
        for (base, allocation) in &mut self.host {
            if allocation.devices.remove(&device.0) {
                ranges.push((Pages::Small, *base, allocation.size));
            }
        }
        for range in ranges {
            self.end_tables(driver, device, range);
        }
    }

    /// A device's page tables map a range.
    pub fn enter_tables(
        &mut self,
        driver: &Driver,
        device: Ordinal,
        (pages, base, size): (Pages, u64, u64),
    ) -> Answer {
        let tables = &mut self.page_tables[device.0];
        let before = tables.bytes();
        tables.enter(pages, base, size);
        let more = tables.bytes() - before;
        if let Err(full) = self.charge(driver, device, Kind::Unlisted, more) {
            self.page_tables[device.0].end(pages, base, size);
            return Err(full);
        }
        Ok(())
    }

    /// They map it no longer.
    pub fn end_tables(
        &mut self,
        driver: &Driver,
        device: Ordinal,
        (pages, base, size): (Pages, u64, u64),
    ) {
        let tables = &mut self.page_tables[device.0];
        let before = tables.bytes();
        tables.end(pages, base, size);
        let less = before - tables.bytes();
        let index = driver.index(device);
        driver.world.give_back(index, Kind::Unlisted, Bytes(less));
    }

    /// A context is gone, and what maps its page-locked memory.
    pub fn unmap_host_of(&mut self, driver: &Driver, context: ContextId) {
        let own = |(base, allocation): (&u64, &HostAllocation)| {
            (allocation.context == context).then_some(*base)
        };
        let bases: Vec<u64> = self.host.iter().filter_map(own).collect();
        for base in bases {
            self.unmap_host(driver, base);
        }
    }

    fn end_host(&mut self, driver: &Driver, base: u64) {
        self.unmap_host(driver, base);
        self.host.remove(&base);
    }

    fn unmap_host(&mut self, driver: &Driver, base: u64) {
        if let Some(allocation) = self.host.get_mut(&base) {
            let (devices, size) = (std::mem::take(&mut allocation.devices), allocation.size);
            for device in devices {
                self.end_tables(driver, Ordinal(device), (Pages::Small, base, size));
            }
        }
    }
}

/// Bytes of memory that this machine has; where it does not say, more than any machine.
fn machine_memory() -> u64 {
    static BYTES: OnceLock<u64> = OnceLock::new();
    *BYTES.get_or_init(|| {
        let told = std::fs::read_to_string("/proc/meminfo").ok();
        told.as_deref().and_then(total_of).unwrap_or(1 << 44)
    })
}

/// `MemTotal:       16384 kB`
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

pub fn alloc(pp: Out<*mut c_void>, size: usize) -> Answer {
    alloc_with_flags(pp, size, 0)
}

/// Nothing is NULL and a success; a failure writes NULL.
pub fn alloc_with_flags(pp: Out<*mut c_void>, size: usize, flags: c_uint) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    if let Some(pp) = pp.slot() {
        pp.set(std::ptr::null_mut());
    }
    process.current()?;
    let pp = pp.required()?;
    if flags & !KNOWN_FLAGS != 0 {
        return Err(INVALID);
    }
    if size == 0 {
        return Ok(());
    }
    // The driver pins what it gives, so that all of it must fit into the machine's memory.
    let pinned: u64 = process
        .host
        .values()
        .filter(|allocation| !allocation.is_registered())
        .map(|allocation| allocation.size)
        .sum();
    let pages = Some(size)
        .filter(|size| pinned.saturating_add(*size as u64) <= machine_memory())
        .and_then(HostPages::map)
        .ok_or(CUresult::ERROR_OUT_OF_MEMORY)?;
    let base = pages.base();
    process.enter_host(driver, base, Some(pages), size as u64, flags | DEVICE_MAP)?;
    pp.set(base as *mut c_void);
    Ok(())
}

pub fn free(pointer: Host) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    if pointer.0 == 0 {
        return Ok(());
    }
    match process.host.get(&pointer.0) {
        Some(allocation) if !allocation.is_registered() => {
            process.end_host(driver, pointer.0);
            Ok(())
        }
        _ => Err(INVALID),
    }
}

/// The first version looks at no flags but these.
pub fn register_v1(pointer: Host, size: usize, flags: c_uint) -> Answer {
    register(pointer, size, flags & (PORTABLE | DEVICE_MAP))
}

/// The pages of a range become page-locked; no page may be so already through a range that it overlaps.
pub fn register(pointer: Host, size: usize, flags: c_uint) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.current()?;
    let (start, size) = (pointer.0, size as u64);
    let Some(end) = start.checked_add(size) else {
        return Err(INVALID);
    };
    if start == 0 || size == 0 || flags & !REGISTER_FLAGS != 0 {
        return Err(INVALID);
    }
    if process.device_at(start).is_some() {
        return Err(INVALID);
    }
    let mut overlapping = process.host.range(..end);
    if let Some((base, allocation)) = overlapping.next_back()
        && base + allocation.size > start
    {
        return Err(if allocation.is_registered() {
            CUresult::ERROR_HOST_MEMORY_ALREADY_REGISTERED
        } else {
            INVALID
        });
    }
    if !is_mapped(start / PAGE * PAGE, size + start % PAGE) {
        return Err(INVALID);
    }
    process.enter_host(driver, start, None, size, flags & PORTABLE | DEVICE_MAP)
}

pub fn unregister(pointer: Host) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    match process.host.get(&pointer.0) {
        Some(allocation) if allocation.is_registered() => {
            process.end_host(driver, pointer.0);
            Ok(())
        }
        Some(_) => Err(INVALID),
        None if pointer.0 == 0 || process.host_at(pointer.0).is_some() => Err(INVALID),
        None => Err(CUresult::ERROR_HOST_MEMORY_NOT_REGISTERED),
    }
}

/// Unified addressing: the device sees page-locked memory at its host address. A failure writes 0.
pub fn device_pointer(pdptr: Out<CUdeviceptr>, pointer: Host, flags: c_uint) -> Answer {
    let process = driver::get()?.lock();
    let pdptr = zeroed(pdptr);
    process.current()?;
    let pdptr = pdptr.required()?;
    if flags != 0 || process.host_at(pointer.0).is_none() {
        pdptr.set(0);
        return Err(INVALID);
    }
    pdptr.set(pointer.0);
    Ok(())
}

pub fn flags(flags: Out<c_uint>, pointer: Host) -> Answer {
    let flags = flags.required()?;
    let process = driver::get()?.lock();
    process.current()?;
    let (_, allocation) = process.host_at(pointer.0).ok_or(INVALID)?;
    flags.set(allocation.flags);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_memory_is_what_the_kernel_says() {
        let told = "MemFree: 12 kB\nMemTotal:       16384 kB\nMemTotal: 1 kB\n";
        let none = "MemTotal: many";
        assert_eq!((total_of(told), total_of(none)), (Some(16 << 20), None));
    }
}
