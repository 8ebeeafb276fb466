//! A kernel, and a launch of it that was found valid.

use std::fmt;
use std::sync::Arc;

use abi::cuda::{CUfunction, CUresult, CUstream};

use crate::boundary::{Handle, Raw};
use crate::device::Device;
use crate::error::{ArgumentError, LaunchError, Launcher, PlanError};
use crate::graph::Capture;
use crate::limits::KernelLimits;
use crate::modules::Module;
use crate::plan::{Cooperation, Extent, LaunchPlan};
use crate::residency;
use crate::staging::{Arguments, Signature};
use crate::stream::Stream;

/// A function of a device's context, with what its driver says of it. It keeps its module loaded.
pub struct Kernel {
    name: Arc<str>,
    device: Arc<Device>,
    function: Handle<CUfunction>,
    signature: Arc<Signature>,
    limits: KernelLimits,
    _module: Option<Arc<Module>>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, parameters) = (&self.name, &self.signature.0);
        write!(out, "{name}, of {parameters:?}, {:?}", self.limits)
    }
}

impl Kernel {
    pub(crate) fn of(
        device: &Arc<Device>,
        name: &str,
        function: CUfunction,
        parameters: &[usize],
        module: Option<&Arc<Module>>,
    ) -> Result<Arc<Self>, LaunchError> {
        if function.is_null() {
            return Err(LaunchError::NullFunction);
        }
        let name: Arc<str> = name.into();
        let calls = device.enter()?;
        if calls.knows_parameters() {
            for index in 0..=parameters.len() {
                let (declared, told) = (
                    parameters.get(index).copied(),
                    calls.parameter(function, index)?,
                );
                if declared != told {
                    return Err(LaunchError::Signature {
                        kernel: name,
                        index,
                        declared,
                        told,
                    });
                }
            }
        }
        Ok(Arc::new(Self {
            name,
            function: Handle(function),
            signature: Arc::new(Signature(parameters.into())),
            limits: KernelLimits::read(|attribute| calls.function_attribute(function, attribute))?,
            device: Arc::clone(device),
            _module: module.cloned(),
        }))
    }

    /// The name that it was looked up by, which errors give.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn limits(&self) -> &KernelLimits {
        &self.limits
    }

    /// The driver's handle, for whoever calls it past the boundary.
    pub fn handle(&self) -> CUfunction {
        self.function.0
    }

    /// Holds a plan against the device and this kernel, once. The driver is asked only about the residency of a cooperative launch.
    ///
    /// # Errors
    /// `Plan` with what the device or the kernel does not bear, `Call` where the driver does not tell of residency.
    pub fn validate(self: &Arc<Self>, plan: &LaunchPlan) -> Result<Launch, LaunchError> {
        let refused = |error| self.refused(error);
        let extent = plan
            .extent(self.device.limits(), &self.limits)
            .map_err(refused)?;
        let launcher = match plan.cooperation {
            Cooperation::None => Launcher::Kernel,
            Cooperation::Grid => {
                self.check_residency(plan, &extent)?;
                Launcher::Cooperative
            }
        };
        Ok(Launch {
            raw: Raw {
                function: self.function,
                grid: plan.grid.0,
                workgroup: plan.workgroup.0,
                shared: plan.shared,
                launcher,
            },
            plan: *plan,
            device: Arc::clone(&self.device),
            signature: Arc::clone(&self.signature),
            kernel: Arc::clone(self),
        })
    }

    /// Workgroups like the plan's that the device holds at once, as its driver counts them.
    ///
    /// # Errors
    /// As [`Kernel::validate`].
    pub fn resident_blocks(&self, plan: &LaunchPlan) -> Result<u64, LaunchError> {
        let refused = |error| self.refused(error);
        let extent = plan
            .extent(self.device.limits(), &self.limits)
            .map_err(refused)?;
        let active = self.active_blocks(plan, &extent)?;
        let multiprocessors = self.device.limits().multiprocessors.into();
        residency::capacity(active, multiprocessors).map_err(refused)
    }

    fn check_residency(&self, plan: &LaunchPlan, extent: &Extent) -> Result<(), LaunchError> {
        let (refused, limits) = (|error| self.refused(error), self.device.limits());
        residency::by_threads(plan, extent, limits).map_err(refused)?;
        let active = self.active_blocks(plan, extent)?;
        residency::by_occupancy(plan, extent, limits, active).map_err(refused)
    }

    #[cold]
    fn refused(&self, error: PlanError) -> LaunchError {
        LaunchError::Plan {
            kernel: Arc::clone(&self.name),
            error,
        }
    }

    fn active_blocks(&self, plan: &LaunchPlan, extent: &Extent) -> Result<i32, LaunchError> {
        let threads = extent.workgroup_threads.cast_signed();
        let shared = plan.shared as usize;
        let calls = self.device.enter()?;
        calls.active_blocks(self.function.0, threads, shared)
    }

    pub(crate) fn signature(&self) -> &Signature {
        &self.signature
    }

    #[inline]
    pub(crate) fn shared_signature(&self) -> &Arc<Signature> {
        &self.signature
    }
}

/// A plan that a kernel and its device were found to bear. What is left to check of each launch is whose stream and whose arguments it gets.
#[derive(Clone)]
pub struct Launch {
    raw: Raw,
    plan: LaunchPlan,
    // Both are the kernel's: one step nearer.
    device: Arc<Device>,
    signature: Arc<Signature>,
    kernel: Arc<Kernel>,
}

impl fmt::Debug for Launch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a launch of {:?}", self.plan)
    }
}

impl Launch {
    pub fn plan(&self) -> &LaunchPlan {
        &self.plan
    }

    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.kernel
    }

    /// Gives the device this work.
    ///
    /// # Errors
    /// `ForeignStream` and `Arguments` where the stream is another device's or the arguments another kernel's, `Driver` where the driver refuses.
    #[inline]
    pub fn enqueue(&self, stream: &Stream, arguments: &Arguments<'_>) -> Result<(), LaunchError> {
        self.give(stream.device(), stream.handle(), arguments)?;
        self.device.counters().launches.count();
        Ok(())
    }

    /// Writes this work down.
    ///
    /// # Errors
    /// As [`Launch::enqueue`].
    pub fn record(
        &self,
        capture: &mut Capture,
        arguments: &Arguments<'_>,
    ) -> Result<(), LaunchError> {
        let stream = capture.stream();
        self.give(stream.device(), stream.handle(), arguments)?;
        capture.keep(&self.kernel);
        self.device.counters().recorded.count();
        Ok(())
    }

    #[inline]
    fn give(
        &self,
        device: &Arc<Device>,
        stream: CUstream,
        arguments: &Arguments<'_>,
    ) -> Result<(), LaunchError> {
        if !Arc::ptr_eq(device, &self.device) {
            return Err(LaunchError::ForeignStream);
        }
        if !arguments.are_of(&self.signature) {
            return Err(ArgumentError::OtherKernel.into());
        }
        match self.device.enter()?.launch(&self.raw, stream, arguments) {
            CUresult::SUCCESS => Ok(()),
            code => Err(self.failure(code)),
        }
    }

    #[cold]
    fn failure(&self, code: CUresult) -> LaunchError {
        LaunchError::Driver {
            kernel: Arc::clone(&self.kernel.name),
            launcher: self.raw.launcher,
            code,
            grid: self.plan.grid,
            workgroup: self.plan.workgroup,
            element_count: self.plan.element_count,
            target: self.device.limits().target,
        }
    }
}
