//! Handles, result codes and structures of NVML.

#![allow(non_camel_case_types, non_snake_case, reason = "C names stay exact")]

pub use std::ffi::{c_char, c_int, c_longlong, c_uint, c_ulonglong, c_void};

/// A result code. Any value may come back from a driver newer than this table.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct nvmlReturn_t(pub u32);

macro_rules! results {
    ($( $name:ident = $value:literal; )*) => {
        impl nvmlReturn_t { $( pub const $name: nvmlReturn_t = nvmlReturn_t($value); )* }

        impl nvmlReturn_t {
            /// The field's name of the code, without the `NVML_` prefix, if this table knows it.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 { $( $value => Some(stringify!($name)), )* _ => None }
            }
        }
    };
}

results! {
    SUCCESS = 0;
    ERROR_UNINITIALIZED = 1;
    ERROR_INVALID_ARGUMENT = 2;
    ERROR_NOT_SUPPORTED = 3;
    ERROR_NO_PERMISSION = 4;
    ERROR_ALREADY_INITIALIZED = 5;
    ERROR_NOT_FOUND = 6;
    ERROR_INSUFFICIENT_SIZE = 7;
    ERROR_INSUFFICIENT_POWER = 8;
    ERROR_DRIVER_NOT_LOADED = 9;
    ERROR_TIMEOUT = 10;
    ERROR_IRQ_ISSUE = 11;
    ERROR_LIBRARY_NOT_FOUND = 12;
    ERROR_FUNCTION_NOT_FOUND = 13;
    ERROR_CORRUPTED_INFOROM = 14;
    ERROR_GPU_IS_LOST = 15;
    ERROR_RESET_REQUIRED = 16;
    ERROR_OPERATING_SYSTEM = 17;
    ERROR_LIB_RM_VERSION_MISMATCH = 18;
    ERROR_IN_USE = 19;
    ERROR_MEMORY = 20;
    ERROR_NO_DATA = 21;
    ERROR_VGPU_ECC_NOT_SUPPORTED = 22;
    ERROR_INSUFFICIENT_RESOURCES = 23;
    ERROR_FREQ_NOT_SUPPORTED = 24;
    ERROR_ARGUMENT_VERSION_MISMATCH = 25;
    ERROR_DEPRECATED = 26;
    ERROR_NOT_READY = 27;
    ERROR_GPU_NOT_FOUND = 28;
    ERROR_INVALID_STATE = 29;
    ERROR_RESET_TYPE_NOT_SUPPORTED = 30;
    ERROR_UNKNOWN = 999;
}

impl std::fmt::Debug for nvmlReturn_t {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => write!(f, "NVML_{name} ({})", self.0),
            None => write!(f, "nvmlReturn_t({})", self.0),
        }
    }
}

/// A device handle.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct nvmlDevice_t(pub *mut c_void);

/// `nvmlMemory_t` (version 1): the reserve is part of `used`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nvmlMemory_t {
    pub total: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

/// `nvmlMemory_v2_t`: `version` holds [`nvmlMemory_v2_t::VERSION`]; the reserve stands apart.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nvmlMemory_v2_t {
    pub version: c_uint,
    pub total: c_ulonglong,
    pub reserved: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

impl nvmlMemory_v2_t {
    /// `NVML_STRUCT_VERSION(Memory, 2)`: the size, and the version in the top byte.
    pub const VERSION: c_uint = size_of::<nvmlMemory_v2_t>() as c_uint | (2 << 24);
}

/// `nvmlUtilization_t`, in percent.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nvmlUtilization_t {
    pub gpu: c_uint,
    pub memory: c_uint,
}

/// `nvmlPciInfo_t` as `nvmlDeviceGetPciInfo_v3` fills it, 68 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct nvmlPciInfo_t {
    pub busIdLegacy: [c_char; 16],
    pub domain: c_uint,
    pub bus: c_uint,
    pub device: c_uint,
    pub pciDeviceId: c_uint,
    pub pciSubSystemId: c_uint,
    pub busId: [c_char; 32],
}

/// What the unsuffixed and `_v2` `nvmlDeviceGetPciInfo` fill, 52 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct nvmlPciInfo_v2_t {
    pub busId: [c_char; 16],
    pub domain: c_uint,
    pub bus: c_uint,
    pub device: c_uint,
    pub pciDeviceId: c_uint,
    pub pciSubSystemId: c_uint,
    pub reserved: [c_uint; 4],
}

/// A process row of the unsuffixed `…RunningProcesses`, 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nvmlProcessInfo_v1_t {
    pub pid: c_uint,
    pub usedGpuMemory: c_ulonglong,
}

/// A process row of `…RunningProcesses_v2` and `_v3`, 24 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct nvmlProcessInfo_t {
    pub pid: c_uint,
    pub usedGpuMemory: c_ulonglong,
    /// `u32::MAX` without MIG.
    pub gpuInstanceId: c_uint,
    /// `u32::MAX` without MIG.
    pub computeInstanceId: c_uint,
}

macro_rules! handles {
    ($( $name:ident; )*) => { $(
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(pub *mut c_void);
    )* };
}
handles! {
    nvmlGpuInstance_t;
    nvmlUnit_t;
    nvmlEventSet_t;
    nvmlSystemEventSet_t;
    nvmlComputeInstance_t;
    nvmlGpmSample_t;
}

pub type nvmlDeviceArchitecture_t = c_uint;
pub type nvmlBusType_t = c_uint;
pub type nvmlFanControlPolicy_t = c_uint;
pub type nvmlPowerSource_t = c_uint;
pub type nvmlPowerScopeType_t = u8;
pub type nvmlVgpuTypeId_t = c_uint;
pub type nvmlVgpuInstance_t = c_uint;
pub type nvmlGpuFabricState_t = u8;
pub type nvmlAffinityScope_t = c_uint;
