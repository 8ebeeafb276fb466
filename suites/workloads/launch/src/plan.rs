//! What is to be launched, and whether a device and a kernel can bear it. Pure: what is true of a plan is decided here, without a driver.

use std::fmt;

use crate::error::PlanError;
use crate::limits::{KernelLimits, Limits};

/// Three sides: workgroups of a grid, or threads of a workgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sides(pub [u32; 3]);

impl Sides {
    pub const ONE: Sides = Sides([1; 3]);

    /// All of them multiplied, where 64 bits count that.
    pub fn product(self) -> Option<u64> {
        let [x, y, z] = self.0.map(u64::from);
        // Two sides always fit.
        (x * y).checked_mul(z)
    }
}

impl fmt::Display for Sides {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.0;
        write!(out, "{x}x{y}x{z}")
    }
}

/// Which three sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Geometry {
    Grid,
    Workgroup,
}

impl fmt::Display for Geometry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Grid => "grid",
            Self::Workgroup => "workgroup",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    X,
    Y,
    Z,
}

const AXES: [Axis; 3] = [Axis::X, Axis::Y, Axis::Z];

impl fmt::Display for Axis {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::X => "x",
            Self::Y => "y",
            Self::Z => "z",
        })
    }
}

/// In what a driver counts a workgroup's threads: a launch's sides are unsigned, an occupancy's block is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    Unsigned,
    Signed,
}

impl fmt::Display for Width {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Unsigned => "32 unsigned",
            Self::Signed => "32 signed",
        })
    }
}

/// Whether a launch's workgroups may wait for each other, and must therefore be on the device all at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cooperation {
    None,
    Grid,
}

/// What is to be launched. Any numbers may stand in it: it is nothing but a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchPlan {
    /// In workgroups.
    pub grid: Sides,
    /// In threads.
    pub workgroup: Sides,
    /// Bytes of dynamic shared memory for each workgroup.
    pub shared: u32,
    pub cooperation: Cooperation,
    /// What the caller works on; errors name it.
    pub element_count: u64,
}

/// What a plan comes to, once it is known to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Workgroups.
    pub blocks: u64,
    /// Threads of a workgroup: fits `i32`.
    pub workgroup_threads: u32,
    /// Threads of all workgroups.
    pub threads: u64,
}

impl LaunchPlan {
    /// Sides as they are; elements are threads, as far as these can be counted.
    pub fn new(grid: Sides, workgroup: Sides) -> Self {
        let threads = grid.product().zip(workgroup.product());
        Self {
            grid,
            workgroup,
            shared: 0,
            cooperation: Cooperation::None,
            element_count: threads.map_or(u64::MAX, |(blocks, each)| blocks.saturating_mul(each)),
        }
    }

    /// A thread for each element, in a row of workgroups of `side` threads.
    pub fn over(element_count: u64, side: u32) -> Result<Self, PlanError> {
        if side == 0 {
            return Err(PlanError::EmptySide {
                geometry: Geometry::Workgroup,
                axis: Axis::X,
            });
        }
        let Ok(blocks) = u32::try_from(element_count.div_ceil(side.into())) else {
            return Err(PlanError::TooManyElements {
                elements: element_count,
                side,
            });
        };
        Ok(Self {
            element_count,
            ..Self::new(Sides([blocks, 1, 1]), Sides([side, 1, 1]))
        })
    }

    pub fn sharing(self, shared: u32) -> Self {
        Self { shared, ..self }
    }

    pub fn cooperative(self) -> Self {
        Self {
            cooperation: Cooperation::Grid,
            ..self
        }
    }

    /// Holds everything but residency against the device and the kernel. What cannot even be counted is said first, whatever the device.
    pub fn extent(&self, device: &Limits, kernel: &KernelLimits) -> Result<Extent, PlanError> {
        filled(Geometry::Grid, self.grid)?;
        filled(Geometry::Workgroup, self.workgroup)?;
        let extent = self.counted()?;
        within(Geometry::Grid, self.grid, device.grid)?;
        within(Geometry::Workgroup, self.workgroup, device.workgroup)?;
        let threads = extent.workgroup_threads;
        if threads > device.workgroup_threads {
            let most = device.workgroup_threads;
            return Err(PlanError::WorkgroupBeyondDevice { threads, most });
        }
        if threads > kernel.workgroup_threads {
            let most = kernel.workgroup_threads;
            return Err(PlanError::WorkgroupBeyondKernel { threads, most });
        }
        if self.shared > kernel.dynamic_shared {
            return Err(PlanError::SharedMemory {
                asked: self.shared,
                most: kernel.dynamic_shared,
            });
        }
        if self.cooperation == Cooperation::Grid && !device.cooperative {
            let target = device.target;
            return Err(PlanError::CooperationUnsupported { target });
        }
        Ok(extent)
    }

    fn counted(&self) -> Result<Extent, PlanError> {
        let (grid, workgroup) = (self.grid, self.workgroup);
        let blocks = grid.product().ok_or(PlanError::BlocksOverflow { grid })?;
        let each = workgroup
            .product()
            .ok_or(PlanError::WorkgroupOverflow { workgroup })?;
        let wide = |width| PlanError::WorkgroupWidth {
            threads: each,
            width,
        };
        let workgroup_threads = u32::try_from(each).map_err(|_| wide(Width::Unsigned))?;
        i32::try_from(workgroup_threads).map_err(|_| wide(Width::Signed))?;
        let threads = blocks
            .checked_mul(each)
            .ok_or(PlanError::ThreadsOverflow { grid, workgroup })?;
        Ok(Extent {
            blocks,
            workgroup_threads,
            threads,
        })
    }
}

fn filled(geometry: Geometry, sides: Sides) -> Result<(), PlanError> {
    let empty = AXES.into_iter().zip(sides.0).find(|(_, side)| *side == 0);
    empty.map_or(Ok(()), |(axis, _)| {
        Err(PlanError::EmptySide { geometry, axis })
    })
}

fn within(geometry: Geometry, sides: Sides, limits: [u32; 3]) -> Result<(), PlanError> {
    for ((axis, side), most) in AXES.into_iter().zip(sides.0).zip(limits) {
        if side > most {
            return Err(PlanError::SideBeyondDevice {
                geometry,
                axis,
                side,
                most,
            });
        }
    }
    Ok(())
}
