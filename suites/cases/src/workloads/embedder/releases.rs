//! Allocators released too early, too late, twice, and by the wrong name.

use embedder::kernels::{REVERSE, groups};
use embedder::{AllocatorId, Buffer, ContextId, Error, Gone, Launch, Usage};
use harness::{cases, ensure, ensure_eq, fail};

use super::{SMALL, adopted, embedded, one_dispatch, owned};
use crate::ffi::vulkan::Place;
use crate::ffi::vulkan::embedding::Seen;

cases! {
    /// An allocator whose buffers or dispatches live is not released, and the refusal names them.
    a_release_names_what_still_lives {
        entry_points: ["vkAllocateMemory", "vkFreeMemory", "vkQueueSubmit"],
    } (session) {
        embedded(session, SMALL, |application| {
            let runtime = &application.runtime;
            let (context, allocator) = adopted(application)?;
            let (mut source, mut result) = (owned(runtime, context, 256)?, owned(runtime, context, 256)?);
            let mut crop = runtime.crop(&source, 4, 8)?;
            let launch = Launch { kernel: &REVERSE, buffers: &[&source, &result], scalars: &[64], groups: groups(64) };
            let dispatch = runtime.launch(context, &launch)?;
            let named = [source.region(), result.region(), crop.region()];
            match runtime.release_memory_allocator(context, allocator) {
                Err(Error::StillInUse { regions, dispatches, .. }) => {
                    ensure!(named.iter().flatten().all(|region| regions.contains(region)), "of {named:?} only {regions:?} are named");
                    ensure_eq!((regions.len(), dispatches), (3, vec![dispatch]), "what is named");
                }
                answer => fail!("releasing with buffers and a dispatch answered {answer:?}"),
            }
            let busy = runtime.free(&mut result);
            ensure!(matches!(busy, Err(Error::Busy { dispatches: 1, .. })), "freeing a dispatch's buffer answered {busy:?}");
            runtime.wait(dispatch)?;
            let again = runtime.wait(dispatch);
            ensure!(matches!(again, Err(Error::UnknownDispatch { .. })), "waiting twice answered {again:?}");
            let cropped = runtime.free(&mut source);
            ensure!(matches!(cropped, Err(Error::HasCrops { crops: 1, .. })), "freeing under a crop answered {cropped:?}");
            for buffer in [&mut crop, &mut source, &mut result] {
                let early = runtime.release_memory_allocator(context, allocator);
                ensure!(matches!(early, Err(Error::StillInUse { .. })), "releasing before the last is freed answered {early:?}");
                runtime.free(buffer)?;
            }
            Ok(runtime.release_memory_allocator(context, allocator)?)
        })
    }

    /// NULL, another context's allocator, a released one and one of an unknown context are each refused as what they are, and
    /// nothing of anybody's is touched.
    wrong_allocators_are_refused_by_kind {
        entry_points: ["vkCreateDevice"],
    } (session) {
        embedded(session, SMALL, |application| {
            let runtime = &application.runtime;
            for which in ["VkInstance", "VkPhysicalDevice", "VkDevice", "VkQueue"] {
                match runtime.adopt(application.external_without(which)?) {
                    Err(Error::Null { which: named }) => ensure_eq!(named, which, "the handle that is named"),
                    answer => fail!("a context without {which} answered {answer:?}"),
                }
            }
            let nobody = runtime.acquire_memory_allocator(ContextId::NULL);
            ensure!(matches!(nobody, Err(Error::Null { .. })), "the NULL context answered {nobody:?}");
            let (context, allocator) = adopted(application)?;
            let (other, others) = adopted(application)?;
            let null = runtime.release_memory_allocator(context, AllocatorId::NULL);
            ensure!(matches!(null, Err(Error::Null { .. })), "NULL answered {null:?}");
            let foreign = runtime.release_memory_allocator(context, others);
            ensure!(matches!(foreign, Err(Error::ForeignAllocator { allocator, given }) if allocator == others && given == context),
                "another context's allocator answered {foreign:?}");
            one_dispatch(application, other)?;
            runtime.release_memory_allocator(context, allocator)?;
            let twice = runtime.release_memory_allocator(context, allocator);
            ensure!(matches!(twice, Err(Error::AlreadyReleased { .. })), "a second release answered {twice:?}");
            let without = runtime.allocate(context, &mut Buffer::new(4), Usage::DeviceLocal);
            ensure!(matches!(without, Err(Error::NoAllocator { .. })), "memory of a released allocator answered {without:?}");
            let again = runtime.acquire_memory_allocator(context)?;
            let stale = runtime.release_memory_allocator(context, allocator);
            ensure!(again != allocator && matches!(stale, Err(Error::AlreadyReleased { .. })), "the name of one before answered {stale:?}");
            runtime.release_memory_allocator(context, again)?;
            runtime.forget_context(context)?;
            let unknown = runtime.acquire_memory_allocator(context);
            ensure!(matches!(unknown, Err(Error::UnknownContext { .. })), "a context struck out answered {unknown:?}");
            let not_own = runtime.device_release(other);
            ensure!(matches!(not_own, Err(Error::OwnedByApplication { .. })), "device_release of the application's answered {not_own:?}");
            Ok(runtime.release_memory_allocator(other, others)?)
        })
    }

    /// After a release the application's instance, device, queue and buffers are as good as before, and a new allocator works.
    the_applications_handles_survive_a_release {
        entry_points: ["vkDestroyDevice", "vkFreeMemory", "vkQueueSubmit"],
    } (session) {
        embedded(session, SMALL, |application| {
            let runtime = &application.runtime;
            let own = application.buffer(64)?;
            own.write(0, &[7; 64]);
            for round in 1..=3_u8 {
                let (context, allocator) = adopted(application)?;
                let mut wrapped = Buffer::new(64);
                runtime.wrap_buffer(context, &mut wrapped, own.foreign(), 0)?;
                let mut source = owned(runtime, context, 64)?;
                runtime.write(&source, 0, &[round; 64])?;
                runtime.copy(&source, &wrapped)?;
                ensure_eq!(runtime.detach(&mut wrapped)?, (own.raw(), 0), "what is detached");
                runtime.free(&mut source)?;
                runtime.release_memory_allocator(context, allocator)?;
                runtime.forget_context(context)?;
                ensure_eq!(own.read(0, 64), [round; 64], "the application's buffer after round {round}");
            }
            ensure_eq!(Seen::now().devices_destroyed, 0, "devices that the runtime destroyed");
            application.device()?.free_nothing();
            let kind = application.instance.memory_type(application.physical, Place::Visible);
            let kind = kind.or(application.instance.memory_type(application.physical, Place::Host));
            let Some(kind) = kind else { fail!("no memory type") };
            application.device()?.allocate(kind, 4096)?;
            Ok(())
        })
    }

    /// A device that the application destroys after the release hears nothing more, and one that it destroys before takes all
    /// along: no function of it is called again, and the runtime's names for it are refused.
    releases_before_and_after_the_devices_end {
        entry_points: ["vkDestroyDevice"], invalid_use: ["VUID-vkDestroyDevice-device-05137", "VUID-vkDestroyDevice-device-00378"],
    } (session) {
        embedded(session, SMALL, |application| {
            let (context, allocator) = adopted(application)?;
            one_dispatch(application, context)?;
            application.runtime.release_memory_allocator(context, allocator)?;
            let before = Seen::now();
            let device = application.destroy_device()?;
            ensure_eq!(application.runtime.device_destroyed(device), Gone::default(), "what went with a device that was released");
            let late = application.runtime.release_memory_allocator(context, allocator);
            ensure!(matches!(late, Err(Error::DeviceDestroyed { .. })), "a second release, of a device that is gone, answered {late:?}");
            ensure_eq!(Seen::now(), before, "what was called after the device's end");
            Ok(())
        })?;
        if session.is_real() {
            // What is left on a device is not let go of by every driver that destroys it.
            return Ok(());
        }
        embedded(session, SMALL, |application| {
            let (context, allocator) = adopted(application)?;
            one_dispatch(application, context)?;
            let mut left = owned(&application.runtime, context, 64)?;
            let before = Seen::now();
            let device = application.destroy_device()?;
            let runtime = &application.runtime;
            let gone = runtime.device_destroyed(device);
            ensure_eq!(gone, Gone { allocators: 1, regions: 1, dispatches: 0, modules: 1 }, "what went with the device");
            let late = runtime.release_memory_allocator(context, allocator);
            ensure!(matches!(late, Err(Error::DeviceDestroyed { .. })), "releasing after the device's end answered {late:?}");
            let freed = runtime.free(&mut left);
            ensure!(matches!(freed, Err(Error::DeviceDestroyed { .. })), "freeing after it answered {freed:?}");
            runtime.forget_context(context)?;
            ensure_eq!(Seen::now(), before, "what was called after the device's end");
            Ok(())
        })
    }
}
