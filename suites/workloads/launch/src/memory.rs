//! Arrays of `u32` on the device: what the kernels here work on.

use std::sync::Arc;

use abi::cuda::CUdeviceptr;

use crate::device::Device;
use crate::error::LaunchError;

pub struct Buffer {
    device: Arc<Device>,
    address: CUdeviceptr,
    words: usize,
}

impl Buffer {
    /// With these words in it.
    ///
    /// # Errors
    /// `Call` with the driver's code, where it has no memory for them or cannot be written to.
    pub fn holding(device: &Arc<Device>, words: &[u32]) -> Result<Self, LaunchError> {
        let buffer = Self {
            address: device.enter()?.allocate(size_of_val(words))?,
            device: Arc::clone(device),
            words: words.len(),
        };
        device.enter()?.write(buffer.address, words)?;
        Ok(buffer)
    }

    /// What is in it now. Waits for nothing: a stream's work is not in it before the stream was waited for.
    ///
    /// # Errors
    /// `Call` with the driver's code.
    pub fn read(&self) -> Result<Vec<u32>, LaunchError> {
        let mut words = vec![0; self.words];
        self.device.enter()?.read(self.address, &mut words)?;
        Ok(words)
    }

    /// As a kernel is told of it.
    pub fn address(&self) -> CUdeviceptr {
        self.address
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Ok(calls) = self.device.enter() {
            let _ = calls.free(self.address);
        }
    }
}
