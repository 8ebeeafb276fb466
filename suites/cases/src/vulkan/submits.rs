//! Compute budgets by Vulkan. How it is measured: [`crate::cuda::launches`].

use std::ffi::CStr;
use std::time::{Duration, Instant};

use harness::{Failure, RealDriver, Session, cases, ensure, ensure_eq, fail};

use crate::clients::{first_gpu, instance};
use crate::ffi::vulkan::{Client, Code, Route, Worker};
use crate::tenant::Tenant;

pub const SIMULATED: RealDriver = RealDriver::No("the shader's time is the simulated device's");

/// Percent of a device's time, what a second may have beyond it, and what tells a tenant that works from one that is stalled.
const BUDGET: f64 = 30.0;
const MARGIN: f64 = 5.0;
const LEAST: f64 = 1.0;

cases! {
    /// By every command that submits work to a queue, wherever in what is submitted together it stands, a tenant has work on the device for no more of the time than its budget says.
    every_submission_is_held_to_the_compute_budget {
        kind: Budget, defects: ["T1", "V12", "V17"], entry_points: ["vkQueueSubmit", "vkQueueSubmit2", "vkQueueSubmit2KHR", "vkGetDeviceQueue", "vkGetDeviceQueue2"],
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "how much is done depends on the time", seconds: 60,
        on_real: SIMULATED,
    } (session) {
        let unit = unbudgeted(session)?.ask("time-vulkan")?;
        held(unit, &mut Tenant::start(session)?)
    }

    /// CUDA and Vulkan share one compute budget.
    cuda_and_vulkan_share_the_compute_budget {
        kind: Budget, defects: ["T1", "T3"], entry_points: ["vkQueueSubmit", "cuLaunchKernel"],
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "how much is done depends on the time", seconds: 60,
        on_real: SIMULATED,
    } (session) {
        let mut free = unbudgeted(session)?;
        let units = [free.ask("time Kernel")?, free.ask("time-vulkan")?];
        let mut tenants = [Tenant::start(session)?, Tenant::start(session)?];
        tenants[0].ask("ready-cuda")?;
        tenants[1].ask("ready-vulkan")?;
        for (tenant, (work, unit)) in tenants.iter_mut().zip(["work Kernel", "work-vulkan Submit"].into_iter().zip(units)) {
            tenant.peer.say(&format!("{work} 2000 64 {unit}"))?;
        }
        let mut sum = 0.0;
        for tenant in &mut tenants {
            let line = tenant.peer.line()?;
            sum += line.parse::<f64>().unwrap_or(f64::INFINITY) / 100.0;
        }
        ensure!(sum <= BUDGET + MARGIN, "together {sum} % of the time, of {BUDGET}");
        ensure!(sum >= LEAST, "together {sum} % of the time, of {BUDGET}");
        Ok(())
    }

    /// A sparse binding is given to a queue no sooner than other work: one behind a submission that was longer than its share comes when the
    /// device's time has been paid for.
    a_sparse_binding_waits_for_its_turn_as_a_submission_does {
        kind: Budget, defects: ["T1", "V12"], entry_points: ["vkQueueBindSparse"], env: [("CUDA_DEVICE_SM_LIMIT", "30")],
        unordered: "how much is done depends on the time", on_real: SIMULATED,
    } (session) {
        let unit = unbudgeted(session)?.ask("time-vulkan")?;
        let waited = Tenant::start(session)?.ask(&format!("bind-sparse {unit}"))?;
        // Three and a third, but for the 40 ms that an idle tenant has saved.
        ensure!(waited >= 200, "a binding was made after {waited} % of the time of the submission before it, under {BUDGET} %");
        Ok(())
    }

    /// A command that the driver lacks is NULL from the layer too, and one that it has is there: by the loader, for applications of every version.
    what_the_driver_cannot_submit_by_is_not_there {
        defects: ["V12"], entry_points: ["vkGetDeviceProcAddr", "vkQueueSubmit2", "vkQueueSubmit2KHR", "vkQueueBindSparse"],
        env: [("CUDA_DEVICE_SM_LIMIT", "30")], unordered: "under a compute budget the drivers are asked more",
    } (session) {
        let bare = Tenant::launch(session.launch("tenant").env("HAMI_VULKAN_DISABLE", "1"))?.ask("submit-commands")?;
        let ours = Tenant::start(session)?.ask("submit-commands")?;
        ensure_eq!(format!("{ours:b}"), format!("{bare:b}"), "commands that are there, of {COMMANDS:?} by {CLIENTS:?}");
        let all = (1 << (CLIENTS.len() * COMMANDS.len())) - 1;
        ensure!(session.is_real() || (1..all).contains(&bare), "the driver has all or nothing: {bare:b}");
        Ok(())
    }

    /// A device under a compute budget comes and goes with its marks, a hundred times.
    devices_under_a_compute_budget_come_and_go {
        kind: Neutral, defects: ["V12"], entry_points: ["vkDestroyDevice", "vkQueueSubmit", "vkQueueBindSparse"],
        env: [("CUDA_DEVICE_SM_LIMIT", "90")], unordered: "how much is done depends on the time", on_real: SIMULATED,
    } (_session) {
        let instance = instance(Client::V1_3)?;
        let gpu = first_gpu(&instance)?;
        for _ in 0..100 {
            let worker = instance.worker(gpu, Route::Submit)?;
            worker.submit(Route::Submit)?;
            worker.bind_nothing()?;
            worker.submit(Route::Submit)?;
            ensure_eq!(worker.wait(), Ok(()), "vkQueueWaitIdle");
        }
        Ok(())
    }
}

const CLIENTS: [Client; 3] = [Client::V1_0, Client::V1_1, Client::V1_3];
const COMMANDS: [&CStr; 4] = [
    c"vkQueueSubmit",
    c"vkQueueSubmit2",
    c"vkQueueSubmit2KHR",
    c"vkQueueBindSparse",
];

/// Which of [`COMMANDS`] vkGetDeviceProcAddr answers for devices of [`CLIENTS`] that enable no extension: a bit each, the first the highest.
pub fn commands() -> Result<i64, Failure> {
    let mut found = 0;
    for client in CLIENTS {
        let instance = instance(client)?;
        let device = instance.device(first_gpu(&instance)?)?;
        for name in COMMANDS {
            found = found << 1 | i64::from(device.address_of(&instance, name).is_some());
        }
    }
    Ok(found)
}

/// `UNIT`: gives the device work for a tenth of a second, at UNIT nanoseconds a submission, and binds nothing behind it. Percent of that work's
/// time after which the binding had been made.
pub fn bind_sparse(unit: &str) -> Result<i64, Failure> {
    let Some(unit) = unit.parse().ok().filter(|unit| *unit > 0) else {
        fail!("\"bind-sparse {unit}\" is not UNIT")
    };
    let times = 100_000_000_u64.div_ceil(unit);
    let worker = worker(Route::Submit)?;
    let begun = Instant::now();
    worker.submit_often(times as usize)?;
    worker.bind_nothing()?;
    let waited = begun.elapsed().as_nanos();
    ensure_eq!(worker.wait(), Ok(()), "vkQueueWaitIdle");
    Ok((waited * 100 / u128::from(times * unit)) as i64)
}

/// A tenant, by each command in turn, with submissions that take so many nanoseconds each.
pub fn held(unit: i64, tenant: &mut Tenant) -> Result<(), Failure> {
    ensure!(unit > 10_000, "a submission takes {unit} ns");
    for route in Route::ALL {
        let answer = tenant.ask(&format!("work-vulkan {route:?} 1000 16 {unit}"))?;
        let share = answer as f64 / 100.0;
        if share < 0.0 && route != Route::Submit {
            continue;
        }
        ensure!(
            share <= BUDGET + MARGIN,
            "{route:?}: {share} % of the time, of {BUDGET}"
        );
        ensure!(
            share >= LEAST,
            "{route:?}: {share} % of the time, of {BUDGET}"
        );
    }
    Ok(())
}

pub fn unbudgeted(session: &Session) -> Result<Tenant, Failure> {
    Tenant::launch(session.launch("tenant").without("CUDA_DEVICE_SM_LIMIT"))
}

pub fn worker(route: Route) -> Result<Worker, Failure> {
    let instance = instance(Client::V1_3)?;
    let gpu = first_gpu(&instance)?;
    Ok(instance.worker(gpu, route)?)
}

/// `ROUTE MILLISECONDS DEPTH UNIT`, as [`crate::cuda::launches::work`]; negative where the driver lacks the command.
pub fn work(object: &str) -> Result<i64, Failure> {
    let (name, numbers) = object.split_once(' ').unwrap_or((object, ""));
    let numbers: Vec<u64> = numbers
        .split(' ')
        .filter_map(|number| number.parse().ok())
        .collect();
    let (Some(route), [milliseconds, depth, unit]) = (Route::named(name), numbers.as_slice())
    else {
        fail!("\"work-vulkan {object}\" is not ROUTE MILLISECONDS DEPTH UNIT")
    };
    let worker = worker(route)?;
    if !worker.routes.contains(&route) {
        return Ok(-1);
    }
    let answered = |code: Result<(), Code>| code.map_err(Failure::from);
    let begun = Instant::now();
    let mut done = 0;
    while begun.elapsed() < Duration::from_millis(*milliseconds) {
        for _ in 0..*depth {
            answered(worker.submit(route))?;
        }
        answered(worker.wait())?;
        done += depth;
    }
    let elapsed = begun.elapsed().as_nanos().max(1);
    Ok((u128::from(done * unit) * 10_000 / elapsed) as i64)
}
