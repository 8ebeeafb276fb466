//! cuGetProcAddress, and entry points called by name with zeros.

use std::ffi::CString;
use std::ptr::{null_mut, with_exposed_provenance_mut};

use abi::cuda::CUresult;

use super::{Address, Cuda, MISSING, ProcAddress, UNTOUCHED};

impl Cuda {
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
    cuMemPoolTrimTo cuMemPoolSetAttribute cuCtxSynchronize cuCtxSynchronize_v2 cuStreamSynchronize
    cuStreamSynchronize_ptsz cuEventSynchronize cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease
    cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2 cuCtxCreate cuCtxCreate_v2
    cuCtxCreate_v3 cuCtxCreate_v4 cuCtxDestroy cuCtxDestroy_v2
    cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload cuModuleGetFunction
    cuModuleEnumerateFunctions cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload cuLibraryGetKernel
    cuLibraryEnumerateKernels cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy cuStreamDestroy_v2
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
