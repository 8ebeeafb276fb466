//! The cache of shader modules: a device's, and each entry its maker's.

use embedder::kernels::{AFFINE, REVERSE, groups};
use embedder::{ContextId, Error, Launch, Runtime};
use harness::{Failure, cases, ensure, ensure_eq};

use super::{SMALL, adopted, affine, embedded, one_dispatch, owned};
use crate::ffi::vulkan::embedding::{Application, Seen};

/// One dispatch of the kernel that reverses.
fn reversed(runtime: &Runtime, context: ContextId) -> Result<(), Failure> {
    let (mut source, mut result) = (owned(runtime, context, 256)?, owned(runtime, context, 256)?);
    let launch = Launch {
        kernel: &REVERSE,
        buffers: &[&source, &result],
        scalars: &[64],
        groups: groups(64),
    };
    runtime.dispatch(context, &launch)?;
    runtime.free(&mut source)?;
    Ok(runtime.free(&mut result)?)
}

/// Modules made, and destroyed.
fn counts() -> (usize, usize) {
    let seen = Seen::now();
    (seen.modules_made, seen.modules_destroyed)
}

pub(super) fn shared_modules(application: &Application) -> Result<(), Failure> {
    let runtime = &application.runtime;
    let (first, first_allocator) = adopted(application)?;
    let (second, second_allocator) = adopted(application)?;
    ensure!(
        first_allocator != second_allocator,
        "two contexts have one allocator"
    );
    one_dispatch(application, first)?;
    one_dispatch(application, second)?;
    ensure_eq!(
        Seen::now().modules_made,
        1,
        "modules made for one kernel of two contexts"
    );
    // One that the second makes, and the first only finds.
    let reverse = |context| reversed(runtime, context);
    reverse(second)?;
    reverse(first)?;
    let seen = Seen::now();
    ensure_eq!(
        (seen.modules_made, seen.modules_destroyed),
        (2, 0),
        "modules made and destroyed for two kernels"
    );
    runtime.release_memory_allocator(first, first_allocator)?;
    ensure_eq!(
        Seen::now().modules_destroyed,
        1,
        "modules destroyed with the allocator that had made one"
    );
    ensure_eq!(runtime.modules(second)?, 1, "modules left for the other");
    reverse(second)?;
    ensure_eq!(
        Seen::now().modules_made,
        2,
        "modules made for a kernel that is still there"
    );
    one_dispatch(application, second)?;
    ensure_eq!(
        Seen::now().modules_made,
        3,
        "modules made for one that went with its maker"
    );
    runtime.release_memory_allocator(second, second_allocator)?;
    let seen = Seen::now();
    ensure_eq!(
        (seen.modules_made, seen.modules_destroyed),
        (3, 3),
        "modules made and destroyed in the end"
    );
    Ok(())
}

/// Two devices of one GPU, with a context each.
fn two_devices(application: &Application) -> Result<(), Failure> {
    let runtime = &application.runtime;
    let device = application.instance.device(application.physical)?;
    let (first, first_allocator) = adopted(application)?;
    let second = runtime.adopt(application.external_of(&device)?)?;
    let second_allocator = runtime.acquire_memory_allocator(second)?;
    one_dispatch(application, first)?;
    one_dispatch(application, second)?;
    ensure_eq!(
        counts(),
        (2, 0),
        "modules made for one kernel on two devices"
    );
    let (mut here, mut there) = (owned(runtime, first, 256)?, owned(runtime, second, 256)?);
    let launched = affine(application, first, [&here, &there], [1, 1]);
    ensure!(
        matches!(launched, Err(Error::ForeignRegion { index: 1, .. })),
        "a launch with the other device's buffer answered {launched:?}"
    );
    let copied = runtime.copy(&here, &there);
    ensure!(
        matches!(copied, Err(Error::ForeignRegion { index: 1, .. })),
        "a copy between two devices answered {copied:?}"
    );
    runtime.free(&mut here)?;
    runtime.release_memory_allocator(first, first_allocator)?;
    ensure_eq!(counts(), (2, 1), "modules left to the other device");
    ensure_eq!(runtime.modules(second)?, 1, "modules that it finds");
    one_dispatch(application, second)?;
    ensure_eq!(counts(), (2, 1), "modules made again for the other device");
    runtime.free(&mut there)?;
    runtime.release_memory_allocator(second, second_allocator)?;
    ensure_eq!(counts(), (2, 2), "modules in the end");
    Ok(())
}

cases! {
    /// Contexts on one device share shader modules; releasing one's allocator removes only what it made, and the other makes
    /// again what it still needs.
    two_contexts_on_a_device_share_modules {
        entry_points: ["vkCreateShaderModule", "vkDestroyShaderModule", "vkQueueSubmit"],
    } (session) {
        embedded(session, SMALL, |application| shared_modules(application))
    }

    /// A module is a device's: contexts on two devices share none, a release on one leaves the other's, and no buffer of one is
    /// taken for the other.
    two_devices_share_no_module {
        entry_points: ["vkCreateDevice", "vkCreateShaderModule", "vkDestroyShaderModule"],
    } (session) {
        embedded(session, SMALL, |application| two_devices(application))
    }

    /// A module whose maker is released while another context's dispatch uses it is found no more, and destroyed when that is over.
    a_module_in_flight_outlives_its_maker {
        entry_points: ["vkQueueSubmit", "vkDestroyShaderModule", "vkDestroyPipeline"],
    } (session) {
        embedded(session, SMALL, |application| {
            let runtime = &application.runtime;
            let (first, first_allocator) = adopted(application)?;
            let (second, second_allocator) = adopted(application)?;
            one_dispatch(application, first)?;
            let (mut source, mut result) = (owned(runtime, second, 256)?, owned(runtime, second, 256)?);
            let launch = Launch { kernel: &AFFINE, buffers: &[&source, &result], scalars: &[64, 1, 1], groups: groups(64) };
            let dispatch = runtime.launch(second, &launch)?;
            runtime.release_memory_allocator(first, first_allocator)?;
            ensure_eq!((counts(), runtime.modules(second)?), ((1, 0), 0), "made and destroyed, and found, with a dispatch under way");
            runtime.wait(dispatch)?;
            ensure_eq!(counts(), (1, 1), "made and destroyed when it is done");
            runtime.dispatch(second, &launch)?;
            ensure_eq!((counts(), runtime.modules(second)?), ((2, 1), 1), "made and destroyed, and found, by the next dispatch");
            runtime.free(&mut source)?;
            runtime.free(&mut result)?;
            Ok(runtime.release_memory_allocator(second, second_allocator)?)
        })
    }
}
