//! Other ways to device memory.

use std::ptr::null_mut;

use abi::cuda::{
    CUDA_ARRAY_DESCRIPTOR, CUdevice, CUdeviceptr, CUmemAllocationProp, CUmemLocation, CUresult,
};

use super::{Answer, Cuda, MISSING, UNTOUCHED};

impl Cuda {
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
}
