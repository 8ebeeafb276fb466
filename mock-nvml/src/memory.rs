//! Device memory. Version 1 counts the reserve as used, version 2 shows it apart.

use abi::nvml::*;
use mock_device::nvml::Answer as Data;
use mock_device::{Bytes, World};

use crate::boundary::{Answer, Out};
use crate::library::{self, Subject};
use crate::mig;
use crate::recorded;

struct Figures {
    total: Bytes,
    reserved: Bytes,
    used: Bytes,
    free: Bytes,
}

/// Of a whole device, or of one of its instances: the processes of a device run in its first.
fn figures(world: &'static World, subject: Subject) -> Result<Figures, nvmlReturn_t> {
    let index = subject.device();
    let profile = library::profile(world, index);
    let used = world.used(index);
    if let Subject::Instance(instance) = subject {
        let total = mig::parts(instance)?.0.memory;
        let used = match (instance.gpu, instance.compute) {
            (0, 0) => used,
            _ => Bytes::ZERO,
        };
        return Ok(Figures {
            total,
            reserved: Bytes::ZERO,
            used,
            free: total.saturating_sub(used),
        });
    }
    let reserved = world.reserve(index);
    let free = profile
        .nvml_total
        .saturating_sub(reserved)
        .saturating_sub(used);
    Ok(Figures {
        total: profile.nvml_total,
        reserved,
        used,
        free,
    })
}

pub fn info(device: nvmlDevice_t, memory: Out<nvmlMemory_t>) -> Answer {
    let world = library::ready()?;
    let subject = library::subject(device)?;
    let memory = memory.required()?;
    let Figures {
        total,
        reserved,
        used,
        free,
    } = figures(world, subject)?;
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
    let subject = library::subject(device)?;
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
    } = figures(world, subject)?;
    memory.set(nvmlMemory_v2_t {
        version,
        total: total.0,
        reserved: reserved.0,
        free: free.0,
        used: used.0,
    });
    Ok(())
}

/// An instance has its share of the device's window, by memory slices of which there are eight.
pub fn bar1(device: nvmlDevice_t, memory: Out<nvmlBAR1Memory_t>) -> Answer {
    const ENTRY: &str = "nvmlDeviceGetBAR1MemoryInfo";
    const SLICES: u64 = 8;
    let world = library::ready()?;
    let subject = library::subject(device)?;
    let memory = memory.required()?;
    let Some(Data::Fields(fields)) = library::answers(world, subject.device()).get(ENTRY) else {
        return Err(recorded::refusal(world, subject.device(), ENTRY));
    };
    let field = |name: &str| match fields.get(name) {
        Some(Data::Number(bytes)) => *bytes as u64,
        _ => 0,
    };
    let (mut total, mut used) = (field("bar1Total"), field("bar1Used"));
    if let Subject::Instance(instance) = subject {
        let share = mig::parts(instance)?.0.placement[1];
        (total, used) = (total / SLICES * u64::from(share), 0);
    }
    memory.set(nvmlBAR1Memory_t {
        bar1Total: total,
        bar1Free: total - used,
        bar1Used: used,
    });
    Ok(())
}
