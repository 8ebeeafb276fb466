// What is simulated: one row per entry point, naming the safe function that answers it. `build.rs` includes this file
// too: every other export of driver 580 becomes a stub.

entry_points! {
    system {
        nvmlInit => system::init;
        nvmlInit_v2 => system::init;
        nvmlInitWithFlags => system::init_with_flags;
        nvmlShutdown => system::shutdown;
        nvmlErrorString => error::string;
        nvmlSystemGetDriverVersion => system::driver_version;
        nvmlSystemGetNVMLVersion => system::nvml_version;
        nvmlSystemGetCudaDriverVersion => system::cuda_version;
        nvmlSystemGetCudaDriverVersion_v2 => system::cuda_version;
        nvmlUnitGetCount => system::unit_count;
    }
    device {
        nvmlDeviceGetCount => device::count;
        nvmlDeviceGetCount_v2 => device::count;
        nvmlDeviceGetHandleByIndex => device::by_index;
        nvmlDeviceGetHandleByIndex_v2 => device::by_index;
        nvmlDeviceGetHandleByUUID => device::by_uuid;
        nvmlDeviceGetHandleByPciBusId => device::by_pci_bus_id;
        nvmlDeviceGetHandleByPciBusId_v2 => device::by_pci_bus_id;
        nvmlDeviceGetName => device::name;
        nvmlDeviceGetUUID => device::uuid;
        nvmlDeviceGetIndex => device::index;
        nvmlDeviceGetMinorNumber => device::minor_number;
        nvmlDeviceGetPciInfo => device::pci_info_v2;
        nvmlDeviceGetPciInfo_v2 => device::pci_info_v2;
        nvmlDeviceGetPciInfo_v3 => device::pci_info;
        nvmlDeviceGetCudaComputeCapability => device::compute_capability;
        nvmlDeviceGetUtilizationRates => device::utilization;
    }
    memory {
        nvmlDeviceGetMemoryInfo => memory::info;
        nvmlDeviceGetMemoryInfo_v2 => memory::info_v2;
    }
    process {
        nvmlDeviceGetComputeRunningProcesses => process::compute_v1;
        nvmlDeviceGetComputeRunningProcesses_v2 => process::compute;
        nvmlDeviceGetComputeRunningProcesses_v3 => process::compute;
        nvmlDeviceGetGraphicsRunningProcesses => process::graphics_v1;
        nvmlDeviceGetGraphicsRunningProcesses_v2 => process::graphics;
        nvmlDeviceGetGraphicsRunningProcesses_v3 => process::graphics;
        nvmlDeviceGetMPSComputeRunningProcesses => process::mps_v1;
        nvmlDeviceGetMPSComputeRunningProcesses_v2 => process::mps;
        nvmlDeviceGetMPSComputeRunningProcesses_v3 => process::mps;
    }
}
