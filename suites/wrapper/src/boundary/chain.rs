//! What is below one instance or device.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::sync::Mutex;

use ash::vk::{self, Handle};

use super::object::die;

/// By whose look-up.
pub enum Get {
    Instance(vk::PFN_vkGetInstanceProcAddr, vk::Instance),
    Device(vk::PFN_vkGetDeviceProcAddr, vk::Device),
}

/// Never freed, as the handles that point to it are not.
pub struct Chain {
    pub get: Get,
    /// What below had when the chain was made. Later an instance's look-ups may lead back to the first layer (loaders before 1.3.240, at the
    /// end of the chain), which may be us.
    found: HashMap<String, Function>,
    /// Handles that below gives out again and again, by kind and handle, and ours for them.
    pub known: Mutex<HashMap<(i32, u64), u64>>,
}

/// What promoted commands' older names end in.
pub const SUFFIXES: [&str; 3] = ["", "KHR", "EXT"];

type Function = unsafe extern "system" fn();

impl Chain {
    /// `names` are asked for at once; where there are none, whenever they are needed.
    pub fn new(get: Get, names: impl Iterator<Item = &'static str>) -> &'static Chain {
        let mut chain = Chain {
            get,
            found: HashMap::new(),
            known: Mutex::default(),
        };
        for name in names {
            for suffix in SUFFIXES {
                let full = format!("{name}{suffix}");
                let found = CString::new(full.clone())
                    .ok()
                    .and_then(|name| chain.ask(&name));
                chain.found.extend(found.map(|found| (full, found)));
            }
        }
        Box::leak(Box::new(chain))
    }

    /// Whether below has a command.
    pub fn look_up(&self, name: &CStr) -> Option<Function> {
        match name.to_str().ok().and_then(|name| self.found.get(name)) {
            Some(found) => Some(*found),
            None => self.ask(name),
        }
    }

    fn ask(&self, name: &CStr) -> Option<Function> {
        // SAFETY: the handle is the one that below made for this chain, and the name ends in NUL.
        unsafe {
            match self.get {
                Get::Instance(get, instance) => get(instance, name.as_ptr()),
                Get::Device(get, device) => get(device, name.as_ptr()),
            }
        }
    }

    /// A command of below. Whoever calls had it answered for, so there is one.
    pub fn next(&self, name: &str, alias: usize) -> Function {
        let full = CString::new(format!("{name}{}", SUFFIXES[alias])).unwrap_or_default();
        match self.look_up(&full) {
            Some(next) => next,
            None => {
                let own = match self.get {
                    Get::Instance(_, instance) => instance.as_raw(),
                    Get::Device(_, device) => device.as_raw(),
                };
                die(&format!("below has no {}", full.to_string_lossy()), own)
            }
        }
    }
}
