//! Launches by the boundary under a compute budget: those of a stream, and those of a graph. As in `cuda::launches`, what a launch takes is measured
//! without a budget in the same case.

use std::time::{Duration, Instant};

use harness::{Failure, RealDriver, cases, ensure, fail, roles};
use launch::{Capture, LaunchPlan, Sides};

use super::Bench;
use crate::cuda::launches::{Long, unbudgeted};
use crate::ffi::launch::kernel;
use crate::tenant::{Tenant, serve};

/// Percent of a device's time; beyond it 40 ms of idle time that was saved up and the two launches of a tenth of a second that are made at once, in the time that is asked for.
const BUDGET: f64 = 30.0;
const MILLISECONDS: u64 = 3_000;
const MARGIN: f64 = 100.0 * 240.0 / MILLISECONDS as f64;
/// Instructions of the kernel, as many as that of `cuda::launches` has, which measures it.
const INSTRUCTIONS: usize = 6_000;

fn text() -> String {
    let body = "    add.u32 %r1, %r1, 1;\n".repeat(INSTRUCTIONS);
    format!(
        ".version 6.0\n.target sm_50\n.address_size 64\n.visible .entry work(.param .u64 p)\n{{\n    .reg .u32 %r<2>;\n    mov.u32 %r1, 0;\n{body}    ret;\n}}\n"
    )
}

cases! {
    /// What an application launches through its boundary is held to the compute budget, by stream and by graph.
    launches_by_the_boundary_are_held_to_the_compute_budget {
        kind: Budget, defects: ["T1", "T2"], entry_points: ["cuLaunchKernel", "cuGraphLaunch"],
        env: [("CUDA_DEVICE_SM_LIMIT", "30"), ("GPU_CORE_UTILIZATION_POLICY", "force")],
        unordered: "how much is done depends on the time", seconds: 120,
        on_real: RealDriver::No("the kernel's time is the simulated device's"),
    } (session) {
        let long = Long::of(&mut unbudgeted(session)?)?;
        let mut held = Tenant::launch(session.launch("launcher"))?;
        for route in ["stream", "graph"] {
            let share = held.ask(&long.work(route, MILLISECONDS, 2))? as f64 / 100.0;
            ensure!(share <= BUDGET + MARGIN, "{route}: {share} % of the time, of {BUDGET}");
            ensure!(share > 0.0, "{route}: nothing was done");
        }
        Ok(())
    }
}

/// `stream|graph MILLISECONDS DEPTH UNIT BLOCKS`: launches for so long, waiting after every DEPTH launches, which are one replay of a graph. Hundredths of a
/// percent of the time for which that was work, at UNIT nanoseconds a launch.
fn work(command: &str) -> Result<i64, Failure> {
    let words: Vec<&str> = command.split(' ').collect();
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let (Some(route), [milliseconds, depth, unit, blocks]) = (words.first(), numbers.as_slice())
    else {
        fail!("\"{command}\" is not stream|graph MILLISECONDS DEPTH UNIT BLOCKS")
    };
    let mut bench = Bench::open()?;
    let kernel = kernel(&bench.module(&text())?, "work", &[8])?;
    let launch = kernel.validate(&LaunchPlan::new(Sides([*blocks as u32, 1, 1]), Sides::ONE))?;
    let Bench {
        device,
        stream,
        mut staging,
        ..
    } = bench;
    let arguments = staging.begin(&kernel)?.put(0_u64).finish()?;
    let mut capture = Capture::begin(stream).map_err(|(_, error)| error)?;
    for _ in 0..*depth {
        launch.record(&mut capture, &arguments)?;
    }
    let (stream, graph) = capture.end();
    let graph = graph?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(*milliseconds) {
        match *route {
            "graph" => graph.replay(&stream)?,
            _ => (0..*depth).try_for_each(|_| launch.enqueue(&stream, &arguments))?,
        }
        stream.synchronize()?;
    }
    let elapsed = begun.elapsed().as_nanos().max(1);
    let counts = device.counts();
    let done = u128::from(counts.launches + counts.replays * depth);
    Ok((done * u128::from(*unit) * 10_000 / elapsed) as i64)
}

roles! {
    /// Launches by the boundary as it is told, and answers each command with the share of the time that was work.
    launcher(_session, parent) {
        serve(parent, work)
    }
}
