//! A runtime inside an application that owns the Vulkan device (`suites/workloads/embedder`): what each may expect of the
//! other, with and without an enforcer below.
//!
//! Whatever a case does, [`embedded`] sees to it that nothing is left of it: no block of the application's host memory, no
//! byte of the simulated device. Dispatches are looked at where the application stands before the driver, as descriptors and
//! constants; their bytes come out right where a driver computes, which the mock does not: [`lavapipe`].

use std::sync::Arc;
use std::time::Duration;

use embedder::kernels::{AFFINE, groups};
use embedder::{AllocatorId, Buffer, ContextId, Error, Launch, Runtime, Settings, Usage};
use harness::{Bytes, Failure, Session, ensure_eq};
use mock_device::DeviceIndex;

use crate::ffi::vulkan::embedding::{Application, HostMemory, Seen};

pub mod buffers;
pub mod contexts;
pub mod lavapipe;
pub mod memory;
pub mod modules;
pub mod regions;
pub mod releases;

/// Blocks as small as a driver's own, so that a case has several; and less patience than a case's own time.
const SMALL: Settings = Settings {
    block: 1 << 20,
    patience: Duration::from_secs(6),
};

/// Runs an application with a runtime inside, ends both, and looks for what is left.
fn embedded(
    session: &Session,
    settings: Settings,
    body: impl FnOnce(&mut Application) -> Result<(), Failure>,
) -> Result<(), Failure> {
    Seen::begin();
    let mut application = Application::start(settings)?;
    let host = Arc::clone(&application.host);
    let ended = body(&mut application);
    drop(application);
    ended?;
    nothing_is_left(session, &host)
}

fn nothing_is_left(session: &Session, host: &HostMemory) -> Result<(), Failure> {
    ensure_eq!(
        host.live(),
        0,
        "blocks of host memory left, of {}",
        host.asked()
    );
    if let Ok(world) = session.world() {
        let held: Bytes = (0..session.gpus())
            .map(|gpu| world.used_by(DeviceIndex(gpu), std::process::id()))
            .sum();
        ensure_eq!(held, Bytes::ZERO, "left on the simulated devices");
    }
    Ok(())
}

/// The application's context, adopted and with its allocator.
fn adopted(application: &Application) -> Result<(ContextId, AllocatorId), Failure> {
    let runtime = &application.runtime;
    let context = runtime.adopt(application.external()?)?;
    Ok((context, runtime.acquire_memory_allocator(context)?))
}

/// A buffer of the runtime's own, for a dispatch.
fn owned(runtime: &Runtime, context: ContextId, bytes: u64) -> Result<Buffer, Error> {
    let mut buffer = Buffer::new(bytes);
    runtime.allocate(context, &mut buffer, Usage::HostVisible)?;
    Ok(buffer)
}

/// One dispatch of the kernel that multiplies, in buffers that come and go.
fn one_dispatch(application: &Application, context: ContextId) -> Result<(), Failure> {
    let runtime = &application.runtime;
    let (mut source, mut result) = (
        owned(runtime, context, 4096)?,
        owned(runtime, context, 4096)?,
    );
    affine(application, context, [&source, &result], [3, 5])?;
    runtime.free(&mut source)?;
    Ok(runtime.free(&mut result)?)
}

/// `result = source * factor + addend` over as many words as `source` has.
fn affine(
    application: &Application,
    context: ContextId,
    [source, result]: [&Buffer; 2],
    [factor, addend]: [u32; 2],
) -> Result<(), Error> {
    let count = (source.bytes() / 4) as u32;
    application.runtime.dispatch(
        context,
        &Launch {
            kernel: &AFFINE,
            buffers: &[source, result],
            scalars: &[count, factor, addend],
            groups: groups(count),
        },
    )
}

/// Words as a buffer has them.
fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}
