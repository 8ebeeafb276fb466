//! Every odd input, at the boundary and at the driver: what a card answered (the oracle), what this driver answers, and what the boundary says.

use abi::cuda::{CUresult, CUstream};
use harness::{Failure, cases, ensure, ensure_eq, fail};
use launch::plan::{Axis, Geometry, Width};
use launch::{ArgumentError, Kernel, LaunchError, LaunchPlan, PlanError, Sides};

use super::oracle::{Row, rows};
use super::{Bench, IDLE};
use crate::ffi::cuda::Cuda;
use crate::ffi::cuda::odd::{By, Odd, Parameters};
use crate::ffi::launch::{declared, default_stream, kernel, null_function, table};

const OK: CUresult = CUresult::SUCCESS;
const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
/// `CU_STREAM_LEGACY`.
const LEGACY: usize = 1;

/// Whether a refusal is the one that this argument deserves.
fn deserved(row: Row, error: &LaunchError) -> bool {
    let LaunchError::Plan { error, .. } = error else {
        return false;
    };
    let side = |geometry| match error {
        PlanError::EmptySide { geometry: seen, .. } => row.value == 0 && *seen == geometry,
        PlanError::SideBeyondDevice {
            geometry: seen,
            side,
            most,
            ..
        } => *seen == geometry && *side == row.value && *most < row.value,
        // Within its side, beyond the whole.
        PlanError::NotResident(_) => row.code == CUresult::ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
        _ => false,
    };
    match row.argument {
        1..=3 => side(Geometry::Grid),
        4..=6 => side(Geometry::Workgroup),
        7 => {
            matches!(error, PlanError::SharedMemory { asked, most } if *asked == row.value && asked > most)
        }
        _ => false,
    }
}

/// Puts each row's argument into a launch of one thread, and asks both.
fn compare(by: By, function: &str) -> Result<(), Failure> {
    let (mut bench, cuda) = (Bench::open()?, Cuda::open()?);
    let idle = bench.idle()?;
    for row in rows(function)? {
        let mut odd = Odd::of(idle.handle(), bench.stream.handle());
        match row.argument {
            1..=3 => odd.grid[row.argument - 1] = row.value,
            4..=6 => odd.workgroup[row.argument - 4] = row.value,
            7 => odd.shared = row.value,
            // Functions and streams are tried by name.
            _ => continue,
        }
        ensure_eq!(
            cuda.launch_oddly(by, &odd),
            row.code,
            "the driver's answer to {row:?}"
        );
        let plan = LaunchPlan::new(Sides(odd.grid), Sides(odd.workgroup)).sharing(odd.shared);
        let plan = match by {
            By::Cooperative => plan.cooperative(),
            _ => plan,
        };
        match idle.validate(&plan) {
            Ok(launch) => {
                ensure_eq!(row.code, OK, "what the boundary lets through, {row:?}");
                let arguments = bench.staging.begin(&idle)?.put(0_u64).finish()?;
                launch.enqueue(&bench.stream, &arguments)?;
            }
            Err(error) => {
                ensure!(
                    row.code != OK,
                    "the boundary refuses what a driver takes, {row:?}: {error}"
                );
                ensure!(deserved(row, &error), "{row:?} is refused by {error:?}");
            }
        }
    }
    Ok(())
}

fn plan_error(kernel: &std::sync::Arc<Kernel>, plan: LaunchPlan) -> Result<PlanError, Failure> {
    match kernel.validate(&plan) {
        Err(LaunchError::Plan { error, .. }) => Ok(error),
        other => fail!("{plan:?} is answered by {other:?}"),
    }
}

cases! {
    /// What a driver says of each odd geometry of a launch is what a card said, and the boundary refuses just that, before, by what is odd about it.
    the_boundary_refuses_the_launches_that_the_driver_refuses {
        entry_points: ["cuLaunchKernel"], budget: "0=4GiB",
    } (_session) {
        compare(By::Kernel, "cuLaunchKernel")
    }

    /// Nor do cooperative launches differ: too much shared memory is a matter of residency to the driver alone.
    the_boundary_refuses_the_cooperative_launches_that_the_driver_refuses {
        entry_points: ["cuLaunchCooperativeKernel"], budget: "0=4GiB",
    } (_session) {
        compare(By::Cooperative, "cuLaunchCooperativeKernel")
    }

    /// A driver judges a launch by a configuration as it judges one by arguments.
    a_launch_by_configuration_meets_the_same_edges {
        entry_points: ["cuLaunchKernelEx"], needs: ["cuLaunchKernelEx"], budget: "0=4GiB",
    } (_session) {
        let (mut bench, cuda) = (Bench::open()?, Cuda::open()?);
        let idle = bench.idle()?;
        let sound = Odd::of(idle.handle(), bench.stream.handle());
        ensure_eq!(cuda.launch_oddly(By::KernelEx, &sound), OK, "one thread");
        // The oracle's "grid 0", "block 0", "block 1025", "shared".
        for (grid, workgroup, shared) in [(0, 1, 0), (1, 0, 0), (1, 1025, 0), (1, 1, 1 << 20)] {
            let odd = Odd { grid: [grid, 1, 1], workgroup: [workgroup, 1, 1], shared, ..sound };
            ensure_eq!(cuda.launch_oddly(By::KernelEx, &odd), INVALID, "the driver's answer to {odd:?}");
            let plan = LaunchPlan::new(Sides(odd.grid), Sides(odd.workgroup)).sharing(shared);
            ensure!(idle.validate(&plan).is_err(), "the boundary lets {plan:?} through");
        }
        Ok(())
    }

    /// Products that 64 or 32 bits do not hold are told apart from sides that are too long; the driver knows only that they are invalid.
    what_cannot_be_counted_is_refused_as_such {
        entry_points: ["cuLaunchKernel", "cuLaunchCooperativeKernel"], budget: "0=4GiB",
    } (_session) {
        let (mut bench, cuda) = (Bench::open()?, Cuda::open()?);
        let idle = bench.idle()?;
        let (one, most) = (Sides::ONE, Sides([u32::MAX; 3]));
        let wide = |threads, width| PlanError::WorkgroupWidth { threads, width };
        let empty = |geometry, axis| PlanError::EmptySide { geometry, axis };
        let refused = [
            (most, one, PlanError::BlocksOverflow { grid: most }),
            (one, most, PlanError::WorkgroupOverflow { workgroup: most }),
            (one, Sides([1 << 16, 1 << 16, 1]), wide(1 << 32, Width::Unsigned)),
            (one, Sides([1 << 16, 1 << 15, 1]), wide(1 << 31, Width::Signed)),
            (Sides([0, u32::MAX, u32::MAX]), most, empty(Geometry::Grid, Axis::X)),
            (one, Sides([u32::MAX, u32::MAX, 0]), empty(Geometry::Workgroup, Axis::Z)),
        ];
        for (grid, workgroup, promised) in refused {
            let odd = Odd { grid: grid.0, workgroup: workgroup.0, ..Odd::of(idle.handle(), bench.stream.handle()) };
            for by in [By::Kernel, By::Cooperative] {
                ensure_eq!(cuda.launch_oddly(by, &odd), INVALID, "the driver's answer to {odd:?}");
            }
            ensure_eq!(plan_error(&idle, LaunchPlan::new(grid, workgroup))?, promised, "the boundary's");
        }
        // The driver takes it, and would be at it for years: it is not asked.
        let (grid, workgroup) = (Sides([i32::MAX as u32, 65_535, 65_535]), Sides([1024, 1, 1]));
        let error = plan_error(&idle, LaunchPlan::new(grid, workgroup))?;
        ensure_eq!(error, PlanError::ThreadsOverflow { grid, workgroup }, "more threads than 64 bits count");
        Ok(())
    }

    /// A NULL function is refused at once, and by the driver at its launch.
    a_null_function_is_refused_by_both {
        entry_points: ["cuLaunchKernel", "cuLaunchCooperativeKernel"], budget: "0=4GiB",
    } (_session) {
        let (bench, cuda) = (Bench::open()?, Cuda::open()?);
        ensure_eq!(null_function(&bench.device).err(), Some(LaunchError::NullFunction), "the boundary");
        let odd = Odd::of(abi::cuda::CUfunction::NULL, bench.stream.handle());
        for by in [By::Kernel, By::Cooperative] {
            ensure_eq!(cuda.launch_oddly(by, &odd), CUresult::ERROR_INVALID_HANDLE, "the driver, {by:?}");
        }
        Ok(())
    }

    /// The driver launches into the NULL and the legacy stream, and the boundary does not: it wants to be told which stream is meant.
    the_default_streams_are_the_drivers_alone {
        entry_points: ["cuLaunchKernel"], budget: "0=4GiB",
    } (_session) {
        let (mut bench, cuda) = (Bench::open()?, Cuda::open()?);
        let idle = bench.idle()?;
        ensure_eq!(default_stream(&bench.device, 0).err(), Some(LaunchError::NullStream), "the boundary");
        ensure_eq!(default_stream(&bench.device, LEGACY).err(), Some(LaunchError::LegacyStream), "the boundary");
        for row in rows("cuLaunchKernel")?.into_iter().filter(|row| row.argument == 8) {
            let stream = CUstream(std::ptr::without_provenance_mut(row.value as usize));
            let answer = cuda.launch_oddly(By::Kernel, &Odd::of(idle.handle(), stream));
            ensure_eq!(answer, row.code, "the driver's answer to stream {}", row.value);
        }
        // The thread's own, by its name, waits for no other.
        let own = default_stream(&bench.device, 2)?;
        let arguments = bench.staging.begin(&idle)?.put(0_u64).finish()?;
        idle.validate(&LaunchPlan::over(1, 1)?)?.enqueue(&own, &arguments)?;
        own.synchronize()?;
        Ok(())
    }

    /// No table, an empty one and one with a NULL in it are refused; the driver names none of them. Arguments that are missing, too many or of
    /// another size, and another kernel's, could not be told by any driver.
    arguments_that_are_not_the_kernels_are_refused {
        entry_points: ["cuLaunchKernel"], budget: "0=4GiB",
    } (session) {
        let (mut bench, cuda) = (Bench::open()?, Cuda::open()?);
        let idle = bench.idle()?;
        for parameters in [Parameters::NullSlot, Parameters::NoTable] {
            let odd = Odd { parameters, ..Odd::of(idle.handle(), bench.stream.handle()) };
            ensure_eq!(cuda.launch_oddly(By::Kernel, &odd), INVALID, "the driver's answer to {parameters:?}");
        }
        let (word, mut slots) = (0, Vec::new());
        let refused = |words: &[Option<&u64>], slots: &mut Vec<_>| table(&idle, words, slots).err();
        ensure_eq!(refused(&[], &mut slots), Some(ArgumentError::Empty), "an empty table");
        let null = Some(ArgumentError::NullSlot { index: 1 });
        ensure_eq!(refused(&[Some(&word), None], &mut slots), null, "NULL in the second place");
        let count = |given| Some(ArgumentError::Count { given, declared: 1 });
        ensure_eq!(refused(&[Some(&word); 2], &mut slots), count(2), "a table of two");

        let staging = &mut bench.staging;
        ensure_eq!(staging.begin(&idle)?.finish().err(), Some(ArgumentError::Empty), "nothing staged");
        ensure_eq!(staging.begin(&idle)?.put(0_u64).put(0_u64).finish().err(), count(2), "two staged");
        let size = Some(ArgumentError::Size { index: 0, given: 4, declared: 8 });
        ensure_eq!(staging.begin(&idle)?.put(0_u32).finish().err(), size, "four bytes for eight");
        ensure_eq!(staging.reserve(usize::MAX).err(), Some(ArgumentError::CountOverflow { arguments: usize::MAX }), "room");
        let arguments = 1 << 58;
        ensure_eq!(staging.reserve(arguments).err(), Some(ArgumentError::Reservation { arguments }), "room");

        let launch = idle.validate(&LaunchPlan::over(1, 1)?)?;
        let module = bench.modules.load(IDLE)?;
        let other = kernel(&module, "idle", &[8])?;
        let theirs = bench.staging.begin(&other)?.put(0_u64).finish()?;
        let refused = launch.enqueue(&bench.stream, &theirs).err();
        ensure_eq!(refused, Some(ArgumentError::OtherKernel.into()), "another kernel's arguments");
        ensure_eq!(bench.device.counts().launches, 0, "launches of what was refused");
        if session.exports("cuFuncGetParamInfo")? {
            let told = declared(&module, "idle", &[8, 4]).err();
            let promised = LaunchError::Signature { kernel: "idle".into(), index: 1, declared: Some(4), told: None };
            ensure_eq!(told, Some(promised), "a parameter that the kernel lacks");
        }
        Ok(())
    }
}
