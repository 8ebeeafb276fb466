//! Contexts: what is loaded for them, whose turn it is, and those of the runtime's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use embedder::kernels::{AFFINE, groups};
use embedder::{ContextHandler, ContextId, Error, Launch, Ownership, Refused};
use harness::{Failure, cases, ensure, ensure_eq, fail};

use super::{SMALL, adopted, affine, embedded, one_dispatch, owned};
use crate::ffi::vulkan::embedding::{Application, Seen, own_context};

pub(super) fn threads(application: &Application) -> Result<(), Failure> {
    const ROUNDS: u32 = 20;
    let contexts = [adopted(application)?, adopted(application)?];
    let work =
        |context: ContextId| (0..ROUNDS).try_for_each(|_| one_dispatch(application, context));
    let ended: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = contexts
            .iter()
            .flat_map(|(context, _)| [*context; 2])
            .map(|context| scope.spawn(move || work(context)))
            .collect();
        workers.into_iter().map(|worker| worker.join()).collect()
    });
    for ended in ended {
        match ended {
            Ok(ended) => ended?,
            Err(_) => fail!("a thread panicked"),
        }
    }
    let seen = Seen::now();
    ensure_eq!(
        (seen.submissions, seen.modules_made),
        (4 * ROUNDS as usize, 1),
        "submissions of four threads, and modules"
    );
    for (context, allocator) in contexts {
        application
            .runtime
            .release_memory_allocator(context, allocator)?;
    }
    Ok(())
}

/// Counts, and refuses when told to.
#[derive(Default)]
struct Lock {
    held: AtomicI32,
    acquired: AtomicU32,
    refuses: AtomicU32,
}

impl ContextHandler for Lock {
    fn acquire(&self, _: ContextId) -> Result<(), Refused> {
        if self.refuses.load(Ordering::SeqCst) != 0 {
            return Err(Refused("the application is about to end".to_owned()));
        }
        self.held.fetch_add(1, Ordering::SeqCst);
        self.acquired.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn release(&self, _: ContextId) {
        self.held.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Has somebody call the runtime at both its halves, and waits until that is done.
struct Asking(std::sync::Mutex<std::sync::mpsc::Sender<std::sync::mpsc::Sender<bool>>>);

impl Asking {
    fn ask(&self) -> Result<(), Refused> {
        let (done, heard) = std::sync::mpsc::channel();
        let sent = self.0.lock().map(|wishes| wishes.send(done).is_ok());
        // Long enough for a busy machine; a lock held here would never end.
        let served = heard.recv_timeout(std::time::Duration::from_secs(60));
        match (sent, served) {
            (Ok(true), Ok(true)) => Ok(()),
            _ => Err(Refused("the runtime did not answer the handler".to_owned())),
        }
    }
}

impl ContextHandler for Asking {
    fn acquire(&self, _: ContextId) -> Result<(), Refused> {
        self.ask()
    }

    fn release(&self, _: ContextId) {
        let _ = self.ask();
    }
}

cases! {
    /// Dispatch tables are loaded when an allocator is acquired, and never again: not by a second acquisition, no dispatch, no
    /// copy, no release.
    dispatch_tables_are_loaded_once {
        entry_points: ["vkGetInstanceProcAddr", "vkGetDeviceProcAddr"],
    } (session) {
        embedded(session, SMALL, |application| {
            let runtime = &application.runtime;
            let context = runtime.adopt(application.external()?)?;
            ensure_eq!(Seen::now().look_ups, 0, "names looked up for a context that is only known");
            let allocator = runtime.acquire_memory_allocator(context)?;
            let loaded = Seen::now().look_ups;
            ensure!(loaded > 100, "only {loaded} names were looked up");
            ensure_eq!(runtime.acquire_memory_allocator(context)?, allocator, "a second acquisition");
            for _ in 0..10 {
                one_dispatch(application, context)?;
            }
            let (mut from, mut to) = (owned(runtime, context, 64)?, owned(runtime, context, 64)?);
            runtime.copy(&from, &to)?;
            runtime.free(&mut from)?;
            runtime.free(&mut to)?;
            runtime.release_memory_allocator(context, allocator)?;
            ensure_eq!(Seen::now().look_ups, loaded, "names looked up in all");
            Ok(())
        })
    }

    /// Four threads dispatch in two contexts that share one queue: each submission has the queue to itself, nothing is lost.
    contexts_work_from_several_threads {
        entry_points: ["vkQueueSubmit", "vkWaitForFences"], unordered: "threads take turns as they come",
    } (session) {
        embedded(session, SMALL, |application| threads(application))
    }

    /// A dispatch holds its context by the application's handler: acquired and released once for each submission, refused where
    /// the handler refuses; the setter answers the handler before, and none restores the runtime's own lock.
    the_applications_lock_is_held_for_each_submission {
        entry_points: ["vkQueueSubmit"],
    } (session) {
        embedded(session, SMALL, |application| {
            let runtime = &application.runtime;
            let (context, allocator) = adopted(application)?;
            let (first, second) = (Arc::new(Lock::default()), Arc::new(Lock::default()));
            ensure!(runtime.set_context_handler(Some(first.clone())).is_none(), "a handler was there before any was set");
            one_dispatch(application, context)?;
            one_dispatch(application, context)?;
            let counts = |lock: &Lock| (lock.acquired.load(Ordering::SeqCst), lock.held.load(Ordering::SeqCst));
            ensure_eq!(counts(&first), (2, 0), "acquired, and still held, after two dispatches");
            let before = runtime.set_context_handler(Some(second.clone()));
            let first_as_set: Arc<dyn ContextHandler> = first.clone();
            ensure!(before.is_some_and(|before| Arc::ptr_eq(&before, &first_as_set)), "the setter did not answer the handler before");
            one_dispatch(application, context)?;
            second.refuses.store(1, Ordering::SeqCst);
            let (mut source, mut result) = (owned(runtime, context, 64)?, owned(runtime, context, 64)?);
            let refused = affine(application, context, [&source, &result], [1, 0]);
            ensure!(matches!(refused, Err(Error::NotAcquired { .. })), "a refused context answered {refused:?}");
            ensure_eq!(Seen::now().submissions, 3, "submissions");
            ensure!(runtime.set_context_handler(None).is_some(), "the second handler was not answered");
            affine(application, context, [&source, &result], [1, 0])?;
            ensure_eq!((counts(&first), counts(&second)), ((2, 0), (1, 0)), "what the handlers counted in the end");
            runtime.free(&mut source)?;
            runtime.free(&mut result)?;
            Ok(runtime.release_memory_allocator(context, allocator)?)
        })
    }

    /// A handler is called with no lock of the runtime's held: it acquires and releases another context's allocator, allocates and frees, while a dispatch waits for it.
    a_handler_may_call_the_runtime {
        defects: ["W3"], entry_points: ["vkQueueSubmit", "vkAllocateMemory"],
    } (session) {
        embedded(session, SMALL, |application| {
            let runtime = &application.runtime;
            let (context, allocator) = adopted(application)?;
            let other = adopted(application)?;
            runtime.release_memory_allocator(other.0, other.1)?;
            // The handler may outlive no borrow of the runtime, so it hands its wishes to a thread that has one, and waits for their end.
            let (wishes, heard) = std::sync::mpsc::channel::<std::sync::mpsc::Sender<bool>>();
            let outcome = std::thread::scope(|scope| {
                let servant = scope.spawn(move || -> Result<u32, Failure> {
                    let mut served = 0;
                    while let Ok(done) = heard.recv() {
                        let second = runtime.acquire_memory_allocator(other.0)?;
                        let mut buffer = owned(runtime, other.0, 4096)?;
                        runtime.free(&mut buffer)?;
                        runtime.release_memory_allocator(other.0, second)?;
                        served += 1;
                        let _ = done.send(true);
                    }
                    Ok(served)
                });
                let handler = Arc::new(Asking(std::sync::Mutex::new(wishes)));
                runtime.set_context_handler(Some(handler));
                let dispatched = one_dispatch(application, context);
                // The handler goes, and its end of the channel with it.
                drop(runtime.set_context_handler(None));
                (dispatched, servant.join())
            });
            let (dispatched, Ok(served)) = outcome else {
                fail!("the handler's servant panicked")
            };
            dispatched?;
            ensure_eq!(served?, 2, "times that the handler called the runtime, at each half of one dispatch");
            Ok(runtime.release_memory_allocator(context, allocator)?)
        })
    }

    /// A runtime that is dropped with work under way waits for it: nothing is destroyed that a queue still uses, and nothing is left.
    a_runtime_that_ends_with_work_under_way_waits_for_it {
        defects: ["W3"], entry_points: ["vkWaitForFences", "vkQueueSubmit"],
    } (session) {
        embedded(session, SMALL, |application| {
            let runtime = &application.runtime;
            let (context, _) = adopted(application)?;
            let (source, result) = (owned(runtime, context, 1 << 20)?, owned(runtime, context, 1 << 20)?);
            let count = 1 << 18;
            for _ in 0..3 {
                let launch = Launch { kernel: &AFFINE, buffers: &[&source, &result], scalars: &[count, 3, 5], groups: groups(count) };
                runtime.launch(context, &launch)?;
            }
            // The application ends here, with three dispatches, two buffers, an allocator and a module.
            ensure_eq!(Seen::now().modules_destroyed, 0, "modules destroyed while dispatches use them");
            Ok(())
        })?;
        let seen = Seen::now();
        ensure_eq!((seen.submissions, seen.modules_made, seen.modules_destroyed), (3, 1, 1), "submissions, modules made and destroyed");
        ensure_eq!(seen.memory_freed, seen.memory_made, "memory freed of what was allocated");
        ensure!(seen.waits >= 3, "{} waits for fences before the end of three dispatches", seen.waits);
        Ok(())
    }

    /// A context that the runtime made is no allocator's to release: only device_release ends it, with its device and instance,
    /// and not while a buffer lives.
    a_runtimes_own_context_ends_by_device_release {
        entry_points: ["vkCreateInstance", "vkCreateDevice", "vkDestroyDevice", "vkDestroyInstance"],
    } (session) {
        embedded(session, SMALL, |application| {
            let runtime = &application.runtime;
            let context = runtime.create_context(&own_context())?;
            let allocator = runtime.acquire_memory_allocator(context)?;
            one_dispatch(application, context)?;
            let released = runtime.release_memory_allocator(context, allocator);
            ensure!(matches!(released, Err(Error::OwnedByRuntime { .. })), "releasing the runtime's own answered {released:?}");
            let mut buffer = owned(runtime, context, 64)?;
            ensure_eq!(runtime.ownership(&buffer)?, Ownership::Owned, "whose an allocated buffer is");
            let early = runtime.device_release(context);
            ensure!(matches!(early, Err(Error::StillInUse { .. })), "device_release with a buffer answered {early:?}");
            runtime.free(&mut buffer)?;
            runtime.device_release(context)?;
            ensure_eq!(Seen::now().devices_destroyed, 1, "devices that the runtime destroyed");
            let mut none = own_context();
            none.wanted = |_| false;
            let nowhere = runtime.create_context(&none);
            ensure!(matches!(nowhere, Err(Error::NoDevice { .. })), "a context on no device answered {nowhere:?}");
            Ok(())
        })
    }
}
