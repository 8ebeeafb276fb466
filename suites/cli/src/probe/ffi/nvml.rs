//! Who the devices are and what they have, as NVML says it.

use abi::nvml::{fns, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlPciInfo_t, nvmlReturn_t};

use super::{Library, call, say, text};

/// NVML's view of one device, for the memory measurements of the other sections.
#[derive(Clone, Copy)]
pub struct Onlooker {
    library: Library,
    device: nvmlDevice_t,
}

impl Onlooker {
    pub fn open(index: u32) -> Result<Self, String> {
        let library = Library::open("libnvidia-ml.so.1")?;
        let mut device = nvmlDevice_t(std::ptr::null_mut());
        let answers = [
            call!(library, nvmlInit_v2()),
            call!(library, nvmlDeviceGetHandleByIndex_v2(index, &mut device)),
        ];
        if answers != [nvmlReturn_t::SUCCESS; 2] {
            return Err(format!("NVML: {answers:?}"));
        }
        Ok(Self { library, device })
    }

    /// Bytes in use, the reserve left out.
    pub fn used(self) -> u64 {
        self.memory_v2().used
    }

    pub fn free(self) -> u64 {
        self.memory_v2().free
    }

    fn memory_v2(self) -> nvmlMemory_v2_t {
        let mut memory = nvmlMemory_v2_t {
            version: nvmlMemory_v2_t::VERSION,
            ..Default::default()
        };
        let _ = call!(
            self.library,
            nvmlDeviceGetMemoryInfo_v2(self.device, &mut memory)
        );
        memory
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
