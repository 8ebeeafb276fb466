//! A client of libcuda by dlopen and dlsym. Pointers are integers, contexts and streams are handles nobody looks into.

use std::ffi::CString;
use std::ptr::{null_mut, with_exposed_provenance_mut};

use abi::cuda::{
    CUDA_ARRAY_DESCRIPTOR, CUcontext, CUdevice, CUdeviceptr, CUevent, CUmemAllocationProp,
    CUmemLocation, CUmemPoolProps, CUmemoryPool, CUresult, CUstream, fns,
};

use super::library::{Absent, Address, Library, Visibility};

macro_rules! table {
    ($($name:ident)*) => {
        #[allow(non_snake_case, reason = "C names stay exact")]
        struct Table { $($name: Option<fns::$name>,)* }

        impl Table {
            fn of(library: Library) -> Self {
                // SAFETY: each name is paired with its own type from the one table of signatures.
                unsafe { Self { $($name: library.function(stringify!($name)),)* } }
            }
        }
    };
}

table! {
    cuInit cuDriverGetVersion cuGetProcAddress cuGetProcAddress_v2
    cuDeviceGet cuDeviceGetCount cuDeviceTotalMem_v2 cuDeviceGetPCIBusId cuDeviceGetDefaultMemPool
    cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2
    cuCtxCreate cuCtxCreate_v2 cuCtxDestroy_v2 cuCtxSetCurrent cuCtxSynchronize cuCtxSetLimit
    cuMemGetInfo_v2 cuMemAlloc cuMemAlloc_v2 cuMemFree_v2
    cuMemAllocAsync cuMemAllocAsync_ptsz cuMemFreeAsync cuMemFreeAsync_ptsz
    cuMemAllocPitch_v2 cuMemAllocManaged cuMemAllocHost_v2 cuMemFreeHost
    cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz cuMemPoolCreate cuMemPoolDestroy
    cuMemCreate cuMemRelease cuArrayCreate_v2
    cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuStreamSynchronize
    cuCtxCreate_v3 cuCtxCreate_v4 cuCtxDestroy cuCtxSynchronize_v2 cuDevicePrimaryCtxRelease cuDevicePrimaryCtxReset
    cuEventCreate cuEventRecord cuEventSynchronize cuStreamSynchronize_ptsz cuMemPoolSetAttribute cuMemPoolTrimTo
}

/// What a call of a function that the driver lacks comes to: no driver answers it.
pub const MISSING: CUresult = CUresult(u32::MAX);

macro_rules! call {
    ($client:ident.$name:ident($($argument:expr),*)) => {
        match $client.table.$name {
            // SAFETY: the signature is the table's; pointers are to locals that outlive the call, or odd on purpose:
            // the oracle records that the driver refuses those without touching them.
            Some(function) => unsafe { function($($argument),*) },
            None => MISSING,
        }
    };
}

/// What an out-parameter holds before a call, so that a case sees whether it was written.
pub const UNTOUCHED: u64 = 0xdead_beef_dead_beef;

/// Which stream a call without one means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// The unsuffixed entry points: the legacy default stream.
    Legacy,
    /// The `_ptsz` entry points: the thread's own.
    PerThread,
}

/// By which call a client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Context,
    /// cuCtxSynchronize_v2.
    NamedContext,
    Stream,
    /// cuStreamSynchronize_ptsz.
    ThreadsStream,
    /// An event recorded on the default stream.
    Event,
}

/// An answer and what the out-parameter holds then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<T> {
    pub code: CUresult,
    pub out: T,
}

impl<T> Answer<T> {
    pub fn granted(self) -> Result<T, CUresult> {
        match self.code {
            CUresult::SUCCESS => Ok(self.out),
            refused => Err(refused),
        }
    }
}

/// libcuda as the process finds it. Used from any thread.
pub struct Cuda {
    pub library: Library,
    table: Table,
}

/// A context handle that may go to other threads, as CUDA allows.
#[derive(Clone, Copy)]
pub struct Context(CUcontext);

impl Context {
    pub const NONE: Context = Context(CUcontext::NULL);
}

// SAFETY: CUDA's contexts may be made current in any thread; nothing here dereferences the handle.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// A memory pool.
#[derive(Clone, Copy)]
pub struct Pool(CUmemoryPool);

/// What cuGetProcAddress answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcAddress {
    pub code: CUresult,
    pub address: Option<Address>,
    /// `None`: the older call has no status, or it was not written.
    pub status: Option<i32>,
}

impl Cuda {
    pub fn open() -> Result<Self, Absent> {
        Self::open_as("libcuda.so.1", Visibility::Local)
    }

    pub fn open_as(name: &str, visibility: Visibility) -> Result<Self, Absent> {
        let library = Library::open(name, visibility)?;
        Ok(Self {
            library,
            table: Table::of(library),
        })
    }

    pub fn init(&self) -> CUresult {
        call!(self.cuInit(0))
    }

    pub fn driver_version(&self) -> Answer<i32> {
        let mut out = 0;
        let code = call!(self.cuDriverGetVersion(&mut out));
        Answer { code, out }
    }

    pub fn device_count(&self) -> Answer<i32> {
        let mut out = -1;
        let code = call!(self.cuDeviceGetCount(&mut out));
        Answer { code, out }
    }

    pub fn device(&self, ordinal: i32) -> Answer<CUdevice> {
        let mut out = -1;
        let code = call!(self.cuDeviceGet(&mut out, ordinal));
        Answer { code, out }
    }

    pub fn total_memory(&self, device: CUdevice) -> Answer<u64> {
        let mut out = UNTOUCHED as usize;
        let code = call!(self.cuDeviceTotalMem_v2(&mut out, device));
        Answer {
            code,
            out: out as u64,
        }
    }

    pub fn total_memory_into_nothing(&self, device: CUdevice) -> CUresult {
        call!(self.cuDeviceTotalMem_v2(null_mut(), device))
    }

    /// `0000:01:00.0`.
    pub fn pci_bus_id(&self, device: CUdevice) -> Answer<String> {
        let mut text = [0; 32];
        let code = call!(self.cuDeviceGetPCIBusId(text.as_mut_ptr(), 32, device));
        let bytes = text.iter().map(|&byte| byte as u8);
        let bytes: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
        Answer {
            code,
            out: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    pub fn retain_primary(&self, device: CUdevice) -> Answer<Context> {
        let mut out = CUcontext::NULL;
        let code = call!(self.cuDevicePrimaryCtxRetain(&mut out, device));
        Answer {
            code,
            out: Context(out),
        }
    }

    pub fn release_primary(&self, device: CUdevice) -> CUresult {
        call!(self.cuDevicePrimaryCtxRelease_v2(device))
    }

    pub fn reset_primary(&self, device: CUdevice) -> CUresult {
        call!(self.cuDevicePrimaryCtxReset_v2(device))
    }

    pub fn create_context(&self, device: CUdevice) -> Answer<Context> {
        let mut out = CUcontext::NULL;
        let code = call!(self.cuCtxCreate_v2(&mut out, 0, device));
        Answer {
            code,
            out: Context(out),
        }
    }

    /// The unsuffixed call: the one whose contexts the unsuffixed allocation takes.
    pub fn create_context_v1(&self, device: CUdevice) -> Answer<Context> {
        let mut out = CUcontext::NULL;
        let code = call!(self.cuCtxCreate(&mut out, 0, device));
        Answer {
            code,
            out: Context(out),
        }
    }

    pub fn create_context_v3(&self, device: CUdevice) -> Answer<Context> {
        let mut out = CUcontext::NULL;
        let code = call!(self.cuCtxCreate_v3(&mut out, null_mut(), 0, 0, device));
        Answer {
            code,
            out: Context(out),
        }
    }

    pub fn create_context_v4(&self, device: CUdevice) -> Answer<Context> {
        let mut out = CUcontext::NULL;
        let code = call!(self.cuCtxCreate_v4(&mut out, null_mut(), 0, device));
        Answer {
            code,
            out: Context(out),
        }
    }

    /// The unsuffixed call.
    pub fn destroy_context_v1(&self, context: Context) -> CUresult {
        call!(self.cuCtxDestroy(context.0))
    }

    /// Synchronises by each call that waits for the default streams, one after the other.
    pub fn synchronize_by(&self, way: Wait, context: Context) -> CUresult {
        match way {
            Wait::Context => call!(self.cuCtxSynchronize()),
            Wait::NamedContext => call!(self.cuCtxSynchronize_v2(context.0)),
            Wait::Stream => call!(self.cuStreamSynchronize(CUstream::NULL)),
            Wait::ThreadsStream => call!(self.cuStreamSynchronize_ptsz(CUstream::NULL)),
            Wait::Event => {
                let mut event = CUevent::NULL;
                let created = call!(self.cuEventCreate(&mut event, 0));
                let recorded = call!(self.cuEventRecord(event, CUstream::NULL));
                let waited = call!(self.cuEventSynchronize(event));
                let answers = [created, recorded, waited];
                let failed = answers
                    .into_iter()
                    .find(|&answer| answer != CUresult::SUCCESS);
                failed.unwrap_or(CUresult::SUCCESS)
            }
        }
    }

    /// Lets a pool keep that much when its memory is freed.
    pub fn keep_in_pool(&self, pool: Pool, mut bytes: u64) -> CUresult {
        let threshold = abi::cuda::pool_attribute::RELEASE_THRESHOLD;
        call!(self.cuMemPoolSetAttribute(pool.0, threshold, (&raw mut bytes).cast()))
    }

    pub fn trim_pool(&self, pool: Pool, keep: u64) -> CUresult {
        call!(self.cuMemPoolTrimTo(pool.0, keep as usize))
    }

    pub fn release_primary_v1(&self, device: CUdevice) -> CUresult {
        call!(self.cuDevicePrimaryCtxRelease(device))
    }

    pub fn reset_primary_v1(&self, device: CUdevice) -> CUresult {
        call!(self.cuDevicePrimaryCtxReset(device))
    }

    pub fn destroy_context(&self, context: Context) -> CUresult {
        call!(self.cuCtxDestroy_v2(context.0))
    }

    pub fn set_current(&self, context: Context) -> CUresult {
        call!(self.cuCtxSetCurrent(context.0))
    }

    pub fn synchronize(&self) -> CUresult {
        call!(self.cuCtxSynchronize())
    }

    pub fn set_limit(&self, limit: i32, value: u64) -> CUresult {
        call!(self.cuCtxSetLimit(limit, value as usize))
    }

    /// (free, total).
    pub fn memory_info(&self) -> Answer<(u64, u64)> {
        let (mut free, mut total) = (UNTOUCHED as usize, UNTOUCHED as usize);
        let code = call!(self.cuMemGetInfo_v2(&mut free, &mut total));
        Answer {
            code,
            out: (free as u64, total as u64),
        }
    }

    /// (free, NULL): what `free` holds then.
    pub fn memory_info_free(&self) -> Answer<u64> {
        let mut free = UNTOUCHED as usize;
        let code = call!(self.cuMemGetInfo_v2(&mut free, null_mut()));
        Answer {
            code,
            out: free as u64,
        }
    }

    /// (NULL, total): what `total` holds then.
    pub fn memory_info_total(&self) -> Answer<u64> {
        let mut total = UNTOUCHED as usize;
        let code = call!(self.cuMemGetInfo_v2(null_mut(), &mut total));
        Answer {
            code,
            out: total as u64,
        }
    }

    pub fn memory_info_into_nothing(&self) -> CUresult {
        call!(self.cuMemGetInfo_v2(null_mut(), null_mut()))
    }

    pub fn allocate(&self, bytes: u64) -> Answer<CUdeviceptr> {
        let mut out = UNTOUCHED;
        let code = call!(self.cuMemAlloc_v2(&mut out, bytes as usize));
        Answer { code, out }
    }

    /// cuMemAlloc_v2 by an address that some look-up gave.
    ///
    /// The look-up must have asked for an entry point of that signature.
    pub fn allocate_by(&self, address: Address, bytes: u64) -> Answer<CUdeviceptr> {
        let mut out = UNTOUCHED;
        // SAFETY: cases hand in addresses that were looked up under the name cuMemAlloc_v2, or that base name at 3.2 on.
        let function: fns::cuMemAlloc_v2 = unsafe { address.as_function() };
        // SAFETY: the out-parameter is a local.
        let code = unsafe { function(&mut out, bytes as usize) };
        Answer { code, out }
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

    pub fn allocate_into_nothing(&self, bytes: u64) -> CUresult {
        call!(self.cuMemAlloc_v2(null_mut(), bytes as usize))
    }

    pub fn free(&self, pointer: CUdeviceptr) -> CUresult {
        call!(self.cuMemFree_v2(pointer))
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

    pub fn allocate_pitch(&self, width: u64, height: u64) -> Answer<CUdeviceptr> {
        let (mut out, mut pitch) = (UNTOUCHED, 0);
        let (width, height) = (width as usize, height as usize);
        let code = call!(self.cuMemAllocPitch_v2(&mut out, &mut pitch, width, height, 4));
        Answer { code, out }
    }

    /// Attached to all streams (CU_MEM_ATTACH_GLOBAL).
    pub fn allocate_managed(&self, bytes: u64) -> Answer<CUdeviceptr> {
        let mut out = UNTOUCHED;
        let code = call!(self.cuMemAllocManaged(&mut out, bytes as usize, 1));
        Answer { code, out }
    }

    /// The unsuffixed call of 32-bit days.
    pub fn allocate_v1(&self, bytes: u32) -> Answer<u32> {
        let mut out = 0;
        let code = call!(self.cuMemAlloc(&mut out, bytes));
        Answer { code, out }
    }

    /// Page-locked host memory.
    pub fn allocate_host(&self, bytes: u64) -> Answer<u64> {
        let mut out = null_mut();
        let code = call!(self.cuMemAllocHost_v2(&mut out, bytes as usize));
        Answer {
            code,
            out: out.expose_provenance() as u64,
        }
    }

    pub fn free_host(&self, pointer: u64) -> CUresult {
        call!(self.cuMemFreeHost(with_exposed_provenance_mut(pointer as usize)))
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
        let props = CUmemPoolProps {
            allocType: 1,
            handleTypes: 0,
            location: CUmemLocation {
                type_: 1,
                id: device,
            },
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

    /// cuMemCreate: physical memory without an address.
    pub fn create_memory(&self, device: CUdevice, bytes: u64) -> Answer<u64> {
        let prop = CUmemAllocationProp {
            type_: 1,
            requestedHandleTypes: 0,
            location: CUmemLocation {
                type_: 1,
                id: device,
            },
            win32HandleMetaData: null_mut(),
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        };
        let mut out = UNTOUCHED;
        let code = call!(self.cuMemCreate(&mut out, bytes as usize, &prop, 0));
        Answer { code, out }
    }

    pub fn release_memory(&self, handle: u64) -> CUresult {
        call!(self.cuMemRelease(handle))
    }

    /// A two-dimensional array of 32-bit words. Leaves it to the process's end.
    pub fn create_array(&self, width: u64, height: u64) -> CUresult {
        let descriptor = CUDA_ARRAY_DESCRIPTOR {
            Width: width as usize,
            Height: height as usize,
            Format: 3,
            NumChannels: 1,
        };
        let mut array = abi::cuda::CUarray::NULL;
        call!(self.cuArrayCreate_v2(&mut array, &descriptor))
    }

    pub fn write(&self, pointer: CUdeviceptr, bytes: &[u8]) -> CUresult {
        call!(self.cuMemcpyHtoD_v2(pointer, bytes.as_ptr().cast(), bytes.len()))
    }

    pub fn read(&self, pointer: CUdeviceptr, bytes: &mut [u8]) -> CUresult {
        call!(self.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), pointer, bytes.len()))
    }

    pub fn synchronize_stream(&self) -> CUresult {
        call!(self.cuStreamSynchronize(CUstream::NULL))
    }

    /// The older cuGetProcAddress, without a status.
    pub fn proc_address_v1(&self, name: &str, version: i32, flags: u64) -> ProcAddress {
        let (name, mut pointer) = (c_name(name), untouched_pointer());
        let code = call!(self.cuGetProcAddress(name.as_ptr(), &mut pointer, version, flags));
        ProcAddress {
            code,
            address: written(pointer),
            status: None,
        }
    }

    pub fn proc_address(&self, name: &str, version: i32, flags: u64) -> ProcAddress {
        let (name, mut pointer, mut status) = (c_name(name), untouched_pointer(), -1);
        let code = call!(self.cuGetProcAddress_v2(
            name.as_ptr(),
            &mut pointer,
            version,
            flags,
            &mut status
        ));
        ProcAddress {
            code,
            address: written(pointer),
            status: (status != -1).then_some(status),
        }
    }

    /// cuGetProcAddress_v2 with a NULL status.
    pub fn proc_address_without_status(&self, name: &str, version: i32, flags: u64) -> ProcAddress {
        let (name, mut pointer) = (c_name(name), untouched_pointer());
        let none = null_mut();
        let code =
            call!(self.cuGetProcAddress_v2(name.as_ptr(), &mut pointer, version, flags, none));
        ProcAddress {
            code,
            address: written(pointer),
            status: None,
        }
    }
}

/// One entry point called with nothing but zeros.
macro_rules! zeros {
    (($client:ident) $name:ident($($argument:ident: $kind:ty),*) -> $answer:ty) => {
        call!($client.$name($({
            // Within `call!`'s own unsafe: of integers, pointers and handles all zeros are a value.
            let $argument: $kind = std::mem::zeroed();
            $argument
        }),*))
    };
}

macro_rules! called_with_zeros {
    ($($name:ident)*) => {
        impl Cuda {
            /// The entry point's answer to arguments that are all zero.
            pub fn with_zeros(&self, name: &str) -> CUresult {
                use abi::cuda::*;
                match name {
                    $(stringify!($name) => abi::cuda_signature!($name => zeros!(self)),)*
                    _ => MISSING,
                }
            }
        }
    };
}

called_with_zeros! {
    cuMemAlloc_v2 cuMemFree_v2 cuMemAllocAsync cuMemFreeAsync cuMemFreeAsync_ptsz cuMemGetInfo_v2 cuDeviceTotalMem_v2
    cuMemPoolTrimTo cuMemPoolSetAttribute cuCtxSynchronize cuCtxSynchronize_v2 cuStreamSynchronize
    cuStreamSynchronize_ptsz cuEventSynchronize cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease
    cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2 cuCtxCreate cuCtxCreate_v2
    cuCtxCreate_v3 cuCtxCreate_v4 cuCtxDestroy cuCtxDestroy_v2
}

fn c_name(name: &str) -> CString {
    CString::new(name).unwrap_or_default()
}

fn untouched_pointer() -> *mut std::ffi::c_void {
    with_exposed_provenance_mut(UNTOUCHED as usize)
}

/// `None` for NULL as for a pointer that nobody wrote.
fn written(pointer: *mut std::ffi::c_void) -> Option<Address> {
    Address::from_raw(pointer).filter(|_| pointer.addr() as u64 != UNTOUCHED)
}
