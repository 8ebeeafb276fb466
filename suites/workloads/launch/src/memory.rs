//! Arrays of `u32` on the device: what the kernels here work on.

use std::rc::Rc;

use abi::cuda::CUdeviceptr;

use crate::device::Device;
use crate::error::LaunchError;

pub struct Buffer {
    device: Rc<Device>,
    address: CUdeviceptr,
    words: usize,
}

impl Buffer {
    /// With these words in it.
    pub fn holding(device: &Rc<Device>, words: &[u32]) -> Result<Self, LaunchError> {
        let buffer = Self {
            address: device.calls().allocate(size_of_val(words))?,
            device: Rc::clone(device),
            words: words.len(),
        };
        device.calls().write(buffer.address, words)?;
        Ok(buffer)
    }

    /// What is in it now. Waits for nothing: a stream's work is not in it before the stream was waited for.
    pub fn read(&self) -> Result<Vec<u32>, LaunchError> {
        let mut words = vec![0; self.words];
        self.device.calls().read(self.address, &mut words)?;
        Ok(words)
    }

    /// As a kernel is told of it.
    pub fn address(&self) -> CUdeviceptr {
        self.address
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let _ = self.device.calls().free(self.address);
    }
}
