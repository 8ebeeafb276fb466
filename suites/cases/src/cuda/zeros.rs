//! Arguments that are all zero: each hooked entry point answers them as the card's driver does, before and with a context.
//!
//! A case for each, from what `ringfence probe` wrote on an H200. Left out by that table: what ends the process there.

use abi::cuda::CUresult;
use harness::{Case, Failure, Session, ensure_eq, fail};

use crate::clients::context;
use crate::ffi::cuda::Cuda;

/// Rows `NAME BEFORE READY` of what a card answered.
const PROBED: &str = include_str!("../../../../fixtures/oracle/probe-h200.toml");

/// What an entry point answers to zeros: before cuInit, and with a current primary context. `None` where that ends the process.
fn answers(name: &str) -> Option<[CUresult; 2]> {
    let (_, tables) = PROBED.split_once("[tables]")?;
    let row = tables
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    let mut codes = row.split(' ').map(|code| code.parse().ok().map(CUresult));
    Some([codes.next()??, codes.next()??])
}

fn as_the_driver(name: &str) -> Result<(), Failure> {
    let Some([before, ready]) = answers(name) else {
        fail!("probe-h200.toml has no codes of {name}");
    };
    let cuda = Cuda::open()?;
    ensure_eq!(cuda.with_zeros(name), before, "{name} before cuInit");
    ensure_eq!(cuda.init(), CUresult::SUCCESS, "cuInit");
    context(&cuda, 0)?;
    ensure_eq!(cuda.with_zeros(name), ready, "{name} with a context");
    Ok(())
}

macro_rules! zeros {
    ($($name:ident)*) => {
        /// Each hooked entry point.
        pub const CASES: &[Case] = &[$(
            Case {
                name: concat!(stringify!($name), "_answers_zeros_as_the_driver"),
                module: module_path!(),
                promise: concat!(stringify!($name), " answers arguments that are all zero as the driver does, before and with a context."),
                defects: &["C1", "S6"],
                entry_points: &[stringify!($name)],
                needs: &[stringify!($name)],
                budget: "0=23552MiB",
                body: |_: &mut Session| as_the_driver(stringify!($name)),
                ..Case::BLANK
            },
        )*];
    };
}

zeros! {
    cuArray3DCreate cuArray3DCreate_v2 cuArrayCreate cuArrayCreate_v2 cuArrayDestroy cuCtxCreate cuCtxCreate_v2
    cuCtxAttach cuCtxDetach cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxStreamCreate
    cuCtxCreate_v3 cuCtxCreate_v4 cuCtxDestroy cuCtxDestroy_v2 cuCtxSetLimit cuCtxSynchronize cuCtxSynchronize_v2
    cuDestroyExternalMemory cuExternalMemoryGetMappedBuffer cuExternalMemoryGetMappedMipmappedArray cuImportExternalMemory
    cuDeviceGraphMemTrim cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset
    cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxRetain cuDeviceSetMemPool cuDeviceTotalMem cuDeviceTotalMem_v2
    cuEventSynchronize cuGraphAddMemAllocNode cuGraphAddNode cuGraphAddNode_v2 cuGraphNodeSetParams cuGraphExecDestroy cuGraphExecUpdate
    cuGraphExecUpdate_v2 cuGraphInstantiate cuGraphInstantiateWithFlags cuGraphInstantiateWithParams
    cuGraphInstantiateWithParams_ptsz cuGraphInstantiate_v2 cuGraphLaunch cuGraphLaunch_ptsz cuGraphUpload
    cuGraphUpload_ptsz cuIpcCloseMemHandle cuIpcGetMemHandle cuIpcOpenMemHandle cuIpcOpenMemHandle_v2 cuLaunch
    cuLaunchCooperativeKernel cuLaunchCooperativeKernelMultiDevice cuLaunchCooperativeKernel_ptsz cuLaunchGrid
    cuLaunchGridAsync cuLaunchKernel cuLaunchKernelEx cuLaunchKernelEx_ptsz cuLaunchKernel_ptsz
    cuLibraryEnumerateKernels cuLibraryGetKernel cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload cuMemAlloc
    cuMemAllocAsync cuMemAllocAsync_ptsz cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz cuMemAllocManaged
    cuMemAllocPitch cuMemAllocPitch_v2 cuMemAlloc_v2 cuMemCreate cuMemExportToShareableHandle cuMemFree cuMemFreeAsync
    cuMemFreeAsync_ptsz cuMemFree_v2 cuMemGetDefaultMemPool cuMemGetInfo cuMemGetInfo_v2 cuMemGetMemPool
    cuMemImportFromShareableHandle cuMemMap cuMemMapArrayAsync cuMemMapArrayAsync_ptsz cuMemPoolCreate
    cuMemPoolDestroy cuMemPoolExportPointer cuMemPoolExportToShareableHandle cuMemPoolImportFromShareableHandle
    cuMemPoolImportPointer cuMemPoolSetAttribute cuMemPoolTrimTo cuMemRelease cuMemRetainAllocationHandle cuMemSetMemPool
    cuMemUnmap
    cuMemsetD16 cuMemsetD16Async cuMemsetD16Async_ptsz cuMemsetD16_v2 cuMemsetD16_v2_ptds cuMemsetD2D16 cuMemsetD2D16Async
    cuMemsetD2D16Async_ptsz cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds cuMemsetD2D32 cuMemsetD2D32Async
    cuMemsetD2D32Async_ptsz cuMemsetD2D32_v2 cuMemsetD2D32_v2_ptds cuMemsetD2D8 cuMemsetD2D8Async cuMemsetD2D8Async_ptsz
    cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds cuMemsetD32 cuMemsetD32Async cuMemsetD32Async_ptsz cuMemsetD32_v2
    cuMemsetD32_v2_ptds cuMemsetD8 cuMemsetD8Async cuMemsetD8Async_ptsz cuMemsetD8_v2 cuMemsetD8_v2_ptds
    cuMipmappedArrayCreate cuMipmappedArrayDestroy cuModuleEnumerateFunctions cuModuleGetFunction
    cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload cuStreamBeginCapture
    cuStreamBeginCaptureToGraph cuStreamBeginCaptureToGraph_ptsz cuStreamBeginCapture_ptsz cuStreamBeginCapture_v2
    cuStreamBeginCapture_v2_ptsz cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy cuStreamDestroy_v2
    cuStreamSynchronize cuStreamSynchronize_ptsz
}
