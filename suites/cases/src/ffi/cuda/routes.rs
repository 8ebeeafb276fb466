//! Other ways to device memory.

use abi::cuda::{CUdevice, CUdeviceptr, CUresult};

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

    pub fn set_bytes(&self, pointer: CUdeviceptr, byte: u8, bytes: u64) -> CUresult {
        call!(self.cuMemsetD8_v2(pointer, byte, bytes as usize))
    }

    /// The unsuffixed call of 32-bit days.
    pub fn allocate_v1(&self, bytes: u32) -> Answer<u32> {
        let mut out = 0;
        let code = call!(self.cuMemAlloc(&mut out, bytes));
        Answer { code, out }
    }

    pub fn allocate_pitch_v1(&self, width: u32, height: u32) -> Answer<u32> {
        let (mut out, mut pitch) = (0, 0);
        let code = call!(self.cuMemAllocPitch(&mut out, &mut pitch, width, height, 4));
        Answer { code, out }
    }

    pub fn free_v1(&self, pointer: u32) -> CUresult {
        call!(self.cuMemFree(pointer))
    }

    /// Free and total, by the unsuffixed call.
    pub fn memory_info_v1(&self) -> Answer<(u32, u32)> {
        let (mut free, mut total) = (0, 0);
        let code = call!(self.cuMemGetInfo(&mut free, &mut total));
        Answer {
            code,
            out: (free, total),
        }
    }

    /// By number: also what no enumeration names.
    pub fn attribute(&self, number: i32, device: CUdevice) -> Answer<i32> {
        let mut out = -1;
        let code = call!(self.cuDeviceGetAttribute(&mut out, number, device));
        Answer { code, out }
    }

    pub fn total_memory_v1(&self, device: CUdevice) -> Answer<u32> {
        let mut out = 0;
        let code = call!(self.cuDeviceTotalMem(&mut out, device));
        Answer { code, out }
    }
}
