//! Everything that can go wrong, as variants with the facts in their fields. Sentences are for people; programs match.

use std::fmt;
use std::sync::Arc;

use abi::cuda::CUresult;

use crate::limits::TargetSm;
use crate::plan::{Axis, Geometry, Sides, Width};
use crate::residency::Diagnosis;

/// Which of the driver's functions a launch goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// `cuLaunchKernel`.
    Kernel,
    /// `cuLaunchCooperativeKernel`.
    Cooperative,
}

impl fmt::Display for Launcher {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Kernel => "cuLaunchKernel",
            Self::Cooperative => "cuLaunchCooperativeKernel",
        })
    }
}

/// A plan that this device and kernel cannot carry out. Found before the driver is asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("the {geometry} has no extent along {axis}")]
    EmptySide { geometry: Geometry, axis: Axis },
    #[error(
        "{elements} elements by workgroups of {side} are more workgroups than a grid's side counts"
    )]
    TooManyElements { elements: u64, side: u32 },
    #[error("the blocks of the grid {grid} are more than 64 bits count")]
    BlocksOverflow { grid: Sides },
    #[error("the threads of the workgroup {workgroup} are more than 64 bits count")]
    WorkgroupOverflow { workgroup: Sides },
    /// A driver may take this: it never counts a launch's threads.
    #[error("the threads of {grid} workgroups of {workgroup} are more than 64 bits count")]
    ThreadsOverflow { grid: Sides, workgroup: Sides },
    #[error("a workgroup of {threads} threads does not fit into {width} bits")]
    WorkgroupWidth { threads: u64, width: Width },
    #[error("the {geometry} is {side} along {axis}, the device takes {most}")]
    SideBeyondDevice {
        geometry: Geometry,
        axis: Axis,
        side: u32,
        most: u32,
    },
    #[error("a workgroup of {threads} threads, the device takes {most}")]
    WorkgroupBeyondDevice { threads: u32, most: u32 },
    #[error("a workgroup of {threads} threads, the kernel takes {most}")]
    WorkgroupBeyondKernel { threads: u32, most: u32 },
    #[error("{asked} bytes of shared memory, the kernel takes {most} beside its own")]
    SharedMemory { asked: u32, most: u32 },
    #[error("{target} has no cooperative launches")]
    CooperationUnsupported { target: TargetSm },
    #[error("the driver counts {active} active blocks on a multiprocessor")]
    NegativeActiveBlocks { active: i32 },
    #[error(
        "{active} active blocks on each of {multiprocessors} multiprocessors are more than 64 bits count"
    )]
    ResidencyOverflow { active: u64, multiprocessors: u64 },
    #[error("{0}")]
    NotResident(Box<Diagnosis>),
}

/// Arguments that are not the kernel's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// A driver takes it of a kernel without parameters. Here such a kernel cannot be launched: it could do nothing that its caller asked for, and
    /// an empty table is a mistake far more often.
    #[error("an empty table of arguments")]
    Empty,
    #[error("argument {index} is NULL")]
    NullSlot { index: usize },
    #[error("{given} arguments, the kernel takes {declared}")]
    Count { given: usize, declared: usize },
    #[error("argument {index} has {given} bytes, the kernel's has {declared}")]
    Size {
        index: usize,
        given: usize,
        declared: usize,
    },
    #[error("parameter {index} has {bytes} bytes; staging holds those of 4 and 8")]
    Unstageable { index: usize, bytes: usize },
    #[error("room for {arguments} arguments is more than can be addressed")]
    CountOverflow { arguments: usize },
    #[error("no memory for {arguments} arguments")]
    Reservation { arguments: usize },
    #[error("the arguments were staged for another kernel")]
    OtherKernel,
}

/// Why nothing was launched, or loaded, or waited for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    #[error("{kernel}: {error}")]
    Plan { kernel: Arc<str>, error: PlanError },
    #[error(transparent)]
    Arguments(#[from] ArgumentError),
    #[error("the function is NULL")]
    NullFunction,
    /// A driver takes it for the default stream of the context, or of the thread: which one, the program did not say.
    #[error("the stream is NULL")]
    NullStream,
    /// A driver takes it. Whatever is launched there waits for all other streams, and they for it.
    #[error("the stream is the legacy default stream")]
    LegacyStream,
    #[error("the stream is another device's than the kernel")]
    ForeignStream,
    #[error("\"{name}\" holds a NUL")]
    Name { name: String },
    /// The kernel was declared with another parameter than the driver knows. Drivers from 550 on are asked.
    #[error(
        "{kernel}: parameter {index} was declared with {declared:?} bytes, the driver says {told:?}"
    )]
    Signature {
        kernel: Arc<str>,
        index: usize,
        declared: Option<usize>,
        told: Option<usize>,
    },
    /// The driver refused a launch that was valid here.
    #[error(
        "{launcher} of {kernel}, {grid} workgroups of {workgroup} for {element_count} elements on {target}: {code:?}"
    )]
    Driver {
        kernel: Arc<str>,
        launcher: Launcher,
        code: CUresult,
        grid: Sides,
        workgroup: Sides,
        element_count: u64,
        target: TargetSm,
    },
    /// Any other call.
    #[error("{call}: {code:?}")]
    Call { call: &'static str, code: CUresult },
    #[error("the driver lacks {name}")]
    Missing { name: &'static str },
    #[error("libcuda.so.1 cannot be opened: {reason}")]
    NoDriver { reason: String },
    #[error("the device's attribute {attribute} is {value}")]
    Attribute { attribute: i32, value: i32 },
}

impl LaunchError {
    /// The driver's code, where it was the driver that refused.
    pub fn code(&self) -> Option<CUresult> {
        match self {
            Self::Driver { code, .. } | Self::Call { code, .. } => Some(*code),
            _ => None,
        }
    }
}
