//! What the runtime takes of the device and of the host, and how it bears to be refused.

use embedder::kernels::{AFFINE, groups};
use embedder::{Buffer, ContextId, Error, Launch, Settings, Usage};
use harness::{Bytes, Failure, Session, cases, ensure, ensure_eq, fail};

use super::{SMALL, adopted, affine, embedded, owned};
use crate::ffi::vulkan::embedding::{Application, unwatched_context};
use crate::ffi::vulkan::{Place, Query};
use crate::greed::{VULKAN_ROOM, budget, fills, until_refused};

/// How much of a runtime's life is lived.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Whole,
    /// Without copies and dispatches: Mesa 22.3 crashes where recording vkCmdPipelineBarrier is refused memory.
    Unrecorded,
}

/// A runtime's life in a context of the application's; what fails leaves nothing.
fn life(application: &Application, extent: Life) -> Result<(), Error> {
    let runtime = &application.runtime;
    let own = application.buffer(4096).map_err(|_| Error::NoRegion)?;
    let external = application.external().map_err(|_| Error::NoRegion)?;
    let context = runtime.adopt(external)?;
    let allocator = runtime.acquire_memory_allocator(context)?;
    let mut held = Vec::new();
    let mut work = || -> Result<(), Error> {
        for usage in [Usage::HostVisible, Usage::DeviceLocal, Usage::DeviceLocal] {
            held.push(Buffer::new(300 << 10));
            if let Some(last) = held.last_mut() {
                runtime.allocate(context, last, usage)?;
            }
        }
        let mut wrapped = Buffer::new(1024);
        runtime.wrap_buffer(context, &mut wrapped, own.foreign(), 1024)?;
        let crop = runtime.crop(&wrapped, 256, 256);
        held.push(wrapped);
        held.push(crop?);
        let [staging, first, second, .., crop] = &held[..] else {
            return Err(Error::NoRegion);
        };
        runtime.write(staging, 0, &[1; 64])?;
        if extent == Life::Unrecorded {
            return Ok(());
        }
        runtime.copy(staging, first)?;
        affine(application, context, [first, second], [2, 1])?;
        affine(application, context, [crop, second], [2, 1])
    };
    let done = work();
    for mut buffer in held
        .into_iter()
        .rev()
        .filter(|buffer| buffer.region().is_some())
    {
        runtime.free(&mut buffer)?;
    }
    runtime.release_memory_allocator(context, allocator)?;
    runtime.forget_context(context)?;
    done
}

/// Lets each request for host memory be refused in turn, the runtime's and the driver's own, until the runtime's life is
/// shorter than that. At least so many of them must have been in the way.
pub(super) fn host_refusals(session: &Session, extent: Life, least: usize) -> Result<(), Failure> {
    let mut refused = 0;
    for number in 1_usize.. {
        let mut through = false;
        embedded(session, SMALL, |application| {
            application.host.refuse(number);
            let before = application.host.asked();
            let lived = life(application, extent);
            through = application.host.asked() < before + number;
            match lived {
                Ok(()) => Ok(()),
                Err(Error::OutOfHostMemory { .. }) if !through => {
                    refused += 1;
                    // It is the request that was refused, not the runtime: the same can be done again.
                    Ok(life(application, extent)?)
                }
                Err(error) => fail!("without request {number} for host memory: {error:?}"),
            }
        })?;
        if through {
            ensure!(
                refused >= least,
                "only {refused} of {number} requests for host memory had to be there"
            );
            return Ok(());
        }
    }
    Ok(())
}

/// The same for contexts of the runtime's own, as far as their making. (The validation layer of 1.3.239 crashes where it is
/// refused memory.) Who asks for it may also do without.
fn own_refusals(application: &Application) -> Result<(), Failure> {
    let (runtime, host) = (&application.runtime, &application.host);
    // The first leaves room in the list of contexts, and nothing else.
    runtime.device_release(runtime.create_context(&unwatched_context())?)?;
    let before = host.live();
    let mut refused = 0;
    for number in 1_usize.. {
        let asked = host.asked();
        host.refuse(number);
        let made = runtime.create_context(&unwatched_context());
        let through = host.asked() < asked + number;
        match made {
            Ok(context) => runtime.device_release(context)?,
            Err(error) if through => fail!("without a refusal: {error:?}"),
            Err(_) => refused += 1,
        }
        ensure_eq!(
            host.live(),
            before,
            "blocks of host memory after request {number}"
        );
        if through {
            ensure!(
                refused >= 2,
                "only {refused} of {number} requests for host memory had to be there"
            );
            return Ok(());
        }
    }
    Ok(())
}

/// What the validation layer says when objects of a lost device are destroyed, which the specification lets one do.
const LOST: [&str; 4] = [
    "VUID-vkDestroyFence-fence-01120",
    "VUID-vkDestroyCommandPool-commandPool-00041",
    "VUID-vkDestroyDescriptorPool-descriptorPool-00303",
    "VUID-vkDestroyPipeline-pipeline-00765",
];

/// Bytes that the device-local heap is said to be used by.
fn usage(application: &Application) -> Bytes {
    let told = application
        .instance
        .heap_budgets(application.physical, Query::Second);
    let local = told.heaps.iter().position(|heap| heap.device_local);
    Bytes(told.usage[local.unwrap_or(0)])
}

const REFUSALS: &str = include_str!("refusals.toml");

/// What the driver refuses once each, in the order in which the runtime comes to it. The last three are for a
/// recording that takes the place of one that is done.
const REFUSED: [&str; 19] = [
    "vkCreateBuffer",
    "vkAllocateMemory",
    "vkMapMemory",
    "vkBindBufferMemory",
    "vkCreateCommandPool",
    "vkCreateDescriptorPool",
    "vkCreateFence",
    "vkAllocateCommandBuffers",
    "vkCreateShaderModule",
    "vkCreateDescriptorSetLayout",
    "vkCreatePipelineLayout",
    "vkCreateComputePipelines",
    "vkAllocateDescriptorSets",
    "vkBeginCommandBuffer",
    "vkEndCommandBuffer",
    "vkQueueSubmit",
    "vkResetFences",
    "vkResetDescriptorPool",
    "vkResetCommandPool",
];

/// Two buffers and a dispatch; what fails leaves nothing.
fn attempt(application: &Application, context: ContextId) -> Result<(), Error> {
    let runtime = &application.runtime;
    let mut held = Vec::new();
    let mut work = || {
        held.push(owned(runtime, context, 4096)?);
        held.push(owned(runtime, context, 4096)?);
        affine(application, context, [&held[0], &held[1]], [1, 1])
    };
    let done = work();
    for mut buffer in held {
        runtime.free(&mut buffer)?;
    }
    done
}

/// Attempts until nothing more is refused, and what was.
fn refused_in_turn(application: &Application) -> Result<Vec<&'static str>, Failure> {
    let (context, allocator) = adopted(application)?;
    let mut refused = Vec::new();
    let mut well = 0;
    // Three go well before the last refusal.
    while well < 5 {
        match attempt(application, context) {
            Ok(()) => well += 1,
            Err(Error::OutOfHostMemory { during }) => {
                refused.push(during);
                ensure!(
                    refused.len() <= REFUSED.len(),
                    "refused again and again: {refused:?}"
                );
            }
            Err(error) => fail!("after {refused:?}: {error:?}"),
        }
    }
    let runtime = &application.runtime;
    runtime.release_memory_allocator(context, allocator)?;
    Ok(refused)
}

cases! {
    /// What the runtime allocates is charged to the budget, to its last block; what it wraps is not; all is there again
    /// after the release.
    what_the_runtime_allocates_is_charged_and_what_it_wraps_is_not {
        kind: Budget, defects: ["V1", "V6", "V13"], entry_points: ["vkAllocateMemory", "vkFreeMemory"], budget: "0=1GiB",
    } (session) {
        let promised = budget(session, 0)?;
        embedded(session, Settings::default(), |application| {
            let runtime = &application.runtime;
            let (context, allocator) = adopted(application)?;
            let own = application.buffer(Bytes::mib(16).0)?;
            let before = usage(application);
            let mut wrapped = Vec::new();
            for _ in 0..64 {
                let mut buffer = Buffer::new(Bytes::mib(16).0);
                runtime.wrap_buffer(context, &mut buffer, own.foreign(), 0)?;
                wrapped.push(buffer);
            }
            ensure_eq!(usage(application), before, "what is used, with 64 buffers of 16 MiB wrapped");
            for round in 1..=2 {
                // Whole steps of 2 MiB, which no card rounds up.
                let steps = [Bytes::mib(96), Bytes::mib(6), Bytes::mib(2)];
                let taken = until_refused(&steps, |step| {
                    let mut buffer = Buffer::new(step.0);
                    runtime.allocate(context, &mut buffer, Usage::DeviceLocal).map(|()| buffer)
                });
                ensure!(taken.refusals.iter().all(|refusal| matches!(refusal, Error::OutOfDeviceMemory { during: "vkAllocateMemory" })),
                    "the runtime was refused with {:?}", taken.refusals);
                fills(taken.bytes, promised, VULKAN_ROOM)?;
                ensure_eq!(usage(application).saturating_sub(before).0, runtime.held(context)?, "what is used, and held in blocks, in round {round}");
                for mut buffer in taken.held {
                    runtime.free(&mut buffer)?;
                }
            }
            for mut buffer in wrapped {
                runtime.free(&mut buffer)?;
            }
            runtime.release_memory_allocator(context, allocator)?;
            ensure_eq!(usage(application), before, "what is used after the release");
            let Some(kind) = application.instance.memory_type(application.physical, Place::Device) else {
                fail!("no device-local memory");
            };
            let device = application.device()?;
            let again = until_refused(&[Bytes::mib(64), Bytes::mib(2)], |step| device.allocate(kind, step.0));
            fills(again.bytes, promised, VULKAN_ROOM)
        })
    }

    /// Every request for host memory, the runtime's own and the driver's, may be refused: it surfaces as that error, nothing is
    /// left, and the same works when there is memory again. All that was granted is freed through the application's callbacks.
    every_host_allocation_may_fail {
        entry_points: ["vkAllocateMemory", "vkCreateShaderModule", "vkCreateBuffer"],
        on_real: No("each refusal is in an application of its own, and the vendor's driver makes thirty instances a process"),
    } (session) {
        host_refusals(session, Life::Whole, 12)
    }

    /// VK_ERROR_OUT_OF_DEVICE_MEMORY of the driver surfaces as that error; nothing is left of the request, and the next is granted.
    a_driver_without_memory_is_an_error_and_no_leak {
        entry_points: ["vkAllocateMemory", "vkCreateShaderModule"],
        faults: "[[fault]]\nat = \"vkAllocateMemory\"\nwhen = \"2\"\nthen = \"result:-2\"\n[[fault]]\nat = \"vkAllocateMemory\"\nwhen = \"3\"\nthen = \"result:-2\"\n[[fault]]\nat = \"vkCreateShaderModule\"\nwhen = \"1\"\nthen = \"result:-2\"",
    } (session) {
        embedded(session, SMALL, |application| {
            let runtime = &application.runtime;
            let (context, allocator) = adopted(application)?;
            let mut first = Buffer::new(4096);
            // The usual block, and, after two refusals, neither the usual one nor one as small as will do.
            runtime.allocate(context, &mut first, Usage::HostVisible)?;
            let mut second = Buffer::new(4096);
            let refused = runtime.allocate(context, &mut second, Usage::DeviceLocal);
            ensure!(matches!(refused, Err(Error::OutOfDeviceMemory { during: "vkAllocateMemory" })), "a driver without memory answered {refused:?}");
            ensure_eq!((second.region(), runtime.held(context)?), (None, SMALL.block), "what is left of it");
            runtime.allocate(context, &mut second, Usage::DeviceLocal)?;
            let unbuilt = affine(application, context, [&first, &second], [1, 1]);
            ensure!(matches!(unbuilt, Err(Error::OutOfDeviceMemory { during: "vkCreateShaderModule" })), "a module without memory answered {unbuilt:?}");
            ensure_eq!(runtime.modules(context)?, 0, "modules kept of it");
            affine(application, context, [&first, &second], [1, 1])?;
            runtime.free(&mut first)?;
            runtime.free(&mut second)?;
            Ok(runtime.release_memory_allocator(context, allocator)?)
        })
    }

    /// A device that is lost while a dispatch is under way: waiting says so, what follows says so too, and all that the runtime
    /// had can be freed and released.
    a_device_lost_in_mid_dispatch_can_be_released {
        // To the layer of 1.3.239 the work of a lost device is never over.
        entry_points: ["vkQueueSubmit", "vkWaitForFences"], invalid_use: LOST,
        faults: "[[fault]]\nat = \"vkWaitForFences\"\nwhen = \"2\"\nthen = \"lost\"",
    } (session) {
        embedded(session, SMALL, |application| {
            let runtime = &application.runtime;
            let (context, allocator) = adopted(application)?;
            let (mut source, mut result) = (Buffer::new(4096), Buffer::new(4096));
            runtime.allocate(context, &mut source, Usage::HostVisible)?;
            runtime.allocate(context, &mut result, Usage::DeviceLocal)?;
            affine(application, context, [&source, &result], [1, 1])?;
            let launch = Launch { kernel: &AFFINE, buffers: &[&source, &result], scalars: &[1024, 1, 1], groups: groups(1024) };
            let dispatch = runtime.launch(context, &launch)?;
            let lost = runtime.wait(dispatch);
            ensure!(matches!(lost, Err(Error::DeviceLost { during: "vkWaitForFences" })), "waiting on a lost device answered {lost:?}");
            let refused = runtime.launch(context, &launch);
            ensure!(matches!(refused, Err(Error::DeviceLost { during: "vkQueueSubmit" })), "a launch on it answered {refused:?}");
            let uncopied = runtime.copy(&source, &result);
            ensure!(matches!(uncopied, Err(Error::DeviceLost { .. })), "a copy on it answered {uncopied:?}");
            runtime.free(&mut source)?;
            runtime.free(&mut result)?;
            Ok(runtime.release_memory_allocator(context, allocator)?)
        })
    }
    /// A wait that ends before its dispatch (by patience, or because the driver has no memory for waiting) leaves it under way:
    /// what it uses stays refused, and it can be waited for again.
    a_wait_that_ends_early_can_be_repeated {
        entry_points: ["vkWaitForFences"],
        faults: "[[fault]]\nat = \"vkWaitForFences\"\nwhen = \"1\"\nthen = \"result:2\"\n[[fault]]\nat = \"vkWaitForFences\"\nwhen = \"2\"\nthen = \"result:-1\"",
    } (session) {
        embedded(session, SMALL, |application| {
            let runtime = &application.runtime;
            let (context, allocator) = adopted(application)?;
            let (mut source, mut result) = (owned(runtime, context, 4096)?, owned(runtime, context, 4096)?);
            let launch = Launch { kernel: &AFFINE, buffers: &[&source, &result], scalars: &[1024, 1, 1], groups: groups(1024) };
            let dispatch = runtime.launch(context, &launch)?;
            let late = runtime.wait(dispatch);
            ensure!(matches!(late, Err(Error::NotDone { dispatch: named }) if named == dispatch), "a wait without end answered {late:?}");
            let busy = runtime.free(&mut result);
            ensure!(matches!(busy, Err(Error::Busy { dispatches: 1, .. })), "freeing what it uses answered {busy:?}");
            let refused = runtime.wait(dispatch);
            ensure!(matches!(refused, Err(Error::OutOfHostMemory { during: "vkWaitForFences" })), "a wait without memory answered {refused:?}");
            match runtime.release_memory_allocator(context, allocator) {
                Err(Error::StillInUse { dispatches, .. }) => ensure_eq!(dispatches, vec![dispatch], "what is named"),
                answer => fail!("releasing with a dispatch answered {answer:?}"),
            }
            runtime.wait(dispatch)?;
            runtime.free(&mut source)?;
            runtime.free(&mut result)?;
            Ok(runtime.release_memory_allocator(context, allocator)?)
        })
    }
    /// Instance and device of a context that the runtime makes are made of the application's host memory too: each request
    /// may be refused, nothing is left of what was begun, and the next context is made.
    a_context_of_the_runtimes_own_bears_refusals_of_host_memory {
        entry_points: ["vkCreateInstance", "vkCreateDevice"],
        on_real: No("it makes hundreds of instances and devices, which take a card a fraction of a second each"),
    } (session) {
        embedded(session, SMALL, |application| own_refusals(application))
    }
    /// Each call that makes, records or submits something may be refused by the driver: it surfaces by its name, the validation
    /// layer finds nothing left of what was begun, and the same works in the end.
    whatever_the_driver_refuses_leaves_nothing {
        entry_points: ["vkCreateBuffer", "vkCreateComputePipelines", "vkAllocateDescriptorSets", "vkQueueSubmit"], faults: REFUSALS,
        // To the layer of 1.3.239 what vkQueueSubmit refused is under way.
        invalid_use: LOST,
    } (session) {
        embedded(session, SMALL, |application| {
            ensure_eq!(refused_in_turn(application)?, REFUSED, "what was refused, in turn");
            Ok(())
        })
    }
}
