//! Device memory. Version 1 counts the reserve as used, version 2 shows it apart.

use abi::nvml::*;
use mock_device::{Bytes, DeviceIndex, World};

use crate::boundary::{Answer, Out};
use crate::library;

struct Figures {
    total: Bytes,
    reserved: Bytes,
    used: Bytes,
    free: Bytes,
}

fn figures(world: &'static World, index: DeviceIndex) -> Figures {
    let profile = library::profile(world, index);
    let used = world.used(index);
    let reserved = world.reserve(index);
    let free = profile
        .nvml_total
        .saturating_sub(reserved)
        .saturating_sub(used);
    Figures {
        total: profile.nvml_total,
        reserved,
        used,
        free,
    }
}

pub fn info(device: nvmlDevice_t, memory: Out<nvmlMemory_t>) -> Answer {
    let world = library::ready()?;
    let index = library::device(device)?;
    let memory = memory.required()?;
    let Figures {
        total,
        reserved,
        used,
        free,
    } = figures(world, index);
    memory.set(nvmlMemory_t {
        total: total.0,
        free: free.0,
        used: (used + reserved).0,
    });
    Ok(())
}

/// A version that is none answers FUNCTION_NOT_FOUND, as the card did.
pub fn info_v2(device: nvmlDevice_t, memory: Out<nvmlMemory_v2_t>) -> Answer {
    let world = library::ready()?;
    let index = library::device(device)?;
    let memory = memory.required()?;
    let version = memory.get().version;
    if version != nvmlMemory_v2_t::VERSION {
        return Err(nvmlReturn_t::ERROR_FUNCTION_NOT_FOUND);
    }
    let Figures {
        total,
        reserved,
        used,
        free,
    } = figures(world, index);
    memory.set(nvmlMemory_v2_t {
        version,
        total: total.0,
        reserved: reserved.0,
        free: free.0,
        used: used.0,
    });
    Ok(())
}
