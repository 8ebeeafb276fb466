//! A kernel, and a launch of it that was found valid.

use std::fmt;
use std::rc::Rc;

use abi::cuda::{CUfunction, CUresult, CUstream};

use crate::boundary::Raw;
use crate::device::Device;
use crate::error::{ArgumentError, LaunchError, Launcher};
use crate::graph::Capture;
use crate::limits::KernelLimits;
use crate::modules::Module;
use crate::plan::{Cooperation, Extent, LaunchPlan};
use crate::residency;
use crate::staging::{Arguments, Signature};
use crate::stream::Stream;

/// A function of a device's context, with what its driver says of it. It keeps its module loaded.
pub struct Kernel {
    device: Rc<Device>,
    function: CUfunction,
    signature: Rc<Signature>,
    limits: KernelLimits,
    _module: Option<Rc<Module>>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "a kernel of {:?}, {:?}", self.signature.0, self.limits)
    }
}

impl Kernel {
    pub(crate) fn of(
        device: &Rc<Device>,
        function: CUfunction,
        parameters: &[usize],
        module: Option<&Rc<Module>>,
    ) -> Result<Rc<Self>, LaunchError> {
        if function.is_null() {
            return Err(LaunchError::NullFunction);
        }
        let calls = device.calls();
        if calls.knows_parameters() {
            for index in 0..=parameters.len() {
                let (declared, told) = (
                    parameters.get(index).copied(),
                    calls.parameter(function, index)?,
                );
                if declared != told {
                    return Err(LaunchError::Signature {
                        index,
                        declared,
                        told,
                    });
                }
            }
        }
        Ok(Rc::new(Self {
            function,
            signature: Rc::new(Signature(parameters.into())),
            limits: KernelLimits::read(|attribute| calls.function_attribute(function, attribute))?,
            device: Rc::clone(device),
            _module: module.cloned(),
        }))
    }

    pub fn limits(&self) -> &KernelLimits {
        &self.limits
    }

    /// The driver's handle, for whoever calls it past the boundary.
    pub fn handle(&self) -> CUfunction {
        self.function
    }

    /// Holds a plan against the device and this kernel, once. The driver is asked only about the residency of a cooperative launch.
    pub fn validate(self: &Rc<Self>, plan: &LaunchPlan) -> Result<Launch, LaunchError> {
        let extent = plan.extent(self.device.limits(), &self.limits)?;
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
            device: Rc::clone(&self.device),
            signature: Rc::clone(&self.signature),
            kernel: Rc::clone(self),
        })
    }

    /// Workgroups like the plan's that the device holds at once, as its driver counts them.
    pub fn resident_blocks(&self, plan: &LaunchPlan) -> Result<u64, LaunchError> {
        let extent = plan.extent(self.device.limits(), &self.limits)?;
        let active = self.active_blocks(plan, &extent)?;
        let multiprocessors = self.device.limits().multiprocessors.into();
        Ok(residency::capacity(active, multiprocessors)?)
    }

    fn check_residency(&self, plan: &LaunchPlan, extent: &Extent) -> Result<(), LaunchError> {
        residency::by_threads(plan, extent, self.device.limits())?;
        let active = self.active_blocks(plan, extent)?;
        Ok(residency::by_occupancy(
            plan,
            extent,
            self.device.limits(),
            active,
        )?)
    }

    fn active_blocks(&self, plan: &LaunchPlan, extent: &Extent) -> Result<i32, LaunchError> {
        let threads = extent.workgroup_threads.cast_signed();
        let shared = plan.shared as usize;
        self.device
            .calls()
            .active_blocks(self.function, threads, shared)
    }

    pub(crate) fn signature(&self) -> &Signature {
        &self.signature
    }

    #[inline]
    pub(crate) fn shared_signature(&self) -> &Rc<Signature> {
        &self.signature
    }
}

/// A plan that a kernel and its device were found to bear. What is left to check of each launch is whose stream and whose arguments it gets.
#[derive(Clone)]
pub struct Launch {
    raw: Raw,
    plan: LaunchPlan,
    // Both are the kernel's: one step nearer.
    device: Rc<Device>,
    signature: Rc<Signature>,
    kernel: Rc<Kernel>,
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

    pub fn kernel(&self) -> &Rc<Kernel> {
        &self.kernel
    }

    /// Gives the device this work.
    #[inline]
    pub fn enqueue(&self, stream: &Stream, arguments: &Arguments<'_>) -> Result<(), LaunchError> {
        self.give(stream.device(), stream.handle(), arguments)?;
        self.device.counters().launches.count();
        Ok(())
    }

    /// Writes this work down.
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
        device: &Rc<Device>,
        stream: CUstream,
        arguments: &Arguments<'_>,
    ) -> Result<(), LaunchError> {
        if !Rc::ptr_eq(device, &self.device) {
            return Err(LaunchError::ForeignStream);
        }
        if !arguments.are_of(&self.signature) {
            return Err(ArgumentError::OtherKernel.into());
        }
        match self.device.calls().launch(&self.raw, stream, arguments) {
            CUresult::SUCCESS => Ok(()),
            code => Err(self.failure(code)),
        }
    }

    #[cold]
    fn failure(&self, code: CUresult) -> LaunchError {
        LaunchError::Driver {
            launcher: self.raw.launcher,
            code,
            grid: self.plan.grid,
            workgroup: self.plan.workgroup,
            element_count: self.plan.element_count,
            target: self.device.limits().target,
        }
    }
}
