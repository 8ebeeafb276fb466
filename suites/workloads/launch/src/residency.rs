//! Whether all workgroups of a cooperative launch are on the device at once. One that is not would wait for the others for ever, so a driver
//! refuses it with CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE and says no more; here the refusal carries both sides of the comparison.

use std::fmt;

use crate::error::PlanError;
use crate::limits::{Limits, TargetSm};
use crate::plan::{Extent, LaunchPlan, Sides};

/// Workgroups that a device holds at once, by what the driver counts for one of its multiprocessors.
pub fn capacity(active: i32, multiprocessors: u64) -> Result<u64, PlanError> {
    let active = u64::try_from(active).map_err(|_| PlanError::NegativeActiveBlocks { active })?;
    active
        .checked_mul(multiprocessors)
        .ok_or(PlanError::ResidencyOverflow {
            active,
            multiprocessors,
        })
}

/// Refuses what has more threads than the device holds; needs no driver.
pub fn by_threads(plan: &LaunchPlan, extent: &Extent, device: &Limits) -> Result<(), PlanError> {
    let holds = u64::from(device.multiprocessors) * u64::from(device.multiprocessor_threads);
    if extent.threads <= holds {
        return Ok(());
    }
    Err(refusal(plan, extent, device, Check::Threads { holds }))
}

/// Refuses what has more workgroups than the device holds of this kernel, of this size, with this shared memory.
pub fn by_occupancy(
    plan: &LaunchPlan,
    extent: &Extent,
    device: &Limits,
    active: i32,
) -> Result<(), PlanError> {
    let holds = capacity(active, device.multiprocessors.into())?;
    if extent.blocks <= holds {
        return Ok(());
    }
    Err(refusal(
        plan,
        extent,
        device,
        Check::Occupancy { active, holds },
    ))
}

fn refusal(plan: &LaunchPlan, extent: &Extent, device: &Limits, check: Check) -> PlanError {
    PlanError::NotResident(Box::new(Diagnosis {
        check,
        target: device.target,
        multiprocessors: device.multiprocessors,
        multiprocessor_threads: device.multiprocessor_threads,
        grid: plan.grid,
        workgroup: plan.workgroup,
        blocks: extent.blocks,
        threads: extent.threads,
        shared: plan.shared,
    }))
}

/// By what a launch was found too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The device holds so many threads.
    Threads { holds: u64 },
    /// A multiprocessor holds `active` of these workgroups, the device so many.
    Occupancy { active: i32, holds: u64 },
}

/// The device's capability against the plan. As text it is one line, `launch-residency-v1|key=value|…`: its keys, their order and what they mean
/// change only with the number in its name, so that logs can be searched for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnosis {
    pub check: Check,
    pub target: TargetSm,
    pub multiprocessors: u32,
    pub multiprocessor_threads: u32,
    pub grid: Sides,
    pub workgroup: Sides,
    pub blocks: u64,
    pub threads: u64,
    pub shared: u32,
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (check, active, holds) = match self.check {
            Check::Threads { holds } => ("threads", String::from("unasked"), holds),
            Check::Occupancy { active, holds } => ("occupancy", active.to_string(), holds),
        };
        write!(
            out,
            "launch-residency-v1|check={check}|target={}|multiprocessors={}|multiprocessor_threads={}|active_blocks={active}|holds={holds}|grid={}|workgroup={}|blocks={}|threads={}|shared={}",
            self.target,
            self.multiprocessors,
            self.multiprocessor_threads,
            self.grid,
            self.workgroup,
            self.blocks,
            self.threads,
            self.shared
        )
    }
}
