//! Cooperative launches under, at and over what a device holds at once.

use abi::cuda::CUresult;
use harness::{cases, ensure, ensure_eq, fail};
use launch::residency::Check;
use launch::{Buffer, Diagnosis, LaunchError, LaunchPlan, PlanError, Sides, kernels};

use super::Bench;
use crate::ffi::cuda::Cuda;
use crate::ffi::cuda::odd::{By, Odd};
use crate::ffi::launch::kernel;

const TOO_LARGE: CUresult = CUresult::ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
/// What the memory holds before a kernel writes to it.
const UNSEEN: u32 = 0xa5a5_a5a5;

fn plan(blocks: u64, threads: u32, shared: u32) -> LaunchPlan {
    let sides = Sides([blocks as u32, 1, 1]);
    LaunchPlan::new(sides, Sides([threads, 1, 1]))
        .sharing(shared)
        .cooperative()
}

fn diagnosis(answer: Result<launch::Launch, LaunchError>) -> Option<Diagnosis> {
    match answer {
        Err(LaunchError::Plan {
            error: PlanError::NotResident(diagnosis),
            ..
        }) => Some(*diagnosis),
        _ => None,
    }
}

cases! {
    /// A cooperative launch of as many workgroups as the device holds is launched, and one of one more is refused, by the boundary with what the
    /// device holds and by the driver without; for small and large workgroups, and such that want shared memory.
    a_cooperative_launch_ends_where_the_device_is_full {
        entry_points: ["cuLaunchCooperativeKernel", "cuOccupancyMaxActiveBlocksPerMultiprocessor"], budget: "0=4GiB",
    } (_session) {
        let (mut bench, cuda) = (Bench::open()?, Cuda::open()?);
        let idle = bench.idle()?;
        for (threads, shared) in [(1, 0), (64, 0), (1024, 0), (32, 40_000)] {
            let holds = idle.resident_blocks(&plan(1, threads, shared))?;
            ensure!(holds > 0, "nothing of {threads} threads is resident");
            for blocks in [1, holds - 1, holds] {
                let launch = idle.validate(&plan(blocks, threads, shared))?;
                let arguments = bench.staging.begin(&idle)?.put(0_u64).finish()?;
                launch.enqueue(&bench.stream, &arguments)?;
            }
            let beyond = plan(holds + 1, threads, shared);
            let Some(told) = diagnosis(idle.validate(&beyond)) else {
                fail!("{} workgroups of {threads} on a device that holds {holds}", holds + 1)
            };
            let device = bench.device.limits();
            ensure_eq!((told.blocks, told.shared), (holds + 1, shared), "the plan in the diagnosis");
            ensure_eq!((told.target, told.multiprocessors), (device.target, device.multiprocessors), "the device in it");
            match told.check {
                Check::Occupancy { active, holds: found } => {
                    ensure_eq!(found, holds, "what the device holds");
                    ensure_eq!(active as u64 * u64::from(device.multiprocessors), holds, "by its multiprocessors");
                }
                Check::Threads { holds: found } => {
                    ensure!(told.threads > found, "{told}");
                    ensure_eq!(found / u64::from(threads), holds, "what the device holds in threads");
                }
            }
            let odd = Odd { grid: beyond.grid.0, workgroup: beyond.workgroup.0, shared, ..Odd::of(idle.handle(), bench.stream.handle()) };
            ensure_eq!(cuda.launch_oddly(By::Cooperative, &odd), TOO_LARGE, "the driver's answer to {odd:?}");
        }
        bench.stream.synchronize()?;
        Ok(())
    }

    /// More threads than a device holds are refused without asking its driver for an occupancy, in one line whose keys are always the same.
    a_residency_refusal_is_one_line {
        entry_points: ["cuLaunchCooperativeKernel"], budget: "0=4GiB",
    } (_session) {
        let (mut bench, cuda) = (Bench::open()?, Cuda::open()?);
        let idle = bench.idle()?;
        let device = *bench.device.limits();
        let holds = u64::from(device.multiprocessors) * u64::from(device.multiprocessor_threads);
        let beyond = plan(holds / 1024 + 1, 1024, 0);
        let Some(told) = diagnosis(idle.validate(&beyond)) else {
            fail!("{beyond:?} on a device that holds {holds} threads")
        };
        ensure_eq!(told.check, Check::Threads { holds }, "the check");
        let line = told.to_string();
        let keys: Vec<&str> = line.split('|').map(|pair| pair.split('=').next().unwrap_or_default()).collect();
        let promised = [
            "launch-residency-v1", "check", "target", "multiprocessors", "multiprocessor_threads", "active_blocks", "holds", "grid",
            "workgroup", "blocks", "threads", "shared",
        ];
        ensure_eq!(keys, promised, "the keys of {line}");
        ensure!(!line.contains('\n'), "{line}");
        let odd = Odd { grid: beyond.grid.0, workgroup: beyond.workgroup.0, ..Odd::of(idle.handle(), bench.stream.handle()) };
        ensure_eq!(cuda.launch_oddly(By::Cooperative, &odd), TOO_LARGE, "the driver");
        Ok(())
    }

    /// Workgroups that wait for each other all arrive when they are as many as the device holds: under a memory budget too. (A mock computes nothing, and
    /// leaves the memory as it is.)
    workgroups_that_wait_for_each_other_meet {
        entry_points: ["cuLaunchCooperativeKernel"], budget: "0=4GiB",
    } (session) {
        let mut bench = Bench::open()?;
        let meet = kernel(&bench.module(kernels::MEET)?, "meet", kernels::MEET_PARAMETERS)?;
        let blocks = meet.resident_blocks(&plan(1, 128, 0))?;
        let arrived = Buffer::holding(&bench.device, &[0])?;
        let seen = Buffer::holding(&bench.device, &vec![UNSEEN; blocks as usize])?;
        let launch = meet.validate(&plan(blocks, 128, 0))?;
        let filling = bench.staging.begin(&meet)?.put(arrived.address()).put(seen.address());
        launch.enqueue(&bench.stream, &filling.put(blocks as u32).finish()?)?;
        bench.stream.synchronize()?;
        let (count, each) = match session.is_real() {
            true => (blocks as u32, blocks as u32),
            false => (0, UNSEEN),
        };
        ensure_eq!(arrived.read()?, vec![count], "workgroups that arrived");
        let strays = seen.read()?.into_iter().filter(|seen| *seen != each).count();
        ensure_eq!(strays, 0, "workgroups that saw another number than {each}");
        Ok(())
    }
}
