//! Devices: counting, names, identity, attributes.

use std::sync::Once;

use abi::cuda::*;
use mock_device::{Api, PciAddress};

use crate::boundary::{Answer, In, Out, crash};
use crate::{driver, entry};

pub fn get(device: Out<CUdevice>, ordinal: c_int) -> Answer {
    let driver = driver::get()?;
    let device = device.required()?;
    device.set(driver.ordinal(ordinal)?.0 as CUdevice);
    Ok(())
}

pub fn count(count: Out<c_int>) -> Answer {
    let driver = driver::get()?;
    count.required()?.set(driver.count() as c_int);
    Ok(())
}

pub fn name(name: Out<c_char>, len: c_int, dev: CUdevice) -> Answer {
    const MOST: c_uint = 256;
    let driver = driver::get()?;
    let name = name.required()?;
    let device = driver.ordinal(dev)?;
    match len.cast_unsigned().min(MOST) {
        // The driver ends the text before its first byte.
        0 => crash(),
        len => name.fill_text(&driver.profile(device).name, len as usize),
    }
    Ok(())
}

pub fn uuid(uuid: Out<CUuuid>, dev: CUdevice) -> Answer {
    let driver = driver::get()?;
    let uuid = uuid.required()?;
    let device = driver.ordinal(dev)?;
    uuid.set(CUuuid {
        bytes: driver.world.identity(driver.index(device), Api::Cuda).uuid,
    });
    Ok(())
}

pub fn total_mem(bytes: Out<usize>, dev: CUdevice) -> Answer {
    let driver = driver::get()?;
    let bytes = bytes.required()?;
    // The card writes 0 for a device that there is not (seen on the H200).
    bytes.set(0);
    bytes.set(driver.profile(driver.ordinal(dev)?).cuda_total.0 as usize);
    Ok(())
}

/// The 32-bit version says no more than it can.
pub fn total_mem_32(bytes: Out<c_uint>, dev: CUdevice) -> Answer {
    let driver = driver::get()?;
    let bytes = bytes.required()?;
    bytes.set(0);
    let total = driver.profile(driver.ordinal(dev)?).cuda_total.0;
    bytes.set(c_uint::try_from(total).unwrap_or(c_uint::MAX));
    Ok(())
}

/// An attribute that the machine's driver knows and the profile does not give is refused, which is said once: 0 would be an answer.
pub fn attribute(value: Out<c_int>, attribute: CUdevice_attribute, dev: CUdevice) -> Answer {
    let value = value.required()?;
    let driver = driver::get()?;
    let device = driver.ordinal(dev)?;
    let pci = driver.world.identity(driver.index(device), Api::Cuda).pci;
    value.set(match attribute {
        33 => pci.bus as c_int,
        34 => pci.device as c_int,
        50 => pci.domain as c_int,
        known if entry::generation().knows_attribute(known) => {
            let told = driver.profile(device).attribute(known);
            told.ok_or_else(|| unknown_attribute(&driver.profile(device).name, known))?
        }
        _ => return Err(CUresult::ERROR_INVALID_VALUE),
    });
    Ok(())
}

fn unknown_attribute(device: &str, attribute: CUdevice_attribute) -> CUresult {
    static SAID: Once = Once::new();
    SAID.call_once(|| {
        eprintln!(
            "mock-libcuda: the profile of {device} does not say CUdevice_attribute {attribute}: INVALID_VALUE (said once)"
        );
    });
    CUresult::ERROR_INVALID_VALUE
}

pub fn compute_capability(major: Out<c_int>, minor: Out<c_int>, dev: CUdevice) -> Answer {
    let driver = driver::get()?;
    let (major, minor) = (major.required()?, minor.required()?);
    let [first, second] = driver.profile(driver.ordinal(dev)?).compute_capability;
    major.set(first as c_int);
    minor.set(second as c_int);
    Ok(())
}

pub fn properties(properties: Out<CUdevprop>, dev: CUdevice) -> Answer {
    let driver = driver::get()?;
    let properties = properties.required()?;
    let profile = driver.profile(driver.ordinal(dev)?);
    let attribute = |number| profile.attribute(number).unwrap_or(0);
    properties.set(CUdevprop {
        maxThreadsPerBlock: attribute(1),
        maxThreadsDim: [attribute(2), attribute(3), attribute(4)],
        maxGridSize: [attribute(5), attribute(6), attribute(7)],
        sharedMemPerBlock: attribute(8),
        totalConstantMemory: attribute(9),
        SIMDWidth: attribute(10),
        memPitch: attribute(11),
        regsPerBlock: attribute(12),
        clockRate: attribute(13),
        textureAlign: attribute(14),
    });
    Ok(())
}

/// `0000:01:00.0` with its NUL must fit.
pub fn pci_bus_id(id: Out<c_char>, len: c_int, dev: CUdevice) -> Answer {
    let driver = driver::get()?;
    let id = id.required()?;
    let device = driver.ordinal(dev)?;
    let text = driver
        .world
        .identity(driver.index(device), Api::Cuda)
        .pci
        .to_string();
    let len = usize::try_from(len).map_err(|_| CUresult::ERROR_INVALID_VALUE)?;
    id.set_text(&text, len);
    // What was cut is written, and refused.
    match len > text.len() {
        true => Ok(()),
        false => Err(CUresult::ERROR_INVALID_VALUE),
    }
}

pub fn by_pci_bus_id(dev: Out<CUdevice>, id: In<c_char>) -> Answer {
    let driver = driver::get()?;
    let dev = dev.required()?;
    let text = id
        .text()
        .and_then(|text| text.to_str().ok())
        .ok_or(CUresult::ERROR_INVALID_VALUE)?;
    let asked = parse_pci(text).ok_or(CUresult::ERROR_INVALID_VALUE)?;
    let found = driver.ordinals().find(|device| {
        let pci = driver.world.identity(driver.index(*device), Api::Cuda).pci;
        (pci.domain, pci.bus, pci.device) == (asked.domain, asked.bus, asked.device)
    });
    dev.set(found.ok_or(CUresult::ERROR_INVALID_DEVICE)?.0 as CUdevice);
    Ok(())
}

/// `domain:bus:device.function`, `domain:bus:device` and `bus:device.function` are all taken.
fn parse_pci(text: &str) -> Option<PciAddress> {
    let domain_given = text.matches(':').count() == 2;
    let full = if domain_given {
        text.to_owned()
    } else {
        format!("0:{text}")
    };
    let full = if full.contains('.') {
        full
    } else {
        format!("{full}.0")
    };
    full.parse().ok()
}

pub fn can_access_peer(can: Out<c_int>, dev: CUdevice, peer: CUdevice) -> Answer {
    let driver = driver::get()?;
    let can = can.required()?;
    let link = driver.link(driver.ordinal(dev)?, driver.ordinal(peer)?);
    can.set(link.reaches().into());
    Ok(())
}

pub fn p2p_attribute(
    value: Out<c_int>,
    attribute: c_int,
    source: CUdevice,
    target: CUdevice,
) -> Answer {
    let driver = driver::get()?;
    let value = value.required()?;
    let (source, target) = (driver.ordinal(source)?, driver.ordinal(target)?);
    if source == target {
        return Err(CUresult::ERROR_INVALID_DEVICE);
    }
    let link = driver.link(source, target);
    value.set(match attribute {
        // The rank of the best way there is: the lower, the better.
        1 => 0,
        // Memory, and arrays in it.
        2 | 4 => link.reaches().into(),
        3 => link.is_atomic().into(),
        // Where atomics work, all of them do.
        5 => 0,
        _ => return Err(CUresult::ERROR_INVALID_VALUE),
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pci_address_may_leave_out_its_domain_or_function() {
        let wanted = PciAddress {
            domain: 0,
            bus: 6,
            device: 0x1f,
            function: 0,
        };
        for text in ["0000:06:1f.0", "0000:06:1f", "06:1f.0"] {
            assert_eq!(parse_pci(text), Some(wanted), "{text}");
        }
        assert_eq!(parse_pci("gpu0"), None);
    }
}
