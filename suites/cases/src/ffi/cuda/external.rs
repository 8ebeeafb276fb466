//! External memory: imported by a descriptor, mapped as buffers.

use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

use abi::cuda::{
    CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
    CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle, CUdeviceptr, CUexternalMemory, CUresult,
};

use super::{Answer, Cuda, MISSING, UNTOUCHED};

/// An import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct External(u64);

impl External {
    const fn handle(self) -> CUexternalMemory {
        CUexternalMemory(std::ptr::with_exposed_provenance_mut(self.0 as usize))
    }
}

impl Cuda {
    /// cuImportExternalMemory of an opaque descriptor. What is imported is the driver's; where it is not, the descriptor comes back.
    pub fn import_external(
        &self,
        descriptor: OwnedFd,
        bytes: u64,
    ) -> Result<External, (CUresult, OwnedFd)> {
        const OPAQUE_FD: u32 = 1;
        let asked = CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            type_: OPAQUE_FD as _,
            handle: CUDA_EXTERNAL_MEMORY_HANDLE_DESC_handle {
                fd: descriptor.as_raw_fd(),
            },
            size: bytes,
            flags: 0,
            reserved: [0; 16],
        };
        let mut out = External(UNTOUCHED).handle();
        let code = call!(self.cuImportExternalMemory(&mut out, &asked));
        if code != CUresult::SUCCESS {
            return Err((code, descriptor));
        }
        let _ = descriptor.into_raw_fd();
        Ok(External(out.0 as u64))
    }

    /// cuExternalMemoryGetMappedBuffer, from the beginning.
    pub fn map_external(&self, memory: External, bytes: u64) -> Answer<CUdeviceptr> {
        let asked = CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
            offset: 0,
            size: bytes,
            flags: 0,
            reserved: [0; 16],
        };
        let mut out = UNTOUCHED;
        let code = call!(self.cuExternalMemoryGetMappedBuffer(&mut out, memory.handle(), &asked));
        Answer { code, out }
    }

    pub fn destroy_external(&self, memory: External) -> CUresult {
        call!(self.cuDestroyExternalMemory(memory.handle()))
    }
}
