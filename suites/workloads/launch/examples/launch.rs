//! An application with a launch boundary on a shared GPU, without an enforcer and then as a tenant of 1 GiB and a quarter of the time:
//! `cargo run --example launch`. It runs on the simulated machine, which is in this program; `launch --here` runs once, on whatever machine and under
//! whatever enforcer it is started (`ringfence exec --driver real --memory 0=1GiB -- target/debug/examples/launch --here`).
//!
//! | what is refused | by whom |
//! |---|---|
//! | a plan that the device or the kernel cannot bear, arguments that are not the kernel's, a NULL or legacy stream | the boundary, before the driver is asked |
//! | more workgroups than are resident | the boundary, with its diagnosis; the driver too, with a code |
//! | memory beyond the budget: buffers, and the variables of modules | libvgpu.so at `cuMemAlloc_v2` and `cuModuleLoadData`, by a code that the boundary hands on |
//! | nothing: launches beyond the compute budget wait | libvgpu.so at `cuLaunchKernel` and `cuGraphLaunch` |
//!
//! Neither knows of the other.

use std::error::Error;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;

use harness::environment::{Environment, Request};
use harness::{Driver, Libraries, Target};
use launch::{
    Buffer, Capture, Device, Kernel, LaunchPlan, Modules, Sides, Staging, Stream, kernels,
};

const HERE: &str = "--here";
const ELEMENTS: u32 = 1 << 24;
/// Bytes that fit into the device and not into the budget.
const LARGE: usize = 768 << 20;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some(HERE) {
        application()?;
        return Ok(ExitCode::SUCCESS);
    }
    for (target, circumstances) in [
        ("none", "without an enforcer"),
        ("ours", "as a tenant of 1 GiB and 25 % of the time"),
    ] {
        println!("\n{circumstances}");
        let (target, driver) = (Target::named(target)?, Driver::default());
        let environment = Environment::create(&Request {
            machine: "h200",
            budget: "0=1GiB",
            env: &[
                ("CUDA_DEVICE_SM_LIMIT", "25"),
                ("GPU_CORE_UTILIZATION_POLICY", "force"),
            ],
            ..Request::new("launch", &target, &driver)
        })?;
        let mut command = Command::new(std::env::current_exe()?);
        environment.plan.apply(command.arg(HERE), Libraries::Both)?;
        if !command.status()?.success() {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn application() -> Result<(), Box<dyn Error>> {
    let device = Device::open(0)?;
    let limits = device.limits();
    println!(
        "  a device of {}, {} multiprocessors of {} threads",
        limits.target, limits.multiprocessors, limits.multiprocessor_threads
    );
    let mut modules = Modules::new(&device);
    let module = modules.load(kernels::VECTOR_ADD)?;
    // SAFETY: the kernel has these parameters, and is given buffers of as many elements as it is told.
    let add = unsafe { module.kernel("vector_add", kernels::VECTOR_ADD_PARAMETERS) }?;
    refusals(&add)?;
    sums(&device, &add)?;
    match Buffer::holding(&device, &vec![0; LARGE / size_of::<u32>()]) {
        Ok(_) => println!("  768 MiB more: granted"),
        Err(error) => println!("  768 MiB more: {error}"),
    }
    println!("  counted: {:?}", device.counts());
    Ok(())
}

/// What is refused without the driver.
fn refusals(add: &Arc<Kernel>) -> Result<(), Box<dyn Error>> {
    let row = |blocks, threads| LaunchPlan::new(Sides([blocks, 1, 1]), Sides([threads, 1, 1]));
    let together = row(1, 1024).cooperative();
    let holds = u32::try_from(add.resident_blocks(&together)?)?;
    let odd = [
        row(0, 32),
        row(1, 1025),
        LaunchPlan::new(Sides([u32::MAX; 3]), Sides::ONE),
        row(1, 1).sharing(1 << 20),
        row(holds + 1, 1024).cooperative(),
    ];
    for plan in odd {
        match add.validate(&plan) {
            Ok(_) => println!("  {} by {}: valid", plan.grid, plan.workgroup),
            Err(error) => println!("  {} by {}: {error}", plan.grid, plan.workgroup),
        }
    }
    add.validate(&row(holds, 1024).cooperative())?;
    println!("  {holds} workgroups of 1024 that wait for each other: valid");
    Ok(())
}

/// Sums by stream and by graph, and how long they took.
fn sums(device: &Arc<Device>, add: &Arc<Kernel>) -> Result<(), Box<dyn Error>> {
    let words = vec![1; ELEMENTS as usize];
    let buffer = || Buffer::holding(device, &words);
    let (first, second, sum) = (buffer()?, buffer()?, buffer()?);
    let launch = add.validate(&LaunchPlan::over(ELEMENTS.into(), 256)?)?;
    let (mut staging, stream) = (Staging::default(), Stream::create(device)?);
    let filling = staging
        .begin(add)?
        .put(first.address())
        .put(second.address());
    let arguments = filling.put(sum.address()).put(ELEMENTS).finish()?;
    let begun = Instant::now();
    for _ in 0..500 {
        launch.enqueue(&stream, &arguments)?;
    }
    stream.synchronize()?;
    println!("  500 sums by a stream: {} ms", begun.elapsed().as_millis());

    let mut capture = Capture::begin(stream).map_err(|(_, error)| error)?;
    for _ in 0..10 {
        launch.record(&mut capture, &arguments)?;
    }
    let (stream, graph) = capture.end();
    let graph = graph?;
    let begun = Instant::now();
    for _ in 0..50 {
        graph.replay(&stream)?;
    }
    stream.synchronize()?;
    println!(
        "  500 sums by a graph of ten: {} ms",
        begun.elapsed().as_millis()
    );
    let (of, right) = (
        words.len(),
        sum.read()?.iter().filter(|sum| **sum == 2).count(),
    );
    // A simulated device computes nothing: there all are as they were.
    println!("  {right} of {of} sums are right");
    Ok(())
}
