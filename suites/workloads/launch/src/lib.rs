//! The launch boundary: what stands between a program that dispatches kernels and `cuLaunchKernel`, as applications have it (vyre-driver-cuda's
//! `launch.rs` is the model). A [`LaunchPlan`] is held once against the device and the kernel, which gives a [`Launch`]; only that can be
//! launched, again and again, with no check left but whose stream and whose arguments it is given.
//!
//! It refuses before the driver is asked, and says by a variant with its fields what is wrong. Where it is stricter than a driver (the NULL and the
//! legacy stream, an empty table of arguments, more threads in all than 64 bits count), that is said at the variant. It is a program like any
//! other: it knows no enforcer, and finds libcuda by its name.
//!
//! * [`plan`], [`limits`], [`residency`]: what is asked, what there is, and what fits on a device at once. Pure.
//! * [`device`], [`stream`], [`kernel`], [`modules`], [`memory`]: what is launched, and where.
//! * [`staging`]: arguments, in places that are used again. * [`graph`]: launches written down and replayed.
//! * [`boundary`]: the one room of unsafe, and the one place that calls the driver. * [`error`]: everything that can go wrong.
//! * [`kernels`]: PTX, written by hand.

pub mod boundary;
pub mod device;
pub mod error;
pub mod graph;
pub mod kernel;
pub mod kernels;
pub mod limits;
pub mod memory;
pub mod modules;
pub mod plan;
pub mod residency;
pub mod staging;
pub mod stream;

pub use device::{Counts, Device};
pub use error::{ArgumentError, LaunchError, Launcher, PlanError};
pub use graph::{Capture, Graph};
pub use kernel::{Kernel, Launch};
pub use limits::{KernelLimits, Limits, TargetSm};
pub use memory::Buffer;
pub use modules::{Module, Modules};
pub use plan::{Cooperation, LaunchPlan, Sides};
pub use residency::Diagnosis;
pub use staging::{Arguments, Staging};
pub use stream::Stream;
