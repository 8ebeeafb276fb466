//! Which of the container's devices a CUDA ordinal is. CUDA_VISIBLE_DEVICES is never parsed: the driver says what it made of it (decision 25).

use core::ffi::{CStr, c_char, c_int};
use ledger::KeptErrno;
use std::fs;
use std::path::Path;

use abi::cuda::{CUcontext, CUresult, CUuuid};
use budget::charge::{self, Shape};
use budget::identity::{Asked, Candidate, Pci, in_order, may_be_all, of_shown, resolve_all};
use budget::{Bytes, DeviceIndex, DeviceSet};

use seeds::{Seed, planted};

use crate::boundary::cross::Out;
use crate::boundary::entries::next;
use crate::nvml::{Session, parse_uuid};
use crate::process::{ORDINALS, Tenant};
use crate::report;

/// The CUDA devices of this process, by ordinal.
pub struct Devices {
    devices: Vec<Device>,
}

/// One CUDA device.
#[derive(Clone, Copy)]
pub struct Device {
    pub ordinal: u32,
    /// Whose budgets it draws on.
    pub indices: DeviceSet,
    pub context_bound: Bytes,
    pub shape: Shape,
}

impl Devices {
    /// The device of an ordinal.
    pub fn get(&self, ordinal: c_int) -> Option<&Device> {
        usize::try_from(ordinal)
            .ok()
            .and_then(|ordinal| self.devices.get(ordinal))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter()
    }

    /// The device, if there is only one.
    #[inline]
    pub fn only(&self) -> Option<&Device> {
        match self.devices.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }
}

impl Tenant {
    /// The map of devices; `None` until cuInit has succeeded.
    #[inline]
    pub fn devices(self) -> Option<&'static Devices> {
        self.memory.devices.get().or_else(|| self.map_devices(None))
    }

    /// The same, where the container's devices were asked for a moment ago.
    #[cold]
    pub fn map_devices(self, before: Option<Vec<Candidate>>) -> Option<&'static Devices> {
        let _errno = KeptErrno::keep();
        let mut count = 0;
        if next::cuDeviceGetCount(Out::to(&mut count)) != CUresult::SUCCESS {
            return None;
        }
        // Those alone: tools that watch a program's calls tell it of each that fails (D3 of `fixtures/defects.txt`), and on a device that the driver
        // did not count nothing is granted.
        let beyond = c_int::from(planted(Seed::D3));
        let counted = count.clamp(0, ORDINALS as c_int);
        let asked: Vec<Asked> = (0..counted).map(ask).collect();
        (counted..counted + beyond).map(ask).for_each(drop);
        let candidates = before
            .filter(|candidates| are_all_of(candidates, &asked))
            .or_else(container_devices)
            .filter(|candidates| may_be_all(candidates.len(), &asked))
            .unwrap_or_else(|| of_shown(&asked, self.settings().told_apart()));
        let resolved = resolve_all(&asked, &candidates);
        let devices = (0..).zip(resolved).map(|(ordinal, resolution)| {
            let shape = shape(ordinal as c_int);
            Device {
                ordinal,
                indices: if planted(Seed::R10) {
                    DeviceSet::from_iter([DeviceIndex(ordinal)])
                } else {
                    resolution.devices()
                },
                context_bound: charge::context_bound(shape),
                shape,
            }
        });
        let devices = self.memory.devices.set(Devices {
            devices: devices.collect(),
        });
        let ledger = self.ledger();
        for device in devices.iter() {
            let (ordinal, total) = (device.ordinal, device.shape.total);
            for index in device.indices.iter() {
                report::info(format_args!(
                    "CUDA device {ordinal} is device {index}, of {total}"
                ));
                ledger
                    .into_iter()
                    .for_each(|ledger| ledger.note_total(index, total));
            }
        }
        Some(devices)
    }

    /// The device of an ordinal that was charged before.
    pub fn device(self, ordinal: u32) -> Option<&'static Device> {
        self.devices()?.get(c_int::try_from(ordinal).ok()?)
    }

    /// The current context's device.
    pub fn current_device(self) -> Result<&'static Device, NoDevice> {
        let mut ordinal = -1;
        match next::cuCtxGetDevice(Out::to(&mut ordinal)) {
            CUresult::SUCCESS => self
                .devices()
                .and_then(|devices| devices.get(ordinal))
                .ok_or(NoDevice::Unknown),
            CUresult::ERROR_INVALID_CONTEXT
            | CUresult::ERROR_NOT_INITIALIZED
            | CUresult::ERROR_DEINITIALIZED
            | CUresult::ERROR_CONTEXT_IS_DESTROYED => Err(NoDevice::NoContext),
            // In a host function, where no call is.
            CUresult::ERROR_NOT_PERMITTED if !planted(Seed::C43) => Err(NoDevice::NoContext),
            _ => Err(NoDevice::Unknown),
        }
    }

    /// What may be the current context's device: all of them where the driver does not say.
    pub fn current_indices(self) -> DeviceSet {
        match self.current_device() {
            Ok(device) => device.indices,
            Err(NoDevice::NoContext) => DeviceSet::EMPTY,
            Err(NoDevice::Unknown) => DeviceIndex::all()
                .filter(|device| self.budget(*device).is_some())
                .collect(),
        }
    }
}

/// The context whose end takes along what is made in the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub context: u64,
    /// Whether it is charged, so that its end is seen.
    pub known: bool,
}

impl Tenant {
    /// Asked for before the driver makes something, so that [`Tenant::has_ended`] can tell afterwards.
    pub fn owner(self) -> Owner {
        self.owner_of(self.owning_context())
    }

    /// Asked for before what is on record of a context is taken off and the driver asked to end it: where it refuses, that is put back.
    pub fn owner_of(self, context: u64) -> Owner {
        let known = self.memory.contexts.ordinal_of(context).is_some();
        Owner { context, known }
    }

    /// Whether another thread has ended the context, and all that was on record of it, before what was made there came on record: who has put it there takes
    /// it out again (R84 of `fixtures/defects.txt`). Where the context's handle has come back, the next end of that finds it.
    pub fn has_ended(self, owner: Owner) -> bool {
        let ended = || self.memory.contexts.ordinal_of(owner.context).is_none();
        owner.known && ended() && !planted(Seed::R84)
    }

    /// The context that ends what is allocated in the current one: itself, or its device's primary one where it is a green context.
    fn owning_context(self) -> u64 {
        let current = current_context();
        let contexts = &self.memory.contexts;
        if current == 0 || contexts.ordinal_of(current).is_some() {
            return current;
        }
        let primary = self
            .current_device()
            .ok()
            .and_then(|device| contexts.primary_of(device.ordinal));
        primary.unwrap_or(current)
    }
}

/// Why nobody can say which device is current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoDevice {
    /// There is no context, or no call is allowed: the driver refuses all that needs one.
    NoContext,
    /// The driver fails. Whatever it might grant now would be on nobody's account.
    Unknown,
}

/// The current context's handle, 0 if there is none.
pub fn current_context() -> u64 {
    let mut context = CUcontext::NULL;
    match next::cuCtxGetCurrent(Out::to(&mut context)) {
        CUresult::SUCCESS => context.0 as u64,
        _ => 0,
    }
}

/// The container's devices before cuInit. The kernel's list costs nothing, where NVML takes some ten milliseconds a device to begin, but it tells only a machine
/// of one GPU: it may name devices that the container does not have, and not in the order in which NVML numbers them.
pub fn devices_before_init() -> Option<Vec<Candidate>> {
    listed_by_kernel()
        .filter(|listed| listed.len() == 1)
        .map(numbered)
        .or_else(container_devices)
}

/// Whether these candidates are exactly the devices that CUDA shows, each known by its PCI address: nobody can know more of them.
fn are_all_of(candidates: &[Candidate], asked: &[Asked]) -> bool {
    let shown = |candidate: &Candidate| {
        let same = |asked: &&Asked| asked.pci.is_some() && asked.pci == candidate.pci;
        asked.iter().filter(same).count() == 1
    };
    candidates.len() == asked.len() && candidates.iter().all(shown)
}

/// The container's devices before any is known to CUDA: NVML's, else the kernel's list.
pub fn container_devices() -> Option<Vec<Candidate>> {
    Session::open()
        .and_then(|nvml| nvml.candidates())
        .or_else(|| listed_by_kernel().map(numbered))
}

fn ask(ordinal: c_int) -> Asked {
    let (mut card, mut instance) = (CUuuid::default(), CUuuid::default());
    let card = (next::cuDeviceGetUuid(Out::to(&mut card), ordinal) == CUresult::SUCCESS)
        .then_some(card.bytes);
    let instance = (next::cuDeviceGetUuid_v2(Out::to(&mut instance), ordinal) == CUresult::SUCCESS)
        .then_some(instance.bytes);
    // Under MIG the two differ, and the address is the whole card's.
    let whole = card.is_none() || instance.is_none() || card == instance;
    Asked::nvidia(instance.or(card), whole.then(|| pci(ordinal)).flatten())
}

fn pci(ordinal: c_int) -> Option<Pci> {
    let mut text = [0 as c_char; 32];
    let length = text.len() as c_int;
    (next::cuDeviceGetPCIBusId(Out::buffer(&mut text), length, ordinal) == CUresult::SUCCESS)
        .then_some(())?;
    let bytes = text.map(|byte| byte as u8);
    parse_pci(CStr::from_bytes_until_nul(&bytes).ok()?.to_str().ok()?)
}

/// `domain:bus:device.function`, hexadecimal.
fn parse_pci(text: &str) -> Option<Pci> {
    let mut parts = text
        .trim()
        .split([':', '.'])
        .map(|part| u32::from_str_radix(part, 16).ok());
    let pci = Pci {
        domain: parts.next()??,
        bus: parts.next()??,
        device: parts.next()??,
        function: parts.next().flatten().unwrap_or(0),
    };
    Some(pci)
}

/// A device in the kernel module's own list.
struct Listed {
    pci: Pci,
    uuid: Option<[u8; 16]>,
}

/// The kernel module's own list, in the order of the addresses by which its directories are named. `None` where it is empty, or there is none.
fn listed_by_kernel() -> Option<Vec<Listed>> {
    let listed = ledger::entries(Path::new("/proc/driver/nvidia/gpus"));
    let found = listed.into_iter().filter_map(|entry| {
        let pci = parse_pci(entry.file_name()?.to_str()?)?;
        let text = fs::read_to_string(entry.join("information")).unwrap_or_default();
        let uuid = text
            .lines()
            .find_map(|line| line.strip_prefix("GPU UUID:"))
            .and_then(|uuid| parse_uuid(format!("{}\0", uuid.trim()).as_bytes()));
        Some(Listed {
            pci: Pci { function: 0, ..pci },
            uuid,
        })
    });
    let found = in_order(found, |listed| listed.pci);
    (!found.is_empty()).then_some(found)
}

fn numbered(listed: Vec<Listed>) -> Vec<Candidate> {
    (0..)
        .zip(listed)
        .map(|(index, listed)| Candidate {
            index: DeviceIndex(index),
            uuid: listed.uuid,
            pci: Some(listed.pci),
        })
        .collect()
}

fn shape(ordinal: c_int) -> Shape {
    const MULTIPROCESSORS: c_int = 16;
    const THREADS_PER_MULTIPROCESSOR: c_int = 39;
    let attribute = |attribute| {
        let mut value = 0;
        let code = next::cuDeviceGetAttribute(Out::to(&mut value), attribute, ordinal);
        if code == CUresult::SUCCESS {
            u32::try_from(value).unwrap_or(0)
        } else {
            0
        }
    };
    let mut total = 0;
    let known = next::cuDeviceTotalMem_v2(Out::to(&mut total), ordinal) == CUresult::SUCCESS;
    Shape {
        total: Bytes(if known { total as u64 } else { 0 }),
        multiprocessors: attribute(MULTIPROCESSORS),
        threads_per_multiprocessor: attribute(THREADS_PER_MULTIPROCESSOR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pci_address_is_read_in_cuda_and_kernel_spelling() {
        assert_eq!(
            parse_pci("0000:C1:00.0"),
            Some(Pci {
                domain: 0,
                bus: 0xc1,
                device: 0,
                function: 0
            })
        );
        assert_eq!(
            parse_pci("00010000:06:1f.1"),
            Some(Pci {
                domain: 0x1_0000,
                bus: 6,
                device: 0x1f,
                function: 1
            })
        );
        assert_eq!(parse_pci("06:00"), None);
        assert_eq!(parse_pci(""), None);
    }

    #[test]
    fn a_list_is_believed_only_if_cuda_shows_exactly_its_devices() {
        let pci = |bus| Pci {
            domain: 0,
            bus,
            device: 0,
            function: 0,
        };
        let listed = |bus, index| Candidate {
            index: DeviceIndex(index),
            uuid: None,
            pci: Some(pci(bus)),
        };
        let shown = |bus| Asked::nvidia(None, Some(pci(bus)));
        assert!(are_all_of(&[listed(1, 0)], &[shown(1)]));
        assert!(are_all_of(
            &[listed(1, 0), listed(2, 1)],
            &[shown(2), shown(1)]
        ));
        // The host's other devices, another device, one that CUDA tells no address of.
        assert!(!are_all_of(&[listed(1, 0), listed(2, 1)], &[shown(2)]));
        assert!(!are_all_of(&[listed(1, 0)], &[shown(2)]));
        assert!(!are_all_of(
            &[listed(1, 0)],
            &[Asked::nvidia(Some([1; 16]), None)]
        ));
        assert!(!are_all_of(&[], &[shown(1)]));
    }
}
