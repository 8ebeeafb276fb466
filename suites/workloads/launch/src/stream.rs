//! Streams that a launch may go to: made here, or handed in and neither NULL nor the legacy one.

use std::rc::Rc;

use abi::cuda::CUstream;

use crate::device::Device;
use crate::error::LaunchError;

pub struct Stream {
    device: Rc<Device>,
    stream: CUstream,
    /// Destroyed with this.
    own: bool,
}

impl Stream {
    /// A stream that does not wait for the default one.
    pub fn create(device: &Rc<Device>) -> Result<Self, LaunchError> {
        let stream = device.calls().create_stream()?;
        if stream.is_null() {
            // The driver said success and made none.
            return Err(LaunchError::NullStream);
        }
        Ok(Self {
            stream,
            device: Rc::clone(device),
            own: true,
        })
    }

    pub(crate) fn foreign(device: &Rc<Device>, stream: CUstream) -> Self {
        Self {
            device: Rc::clone(device),
            stream,
            own: false,
        }
    }

    /// Waits until all that was given to it is done.
    pub fn synchronize(&self) -> Result<(), LaunchError> {
        self.device.calls().synchronize(self.stream)?;
        self.device.counters().synchronizations.count();
        Ok(())
    }

    /// The driver's handle, for whoever calls it past the boundary.
    #[inline]
    pub fn handle(&self) -> CUstream {
        self.stream
    }

    #[inline]
    pub(crate) fn device(&self) -> &Rc<Device> {
        &self.device
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.own {
            let _ = self.device.calls().destroy_stream(self.stream);
        }
    }
}
