//! What kernels compute, and what is counted of them.

use abi::cuda::CUresult;
use harness::{Failure, cases, ensure_eq};
use launch::{Buffer, Counts, Kernel, LaunchError, LaunchPlan, Launcher, Sides, kernels};

use super::Bench;
use crate::ffi::launch::kernel;

/// What the memory of a sum holds before.
pub const UNTOUCHED: u32 = 0xa5a5_a5a5;

/// Two arrays to be added, and where their sum goes.
pub struct Sum {
    pub kernel: std::sync::Arc<Kernel>,
    pub plan: LaunchPlan,
    pub first: Buffer,
    pub second: Buffer,
    pub out: Buffer,
    elements: u32,
}

impl Sum {
    /// No two elements, and no two sums near each other, are alike.
    pub fn of(bench: &mut Bench, elements: u32) -> Result<Self, Failure> {
        let module = bench.module(kernels::VECTOR_ADD)?;
        let words =
            |factor: u32| -> Vec<u32> { (0..elements).map(|at| at.wrapping_mul(factor)).collect() };
        Ok(Self {
            kernel: kernel(&module, "vector_add", kernels::VECTOR_ADD_PARAMETERS)?,
            plan: LaunchPlan::over(elements.into(), 256)?,
            first: Buffer::holding(&bench.device, &words(0x9e37_79b1))?,
            second: Buffer::holding(&bench.device, &words(0x85eb_ca77))?,
            out: Buffer::holding(&bench.device, &vec![UNTOUCHED; elements as usize])?,
            elements,
        })
    }

    /// Elements of the output that are not what they should be: the sums where the driver computes, else what was there before.
    pub fn wrong(&self, computed: bool) -> Result<usize, Failure> {
        let right = |at: u32| match computed {
            true => at
                .wrapping_mul(0x9e37_79b1)
                .wrapping_add(at.wrapping_mul(0x85eb_ca77)),
            false => UNTOUCHED,
        };
        let out = self.out.read()?;
        Ok((0..self.elements)
            .zip(out)
            .filter(|(at, seen)| *seen != right(*at))
            .count())
    }
}

cases! {
    /// The sum of two arrays is right to the last element, under a budget of memory, however the elements fall into workgroups. (A mock computes nothing, and
    /// leaves the memory as it is.)
    the_sum_of_two_arrays_is_right_to_the_last_element {
        entry_points: ["cuLaunchKernel", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2"], budget: "0=4GiB",
    } (session) {
        let mut bench = Bench::open()?;
        let sizes = [1, 255, 256, 257, 100_003];
        for elements in sizes {
            let sum = Sum::of(&mut bench, elements)?;
            let filling = bench.staging.begin(&sum.kernel)?.put(sum.first.address()).put(sum.second.address());
            let arguments = filling.put(sum.out.address()).put(elements).finish()?;
            sum.kernel.validate(&sum.plan)?.enqueue(&bench.stream, &arguments)?;
            bench.stream.synchronize()?;
            ensure_eq!(sum.wrong(session.is_real())?, 0, "wrong elements of {elements}");
        }
        let count = sizes.len() as u64;
        let promised = Counts { launches: count, synchronizations: count, modules: 1, ..Counts::default() };
        ensure_eq!(bench.device.counts(), promised, "what was counted");
        Ok(())
    }

    /// A launch that the driver refuses says which launch it was, and is not counted; the next one is.
    a_launch_that_the_driver_refuses_is_told_and_not_counted {
        entry_points: ["cuLaunchKernel", "cuLaunchCooperativeKernel"], budget: "0=4GiB",
        faults: "[[fault]]\nat = \"cuLaunchKernel\"\nwhen = \"2\"\nthen = \"result:701\"\n[[fault]]\nat = \"cuLaunchCooperativeKernel\"\nwhen = \"1\"\nthen = \"result:720\"\n[[fault]]\nat = \"cuStreamSynchronize\"\nwhen = \"1\"\nthen = \"result:999\"\n",
    } (_session) {
        let mut bench = Bench::open()?;
        let idle = bench.idle()?;
        let (grid, workgroup) = (Sides([3, 2, 1]), Sides([32, 1, 1]));
        let plan = LaunchPlan { element_count: 77, ..LaunchPlan::new(grid, workgroup) };
        let (launch, together) = (idle.validate(&plan)?, idle.validate(&plan.cooperative())?);
        let target = bench.device.limits().target;
        let arguments = bench.staging.begin(&idle)?.put(0_u64).finish()?;
        let failure = |launcher, code| LaunchError::Driver { kernel: "idle".into(), launcher, code, grid, workgroup, element_count: 77, target };
        launch.enqueue(&bench.stream, &arguments)?;
        let refused = launch.enqueue(&bench.stream, &arguments);
        ensure_eq!(refused, Err(failure(Launcher::Kernel, CUresult::ERROR_LAUNCH_OUT_OF_RESOURCES)), "the second launch");
        let refused = together.enqueue(&bench.stream, &arguments);
        let code = CUresult::ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
        ensure_eq!(refused, Err(failure(Launcher::Cooperative, code)), "the first cooperative launch");
        launch.enqueue(&bench.stream, &arguments)?;
        together.enqueue(&bench.stream, &arguments)?;
        ensure_eq!(bench.device.counts().launches, 3, "launches that were counted of five");
        ensure_eq!(bench.stream.synchronize().map_err(|error| error.code()), Err(Some(CUresult::ERROR_UNKNOWN)), "the first wait");
        bench.stream.synchronize()?;
        ensure_eq!(bench.device.counts().synchronizations, 1, "waits that were counted of two");
        Ok(())
    }
}
