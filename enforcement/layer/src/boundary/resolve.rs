//! Which function a name is: next is asked first, and a hook is given only for what next has (decision 29).

use std::ffi::{CStr, c_char};

use ash::vk;
use seeds::{Seed, planted, unhooked};

use super::hooks::{Hook, Purpose, Scope};
use super::key;
use crate::{attachment, device, instance};

/// # Safety
/// `instance` is null or an instance, known to us or not; `name` is null or ends in NUL.
pub unsafe fn for_instance(handle: vk::Instance, name: *const c_char) -> vk::PFN_vkVoidFunction {
    // SAFETY: the caller's obligation.
    let name = unsafe { (!name.is_null()).then(|| CStr::from_ptr(name)) }?;
    let hook = Hook::named(name.to_bytes());
    if let Some(hook) = hook.filter(|hook| hook.scope == Scope::Global) {
        return hook.address();
    }
    // SAFETY: the caller's obligation.
    let key = unsafe { key(handle) };
    let known = instance::registered(key);
    let next = match known {
        Some(known) => known.next.look_up(handle, name)?,
        // Somebody else's instance, or none: what a living one's chain has is the best answer there is (defect V11).
        None => instance::find(key)?.next.look_up_own(name)?,
    };
    match hook {
        Some(hook) if is_wanted(hook, attachment::enforcing(), attachment::pacing()) => {
            hook.address()
        }
        _ => Some(next),
    }
}

/// # Safety
/// `device` is null or a device, known to us or not; `name` is null or ends in NUL.
pub unsafe fn for_device(handle: vk::Device, name: *const c_char) -> vk::PFN_vkVoidFunction {
    // SAFETY: the caller's obligation.
    let (name, key) = unsafe {
        (
            (!name.is_null()).then(|| CStr::from_ptr(name))?,
            key(handle),
        )
    };
    let found = device::find(key)?;
    let next = if found.registered {
        found.device.next.look_up(handle, name)
    } else {
        found.device.next.look_up_own(name)
    };
    let hook = Hook::named(name.to_bytes()).filter(|hook| {
        let (enforced, timed) = (
            found.device.enforced.is_some(),
            found.device.timed.is_some(),
        );
        hook.scope == Scope::Device && is_wanted(hook, enforced, timed)
    });
    match hook {
        Some(hook) if next.is_some() || planted(Seed::V12b) => hook.address(),
        _ => next,
    }
}

fn is_wanted(hook: &Hook, enforced: bool, timed: bool) -> bool {
    if unhooked(hook.name) {
        return false;
    }
    match hook.purpose {
        Purpose::Budget | Purpose::Pace | Purpose::Work if planted(Seed::V6) => false,
        Purpose::Chain => true,
        Purpose::Budget => enforced,
        Purpose::Pace => timed,
        Purpose::Work => enforced || timed,
    }
}
