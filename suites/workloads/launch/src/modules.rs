//! Modules by what is in them: a program that asks for the same text twice has it compiled, and its variables on the device, once.

use std::collections::BTreeMap;
use std::rc::Rc;

use abi::cuda::CUmodule;

use crate::boundary::c_string;
use crate::device::Device;
use crate::error::LaunchError;

/// A loaded module; unloaded when the cache and all of its kernels have let go of it.
pub struct Module {
    device: Rc<Device>,
    module: CUmodule,
}

impl Module {
    pub(crate) fn device(&self) -> &Rc<Device> {
        &self.device
    }

    pub(crate) fn handle(&self) -> CUmodule {
        self.module
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        let _ = self.device.calls().unload(self.module);
    }
}

/// A device's modules. Keyed by the whole text, not by a digest of it: two texts are never taken for one.
pub struct Modules {
    device: Rc<Device>,
    // In order, so that a program unloads in the same order whenever it runs.
    loaded: BTreeMap<Box<str>, Rc<Module>>,
}

impl Modules {
    pub fn new(device: &Rc<Device>) -> Self {
        Self {
            device: Rc::clone(device),
            loaded: BTreeMap::new(),
        }
    }

    /// The module of this PTX. Only text: of a binary image its own header would say how far the driver reads.
    pub fn load(&mut self, ptx: &str) -> Result<Rc<Module>, LaunchError> {
        if let Some(module) = self.loaded.get(ptx) {
            return Ok(Rc::clone(module));
        }
        let text = c_string(ptx)?;
        let module = Rc::new(Module {
            module: self.device.calls().load(&text)?,
            device: Rc::clone(&self.device),
        });
        self.device.counters().modules.count();
        self.loaded.insert(ptx.into(), Rc::clone(&module));
        Ok(module)
    }

    /// How many are kept.
    pub fn kept(&self) -> usize {
        self.loaded.len()
    }

    /// Lets go of those that nobody else holds, which unloads them. Not while a stream of this thread is captured: drivers refuse it then.
    pub fn trim(&mut self) {
        self.loaded.retain(|_, module| Rc::strong_count(module) > 1);
    }
}
