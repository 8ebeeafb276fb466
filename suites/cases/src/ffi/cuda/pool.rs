//! Stream-ordered memory and its pools.

use std::ptr::null_mut;

use abi::cuda::{
    CUdevice, CUdeviceptr, CUmemLocation, CUmemPoolProps, CUmemoryPool, CUresult, CUstream, fns,
};

use super::ipc::POSIX_DESCRIPTOR;
use super::{Address, Answer, Cuda, MISSING, OwnStream, Pool, Stream, UNTOUCHED};

/// CU_MEM_ALLOCATION_TYPE_MANAGED.
const MANAGED: i32 = 2;

fn on(device: CUdevice) -> CUmemLocation {
    CUmemLocation {
        type_: 1,
        id: device,
    }
}

impl Cuda {
    /// Lets a pool keep that much when its memory is freed.
    pub fn keep_in_pool(&self, pool: Pool, mut bytes: u64) -> CUresult {
        let threshold = abi::cuda::pool_attribute::RELEASE_THRESHOLD;
        call!(self.cuMemPoolSetAttribute(pool.0, threshold, (&raw mut bytes).cast()))
    }

    pub fn trim_pool(&self, pool: Pool, keep: u64) -> CUresult {
        call!(self.cuMemPoolTrimTo(pool.0, keep as usize))
    }

    /// cuMemAllocAsync by an address that some look-up gave.
    pub fn allocate_async_by(&self, address: Address, bytes: u64) -> Answer<CUdeviceptr> {
        let mut out = UNTOUCHED;
        // SAFETY: cases hand in addresses that were looked up under the name cuMemAllocAsync, with or without _ptsz.
        let function: fns::cuMemAllocAsync = unsafe { address.as_function() };
        // SAFETY: the out-parameter is a local, the stream is the default one.
        let code = unsafe { function(&mut out, bytes as usize, CUstream::NULL) };
        Answer { code, out }
    }

    pub fn allocate_async(&self, stream: Stream, bytes: u64) -> Answer<CUdeviceptr> {
        let mut out = UNTOUCHED;
        let bytes = bytes as usize;
        let code = match stream {
            Stream::Legacy => call!(self.cuMemAllocAsync(&mut out, bytes, CUstream::NULL)),
            Stream::PerThread => call!(self.cuMemAllocAsync_ptsz(&mut out, bytes, CUstream::NULL)),
        };
        Answer { code, out }
    }

    pub fn allocate_async_into_nothing(&self, stream: Stream, bytes: u64) -> CUresult {
        let bytes = bytes as usize;
        match stream {
            Stream::Legacy => call!(self.cuMemAllocAsync(null_mut(), bytes, CUstream::NULL)),
            Stream::PerThread => {
                call!(self.cuMemAllocAsync_ptsz(null_mut(), bytes, CUstream::NULL))
            }
        }
    }

    pub fn free_async(&self, stream: Stream, pointer: CUdeviceptr) -> CUresult {
        match stream {
            Stream::Legacy => call!(self.cuMemFreeAsync(pointer, CUstream::NULL)),
            Stream::PerThread => call!(self.cuMemFreeAsync_ptsz(pointer, CUstream::NULL)),
        }
    }

    /// On a stream that was created.
    pub fn allocate_in(&self, stream: OwnStream, bytes: u64) -> Answer<CUdeviceptr> {
        let mut out = UNTOUCHED;
        let code = call!(self.cuMemAllocAsync(&mut out, bytes as usize, stream.0));
        Answer { code, out }
    }

    pub fn free_in(&self, stream: OwnStream, pointer: CUdeviceptr) -> CUresult {
        call!(self.cuMemFreeAsync(pointer, stream.0))
    }

    pub fn default_pool(&self, device: CUdevice) -> Answer<Pool> {
        let mut out = CUmemoryPool::NULL;
        let code = call!(self.cuDeviceGetDefaultMemPool(&mut out, device));
        Answer {
            code,
            out: Pool(out),
        }
    }

    pub fn create_pool(&self, device: CUdevice) -> Answer<Pool> {
        self.create_pool_of(1, device, 0)
    }

    pub fn create_managed_pool(&self, device: CUdevice) -> Answer<Pool> {
        self.create_pool_of(MANAGED, device, 0)
    }

    /// One that other processes may have as a descriptor.
    pub fn create_shared_pool(&self, device: CUdevice) -> Answer<Pool> {
        self.create_pool_of(1, device, POSIX_DESCRIPTOR)
    }

    /// One of pinned memory at any location: its type and its number.
    pub fn create_pool_at(&self, location: (i32, i32)) -> Answer<Pool> {
        self.create_pool_with(1, location, 0)
    }

    fn create_pool_of(&self, kind: i32, device: CUdevice, handles: i32) -> Answer<Pool> {
        self.create_pool_with(kind, (1, device), handles)
    }

    fn create_pool_with(&self, kind: i32, (type_, id): (i32, i32), handles: i32) -> Answer<Pool> {
        let props = CUmemPoolProps {
            allocType: kind as _,
            handleTypes: handles as _,
            location: CUmemLocation { type_, id },
            win32SecurityAttributes: null_mut(),
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        };
        let mut out = CUmemoryPool::NULL;
        let code = call!(self.cuMemPoolCreate(&mut out, &props));
        Answer {
            code,
            out: Pool(out),
        }
    }

    pub fn destroy_pool(&self, pool: Pool) -> CUresult {
        call!(self.cuMemPoolDestroy(pool.0))
    }

    /// Makes it the pool that plain requests on the device come from.
    pub fn set_pool(&self, device: CUdevice, pool: Pool) -> CUresult {
        call!(self.cuDeviceSetMemPool(device, pool.0))
    }

    /// The same by a location, which only drivers of CUDA 13 can: [`MISSING`] by older ones.
    pub fn set_pool_at(&self, device: CUdevice, pool: Pool) -> CUresult {
        self.set_pool_of((1, device), pool)
    }

    /// Makes it the current one of pinned memory at a location.
    pub fn set_pool_of(&self, (type_, id): (i32, i32), pool: Pool) -> CUresult {
        const PINNED: i32 = 1;
        let mut location = CUmemLocation { type_, id };
        call!(self.cuMemSetMemPool(&mut location, PINNED as _, pool.0))
    }

    /// The default pool of pinned memory at a location.
    pub fn default_pool_of(&self, (type_, id): (i32, i32)) -> Answer<Pool> {
        let (mut out, mut location) = (CUmemoryPool::NULL, CUmemLocation { type_, id });
        let code = call!(self.cuMemGetDefaultMemPool(&mut out, &mut location, 1));
        Answer {
            code,
            out: Pool(out),
        }
    }

    /// The current one.
    pub fn current_pool_of(&self, (type_, id): (i32, i32)) -> Answer<Pool> {
        let (mut out, mut location) = (CUmemoryPool::NULL, CUmemLocation { type_, id });
        let code = call!(self.cuMemGetMemPool(&mut out, &mut location, 1));
        Answer {
            code,
            out: Pool(out),
        }
    }

    /// A device's default pool of managed memory, which drivers of CUDA 13 have.
    pub fn managed_pool(&self, device: CUdevice) -> Answer<Pool> {
        let (mut out, mut location) = (CUmemoryPool::NULL, on(device));
        let code = call!(self.cuMemGetDefaultMemPool(&mut out, &mut location, MANAGED as _));
        Answer {
            code,
            out: Pool(out),
        }
    }

    /// Its current one.
    pub fn current_managed_pool(&self, device: CUdevice) -> Answer<Pool> {
        let (mut out, mut location) = (CUmemoryPool::NULL, on(device));
        let code = call!(self.cuMemGetMemPool(&mut out, &mut location, MANAGED as _));
        Answer {
            code,
            out: Pool(out),
        }
    }

    pub fn allocate_from_pool_in(
        &self,
        stream: OwnStream,
        pool: Pool,
        bytes: u64,
    ) -> Answer<CUdeviceptr> {
        let mut out = UNTOUCHED;
        let code = call!(self.cuMemAllocFromPoolAsync(&mut out, bytes as usize, pool.0, stream.0));
        Answer { code, out }
    }

    pub fn allocate_from_pool(
        &self,
        stream: Stream,
        pool: Pool,
        bytes: u64,
    ) -> Answer<CUdeviceptr> {
        let mut out = UNTOUCHED;
        let (bytes, none) = (bytes as usize, CUstream::NULL);
        let code = match stream {
            Stream::Legacy => call!(self.cuMemAllocFromPoolAsync(&mut out, bytes, pool.0, none)),
            Stream::PerThread => {
                call!(self.cuMemAllocFromPoolAsync_ptsz(&mut out, bytes, pool.0, none))
            }
        };
        Answer { code, out }
    }
}
