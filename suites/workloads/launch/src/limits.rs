//! What a device and a kernel can bear, as their driver tells it.

use std::fmt;

use abi::cuda::CUdevice_attribute;
use abi::cuda::enumerations::*;

use crate::error::LaunchError;

/// The compute capability that a launch is for: `sm_90`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetSm {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for TargetSm {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "sm_{}{}", self.major, self.minor)
    }
}

/// A device's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Blocks along each axis of a grid.
    pub grid: [u32; 3],
    /// Threads along each axis of a workgroup.
    pub workgroup: [u32; 3],
    /// Threads of a workgroup.
    pub workgroup_threads: u32,
    pub multiprocessors: u32,
    /// Threads that a multiprocessor holds at once.
    pub multiprocessor_threads: u32,
    pub cooperative: bool,
    pub target: TargetSm,
}

impl Limits {
    /// Reads each attribute once.
    pub fn read(
        mut ask: impl FnMut(CUdevice_attribute) -> Result<i32, LaunchError>,
    ) -> Result<Self, LaunchError> {
        let mut of = |attribute| natural(attribute, ask(attribute)?);
        Ok(Self {
            grid: [
                of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
                of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
                of(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
            ],
            workgroup: [
                of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
                of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
                of(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
            ],
            workgroup_threads: of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            multiprocessors: of(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            multiprocessor_threads: of(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?,
            cooperative: of(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? != 0,
            target: TargetSm {
                major: of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                minor: of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            },
        })
    }
}

/// A kernel's, on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelLimits {
    /// Threads of a workgroup: by its registers, or as it was written.
    pub workgroup_threads: u32,
    /// Bytes of shared memory that a launch may ask for beside the kernel's own.
    pub dynamic_shared: u32,
}

impl KernelLimits {
    pub fn read(
        mut ask: impl FnMut(CUfunction_attribute) -> Result<i32, LaunchError>,
    ) -> Result<Self, LaunchError> {
        let mut of = |attribute| natural(attribute, ask(attribute)?);
        Ok(Self {
            workgroup_threads: of(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            dynamic_shared: of(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?,
        })
    }
}

fn natural(attribute: i32, value: i32) -> Result<u32, LaunchError> {
    u32::try_from(value).map_err(|_| LaunchError::Attribute { attribute, value })
}
