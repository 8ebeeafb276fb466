//! What a program hands in that it made itself: kernels by their signatures, functions, streams and tables of arguments as bare handles. Nothing
//! but the obvious can be checked of those, so each is taken with an obligation.

use std::ffi::c_void;
use std::sync::Arc;

use abi::cuda::{CUfunction, CUstream};

use crate::device::Device;
use crate::error::{ArgumentError, LaunchError};
use crate::kernel::Kernel;
use crate::modules::Module;
use crate::staging::Arguments;
use crate::stream::Stream;

/// What errors call a function that nobody looked up by its name.
const ADOPTED: &str = "a kernel without a name";
/// `CU_STREAM_LEGACY`: the context's default stream, by a name that has no suffixes.
const LEGACY: usize = 1;

impl Module {
    /// A kernel of the module, by its name and the bytes of each of its parameters. A driver from 550 on is asked whether these are right.
    ///
    /// # Safety
    /// The kernel has these parameters, and what it does with the addresses that it is given is lawful.
    pub unsafe fn kernel(
        self: &Arc<Self>,
        name: &str,
        parameters: &[usize],
    ) -> Result<Arc<Kernel>, LaunchError> {
        let text = super::c_string(name)?;
        let function = self.device().enter()?.function(self.handle(), &text)?;
        Kernel::of(self.device(), name, function, parameters, Some(self))
    }
}

impl Kernel {
    /// A function that the program obtained itself.
    ///
    /// # Safety
    /// It is NULL, or a function of the device's context that outlives the kernel, and as in [`Module::kernel`].
    pub unsafe fn adopt(
        device: &Arc<Device>,
        function: CUfunction,
        parameters: &[usize],
    ) -> Result<Arc<Kernel>, LaunchError> {
        Kernel::of(device, ADOPTED, function, parameters, None)
    }
}

impl Stream {
    /// A stream that the program made itself, and destroys.
    ///
    /// # Safety
    /// It is NULL, a named default stream, or a stream of the device's context that outlives this.
    pub unsafe fn adopt(device: &Arc<Device>, stream: CUstream) -> Result<Stream, LaunchError> {
        match stream.0.addr() {
            0 => Err(LaunchError::NullStream),
            LEGACY => Err(LaunchError::LegacyStream),
            _ => Ok(Stream::foreign(device, stream)),
        }
    }
}

impl<'s> Arguments<'s> {
    /// A table that the program filled itself.
    ///
    /// # Safety
    /// Each address that is not NULL is of a value of the kernel's parameter in its place, and stays as long as the table is borrowed.
    pub unsafe fn adopt(
        kernel: &'s Kernel,
        slots: &'s [*mut c_void],
    ) -> Result<Arguments<'s>, ArgumentError> {
        if let Some(index) = slots.iter().position(|slot| slot.is_null()) {
            return Err(ArgumentError::NullSlot { index });
        }
        Arguments::of(slots, kernel.signature())
    }
}
