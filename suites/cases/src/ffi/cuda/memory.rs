//! Plain memory: told of, allocated, freed, copied.

use std::ptr::{null_mut, with_exposed_provenance_mut};

use abi::cuda::{CUdeviceptr, CUresult, fns};

use super::{Address, Answer, Cuda, MISSING, UNTOUCHED};

/// A call that gives page-locked host memory.
#[derive(Clone, Copy, Debug)]
pub enum HostWay {
    Plain,
    Unsuffixed,
    WithFlags,
}

impl Cuda {
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

    pub fn allocate_into_nothing(&self, bytes: u64) -> CUresult {
        call!(self.cuMemAlloc_v2(null_mut(), bytes as usize))
    }

    pub fn free(&self, pointer: CUdeviceptr) -> CUresult {
        call!(self.cuMemFree_v2(pointer))
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

    /// The same by any of the calls that there are.
    pub fn allocate_host_by(&self, way: HostWay, bytes: u64) -> Answer<u64> {
        let mut out = null_mut();
        let code = match way {
            HostWay::Plain => call!(self.cuMemAllocHost_v2(&mut out, bytes as usize)),
            HostWay::Unsuffixed => call!(self.cuMemAllocHost(&mut out, bytes as u32)),
            HostWay::WithFlags => call!(self.cuMemHostAlloc(&mut out, bytes as usize, 0)),
        };
        Answer {
            code,
            out: out.expose_provenance() as u64,
        }
    }

    /// Has the pages of a range of the program's own page-locked, by the unsuffixed call or the newer one.
    pub fn register_host(&self, unsuffixed: bool, address: u64, bytes: u64) -> CUresult {
        let place = with_exposed_provenance_mut(address as usize);
        if unsuffixed {
            call!(self.cuMemHostRegister(place, bytes as usize, 0))
        } else {
            call!(self.cuMemHostRegister_v2(place, bytes as usize, 0))
        }
    }

    pub fn unregister_host(&self, address: u64) -> CUresult {
        call!(self.cuMemHostUnregister(with_exposed_provenance_mut(address as usize)))
    }

    pub fn free_host(&self, pointer: u64) -> CUresult {
        call!(self.cuMemFreeHost(with_exposed_provenance_mut(pointer as usize)))
    }

    pub fn write(&self, pointer: CUdeviceptr, bytes: &[u8]) -> CUresult {
        call!(self.cuMemcpyHtoD_v2(pointer, bytes.as_ptr().cast(), bytes.len()))
    }

    pub fn read(&self, pointer: CUdeviceptr, bytes: &mut [u8]) -> CUresult {
        call!(self.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), pointer, bytes.len()))
    }
}
