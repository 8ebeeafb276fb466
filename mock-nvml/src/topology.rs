//! How devices lie to one another and to the host's processors. The simulated host is one NUMA node; its devices are ports
//! of one host bridge, and joined as the profile's `peer` says. Recorded is only one H200 alone, whose NVLinks are down:
//! what two say of their links is inferred from nvml.h and NVIDIA's published tables.

use abi::nvml::enumerations::*;
use abi::nvml::*;
use mock_device::{Api, DeviceIndex, DeviceProfile, Link, PciAddress, World};

use crate::boundary::{Answer, In, Out, crash};
use crate::device::{all, at_bus_id, pci_info_of};
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

/// The same by two addresses on the bus, as nvidia-smi asks for its matrix; it counts levels from 0 (one bridge, `PIX`) to 4 (`SYS`). What is
/// at none of the devices' addresses, a host's network card, lies beyond their bridge.
pub fn common_ancestor_of_bus_ids(
    first: In<c_char>,
    second: In<c_char>,
    level: Out<c_int>,
) -> Answer {
    const HOST_BRIDGE: c_int = 2;
    const SYSTEM: c_int = 4;
    let world = library::ready()?;
    let level = level.required()?;
    let (first, second) = (at_bus_id(world, &first), at_bus_id(world, &second));
    level.set(match (first, second) {
        (Ok(first), Ok(second)) if first == second => {
            return Err(nvmlReturn_t::ERROR_NOT_SUPPORTED);
        }
        (Ok(_), Ok(_)) => HOST_BRIDGE,
        (Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT), _)
        | (_, Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT)) => {
            return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT);
        }
        _ => SYSTEM,
    });
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

/// A generation of NVLink.
#[derive(Clone, Copy)]
struct Generation {
    /// NVML_NVLINK_VERSION_…, which counts 2.2 and 3.1 too.
    version: c_uint,
    /// What a link carries each way, in MB/s, as NVML says it.
    mbps: c_uint,
}

impl Generation {
    /// By the compute capability: NVLink 4 is Hopper's. The speeds are those that `nvidia-smi nvlink -s` prints of such cards.
    fn of(device: &DeviceProfile) -> Self {
        let (version, mbps) = match device.compute_capability[0] {
            10.. => (7, 53_125),
            9 => (6, 26_562),
            8 => (5, 25_000),
            7 => (2, 25_781),
            _ => (1, 19_531),
        };
        Self { version, mbps }
    }
}

pub fn link_version(device: nvmlDevice_t, link: c_uint, version: Out<c_uint>) -> Answer {
    let world = library::ready()?;
    let version = version.required()?;
    let index = up(device, link, "nvmlDeviceGetNvLinkVersion")?;
    version.set(Generation::of(library::profile(world, index)).version);
    Ok(())
}

/// What a field of NVLink says of a device that is joined with others: value type and value. `scope` is the link's number, or
/// all ones for all links together, where the field is about links. `None` for every other field, and where all links are down: there the
/// profile's table speaks.
///
/// # Errors
/// INVALID_ARGUMENT for a link that the device has not.
pub fn field(
    world: &World,
    index: DeviceIndex,
    id: c_uint,
    scope: c_uint,
) -> Option<Result<(c_int, u64), nvmlReturn_t>> {
    const UNSIGNED_INT: c_int = 1;
    const UNSIGNED_LONG_LONG: c_int = 3;
    let links = world.machine().nvlinks(index);
    if links == 0 {
        return None;
    }
    let generation = Generation::of(world.devices().get(index.0 as usize)?);
    // NVML_FI_DEV_NVLINK_… of nvml.h.
    let (of_a_link, of_all, kind, value) = match id {
        // SPEED_MBPS of links 0 to 5, of 6 to 11, and of all that are active.
        84..=90 | 132..=137 => (false, true, UNSIGNED_INT, generation.mbps.into()),
        // LINK_COUNT, and NVSWITCH_CONNECTED_LINK_COUNT: each leads to a switch.
        91 | 147 => (false, true, UNSIGNED_INT, links.into()),
        // Sums of CRC_FLIT, CRC_DATA, REPLAY, RECOVERY and ECC_DATA errors: none ever.
        38 | 45 | 52 | 59 | 160 => (false, true, UNSIGNED_LONG_LONG, 0),
        // THROUGHPUT_…: peers' copies are not counted.
        138..=141 => (true, true, UNSIGNED_LONG_LONG, 0),
        // ERROR_DL_REPLAY, RECOVERY and CRC.
        161..=163 => (true, false, UNSIGNED_LONG_LONG, 0),
        // REMOTE_NVLINK_ID, GET_SPEED, GET_STATE, GET_VERSION and GET_POWER_STATE: high speed.
        146 => (true, false, UNSIGNED_INT, scope.into()),
        164 => (true, false, UNSIGNED_INT, generation.mbps.into()),
        165 => (true, false, UNSIGNED_INT, 1),
        166 => (true, false, UNSIGNED_INT, generation.version.into()),
        167 => (true, false, UNSIGNED_INT, 0),
        _ => return None,
    };
    let known = !of_a_link || scope < links || (of_all && scope == c_uint::MAX);
    Some(match known {
        true => Ok((kind, value)),
        false => Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT),
    })
}

/// What a link can do: everything that nvml.h asks after.
pub fn link_capability(
    device: nvmlDevice_t,
    link: c_uint,
    capability: c_int,
    result: Out<c_uint>,
) -> Answer {
    const CAPABILITIES: c_int = 6;
    /// NVML_NVLINK_MAX_LINKS: judged before whether they are up, by this one alone.
    const MOST: c_uint = 18;
    library::ready()?;
    let result = result.required()?;
    if link >= MOST {
        library::device(device)?;
        return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT);
    }
    up(device, link, "nvmlDeviceGetNvLinkCapability")?;
    if !(0..CAPABILITIES).contains(&capability) {
        return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT);
    }
    result.set(1);
    Ok(())
}

/// Where a link ends: the one switch that joins all devices. Its address is invented: the last bus of the devices' domain.
pub fn link_remote_pci(device: nvmlDevice_t, link: c_uint, pci: Out<nvmlPciInfo_t>) -> Answer {
    /// GH100's NVSwitch, and NVIDIA.
    const SWITCH: c_uint = 0x22a3_10de;
    const BUS: u32 = 0xff;
    let world = library::ready()?;
    let pci = pci.required()?;
    let index = up(device, link, "nvmlDeviceGetNvLinkRemotePciInfo")?;
    let address = PciAddress {
        bus: BUS,
        device: 0,
        function: 0,
        ..world.identity(index, Api::Nvml).pci
    };
    pci.set(pci_info_of(address, SWITCH, 0));
    Ok(())
}

/// No link has ever failed.
pub fn link_errors(
    device: nvmlDevice_t,
    link: c_uint,
    counter: c_int,
    value: Out<c_ulonglong>,
) -> Answer {
    const COUNTERS: c_int = 5;
    library::ready()?;
    let value = value.required()?;
    up(device, link, "nvmlDeviceGetNvLinkErrorCounter")?;
    if !(0..COUNTERS).contains(&counter) {
        return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT);
    }
    value.set(0);
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
