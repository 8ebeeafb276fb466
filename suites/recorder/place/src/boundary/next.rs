//! The driver that a recorder stands before.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::OnceLock;

use super::elf;
use crate::settings;

/// An export's address.
pub struct Address(pub *const ());
// SAFETY: the address of a function, never read or written through.
unsafe impl Sync for Address {}

/// What a recorder knows of its driver. All lists are in the order of its table.
pub struct Driver {
    /// The API's name in a line.
    pub api: &'static str,
    /// Names the driver's file.
    pub variable: &'static str,
    /// Whether a success of this entry point ends the handle that it was given.
    pub ends: fn(&str) -> bool,
    pub names: &'static [&'static CStr],
    pub next: &'static [AtomicUsize],
    pub exports: &'static [Address],
    /// Ours by the driver's address: several where the driver has one function under several names.
    pub by_address: OnceLock<HashMap<usize, Vec<usize>>>,
}

impl Driver {
    /// Opens the driver's file and finds its functions. Without them the process cannot go on: there is nobody to ask.
    pub fn open(&self) {
        let Some(path) = settings::driver(self.variable) else {
            fail(&format!(
                "{} does not name the driver to be recorded",
                self.variable
            ));
        };
        // SAFETY: opens a library by path; its constructors are the driver's own.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL) };
        if handle.is_null() {
            fail(&format!("{}: {}", path.to_string_lossy(), last_error()));
        }
        // SAFETY: glibc's handles are link maps, and this object is never closed.
        let object = unsafe { elf::Object::of(&*handle.cast::<elf::LinkMap>()) };
        let mut ours: HashMap<usize, Vec<usize>> = HashMap::new();
        // By its own tables: dlsym may be another's, who would answer with us.
        if let Some(object) = object {
            for (at, (name, next)) in self.names.iter().zip(self.next).enumerate() {
                if let Some(address) = object.symbol(name) {
                    next.store(address, Ordering::Release);
                    ours.entry(address).or_default().push(at);
                }
            }
        }
        if ours.is_empty() {
            fail(&format!("{}: not a driver", path.to_string_lossy()));
        }
        let _ = self.by_address.set(ours);
    }

    /// Our export in place of a function of the driver that was asked for as `name`; any other address stays.
    pub fn ours(&self, name: &str, found: *mut c_void) -> *mut c_void {
        let known = self
            .by_address
            .get()
            .and_then(|known| known.get(&(found as usize)));
        let Some(known) = known else {
            return found;
        };
        let named = |at: &&usize| self.name(**at).starts_with(name);
        match known.iter().find(named).or(known.first()) {
            Some(&at) => self.exports[at].0.cast_mut().cast(),
            None => found,
        }
    }

    pub fn name(&self, at: usize) -> &'static str {
        self.names[at].to_str().unwrap_or_default()
    }
}

fn last_error() -> String {
    // SAFETY: dlerror answers NULL or text that lives until the next call of the loader.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            "not a driver".to_owned()
        } else {
            CStr::from_ptr(text).to_string_lossy().into_owned()
        }
    }
}

fn fail(text: &str) -> ! {
    let line = format!("ringfence recorder: {text}\n");
    // SAFETY: a buffer of this length; then nothing of the process is touched any more.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
        libc::_exit(127)
    }
}
