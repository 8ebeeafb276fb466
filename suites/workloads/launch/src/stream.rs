//! Streams that a launch may go to: made here, or handed in and neither NULL nor the legacy one.

use std::sync::Arc;

use abi::cuda::CUstream;

use crate::boundary::Handle;
use crate::device::Device;
use crate::error::LaunchError;

pub struct Stream {
    device: Arc<Device>,
    stream: Handle<CUstream>,
    /// Destroyed with this.
    own: bool,
}

impl Stream {
    /// A stream that does not wait for the default one.
    ///
    /// # Errors
    /// `Call` with the driver's code, `NullStream` where it made none and said that it had.
    pub fn create(device: &Arc<Device>) -> Result<Self, LaunchError> {
        let stream = device.enter()?.create_stream()?;
        if stream.is_null() {
            // The driver said success and made none.
            return Err(LaunchError::NullStream);
        }
        Ok(Self {
            stream: Handle(stream),
            device: Arc::clone(device),
            own: true,
        })
    }

    pub(crate) fn foreign(device: &Arc<Device>, stream: CUstream) -> Self {
        Self {
            device: Arc::clone(device),
            stream: Handle(stream),
            own: false,
        }
    }

    /// Waits until all that was given to it is done.
    ///
    /// # Errors
    /// `Call` with the driver's code: that of work which failed, too.
    pub fn synchronize(&self) -> Result<(), LaunchError> {
        self.device.enter()?.synchronize(self.stream.0)?;
        self.device.counters().synchronizations.count();
        Ok(())
    }

    /// The driver's handle, for whoever calls it past the boundary.
    #[inline]
    pub fn handle(&self) -> CUstream {
        self.stream.0
    }

    #[inline]
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.own
            && let Ok(calls) = self.device.enter()
        {
            let _ = calls.destroy_stream(self.stream.0);
        }
    }
}
