//! Instances and devices, and the look-ups that they answer.

use std::ffi::{CStr, c_char};

use ash::vk;

use super::client::{Client, DEVICES, INSTANCES, code};
use crate::ffi::calls::Answer;
use crate::ffi::frame;
use crate::maker::Maker;

pub fn create_instance(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    if client.instances.iter().flatten().count() >= INSTANCES {
        return None;
    }
    let version = maker.one_of(&[
        0,
        vk::API_VERSION_1_0,
        vk::API_VERSION_1_1,
        vk::API_VERSION_1_3,
    ]);
    maker.tell("version", format_args!("{version:#x}"));
    let made = client.new_instance(version);
    // Whoever makes an instance asks the system for much; a loader may leave errno as it likes.
    Some((
        Answer {
            code: code(made),
            errno: None,
        },
        0,
    ))
}

pub fn destroy_instance(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let nth = usize::from(maker.byte()) % client.instances.len().max(1);
    if client.devices.iter().any(|made| made.instance == nth) {
        return None;
    }
    let living = client.instances.get_mut(nth)?.take()?;
    // SAFETY: its devices are gone.
    unsafe { living.instance.destroy_instance(None) };
    Some((
        Answer {
            code: 0,
            errno: None,
        },
        0,
    ))
}

pub fn create_device(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    if client.devices.len() >= DEVICES {
        return None;
    }
    let nth = usize::from(maker.byte()) % client.instances.len().max(1);
    let physical = client.instances.get(nth)?.as_ref()?.physical.len();
    if physical == 0 {
        return None;
    }
    let physical = usize::from(maker.byte()) % physical;
    let queues = 1 + usize::from(maker.byte() % 4);
    let made = client.new_device(nth, physical, queues);
    Some((
        Answer {
            code: code(made),
            errno: None,
        },
        0,
    ))
}

/// With everything that was allocated from it: the layer gives that back, and without it the card keeps it while the instance lives.
pub fn destroy_device(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let count = client.devices.len();
    if count == 0 {
        return None;
    }
    let made = client.devices.remove(usize::from(maker.byte()) % count);
    if client.tidies {
        made.tidy();
    }
    // SAFETY: no work of ours is pending.
    unsafe { made.device.destroy_device(None) };
    Some((
        Answer {
            code: 0,
            errno: None,
        },
        0,
    ))
}

/// A command's name, cut or changed perhaps.
fn name(maker: &mut Maker<'_>) -> *const c_char {
    const NAMES: [&CStr; 12] = [
        c"vkAllocateMemory",
        c"vkCreateInstance",
        c"vkGetDeviceProcAddr",
        c"vkQueueSubmit2KHR",
        c"vkDestroyDevice",
        c"vkCmdDraw",
        c"vkEnumeratePhysicalDeviceGroupsKHR",
        c"vkNoSuchCommand",
        c"",
        c"vk",
        c"vkGetMemoryFdKHR",
        c"vkQueueBindSparse",
    ];
    let mut text = [0_u8; 64];
    let chosen = maker.one_of(&NAMES).to_bytes();
    text[..chosen.len()].copy_from_slice(chosen);
    if maker.byte() < 32 {
        let at = usize::from(maker.byte()) % 63;
        text[at] = maker.byte();
    }
    frame::put(text).cast()
}

pub fn instance_look_up(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let name = name(maker);
    let instance = match maker.byte() {
        0..=63 => vk::Instance::null(),
        _ => client.instance(maker)?.instance.handle(),
    };
    let get = client.entry.static_fn().get_instance_proc_addr;
    // SAFETY: a living instance or none, and a name that ends in NUL.
    let found = unsafe { get(instance, name) };
    Some((
        Answer {
            code: 0,
            errno: None,
        },
        u64::from(found.is_some()),
    ))
}

pub fn device_look_up(client: &mut Client, maker: &mut Maker<'_>) -> Option<(Answer, u64)> {
    let name = name(maker);
    let made = client.device(maker)?;
    let (instance, device) = (made.instance, made.device.handle());
    let get = client.instances[instance]
        .as_ref()?
        .instance
        .fp_v1_0()
        .get_device_proc_addr;
    // SAFETY: a living device, and a name that ends in NUL.
    let found = unsafe { get(device, name) };
    Some((
        Answer {
            code: 0,
            errno: None,
        },
        u64::from(found.is_some()),
    ))
}
