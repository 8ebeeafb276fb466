//! Devices: handles, identity, names. CUDA_VISIBLE_DEVICES means nothing here.

use abi::nvml::*;
use mock_device::{Api, DeviceIndex, PciAddress, World};

use crate::boundary::{Answer, In, Out, crash};
use crate::library;

fn all(world: &World) -> impl Iterator<Item = DeviceIndex> {
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

pub fn by_uuid(uuid: In<c_char>, device: Out<nvmlDevice_t>) -> Answer {
    let world = library::ready()?;
    let device = device.required()?;
    let asked = uuid
        .text()
        .ok_or(nvmlReturn_t::ERROR_INVALID_ARGUMENT)?
        .to_string_lossy();
    let found = all(world).find(|index| uuid_text(world, *index).eq_ignore_ascii_case(&asked));
    device.set(library::handle(found.ok_or(nvmlReturn_t::ERROR_NOT_FOUND)?));
    Ok(())
}

/// With a domain of four or eight digits, or without one; the function may be left out.
pub fn by_pci_bus_id(id: In<c_char>, device: Out<nvmlDevice_t>) -> Answer {
    let world = library::ready()?;
    let device = device.required()?;
    let text = id
        .text()
        .ok_or(nvmlReturn_t::ERROR_INVALID_ARGUMENT)?
        .to_string_lossy();
    let text = if text.matches(':').count() == 2 {
        text.into_owned()
    } else {
        format!("0:{text}")
    };
    let text = if text.contains('.') {
        text
    } else {
        format!("{text}.0")
    };
    let asked: PciAddress = text
        .parse()
        .map_err(|_| nvmlReturn_t::ERROR_INVALID_ARGUMENT)?;
    let found = all(world).find(|index| world.identity(*index, Api::Nvml).pci == asked);
    device.set(library::handle(found.ok_or(nvmlReturn_t::ERROR_NOT_FOUND)?));
    Ok(())
}

pub fn name(device: nvmlDevice_t, name: Out<c_char>, length: c_uint) -> Answer {
    let world = library::ready()?;
    let index = library::device(device)?;
    name.required()?
        .set_text(&library::profile(world, index).name, length)
}

pub fn uuid(device: nvmlDevice_t, uuid: Out<c_char>, length: c_uint) -> Answer {
    let world = library::ready()?;
    let index = library::device(device)?;
    uuid.required()?.set_text(&uuid_text(world, index), length)
}

pub fn index(device: nvmlDevice_t, index: Out<c_uint>) -> Answer {
    let world = library::ready()?;
    let wanted = library::device(device)?;
    let found = all(world).position(|shown| shown == wanted);
    index
        .required()?
        .set(found.ok_or(nvmlReturn_t::ERROR_INVALID_ARGUMENT)? as c_uint);
    Ok(())
}

/// The number of the device node; nodes are numbered in PCI order here.
pub fn minor_number(device: nvmlDevice_t, minor: Out<c_uint>) -> Answer {
    index(device, minor)
}

/// A fixed-size field, zero-filled.
fn field<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (slot, byte) in field[..N - 1].iter_mut().zip(text.bytes()) {
        *slot = byte as c_char;
    }
    field
}

const VENDOR: u32 = 0x10de;

pub fn pci_info(device: nvmlDevice_t, pci: Out<nvmlPciInfo_t>) -> Answer {
    let world = library::ready()?;
    let index = library::device(device)?;
    let pci = pci.required()?;
    let PciAddress {
        domain,
        bus,
        device,
        function,
    } = world.identity(index, Api::Nvml).pci;
    pci.set(nvmlPciInfo_t {
        busIdLegacy: field(&format!("{domain:04X}:{bus:02X}:{device:02X}.{function:X}")),
        domain,
        bus,
        device,
        pciDeviceId: library::profile(world, index).pci_device_id << 16 | VENDOR,
        pciSubSystemId: 0,
        busId: field(&format!("{domain:08X}:{bus:02X}:{device:02X}.{function:X}")),
    });
    Ok(())
}

pub fn pci_info_v2(device: nvmlDevice_t, pci: Out<nvmlPciInfo_v2_t>) -> Answer {
    let world = library::ready()?;
    let index = library::device(device)?;
    let pci = pci.required()?;
    let PciAddress {
        domain,
        bus,
        device,
        function,
    } = world.identity(index, Api::Nvml).pci;
    pci.set(nvmlPciInfo_v2_t {
        busId: field(&format!("{domain:04X}:{bus:02X}:{device:02X}.{function:X}")),
        domain,
        bus,
        device,
        pciDeviceId: library::profile(world, index).pci_device_id << 16 | VENDOR,
        pciSubSystemId: 0,
        reserved: [0; 4],
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

/// Nothing runs on a simulated device yet, so that it is idle.
pub fn utilization(device: nvmlDevice_t, utilization: Out<nvmlUtilization_t>) -> Answer {
    library::ready()?;
    if device.0.is_null() {
        crash();
    }
    library::device(device)?;
    utilization
        .required()?
        .set(nvmlUtilization_t { gpu: 0, memory: 0 });
    Ok(())
}
