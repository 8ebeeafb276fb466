//! The next layer's functions, by what a dispatchable handle points to: the loader's dispatch table, which a device shares
//! with its queues and command buffers, and an instance with its physical devices.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::{PoisonError, RwLock};

use ash::vk;

use super::NAMES;

#[derive(Clone, Copy)]
enum Get {
    Instance(vk::PFN_vkGetInstanceProcAddr),
    Device(vk::PFN_vkGetDeviceProcAddr),
}

/// Commands that have functions of their own instead of rows.
#[derive(Clone, Copy)]
pub enum Own {
    CreateDevice,
    DestroyInstance,
    DestroyDevice,
    #[expect(dead_code, reason = "only answered for, by its name")]
    GetDeviceProcAddr,
}

const OWN: [&str; 4] = [
    "vkCreateDevice",
    "vkDestroyInstance",
    "vkDestroyDevice",
    "vkGetDeviceProcAddr",
];

/// One instance's or device's next functions, found when it was made; 0 where there is none.
pub struct Dispatch {
    get: Get,
    known: Vec<usize>,
    own: [usize; OWN.len()],
}

/// Never freed: a key recurs, and then its entry is replaced.
static TABLES: RwLock<Option<HashMap<usize, &'static Dispatch>>> = RwLock::new(None);

/// # Safety
/// A dispatchable handle that lives.
unsafe fn key(handle: u64) -> usize {
    // SAFETY: such a handle points to an object that begins with the loader's pointer.
    unsafe { *(handle as *const usize) }
}

/// # Safety
/// As for [`key`].
pub unsafe fn add(handle: u64, dispatch: Dispatch) {
    // SAFETY: the caller's obligation.
    let key = unsafe { key(handle) };
    TABLES
        .write()
        .unwrap_or_else(PoisonError::into_inner)
        .get_or_insert_default()
        .insert(key, Box::leak(Box::new(dispatch)));
}

/// # Safety
/// As for [`key`]; the handle is of an instance or device that passed through here.
pub unsafe fn dispatch(handle: u64) -> &'static Dispatch {
    // SAFETY: the caller's obligation.
    let key = unsafe { key(handle) };
    let tables = TABLES.read().unwrap_or_else(PoisonError::into_inner);
    match tables.as_ref().and_then(|tables| tables.get(&key)) {
        Some(dispatch) => dispatch,
        // A handle that nobody made: the specification leaves what happens undefined, a driver would crash.
        None => std::process::abort(),
    }
}

impl Dispatch {
    /// # Safety
    /// The instance was just made by the next layer. Later its look-ups lead back to the first layer, which may be us.
    pub unsafe fn instance(get: vk::PFN_vkGetInstanceProcAddr, instance: vk::Instance) -> Self {
        // SAFETY: the caller's obligation.
        let find = |name: &CStr| unsafe { get(instance, name.as_ptr()) };
        Self::of(Get::Instance(get), find)
    }

    /// # Safety
    /// The device was just made by the next layer.
    pub unsafe fn device(get: vk::PFN_vkGetDeviceProcAddr, device: vk::Device) -> Self {
        // SAFETY: the caller's obligation.
        let find = |name: &CStr| unsafe { get(device, name.as_ptr()) };
        Self::of(Get::Device(get), find)
    }

    fn of(get: Get, find: impl Fn(&CStr) -> vk::PFN_vkVoidFunction) -> Self {
        let find = |name: &&str| {
            let name = CString::new(*name).unwrap_or_default();
            find(&name).map_or(0, |found| found as usize)
        };
        Self {
            get,
            known: NAMES.iter().map(find).collect(),
            own: OWN.map(|name| find(&name)),
        }
    }

    /// The next function of a row. Whoever calls had it answered for, so there is one.
    pub fn next(&self, entry: usize) -> usize {
        match self.known[entry] {
            0 => std::process::abort(),
            next => next,
        }
    }

    /// The next function of a command that has no row.
    pub fn own(&self, own: Own) -> usize {
        match self.own[own as usize] {
            0 => std::process::abort(),
            next => next,
        }
    }

    /// Whether the next has a row's command, by its name; `None` where the name has no row.
    pub fn has(&self, name: &CStr) -> Option<bool> {
        let name = name.to_str().ok()?;
        let known = NAMES.iter().position(|row| *row == name);
        let own = || OWN.iter().position(|own| *own == name);
        match known {
            Some(row) => Some(self.known[row] != 0),
            None => own().map(|own| self.own[own] != 0),
        }
    }

    /// # Safety
    /// As vkGetInstanceProcAddr.
    pub unsafe fn ask_instance(
        &self,
        instance: vk::Instance,
        name: *const c_char,
    ) -> vk::PFN_vkVoidFunction {
        match self.get {
            // SAFETY: the caller's arguments.
            Get::Instance(get) => unsafe { get(instance, name) },
            Get::Device(_) => None,
        }
    }

    /// # Safety
    /// As vkGetDeviceProcAddr.
    pub unsafe fn ask_device(
        &self,
        device: vk::Device,
        name: *const c_char,
    ) -> vk::PFN_vkVoidFunction {
        match self.get {
            // SAFETY: the caller's arguments.
            Get::Device(get) => unsafe { get(device, name) },
            Get::Instance(_) => None,
        }
    }
}
