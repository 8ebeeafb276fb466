//! What a kernel itself limits: its threads, its shared memory, and what no driver tells beforehand.

use abi::cuda::CUresult;
use harness::{cases, ensure, ensure_eq, fail};
use launch::{LaunchError, LaunchPlan, Launcher, PlanError, Sides};

use super::Bench;
use crate::ffi::cuda::Cuda;
use crate::ffi::cuda::odd::{By, Odd};
use crate::ffi::launch::kernel;

const INVALID: CUresult = CUresult::ERROR_INVALID_VALUE;
/// Shared memory of the second kernel's own.
const OWN: u32 = 40_960;

/// At most 64 threads; much shared memory; exactly 128 threads.
fn text() -> String {
    let entry = |name: &str, how: &str, body: &str| {
        format!(".visible .entry {name}(.param .u64 p) {how}\n{{\n{body}ret;\n}}\n")
    };
    let used = format!(
        ".shared .align 4 .b8 own[{OWN}];\n.reg .b32 %r<2>;\nmov.u32 %r1, %tid.x;\nst.shared.u32 [own], %r1;\n"
    );
    let (few, wide, exact) = (
        entry("few", ".maxntid 64, 1, 1", ""),
        entry("wide", "", &used),
        entry("exact", ".reqntid 128", ""),
    );
    format!(".version 7.0\n.target sm_70\n.address_size 64\n{few}{wide}{exact}")
}

cases! {
    /// A kernel's own bounds, of threads and of shared memory beside its own, are refused by the boundary by the figures that the driver told of it, and by the driver.
    a_kernels_own_bounds_are_refused_by_both {
        entry_points: ["cuLaunchKernel", "cuFuncGetAttribute"], budget: "0=4GiB",
    } (_session) {
        let (mut bench, cuda) = (Bench::open()?, Cuda::open()?);
        let module = bench.module(&text())?;
        let (few, wide) = (kernel(&module, "few", &[8])?, kernel(&module, "wide", &[8])?);
        let rest = 49_152 - OWN;
        let asked = [
            (&few, 64, 0, None),
            (&few, 65, 0, Some(PlanError::WorkgroupBeyondKernel { threads: 65, most: 64 })),
            (&wide, 32, rest, None),
            (&wide, 32, rest + 1, Some(PlanError::SharedMemory { asked: rest + 1, most: rest })),
        ];
        for (kernel, threads, shared, promised) in asked {
            let plan = LaunchPlan::new(Sides::ONE, Sides([threads, 1, 1])).sharing(shared);
            let odd = Odd { workgroup: plan.workgroup.0, shared, ..Odd::of(kernel.handle(), bench.stream.handle()) };
            let code = match promised {
                None => CUresult::SUCCESS,
                Some(_) => INVALID,
            };
            ensure_eq!(cuda.launch_oddly(By::Kernel, &odd), code, "the driver's answer to {odd:?}");
            ensure_eq!(kernel.validate(&plan).err(), promised.map(|error| LaunchError::Plan { kernel: kernel.name().into(), error }), "the boundary's to {plan:?}");
        }
        bench.stream.synchronize()?;
        Ok(())
    }

    /// A workgroup that a kernel requires is told by no attribute: another one passes the boundary, is refused by the driver, and the error names the launch.
    what_only_the_driver_knows_is_told_with_the_launch {
        entry_points: ["cuLaunchKernel"], budget: "0=4GiB",
    } (_session) {
        let mut bench = Bench::open()?;
        let exact = kernel(&bench.module(&text())?, "exact", &[8])?;
        let (plan, other) = (LaunchPlan::over(1_000, 128)?, LaunchPlan::over(1_000, 64)?);
        let (sound, odd) = (exact.validate(&plan)?, exact.validate(&other)?);
        let arguments = bench.staging.begin(&exact)?.put(0_u64).finish()?;
        let Err(LaunchError::Driver { kernel, launcher, code, grid, workgroup, element_count, target }) = odd.enqueue(&bench.stream, &arguments) else {
            fail!("the driver takes a workgroup that its kernel does not")
        };
        ensure!(code != CUresult::SUCCESS, "a refusal by success");
        ensure_eq!(&*kernel, "exact", "the kernel in the error");
        let promised = (Launcher::Kernel, other.grid, other.workgroup, 1_000, bench.device.limits().target);
        ensure_eq!((launcher, grid, workgroup, element_count, target), promised, "the launch in the error");
        sound.enqueue(&bench.stream, &arguments)?;
        bench.stream.synchronize()?;
        ensure_eq!(bench.device.counts().launches, 1, "launches that were counted of two");
        Ok(())
    }
}
