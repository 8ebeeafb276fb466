//! cuGetProcAddress, and entry points called by name with zeros.

use std::ffi::CString;
use std::ptr::{null_mut, with_exposed_provenance_mut};

use abi::cuda::CUresult;

use super::{Address, Cuda, MISSING, ProcAddress, UNTOUCHED};
use crate::ffi::library::{self, Scope};

/// How cuGetProcAddress is asked for each export.
const ANSWERS: &str = include_str!("../../../../../fixtures/oracle/proc-address.txt");

/// By which look-up a program finds the driver's functions. Not by dlvsym: their names have no versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// dlsym by handle.
    Dlsym,
    /// dlsym with RTLD_DEFAULT.
    DlsymDefault,
    /// dlsym with RTLD_NEXT.
    DlsymNext,
    /// cuGetProcAddress_v2.
    ProcAddress,
    /// The older cuGetProcAddress.
    OlderProcAddress,
}

/// The base name, version and flags for which cuGetProcAddress answers with an export.
fn question_for(export: &str) -> Option<(&'static str, i32, u64)> {
    let rows = ANSWERS.lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(|row| row.split_once(' '))
        .filter_map(|(base, runs)| Some((base, export.strip_prefix(base)?, runs)))
        .find_map(|(base, suffix, runs)| {
            runs.split(' ').find_map(|run| {
                let (version, answers) = run.split_once(':')?;
                let answers = answers.split(',').map(|answer| answer.strip_prefix('+'));
                let flags = answers
                    .into_iter()
                    .position(|answer| answer == Some(suffix))?;
                Some((base, version.parse().ok()?, flags as u64))
            })
        })
}

impl Cuda {
    /// An export as that look-up finds it.
    pub fn look_up(&self, way: Way, export: &str) -> Option<Address> {
        let asked = || question_for(export);
        match way {
            Way::Dlsym => self.library.address(export),
            Way::DlsymDefault => library::look_up(Scope::Default, export),
            Way::DlsymNext => library::look_up(Scope::Next, export),
            Way::ProcAddress => {
                let (base, version, flags) = asked()?;
                self.proc_address(base, version, flags).address
            }
            Way::OlderProcAddress => {
                let (base, version, flags) = asked()?;
                self.proc_address_v1(base, version, flags).address
            }
        }
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
                use abi::cuda::enumerations::*;
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
    cuMemPoolTrimTo cuMemPoolSetAttribute cuMemPoolExportToShareableHandle cuMemPoolExportPointer
    cuMemPoolImportFromShareableHandle cuMemPoolImportPointer cuCtxSynchronize cuCtxSynchronize_v2 cuStreamSynchronize
    cuStreamSynchronize_ptsz cuEventSynchronize cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease
    cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2 cuCtxCreate cuCtxCreate_v2
    cuCtxAttach cuCtxDetach cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxStreamCreate
    cuCtxCreate_v3 cuCtxCreate_v4 cuCtxDestroy cuCtxDestroy_v2
    cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload cuModuleGetFunction
    cuGraphExecKernelNodeSetParams cuGraphExecKernelNodeSetParams_v2 cuGraphExecNodeSetParams cuGraphExecChildGraphNodeSetParams cuTexObjectCreate cuSurfObjectCreate cuModuleEnumerateFunctions cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload cuLibraryGetKernel
    cuLibraryEnumerateKernels cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy cuStreamDestroy_v2
    cuArray3DCreate cuArray3DCreate_v2 cuArrayCreate cuArrayCreate_v2 cuArrayDestroy cuCtxSetLimit
    cuDestroyExternalMemory cuExternalMemoryGetMappedBuffer cuExternalMemoryGetMappedMipmappedArray cuImportExternalMemory
    cuDeviceGraphMemTrim cuDeviceSetMemPool cuDeviceTotalMem cuGraphAddMemAllocNode cuGraphAddNode cuGraphAddNode_v2 cuGraphNodeSetParams
    cuGraphExecDestroy cuGraphExecUpdate cuGraphExecUpdate_v2 cuGraphInstantiate cuGraphInstantiateWithFlags
    cuGraphInstantiateWithParams cuGraphInstantiateWithParams_ptsz cuGraphInstantiate_v2 cuGraphLaunch
    cuGraphLaunch_ptsz cuGraphUpload cuGraphUpload_ptsz cuInit cuIpcCloseMemHandle cuIpcGetMemHandle
    cuIpcOpenMemHandle cuIpcOpenMemHandle_v2 cuLaunch cuLaunchCooperativeKernel cuLaunchCooperativeKernelMultiDevice
    cuLaunchCooperativeKernel_ptsz cuLaunchGrid cuLaunchGridAsync cuLaunchKernel cuLaunchKernelEx
    cuLaunchKernelEx_ptsz cuLaunchKernel_ptsz cuMemAlloc cuMemAllocAsync_ptsz cuMemAllocFromPoolAsync
    cuMemAllocFromPoolAsync_ptsz cuMemAllocManaged cuMemAllocPitch cuMemAllocPitch_v2 cuMemCreate
    cuMemExportToShareableHandle cuMemFree cuMemGetDefaultMemPool cuMemGetInfo cuMemGetMemPool
    cuMemImportFromShareableHandle cuMemMap cuMemMapArrayAsync cuMemMapArrayAsync_ptsz cuMemPoolCreate
    cuMemPoolDestroy cuMemRelease cuMemRetainAllocationHandle cuMemSetMemPool cuMemUnmap cuMipmappedArrayCreate
    cuMipmappedArrayDestroy cuStreamBeginCapture cuStreamBeginCaptureToGraph cuStreamBeginCaptureToGraph_ptsz
    cuStreamBeginCapture_ptsz cuStreamBeginCapture_v2 cuStreamBeginCapture_v2_ptsz
    cuMemsetD16 cuMemsetD16Async cuMemsetD16Async_ptsz cuMemsetD16_v2 cuMemsetD16_v2_ptds cuMemsetD2D16 cuMemsetD2D16Async
    cuMemsetD2D16Async_ptsz cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds cuMemsetD2D32 cuMemsetD2D32Async
    cuMemsetD2D32Async_ptsz cuMemsetD2D32_v2 cuMemsetD2D32_v2_ptds cuMemsetD2D8 cuMemsetD2D8Async cuMemsetD2D8Async_ptsz
    cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds cuMemsetD32 cuMemsetD32Async cuMemsetD32Async_ptsz cuMemsetD32_v2
    cuMemsetD32_v2_ptds cuMemsetD8 cuMemsetD8Async cuMemsetD8Async_ptsz cuMemsetD8_v2 cuMemsetD8_v2_ptds
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
