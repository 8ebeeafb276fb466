//! Who the devices are and what they have, as NVML says it.

use abi::nvml::{fns, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlReturn_t};

use super::{Library, SCRATCH, SECONDS, call, say, takes_device, text};

/// NVML's view of one device, for the memory measurements of the other sections.
#[derive(Clone, Copy)]
pub struct Onlooker {
    library: Library,
    device: nvmlDevice_t,
}

impl Onlooker {
    pub fn open(index: u32) -> Result<Self, String> {
        let (library, device) = device(index)?;
        Ok(Self { library, device })
    }

    /// Bytes in use, the reserve left out.
    pub fn used(self) -> u64 {
        self.memory_v2().used
    }

    pub fn free(self) -> u64 {
        self.memory_v2().free
    }

    /// A driver of before 510 has no second version and no figure for its reserve.
    fn memory_v2(self) -> nvmlMemory_v2_t {
        let mut memory = nvmlMemory_v2_t {
            version: nvmlMemory_v2_t::VERSION,
            ..Default::default()
        };
        let answer = call!(
            self.library,
            nvmlDeviceGetMemoryInfo_v2(self.device, &mut memory)
        );
        if answer != nvmlReturn_t::SUCCESS {
            let mut first = nvmlMemory_t::default();
            let _ = call!(
                self.library,
                nvmlDeviceGetMemoryInfo(self.device, &mut first)
            );
            (memory.used, memory.free) = (first.used, first.free);
        }
        memory
    }
}

/// NVML, initialised, and one of its devices.
pub fn device(index: u32) -> Result<(Library, nvmlDevice_t), String> {
    let library = Library::open("libnvidia-ml.so.1")?;
    let mut device = nvmlDevice_t(std::ptr::null_mut());
    let answers = [
        call!(library, nvmlInit_v2()),
        call!(library, nvmlDeviceGetHandleByIndex_v2(index, &mut device)),
    ];
    match answers == [nvmlReturn_t::SUCCESS; 2] {
        true => Ok((library, device)),
        false => Err(format!("NVML: no device {index} to ask about: {answers:?}")),
    }
}

/// Lines `driver KEY VALUE` and `N KEY VALUE`.
pub fn identity() -> Result<(), String> {
    let library = Library::open("libnvidia-ml.so.1")?;
    let (mut count, mut version) = (0, [0; 96]);
    let ready = call!(library, nvmlInit_v2());
    if ready != nvmlReturn_t::SUCCESS {
        return Err(format!("nvmlInit_v2: {ready:?}"));
    }
    let _ = call!(library, nvmlDeviceGetCount_v2(&mut count));
    let _ = call!(
        library,
        nvmlSystemGetDriverVersion(version.as_mut_ptr(), 96)
    );
    say(&format!("driver version {}", text(&version)));
    for index in 0..count {
        let mut device = nvmlDevice_t(std::ptr::null_mut());
        let (mut name, mut id) = ([0; 96], [0; 96]);
        let mut pci = nvmlPciInfo_t {
            busIdLegacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: [0; 32],
        };
        let mut memory = nvmlMemory_t::default();
        let answers = [
            call!(library, nvmlDeviceGetHandleByIndex_v2(index, &mut device)),
            call!(library, nvmlDeviceGetName(device, name.as_mut_ptr(), 96)),
            call!(library, nvmlDeviceGetUUID(device, id.as_mut_ptr(), 96)),
            call!(library, nvmlDeviceGetPciInfo_v3(device, &mut pci)),
            call!(library, nvmlDeviceGetMemoryInfo(device, &mut memory)),
        ];
        if answers != [nvmlReturn_t::SUCCESS; 5] {
            return Err(format!("device {index}: {answers:?}"));
        }
        let onlooker = Onlooker { library, device };
        say(&format!("{index} name {}", text(&name)));
        say(&format!("{index} uuid {}", text(&id)));
        say(&format!(
            "{index} pci {:04x}:{:02x}:{:02x}.0",
            pci.domain, pci.bus, pci.device
        ));
        say(&format!("{index} pci_device_id {}", pci.pciDeviceId >> 16));
        say(&format!("{index} nvml_total {}", memory.total));
        say(&format!(
            "{index} nvml_reserve {}",
            onlooker.memory_v2().reserved
        ));
    }
    Ok(())
}

/// Newest version of a structure, and largest structure in bytes, that is asked for.
const NEWEST: u32 = 6;
const LARGEST: u32 = 4096;

/// What a getter says to a version that it does not know; nvmlDeviceGetMemoryInfo_v2 says the second.
const REFUSALS: [Option<u32>; 2] = [
    Some(nvmlReturn_t::ERROR_ARGUMENT_VERSION_MISMATCH.0),
    Some(nvmlReturn_t::ERROR_FUNCTION_NOT_FOUND.0),
];

/// Lines `NAME VERSION:SIZE …`: the structures that a getter of NVML takes, found by asking it with every size of every version. A
/// getter that minds no version is `plain`, one that takes none of these `none`.
pub fn structures(names: &[String]) -> Result<(), String> {
    let (library, device) = device(0)?;
    for name in names {
        say(&format!("? {name}"));
        let accepts = |version: u32| {
            let mut place = vec![0_u64; SCRATCH];
            place[0] = u64::from(version);
            let at = place.as_mut_ptr() as usize;
            let code = match takes_device(name) {
                true => library.with_two(name, device.0 as usize, at),
                false => library.with(name, at),
            };
            !REFUSALS.contains(&code)
        };
        // SAFETY: ends this process if the calls do not.
        unsafe { libc::alarm(12 * SECONDS) };
        let mut taken = Vec::new();
        if accepts(0) {
            taken.push("plain".to_owned());
        } else {
            for version in 1..=NEWEST {
                for size in (4..=LARGEST).step_by(4) {
                    if accepts(version << 24 | size) {
                        taken.push(format!("{version}:{size}"));
                    }
                }
            }
        }
        // SAFETY: as above.
        unsafe { libc::alarm(0) };
        if taken.is_empty() {
            taken.push("none".to_owned());
        }
        say(&format!("{name} {}", taken.join(" ")));
    }
    Ok(())
}
