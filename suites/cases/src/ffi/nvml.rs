//! A client of NVML by dlopen and dlsym.

use abi::nvml::{fns, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlReturn_t};

use super::library::{Absent, Library, Visibility};

macro_rules! table {
    ($($name:ident)*) => {
        #[allow(non_snake_case, reason = "C names stay exact")]
        struct Table { $($name: Option<fns::$name>,)* }

        impl Table {
            fn of(library: Library) -> Self {
                // SAFETY: each name is paired with its own type from the one table of signatures.
                unsafe { Self { $($name: library.function(stringify!($name)),)* } }
            }
        }
    };
}

table! {
    nvmlInit_v2 nvmlShutdown nvmlDeviceGetCount_v2 nvmlDeviceGetHandleByIndex_v2
    nvmlDeviceGetMemoryInfo nvmlDeviceGetMemoryInfo_v2 nvmlDeviceGetUUID nvmlDeviceGetPciInfo_v3
    nvmlDeviceGetComputeRunningProcesses_v3 nvmlDeviceGetComputeRunningProcesses_v2 nvmlDeviceGetComputeRunningProcesses
    nvmlDeviceGetGraphicsRunningProcesses nvmlDeviceGetGraphicsRunningProcesses_v2 nvmlDeviceGetGraphicsRunningProcesses_v3
    nvmlDeviceGetMPSComputeRunningProcesses nvmlDeviceGetMPSComputeRunningProcesses_v2 nvmlDeviceGetMPSComputeRunningProcesses_v3
    nvmlDeviceGetBAR1MemoryInfo nvmlDeviceGetUtilizationRates nvmlDeviceGetProcessUtilization
    nvmlDeviceGetAccountingStats nvmlDeviceGetAccountingPids nvmlDeviceGetAccountingBufferSize
}

/// What a call of a function that the driver lacks comes to.
pub const MISSING: nvmlReturn_t = nvmlReturn_t(u32::MAX);

macro_rules! call {
    ($client:ident.$name:ident($($argument:expr),*)) => {
        match $client.table.$name {
            // SAFETY: the signature is the table's; pointers are to locals that outlive the call, or NULL on purpose.
            Some(function) => unsafe { function($($argument),*) },
            None => MISSING,
        }
    };
}

mod beside;
pub use beside::Told;

/// NVML as the process finds it.
pub struct Nvml {
    table: Table,
}

/// A device handle, or none.
#[derive(Clone, Copy)]
pub struct Device(nvmlDevice_t);

impl Device {
    pub const NULL: Device = Device(nvmlDevice_t(std::ptr::null_mut()));
}

impl Nvml {
    pub fn open() -> Result<Self, Absent> {
        let library = Library::open("libnvidia-ml.so.1", Visibility::Local)?;
        Ok(Self {
            table: Table::of(library),
        })
    }

    pub fn init(&self) -> nvmlReturn_t {
        call!(self.nvmlInit_v2())
    }

    pub fn shutdown(&self) -> nvmlReturn_t {
        call!(self.nvmlShutdown())
    }

    pub fn device_count(&self) -> Result<u32, nvmlReturn_t> {
        let mut count = 0;
        checked(call!(self.nvmlDeviceGetCount_v2(&mut count)), || count)
    }

    pub fn device(&self, index: u32) -> Result<Device, nvmlReturn_t> {
        let mut device = Device::NULL;
        let answer = call!(self.nvmlDeviceGetHandleByIndex_v2(index, &mut device.0));
        checked(answer, || device)
    }

    /// The unsuffixed call.
    pub fn memory(&self, device: Device) -> Result<nvmlMemory_t, nvmlReturn_t> {
        let mut memory = nvmlMemory_t::default();
        let answer = call!(self.nvmlDeviceGetMemoryInfo(device.0, &mut memory));
        checked(answer, || memory)
    }

    pub fn memory_v2(&self, device: Device) -> Result<nvmlMemory_v2_t, nvmlReturn_t> {
        let mut memory = nvmlMemory_v2_t {
            version: nvmlMemory_v2_t::VERSION,
            ..Default::default()
        };
        let answer = call!(self.nvmlDeviceGetMemoryInfo_v2(device.0, &mut memory));
        checked(answer, || memory)
    }

    /// The processes that compute on a device, each with what NVML says that it takes.
    pub fn processes(&self, device: Device) -> Result<Vec<(u32, u64)>, nvmlReturn_t> {
        let mut rows = vec![abi::nvml::nvmlProcessInfo_t::default(); 256];
        let mut count = rows.len() as u32;
        let rows_at = rows.as_mut_ptr();
        // Drivers before 510 have the second version alone, whose rows are the same.
        let answer = match call!(
            self.nvmlDeviceGetComputeRunningProcesses_v3(device.0, &mut count, rows_at)
        ) {
            MISSING => {
                call!(self.nvmlDeviceGetComputeRunningProcesses_v2(device.0, &mut count, rows_at))
            }
            answer => answer,
        };
        checked(answer, || {
            rows.truncate(count as usize);
            rows.iter()
                .map(|row| (row.pid, row.usedGpuMemory))
                .collect()
        })
    }

    /// Both memory calls with a NULL structure.
    pub fn memory_into_nothing(&self, device: Device) -> [nvmlReturn_t; 2] {
        [
            call!(self.nvmlDeviceGetMemoryInfo(device.0, std::ptr::null_mut())),
            call!(self.nvmlDeviceGetMemoryInfo_v2(device.0, std::ptr::null_mut())),
        ]
    }

    /// Both memory calls with a good structure: their bare answers.
    pub fn memory_answers(&self, device: Device) -> [nvmlReturn_t; 2] {
        let answer =
            |memory: Result<(), nvmlReturn_t>| memory.err().unwrap_or(nvmlReturn_t::SUCCESS);
        [
            answer(self.memory(device).map(drop)),
            answer(self.memory_v2(device).map(drop)),
        ]
    }

    /// PCI address (domain, bus, device), as the devices' order is given by it.
    pub fn pci(&self, device: Device) -> Result<(u32, u32, u32), nvmlReturn_t> {
        let mut pci = abi::nvml::nvmlPciInfo_t {
            busIdLegacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            pciDeviceId: 0,
            pciSubSystemId: 0,
            busId: [0; 32],
        };
        let answer = call!(self.nvmlDeviceGetPciInfo_v3(device.0, &mut pci));
        checked(answer, || (pci.domain, pci.bus, pci.device))
    }

    /// `GPU-…`.
    pub fn uuid(&self, device: Device) -> Result<String, nvmlReturn_t> {
        let mut text = [0; 96];
        let answer = call!(self.nvmlDeviceGetUUID(device.0, text.as_mut_ptr(), 96));
        checked(answer, || {
            let bytes = text.iter().map(|&byte| byte as u8);
            let bytes: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
}

fn checked<T>(answer: nvmlReturn_t, value: impl FnOnce() -> T) -> Result<T, nvmlReturn_t> {
    match answer {
        nvmlReturn_t::SUCCESS => Ok(value()),
        refused => Err(refused),
    }
}
