//! What a pointer is: address ranges and attributes.

use abi::cuda::enumerations::*;
use abi::cuda::*;
use mock_device::Kind;

use crate::boundary::{Answer, FromC, In, Out};
use crate::context;
use crate::driver::{self, Driver};
use crate::memory::zeroed;
use crate::pool;
use crate::process::{Allocation, ContextId, Owner, Process};

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;

/// CUpointer_attribute.
mod name {
    pub const CONTEXT: i32 = 1;
    pub const MEMORY_TYPE: i32 = 2;
    pub const DEVICE_POINTER: i32 = 3;
    pub const HOST_POINTER: i32 = 4;
    pub const P2P_TOKENS: i32 = 5;
    pub const SYNC_MEMOPS: i32 = 6;
    pub const BUFFER_ID: i32 = 7;
    pub const IS_MANAGED: i32 = 8;
    pub const DEVICE_ORDINAL: i32 = 9;
    pub const IS_IPC_CAPABLE: i32 = 10;
    pub const RANGE_START: i32 = 11;
    pub const RANGE_SIZE: i32 = 12;
    pub const MAPPED: i32 = 13;
    pub const HANDLE_TYPES: i32 = 14;
    pub const IS_RDMA_CAPABLE: i32 = 15;
    pub const ACCESS_FLAGS: i32 = 16;
    pub const POOL: i32 = 17;
    pub const MAPPING_SIZE: i32 = 18;
    pub const MAPPING_BASE: i32 = 19;
    pub const BLOCK_ID: i32 = 20;
    pub const IS_DECOMPRESS_CAPABLE: i32 = 21;
}

const HOST: u32 = 1;
const DEVICE: u32 = 2;
const READ_WRITE: u32 = 3;
/// The token of a process's device addresses (H200, 580.159.04).
const ADDRESS_SPACE: u32 = 0xfe00;

/// All that is known of the memory behind one address.
struct Facts {
    context: Option<ContextId>,
    memory: u32,
    device: c_int,
    managed: bool,
    /// cuMemAlloc's own: it can be named to other processes, and to other devices of the bus.
    plain: bool,
    host_pointer: Option<u64>,
    /// `None` where the device may not touch it yet.
    device_pointer: Option<u64>,
    id: u64,
    range: (u64, u64),
    mapping: (u64, u64),
    handle_types: c_int,
    access: u32,
    pool: CUmemoryPool,
}

impl Process {
    /// What an address of a mapping of its own size lies in: blocks, a pool's step, an object.
    fn mapping_of(
        &self,
        driver: &Driver,
        base: u64,
        allocation: &Allocation,
        at: u64,
    ) -> (u64, u64) {
        let block = driver.profile(allocation.device).block.0;
        match allocation.owner {
            Owner::Shared => (base / block * block, block),
            Owner::Blocks | Owner::Graph | Owner::Module => (base, allocation.taken),
            Owner::Managed => (
                base / block * block,
                allocation.size.next_multiple_of(block),
            ),
            Owner::Pool(id) if !self.pools[id.0 as usize].is_imported() => {
                self.step_around(driver, id, at)
            }
            Owner::Pool(id) => {
                let import = self.pools[id.0 as usize].shares.imported.as_ref();
                let mapping = import.and_then(|import| import.mapping_of(base));
                mapping.unwrap_or((base, allocation.size))
            }
            Owner::Opened | Owner::External(_) | Owner::Narrow => {
                self.sharing.around(at).unwrap_or((base, allocation.size))
            }
        }
    }

    fn facts(&self, driver: &Driver, pointer: u64) -> Option<Facts> {
        if let Some((base, allocation)) = self.holding(pointer, 0) {
            // Of 32-bit addresses it knows nothing.
            if allocation.owner == Owner::Narrow {
                return None;
            }
            let managed = allocation.owner == Owner::Managed;
            let (pool, context, handle_types) = match allocation.owner {
                Owner::Pool(id) => {
                    let found = &self.pools[id.0 as usize];
                    let types = if found.is_imported() {
                        0
                    } else {
                        found.handle_types
                    };
                    (pool::handle_of(id), None, types)
                }
                _ => (CUmemoryPool::NULL, Some(allocation.context), 0),
            };
            return Some(Facts {
                context,
                memory: DEVICE,
                device: allocation.device.0 as c_int,
                managed,
                plain: matches!(allocation.owner, Owner::Shared | Owner::Blocks),
                host_pointer: managed.then_some(pointer),
                // Where work of the current context finds it.
                device_pointer: self
                    .current()
                    .map_or(true, |context| self.reaches(context, pointer))
                    .then_some(pointer),
                id: allocation.id,
                range: (base, allocation.size),
                mapping: self.mapping_of(driver, base, allocation, pointer),
                handle_types,
                access: READ_WRITE,
                pool,
            });
        }
        if let Some(mapped) = self.mapped_at(pointer) {
            let physical = &self.physical[&mapped.physical];
            let (device, _) = physical.location();
            return Some(Facts {
                context: None,
                memory: if device.is_some() { DEVICE } else { HOST },
                device: device.map_or(0, |device| device.0 as c_int),
                managed: false,
                plain: false,
                host_pointer: None,
                device_pointer: (mapped.access != 0).then_some(pointer),
                id: mapped.physical.into(),
                range: mapped.reservation,
                mapping: mapped.mapping,
                handle_types: physical.allowed_handle_types(),
                access: mapped.access as u32,
                pool: CUmemoryPool::NULL,
            });
        }
        let (base, allocation) = self.host_at(pointer)?;
        let mapping = if allocation.is_registered() {
            allocation.size
        } else {
            allocation.size.next_multiple_of(2 << 20)
        };
        Some(Facts {
            context: Some(allocation.context),
            memory: HOST,
            device: self.context(allocation.context).device.0 as c_int,
            managed: false,
            plain: false,
            host_pointer: Some(pointer),
            device_pointer: Some(pointer),
            id: allocation.id,
            range: (base, allocation.size),
            mapping: (base, mapping),
            handle_types: 0,
            access: READ_WRITE,
            pool: CUmemoryPool::NULL,
        })
    }
}

/// A failure writes 0 for both; with nothing to write it succeeds, even before cuInit.
pub fn address_range(base: Out<CUdeviceptr>, size: Out<usize>, dptr: CUdeviceptr) -> Answer {
    if base.is_null() && size.is_null() {
        return Ok(());
    }
    let driver = driver::get()?;
    let process = driver.lock();
    let (base, size) = (zeroed(base), zeroed(size));
    process.current()?;
    let found = process.facts(driver, dptr).map(|facts| {
        let reserved = process.mapped_at(dptr).is_some();
        if reserved { facts.mapping } else { facts.range }
    });
    let (start, len) = found.unwrap_or((0, 0));
    if let Some(base) = base.optional() {
        base.set(start);
    }
    if let Some(size) = size.optional() {
        size.set(len as usize);
    }
    match found {
        Some(_) => Ok(()),
        None => Err(CUresult::ERROR_NOT_FOUND),
    }
}

pub fn attribute(
    data: Out<c_void>,
    attribute: CUpointer_attribute,
    pointer: CUdeviceptr,
) -> Answer {
    let driver = driver::get()?;
    let process = driver.lock();
    if data.is_null() {
        return Err(INVALID);
    }
    let facts = process.facts(driver, pointer).ok_or(INVALID)?;
    let memory_is_device = facts.memory == DEVICE;
    match attribute {
        name::CONTEXT => set(
            data,
            facts.context.map_or(CUcontext::NULL, context::handle_of),
        ),
        name::MEMORY_TYPE => set(data, facts.memory),
        name::DEVICE_POINTER => address(data, facts.device_pointer),
        name::HOST_POINTER => address(data, facts.host_pointer),
        // Twelve bytes: no token, and one for the address space.
        name::P2P_TOKENS if memory_is_device => set(data, [0u32, 0, ADDRESS_SPACE]),
        name::P2P_TOKENS => {
            set(data, [0u32; 3])?;
            Err(INVALID)
        }
        name::SYNC_MEMOPS => set(data, u32::from(memory_is_device)),
        name::BUFFER_ID | name::BLOCK_ID => set(data, facts.id),
        name::IS_MANAGED => set(data, u32::from(facts.managed)),
        name::DEVICE_ORDINAL => set(data, facts.device),
        name::IS_IPC_CAPABLE | name::IS_RDMA_CAPABLE | name::IS_DECOMPRESS_CAPABLE => {
            set(data, u32::from(facts.plain))
        }
        name::RANGE_START => set(data, facts.range.0),
        name::RANGE_SIZE => set(data, facts.range.1),
        name::MAPPED => set(data, 1u32),
        name::HANDLE_TYPES => set(data, facts.handle_types as u64),
        name::ACCESS_FLAGS => set(data, facts.access),
        name::POOL => set(data, facts.pool),
        name::MAPPING_SIZE => set(data, facts.mapping.1),
        name::MAPPING_BASE => set(data, facts.mapping.0),
        _ => Err(INVALID),
    }
}

fn set<T>(data: Out<c_void>, value: T) -> Answer {
    data.cast::<T>().required()?.set(value);
    Ok(())
}

/// An address that there is none of is written as 0, and an error.
fn address(data: Out<c_void>, value: Option<u64>) -> Answer {
    set(data, value.unwrap_or(0))?;
    value.map(|_| ()).ok_or(INVALID)
}

/// Several attributes at once, in order. What a pointer does not have is no error: its type and flags are 0, its device
/// is -2, and what has no such value is not written.
pub fn attributes(
    count: c_uint,
    attributes: Out<CUpointer_attribute>,
    data: Out<*mut c_void>,
    pointer: CUdeviceptr,
) -> Answer {
    const NO_DEVICE: c_int = -2;
    driver::get()?;
    if count == 0 {
        return Err(INVALID);
    }
    let (attributes, data) = (attributes.required()?, data.required()?);
    for at in 0..count as usize {
        let (number, target) = (attributes.nth(at).get(), data.nth(at).get());
        let out = || -> Out<c_void> { FromC::from_c(target) };
        if !(name::CONTEXT..=name::IS_DECOMPRESS_CAPABLE).contains(&number) || target.is_null() {
            return Err(INVALID);
        }
        if attribute(out(), number, pointer).is_ok() {
            continue;
        }
        match number {
            name::DEVICE_ORDINAL => set(out(), NO_DEVICE)?,
            name::CONTEXT | name::DEVICE_POINTER | name::HOST_POINTER | name::POOL => {
                set(out(), 0u64)?;
            }
            name::MEMORY_TYPE | name::SYNC_MEMOPS | name::IS_MANAGED | name::MAPPED => {
                set(out(), 0u32)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Only whether copies of the memory synchronise can be set. Copies here are done when they return.
pub fn set_attribute(
    value: In<c_void>,
    attribute: CUpointer_attribute,
    pointer: CUdeviceptr,
) -> Answer {
    let driver = driver::get()?;
    let process = driver.lock();
    if value.is_null() || attribute != name::SYNC_MEMOPS {
        return Err(INVALID);
    }
    process.facts(driver, pointer).map(|_| ()).ok_or(INVALID)
}

/// A descriptor of device memory for other drivers of the host: of whole pages of the device's, which go on living as long
/// as it is open.
pub fn handle_for_range(
    handle: Out<c_void>,
    pointer: CUdeviceptr,
    size: usize,
    kind: CUmemRangeHandleType,
    flags: c_ulonglong,
) -> Answer {
    const DMA_BUF: CUmemRangeHandleType = 1;
    const PAGE: u64 = 4096;
    let handle = handle.cast::<c_int>().required()?;
    let driver = driver::get()?;
    let mut process = driver.lock();
    process.current()?;
    let size = size as u64;
    let whole = size != 0 && size.is_multiple_of(PAGE) && pointer.is_multiple_of(PAGE);
    if kind != DMA_BUF || pointer == 0 || !whole {
        return Err(INVALID);
    }
    handle.set(-1);
    // Mapping over the bus is no property of the simulated devices.
    if flags != 0 {
        return Err(CUresult::ERROR_NOT_SUPPORTED);
    }
    let found = process.exportable(driver, pointer).ok_or(INVALID)?;
    let Exportable {
        start,
        len,
        device,
        kind,
        room,
    } = found;
    if size > room {
        return Err(INVALID);
    }
    // A step that the pool lends is a part of another object already: no card was asked what it says then.
    if process.is_lent(driver, pointer) {
        return Err(CUresult::ERROR_NOT_SUPPORTED);
    }
    let object = process.share(driver, device, kind, start, len)?;
    let exported = object
        .export()
        .map_err(|_| CUresult::ERROR_OPERATING_SYSTEM)?;
    handle.set(std::os::fd::IntoRawFd::into_raw_fd(exported));
    Ok(())
}

/// Device memory around an address that can become an object.
struct Exportable {
    start: u64,
    len: u64,
    device: driver::Ordinal,
    kind: Kind,
    /// Bytes from the address on.
    room: u64,
}

impl Process {
    fn exportable(&self, driver: &Driver, pointer: u64) -> Option<Exportable> {
        if let Some((base, allocation)) = self.holding(pointer, 0) {
            let kind = match allocation.owner {
                Owner::Shared | Owner::Blocks => Kind::Memory,
                Owner::Pool(id) if !self.pools[id.0 as usize].is_imported() => Kind::Pool,
                _ => return None,
            };
            let (start, len) = self.mapping_of(driver, base, allocation, pointer);
            return Some(Exportable {
                start,
                len,
                device: allocation.device,
                kind,
                room: start + len - pointer,
            });
        }
        let mapped = self.mapped_at(pointer)?;
        let physical = &self.physical[&mapped.physical];
        let (device, base) = physical.location();
        let exportable = Exportable {
            start: base,
            len: physical.size,
            device: device?,
            kind: Kind::Vmm,
            room: mapped.mapping.0 + mapped.mapping.1 - pointer,
        };
        (!physical.is_imported()).then_some(exportable)
    }
}
