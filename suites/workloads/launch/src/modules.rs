//! Modules by what is in them: a program that asks for the same text twice has it compiled, and its variables on the device, once.

use std::collections::BTreeMap;
use std::sync::Arc;

use abi::cuda::CUmodule;

use crate::boundary::{Handle, c_string};
use crate::device::Device;
use crate::error::LaunchError;

/// A loaded module; unloaded when the cache and all of its kernels have let go of it.
pub struct Module {
    device: Arc<Device>,
    module: Handle<CUmodule>,
}

impl Module {
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn handle(&self) -> CUmodule {
        self.module.0
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        if let Ok(calls) = self.device.enter() {
            let _ = calls.unload(self.module.0);
        }
    }
}

/// A device's modules. Keyed by the whole text, not by a digest of it: two texts are never taken for one.
pub struct Modules {
    device: Arc<Device>,
    // In order, so that a program unloads in the same order whenever it runs.
    loaded: BTreeMap<Box<str>, Arc<Module>>,
}

impl Modules {
    pub fn new(device: &Arc<Device>) -> Self {
        Self {
            device: Arc::clone(device),
            loaded: BTreeMap::new(),
        }
    }

    /// The module of this PTX. Only text: of a binary image its own header would say how far the driver reads.
    ///
    /// # Errors
    /// `Name` where the text holds a NUL, `Call` with the driver's code where it does not compile or there is no memory for its variables.
    pub fn load(&mut self, ptx: &str) -> Result<Arc<Module>, LaunchError> {
        if let Some(module) = self.loaded.get(ptx) {
            return Ok(Arc::clone(module));
        }
        let text = c_string(ptx)?;
        let module = Arc::new(Module {
            module: Handle(self.device.enter()?.load(&text)?),
            device: Arc::clone(&self.device),
        });
        self.device.counters().modules.count();
        self.loaded.insert(ptx.into(), Arc::clone(&module));
        Ok(module)
    }

    /// How many are kept.
    pub fn kept(&self) -> usize {
        self.loaded.len()
    }

    /// Lets go of those that nobody else holds, which unloads them. Not while a stream of this thread is captured: drivers refuse it then.
    pub fn trim(&mut self) {
        self.loaded
            .retain(|_, module| Arc::strong_count(module) > 1);
    }
}
