//! A client of libcuda by dlopen and dlsym. Pointers are integers, contexts and streams are handles nobody looks into.

use std::ptr::null_mut;

use abi::cuda::{CUarray, CUcontext, CUdevice, CUmemoryPool, CUmipmappedArray, CUresult, fns};

use super::library::{Absent, Address, Library, Visibility};

macro_rules! table {
    ($($name:ident)*) => {
        #[allow(non_snake_case, reason = "C names stay exact")]
        struct Table { $($name: Option<fns::$name>,)* }

        impl Table {
            fn of(find: impl Fn(&'static str) -> Option<Address>) -> Self {
                // SAFETY: each name is paired with its own type from the one table of signatures.
                unsafe { Self { $($name: find(stringify!($name)).map(|found| found.as_function()),)* } }
            }
        }
    };
}

table! {
    cuMemGetDefaultMemPool cuMemGetMemPool cuIpcGetMemHandle cuIpcOpenMemHandle cuIpcOpenMemHandle_v2 cuIpcCloseMemHandle
    cuMemGetHandleForAddressRange
    cuInit cuDriverGetVersion cuGetProcAddress cuGetProcAddress_v2
    cuDeviceGet cuDeviceGetCount cuDeviceGetAttribute cuDeviceTotalMem_v2 cuDeviceGetDefaultMemPool
    cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2
    cuCtxCreate cuCtxCreate_v2 cuCtxDestroy_v2 cuCtxSetCurrent cuCtxSynchronize cuCtxSetLimit
    cuMemGetInfo_v2 cuMemAlloc cuMemAlloc_v2 cuMemFree_v2
    cuMemAllocAsync cuMemAllocAsync_ptsz cuMemFreeAsync cuMemFreeAsync_ptsz
    cuMemAllocPitch_v2 cuMemAllocManaged cuMemAllocHost cuMemAllocHost_v2 cuMemHostAlloc cuMemFreeHost
    cuMemHostRegister cuMemHostRegister_v2 cuMemHostUnregister
    cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz cuMemPoolCreate cuMemPoolDestroy cuMemPoolExportToShareableHandle
    cuMemPoolImportFromShareableHandle cuMemPoolExportPointer cuMemPoolImportPointer cuDeviceSetMemPool cuMemSetMemPool
    cuGraphCreate cuGraphAddMemAllocNode cuGraphAddNode cuGraphAddNode_v2 cuGraphAddNode_v3 cuGraphNodeSetParams cuGraphNodeSetParams_v2 cuStreamBeginRecaptureToGraph cuStreamBeginRecaptureToGraph_ptsz cuGraphAddMemFreeNode cuGraphAddChildGraphNode cuGraphClone
    cuGraphDestroy cuGraphExecDestroy cuDeviceGraphMemTrim cuGraphExecUpdate cuGraphExecUpdate_v2
    cuStreamCreate cuStreamBeginCapture cuStreamBeginCapture_ptsz cuStreamBeginCapture_v2 cuStreamBeginCapture_v2_ptsz
    cuStreamBeginCaptureToGraph cuStreamBeginCaptureToGraph_ptsz cuStreamEndCapture
    cuGraphInstantiate cuGraphInstantiate_v2 cuGraphInstantiateWithFlags cuGraphInstantiateWithParams
    cuGraphInstantiateWithParams_ptsz cuGraphUpload cuGraphUpload_ptsz cuGraphLaunch cuGraphLaunch_ptsz
    cuMemGetAllocationPropertiesFromHandle cuArrayGetDescriptor_v2 cuTexObjectCreate cuTexObjectDestroy cuSurfObjectCreate
    cuGraphExecKernelNodeSetParams cuGraphExecKernelNodeSetParams_v2 cuGraphExecNodeSetParams cuGraphExecChildGraphNodeSetParams cuGraphConditionalHandleCreate
    cuMemCreate cuArrayCreate_v2 cuArray3DCreate_v2 cuArrayCreate cuArray3DCreate cuArrayDestroy
    cuMipmappedArrayCreate cuMipmappedArrayDestroy cuMemAllocPitch cuMemFree cuMemGetInfo cuDeviceTotalMem
    cuMemRelease cuMemRetainAllocationHandle cuMemExportToShareableHandle cuMemImportFromShareableHandle cuMemAddressReserve cuMemAddressFree cuMemMap cuMemUnmap cuMemSetAccess cuMemGetAccess
    cuMemMapArrayAsync cuMemMapArrayAsync_ptsz
    cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload cuModuleGetFunction
    cuModuleEnumerateFunctions cuLinkCreate_v2 cuLinkAddData_v2 cuLinkComplete cuLinkDestroy
    cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload cuLibraryGetGlobal cuLibraryGetManaged cuModuleGetGlobal_v2 cuLibraryGetKernel cuLibraryEnumerateKernels cuKernelGetFunction
    cuLaunchKernel cuStreamCreateWithPriority cuStreamDestroy cuStreamDestroy_v2 cuStreamWaitValue32_v2 cuStreamWriteValue32_v2
    cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuMemsetD8_v2 cuStreamSynchronize cuLaunchHostFunc
    cuCtxAttach cuCtxDetach cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxStreamCreate cuCtxFromGreenCtx cuGraphAddMemsetNode
    cuCtxCreate_v3 cuCtxCreate_v4 cuCtxDestroy cuCtxSynchronize_v2 cuDevicePrimaryCtxRelease cuDevicePrimaryCtxReset
    cuEventCreate cuEventRecord cuEventSynchronize cuStreamSynchronize_ptsz cuMemPoolSetAttribute cuMemPoolTrimTo
    cuLaunchKernel_ptsz cuLaunchKernelEx cuLaunchKernelEx_ptsz cuLaunchCooperativeKernel
    cuLaunchCooperativeKernel_ptsz cuLaunchCooperativeKernelMultiDevice cuLaunch cuLaunchGrid cuLaunchGridAsync
    cuFuncSetBlockShape cuEventElapsedTime cuGraphGetNodes cuCtxPopCurrent_v2 cuCtxPushCurrent_v2
    cuImportExternalMemory cuDestroyExternalMemory cuExternalMemoryGetMappedBuffer cuExternalMemoryGetMappedMipmappedArray
    cuMemsetD16 cuMemsetD16Async cuMemsetD16Async_ptsz cuMemsetD16_v2 cuMemsetD16_v2_ptds cuMemsetD2D16 cuMemsetD2D16Async
    cuMemsetD2D16Async_ptsz cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds cuMemsetD2D32 cuMemsetD2D32Async
    cuMemsetD2D32Async_ptsz cuMemsetD2D32_v2 cuMemsetD2D32_v2_ptds cuMemsetD2D8 cuMemsetD2D8Async cuMemsetD2D8Async_ptsz
    cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds cuMemsetD32 cuMemsetD32Async cuMemsetD32Async_ptsz cuMemsetD32_v2
    cuMemsetD32_v2_ptds cuMemsetD8 cuMemsetD8Async cuMemsetD8Async_ptsz cuMemsetD8_v2_ptds
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

mod array;
mod cancel;
pub use cancel::Cancelled;
mod changed;
mod context;
mod external;
mod graph;
mod green;
mod ipc;
pub mod launch;
mod lookup;
mod memory;
pub mod memset;
mod module;
pub mod odd;
mod own_stream;
mod physical;
mod pool;
mod routes;
mod stream;

pub use external::External;
pub use graph::{Add, Begin, Exchange, Exec, Graph, Instantiate, Node, Ordered, Run};
pub use green::Green;
pub use ipc::{IpcHandle, Open, PoolPointer};
pub use lookup::Way;
pub use memory::HostWay;
pub use module::{Function, Image, Kernel, Library as LoadedLibrary, Module};
pub use own_stream::{OWN_STREAM, Places};
pub use physical::Purpose;
pub use stream::OwnStream;

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

/// An array.
#[derive(Clone, Copy, Debug)]
pub struct Array(CUarray);

/// A mipmapped array.
#[derive(Clone, Copy, Debug)]
pub struct Mipmap(CUmipmappedArray);

/// A memory pool.
#[derive(Clone, Copy)]
pub struct Pool(CUmemoryPool);

// SAFETY: a handle, which a driver takes from any thread.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    pub const NONE: Pool = Pool(CUmemoryPool::NULL);
}

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
        Ok(Self::of(Library::open(name, visibility)?))
    }

    /// A libcuda that was opened in another way.
    pub fn of(library: Library) -> Self {
        Self {
            library,
            table: Table::of(|name| library.address(name)),
        }
    }

    /// The functions as another look-up finds them.
    pub fn found_by(way: Way) -> Result<Self, Absent> {
        let opened = Self::open_as("libcuda.so.1", Visibility::Global)?;
        let library = opened.library;
        Ok(Self {
            library,
            table: Table::of(|name| opened.look_up(way, name)),
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
}
