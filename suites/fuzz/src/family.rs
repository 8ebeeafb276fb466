//! Families of entry points: the hooks of a noun, and what stands beside them so that they have something to work on.

use crate::ffi::calls::{Call, DLSYM, cuda, nvml};
use crate::ffi::vulkan::{self, Command};

/// Which client a family's calls are made by.
#[derive(Clone, Copy)]
pub enum Calls {
    /// libcuda's, NVML's and the loader's.
    Plain(&'static [Call]),
    /// Commands of Vulkan.
    Commands(&'static [Command]),
    /// Everything that libcuda's signature table has, by threads of all kinds or by one alone.
    All { threads: bool },
}

/// Entry points that are called in turns.
pub struct Family {
    pub name: &'static str,
    pub calls: Calls,
    /// Whether a compute budget is set: its launches then wait, so that a call costs much more.
    pub paced: bool,
    /// The simulated machine.
    pub machine: &'static str,
}

impl Family {
    pub fn named(name: &str) -> Option<&'static Family> {
        all().find(|family| family.name == name)
    }

    /// The entry points, in order.
    pub fn names(&self) -> Vec<&'static str> {
        match self.calls {
            Calls::Plain(calls) => calls.iter().map(|call| call.name).collect(),
            Calls::Commands(commands) => commands
                .iter()
                .flat_map(|command| command.names)
                .copied()
                .collect(),
            Calls::All { .. } => abi::cuda::NAMES.to_vec(),
        }
    }
}

macro_rules! families {
    ($($family:ident $(($paced:ident))? { $($name:ident)* })*) => {
        /// All of libcuda's.
        const CUDA: &[Family] = &[$(Family {
            name: stringify!($family),
            calls: Calls::Plain(&[$(abi::cuda_signature!($name => cuda!())),*]),
            paced: families!(@ $($paced)?),
            machine: TWO_GPUS,
        }),*];
    };
    (@ paced) => { true };
    (@) => { false };
}

families! {
    memory {
        cuMemAlloc_v2 cuMemAlloc cuMemAllocPitch_v2 cuMemAllocPitch cuMemAllocManaged cuMemFree_v2 cuMemFree
        cuDeviceTotalMem_v2 cuDeviceTotalMem cuMemGetInfo_v2 cuMemGetInfo
    }
    pinned {
        cuMemAllocHost_v2 cuMemAllocHost cuMemHostAlloc cuMemFreeHost cuMemHostRegister_v2 cuMemHostRegister cuMemHostUnregister
        cuMemAlloc_v2 cuMemFree_v2
    }
    arrays {
        cuArrayCreate_v2 cuArrayCreate cuArray3DCreate_v2 cuArray3DCreate cuMipmappedArrayCreate cuArrayDestroy cuMipmappedArrayDestroy
    }
    physical {
        cuMemCreate cuMemRelease cuMemRetainAllocationHandle cuMemMap cuMemUnmap cuMemExportToShareableHandle
        cuMemImportFromShareableHandle cuMemMapArrayAsync cuMemMapArrayAsync_ptsz
        cuMemAddressReserve cuMemAddressFree cuMemSetAccess cuArray3DCreate_v2 cuArrayDestroy
    }
    sharing {
        cuIpcGetMemHandle cuIpcOpenMemHandle cuIpcOpenMemHandle_v2 cuIpcCloseMemHandle cuMemAlloc_v2 cuMemFree_v2
        cuMemCreate cuMemRelease cuMemExportToShareableHandle cuMemImportFromShareableHandle
        cuMemPoolCreate cuMemPoolDestroy cuMemPoolExportToShareableHandle cuMemPoolImportFromShareableHandle cuMemPoolExportPointer
        cuMemPoolImportPointer cuMemAllocFromPoolAsync cuMemFreeAsync cuMemPoolTrimTo cuCtxSynchronize
        cuImportExternalMemory cuExternalMemoryGetMappedBuffer cuExternalMemoryGetMappedMipmappedArray cuDestroyExternalMemory cuMipmappedArrayDestroy
    }
    contexts {
        cuInit cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset
        cuDevicePrimaryCtxReset_v2 cuCtxAttach cuCtxDetach cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxStreamCreate cuCtxCreate cuCtxCreate_v2 cuCtxCreate_v3 cuCtxCreate_v4 cuCtxDestroy cuCtxDestroy_v2 cuCtxSetLimit
        cuCtxSetCurrent cuCtxPushCurrent_v2 cuCtxPopCurrent_v2 cuMemAlloc_v2 cuMemFree_v2 cuStreamCreate cuMemAllocAsync cuMemGetInfo_v2
    }
    streams {
        cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy cuStreamDestroy_v2 cuCtxSynchronize cuCtxSynchronize_v2
        cuStreamSynchronize cuStreamSynchronize_ptsz cuEventSynchronize cuEventCreate cuEventRecord cuEventDestroy_v2
        cuMemAllocAsync cuMemFreeAsync
    }
    pools {
        cuMemAllocAsync cuMemAllocAsync_ptsz cuMemFreeAsync cuMemFreeAsync_ptsz cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz
        cuMemPoolCreate cuMemPoolDestroy cuDeviceSetMemPool cuMemSetMemPool cuMemGetDefaultMemPool cuMemGetMemPool cuMemPoolTrimTo
        cuMemPoolSetAttribute cuStreamSynchronize cuStreamCreate cuMemFree_v2
    }
    graphs {
        cuGraphAddMemAllocNode cuGraphAddNode cuGraphAddNode_v2 cuGraphAddNode_v3 cuGraphNodeSetParams cuGraphNodeSetParams_v2 cuStreamBeginRecaptureToGraph
        cuStreamBeginRecaptureToGraph_ptsz cuStreamBeginCapture cuStreamBeginCapture_ptsz cuStreamBeginCapture_v2
        cuStreamBeginCapture_v2_ptsz cuStreamBeginCaptureToGraph cuStreamBeginCaptureToGraph_ptsz cuGraphInstantiate cuGraphInstantiate_v2
        cuGraphInstantiateWithFlags cuGraphInstantiateWithParams cuGraphInstantiateWithParams_ptsz cuGraphExecUpdate cuGraphExecUpdate_v2
        cuGraphUpload cuGraphUpload_ptsz cuGraphLaunch cuGraphLaunch_ptsz cuGraphExecDestroy cuDeviceGraphMemTrim
        cuGraphCreate cuGraphDestroy cuGraphAddMemFreeNode cuGraphClone cuStreamEndCapture cuStreamCreate cuMemAllocAsync cuMemFreeAsync
        cuCtxSynchronize cuMemFree_v2 cuGraphDestroyNode
    }
    modules {
        cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload cuLibraryLoadData cuLibraryLoadFromFile
        cuLibraryUnload cuModuleGetFunction cuModuleEnumerateFunctions cuLibraryGetKernel cuLibraryEnumerateKernels cuKernelGetFunction
        cuCtxSetLimit
    }
    launches (paced) {
        cuLaunchKernel cuLaunchKernel_ptsz cuLaunchKernelEx cuLaunchKernelEx_ptsz cuLaunchCooperativeKernel cuLaunchCooperativeKernel_ptsz
        cuLaunchCooperativeKernelMultiDevice cuLaunch cuLaunchGrid cuLaunchGridAsync
        cuModuleLoadData cuModuleGetFunction cuFuncSetBlockShape cuStreamCreate cuCtxSynchronize
    }
    memsets (paced) {
        cuMemsetD8_v2 cuMemsetD8_v2_ptds cuMemsetD8 cuMemsetD8Async cuMemsetD8Async_ptsz cuMemsetD16_v2 cuMemsetD16_v2_ptds
        cuMemsetD16 cuMemsetD16Async cuMemsetD16Async_ptsz cuMemsetD32_v2 cuMemsetD32_v2_ptds cuMemsetD32 cuMemsetD32Async
        cuMemsetD32Async_ptsz cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds cuMemsetD2D8 cuMemsetD2D8Async cuMemsetD2D8Async_ptsz
        cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds cuMemsetD2D16 cuMemsetD2D16Async cuMemsetD2D16Async_ptsz cuMemsetD2D32_v2
        cuMemsetD2D32_v2_ptds cuMemsetD2D32 cuMemsetD2D32Async cuMemsetD2D32Async_ptsz
        cuMemAlloc_v2 cuMemAlloc cuMemFree_v2 cuStreamCreate cuStreamBeginCapture_v2 cuStreamEndCapture
        cuCtxSynchronize
    }
}

/// What has calls of its own kind.
const OTHERS: &[Family] = &[
    Family {
        name: "look-ups",
        calls: Calls::Plain(&[
            abi::cuda_signature!(cuGetProcAddress => cuda!()),
            abi::cuda_signature!(cuGetProcAddress_v2 => cuda!()),
            DLSYM,
        ]),
        paced: false,
        machine: TWO_GPUS,
    },
    Family {
        name: "nvml",
        calls: Calls::Plain(&[
            abi::nvml_signature!(nvmlDeviceGetMemoryInfo => nvml!()),
            abi::nvml_signature!(nvmlDeviceGetMemoryInfo_v2 => nvml!()),
            abi::cuda_signature!(cuMemAlloc_v2 => cuda!()),
            abi::cuda_signature!(cuMemFree_v2 => cuda!()),
        ]),
        paced: false,
        machine: TWO_GPUS,
    },
    Family {
        name: "vulkan-memory",
        calls: Calls::Commands(vulkan::MEMORY),
        paced: false,
        machine: TWO_GPUS,
    },
    Family {
        name: "vulkan-objects",
        calls: Calls::Commands(vulkan::OBJECTS),
        paced: false,
        machine: TWO_GPUS,
    },
    Family {
        name: "vulkan-queues",
        calls: Calls::Commands(vulkan::QUEUES),
        paced: true,
        machine: TWO_GPUS,
    },
    Family {
        name: "vulkan-screens",
        calls: Calls::Commands(vulkan::SCREENS),
        paced: false,
        machine: TWO_GPUS,
    },
];

/// Every export of libcuda, by the signature table: they know of no hook. On one GPU and on two; and of a driver that has what CUDA 13.5 has,
/// by one thread: what threads' own streams take, which a floor alone charges, hides nothing else there.
const EXPORTS: &[Family] = &[
    Family {
        name: "exports",
        calls: Calls::All { threads: true },
        paced: false,
        machine: TWO_GPUS,
    },
    Family {
        name: "exports-one-gpu",
        calls: Calls::All { threads: true },
        paced: false,
        machine: "rtx6000-ada",
    },
    Family {
        name: "exports-newest",
        calls: Calls::All { threads: false },
        paced: false,
        machine: "rtx6000-ada+615",
    },
];
const TWO_GPUS: &str = "rtx6000-ada*2";

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Family> {
    CUDA.iter().chain(OTHERS).chain(EXPORTS)
}

/// The libraries' own tables, compiled once more for their names.
#[path = "../../../enforcement/interposer/src/hooks.rs"]
mod hooks;
#[path = "../../../enforcement/layer/src/boundary/rows.rs"]
mod rows;

macro_rules! names {
    (
        cuda { $($cuda:ident => $cuda_when:ident $cuda_body:path;)* }
        nvml { $($nvml:ident => $nvml_when:ident $nvml_body:path;)* }
        $($called:tt)*
    ) => {
        const HOOKS: &[&str] = &[$(stringify!($cuda),)* $(stringify!($nvml),)*];
    };
}
hooks::table!(names);

macro_rules! commands {
    ($($name:ident: $signature:path => $body:path, $scope:ident, $purpose:ident;)*) => {
        const COMMANDS: &[&str] = &[$(stringify!($name),)*];
    };
}
rows::table!(commands);

/// What the enforcer hooks.
pub fn hooks() -> impl Iterator<Item = &'static str> {
    HOOKS.iter().chain(COMMANDS).copied()
}

#[cfg(test)]
#[path = "family_tests.rs"]
mod tests;
