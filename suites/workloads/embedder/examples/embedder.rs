//! An application that owns a Vulkan device, with a runtime inside, on a shared GPU: without an enforcer and then as a tenant of 1 GiB:
//! `cargo run --example embedder`. It runs on the simulated machine, which is in this program; `embedder --here` runs once, on whatever machine and
//! under whatever enforcer it is started (`ringfence exec --driver real --memory 0=1GiB -- target/debug/examples/embedder --here`).
//!
//! | what is refused or held back | by whom |
//! |---|---|
//! | a release while a buffer lives, a wrapped buffer's mapping, a crop beyond its buffer, a grid beyond the device's | the runtime, before the driver is asked |
//! | memory beyond the budget, the runtime's as the application's | libvgpu_vk.so at `vkAllocateMemory`; the runtime hands it on as `Error::OutOfDeviceMemory` |
//! | nothing for a VkBuffer that is wrapped: the application has paid for its memory | |
//! | nothing: submissions beyond a compute budget wait | libvgpu_vk.so at `vkQueueSubmit`, while the context is held |
//!
//! Neither knows of the other. A driver that computes (a card, lavapipe) makes the kernel's results; the mock leaves them 0.

mod common;

use std::error::Error;
use std::process::{Command, ExitCode};

use embedder::kernels::{AFFINE, groups};
use embedder::{Buffer, ContextId, Host, Launch, OwnContext, Runtime, Settings, Usage};
use harness::environment::{Environment, Request};
use harness::{Driver, Libraries, Target};

const HERE: &str = "--here";
const WORDS: u32 = 1 << 16;
const BYTES: u64 = 4 * WORDS as u64;
const STEP: u64 = 64 << 20;
/// As much as is asked for at most.
const MOST: u64 = 4 << 30;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some(HERE) {
        application()?;
        return Ok(ExitCode::SUCCESS);
    }
    for (target, circumstances) in [
        ("none", "without an enforcer"),
        ("ours", "as a tenant of 1 GiB"),
    ] {
        println!("\n{circumstances}");
        let (target, driver) = (Target::named(target)?, Driver::default());
        let environment = Environment::create(&Request {
            machine: "h200",
            budget: "0=1GiB",
            ..Request::new("embedder", &target, &driver)
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
    let (loader, host) = (common::loader()?, Host::systems());
    // The application's device is another runtime's here, which saves a page of Vulkan: to the one inside it is the application's.
    let outside = Runtime::new(loader, host, Settings::default());
    let inside = Runtime::new(loader, host, Settings::default());
    let own = outside.create_context(&OwnContext::default())?;
    outside.acquire_memory_allocator(own)?;
    // SAFETY: `outside` ends its context last.
    let external = unsafe { embedder::External::new(outside.handles(own)?) };
    let context = inside.adopt(external)?;
    let allocator = inside.acquire_memory_allocator(context)?;

    let mut pictures = [Buffer::new(BYTES), Buffer::new(BYTES)];
    let mut wrapped = [Buffer::new(BYTES), Buffer::new(BYTES)];
    for (picture, wrapped) in pictures.iter_mut().zip(&mut wrapped) {
        outside.allocate(own, picture, Usage::HostVisible)?;
        let (buffer, offset) = outside.get_buffer(picture)?;
        // SAFETY: a live buffer of this device for storage and transfers, of so many bytes, freed after it is detached.
        let buffer = unsafe { embedder::ForeignBuffer::new(buffer, BYTES) };
        inside.wrap_buffer(context, wrapped, buffer, offset)?;
    }
    let words: Vec<u8> = (0..WORDS).flat_map(u32::to_ne_bytes).collect();
    outside.write(&pictures[0], 0, &words)?;
    outside.write(&pictures[1], 0, &vec![0; BYTES as usize])?;
    let launch = Launch {
        kernel: &AFFINE,
        buffers: &[&wrapped[0], &wrapped[1]],
        scalars: &[WORDS, 3, 1],
        groups: groups(WORDS),
    };
    inside.dispatch(context, &launch)?;
    let mut last = [0; 4];
    outside.read(&pictures[1], BYTES - 4, &mut last)?;
    let (computed, promised) = (u32::from_ne_bytes(last), (WORDS - 1) * 3 + 1);
    println!("  the picture's last word: {computed}, where a driver computes {promised}");
    if let Err(error) = inside.read(&wrapped[1], 0, &mut [0]) {
        println!("  mapping what is wrapped: {error}");
    }
    if let Err(error) = inside.release_memory_allocator(context, allocator) {
        println!("  releasing too early: {error}");
    }
    greed(&inside, context)?;

    for wrapped in &mut wrapped {
        inside.detach(wrapped)?;
    }
    inside.release_memory_allocator(context, allocator)?;
    for picture in &mut pictures {
        outside.free(picture)?;
    }
    Ok(outside.device_release(own)?)
}

/// Takes device memory until it is refused, and gives it back.
fn greed(runtime: &Runtime, context: ContextId) -> Result<(), Box<dyn Error>> {
    let mut held: Vec<Buffer> = Vec::new();
    let mut refused = None;
    while refused.is_none() && (held.len() as u64) * STEP < MOST {
        let mut buffer = Buffer::new(STEP);
        match runtime.allocate(context, &mut buffer, Usage::DeviceLocal) {
            Ok(()) => held.push(buffer),
            Err(error) => refused = Some(error),
        }
    }
    let granted = (held.len() as u64 * STEP) >> 20;
    match refused {
        Some(error) => println!("  memory: {granted} MiB, then {error}"),
        None => println!("  memory: {granted} MiB without a refusal"),
    }
    for mut buffer in held {
        runtime.free(&mut buffer)?;
    }
    Ok(())
}
