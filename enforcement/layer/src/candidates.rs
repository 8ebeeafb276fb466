//! The container's GPUs in NVML's order, which is what a budget's index counts.
//!
//! NVML if it is there; else the kernel driver's own list under /proc, in PCI order; else, or where that names fewer GPUs than Vulkan itself
//! shows, the PCI order of the NVIDIA devices that it shows.

use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use budget::identity::{Asked, Candidate, Pci, in_order, may_be_all, of_shown};
use budget::{DeviceIndex, DeviceSet};

use crate::boundary::nvml;
use crate::settings::settings;
use crate::trace;

static SEEN: AtomicU64 = AtomicU64::new(0);

const PROC: &str = "/proc/driver/nvidia/gpus";

/// Where the candidates come from. `asked` are the physical devices of the instance at hand, for when nothing else knows any.
pub fn candidates(asked: &[Asked]) -> Vec<Candidate> {
    static OF_THE_MACHINE: OnceLock<(&str, Vec<Candidate>)> = OnceLock::new();
    let (source, machine) = OF_THE_MACHINE.get_or_init(|| match nvml::candidates() {
        Some(known) if !known.is_empty() => ("nvml", known),
        _ => ("proc", numbered(of_proc(PROC))),
    });
    let (source, found) = if !machine.is_empty() && may_be_all(machine.len(), asked) {
        (*source, machine.clone())
    } else {
        ("vulkan", of_shown(asked, settings().told_apart()))
    };
    if trace::on() {
        for one in &found {
            let (uuid, pci) = (trace::uuid(one.uuid), trace::pci(one.pci));
            trace::line(format_args!(
                "candidate {} uuid={uuid} pci={pci} source={source}",
                one.index
            ));
        }
    }
    let devices: DeviceSet = found.iter().map(|one| one.index).collect();
    SEEN.fetch_or(devices.bits(), Ordering::Relaxed);
    found
}

/// Every candidate there ever was: whom an allocation is charged to when not even its device is known.
pub fn everyone() -> DeviceSet {
    DeviceSet::from_bits(SEEN.load(Ordering::Relaxed))
}

/// Numbers GPUs in PCI order. One that two drivers show is one GPU.
fn numbered(found: Vec<(Pci, Option<[u8; 16]>)>) -> Vec<Candidate> {
    let mut found = in_order(found, |place| *place);
    found.dedup_by_key(|(pci, _)| *pci);
    found
        .into_iter()
        .enumerate()
        .map(|(index, (pci, uuid))| Candidate {
            index: DeviceIndex(index as u32),
            uuid,
            pci: Some(pci),
        })
        .collect()
}

fn of_proc(directory: &str) -> Vec<(Pci, Option<[u8; 16]>)> {
    let entries = ledger::entries(Path::new(directory)).into_iter();
    entries
        .filter_map(|entry| {
            let pci = parse_pci(entry.file_name()?.to_str()?)?;
            let text = std::fs::read_to_string(entry.join("information")).unwrap_or_default();
            Some((
                pci,
                text.lines()
                    .find_map(|line| parse_uuid(line.strip_prefix("GPU UUID:")?.trim())),
            ))
        })
        .collect()
}

/// `0000:00:06.0`
fn parse_pci(text: &str) -> Option<Pci> {
    let hex = |text: &str| u32::from_str_radix(text, 16).ok();
    let (place, function) = text.split_once('.')?;
    let mut parts = place.split(':');
    let pci = Pci {
        domain: hex(parts.next()?)?,
        bus: hex(parts.next()?)?,
        device: hex(parts.next()?)?,
        function: hex(function)?,
    };
    parts.next().is_none().then_some(pci)
}

/// `GPU-07ac64f7-ff7f-d9fb-9bcb-7afb7720386f`, also `MIG-…`. A driver that does not know yet prints question marks.
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text
        .split_once('-')?
        .1
        .bytes()
        .filter(|byte| *byte != b'-')
        .collect();
    let nibble = |digit: u8| char::from(digit).to_digit(16);
    if digits.len() != 32 {
        return None;
    }
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
        *byte = (nibble(pair[0])? << 4 | nibble(pair[1])?) as u8;
    }
    Some(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn pci(bus: u32) -> Pci {
        Pci {
            domain: 0,
            bus,
            device: 0,
            function: 0,
        }
    }

    #[test]
    fn the_kernel_drivers_list_is_read_in_pci_order() {
        let proc = tempfile::tempdir().expect("a directory");
        for (address, uuid) in [
            ("0000:0b:00.0", "GPU-28d65e0a-acc1-5bda-992b-484e123f6cf3"),
            ("0000:06:00.0", "GPU-????????-????-????-????-????????????"),
        ] {
            std::fs::create_dir(proc.path().join(address)).expect("a directory");
            let text = format!(
                "Model: \t\t NVIDIA H200\nIRQ:   \t\t 31\nGPU UUID: \t {uuid}\nBus Location: \t {address}\n"
            );
            std::fs::write(proc.path().join(address).join("information"), text).expect("a file");
        }
        let found = numbered(of_proc(proc.path().to_str().expect("UTF-8")));
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].pci, found[0].uuid), (Some(pci(6)), None));
        assert_eq!(
            found[1].uuid.map(|uuid| uuid[..4].to_vec()),
            Some(vec![0x28, 0xd6, 0x5e, 0x0a])
        );
        assert_eq!(found[1].index, DeviceIndex(1));
        assert_eq!(of_proc("/nonexistent"), []);
    }

    #[test]
    fn odd_names_are_no_addresses() {
        assert_eq!(
            parse_pci("0000:00:06.0"),
            Some(Pci {
                device: 6,
                ..pci(0)
            })
        );
        assert!(
            ["", "x", "0000:00:06", "0:0:0:0.0", "0000:zz:00.0"]
                .iter()
                .all(|text| parse_pci(text).is_none())
        );
        assert_eq!(parse_uuid("GPU-28d65e0a"), None);
    }
}
