//! Launches that are captured, and replayed.

use abi::cuda::CUresult;
use harness::{Failure, cases, ensure, ensure_eq, fail};
use launch::{Buffer, Capture, Counts, LaunchPlan, Sides};

use super::Bench;
use super::kernels::Sum;
use crate::ffi::cuda::Cuda;
use crate::ffi::cuda::odd::{By, Odd};

fn begin(stream: launch::Stream) -> Result<Capture, Failure> {
    Capture::begin(stream).map_err(|(_, error)| error.into())
}

cases! {
    /// What is captured is written down and not done; its graph does it, as often as it is replayed, with the arguments of then.
    a_captured_launch_is_done_by_its_graph {
        entry_points: ["cuLaunchKernel", "cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch"],
        budget: "0=4GiB",
    } (session) {
        let mut bench = Bench::open()?;
        let sum = Sum::of(&mut bench, 5_000)?;
        let launch = sum.kernel.validate(&sum.plan)?;
        let Bench { device, stream, mut staging, .. } = bench;
        let mut capture = begin(stream)?;
        for _ in 0..2 {
            let filling = staging.begin(&sum.kernel)?.put(sum.first.address()).put(sum.second.address());
            launch.record(&mut capture, &filling.put(sum.out.address()).put(5_000_u32).finish()?)?;
        }
        // What is staged now is not what was written down.
        let filling = staging.begin(&sum.kernel)?.put(0_u64).put(0_u64).put(0_u64);
        filling.put(0_u32).finish()?;
        let (stream, graph) = capture.end();
        let graph = graph?;
        stream.synchronize()?;
        ensure_eq!(sum.wrong(false)?, 0, "elements written by what was only captured");
        let promised = Counts { recorded: 2, synchronizations: 1, modules: 1, ..Counts::default() };
        ensure_eq!((graph.launches(), device.counts()), (2, promised), "what was counted of the capture");
        for round in 1..=3 {
            graph.replay(&stream)?;
            stream.synchronize()?;
            ensure_eq!(sum.wrong(session.is_real())?, 0, "wrong elements after replay {round}");
        }
        let promised = Counts { replays: 3, synchronizations: 4, ..promised };
        ensure_eq!(device.counts(), promised, "what was counted in the end");
        Ok(())
    }

    /// A plan that the boundary refuses in the middle of a capture leaves it whole; the same launch given to the driver breaks it.
    a_refusal_of_the_boundary_leaves_a_capture_whole {
        entry_points: ["cuLaunchKernel", "cuStreamBeginCapture_v2", "cuStreamEndCapture"],
        budget: "0=4GiB",
    } (_session) {
        let (mut bench, cuda) = (Bench::open()?, Cuda::open()?);
        let idle = bench.idle()?;
        let sound = idle.validate(&LaunchPlan::over(32, 32)?)?;
        let Bench { stream, mut staging, .. } = bench;
        let mut capture = begin(stream)?;
        let arguments = staging.begin(&idle)?.put(0_u64).finish()?;
        sound.record(&mut capture, &arguments)?;
        let odd = LaunchPlan::new(Sides([1, 65_536, 1]), Sides::ONE);
        ensure!(idle.validate(&odd).is_err(), "{odd:?} is let through");
        sound.record(&mut capture, &arguments)?;
        let (stream, graph) = capture.end();
        ensure_eq!(graph?.launches(), 2, "launches in the graph");

        let handle = stream.handle();
        let mut capture = begin(stream)?;
        sound.record(&mut capture, &arguments)?;
        let odd = Odd { grid: odd.grid.0, ..Odd::of(idle.handle(), handle) };
        ensure_eq!(cuda.launch_oddly(By::Kernel, &odd), CUresult::ERROR_INVALID_VALUE, "the driver's answer");
        let (stream, graph) = capture.end();
        let Err(error) = graph else {
            fail!("a capture that the driver broke gave a graph")
        };
        ensure_eq!(error.code(), Some(CUresult::ERROR_STREAM_CAPTURE_INVALIDATED), "the end of a broken capture");
        sound.enqueue(&stream, &arguments)?;
        stream.synchronize()?;
        Ok(())
    }

    /// A capture that is given up leaves a stream that can be destroyed and a device that works; a graph keeps the module of its kernels loaded.
    a_graph_outlives_all_that_it_was_made_of {
        entry_points: ["cuStreamBeginCapture_v2", "cuGraphLaunch", "cuModuleUnload"], budget: "0=4GiB",
    } (session) {
        let mut bench = Bench::open()?;
        let sum = Sum::of(&mut bench, 300)?;
        let launch = sum.kernel.validate(&sum.plan)?;
        let Bench { device, stream, mut staging, mut modules } = bench;
        let filling = staging.begin(&sum.kernel)?.put(sum.first.address()).put(sum.second.address());
        let arguments = filling.put(sum.out.address()).put(300_u32).finish()?;
        let mut given_up = begin(launch::Stream::create(&device)?)?;
        launch.record(&mut given_up, &arguments)?;
        drop(given_up);

        let mut capture = begin(stream)?;
        launch.record(&mut capture, &arguments)?;
        let (stream, graph) = capture.end();
        let graph = graph?;
        let Sum { kernel, first, second, out, .. } = sum;
        drop((launch, kernel));
        modules.trim();
        ensure_eq!(modules.kept(), 1, "modules kept for the graph");
        graph.replay(&stream)?;
        stream.synchronize()?;
        let left = out.read()?;
        ensure_eq!(left[1] != super::kernels::UNTOUCHED, session.is_real(), "whether the graph computed");
        drop::<[Buffer; 3]>([first, second, out]);
        drop(graph);
        modules.trim();
        ensure_eq!(modules.kept(), 0, "modules kept for nobody");
        Ok(())
    }
}
