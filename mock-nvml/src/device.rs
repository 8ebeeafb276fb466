//! Devices: handles, identity, names. CUDA_VISIBLE_DEVICES means nothing here.

use abi::nvml::*;
use mock_device::nvml::Answer as Data;
use mock_device::{Api, DeviceIndex, PciAddress, World};

use crate::boundary::{Answer, In, Out, uuid_bytes};
use crate::library::{self, Subject};
use crate::mig;

/// The devices that NVML shows, in its order.
pub fn all(world: &World) -> impl Iterator<Item = DeviceIndex> {
    world.shown(Api::Nvml).into_iter()
}

pub fn count(count: Out<c_uint>) -> Answer {
    let world = library::ready()?;
    count.required()?.set(all(world).count() as c_uint);
    Ok(())
}

pub fn by_index(index: c_uint, device: Out<nvmlDevice_t>) -> Answer {
    let world = library::ready()?;
    let device = device.required()?;
    let found = all(world).nth(index as usize);
    device.set(library::handle(
        found.ok_or(nvmlReturn_t::ERROR_INVALID_ARGUMENT)?,
    ));
    Ok(())
}

fn uuid_text(world: &World, index: DeviceIndex) -> String {
    world.identity(index, Api::Nvml).uuid_text()
}

/// As it is printed, to the letter; `GPU-` may be left out. A MIG device has its own.
fn handle_by_uuid(world: &'static World, asked: &str) -> Option<nvmlDevice_t> {
    let same = |index: &DeviceIndex| {
        let text = uuid_text(world, *index);
        text == asked || text.strip_prefix("GPU-") == Some(asked)
    };
    let of_instance = || mig::by_uuid(world, asked.strip_prefix("MIG-")?);
    all(world)
        .find(same)
        .map(library::handle)
        .or_else(of_instance)
}

pub fn by_uuid(uuid: In<c_char>, device: Out<nvmlDevice_t>) -> Answer {
    let world = library::ready()?;
    let device = device.required()?;
    let asked = uuid
        .text()
        .ok_or(nvmlReturn_t::ERROR_INVALID_ARGUMENT)?
        .to_string_lossy();
    device.set(handle_by_uuid(world, &asked).ok_or(nvmlReturn_t::ERROR_NOT_FOUND)?);
    Ok(())
}

/// `domain:bus:device` with or without the function, or `bus:device.function`; blanks may stand in front, nothing behind.
fn parse_bus_id(text: &str) -> Option<PciAddress> {
    let text = text.trim_start();
    let with_domain = match text.matches(':').count() {
        2 if text.contains('.') => text.to_owned(),
        2 => format!("{text}.0"),
        1 if text.contains('.') => format!("0:{text}"),
        _ => return None,
    };
    let address: PciAddress = with_domain.parse().ok()?;
    (address.function == 0).then_some(address)
}

/// The device at that address; NOT_FOUND where none is, INVALID_ARGUMENT for what is no address.
pub fn at_bus_id(world: &World, id: &In<c_char>) -> Result<DeviceIndex, nvmlReturn_t> {
    let text = id
        .text()
        .ok_or(nvmlReturn_t::ERROR_INVALID_ARGUMENT)?
        .to_string_lossy();
    let asked = parse_bus_id(&text).ok_or(nvmlReturn_t::ERROR_INVALID_ARGUMENT)?;
    all(world)
        .find(|index| world.identity(*index, Api::Nvml).pci == asked)
        .ok_or(nvmlReturn_t::ERROR_NOT_FOUND)
}

pub fn by_pci_bus_id(id: In<c_char>, device: Out<nvmlDevice_t>) -> Answer {
    let world = library::ready()?;
    let device = device.required()?;
    device.set(library::handle(at_bus_id(world, &id)?));
    Ok(())
}

pub fn name(device: nvmlDevice_t, name: Out<c_char>, length: c_uint) -> Answer {
    let world = library::ready()?;
    let subject = library::subject(device)?;
    let whole = &library::profile(world, subject.device()).name;
    let text = match subject {
        Subject::Device(_) => whole.clone(),
        Subject::Instance(instance) => {
            format!("{whole} MIG {}", mig::parts(instance)?.0.name)
        }
    };
    name.required()?.set_text(&text, length)
}

pub fn uuid(device: nvmlDevice_t, uuid: Out<c_char>, length: c_uint) -> Answer {
    let world = library::ready()?;
    let text = match library::subject(device)? {
        Subject::Device(index) => uuid_text(world, index),
        Subject::Instance(instance) => {
            let uuid = mig::parts(instance)?.1.uuid.to_string();
            format!("MIG-{}", uuid.trim_start_matches("GPU-"))
        }
    };
    uuid.required()?.set_text(&text, length)
}

/// In NVML's order; of a MIG device, among those of its device.
pub fn index(device: nvmlDevice_t, index: Out<c_uint>) -> Answer {
    let world = library::ready()?;
    let found = match library::subject(device)? {
        Subject::Device(wanted) => all(world).position(|shown| shown == wanted),
        Subject::Instance(wanted) => mig::position(world, wanted),
    };
    index
        .required()?
        .set(found.ok_or(nvmlReturn_t::ERROR_INVALID_ARGUMENT)? as c_uint);
    Ok(())
}

/// The number of the device node; nodes are numbered in PCI order here.
pub fn minor_number(device: nvmlDevice_t, minor: Out<c_uint>) -> Answer {
    library::ready()?;
    library::device(device)?;
    index(device, minor)
}

/// A fixed-size field, zero-filled.
pub fn field<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (slot, byte) in field[..N - 1].iter_mut().zip(text.bytes()) {
        *slot = byte as c_char;
    }
    field
}

/// `00000000:00:06.0`.
pub fn bus_text(pci: PciAddress) -> String {
    let PciAddress {
        domain,
        bus,
        device,
        function,
    } = pci;
    format!("{domain:08X}:{bus:02X}:{device:02X}.{function:X}")
}

const VENDOR: u32 = 0x10de;

fn sub_system(world: &'static World, index: DeviceIndex) -> u32 {
    match library::answers(world, index).get("pciSubSystemId") {
        Some(Data::Number(id)) => *id as u32,
        _ => 0,
    }
}

pub fn pci_info(device: nvmlDevice_t, pci: Out<nvmlPciInfo_t>) -> Answer {
    let world = library::ready()?;
    let index = library::device(device)?;
    let pci = pci.required()?;
    let address = world.identity(index, Api::Nvml).pci;
    let id = library::profile(world, index).pci_device_id << 16 | VENDOR;
    pci.set(pci_info_of(address, id, sub_system(world, index)));
    Ok(())
}

/// What stands at an address, by its device and vendor, and its board's.
pub fn pci_info_of(address: PciAddress, id: c_uint, sub_system: c_uint) -> nvmlPciInfo_t {
    let text = bus_text(address);
    nvmlPciInfo_t {
        busIdLegacy: field(&text[4..]),
        domain: address.domain,
        bus: address.bus,
        device: address.device,
        pciDeviceId: id,
        pciSubSystemId: sub_system,
        busId: field(&text),
    }
}

/// The unsuffixed entry point knows no subsystem.
pub fn pci_info_v1(device: nvmlDevice_t, pci: Out<nvmlPciInfo_v2_t>) -> Answer {
    let world = library::ready()?;
    let index = library::device(device)?;
    let pci = pci.required()?;
    let address = world.identity(index, Api::Nvml).pci;
    pci.set(nvmlPciInfo_v2_t {
        busId: field(&bus_text(address)[4..]),
        domain: address.domain,
        bus: address.bus,
        device: address.device,
        pciDeviceId: library::profile(world, index).pci_device_id << 16 | VENDOR,
        ..pci.get()
    });
    Ok(())
}

pub fn pci_info_v2(device: nvmlDevice_t, pci: Out<nvmlPciInfo_v2_t>) -> Answer {
    let world = library::ready()?;
    let index = library::device(device)?;
    let slot = pci.required()?;
    pci_info_v1(device, slot.again())?;
    slot.set(nvmlPciInfo_v2_t {
        pciSubSystemId: sub_system(world, index),
        ..slot.get()
    });
    Ok(())
}

pub fn compute_capability(device: nvmlDevice_t, major: Out<c_int>, minor: Out<c_int>) -> Answer {
    let world = library::ready()?;
    let index = library::device(device)?;
    let (major, minor) = (major.required()?, minor.required()?);
    let [first, second] = library::profile(world, index).compute_capability;
    major.set(first as c_int);
    minor.set(second as c_int);
    Ok(())
}

/// A text of the profile's table.
fn text_of(world: &'static World, index: DeviceIndex, entry: &str) -> Option<&'static str> {
    match library::answers(world, index).get(entry) {
        Some(Data::Text(text)) if !text.starts_with('!') => Some(text),
        _ => None,
    }
}

/// The table has the first device's number; the others follow it.
fn serial_text(world: &'static World, index: DeviceIndex) -> Option<String> {
    let text = text_of(world, index, "nvmlDeviceGetSerial")?;
    let first: u64 = text.parse().ok()?;
    Some((first + u64::from(index.0)).to_string())
}

pub fn serial(device: nvmlDevice_t, serial: Out<c_char>, length: c_uint) -> Answer {
    let world = library::ready()?;
    let index = library::device(device)?;
    let serial = serial.required()?;
    let text = serial_text(world, index).ok_or(nvmlReturn_t::ERROR_NOT_SUPPORTED)?;
    serial.set_text(&text, length)
}

pub fn by_serial(serial: In<c_char>, device: Out<nvmlDevice_t>) -> Answer {
    let world = library::ready()?;
    let device = device.required()?;
    let asked = serial
        .text()
        .ok_or(nvmlReturn_t::ERROR_INVALID_ARGUMENT)?
        .to_string_lossy();
    let found = all(world).find(|index| serial_text(world, *index).as_deref() == Some(&*asked));
    device.set(library::handle(found.ok_or(nvmlReturn_t::ERROR_NOT_FOUND)?));
    Ok(())
}

/// Type 1 is text, type 2 sixteen bytes.
pub fn by_uuid_v(uuid: In<nvmlUUID_v1_t>, device: Out<nvmlDevice_t>) -> Answer {
    const VERSION: c_uint = size_of::<nvmlUUID_v1_t>() as c_uint | 1 << 24;
    let world = library::ready()?;
    let device = device.required()?;
    let uuid = uuid.get().ok_or(nvmlReturn_t::ERROR_INVALID_ARGUMENT)?;
    if uuid.version != VERSION {
        return Err(nvmlReturn_t::ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    let bytes = uuid_bytes(&uuid);
    let found = match uuid.type_ {
        1 => {
            let end = bytes
                .iter()
                .position(|byte| *byte == 0)
                .unwrap_or(bytes.len());
            handle_by_uuid(world, &String::from_utf8_lossy(&bytes[..end]))
        }
        2 => all(world)
            .find(|index| world.identity(*index, Api::Nvml).uuid == bytes[..16])
            .map(library::handle),
        _ => return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT),
    };
    device.set(found.ok_or(nvmlReturn_t::ERROR_NOT_FOUND)?);
    Ok(())
}

pub fn pci_info_ext(device: nvmlDevice_t, pci: Out<nvmlPciInfoExt_v1_t>) -> Answer {
    const VERSION: c_uint = size_of::<nvmlPciInfoExt_v1_t>() as c_uint | 1 << 24;
    /// A display controller, 3D.
    const CLASS: (c_uint, c_uint) = (3, 2);
    let world = library::ready()?;
    let index = library::device(device)?;
    let slot = pci.required()?;
    if slot.get().version != VERSION {
        return Err(nvmlReturn_t::ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    let pci = world.identity(index, Api::Nvml).pci;
    slot.set(nvmlPciInfoExt_v1_t {
        version: VERSION,
        domain: pci.domain,
        bus: pci.bus,
        device: pci.device,
        pciDeviceId: library::profile(world, index).pci_device_id << 16 | VENDOR,
        pciSubSystemId: sub_system(world, index),
        baseClass: CLASS.0,
        subClass: CLASS.1,
        busId: field(&bus_text(pci)),
    });
    Ok(())
}

/// Boards are told apart by where they are plugged in.
pub fn board_id(device: nvmlDevice_t, board: Out<c_uint>) -> Answer {
    let world = library::ready()?;
    let index = library::device(device)?;
    let pci = world.identity(index, Api::Nvml).pci;
    board
        .required()?
        .set(pci.domain << 16 | pci.bus << 8 | pci.device);
    Ok(())
}

/// An identifier that every card has for itself.
pub fn pdi(device: nvmlDevice_t, pdi: Out<nvmlPdi_v1_t>) -> Answer {
    const VERSION: c_uint = size_of::<nvmlPdi_v1_t>() as c_uint | 1 << 24;
    let world = library::ready()?;
    let index = library::device(device)?;
    let slot = pdi.required()?;
    if slot.get().version != VERSION {
        return Err(nvmlReturn_t::ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    let [.., a, b, c, d, e, f, g, h] = world.identity(index, Api::Nvml).uuid;
    slot.set(nvmlPdi_v1_t {
        version: VERSION,
        value: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
    });
    Ok(())
}

/// Whatever the length says: the driver's own version always fits, and a short buffer is overrun by the real library too.
pub fn gsp_version(device: nvmlDevice_t, version: Out<c_char>) -> Answer {
    let world = library::ready()?;
    library::device(device)?;
    let text = &world.machine().driver.version;
    version.required()?.set_text(text, text.len() as c_uint + 1)
}

/// An array of `size` bytes, ended by UNKNOWN.
pub fn performance_states(device: nvmlDevice_t, states: Out<c_int>, size: c_uint) -> Answer {
    const UNKNOWN: c_int = 32;
    let world = library::ready()?;
    let index = library::device(device)?;
    let states = states.required()?;
    let Some(Data::List(known)) =
        library::answers(world, index).get("nvmlDeviceGetSupportedPerformanceStates")
    else {
        return Err(nvmlReturn_t::ERROR_NOT_SUPPORTED);
    };
    let room = size as usize / size_of::<c_int>();
    if room < known.len() {
        return Err(nvmlReturn_t::ERROR_INSUFFICIENT_SIZE);
    }
    for at in 0..room {
        states.nth(at).set(match known.get(at) {
            Some(Data::Number(state)) => *state as c_int,
            _ => UNKNOWN,
        });
    }
    Ok(())
}

/// Steps of 15 MHz between the least and the greatest, for each of the memory clocks.
pub fn graphics_clocks(
    device: nvmlDevice_t,
    memory_clock: c_uint,
    count: Out<c_uint>,
    clocks: Out<c_uint>,
) -> Answer {
    const STEP: usize = 15;
    let world = library::ready()?;
    let index = library::device(device)?;
    let count = count.required()?;
    let answers = library::answers(world, index);
    let numbers = |entry: &str| match answers.get(entry) {
        Some(Data::List(numbers)) => numbers.clone(),
        Some(Data::Fields(fields)) => match fields.get("list") {
            Some(Data::List(numbers)) => numbers.clone(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    };
    let memory = numbers("nvmlDeviceGetSupportedMemoryClocks");
    if memory.is_empty() {
        return Err(nvmlReturn_t::ERROR_NOT_SUPPORTED);
    }
    if memory_clock == 0 {
        return Err(nvmlReturn_t::ERROR_INVALID_ARGUMENT);
    }
    if !memory.contains(&Data::Number(memory_clock.into())) {
        return Err(nvmlReturn_t::ERROR_NOT_FOUND);
    }
    let bounds = numbers("nvmlDeviceGetSupportedGraphicsClocks");
    let [Data::Number(least), Data::Number(greatest)] = bounds.as_slice() else {
        return Err(nvmlReturn_t::ERROR_NOT_SUPPORTED);
    };
    let steps: Vec<c_uint> = (*least as c_uint..=*greatest as c_uint)
        .rev()
        .step_by(STEP)
        .collect();
    crate::process::give(&steps, &count, clocks, |clock| *clock)
}

pub fn driver_branch(branch: Out<nvmlSystemDriverBranchInfo_v1_t>, length: c_uint) -> Answer {
    const VERSION: c_uint = size_of::<nvmlSystemDriverBranchInfo_v1_t>() as c_uint | 1 << 24;
    let world = library::ready()?;
    let slot = branch.required()?;
    let mut info = slot.get();
    if info.version != VERSION {
        return Err(nvmlReturn_t::ERROR_ARGUMENT_VERSION_MISMATCH);
    }
    let version = &world.machine().driver.version;
    let text = match text_of(world, DeviceIndex(0), "nvmlSystemGetDriverBranch") {
        Some(text) => text.to_owned(),
        None => format!("r{}_00", version.split('.').next().unwrap_or_default()),
    };
    if length as usize <= text.len() {
        return Err(nvmlReturn_t::ERROR_INSUFFICIENT_SIZE);
    }
    info.branch = field(&text);
    slot.set(info);
    Ok(())
}

/// When the info ROM was last written: at start, as far as anyone can tell.
pub fn flush_time(device: nvmlDevice_t, timestamp: Out<c_ulonglong>, duration: Out<u64>) -> Answer {
    let world = library::ready()?;
    let index = library::device(device)?;
    let not_ready = |_| nvmlReturn_t::ERROR_NOT_READY;
    let timestamp = timestamp.required().map_err(not_ready)?;
    let duration = duration.required().map_err(not_ready)?;
    let pair = match library::answers(world, index).get("nvmlDeviceGetLastBBXFlushTime") {
        Some(Data::List(pair)) => pair.as_slice(),
        _ => return Err(nvmlReturn_t::ERROR_NOT_SUPPORTED),
    };
    if let [Data::Number(at), Data::Number(took)] = pair {
        timestamp.set(*at as u64);
        duration.set(*took as u64);
    }
    Ok(())
}
