//! cuMemCreate: physical memory without an address. It is taken from creation until the last of its handles, mappings and
//! exported descriptors is gone.

use std::collections::HashMap;
use std::os::fd::{BorrowedFd, IntoRawFd};

use abi::cuda::enumerations::*;
use abi::cuda::*;
use mock_device::Kind;

use crate::boundary::{Answer, Host, HostPages, In, Out, crash, descriptor, is_mapped};
use crate::driver::{self, Driver, Ordinal};
use crate::handle;
use crate::process::Process;

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
const POSIX_DESCRIPTOR: c_int = 1;

enum Memory {
    /// Hidden addresses of a device, from here on.
    Device(Ordinal, u64),
    Host(HostPages),
}

pub struct Physical {
    memory: Memory,
    pub size: u64,
    prop: Prop,
    /// Times that a handle was given, less those that one was released.
    handles: u32,
    /// Mappings, as ranges of addresses and as tiles of arrays.
    pub mappings: u32,
    imported: bool,
}

/// The properties that are remembered; Windows' pointer among them is not.
#[derive(Clone, Copy)]
struct Prop {
    handle_types: c_int,
    location: CUmemLocation,
    compression: u8,
    rdma: u8,
    usage: u16,
}

impl Prop {
    fn of(prop: &CUmemAllocationProp) -> Prop {
        Prop {
            handle_types: prop.requestedHandleTypes,
            location: prop.location,
            compression: prop.compressionType,
            rdma: prop.gpuDirectRDMACapable,
            usage: prop.usage,
        }
    }
}

pub type PhysicalMemory = HashMap<u32, Physical>;

impl Physical {
    pub fn location(&self) -> (Option<Ordinal>, u64) {
        match &self.memory {
            Memory::Device(device, base) => (Some(*device), *base),
            Memory::Host(pages) => (None, pages.base()),
        }
    }

    pub fn is_imported(&self) -> bool {
        self.imported
    }

    pub fn is_tile_pool(&self) -> bool {
        self.prop.usage & 1 != 0
    }
}

impl Process {
    /// The memory of a handle that was given and not released.
    pub fn physical_of(&self, handle: CUmemGenericAllocationHandle) -> Result<u32, CUresult> {
        let id = handle::followed(handle::Kind::Physical, handle, INVALID)?;
        match self.physical.get(&id) {
            Some(physical) if physical.handles > 0 => Ok(id),
            _ => Err(INVALID),
        }
    }

    /// Another handle of memory that is mapped.
    pub fn retain_physical(&mut self, id: u32) -> CUmemGenericAllocationHandle {
        if let Some(physical) = self.physical.get_mut(&id) {
            physical.handles += 1;
        }
        handle::encode(handle::Kind::Physical, id)
    }

    /// Ends physical memory that neither a handle nor a mapping holds.
    pub fn settle_physical(&mut self, driver: &Driver, id: u32) {
        let unheld = |physical: &&Physical| physical.handles == 0 && physical.mappings == 0;
        if self.physical.get(&id).filter(unheld).is_none() {
            return;
        }
        let Some(physical) = self.physical.remove(&id) else {
            return;
        };
        if let Memory::Device(device, base) = physical.memory {
            if physical.imported {
                self.abandon(driver, base);
            } else {
                self.give_back(driver, device, Kind::Vmm, base, physical.size);
            }
        }
    }

    fn enter_physical(&mut self, physical: Physical) -> CUmemGenericAllocationHandle {
        let id = self.next_handle();
        self.physical.insert(id, physical);
        handle::encode(handle::Kind::Physical, id)
    }
}

/// Where memory of these properties lies: `None` for the host's.
fn place(driver: &Driver, prop: &mut CUmemAllocationProp) -> Result<Option<Ordinal>, CUresult> {
    const PINNED: c_int = 1;
    const FABRIC: c_int = 8;
    const KNOWN_TYPES: c_int = POSIX_DESCRIPTOR | FABRIC | 16;
    if prop.type_ != PINNED || prop.requestedHandleTypes & !KNOWN_TYPES != 0 {
        return Err(INVALID);
    }
    let place = match prop.location.type_ {
        // The host is a NUMA node to the driver.
        2 | 3 => {
            prop.location.type_ = 3;
            None
        }
        _ => Some(driver.place(prop.location).ok_or(INVALID)??.0),
    };
    if prop.compressionType > 1 {
        return Err(INVALID);
    }
    if prop.requestedHandleTypes & FABRIC != 0 {
        return Err(CUresult::ERROR_NOT_PERMITTED);
    }
    prop.requestedHandleTypes &= POSIX_DESCRIPTOR;
    Ok(place)
}

pub fn create(
    handle: Out<CUmemGenericAllocationHandle>,
    size: usize,
    prop: In<CUmemAllocationProp>,
    flags: c_ulonglong,
) -> Answer {
    let driver = driver::get()?;
    let (handle, mut prop) = (handle.required()?, prop.required()?);
    let device = place(driver, &mut prop)?;
    let granularity = driver
        .profile(device.unwrap_or(Ordinal(0)))
        .vmm_granularity
        .0;
    let size = size as u64;
    if flags != 0 || size == 0 || !size.is_multiple_of(granularity) {
        return Err(INVALID);
    }
    let mut process = driver.lock();
    let memory = match device {
        Some(device) => Memory::Device(device, process.take(driver, device, Kind::Vmm, size)?),
        None => {
            let pages = HostPages::map(size as usize);
            Memory::Host(pages.ok_or(CUresult::ERROR_OUT_OF_MEMORY)?)
        }
    };
    handle.set(process.enter_physical(Physical {
        memory,
        size,
        prop: Prop::of(&prop),
        handles: 1,
        mappings: 0,
        imported: false,
    }));
    Ok(())
}

pub fn release(handle: CUmemGenericAllocationHandle) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let id = process.physical_of(handle)?;
    if let Some(physical) = process.physical.get_mut(&id) {
        physical.handles -= 1;
    }
    process.settle_physical(driver, id);
    Ok(())
}

/// One granularity for all properties: they are not looked at.
pub fn granularity(
    granularity: Out<usize>,
    prop: In<CUmemAllocationProp>,
    option: c_int,
) -> Answer {
    let driver = driver::get()?;
    let (granularity, _) = (granularity.required()?, prop.required()?);
    if !matches!(option, 0 | 1) {
        return Err(INVALID);
    }
    granularity.set(driver.profile(Ordinal(0)).vmm_granularity.0 as usize);
    Ok(())
}

pub fn properties(prop: Out<CUmemAllocationProp>, handle: CUmemGenericAllocationHandle) -> Answer {
    let process = driver::get()?.lock();
    let prop = prop.required()?;
    let id = process.physical_of(handle)?;
    let known = process.physical[&id].prop;
    prop.set(CUmemAllocationProp {
        type_: 1,
        requestedHandleTypes: known.handle_types,
        location: known.location,
        win32HandleMetaData: std::ptr::null_mut(),
        compressionType: known.compression,
        gpuDirectRDMACapable: known.rdma,
        // The driver does not tell it again.
        usage: 0,
        reserved: [0; 4],
    });
    Ok(())
}

/// A descriptor of memory that was made to be exported; what was imported is not passed on.
pub fn export(
    out: Out<c_void>,
    handle: CUmemGenericAllocationHandle,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let out = out.cast::<c_int>().required()?;
    let id = process.physical_of(handle)?;
    let physical = &process.physical[&id];
    let asked = kind == POSIX_DESCRIPTOR && physical.prop.handle_types & kind != 0;
    let (Memory::Device(device, base), size) = (&physical.memory, physical.size) else {
        return Err(INVALID);
    };
    if !asked || flags != 0 || physical.imported {
        return Err(INVALID);
    }
    let (device, base) = (*device, *base);
    let object = process.share(driver, device, Kind::Vmm, base, size)?;
    let exported = object
        .export()
        .map_err(|_| CUresult::ERROR_OPERATING_SYSTEM)?;
    out.set(exported.into_raw_fd());
    Ok(())
}

/// Only descriptors can be imported; a fabric handle is read, at the client's word, before it is refused.
pub fn importable(os_handle: Host, kind: CUmemAllocationHandleType) -> Answer {
    const WINDOWS: std::ops::RangeInclusive<c_int> = 2..=4;
    const FABRIC: c_int = 8;
    const FABRIC_HANDLE: u64 = 64;
    match kind {
        POSIX_DESCRIPTOR => Ok(()),
        FABRIC if !is_mapped(os_handle.0, FABRIC_HANDLE) => crash(),
        FABRIC => Err(CUresult::ERROR_NOT_PERMITTED),
        kind if WINDOWS.contains(&kind) => Err(CUresult::ERROR_NOT_SUPPORTED),
        _ => Err(INVALID),
    }
}

/// The descriptor is the handle itself, in a pointer's clothes; it stays the caller's.
pub fn import(
    out: Out<CUmemGenericAllocationHandle>,
    os_handle: Host,
    kind: CUmemAllocationHandleType,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    let out = out.required()?;
    if os_handle.0 == 0 {
        return Err(INVALID);
    }
    importable(os_handle, kind)?;
    let fd: BorrowedFd<'_> = descriptor(os_handle.0).ok_or(CUresult::ERROR_UNKNOWN)?;
    let object = driver.world.import_object(fd).map_err(|_| INVALID)?;
    // A pool's descriptor.
    if object.is_store() {
        return Err(INVALID);
    }
    let size = object.size().0;
    let (base, device) = process.adopt(driver, object)?;
    let prop = Prop {
        handle_types: 0,
        location: CUmemLocation {
            type_: 1,
            id: device.0 as c_int,
        },
        compression: 0,
        rdma: 0,
        usage: 0,
    };
    out.set(process.enter_physical(Physical {
        memory: Memory::Device(device, base),
        size,
        prop,
        handles: 1,
        mappings: 0,
        imported: true,
    }));
    Ok(())
}

impl Physical {
    /// What a pointer's attribute tells of handle types: of imported memory none.
    pub fn allowed_handle_types(&self) -> c_int {
        if self.imported {
            0
        } else {
            self.prop.handle_types
        }
    }
}
