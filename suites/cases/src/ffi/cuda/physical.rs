//! Physical memory: created, mapped, exported, bound to tiles of arrays.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{null_mut, with_exposed_provenance_mut};

use abi::cuda::{
    CUarrayMapInfo, CUdevice, CUdeviceptr, CUmemAccessDesc, CUmemAllocationProp, CUmemLocation,
    CUresult, CUstream,
};

use super::{Answer, Array, Cuda, MISSING, Stream, UNTOUCHED};

/// What physical memory is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Mapping,
    /// Exported as a descriptor.
    Sharing,
    /// Tiles of sparse arrays (CU_MEM_CREATE_USAGE_TILE_POOL).
    Tiles,
}

impl Cuda {
    pub fn create_memory(&self, device: CUdevice, bytes: u64) -> Answer<u64> {
        self.create_memory_for(Purpose::Mapping, device, bytes)
    }

    /// cuMemCreate: physical memory without an address.
    pub fn create_memory_for(&self, purpose: Purpose, device: CUdevice, bytes: u64) -> Answer<u64> {
        self.create_memory_at(purpose, (1, device), bytes)
    }

    /// The same at any location: its type and its number.
    pub fn create_memory_at(
        &self,
        purpose: Purpose,
        (type_, id): (i32, i32),
        bytes: u64,
    ) -> Answer<u64> {
        let prop = CUmemAllocationProp {
            type_: 1,
            requestedHandleTypes: i32::from(purpose == Purpose::Sharing) as _,
            location: CUmemLocation { type_, id },
            win32HandleMetaData: null_mut(),
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: u16::from(purpose == Purpose::Tiles),
            reserved: [0; 4],
        };
        let mut out = UNTOUCHED;
        let code = call!(self.cuMemCreate(&mut out, bytes as usize, &prop, 0));
        Answer { code, out }
    }

    pub fn release_memory(&self, handle: u64) -> CUresult {
        call!(self.cuMemRelease(handle))
    }

    /// The handle of what is mapped at an address.
    pub fn retain_memory(&self, address: CUdeviceptr) -> Answer<u64> {
        let mut out = UNTOUCHED;
        let address = with_exposed_provenance_mut(address as usize);
        let code = call!(self.cuMemRetainAllocationHandle(&mut out, address));
        Answer { code, out }
    }

    pub fn reserve_addresses(&self, bytes: u64) -> Answer<CUdeviceptr> {
        let mut out = UNTOUCHED;
        let code = call!(self.cuMemAddressReserve(&mut out, bytes as usize, 0, 0, 0));
        Answer { code, out }
    }

    pub fn give_addresses_back(&self, address: CUdeviceptr, bytes: u64) -> CUresult {
        call!(self.cuMemAddressFree(address, bytes as usize))
    }

    /// cuMemSetAccess: a device may read and write what is mapped there.
    pub fn open_memory(&self, address: CUdeviceptr, bytes: u64, device: CUdevice) -> CUresult {
        /// CU_MEM_ACCESS_FLAGS_PROT_READWRITE.
        const READ_WRITE: i32 = 3;
        self.set_access(address, bytes, device, READ_WRITE)
    }

    /// The same: it may no longer.
    pub fn close_memory(&self, address: CUdeviceptr, bytes: u64, device: CUdevice) -> CUresult {
        self.set_access(address, bytes, device, 0)
    }

    /// cuMemGetAccess: whether a device may use what is mapped there.
    pub fn is_memory_open(&self, address: CUdeviceptr, device: CUdevice) -> bool {
        let location = CUmemLocation {
            type_: 1,
            id: device,
        };
        let mut flags = 0;
        call!(self.cuMemGetAccess(&mut flags, &location, address)) == CUresult::SUCCESS
            && flags != 0
    }

    /// The same, of a device that the call names twice: it may not, and it may.
    pub fn reopen_memory(&self, address: CUdeviceptr, bytes: u64, device: CUdevice) -> CUresult {
        self.set_access_twice(address, bytes, device, [0, 3])
    }

    /// The other way about.
    pub fn open_and_close_memory(
        &self,
        address: CUdeviceptr,
        bytes: u64,
        device: CUdevice,
    ) -> CUresult {
        self.set_access_twice(address, bytes, device, [3, 0])
    }

    fn set_access_twice(
        &self,
        address: CUdeviceptr,
        bytes: u64,
        device: CUdevice,
        flags: [i32; 2],
    ) -> CUresult {
        let right = |flags: i32| CUmemAccessDesc {
            location: CUmemLocation {
                type_: 1,
                id: device,
            },
            flags: flags as _,
        };
        let rights = flags.map(right);
        call!(self.cuMemSetAccess(address, bytes as usize, rights.as_ptr(), rights.len()))
    }

    fn set_access(
        &self,
        address: CUdeviceptr,
        bytes: u64,
        device: CUdevice,
        flags: i32,
    ) -> CUresult {
        let access = CUmemAccessDesc {
            location: CUmemLocation {
                type_: 1,
                id: device,
            },
            flags: flags as _,
        };
        call!(self.cuMemSetAccess(address, bytes as usize, &access, 1))
    }

    pub fn map_memory(&self, address: CUdeviceptr, bytes: u64, handle: u64) -> CUresult {
        call!(self.cuMemMap(address, bytes as usize, 0, handle, 0))
    }

    pub fn unmap_memory(&self, address: CUdeviceptr, bytes: u64) -> CUresult {
        call!(self.cuMemUnmap(address, bytes as usize))
    }

    /// A dma-buf of device memory, whoever made that.
    pub fn export_range(&self, address: CUdeviceptr, bytes: u64) -> Result<OwnedFd, CUresult> {
        const DMA_BUF_FD: i32 = 1;
        let mut out = -1_i32;
        let place = (&raw mut out).cast();
        let bytes = bytes as usize;
        match call!(self.cuMemGetHandleForAddressRange(place, address, bytes, DMA_BUF_FD as _, 0)) {
            // SAFETY: the driver made it for the caller.
            CUresult::SUCCESS => Ok(unsafe { OwnedFd::from_raw_fd(out) }),
            refused => Err(refused),
        }
    }

    /// A descriptor of the memory.
    pub fn export_memory(&self, handle: u64) -> Result<OwnedFd, CUresult> {
        const POSIX_FILE_DESCRIPTOR: i32 = 1;
        let mut out = -1_i32;
        let place = (&raw mut out).cast();
        match call!(self.cuMemExportToShareableHandle(place, handle, POSIX_FILE_DESCRIPTOR as _, 0))
        {
            // SAFETY: the driver made it for the caller.
            CUresult::SUCCESS => Ok(unsafe { OwnedFd::from_raw_fd(out) }),
            refused => Err(refused),
        }
    }

    /// The memory behind a descriptor, which stays the caller's.
    pub fn import_memory(&self, descriptor: &OwnedFd) -> Answer<u64> {
        const POSIX_FILE_DESCRIPTOR: i32 = 1;
        let mut out = UNTOUCHED;
        let fd = with_exposed_provenance_mut(descriptor.as_raw_fd() as usize);
        let code =
            call!(self.cuMemImportFromShareableHandle(&mut out, fd, POSIX_FILE_DESCRIPTOR as _));
        Answer { code, out }
    }

    /// Binds the first tile of a sparse array of 32-bit words to the memory's beginning.
    pub fn bind_tile(&self, array: Array, handle: u64, stream: Stream) -> CUresult {
        let mut info = tile(array, handle);
        match stream {
            Stream::Legacy => call!(self.cuMemMapArrayAsync(&mut info, 1, CUstream::NULL)),
            Stream::PerThread => call!(self.cuMemMapArrayAsync_ptsz(&mut info, 1, CUstream::NULL)),
        }
    }

    /// The same, and in the same call something that no driver does.
    pub fn bind_tile_and_more(&self, array: Array, handle: u64) -> CUresult {
        /// Neither to map nor to unmap.
        const NO_OPERATION: i32 = 77;
        let mut more = tile(array, handle);
        more.memOperationType = NO_OPERATION;
        let mut infos = [tile(array, handle), more];
        call!(self.cuMemMapArrayAsync(infos.as_mut_ptr(), 2, CUstream::NULL))
    }
}

/// The first tile of a sparse array of 32-bit words, and what it is to be bound to.
fn tile(array: Array, handle: u64) -> CUarrayMapInfo {
    let mut words = [0_u32; size_of::<CUarrayMapInfo>() / 4];
    let mut pair = |at: usize, value: u64| {
        words[at] = value as u32;
        words[at + 1] = (value >> 32) as u32;
    };
    // The array, its level 0, 128 by 128 by 1 texels from 0, mapped (1) to the handle, on device 0.
    pair(2, array.0.0 as u64);
    pair(16, handle);
    for (at, value) in [(11, 128), (12, 128), (13, 1), (14, 1), (20, 1)] {
        words[at] = value;
    }
    // SAFETY: of the same size, and any words are a value of it.
    unsafe { std::mem::transmute_copy(&words) }
}
