//! How devices lie to one another and to the host's processors. The simulated host is one NUMA node; its devices are ports
//! of one host bridge, and joined as the profile's `peer` says. Recorded is only one H200 alone, whose NVLinks are down:
//! what two say of their links is inferred from nvml.h and NVIDIA's published tables.

use abi::nvml::enumerations::*;
use abi::nvml::*;
use mock_device::{DeviceIndex, Link};

use crate::boundary::{Answer, Out, crash};
use crate::device::all;
use crate::library;
use crate::recorded::refusal;

const HOST_BRIDGE: c_int = 30;
const OK: c_int = 0;
const NOT_SUPPORTED: c_int = 5;

pub fn common_ancestor(first: nvmlDevice_t, second: nvmlDevice_t, level: Out<c_int>) -> Answer {
    library::ready()?;
    let (first, second) = (library::device(first)?, library::device(second)?);
    if first == second {
        return Err(nvmlReturn_t::ERROR_NOT_SUPPORTED);
    }
    level.required()?.set(HOST_BRIDGE);
    Ok(())
}

/// The other devices at that level. In: room; out: how many there are.
pub fn nearest(
    device: nvmlDevice_t,
    level: c_int,
    count: Out<c_uint>,
    handles: Out<nvmlDevice_t>,
) -> Answer {
    let world = library::ready()?;
    let device = library::device(device)?;
    let others: Vec<_> = all(world)
        .filter(|other| level == HOST_BRIDGE && *other != device)
        .map(library::handle)
        .collect();
    give(&others, count, handles)
}

/// Every device is near every processor of a host with one node.
pub fn gpu_set(_processor: c_uint, count: Out<c_uint>, handles: Out<nvmlDevice_t>) -> Answer {
    let world = library::ready()?;
    if count.is_null() {
        crash();
    }
    let all: Vec<_> = all(world).map(library::handle).collect();
    give(&all, count, handles)
}

/// Where there is no array, only the count is told.
fn give(found: &[nvmlDevice_t], count: Out<c_uint>, handles: Out<nvmlDevice_t>) -> Answer {
    let count = count.required()?;
    let room = count.get() as usize;
    count.set(found.len() as c_uint);
    if room == 0 {
        return Ok(());
    }
    let handles = handles.required()?;
    for (at, handle) in found.iter().take(room).enumerate() {
        handles.nth(at).set(*handle);
    }
    Ok(())
}

/// What is asked of a pair.
mod capability {
    use super::c_int;

    pub const READ: c_int = 0;
    pub const WRITE: c_int = 1;
    pub const NVLINK: c_int = 2;
    pub const ATOMICS: c_int = 3;
    pub const PCI: c_int = 4;
}

/// A device reaches nothing of itself, as recorded; a question that is none is answered with OK, as there.
pub fn p2p_status(
    first: nvmlDevice_t,
    second: nvmlDevice_t,
    capability: c_int,
    status: Out<c_int>,
) -> Answer {
    let world = library::ready()?;
    let (first, second) = (library::device(first)?, library::device(second)?);
    let link = world.machine().link(first, second);
    let able = match capability {
        capability::READ | capability::WRITE => link.reaches(),
        capability::NVLINK => link == Link::Nvlink,
        capability::ATOMICS => link.is_atomic(),
        capability::PCI => link == Link::Pcie,
        _ => true,
    };
    status
        .required()?
        .set(if able { OK } else { NOT_SUPPORTED });
    Ok(())
}

/// Refuses a link that the generation has not, and every link of a device whose links are down, as recorded.
fn up(device: nvmlDevice_t, link: c_uint, entry: &str) -> Result<DeviceIndex, nvmlReturn_t> {
    let world = library::ready()?;
    let device = library::device(device)?;
    match world.machine().nvlinks(device) {
        0 => match refusal(world, device, entry) {
            nvmlReturn_t::SUCCESS => Err(nvmlReturn_t::ERROR_NOT_SUPPORTED),
            code => Err(code),
        },
        links if link < links => Ok(device),
        _ => Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT),
    }
}

pub fn link_state(device: nvmlDevice_t, link: c_uint, state: Out<nvmlEnableState_t>) -> Answer {
    library::ready()?;
    let state = state.required()?;
    up(device, link, "nvmlDeviceGetNvLinkState")?;
    state.set(1);
    Ok(())
}

/// The version of the link by the compute capability: NVLink 4 is Hopper's.
pub fn link_version(device: nvmlDevice_t, link: c_uint, version: Out<c_uint>) -> Answer {
    /// NVML_NVLINK_VERSION_…, which counts 2.2 and 3.1 too.
    const BY_MAJOR: [(u32, c_uint); 4] = [(10, 7), (9, 6), (8, 5), (7, 2)];
    let world = library::ready()?;
    let version = version.required()?;
    let index = up(device, link, "nvmlDeviceGetNvLinkVersion")?;
    let major = library::profile(world, index).compute_capability[0];
    let found = BY_MAJOR.iter().find(|(since, _)| major >= *since);
    version.set(found.map_or(1, |(_, version)| *version));
    Ok(())
}

/// Every link ends at a switch: that is how any number of devices are all joined with each other.
pub fn link_remote_type(
    device: nvmlDevice_t,
    link: c_uint,
    kind: Out<nvmlIntNvLinkDeviceType_t>,
) -> Answer {
    const SWITCH: nvmlIntNvLinkDeviceType_t = 2;
    library::ready()?;
    let kind = kind.required()?;
    up(device, link, "nvmlDeviceGetNvLinkRemoteDeviceType")?;
    kind.set(SWITCH);
    Ok(())
}

pub fn same_board(first: nvmlDevice_t, second: nvmlDevice_t, same: Out<c_int>) -> Answer {
    library::ready()?;
    let (first, second) = (library::device(first)?, library::device(second)?);
    same.required()?.set(c_int::from(first == second));
    Ok(())
}

/// The processors that there are, as bits; and the one node.
fn bits(set: Out<u64>, words: c_uint, first: u64) -> Answer {
    let set = set.required()?;
    if words == 0 {
        return Err(nvmlReturn_t::ERROR_INSUFFICIENT_SIZE);
    }
    for at in 0..words as usize {
        set.nth(at).set(if at == 0 { first } else { 0 });
    }
    Ok(())
}

fn processors() -> u64 {
    let count = std::thread::available_parallelism().map_or(1, |count| count.get());
    u64::MAX >> (64 - count.clamp(1, 64))
}

pub fn cpu_affinity(device: nvmlDevice_t, words: c_uint, set: Out<u64>) -> Answer {
    library::ready()?;
    library::device(device)?;
    bits(set, words, processors())
}

/// Scope 0 is the node, 1 the socket.
pub fn cpu_affinity_within(
    device: nvmlDevice_t,
    words: c_uint,
    set: Out<u64>,
    scope: c_uint,
) -> Answer {
    library::ready()?;
    library::device(device)?;
    if scope > 1 {
        return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT);
    }
    bits(set, words, processors())
}

pub fn memory_affinity(
    device: nvmlDevice_t,
    words: c_uint,
    set: Out<u64>,
    scope: c_uint,
) -> Answer {
    library::ready()?;
    library::device(device)?;
    if scope > 1 {
        return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT);
    }
    bits(set, words, 1)
}
