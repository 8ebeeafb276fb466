//! Launches with any numbers in them, past every check of a program's own.

use std::ffi::c_void;
use std::ptr::null_mut;

use abi::cuda::{CUfunction, CUlaunchConfig, CUresult, CUstream};

use super::{Cuda, MISSING};

/// By which entry point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    Kernel,
    KernelEx,
    Cooperative,
}

/// One launch of a function with one parameter of eight bytes.
#[derive(Clone, Copy, Debug)]
pub struct Odd {
    pub function: CUfunction,
    pub grid: [u32; 3],
    pub workgroup: [u32; 3],
    pub shared: u32,
    pub stream: CUstream,
    pub parameters: Parameters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameters {
    /// As there should be.
    Given,
    /// A table with NULL in it.
    NullSlot,
    /// No table.
    NoTable,
}

impl Odd {
    /// One thread.
    pub fn of(function: CUfunction, stream: CUstream) -> Self {
        Self {
            function,
            grid: [1; 3],
            workgroup: [1; 3],
            shared: 0,
            stream,
            parameters: Parameters::Given,
        }
    }
}

impl Cuda {
    pub fn launch_oddly(&self, by: By, odd: &Odd) -> CUresult {
        let mut word = 0_u64;
        let mut slots = [match odd.parameters {
            Parameters::Given => (&raw mut word).cast::<c_void>(),
            _ => null_mut(),
        }];
        let slots = match odd.parameters {
            Parameters::NoTable => null_mut(),
            _ => slots.as_mut_ptr(),
        };
        let ([x, y, z], [width, height, depth]) = (odd.grid, odd.workgroup);
        let (function, shared, stream) = (odd.function, odd.shared, odd.stream);
        match by {
            By::Kernel => call!(self.cuLaunchKernel(
                function,
                x,
                y,
                z,
                width,
                height,
                depth,
                shared,
                stream,
                slots,
                null_mut()
            )),
            By::KernelEx => {
                let config = CUlaunchConfig {
                    gridDimX: x,
                    gridDimY: y,
                    gridDimZ: z,
                    blockDimX: width,
                    blockDimY: height,
                    blockDimZ: depth,
                    sharedMemBytes: shared,
                    hStream: stream,
                    attrs: null_mut(),
                    numAttrs: 0,
                };
                call!(self.cuLaunchKernelEx(&config, function, slots, null_mut()))
            }
            By::Cooperative => call!(self.cuLaunchCooperativeKernel(
                function, x, y, z, width, height, depth, shared, stream, slots
            )),
        }
    }
}
