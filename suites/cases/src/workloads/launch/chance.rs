//! Geometries made by chance, up to u32::MAX in every side: whatever the boundary refuses the driver refuses, and what it lets through is launched.

use abi::cuda::CUresult;
use harness::{cases, ensure, ensure_eq};
use launch::{LaunchError, LaunchPlan, PlanError, Sides};

use super::Bench;
use crate::ffi::cuda::Cuda;
use crate::ffi::cuda::odd::{By, Odd};

/// Launches that are tried.
const TRIED: u32 = 3_000;
/// Threads of one that is really launched: a card is not kept busy.
const SMALL: u64 = 1 << 20;

/// Numbers that are the same in each run (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Small, near an edge, or anything.
    fn side(&mut self) -> u32 {
        const EDGES: [u32; 12] = [
            0,
            32,
            64,
            65,
            1024,
            1025,
            65_535,
            65_536,
            i32::MAX as u32,
            1 << 31,
            u32::MAX - 1,
            u32::MAX,
        ];
        let number = self.next();
        match number % 8 {
            0 => EDGES[(number >> 8) as usize % EDGES.len()],
            1 => (number >> 32) as u32,
            2 => (number >> 8) as u32 % 2_000,
            _ => 1 + (number >> 8) as u32 % 8,
        }
    }

    fn sides(&mut self) -> Sides {
        Sides([self.side(), self.side(), self.side()])
    }
}

cases! {
    /// Thousands of geometries, shared memories and kinds of launches: the boundary and the driver refuse the same ones.
    the_boundary_and_the_driver_refuse_the_same_geometries {
        entry_points: ["cuLaunchKernel", "cuLaunchCooperativeKernel"], budget: "0=4GiB",
    } (_session) {
        let (mut bench, cuda) = (Bench::open()?, Cuda::open()?);
        let idle = bench.idle()?;
        let (mut chance, mut refused, mut launched) = (Chance(6), 0, 0);
        for _ in 0..TRIED {
            let plan = LaunchPlan::new(chance.sides(), chance.sides());
            let plan = match chance.next() % 4 {
                0 => plan.sharing(chance.side()),
                1 => plan.cooperative(),
                2 => plan.sharing(chance.side()).cooperative(),
                _ => plan,
            };
            match idle.validate(&plan) {
                // The driver would take it, and be at it for years.
                Err(LaunchError::Plan { error: PlanError::ThreadsOverflow { .. }, .. }) => {}
                Err(LaunchError::Plan { error, .. }) => {
                    let by = match plan.cooperation {
                        launch::Cooperation::None => By::Kernel,
                        launch::Cooperation::Grid => By::Cooperative,
                    };
                    let odd = Odd {
                        grid: plan.grid.0,
                        workgroup: plan.workgroup.0,
                        shared: plan.shared,
                        ..Odd::of(idle.handle(), bench.stream.handle())
                    };
                    ensure!(cuda.launch_oddly(by, &odd) != CUresult::SUCCESS, "the driver takes {odd:?}: {error}");
                    refused += 1;
                }
                Err(error) => return Err(error.into()),
                Ok(launch) if plan.element_count <= SMALL => {
                    let arguments = bench.staging.begin(&idle)?.put(0_u64).finish()?;
                    launch.enqueue(&bench.stream, &arguments)?;
                    launched += 1;
                }
                Ok(_) => {}
            }
        }
        ensure!(refused > TRIED / 4 && launched > TRIED / 50, "{refused} refused and {launched} launched of {TRIED}");
        bench.stream.synchronize()?;
        ensure_eq!(bench.device.counts().launches, u64::from(launched), "launches that were counted");
        Ok(())
    }
}
