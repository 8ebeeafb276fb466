//! The runtime: contexts come and go, allocators are acquired for them and released.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use allocator_api2::boxed;
use ash::vk::{self, Handle};

use crate::allocator::Allocator;
use crate::boundary::{
    External, Handles, Host, List, Loader, OwnContext, Standing, Tables, pushed,
};
use crate::error::{Error, Result};
use crate::handle::{AllocatorId, ContextId};
use crate::modules::Modules;
use crate::turn::{Handler, Turn, Turns};

mod memory;

/// How the runtime asks for memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of a block, of which regions are parts. What is larger has a block of its own.
    pub block: u64,
    /// How long a dispatch is waited for at a time.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            block: 32 << 20,
            patience: Duration::from_secs(60),
        }
    }
}

/// What went with a device that was destroyed before it was released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    pub allocators: usize,
    pub regions: usize,
    pub dispatches: usize,
    pub modules: usize,
}

enum Origin {
    Application(Handles),
    /// Its allocator is dropped before it.
    Own(boxed::Box<Standing, Host>),
}

struct Context {
    id: ContextId,
    allocator: Option<Allocator>,
    origin: Origin,
    /// The application destroyed its device.
    destroyed: bool,
}

impl Context {
    fn handles(&self) -> Option<&Handles> {
        match &self.origin {
            Origin::Application(handles) => Some(handles),
            Origin::Own(standing) => Some(standing.tables()?.handles()),
        }
    }
}

/// In the order in which it is dropped: modules are of the contexts' devices.
pub(crate) struct State {
    pub modules: Modules,
    contexts: List<Context>,
}

impl Drop for State {
    /// A runtime that ends with its application in disorder: what queues still use is waited for before it is destroyed. What
    /// does not end is left to the device's own end, with all that was made on it.
    fn drop(&mut self) {
        for context in &self.contexts {
            if let Some(allocator) = context.allocator.as_ref().filter(|held| !held.settles()) {
                allocator.tables.forget();
                self.modules.forget(allocator.tables.handles().device);
            }
        }
    }
}

/// The runtime inside an application. Every call may be made from any thread.
pub struct Runtime {
    loader: Loader,
    host: Host,
    pub(crate) settings: Settings,
    turns: Turns,
    state: Mutex<State>,
}

impl Runtime {
    /// Neither loads nor makes anything.
    #[must_use]
    pub fn new(loader: Loader, host: Host, settings: Settings) -> Self {
        let state = State {
            modules: Modules::new(host),
            contexts: List::new_in(host),
        };
        Self {
            loader,
            host,
            settings,
            turns: Turns::default(),
            state: Mutex::new(state),
        }
    }

    /// Takes note of an application's context.
    ///
    /// # Errors
    /// [`Error::Null`] names the handle.
    pub fn adopt(&self, external: External) -> Result<ContextId> {
        let handles = external.handles();
        let given = [
            ("VkInstance", handles.instance.is_null()),
            ("VkPhysicalDevice", handles.physical_device.is_null()),
            ("VkDevice", handles.device.is_null()),
            ("VkQueue", handles.queue.is_null()),
        ];
        if let Some((which, _)) = given.into_iter().find(|(_, null)| *null) {
            return Err(Error::Null { which });
        }
        self.add(Origin::Application(handles))
    }

    /// Makes a context of the runtime's own, which only [`Runtime::device_release`] ends.
    ///
    /// # Errors
    /// What Vulkan answers; [`Error::NoDevice`].
    pub fn create_context(&self, options: &OwnContext) -> Result<ContextId> {
        let standing = Standing::new(self.loader, self.host, options)?;
        let standing = boxed::Box::try_new_in(standing, self.host);
        self.add(Origin::Own(standing.map_err(|_| {
            Error::OutOfHostMemory {
                during: "a context of the runtime's own",
            }
        })?))
    }

    fn add(&self, origin: Origin) -> Result<ContextId> {
        let id = ContextId::new();
        let context = Context {
            id,
            allocator: None,
            origin,
            destroyed: false,
        };
        pushed(&mut self.state().contexts, context)?;
        Ok(id)
    }

    /// The context's allocator. The first call loads dispatch tables; later ones answer the same allocator and load nothing.
    ///
    /// # Errors
    /// [`Error::Null`], [`Error::UnknownContext`], [`Error::DeviceDestroyed`].
    pub fn acquire_memory_allocator(&self, context: ContextId) -> Result<AllocatorId> {
        let mut state = self.state();
        let found = state.context(context)?;
        if let Some(allocator) = &found.allocator {
            return Ok(allocator.id);
        }
        let tables = match &found.origin {
            Origin::Application(handles) => Tables::load(self.loader, *handles, self.host),
            Origin::Own(standing) => {
                Arc::clone(standing.tables().ok_or(Error::UnknownContext { context })?)
            }
        };
        let id = AllocatorId::new(context);
        found.allocator = Some(Allocator::new(id, tables, self.settings));
        Ok(id)
    }

    /// Destroys all that was made for the context by its allocator, its shader modules among it, and nothing of the
    /// application's. To be called before the application destroys its device.
    ///
    /// # Errors
    /// [`Error::Null`], [`Error::UnknownContext`], [`Error::OwnedByRuntime`], [`Error::DeviceDestroyed`],
    /// [`Error::ForeignAllocator`], [`Error::AlreadyReleased`], [`Error::StillInUse`].
    pub fn release_memory_allocator(
        &self,
        context: ContextId,
        allocator: AllocatorId,
    ) -> Result<()> {
        if allocator == AllocatorId::NULL {
            return Err(Error::Null {
                which: "the allocator",
            });
        }
        let mut state = self.state();
        let found = state.context(context)?;
        if allocator.context() != context {
            return Err(Error::ForeignAllocator {
                allocator,
                given: context,
            });
        }
        if matches!(found.origin, Origin::Own(_)) {
            return Err(Error::OwnedByRuntime { context });
        }
        let held = found.allocator.as_ref().filter(|held| held.id == allocator);
        let held = held.ok_or(Error::AlreadyReleased { allocator })?;
        held.ready_for_release()?;
        found.allocator = None;
        state.modules.remove(allocator);
        Ok(())
    }

    /// Ends a context of the runtime's own, with its device and instance.
    ///
    /// # Errors
    /// [`Error::OwnedByApplication`], [`Error::StillInUse`].
    pub fn device_release(&self, context: ContextId) -> Result<()> {
        let mut state = self.state();
        let found = state.context(context)?;
        if matches!(found.origin, Origin::Application(_)) {
            return Err(Error::OwnedByApplication { context });
        }
        if let Some(allocator) = &found.allocator {
            allocator.ready_for_release()?;
            let allocator = allocator.id;
            state.modules.remove(allocator);
        }
        state.contexts.retain(|other| other.id != context);
        Ok(())
    }

    /// The application says that it destroyed a device without having released what was acquired for it. No function of that
    /// device is called again: all that is left of it is forgotten, and told.
    pub fn device_destroyed(&self, device: vk::Device) -> Gone {
        let mut state = self.state();
        let mut gone = Gone::default();
        for context in state.contexts.iter_mut() {
            let here =
                matches!(&context.origin, Origin::Application(handles) if handles.device == device);
            if !here {
                continue;
            }
            context.destroyed = true;
            if let Some(allocator) = context.allocator.take() {
                allocator.tables.forget();
                gone.allocators += 1;
                gone.regions += allocator.regions();
                gone.dispatches += allocator.flights();
            }
        }
        gone.modules = state.modules.forget(device);
        gone
    }

    /// Strikes an application's context out, whose allocator was released.
    ///
    /// # Errors
    /// [`Error::OwnedByRuntime`]; [`Error::StillInUse`] while it has an allocator.
    pub fn forget_context(&self, context: ContextId) -> Result<()> {
        let mut state = self.state();
        let found = state.find(context)?;
        if matches!(found.origin, Origin::Own(_)) {
            return Err(Error::OwnedByRuntime { context });
        }
        if let Some(allocator) = &found.allocator {
            allocator.ready_for_release()?;
            return Err(Error::StillInUse {
                allocator: allocator.id,
                regions: Vec::new(),
                dispatches: Vec::new(),
            });
        }
        state.contexts.retain(|other| other.id != context);
        Ok(())
    }

    /// Puts a handler in the place of the runtime's own lock, or that lock back with `None`, and answers which one was there.
    pub fn set_context_handler(&self, handler: Option<Handler>) -> Option<Handler> {
        self.turns.replace(handler)
    }

    /// Holds the context until the answer is dropped, as each dispatch does for its submission. The runtime's own lock is
    /// not for one thread twice: who holds it launches after letting go.
    ///
    /// # Errors
    /// [`Error::UnknownContext`], [`Error::NotAcquired`].
    pub fn acquire_context(&self, context: ContextId) -> Result<Turn<'_>> {
        let handles = self.handles(context)?;
        self.turns.take(context, handles.queue.as_raw())
    }

    /// What the context is made of: the application's handles, or the runtime's own.
    ///
    /// # Errors
    /// [`Error::Null`], [`Error::UnknownContext`], [`Error::DeviceDestroyed`].
    pub fn handles(&self, context: ContextId) -> Result<Handles> {
        let mut state = self.state();
        let handles = state.context(context)?.handles().copied();
        handles.ok_or(Error::UnknownContext { context })
    }

    /// How many modules a dispatch in this context would find on its device.
    ///
    /// # Errors
    /// As [`Runtime::handles`].
    pub fn modules(&self, context: ContextId) -> Result<usize> {
        let device = self.handles(context)?.device;
        Ok(self.state().modules.on(device))
    }

    /// Bytes of the blocks that the context's allocator holds.
    ///
    /// # Errors
    /// [`Error::NoAllocator`].
    pub fn held(&self, context: ContextId) -> Result<u64> {
        Ok(self.state().allocator(context)?.held())
    }

    /// Gives the blocks back in which nothing lies, and answers how many bytes those had.
    ///
    /// # Errors
    /// [`Error::NoAllocator`].
    pub fn trim(&self, context: ContextId) -> Result<u64> {
        Ok(self.state().allocator(context)?.trim())
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn find(&mut self, context: ContextId) -> Result<&mut Context> {
        if context == ContextId::NULL {
            return Err(Error::Null {
                which: "the context",
            });
        }
        let found = self.contexts.iter_mut().find(|other| other.id == context);
        found.ok_or(Error::UnknownContext { context })
    }

    /// One whose device lives.
    fn context(&mut self, context: ContextId) -> Result<&mut Context> {
        let found = self.find(context)?;
        match found.destroyed {
            true => Err(Error::DeviceDestroyed { context }),
            false => Ok(found),
        }
    }

    pub fn allocator(&mut self, context: ContextId) -> Result<&mut Allocator> {
        self.parts(context).map(|(allocator, _)| allocator)
    }

    /// The context's allocator beside the modules of all.
    pub fn parts(&mut self, context: ContextId) -> Result<(&mut Allocator, &mut Modules)> {
        self.context(context)?;
        let mut contexts = self.contexts.iter_mut();
        let found = contexts.find(|other| other.id == context);
        let allocator = found.and_then(|found| found.allocator.as_mut());
        let allocator = allocator.ok_or(Error::NoAllocator { context })?;
        Ok((allocator, &mut self.modules))
    }
}
