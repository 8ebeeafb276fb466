//! Compute budgets: a share of the time in which the tenant has work on the device.
//!
//! What a process had done is counted, and a launch's time on the idle device is measured without a budget in the same case; so neither
//! figure depends on how fast the machine is. A busy machine does less than it may: the lower
//! bounds only tell a tenant that works from one that is stalled (`share.rs` wants more). One process by itself has launches of a tenth of a second: while it has
//! a launch every quarter of a second it is beyond its budget, whatever else the machine does; short ones it would launch too late to be.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use abi::cuda::CUresult;
use harness::{Failure, RealDriver, Session, cases, ensure, ensure_eq, fail};
use ledger::{DeviceIndex, Ledger, Setup};

use crate::ffi::cuda::launch::{GRAPHED, Route, Workload};
use crate::ffi::cuda::{Cuda, MISSING, OwnStream};
use crate::kill_storm::{Control, Dice, asked_kills};
use crate::tenant::Tenant;

pub const SIMULATED: RealDriver = RealDriver::No("the kernel's time is the simulated device's");

/// Percent of a device's time.
pub const BUDGET: f64 = 30.0;
/// Beyond the budget in one second: idle time that was saved up, and a lease at either end.
const MARGIN: f64 = 5.0;
/// Milliseconds of work beyond the budget at any time: 40 of idle time that was saved up, a lease at either end, and launches that were made ahead.
const AHEAD: f64 = 60.0;
/// The same where launches differ, of which the first are taken to be alike.
const UNEVEN_MARGIN: f64 = 6.0;
/// And by those that make a long launch where it is measured least, until the device has told of it: two of eight seconds.
const SLY_MARGIN: f64 = 14.0;
/// Milliseconds for which each of many ways to launch is tried.
pub const SHORT: u64 = 700;
/// Nanoseconds of a long launch.
const LONG: u64 = 100_000_000;
/// What a busy machine lets a program do that asks for more: it wakes up when it may.
pub const LEAST: f64 = 1.0;

/// Percent beyond the budget in so many milliseconds.
pub fn margin(milliseconds: u64) -> f64 {
    100.0 * AHEAD / milliseconds as f64
}

cases! {
    /// By every way to give a device work, a tenant has work on it for no more of the time than its budget says.
    every_launch_is_held_to_the_compute_budget {
        kind: Budget, defects: ["T1", "T2", "T3", "T10"],
        entry_points: [
            "cuLaunchKernel", "cuLaunchKernel_ptsz", "cuLaunchKernelEx", "cuLaunchKernelEx_ptsz", "cuLaunchCooperativeKernel",
            "cuLaunchCooperativeKernel_ptsz", "cuLaunchCooperativeKernelMultiDevice", "cuLaunch", "cuLaunchGrid",
            "cuLaunchGridAsync", "cuGraphLaunch", "cuGraphLaunch_ptsz",
        ],
        env: [("CUDA_DEVICE_SM_LIMIT", "30"), ("GPU_CORE_UTILIZATION_POLICY", "force")],
        unordered: "how much is done depends on the time", seconds: 120, on_real: SIMULATED,
    } (session) {
        let mut free = unbudgeted(session)?;
        let mut held = Tenant::start(session)?;
        for route in Route::ALL {
            let unit = free.ask(&format!("time {route:?}"))?;
            if unit < 0 && route != Route::Kernel {
                continue;
            }
            ensure!(unit > 10_000, "{route:?} takes {unit} ns");
            let share = held.ask(&format!("work {route:?} {SHORT} 16 {unit}"))? as f64 / 100.0;
            ensure!(share <= BUDGET + margin(SHORT), "{route:?}: {share} % of the time, of {BUDGET}");
            ensure!(share >= LEAST, "{route:?}: {share} % of the time, of {BUDGET}");
        }
        Ok(())
    }

    /// Kernels behind a gate that the host opens later are launched as without a budget: what the device has not begun keeps nobody waiting.
    work_behind_a_gate_keeps_nobody_waiting {
        kind: Neutral, defects: ["T5"], entry_points: ["cuLaunchKernel", "cuStreamWaitValue32_v2"], needs: ["cuStreamWaitValue32_v2"],
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "under a compute budget the driver is asked more",
    } (_session) {
        const ROUNDS: u32 = 5;
        let cuda = crate::clients::cuda()?;
        let word = cuda.allocate_host(4096);
        let other = cuda.create_stream();
        ensure_eq!((word.code, other.code), (CUresult::SUCCESS, CUresult::SUCCESS), "a word and a stream to write it by");
        let work = workload(&cuda)?;
        let mut waited = Duration::ZERO;
        for value in 1..=ROUNDS {
            ensure_eq!(cuda.wait_for_value(work.own_stream(), word.out, value), CUresult::SUCCESS, "cuStreamWaitValue32_v2");
            let begun = Instant::now();
            for _ in 0..20 {
                ensure_eq!(cuda.launch(&work, Route::Kernel), CUresult::SUCCESS, "a launch behind a closed gate");
            }
            waited += begun.elapsed();
            ensure_eq!(cuda.write_value(other.out, word.out, value), CUresult::SUCCESS, "cuStreamWriteValue32_v2");
            ensure_eq!(cuda.synchronize(), CUresult::SUCCESS, "cuCtxSynchronize");
        }
        // Who waits for what does not come gives up after a quarter of a second, and pays for that then.
        ensure!(waited < Duration::from_millis(250), "{ROUNDS} times 20 launches behind a closed gate took {waited:?}");
        Ok(())
    }

    /// Streams that wait for what the host has not written yet, each before a launch of a size that was never measured, leave the others paid for as ever.
    streams_that_wait_leave_the_others_held_to_the_compute_budget {
        kind: Budget, defects: ["T12", "T2"], entry_points: ["cuLaunchKernel", "cuStreamWaitValue32_v2"], needs: ["cuStreamWaitValue32_v2"],
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "how much is done depends on the time", on_real: SIMULATED,
    } (session) {
        const TIME: u64 = 10_000_000;
        let long = Long::lasting(&mut unbudgeted(session)?, TIME)?;
        let mut held = Tenant::start(session)?;
        let share = held.ask(&format!("work-beside-waits 5000 {} {}", long.unit, long.blocks))? as f64 / 100.0;
        // What is held up when it is launched may be launched for nothing, 250 ms of it.
        ensure!(share <= BUDGET + 2.0 * MARGIN, "{share} % of the time, of {BUDGET}");
        ensure!(share >= LEAST, "{share} % of the time, of {BUDGET}");
        Ok(())
    }

    /// A stream that waits for the host, among launches that go there and to another stream by turns: marks in the one tell of the other's wait as if it were work.
    /// The device's own figure does not.
    what_waits_among_other_work_is_not_paid_for_as_work {
        kind: Neutral, defects: ["T15"], entry_points: ["cuLaunchKernel", "cuStreamWaitValue32_v2"], needs: ["cuStreamWaitValue32_v2"],
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "under a compute budget the driver is asked more",
    } (_session) {
        const ROUNDS: u32 = 60;
        const LAUNCHES: usize = 20;
        const PAUSE: Duration = Duration::from_millis(10);
        let cuda = crate::clients::cuda()?;
        let (word, other, waiting) = (cuda.allocate_host(4096), cuda.create_stream(), cuda.create_stream());
        ensure_eq!((word.code, other.code, waiting.code), (CUresult::SUCCESS, CUresult::SUCCESS, CUresult::SUCCESS), "a word and two streams");
        let mut work = workload(&cuda)?;
        let own = work.own_stream();
        let (begun, bare) = (Instant::now(), PAUSE * ROUNDS);
        for value in 1..=ROUNDS {
            // Until the device has told of it once, one launch waits for a while; without its word each of some dozen does, for seconds.
            let took = begun.elapsed();
            ensure!(took < 6 * bare, "{value} rounds with a wait of {PAUSE:?} took {took:?}");
            ensure_eq!(cuda.wait_for_value(waiting.out, word.out, value), CUresult::SUCCESS, "cuStreamWaitValue32_v2");
            for launch in 0..LAUNCHES {
                work.in_stream(if launch % 2 == 0 { own } else { waiting.out });
                ensure_eq!(cuda.launch(&work, Route::Kernel), CUresult::SUCCESS, "a launch beside a wait");
            }
            std::thread::sleep(PAUSE);
            ensure_eq!(cuda.write_value(other.out, word.out, value), CUresult::SUCCESS, "cuStreamWriteValue32_v2");
            ensure_eq!(cuda.synchronize(), CUresult::SUCCESS, "cuCtxSynchronize");
        }
        Ok(())
    }

    /// Streams that wait for the host and are let go together are at work at the same time: that time is paid for once, not for each of them.
    streams_that_are_let_go_together_are_charged_once {
        kind: Budget, defects: ["T16"], entry_points: ["cuLaunchKernel", "cuStreamWaitValue32_v2"], needs: ["cuStreamWaitValue32_v2"],
        // The device's own figure would make up for it.
        faults: r#"fault = [{ at = "nvmlDeviceGetSamples", then = "result:3" }]"#,
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "under a compute budget the driver is asked more", on_real: SIMULATED,
    } (session) {
        is_charged_what_it_does(session, 7, 60, 400_000, |cuda, work, streams, word, value| {
            for stream in streams {
                ensure_eq!(cuda.wait_for_value(*stream, word, value), CUresult::SUCCESS, "cuStreamWaitValue32_v2");
                work.in_stream(*stream);
                ensure_eq!(cuda.launch(work, Route::Kernel), CUresult::SUCCESS, "a launch behind a wait");
            }
            std::thread::sleep(Duration::from_millis(8));
            Ok(streams.len())
        })
    }

    /// The same with several launches in each stream, so that a lease is of several of them, and a launch behind them all that opens the gate: what stands between a launch's marks is what they all had to do.
    streams_of_several_launches_are_charged_what_they_do {
        kind: Budget, defects: ["T18"], entry_points: ["cuLaunchKernel", "cuStreamWaitValue32_v2"], needs: ["cuStreamWaitValue32_v2"],
        // The device's own figure would make up for it.
        faults: r#"fault = [{ at = "nvmlDeviceGetSamples", then = "result:3" }]"#,
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "under a compute budget the driver is asked more", on_real: SIMULATED,
    } (session) {
        const LAUNCHES: usize = 5;
        is_charged_what_it_does(session, 8, 100, 100_000, |cuda, work, streams, word, value| {
            let own = work.own_stream();
            for stream in streams {
                ensure_eq!(cuda.wait_for_value(*stream, word, value), CUresult::SUCCESS, "cuStreamWaitValue32_v2");
                work.in_stream(*stream);
                for _ in 0..LAUNCHES {
                    ensure_eq!(cuda.launch(work, Route::Kernel), CUresult::SUCCESS, "a launch behind a wait");
                }
            }
            // The launch that opens the gate waits for the budget before it.
            work.in_stream(own);
            ensure_eq!(cuda.launch(work, Route::Kernel), CUresult::SUCCESS, "a launch before the gate");
            Ok(streams.len() * LAUNCHES + 1)
        })
    }

    /// A launch that the driver refuses is no work, and costs nothing.
    refused_launches_are_not_charged {
        kind: Budget, defects: ["T17"], entry_points: ["cuLaunchKernel"],
        // The device's own figure would make up for it.
        faults: r#"fault = [{ at = "nvmlDeviceGetSamples", then = "result:3" }]"#,
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "under a compute budget the driver is asked more", on_real: SIMULATED,
    } (session) {
        const ROUNDS: u32 = 60;
        const REFUSED: u32 = 3;
        const TOO_MUCH: u32 = 200 << 10;
        let long = Long::lasting(&mut unbudgeted(session)?, 2_000_000)?;
        let cuda = crate::clients::cuda()?;
        let mut work = workload(&cuda)?;
        work.blocks = long.blocks as u32;
        let charged = charged(session)?;
        let before = charged();
        for _ in 0..ROUNDS {
            work.shared = 0;
            ensure_eq!(cuda.launch(&work, Route::Kernel), CUresult::SUCCESS, "a launch");
            work.shared = TOO_MUCH;
            for _ in 0..REFUSED {
                ensure_eq!(cuda.launch(&work, Route::Kernel), CUresult::ERROR_INVALID_VALUE, "a launch with {TOO_MUCH} bytes of shared memory");
            }
            ensure_eq!(cuda.synchronize(), CUresult::SUCCESS, "cuCtxSynchronize");
            std::thread::sleep(Duration::from_millis(8));
        }
        let done = u64::from(ROUNDS) * long.unit.unsigned_abs();
        let charged = charged() - before;
        ensure!(charged <= done * 3 / 2, "{charged} ns were charged for {done}");
        ensure!(charged >= done / 2, "{charged} ns were charged for {done}");
        Ok(())
    }

    /// Who makes a context for one launch, ends it, and does nothing for a while has nothing to pay for that while.
    what_a_context_has_launched_is_charged_until_its_end {
        kind: Neutral, defects: ["T11"], entry_points: ["cuCtxDestroy_v2", "cuLaunchKernel"],
        // The device's own figure would make up for it.
        faults: r#"fault = [{ at = "nvmlDeviceGetSamples", then = "result:3" }]"#,
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "under a compute budget the driver is asked more",
    } (_session) {
        const PAUSE: Duration = Duration::from_millis(200);
        let cuda = crate::clients::cuda_without_context()?;
        let mut waited = Vec::new();
        for _ in 0..5 {
            let made = cuda.create_context(0);
            ensure_eq!(made.code, CUresult::SUCCESS, "cuCtxCreate_v2");
            let work = workload(&cuda)?;
            let begun = Instant::now();
            ensure_eq!(cuda.launch(&work, Route::Kernel), CUresult::SUCCESS, "a launch");
            waited.push(begun.elapsed());
            ensure_eq!(cuda.synchronize(), CUresult::SUCCESS, "cuCtxSynchronize");
            ensure_eq!(cuda.destroy_context(made.out), CUresult::SUCCESS, "cuCtxDestroy_v2");
            std::thread::sleep(PAUSE);
        }
        // A machine that is busy may keep some of them waiting.
        let least = waited[1..].iter().min();
        ensure!(least.is_some_and(|least| *least < PAUSE), "launches behind a pause of {PAUSE:?} took {waited:?}");
        Ok(())
    }

    /// Four processes of a tenant share one compute budget.
    four_processes_share_the_compute_budget {
        kind: Budget, defects: ["T2", "T3"], entry_points: ["cuLaunchKernel"],
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "how much is done depends on the time", on_real: SIMULATED,
    } (session) {
        four_together(session, 64)
    }

    /// Four processes of a tenant that wait for each of their launches share one compute budget too. (On a card, which turns to another process with each
    /// wait, `benches/compute.py` looks; the mock serves them evenly.)
    four_processes_that_wait_for_each_launch_share_the_compute_budget {
        kind: Budget, defects: ["T2", "T3"], entry_points: ["cuLaunchKernel"],
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "how much is done depends on the time", on_real: SIMULATED,
    } (session) {
        four_together(session, 1)
    }

    /// A kernel's launches take as long as its data or its shared memory say, which is told by nothing that is launched. One in ten takes seven times as long
    /// here, each behind a wait that may be for anything.
    launches_that_differ_are_held_to_the_compute_budget {
        kind: Budget, defects: ["T2"], entry_points: ["cuLaunchKernel"], needs: ["cuStreamWaitValue32_v2"],
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "how much is done depends on the time", on_real: SIMULATED,
    } (session) {
        uneven_together(session, 1, "")
    }

    /// The same by two processes beside each other, where marks tell less: what the device says it did is charged.
    launches_that_differ_in_two_processes_are_held_to_the_compute_budget {
        kind: Budget, defects: ["T2"], entry_points: ["cuLaunchKernel"], needs: ["cuStreamWaitValue32_v2"],
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "how much is done depends on the time", on_real: SIMULATED,
    } (session) {
        uneven_together(session, 2, "")
    }

    /// The same beside another tenant that has a context and does nothing, by a program that makes a long launch after each that took its time: the device's time is this
    /// process's all the same.
    launches_that_differ_beside_an_idle_tenant_are_held_to_the_compute_budget {
        kind: Budget, defects: ["T2"], entry_points: ["cuLaunchKernel"], needs: ["cuStreamWaitValue32_v2"],
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "how much is done depends on the time", on_real: SIMULATED,
        unaccounted: "the other tenant has a ledger of its own",
    } (session) {
        let ledger = session.directory().join("another");
        let ledger = ledger.to_string_lossy();
        let idle = session.launch("tenant").env("RINGFENCE_LEDGER", &ledger).env("CUDA_DEVICE_MEMORY_SHARED_CACHE", &ledger);
        let mut idle = Tenant::launch(idle)?;
        ensure_eq!(idle.cuda(harness::Bytes::mib(2))?, CUresult::SUCCESS, "2 MiB of the other tenant");
        uneven_together(session, 1, " 1")
    }

    /// A program that launches and waits, one kernel at a time, is held to the budget too.
    what_is_launched_one_by_one_is_held_to_the_compute_budget {
        kind: Budget, defects: ["T2"], entry_points: ["cuLaunchKernel"],
        env: [("RINGFENCE_COMPUTE_0", "30%"), ("CUDA_DEVICE_SM_LIMIT", "30")],
        unordered: "how much is done depends on the time", on_real: SIMULATED,
    } (session) {
        let mut free = unbudgeted(session)?;
        let (unit, long) = (free.ask("time Kernel")?, Long::of(&mut free)?);
        let mut held = Tenant::start(session)?;
        for (what, work) in [("short", format!("Kernel 1000 1 {unit}")), ("long", long.work("Kernel", 3000, 1))] {
            let share = held.ask(&format!("work {work}"))? as f64 / 100.0;
            ensure!(share <= BUDGET + MARGIN, "{what}: {share} % of the time, of {BUDGET}");
            ensure!(share > 0.0, "{what}: nothing was done");
        }
        Ok(())
    }

    /// A launch by a thread without a context is held to the budget of its stream's device, on a machine of several too.
    a_launch_without_a_context_is_held_to_its_streams_device {
        kind: Budget, defects: ["T1", "T3"], entry_points: ["cuLaunchKernel"], machine: "rtx6000-ada*2", needs_gpus: 2,
        env: [("CUDA_DEVICE_SM_LIMIT_0", "30")], unordered: "how much is done depends on the time", on_real: SIMULATED,
    } (session) {
        let long = Long::of(&mut unbudgeted(session)?)?;
        let share = Tenant::start(session)?.ask(&format!("work {}", long.work("Detached", 3000, 4)))? as f64 / 100.0;
        ensure!(share <= BUDGET + MARGIN, "{share} % of the time, of {BUDGET}");
        ensure!(share > 0.0, "nothing was done");
        Ok(())
    }

    /// Each device has its own budget of time: what is spent of one is not missing at another.
    each_device_has_its_own_compute_budget {
        kind: Own, defects: ["T3"], entry_points: ["cuLaunchKernel"], machine: "rtx6000-ada*2", needs_gpus: 2,
        env: [("CUDA_DEVICE_SM_LIMIT_0", "1")], unordered: "how much is done depends on the time", on_real: SIMULATED,
    } (session) {
        let unit = unbudgeted(session)?.ask("time Kernel")?;
        let (mut first, mut second) = (Tenant::start(session)?, Tenant::start(session)?);
        second.ask("device 1")?;
        first.peer.say(&format!("work Kernel 1000 64 {unit}"))?;
        let share = second.ask(&format!("work Kernel 500 64 {unit}"))? as f64 / 100.0;
        first.peer.line()?;
        // On a busy machine too more than a budget of one percent.
        ensure!(share > 3.0, "{share} % of the time of a device without a budget");
        Ok(())
    }

    /// A process killed with a launch in flight leaves no debt, and no more than its share to the others.
    a_process_killed_at_work_leaves_its_share_to_the_others {
        kind: Budget, defects: ["T2", "P2"], entry_points: ["cuLaunchKernel"],
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "how much is done depends on the time", on_real: SIMULATED,
        seconds: 60,
    } (session) {
        let mut free = unbudgeted(session)?;
        let (unit, long) = (free.ask("time Kernel")?, Long::of(&mut free)?);
        let mut survivor = Tenant::start(session)?;
        survivor.ask("ready-cuda")?;
        for _ in 0..5 {
            let mut killed = Tenant::start(session)?;
            killed.ask("ready-cuda")?;
            killed.peer.say(&format!("work Kernel 60000 64 {unit}"))?;
            std::thread::sleep(Duration::from_millis(50));
            killed.peer.kill()?;
        }
        let share = survivor.ask(&format!("work {}", long.work("Kernel", 3000, 4)))? as f64 / 100.0;
        ensure!(share <= BUDGET + MARGIN, "{share} % of the time, of {BUDGET}");
        ensure!(share >= LEAST, "{share} % of the time, of {BUDGET}");
        Ok(())
    }

    /// One to three processes of a tenant, killed at once at any instant of their work: who launches next waits no longer for what they had paid in advance, or not
    /// paid yet, than a quarter of a second.
    nobody_waits_for_the_debt_of_the_killed {
        kind: Own, defects: ["T2", "P2"], entry_points: ["cuLaunchKernel"],
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "how much is done depends on the time", on_real: SIMULATED,
        seconds: 600,
    } (session) {
        let mut free = unbudgeted(session)?;
        let lengths = [0, 300_000, 2_000_000, 20_000_000].into_iter().map(|time| match time {
            0 => Ok(Long { blocks: 1, unit: free.ask("time Kernel")? }),
            _ => Long::lasting(&mut free, time),
        });
        let lengths = lengths.collect::<Result<Vec<_>, Failure>>()?;
        let cuda = crate::clients::cuda()?;
        let mut work = workload(&cuda)?;
        // Each is more than what a lease hands out: it asks whether the tenant has paid. They are known, and long paid for behind each round.
        work.blocks = lengths[2].blocks as u32;
        for _ in 0..20 {
            ensure_eq!(cuda.launch(&work, Route::Kernel), CUresult::SUCCESS, "the survivor's launch");
            ensure_eq!(cuda.synchronize(), CUresult::SUCCESS, "cuCtxSynchronize");
        }
        let (kills, control) = (asked_kills().unwrap_or(20), Control::default());
        let mut waits = std::thread::scope(|scope| {
            scope.spawn(|| control.watch());
            let waits = waits_behind_the_killed(session, (&cuda, &work), &lengths, kills, &control);
            control.stop.store(true, Ordering::Relaxed);
            waits
        })?;
        waits.sort_unstable();
        let longest = waits.last().copied().unwrap_or_default();
        if asked_kills().is_some() {
            eprintln!("kills {kills}; who launched behind {} of them waited {:?} in the middle, {:?} 99 in 100, {longest:?} at most",
                waits.len(), waits[waits.len() / 2], waits[waits.len() * 99 / 100]);
        }
        // A quarter of a second, and what it takes to wake up and to launch.
        ensure!(longest <= Duration::from_millis(255), "a launch behind one of {kills} kills waited {longest:?}");
        Ok(())
    }

    /// What is captured becomes a graph of just what the program launched.
    a_captured_launch_is_written_down_as_it_is {
        kind: Neutral, defects: ["T1"], entry_points: ["cuLaunchKernel"], env: [("CUDA_DEVICE_SM_LIMIT", "30")],
        unordered: "how much is done depends on the time", on_real: SIMULATED,
    } (session) {
        let nodes = Tenant::start(session)?.ask("captured")?;
        ensure_eq!(nodes, GRAPHED as i64, "nodes of a graph of {GRAPHED} captured launches");
        Ok(())
    }

    /// GPU_CORE_UTILIZATION_POLICY=disable drops compute budgets: as much is done as without one.
    a_disabled_policy_drops_the_compute_budget {
        kind: Own, defects: ["T2"], entry_points: ["cuLaunchKernel"],
        env: [("CUDA_DEVICE_SM_LIMIT", "1"), ("GPU_CORE_UTILIZATION_POLICY", "disable")],
        unordered: "how much is done depends on the time", on_real: SIMULATED,
    } (session) {
        let unit = unbudgeted(session)?.ask("time Kernel")?;
        let share = Tenant::start(session)?.ask(&format!("work Kernel 500 64 {unit}"))? as f64 / 100.0;
        // On a busy machine too more than a budget of one percent.
        ensure!(share > 3.0, "{share} % of the time");
        Ok(())
    }
}

/// What a launch took behind each round of so many kills, less what the machine overslept meanwhile.
fn waits_behind_the_killed(
    session: &Session,
    (cuda, work): (&Cuda, &Workload),
    lengths: &[Long],
    kills: u64,
    control: &Control,
) -> Result<Vec<Duration>, Failure> {
    let mut dice = Dice::new(u64::from(std::process::id()));
    let (mut killed, mut waits) = (0, Vec::new());
    while killed < kills {
        let mut workers = Vec::new();
        for _ in 0..=dice.below(3) {
            let mut worker = Tenant::start(session)?;
            worker.ask("ready-cuda")?;
            workers.push(worker);
        }
        for worker in &mut workers {
            let long = &lengths[dice.below(lengths.len() as u64) as usize];
            let depth = 1 << dice.below(7);
            worker
                .peer
                .say(&format!("work {}", long.work("Kernel", 60_000, depth)))?;
        }
        std::thread::sleep(Duration::from_micros(dice.below(60_000)));
        for worker in &mut workers {
            worker.peer.kill()?;
            killed += 1;
        }
        control.overslept.store(0, Ordering::Relaxed);
        let begun = Instant::now();
        let code = cuda.launch(work, Route::Kernel);
        let took = begun.elapsed();
        let overslept = Duration::from_micros(control.overslept.load(Ordering::Relaxed));
        ensure_eq!(code, CUresult::SUCCESS, "a launch behind {killed} kills");
        waits.push(took.saturating_sub(overslept));
        ensure_eq!(cuda.synchronize(), CUresult::SUCCESS, "cuCtxSynchronize");
    }
    Ok(waits)
}

/// So many processes launch one function, of which some launches take seven times as long as others by what nothing tells before.
/// `sly`: the long launches come where they are measured least.
fn uneven_together(session: &Session, count: usize, sly: &str) -> Result<(), Failure> {
    const BLOCKS: u64 = 2048;
    const SHARED: u64 = 48 << 10;
    const MILLISECONDS: u64 = 8_000;
    let (short, long) = (
        quickest(session, &format!("Kernel {BLOCKS}"))?,
        quickest(session, &format!("Kernel {BLOCKS} {SHARED}"))?,
    );
    ensure!(long > short * 5, "{long} ns is not much more than {short}");
    let asked = format!("uneven {MILLISECONDS} {BLOCKS} {SHARED} {short} {long}{sly}");
    let margin = match sly {
        "" => UNEVEN_MARGIN,
        _ => SLY_MARGIN,
    };
    are_held_together(session, count, &asked, margin)
}

/// Four processes that wait after every `depth` launches, for two seconds: what they do together.
fn four_together(session: &Session, depth: u64) -> Result<(), Failure> {
    let unit = quickest(session, "Kernel")?;
    let asked = format!("spend Kernel 2000 {depth} {unit}");
    are_held_together(session, 4, &asked, MARGIN)
}

/// Nanoseconds that a launch takes, of three.
fn quickest(session: &Session, launch: &str) -> Result<i64, Failure> {
    let mut free = unbudgeted(session)?;
    let mut least = i64::MAX;
    for _ in 0..3 {
        least = least.min(free.ask(&format!("time {launch}"))?);
    }
    Ok(least)
}

/// So many processes are asked the same at once, which each answers with its nanoseconds of work: together they stay within the budget and so much more.
fn are_held_together(
    session: &Session,
    count: usize,
    asked: &str,
    margin: f64,
) -> Result<(), Failure> {
    let mut tenants = (0..count)
        .map(|_| Tenant::start(session))
        .collect::<Result<Vec<_>, _>>()?;
    for tenant in &mut tenants {
        tenant.ask("ready-cuda")?;
    }
    let begun = Instant::now();
    for tenant in &mut tenants {
        tenant.peer.say(asked)?;
    }
    let mut spent = 0;
    for tenant in &mut tenants {
        let line = tenant.peer.line()?;
        let Ok(nanoseconds) = line.parse::<u64>() else {
            fail!("\"{line}\" is no time")
        };
        spent += nanoseconds;
    }
    // They do not work at the same time on a machine that has fewer cores than processes, and the share is one of the time in which any of them does.
    let elapsed = begun.elapsed().as_nanos();
    let sum = spent as f64 * 100.0 / elapsed as f64;
    ensure!(
        sum <= BUDGET + margin,
        "together {sum} % of the time, of {BUDGET}"
    );
    ensure!(sum >= LEAST, "together {sum} % of the time, of {BUDGET}");
    Ok(())
}

/// A process of the same machine that no compute budget is set for.
pub fn unbudgeted(session: &Session) -> Result<Tenant, Failure> {
    let launch = session.launch("tenant");
    Tenant::launch(
        launch
            .without("CUDA_DEVICE_SM_LIMIT")
            .without("CUDA_DEVICE_SM_LIMIT_0")
            .without("RINGFENCE_COMPUTE_0"),
    )
}

/// A launch of about [`LONG`], or of another time.
pub struct Long {
    pub blocks: u64,
    /// Nanoseconds.
    pub unit: i64,
}

impl Long {
    /// As a process without a compute budget measures it.
    pub fn of(free: &mut Tenant) -> Result<Long, Failure> {
        Long::lasting(free, LONG)
    }

    /// One of about so many nanoseconds.
    pub fn lasting(free: &mut Tenant, time: u64) -> Result<Long, Failure> {
        let mut blocks = 1 << 18;
        for _ in 0..6 {
            let unit = free.ask(&format!("time Kernel {blocks}"))?.max(1);
            if (time / 2..time * 2).contains(&unit.unsigned_abs()) {
                return Ok(Long { blocks, unit });
            }
            blocks = (u128::from(blocks) * u128::from(time) / unit as u128) as u64;
        }
        fail!("no number of blocks takes {time} ns")
    }

    /// For [`work`].
    pub fn work(&self, route: &str, milliseconds: u64, depth: u64) -> String {
        format!(
            "{route} {milliseconds} {depth} {} {}",
            self.unit, self.blocks
        )
    }
}

/// So many rounds of launches of about so many nanoseconds behind a word of the host's, which is written then: each answers how many it made. The tenant is charged for what they take together, give or take half.
fn is_charged_what_it_does(
    session: &Session,
    streams: usize,
    rounds: u32,
    time: u64,
    round: impl Fn(&Cuda, &mut Workload, &[OwnStream], u64, u32) -> Result<usize, Failure>,
) -> Result<(), Failure> {
    let long = Long::lasting(&mut unbudgeted(session)?, time)?;
    let cuda = crate::clients::cuda()?;
    let word = cuda.allocate_host(4096).out;
    let mut work = workload(&cuda)?;
    work.blocks = long.blocks as u32;
    let own = work.own_stream();
    let streams: Vec<_> = (0..streams).map(|_| cuda.create_stream().out).collect();
    let charged = charged(session)?;
    let (before, mut launches) = (charged(), 0);
    for value in 1..=rounds {
        launches += round(&cuda, &mut work, &streams, word, value)?;
        let written = cuda.write_value(own, word, value);
        ensure_eq!(written, CUresult::SUCCESS, "cuStreamWriteValue32_v2");
        ensure_eq!(cuda.synchronize(), CUresult::SUCCESS, "cuCtxSynchronize");
    }
    let done = launches as u64 * long.unit.unsigned_abs();
    let charged = charged() - before;
    ensure!(
        charged <= done * 3 / 2,
        "{charged} ns were charged for {done}"
    );
    ensure!(charged >= done / 2, "{charged} ns were charged for {done}");
    Ok(())
}

/// Tells for how many nanoseconds the tenant was charged by now.
fn charged(session: &Session) -> Result<impl Fn() -> u64, Failure> {
    let mut setup = Setup::default();
    setup.budgets[0] = session.budget(0).map(|budget| ledger::Bytes(budget.0));
    let ledger = Ledger::attach(session.ledger_path(), &setup)?;
    Ok(move || {
        let words = ledger.pace_words(DeviceIndex(0));
        words.map_or(0, |words| throttle::Shared::new(words).busy().0)
    })
}

fn workload(cuda: &Cuda) -> Result<Workload, Failure> {
    cuda.workload()
        .map_err(|code| Failure::Broken(format!("the kernel: {code:?}")))
}

fn numbers(object: &str) -> Option<Vec<u64>> {
    object
        .split(' ')
        .map(|number| number.parse().ok())
        .collect()
}

/// Nodes of the graph that a number of captured launches became.
pub fn captured(cuda: &Cuda) -> Result<i64, Failure> {
    let work = workload(cuda)?;
    Ok(work.nodes as i64)
}

/// `ROUTE [BLOCKS [SHARED]]`: nanoseconds that one launch takes; negative where the driver lacks the function.
pub fn time(cuda: &Cuda, object: &str) -> Result<i64, Failure> {
    let (name, sizes) = object.split_once(' ').unwrap_or((object, "1"));
    let sizes: Option<Vec<u32>> = sizes.split(' ').map(|size| size.parse().ok()).collect();
    let (Some(route), Some([blocks, shared @ ..])) = (Route::named(name), sizes.as_deref()) else {
        fail!("\"time {object}\" is not ROUTE [BLOCKS [SHARED]]")
    };
    let mut work = workload(cuda)?;
    work.blocks = *blocks;
    work.shared = shared.first().copied().unwrap_or(0);
    let time = cuda.time(&work, route);
    if time.code == MISSING {
        return Ok(-1);
    }
    ensure_eq!(time.code, CUresult::SUCCESS, "launches by {route:?}");
    Ok(time.out as i64)
}

/// `ROUTE MILLISECONDS DEPTH UNIT [BLOCKS]`: launches for so long, waiting after every DEPTH launches. Hundredths of a percent of the time
/// for which that was work, at UNIT nanoseconds a launch.
pub fn work(cuda: &Cuda, object: &str) -> Result<i64, Failure> {
    launch_for(cuda, object).map(Busy::share)
}

/// As [`work`]: nanoseconds of work, at UNIT nanoseconds a launch.
pub fn spend(cuda: &Cuda, object: &str) -> Result<i64, Failure> {
    launch_for(cuda, object).map(|busy| busy.work as i64)
}

fn launch_for(cuda: &Cuda, object: &str) -> Result<Busy, Failure> {
    let (name, numbers) = object.split_once(' ').unwrap_or((object, ""));
    let numbers: Vec<u64> = numbers
        .split(' ')
        .filter_map(|number| number.parse().ok())
        .collect();
    let (Some(route), [milliseconds, depth, unit, blocks @ ..]) =
        (Route::named(name), numbers.as_slice())
    else {
        fail!("\"{object}\" is not ROUTE MILLISECONDS DEPTH UNIT [BLOCKS]")
    };
    let mut work = workload(cuda)?;
    work.blocks = blocks.first().map_or(1, |blocks| *blocks as u32);
    keep_busy(cuda, [*milliseconds, *depth, *unit], || {
        let code = cuda.launch(&work, route);
        ensure_eq!(code, CUresult::SUCCESS, "a launch by {route:?}");
        Ok(())
    })
}

/// `MILLISECONDS BLOCKS SHARED SHORT LONG [1]`: launches of one function for so long, of which one in ten (or each after one whose call took long) has so much shared memory and takes LONG nanoseconds in place of
/// SHORT; each behind a wait that is over, and the host waits after eight. Nanoseconds of work.
pub fn uneven(cuda: &Cuda, object: &str) -> Result<i64, Failure> {
    let numbers = numbers(object);
    let Some([milliseconds, blocks, shared, short, long, sly @ ..]) = numbers.as_deref() else {
        fail!("\"uneven {object}\" is not MILLISECONDS BLOCKS SHARED SHORT LONG [1]")
    };
    let mut was_slow = false;
    let mut work = workload(cuda)?;
    work.blocks = *blocks as u32;
    let word = cuda.allocate(4).granted();
    let word = word.or_else(|code| fail!("a word: {code:?}"))?;
    let (mut done, mut dice) = (0, 12345_u32);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(*milliseconds) {
        for _ in 0..8 {
            dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let is_long = match sly {
                [] => (dice >> 16) % 10 == 0,
                _ => was_slow,
            };
            work.shared = if is_long { *shared as u32 } else { 0 };
            let code = cuda.wait_for_value(work.own_stream(), word, 0);
            ensure_eq!(code, CUresult::SUCCESS, "cuStreamWaitValue32");
            let called = Instant::now();
            let code = cuda.launch(&work, Route::Kernel);
            was_slow = !is_long && called.elapsed() > Duration::from_micros(150);
            ensure_eq!(code, CUresult::SUCCESS, "a launch");
            done += if is_long { long } else { short };
        }
        ensure_eq!(cuda.synchronize(), CUresult::SUCCESS, "waiting for work");
    }
    Ok(done as i64)
}

/// `MILLISECONDS UNIT BLOCKS`: launches for so long, one at a time, while eight other streams wait for the host before a launch each. As [`work`].
pub fn work_beside_waits(cuda: &Cuda, object: &str) -> Result<i64, Failure> {
    const STREAMS: u32 = 8;
    let numbers = numbers(object);
    let Some([milliseconds, unit, blocks]) = numbers.as_deref() else {
        fail!("\"work-beside-waits {object}\" is not MILLISECONDS UNIT BLOCKS")
    };
    let mut work = workload(cuda)?;
    let stream = work.own_stream();
    let word = cuda.allocate_host(4096).out;
    for place in 1..=STREAMS {
        let waiting = cuda.create_stream().out;
        let code = cuda.wait_for_value(waiting, word, 1);
        ensure_eq!(code, CUresult::SUCCESS, "cuStreamWaitValue32_v2");
        work.in_stream(waiting);
        work.blocks = 2 * place;
        let code = cuda.launch(&work, Route::Kernel);
        ensure_eq!(code, CUresult::SUCCESS, "a launch behind a wait");
    }
    work.in_stream(stream);
    work.blocks = *blocks as u32;
    let begun = Instant::now();
    let mut done = 0;
    while begun.elapsed() < Duration::from_millis(*milliseconds) {
        let code = cuda.launch(&work, Route::Kernel);
        ensure_eq!(code, CUresult::SUCCESS, "a launch beside waits");
        ensure_eq!(
            cuda.synchronize_stream(stream),
            CUresult::SUCCESS,
            "waiting for work"
        );
        done += unit;
    }
    let busy = Busy {
        work: done,
        elapsed: begun.elapsed(),
    };
    ensure_eq!(
        cuda.write_value(stream, word, 1),
        CUresult::SUCCESS,
        "cuStreamWriteValue32_v2"
    );
    ensure_eq!(cuda.synchronize(), CUresult::SUCCESS, "waiting for work");
    Ok(busy.share())
}

/// What was done, and in what time.
struct Busy {
    /// Nanoseconds.
    work: u64,
    elapsed: Duration,
}

impl Busy {
    /// Hundredths of a percent of the time for which there was work.
    fn share(self) -> i64 {
        (u128::from(self.work) * 10_000 / self.elapsed.as_nanos().max(1)) as i64
    }
}

/// Gives the device work for so many milliseconds, waiting after each so many calls. Hundredths of a percent of the time for which that was
/// work, at so many nanoseconds a call.
pub fn busy(
    cuda: &Cuda,
    times: [u64; 3],
    call: impl FnMut() -> Result<(), Failure>,
) -> Result<i64, Failure> {
    keep_busy(cuda, times, call).map(Busy::share)
}

fn keep_busy(
    cuda: &Cuda,
    [milliseconds, depth, unit]: [u64; 3],
    mut call: impl FnMut() -> Result<(), Failure>,
) -> Result<Busy, Failure> {
    let begun = Instant::now();
    let mut done = 0;
    while begun.elapsed() < Duration::from_millis(milliseconds) {
        for _ in 0..depth {
            call()?;
        }
        ensure_eq!(cuda.synchronize(), CUresult::SUCCESS, "waiting for work");
        done += depth;
    }
    Ok(Busy {
        work: done * unit,
        elapsed: begun.elapsed(),
    })
}
